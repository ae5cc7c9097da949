//! Outstanding segments cut, for a path that takes no longer ones any more.
//!
//! Only the two ends are ever cut, where records can be added at the price of the pieces: the first,
//! when it has to be sent again, and the last, for a probe. One in between keeps its record and is sent
//! again in several segments (the connection's business); should it become the first, it is cut. So no
//! event costs more than the segment that it is about, however much is outstanding.

use super::{Id, Record, Scoreboard, State};

/// How long the pieces are into which `len` bytes are cut, at least one: equal but for the last, and of at most
/// `mss` bytes. Equal, so that a path that shrinks byte by byte makes no record of each.
///
/// 1000 bytes at 999 make two pieces of 500, which are cut no more until 499.
#[must_use]
pub const fn piece_len(len: u32, mss: u32) -> u32 {
    let mss = if mss == 0 { 1 } else { mss };
    len.div_ceil(len.div_ceil(mss))
}

impl Scoreboard {
    /// Whether `id` is the record at the cumulative acknowledgement.
    #[must_use]
    pub fn is_first(&self, id: Id) -> bool {
        id == self.records.name(0)
    }

    /// Cuts the first record into pieces of at most `mss` bytes, each in the state of the whole.
    /// O(pieces).
    pub fn cut_first(&mut self, mss: u32) {
        let Some(&whole) = self.records.first() else {
            return;
        };
        let (piece, more) = self.begin_cut(&whole, mss);
        // The last piece keeps the name, and the others have those in front of it.
        let mut younger = self.records.name(0);
        let kept_start = whole.start + u64::from(more) * u64::from(piece);
        self.records.cut_start(younger, kept_start);
        for index in (0..more).rev() {
            let id = self.records.push_front(Record {
                start: whole.start + u64::from(index) * u64::from(piece),
                len: piece,
                ..whole
            });
            self.enter_piece(id, Some(younger));
            younger = id;
        }
    }

    /// The same of the last record.
    pub fn cut_last(&mut self, mss: u32) {
        let Some(&whole) = self.records.last() else {
            return;
        };
        let (piece, more) = self.begin_cut(&whole, mss);
        let mut older = self.records.name(self.records.len() - 1);
        self.records.record_mut(older).len = piece;
        for index in 1..=more {
            let start = whole.start + u64::from(index) * u64::from(piece);
            let rest = u32::try_from(whole.end() - start).expect("inside the record");
            let younger = self.records.younger(older);
            let id = self.records.push(Record {
                start,
                len: rest.min(piece),
                ..whole
            });
            self.enter_piece(id, younger);
            older = id;
        }
    }

    /// Room for the pieces, and the count of them. Returns their length and how many there are beside
    /// the one that keeps the name.
    fn begin_cut(&mut self, whole: &Record, mss: u32) -> (u32, u32) {
        let piece = piece_len(whole.len, mss);
        let more = whole.len.div_ceil(piece) - 1;
        debug_assert!(more > 0 || piece == whole.len, "what is short stays whole");
        let (count, names) = (self.records.len() + more as usize, self.records.names());
        self.not_sacked.reserve(count, names.clone());
        self.lost_ids.reserve(count, names);
        match whole.state {
            State::InFlight => {
                self.pipe.count += more;
                if whole.is_retransmitted() {
                    self.retransmitted.count += more;
                }
            }
            State::Sacked => self.sacked.count += more,
            State::Lost => self.lost.count += more,
        }
        self.examined += u64::from(more);
        (piece, more)
    }

    /// Puts a new piece where its state says; `younger` is what follows it in the order of transmission.
    fn enter_piece(&mut self, id: Id, younger: Option<Id>) {
        match self.records.record(id).state {
            State::InFlight => self.records.link_before(id, younger),
            State::Lost => self.lost_ids.insert(id.get()),
            State::Sacked => return,
        }
        self.not_sacked.insert(id.get());
    }
}
