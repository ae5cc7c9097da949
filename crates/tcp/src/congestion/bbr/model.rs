//! What the path is deemed to be: bandwidth, least round trip, how much fits into it.
//!
//! draft-ietf-ccwg-bbr sections 5.5 (path model).

use core::time::Duration;
use fullbore_base::{Instant, Rate};

use super::UNLIMITED;
use crate::congestion::Acked;

/// How long a least round trip counts.
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
/// How long until a lower one is looked for.
pub const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// Round trips over which acknowledgements that come in clumps are remembered.
const EXTRA_ACKED_ROUNDS: u64 = 10;
/// What is left of a short-term bound after a round with losses.
pub const BETA_PERCENT: u64 = 70;

/// The model. Fields are the draft's, with `longterm` and `shortterm` for hi and lo.
#[derive(Clone, Debug)]
pub struct Model {
    /// The most of this cycle of probing and of the last.
    max_bw: [u64; 2],
    pub bw_shortterm: u64,
    pub inflight_shortterm: u64,
    pub inflight_longterm: u64,
    bw_latest: u64,
    inflight_latest: u64,
    /// Bytes lost and delivered since the loss round began.
    round_lost_bytes: u64,
    round_delivered_bytes: u64,
    rtt_latest: Duration,
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    probe_rtt_min: Option<Duration>,
    pub probe_rtt_min_at: Instant,
    next_round_delivered: u64,
    pub is_round_start: bool,
    pub round_count: u64,
    loss_round_delivered: u64,
    is_loss_round_start: bool,
    pub is_loss_in_round: bool,
    /// Loss events of the round, for the end of Startup.
    pub loss_events: u32,
    pub full_bw: u64,
    full_bw_count: u32,
    pub is_full_bw_now: bool,
    pub is_full_bw_reached: bool,
    extra_acked: [(u64, u64); 2],
    extra_acked_since: Instant,
    extra_acked_delivered: u64,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            max_bw: [0; 2],
            bw_shortterm: UNLIMITED,
            inflight_shortterm: UNLIMITED,
            inflight_longterm: UNLIMITED,
            bw_latest: 0,
            inflight_latest: 0,
            round_lost_bytes: 0,
            round_delivered_bytes: 0,
            rtt_latest: Duration::ZERO,
            min_rtt: None,
            min_rtt_at: Instant::ZERO,
            probe_rtt_min: None,
            probe_rtt_min_at: Instant::ZERO,
            next_round_delivered: 0,
            is_round_start: false,
            round_count: 0,
            loss_round_delivered: 0,
            is_loss_round_start: false,
            is_loss_in_round: false,
            loss_events: 0,
            full_bw: 0,
            full_bw_count: 0,
            is_full_bw_now: false,
            is_full_bw_reached: false,
            extra_acked: [(0, 0); 2],
            extra_acked_since: Instant::ZERO,
            extra_acked_delivered: 0,
        }
    }
}

pub fn rate_of(acked: &Acked<'_>) -> u64 {
    acked.sample.rate.map_or(0, Rate::bytes_per_sec)
}

impl Model {
    pub fn max_bw(&self) -> u64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// The bandwidth to send at.
    pub fn bw(&self) -> u64 {
        self.max_bw().min(self.bw_shortterm)
    }

    pub const fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// Whether packets stand in a queue now: round trips are longer than the least by a quarter.
    pub fn has_queue(&self) -> bool {
        let least = self.min_rtt;
        least.is_some_and(|least| self.rtt_latest > least + least / 4)
    }

    /// Whether the losses of this round say anything of how much fits into the path: not where there is
    /// no queue and they are few. Beyond the draft, which lowers its bounds a little after each round
    /// with a loss, whatever the cause, until the next probe.
    pub fn is_signal(&self, acked: &Acked<'_>, loss_percent: u64) -> bool {
        let lost = self.round_lost_bytes + acked.lost_bytes;
        let all = lost + self.round_delivered_bytes + acked.delivered_bytes;
        self.has_queue() || lost * 100 > all * loss_percent
    }

    pub const fn inflight_latest(&self) -> u64 {
        self.inflight_latest
    }

    pub fn extra_acked(&self) -> u64 {
        self.extra_acked[0].1.max(self.extra_acked[1].1)
    }

    /// BBRUpdateLatestDeliverySignals.
    pub fn update_latest(&mut self, acked: &Acked<'_>) {
        self.is_loss_round_start = false;
        self.rtt_latest = acked.sample.rtt.unwrap_or(self.rtt_latest);
        self.bw_latest = self.bw_latest.max(rate_of(acked));
        self.inflight_latest = self.inflight_latest.max(acked.sample.delivered);
        if acked.sample.prior_delivered >= self.loss_round_delivered {
            self.loss_round_delivered = acked.delivered_total;
            self.is_loss_round_start = true;
        }
    }

    /// BBRAdvanceLatestDeliverySignals.
    pub fn advance_latest(&mut self, acked: &Acked<'_>) {
        if self.is_loss_round_start {
            self.bw_latest = rate_of(acked);
            self.inflight_latest = acked.sample.delivered;
            self.loss_events = 0;
        }
    }

