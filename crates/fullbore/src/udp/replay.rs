//! Which datagrams have arrived: a window of bits behind the newest.
//!
//! RFC 4303 section 3.4.3 (the anti-replay window), RFC 6479 (in blocks, so that nothing is shifted).

/// How far behind the newest a datagram may arrive. Ours: 80 ms of reordering at 100,000 datagrams a
/// second, about 1 Gbit/s; what is older is as if it were lost.
pub const WINDOW: u64 = 8192;

/// One more block than the window needs, so that the one being filled is never half forgotten.
const BLOCKS: usize = (WINDOW / 64) as usize + 1;

/// The numbers of one connection.
#[derive(Clone, Debug)]
pub struct Window {
    blocks: Box<[u64; BLOCKS]>,
    /// Behind the newest that has arrived.
    next: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            blocks: Box::new([0; BLOCKS]),
            next: 0,
        }
    }
}

fn place(number: u64) -> (usize, u64) {
    let block = (number / 64) % BLOCKS as u64;
    let block = usize::try_from(block).expect("below the number of blocks");
    (block, 1 << (number % 64))
}

impl Window {
    /// Whether a datagram of that number would be news. O(1).
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            return true;
        }
        let (block, bit) = place(number);
        number + WINDOW >= self.next && self.blocks[block] & bit == 0
    }

    /// Whether it would be the newest.
    #[must_use]
    pub const fn is_newest(&self, number: u64) -> bool {
        number >= self.next
    }

    /// Takes note of a genuine datagram. Blocks between the newest so far and this one are cleared: at
    /// most all of them, once for each 64 numbers that the sender used up.
    ///
    /// # Panics
    /// When `number` is `u64::MAX`.
    pub fn take(&mut self, number: u64) {
        if number >= self.next {
            // The block of `next - 1` is in use; those behind it are not.
            let used = self.next.div_ceil(64);
            let last = number / 64;
            let count = (last + 1).saturating_sub(used).min(BLOCKS as u64);
            for block in last + 1 - count..=last {
                self.blocks[place(block * 64).0] = 0;
            }
            self.next = number + 1;
        }
        let (block, bit) = place(number);
        self.blocks[block] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_base::Rng;
    use fullbore_testkit::seeds;
    use std::collections::BTreeSet;

    #[test]
    fn a_number_is_news_once_and_only_inside_the_window() {
        let mut window = Window::default();
        assert!(window.is_new(0));
        window.take(0);
        assert!(!window.is_new(0));
        window.take(WINDOW);
        assert!(window.is_new(1), "at the edge of the window");
        window.take(WINDOW + 1);
        assert!(!window.is_new(1), "one past it");
        assert!(window.is_new(2));
        window.take(2);
        assert!(!window.is_new(2));
        window.take(1 << 47);
        assert!(!window.is_new(WINDOW + 2) && window.is_new((1 << 47) - 1));
    }

    /// Against a set of all numbers.
    #[test]
    fn it_answers_as_a_set_would() {
        for seed in seeds(0..20) {
            let mut rng = Rng::seeded(seed);
            let (mut window, mut model) = (Window::default(), BTreeSet::new());
            let mut newest = 0;
            for _ in 0..20_000 {
                let number = match rng.below(20) {
                    0 => newest + rng.below(3 * WINDOW),
                    1..10 => newest + rng.below(3),
                    _ => (newest + 1).saturating_sub(rng.below(WINDOW + 200)),
                };
                let next = model.last().map_or(0, |&newest: &u64| newest + 1);
                let is_new = !model.contains(&number) && number + WINDOW >= next;
                assert_eq!(window.is_new(number), is_new, "{number} behind {next}");
                assert_eq!(window.is_newest(number), number >= next);
                if is_new {
                    window.take(number);
                    model.insert(number);
                }
                newest = newest.max(number);
            }
        }
    }
}
