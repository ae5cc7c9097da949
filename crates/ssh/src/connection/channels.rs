//! What the application does with a channel's bytes and with its end.

use super::{Connection, Lent};
use crate::channel::{ChannelId, Exit, ExitSignal, State, Stream};
use crate::error::{ApiMisuse, Error};
use fullbore_base::Instant;
use std::time::Duration;

impl Connection {
    /// The unread bytes of the channel, oldest first: in place where they were opened, or all that
    /// the channel kept. Empty when there are none, or no such channel. O(1).
    #[must_use]
    pub fn readable(&self, ch: ChannelId) -> &[u8] {
        self.unread(ch, Stream::Data)
    }

    /// As [`Connection::readable`], of the error stream.
    #[must_use]
    pub fn readable_stderr(&self, ch: ChannelId) -> &[u8] {
        self.unread(ch, Stream::Stderr)
    }

    /// Takes `n` bytes from the front of [`Connection::readable`] (all, when it has fewer): the peer
    /// may send as many again.
    pub fn consume(&mut self, now: Instant, ch: ChannelId, n: usize) {
        self.consume_stream(now, ch, Stream::Data, n);
    }

    /// As [`Connection::consume`], of the error stream.
    pub fn consume_stderr(&mut self, now: Instant, ch: ChannelId, n: usize) {
        self.consume_stream(now, ch, Stream::Stderr, n);
    }

    pub(super) fn lent_to(&self, slot: usize, stream: Stream) -> Option<Lent> {
        self.lent
            .filter(|lent| lent.slot == slot && lent.stream == stream)
    }

    fn unread(&self, ch: ChannelId, stream: Stream) -> &[u8] {
        let Some(channel) = self.table.by_id(ch) else {
            return &[];
        };
        match self.lent_to(ch.slot as usize, stream) {
            Some(lent) => &self.transport.payload()[lent.start..lent.end],
            None => channel.input.backlog(stream).as_slice(),
        }
    }

    fn consume_stream(&mut self, now: Instant, ch: ChannelId, stream: Stream, n: usize) {
        let slot = ch.slot as usize;
        let lent = self.lent_to(slot, stream);
        let Some(channel) = self.table.by_id_mut(ch) else {
            return;
        };
        let n = if let Some(lent) = lent {
            let n = n.min(lent.end - lent.start);
            channel.input.window.on_consumed(n);
            let start = lent.start + n;
            self.lent = (start < lent.end).then_some(Lent { start, ..lent });
            n
        } else {
            let n = n.min(channel.input.backlog(stream).len());
            channel.input.consume(stream, n);
            n
        };
        self.on_consumed(now, slot, n);
        self.finish_if_closed(slot);
    }

    /// Moves what was left of the last payload to its channel: the memory it lies in is needed.
    pub(super) fn settle_lent(&mut self) {
        let Some(lent) = self.lent.take() else {
            return;
        };
        let bytes = &self.transport.payload()[lent.start..lent.end];
        if let Some(channel) = self.table.at_mut(lent.slot)
            && !bytes.is_empty()
        {
            channel.input.keep(lent.stream, bytes);
            self.stats.channel_bytes_kept += bytes.len() as u64;
        }
    }

    pub(super) fn list_adjust_if_due(&mut self, slot: usize) {
        if let Some(channel) = self.table.at(slot)
            && channel.state == State::Open
            && !channel.input.is_eof
            && !channel.output.close.is_sent()
            && channel.input.window.is_due()
        {
            self.table.list_adjust(slot);
        }
    }

    /// Credit the channel holds from the peer, and the longest data field the peer takes; `None`
    /// until it is open.
    #[must_use]
    pub fn remote_window(&self, ch: ChannelId) -> Option<(u32, u32)> {
        let remote = self.table.by_id(ch)?.remote.as_ref()?;
        Some((remote.window.window(), remote.window.maxpacket()))
    }

    /// Most credit that the channel ever held from the peer: 0 until it is open.
    #[must_use]
    pub fn remote_window_peak(&self, ch: ChannelId) -> u32 {
        let remote = self.table.by_id(ch).and_then(|c| c.remote.as_ref());
        remote.map_or(0, |remote| remote.window.window_peak())
    }

    /// How many bytes the peer may have on their way and unread on the channel; 0 for no channel.
    #[must_use]
    pub fn local_window(&self, ch: ChannelId) -> u32 {
        let channel = self.table.by_id(ch);
        channel.map_or(0, |channel| channel.input.window.target())
    }

