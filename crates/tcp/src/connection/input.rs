//! Segments of the peer, once both streams are numbered.
//!
//! RFC 9293 section 3.10.7.4 in its order, RFC 5961 (what may end a connection), RFC 7323 section 5
//! (PAWS).

use fullbore_base::Instant;

use super::config::{CHALLENGE_INTERVAL, CHALLENGES_MAX, USER_TIMEOUT_MAX, USER_TIMEOUT_MIN};
use super::timers::Timer;
use super::{Connection, Error, Event, State};
use crate::recovery::{Ack, Outcome};
use crate::scoreboard::{Blocks, Frame};
use crate::segment::{Flags, Header, Segment};

impl Connection {
    /// Takes a segment of the peer. `is_marked`: the path marked its packet (RFC 3168 CE).
    ///
    /// Costs O(bytes + blocks x log n).
    pub fn handle_segment(&mut self, now: Instant, segment: &Segment<'_>, is_marked: bool) {
        self.stats.segments_received += 1;
        match self.state {
            State::Closed => {}
            State::SynSent => self.handle_syn_sent(now, segment),
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => self.handle_synchronized(now, segment, is_marked),
        }
    }

    fn handle_synchronized(&mut self, now: Instant, segment: &Segment<'_>, is_marked: bool) {
        let header = &segment.header;
        let rcv_nxt = self.receiver.rcv_nxt();
        let position = self.remote_initial.position(header.seq, rcv_nxt);
        if !self.is_of_this_turn(now, header) {
            return;
        }
        let len = segment.sequence_len();
        let acceptable = position.filter(|&p| self.is_acceptable(p, len));
        if header.flags.has(Flags::RST) {
            self.handle_reset(now, acceptable.is_some(), position == Some(rcv_nxt));
            return;
        }
        if header.flags.has(Flags::SYN) {
            self.handle_syn_again(now, segment, position);
            return;
        }
        let Some(position) = acceptable else {
            self.handle_unacceptable(now, segment, position);
            return;
        };
        if !header.flags.has(Flags::ACK) {
            return;
        }
        self.take_timestamp(now, header, position);
        if !self.handle_ack(now, segment, position) {
            return;
        }
        self.liveness.heard_at = now;
        self.liveness.questions = 0;
        self.liveness.persist_questions = 0;
        self.take_marks(header, is_marked, segment.payload.len());
        self.take_user_timeout(header);
        self.handle_data(now, segment, position);
        self.arm_keepalive(now);
    }

    /// RFC 7323 5.3 R1: one of an earlier turn of the numbers is answered and dropped. 3.2: once
    /// timestamps are agreed, a segment without one is dropped in silence.
    fn is_of_this_turn(&mut self, now: Instant, header: &Header) -> bool {
        let Some(clock) = self.clock.filter(|_| !header.flags.has(Flags::RST)) else {
            return true;
        };
        let Some(timestamps) = header.options.timestamps else {
            self.stats.paws_drops += 1;
            return false;
        };
        let is_old = clock.is_old(now, timestamps.value);
        if is_old {
            self.stats.paws_drops += 1;
            self.challenge(now);
        }
        !is_old
    }

    /// RFC 9293 3.10.7.4, first: the four cases of table 6.
    fn is_acceptable(&self, position: u64, len: u64) -> bool {
        let nxt = self.receiver.rcv_nxt();
        let edge = self.receiver.edge().max(nxt);
        let is_inside = |p: u64| nxt <= p && p < edge;
        match (len, edge > nxt) {
            (0, false) => position == nxt,
            (0, true) => is_inside(position),
            (_, false) => false,
            (_, true) => is_inside(position) || is_inside(position + len - 1),
        }
    }

    /// RFC 5961 section 3: only the very number expected ends the connection. RFC 1337: none ends the
    /// wait of the side that closed first.
    fn handle_reset(&mut self, now: Instant, is_acceptable: bool, is_exact: bool) {
        if self.state == State::TimeWait {
            return;
        }
        if is_exact {
            let error = match self.state {
                // Opened by both: the peer changed its mind.
                State::SynReceived => Error::Refused,
                State::Closing | State::LastAck => {
                    self.finish(None);
                    return;
                }
                State::SynSent
                | State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
                | State::TimeWait
                | State::Closed => Error::Reset,
            };
            self.finish(Some(error));
        } else if is_acceptable {
            self.challenge(now);
        }
    }

