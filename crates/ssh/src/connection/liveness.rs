//! Is the peer there, and how far away: login deadline, keepalives, pings; all timers in one table.

use super::global::Awaited;
use super::{Connection, ConnectionConfig, Event, RTT_SPACING, RTT_TOLD_VALID};
use crate::error::{Closed, Error, PeerMisbehaved};
use crate::msg::SSH2_MSG_PING;
use crate::wire::Put;
use fullbore_base::{Instant, PathRtt, Timers};
use std::time::Duration;

/// The timers above the transport's.
#[derive(Clone, Copy, Debug)]
enum Timer {
    Login,
    Keepalive,
    Ping,
    Idle,
}

const TIMERS: usize = 4;

/// What is known of the peer's presence.
#[derive(Debug)]
pub(super) struct Liveness {
    timers: Timers<TIMERS>,
    last_input: Instant,
    /// Keepalives sent since anything was heard.
    unanswered: u32,
    /// The last keepalive stands in the transmit buffer, behind bytes that the socket has not
    /// taken: no answer can be expected while those move.
    is_held: bool,
    /// When the socket last took something.
    last_output: Instant,
    /// Bytes that the transmit buffer held when it was last seen.
    pending_len: usize,
    /// The ping that is under way: its number and when it was queued.
    ping: Option<(u64, Instant)>,
    pings: u64,
    /// How long the answer to the last ping took, from end to end.
    pong: Option<Duration>,
    /// The shortest answer to a ping.
    pong_min: Option<Duration>,
    pub(super) rtt: PathRtt,
    /// When the windows may next have the round trip measured, and until when they need not: somebody
    /// else does.
    next_measure: Instant,
    told_until: Instant,
}

impl Liveness {
    pub(super) fn new(config: &ConnectionConfig, now: Instant) -> Self {
        let mut timers = Timers::default();
        if let Some(timeout) = config.login_timeout {
            timers.arm(Timer::Login as usize, now + timeout);
        }
        Self {
            timers,
            last_input: now,
            unanswered: 0,
            is_held: false,
            last_output: now,
            pending_len: 0,
            ping: None,
            pings: 0,
            pong: None,
            pong_min: None,
            rtt: PathRtt::default(),
            next_measure: now,
            told_until: now,
        }
    }

    pub(super) const fn on_input(&mut self, now: Instant) {
        self.last_input = now;
        self.unanswered = 0;
    }

    /// The transmit buffer as it is before anything is appended; `is_flushed`: no control message
    /// waits outside of it.
    pub(super) const fn on_output(&mut self, now: Instant, pending_len: usize, is_flushed: bool) {
        if pending_len < self.pending_len {
            self.last_output = now;
        }
        if pending_len == 0 && is_flushed {
            self.is_held = false;
        }
        self.pending_len = pending_len;
    }

    /// The transmit buffer as it is behind what was appended.
    pub(super) const fn on_appended(&mut self, pending_len: usize) {
        self.pending_len = pending_len;
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    pub(super) const fn srtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// A sample that was not measured here.
    pub(super) fn on_told(&mut self, now: Instant, sample: Duration) {
        self.rtt.on_sample(now, sample);
        self.told_until = now + RTT_TOLD_VALID;
    }

    /// Whether the windows should have the round trip measured.
    pub(super) fn is_rtt_due(&self, now: Instant) -> bool {
        self.ping.is_none() && now >= self.next_measure && now >= self.told_until
    }

    pub(super) fn on_rtt_asked(&mut self, now: Instant) {
        let spacing = self.rtt.latest().unwrap_or_default();
        self.next_measure = now + spacing.max(RTT_SPACING);
    }

    /// Sees that idle windows are looked at by `at`.
    pub(super) fn arm_idle(&mut self, at: Instant) {
        // Later ones are found when it is due.
        if self.timers.deadline(Timer::Idle as usize).is_none() {
            self.timers.arm(Timer::Idle as usize, at);
        }
    }
}

impl Connection {
    /// Measures the round-trip time: `rtt()` changes when the answer is here. Does nothing before
    /// authentication or while an answer is awaited. Uses `ping@openssh.com` where the peer has it,
    /// else a keepalive request.
    pub fn ping(&mut self, now: Instant) {
        if !self.is_authenticated() || self.liveness.ping.is_some() || self.error().is_some() {
            return;
        }
        let number = self.liveness.pings;
        if self.transport.peer_extensions().ping {
            self.scratch.clear();
            self.scratch.put_u8(SSH2_MSG_PING);
            self.scratch.put_string(&number.to_be_bytes());
            self.queue_scratch();
        } else if !self.ask(Awaited::Keepalive { sent: Some(now) }) {
            return;
        }
        self.liveness.pings += 1;
        self.liveness.ping = Some((number, now));
    }

