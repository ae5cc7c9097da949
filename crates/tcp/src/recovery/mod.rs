//! Loss: when a segment is deemed lost, when to probe, when to give up waiting, and whether all that
//! was needed.
//!
//! RFC 8985 (RACK-TLP) with SACK; RFC 6582 (NewReno) and RFC 3042 (limited transmit) without;
//! RFC 6298 section 5 (the retransmission timer), RFC 5682 (F-RTO). Owns the scoreboard and the
//! estimates of round trip and delivery rate. Does not own the congestion window, nor what is in
//! the segments.

mod counters;
mod frto;
mod newreno;
mod outcome;
pub mod prr;
mod rack;
mod timeout;
mod tlp;

pub use counters::Counters;
pub use outcome::{Ack, Lost, Outcome, Phase};
pub use timeout::Expired;

use frto::{Episode, Evidence, Frto, Next, Step};
use fullbore_base::Instant;
use rack::{Rack, Surroundings};
use tlp::{Tlp, Verdict};

use crate::rate::Delivery;
use crate::rtt::Rtt;
use crate::scoreboard::{Id, Scoreboard};

/// How often a receiver may throw away what it SACKed before its SACKs are no longer believed:
/// bounds what clearing the scoreboard can cost.
const RENEGES_MAX: u32 = 3;

/// Loss recovery of one direction of a connection.
#[derive(Debug)]
pub struct Recovery {
    board: Scoreboard,
    rtt: Rtt,
    delivery: Delivery,
    rack: Rack,
    tlp: Tlp,
    phase: Phase,
    is_sack: bool,
    is_tail_probed: bool,
    mss: u32,
    /// Without SACK: duplicate acknowledgements, each for a segment that left the network.
    dupacks: u32,
    /// The highest `recover` of all phases: one flight is not reduced for twice (RFC 6582 3.2).
    recover_max: u64,
    frto: Option<Frto>,
    episode: Option<Episode>,
    /// When the next segment is due as lost, unless it arrives.
    reorder_at: Option<Instant>,
    /// Since when the retransmission timer runs.
    rto_from: Option<Instant>,
    reneges: u32,
    counters: Counters,
}

impl Recovery {
    /// Nothing sent yet; segments carry up to `mss` bytes, and the peer sends SACK or not.
    #[must_use]
    pub fn new(mss: u32, is_sack: bool) -> Self {
        Self::with_board(Scoreboard::default(), mss, is_sack)
    }

    /// The same with an empty `board` that has its own limit.
    #[must_use]
    pub fn with_board(board: Scoreboard, mss: u32, is_sack: bool) -> Self {
        Self {
            board,
            rtt: Rtt::default(),
            delivery: Delivery::default(),
            rack: Rack::default(),
            tlp: Tlp::default(),
            phase: Phase::Open,
            is_sack,
            is_tail_probed: true,
            mss,
            dupacks: 0,
            recover_max: 0,
            frto: None,
            episode: None,
            reorder_at: None,
            rto_from: None,
            reneges: 0,
            counters: Counters::default(),
        }
    }

    /// What the handshake agreed: from now on `mss` and SACK are these.
    pub const fn set_agreed(&mut self, mss: u32, is_sack: bool) {
        self.mss = mss;
        self.is_sack = is_sack;
    }

    /// Whether a silent tail is probed for (RFC 8985 7); it is unless told otherwise.
    pub const fn set_tail_probed(&mut self, is_probed: bool) {
        self.is_tail_probed = is_probed;
    }

    /// Everything before `position` was sent and acknowledged elsewhere.
    ///
    /// # Panics
    /// When something was sent here already.
    pub fn start_at(&mut self, position: u64) {
        self.board.start_at(position);
    }

    /// The largest segment changed.
    pub const fn set_mss(&mut self, mss: u32) {
        self.mss = mss;
    }

    /// Cuts the first segment outstanding, which is longer than those that pass now. O(pieces).
    pub fn cut_first(&mut self) {
        self.board.cut_first(self.mss);
    }

    /// The same of the last.
    pub fn cut_last(&mut self) {
        self.board.cut_last(self.mss);
    }

    /// Gives memory back when nothing is outstanding.
    pub fn release(&mut self) {
        self.board.release();
    }

    /// The segments outstanding.
    #[must_use]
    pub const fn board(&self) -> &Scoreboard {
        &self.board
    }

