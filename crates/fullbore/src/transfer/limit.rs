//! The `-l` limit: a token bucket. Sans-IO; whoever moves bytes asks it.

use std::time::Duration;

use fullbore_base::Instant;

/// Lets so many bytes a second pass, with bursts of a tenth of a second. Once it is empty, nothing passes
/// until a hundredth of a second's worth has come together: bytes move in blocks, not one by one.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    bytes_per_second: u64,
    /// Bytes that may pass now; below zero after a block that was longer than what was left.
    tokens: i128,
    refilled: Instant,
    is_empty: bool,
}

impl TokenBucket {
    /// A full bucket. `kbit_per_second` as in scp's `-l`: 1,000 bits each; at least 1.
    #[must_use]
    pub fn new(kbit_per_second: u64, now: Instant) -> Self {
        let bytes_per_second = (kbit_per_second.max(1) * 125).max(1);
        Self {
            bytes_per_second,
            tokens: i128::from(Self::burst(bytes_per_second)),
            refilled: now,
            is_empty: false,
        }
    }

    /// Bytes a second.
    #[must_use]
    pub const fn rate(&self) -> u64 {
        self.bytes_per_second
    }

    fn burst(bytes_per_second: u64) -> u64 {
        (bytes_per_second / 10).max(1)
    }

    /// What passes at least when it was empty.
    fn block(&self) -> i128 {
        i128::from((self.bytes_per_second / 100).max(1))
    }

    /// Bytes that may pass now.
    #[must_use]
    pub fn room(&mut self, now: Instant) -> u64 {
        let nanos = (now - self.refilled).as_nanos() as i128;
        let earned = nanos * i128::from(self.bytes_per_second) / 1_000_000_000;
        if earned > 0 {
            let burst = i128::from(Self::burst(self.bytes_per_second));
            self.tokens = (self.tokens + earned).min(burst);
            self.refilled = now;
        }
        self.is_empty &= self.tokens < self.block();
        match self.is_empty {
            true => 0,
            false => u64::try_from(self.tokens).unwrap_or(0),
        }
    }

    /// Notes that `bytes` have passed; may be more than there was room for.
    pub fn take(&mut self, bytes: u64) {
        self.tokens -= i128::from(bytes);
        self.is_empty |= self.tokens <= 0;
    }

    /// When there is room again; `None` if there is some.
    #[must_use]
    pub fn wait(&self) -> Option<Instant> {
        if !self.is_empty {
            return None;
        }
        let missing = (self.block() - self.tokens).max(0) as u128;
        let nanos = missing * 1_000_000_000 / u128::from(self.bytes_per_second) + 1;
        Some(self.refilled + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_empty_passes_blocks() {
        // 1 MB a second: blocks of 10 kB.
        let mut bucket = TokenBucket::new(8_000, Instant::ZERO);
        let room = bucket.room(Instant::ZERO);
        assert_eq!(room, 100_000);
        bucket.take(room);
        let at = bucket.wait().expect("empty");
        let nearly = Instant::from_nanos(at.as_nanos() - 10_000);
        assert_eq!(bucket.room(nearly), 0);
        assert!(bucket.room(at) >= 10_000);
        assert_eq!(bucket.wait(), None);
        bucket.take(9_000);
        assert!(bucket.room(at) >= 1_000, "not empty yet");
    }

    #[test]
    fn passes_what_it_promises_over_time() {
        // 800 Kbit/s are 100,000 bytes a second.
        let mut now = Instant::ZERO;
        let mut bucket = TokenBucket::new(800, now);
        let mut passed = 0u64;
        while now < Instant::ZERO + Duration::from_secs(10) {
            let room = bucket.room(now);
            if room > 0 {
                bucket.take(32 * 1024);
                passed += 32 * 1024;
            }
            now = bucket.wait().unwrap_or(now + Duration::from_millis(1));
        }
        assert!((990_000..=1_060_000).contains(&passed), "{passed}");
    }
}
