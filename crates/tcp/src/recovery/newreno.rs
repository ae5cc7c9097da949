//! Loss recovery without SACK: duplicate acknowledgements are counted.
//!
//! RFC 6582 (NewReno), RFC 3042 (limited transmit: each duplicate lets a segment out).

use super::rack::DUP_THRESH;
use super::{Ack, Lost, Outcome, Phase, Recovery, tell_lost};

impl Recovery {
    /// Without SACK: RFC 6582. Returns the bytes deemed lost.
    pub(super) fn count_duplicates(
        &mut self,
        ack: &Ack<'_>,
        outcome: &mut Outcome,
        on_lost: &mut impl FnMut(&Lost),
    ) -> u64 {
        let mss = u64::from(self.mss);
        let is_fast = matches!(self.phase, Phase::Fast { .. });
        if ack.is_duplicate && !self.board.is_empty() {
            self.dupacks = self.dupacks.saturating_add(1);
            outcome.delivered_bytes += mss;
            let is_third = self.phase == Phase::Open && self.dupacks == DUP_THRESH;
            // One flight is not reduced for twice.
            if is_third && self.board.snd_una() >= self.recover_max {
                return self.lose_first(on_lost);
            }
        } else if outcome.applied.acked_bytes > 0 && is_fast {
            // A partial acknowledgement: the next hole starts where it stops.
            let segments = outcome.applied.acked_bytes.div_ceil(mss.max(1));
            let known = segments.saturating_sub(1).min(u64::from(self.dupacks));
            self.dupacks -= u32::try_from(known).expect("at most the count");
            outcome.delivered_bytes -= (known * mss).min(outcome.delivered_bytes);
            return self.lose_first(on_lost);
        } else if outcome.applied.acked_bytes > 0 {
            self.dupacks = 0;
        }
        0
    }

    pub(super) fn lose_first(&mut self, on_lost: &mut impl FnMut(&Lost)) -> u64 {
        let before = self.delivery.lost();
        let first = self.board.first().copied();
        if self.board.lose_first()
            && let Some(record) = first
        {
            tell_lost(&record, &mut self.delivery, on_lost);
        }
        self.delivery.lost() - before
    }
}