    /// Outside the window: answered, so that a peer that is out of step learns where we are. With a
    /// closed window a valid acknowledgement still counts (RFC 9293 3.10.7.4).
    fn handle_unacceptable(&mut self, now: Instant, segment: &Segment<'_>, position: Option<u64>) {
        let nxt = self.receiver.rcv_nxt();
        let len = segment.sequence_len();
        if let Some(position) = position
            && len > 0
        {
            if position + len <= nxt {
                // RFC 2883: it arrived before.
                let end = (position + segment.payload.len() as u64).max(position + 1);
                self.acks.duplicate = Some(position..end);
            }
            let is_shut_out = position == nxt && self.receiver.window() == 0;
            if is_shut_out && segment.header.flags.has(Flags::ACK) {
                let _ = self.handle_ack(now, segment, nxt);
            }
            if self.state == State::TimeWait && segment.header.flags.has(Flags::FIN) {
                self.timers
                    .arm(Timer::TimeWait as usize, now + self.config.time_wait);
            }
            self.acks.demand();
        } else {
            self.challenge(now);
        }
    }

    /// An acknowledgement for a segment that ought not to be there: not more than
    /// [`CHALLENGES_MAX`] in [`CHALLENGE_INTERVAL`].
    pub(super) fn challenge(&mut self, now: Instant) {
        let challenges = &mut self.challenges;
        if now - challenges.since >= CHALLENGE_INTERVAL {
            challenges.since = now;
            challenges.count = 0;
        }
        challenges.count += 1;
        if challenges.count <= CHALLENGES_MAX {
            self.stats.challenges += 1;
            self.acks.demand();
        }
    }

    fn take_timestamp(&mut self, now: Instant, header: &Header, position: u64) {
        let (Some(clock), Some(timestamps)) = (&mut self.clock, header.options.timestamps) else {
            return;
        };
        if position <= self.last_ack_sent {
            clock.update(now, timestamps.value);
        }
        // A segment with data answers ours: the receiver's own round trip.
        if let Some(sent_at) = clock.sent_at(now, timestamps.echo) {
            self.receiver.on_echo(timestamps.echo, now - sent_at);
        }
    }

    /// RFC 9293 3.10.7.4, fifth. Returns whether the rest of the segment counts.
    pub(super) fn handle_ack(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        position: u64,
    ) -> bool {
        let header = &segment.header;
        let (una, nxt) = (self.snd_una(), self.snd_nxt());
        let ack = self.local_initial.position(header.ack, una);
        if self.state == State::SynReceived {
            if ack.is_none_or(|ack| ack == 0 || ack > nxt) {
                self.pending.reset = Some(header.ack);
                return false;
            }
            self.take_window(header, position);
            self.establish(now);
        }
        // RFC 5961 section 5: an acknowledgement from a window ago is an old one, no older.
        let oldest = una.saturating_sub(self.window.size_max);
        let Some(ack) = ack.filter(|&ack| oldest <= ack && ack <= nxt) else {
            self.challenge(now);
            return false;
        };
        let before = self.window.size;
        if ack >= una {
            self.update_window(header, position, ack);
        }
        let is_duplicate = ack == una
            && segment.payload.is_empty()
            && !header.flags.has(Flags::FIN)
            && self.window.size == before
            && nxt > una;
        self.apply_ack(now, header, ack, is_duplicate);
        true
    }

    pub(super) fn take_ack_of_syn(&mut self, now: Instant, header: &Header) {
        self.apply_ack(now, header, 1, false);
    }

    fn apply_ack(&mut self, now: Instant, header: &Header, ack: u64, is_duplicate: bool) {
        let frame = Frame {
            initial: self.local_initial,
            snd_una: self.snd_una(),
            snd_nxt: self.snd_nxt(),
        };
        let blocks = Blocks::read(&frame, ack, header.options.sack.as_slice());
        let timestamps = header.options.timestamps;
        let echoed_at = self
            .clock
            .zip(timestamps)
            .and_then(|(clock, t)| clock.sent_at(now, t.echo));
        let ack = Ack {
            position: ack.max(frame.snd_una),
            blocks: &blocks,
            echoed_at,
            is_duplicate,
        };
        let is_syn = header.flags.has(Flags::SYN);
        let is_ece = self.agreed.is_ecn && header.flags.has(Flags::ECE) && !is_syn;
        let outcome = self.sender.on_ack(now, &ack, is_ece);
        if outcome.is_mark_answered || outcome.has_entered || outcome.is_probe_repaired {
            self.on_window_reduced();
        }
        self.after_ack(now, &outcome);
    }

    /// RFC 3168 6.1.2: for whatever reason it was, the peer learns it with the next new data. Once for
    /// each time: a second notice could hide a mark that came between.
    pub(super) const fn on_window_reduced(&mut self) {
        self.ecn.is_cwr_due = self.agreed.is_ecn;
    }

