//! The round-trip time and what is waited for an acknowledgement.
//!
//! RFC 6298, and RFC 7323 appendix G for more than one sample per round trip.

use core::time::Duration;
use fullbore_base::Instant;

use crate::filter::WindowedMin;

/// RFC 6298 2.1.
pub const RTO_INITIAL: Duration = Duration::from_secs(1);

/// The least time-out. A departure from the one second of RFC 6298 2.4, as everywhere: delayed
/// acknowledgements of today come within 200 ms, and F-RTO undoes what was too early.
pub const RTO_MIN: Duration = Duration::from_millis(200);

/// The longest time-out (RFC 6298 2.5 asks for at least 60 s).
pub const RTO_MAX: Duration = Duration::from_secs(60);

/// RFC 6298 5.7: after a SYN timed out.
pub const RTO_AFTER_SYN_TIMEOUT: Duration = Duration::from_secs(3);

/// Time-outs in a row that still double the wait; 2^16 times the least is far over the longest.
const BACKOFF_MAX: u32 = 16;

/// How far back the least round trip may lie. Ours: long enough to outlive a standing queue, short
/// enough to notice a longer route.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(30);

/// Estimates of one connection.
#[derive(Clone, Debug)]
pub struct Rtt {
    srtt: Option<Duration>,
    rttvar: Duration,
    latest: Option<Duration>,
    min: WindowedMin,
    /// Before any sample.
    initial: Duration,
    backoff: u32,
}

impl Default for Rtt {
    fn default() -> Self {
        Self {
            srtt: None,
            rttvar: Duration::ZERO,
            latest: None,
            min: WindowedMin::new(MIN_RTT_WINDOW),
            initial: RTO_INITIAL,
            backoff: 0,
        }
    }
}

impl Rtt {
    /// The smoothed round-trip time; none before the first sample.
    #[must_use]
    pub const fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Its mean deviation.
    #[must_use]
    pub const fn rttvar(&self) -> Duration {
        self.rttvar
    }

    /// The last sample.
    #[must_use]
    pub const fn latest(&self) -> Option<Duration> {
        self.latest
    }

    /// The least round trip of the last half minute.
    #[must_use]
    pub fn min(&self) -> Option<Duration> {
        self.min.value()
    }

    /// Time-outs in a row.
    #[must_use]
    pub const fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Takes a sample of an unambiguous segment (Karn: one sent once, or told by timestamps), of
    /// which about `per_rtt` come in a round trip.
    ///
    /// With a sample for each of 10 acknowledgements in a round trip, each weighs 1/80, so that
    /// together they weigh the eighth of RFC 6298 2.3.
    pub fn on_sample(&mut self, now: Instant, sample: Duration, per_rtt: u32) {
        self.latest = Some(sample);
        self.min.add(now, sample);
        let per_rtt = per_rtt.max(1);
        match self.srtt {
            None => {
                self.srtt = Some(sample);
                self.rttvar = sample / 2;
            }
            Some(srtt) => {
                let (beta, alpha) = (4 * per_rtt, 8 * per_rtt);
                self.rttvar = move_towards(self.rttvar, srtt.abs_diff(sample), beta);
                self.srtt = Some(move_towards(srtt, sample, alpha));
            }
        }
        self.backoff = 0;
    }

    /// New data was acknowledged: the path works again, whatever the round trip (RFC 6298 5.3).
    pub fn on_progress(&mut self) {
        self.backoff = 0;
    }

    /// The time-out expired (RFC 6298 5.5).
    pub fn on_timeout(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// The handshake is over after its SYN timed out (RFC 6298 5.7).
    pub fn on_syn_timed_out(&mut self) {
        self.initial = RTO_AFTER_SYN_TIMEOUT;
        self.backoff = 0;
    }

    /// How long to wait for an acknowledgement, with the backoff of time-outs in a row.
    #[must_use]
    pub fn rto(&self) -> Duration {
        let base = self.base_rto();
        base.saturating_mul(1 << self.backoff).min(RTO_MAX)
    }

    /// The same without backoff.
    #[must_use]
    pub fn base_rto(&self) -> Duration {
        let Some(srtt) = self.srtt else {
            return self.initial;
        };
        // As Linux does, the floor is on the variance: a long and steady path keeps its margin.
        (srtt + (self.rttvar * 4).max(RTO_MIN)).min(RTO_MAX)
    }
}

/// `from` moved by 1/`divisor` of its distance to `to`.
fn move_towards(from: Duration, to: Duration, divisor: u32) -> Duration {
    if to >= from {
        from + (to - from) / divisor
    } else {
        from - (from - to) / divisor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_sample_sets_both_estimates() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(), RTO_INITIAL);
        rtt.on_sample(Instant::ZERO, MS * 100, 1);
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(MS * 100), MS * 50));
        assert_eq!(rtt.rto(), MS * 300);
    }

    #[test]
    fn later_samples_move_them_by_an_eighth_and_a_quarter() {
        let mut rtt = Rtt::default();
        rtt.on_sample(Instant::ZERO, MS * 100, 1);
        rtt.on_sample(Instant::ZERO, MS * 180, 1);
        assert_eq!(rtt.srtt(), Some(MS * 110));
        assert_eq!(rtt.rttvar(), Duration::from_micros(57_500));
    }

    #[test]
    fn many_samples_of_one_round_trip_weigh_as_much_as_one() {
        let (mut one, mut many) = (Rtt::default(), Rtt::default());
        one.on_sample(Instant::ZERO, MS * 100, 1);
        many.on_sample(Instant::ZERO, MS * 100, 1);
        one.on_sample(Instant::ZERO, MS * 180, 1);
        for _ in 0..10 {
            many.on_sample(Instant::ZERO, MS * 180, 10);
        }
        let difference = many.srtt().unwrap_or_default().abs_diff(MS * 110);
        assert!(difference < MS, "{difference:?}");
    }

    #[test]
    fn each_timeout_doubles_up_to_a_minute_and_progress_ends_that() {
        let mut rtt = Rtt::default();
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(rtt.rto(), Duration::from_secs(expected));
            rtt.on_timeout();
        }
        rtt.on_progress();
        assert_eq!(rtt.rto(), RTO_INITIAL);
        for _ in 0..100 {
            rtt.on_timeout();
        }
        assert_eq!(rtt.rto(), RTO_MAX);
    }

    #[test]
    fn a_steady_path_keeps_a_margin() {
        let mut rtt = Rtt::default();
        for _ in 0..200 {
            rtt.on_sample(Instant::ZERO, MS * 100, 1);
        }
        assert_eq!(rtt.rto(), MS * 300);
    }

    #[test]
    fn after_a_lost_syn_the_first_wait_is_three_seconds() {
        let mut rtt = Rtt::default();
        rtt.on_timeout();
        rtt.on_syn_timed_out();
        assert_eq!(rtt.rto(), RTO_AFTER_SYN_TIMEOUT);
    }
}
