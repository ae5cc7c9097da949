//! Timestamps: ours, the peer's, and what is too old to be believed.
//!
//! RFC 7323 sections 4 (round trips) and 5 (PAWS).

use core::time::Duration;
use fullbore_base::Instant;

use crate::segment::Timestamps;

/// RFC 7323 5.5: a timestamp of the peer that is older than this says nothing.
const RECENT_MAX: Duration = Duration::from_secs(24 * 24 * 60 * 60);

/// The timestamps of one connection, which both sides agreed to use.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset: u32,
    /// TS.Recent, and when it was taken.
    recent: u32,
    recent_at: Instant,
}

impl Clock {
    /// Ours starts at `offset`; the peer's SYN said `recent`.
    #[must_use]
    pub const fn new(offset: u32, recent: u32, now: Instant) -> Self {
        Self {
            offset,
            recent,
            recent_at: now,
        }
    }

    /// Our clock: milliseconds, as everywhere.
    #[must_use]
    pub const fn value(offset: u32, now: Instant) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "a clock modulo 2^32")]
        offset.wrapping_add((now.as_nanos() / 1_000_000) as u32)
    }

    /// What a segment sent now carries.
    #[must_use]
    pub const fn stamp(&self, now: Instant) -> Timestamps {
        Timestamps {
            value: Self::value(self.offset, now),
            echo: self.recent,
        }
    }

    /// When we sent the timestamp that `echo` repeats; `None` when that was never, or zero.
    #[must_use]
    pub fn sent_at(&self, now: Instant, echo: u32) -> Option<Instant> {
        let age = Self::value(self.offset, now).wrapping_sub(echo);
        let is_sane = echo != 0 && age.cast_signed() >= 0;
        let ticks = now.as_nanos() / 1_000_000;
        let sent = ticks.checked_sub(u64::from(age)).filter(|_| is_sane)?;
        Some(Instant::from_nanos(sent * 1_000_000))
    }

    /// RFC 7323 5.3 R1: whether a segment is from an earlier turn of the sequence numbers.
    #[must_use]
    pub fn is_old(&self, now: Instant, value: u32) -> bool {
        let is_before = value.wrapping_sub(self.recent).cast_signed() < 0;
        is_before && now - self.recent_at <= RECENT_MAX
    }

    /// RFC 7323 4.3 (2): takes the timestamp of a segment that starts at or before what was last
    /// acknowledged.
    pub fn update(&mut self, now: Instant, value: u32) {
        if value.wrapping_sub(self.recent).cast_signed() >= 0 || now - self.recent_at > RECENT_MAX {
            self.recent = value;
            self.recent_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    #[test]
    fn an_echo_tells_when_it_was_sent_across_the_wrap() {
        let clock = Clock::new(u32::MAX - 500, 9, at(0));
        let echo = clock.stamp(at(1)).value;
        assert_eq!(clock.sent_at(at(3), echo), Some(at(1)));
        assert_eq!(clock.sent_at(at(3), 0), None);
        let future = clock.stamp(at(4)).value;
        assert_eq!(clock.sent_at(at(3), future), None);
    }

    #[test]
    fn older_timestamps_are_refused_for_24_days() {
        let mut clock = Clock::new(0, 1000, at(0));
        assert!(clock.is_old(at(1), 999));
        assert!(!clock.is_old(at(1), 1000));
        assert!(!clock.is_old(at(25 * 24 * 3600), 999));
        clock.update(at(2), 900);
        assert_eq!(clock.stamp(at(2)).echo, 1000);
        clock.update(at(2), 0x8000_0000);
        assert_eq!(clock.stamp(at(2)).echo, 0x8000_0000);
    }
}