    fn after_ack(&mut self, now: Instant, outcome: &Outcome) {
        let una = self.snd_una();
        self.stats.bytes_acked += outcome.applied.acked_bytes;
        if outcome.applied.acked_bytes > 0 {
            self.liveness.progress_at = now;
            self.outbox.forget_before(una.min(self.outbox.end()).max(1));
            if self.is_write_blocked && self.writable_bytes() > 0 {
                self.is_write_blocked = false;
                self.events.push(Event::Writable);
            }
            if self.outbox.is_empty() {
                let at = now + super::timers::RELEASE_AFTER;
                self.timers.arm(Timer::Release as usize, at);
            }
        }
        if self.mtu.on_ack(una) {
            self.sender.set_mss(self.send_mss());
        }
        if self.fin_position().is_some_and(|fin| una > fin) {
            self.on_fin_acked(now);
        }
    }

    fn on_fin_acked(&mut self, now: Instant) {
        let state = self.state.after_fin_acked();
        if state == self.state {
            return;
        }
        match state {
            State::Closed => self.finish(None),
            State::TimeWait => self.enter_time_wait(now),
            State::FinWait2
            | State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.state = state,
        }
    }

    fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers = fullbore_base::Timers::default();
        let at = now + self.config.time_wait;
        self.timers.arm(Timer::TimeWait as usize, at);
        self.outbox.release();
        self.sender.recovery_mut().release();
    }

    /// SND.WND from a SYN, unscaled.
    pub(super) fn take_window(&mut self, header: &Header, position: u64) {
        let is_syn = header.flags.has(Flags::SYN);
        let scale = if is_syn { 0 } else { self.agreed.send_scale };
        self.window.size = u64::from(header.window) << scale;
        self.window.size_max = self.window.size_max.max(self.window.size);
        self.window.last_seq = position;
    }

    /// RFC 9293 3.10.7.4: SND.WND follows segments that are not older than the last that did.
    fn update_window(&mut self, header: &Header, position: u64, ack: u64) {
        let window = &self.window;
        let is_newer =
            window.last_seq < position || (window.last_seq == position && window.last_ack <= ack);
        if is_newer {
            let was_closed = self.window.size == 0;
            self.take_window(header, position);
            self.window.last_ack = ack;
            if was_closed && self.window.size > 0 {
                self.liveness.persist_backoff = 0;
                self.timers.disarm(Timer::Persist as usize);
            }
        }
    }

    /// RFC 3168 section 6.1.3.
    fn take_marks(&mut self, header: &Header, is_marked: bool, payload_len: usize) {
        if !self.agreed.is_ecn {
            return;
        }
        if header.flags.has(Flags::CWR) {
            self.ecn.is_echoing = false;
        }
        if is_marked {
            self.stats.marks += 1;
        }
        self.ecn.is_echoing |= is_marked && payload_len > 0;
    }

    /// RFC 5482 section 3.1: the longer of both, within limits.
    fn take_user_timeout(&mut self, header: &Header) {
        let Some(option) = header.options.user_timeout else {
            return;
        };
        let unit = if option & 0x8000 == 0 { 1 } else { 60 };
        let secs = u64::from(option & 0x7fff) * unit;
        let remote = core::time::Duration::from_secs(secs);
        let local = self.config.user_timeout.unwrap_or_default();
        let longer = remote.max(local);
        self.liveness.user_timeout = Some(longer.clamp(USER_TIMEOUT_MIN, USER_TIMEOUT_MAX));
    }

    /// RFC 9293 3.10.7.4, seventh and eighth: data, and the FIN behind it.
    fn handle_data(&mut self, now: Instant, segment: &Segment<'_>, position: u64) {
        let is_fin = segment.header.flags.has(Flags::FIN);
        if !self.state.takes_data() || (segment.payload.is_empty() && !is_fin) {
            return;
        }
        let had_holes = self.receiver.has_holes();
        let readable = self.receiver.readable_bytes();
        let len = segment.payload.len() as u64;
        let arrival = self.receiver.on_data(now, position, segment.payload);
        self.stats.bytes_received += arrival.new_bytes;
        let is_plain = arrival.advanced == len && !had_holes && arrival.duplicate.is_none();
        if arrival.duplicate.is_some() {
            self.acks.duplicate = arrival.duplicate;
        }
        if len > 0 {
            self.acks.on_data(now, len, self.receive_mss(), is_plain);
            self.arm_delayed_ack(now);
        }
        if self.receiver.readable_bytes() > readable {
            self.events.push(Event::Readable);
        }
        // A FIN beyond the window is not there yet.
        let end = position + len;
        if is_fin && (end < self.receiver.edge() || end == self.receiver.rcv_nxt()) {
            let _ = self.receiver.on_fin(end);
            self.acks.demand();
        }
        if self.receiver.is_finished() {
            self.on_finished(now);
        }
    }

    fn on_finished(&mut self, now: Instant) {
        self.events.push(Event::Finished);
        self.acks.demand();
        match self.state.after_fin() {
            State::TimeWait => self.enter_time_wait(now),
            state => self.state = state,
        }
    }
}
