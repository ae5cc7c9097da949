//! CUBIC: a window that grows as a cubic function of the time since the last reduction.
//!
//! RFC 9438, in integers: bytes and milliseconds. Slow start is HyStart++'s.

use core::time::Duration;
use fullbore_base::{Instant, Rate};

use super::hystart::{Growth, HyStart};
use super::{Acked, Cause, Control, initial_window};
use crate::recovery::Lost;

/// RFC 9438 4.6: beta is 0.7.
const BETA_PERCENT: u64 = 70;

/// RFC 9438 4.3: alpha of the Reno-friendly region, 3 x (1 - beta) / (1 + beta) = 9/17.
const ALPHA: (u64, u64) = (9, 17);

/// One epoch of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// The time at which the window is back at `w_max`, in milliseconds: K.
    k_ms: u64,
    /// The window of a Reno sender: W_est.
    w_est: u64,
    last_at: Instant,
}

/// What a needless reduction is taken back to.
#[derive(Clone, Copy, Debug)]
struct Undo {
    cwnd: u64,
    ssthresh: u64,
    w_max: u64,
}

/// RFC 9438's variables.
#[derive(Clone, Debug)]
pub struct Cubic {
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    w_max: u64,
    /// The window before the last reduction: growth beyond it is Reno's own pace.
    cwnd_prior: u64,
    epoch: Option<Epoch>,
    /// Growth of less than a byte, in bytes x cwnd.
    remainder: u128,
    hystart: HyStart,
    undo: Option<Undo>,
}

impl Cubic {
    /// In slow start.
    #[must_use]
    pub fn new(mss: u32) -> Self {
        let mss = u64::from(mss);
        Self {
            mss,
            cwnd: initial_window(mss),
            ssthresh: u64::MAX,
            w_max: 0,
            cwnd_prior: 0,
            epoch: None,
            remainder: 0,
            hystart: HyStart::default(),
            undo: None,
        }
    }

    /// W_cubic `t_ms` into an epoch: C x (t - K)^3 + W_max with C = 0.4 segments per cubic second.
    ///
    /// With W_max of 100 segments, a reduction to 70 and thus K = 4.2 s: 70 at 0 s, 96 at 2 s, 100
    /// at 4.2 s, 103 at 6 s.
    fn window_at(&self, t_ms: u64, k_ms: u64) -> u64 {
        let cube = |ms: u64| u128::from(ms.min(1 << 32)).pow(3);
        let bytes = |ms: u64| {
            let bytes = cube(ms) * u128::from(self.mss) * 4 / 10 / 1_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX / 2)
        };
        if t_ms >= k_ms {
            self.w_max.saturating_add(bytes(t_ms - k_ms))
        } else {
            self.w_max.saturating_sub(bytes(k_ms - t_ms))
        }
    }

    fn begin_epoch(&self, now: Instant) -> Epoch {
        let missing = self.w_max.saturating_sub(self.cwnd);
        // K^3 = missing / C: in cubic milliseconds, 2.5e9 for each segment.
        let cubed = u128::from(missing) * 2_500_000_000 / u128::from(self.mss.max(1));
        Epoch {
            start: now,
            k_ms: cube_root(cubed),
            w_est: self.cwnd,
            last_at: now,
        }
    }

    fn avoid(&mut self, acked: &Acked<'_>) {
        let fresh = self.epoch.is_none();
        if fresh && self.cwnd > self.w_max {
            // Slow start went past the old maximum, or there was none (RFC 9438 4.8).
            self.w_max = self.cwnd;
        }
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin_epoch(acked.now));
        let bytes = acked.delivered_bytes;
        let (num, den) = if epoch.w_est >= self.cwnd_prior {
            (1, 1)
        } else {
            ALPHA
        };
        let est_growth = u128::from(num * bytes) * u128::from(self.mss)
            / (u128::from(den) * u128::from(self.cwnd));
        epoch.w_est += u64::try_from(est_growth).unwrap_or(0);
        epoch.last_at = acked.now;
        let t_ms = millis(acked.now - epoch.start);
        let srtt_ms = millis(acked.srtt.unwrap_or_default());
        self.epoch = Some(epoch);
        if self.window_at(t_ms, epoch.k_ms) < epoch.w_est {
            self.cwnd = self.cwnd.max(epoch.w_est);
            return;
        }
        let target = self.window_at(t_ms + srtt_ms, epoch.k_ms);
        let target = target.clamp(self.cwnd, self.cwnd.saturating_mul(3) / 2);
        let growth = u128::from(target - self.cwnd) * u128::from(bytes) + self.remainder;
        self.remainder = growth % u128::from(self.cwnd);
        self.cwnd += u64::try_from(growth / u128::from(self.cwnd)).unwrap_or(0);
    }

    fn reduce(&mut self) {
        self.undo = Some(Undo {
            cwnd: self.cwnd,
            ssthresh: self.ssthresh,
            w_max: self.w_max,
        });
        self.cwnd_prior = self.cwnd;
        // RFC 9438 4.7, fast convergence: a flow that lost before it was back leaves room.
        self.w_max = if self.cwnd < self.w_max {
            self.cwnd * (100 + BETA_PERCENT) / 200
        } else {
            self.cwnd
        };
        self.ssthresh = (self.cwnd * BETA_PERCENT / 100).max(2 * self.mss);
        self.epoch = None;
        self.remainder = 0;
    }
}

