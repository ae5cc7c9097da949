//! A set of numbers out of a sliding window, with the next member found in a handful of words.
//!
//! Each level holds one bit per word of the level below: set when that word is not zero. With 2^18
//! numbers there are three levels, so to find the next member takes at most six words, however
//! long the gap. Members are kept modulo the capacity: the window may slide for ever.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

const WORD_BITS: usize = u64::BITS as usize;

/// Memory for a window of this length is kept by an empty set.
const CAPACITY_KEPT_IDLE: usize = 512;

/// Numbers of a window no longer than the capacity.
#[derive(Debug, Default)]
pub struct IdSet {
    /// Level 0 has a bit for each number; the last level is one word. Empty: no capacity yet.
    levels: Vec<Vec<u64>>,
    count: usize,
}

impl IdSet {
    /// How long a window it takes: zero, or a power of two.
    pub fn capacity(&self) -> usize {
        self.levels
            .first()
            .map_or(0, |words| words.len() * WORD_BITS)
    }

    /// Members.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Makes room for windows of `len`, of which `window` is the one in use. O(members) when the
    /// capacity changes, which doubles it at least: amortised O(1) per number that enters.
    pub fn reserve(&mut self, len: usize, window: Range<u64>) {
        if len <= self.capacity() {
            return;
        }
        let mut grown = Self::with_capacity(len.next_power_of_two().max(WORD_BITS));
        let mut from = window.start;
        while let Some(id) = self.next_in(from..window.end) {
            grown.insert(id);
            from = id + 1;
        }
        *self = grown;
    }

    /// Gives memory back that an empty set does not need. An idle connection keeps no memory of its
    /// last burst.
    pub fn shrink(&mut self) {
        if self.count == 0 && self.capacity() > CAPACITY_KEPT_IDLE {
            *self = Self::default();
        }
    }

    fn with_capacity(capacity: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = capacity;
        loop {
            words = words.div_ceil(WORD_BITS);
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels, count: 0 };
            }
        }
    }

    fn slot(&self, id: u64) -> usize {
        let mask = self.capacity() as u64 - 1;
        usize::try_from(id & mask).expect("a capacity is a usize")
    }

    /// Adds `id`; nothing happens when it is there.
    pub fn insert(&mut self, id: u64) {
        let mut slot = self.slot(id);
        for (level, words) in self.levels.iter_mut().enumerate() {
            let bit = 1 << (slot % WORD_BITS);
            let word = &mut words[slot / WORD_BITS];
            let was_zero = *word == 0;
            if level == 0 && *word & bit == 0 {
                self.count += 1;
            }
            *word |= bit;
            if !was_zero {
                return;
            }
            slot /= WORD_BITS;
        }
    }

    /// Removes `id`; nothing happens when it is not there.
    pub fn remove(&mut self, id: u64) {
        if self.count == 0 {
            return;
        }
        let mut slot = self.slot(id);
        for (level, words) in self.levels.iter_mut().enumerate() {
            let bit = 1 << (slot % WORD_BITS);
            let word = &mut words[slot / WORD_BITS];
            if level == 0 {
                if *word & bit == 0 {
                    return;
                }
                self.count -= 1;
            }
            *word &= !bit;
            if *word != 0 {
                return;
            }
            slot /= WORD_BITS;
        }
    }

    /// The least member in `range`, which lies in a window. O(log n) to the base of 64.
    pub fn next_in(&self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() || self.count == 0 {
            return None;
        }
        let (from, to) = (self.slot(range.start), self.slot(range.end - 1));
        let found = if from <= to {
            self.next_slot(from).filter(|&slot| slot <= to)
        } else {
            let behind = self.next_slot(from);
            behind.or_else(|| self.next_slot(0).filter(|&slot| slot <= to))
        }?;
        let capacity = self.capacity();
        let distance = (found + capacity - from) % capacity;
        Some(range.start + distance as u64)
    }

    /// The first slot at or behind `from` that is taken.
    fn next_slot(&self, from: usize) -> Option<usize> {
        let mut position = from;
        let mut found = None;
        for (level, words) in self.levels.iter().enumerate() {
            let word = words.get(position / WORD_BITS)?;
            let bits = word & (u64::MAX << (position % WORD_BITS));
            if bits != 0 {
                found = Some((level, position / WORD_BITS, bits));
                break;
            }
            position = position / WORD_BITS + 1;
        }
        let (level, word, bits) = found?;
        let mut slot = word * WORD_BITS + bits.trailing_zeros() as usize;
        for words in self.levels[..level].iter().rev() {
            slot = slot * WORD_BITS + words[slot].trailing_zeros() as usize;
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_base::Rng;
    use fullbore_testkit::seeds;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_sorted_set_while_the_window_slides_and_grows() {
        for seed in seeds(0..20) {
            let mut rng = Rng::seeded(seed);
            let (mut set, mut model) = (IdSet::default(), BTreeSet::new());
            let mut window = 1_000_000u64..1_000_000;
            for _ in 0..3000 {
                let len = window.end - window.start;
                match rng.below(4) {
                    0 => {
                        let more = rng.below(200).min(20_000 - len);
                        let len = usize::try_from(len + more).expect("short");
                        set.reserve(len, window.clone());
                        window.end += more;
                    }
                    1 => {
                        let to = window.start + rng.below(len / 4 + 1);
                        for id in window.start..to {
                            set.remove(id);
                            model.remove(&id);
                        }
                        window.start = to;
                    }
                    2 if len > 0 => {
                        let id = window.start + rng.below(len);
                        set.insert(id);
                        model.insert(id);
                    }
                    _ if len > 0 => {
                        let id = window.start + rng.below(len);
                        set.remove(id);
                        model.remove(&id);
                    }
                    _ => {}
                }
                let from = window.start + rng.below(window.end - window.start + 1);
                let to = from + rng.below(window.end - from + 1);
                let expected = model.range(from..to).next().copied();
                assert_eq!(set.next_in(from..to), expected);
                assert_eq!(set.len(), model.len());
            }
        }
    }

    #[test]
    fn a_gap_of_a_million_is_crossed() {
        let mut set = IdSet::default();
        set.reserve(1 << 20, 0..0);
        set.insert((1 << 20) - 1);
        assert_eq!(set.next_in(0..1 << 20), Some((1 << 20) - 1));
        assert_eq!(set.next_in(0..(1 << 20) - 1), None);
        assert_eq!(set.levels.len(), 4);
    }
}
