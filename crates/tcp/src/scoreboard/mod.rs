//! What was sent and is not yet cumulatively acknowledged: where each segment is, and how much is
//! where.
//!
//! RFC 2018 section 5, RFC 6675 (pipe, NextSeg), RFC 8985 (the order of transmission). Which segment
//! is lost is decided elsewhere ([`crate::recovery`]); here stands what that means.
//!
//! No operation walks what it does not change. A record is in one of three states, and found through
//! two sets of names and one list:
//!
//! - records not SACKed, by name: a block is applied to the members inside it, so what was SACKed
//!   before costs nothing, whether it is one range or a hundred thousand;
//! - records lost, by name: the lowest is what to retransmit next (NextSeg rule 1);
//! - records in flight, in the order of transmission: those due as lost are at its front.
//!
//! A record is never split: a block is rounded inward to whole records (RFC 2018 marks segments,
//! not bytes), so a receiver cannot shatter the queue. Example: with records 0..10, 10..20, 20..30
//! a block 5..25 marks 10..20.

mod blocks;
mod cut;
mod id_set;
mod losses;
mod record;
mod records;

pub use blocks::{Blocks, Frame};
pub use cut::piece_len;
pub use record::{Id, Record, Snapshot, State};

use core::ops::Range;

use fullbore_base::Instant;
use id_set::IdSet;
use records::Records;

/// Records held at once: a window of 256 MiB in segments of 1 KiB. Bounds the memory that a peer
/// with a tiny MSS and a huge window can make us use. The pieces of two come on top, when the path's MTU
/// shrinks (see [`Scoreboard::cut_first`]).
pub const RECORDS_MAX: usize = 1 << 18;

/// Memory for so many records is kept when a connection is idle.
const RECORDS_KEPT_IDLE: usize = 32;

/// How much is in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes.
    pub bytes: u64,
    /// Segments.
    pub count: u32,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.count += 1;
    }

    fn remove(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.count -= 1;
    }
}

/// What one acknowledgement changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Bytes that the cumulative acknowledgement moved past.
    pub acked_bytes: u64,
    /// Bytes that arrived according to this acknowledgement and to none before it.
    pub delivered_bytes: u64,
    /// Whole segments of them.
    pub delivered_count: u32,
    /// Those of them that were SACKed, not cumulatively acknowledged.
    pub sacked_count: u32,
    /// Bytes delivered that had been deemed lost and were not yet retransmitted.
    pub lost_delivered_bytes: u64,
    /// The cumulative acknowledgement stops inside what was SACKed: a receiver that still has
    /// that data would acknowledge it.
    pub is_reneging: bool,
}

/// The segments outstanding.
#[derive(Debug)]
pub struct Scoreboard {
    records: Records,
    records_max: usize,
    not_sacked: IdSet,
    lost_ids: IdSet,
    snd_una: u64,
    snd_nxt: u64,
    next_order: u64,
    pipe: Tally,
    sacked: Tally,
    lost: Tally,
    /// In flight for at least the second time; part of the pipe.
    retransmitted: Tally,
    examined: u64,
}

impl Default for Scoreboard {
    fn default() -> Self {
        Self::new(RECORDS_MAX)
    }
}

impl Scoreboard {
    /// Nothing sent yet; `records_max` segments may be outstanding, and at least one.
    #[must_use]
    pub fn new(records_max: usize) -> Self {
        Self {
            records: Records::default(),
            records_max: records_max.max(1),
            not_sacked: IdSet::default(),
            lost_ids: IdSet::default(),
            snd_una: 0,
            snd_nxt: 0,
            next_order: 0,
            pipe: Tally::default(),
            sacked: Tally::default(),
            lost: Tally::default(),
            retransmitted: Tally::default(),
            examined: 0,
        }
    }

    /// Everything before `position` was sent and acknowledged elsewhere.
    ///
    /// # Panics
    /// When something was sent here already.
    pub fn start_at(&mut self, position: u64) {
        assert!(self.snd_nxt == 0, "the stream has begun");
        (self.snd_una, self.snd_nxt) = (position, position);
    }

    /// The first position not cumulatively acknowledged.
    #[must_use]
    pub const fn snd_una(&self) -> u64 {
        self.snd_una
    }

    /// The position behind the last one sent.
    #[must_use]
    pub const fn snd_nxt(&self) -> u64 {
        self.snd_nxt
    }

    /// What is deemed to be on its way (RFC 6675's pipe).
    #[must_use]
    pub const fn pipe(&self) -> Tally {
        self.pipe
    }

    /// What the receiver says it holds above the cumulative acknowledgement.
    #[must_use]
    pub const fn sacked(&self) -> Tally {
        self.sacked
    }

    /// What is deemed lost and not yet retransmitted.
    #[must_use]
    pub const fn lost(&self) -> Tally {
        self.lost
    }

