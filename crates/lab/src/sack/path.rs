//! A sender and a receiver on a virtual clock, and what the sender alone cost.
//!
//! What one end sends cannot reach the other before half a round trip has passed. So each end is run
//! through half a round trip at once, and the other through the next: exact, and the processor's clock is read
//! but twice for thousands of segments.
//!
//! Work takes time: while a sender looks through its queue, acknowledgements wait. So a sender whose queue is
//! slow has the time-outs on the virtual clock that it had on a real one.

use std::collections::VecDeque;
use std::time::Duration;

use fullbore_base::{Instant, Rate};
use fullbore_tcp::segment::{Pseudo, Segment};

use super::receiver::{Receiver, State};
use super::sender::{Counters, Sender};

/// How long a sender takes for each segment that it looks at: about a miss of the caches, for the
/// segments of a long queue lie everywhere.
const LOOK: Duration = Duration::from_nanos(10);

/// The longest header.
const HEADER_BYTES_MAX: usize = 60;

/// Looks after which a run is given up: the rest tells nothing new.
const LOOKS_MAX: u64 = 1 << 30;

/// Round trips that an attack lasts at most.
const ROUNDS_MAX: u32 = 120;

/// Round trips that a window may take to grow.
const GROWTH_ROUNDS_MAX: u32 = 300;

/// A segment on its way: its header, and how much stands behind it.
struct Passing {
    at: Instant,
    header: [u8; HEADER_BYTES_MAX],
    header_len: usize,
    len: usize,
}

impl Passing {
    fn new(at: Instant, bytes: &[u8]) -> Self {
        let header_len = usize::from(bytes[12] >> 4) * 4;
        let mut header = [0; HEADER_BYTES_MAX];
        header[..header_len].copy_from_slice(&bytes[..header_len]);
        Self {
            at,
            header,
            header_len,
            len: bytes.len() - header_len,
        }
    }
}

/// How the path is, and how much of the attack counts.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// There and back.
    pub rtt: Duration,
    /// Of the data's direction. It loses nothing.
    pub rate: Rate,
    /// Bytes acknowledged under attack after which a run ends.
    pub bytes: u64,
}

/// The sender's processor time in one stretch of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Since the connection began.
    pub at: Duration,
    /// How long it is.
    pub time: Duration,
    /// Spent in it.
    pub cpu: Duration,
}

/// What a run came to, from the attack's beginning on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// On the virtual clock.
    pub wall: Duration,
    /// The sender's.
    pub cpu: Duration,
    /// What the sender did.
    pub counters: Counters,
    /// Acknowledgements of the receiver.
    pub acks: u64,
    /// It was given up: the sender looked at too much.
    pub is_given_up: bool,
    /// The whole run.
    pub stretches: Vec<Stretch>,
}

/// The two ends.
pub struct Run<'a> {
    setting: Setting,
    sender: &'a mut dyn Sender,
    receiver: &'a mut Receiver,
    cpu_clock: &'a dyn Fn() -> Duration,
    to_receiver: VecDeque<Passing>,
    to_sender: VecDeque<(Instant, [u8; HEADER_BYTES_MAX], usize)>,
    wire_idle_at: Instant,
    busy_until: Instant,
    scratch: Vec<u8>,
}

impl<'a> Run<'a> {
    /// Before the first segment; `cpu_clock` is the processor time of the calling thread.
    #[must_use]
    pub fn new(
        setting: Setting,
        sender: &'a mut dyn Sender,
        receiver: &'a mut Receiver,
        cpu_clock: &'a dyn Fn() -> Duration,
    ) -> Self {
        Self {
            setting,
            sender,
            receiver,
            cpu_clock,
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::new(),
            wire_idle_at: Instant::ZERO,
            busy_until: Instant::ZERO,
            scratch: vec![0; 2048],
        }
    }

