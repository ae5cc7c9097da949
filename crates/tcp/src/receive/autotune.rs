//! How large the receive buffer should be: what the application takes in a round trip, doubled.
//!
//! Dynamic right-sizing (Fisk and Feng 2001), as Linux does it. The buffer doubles ahead of what is
//! delivered, so that slow start is never held up by it, and stops at its limit.

use core::time::Duration;
use fullbore_base::Instant;

/// How many round trips of data may lie behind a hole: a repair that is lost twice.
const SPAN_ROUND_TRIPS: u64 = 8;

/// The receiver's measure of one connection.
#[derive(Clone, Debug)]
pub struct Autotune {
    /// Bytes the buffer may hold.
    target: u64,
    max: u64,
    rtt: Option<Duration>,
    /// Since when, and how much, the application took.
    since: Instant,
    taken: u64,
    /// The most it ever took in a round trip.
    space: u64,
    /// Without timestamps: a window of data takes one round trip to come.
    mark: Option<(Instant, u64)>,
}

impl Autotune {
    /// Starts with a buffer of `initial` bytes and never goes past `max`.
    #[must_use]
    pub const fn new(initial: u64, max: u64) -> Self {
        let target = if initial < max { initial } else { max };
        Self {
            target,
            max,
            rtt: None,
            since: Instant::ZERO,
            taken: 0,
            space: target / 2,
            mark: None,
        }
    }

    /// Bytes that the buffer may hold.
    #[must_use]
    pub const fn target(&self) -> u64 {
        self.target
    }

    /// The receiver's round trip.
    #[must_use]
    pub const fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// A segment answers one of ours that left `sample` ago.
    pub fn on_rtt(&mut self, sample: Duration) {
        let sample = sample.max(Duration::from_millis(1));
        self.rtt = Some(match self.rtt {
            None => sample,
            // An eighth of each, and at once where it falls: queues must not inflate the buffer.
            Some(rtt) if sample < rtt => sample,
            Some(rtt) => rtt + (sample - rtt) / 8,
        });
    }

    /// Without timestamps: data up to `rcv_nxt` has come, and the window reaches to `edge`.
    pub fn on_data(&mut self, now: Instant, rcv_nxt: u64, edge: u64) {
        match self.mark {
            Some((since, end)) if rcv_nxt >= end => {
                self.on_rtt(now - since);
                self.mark = Some((now, edge));
            }
            Some(_) => {}
            None => self.mark = Some((now, edge)),
        }
    }

    /// `span` bytes lie behind a hole. Its repair takes a round trip or two, in which the window is
    /// to stay open: up to `SPAN_ROUND_TRIPS` of what the application takes in one. O(1).
    pub fn on_span(&mut self, span: u64) {
        let bound = self.space.saturating_mul(SPAN_ROUND_TRIPS);
        let wanted = span.saturating_mul(2).min(bound);
        self.target = wanted.min(self.max).max(self.target);
    }

    /// The application took `bytes`. O(1).
    pub fn on_taken(&mut self, now: Instant, bytes: u64, mss: u64) {
        self.taken += bytes;
        let Some(rtt) = self.rtt else {
            return;
        };
        let elapsed = now - self.since;
        if elapsed < rtt {
            return;
        }
        // What a repaired hole releases at once came in many round trips.
        let scaled = u128::from(self.taken) * rtt.as_nanos() / elapsed.as_nanos().max(1);
        self.taken = u64::try_from(scaled).unwrap_or(self.taken);
        if self.taken > self.space {
            // Twice what a round trip brought; and as it grew, so it may grow while this is told.
            let (taken, space) = (self.taken, self.space.max(1));
            let grown = u128::from(2 * taken) * u128::from(taken - space) / u128::from(space);
            let grown = u64::try_from(grown).unwrap_or(u64::MAX).min(2 * taken);
            let wanted = 2 * taken + grown + 16 * mss;
            self.target = wanted.clamp(self.target, self.max);
            self.space = self.taken;
        }
        self.taken = 0;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A sender in slow start over 100 ms: it never finds the window full.
    #[test]
    fn the_buffer_stays_ahead_of_slow_start() {
        let mut tune = Autotune::new(64 << 10, 64 << 20);
        tune.on_rtt(MS * 100);
        let mut flight = 14_480;
        for round in 1..12u32 {
            assert!(flight <= tune.target(), "round {round}: {flight}");
            let now = Instant::ZERO + MS * (100 * round);
            tune.on_taken(now, flight, 1448);
            flight *= 2;
        }
    }

    #[test]
    fn a_steady_transfer_keeps_a_few_windows_and_not_more() {
        let mut tune = Autotune::new(64 << 10, 64 << 20);
        tune.on_rtt(MS * 100);
        for round in 1..100u32 {
            let bytes = (30_000 + 100_000 * u64::from(round)).min(1 << 20);
            tune.on_taken(Instant::ZERO + MS * (100 * round), bytes, 1448);
        }
        assert!(
            (2 << 20..5 << 20).contains(&tune.target()),
            "{}",
            tune.target()
        );
    }

    #[test]
    fn a_hole_grows_the_buffer_up_to_some_round_trips_of_what_is_taken() {
        let mut tune = Autotune::new(64 << 10, 64 << 20);
        tune.on_rtt(MS * 100);
        tune.on_taken(Instant::ZERO + MS * 100, 100_000, 1448);
        tune.on_span(300_000);
        assert_eq!(tune.target(), 600_000);
        tune.on_span(50 << 20);
        assert_eq!(tune.target(), 800_000);
    }

    #[test]
    fn the_limit_holds_and_an_idle_application_grows_nothing() {
        let mut tune = Autotune::new(64 << 10, 1 << 20);
        tune.on_rtt(MS * 10);
        tune.on_taken(Instant::ZERO + MS * 20, 10, 1448);
        assert_eq!(tune.target(), 64 << 10);
        tune.on_taken(Instant::ZERO + MS * 40, 50 << 20, 1448);
        assert_eq!(tune.target(), 1 << 20);
    }

    #[test]
    fn without_timestamps_a_window_takes_a_round_trip() {
        let mut tune = Autotune::new(64 << 10, 1 << 20);
        tune.on_data(Instant::ZERO, 1000, 65_000);
        tune.on_data(Instant::ZERO + MS * 50, 30_000, 90_000);
        assert_eq!(tune.rtt(), None);
        tune.on_data(Instant::ZERO + MS * 80, 65_000, 120_000);
        assert_eq!(tune.rtt(), Some(MS * 80));
    }
}
