//! How large a segment the path takes.
//!
//! RFC 8899 (search by probes that carry data), RFC 4821 (a lost probe is no sign of congestion), RFC
//! 8201 and 1191 (what a router says is believed only of segments in flight). Sizes are counted as
//! the MSS option does.

use core::ops::Range;
use core::time::Duration;
use fullbore_base::Instant;

use super::config::MSS_MIN;

/// A search ends when the sizes known to pass and to fail are this close.
const STEP_MIN: u16 = 32;
/// Probes of one size that may be lost before it is deemed too large (RFC 8899 MAX_PROBES).
const PROBES_MAX: u32 = 3;
/// After a search, and after a black hole, it is tried again (RFC 8899 PMTU_RAISE_TIMER).
const RAISE_INTERVAL: Duration = Duration::from_secs(600);
/// Time-outs in a row of full segments that show a black hole. Ours: two come by chance where a
/// percent is lost, and smaller segments would then be used for ten minutes.
const BLACK_HOLE_TIMEOUTS: u32 = 3;

#[derive(Clone, Debug)]
struct Probe {
    range: Range<u64>,
    size: u16,
}

/// The search of one connection.
#[derive(Clone, Debug)]
pub struct Mtu {
    current: u16,
    base: u16,
    ceiling: u16,
    /// The least size known not to pass.
    failed: u16,
    attempts: u32,
    probe: Option<Probe>,
    next_at: Instant,
}

impl Mtu {
    /// Starts with `current`, and tries up to `ceiling`.
    #[must_use]
    pub fn new(current: u16, base: u16, ceiling: u16) -> Self {
        let ceiling = ceiling.max(current);
        Self {
            current,
            base: base.min(current).max(MSS_MIN),
            ceiling,
            failed: ceiling.saturating_add(1),
            attempts: 0,
            probe: None,
            next_at: Instant::ZERO,
        }
    }

    /// The largest segment that is known to pass.
    #[must_use]
    pub const fn current(&self) -> u16 {
        self.current
    }

    /// The size to try now, if any: all of what may pass first, then half-way.
    #[must_use]
    pub fn wanted(&self, now: Instant) -> Option<u16> {
        if self.probe.is_some() || now < self.next_at || self.failed - self.current <= 1 {
            return None;
        }
        if self.failed > self.ceiling {
            return Some(self.ceiling);
        }
        let step = (self.failed - self.current) / 2;
        (step >= STEP_MIN).then(|| self.current + step)
    }

    /// A probe of `size` leaves with `range`.
    pub fn on_probe(&mut self, range: Range<u64>, size: u16) {
        self.attempts += 1;
        self.probe = Some(Probe { range, size });
    }

    /// Everything below `snd_una` arrived. Returns true when segments may be larger.
    pub fn on_ack(&mut self, snd_una: u64) -> bool {
        let Some(probe) = self.probe.take_if(|probe| snd_una >= probe.range.end) else {
            return false;
        };
        self.current = probe.size;
        self.attempts = 0;
        true
    }

    /// What starts at `position` leaves again, in segments that pass. If it is the probe, that was lost, or
    /// so late that it says nothing: what is acknowledged now may be the repetition.
    pub fn on_repeated(&mut self, now: Instant, position: u64) {
        let Some(probe) = self.probe.take_if(|p| p.range.contains(&position)) else {
            return;
        };
        if self.attempts >= PROBES_MAX {
            self.failed = probe.size;
            self.attempts = 0;
            if self.wanted(now).is_none() {
                self.rest(now);
            }
        }
    }

    /// The search is over for a while; then all sizes are possible again.
    fn rest(&mut self, now: Instant) {
        self.next_at = now + RAISE_INTERVAL;
        self.failed = self.ceiling.saturating_add(1);
    }

    /// The retransmission timer expired `backoff` times in a row. Returns true when segments are to
    /// be smaller from now on.
    pub fn on_timeout(&mut self, now: Instant, backoff: u32) -> bool {
        self.probe = None;
        if backoff < BLACK_HOLE_TIMEOUTS || self.current <= self.base {
            return false;
        }
        self.current = self.base;
        self.attempts = 0;
        self.rest(now);
        true
    }

    /// A router says that segments of more than `size` do not pass. Returns true when that is news.
    pub fn on_too_big(&mut self, now: Instant, size: u16) -> bool {
        let size = size.max(MSS_MIN);
        if size >= self.current {
            return false;
        }
        self.current = size;
        self.base = self.base.min(size);
        self.probe = None;
        self.rest(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that takes `limit`; the size that is found, and the probes it took.
    fn search(limit: u16, ceiling: u16) -> (u16, u32) {
        let mut mtu = Mtu::new(1200, 1024, ceiling);
        let (mut probes, mut position) = (0, 0);
        while let Some(size) = mtu.wanted(Instant::ZERO) {
            let range = position..position + u64::from(size);
            mtu.on_probe(range.clone(), size);
            probes += 1;
            if size > limit {
                mtu.on_repeated(Instant::ZERO, range.start);
            }
            assert_eq!(mtu.on_ack(range.end), size <= limit);
            position = range.end;
        }
        (mtu.current(), probes)
    }

    #[test]
    fn the_search_ends_near_what_the_path_takes() {
        assert_eq!(search(8960, 8960), (8960, 1));
        let (found, probes) = search(1460, 8960);
        assert!((1460 - STEP_MIN..=1460).contains(&found), "{found}");
        assert!(probes < 25, "{probes}");
        assert_eq!(search(1200, 1200), (1200, 0));
    }

    #[test]
    fn three_timeouts_in_a_row_show_a_black_hole() {
        let mut mtu = Mtu::new(1460, 1024, 1460);
        assert!(!mtu.on_timeout(Instant::ZERO, 2));
        assert!(mtu.on_timeout(Instant::ZERO, 3));
        assert_eq!(mtu.current(), 1024);
        assert!(!mtu.on_timeout(Instant::ZERO, 4));
        assert_eq!(mtu.wanted(Instant::ZERO), None);
        let later = Instant::ZERO + RAISE_INTERVAL;
        assert_eq!(mtu.wanted(later), Some(1460));
    }

    #[test]
    fn a_router_can_lower_the_size_and_not_below_the_least() {
        let mut mtu = Mtu::new(1460, 1024, 1460);
        assert!(!mtu.on_too_big(Instant::ZERO, 1460));
        assert!(mtu.on_too_big(Instant::ZERO, 1372));
        assert!(mtu.on_too_big(Instant::ZERO, 1));
        assert_eq!(mtu.current(), MSS_MIN);
    }
}