impl Control for Cubic {
    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    fn on_sending(&mut self, _now: Instant, _pipe: u64, _is_app_limited: bool) {}

    fn on_acked(&mut self, acked: &Acked<'_>) {
        if !acked.is_cwnd_limited {
            // RFC 9438 5.8: time in which the window was not used is no time.
            if let Some(epoch) = &mut self.epoch {
                epoch.start += acked.now - epoch.last_at;
                epoch.last_at = acked.now;
            }
            return;
        }
        if self.cwnd >= self.ssthresh {
            self.avoid(acked);
            return;
        }
        let (una, nxt) = (acked.snd_una, acked.snd_nxt);
        // A reduction ends slow start for good; only the first one is watched.
        let growth = if self.ssthresh == u64::MAX {
            self.hystart.on_acked(una, nxt, acked.sample.rtt)
        } else {
            Growth::Divided(1)
        };
        match growth {
            Growth::Divided(by) => {
                let room = self.ssthresh - self.cwnd;
                self.cwnd += (acked.delivered_bytes / by).min(room);
            }
            Growth::Over => self.ssthresh = self.cwnd,
        }
    }

    fn on_lost(&mut self, _now: Instant, _lost: &Lost, _delivered_total: u64) {}

    fn on_congestion(&mut self, _now: Instant, _flight: u64, _cause: Cause) {
        self.reduce();
        self.cwnd = self.ssthresh;
    }

    fn on_recovered(&mut self) {}

    fn on_timeout(&mut self, _flight: u64, pipe: u64, is_first: bool) {
        if is_first {
            self.reduce();
        }
        self.cwnd = pipe + self.mss;
    }

    fn on_undone(&mut self) {
        if let Some(undo) = self.undo.take() {
            self.cwnd = self.cwnd.max(undo.cwnd);
            self.ssthresh = undo.ssthresh;
            self.w_max = undo.w_max;
            self.epoch = None;
        }
    }

    fn on_idle(&mut self) {
        self.cwnd = self.cwnd.min(initial_window(self.mss));
        self.epoch = None;
    }

    fn on_mss(&mut self, mss: u32) {
        self.mss = u64::from(mss);
        self.cwnd = self.cwnd.max(self.mss);
        self.epoch = None;
    }

