//! How many files are in flight: as many as make the copy faster, and no more.
//!
//! The first number follows from how long the first answer took: as many files as could be served
//! meanwhile. From there on a round is as many files as are in flight. After a round during which the
//! limit was reached, it is doubled if the last doubling raised the rate, else halved again and left
//! alone for some rounds.
//!
//! ```text
//! 10 ms, three round trips a file: 100 in 30 ms = 3,300/s ► 200: 6,700/s ► 400: 10,000/s ► 800: the same ► 400
//! loopback, 80 us a file:          64 = 12,500/s ► 128: 12,600/s ► 64, and again 16 rounds later
//! ```

use std::time::Duration;

use fullbore_base::Instant;

/// Files in flight at least. Chosen: what hides a millisecond, and no server minds.
pub(crate) const FILES_MIN: usize = 64;

/// What a small file costs a server, at least: with OpenSSH's on a fast machine some 60 us.
const FILE_TIME: Duration = Duration::from_micros(100);

/// A doubling is worth keeping when the rate is this much higher.
const GAIN_MIN: f64 = 1.1;

/// Rounds between two attempts to go higher, once one did not help.
const HOLD_ROUNDS: u32 = 16;

/// So many bytes count as much as a file's own cost.
const BYTES_PER_UNIT: u64 = 64 * 1024;

/// The number of files in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    limit: usize,
    least: usize,
    most: usize,
    began: Instant,
    done_files: usize,
    done_units: u64,
    /// The limit was reached in this round.
    is_full: bool,
    /// Units a second before the last doubling.
    rate: Option<f64>,
    hold: u32,
}

impl Flight {
    /// At most `most` files.
    pub(crate) fn new(now: Instant, most: usize) -> Self {
        Self {
            limit: FILES_MIN.min(most),
            least: FILES_MIN.min(most),
            most,
            began: now,
            done_files: 0,
            done_units: 0,
            is_full: false,
            rate: None,
            hold: 0,
        }
    }

    /// An answer took so long. Counts until the first round is over: from then on rates do.
    pub(crate) fn on_turnaround(&mut self, took: Duration) {
        if self.rate.is_none() {
            let meanwhile = took.as_nanos() / FILE_TIME.as_nanos();
            let meanwhile = usize::try_from(meanwhile).unwrap_or(usize::MAX);
            self.limit = meanwhile.max(self.limit).min(self.most);
        }
    }

    /// Files that may be in flight now.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Notes that as many files as allowed are in flight, and more wait.
    pub(crate) const fn on_full(&mut self) {
        self.is_full = true;
    }

    /// A file of `bytes` bytes is done.
    pub(crate) fn on_done(&mut self, now: Instant, bytes: u64) {
        self.done_files += 1;
        self.done_units += 1 + bytes / BYTES_PER_UNIT;
        if self.done_files < self.limit {
            return;
        }
        if self.is_full {
            let seconds = (now - self.began).as_secs_f64().max(1e-9);
            self.judge(self.done_units as f64 / seconds);
        }
        (self.began, self.is_full) = (now, false);
        (self.done_files, self.done_units) = (0, 0);
    }

    fn judge(&mut self, rate: f64) {
        let is_better = self.rate.is_none_or(|before| rate >= before * GAIN_MIN);
        if self.hold > 0 {
            self.hold -= 1;
        } else if !is_better {
            self.limit = (self.limit / 2).max(self.least);
            self.hold = HOLD_ROUNDS;
            return;
        }
        self.rate = Some(rate);
        if self.hold == 0 {
            self.limit = (self.limit * 2).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files done at `rate(limit)` files a second until `count` are; the limits on the way.
    fn limits(most: usize, count: usize, rate: impl Fn(usize) -> f64) -> Vec<usize> {
        let mut now = Instant::ZERO;
        let mut flight = Flight::new(now, most);
        let mut limits = vec![flight.limit()];
        for _ in 0..count {
            flight.on_full();
            now += Duration::from_secs_f64(1.0 / rate(flight.limit()));
            flight.on_done(now, 4096);
            if limits.last() != Some(&flight.limit()) {
                limits.push(flight.limit());
            }
        }
        limits
    }

    #[test]
    fn begins_with_what_could_be_served_until_the_first_answer() {
        let first = |millis, most| {
            let mut flight = Flight::new(Instant::ZERO, most);
            flight.on_turnaround(Duration::from_millis(millis));
            flight.limit()
        };
        assert_eq!(first(0, 1024), FILES_MIN);
        assert_eq!(first(30, 1024), 300);
        assert_eq!(first(300, 1024), 1024);
        assert_eq!(first(300, 10), 10);
    }

    #[test]
    fn grows_while_round_trips_are_what_limits() {
        let by_round_trips = |limit| limit as f64 / 0.3;
        assert_eq!(
            limits(1024, 2000, by_round_trips),
            [64, 128, 256, 512, 1024]
        );
        assert_eq!(limits(50, 2000, by_round_trips), [50]);
    }

    #[test]
    fn stays_low_where_more_do_not_help_and_tries_again_now_and_then() {
        let found = limits(1024, 10_000, |_| 12_000.0);
        assert!(found.iter().all(|&limit| limit <= 128), "{found:?}");
        assert!((3..24).contains(&found.len()), "{found:?}");
    }

    #[test]
    fn settles_where_the_path_is_full() {
        let by_rate = |limit| (limit as f64 / 0.3).min(1000.0);
        let found = limits(1024, 2500, by_rate);
        assert_eq!(
            found,
            [64, 128, 256, 512, 1024, 512],
            "1,024 were not faster"
        );
    }

    #[test]
    fn what_never_fills_it_says_nothing() {
        let mut flight = Flight::new(Instant::ZERO, 1024);
        for n in 0..1000 {
            flight.on_done(Instant::ZERO + Duration::from_millis(n), 1 << 20);
        }
        assert_eq!(flight.limit(), FILES_MIN);
    }
}
