//! Outstanding segments cut anew, for a path that takes no longer ones any more.

use alloc::vec::Vec;

use super::{Id, Record, Scoreboard, State};

impl Scoreboard {
    /// Cuts every record into pieces of at most `mss` bytes, each in the state of the whole: the
    /// path takes no longer ones any more. O(n log n); the caller bounds how often.
    pub fn resegment(&mut self, mss: u32) {
        let mut cut = Self {
            snd_una: self.snd_una,
            snd_nxt: self.snd_una,
            examined: self.examined + self.records.len() as u64,
            ..Self::default()
        };
        let mut in_flight = Vec::new();
        for index in 0..self.records.len() {
            let record = *self.records.at(index);
            for start in record.range().step_by(mss.max(1) as usize) {
                let rest = u32::try_from(record.end() - start).expect("inside the record");
                let piece = cut.adopt(&record, rest.min(mss.max(1)));
                if record.state == State::InFlight {
                    in_flight.push(piece);
                }
            }
        }
        in_flight.sort_by_key(|&id| cut.records.record(id).order);
        for id in in_flight {
            cut.records.link(id);
        }
        cut.next_order = self.next_order;
        *self = cut;
    }

    /// Appends a piece of `len` bytes of `record`, not linked.
    fn adopt(&mut self, record: &Record, len: u32) -> Id {
        let (count, names) = (self.records.len() + 1, self.records.names());
        self.not_sacked.reserve(count, names.clone());
        self.lost_ids.reserve(count, names);
        let id = self.records.push(Record {
            start: self.snd_nxt,
            len,
            older: None,
            younger: None,
            ..*record
        });
        let bytes = u64::from(len);
        self.snd_nxt += bytes;
        match record.state {
            State::InFlight => {
                self.pipe.add(bytes);
                if record.is_retransmitted() {
                    self.retransmitted.add(bytes);
                }
            }
            State::Lost => {
                self.lost_ids.insert(id.0);
                self.lost.add(bytes);
            }
            State::Sacked => {
                self.sacked.add(bytes);
                return id;
            }
        }
        self.not_sacked.insert(id.0);
        id
    }
}
