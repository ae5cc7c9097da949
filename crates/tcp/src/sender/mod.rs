//! When the next segment may leave: loss recovery, congestion control and pacing joined.
//!
//! RFC 5681, RFC 9937 (during fast recovery), RFC 3168 section 6.1.2 (ECN's response). Does not know
//! what the segments hold, nor the peer's window.

mod pacer;

pub use pacer::Pacer;

use core::time::Duration;
use fullbore_base::{Instant, Rate};

use crate::congestion::{Acked, Cause, Controller, Settings};
use crate::recovery::prr::{Progress, Prr};
use crate::recovery::{Ack, Expired, Outcome, Phase, Recovery};
use crate::scoreboard::{Id, Scoreboard};

/// Whether a segment may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may.
    Open,
    /// The congestion window is full: an acknowledgement has to come.
    Window,
    /// It may later.
    Paced(Instant),
}

/// The sending side of a connection, below the stream.
#[derive(Debug)]
pub struct Sender {
    recovery: Recovery,
    controller: Controller,
    mss: u64,
    is_paced: bool,
    is_restarted_after_idle: bool,
    pacer: Pacer,
    prr: Option<Prr>,
    /// The window of fast recovery.
    prr_cwnd: u64,
    /// The window was the limit at some time of this round trip, or of the last.
    is_cwnd_limited: [bool; 2],
    /// The most in flight in this round trip, and in the last.
    pipe_max: [u64; 2],
    round_end: u64,
    /// Marks are not answered again before this is acknowledged.
    ecn_end: u64,
    last_sent_at: Instant,
    /// Losses of probes for a larger MTU: no sign of congestion (RFC 8899 section 3).
    forgiven: Option<core::ops::Range<u64>>,
}

impl Sender {
    /// Nothing sent yet: `board` is empty.
    #[must_use]
    pub fn new(board: Scoreboard, settings: &Settings, mss: u32, is_paced: bool) -> Self {
        Self {
            recovery: Recovery::with_board(board, mss, false),
            controller: Controller::new(settings, mss),
            mss: u64::from(mss),
            is_paced,
            is_restarted_after_idle: true,
            pacer: Pacer::default(),
            prr: None,
            prr_cwnd: 0,
            is_cwnd_limited: [false; 2],
            pipe_max: [0; 2],
            round_end: 0,
            ecn_end: 0,
            last_sent_at: Instant::ZERO,
            forgiven: None,
        }
    }

    /// Whether a pause makes the window start anew (RFC 5681 4.1); it does unless told otherwise.
    pub const fn set_restarted_after_idle(&mut self, is_restarted: bool) {
        self.is_restarted_after_idle = is_restarted;
    }

    /// Loss recovery.
    #[must_use]
    pub const fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The same, for what concerns it alone.
    pub const fn recovery_mut(&mut self) -> &mut Recovery {
        &mut self.recovery
    }

    /// Congestion control.
    #[must_use]
    pub const fn controller(&self) -> &Controller {
        &self.controller
    }

    /// What the handshake agreed.
    pub fn set_agreed(&mut self, settings: &Settings, mss: u32, is_sack: bool) {
        self.mss = u64::from(mss);
        self.recovery.set_agreed(mss, is_sack);
        self.controller = Controller::new(settings, mss);
    }

    /// The largest segment changed. What is outstanding stays as it is until it has to be sent again.
    pub fn set_mss(&mut self, mss: u32) {
        self.mss = u64::from(mss);
        self.recovery.set_mss(mss);
        self.controller.get_mut().on_mss(mss);
    }

    /// The loss of what lies in `range` is no sign of congestion.
    pub const fn forgive(&mut self, range: core::ops::Range<u64>) {
        self.forgiven = Some(range);
    }

    /// The congestion window in force.
    #[must_use]
    pub fn cwnd(&self) -> u64 {
        match self.prr {
            Some(_) => self.prr_cwnd,
            None => self.controller.get().cwnd(),
        }
    }

