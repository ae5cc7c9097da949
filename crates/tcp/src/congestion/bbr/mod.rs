//! BBRv3: a model of the path - its bandwidth and its least round trip - in place of a window that
//! every loss reduces.
//!
//! draft-ietf-ccwg-bbr. [`model`] holds what the path is deemed to be, [`cycle`] what is probed
//! when, this file how both become a window and a pacing rate.
//!
//! ```text
//!   Startup ──bandwidth stops growing──► Drain ──queue is gone──► ProbeBW: Down ► Cruise ► Refill ► Up ┐
//!      ▲                                                            ▲   ▲                             │
//!      └──pipe not yet full── ProbeRtt ──pipe was full──────────────┘   └─────────────────────────────┘
//!                                ▲ every 5 s without a lower round trip, from anywhere
//! ```

mod cycle;
mod model;

use core::time::Duration;
use fullbore_base::{Instant, Rate, Rng};

use self::cycle::Cycle;
use self::model::Model;
use super::{Acked, Cause, Control, Settings, initial_window};
use crate::recovery::Lost;

/// Gains are in percent.
const STARTUP_PACING_GAIN: u64 = 277;
const DRAIN_PACING_GAIN: u64 = 50;
const CWND_GAIN: u64 = 200;
const UP_CWND_GAIN: u64 = 225;
const PROBE_RTT_CWND_GAIN: u64 = 50;
/// Paced a little under the model, so that a queue drains on the whole.
const PACING_MARGIN_PERCENT: u64 = 1;
const MIN_PIPE_SEGMENTS: u64 = 4;
/// A path that loses more is not one that a sender should go on filling.
const LOSS_PERCENT_MAX: u64 = 20;
/// No limit known.
const UNLIMITED: u64 = u64::MAX;
/// What a burst may hold: a millisecond's worth, at most this.
const SEND_QUANTUM_MAX: u64 = 64 * 1024;
/// Before any round trip is measured.
const RTT_GUESS: Duration = Duration::from_millis(1);

/// Where the connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Doubling until the bandwidth is found.
    Startup,
    /// Letting the queue of Startup drain.
    Drain,
    /// Under the bandwidth, so that a queue drains and others find room.
    ProbeBwDown,
    /// At the bandwidth, with headroom.
    ProbeBwCruise,
    /// At the bandwidth, without: the pipe is filled before it is overfilled.
    ProbeBwRefill,
    /// Over the bandwidth, to see whether there is more.
    ProbeBwUp,
    /// Little in flight, to see the round trip without a queue.
    ProbeRtt,
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Bbr {
    mss: u64,
    /// LossThresh: losses up to this are no signal.
    loss_percent: u64,
    state: State,
    model: Model,
    cycle: Cycle,
    rng: Rng,
    cwnd: u64,
    prior_cwnd: u64,
    pacing_rate: u64,
    has_rtt: bool,
    is_recovering: bool,
    is_idle_restart: bool,
    /// `bw_shortterm`, `inflight_shortterm`, `inflight_longterm` before the last recovery.
    undo: Option<(u64, u64, u64)>,
}

impl Bbr {
    /// In Startup.
    #[must_use]
    pub fn new(settings: &Settings, mss: u32) -> Self {
        let mss = u64::from(mss);
        let cwnd = initial_window(mss);
        let mut bbr = Self {
            mss,
            loss_percent: u64::from(settings.loss_percent).min(LOSS_PERCENT_MAX),
            state: State::Startup,
            model: Model::default(),
            cycle: Cycle::default(),
            rng: Rng::seeded(settings.seed),
            cwnd,
            prior_cwnd: 0,
            pacing_rate: 0,
            has_rtt: false,
            is_recovering: false,
            is_idle_restart: false,
            undo: None,
        };
        bbr.pacing_rate = bbr.initial_rate(RTT_GUESS);
        bbr
    }

    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    fn initial_rate(&self, rtt: Duration) -> u64 {
        let window = u128::from(initial_window(self.mss));
        let rate = window * 1_000_000_000 / rtt.as_nanos().max(1);
        let rate = rate * u128::from(STARTUP_PACING_GAIN) / 100;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    const fn is_probe_bw(&self) -> bool {
        matches!(
            self.state,
            State::ProbeBwDown | State::ProbeBwCruise | State::ProbeBwRefill | State::ProbeBwUp
        )
    }

    /// States in which a loss is what was asked for.
    const fn is_probing_bw(&self) -> bool {
        matches!(
            self.state,
            State::Startup | State::ProbeBwRefill | State::ProbeBwUp
        )
    }

    const fn pacing_gain(&self) -> u64 {
        match self.state {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => DRAIN_PACING_GAIN,
            State::ProbeBwDown => 90,
            State::ProbeBwCruise | State::ProbeBwRefill | State::ProbeRtt => 100,
            State::ProbeBwUp => 125,
        }
    }

    const fn cwnd_gain(&self) -> u64 {
        match self.state {
            State::ProbeBwUp => UP_CWND_GAIN,
            State::ProbeRtt => PROBE_RTT_CWND_GAIN,
            State::Startup
            | State::Drain
            | State::ProbeBwDown
            | State::ProbeBwCruise
            | State::ProbeBwRefill => CWND_GAIN,
        }
    }

    const fn min_pipe(&self) -> u64 {
        MIN_PIPE_SEGMENTS * self.mss
    }

    fn send_quantum(&self) -> u64 {
        (self.pacing_rate / 1000).clamp(2 * self.mss, SEND_QUANTUM_MAX.max(2 * self.mss))
    }

    /// BBRBDPMultiple: the path's product of bandwidth and least round trip.
    fn bdp(&self, bandwidth: u64, gain: u64) -> u64 {
        let Some(min_rtt) = self.model.min_rtt() else {
            return initial_window(self.mss);
        };
        let product = u128::from(bandwidth) * min_rtt.as_nanos() / 1_000_000_000;
        u64::try_from(product * u128::from(gain) / 100).unwrap_or(UNLIMITED)
    }

    /// BBRQuantizationBudget: enough for bursts at both ends.
    fn quantized(&self, inflight: u64) -> u64 {
        let mut inflight = inflight.max(3 * self.send_quantum()).max(self.min_pipe());
        if self.state == State::ProbeBwUp {
            inflight += 2 * self.mss;
        }
        inflight
    }

    fn inflight(&self, bandwidth: u64, gain: u64) -> u64 {
        self.quantized(self.bdp(bandwidth, gain))
    }

    fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp(self.model.bw(), PROBE_RTT_CWND_GAIN)
            .max(self.min_pipe())
    }

