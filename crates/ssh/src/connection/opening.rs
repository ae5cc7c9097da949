//! How channels begin and end (RFC 4254 sections 5.1 and 5.3, 6.1, 7.2).

use super::{Connection, MAXPACKET_OTHERS};
use crate::channel::window::{LocalWindow, RemoteWindow};
use crate::channel::{ChannelId, OpenFailure, Remote, Signs, State};
use crate::error::{ApiMisuse, Error, PeerMisbehaved};
use crate::msg::{
    SSH_MSG_CHANNEL_OPEN, SSH_MSG_CHANNEL_OPEN_CONFIRMATION, SSH_MSG_CHANNEL_OPEN_FAILURE,
};
use crate::wire::{Put, Reader};
use fullbore_base::Instant;

impl Connection {
    /// Opens a session channel (RFC 4254 6.1). Requests and bytes may follow at once: they go as
    /// soon as the server permits.
    ///
    /// # Errors
    /// `ApiMisuse`: wrong role, or too many channels.
    pub fn open_session(&mut self, _now: Instant) -> Result<ChannelId, Error> {
        self.open("session", |_| {})
    }

    /// Asks the server to connect to `host:port` for us (RFC 4254 7.2): a jump.
    ///
    /// # Errors
    /// As [`Connection::open_session`].
    pub fn open_direct_tcpip(
        &mut self,
        _now: Instant,
        host: &str,
        port: u16,
        origin_host: &str,
        origin_port: u16,
    ) -> Result<ChannelId, Error> {
        self.open("direct-tcpip", |message| {
            message.put_string(host.as_bytes());
            message.put_u32(u32::from(port));
            message.put_string(origin_host.as_bytes());
            message.put_u32(u32::from(origin_port));
        })
    }

    /// The longest data field that this peer may send.
    pub(super) fn local_maxpacket(&self) -> u32 {
        if self.is_peer_fullbore() {
            self.config.local_maxpacket
        } else {
            self.config.local_maxpacket.min(MAXPACKET_OTHERS)
        }
    }

    fn open(&mut self, kind: &str, body: impl FnOnce(&mut Vec<u8>)) -> Result<ChannelId, Error> {
        self.alive()?;
        if self.login.is_server() {
            return Err(Self::misuse(ApiMisuse::WrongRole));
        }
        if self.table.len() >= self.config.channels_max {
            return Err(Self::misuse(ApiMisuse::LimitReached));
        }
        if !self.has_window_room(1) {
            return Err(Self::misuse(ApiMisuse::LimitReached));
        }
        let (window, policy) = self.next_window();
        let id = self.table.insert(State::Asking, window, policy);
        self.has_windows_changed = true;
        let slot = id.slot as usize;
        let mut message = Vec::new();
        message.put_u8(SSH_MSG_CHANNEL_OPEN);
        message.put_string(kind.as_bytes());
        message.put_u32(id.slot);
        message.put_u32(window);
        // Filled in when it is sent: the peer's version may not be known yet.
        message.put_u32(0);
        body(&mut message);
        let is_first = !std::mem::replace(&mut self.globals.has_opened, true);
        let channel = self.table.listed(slot);
        channel.output.opening = Some(message);
        channel.output.is_eager = self.config.eager && kind == "session" && is_first;
        self.table.list_send(slot);
        Ok(id)
    }

    /// Writes the local maximum packet into a waiting CHANNEL_OPEN.
    pub(super) fn finish_opening(message: &mut [u8], maxpacket: u32) {
        let mut reader = Reader::new(&message[1..]);
        let at = reader.string().map_or(0, |kind| 1 + 4 + kind.len() + 8);
        message[at..at + 4].copy_from_slice(&maxpacket.to_be_bytes());
    }