    /// How fast segments leave; none before a round trip is known, or when they are not paced.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<Rate> {
        if !self.is_paced {
            return None;
        }
        if let Some(rate) = self.controller.get().pacing_rate() {
            return Some(rate);
        }
        // As Linux: twice the window per round trip in slow start, so that it can double.
        let srtt = self.recovery.rtt().srtt()?;
        let cwnd = self.cwnd();
        let percent = if cwnd < self.controller.get().ssthresh() {
            200
        } else {
            120
        };
        let nanos = srtt.as_nanos().max(1);
        let rate = u128::from(cwnd) * percent * 10_000_000 / nanos;
        Some(Rate::from_bytes_per_sec(
            u64::try_from(rate).unwrap_or(u64::MAX),
        ))
    }

    /// Whether `len` bytes may leave now, for the first time or again. O(1).
    ///
    /// What leaves for the first time also needs room on the scoreboard.
    pub fn gate(&mut self, now: Instant, len: u64) -> Gate {
        let pipe = self.recovery.pipe();
        if pipe + len > self.cwnd() && pipe > 0 {
            self.is_cwnd_limited[0] = true;
            return Gate::Window;
        }
        if self.pacing_rate().is_some() && self.pacer.next_at() > now {
            return Gate::Paced(self.pacer.next_at());
        }
        Gate::Open
    }

    /// `len` positions leave for the first time.
    pub fn on_sent(&mut self, now: Instant, len: u32) {
        let pipe = self.recovery.pipe();
        let is_pause = pipe == 0 && now - self.last_sent_at > self.recovery.rtt().rto();
        if is_pause && self.is_restarted_after_idle {
            self.controller.get_mut().on_idle();
        }
        self.before_sending(now, pipe);
        self.recovery.on_sent(now, len);
        self.after_sending(now, u64::from(len));
    }

    /// The segment `id` leaves again.
    pub fn on_retransmitted(&mut self, now: Instant, id: Id) {
        let range = self.recovery.board().record(id).range();
        self.before_sending(now, self.recovery.pipe());
        self.recovery.on_retransmitted(now, id);
        self.after_sending(now, range.end - range.start);
    }

    fn before_sending(&mut self, now: Instant, pipe: u64) {
        let is_app_limited = self.recovery.delivery().is_app_limited();
        let controller = self.controller.get_mut();
        controller.on_sending(now, pipe, is_app_limited);
    }

    fn after_sending(&mut self, now: Instant, len: u64) {
        if let Some(rate) = self.pacing_rate() {
            self.pacer.on_sent(now, len, rate);
        }
        if let Some(prr) = &mut self.prr {
            prr.on_sent(len);
        }
        self.last_sent_at = now;
        self.pipe_max[0] = self.pipe_max[0].max(self.recovery.pipe());
    }

    /// Whether growth is deserved: the window was used (RFC 7661's concern, as Linux judges it).
    fn is_limited_by_cwnd(&self) -> bool {
        let pipe = self.pipe_max[0].max(self.pipe_max[1]);
        let cwnd = self.controller.get().cwnd();
        let is_slow_start = cwnd < self.controller.get().ssthresh();
        self.is_cwnd_limited[0] || self.is_cwnd_limited[1] || (is_slow_start && cwnd < 2 * pipe)
    }

    fn advance_round(&mut self) {
        let board = self.recovery.board();
        if board.snd_una() >= self.round_end {
            self.round_end = board.snd_nxt();
            self.is_cwnd_limited = [false, self.is_cwnd_limited[0]];
            self.pipe_max = [self.recovery.pipe(), self.pipe_max[0]];
        }
    }

    /// Reads an acknowledgement; `is_ece`: the peer echoes a mark of the path (RFC 3168).
    pub fn on_ack(&mut self, now: Instant, ack: &Ack<'_>, is_ece: bool) -> Outcome {
        let (board, pipe) = (self.recovery.board(), self.recovery.pipe());
        let in_network = pipe + board.lost().bytes;
        let flight = board.snd_nxt() - board.snd_una();
        let delivered_total = self.recovery.delivery().delivered();
        let controller = self.controller.get_mut();
        let mut outcome = self.recovery.on_ack(now, ack, |lost| {
            controller.on_lost(now, lost, delivered_total);
        });
        self.follow(now, &outcome, flight, in_network);
        if is_ece && self.recovery.board().snd_una() >= self.ecn_end {
            self.ecn_end = self.recovery.board().snd_nxt();
            if self.recovery.phase() == Phase::Open {
                let controller = self.controller.get_mut();
                controller.on_congestion(now, flight, Cause::Ecn);
                outcome.is_mark_answered = true;
            }
        }
        self.tell_acked(now, &outcome, is_ece);
        self.advance_round();
        outcome
    }

    /// What the phases of recovery mean to the window.
    fn follow(&mut self, now: Instant, outcome: &Outcome, flight: u64, in_network: u64) {
        let controller = self.controller.get_mut();
        if outcome.is_undone {
            controller.on_undone();
        }
        if outcome.has_left {
            controller.on_recovered();
            self.prr = None;
        }
        if outcome.is_probe_repaired {
            controller.on_congestion(now, flight, Cause::Loss);
            controller.on_recovered();
        }
        if outcome.has_entered {
            self.enter(now, flight, in_network);
        }
        let acked = &outcome.applied;
        if let Some(prr) = &mut self.prr {
            let progress = Progress {
                delivered: outcome.delivered_bytes,
                pipe: self.recovery.pipe(),
                is_safe: acked.acked_bytes > 0 && outcome.lost_bytes == 0,
            };
            self.prr_cwnd = prr.on_ack(&progress, self.mss);
        }
    }

    fn enter(&mut self, now: Instant, flight: u64, in_network: u64) {
        if self.is_forgiven() {
            return;
        }
        let controller = self.controller.get_mut();
        controller.on_congestion(now, flight, Cause::Loss);
        if controller.uses_prr() {
            self.prr = Some(Prr::new(in_network, controller.ssthresh()));
            self.prr_cwnd = self.recovery.pipe() + self.mss;
        }
    }

    /// Whether all that is lost is what was forgiven.
    fn is_forgiven(&mut self) -> bool {
        let board = self.recovery.board();
        let only = (board.lost().count == 1)
            .then(|| board.next_lost())
            .flatten()
            .map(|id| board.record(id).range());
        only.is_some() && only == self.forgiven
    }

    fn tell_acked(&mut self, now: Instant, outcome: &Outcome, is_ece: bool) {
        let is_recovering = self.recovery.phase() != Phase::Open;
        let is_fast = matches!(self.recovery.phase(), Phase::Fast { .. });
        // RFC 5681 2 and 3042: a duplicate does not change the window; in recovery, PRR does.
        // The one that ends a recovery leaves the window at its aim. RFC 3168 6.1.2: one that echoes a
        // mark makes it no larger.
        let is_held = is_fast || outcome.has_left || outcome.applied.acked_bytes == 0 || is_ece;
        if is_held && self.controller.get().uses_prr() {
            return;
        }
        let acked = Acked {
            now,
            delivered_bytes: outcome.delivered_bytes,
            lost_bytes: outcome.lost_bytes,
            delivered_total: self.recovery.delivery().delivered(),
            pipe: self.recovery.pipe(),
            snd_una: self.recovery.board().snd_una(),
            snd_nxt: self.recovery.board().snd_nxt(),
            srtt: self.recovery.rtt().srtt(),
            sample: &outcome.sample,
            is_cwnd_limited: self.is_limited_by_cwnd(),
            is_recovering,
        };
        self.controller.get_mut().on_acked(&acked);
    }

    /// Handles one deadline of loss recovery that passed.
    pub fn on_deadline(&mut self, now: Instant) -> Option<Expired> {
        let (board, pipe) = (self.recovery.board(), self.recovery.pipe());
        let in_network = pipe + board.lost().bytes;
        let flight = board.snd_nxt() - board.snd_una();
        let is_handshake = board.snd_una() == 0;
        let delivered_total = self.recovery.delivery().delivered();
        let controller = self.controller.get_mut();
        let expired = self.recovery.on_deadline(now, |lost| {
            controller.on_lost(now, lost, delivered_total);
        })?;
        match expired {
            Expired::Reordering { has_entered, .. } => {
                if has_entered {
                    self.enter(now, flight, in_network);
                }
            }
            Expired::Probe => {}
            // A lost SYN says nothing of how much fits into the path.
            Expired::Retransmission { .. } if is_handshake => {}
            Expired::Retransmission { is_first } => {
                self.prr = None;
                let pipe = self.recovery.pipe();
                self.controller.get_mut().on_timeout(flight, pipe, is_first);
            }
        }
        Some(expired)
    }

    /// A probe of loss recovery leaves; `again`: the segment that it repeats.
    pub fn on_probe_sent(&mut self, now: Instant, again: Option<Id>) {
        self.recovery.on_probe_sent(now, again);
        self.last_sent_at = now;
    }

    /// How long nothing was sent.
    #[must_use]
    pub fn idle_for(&self, now: Instant) -> Duration {
        now - self.last_sent_at
    }
}
