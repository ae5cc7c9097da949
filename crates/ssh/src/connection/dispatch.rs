//! What arrives: one handler for each message above the transport's.

use super::{Connection, EARLY_MESSAGES_MAX, LOCAL_WINDOW_MIN, Lent};
use crate::channel::request::{ChannelRequest, Incoming, read_exit_status};
use crate::channel::{ExitSignal, Signs, State, Stream};
use crate::error::{Error, PeerMisbehaved};
use crate::msg;
use crate::msg::SSH2_MSG_PONG;
use crate::wire::{Put, Reader};
use fullbore_base::Instant;

/// RFC 4254 5.2: SSH_EXTENDED_DATA_STDERR.
const EXTENDED_DATA_STDERR: u32 = 1;

/// Bytes in front of CHANNEL_DATA's data.
pub(super) const DATA_HEADER_LEN: usize = 9;

/// Bytes in front of CHANNEL_EXTENDED_DATA's data.
pub(super) const EXTENDED_HEADER_LEN: usize = 13;

impl Connection {
    /// Handles the message that was just opened.
    pub(super) fn dispatch(&mut self, now: Instant) -> Result<(), Error> {
        let Some(number) = self.transport.payload().first().copied() else {
            return Ok(());
        };
        match number {
            msg::SSH_MSG_SERVICE_REQUEST | msg::SSH_MSG_SERVICE_ACCEPT | 50..=79 => {
                self.handle_login(now)
            }
            msg::SSH2_MSG_PING => self.on_ping(),
            80..=127 if !self.is_authenticated() => self.on_early(number),
            msg::SSH_MSG_GLOBAL_REQUEST => self.on_global_request(),
            msg::SSH_MSG_REQUEST_SUCCESS => self.on_global_reply(now, true),
            msg::SSH_MSG_REQUEST_FAILURE => self.on_global_reply(now, false),
            msg::SSH_MSG_CHANNEL_OPEN => self.on_channel_open(),
            msg::SSH_MSG_CHANNEL_OPEN_CONFIRMATION => self.on_confirmation(),
            msg::SSH_MSG_CHANNEL_OPEN_FAILURE => self.on_open_failure(),
            msg::SSH_MSG_CHANNEL_WINDOW_ADJUST => self.on_window_adjust(now),
            msg::SSH_MSG_CHANNEL_DATA => self.on_data(),
            msg::SSH_MSG_CHANNEL_EXTENDED_DATA => self.on_extended_data(),
            msg::SSH_MSG_CHANNEL_EOF => self.on_eof(),
            msg::SSH_MSG_CHANNEL_CLOSE => self.on_close(),
            msg::SSH_MSG_CHANNEL_REQUEST => self.on_channel_request(),
            msg::SSH_MSG_CHANNEL_SUCCESS => self.on_channel_reply(true),
            msg::SSH_MSG_CHANNEL_FAILURE => self.on_channel_reply(false),
            msg::SSH2_MSG_PONG => {
                let mut reader = Reader::new(&self.transport.payload()[1..]);
                let data = reader.string()?.first_chunk::<8>().copied();
                self.on_pong(now, data.as_ref().map_or(&[], |d| &d[..]))
            }
            _ => {
                self.transport.reject_unknown();
                Ok(())
            }
        }
    }

    /// A message of the connection layer before authentication. A client that sends ahead of its
    /// authentication and was refused did not know: what it sent is dropped, and comes again.
    fn on_early(&mut self, number: u8) -> Result<(), Error> {
        self.globals.early += 1;
        if self.login.is_server() && self.globals.early <= EARLY_MESSAGES_MAX {
            return Ok(());
        }
        Err(PeerMisbehaved::UnexpectedMessage { message: number }.into())
    }

    fn on_ping(&mut self) -> Result<(), Error> {
        let mut reader = Reader::new(&self.transport.payload()[1..]);
        let data = reader.string()?;
        self.scratch.clear();
        self.scratch.put_u8(SSH2_MSG_PONG);
        self.scratch.put_string(data);
        self.queue_scratch();
        Ok(())
    }

    /// The number of the open channel that the current message is for, and the reader behind it.
    pub(super) fn addressed(&self) -> Result<(usize, Reader<'_>), Error> {
        let mut reader = Reader::new(&self.transport.payload()[1..]);
        let slot = reader.u32()? as usize;
        match self.table.at(slot) {
            Some(channel) if channel.state == State::Open && !channel.input.is_closed => {
                Ok((slot, reader))
            }
            Some(channel) if channel.state == State::Open => {
                Err(PeerMisbehaved::ChannelState.into())
            }
            _ => Err(PeerMisbehaved::UnknownChannel.into()),
        }
    }

    fn on_window_adjust(&mut self, now: Instant) -> Result<(), Error> {
        let (slot, mut reader) = self.addressed()?;
        let credit = reader.u32()?;
        reader.finish()?;
        self.stats.adjusts_received += 1;
        let channel = self.table.listed(slot);
        if let Some(remote) = &mut channel.remote {
            remote.window.on_adjust(now, credit)?;
        }
        if channel.output.has_data() {
            self.table.list_send(slot);
        } else if std::mem::take(&mut channel.output.is_wanted) {
            self.table.tell(slot, Signs::WRITABLE);
        }
        Ok(())
    }

