//! The round-trip time of a path: the last sample, a smoothed one and the shortest of the last minutes.

use crate::Instant;
use std::time::Duration;

/// For how long a shortest round trip is believed: as Linux does (`tcp_min_rtt_wlen`).
const MIN_WINDOW: Duration = Duration::from_secs(300);

/// What is known of a path's round trip. Every event is O(1).
#[derive(Clone, Copy, Debug, Default)]
pub struct PathRtt {
    latest: Option<Duration>,
    smoothed: Option<Duration>,
    /// Shortest since `since`, and in the half window before that.
    min: Option<Duration>,
    min_before: Option<Duration>,
    since: Instant,
}

impl PathRtt {
    /// Takes a sample.
    pub fn on_sample(&mut self, now: Instant, sample: Duration) {
        self.latest = Some(sample);
        // RFC 6298 2: the first sample is taken as it is, later ones with weight 1/8.
        self.smoothed = Some(
            self.smoothed
                .map_or(sample, |smoothed| (smoothed * 7 + sample) / 8),
        );
        if now - self.since >= MIN_WINDOW / 2 {
            self.min_before = self.min.take();
            self.since = now;
        }
        self.min = Some(self.min.map_or(sample, |min| min.min(sample)));
    }

    /// The last sample.
    #[must_use]
    pub const fn latest(&self) -> Option<Duration> {
        self.latest
    }

    /// Smoothed as TCP does.
    #[must_use]
    pub const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The shortest sample of the last 2.5 to 5 minutes; older ones only where there is none.
    #[must_use]
    pub fn min(&self, now: Instant) -> Option<Duration> {
        let is_old = now - self.since >= MIN_WINDOW;
        [self.min, self.min_before.filter(|_| !is_old)]
            .into_iter()
            .flatten()
            .min()
    }

    /// The path has changed: the shortest sample is the last one.
    pub const fn forget_min(&mut self) {
        self.min = self.latest;
        self.min_before = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_shortest_sample_is_forgotten_after_its_window() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut rtt = PathRtt::default();
        rtt.on_sample(at(0), MS * 10);
        rtt.on_sample(at(1), MS * 50);
        assert_eq!(
            (rtt.min(at(1)), rtt.latest()),
            (Some(MS * 10), Some(MS * 50))
        );
        rtt.on_sample(at(150), MS * 40);
        assert_eq!(rtt.min(at(299)), Some(MS * 10));
        rtt.on_sample(at(300), MS * 60);
        assert_eq!(rtt.min(at(301)), Some(MS * 40));
        rtt.forget_min();
        assert_eq!(rtt.min(at(301)), Some(MS * 60));
    }
}
