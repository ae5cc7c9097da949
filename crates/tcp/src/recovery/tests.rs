//! Scripts of loss: what was sent, what came back, what is deemed lost and when.

use super::*;
use crate::scoreboard::{Blocks, Frame};
use crate::segment::SackBlock;
use crate::seq::Seq;
use std::time::Duration;

const MSS: u32 = 1000;
const MS: Duration = Duration::from_millis(1);

fn at(ms: u32) -> Instant {
    Instant::ZERO + MS * ms
}

/// A sender whose segments are numbered from 0 and are 1000 bytes long.
struct Script {
    recovery: Recovery,
}

impl Script {
    /// With SACK, and a round trip of 100 ms measured on the first segment.
    fn new() -> Self {
        Self::started(true)
    }

    fn without_sack() -> Self {
        Self::started(false)
    }

    fn started(is_sack: bool) -> Self {
        let recovery = Recovery::new(MSS, is_sack);
        let mut script = Self { recovery };
        script.recovery.on_sent(at(0), MSS);
        let _ = script.ack(100, 1, &[]);
        script
    }

    /// Sends `count` more at `ms`.
    fn send(&mut self, ms: u32, count: u32) {
        for _ in 0..count {
            self.recovery.on_sent(at(ms), MSS);
        }
    }

    /// Sends the lowest lost segment again; returns its number.
    fn resend(&mut self, ms: u32) -> Option<u64> {
        let id = self.recovery.next_retransmission()?;
        let start = self.recovery.board().record(id).range().start;
        self.recovery.on_retransmitted(at(ms), id);
        Some(start / 1000)
    }

    /// Everything below segment `next` arrived, and the segments of `blocks`.
    fn ack(&mut self, ms: u32, next: u64, blocks: &[(u64, u64)]) -> Outcome {
        self.ack_echoing(ms, next, blocks, None)
    }

    fn ack_echoing(
        &mut self,
        ms: u32,
        next: u64,
        blocks: &[(u64, u64)],
        echoed_ms: Option<u32>,
    ) -> Outcome {
        let board = self.recovery.board();
        let frame = Frame {
            initial: Seq::new(7),
            snd_una: board.snd_una(),
            snd_nxt: board.snd_nxt(),
        };
        let wire: Vec<SackBlock> = blocks
            .iter()
            .map(|&(start, end)| SackBlock {
                start: frame.initial.at(start * 1000),
                end: frame.initial.at(end * 1000),
            })
            .collect();
        let position = next * 1000;
        let blocks = Blocks::read(&frame, position, &wire);
        let ack = Ack {
            position,
            blocks: &blocks,
            echoed_at: echoed_ms.map(at),
            is_duplicate: position == frame.snd_una,
        };
        self.recovery.on_ack(at(ms), &ack, |_| {})
    }

    fn expire(&mut self, ms: u32) -> Option<Expired> {
        self.recovery.on_deadline(at(ms), |_| {})
    }

    fn deadline(&self) -> Option<Duration> {
        self.recovery.deadline().map(|at| at - Instant::ZERO)
    }

    fn lost(&self) -> u32 {
        self.recovery.board().lost().count
    }
}

/// A time-out ahead of all else: the probe is answered by nothing either.
fn timed_out(count: u32) -> Script {
    let mut script = Script::new();
    script.send(1000, count);
    let due = script.deadline().expect("a probe is armed");
    let ms = u32::try_from(due.as_millis()).expect("soon");
    assert_eq!(script.expire(ms), Some(Expired::Probe));
    let last = script.recovery.board().last_not_sacked();
    script.recovery.on_probe_sent(at(ms), last);
    let due = script.deadline().expect("the timer runs");
    let ms = u32::try_from(due.as_millis()).expect("soon");
    let expired = script.expire(ms);
    assert_eq!(expired, Some(Expired::Retransmission { is_first: true }));
    script
}

// RACK, RFC 8985 section 6.

