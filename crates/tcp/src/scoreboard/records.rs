//! The records in both of their orders: by position in the stream, and by time of transmission.
//!
//! Owns the list links and nothing of what a state means.

use alloc::collections::VecDeque;

use super::record::{Id, Record};

/// Records of consecutive parts of the stream, and a list through those in flight.
#[derive(Debug)]
pub struct Records {
    records: VecDeque<Record>,
    /// Where each starts, as it says itself: what is searched is 8 bytes of each and not all 80, so that the
    /// search stays in the caches for windows of hundreds of MiB.
    starts: VecDeque<u64>,
    /// The neighbours of each in the order of transmission. Apart for the same reason: a segment and its
    /// neighbours were mostly sent one after the other, and so lie side by side here.
    links: VecDeque<Links>,
    /// The name of the first record.
    front: u64,
    oldest: Option<Id>,
    youngest: Option<Id>,
}

/// Neighbours among the records in flight, in the order of transmission.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    older: Option<Id>,
    younger: Option<Id>,
}

/// The name of the first record ever. Pieces of the first record take names in front of it, as many as are
/// forgotten before the next is cut: never so many as these.
const NAMES_START: u64 = 1 << 32;

impl Default for Records {
    fn default() -> Self {
        Self {
            records: VecDeque::new(),
            starts: VecDeque::new(),
            links: VecDeque::new(),
            front: NAMES_START,
            oldest: None,
            youngest: None,
        }
    }
}

impl Records {
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The names in use.
    pub fn names(&self) -> core::ops::Range<u64> {
        self.front..self.front + self.records.len() as u64
    }

    fn index(&self, id: Id) -> usize {
        usize::try_from(id.get() - self.front).expect("an index is a usize")
    }

    pub fn name(&self, index: usize) -> Id {
        Id::new(self.front + index as u64)
    }

    pub fn at(&self, index: usize) -> &Record {
        &self.records[index]
    }

    pub fn record(&self, id: Id) -> &Record {
        &self.records[self.index(id)]
    }

    pub fn record_mut(&mut self, id: Id) -> &mut Record {
        let index = self.index(id);
        &mut self.records[index]
    }

    pub fn first(&self) -> Option<&Record> {
        self.records.front()
    }

    pub fn last(&self) -> Option<&Record> {
        self.records.back()
    }

    /// Adds a record behind all others, not linked.
    pub fn push(&mut self, record: Record) -> Id {
        let id = self.name(self.records.len());
        self.starts.push_back(record.start);
        self.links.push_back(Links::default());
        self.records.push_back(record);
        id
    }

    /// Adds a record in front of all others, not linked.
    pub fn push_front(&mut self, record: Record) -> Id {
        self.front -= 1;
        self.starts.push_front(record.start);
        self.links.push_front(Links::default());
        self.records.push_front(record);
        Id::new(self.front)
    }

    /// Forgets every record in front of `id`, none of which is linked. O(1): nothing to drop.
    pub fn forget_before(&mut self, id: u64) {
        let count = usize::try_from(id - self.front).expect("a count of records");
        self.records.drain(..count);
        self.starts.drain(..count);
        self.links.drain(..count);
        self.front = id;
    }

    /// Gives the memory back of what is not held any more, if that is everything.
    pub fn release(&mut self) {
        if self.records.is_empty() && self.records.capacity() > super::RECORDS_KEPT_IDLE {
            self.records = VecDeque::new();
            self.starts = VecDeque::new();
            self.links = VecDeque::new();
        }
    }

    fn links_mut(&mut self, id: Id) -> &mut Links {
        let index = self.index(id);
        &mut self.links[index]
    }

    /// The record that was sent next after `id`, of those in flight.
    pub fn younger(&self, id: Id) -> Option<Id> {
        self.links[self.index(id)].younger
    }

