//! Bytes per second as a type, so that bits and bytes are never mixed up.

use std::time::Duration;

/// A transfer rate. Kept in bytes per second; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// `bytes` per second; zero is taken as one, so that every transfer ends.
    #[must_use]
    pub const fn from_bytes_per_sec(bytes: u64) -> Self {
        Self(if bytes == 0 { 1 } else { bytes })
    }

    /// `bits` per second, rounded down to whole bytes.
    #[must_use]
    pub const fn from_bits_per_sec(bits: u64) -> Self {
        Self::from_bytes_per_sec(bits / 8)
    }

    /// Bytes per second.
    #[must_use]
    pub const fn bytes_per_sec(self) -> u64 {
        self.0
    }

    /// How long `bytes` take, rounded up to a nanosecond; saturates at 584 years.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Duration {
        let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_rounds_up_and_never_overflows() {
        let rate = Rate::from_bits_per_sec(8_000);
        assert_eq!(rate.time_for(1_500), Duration::from_millis(1_500));
        assert_eq!(
            Rate::from_bytes_per_sec(3).time_for(1),
            Duration::from_nanos(333_333_334)
        );
        let slowest = Rate::from_bytes_per_sec(0);
        assert_eq!(slowest.time_for(u64::MAX), Duration::from_nanos(u64::MAX));
    }
}
