//! The work per acknowledgement stays within its bound, whatever the receiver says: at most
//! 4 x blocks x log2(segments in flight) segments are looked at, and those newly delivered or lost.

use super::*;
use crate::scoreboard::{Blocks, Frame};
use crate::segment::SackBlock;
use crate::seq::Seq;
use fullbore_base::Rng;
use fullbore_testkit::seeds;
use std::time::Duration;

const MSS: u32 = 1448;
const RTT: Duration = Duration::from_millis(100);
const INITIAL: Seq = Seq::new(0x8000_1234);
/// Acknowledgements in each run, spread over one window of data.
const ACKS: u64 = 1500;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Cumulative acknowledgements of everything.
    Honest,
    /// Duplicate acknowledgements without SACK: the floor.
    Dupack,
    /// A D-SACK in front of every SACK.
    DsackStorm,
    /// New data, and three blocks at its heels that make a list be searched from its head.
    FindFirst,
    /// A block over almost the whole window.
    CoverAll,
    /// Blocks of one segment anywhere.
    Random,
    /// Only the newest even-numbered segment: RACK advances with every acknowledgement.
    Rack,
    /// The same on a path that was seen to reorder, so that nothing is due at once.
    RackReordered,
    /// SACKs data and then throws it away.
    Renege,
    /// Ranges smaller than a segment, across its edges.
    Split,
    /// Blocks outside the window, inverted, overlapping.
    Garbage,
}

const MODES: [Mode; 11] = [
    Mode::Honest,
    Mode::Dupack,
    Mode::DsackStorm,
    Mode::FindFirst,
    Mode::CoverAll,
    Mode::Random,
    Mode::Rack,
    Mode::RackReordered,
    Mode::Renege,
    Mode::Split,
    Mode::Garbage,
];

struct Run {
    mode: Mode,
    rng: Rng,
    now: Instant,
    recovery: Recovery,
    segments: u64,
    /// The most that one acknowledgement cost beyond what it delivered or lost.
    excess_max: u64,
}

impl Run {
    /// A window of `segments`, sent evenly over one round trip.
    fn new(mode: Mode, segments: u64, seed: u64) -> Self {
        let mut recovery = Recovery::new(MSS, true);
        recovery.on_sent(Instant::ZERO, MSS);
        for i in 1..segments {
            recovery.on_sent(sent_at(i, segments), MSS);
        }
        Self {
            mode,
            rng: Rng::seeded(seed),
            now: Instant::ZERO,
            recovery,
            segments,
            excess_max: 0,
        }
    }

    /// The cumulative acknowledgement and the blocks, as segment numbers, of acknowledgement `k`,
    /// when segment `i` arrives.
    fn answer(&mut self, k: u64, i: u64) -> (u64, Vec<(u64, u64)>) {
        let edge = |n: u64| n * u64::from(MSS);
        let one = |n: u64| (edge(n), edge(n + 1));
        let una = self.recovery.board().snd_una();
        let una_segment = una / u64::from(MSS);
        let last = self.segments - 1;
        let random = |rng: &mut Rng| una_segment + rng.below(last - una_segment + 1);
        match self.mode {
            Mode::Honest => (edge(i + 1), vec![]),
            Mode::Dupack => (una, vec![]),
            Mode::DsackStorm if k == 0 => (edge(1), vec![]),
            Mode::DsackStorm => (una, vec![one(0), one(i.max(2)), one(1)]),
            Mode::FindFirst => {
                let at = |n: u64| one(i.saturating_sub(2 * n).max(1));
                (una, vec![at(0), at(1), at(2), at(3)])
            }
            Mode::CoverAll => (una, vec![(edge(1), edge(i.max(1) + 1)), one(i.max(1))]),
            Mode::Random => {
                let blocks = (0..4).map(|_| one(random(&mut self.rng))).collect();
                (una, blocks)
            }
            Mode::Rack => (una, vec![one(i & !1)]),
            Mode::RackReordered if k < 3 => (una, vec![one(9 - 2 * k)]),
            Mode::RackReordered => (una, vec![one(i.max(10) & !1)]),
            Mode::Renege if k % 300 == 299 => (edge(una_segment + 2), vec![]),
            Mode::Renege => (
                una,
                vec![(edge(una_segment + 1), edge(i.max(una_segment + 1) + 1))],
            ),
            Mode::Split => {
                let at = edge(random(&mut self.rng)) + 1 + self.rng.below(u64::from(MSS));
                (
                    una,
                    vec![(at, at + 1), (at + 100, at + 1500), one(i.max(1))],
                )
            }
            Mode::Garbage => {
                let at = edge(random(&mut self.rng));
                let out = edge(self.segments);
                (
                    una,
                    vec![(at + 9, at), (out, out + 5), (una, edge(last)), (at, at)],
                )
            }
        }
    }

