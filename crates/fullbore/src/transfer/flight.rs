//! How many files are in flight: as many as make the copy faster, and no more.
//!
//! A round is as many files as are in flight. After a round during which the limit was reached, it is
//! doubled if the last doubling raised the rate, else halved again and left alone for some rounds.
//!
//! ```text
//! 100 ms, three round trips a file: 128 in 0.3 s = 427/s ► 256: 853/s ► 512: 1,700/s ► 1,024
//! loopback, 80 us a file:           128 = 12,500/s ► 256: 12,600/s ► 128, and again 16 rounds later
//! ```

use fullbore_base::Instant;

/// Files in flight at the start. Chosen: what hides some milliseconds, and no server minds.
pub(crate) const FILES_AT_FIRST: usize = 128;

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
            limit: FILES_AT_FIRST.min(most),
            most,
            began: now,
            done_files: 0,
            done_units: 0,
            is_full: false,
            rate: None,
            hold: 0,
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
            self.limit = (self.limit / 2).max(FILES_AT_FIRST.min(self.most));
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
    use std::time::Duration;

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
    fn grows_while_round_trips_are_what_limits() {
        let by_round_trips = |limit| limit as f64 / 0.3;
        assert_eq!(
            limits(1024, 2000, by_round_trips),
            [128, 256, 512, 1024],
            "within the first 2,000 files"
        );
        assert_eq!(limits(100, 2000, by_round_trips), [100]);
    }

    #[test]
    fn stays_low_where_more_do_not_help_and_tries_again_now_and_then() {
        let found = limits(1024, 10_000, |_| 12_000.0);
        assert!(found.iter().all(|&limit| limit <= 256), "{found:?}");
        assert!((3..12).contains(&found.len()), "{found:?}");
    }

    #[test]
    fn settles_where_the_path_is_full() {
        let by_rate = |limit| (limit as f64 / 0.3).min(1000.0);
        let found = limits(1024, 2000, by_rate);
        assert_eq!(found, [128, 256, 512, 1024, 512], "1,024 were not faster");
    }

    #[test]
    fn what_never_fills_it_says_nothing() {
        let mut flight = Flight::new(Instant::ZERO, 1024);
        for n in 0..1000 {
            flight.on_done(Instant::ZERO + Duration::from_millis(n), 1 << 20);
        }
        assert_eq!(flight.limit(), FILES_AT_FIRST);
    }
}