    /// BBRUpdateCongestionSignals. `is_probing`: losses are what was asked for, or say nothing.
    pub fn update_congestion(&mut self, acked: &Acked<'_>, is_probing: bool, cwnd: u64) {
        self.update_max_bw(acked);
        self.round_lost_bytes += acked.lost_bytes;
        self.round_delivered_bytes += acked.delivered_bytes;
        if acked.lost_bytes > 0 {
            self.is_loss_in_round = true;
        }
        if !self.is_loss_round_start {
            return;
        }
        if self.is_loss_in_round && !is_probing {
            self.lower_bounds(cwnd);
        }
        self.round_lost_bytes = 0;
        self.round_delivered_bytes = 0;
        self.is_loss_in_round = false;
    }

    fn lower_bounds(&mut self, cwnd: u64) {
        if self.bw_shortterm == UNLIMITED {
            self.bw_shortterm = self.max_bw();
        }
        if self.inflight_shortterm == UNLIMITED {
            self.inflight_shortterm = cwnd;
        }
        let kept = |bound: u64| bound / 100 * BETA_PERCENT;
        self.bw_shortterm = self.bw_latest.max(kept(self.bw_shortterm));
        self.inflight_shortterm = self.inflight_latest.max(kept(self.inflight_shortterm));
    }

    fn update_max_bw(&mut self, acked: &Acked<'_>) {
        self.is_round_start = false;
        if acked.delivered_bytes > 0 && acked.sample.prior_delivered >= self.next_round_delivered {
            self.start_round(acked.delivered_total);
            self.round_count += 1;
            self.is_round_start = true;
        }
        let rate = rate_of(acked);
        if rate > 0 && (rate >= self.max_bw() || !acked.sample.is_app_limited) {
            self.max_bw[0] = self.max_bw[0].max(rate);
        }
    }

    pub const fn start_round(&mut self, delivered: u64) {
        self.next_round_delivered = delivered;
    }

    /// BBRAdvanceMaxBwFilter.
    pub fn advance_max_bw(&mut self) {
        if self.max_bw[0] > 0 {
            self.max_bw = [0, self.max_bw[0]];
        }
    }

    pub const fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        self.loss_events = 0;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    pub const fn reset_shortterm(&mut self) {
        self.bw_shortterm = UNLIMITED;
        self.inflight_shortterm = UNLIMITED;
    }

    pub const fn reset_full_bw(&mut self) {
        self.full_bw = 0;
        self.full_bw_count = 0;
        self.is_full_bw_now = false;
    }

    /// BBRCheckFullBWReached: three rounds without a quarter more.
    pub fn check_full_bw(&mut self, acked: &Acked<'_>) {
        if self.is_full_bw_now || acked.sample.is_app_limited {
            return;
        }
        let rate = rate_of(acked);
        if rate > 0 && rate >= self.full_bw / 4 * 5 {
            self.reset_full_bw();
            self.full_bw = rate;
            return;
        }
        if !self.is_round_start {
            return;
        }
        self.full_bw_count += 1;
        self.is_full_bw_now = self.full_bw_count >= 3;
        self.is_full_bw_reached |= self.is_full_bw_now;
    }

    /// BBRUpdateACKAggregation: how much more than the bandwidth says was acknowledged at once.
    pub fn update_aggregation(&mut self, acked: &Acked<'_>, cwnd: u64) {
        let interval = acked.now - self.extra_acked_since;
        let expected = u128::from(self.bw()) * interval.as_nanos() / 1_000_000_000;
        let mut expected = u64::try_from(expected).unwrap_or(UNLIMITED);
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0;
            self.extra_acked_since = acked.now;
            expected = 0;
        }
        self.extra_acked_delivered += acked.delivered_bytes;
        let extra = (self.extra_acked_delivered - expected).min(cwnd);
        let window = if self.is_full_bw_reached {
            EXTRA_ACKED_ROUNDS
        } else {
            1
        };
        // The most of this window of rounds and of the last.
        let current = self.extra_acked[0];
        if self.round_count.saturating_sub(current.0) >= window {
            self.extra_acked = [(self.round_count, extra), current];
        } else {
            self.extra_acked[0].1 = current.1.max(extra);
        }
    }

    /// BBRUpdateMinRTT. Returns whether it is time to probe for a lower one.
    pub fn update_min_rtt(&mut self, acked: &Acked<'_>) -> bool {
        let now = acked.now;
        let is_expired =
            self.probe_rtt_min.is_some() && now > self.probe_rtt_min_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = acked.sample.rtt
            && (is_expired || self.probe_rtt_min.is_none_or(|least| rtt < least))
        {
            self.probe_rtt_min = Some(rtt);
            self.probe_rtt_min_at = now;
        }
        let is_old = now > self.min_rtt_at + MIN_RTT_FILTER;
        if let Some(least) = self.probe_rtt_min
            && (is_old || self.min_rtt.is_none_or(|min| least < min))
        {
            self.min_rtt = Some(least);
            self.min_rtt_at = self.probe_rtt_min_at;
        }
        is_expired
    }

    pub fn on_idle_restart(&mut self, now: Instant) {
        self.extra_acked_since = now;
        self.extra_acked_delivered = 0;
    }

    /// BBRNoteLoss.
    pub const fn note_loss(&mut self) {
        self.is_loss_in_round = true;
    }

    pub const fn begin_loss_round(&mut self, delivered: u64) {
        if !self.is_loss_in_round {
            self.loss_round_delivered = delivered;
        }
        self.is_loss_in_round = true;
        self.loss_events += 1;
    }
}
