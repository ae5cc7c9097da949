//! Two endpoints joined by a byte stream each way, run to a goal on a virtual clock.

use std::collections::VecDeque;
use std::time::Duration;

use fullbore_base::{Instant, Rate, Rng};

use crate::link::{Link, LinkConfig};

/// An engine with its application, seen from the network. The verbs are the engines' own.
pub trait Endpoint {
    /// Bytes arrived, oldest first. Returns how many were taken from the front; the rest is
    /// offered again after the endpoint's state may have changed (back-pressure).
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize;

    /// The peer sends nothing more: all of its bytes were taken.
    fn handle_eof(&mut self, now: Instant);

    /// A deadline may have passed.
    fn handle_timeout(&mut self, now: Instant);

    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Appends at most `room` bytes to `out`, after letting the application react to events.
    /// Appending nothing means that there is nothing to send now.
    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>);

    /// Whether the endpoint sends nothing more once its queued bytes are out.
    fn is_closed(&self) -> bool;
}

/// The path between the two ends, and what makes a run random.
#[derive(Clone, Copy, Debug)]
pub struct PairConfig {
    /// Decides every cut; printed by every failure.
    pub seed: u64,
    /// One way: half the round-trip time.
    pub delay: Duration,
    /// Of each direction; `None` is unlimited.
    pub rate: Option<Rate>,
    /// Whether the streams are cut at random places, as a kernel may.
    pub cuts: bool,
    /// Bytes that one direction holds at most, sent and not yet taken: both socket buffers.
    pub buffer_bytes_max: usize,
    /// What is sent at once arrives in pieces of at most so many bytes, each as soon as it has been
    /// sent, as TCP's segments do. With a rate, a large one adds the time of a whole write to the path.
    pub segment_bytes_max: usize,
    /// Calls at one instant after which the run counts as a livelock.
    pub calls_per_instant_max: u32,
}

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            delay: Duration::ZERO,
            rate: None,
            cuts: false,
            buffer_bytes_max: 4 << 20,
            segment_bytes_max: usize::MAX,
            calls_per_instant_max: 1_000_000,
        }
    }
}

/// Why [`Pair::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The goal was reached.
    Done,
    /// Nothing is in flight, nothing is to be sent and no timer is armed.
    Quiet,
    /// The next thing to happen lies past the deadline.
    Deadline,
}

/// One direction: the link, and behind it what arrived and was not taken.
#[derive(Debug)]
struct Direction {
    link: Link<Vec<u8>>,
    arrived: VecDeque<u8>,
    is_shut: bool,
    is_eof_told: bool,
    bytes_delivered: u64,
}

impl Direction {
    fn held(&self) -> usize {
        self.link.bytes_in_flight() + self.arrived.len()
    }

    fn is_drained(&self) -> bool {
        self.is_shut && self.held() == 0
    }
}

/// Two endpoints and the path between them.
#[derive(Debug)]
pub struct Pair<A, B> {
    /// One end, by custom the client.
    pub a: A,
    /// The other end, by custom the server.
    pub b: B,
    config: PairConfig,
    now: Instant,
    rng: Rng,
    a_to_b: Direction,
    b_to_a: Direction,
    calls_at_instant: u32,
    trace: u64,
}

impl<A: Endpoint, B: Endpoint> Pair<A, B> {
    /// Joins `a` and `b` at time zero.
    pub fn new(config: PairConfig, a: A, b: B) -> Self {
        let direction = || Direction {
            link: Link::new(LinkConfig {
                delay: config.delay,
                rate: config.rate,
                ..LinkConfig::default()
            }),
            arrived: VecDeque::new(),
            is_shut: false,
            is_eof_told: false,
            bytes_delivered: 0,
        };
        Self {
            a,
            b,
            now: Instant::ZERO,
            rng: Rng::seeded(config.seed),
            a_to_b: direction(),
            b_to_a: direction(),
            calls_at_instant: 0,
            trace: 0xcbf2_9ce4_8422_2325,
            config,
        }
    }

    /// The virtual time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Whole one-way delays since the start: two are a round trip.
    ///
    /// # Panics
    /// When the path has no delay.
    #[must_use]
    pub fn legs(&self) -> u64 {
        let delay = u64::try_from(self.config.delay.as_nanos()).expect("a path is short");
        assert!(delay > 0, "a path without delay has no legs to count");
        self.now.as_nanos() / delay
    }

    /// Bytes that each end has taken: (by `b` from `a`, by `a` from `b`).
    #[must_use]
    pub const fn bytes_delivered(&self) -> (u64, u64) {
        (self.a_to_b.bytes_delivered, self.b_to_a.bytes_delivered)
    }

