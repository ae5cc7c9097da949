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
    /// The timestamp that the last sample was of.
    last_echo: Option<u32>,
    /// Since when, and how much, the application took.
    since: Instant,
    taken: u64,
    /// How much arrived since then, in order or not.
    arrived: u64,
    /// The most it ever took in a round trip, of what arrived in that.
    space: u64,
    /// The same with what repaired holes released.
    space_repaired: u64,
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
            last_echo: None,
            since: Instant::ZERO,
            taken: 0,
            arrived: 0,
            space: target / 2,
            space_repaired: target / 2,
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

    /// A segment of the peer brings back the timestamp `echo` of one of ours, which left `sample` ago.
    ///
    /// Only the first that does so answers it. A sender that paces itself sends others for half a
    /// round trip, and a buffer that is measured by such round trips grows every second one.
    pub fn on_echo(&mut self, echo: u32, sample: Duration) {
        if self.last_echo != Some(echo) {
            self.last_echo = Some(echo);
            self.on_rtt(sample);
        }
    }

    /// A round trip took `sample`.
    fn on_rtt(&mut self, sample: Duration) {
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

    /// `bytes` arrived, each for the first time.
    pub const fn on_arrived(&mut self, bytes: u64) {
        self.arrived += bytes;
    }

    /// `span` bytes lie behind a hole. Its repair takes a round trip or two, in which the window is
    /// to stay open: up to `SPAN_ROUND_TRIPS` of what the application takes in one. O(1).
    pub fn on_span(&mut self, span: u64) {
        let bound = self.space_repaired.saturating_mul(SPAN_ROUND_TRIPS);
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
        let in_round_trip = |bytes: u64| {
            let scaled = u128::from(bytes) * rtt.as_nanos() / elapsed.as_nanos().max(1);
            u64::try_from(scaled).unwrap_or(bytes)
        };
        self.space_repaired = self.space_repaired.max(in_round_trip(self.taken));
        // What a repaired hole releases at once came in many round trips.
        let taken = in_round_trip(self.taken.min(self.arrived));
        if taken > self.space {
            // Twice what a round trip brought; and as it grew, so it grows on for two round trips until
            // a sender that heard of this hears of more: six times for one that doubles.
            let space = self.space.max(1);
            let grown = u128::from(2 * taken) * u128::from(taken - space) / u128::from(space);
            let grown = u64::try_from(grown).unwrap_or(u64::MAX).min(2 * taken);
            let wanted = 2 * taken + 2 * grown + 16 * mss;
            self.target = wanted.clamp(self.target, self.max);
            self.space = taken;
        }
        self.taken = 0;
        self.arrived = 0;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// `bytes` arrive and are taken.
    fn take(tune: &mut Autotune, now: Instant, bytes: u64, mss: u64) {
        tune.on_arrived(bytes);
        tune.on_taken(now, bytes, mss);
    }

    /// A sender in slow start over 100 ms: it never finds the window full.
    #[test]
    fn the_buffer_stays_ahead_of_slow_start() {
        let mut tune = Autotune::new(64 << 10, 64 << 20);
        tune.on_rtt(MS * 100);
        let mut flight = 14_480;
        for round in 1..12u32 {
            assert!(flight <= tune.target(), "round {round}: {flight}");
            let now = Instant::ZERO + MS * (100 * round);
            take(&mut tune, now, flight, 1448);
            flight *= 2;
        }
    }

    #[test]
    fn only_the_first_that_brings_a_timestamp_back_answers_it() {
        let mut tune = Autotune::new(64 << 10, 64 << 20);
        for turn in 1..20 {
            tune.on_echo(turn, MS * 100);
            for late in 1..50 {
                tune.on_echo(turn, MS * (100 + late));
            }
        }
        assert_eq!(tune.rtt(), Some(MS * 100));
    }

    #[test]
    fn a_steady_transfer_keeps_a_few_windows_and_not_more() {
        let mut tune = Autotune::new(64 << 10, 64 << 20);
        tune.on_rtt(MS * 100);
        for round in 1..100u32 {
            let bytes = (30_000 + 100_000 * u64::from(round)).min(1 << 20);
            take(&mut tune, Instant::ZERO + MS * (100 * round), bytes, 1448);
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
        take(&mut tune, Instant::ZERO + MS * 100, 100_000, 1448);
        // Slow start is over: the same again grows nothing.
        let before = tune.target();
        take(&mut tune, Instant::ZERO + MS * 200, 100_000, 1448);
        assert_eq!(tune.target(), before);
        tune.on_span(400_000);
        assert_eq!(tune.target(), 800_000);
        tune.on_span(50 << 20);
        assert_eq!(tune.target(), 800_000);
    }

    /// 2 MB that came in many round trips are released at once by the repair of a hole.
    #[test]
    fn what_a_repair_releases_is_not_what_a_round_trip_brings() {
        let mut tune = Autotune::new(64 << 10, 64 << 20);
        tune.on_rtt(MS * 100);
        for round in 1..10u32 {
            take(&mut tune, Instant::ZERO + MS * (100 * round), 300_000, 1448);
        }
        let before = tune.target();
        tune.on_arrived(300_000);
        tune.on_taken(Instant::ZERO + MS * 1000, 2_000_000, 1448);
        assert_eq!(tune.target(), before);
    }

    #[test]
    fn the_limit_holds_and_an_idle_application_grows_nothing() {
        let mut tune = Autotune::new(64 << 10, 1 << 20);
        tune.on_rtt(MS * 10);
        take(&mut tune, Instant::ZERO + MS * 20, 10, 1448);
        assert_eq!(tune.target(), 64 << 10);
        take(&mut tune, Instant::ZERO + MS * 40, 50 << 20, 1448);
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
