//! When to acknowledge: at once, with the next data, or a little later.
//!
//! RFC 9293 3.8.6.3 and RFC 5681 4.2 (delayed acknowledgements), RFC 2883 (what arrived twice).

use core::ops::Range;
use core::time::Duration;
use fullbore_base::Instant;

/// Acknowledgements at the start, and after a pause, that are not held back: a sender in slow start
/// grows by them. Ours, as Linux's quick-ack mode.
const QUICK_ACKS: u32 = 16;

/// A pause after which a sender is deemed to start anew.
const PAUSE: Duration = Duration::from_millis(500);

/// What is owed to the peer.
#[derive(Clone, Debug)]
pub struct Acks {
    /// Bytes that arrived in order since the last acknowledgement.
    unacked_bytes: u64,
    is_due: bool,
    quick_left: u32,
    last_data_at: Instant,
    /// To be reported once.
    pub duplicate: Option<Range<u64>>,
    /// The largest payload seen: the peer's segment size.
    segment_max: u64,
}

impl Default for Acks {
    fn default() -> Self {
        Self {
            unacked_bytes: 0,
            is_due: false,
            quick_left: QUICK_ACKS,
            last_data_at: Instant::ZERO,
            duplicate: None,
            segment_max: 1,
        }
    }
}

impl Acks {
    /// Whether an acknowledgement has to leave now.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Whether data waits for its acknowledgement.
    #[must_use]
    pub const fn is_owed(&self) -> bool {
        self.is_due || self.unacked_bytes > 0
    }

    /// One has to leave now.
    pub const fn demand(&mut self) {
        self.is_due = true;
    }

    /// Data arrived. `is_plain`: in order, nothing missing before or behind it, nothing twice.
    ///
    /// One that is longer than `mss` was joined of several on its way.
    ///
    /// RFC 5681 4.2: every second full segment, and everything out of order, at once.
    pub fn on_data(&mut self, now: Instant, len: u64, mss: u64, is_plain: bool) {
        if now - self.last_data_at > PAUSE {
            self.quick_left = QUICK_ACKS;
        }
        self.last_data_at = now;
        self.segment_max = self.segment_max.max(len.min(mss));
        self.unacked_bytes += len;
        let is_second = self.unacked_bytes >= 2 * self.segment_max;
        if !is_plain || is_second || self.quick_left > 0 {
            self.is_due = true;
        }
    }

    /// A segment with an acknowledgement leaves.
    pub fn on_sent(&mut self) {
        if self.unacked_bytes > 0 {
            self.quick_left = self.quick_left.saturating_sub(1);
        }
        self.unacked_bytes = 0;
        self.is_due = false;
        self.duplicate = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past_quick_acks() -> Acks {
        let mut acks = Acks::default();
        for _ in 0..QUICK_ACKS {
            acks.on_data(Instant::ZERO, 1000, 1460, true);
            assert!(acks.is_due());
            acks.on_sent();
        }
        acks
    }

    #[test]
    fn every_second_segment_is_acknowledged_at_once() {
        let mut acks = past_quick_acks();
        acks.on_data(Instant::ZERO, 1000, 1460, true);
        assert!(acks.is_owed() && !acks.is_due());
        acks.on_data(Instant::ZERO, 1000, 1460, true);
        assert!(acks.is_due());
    }

    #[test]
    fn segments_that_were_joined_on_their_way_count_each() {
        let mut acks = past_quick_acks();
        acks.on_data(Instant::ZERO, 14_600, 1460, true);
        assert!(acks.is_due());
        acks.on_sent();
        acks.on_data(Instant::ZERO, 1460, 1460, true);
        assert!(acks.is_owed() && !acks.is_due());
    }

    #[test]
    fn small_segments_wait_until_they_add_up_to_two() {
        let mut acks = past_quick_acks();
        for _ in 0..19 {
            acks.on_data(Instant::ZERO, 100, 1460, true);
            assert!(!acks.is_due());
        }
        acks.on_data(Instant::ZERO, 100, 1460, true);
        assert!(acks.is_due());
    }

    #[test]
    fn what_is_out_of_order_is_acknowledged_at_once() {
        let mut acks = past_quick_acks();
        acks.on_data(Instant::ZERO, 1000, 1460, false);
        assert!(acks.is_due());
    }

    #[test]
    fn after_a_pause_nothing_is_held_back() {
        let mut acks = past_quick_acks();
        acks.on_data(Instant::ZERO + PAUSE * 2, 1000, 1460, true);
        assert!(acks.is_due());
    }
}
