//! Which bytes of a stream or file are there: ranges, merged as they touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of `u64` positions kept as disjoint ranges that do not touch.
///
/// Inserting costs O(log n) and O(1) amortised per range that is merged away, however many are
/// held. The owner bounds how many it lets in ([`RangeSet::range_count`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start to end (exclusive). Invariant: end > start, and less than the next start.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// An empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ranges: BTreeMap::new(),
        }
    }

    /// Adds every position of `range`; an empty range adds nothing.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.ranges.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.ranges.insert(start, end);
    }

    /// Where the positions held from zero on, without a gap, end. O(log n).
    #[must_use]
    pub fn prefix_end(&self) -> u64 {
        self.ranges
            .first_key_value()
            .map_or(0, |(&s, &e)| if s == 0 { e } else { 0 })
    }

    /// Whether every position of `range` is held. O(log n).
    #[must_use]
    pub fn contains(&self, range: Range<u64>) -> bool {
        range.is_empty()
            || self
                .ranges
                .range(..=range.start)
                .next_back()
                .is_some_and(|(_, &e)| e >= range.end)
    }

    /// How many separate ranges are held.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&s, &e)| s..e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn touching_ranges_become_one() {
        let mut set = RangeSet::new();
        set.insert(0..4);
        set.insert(8..12);
        assert_eq!((set.range_count(), set.prefix_end()), (2, 4));
        set.insert(4..8);
        assert_eq!((set.range_count(), set.prefix_end()), (1, 12));
        assert!(set.contains(3..12) && !set.contains(3..13));
    }

    /// Against a plain bitmap, with 20 random inserts for each of 50 seeds.
    #[test]
    fn agrees_with_a_bitmap() {
        for seed in 0..50 {
            let mut rng = Rng::seeded(seed);
            let (mut set, mut bitmap) = (RangeSet::new(), [false; 64]);
            for _ in 0..20 {
                let start = rng.below(64);
                let end = start + rng.below(65 - start).min(6);
                set.insert(start..end);
                bitmap[start as usize..end as usize].fill(true);
                let held: Vec<bool> = (0..64).map(|i| set.contains(i..i + 1)).collect();
                assert_eq!(held, bitmap, "seed {seed}");
                let prefix = bitmap.iter().take_while(|&&b| b).count();
                assert_eq!(set.prefix_end(), prefix as u64, "seed {seed}");
                let edges = (0..64).filter(|&i| bitmap[i] && (i == 0 || !bitmap[i - 1]));
                assert_eq!(set.range_count(), edges.count(), "seed {seed}");
            }
        }
    }
}
