//! Which parts of the stream have arrived: in order up to `rcv_nxt`, and ranges beyond it.
//!
//! RFC 9293 section 3.10.7.4, RFC 2018 section 4 (which blocks to report), RFC 2883 (duplicates).
//! Holds no bytes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Ranges kept beyond the first hole. A segment that would start another is dropped: it costs its
/// sender a retransmission, and us no memory. Ours: 16 K holes in one window are no honest path.
pub const RANGES_MAX: usize = 16 * 1024;

/// Ranges remembered as recently changed, to be reported: RFC 2018 asks that each be repeated in at
/// least three acknowledgements, and at most four fit into one.
const RECENT_MAX: usize = 6;

/// What the arrival of a range did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes not seen before.
    pub new_bytes: u64,
    /// How far `rcv_nxt` advanced.
    pub advanced: u64,
    /// The first part of it that had arrived before.
    pub duplicate: Option<Range<u64>>,
    /// There was no room for another range.
    pub is_refused: bool,
}

/// The receiver's picture of the stream.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    rcv_nxt: u64,
    /// Start to end; disjoint, not touching, all beyond `rcv_nxt`.
    ranges: BTreeMap<u64, u64>,
    /// A position in each range that changed lately, the latest first.
    recent: Vec<u64>,
}

impl Reassembly {
    /// Everything before `rcv_nxt` has arrived.
    #[must_use]
    pub const fn new(rcv_nxt: u64) -> Self {
        Self {
            rcv_nxt,
            ranges: BTreeMap::new(),
            recent: Vec::new(),
        }
    }

    /// The first position that has not arrived.
    #[must_use]
    pub const fn rcv_nxt(&self) -> u64 {
        self.rcv_nxt
    }

