//! How long something was so.

use crate::Instant;
use std::time::Duration;

/// Time in a state that comes and goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stopwatch {
    since: Option<Instant>,
    before: Duration,
}

impl Stopwatch {
    /// At rest, with no time on it.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            since: None,
            before: Duration::ZERO,
        }
    }

    /// The state holds from `now` on, if it did not already.
    pub const fn start(&mut self, now: Instant) {
        if self.since.is_none() {
            self.since = Some(now);
        }
    }

    /// The state is over.
    pub fn stop(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.before += now - since;
        }
    }

    /// Whether the state holds.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.since.is_some()
    }

    /// Time of the stretches that are over.
    #[must_use]
    pub const fn before(&self) -> Duration {
        self.before
    }

    /// Time up to `now`, with the stretch that runs.
    #[must_use]
    pub fn total(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_add_up_with_the_one_that_runs() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut watch = Stopwatch::new();
        watch.stop(at(1));
        watch.start(at(2));
        watch.start(at(3));
        watch.stop(at(5));
        watch.start(at(10));
        assert_eq!(watch.before(), Duration::from_secs(3));
        assert_eq!(watch.total(at(11)), Duration::from_secs(4));
    }
}