    /// CHANNEL_OPEN: sessions at the server are for the application to judge, everything else is
    /// refused with the reason.
    pub(super) fn on_channel_open(&mut self) -> Result<(), Error> {
        let mut reader = Reader::new(&self.transport.payload()[1..]);
        let kind = reader.string()?;
        let is_session = kind == b"session";
        let is_forward = matches!(kind, b"direct-tcpip" | b"direct-streamlocal@openssh.com");
        let remote_id = reader.u32()?;
        let window = reader.u32()?;
        let maxpacket = reader.u32()?;
        if is_session {
            reader.finish()?;
        }
        let remote_window = RemoteWindow::new(window, maxpacket)?;
        let refusal = if !self.login.is_server() {
            Some((
                OpenFailure::ADMINISTRATIVELY_PROHIBITED,
                "this client takes no channels",
            ))
        } else if is_forward {
            Some((
                OpenFailure::ADMINISTRATIVELY_PROHIBITED,
                "forwarding is not offered",
            ))
        } else if !is_session {
            Some((OpenFailure::UNKNOWN_CHANNEL_TYPE, "unknown channel type"))
        } else if self.globals.has_no_more_sessions {
            Some((
                OpenFailure::ADMINISTRATIVELY_PROHIBITED,
                "no more sessions, as asked",
            ))
        } else if self.table.len() >= self.config.channels_max {
            Some((OpenFailure::RESOURCE_SHORTAGE, "too many channels"))
        } else {
            None
        };
        if let Some((reason, text)) = refusal {
            self.refuse_open(remote_id, reason, text);
            return Ok(());
        }
        let (window, policy) = self.next_window();
        let id = self.table.insert(State::Asked, window, policy);
        self.has_windows_changed = true;
        let slot = id.slot as usize;
        self.table.listed(slot).remote = Some(Remote {
            id: remote_id,
            window: remote_window,
        });
        self.asked = Some(slot);
        self.table.tell(slot, Signs::OPEN);
        Ok(())
    }

    fn refuse_open(&mut self, remote_id: u32, reason: u32, text: &str) {
        self.scratch.clear();
        self.scratch.put_u8(SSH_MSG_CHANNEL_OPEN_FAILURE);
        self.scratch.put_u32(remote_id);
        self.scratch.put_u32(reason);
        self.scratch.put_string(text.as_bytes());
        self.scratch.put_string(b"");
        self.queue_scratch();
    }

    /// Server: the channel that waits for an answer, by its id.
    fn take_asked(&mut self, ch: ChannelId) -> Result<u32, Error> {
        self.alive()?;
        let slot = ch.slot as usize;
        let remote_id = self
            .table
            .by_id(ch)
            .filter(|c| c.state == State::Asked)
            .and_then(|c| c.remote.as_ref())
            .map(|r| r.id);
        match remote_id {
            Some(id) if self.asked == Some(slot) => {
                self.asked = None;
                Ok(id)
            }
            _ => Err(Self::misuse(ApiMisuse::NoSuchChannel)),
        }
    }

    /// Server: grants a channel that was asked for. False when it was refused instead, since the share
    /// ([`Connection::set_windows_max`]) has no room for its window.
    ///
    /// # Errors
    /// `ApiMisuse::NoSuchChannel` when it waits for no answer.
    pub fn accept_channel(&mut self, ch: ChannelId) -> Result<bool, Error> {
        if self.table.by_id(ch).is_some() && !self.has_window_room(0) {
            let text = "no memory for another channel's window";
            self.reject_channel(ch, OpenFailure::RESOURCE_SHORTAGE, text)?;
            return Ok(false);
        }
        let remote_id = self.take_asked(ch)?;
        let maxpacket = self.local_maxpacket();
        let is_withheld = self.config.withholds_window;
        let channel = self.table.listed(ch.slot as usize);
        channel.state = State::Open;
        if is_withheld {
            channel.input.window = LocalWindow::withheld(channel.input.window.target());
        }
        self.scratch.clear();
        self.scratch.put_u8(SSH_MSG_CHANNEL_OPEN_CONFIRMATION);
        self.scratch.put_u32(remote_id);
        self.scratch.put_u32(ch.slot);
        self.scratch.put_u32(channel.input.window.outstanding());
        self.scratch.put_u32(maxpacket);
        self.queue_scratch();
        Ok(true)
    }

