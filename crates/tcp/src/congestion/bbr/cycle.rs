//! What is probed when: the state machine, and how much more is tried when the path is probed.
//!
//! draft-ietf-ccwg-bbr sections 5.3 (state machine) and 5.5.10 (long-term model).

use core::time::Duration;
use fullbore_base::Instant;

use super::model::{BETA_PERCENT, rate_of};
use super::{Bbr, State, UNLIMITED};
use crate::congestion::Acked;
use crate::congestion::cubic::cube_root;
use crate::recovery::Lost;

/// How long little is kept in flight to see the round trip.
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// A loss-based flow of the same path grows for as many rounds at most before we probe.
const RENO_ROUNDS_MAX: u64 = 63;
/// Loss events in a round that end Startup.
const STARTUP_LOSS_EVENTS: u32 = 6;

/// What the acknowledgements that come in now are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AckPhase {
    /// No probe.
    #[default]
    Init,
    /// What was sent before the pipe was full.
    Refilling,
    /// The probe has begun, its feedback has not.
    ProbeStarting,
    /// The probe.
    ProbeFeedback,
    /// The probe is over, its feedback still comes.
    ProbeStopping,
}

/// The variables of probing.
#[derive(Clone, Debug, Default)]
pub struct Cycle {
    ack_phase: AckPhase,
    since: Instant,
    probe_wait: Duration,
    jitter: Duration,
    /// What was in flight when the last probe made a queue overflow: others may stand in it.
    crowded_inflight: Option<u64>,
    rounds_since_probe: u64,
    up_rounds: u32,
    up_acked_bytes: u64,
    /// Bytes delivered for each segment of growth.
    up_step_bytes: u64,
    has_probe_samples: bool,
    probe_rtt_done_at: Option<Instant>,
    is_probe_rtt_round_done: bool,
    /// A loss in Startup began a recovery that lasts a round.
    loss_round: Option<u64>,
}

impl Bbr {
    pub(super) fn update_model_and_state(&mut self, acked: &Acked<'_>) {
        self.model.update_latest(acked);
        let is_probing = self.is_probing_bw();
        let is_signal = self.model.is_signal(acked, self.loss_percent);
        let is_probing = is_probing || !is_signal;
        self.model.update_congestion(acked, is_probing, self.cwnd);
        if self.model.is_round_start {
            self.cycle.rounds_since_probe += 1;
        }
        self.model.update_aggregation(acked, self.cwnd);
        self.model.check_full_bw(acked);
        self.check_startup_done(acked);
        if self.state == State::Drain && acked.pipe <= self.inflight(self.model.bw(), 100) {
            self.start_down(acked.now, acked.delivered_total);
        }
        self.update_cycle(acked);
        let is_expired = self.model.update_min_rtt(acked);
        self.check_probe_rtt(acked, is_expired);
        self.model.advance_latest(acked);
    }

    fn check_startup_done(&mut self, acked: &Acked<'_>) {
        if self.state != State::Startup {
            return;
        }
        self.check_startup_loss(acked);
        if self.model.is_full_bw_reached {
            self.state = State::Drain;
        }
    }

    /// BBRCheckStartupHighLoss: a whole round of recovery with more than two percent lost.
    fn check_startup_loss(&mut self, acked: &Acked<'_>) {
        if !acked.is_recovering {
            self.cycle.loss_round = None;
            return;
        }
        let round = self.model.round_count;
        let began = *self.cycle.loss_round.get_or_insert(round);
        let is_high = self.is_too_high(acked.sample.lost, acked.sample.tx_in_flight);
        let is_many = self.model.loss_events >= STARTUP_LOSS_EVENTS;
        if round > began && is_high && is_many {
            self.model.is_full_bw_reached = true;
            let bdp = self.bdp(self.model.bw(), 100);
            self.model.inflight_longterm = bdp.max(self.model.inflight_latest());
        }
    }

    fn start_down(&mut self, now: Instant, delivered_total: u64) {
        self.model.reset_congestion_signals();
        self.cycle.up_step_bytes = UNLIMITED;
        // BBRPickProbeWait: so that flows which began together part.
        self.cycle.rounds_since_probe = self.rng.below(2);
        self.cycle.jitter = Duration::from_millis(self.rng.below(1000));
        self.cycle.probe_wait = Duration::from_secs(2) + self.cycle.jitter;
        self.cycle.since = now;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.model.start_round(delivered_total);
        self.state = State::ProbeBwDown;
    }