    /// What is on its way again; part of the pipe.
    #[must_use]
    pub const fn retransmitted(&self) -> Tally {
        self.retransmitted
    }

    /// Segments outstanding, in whatever state.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether everything sent is acknowledged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.snd_una == self.snd_nxt
    }

    /// Whether another segment may be recorded. What is recorded may always be sent again.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.records.len() < self.records_max
    }

    /// Records looked at since the scoreboard was made: the cost of all its work.
    #[must_use]
    pub const fn examined(&self) -> u64 {
        self.examined
    }

    /// Gives memory back when nothing is outstanding: for a connection that has been idle for a while, not
    /// for one whose flight was acknowledged all at once.
    pub fn release(&mut self) {
        if self.records.len() == 0 {
            self.records.release();
            self.not_sacked.shrink();
            self.lost_ids.shrink();
        }
    }

    /// The record called `id`, which must be held.
    #[must_use]
    pub fn record(&self, id: Id) -> &Record {
        self.records.record(id)
    }

    /// The record at the cumulative acknowledgement.
    #[must_use]
    pub fn first(&self) -> Option<&Record> {
        self.records.first()
    }

    /// The record sent longest ago, of those in flight.
    #[must_use]
    pub fn oldest_in_flight(&self) -> Option<&Record> {
        self.records.oldest().map(|id| self.records.record(id))
    }

    /// The last record of the stream, unless the receiver holds it.
    #[must_use]
    pub fn last_not_sacked(&self) -> Option<Id> {
        let index = self.records.len().checked_sub(1)?;
        let is_held = self.records.at(index).state == State::Sacked;
        (!is_held).then(|| self.records.name(index))
    }

    /// The lost record lowest in the stream: what to retransmit next. O(log n).
    #[must_use]
    pub fn next_lost(&self) -> Option<Id> {
        self.lost_ids.next_in(self.records.names()).map(Id::new)
    }

    /// Records that the next `len` positions of the stream were sent. O(1) amortised.
    ///
    /// # Panics
    /// When `len` is zero, or [`Scoreboard::has_room`] says no.
    pub fn on_sent(&mut self, now: Instant, len: u32, snapshot: Snapshot) {
        assert!(
            len > 0,
            "a segment that takes no sequence space is not kept"
        );
        assert!(self.has_room(), "the caller asks for room first");
        let (count, names) = (self.records.len() + 1, self.records.names());
        self.not_sacked.reserve(count, names.clone());
        self.lost_ids.reserve(count, names);
        let id = self.records.push(Record {
            start: self.snd_nxt,
            len,
            state: State::InFlight,
            transmissions: 1,
            order: self.next_order,
            sent_at: now,
            snapshot,
        });
        self.next_order += 1;
        self.snd_nxt += u64::from(len);
        self.not_sacked.insert(id.get());
        self.records.link(id);
        self.pipe.add(u64::from(len));
    }

    /// Records that `id` was sent again, whether it was deemed lost or is a probe. O(1).
    ///
    /// # Panics
    /// When the receiver holds it.
    pub fn on_retransmitted(&mut self, now: Instant, id: Id, snapshot: Snapshot) {
        match self.records.record(id).state {
            State::InFlight => self.take_out_of_pipe(id),
            State::Lost => self.take_out_of_lost(id),
            State::Sacked => panic!("what the receiver holds is not sent again"),
        }
        let order = self.next_order;
        self.next_order += 1;
        let record = self.records.record_mut(id);
        record.state = State::InFlight;
        record.transmissions = record.transmissions.saturating_add(1);
        record.order = order;
        record.sent_at = now;
        record.snapshot = snapshot;
        let bytes = u64::from(record.len);
        self.records.link(id);
        self.pipe.add(bytes);
        self.retransmitted.add(bytes);
    }

    /// Applies a cumulative acknowledgement and SACK blocks. `on_delivered` sees each segment that
    /// is now known to have arrived whole and was not before, in the state it was in.
    ///
    /// Costs O(blocks x log n) and O(1) per segment newly delivered.
    pub fn apply(
        &mut self,
        ack: u64,
        ranges: &[Range<u64>],
        mut on_delivered: impl FnMut(&Record),
    ) -> Applied {
        let mut applied = Applied::default();
        if ack > self.snd_una {
            self.apply_cumulative(ack, &mut applied, &mut on_delivered);
        }
        for range in ranges {
            self.apply_block(range, &mut applied, &mut on_delivered);
        }
        applied.is_reneging = self.is_reneging();
        applied
    }

    /// Whether the first record outstanding is one that the receiver said it holds (RFC 2018
    /// section 8): it threw it away. O(1).
    #[must_use]
    pub fn is_reneging(&self) -> bool {
        self.first().is_some_and(|r| r.state == State::Sacked)
    }

    fn apply_cumulative(
        &mut self,
        ack: u64,
        applied: &mut Applied,
        on_delivered: &mut impl FnMut(&Record),
    ) {
        let ack = ack.min(self.snd_nxt);
        let names = self.records.names();
        let mut from = names.start;
        // Bytes up to `ack` that were not SACKed: what is left of the advance was.
        let mut newly = 0;
        let mut stop = None;
        while let Some(name) = self.not_sacked.next_in(from..names.end) {
            self.examined += 1;
            if self.records.record(Id::new(name)).end() > ack {
                stop = Some(name);
                break;
            }
            newly += self.deliver(Id::new(name), applied, on_delivered);
            from = name + 1;
        }
        let end = match stop {
            Some(name) if self.records.record(Id::new(name)).start <= ack => name,
            None if ack == self.snd_nxt => names.end,
            // It stops inside what was SACKed.
            Some(_) | None => self.find_inside(ack),
        };
        let released = u32::try_from(end - names.start).expect("records are bounded");
        applied.acked_bytes = ack - self.snd_una;
        let trimmed = self.trim(Id::new(end), names.end, ack, applied);
        let sacked_bytes = applied.acked_bytes - newly - trimmed;
        let sacked_count = released - applied.delivered_count;
        self.sacked.bytes -= sacked_bytes;
        self.sacked.count -= sacked_count;
        self.snd_una = ack;
        self.records.forget_before(end);
    }

    /// The name of the record that holds or starts at `position`.
    fn find_inside(&mut self, position: u64) -> u64 {
        let (index, examined) = self.records.lower_bound(position + 1);
        self.examined += examined;
        self.records.name(index - 1).get()
    }

    /// Cuts what lies below `ack` off the record `id`; returns how many bytes were not SACKed.
    fn trim(&mut self, id: Id, end: u64, ack: u64, applied: &mut Applied) -> u64 {
        if id.get() == end {
            return 0;
        }
        let cut = ack.saturating_sub(self.records.record(id).start);
        if cut > 0 {
            self.records.cut_start(id, ack);
        }
        let record = self.records.record(id);
        let (state, is_again) = (record.state, record.is_retransmitted());
        match state {
            State::Sacked => return 0,
            State::Lost => {
                self.lost.bytes -= cut;
                applied.lost_delivered_bytes += cut;
            }
            State::InFlight => {
                self.pipe.bytes -= cut;
                if is_again {
                    self.retransmitted.bytes -= cut;
                }
            }
        }
        applied.delivered_bytes += cut;
        cut
    }

    fn apply_block(
        &mut self,
        range: &Range<u64>,
        applied: &mut Applied,
        on_delivered: &mut impl FnMut(&Record),
    ) {
        let (first, examined) = self.records.lower_bound(range.start);
        self.examined += examined;
        // The first record that ends behind the block: the one before the first that starts at
        // or behind its end, unless that ends with the block.
        let (mut end, examined) = self.records.lower_bound(range.end);
        self.examined += examined;
        if end > 0 && self.records.end_at(end - 1) > range.end {
            end -= 1;
        }
        if first >= end {
            return;
        }
        let (mut from, end) = (self.records.name(first).get(), self.records.name(end).get());
        while let Some(name) = self.not_sacked.next_in(from..end) {
            self.examined += 1;
            let bytes = self.deliver(Id::new(name), applied, on_delivered);
            self.sacked.add(bytes);
            applied.sacked_count += 1;
            from = name + 1;
        }
    }

    /// The record `id` arrived, which nobody said before. Leaves it in the state Sacked.
    fn deliver(
        &mut self,
        id: Id,
        applied: &mut Applied,
        on_delivered: &mut impl FnMut(&Record),
    ) -> u64 {
        let record = self.records.record(id);
        on_delivered(record);
        let bytes = u64::from(record.len);
        match record.state {
            State::InFlight => self.take_out_of_pipe(id),
            State::Lost => {
                self.take_out_of_lost(id);
                applied.lost_delivered_bytes += bytes;
            }
            State::Sacked => unreachable!("it was found among those not SACKed"),
        }
        self.not_sacked.remove(id.get());
        self.records.record_mut(id).state = State::Sacked;
        applied.delivered_bytes += bytes;
        applied.delivered_count += 1;
        bytes
    }

    fn take_out_of_pipe(&mut self, id: Id) {
        self.records.unlink(id);
        let record = self.records.record(id);
        let bytes = u64::from(record.len);
        self.pipe.remove(bytes);
        if record.is_retransmitted() {
            self.retransmitted.remove(bytes);
        }
    }

    fn take_out_of_lost(&mut self, id: Id) {
        self.lost_ids.remove(id.get());
        self.lost.remove(u64::from(self.records.record(id).len));
    }
}

#[cfg(test)]
mod tests;
