//! All timers of a connection in one table with one deadline.

use crate::Instant;

/// A fixed table of `N` timers, each armed or not. The owner names the slots with an enum of its
/// own and indexes by `slot as usize`.
#[derive(Clone, Debug)]
pub struct Timers<const N: usize>([Option<Instant>; N]);

impl<const N: usize> Default for Timers<N> {
    fn default() -> Self {
        Self([None; N])
    }
}

impl<const N: usize> Timers<N> {
    /// Arms `slot` for `at`, replacing an earlier deadline.
    ///
    /// # Panics
    /// When `slot` is not below `N`, as for every call here.
    pub fn arm(&mut self, slot: usize, at: Instant) {
        self.0[slot] = Some(at);
    }

    /// Disarms `slot`; nothing happens when it was not armed.
    pub fn disarm(&mut self, slot: usize) {
        self.0[slot] = None;
    }

    /// When `slot` is due, if it is armed.
    #[must_use]
    pub fn deadline(&self, slot: usize) -> Option<Instant> {
        self.0[slot]
    }

    /// The earliest deadline of all. O(N).
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// Disarms `slot` and returns true if it was due at `now`. A deadline is due at its own instant.
    #[must_use]
    pub fn take_due(&mut self, slot: usize, now: Instant) -> bool {
        let due = self.0[slot].is_some_and(|at| at <= now);
        if due {
            self.0[slot] = None;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_armed_timer_is_next() {
        let mut timers: Timers<3> = Timers::default();
        assert_eq!(timers.next(), None);
        timers.arm(0, Instant::from_nanos(9));
        timers.arm(2, Instant::from_nanos(5));
        assert_eq!(timers.next(), Some(Instant::from_nanos(5)));
        timers.disarm(2);
        assert_eq!(timers.next(), Some(Instant::from_nanos(9)));
    }

    #[test]
    fn a_timer_fires_once_and_not_early() {
        let mut timers: Timers<1> = Timers::default();
        timers.arm(0, Instant::from_nanos(9));
        assert!(!timers.take_due(0, Instant::from_nanos(8)));
        assert!(timers.take_due(0, Instant::from_nanos(9)));
        assert!(!timers.take_due(0, Instant::from_nanos(10)));
    }
}
