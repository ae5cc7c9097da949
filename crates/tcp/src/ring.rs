//! A stretch of a stream in memory that is reused in a circle.
//!
//! Bytes are named by their position in the stream. Memory grows with what is held, never with what
//! might come, and is given back by [`Ring::release`].

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The least memory allocated at once.
const CAPACITY_MIN: usize = 2048;

/// Bytes of the positions from `start` on.
#[derive(Debug, Default)]
pub struct Ring {
    /// Empty, or a power of two long. Position `p` lies at `p` modulo the length.
    data: Vec<u8>,
    start: u64,
    /// Behind the last position that was written.
    end: u64,
}

impl Ring {
    /// Holds nothing, and starts at `start`.
    #[must_use]
    pub const fn new(start: u64) -> Self {
        Self {
            data: Vec::new(),
            start,
            end: start,
        }
    }

    /// The first position held.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Behind the last position that was written.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Bytes between the two.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        to_usize(self.end - self.start)
    }

    /// Whether nothing is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Memory in use.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.data.len()
    }

    fn index(&self, position: u64) -> usize {
        to_usize(position & (self.data.len() as u64 - 1))
    }

    /// Writes `bytes` at `position`, which is not before the start; a hole may be left in front.
    /// O(bytes) amortised: memory doubles.
    ///
    /// # Panics
    /// When `position` lies before the start.
    pub fn write(&mut self, position: u64, bytes: &[u8]) {
        assert!(position >= self.start, "written before what is held");
        let end = position + bytes.len() as u64;
        self.reserve(to_usize(end.max(self.end) - self.start));
        if bytes.is_empty() {
            return;
        }
        let at = self.index(position);
        let first = bytes.len().min(self.data.len() - at);
        self.data[at..at + first].copy_from_slice(&bytes[..first]);
        self.data[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        self.end = self.end.max(end);
    }

    /// Appends `bytes`.
    pub fn append(&mut self, bytes: &[u8]) {
        self.write(self.end, bytes);
    }

    fn reserve(&mut self, len: usize) {
        if len <= self.data.len() {
            return;
        }
        let capacity = len.next_power_of_two().max(CAPACITY_MIN);
        let mut grown = Self {
            data: vec![0; capacity],
            start: self.start,
            end: self.start,
        };
        let (first, second) = self.slices(self.start..self.end);
        grown.append(first);
        grown.append(second);
        *self = grown;
    }

    /// The bytes of `range`, in two pieces where the circle closes.
    ///
    /// # Panics
    /// When not all of it is held.
    #[must_use]
    pub fn slices(&self, range: Range<u64>) -> (&[u8], &[u8]) {
        assert!(
            range.start >= self.start && range.end <= self.end,
            "only what is held can be read"
        );
        if range.is_empty() {
            return (&[], &[]);
        }
        let len = to_usize(range.end - range.start);
        let at = self.index(range.start);
        let first = len.min(self.data.len() - at);
        (&self.data[at..at + first], &self.data[..len - first])
    }

    /// Copies the bytes of `range` to `out`, which is as long.
    ///
    /// # Panics
    /// When not all of it is held, or `out` has another length.
    pub fn copy_to(&self, range: Range<u64>, out: &mut [u8]) {
        let (first, second) = self.slices(range);
        let (front, back) = out.split_at_mut(first.len());
        front.copy_from_slice(first);
        back.copy_from_slice(second);
    }

    /// Forgets what lies before `position`. O(1).
    pub fn forget_before(&mut self, position: u64) {
        self.start = self.start.max(position);
        self.end = self.end.max(self.start);
    }

    /// Gives the memory back if nothing is held.
    pub fn release(&mut self) {
        if self.is_empty() {
            self.data = Vec::new();
        }
    }
}

fn to_usize(len: u64) -> usize {
    usize::try_from(len).expect("a buffer is shorter than memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_base::Rng;
    use fullbore_testkit::seeds;

    /// What is appended comes out, around the circle and through growth.
    #[test]
    fn bytes_come_out_as_they_went_in() {
        for seed in seeds(0..20) {
            let mut rng = Rng::seeded(seed);
            let start = rng.next_u64() >> 8;
            let (mut ring, mut model) = (Ring::new(start), Vec::new());
            let mut taken = 0;
            for _ in 0..400 {
                let mut bytes = vec![0; rng.index(3000)];
                rng.fill(&mut bytes);
                ring.append(&bytes);
                model.extend(bytes);
                let held = model.len() - taken;
                let from = taken + rng.index(held + 1);
                let to = from + rng.index(model.len() - from + 1);
                let range = start + from as u64..start + to as u64;
                let mut out = vec![0; to - from];
                ring.copy_to(range, &mut out);
                assert_eq!(out, model[from..to]);
                taken += rng.index(held.min(3000) + 1);
                ring.forget_before(start + taken as u64);
                assert_eq!(ring.len(), model.len() - taken);
            }
            assert!(ring.capacity() < 1 << 20, "reused in a circle");
        }
    }

    #[test]
    fn a_hole_may_be_filled_later() {
        let mut ring = Ring::new(10);
        ring.write(14, b"efg");
        ring.write(10, b"abcd");
        let mut out = [0; 7];
        ring.copy_to(10..17, &mut out);
        assert_eq!(&out, b"abcdefg");
    }

    #[test]
    fn memory_is_given_back_only_when_nothing_is_held() {
        let mut ring = Ring::new(0);
        ring.append(&[7; 5000]);
        ring.release();
        assert_eq!(ring.capacity(), 8192);
        ring.forget_before(5000);
        ring.release();
        assert_eq!((ring.capacity(), ring.start()), (0, 5000));
        ring.append(b"x");
        assert_eq!(ring.slices(5000..5001).0, b"x");
    }
}