    /// Whether something has arrived beyond a hole.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Ranges beyond the first hole.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Takes note of `range`. O(log n), and O(log n) for each range that it swallows.
    pub fn insert(&mut self, range: Range<u64>) -> Arrival {
        if range.is_empty() {
            return Arrival::default();
        }
        let mut arrival = Arrival {
            duplicate: self.duplicate_of(&range),
            ..Arrival::default()
        };
        let (mut start, mut end) = (range.start.max(self.rcv_nxt), range.end);
        if start >= end {
            return arrival;
        }
        arrival.new_bytes = end - start;
        // A range that touches nothing is another one to keep.
        let touches = |(&s, &e): (&u64, &u64)| e >= start && s <= end;
        let is_apart =
            start > self.rcv_nxt && !self.ranges.range(..=end).next_back().is_some_and(touches);
        if is_apart && self.ranges.len() >= RANGES_MAX {
            return Arrival {
                is_refused: true,
                ..Arrival::default()
            };
        }
        let (new_start, new_end) = (start, end);
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.ranges.remove(&s);
            arrival.new_bytes -= e.min(new_end).saturating_sub(s.max(new_start));
            start = start.min(s);
            end = end.max(e);
        }
        if start <= self.rcv_nxt {
            arrival.advanced = end - self.rcv_nxt;
            self.rcv_nxt = end;
        } else {
            self.ranges.insert(start, end);
            self.note_recent(start..end, new_start);
        }
        arrival
    }

    /// The first part of `range` that is held already.
    fn duplicate_of(&self, range: &Range<u64>) -> Option<Range<u64>> {
        if range.start < self.rcv_nxt {
            return Some(range.start..range.end.min(self.rcv_nxt));
        }
        let held = self.ranges.range(..=range.start).next_back();
        let held = held.filter(|&(_, &e)| e > range.start);
        let held = held.or_else(|| self.ranges.range(range.start..range.end).next());
        held.map(|(&s, &e)| s.max(range.start)..e.min(range.end))
    }

    /// RFC 2018 4: the range that holds the newest segment is reported first.
    fn note_recent(&mut self, range: Range<u64>, position: u64) {
        self.recent.retain(|p| !range.contains(p));
        self.recent.truncate(RECENT_MAX - 1);
        self.recent.insert(0, position);
    }

    /// The ranges to report, the one that changed last first. `duplicate` stands in front of all
    /// when something arrived twice (RFC 2883 4). At most `limit`. O(limit x log n).
    pub fn blocks(
        &self,
        duplicate: Option<Range<u64>>,
        limit: usize,
    ) -> impl Iterator<Item = Range<u64>> + '_ {
        // A duplicate inside a range is followed by that range (RFC 2883 4, (4)).
        let around = duplicate.as_ref().and_then(|d| self.range_at(d.start));
        let skipped = around.clone();
        let recent = self.recent.iter().filter_map(|&p| self.range_at(p));
        let recent = recent.filter(move |r| Some(r) != skipped.as_ref());
        duplicate
            .into_iter()
            .chain(around)
            .chain(recent)
            .take(limit)
    }

    fn range_at(&self, position: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.ranges.range(..=position).next_back()?;
        (end > position).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_base::Rng;
    use fullbore_testkit::seeds;

    fn blocks(of: &Reassembly, duplicate: Option<Range<u64>>) -> Vec<Range<u64>> {
        of.blocks(duplicate, 4).collect()
    }

    #[test]
    fn the_range_that_changed_last_is_reported_first() {
        let mut held = Reassembly::new(0);
        for start in [10, 30, 50, 70, 90] {
            let _ = held.insert(start..start + 10);
        }
        assert_eq!(blocks(&held, None), [90..100, 70..80, 50..60, 30..40]);
        let _ = held.insert(20..25);
        assert_eq!(blocks(&held, None)[..2], [10..25, 90..100]);
        let _ = held.insert(0..10);
        assert_eq!(held.rcv_nxt(), 25);
        assert_eq!(blocks(&held, None)[0], 90..100);
    }

    #[test]
    fn a_duplicate_is_reported_once_and_in_front() {
        let mut held = Reassembly::new(100);
        let _ = held.insert(200..300);
        let old = held.insert(50..80).duplicate;
        assert_eq!(old, Some(50..80));
        assert_eq!(blocks(&held, old), [50..80, 200..300]);
        let inside = held.insert(220..240).duplicate;
        assert_eq!(inside, Some(220..240));
        assert_eq!(blocks(&held, inside), [220..240, 200..300]);
        let partly = held.insert(90..120);
        assert_eq!((partly.duplicate, partly.advanced), (Some(90..100), 20));
        assert_eq!(held.insert(290..310).duplicate, Some(290..300));
        assert_eq!(held.insert(195..205).duplicate, Some(200..205));
    }

    #[test]
    fn one_range_more_than_allowed_is_refused_and_growth_is_not() {
        let mut held = Reassembly::new(0);
        for i in 1..=RANGES_MAX as u64 {
            assert!(!held.insert(i * 10..i * 10 + 1).is_refused);
        }
        let beyond = (RANGES_MAX as u64 + 1) * 10;
        assert!(held.insert(beyond..beyond + 1).is_refused);
        assert!(!held.insert(11..12).is_refused);
        assert_eq!(held.range_count(), RANGES_MAX);
        assert_eq!(held.insert(0..10).advanced, 12);
        assert!(!held.insert(beyond..beyond + 1).is_refused);
    }

    #[test]
    fn agrees_with_a_bitmap_after_every_arrival() {
        for seed in seeds(0..60) {
            let mut rng = Rng::seeded(seed);
            let (mut held, mut bitmap) = (Reassembly::new(0), [false; 300]);
            for _ in 0..200 {
                let start = rng.below(300);
                let end = start + rng.below(301 - start).min(1 + rng.below(30));
                let range = start as usize..end as usize;
                let fresh = bitmap[range.clone()].iter().filter(|&&b| !b).count() as u64;
                let first_old = range.clone().find(|&i| bitmap[i]);
                let before = held.rcv_nxt();
                let arrival = held.insert(start..end);
                bitmap[range.clone()].fill(true);
                assert_eq!(arrival.new_bytes, fresh);
                let nxt = bitmap.iter().take_while(|&&b| b).count() as u64;
                assert_eq!(held.rcv_nxt(), nxt);
                assert_eq!(arrival.advanced, nxt - before);
                let duplicate_start = arrival.duplicate.map(|d| d.start as usize);
                assert_eq!(duplicate_start, first_old, "{range:?}");
                for block in held.blocks(None, 4) {
                    let block = block.start as usize..block.end as usize;
                    assert!(bitmap[block.clone()].iter().all(|&b| b));
                    assert!(!bitmap[block.start - 1] && bitmap.get(block.end) != Some(&true));
                }
                let edges = (nxt as usize + 1..300).filter(|&i| bitmap[i] && !bitmap[i - 1]);
                assert_eq!(held.range_count(), edges.count());
            }
        }
    }
}