#[test]
fn two_sacked_segments_leave_the_first_a_quarter_of_a_round_trip() {
    let mut script = Script::new();
    script.send(1000, 4);
    let outcome = script.ack(1100, 1, &[(2, 4)]);
    assert_eq!((outcome.lost_bytes, script.lost()), (0, 0));
    assert_eq!(script.deadline(), Some(MS * 1125));
    assert_eq!(script.expire(1124), None);
    let expired = Expired::Reordering {
        lost_bytes: 1000,
        has_entered: true,
    };
    assert_eq!(script.expire(1125), Some(expired));
    assert_eq!(script.resend(1125), Some(1));
}

#[test]
fn a_third_sacked_segment_shows_the_loss_at_once() {
    let mut script = Script::new();
    script.send(1000, 4);
    let outcome = script.ack(1100, 1, &[(2, 5)]);
    assert!(outcome.has_entered);
    assert_eq!(outcome.lost_bytes, 1000);
}

#[test]
fn on_a_path_that_reorders_even_three_leave_it_time() {
    let mut script = Script::new();
    script.send(1000, 6);
    let _ = script.ack(1100, 1, &[(2, 3)]);
    let _ = script.ack(1101, 3, &[]);
    assert!(script.recovery.is_reordering_seen());
    script.send(1102, 4);
    let outcome = script.ack(1110, 3, &[(4, 7)]);
    assert_eq!(outcome.lost_bytes, 0);
    assert!(script.deadline().is_some_and(|due| due > MS * 1110));
}

#[test]
fn reordering_is_not_seen_in_ranges_that_one_acknowledgement_names() {
    let mut script = Script::new();
    script.send(1000, 6);
    let _ = script.ack(1100, 1, &[(5, 6), (3, 4)]);
    assert!(!script.recovery.is_reordering_seen());
}

#[test]
fn a_retransmission_that_is_lost_is_found_without_a_timeout() {
    let mut script = Script::new();
    script.send(1000, 10);
    let _ = script.ack(1100, 1, &[(2, 5)]);
    assert_eq!(script.resend(1100), Some(1));
    script.send(1101, 3);
    let outcome = script.ack(1201, 1, &[(2, 14)]);
    assert_eq!(outcome.lost_bytes, 1000, "sent before what arrived");
    assert_eq!(script.resend(1201), Some(1));
    assert_eq!(script.recovery.counters().timeouts, 0);
}

/// The acknowledgement of the original does not make the retransmission look delivered, and with
/// it all that was sent before that.
#[test]
fn an_echo_from_before_the_retransmission_does_not_advance_rack() {
    for (echoed_ms, lost_count) in [(1000, 0), (1190, 2)] {
        let mut script = Script::new();
        script.send(1000, 5);
        let _ = script.ack(1100, 1, &[(2, 6)]);
        script.send(1150, 2);
        assert_eq!(script.resend(1190), Some(1));
        let _ = script.ack_echoing(1300, 2, &[(2, 6)], Some(echoed_ms));
        let _ = script.expire(1300);
        assert_eq!(script.lost(), lost_count, "{echoed_ms}");
    }
}

#[test]
fn a_dsack_widens_the_window_once_per_round_trip() {
    let widened = |dsacks: u32| {
        let mut script = Script::new();
        script.send(1000, 10);
        let _ = script.ack(1100, 1, &[(2, 5)]);
        assert_eq!(script.resend(1100), Some(1));
        let _ = script.ack(1101, 5, &[]);
        for _ in 0..dsacks {
            let _ = script.ack(1102, 5, &[(1, 2)]);
        }
        script
            .recovery
            .rack
            .reo_wnd(&script.recovery.surroundings())
    };
    assert_eq!(widened(1), MS * 50);
    assert_eq!(widened(9), MS * 50, "a storm counts once");
}

// Tail loss probes, RFC 8985 section 7.