    /// Runs to the end of the attack.
    #[must_use]
    pub fn go(mut self) -> Outcome {
        let half = self.setting.rtt / 2;
        let mut now = Instant::ZERO;
        let mut outcome = Outcome::default();
        let mut before: Option<(Instant, Counters, u64)> = None;
        loop {
            let end = now + half;
            let began = (self.cpu_clock)();
            self.run_sender(end);
            let cpu = (self.cpu_clock)() - began;
            outcome.stretches.push(Stretch {
                at: now - Instant::ZERO,
                time: half,
                cpu,
            });
            if before.is_some() {
                outcome.cpu += cpu;
            }
            self.run_receiver(now, end);
            now = end;
            let counters = self.sender.counters();
            let acks = self.receiver.received().acks;
            match before {
                None if self.receiver.state() == State::Attacking => {
                    before = Some((now, counters, acks));
                }
                None => {
                    outcome.is_given_up =
                        now - Instant::ZERO > self.setting.rtt * GROWTH_ROUNDS_MAX;
                }
                Some((since, start, acks_before)) => {
                    outcome.wall = now - since;
                    outcome.counters = counters.since(&start);
                    outcome.acks = acks - acks_before;
                    let is_long = outcome.wall >= self.setting.rtt * ROUNDS_MAX;
                    if outcome.counters.bytes_acked >= self.setting.bytes || is_long {
                        return outcome;
                    }
                }
            }
            outcome.is_given_up |= counters.segments_examined > LOOKS_MAX;
            if outcome.is_given_up || self.receiver.state() == State::Over {
                outcome.is_given_up = true;
                return outcome;
            }
        }
    }

    /// What the sender does up to `end`, in the order in which it happens to it.
    fn run_sender(&mut self, end: Instant) {
        loop {
            let arrival = self.to_sender.front().map(|(at, ..)| *at);
            let timer = self.sender.poll_timeout();
            let is_timer = timer.is_some_and(|timer| arrival.is_none_or(|at| timer < at));
            let Some(due) = (if is_timer { timer } else { arrival }) else {
                return;
            };
            let now = due.max(self.busy_until);
            if now >= end {
                return;
            }
            let examined = self.sender.examined();
            if is_timer {
                self.sender.handle_timeout(now);
            } else if let Some((_, bytes, len)) = self.to_sender.pop_front() {
                self.sender.handle_segment(now, &bytes[..len]);
            }
            self.transmit(now);
            let examined = self.sender.examined() - examined;
            self.busy_until = now + LOOK * u32::try_from(examined).unwrap_or(u32::MAX);
        }
    }

    fn transmit(&mut self, now: Instant) {
        let mut scratch = std::mem::take(&mut self.scratch);
        while let Some(len) = self.sender.poll_transmit(now, &mut scratch) {
            let begins = self.wire_idle_at.max(now);
            self.wire_idle_at = begins + self.setting.rate.time_for(len as u64);
            let at = self.wire_idle_at + self.setting.rtt / 2;
            let passing = Passing::new(at, &scratch[..len]);
            self.to_receiver.push_back(passing);
        }
        self.scratch = scratch;
    }

    fn run_receiver(&mut self, mut now: Instant, end: Instant) {
        loop {
            self.answer(now);
            let arrival = self.to_receiver.front().map(|passing| passing.at);
            let timer = self.receiver.poll_timeout();
            let Some(due) = arrival
                .into_iter()
                .chain(timer)
                .min()
                .filter(|at| *at < end)
            else {
                return;
            };
            now = now.max(due);
            if arrival == Some(due)
                && let Some(passing) = self.to_receiver.pop_front()
            {
                let header = &passing.header[..passing.header_len];
                let segment = Segment::parse(header, Pseudo::Unchecked).expect("we made it");
                self.receiver
                    .handle_segment(now, &segment.header, passing.len);
            } else {
                self.receiver.handle_timeout(now);
            }
        }
    }

    fn answer(&mut self, now: Instant) {
        let mut bytes = [0; HEADER_BYTES_MAX];
        while let Some(len) = self.receiver.poll_transmit(&mut bytes) {
            let at = now + self.setting.rtt / 2;
            self.to_sender.push_back((at, bytes, len));
        }
    }
}
