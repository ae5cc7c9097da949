//! Seeded randomness for simulations, tests and jitter. Never for secrets.

/// A small deterministic generator (xoshiro256**, Blackman and Vigna 2018): the same seed gives the
/// same run on every machine.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// A generator that `seed` alone determines.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        // The state is filled by SplitMix64, as its authors advise: no seed gives all zeroes.
        let mut x = seed;
        Self(std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.0;
        let out = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= t;
        *s3 = s3.rotate_left(45);
        out
    }

    /// A number in `0..bound`, by widening multiplication (bias below `bound` / 2^64).
    ///
    /// # Panics
    /// When `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the upper half of a product of two u64 is one")
    }

    /// An index in `0..len`.
    ///
    /// # Panics
    /// When `len` is zero.
    pub fn index(&mut self, len: usize) -> usize {
        let bound = u64::try_from(len).expect("a length fits in 64 bits");
        usize::try_from(self.below(bound)).expect("it is below a usize")
    }

    /// True once in `n` calls on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_and_another_differs() {
        let draw = |seed| -> Vec<u64> {
            let mut rng = Rng::seeded(seed);
            (0..8).map(|_| rng.next_u64()).collect()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(draw(0), vec![0; 8]);
    }

    #[test]
    fn below_reaches_both_ends_and_nothing_else() {
        let mut rng = Rng::seeded(1);
        let mut seen = [0u32; 3];
        for _ in 0..3000 {
            seen[rng.index(3)] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }

    #[test]
    fn fill_covers_a_length_that_is_no_multiple_of_eight() {
        let mut out = [0u8; 13];
        Rng::seeded(3).fill(&mut out);
        assert!(out[8..].iter().any(|&b| b != 0));
    }
}
