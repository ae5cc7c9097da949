//! What a connection tells the application.

use crate::channel::ChannelId;

/// Something the application should know. Small, without payload: the view to read is named with
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Client: the server showed its host key; nothing secret is sent before
    /// `accept_host_key`. View: `host_key()`.
    HostKey,
    /// Client: the server announced its host keys (`hostkeys-00@openssh.com`). View:
    /// `announced_host_keys()`.
    HostKeysAnnounced,
    /// Client: the server answered `prove_host_keys`. View: `proved_host_keys()`.
    HostKeysProved,
    /// Client: the server sent a banner. View: `banner()`.
    Banner,
    /// Client: nothing is being tried; call `authenticate`. View: `auth_methods()`.
    AuthNeeded,
    /// Client: an external signer is needed. View: `signature_request()`.
    SignatureNeeded,
    /// Client: the server asks the user. View: `prompts()`.
    Prompt,
    /// Both: the user is who it says. Client: the server said so.
    Authenticated,
    /// Server: the client wants to authenticate. View: `auth_request()`; answer with
    /// `answer_auth`. No further packet is opened before.
    AuthRequest,
    /// Server: the client opens a session channel; answer with `accept_channel` or
    /// `reject_channel`. No further packet is opened before.
    ChannelOpen(ChannelId),
    /// The peer confirmed a channel we opened.
    Opened(ChannelId),
    /// The peer refused a channel we opened. View: `open_failure(ch)`, until the next event. The id
    /// names nothing afterwards.
    OpenFailed(ChannelId),
    /// Server: a request on a channel. View: `channel_request(ch)`; answer with `answer_request`.
    Request(ChannelId),
    /// The peer answered the oldest unanswered request we made on the channel.
    RequestDone {
        /// The channel asked on.
        ch: ChannelId,
        /// Whether the peer did it.
        ok: bool,
    },
    /// Bytes wait. View: `readable(ch)`.
    Readable(ChannelId),
    /// Bytes of the error stream wait. View: `readable_stderr(ch)`.
    ReadableStderr(ChannelId),
    /// The outlet may take more than it did: the peer's window opened or what was staged has gone.
    Writable(ChannelId),
    /// No more bytes will come behind those that are readable.
    Eof(ChannelId),
    /// The peer's program ended with this status.
    ExitStatus(ChannelId, u32),
    /// The peer's program was killed. View: `exit_signal(ch)`.
    ExitSignal(ChannelId),
    /// The channel is no more: both ends closed it and everything readable was consumed (or this
    /// side closed it first, which drops what is unread). The id names nothing afterwards.
    ChannelClosed(ChannelId),
    /// The connection is no more. View: `error()`.
    Closed,
}

/// What one `poll_transmit` appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes appended to the buffer.
    pub len: usize,
}

/// Events of the connection as a whole that have not been told: one flag each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs(u16);

impl Signs {
    /// In the order in which they are told.
    const ORDER: [Event; 9] = [
        Event::HostKey,
        Event::Banner,
        Event::AuthNeeded,
        Event::SignatureNeeded,
        Event::Prompt,
        Event::AuthRequest,
        Event::Authenticated,
        Event::HostKeysAnnounced,
        Event::HostKeysProved,
    ];

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Notes an event.
    ///
    /// # Panics
    /// When it is an event of a channel, or the end.
    pub(super) fn tell(&mut self, event: Event) {
        let at = Self::ORDER
            .iter()
            .position(|e| *e == event)
            .expect("only the connection's own events are noted here");
        self.0 |= 1 << at;
    }

    /// Takes the first.
    pub(super) fn take_first(&mut self) -> Option<Event> {
        let at = self.0.trailing_zeros() as usize;
        let event = *Self::ORDER.get(at)?;
        self.0 &= self.0 - 1;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_the_connection_are_told_once_in_their_order() {
        let mut signs = Signs::default();
        assert_eq!(signs.take_first(), None);
        signs.tell(Event::Authenticated);
        signs.tell(Event::Banner);
        signs.tell(Event::Banner);
        assert_eq!(signs.take_first(), Some(Event::Banner));
        assert_eq!(signs.take_first(), Some(Event::Authenticated));
        assert!(signs.is_empty() && signs.take_first().is_none());
    }
}