    /// A digest of every delivery so far (time, direction, length): equal for equal runs.
    #[must_use]
    pub const fn trace(&self) -> u64 {
        self.trace
    }

    /// Runs until `done`, or until nothing more happens by `deadline`. `check` is called after
    /// every step and panics when an invariant is broken.
    ///
    /// # Panics
    /// On a livelock: the run names its seed.
    pub fn run(
        &mut self,
        deadline: Instant,
        mut done: impl FnMut(&Self) -> bool,
        mut check: impl FnMut(&Self),
    ) -> Stop {
        loop {
            while self.settle() {
                check(self);
                if done(self) {
                    return Stop::Done;
                }
            }
            if done(self) {
                return Stop::Done;
            }
            let Some(at) = self.next_event() else {
                return Stop::Quiet;
            };
            if at > deadline {
                return Stop::Deadline;
            }
            self.advance(at);
            check(self);
        }
    }

    /// One round at the present instant; false when neither end sent or took anything.
    fn settle(&mut self) -> bool {
        self.count_call();
        let Self {
            a,
            b,
            config,
            now,
            rng,
            a_to_b,
            b_to_a,
            trace,
            ..
        } = self;
        let mut moved = transmit(a, *now, config, rng, a_to_b);
        moved |= transmit(b, *now, config, rng, b_to_a);
        moved |= deliver(b, *now, config, rng, a_to_b, trace);
        moved |= deliver(a, *now, config, rng, b_to_a, trace);
        moved
    }

    fn next_event(&self) -> Option<Instant> {
        [
            self.a_to_b.link.next_event(),
            self.b_to_a.link.next_event(),
            self.a.poll_timeout(),
            self.b.poll_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn advance(&mut self, at: Instant) {
        if at > self.now {
            self.now = at;
            self.calls_at_instant = 0;
        }
        self.count_call();
        if self.a.poll_timeout().is_some_and(|t| t <= self.now) {
            self.a.handle_timeout(self.now);
        }
        if self.b.poll_timeout().is_some_and(|t| t <= self.now) {
            self.b.handle_timeout(self.now);
        }
    }

    fn count_call(&mut self) {
        self.calls_at_instant += 1;
        assert!(
            self.calls_at_instant <= self.config.calls_per_instant_max,
            "livelock at {:?}, seed {}",
            self.now,
            self.config.seed
        );
    }
}

fn transmit<E: Endpoint>(
    end: &mut E,
    now: Instant,
    config: &PairConfig,
    rng: &mut Rng,
    way: &mut Direction,
) -> bool {
    if way.is_shut {
        return false;
    }
    let free = config.buffer_bytes_max.saturating_sub(way.held());
    let room = if config.cuts && free > 1 && rng.one_in(4) {
        1 + rng.index(free.min(4096))
    } else {
        free
    };
    let mut out = Vec::new();
    end.poll_transmit(now, room, &mut out);
    assert!(
        out.len() <= room,
        "wrote past its room, seed {}",
        config.seed
    );
    if out.len() > config.segment_bytes_max {
        for segment in out.chunks(config.segment_bytes_max) {
            way.link.send(now, segment.to_vec());
        }
        return true;
    }
    if !out.is_empty() {
        way.link.send(now, out);
        return true;
    }
    // A turn in which it had room and nothing to say: its queued bytes are out.
    way.is_shut = end.is_closed() && room > 0;
    way.is_shut
}

fn deliver<E: Endpoint>(
    end: &mut E,
    now: Instant,
    config: &PairConfig,
    rng: &mut Rng,
    way: &mut Direction,
    trace: &mut u64,
) -> bool {
    while let Some(bytes) = way.link.receive(now) {
        way.arrived.extend(bytes);
    }
    if way.is_drained() && !way.is_eof_told {
        way.is_eof_told = true;
        end.handle_eof(now);
        return true;
    }
    if way.arrived.is_empty() {
        return false;
    }
    let available = way.arrived.make_contiguous();
    let offered = if config.cuts {
        // 1 byte to 256 KiB, each scale as likely as the next.
        let scale = 1usize << (3 * rng.below(7));
        1 + rng.index(available.len().min(scale))
    } else {
        available.len()
    };
    let taken = end.handle_input(now, &available[..offered]);
    assert!(
        taken <= offered,
        "took more than was offered, seed {}",
        config.seed
    );
    way.arrived.drain(..taken);
    let taken = u64::try_from(taken).expect("a length fits in 64 bits");
    way.bytes_delivered += taken;
    for word in [now.as_nanos(), taken] {
        *trace = (*trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    }
    taken > 0
}

#[cfg(test)]
mod tests;