    /// Time that bytes of the channel waited for nothing but the peer's window, up to `now`.
    #[must_use]
    pub fn window_limited(&self, now: Instant, ch: ChannelId) -> Duration {
        self.table
            .by_id(ch)
            .and_then(|c| c.remote.as_ref())
            .map_or(Duration::ZERO, |remote| remote.window.limited(now))
    }

    /// Bytes of the channel that wait to be sent, both streams.
    #[must_use]
    pub fn staged_len(&self, ch: ChannelId) -> usize {
        self.table.by_id(ch).map_or(0, |channel| {
            channel.output.staging.len() + channel.output.stderr.len()
        })
    }

    /// Bytes of the channel that its consumer has not taken, both streams.
    #[must_use]
    pub fn backlog_len(&self, ch: ChannelId) -> usize {
        self.table.by_id(ch).map_or(0, |channel| {
            channel.input.backlog(Stream::Data).len() + channel.input.backlog(Stream::Stderr).len()
        })
    }

    /// Channels that exist now, in whatever state.
    #[must_use]
    pub const fn channel_count(&self) -> usize {
        self.table.len()
    }

    /// Bytes of queued control messages: at most [`CONTROL_BYTES_MAX`](super::CONTROL_BYTES_MAX)
    /// and one reply.
    #[must_use]
    pub fn control_len(&self) -> usize {
        self.control.len()
    }

    /// Sends EOF behind what is staged: no more bytes will come from here.
    ///
    /// # Errors
    /// `ApiMisuse::NoSuchChannel`.
    pub fn send_eof(&mut self, ch: ChannelId) -> Result<(), Error> {
        self.end(ch, |output| output.eof.want())
    }

    /// Closes the channel behind what is staged, EOF and exit status. Unread and further bytes of
    /// the peer are dropped. When the peer closes first, what is staged is dropped.
    ///
    /// # Errors
    /// `ApiMisuse::NoSuchChannel`.
    pub fn close_channel(&mut self, ch: ChannelId) -> Result<(), Error> {
        let slot = ch.slot as usize;
        self.end(ch, |output| output.close.want())?;
        if self.lent.is_some_and(|lent| lent.slot == slot) {
            self.settle_lent();
        }
        self.table.listed(slot).input.discard();
        self.has_windows_changed = true;
        self.list_adjust_if_due(slot);
        self.finish_if_closed(slot);
        Ok(())
    }

    /// Server: tells how the channel's program ended, behind its bytes and EOF.
    ///
    /// # Errors
    /// `ApiMisuse::NoSuchChannel`.
    pub fn exit_status(&mut self, ch: ChannelId, status: u32) -> Result<(), Error> {
        self.end(ch, |output| output.exit = Some(Exit::Status(status)))
    }

    /// Server: tells that a signal ended the channel's program; `name` is without `SIG`.
    ///
    /// # Errors
    /// `ApiMisuse::NoSuchChannel`.
    pub fn exit_by_signal(&mut self, ch: ChannelId, name: &str) -> Result<(), Error> {
        self.end(ch, |output| {
            output.exit = Some(Exit::Signal(name.to_owned()))
        })
    }

    /// Queues bytes of the error stream (server); returns how many were taken.
    ///
    /// # Errors
    /// `ApiMisuse::NoSuchChannel`.
    pub fn send_stderr(&mut self, ch: ChannelId, bytes: &[u8]) -> Result<usize, Error> {
        let mut taken = 0;
        self.end(ch, |output| taken = output.stderr.push(bytes))?;
        Ok(taken)
    }

    /// How the peer's program was killed: with [`Event::ExitSignal`](super::Event::ExitSignal).
    #[must_use]
    pub fn exit_signal(&self, ch: ChannelId) -> Option<&ExitSignal> {
        self.table.by_id(ch)?.exit_signal.as_ref()
    }

    /// Changes the end of a channel's output, unless the peer has closed it.
    fn end(
        &mut self,
        ch: ChannelId,
        change: impl FnOnce(&mut crate::channel::Output),
    ) -> Result<(), Error> {
        self.alive()?;
        let channel = self.table.by_id_mut(ch).ok_or_else(no_channel)?;
        let was_closed = channel.input.is_closed;
        change(&mut channel.output);
        if was_closed {
            channel.output.drop_all();
        }
        self.table.list_send(ch.slot as usize);
        Ok(())
    }
}

pub(super) const fn no_channel() -> Error {
    Error::ApiMisuse(ApiMisuse::NoSuchChannel)
}
