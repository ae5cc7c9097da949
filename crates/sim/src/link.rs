//! One direction of a path: what goes in comes out later, in order.

use std::collections::VecDeque;
use std::time::Duration;

use fullbore_base::{Instant, Rate};

/// Something that takes up room on a link.
pub trait Payload {
    /// Bytes it occupies on the wire.
    fn wire_len(&self) -> usize;
}

impl Payload for Vec<u8> {
    fn wire_len(&self) -> usize {
        self.len()
    }
}

/// How a link behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkConfig {
    /// Time from the end of sending to arrival: half the round-trip time.
    pub delay: Duration,
    /// How fast bytes leave the sender; `None` is at once.
    pub rate: Option<Rate>,
}

/// A link with items in flight.
#[derive(Debug)]
pub struct Link<P> {
    config: LinkConfig,
    /// Arrival times never go down from front to back.
    in_flight: VecDeque<(Instant, P)>,
    bytes_in_flight: usize,
    /// When the sender's side is done with the items sent so far.
    idle_at: Instant,
}

impl<P: Payload> Link<P> {
    /// An empty link.
    #[must_use]
    pub const fn new(config: LinkConfig) -> Self {
        Self {
            config,
            in_flight: VecDeque::new(),
            bytes_in_flight: 0,
            idle_at: Instant::ZERO,
        }
    }

    /// Puts `item` on the link behind what is there.
    pub fn send(&mut self, now: Instant, item: P) {
        let bytes = item.wire_len();
        let start = self.idle_at.max(now);
        let sending = self.config.rate.map_or(Duration::ZERO, |rate| {
            rate.time_for(u64::try_from(bytes).expect("a length fits in 64 bits"))
        });
        self.idle_at = start + sending;
        self.bytes_in_flight += bytes;
        self.in_flight
            .push_back((self.idle_at + self.config.delay, item));
    }

    /// When the next item arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.front().map(|&(at, _)| at)
    }

    /// Takes the next item if it has arrived at `now`.
    #[must_use]
    pub fn receive(&mut self, now: Instant) -> Option<P> {
        if self.next_arrival()? > now {
            return None;
        }
        let (_, item) = self.in_flight.pop_front()?;
        self.bytes_in_flight -= item.wire_len();
        Some(item)
    }

    /// Bytes sent and not yet received.
    #[must_use]
    pub const fn bytes_in_flight(&self) -> usize {
        self.bytes_in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_item_arrives_after_its_sending_time_and_the_delay() {
        let mut link = Link::new(LinkConfig {
            delay: MS * 50,
            rate: Some(Rate::from_bytes_per_sec(1_000_000)),
        });
        link.send(Instant::ZERO, vec![0u8; 10_000]);
        link.send(Instant::ZERO, vec![1u8; 10_000]);
        assert_eq!(link.next_arrival(), Some(Instant::ZERO + MS * 60));
        assert!(link.receive(Instant::ZERO + MS * 59).is_none());
        assert_eq!(link.receive(Instant::ZERO + MS * 60), Some(vec![0; 10_000]));
        assert_eq!(link.next_arrival(), Some(Instant::ZERO + MS * 70));
        assert_eq!(link.bytes_in_flight(), 10_000);
    }
}