    /// BBRInflightWithHeadroom: leaves 15% of what fits to others.
    fn inflight_with_headroom(&self) -> u64 {
        let longterm = self.model.inflight_longterm;
        if longterm == UNLIMITED {
            return UNLIMITED;
        }
        let headroom = (longterm * 15 / 100).max(self.mss);
        longterm.saturating_sub(headroom).max(self.min_pipe())
    }

    fn save_cwnd(&mut self) {
        self.prior_cwnd = if self.is_recovering || self.state == State::ProbeRtt {
            self.prior_cwnd.max(self.cwnd)
        } else {
            self.cwnd
        };
    }

    fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    fn set_pacing_rate(&mut self, gain: u64) {
        let rate = u128::from(self.model.bw()) * u128::from(gain) / 100;
        let rate = rate * u128::from(100 - PACING_MARGIN_PERCENT) / 100;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        if self.model.is_full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate.max(self.mss);
        }
    }

    fn set_cwnd(&mut self, acked: &Acked<'_>) {
        let aggregation = self.model.extra_acked();
        let target = self.bdp(self.model.bw(), self.cwnd_gain());
        let max_inflight = self.quantized(target.saturating_add(aggregation));
        let bytes = acked.delivered_bytes;
        if self.model.is_full_bw_reached {
            self.cwnd = (self.cwnd + bytes).min(max_inflight);
        } else if self.cwnd < max_inflight || acked.delivered_total < initial_window(self.mss) {
            self.cwnd += bytes;
        }
        self.cwnd = self.cwnd.max(self.min_pipe());
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd();
    }

    /// BBRBoundCwndForModel.
    fn bound_cwnd(&mut self) {
        let cap = match self.state {
            State::ProbeBwDown | State::ProbeBwRefill | State::ProbeBwUp => {
                self.model.inflight_longterm
            }
            State::ProbeRtt | State::ProbeBwCruise => self.inflight_with_headroom(),
            State::Startup | State::Drain => UNLIMITED,
        };
        let cap = cap.min(self.model.inflight_shortterm).max(self.min_pipe());
        self.cwnd = self.cwnd.min(cap);
    }
}

impl Control for Bbr {
    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        UNLIMITED
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(Rate::from_bytes_per_sec(self.pacing_rate))
    }

    /// BBRHandleRestartFromIdle.
    fn on_sending(&mut self, now: Instant, pipe: u64, is_app_limited: bool) {
        if pipe > 0 || !is_app_limited {
            return;
        }
        self.is_idle_restart = true;
        self.model.on_idle_restart(now);
        if self.is_probe_bw() {
            self.set_pacing_rate(100);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }

    fn on_acked(&mut self, acked: &Acked<'_>) {
        if !self.has_rtt
            && let Some(srtt) = acked.srtt
        {
            self.has_rtt = true;
            self.pacing_rate = self.initial_rate(srtt);
        }
        self.is_recovering = acked.is_recovering;
        self.update_model_and_state(acked);
        self.set_pacing_rate(self.pacing_gain());
        self.set_cwnd(acked);
    }

    fn on_lost(&mut self, now: Instant, lost: &Lost, delivered_total: u64) {
        self.handle_lost(now, lost, delivered_total);
    }

    fn on_congestion(&mut self, _now: Instant, _flight: u64, cause: Cause) {
        match cause {
            Cause::Loss => {
                self.save_cwnd();
                self.is_recovering = true;
                let model = &self.model;
                self.undo = Some((
                    model.bw_shortterm,
                    model.inflight_shortterm,
                    model.inflight_longterm,
                ));
            }
            // RFC 3168 marks: as a round with losses.
            Cause::Ecn => self.model.note_loss(),
        }
    }

    fn on_recovered(&mut self) {
        self.is_recovering = false;
        self.restore_cwnd();
    }

    fn on_timeout(&mut self, flight: u64, pipe: u64, is_first: bool) {
        if is_first {
            self.on_congestion(Instant::ZERO, flight, Cause::Loss);
        }
        self.cwnd = pipe + self.mss;
    }

    /// BBRHandleSpuriousLossDetection.
    fn on_undone(&mut self) {
        self.model.is_loss_in_round = false;
        self.model.reset_full_bw();
        if let Some((bw, shortterm, longterm)) = self.undo.take() {
            let model = &mut self.model;
            model.bw_shortterm = model.bw_shortterm.max(bw);
            model.inflight_shortterm = model.inflight_shortterm.max(shortterm);
            model.inflight_longterm = model.inflight_longterm.max(longterm);
        }
        self.restore_cwnd();
    }

    /// The model is what it was; pacing keeps the first burst small.
    fn on_idle(&mut self) {}

    fn on_mss(&mut self, mss: u32) {
        self.mss = u64::from(mss);
        self.cwnd = self.cwnd.max(self.mss);
    }

    fn uses_prr(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