#[test]
fn a_silent_tail_is_probed_after_two_round_trips() {
    let mut script = Script::new();
    script.send(1000, 3);
    assert_eq!(script.deadline(), Some(MS * 1200));
    assert_eq!(script.expire(1199), None);
    assert_eq!(script.expire(1200), Some(Expired::Probe));
    let last = script.recovery.board().last_not_sacked();
    script.recovery.on_probe_sent(at(1200), last);
    // The answer SACKs the last segment: the two in front are lost.
    let outcome = script.ack(1300, 1, &[(3, 4)]);
    assert_eq!(outcome.lost_bytes, 2000);
    assert!(outcome.has_entered);
}

#[test]
fn no_probe_is_armed_once_something_is_sacked_or_lost() {
    let mut script = Script::new();
    script.send(1000, 5);
    let _ = script.ack(1100, 1, &[(5, 6)]);
    assert_eq!(script.recovery.tlp.due(), None);
    let _ = script.ack(1101, 1, &[(3, 6)]);
    assert_eq!(script.recovery.tlp.due(), None);
}

#[test]
fn a_probe_that_repairs_the_last_segment_reports_its_loss() {
    let mut script = Script::new();
    script.send(1000, 2);
    assert_eq!(script.expire(1200), Some(Expired::Probe));
    let last = script.recovery.board().last_not_sacked();
    script.recovery.on_probe_sent(at(1200), last);
    assert!(!script.ack(1300, 3, &[]).is_probe_repaired);
    script.send(1300, 1);
    assert!(script.ack(1400, 4, &[]).is_probe_repaired);
}

// The retransmission timer, RFC 6298 section 5.

#[test]
fn the_timer_starts_with_data_restarts_with_progress_and_stops_with_the_last_ack() {
    let mut script = Script::without_sack();
    assert_eq!(script.deadline(), None);
    script.send(1000, 2);
    script.send(1010, 1);
    let rto = script.recovery.rtt().rto();
    assert_eq!(script.deadline(), Some(MS * 1000 + rto));
    let _ = script.ack(1100, 2, &[]);
    let rto = script.recovery.rtt().rto();
    assert_eq!(script.deadline(), Some(MS * 1100 + rto));
    let _ = script.ack(1110, 4, &[]);
    assert_eq!(script.deadline(), None);
}

#[test]
fn a_timeout_deems_all_lost_that_is_old_enough_and_backs_off() {
    let script = timed_out(5);
    assert!(script.lost() >= 4, "the probe may be too young");
    assert_eq!(script.recovery.rtt().backoff(), 1);
    assert!(matches!(script.recovery.phase(), Phase::Timeout { .. }));
}

#[test]
fn a_second_timeout_of_one_flight_is_not_the_first() {
    let mut script = timed_out(5);
    let ms = 4000;
    let _ = script.resend(ms);
    let again = script.expire(10_000);
    assert_eq!(again, Some(Expired::Retransmission { is_first: false }));
    assert_eq!(script.recovery.rtt().backoff(), 2);
}

// F-RTO, RFC 5682, and undoing.

#[test]
fn late_acknowledgements_of_the_originals_undo_a_timeout() {
    let mut script = timed_out(5);
    assert_eq!(script.resend(3000), Some(1));
    let first = script.ack(3001, 2, &[]);
    assert!(!first.is_undone);
    assert!(script.recovery.prefers_new_data());
    script.send(3001, 2);
    let second = script.ack(3002, 3, &[]);
    assert!(second.is_undone);
    assert_eq!(script.recovery.phase(), Phase::Open);
    assert_eq!(script.lost(), 0, "the rest is on its way");
}

#[test]
fn a_duplicate_after_the_first_advance_proves_the_timeout() {
    let mut script = timed_out(5);
    assert_eq!(script.resend(3000), Some(1));
    let _ = script.ack(3001, 2, &[]);
    script.send(3001, 2);
    let second = script.ack(3100, 2, &[(6, 7)]);
    assert!(!second.is_undone);
    assert!(!script.recovery.prefers_new_data());
    assert!(matches!(script.recovery.phase(), Phase::Timeout { .. }));
}

