//! A clock that charges each moment of a connection's task to one cause.

use std::time::Duration;

use fullbore_base::Instant;

/// What a task that sleeps waits for. Where several things are missing, the first of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The user's limit on the rate.
    RateLimit,
    /// Room in the socket's send buffer.
    Socket,
    /// Credit of the channels that have something to send.
    PeerWindow,
    /// Replies: as many bytes are outstanding as may be, and there is more to ask for.
    Requests,
    /// Replies: everything there is to ask for has been asked for.
    Replies,
    /// Nothing: nobody wants anything.
    Idle,
}

impl Wait {
    /// Kinds of waiting.
    pub const COUNT: usize = 6;
}

/// Time asleep so far, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTimes([Duration; Wait::COUNT]);

impl WaitTimes {
    /// Time asleep for `wait`.
    #[must_use]
    pub const fn of(&self, wait: Wait) -> Duration {
        self.0[wait as usize]
    }

    /// Adds to the time asleep for `wait`.
    pub fn add(&mut self, wait: Wait, time: Duration) {
        self.0[wait as usize] += time;
    }

    /// Time asleep, whatever for.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    /// What was added since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let times = std::array::from_fn(|i| self.0[i].saturating_sub(before.0[i]));
        Self(times)
    }
}

/// The clock: told when the task falls asleep and when it wakes. O(1) each.
#[derive(Debug, Default)]
pub struct Waits {
    asleep: Option<(Wait, Instant)>,
    times: WaitTimes,
    /// Requests without a reply, since when, and the sum of their waiting before.
    outstanding: u32,
    counted: Instant,
    requests_waited: Duration,
}

impl Waits {
    /// The task falls asleep.
    pub fn on_sleep(&mut self, now: Instant, wait: Wait) {
        self.on_wake(now);
        self.asleep = Some((wait, now));
    }

    /// The task is at work again.
    pub fn on_wake(&mut self, now: Instant) {
        if let Some((wait, since)) = self.asleep.take() {
            self.times.add(wait, now.saturating_duration_since(since));
        }
    }

    /// So many requests are without a reply from now on.
    pub fn on_outstanding(&mut self, now: Instant, count: usize) {
        self.requests_waited = self.requests_waited(now);
        self.counted = now;
        self.outstanding = u32::try_from(count).unwrap_or(u32::MAX);
    }

    /// The time that requests have waited up to `now`, of all together.
    #[must_use]
    pub fn requests_waited(&self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.counted);
        self.requests_waited
            .saturating_add(since.saturating_mul(self.outstanding))
    }

    /// Times up to `now`, those of a sleep under way included.
    #[must_use]
    pub fn times(&self, now: Instant) -> WaitTimes {
        let mut times = self.times;
        if let Some((wait, since)) = self.asleep {
            times.add(wait, now.saturating_duration_since(since));
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn each_sleep_counts_for_what_it_was_for_and_work_for_nothing() {
        let mut waits = Waits::default();
        waits.on_wake(at(5));
        waits.on_sleep(at(10), Wait::Socket);
        waits.on_wake(at(30));
        waits.on_sleep(at(40), Wait::PeerWindow);
        // Told a cause anew without having been woken.
        waits.on_sleep(at(45), Wait::Idle);
        let times = waits.times(at(100));
        assert_eq!(times.of(Wait::Socket), Duration::from_millis(20));
        assert_eq!(times.of(Wait::PeerWindow), Duration::from_millis(5));
        assert_eq!(times.of(Wait::Idle), Duration::from_millis(55));
        assert_eq!(times.total(), Duration::from_millis(80));
        let earlier = waits.times(at(50));
        assert_eq!(times.since(&earlier).total(), Duration::from_millis(50));
    }

    #[test]
    fn requests_wait_side_by_side() {
        let mut waits = Waits::default();
        waits.on_outstanding(at(100), 3);
        waits.on_outstanding(at(110), 1);
        assert_eq!(waits.requests_waited(at(150)), Duration::from_millis(70));
        waits.on_outstanding(at(150), 0);
        assert_eq!(waits.requests_waited(at(900)), Duration::from_millis(70));
    }
}
