//! What goes wrong on a link, by chance and by seed.

use std::time::Duration;

use fullbore_base::Rng;

/// How often something happens, in parts per million: 1,000 is 0.1%.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance(u32);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Each time: a black hole, when it is the chance of a loss.
    pub const ALWAYS: Self = Self(1_000_000);

    /// `parts` of a million; more than all is all.
    #[must_use]
    pub const fn per_million(parts: u32) -> Self {
        Self(if parts > 1_000_000 { 1_000_000 } else { parts })
    }

    /// Draws. Nothing is drawn where the answer is certain, so that a fault that is switched off
    /// does not change what the others do.
    pub fn happens(self, rng: &mut Rng) -> bool {
        match self {
            Self::NEVER => false,
            Self::ALWAYS => true,
            Self(parts) => rng.below(1_000_000) < u64::from(parts),
        }
    }
}

/// The faults of one direction. By default there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// An item leaves its sender and does not arrive.
    pub loss: Chance,
    /// An item arrives twice.
    pub duplicate: Chance,
    /// An item arrives changed: see [`Payload::corrupt`](crate::Payload::corrupt).
    pub corrupt: Chance,
    /// An item takes up to `reorder_delay` longer, and others pass it.
    pub reorder: Chance,
    /// The longest such detour; each has a length of its own.
    pub reorder_delay: Duration,
}

impl Faults {
    /// The detour of one item.
    pub(crate) fn detour(&self, rng: &mut Rng) -> Duration {
        if !self.reorder.happens(rng) {
            return Duration::ZERO;
        }
        let nanos = u64::try_from(self.reorder_delay.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(rng.below(nanos + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chance_is_as_likely_as_it_says() {
        let mut rng = Rng::seeded(1);
        let one_percent = Chance::per_million(10_000);
        let count = (0..100_000).filter(|_| one_percent.happens(&mut rng));
        assert!((900..1100).contains(&count.count()));
        assert!(Chance::per_million(2_000_000).happens(&mut rng));
        assert!(!Chance::NEVER.happens(&mut rng));
    }

    #[test]
    fn certain_answers_draw_nothing() {
        let (mut rng, mut other) = (Rng::seeded(1), Rng::seeded(1));
        let _ = Chance::NEVER.happens(&mut rng);
        let _ = Chance::ALWAYS.happens(&mut rng);
        assert_eq!(rng.next_u64(), other.next_u64());
    }
}