    /// The record `id` starts at `start` from now on, and ends where it did. O(1).
    pub fn cut_start(&mut self, id: Id, start: u64) {
        let index = self.index(id);
        let record = &mut self.records[index];
        record.len -= u32::try_from(start - record.start).expect("inside the record");
        record.start = start;
        self.starts[index] = start;
    }

    /// Where the record at `index` ends. O(1), without a look at the record unless it is the last.
    pub fn end_at(&self, index: usize) -> u64 {
        match self.starts.get(index + 1) {
            Some(&start) => start,
            None => self.records[index].end(),
        }
    }

    /// The record that was sent longest ago, of those in flight.
    pub const fn oldest(&self) -> Option<Id> {
        self.oldest
    }

    /// Links `id` as the one sent last. O(1).
    pub fn link(&mut self, id: Id) {
        let older = self.youngest.replace(id);
        match older {
            Some(older) => self.links_mut(older).younger = Some(id),
            None => self.oldest = Some(id),
        }
        *self.links_mut(id) = Links {
            older,
            younger: None,
        };
    }

    /// Takes `id` out of the list. O(1).
    pub fn unlink(&mut self, id: Id) {
        let Links { older, younger } = core::mem::take(self.links_mut(id));
        match older {
            Some(older) => self.links_mut(older).younger = younger,
            None => self.oldest = younger,
        }
        match younger {
            Some(younger) => self.links_mut(younger).older = older,
            None => self.youngest = older,
        }
    }

    /// Links `ids`, which are in the order of transmission, at their places. O(those and the
    /// linked ones that are older than the last of them).
    pub fn merge(&mut self, ids: &[Id]) {
        let mut at = self.oldest;
        for &id in ids {
            // Pieces of one segment have one order, and follow each other.
            let order = (self.record(id).order, id);
            while let Some(younger) = at.filter(|&a| (self.record(a).order, a) < order) {
                at = self.younger(younger);
            }
            self.link_before(id, at);
        }
    }

    /// Links `id` in front of `younger` in the order of transmission; as the one sent last when there is
    /// none. O(1).
    pub fn link_before(&mut self, id: Id, younger: Option<Id>) {
        let Some(younger) = younger else {
            self.link(id);
            return;
        };
        let older = self.links_mut(younger).older.replace(id);
        match older {
            Some(older) => self.links_mut(older).younger = Some(id),
            None => self.oldest = Some(id),
        }
        *self.links_mut(id) = Links {
            older,
            younger: Some(younger),
        };
    }

    /// The names in the order of transmission.
    #[cfg(test)]
    pub fn by_transmission(&self) -> impl Iterator<Item = Id> + '_ {
        core::iter::successors(self.oldest, |&id| self.younger(id))
    }

    /// The index of the first record whose start is at or behind `position`, and how many records
    /// were looked at. At most 1 + log2(n + 1): a guess that takes all records as equally long,
    /// which is right in a bulk transfer, then halving.
    pub fn lower_bound(&self, position: u64) -> (usize, u64) {
        let (Some(&first), Some(last)) = (self.starts.front(), self.last()) else {
            return (0, 0);
        };
        if position <= first {
            return (0, 0);
        }
        if position >= last.end() {
            return (self.records.len(), 0);
        }
        let guess = self.guess(position, first, last.end());
        let is_behind = position > self.starts[guess];
        if is_behind && position <= self.end_at(guess) {
            return (guess + 1, 1);
        }
        let (mut low, mut high) = if is_behind {
            (guess + 1, self.records.len())
        } else {
            (0, guess)
        };
        let mut examined = 1;
        while low < high {
            let middle = low + (high - low) / 2;
            examined += 1;
            if self.starts[middle] < position {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low, examined)
    }

    /// The index of the record that would end at or hold `position`, if all were equally long.
    fn guess(&self, position: u64, start: u64, end: u64) -> usize {
        let count = self.records.len() as u64;
        // A window has 30 bits and a count 19: where the product does not fit, the guess is only worse.
        let offset = (position - start - 1).saturating_mul(count);
        usize::try_from(offset / (end - start)).expect("it is below the count")
    }
}
