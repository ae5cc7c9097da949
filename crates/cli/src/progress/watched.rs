//! The connections of a copy, and what limits on them.

use fullbore::path::{Interval, Limit, Totals};
use fullbore::transfer::{SftpSide, Side as _};

/// A connection that rests more than half of an interval limits nothing.
const BUSY_MIN: u16 = 500;

/// The places that a copy has connections to.
#[derive(Default)]
pub(super) struct Watched(Vec<One>);

struct One {
    side: SftpSide,
    /// Of all its connections, those that have ended too.
    totals: Totals,
}

impl Watched {
    pub(super) fn add(&mut self, side: SftpSide) {
        self.0.push(One {
            side,
            totals: Totals::default(),
        });
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
