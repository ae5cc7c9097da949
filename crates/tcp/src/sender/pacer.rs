//! Segments leave at a rate instead of in bursts.

use core::time::Duration;
use fullbore_base::{Instant, Rate};

/// What may leave at once when a timer fires late: this much time's worth. Ours: what a coarse
/// timer of a busy machine is late by.
const LATENESS: Duration = Duration::from_millis(1);

/// When the next segment may leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    next_at: Instant,
}

impl Pacer {
    /// When the next segment may leave; in the past when it may now.
    #[must_use]
    pub const fn next_at(&self) -> Instant {
        self.next_at
    }

    /// `bytes` leave at `now`.
    ///
    /// At 1 MB/s each kilobyte moves the next departure by a millisecond.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, rate: Rate) {
        let floor = Instant::from_nanos(now.as_nanos().saturating_sub(nanos(LATENESS)));
        self.next_at = self.next_at.max(floor) + rate.time_for(bytes);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_rate_is_kept_over_time_and_lateness_is_made_up_for_a_little() {
        let rate = Rate::from_bytes_per_sec(1_000_000);
        let mut pacer = Pacer::default();
        let mut now = Instant::ZERO + MS * 100;
        let start = now;
        for i in 0..100 {
            pacer.on_sent(now, 1000, rate);
            // The timer fires up to half a millisecond late.
            let late = Duration::from_micros(u64::from(i % 5u32) * 100);
            now = pacer.next_at().max(now) + late;
        }
        let took = now - start;
        assert!(took >= MS * 99 && took <= MS * 101, "{took:?}");
        // After a pause a millisecond's worth may leave at once, and not a pause's.
        now += MS * 500;
        let mut burst = 0;
        while pacer.next_at() <= now {
            pacer.on_sent(now, 1000, rate);
            burst += 1;
        }
        assert_eq!(burst, 2);
    }
}
