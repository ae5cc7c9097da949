//! One direction of all connections: what is put in comes out later, in order and at the link's rate.

use std::time::Duration;

use fullbore_base::{Instant, Rate, Rng};
use fullbore_sim::{Link, LinkConfig, Payload};

use super::StreamOptions;

/// Bytes of one connection, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Which connection.
    pub connection: u64,
    /// Nothing stands for the end of the stream.
    pub bytes: Vec<u8>,
}

impl Payload for Chunk {
    fn wire_len(&self) -> usize {
        self.bytes.len()
    }

    /// A stream's link has no faults; what one would do is what it does to the bytes.
    fn corrupt(&mut self, rng: &mut Rng) {
        self.bytes.corrupt(rng);
    }
}

/// How long one chunk is on the link at most: what arrives is as finely spread as this.
const CHUNK_TIME: Duration = Duration::from_millis(1);
/// Shorter chunks are not worth their system calls.
const CHUNK_BYTES_MIN: usize = 1500;
/// The least that a direction holds, so that a link without delay has room to work with.
const HELD_BYTES_MIN: usize = 64 * 1024;

/// One direction.
#[derive(Debug)]
pub struct Way {
    link: Link<Chunk>,
    /// Bytes under way at most: rate x round-trip time, half of which are travelling when the other half
    /// waits.
    bytes_max: usize,
    chunk_bytes_max: usize,
}

impl Way {
    /// An idle link.
    #[must_use]
    pub fn new(options: &StreamOptions) -> Self {
        let delay = options.rtt / 2;
        Self {
            link: Link::new(LinkConfig {
                delay,
                rate: Some(options.rate),
                ..LinkConfig::default()
            }),
            bytes_max: bytes_in(options.rate, options.rtt).max(HELD_BYTES_MIN),
            chunk_bytes_max: bytes_in(options.rate, CHUNK_TIME).max(CHUNK_BYTES_MIN),
        }
    }

    /// Bytes that a connection may put in now, of which `untaken` have come out and were not taken by
    /// its receiver: such a connection holds up itself alone.
    #[must_use]
    pub fn room(&self, untaken: usize) -> usize {
        let under_way = self.bytes_max.saturating_sub(self.link.bytes_in_flight());
        let own = self.bytes_max.saturating_sub(untaken);
        under_way.min(own).min(self.chunk_bytes_max)
    }

    /// Puts `chunk` in.
    pub fn send(&mut self, now: Instant, chunk: Chunk) {
        self.link.send(now, chunk);
    }

    /// When something happens next: a chunk comes out, or begins to be sent.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        self.link.next_event()
    }

    /// The next chunk that has come out by `now`.
    #[must_use]
    pub fn receive(&mut self, now: Instant) -> Option<Chunk> {
        self.link.receive(now)
    }
}

fn bytes_in(rate: Rate, time: Duration) -> usize {
    let bytes = time.as_nanos() * u128::from(rate.bytes_per_sec()) / 1_000_000_000;
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// 40 bytes a microsecond, 200 ms: 8,000,000 bytes fill it.
    fn way() -> Way {
        Way::new(&StreamOptions {
            rtt: MS * 200,
            rate: Rate::from_bits_per_sec(320_000_000),
        })
    }

    fn at(ms: u32) -> Instant {
        Instant::ZERO + MS * ms
    }

    #[test]
    fn a_sender_that_fills_the_room_is_served_at_the_rate_after_the_delay() {
        let (mut way, mut sent, mut received) = (way(), 0, 0);
        for ms in 0..1_100 {
            while let Some(chunk) = way.receive(at(ms)) {
                received += chunk.bytes.len();
            }
            while way.room(0) > 0 {
                let bytes = vec![0; way.room(0)];
                sent += bytes.len();
                way.send(
                    at(ms),
                    Chunk {
                        connection: 1,
                        bytes,
                    },
                );
            }
            assert!(sent - received <= 8_000_000);
        }
        // A second after the delay: 40 MB, but for the millisecond that is under way.
        assert!((39_900_000..=40_000_000).contains(&received), "{received}");
    }

    #[test]
    fn a_receiver_that_does_not_take_holds_up_its_own_connection_alone() {
        let way = way();
        assert_eq!(way.room(0), 40_000);
        assert_eq!(way.room(7_990_000), 10_000);
        assert_eq!(way.room(8_000_000), 0);
        assert_eq!(way.room(9_000_000), 0);
    }

    #[test]
    fn an_end_takes_no_room_and_keeps_its_place() {
        let mut way = way();
        let end = |connection| Chunk {
            connection,
            bytes: Vec::new(),
        };
        let data = Chunk {
            connection: 1,
            bytes: vec![0; 40_000],
        };
        way.send(at(0), data.clone());
        way.send(at(0), end(1));
        way.send(at(5), end(2));
        assert!(way.receive(at(100)).is_none());
        assert_eq!(way.receive(at(101)), Some(data));
        assert_eq!(way.receive(at(101)), Some(end(1)));
        assert_eq!(way.next_event(), Some(at(105)));
    }
}
