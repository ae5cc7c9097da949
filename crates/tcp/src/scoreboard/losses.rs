//! What is deemed lost, and what turns out not to be.

use alloc::vec::Vec;

use super::{Id, Record, Scoreboard, State};

impl Scoreboard {
    /// Deems lost what was sent longest ago, as long as `is_due` says so of it; stops at the first
    /// that is not, and returns when. Costs O(1) per segment deemed lost, and one more look.
    pub fn lose_oldest<T>(
        &mut self,
        mut is_due: impl FnMut(&Record) -> Result<(), T>,
    ) -> Option<T> {
        while let Some(id) = self.records.oldest() {
            self.examined += 1;
            if let Err(stop) = is_due(self.records.record(id)) {
                return Some(stop);
            }
            self.take_out_of_pipe(id);
            self.put_into_lost(id);
        }
        None
    }

    /// Deems the first record outstanding lost, if it is in flight (NewReno's only knowledge).
    pub fn lose_first(&mut self) -> bool {
        let is_in_flight = self.first().is_some_and(|r| r.state == State::InFlight);
        if is_in_flight {
            let id = self.records.name(0);
            self.examined += 1;
            self.take_out_of_pipe(id);
            self.put_into_lost(id);
        }
        is_in_flight
    }

    /// The receiver threw away what it said it held: all of that is lost (RFC 2018 section 8).
    /// O(segments outstanding); the caller bounds how often.
    pub fn forget_sacked(&mut self) {
        for index in 0..self.records.len() {
            self.examined += 1;
            let id = self.records.name(index);
            if self.records.at(index).state == State::Sacked {
                self.sacked.remove(u64::from(self.records.at(index).len));
                self.not_sacked.insert(id.get());
                self.put_into_lost(id);
            }
        }
    }

    /// What is deemed lost was not: it is in flight again, as it was sent. O(lost + in flight).
    ///
    /// The caller bounds how often: each segment restored was deemed lost since the last time.
    pub fn restore_lost(&mut self) {
        let mut restored: Vec<Id> = Vec::with_capacity(self.lost_ids.len());
        while let Some(id) = self.next_lost() {
            self.take_out_of_lost(id);
            restored.push(id);
        }
        if restored.is_empty() {
            return;
        }
        restored.sort_unstable_by_key(|&id| (self.records.record(id).order, id));
        self.examined += restored.len() as u64;
        for &id in &restored {
            let record = self.records.record_mut(id);
            record.state = State::InFlight;
            let (bytes, is_again) = (u64::from(record.len), record.is_retransmitted());
            self.pipe.add(bytes);
            if is_again {
                self.retransmitted.add(bytes);
            }
        }
        self.records.merge(&restored);
    }

    fn put_into_lost(&mut self, id: Id) {
        let record = self.records.record_mut(id);
        record.state = State::Lost;
        let bytes = u64::from(record.len);
        self.lost_ids.insert(id.get());
        self.lost.add(bytes);
    }
}