    /// The round trip's estimates.
    #[must_use]
    pub const fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// The same, for the handshake to change.
    pub const fn rtt_mut(&mut self) -> &mut Rtt {
        &mut self.rtt
    }

    /// The delivery counters.
    #[must_use]
    pub const fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// Where the connection stands.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the path was seen to reorder.
    #[must_use]
    pub const fn is_reordering_seen(&self) -> bool {
        self.rack.is_reordering_seen()
    }

    /// Bytes deemed to be on their way.
    #[must_use]
    pub fn pipe(&self) -> u64 {
        let left = u64::from(self.dupacks) * u64::from(self.mss);
        self.board.pipe().bytes.saturating_sub(left)
    }

    /// Whether new data goes out ahead of retransmissions: F-RTO waits for its acknowledgement
    /// (RFC 5682 section 3.1, step 2b).
    #[must_use]
    pub fn prefers_new_data(&self) -> bool {
        self.frto.is_some_and(|f| f.step == Step::Advanced)
    }

    /// What to send again next.
    #[must_use]
    pub fn next_retransmission(&self) -> Option<Id> {
        self.board.next_lost()
    }

    /// The application has nothing to send although there is room in the window.
    pub fn on_app_limited(&mut self) {
        if self.board.lost().count == 0 {
            self.delivery.on_app_limited(self.board.pipe().bytes);
        }
    }

    /// The next `len` positions are sent for the first time.
    pub fn on_sent(&mut self, now: Instant, len: u32) {
        let pipe = self.board.pipe().bytes;
        let snapshot = self.delivery.on_sending(now, len, pipe);
        self.board.on_sent(now, len, snapshot);
        self.rto_from.get_or_insert(now);
        self.arm_probe(now);
    }

    /// The segment `id` is sent again; in several, if it is longer than those that pass now.
    pub fn on_retransmitted(&mut self, now: Instant, id: Id) {
        let record = self.board.record(id);
        let len = u32::try_from(record.range().end - record.range().start);
        let len = len.expect("a segment is short");
        let is_first = record.range().start == self.board.snd_una();
        let pipe = self.board.pipe().bytes;
        let snapshot = self.delivery.on_sending(now, len, pipe);
        self.board.on_retransmitted(now, id, snapshot);
        // A FIN beside full segments takes none of its own.
        let segments = len.div_ceil(self.mss + 1);
        self.counters.retransmissions += u64::from(segments);
        self.counters.bytes_retransmitted += u64::from(len);
        if let Some(episode) = &mut self.episode {
            episode.on_retransmission(now, segments);
        }
        // What the timer waits for is on its way anew.
        if is_first || self.rto_from.is_none() {
            self.rto_from = Some(now);
        }
    }

    /// Reads an acknowledgement. `on_lost` sees each segment that is deemed lost by it.
    ///
    /// Costs O(blocks x log n) and O(1) per segment newly delivered or lost.
    pub fn on_ack(
        &mut self,
        now: Instant,
        ack: &Ack<'_>,
        mut on_lost: impl FnMut(&Lost),
    ) -> Outcome {
        let examined = self.board.examined();
        let mut outcome = Outcome::default();
        let is_original_delivered = self.apply(now, ack, &mut outcome);
        let has_advanced = outcome.applied.acked_bytes > 0;
        self.take_duplicate(ack, &mut outcome);
        self.probe_verdict(ack, &mut outcome);
        self.forget_false_alarm(now, &mut outcome);
        self.end_phase(&mut outcome);
        let evidence = Evidence {
            snd_una: self.board.snd_una(),
            has_advanced,
            is_original_delivered,
        };
        self.judge_timeout(&evidence, &mut outcome);
        outcome.lost_bytes = if self.is_sack {
            self.detect_losses(now, &mut on_lost)
        } else {
            self.count_duplicates(ack, &mut outcome, &mut on_lost)
        };
        if outcome.lost_bytes > 0 && self.phase == Phase::Open {
            self.enter_fast();
            outcome.has_entered = true;
        }
        self.rearm(now, has_advanced);
        let spent = self.board.examined() - examined;
        self.counters.on_ack(ack.blocks, spent);
        outcome
    }

