//! Which segments are lost: those sent some time before one that arrived.
//!
//! RFC 8985 section 6. Owns RACK's variables and the reordering window; the scoreboard owns the
//! segments and their order.

use core::time::Duration;
use fullbore_base::Instant;

use crate::scoreboard::Record;

/// RFC 8985 6.2: without reordering seen, so many SACKed segments show a loss at once.
pub const DUP_THRESH: u32 = 3;

/// Recoveries after which a reordering window that D-SACKs widened falls back (RFC 8985 6.2).
const REO_WND_PERSIST: u8 = 16;

/// The widest multiple of a quarter of the least round trip. The smoothed round trip is the real
/// bound.
const REO_WND_MULT_MAX: u32 = 255;

/// Granularity of the clock in our timestamps.
const TIMESTAMP_TICK: Duration = Duration::from_millis(1);

/// The segment sent last of all that were delivered.
#[derive(Clone, Copy, Debug)]
struct Newest {
    order: u64,
    rtt: Duration,
}

/// What the reordering window depends on, apart from RACK's own state.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Whether the connection is in fast or time-out recovery.
    pub is_recovering: bool,
    /// Segments SACKed above the cumulative acknowledgement.
    pub sacked_count: u32,
    /// The least round trip.
    pub min_rtt: Option<Duration>,
    /// The smoothed one.
    pub srtt: Option<Duration>,
}

/// RACK's variables.
#[derive(Clone, Debug)]
pub struct Rack {
    newest: Option<Newest>,
    /// RACK.fack: the highest position delivered.
    fack: u64,
    /// The same with what the acknowledgement at hand delivers.
    fack_next: u64,
    is_reordering_seen: bool,
    reo_wnd_mult: u32,
    reo_wnd_persist: u8,
    /// The window is widened once per round trip: until this position is acknowledged.
    dsack_round: Option<u64>,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            newest: None,
            fack: 0,
            fack_next: 0,
            is_reordering_seen: false,
            reo_wnd_mult: 1,
            reo_wnd_persist: REO_WND_PERSIST,
            dsack_round: None,
        }
    }
}

impl Rack {
    /// Whether the path was seen to reorder.
    #[must_use]
    pub const fn is_reordering_seen(&self) -> bool {
        self.is_reordering_seen
    }

    /// Takes note of a segment delivered by the acknowledgement at hand, which echoes a timestamp
    /// of ours from `echoed_at`. O(1).
    ///
    /// RFC 8985 6.2, steps 2 and 3.
    pub fn on_delivered(
        &mut self,
        now: Instant,
        record: &Record,
        echoed_at: Option<Instant>,
        min_rtt: Option<Duration>,
    ) {
        let end = record.range().end;
        // Against what was delivered before this acknowledgement: one that tells of several
        // ranges at once does not say in which order they came.
        if end < self.fack && !record.is_retransmitted() {
            self.is_reordering_seen = true;
        }
        self.fack_next = self.fack_next.max(end);
        let rtt = now - record.sent_at();
        if record.is_retransmitted() {
            let is_of_earlier = echoed_at.is_some_and(|at| at + TIMESTAMP_TICK <= record.sent_at());
            if is_of_earlier || min_rtt.is_some_and(|min| rtt < min) {
                return;
            }
        }
        let order = record.order();
        if self.newest.is_none_or(|newest| newest.order < order) {
            self.newest = Some(Newest { order, rtt });
        }
    }

    /// The acknowledgement at hand is read to its end.
    pub fn on_ack_end(&mut self) {
        self.fack = self.fack_next;
    }

    /// The receiver says that something arrived twice, so it was sent again too early (RFC 8985
    /// 6.2 step 4): the window grows, at most once per round trip.
    pub fn on_duplicate(&mut self, snd_una: u64, snd_nxt: u64) {
        if self.dsack_round.is_some_and(|end| snd_una < end) {
            return;
        }
        self.dsack_round = Some(snd_nxt);
        self.reo_wnd_mult = (self.reo_wnd_mult + 1).min(REO_WND_MULT_MAX);
        self.reo_wnd_persist = REO_WND_PERSIST;
    }

    /// What was deemed lost had arrived, `lateness` behind what was sent after it: no segment that is as late is
    /// to be deemed lost again. A departure from RFC 8985 6.2, which learns of reordering only from segments sent
    /// once and widens its window step by step; that a recovery was needless shows both at once.
    pub fn on_false_alarm(&mut self, lateness: Duration, min_rtt: Option<Duration>) {
        self.is_reordering_seen = true;
        let step = (min_rtt.unwrap_or_default() / 4).max(Duration::from_nanos(1));
        let steps = lateness.as_nanos().div_ceil(step.as_nanos());
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.reo_wnd_mult = self.reo_wnd_mult.max(steps).min(REO_WND_MULT_MAX);
        self.reo_wnd_persist = REO_WND_PERSIST;
    }

    /// The round trip of the segment sent last of all that were delivered.
    #[must_use]
    pub fn newest_rtt(&self) -> Option<Duration> {
        self.newest.map(|newest| newest.rtt)
    }

    /// A recovery is over.
    pub fn on_recovery_end(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }

    /// How long a segment may be late behind one that was sent after it.
    #[must_use]
    pub fn reo_wnd(&self, around: &Surroundings) -> Duration {
        if !self.is_reordering_seen && (around.is_recovering || around.sacked_count >= DUP_THRESH) {
            return Duration::ZERO;
        }
        let quarter = around.min_rtt.unwrap_or_default() / 4;
        let srtt = around.srtt.unwrap_or_default();
        (quarter * self.reo_wnd_mult).min(srtt)
    }

    /// Whether `record` is lost at `now`; if not, when it will be, unless it arrives. `None` when
    /// nothing sent after it has arrived.
    pub fn judge(
        &self,
        now: Instant,
        reo_wnd: Duration,
        record: &Record,
    ) -> Result<(), Option<Instant>> {
        let Some(newest) = self.newest.filter(|n| record.order() < n.order) else {
            return Err(None);
        };
        let due = record.sent_at() + newest.rtt + reo_wnd;
        if due <= now { Ok(()) } else { Err(Some(due)) }
    }

    /// How old a segment is that a time-out deems lost (RFC 8985 6.3); none when nothing was
    /// delivered, and everything is.
    #[must_use]
    pub fn age_at_timeout(&self, reo_wnd: Duration) -> Option<Duration> {
        self.newest.map(|newest| newest.rtt + reo_wnd)
    }
}