#[test]
fn a_duplicate_at_once_proves_it_too() {
    let mut script = timed_out(5);
    assert_eq!(script.resend(3000), Some(1));
    let first = script.ack(3001, 1, &[(2, 3)]);
    assert!(!first.is_undone && !script.recovery.prefers_new_data());
    let second = script.ack(3002, 3, &[]);
    assert!(!second.is_undone);
}

#[test]
fn an_echo_from_before_the_retransmission_undoes_at_once() {
    for (echoed_ms, is_undone) in [(1000, true), (2999, true), (3000, false)] {
        let mut script = timed_out(5);
        assert_eq!(script.resend(3000), Some(1));
        let first = script.ack_echoing(3050, 2, &[], Some(echoed_ms));
        assert_eq!(first.is_undone, is_undone, "{echoed_ms}");
    }
}

#[test]
fn dsacks_for_every_retransmission_undo_a_recovery() {
    let mut script = Script::new();
    script.send(1000, 8);
    assert!(script.ack(1100, 1, &[(3, 7)]).has_entered);
    assert_eq!(script.resend(1100), Some(1));
    assert_eq!(script.resend(1100), Some(2));
    let _ = script.ack(1200, 7, &[]);
    assert!(!script.ack(1200, 7, &[(1, 2)]).is_undone, "one of two");
    assert!(script.ack(1201, 7, &[(2, 3)]).is_undone);
    assert_eq!(script.recovery.counters().spurious_retransmissions, 2);
    let third = script.ack(1202, 7, &[(2, 3)]);
    assert!(!third.is_undone, "a duplicate of the network");
    assert_eq!(script.recovery.counters().spurious_retransmissions, 2);
}

/// A retransmission cannot be answered in less than the least round trip.
#[test]
fn an_acknowledgement_that_comes_too_soon_is_the_originals_and_undoes_a_recovery() {
    for (ms, is_undone) in [(1199, true), (1200, false)] {
        let mut script = Script::new();
        script.send(1000, 8);
        assert!(script.ack(1100, 1, &[(3, 7)]).has_entered);
        assert_eq!(script.resend(1100), Some(1));
        assert_eq!(script.resend(1100), Some(2));
        assert!(!script.ack(1110, 1, &[(2, 7)]).is_undone, "one of two");
        assert_eq!(script.ack(ms, 7, &[]).is_undone, is_undone, "{ms}");
    }
}

/// A D-SACK that follows such an acknowledgement does not stand for another retransmission.
#[test]
fn one_retransmission_is_not_shown_to_be_needless_twice() {
    let mut script = Script::new();
    script.send(1000, 8);
    assert!(script.ack(1100, 1, &[(3, 7)]).has_entered);
    assert_eq!(script.resend(1100), Some(1));
    assert_eq!(script.resend(1100), Some(2));
    let _ = script.ack(1110, 2, &[(3, 7)]);
    let dsack = script.ack(1201, 2, &[(1, 2), (3, 7)]);
    assert!(!dsack.is_undone, "the second may have been needed");
    assert!(!script.ack(1202, 7, &[]).is_undone);
}

/// What is sent again twice tells nothing by when it is acknowledged, nor by what that echoes: the first
/// retransmission may have arrived.
#[test]
fn a_segment_that_an_earlier_recovery_sent_again_undoes_nothing() {
    let mut script = Script::new();
    script.send(1000, 10);
    assert!(script.ack(1100, 1, &[(2, 5)]).has_entered);
    assert_eq!(script.resend(1100), Some(1));
    script.send(1101, 3);
    let _ = script.ack(1201, 1, &[(2, 14)]);
    assert_eq!(script.resend(1201), Some(1));
    let outcome = script.ack_echoing(1210, 14, &[], Some(1100));
    assert!(!outcome.is_undone && outcome.has_left);
}