    fn start_refill(&mut self, acked: &Acked<'_>) {
        self.model.reset_shortterm();
        self.cycle.up_rounds = 0;
        self.cycle.up_acked_bytes = 0;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.model.start_round(acked.delivered_total);
        self.state = State::ProbeBwRefill;
    }

    fn start_up(&mut self, acked: &Acked<'_>) {
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.model.start_round(acked.delivered_total);
        self.model.reset_full_bw();
        self.model.full_bw = rate_of(acked);
        self.cycle.since = acked.now;
        self.state = State::ProbeBwUp;
        self.raise_slope();
    }

    fn update_cycle(&mut self, acked: &Acked<'_>) {
        if !self.model.is_full_bw_reached {
            return;
        }
        self.adapt_longterm(acked);
        match self.state {
            State::ProbeBwDown | State::ProbeBwCruise if self.is_time_to_probe(acked) => {
                self.start_refill(acked);
            }
            State::ProbeBwDown if self.is_time_to_cruise(acked) => {
                self.state = State::ProbeBwCruise;
            }
            State::ProbeBwRefill if self.model.is_round_start => {
                self.cycle.has_probe_samples = true;
                self.start_up(acked);
            }
            State::ProbeBwUp => {
                if self.is_time_to_go_down(acked) {
                    self.cycle.crowded_inflight = None;
                    self.start_down(acked.now, acked.delivered_total);
                }
            }
            State::Startup
            | State::Drain
            | State::ProbeBwDown
            | State::ProbeBwCruise
            | State::ProbeBwRefill
            | State::ProbeRtt => {}
        }
    }

    /// Beyond the draft: how long a queue is left alone that overflowed. CUBIC takes K for its way back to
    /// the window that it had (RFC 9438 4.2, equation 2); probed each 63 rounds, as the draft has it for
    /// Reno's sake, it would get a sixth of a link of 100 Mbit/s x 100 ms instead of a half.
    ///
    /// 2000 segments in flight give K = cbrt(2000 x 0.3 / 0.4) = 11.4 s.
    fn crowded_wait(&self) -> Duration {
        let Some(in_flight) = self.cycle.crowded_inflight else {
            return Duration::ZERO;
        };
        let missing = u128::from(in_flight) * 3 / 10;
        let k_ms = cube_root(missing * 2_500_000_000 / u128::from(self.mss.max(1)));
        Duration::from_millis(k_ms) + self.cycle.jitter
    }

    fn is_time_to_probe(&self, acked: &Acked<'_>) -> bool {
        if acked.now <= self.cycle.since + self.crowded_wait() {
            return false;
        }
        let target = self.bdp(self.model.bw(), 100).min(self.cwnd);
        let reno_rounds = (target / self.mss).min(RENO_ROUNDS_MAX);
        acked.now > self.cycle.since + self.cycle.probe_wait
            || self.cycle.rounds_since_probe >= reno_rounds.max(1)
    }

    fn is_time_to_cruise(&self, acked: &Acked<'_>) -> bool {
        acked.pipe <= self.inflight_with_headroom()
            && acked.pipe <= self.inflight(self.model.max_bw(), 100)
    }

    fn is_time_to_go_down(&mut self, acked: &Acked<'_>) -> bool {
        if acked.is_cwnd_limited && self.cwnd >= self.model.inflight_longterm {
            // The bound, not the path, holds the bandwidth down.
            self.model.reset_full_bw();
            self.model.full_bw = rate_of(acked);
            return false;
        }
        self.model.is_full_bw_now
    }

    /// BBRAdaptLongTermModel.
    fn adapt_longterm(&mut self, acked: &Acked<'_>) {
        let cycle = &mut self.cycle;
        if self.model.is_round_start {
            match cycle.ack_phase {
                AckPhase::ProbeStarting => cycle.ack_phase = AckPhase::ProbeFeedback,
                AckPhase::ProbeStopping => {
                    cycle.has_probe_samples = false;
                    cycle.ack_phase = AckPhase::Init;
                    if self.is_probe_bw() && !acked.sample.is_app_limited {
                        self.model.advance_max_bw();
                    }
                }
                AckPhase::Init | AckPhase::Refilling | AckPhase::ProbeFeedback => {}
            }
        }
        let sample = acked.sample;
        if self.is_too_high(sample.lost, sample.tx_in_flight) {
            return;
        }
        if self.model.inflight_longterm == UNLIMITED {
            return;
        }
        let longterm = &mut self.model.inflight_longterm;
        *longterm = (*longterm).max(sample.tx_in_flight);
        if self.state == State::ProbeBwUp {
            self.probe_upward(acked);
        }
    }

