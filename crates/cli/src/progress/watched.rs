//! The connections of a copy, what limits on them, and whether they answer.

use std::time::Duration;

use fullbore::path::{Interval, Limit, Totals};
use fullbore::transfer::{SftpSide, Side as _};

/// A connection that rests more than half of an interval limits nothing.
const BUSY_MIN: u16 = 500;

/// A place that has not answered for so long is told of: a person begins to wonder.
const SILENT_MIN: Duration = Duration::from_secs(10);

/// What changed about the silence of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// It has not answered for so long, and is given up after so long in all.
    Began(Duration, Duration),
    /// It answers again, after so long.
    Ended(Duration),
}

/// The silence of one place, as it was told.
#[derive(Debug, Default)]
struct Told(Option<Duration>);

impl Told {
    /// What is to be told now; each change once.
    fn look(&mut self, silence: Option<(Duration, Duration)>) -> Option<Silence> {
        let (lasted, patience) = silence.unwrap_or_default();
        match self.0 {
            None if lasted >= SILENT_MIN => {
                self.0 = Some(lasted);
                Some(Silence::Began(lasted, patience))
            }
            Some(longest) if lasted < SILENT_MIN => {
                self.0 = None;
                Some(Silence::Ended(longest))
            }
            Some(longest) => {
                self.0 = Some(longest.max(lasted));
                None
            }
            None => None,
        }
    }
}

/// The places that a copy has connections to.
#[derive(Default)]
pub(super) struct Watched(Vec<One>);

struct One {
    side: SftpSide,
    /// Of all its connections, those that have ended too.
    totals: Totals,
    told: Told,
}

impl Watched {
    pub(super) fn add(&mut self, side: SftpSide) {
        self.0.push(One {
            side,
            totals: Totals::default(),
            told: Told::default(),
        });
    }

    /// What there is to tell of places that do not answer.
    pub(super) fn silences(&mut self) -> Vec<(String, Silence)> {
        let mut news = Vec::new();
        for one in &mut self.0 {
            if one.side.sftp().is_over() {
                // Given up: that is told as a failure.
                continue;
            }
            let change = one.told.look(one.side.silence());
            news.extend(change.map(|change| (one.side.prefix().to_owned(), change)));
        }
        news
    }

    /// Intervals that have not been told, with the places they are of; each adds to the sums.
    pub(super) fn news(&mut self) -> Vec<(String, Interval)> {
        let mut news = Vec::new();
        for one in &mut self.0 {
            for connection in one.side.connections() {
                one.totals.merge(&connection.take_path_totals());
                let interval = connection.take_path();
                news.extend(interval.map(|interval| (one.side.prefix().to_owned(), interval)));
            }
        }
        news
    }

    /// What limits now: of connections that work for one copy, on the one that rests least.
    pub(super) fn limit(&self) -> Option<Limit> {
        let connections = self.0.iter().flat_map(|one| one.side.connections());
        let intervals = connections.filter_map(|connection| connection.path());
        let busiest = intervals.max_by_key(Interval::busy)?;
        let limit = busiest.steady;
        (busiest.busy() >= BUSY_MIN && limit != Limit::Nothing).then_some(limit)
    }

    /// The sums of the place that was busy longest.
    pub(super) fn totals(&self) -> Totals {
        let totals = self.0.iter().map(|one| &one.totals);
        totals
            .max_by_key(|totals| totals.busy())
            .cloned()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_once_and_so_is_its_end() {
        const SECOND: Duration = Duration::from_secs(1);
        let patience = 60 * SECOND;
        let mut told = Told::default();
        let mut look =
            |seconds: Option<u32>| told.look(seconds.map(|seconds| (seconds * SECOND, patience)));
        assert_eq!(look(None), None);
        assert_eq!(look(Some(9)), None);
        assert_eq!(look(Some(10)), Some(Silence::Began(10 * SECOND, patience)));
        assert_eq!(look(Some(30)), None);
        assert_eq!(look(Some(0)), Some(Silence::Ended(30 * SECOND)));
        assert_eq!(look(None), None);
        assert!(look(Some(12)).is_some());
        assert_eq!(look(None), Some(Silence::Ended(12 * SECOND)));
    }
}
