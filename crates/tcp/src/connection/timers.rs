//! What happens when nothing comes: deadlines of a connection.
//!
//! RFC 9293 sections 3.8.3 (giving up), 3.8.4 (keepalive), 3.8.6.1 (zero windows), RFC 5482 (user
//! timeout). Loss recovery has its own deadlines.

use core::time::Duration;
use fullbore_base::Instant;

use super::config::{SYN_TIMEOUTS_MAX, TIMEOUTS_MAX};
use super::{Connection, Error, State};
use crate::recovery::Expired;
use crate::rtt::RTO_MAX;

/// After how long a pause memory is given back.
pub const RELEASE_AFTER: Duration = Duration::from_secs(1);

/// The slots of the connection's table.
#[derive(Clone, Copy, Debug)]
pub enum Timer {
    /// An acknowledgement that was held back.
    DelayedAck,
    /// The peer's window is closed.
    Persist,
    /// The peer is silent.
    Keepalive,
    /// Late segments are answered until then.
    TimeWait,
    /// Buffers that are empty give their memory back.
    Release,
}

impl Timer {
    /// How many there are.
    pub const COUNT: usize = 5;
}

impl Connection {
    /// The next deadline. O(1).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.state == State::Closed {
            return None;
        }
        let recovery = self.sender.recovery();
        let recovery_at = recovery
            .deadline()
            .filter(|_| self.state != State::TimeWait);
        let deadlines = [
            self.timers.next(),
            recovery_at,
            self.pace_at,
            self.give_up_at(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// A deadline may have passed; an early call does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.state == State::Closed {
            return;
        }
        if self.timers.take_due(Timer::TimeWait as usize, now) {
            self.finish(None);
            return;
        }
        if self.timers.take_due(Timer::Release as usize, now) {
            self.outbox.release();
            self.receiver.release();
            self.sender.recovery_mut().release();
        }
        if self.timers.take_due(Timer::DelayedAck as usize, now) {
            self.acks.demand();
        }
        if self.give_up_at().is_some_and(|at| at <= now) {
            self.finish(Some(Error::TimedOut));
            return;
        }
        self.handle_recovery(now);
        if self.timers.take_due(Timer::Persist as usize, now) {
            self.on_persist();
        }
        if self.timers.take_due(Timer::Keepalive as usize, now) {
            self.on_keepalive(now);
        }
    }

    /// RFC 5482: when data has gone without acknowledgement for too long.
    fn give_up_at(&self) -> Option<Instant> {
        let timeout = self.liveness.user_timeout?;
        let is_waiting = !self.sender.recovery().board().is_empty()
            || self.timers.deadline(Timer::Persist as usize).is_some();
        let is_waiting = is_waiting && self.state != State::TimeWait;
        // A peer that keeps its window closed and answers is alive (RFC 9293 3.8.6.1), be it that it
        // closed it over what was on its way.
        let is_closed = self.sender.recovery().board().is_empty() || self.window.size == 0;
        let since = if is_closed {
            self.liveness.progress_at.max(self.liveness.heard_at)
        } else {
            self.liveness.progress_at
        };
        is_waiting.then(|| since + timeout)
    }

    fn handle_recovery(&mut self, now: Instant) {
        if self.state == State::TimeWait {
            return;
        }
        while let Some(expired) = self.sender.on_deadline(now) {
            match expired {
                Expired::Reordering { has_entered, .. } => {
                    if has_entered {
                        self.on_window_reduced();
                    }
                }
                Expired::Probe => self.pending.is_probe = true,
                Expired::Retransmission { .. } => {
                    self.on_retransmission_timeout(now);
                    return;
                }
            }
        }
    }

    fn on_retransmission_timeout(&mut self, now: Instant) {
        let backoff = self.sender.recovery().rtt().backoff();
        let is_handshake = matches!(self.state, State::SynSent | State::SynReceived);
        let limit = if is_handshake {
            SYN_TIMEOUTS_MAX
        } else {
            TIMEOUTS_MAX
        };
        // A user timeout takes the place of a count, once the peer is known.
        let is_counted = is_handshake || self.liveness.user_timeout.is_none();
        let is_alive = !is_handshake && self.is_closed_and_heard(now);
        if is_counted && backoff > limit && !is_alive {
            self.finish(Some(Error::TimedOut));
            return;
        }
        self.on_window_reduced();
        if !is_handshake && self.mtu.on_timeout(now, backoff) {
            self.stats.black_holes += 1;
            self.sender.set_mss(self.send_mss());
        }
    }

    /// Whether the peer has closed its window and answers all the same: what is sent again then is a
    /// question, which is not to be counted (RFC 9293 MUST-37).
    fn is_closed_and_heard(&self, now: Instant) -> bool {
        self.window.size == 0 && now - self.liveness.heard_at <= RTO_MAX * 2
    }

    /// A router dropped a segment of ours that starts at `seq`, since its link takes only segments
    /// of `mss` as the option counts it. Believed only of what is in flight (RFC 5927 section 7).
    pub fn handle_too_big(&mut self, now: Instant, seq: crate::seq::Seq, mss: u16) {
        let una = self.snd_una();
        let position = self.local_initial.position(seq, una);
        let is_ours = position.is_some_and(|p| una <= p && p < self.snd_nxt());
        if is_ours && self.state.is_synchronized() && self.mtu.on_too_big(now, mss) {
            self.sender.set_mss(self.send_mss());
        }
    }

    /// How long until a closed window is asked about again: as the retransmission timer, doubling.
    pub(super) fn persist_interval(&self) -> Duration {
        let rto = self.sender.recovery().rtt().base_rto();
        let factor = 1u32 << self.liveness.persist_backoff.min(16);
        rto.saturating_mul(factor).min(RTO_MAX)
    }

    /// The window is still closed, or too small: ask, or send what fits. Who answers may keep it closed
    /// for ever (RFC 9293 MUST-37); who does not is given up as for data.
    fn on_persist(&mut self) {
        self.liveness.persist_backoff += 1;
        let is_open = self.window.size > 0;
        let is_counted = !is_open && self.liveness.user_timeout.is_none();
        if is_counted && self.liveness.persist_questions >= TIMEOUTS_MAX {
            self.finish(Some(Error::TimedOut));
            return;
        }
        self.liveness.persist_questions += u32::from(!is_open);
        self.pending.is_override = is_open;
        self.pending.is_question = !is_open;
    }

    pub(super) fn arm_delayed_ack(&mut self, now: Instant) {
        let slot = Timer::DelayedAck as usize;
        if self.acks.is_owed() && self.timers.deadline(slot).is_none() {
            self.timers.arm(slot, now + self.config.delayed_ack);
        }
    }

    pub(super) fn arm_keepalive(&mut self, now: Instant) {
        if let Some(keepalive) = self.config.keepalive
            && self.state.is_synchronized()
            && self.state != State::TimeWait
        {
            let at = now + keepalive.idle;
            self.timers.arm(Timer::Keepalive as usize, at);
        }
    }

    fn on_keepalive(&mut self, now: Instant) {
        let Some(keepalive) = self.config.keepalive else {
            return;
        };
        if self.liveness.questions >= keepalive.count_max {
            self.finish(Some(Error::TimedOut));
            return;
        }
        // Data that is outstanding asks by itself.
        if self.sender.recovery().board().is_empty() {
            self.pending.is_question = true;
            self.liveness.questions += 1;
        }
        let at = now + keepalive.interval;
        self.timers.arm(Timer::Keepalive as usize, at);
    }
}