    /// Server: refuses a channel that was asked for; `reason` is one of [`OpenFailure`]'s, `text` for
    /// a person.
    ///
    /// # Errors
    /// `ApiMisuse::NoSuchChannel` when it waits for no answer.
    pub fn reject_channel(&mut self, ch: ChannelId, reason: u32, text: &str) -> Result<(), Error> {
        let remote_id = self.take_asked(ch)?;
        self.forget(ch.slot as usize);
        self.refuse_open(remote_id, reason, text);
        Ok(())
    }

    /// The channel we asked for that an answer names.
    fn asking(&self, slot: usize) -> Result<(), Error> {
        match self.table.at(slot) {
            Some(c) if c.state == State::Asking && c.output.opening.is_none() => Ok(()),
            _ => Err(PeerMisbehaved::UnknownChannel.into()),
        }
    }

    pub(super) fn on_confirmation(&mut self) -> Result<(), Error> {
        let mut reader = Reader::new(&self.transport.payload()[1..]);
        let slot = reader.u32()? as usize;
        let remote_id = reader.u32()?;
        let window = reader.u32()?;
        let maxpacket = reader.u32()?;
        self.asking(slot)?;
        let mut window = RemoteWindow::new(window, maxpacket)?;
        self.settle_ahead(slot, remote_id, &mut window)?;
        let channel = self.table.listed(slot);
        channel.remote = Some(Remote {
            id: remote_id,
            window,
        });
        channel.state = State::Open;
        channel.output.early = None;
        self.table.list_send(slot);
        self.table.tell(slot, Signs::OPENED);
        Ok(())
    }

    pub(super) fn on_open_failure(&mut self) -> Result<(), Error> {
        let mut reader = Reader::new(&self.transport.payload()[1..]);
        let slot = reader.u32()? as usize;
        let reason = reader.u32()?;
        let text = reader.string()?;
        let text = &text[..text.len().min(OpenFailure::DESCRIPTION_BYTES_MAX)];
        let failure = OpenFailure {
            reason,
            description: String::from_utf8_lossy(text).into_owned(),
        };
        self.asking(slot)?;
        let channel = self.table.listed(slot);
        channel.state = State::Refused;
        channel.output.drop_all();
        channel.failure = Some(failure);
        self.table.tell(slot, Signs::OPEN_FAILED);
        Ok(())
    }

    /// Why the peer refused the channel: with [`Event::OpenFailed`](super::Event::OpenFailed).
    #[must_use]
    pub fn open_failure(&self, ch: ChannelId) -> Option<&OpenFailure> {
        self.table.by_id(ch)?.failure.as_ref()
    }

    /// Removes a channel: its number is free.
    pub(super) fn forget(&mut self, slot: usize) {
        if self.lent.is_some_and(|lent| lent.slot == slot) {
            self.lent = None;
        }
        if let Some(channel) = self.table.remove(slot) {
            self.full_requests -= usize::from(channel.requests.is_full());
            self.has_windows_changed = true;
            self.stats.budget_limited += channel.input.starved.before();
            if let Some(remote) = channel.remote {
                self.stats.window_limited += remote.window.limited_before();
            }
            self.feed_starved();
        }
    }

    /// Whether both sides have closed the channel and nothing readable is left, or nobody will
    /// read it.
    pub(super) fn is_finished(&self, slot: usize) -> bool {
        let has_lent = self
            .lent
            .is_some_and(|lent| lent.slot == slot && lent.start < lent.end);
        self.table.at(slot).is_some_and(|channel| {
            channel.is_finished() && (!has_lent || channel.output.close.is_asked_here())
        })
    }

    /// Tells the end of a channel, if this is it.
    pub(super) fn finish_if_closed(&mut self, slot: usize) {
        if self.is_finished(slot) {
            self.table.tell(slot, Signs::CLOSED);
        }
    }
}
