//! Outstanding segments cut anew, for a path that takes no longer ones any more.

use alloc::vec::Vec;

use super::{CUT_FACTOR, Id, Record, Scoreboard, State};

impl Scoreboard {
    /// Whether [`Scoreboard::resegment`] is of use to the record `id`: it is the first, which is
    /// always cut, or there is room for many. O(1).
    ///
    /// Room for many, so that what is left long is not paid for one record at a time.
    #[must_use]
    pub fn may_cut(&self, id: Id) -> bool {
        id == self.records.name(0) || self.records.len() <= self.records_max
    }

    /// Cuts records into pieces of at most `mss` bytes, each in the state of the whole: the path
    /// takes no longer ones any more. O(n log n); the caller bounds how often.
    ///
    /// From the front, until there are [`CUT_FACTOR`] times as many as may be sent; the others
    /// stay as they are. The first is cut in any case, so that the stream goes on; of its bytes,
    /// no more records are made beyond that bound than one for each half of the least `mss`.
    /// Example: of 4 records of 1000 bytes, where 4 may be held, cutting at 400 makes 400 + 400 +
    /// 200 of the first two and leaves the last two.
    pub fn resegment(&mut self, mss: u32) {
        let mss = mss.max(1);
        let mut cut = Self {
            snd_una: self.snd_una,
            snd_nxt: self.snd_una,
            examined: self.examined + self.records.len() as u64,
            ..Self::new(self.records_max)
        };
        let room = CUT_FACTOR.saturating_mul(self.records_max);
        let mut room = room.saturating_sub(self.records.len());
        let mut in_flight = Vec::new();
        for index in 0..self.records.len() {
            let record = *self.records.at(index);
            let more = (record.len.div_ceil(mss) - 1) as usize;
            let (len_max, rest) = match room.checked_sub(more) {
                Some(rest) => (mss, rest),
                // Evenly: a path that shrinks by a byte at a time makes no record of each.
                None if index == 0 => (record.len.div_ceil(record.len.div_ceil(mss)), 0),
                // It ends here: what is cut is the front.
                None => (record.len, 0),
            };
            room = rest;
            for start in record.range().step_by(len_max as usize) {
                let rest = u32::try_from(record.end() - start).expect("inside the record");
                let piece = cut.adopt(&record, rest.min(len_max));
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