    /// The scoreboard, the estimates and RACK. Returns whether F-RTO's evidence came.
    fn apply(&mut self, now: Instant, ack: &Ack<'_>, outcome: &mut Outcome) -> bool {
        let min_rtt = self.rtt.min();
        let recover = self.frto.map_or(0, |frto| frto.recover);
        let mut is_original_delivered = false;
        let ranges = if self.is_sack {
            ack.blocks.ranges()
        } else {
            &[]
        };
        let (rack, delivery) = (&mut self.rack, &mut self.delivery);
        let (episode, is_sack) = (&mut self.episode, self.is_sack);
        let snd_una = self.board.snd_una();
        let mut is_proven_needless = false;
        let applied = self.board.apply(ack.position, ranges, |record| {
            rack.on_delivered(now, record, ack.echoed_at, min_rtt);
            delivery.on_delivered(record);
            if record.transmissions() == 2
                && let Some(episode) = episode
            {
                let sent_at = record.sent_at();
                let is_first = record.range().start == snd_una;
                let is_too_soon = is_sack && min_rtt.is_some_and(|min| now - sent_at < min);
                is_proven_needless |= is_too_soon && episode.on_too_soon(sent_at);
                is_proven_needless |=
                    is_first && ack.position > snd_una && episode.on_echo(sent_at, ack.echoed_at);
            }
            is_original_delivered |= !record.is_retransmitted() && record.end() <= recover;
        });
        self.rack.on_ack_end();
        let min_rtt = min_rtt.unwrap_or_default();
        outcome.sample = self
            .delivery
            .take_sample(now, applied.delivered_bytes, min_rtt);
        outcome.applied = applied;
        outcome.delivered_bytes = applied.delivered_bytes;
        if is_proven_needless {
            self.learn_lateness(now);
            self.undo(outcome);
        }
        if applied.acked_bytes > 0 {
            self.rtt.on_progress();
        }
        // Karn: a segment sent twice tells only through its timestamp.
        let by_timestamp = ack.echoed_at.filter(|_| applied.acked_bytes > 0);
        let by_timestamp = by_timestamp.map(|at| now - at);
        if let Some(rtt) = outcome.sample.rtt.or(by_timestamp) {
            let in_flight = outcome.sample.tx_in_flight.max(self.board.pipe().bytes);
            let per_rtt = in_flight / (2 * u64::from(self.mss).max(1));
            let per_rtt = u32::try_from(per_rtt).unwrap_or(u32::MAX / 8);
            self.rtt.on_sample(now, rtt, per_rtt.clamp(1, 1 << 20));
        }
        is_original_delivered
    }

    /// RFC 2883: something arrived twice. A duplicate that no retransmission of ours can have
    /// caused is the network's doing, and no evidence.
    fn take_duplicate(&mut self, ack: &Ack<'_>, outcome: &mut Outcome) {
        let Some(duplicate) = &ack.blocks.duplicate else {
            return;
        };
        let counters = &mut self.counters;
        if !self.is_sack || counters.spurious_retransmissions >= counters.retransmissions {
            return;
        }
        counters.spurious_retransmissions += 1;
        self.rack
            .on_duplicate(self.board.snd_una(), self.board.snd_nxt());
        let episode = self.episode.as_mut();
        if episode.is_some_and(|e| e.on_duplicate(duplicate.start)) {
            self.undo(outcome);
        }
    }

    fn probe_verdict(&mut self, ack: &Ack<'_>, outcome: &mut Outcome) {
        let duplicate_end = ack.blocks.duplicate.as_ref().map(|d| d.end);
        let is_bare = ack.is_duplicate && ack.blocks.ranges().is_empty();
        let verdict = self.tlp.on_ack(ack.position, duplicate_end, is_bare);
        outcome.is_probe_repaired = verdict == Verdict::Repaired && self.phase == Phase::Open;
    }

    /// Everything that was deemed lost arrived before it was sent again: it was only late.
    fn forget_false_alarm(&mut self, now: Instant, outcome: &mut Outcome) {
        let has_retransmitted = self.episode.is_some_and(|e| e.has_retransmitted());
        let is_fast = matches!(self.phase, Phase::Fast { .. });
        if is_fast && self.board.lost().count == 0 && !has_retransmitted {
            self.learn_lateness(now);
            self.undo(outcome);
        }
    }