    /// How long the answer to the last ping took: the path, and whatever stood in front of it.
    #[must_use]
    pub const fn pong(&self) -> Option<Duration> {
        self.liveness.pong
    }

    /// The shortest answer to a ping on this connection.
    #[must_use]
    pub const fn pong_min(&self) -> Option<Duration> {
        self.liveness.pong_min
    }

    /// When something last came from the peer.
    #[must_use]
    pub const fn last_input(&self) -> Instant {
        self.liveness.last_input
    }

    /// Takes PONG's data.
    pub(super) fn on_pong(&mut self, now: Instant, data: &[u8]) -> Result<(), Error> {
        match self.liveness.ping {
            Some((number, sent)) if data == number.to_be_bytes() => {
                self.on_rtt_sample(now, now - sent);
                Ok(())
            }
            _ => Err(Error::PeerMisbehaved(PeerMisbehaved::UnexpectedReply)),
        }
    }

    pub(super) fn on_rtt_sample(&mut self, now: Instant, sample: Duration) {
        self.liveness.ping = None;
        self.liveness.pong = Some(sample);
        let shortest = self.liveness.pong_min.map_or(sample, |min| min.min(sample));
        self.liveness.pong_min = Some(shortest);
        if now >= self.liveness.told_until {
            self.liveness.rtt.on_sample(now, sample);
        }
        self.stats.rtt_count += 1;
    }

    /// Authentication is done: the login deadline goes, the others start.
    pub(super) fn on_authenticated(&mut self, now: Instant) {
        let liveness = &mut self.liveness;
        liveness.timers.disarm(Timer::Login as usize);
        if let Some(interval) = self.config.keepalive_interval {
            liveness
                .timers
                .arm(Timer::Keepalive as usize, now + interval);
        }
        if let Some(interval) = self.config.ping_interval {
            liveness.timers.arm(Timer::Ping as usize, now + interval);
        }
        self.signs.tell(Event::Authenticated);
        for slot in self.table.slots() {
            self.table.list_send(slot);
        }
        self.announce_host_keys();
    }

    /// Whatever is due at `now`.
    pub(super) fn handle_liveness(&mut self, now: Instant) {
        if self.liveness.timers.take_due(Timer::Login as usize, now) {
            self.fail(Error::Closed(Closed::LoginTimeout));
        }
        if self
            .liveness
            .timers
            .take_due(Timer::Keepalive as usize, now)
        {
            self.on_keepalive_due(now);
        }
        if self.liveness.timers.take_due(Timer::Idle as usize, now) {
            self.shrink_idle(now);
        }
        if self.liveness.timers.take_due(Timer::Ping as usize, now) {
            self.ping(now);
            if let Some(interval) = self.config.ping_interval {
                self.liveness
                    .timers
                    .arm(Timer::Ping as usize, now + interval);
            }
        }
    }

    fn on_keepalive_due(&mut self, now: Instant) {
        let Some(interval) = self.config.keepalive_interval else {
            return;
        };
        // Unopened packets are proof enough: it is this side that does not listen.
        let is_listening = !self.is_gated();
        let heard = self.liveness.last_input + interval;
        if heard > now && self.liveness.unanswered == 0 {
            self.liveness.timers.arm(Timer::Keepalive as usize, heard);
            return;
        }
        let is_under_way = self.liveness.is_held && self.liveness.last_output + interval > now;
        if is_listening && !is_under_way {
            if self.liveness.unanswered >= self.config.keepalive_count_max {
                self.fail(Error::Closed(Closed::KeepaliveTimeout));
                return;
            }
            if self.ask(Awaited::Keepalive { sent: None }) {
                self.liveness.unanswered += 1;
                self.liveness.is_held = true;
            }
        }
        self.liveness
            .timers
            .arm(Timer::Keepalive as usize, now + interval);
    }
}
