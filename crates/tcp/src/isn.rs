//! Initial sequence numbers that nobody can guess.
//!
//! RFC 6528: a clock, plus a keyed hash of the addresses and ports. The hash is SipHash-2-4 (Aumasson
//! and Bernstein 2012), whose key comes from the driver.

use core::net::IpAddr;
use fullbore_base::Instant;

use crate::seq::Seq;

/// Secret randomness; the driver's, since engines ask nobody for it.
pub trait Randomness {
    /// Fills `out` with bytes that nobody can guess.
    fn fill(&mut self, out: &mut [u8]);
}

/// A key for hashes that an attacker must not predict.
#[derive(Clone)]
pub struct Key([u64; 2]);

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A fresh key.
    pub fn new(randomness: &mut dyn Randomness) -> Self {
        let mut bytes = [[0; 8]; 2];
        for half in &mut bytes {
            randomness.fill(half);
        }
        Self(bytes.map(u64::from_le_bytes))
    }

    /// The hash of `words` under this key. O(words).
    #[must_use]
    pub fn hash(&self, words: &[u64]) -> u64 {
        let [k0, k1] = self.0;
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        let length = (words.len() as u64 * 8) << 56;
        for &word in words.iter().chain([&length]) {
            v[3] ^= word;
            round(&mut v);
            round(&mut v);
            v[0] ^= word;
        }
        v[2] ^= 0xff;
        for _ in 0..4 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tuple {
    /// Our address.
    pub local: (IpAddr, u16),
    /// The peer's.
    pub remote: (IpAddr, u16),
}

impl Tuple {
    /// The tuple as words to hash.
    #[must_use]
    pub fn words(&self) -> [u64; 5] {
        let halves = |address: IpAddr| {
            let bits = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
                IpAddr::V6(v6) => v6.to_bits(),
            };
            #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
            [(bits >> 64) as u64, bits as u64]
        };
        let [a, b] = halves(self.local.0);
        let [c, d] = halves(self.remote.0);
        let ports = u64::from(self.local.1) << 16 | u64::from(self.remote.1);
        [a, b, c, d, ports]
    }
}

/// Makes initial sequence numbers and where timestamps start.
#[derive(Clone, Debug)]
pub struct Generator {
    key: Key,
}

impl Generator {
    /// With a fresh key.
    pub fn new(randomness: &mut dyn Randomness) -> Self {
        Self {
            key: Key::new(randomness),
        }
    }

    /// RFC 6528 section 3: a clock that ticks every 4 microseconds, plus the hash.
    #[must_use]
    pub fn initial(&self, now: Instant, tuple: &Tuple) -> Seq {
        let clock = now.as_nanos() / 4000;
        let hash = self.key.hash(&tuple.words());
        Seq::new(low(clock.wrapping_add(hash)))
    }

    /// RFC 7323 5.4: where our timestamps start for this peer.
    #[must_use]
    pub fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        low(self.key.hash(&tuple.words()) >> 32)
    }
}

const fn low(word: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    {
        word as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Counting(u8);

    impl Randomness for Counting {
        fn fill(&mut self, out: &mut [u8]) {
            for byte in out {
                *byte = self.0;
                self.0 += 1;
            }
        }
    }

    /// The reference's vectors: key 00..0f, message of 8 bytes 00..07, and the empty one.
    #[test]
    fn the_hash_is_siphash_2_4() {
        let key = Key::new(&mut Counting(0));
        assert_eq!(key.hash(&[]), 0x726f_db47_dd0e_0e31);
        let message = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(key.hash(&[message]), 0x93f5_f579_9a93_2462);
    }

    fn tuple(port: u16) -> Tuple {
        Tuple {
            local: ([10, 0, 0, 1].into(), 22),
            remote: ([10, 0, 0, 2].into(), port),
        }
    }

    #[test]
    fn numbers_grow_with_time_and_differ_between_connections() {
        let generator = Generator::new(&mut Counting(7));
        let first = generator.initial(Instant::ZERO, &tuple(4000));
        let later = generator.initial(Instant::ZERO + Duration::from_secs(1), &tuple(4000));
        assert_eq!(later.since(first), 250_000);
        let other = generator.initial(Instant::ZERO, &tuple(4001));
        assert!(other.since(first).unsigned_abs() > 1000);
        let elsewhere = Generator::new(&mut Counting(8));
        assert_ne!(elsewhere.initial(Instant::ZERO, &tuple(4000)), first);
    }
}