    /// BBRProbeInflightLongtermUpward: one segment for each `up_step_bytes` delivered, twice as
    /// fast every round.
    fn probe_upward(&mut self, acked: &Acked<'_>) {
        if !acked.is_cwnd_limited || self.cwnd < self.model.inflight_longterm {
            return;
        }
        let cycle = &mut self.cycle;
        cycle.up_acked_bytes += acked.delivered_bytes;
        if cycle.up_acked_bytes >= cycle.up_step_bytes {
            let steps = cycle.up_acked_bytes / cycle.up_step_bytes;
            cycle.up_acked_bytes -= steps * cycle.up_step_bytes;
            self.model.inflight_longterm += steps * self.mss;
        }
        if self.model.is_round_start {
            self.raise_slope();
        }
    }

    fn raise_slope(&mut self) {
        let growth = 1u64 << self.cycle.up_rounds;
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(30);
        self.cycle.up_step_bytes = (self.cwnd / growth).max(self.mss);
    }

    /// BBRHandleLostPacket.
    pub(super) fn handle_lost(&mut self, now: Instant, lost: &Lost, delivered_total: u64) {
        self.model.begin_loss_round(delivered_total);
        if !self.cycle.has_probe_samples {
            return;
        }
        let lost_since = lost.lost_total - lost.snapshot.lost;
        let in_flight = lost.snapshot.in_flight;
        if !self.is_too_high(lost_since, in_flight) {
            return;
        }
        let at_loss = self.inflight_at_loss(in_flight, lost_since, lost.bytes);
        if self.model.has_queue() {
            self.cycle.crowded_inflight = Some(in_flight);
        }
        // BBRHandleInflightTooHigh.
        self.cycle.has_probe_samples = false;
        if !lost.snapshot.is_app_limited {
            let target = self.bdp(self.model.bw(), 100).min(self.cwnd);
            self.model.inflight_longterm = at_loss.max(target / 100 * BETA_PERCENT);
        }
        if self.state == State::ProbeBwUp {
            self.start_down(now, delivered_total);
        }
    }

    fn check_probe_rtt(&mut self, acked: &Acked<'_>, is_expired: bool) {
        if self.state != State::ProbeRtt && is_expired && !self.is_idle_restart {
            self.save_cwnd();
            self.state = State::ProbeRtt;
            self.cycle.probe_rtt_done_at = None;
            self.cycle.ack_phase = AckPhase::ProbeStopping;
            self.model.start_round(acked.delivered_total);
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(acked);
        }
        if acked.sample.delivered > 0 {
            self.is_idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, acked: &Acked<'_>) {
        if self.cycle.probe_rtt_done_at.is_some() {
            self.cycle.is_probe_rtt_round_done |= self.model.is_round_start;
            if self.cycle.is_probe_rtt_round_done {
                self.check_probe_rtt_done(acked.now);
                if self.state != State::ProbeRtt {
                    self.leave_probe_rtt(acked);
                }
            }
        } else if acked.pipe <= self.probe_rtt_cwnd() {
            self.cycle.probe_rtt_done_at = Some(acked.now + PROBE_RTT_DURATION);
            self.cycle.is_probe_rtt_round_done = false;
            self.model.start_round(acked.delivered_total);
        }
    }

    /// BBRCheckProbeRTTDone and BBRExitProbeRTT.
    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.cycle.probe_rtt_done_at.is_none_or(|at| now <= at) {
            return;
        }
        self.model.probe_rtt_min_at = now;
        self.restore_cwnd();
        self.model.reset_shortterm();
        self.cycle.since = now;
        self.state = if self.model.is_full_bw_reached {
            State::ProbeBwCruise
        } else {
            State::Startup
        };
    }

    /// A new cycle of probing begins with what is known.
    fn leave_probe_rtt(&mut self, acked: &Acked<'_>) {
        let state = self.state;
        if state == State::ProbeBwCruise {
            self.start_down(acked.now, acked.delivered_total);
            self.state = State::ProbeBwCruise;
        }
    }

    const fn is_too_high(&self, lost: u64, in_flight: u64) -> bool {
        lost * 100 > in_flight * self.loss_percent
    }

    /// BBRInflightAtLoss: how much was in flight when losses went over the threshold, inside the
    /// segment of `size` that showed it.
    const fn inflight_at_loss(&self, in_flight: u64, lost: u64, size: u64) -> u64 {
        let in_flight_before = in_flight.saturating_sub(size);
        let lost_before = lost.saturating_sub(size);
        let allowed = in_flight_before * self.loss_percent;
        let prefix = allowed.saturating_sub(lost_before * 100) / (100 - self.loss_percent);
        in_flight_before + prefix
    }
}
