//! Reno: the reference that others are compared with.
//!
//! RFC 5681, counting bytes (RFC 3465).

use fullbore_base::{Instant, Rate};

use super::{Acked, Cause, Control, initial_window};
use crate::recovery::Lost;

/// RFC 5681's variables.
#[derive(Clone, Debug)]
pub struct Reno {
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes delivered towards the next segment of growth.
    credit: u64,
    /// Before the last reduction.
    undo: Option<(u64, u64)>,
}

impl Reno {
    /// In slow start.
    #[must_use]
    pub fn new(mss: u32) -> Self {
        let mss = u64::from(mss);
        Self {
            mss,
            cwnd: initial_window(mss),
            ssthresh: u64::MAX,
            credit: 0,
            undo: None,
        }
    }

    /// RFC 5681 equation (4): half of what was in flight, and at least two segments.
    fn reduced(&self, flight: u64) -> u64 {
        (flight.min(self.cwnd) / 2).max(2 * self.mss)
    }
}

impl Control for Reno {
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
            return;
        }
        let mut bytes = acked.delivered_bytes;
        if self.cwnd < self.ssthresh {
            let room = self.ssthresh - self.cwnd;
            let growth = bytes.min(room);
            self.cwnd += growth;
            bytes -= growth;
        }
        self.credit += bytes;
        if self.credit >= self.cwnd {
            self.credit -= self.cwnd;
            self.cwnd += self.mss;
        }
    }

    fn on_lost(&mut self, _now: Instant, _lost: &Lost, _delivered_total: u64) {}

    fn on_congestion(&mut self, _now: Instant, flight: u64, _cause: Cause) {
        self.undo = Some((self.cwnd, self.ssthresh));
        self.ssthresh = self.reduced(flight);
        self.cwnd = self.ssthresh;
        self.credit = 0;
    }

    fn on_recovered(&mut self) {}

    fn on_timeout(&mut self, flight: u64, pipe: u64, is_first: bool) {
        if is_first {
            self.undo = Some((self.cwnd, self.ssthresh));
            self.ssthresh = self.reduced(flight);
        }
        self.cwnd = pipe + self.mss;
        self.credit = 0;
    }

    fn on_undone(&mut self) {
        if let Some((cwnd, ssthresh)) = self.undo.take() {
            self.cwnd = self.cwnd.max(cwnd);
            self.ssthresh = self.ssthresh.max(ssthresh);
        }
    }

    fn on_idle(&mut self) {
        self.cwnd = self.cwnd.min(initial_window(self.mss));
    }

    fn on_mss(&mut self, mss: u32) {
        self.mss = u64::from(mss);
        self.cwnd = self.cwnd.max(self.mss);
    }

    fn uses_prr(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::RateSample;

    fn acked(bytes: u64, is_cwnd_limited: bool) -> Acked<'static> {
        static SAMPLE: std::sync::LazyLock<RateSample> =
            std::sync::LazyLock::new(RateSample::default);
        Acked {
            now: Instant::ZERO,
            delivered_bytes: bytes,
            lost_bytes: 0,
            delivered_total: 0,
            pipe: 0,
            snd_una: 0,
            snd_nxt: 0,
            srtt: None,
            sample: &SAMPLE,
            is_cwnd_limited,
            is_recovering: false,
        }
    }

    #[test]
    fn slow_start_doubles_and_avoidance_adds_a_segment() {
        let mut reno = Reno::new(1000);
        let window = reno.cwnd();
        reno.on_acked(&acked(window, true));
        assert_eq!(reno.cwnd(), 2 * window);
        reno.on_congestion(Instant::ZERO, 2 * window, Cause::Loss);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (window, window));
        reno.on_acked(&acked(window - 1, true));
        assert_eq!(reno.cwnd(), window);
        reno.on_acked(&acked(1, true));
        assert_eq!(reno.cwnd(), window + 1000);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut reno = Reno::new(1000);
        let window = reno.cwnd();
        reno.on_acked(&acked(window, false));
        assert_eq!(reno.cwnd(), window);
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_reduces_once() {
        let mut reno = Reno::new(1000);
        reno.on_timeout(10_000, 0, true);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (1000, 5000));
        reno.on_timeout(1000, 0, false);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (1000, 5000));
        reno.on_undone();
        assert_eq!((reno.cwnd(), reno.ssthresh()), (10_000, u64::MAX));
    }

    #[test]
    fn no_reduction_goes_under_two_segments() {
        let mut reno = Reno::new(1000);
        reno.on_congestion(Instant::ZERO, 1000, Cause::Loss);
        assert_eq!(reno.cwnd(), 2000);
    }
}
