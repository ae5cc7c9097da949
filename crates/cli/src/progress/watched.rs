//! The connections of a copy, and what limits on them.

use fullbore::client::Connection;
use fullbore::path::{Interval, Limit, Totals};

/// A connection that rests more than half of an interval limits nothing.
const BUSY_MIN: u16 = 500;

/// The connections by the place at their other end.
#[derive(Default)]
pub(super) struct Watched(Vec<One>);

struct One {
    place: String,
    connection: Connection,
    /// The number of the interval that was told last.
    told: u64,
}

impl Watched {
    pub(super) fn add(&mut self, place: String, connection: Connection) {
        self.0.push(One {
            place,
            connection,
            told: 0,
        });
    }

    /// Intervals that have not been told.
    pub(super) fn news(&mut self) -> Vec<(String, Interval)> {
        let mut news = Vec::new();
        for one in &mut self.0 {
            if let Some(interval) = one.connection.path()
                && interval.number > one.told
            {
                one.told = interval.number;
                news.push((one.place.clone(), interval));
            }
        }
        news
    }

    /// What limits now: of two connections that work for one copy, the one that rests less.
    pub(super) fn limit(&self) -> Option<Limit> {
        let intervals = self.0.iter().filter_map(|one| one.connection.path());
        let busiest = intervals.max_by_key(Interval::busy)?;
        let limit = busiest.steady;
        (busiest.busy() >= BUSY_MIN && limit != Limit::Nothing).then_some(limit)
    }

    /// The sums of the connection that was busy longest.
    pub(super) fn totals(&self) -> Totals {
        let totals = self.0.iter().map(|one| one.connection.path_totals());
        totals.max_by_key(Totals::busy).unwrap_or_default()
    }
}