    fn end_phase(&mut self, outcome: &mut Outcome) {
        let (Phase::Fast { recover } | Phase::Timeout { recover }) = self.phase else {
            return;
        };
        if self.board.snd_una() >= recover {
            self.phase = Phase::Open;
            self.frto = None;
            self.dupacks = 0;
            self.rack.on_recovery_end();
            outcome.has_left = true;
        }
    }

    fn judge_timeout(&mut self, evidence: &Evidence, outcome: &mut Outcome) {
        match self.frto.map(|frto| frto.on_ack(evidence)) {
            Some(Next::Wait(frto)) => self.frto = Some(frto),
            Some(Next::Spurious) => self.undo(outcome),
            Some(Next::Genuine) => self.frto = None,
            None => {}
        }
    }

    /// A segment that was deemed lost has only just arrived: RACK learns how late that may be.
    fn learn_lateness(&mut self, now: Instant) {
        let lateness = self.episode.and_then(|episode| episode.lateness(now));
        if let Some(lateness) = lateness {
            self.rack.on_false_alarm(lateness, self.rtt.min());
        }
    }

    /// The recovery was needless: what was deemed lost is on its way after all.
    fn undo(&mut self, outcome: &mut Outcome) {
        self.board.restore_lost();
        self.counters.undone += 1;
        self.episode = None;
        self.frto = None;
        self.dupacks = 0;
        outcome.has_left |= self.phase != Phase::Open;
        outcome.is_undone = true;
        self.phase = Phase::Open;
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings {
            is_recovering: self.phase != Phase::Open,
            sacked_count: self.board.sacked().count,
            min_rtt: self.rtt.min(),
            srtt: self.rtt.srtt(),
        }
    }

    /// RFC 8985 6.2 step 5, on segments in the order of transmission.
    fn detect_losses(&mut self, now: Instant, on_lost: &mut impl FnMut(&Lost)) -> u64 {
        let reo_wnd = self.rack.reo_wnd(&self.surroundings());
        let (rack, delivery) = (&self.rack, &mut self.delivery);
        let before = delivery.lost();
        let stop = self.board.lose_oldest(|record| {
            rack.judge(now, reo_wnd, record)?;
            tell_lost(record, delivery, on_lost);
            Ok(())
        });
        self.reorder_at = stop.flatten();
        self.delivery.lost() - before
    }

    fn enter_fast(&mut self) {
        let recover = self.board.snd_nxt();
        self.phase = Phase::Fast { recover };
        self.recover_max = recover;
        let lost = self.board.next_lost().map(|id| self.board.record(id));
        let expected_at = lost
            .zip(self.rack.newest_rtt())
            .map(|(lost, rtt)| lost.sent_at() + rtt);
        self.episode = Some(Episode::new(self.board.snd_una(), expected_at));
        self.tlp.on_recovery();
        self.counters.fast_recoveries += 1;
    }

    /// Deadline of the retransmission timer.
    fn rto_at(&self) -> Option<Instant> {
        self.rto_from.map(|from| from + self.rtt.rto())
    }

    /// The timers after an acknowledgement (RFC 6298 5.2, 5.3; RFC 8985 7.2).
    fn rearm(&mut self, now: Instant, has_advanced: bool) {
        if self.board.is_empty() {
            (self.rto_from, self.reorder_at) = (None, None);
            self.tlp.disarm();
        } else if has_advanced {
            self.rto_from = Some(now);
            self.arm_probe(now);
        } else if self.board.sacked().count > 0 {
            self.tlp.disarm();
        }
    }

    /// RFC 8985 7.2: a probe is for a flight of which nothing is known to be missing.
    fn arm_probe(&mut self, now: Instant) {
        let is_able = self.is_sack && self.is_tail_probed;
        let is_wanted = is_able && self.phase == Phase::Open && self.board.sacked().count == 0;
        match self.rto_at().filter(|_| is_wanted) {
            Some(rto_at) => {
                let is_single = self.board.len() == 1;
                self.tlp.arm(now, self.rtt.srtt(), is_single, rto_at);
            }
            None => self.tlp.disarm(),
        }
    }
}

fn tell_lost(
    record: &crate::scoreboard::Record,
    delivery: &mut Delivery,
    on_lost: &mut impl FnMut(&Lost),
) {
    let bytes = record.end() - record.range().start;
    delivery.on_lost(bytes);
    on_lost(&Lost {
        bytes,
        snapshot: *record.snapshot(),
        lost_total: delivery.lost(),
    });
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
