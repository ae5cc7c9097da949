//! What the application should know, and why a connection is over.

use core::fmt;

/// Something to look at. Events carry nothing: what they speak of is read from the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is over.
    Connected,
    /// Bytes may be read.
    Readable,
    /// Room for more bytes to write.
    Writable,
    /// The peer sends nothing more.
    Finished,
    /// Over: see [`super::Connection::error`].
    Closed,
}

/// Events that wait: each at most once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events(u8);

const ORDER: [Event; 5] = [
    Event::Connected,
    Event::Readable,
    Event::Writable,
    Event::Finished,
    Event::Closed,
];

impl Events {
    /// Adds one; nothing happens when it waits already.
    pub const fn push(&mut self, event: Event) {
        self.0 |= 1 << event as u8;
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<Event> {
        let event = ORDER.into_iter().find(|&e| self.0 >> e as u8 & 1 == 1)?;
        self.0 &= !(1 << event as u8);
        Some(event)
    }
}

/// Why a connection is over, other than by both sides closing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Nobody listens at the peer's port.
    Refused,
    /// The peer ended it at once.
    Reset,
    /// We ended it at once.
    Aborted,
    /// The peer did not answer for as long as it may.
    TimedOut,
    /// The caller broke the contract; never caused by the peer.
    ApiMisuse(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused by the peer",
            Self::Reset => "connection reset by the peer",
            Self::Aborted => "connection ended by this side",
            Self::TimedOut => "the peer does not answer",
            Self::ApiMisuse(what) => what,
        })
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_waits_once_and_comes_in_order() {
        let mut events = Events::default();
        for event in [Event::Closed, Event::Readable, Event::Readable] {
            events.push(event);
        }
        assert_eq!(events.pop(), Some(Event::Readable));
        assert_eq!(events.pop(), Some(Event::Closed));
        assert_eq!(events.pop(), None);
    }
}