    fn uses_prr(&self) -> bool {
        true
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The largest number whose cube is at most `n`; digit by digit, 43 steps.
pub(super) fn cube_root(n: u128) -> u64 {
    let mut root: u128 = 0;
    for bit in (0..42).rev() {
        let with = root | 1 << bit;
        if with * with * with <= n {
            root = with;
        }
    }
    u64::try_from(root).expect("42 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::RateSample;

    const MSS: u64 = 1000;

    fn acked(sample: &RateSample, ms: u64, bytes: u64) -> Acked<'_> {
        Acked {
            now: Instant::ZERO + Duration::from_millis(ms),
            delivered_bytes: bytes,
            lost_bytes: 0,
            delivered_total: 0,
            pipe: 0,
            snd_una: ms,
            snd_nxt: ms + 1,
            srtt: Some(Duration::from_millis(100)),
            sample,
            is_cwnd_limited: true,
            is_recovering: false,
        }
    }

    /// A window of 1000 segments, reduced to 700.
    fn reduced() -> Cubic {
        let mut cubic = Cubic::new(1000);
        cubic.cwnd = 1000 * MSS;
        cubic.on_congestion(Instant::ZERO, 1000 * MSS, Cause::Loss);
        cubic
    }

    /// Acknowledges a whole window every 100 ms; the window in segments after each second.
    fn seconds(cubic: &mut Cubic, count: u64) -> Vec<u64> {
        let sample = RateSample::default();
        let mut windows = Vec::new();
        for tick in 0..count * 1000 {
            let bytes = cubic.cwnd / 100;
            cubic.on_acked(&acked(&sample, tick, bytes));
            if (tick + 1) % 1000 == 0 {
                windows.push(cubic.cwnd / MSS);
            }
        }
        windows
    }

    #[test]
    fn roots_are_exact() {
        for n in [0u128, 1, 7, 8, 26, 27, 1_000_000, 75_000_000_000] {
            let root = u128::from(cube_root(n));
            assert!(root.pow(3) <= n && (root + 1).pow(3) > n, "{n}");
        }
    }

    /// K = cbrt(300 / 0.4) = 9.09 s; W(t) = 0.4 (t - 9.09)^3 + 1000.
    #[test]
    fn growth_follows_the_curve_of_the_rfc() {
        let mut cubic = reduced();
        assert_eq!((cubic.cwnd / MSS, cubic.ssthresh / MSS), (700, 700));
        let windows = seconds(&mut cubic, 12);
        for (i, window) in windows.iter().enumerate() {
            let t = (i + 1) as f64 + 0.1;
            let exact = 0.4 * (t - 9.085).powi(3) + 1000.0;
            let error = (*window as f64 - exact).abs();
            assert!(error < 12.0, "{t} s: {window}, by the formula {exact:.0}");
        }
    }

    #[test]
    fn a_short_path_is_not_slower_than_reno() {
        let mut cubic = Cubic::new(1000);
        cubic.cwnd = 20 * MSS;
        cubic.on_congestion(Instant::ZERO, 20 * MSS, Cause::Loss);
        let sample = RateSample::default();
        // 200 round trips of 10 ms: Reno with alpha 9/17 is back after 6 / 0.53 = 11 of them.
        for round in 0..30 {
            let bytes = cubic.cwnd;
            cubic.on_acked(&acked(&sample, round * 10, bytes));
        }
        assert!(cubic.cwnd > 28 * MSS, "{}", cubic.cwnd);
    }

    #[test]
    fn a_second_loss_before_the_old_maximum_leaves_room() {
        let mut cubic = reduced();
        cubic.on_congestion(Instant::ZERO, 700 * MSS, Cause::Loss);
        assert_eq!(cubic.w_max / MSS, 595);
        assert_eq!(cubic.cwnd / MSS, 490);
    }

    #[test]
    fn a_needless_reduction_is_taken_back() {
        let mut cubic = reduced();
        cubic.on_undone();
        assert_eq!(cubic.cwnd, 1000 * MSS);
        assert_eq!(cubic.ssthresh, u64::MAX);
    }

    #[test]
    fn idle_time_does_not_count() {
        let sample = RateSample::default();
        let (mut busy, mut idle) = (reduced(), reduced());
        let _ = seconds(&mut busy, 1);
        let _ = seconds(&mut idle, 1);
        let mut starved = acked(&sample, 60_000, MSS);
        starved.is_cwnd_limited = false;
        idle.on_acked(&starved);
        idle.on_acked(&acked(&sample, 60_001, MSS));
        assert!(idle.cwnd.abs_diff(busy.cwnd) < 2 * MSS);
    }

    /// RFC 9438 4.7: as for a loss, but from one segment on; and once for one flight.
    #[test]
    fn a_timeout_leaves_what_is_in_flight_and_a_segment_and_reduces_once() {
        let mut cubic = Cubic::new(1000);
        cubic.cwnd = 100 * MSS;
        cubic.on_timeout(100 * MSS, 3 * MSS, true);
        assert_eq!((cubic.cwnd / MSS, cubic.ssthresh / MSS), (4, 70));
        cubic.on_timeout(100 * MSS, 0, false);
        assert_eq!((cubic.cwnd / MSS, cubic.ssthresh / MSS), (1, 70));
    }

    /// RFC 9438 4.6: no reduction goes under two segments.
    #[test]
    fn two_segments_are_always_left() {
        let mut cubic = Cubic::new(1000);
        for _ in 0..20 {
            cubic.on_congestion(Instant::ZERO, cubic.cwnd, Cause::Loss);
        }
        assert_eq!((cubic.cwnd, cubic.ssthresh), (2 * MSS, 2 * MSS));
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let sample = RateSample::default();
        let mut cubic = Cubic::new(1000);
        let before = cubic.cwnd;
        let mut starved = acked(&sample, 100, 5 * MSS);
        starved.is_cwnd_limited = false;
        cubic.on_acked(&starved);
        assert_eq!(cubic.cwnd, before);
        cubic.on_acked(&acked(&sample, 200, 5 * MSS));
        assert_eq!(cubic.cwnd, before + 5 * MSS);
    }
}
