//! The machine's monotonic clock as the engines' plain number.

use fullbore_base::Instant;

/// Reads the monotonic clock. All engines of one process may share one: instants of the same
/// clock compare. It is the clock of the timers, so that a paused runtime stops both: whole copies
/// run in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: tokio::time::Instant,
    is_virtual: bool,
}

impl Clock {
    /// A clock whose epoch is now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            epoch: tokio::time::Instant::now(),
            is_virtual: false,
        }
    }

    /// The same for a runtime whose time is paused: processor time is not held against it.
    #[must_use]
    pub fn start_virtual() -> Self {
        Self {
            is_virtual: true,
            ..Self::start()
        }
    }

    /// Whether time is not this machine's.
    #[must_use]
    pub const fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Instant {
        let nanos = self.epoch.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// `at` as the timer wheel counts it. Instants past what it can hold come out as a day from
    /// the epoch on: early calls of `handle_timeout` do nothing.
    #[must_use]
    pub fn timer(&self, at: Instant) -> tokio::time::Instant {
        let since = std::time::Duration::from_nanos(at.as_nanos());
        let far = self.epoch.elapsed() + std::time::Duration::from_secs(24 * 60 * 60);
        self.epoch + since.min(far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_lands_where_the_engine_meant_it() {
        let clock = Clock::start();
        let at = clock.now() + std::time::Duration::from_secs(5);
        let timer = clock.timer(at);
        assert_eq!(
            timer.duration_since(clock.epoch).as_nanos(),
            u128::from(at.as_nanos())
        );
    }

    #[test]
    fn never_is_a_timer_too() {
        let clock = Clock::start();
        let _ = clock.timer(Instant::from_nanos(u64::MAX));
    }
}