    fn on_data(&mut self) -> Result<(), Error> {
        let (slot, mut reader) = self.addressed()?;
        let len = reader.string()?.len();
        reader.finish()?;
        self.take_data(slot, Stream::Data, DATA_HEADER_LEN, len)
    }

    fn on_extended_data(&mut self) -> Result<(), Error> {
        let (slot, mut reader) = self.addressed()?;
        let kind = reader.u32()?;
        let len = reader.string()?.len();
        reader.finish()?;
        if kind == EXTENDED_DATA_STDERR && !self.login.is_server() {
            return self.take_data(slot, Stream::Stderr, EXTENDED_HEADER_LEN, len);
        }
        // No application reads it: it is consumed here.
        self.admit(slot, len)?;
        self.table.listed(slot).input.window.on_consumed(len);
        self.list_adjust_if_due(slot);
        Ok(())
    }

    /// Holds `len` data bytes against the channel's limits.
    fn admit(&mut self, slot: usize, len: usize) -> Result<(), Error> {
        if len > self.local_maxpacket() as usize {
            return Err(PeerMisbehaved::MaxPacketOverrun.into());
        }
        self.stats.channel_bytes_received += len as u64;
        self.table.listed(slot).input.on_received(len)?;
        Ok(())
    }

    fn take_data(
        &mut self,
        slot: usize,
        stream: Stream,
        start: usize,
        len: usize,
    ) -> Result<(), Error> {
        self.admit(slot, len)?;
        if len == 0 {
            return Ok(());
        }
        if self.table.listed(slot).input.window.target() < LOCAL_WINDOW_MIN {
            self.on_first_data(slot);
        }
        let channel = self.table.listed(slot);
        if channel.output.close.is_asked_here() {
            channel.input.window.on_consumed(len);
            self.list_adjust_if_due(slot);
            return Ok(());
        }
        self.lent = Some(Lent {
            slot,
            stream,
            start,
            end: start + len,
        });
        if !channel.input.backlog(stream).is_empty() {
            self.settle_lent();
        }
        let sign = match stream {
            Stream::Data => Signs::READABLE,
            Stream::Stderr => Signs::READABLE_STDERR,
        };
        self.table.tell(slot, sign);
        Ok(())
    }

    fn on_eof(&mut self) -> Result<(), Error> {
        let (slot, reader) = self.addressed()?;
        reader.finish()?;
        let channel = self.table.listed(slot);
        if std::mem::replace(&mut channel.input.is_eof, true) {
            return Err(PeerMisbehaved::ChannelState.into());
        }
        self.table.tell(slot, Signs::EOF);
        Ok(())
    }

    /// RFC 4254 5.3: a CLOSE is answered with one, whatever else there was to say.
    fn on_close(&mut self) -> Result<(), Error> {
        let (slot, reader) = self.addressed()?;
        reader.finish()?;
        let channel = self.table.listed(slot);
        let is_new_end = !std::mem::replace(&mut channel.input.is_eof, true);
        channel.input.is_closed = true;
        channel.output.drop_all();
        channel.output.close.owe();
        self.table.list_send(slot);
        if is_new_end {
            self.table.tell(slot, Signs::EOF);
        }
        self.finish_if_closed(slot);
        Ok(())
    }

    fn on_channel_request(&mut self) -> Result<(), Error> {
        let (slot, _) = self.addressed()?;
        // Behind the message number and the channel's.
        let bytes = &self.transport.payload()[5..];
        let incoming = Incoming::read(bytes)?;
        if self.login.is_server() {
            ChannelRequest::read(incoming.name, incoming.data)?;
            let channel = self
                .table
                .at_mut(slot)
                .expect("the message was addressed to it");
            let was_full = channel.requests.is_full();
            channel.requests.push(bytes);
            self.full_requests += usize::from(!was_full && channel.requests.is_full());
            if channel.requests.count() == 1 {
                self.next_request(slot);
            }
            return Ok(());
        }
        let want_reply = incoming.want_reply;
        match incoming.name {
            b"exit-status" => {
                let status = read_exit_status(incoming.data)?;
                self.table.listed(slot).pending.exit_status = status;
                self.table.tell(slot, Signs::EXIT_STATUS);
            }
            b"exit-signal" => {
                let signal = ExitSignal::read(incoming.data)?;
                self.table.listed(slot).exit_signal = Some(signal);
                self.table.tell(slot, Signs::EXIT_SIGNAL);
            }
            _ => {}
        }
        if want_reply {
            self.reply_to_request(slot, false);
        }
        Ok(())
    }

    fn on_channel_reply(&mut self, ok: bool) -> Result<(), Error> {
        let (slot, reader) = self.addressed()?;
        reader.finish()?;
        let channel = self.table.listed(slot);
        if channel.output.awaited == 0 {
            return Err(PeerMisbehaved::UnexpectedReply.into());
        }
        channel.output.awaited -= 1;
        channel.pending.request_ok = ok;
        self.table.tell(slot, Signs::REQUEST_DONE);
        Ok(())
    }
}