/// A recovery that was needless teaches how late a segment may be: as late again is no loss.
#[test]
fn a_false_alarm_widens_the_reordering_window_to_what_was_seen() {
    let mut script = Script::new();
    script.send(1000, 8);
    assert!(script.ack(1100, 1, &[(2, 8)]).has_entered);
    assert_eq!(script.resend(1100), Some(1));
    // 60 ms behind those sent with it.
    assert!(script.ack_echoing(1160, 9, &[], Some(1000)).is_undone);
    assert!(script.recovery.is_reordering_seen());
    script.send(2000, 8);
    let again = script.ack(2100, 9, &[(10, 16)]);
    assert_eq!(again.lost_bytes, 0);
    assert_eq!(script.deadline(), Some(MS * 2175), "three quarters");
    assert_eq!(script.expire(2174), None);
    assert!(matches!(
        script.expire(2175),
        Some(Expired::Reordering {
            has_entered: true,
            ..
        })
    ));
}

// Recovery as a whole.

#[test]
fn a_recovery_ends_with_what_was_outstanding_when_it_began() {
    let mut script = Script::new();
    script.send(1000, 8);
    assert!(script.ack(1100, 1, &[(2, 5)]).has_entered);
    assert_eq!(script.resend(1100), Some(1));
    script.send(1101, 2);
    assert!(!script.ack(1200, 8, &[]).has_left);
    assert!(script.ack(1201, 9, &[]).has_left);
    assert_eq!(script.recovery.phase(), Phase::Open);
}

#[test]
fn karn_only_unambiguous_segments_are_measured() {
    let mut script = timed_out(2);
    let srtt = script.recovery.rtt().srtt();
    assert_eq!(script.resend(3000), Some(1));
    let _ = script.ack(3900, 2, &[]);
    assert_eq!(script.recovery.rtt().srtt(), srtt);
}

// Without SACK: RFC 6582, RFC 3042.

#[test]
fn three_duplicates_without_sack_show_a_loss_and_each_lets_one_segment_out() {
    let mut script = Script::without_sack();
    script.send(1000, 6);
    assert_eq!(script.recovery.pipe(), 6000);
    assert!(!script.ack(1100, 1, &[]).has_entered);
    assert!(!script.ack(1101, 1, &[]).has_entered);
    assert_eq!(script.recovery.pipe(), 4000, "limited transmit has room");
    assert!(script.ack(1102, 1, &[]).has_entered);
    assert_eq!(script.resend(1102), Some(1));
}

#[test]
fn a_partial_acknowledgement_shows_the_next_hole() {
    let mut script = Script::without_sack();
    script.send(1000, 8);
    for ms in 1100..1103 {
        let _ = script.ack(ms, 1, &[]);
    }
    assert_eq!(script.resend(1102), Some(1));
    let partial = script.ack(1200, 4, &[]);
    assert_eq!(partial.lost_bytes, 1000);
    assert_eq!(script.resend(1200), Some(4));
    assert!(script.ack(1300, 9, &[]).has_left);
}

#[test]
fn blocks_of_a_peer_that_agreed_to_no_sack_mean_nothing() {
    let mut script = Script::without_sack();
    script.send(1000, 6);
    let outcome = script.ack(1100, 1, &[(2, 6)]);
    assert_eq!(outcome.applied.sacked_count, 0);
}

#[test]
fn a_segment_that_was_only_late_undoes_the_recovery_before_it_is_sent_again() {
    let mut script = Script::new();
    script.send(1000, 8);
    assert!(script.ack(1100, 1, &[(2, 5)]).has_entered);
    let late = script.ack(1101, 5, &[]);
    assert!(late.is_undone && late.has_left);
    assert_eq!(script.recovery.phase(), Phase::Open);
    let mut script = Script::new();
    script.send(1000, 8);
    assert!(script.ack(1100, 1, &[(2, 5)]).has_entered);
    assert_eq!(script.resend(1100), Some(1));
    assert!(
        !script.ack(1200, 5, &[]).is_undone,
        "it may have been that one"
    );
}