    fn acknowledge(&mut self, position: u64, blocks: &[(u64, u64)]) {
        let board = self.recovery.board();
        let frame = Frame {
            initial: INITIAL,
            snd_una: board.snd_una(),
            snd_nxt: board.snd_nxt(),
        };
        let (before, outstanding) = (board.examined(), board.len());
        let wire: Vec<SackBlock> = blocks
            .iter()
            .map(|&(start, end)| SackBlock {
                start: INITIAL.at(start),
                end: INITIAL.at(end),
            })
            .collect();
        let blocks = Blocks::read(&frame, position, &wire);
        let ack = Ack {
            position,
            blocks: &blocks,
            echoed_at: None,
            is_duplicate: position == frame.snd_una,
        };
        let mut lost_count = 0;
        let outcome = self.recovery.on_ack(self.now, &ack, |_| lost_count += 1);
        let spent = self.recovery.board().examined() - before;
        let fair = u64::from(outcome.applied.delivered_count) + lost_count;
        let log2 = u64::from(outstanding.max(2).ilog2());
        let bound = 4 * wire.len().max(1) as u64 * log2;
        assert!(
            spent <= bound + fair,
            "{:?}, {outstanding} outstanding: {spent} looked at, {fair} delivered or lost",
            self.mode
        );
        self.excess_max = self.excess_max.max(spent.saturating_sub(fair));
    }

    fn check(&self) {
        let board = self.recovery.board();
        let total = board.pipe().bytes + board.sacked().bytes + board.lost().bytes;
        assert_eq!(total, board.snd_nxt() - board.snd_una());
        assert!(board.retransmitted().bytes <= board.pipe().bytes);
    }

    /// Time passes: deadlines fire, and what is lost is sent again at a modest rate.
    fn react(&mut self) {
        while let Some(at) = self.recovery.deadline().filter(|&at| at <= self.now) {
            match self.recovery.on_deadline(at, |_| {}) {
                Some(Expired::Probe) => {
                    let again = self.recovery.board().last_not_sacked();
                    self.recovery.on_probe_sent(at, again);
                }
                Some(Expired::Reordering { .. } | Expired::Retransmission { .. }) | None => {}
            }
        }
        for _ in 0..4 {
            if let Some(id) = self.recovery.next_retransmission() {
                self.recovery.on_retransmitted(self.now, id);
            }
        }
    }

    fn go(&mut self) {
        for k in 0..ACKS {
            let i = k * self.segments / ACKS;
            self.now = self.now.max(sent_at(i, self.segments) + RTT);
            if self.mode == Mode::Renege && k > 0 && k % 300 == 0 {
                self.now += Duration::from_secs(60);
                self.react();
            }
            let (position, blocks) = self.answer(k, i);
            let (una, nxt) = {
                let board = self.recovery.board();
                (board.snd_una(), board.snd_nxt())
            };
            self.acknowledge(position.clamp(una, nxt), &blocks);
            self.react();
            self.check();
        }
    }
}

/// When segment `i` of a window of `segments` is sent.
fn sent_at(i: u64, segments: u64) -> Instant {
    Instant::from_nanos(i * 100_000_000 / segments)
}

fn run(mode: Mode, window: u64, seed: u64) -> Run {
    let mut run = Run::new(mode, window / u64::from(MSS), seed);
    run.go();
    run
}

#[test]
fn no_receiver_makes_an_acknowledgement_cost_more_than_its_bound() {
    for seed in seeds(0..1) {
        for mode in MODES {
            for mib in [4, 16, 64, 256] {
                let _ = run(mode, mib << 20, seed);
            }
        }
    }
}

/// What an attack costs beyond what it delivers is the same in a window 64 times as long, but for
/// the searches' logarithm.
#[test]
fn the_cost_of_an_attack_does_not_grow_with_the_window() {
    for seed in seeds(0..1) {
        for mode in MODES {
            let small = run(mode, 4 << 20, seed).excess_max;
            let large = run(mode, 256 << 20, seed).excess_max;
            // Six doublings, for both ends of four blocks.
            assert!(large <= small + 48, "{mode:?}: {small} -> {large}");
        }
    }
}

/// The modes do what they are named for.
#[test]
fn attacks_reach_what_they_attack() {
    let window = 16 << 20;
    let counters = |mode| *run(mode, window, 0).recovery.counters();
    assert!(counters(Mode::DsackStorm).dsack_blocks > ACKS - 10);
    assert!(counters(Mode::Renege).reneges >= 1);
    assert!(counters(Mode::Garbage).sack_blocks_invalid > ACKS);
    let reordered = run(Mode::RackReordered, window, 0);
    assert!(reordered.recovery.is_reordering_seen());
    let honest = counters(Mode::Honest);
    assert_eq!((honest.retransmissions, honest.timeouts), (0, 0));
}

/// Throwing away what was SACKed works a few times; then SACKs are not believed any more.
#[test]
fn a_receiver_that_keeps_reneging_loses_its_sacks() {
    let run = run(Mode::Renege, 4 << 20, 0);
    let reneges = run.recovery.counters().reneges;
    assert!((1..=u64::from(RENEGES_MAX)).contains(&reneges), "{reneges}");
}
