//! Segments to the peer: what leaves next, and what it says.
//!
//! RFC 9293 sections 3.8.6.2.1 (silly window avoidance, Nagle), 3.8.6.1 (zero-window probes), RFC 3168
//! section 6.1 (which segments may be marked).

use core::ops::Range;
use core::time::Duration;
use fullbore_base::Instant;

use super::timers::Timer;
use super::{Clock, Connection, State};
use crate::scoreboard::{Id, piece_len};
use crate::segment::options::{SACK_BLOCKS_MAX, SACK_BLOCKS_WITH_TIMESTAMPS_MAX};
use crate::segment::{Flags, Header, Options, SackBlock, Segment};
use crate::sender::Gate;

/// How long a small segment waits for the window to open further (RFC 9293 3.8.6.2.1: 0.1 to 1 s).
const OVERRIDE_AFTER: Duration = Duration::from_millis(200);

/// A segment that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes written.
    pub len: usize,
    /// The path may mark its packet: ECT(0) (RFC 3168).
    pub is_ect: bool,
}

/// What may leave of the stream.
enum Permit {
    /// So many bytes of new data.
    Data(u32),
    /// The FIN alone.
    Fin,
    /// Nothing.
    Nothing,
}

impl Connection {
    /// Writes the next segment into `out`; `None` when nothing is to leave now. To be called until
    /// then after every other verb. O(bytes).
    ///
    /// # Panics
    /// When `out` cannot hold the largest segment: [`super::Config::mss_max`] and 20 bytes.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        self.pace_at = None;
        if let Some(seq) = self.pending.reset.take() {
            return Some(self.emit_reset(now, seq, out));
        }
        let transmit = match self.state {
            State::Closed => None,
            State::SynSent | State::SynReceived => self.transmit_syn(now, out),
            State::TimeWait => None,
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.transmit_stream(now, out),
        };
        let transmit = transmit.or_else(|| self.transmit_ack(now, out));
        match transmit {
            Some(_) => self.stats.segments_sent += 1,
            None => self.note_held(now),
        }
        transmit
    }

    /// Adds the time since the last call to what held data back then, and looks at what does now.
    fn note_held(&mut self, now: Instant) {
        let time = now - self.held.since;
        if self.held.is_busy {
            self.stats.busy += time;
        }
        if self.held.is_by_window {
            self.stats.window_limited += time;
        }
        let (una, nxt) = (self.snd_una(), self.snd_nxt());
        let available = self.outbox.end().saturating_sub(nxt);
        let usable = (una + self.window.size).saturating_sub(nxt);
        let is_open = self.state.is_synchronized() && self.state != State::TimeWait;
        self.held = super::Held {
            since: now,
            is_busy: is_open && (available > 0 || nxt > una),
            is_by_window: is_open && usable < available.min(u64::from(self.send_mss())),
        };
    }

    fn transmit_syn(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        let lost = self.sender.recovery().next_retransmission();
        if !self.pending.is_syn && lost.is_none() {
            return None;
        }
        self.pending.is_syn = false;
        match lost {
            Some(id) => self.sender.on_retransmitted(now, id),
            None if self.snd_nxt() == 0 => self.sender.on_sent(now, 1),
            None => {}
        }
        Some(self.emit_stream(now, &(0..1), false, out))
    }

    fn transmit_stream(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        // What SACK has to say does not fit beside a full segment: it goes first, and alone.
        if self.acks.is_due() && self.has_blocks() {
            return self.transmit_ack(now, out);
        }
        if let Some(transmit) = self.transmit_repeating(now, out) {
            return Some(transmit);
        }
        if core::mem::take(&mut self.pending.is_probe)
            && let Some(transmit) = self.transmit_probe(now, out)
        {
            return Some(transmit);
        }
        if core::mem::take(&mut self.pending.is_question) {
            return Some(self.emit_question(now, out));
        }
        if self.sender.recovery().prefers_new_data() {
            let new = self.transmit_new(now, out);
            return new.or_else(|| self.transmit_lost(now, out));
        }
        let again = self.transmit_lost(now, out);
        again.or_else(|| self.transmit_new(now, out))
    }

    fn transmit_lost(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        let board = self.sender.recovery().board();
        let id = board.next_lost()?;
        if board.is_first(id) && self.is_too_long(id) {
            self.sender.recovery_mut().cut_first();
        }
        let board = self.sender.recovery().board();
        let id = board.next_lost()?;
        let range = board.record(id).range();
        if !self.may_leave(now, range.end - range.start) {
            return None;
        }
        self.sender.on_retransmitted(now, id);
        self.mtu.on_repeated(now, range.start);
        self.repeating = range;
        self.transmit_repeating(now, out)
    }

    /// The next piece of what is sent again. A segment that is longer than those which pass now - a probe
    /// for a larger MTU, or one from before the path shrank - is not sent as it was: it leaves in
    /// several, all at once, since the window and the pacing had room for the whole.
    fn transmit_repeating(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        let Range { start, end } = self.repeating;
        let start = start.max(self.snd_una());
        if start >= end {
            return None;
        }
        // A FIN takes no room.
        let data_len = end.min(self.outbox.end()).saturating_sub(start);
        let (data_len, mss) = (u32::try_from(data_len).ok()?, self.send_mss());
        let piece_end = if data_len > mss {
            start + u64::from(piece_len(data_len, mss))
        } else {
            end
        };
        self.repeating = piece_end..end;
        Some(self.emit_stream(now, &(start..piece_end), false, out))
    }

    fn is_too_long(&self, id: Id) -> bool {
        let range = self.sender.recovery().board().record(id).range();
        // A FIN takes no room.
        let data_end = range.end.min(self.outbox.end());
        data_end.saturating_sub(range.start) > u64::from(self.send_mss())
    }

    fn may_leave(&mut self, now: Instant, len: u64) -> bool {
        match self.sender.gate(now, len) {
            Gate::Open => true,
            Gate::Window => false,
            Gate::Paced(at) => {
                self.pace_at = Some(at);
                false
            }
        }
    }

    fn transmit_new(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        if let Some(transmit) = self.transmit_mtu_probe(now, out) {
            return Some(transmit);
        }
        let len = match self.permit(now) {
            Permit::Data(len) => len,
            Permit::Fin => 1,
            Permit::Nothing => return None,
        };
        if !self.may_leave(now, u64::from(len)) {
            return None;
        }
        Some(self.emit_new(now, len, out))
    }

    fn emit_new(&mut self, now: Instant, len: u32, out: &mut [u8]) -> Transmit {
        let start = self.snd_nxt();
        let end = start + u64::from(len);
        if self.sender.recovery().board().is_empty() {
            self.liveness.progress_at = now;
        }
        // The FIN goes with the last data.
        let is_last = self.fin_position() == Some(end);
        let len = len + u32::from(is_last);
        self.sender.on_sent(now, len);
        self.timers.disarm(Timer::Persist as usize);
        self.stats.bytes_sent += u64::from(len);
        self.emit_stream(now, &(start..start + u64::from(len)), true, out)
    }

    /// How much new data may leave, as far as the stream, the peer's window and the scoreboard are
    /// concerned.
    fn permit(&mut self, now: Instant) -> Permit {
        if !self.sender.recovery().board().has_room() {
            return Permit::Nothing;
        }
        let nxt = self.snd_nxt();
        let available = self.outbox.end().saturating_sub(nxt);
        let is_idle = self.sender.recovery().board().is_empty();
        if available == 0 {
            if self.fin_position() == Some(nxt) {
                return Permit::Fin;
            }
            if self.sender.recovery().pipe() < self.sender.cwnd() {
                self.sender.recovery_mut().on_app_limited();
            }
            return Permit::Nothing;
        }
        let edge = self.snd_una() + self.window.size;
        let usable = edge.saturating_sub(nxt);
        let mss = u64::from(self.send_mss());
        let len = available.min(usable).min(mss);
        let len32 = u32::try_from(len).expect("at most the MSS");
        if len == mss && len > 0 {
            return Permit::Data(len32);
        }
        let is_all = available <= usable;
        let is_held = self.config.is_nagle && !self.is_shut && !is_idle;
        if len > 0 && ((is_all && !is_held) || (!is_all && 2 * len >= self.window.size_max)) {
            return Permit::Data(len32);
        }
        // The window is the limit, and nothing outstanding will bring news of it.
        if is_idle && !is_all {
            if core::mem::take(&mut self.pending.is_override) && len > 0 {
                return Permit::Data(len32);
            }
            return self.persist(now, len32);
        }
        Permit::Nothing
    }

    /// Closed, or too small to be worth it: the timer asks, or sends what fits.
    fn persist(&mut self, now: Instant, len: u32) -> Permit {
        let slot = Timer::Persist as usize;
        if self.timers.deadline(slot).is_none() {
            let after = if len > 0 {
                OVERRIDE_AFTER
            } else {
                self.persist_interval()
            };
            self.timers.arm(slot, now + after);
        }
        Permit::Nothing
    }

    /// RFC 8985 7.3: new data if the peer's window takes it, else the last segment again.
    fn transmit_probe(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        if let Permit::Data(len) = self.permit(now) {
            let transmit = self.emit_new(now, len, out);
            self.sender.on_probe_sent(now, None);
            return Some(transmit);
        }
        let id = self.sender.recovery().board().last_not_sacked()?;
        if self.is_too_long(id) {
            self.sender.recovery_mut().cut_last();
        }
        let board = self.sender.recovery().board();
        let id = board.last_not_sacked()?;
        let range = board.record(id).range();
        self.sender.on_probe_sent(now, Some(id));
        self.mtu.on_repeated(now, range.start);
        Some(self.emit_stream(now, &range, false, out))
    }

    /// RFC 8899: a larger segment of new data, while nothing else goes on.
    fn transmit_mtu_probe(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        let size = self.mtu.wanted(now)?;
        let nxt = self.snd_nxt();
        let len = self.payload_of(size);
        let (wide, edge) = (u64::from(len), self.snd_una() + self.window.size);
        // Enough behind it that its loss shows by SACKs and not by a time-out.
        let follows = 4 * u64::from(self.send_mss());
        let available = self.outbox.end().saturating_sub(nxt);
        let is_calm = self.sender.recovery().phase() == crate::recovery::Phase::Open
            && self.sender.recovery().board().sacked().count == 0
            && self.sender.recovery().board().has_room()
            && self.sender.recovery().rtt().srtt().is_some();
        if !is_calm || available < wide + follows || nxt + wide + follows > edge {
            return None;
        }
        if self.sender.cwnd() < wide + follows || !self.may_leave(now, wide) {
            return None;
        }
        self.mtu.on_probe(nxt..nxt + wide, size);
        self.sender.forgive(nxt..nxt + wide);
        self.stats.mtu_probes += 1;
        Some(self.emit_new(now, len, out))
    }

    fn has_blocks(&self) -> bool {
        self.agreed.is_sack && (self.receiver.has_holes() || self.acks.duplicate.is_some())
    }

    /// An acknowledgement without data.
    fn transmit_ack(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        if !self.acks.is_due() || !self.state.is_synchronized() {
            return None;
        }
        let mut header = self.header(now, Flags::ACK, self.snd_nxt());
        self.add_blocks(&mut header.options);
        if let Some(timeout) = self.untold_timeout
            && header.options.sack.as_slice().is_empty()
        {
            header.options.user_timeout = Some(user_timeout_option(timeout));
            self.untold_timeout = None;
        }
        self.acks.on_sent();
        self.timers.disarm(Timer::DelayedAck as usize);
        Some(self.emit(&header, out, 0))
    }

    fn add_blocks(&self, options: &mut Options) {
        if !self.has_blocks() {
            return;
        }
        let limit = if options.timestamps.is_some() {
            SACK_BLOCKS_WITH_TIMESTAMPS_MAX
        } else {
            SACK_BLOCKS_MAX
        };
        let seq = |position| self.remote_initial.at(position);
        let duplicate = self.acks.duplicate.clone();
        for range in self.receiver.blocks(duplicate, limit) {
            let _ = options.sack.push(SackBlock {
                start: seq(range.start),
                end: seq(range.end),
            });
        }
    }

    /// A question that any peer answers: a number that it has acknowledged, and nothing in it. (RFC
    /// 9293 3.8.6.1 would send a byte of data; this is what everybody does, and it leaves the
    /// scoreboard alone.)
    fn emit_question(&mut self, now: Instant, out: &mut [u8]) -> Transmit {
        let position = self.snd_una().saturating_sub(1);
        let header = self.header(now, Flags::ACK, position);
        self.stats.questions += 1;
        self.emit(&header, out, 0)
    }

    /// The segment with the positions of `range`: SYN, data, FIN as they fall into it. `is_new`: for
    /// the first time, so that it may be marked and say that we slowed down (RFC 3168 6.1.5).
    fn emit_stream(
        &mut self,
        now: Instant,
        range: &Range<u64>,
        is_new: bool,
        out: &mut [u8],
    ) -> Transmit {
        let is_syn = range.start == 0;
        let data_end = range.end.min(self.outbox.end()).max(1);
        let data = range.start.max(1).min(data_end)..data_end;
        let is_fin = self.fin_position().is_some_and(|fin| range.end > fin);
        let is_push = !data.is_empty() && data.end == self.outbox.end();
        let is_first = self.state == State::SynSent;
        let mut flags = Flags::SYN.when(is_syn)
            | Flags::FIN.when(is_fin)
            | Flags::PSH.when(is_push)
            | Flags::ACK.when(!is_first);
        if is_syn {
            flags = flags | self.ecn_offer(is_first);
        }
        if is_new && core::mem::take(&mut self.ecn.is_cwr_due) {
            flags = flags | Flags::CWR;
        }
        let mut header = self.header(now, flags, range.start);
        if is_syn {
            header.options = self.syn_options(now);
        }
        let payload_len = usize::try_from(data.end - data.start).expect("a segment is short");
        let header_len = header.len();
        self.outbox
            .copy_to(data, &mut out[header_len..header_len + payload_len]);
        if !is_first {
            self.acks.on_sent();
            self.timers.disarm(Timer::DelayedAck as usize);
        }
        Transmit {
            is_ect: self.agreed.is_ecn && is_new && payload_len > 0,
            ..self.emit(&header, out, payload_len)
        }
    }

    const fn ecn_offer(&self, is_first: bool) -> Flags {
        if is_first {
            Flags::from_bits(Flags::ECE.bits() | Flags::CWR.bits()).when(self.config.is_ecn)
        } else {
            Flags::ECE.when(self.agreed.is_ecn)
        }
    }

    /// What every segment says. An acknowledgement in it counts as sent.
    fn header(&mut self, now: Instant, flags: Flags, position: u64) -> Header {
        let mss = self.receive_mss();
        let is_syn = flags.has(Flags::SYN);
        let scale = if is_syn { 0 } else { self.agreed.receive_scale };
        let window = self.receiver.advertise(mss, scale);
        let mut header = Header {
            source_port: self.config.local_port,
            destination_port: self.config.remote_port,
            seq: self.local_initial.at(position),
            flags,
            window,
            ..Header::default()
        };
        if flags.has(Flags::ACK) {
            self.last_ack_sent = self.receiver.rcv_nxt();
            header.ack = self.remote_initial.at(self.last_ack_sent);
            if self.ecn.is_echoing && !is_syn {
                header.flags = header.flags | Flags::ECE;
            }
        }
        header.options.timestamps = self.clock.map(|clock: Clock| clock.stamp(now));
        header
    }

    fn emit_reset(&mut self, now: Instant, seq: crate::seq::Seq, out: &mut [u8]) -> Transmit {
        // One that answers an acknowledgement needs none (RFC 9293 3.10.7.1).
        let flags = Flags::RST | Flags::ACK.when(self.state == State::Closed);
        let mut header = self.header(now, flags, 0);
        header.seq = seq;
        self.stats.segments_sent += 1;
        self.emit(&header, out, 0)
    }

    fn emit(&self, header: &Header, out: &mut [u8], payload_len: usize) -> Transmit {
        Transmit {
            len: header.emit(out, payload_len, self.config.pseudo),
            is_ect: false,
        }
    }
}

/// RFC 5482 section 2: seconds, or minutes when they do not fit.
fn user_timeout_option(timeout: Duration) -> u16 {
    let secs = timeout.as_secs();
    match u16::try_from(secs) {
        Ok(secs) if secs < 0x8000 => secs,
        Ok(_) | Err(_) => 0x8000 | u16::try_from(secs / 60).map_or(0x7fff, |m| m.min(0x7fff)),
    }
}

/// RFC 9293 3.10.7.1: the answer to a segment of a connection that does not exist.
pub(super) fn refusal(segment: &Segment<'_>) -> Option<Header> {
    let header = &segment.header;
    if header.flags.has(Flags::RST) {
        return None;
    }
    let mut answer = Header {
        source_port: header.destination_port,
        destination_port: header.source_port,
        flags: Flags::RST,
        ..Header::default()
    };
    if header.flags.has(Flags::ACK) {
        answer.seq = header.ack;
    } else {
        answer.flags = Flags::RST | Flags::ACK;
        answer.ack = header.seq.at(segment.sequence_len());
    }
    Some(answer)
}
