//! Whole streams to receivers that lie, on a virtual clock: what becomes of them, what each sender looks at, and a
//! table of it all.

use std::fmt::Write as _;
use std::time::Duration;

use fullbore_lab::sack::mode::{MODES, Mode};
use fullbore_lab::sack::path::Outcome;
use fullbore_lab::sack::{self, Algorithm, Options, Who};
use fullbore_testkit::seeds;

const RTT: Duration = Duration::from_millis(100);
const MIB: u64 = 1 << 20;

fn options(seed: u64) -> Options {
    Options {
        senders: Vec::new(),
        modes: Vec::new(),
        windows: Vec::new(),
        rtts: Vec::new(),
        attack_windows: 4,
        congestion: Algorithm::Cubic,
        hold_percent: 100,
        is_kept_open: true,
        seed,
        target: None,
    }
}

/// A run without a processor's clock.
fn one(options: &Options, who: Who, mode: Mode, window: u64) -> Outcome {
    sack::one(options, who, mode, window, RTT, &|| Duration::ZERO)
}

fn goodput(outcome: &Outcome) -> f64 {
    outcome.counters.bytes_acked as f64 / outcome.wall.as_secs_f64()
}

/// A reneging receiver asks for its time-outs: what it SACKed is not there, and nothing else tells.
fn attacks() -> impl Iterator<Item = Mode> {
    MODES
        .into_iter()
        .filter(|&mode| mode.is_hostile() && mode != Mode::Renege)
}

/// Whether the claims of loss are taken back or not, and however long the hold, as long as no time-out falls into
/// it: what a receiver says and does not bear out costs its stream nothing.
#[test]
fn no_mode_forces_a_timeout_or_slows_the_stream() {
    for congestion in [Algorithm::Cubic, Algorithm::Bbr] {
        for (is_kept_open, hold_percent) in [(true, 100), (false, 100), (true, 150)] {
            let options = Options {
                congestion,
                is_kept_open,
                hold_percent,
                attack_windows: 8,
                ..options(1)
            };
            let floor = goodput(&one(&options, Who::Ours, Mode::Dupack, 2 * MIB));
            for mode in attacks() {
                let outcome = one(&options, Who::Ours, mode, 2 * MIB);
                let context = format!("{mode:?}, {options:?}");
                assert!(!outcome.is_given_up, "{context}");
                assert_eq!(outcome.counters.timeouts, 0, "{context}");
                let part = goodput(&outcome) / floor;
                // A run ends at a multiple of half a round trip.
                assert!(part > 0.85, "{part:.2} of the floor: {context}");
            }
        }
    }
}

/// Segments looked at: at most 4 x blocks x log2(segments) for each acknowledgement, and each segment as it is
/// delivered or lost.
#[test]
fn our_looks_stay_within_their_bound() {
    for seed in seeds(0..2) {
        for mode in attacks() {
            let outcome = one(&options(seed), Who::Ours, mode, 4 * MIB);
            let counters = outcome.counters;
            let log2 = u64::from((4 * MIB / 204).ilog2() + 1);
            let segments = counters.bytes_acked / if mode == Mode::Split { 204 } else { 1448 };
            let fair = 4 * log2 * (counters.sack_blocks + counters.acks)
                + 2 * segments
                + 2 * counters.retransmissions;
            assert!(counters.segments_examined <= fair, "{mode:?} {counters:?}");
        }
    }
}

/// What the window's length does to a list and not to us: four times as long, four times the looks.
#[test]
fn a_list_is_searched_the_longer_the_more_is_in_flight() {
    let looks = |who, mode, window| {
        let counters = one(&options(1), who, mode, window).counters;
        counters.segments_examined as f64 / counters.acks as f64
    };
    for (who, mode) in [
        (Who::List, Mode::FindFirst),
        (Who::List, Mode::CoverAll),
        (Who::Cached, Mode::FindFirst),
        (Who::Cached, Mode::CoverAll),
    ] {
        let (short, long) = (looks(who, mode, MIB / 2), looks(who, mode, 2 * MIB));
        assert!(
            short > 50.0 && long > 3.0 * short,
            "{who:?} {mode:?}: {short} {long}"
        );
    }
    for mode in attacks() {
        let (short, long) = (
            looks(Who::Ours, mode, MIB / 2),
            looks(Who::Ours, mode, 2 * MIB),
        );
        assert!(long < short + 8.0, "{mode:?}: {short} {long}");
    }
}

#[test]
fn a_reneging_receiver_gets_everything_again() {
    for seed in seeds(0..4) {
        let options = Options {
            attack_windows: 16,
            ..options(seed)
        };
        let outcome = one(&options, Who::Ours, Mode::Renege, MIB);
        assert!(!outcome.is_given_up && outcome.counters.retransmissions > 0);
        assert!(outcome.counters.bytes_acked >= 4 * MIB, "{outcome:?}");
    }
}

#[test]
fn one_seed_is_one_run() {
    let run = |seed| one(&options(seed), Who::Ours, Mode::Random, MIB);
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn each_sender_does_what_it_did() {
    let mut now = String::from(
        "window 512 KiB, RTT 100 ms: wall ms, KiB acked, looks per ACK, blocks, sent again, time-outs\n",
    );
    for who in [Who::List, Who::Cached, Who::Ours] {
        // Lists take minutes over so many segments.
        for mode in MODES
            .into_iter()
            .filter(|&mode| who == Who::Ours || mode != Mode::Split)
        {
            let outcome = one(&options(1), who, mode, MIB / 2);
            let counters = outcome.counters;
            let _ = writeln!(
                now,
                "{:<20}{:>7}{:>7}{:>7}{:>8}{:>7}{:>4}{}",
                format!("{}, {}", who.name(), mode.name()),
                outcome.wall.as_millis(),
                counters.bytes_acked / 1024,
                counters.segments_examined / counters.acks.max(1),
                counters.sack_blocks,
                counters.retransmissions,
                counters.timeouts,
                if outcome.is_given_up { " given up" } else { "" },
            );
        }
    }
    let snapshot = include_str!("snapshots/sack.txt");
    assert!(now == snapshot, "the table is now:\n{now}");
}
