//! How often the log speaks of connections that were turned away: a flood of them must not become a flood
//! of lines. A plain value; the time comes from outside.

use std::time::Duration;

use fullbore_base::Instant;

/// Lines in each [`PERIOD`]; those turned away beyond are counted, and the count is one line at its end.
/// Chosen: enough to see who it is.
pub(super) const LINES_MAX: u32 = 20;

/// See [`LINES_MAX`].
pub(super) const PERIOD: Duration = Duration::from_secs(60);

/// The lines of the period under way.
#[derive(Debug, Default)]
pub(super) struct TurnedAway {
    /// When the period began: with the first of its refusals.
    began: Option<Instant>,
    line_count: u32,
    /// Refusals without a line.
    unsaid: u64,
}

impl TurnedAway {
    /// Somebody was turned away. True when the log should say so.
    pub(super) fn on_refusal(&mut self, now: Instant) -> bool {
        self.began.get_or_insert(now);
        if self.line_count == LINES_MAX {
            self.unsaid += 1;
            return false;
        }
        self.line_count += 1;
        true
    }

    /// When the period ends.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.began.map(|began| began + PERIOD)
    }

    /// Ends the period once its time is over. How many were turned away without a line, if any were.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<u64> {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return None;
        }
        self.end()
    }

    /// The same before its time.
    pub(super) fn end(&mut self) -> Option<u64> {
        let unsaid = std::mem::take(self).unsaid;
        (unsaid > 0).then_some(unsaid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_speaks_of_so_many_and_counts_the_rest() {
        let mut turned_away = TurnedAway::default();
        let start = Instant::ZERO + Duration::from_secs(5);
        assert_eq!(turned_away.poll_timeout(), None);
        for _ in 0..LINES_MAX {
            assert!(turned_away.on_refusal(start));
        }
        for _ in 0..1000 {
            assert!(!turned_away.on_refusal(start + PERIOD / 2));
        }
        let end = turned_away.poll_timeout().expect("a period runs");
        assert_eq!(end, start + PERIOD);
        let early = start + (PERIOD - Duration::from_nanos(1));
        assert_eq!(turned_away.handle_timeout(early), None);
        assert_eq!(turned_away.handle_timeout(end), Some(1000));
        // A quiet period has no end, and a new one lines of its own.
        assert_eq!(turned_away.handle_timeout(end + PERIOD), None);
        assert!(turned_away.on_refusal(end + PERIOD));
        assert_eq!(turned_away.handle_timeout(end + PERIOD + PERIOD), None);
    }
}
