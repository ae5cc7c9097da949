//! Deadlines of loss recovery and what happens when they pass.
//!
//! RFC 8985 sections 6.3 and 7.3, RFC 6298 section 5, RFC 5682 section 3.1 step 1.

use fullbore_base::Instant;

use super::frto::{Episode, Frto, Step};
use super::{Lost, Phase, RENEGES_MAX, Recovery, tell_lost};
use crate::scoreboard::Id;

/// A deadline that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// Segments that might have been late are lost.
    Reordering {
        /// Bytes deemed lost.
        lost_bytes: u64,
        /// Fast recovery began with it.
        has_entered: bool,
    },
    /// A tail loss probe is to be sent: new data, or the last segment again.
    Probe,
    /// The retransmission timer: the window falls to one segment.
    Retransmission {
        /// It is the first for this flight: `ssthresh` falls too (RFC 5681 section 3.1 (4)).
        is_first: bool,
    },
}

impl Recovery {
    /// The next deadline. O(1).
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let rto_at = self.rto_at().filter(|_| !self.board.is_empty());
        [self.reorder_at, self.tlp.due(), rto_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles one deadline that passed, if any did.
    pub fn on_deadline(&mut self, now: Instant, mut on_lost: impl FnMut(&Lost)) -> Option<Expired> {
        if self.reorder_at.is_some_and(|at| at <= now) {
            let lost_bytes = self.detect_losses(now, &mut on_lost);
            let has_entered = lost_bytes > 0 && self.phase == Phase::Open;
            if has_entered {
                self.enter_fast();
            }
            return Some(Expired::Reordering {
                lost_bytes,
                has_entered,
            });
        }
        if self.tlp.due().is_some_and(|at| at <= now) {
            self.tlp.disarm();
            // RFC 8985 7.3: the timer that the probe stands in for starts anew.
            self.rto_from = Some(now);
            return Some(Expired::Probe);
        }
        let is_rto = !self.board.is_empty() && self.rto_at().is_some_and(|at| at <= now);
        is_rto.then(|| self.on_rto(now, &mut on_lost))
    }

    /// A probe leaves. `again`: the segment that it repeats; none when it is new data, which the
    /// caller has recorded as sent.
    pub fn on_probe_sent(&mut self, now: Instant, again: Option<Id>) {
        if let Some(id) = again {
            self.on_retransmitted(now, id);
        }
        self.tlp.on_probe(self.board.snd_nxt(), again.is_some());
        self.counters.probes += 1;
        self.rto_from = Some(now);
    }

    fn on_rto(&mut self, now: Instant, on_lost: &mut impl FnMut(&Lost)) -> Expired {
        let is_first = !matches!(self.phase, Phase::Timeout { .. });
        self.counters.timeouts += 1;
        self.rtt.on_timeout();
        if self.board.is_reneging() {
            self.on_reneged();
        }
        self.lose_aged(now, on_lost);
        let _ = self.lose_first(on_lost);
        let recover = self.board.snd_nxt();
        self.phase = Phase::Timeout { recover };
        self.recover_max = recover;
        self.frto = is_first.then_some(Frto {
            recover,
            step: Step::Retransmitted,
        });
        if is_first {
            self.episode = Some(Episode::new(self.board.snd_una(), None));
        }
        self.dupacks = 0;
        self.reorder_at = None;
        self.tlp.on_recovery();
        self.rto_from = Some(now);
        Expired::Retransmission { is_first }
    }

    /// RFC 2018 section 8: a time-out with a SACKed segment at the front. The SACKs are forgotten.
    fn on_reneged(&mut self) {
        self.counters.reneges += 1;
        self.reneges += 1;
        self.board.forget_sacked();
        if self.reneges >= RENEGES_MAX {
            self.is_sack = false;
        }
    }

    /// RFC 8985 6.3: of what is in flight, a time-out deems lost what RACK would by its age; all of
    /// it when nothing was ever delivered.
    fn lose_aged(&mut self, now: Instant, on_lost: &mut impl FnMut(&Lost)) {
        let reo_wnd = self.rack.reo_wnd(&self.surroundings());
        let age = self.rack.age_at_timeout(reo_wnd);
        let delivery = &mut self.delivery;
        let _ = self.board.lose_oldest(|record| {
            if age.is_some_and(|age| record.sent_at() + age > now) {
                return Err(());
            }
            tell_lost(record, delivery, on_lost);
            Ok(())
        });
    }
}
