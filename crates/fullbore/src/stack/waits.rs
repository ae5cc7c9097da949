//! Connections in TIME-WAIT, as many as are kept.

use std::collections::{BTreeMap, BTreeSet};

use fullbore_base::Instant;
use fullbore_tcp::isn::Tuple;
use fullbore_tcp::segment::Segment;
use fullbore_tcp::time_wait::{Late, TimeWait};

/// The least recent is forgotten when there are too many.
#[derive(Debug, Default)]
pub struct TimeWaits {
    by_tuple: BTreeMap<Tuple, TimeWait>,
    by_end: BTreeSet<(Instant, Tuple)>,
}

impl TimeWaits {
    pub fn len(&self) -> usize {
        self.by_tuple.len()
    }

    pub fn contains(&self, tuple: &Tuple) -> bool {
        self.by_tuple.contains_key(tuple)
    }

    pub fn insert(&mut self, tuple: Tuple, wait: TimeWait, count_max: usize) {
        self.by_end.insert((wait.until, tuple));
        self.by_tuple.insert(tuple, wait);
        while self.by_tuple.len() > count_max
            && let Some((_, oldest)) = self.by_end.pop_first()
        {
            self.by_tuple.remove(&oldest);
        }
    }

    pub fn remove(&mut self, tuple: &Tuple) {
        if let Some(wait) = self.by_tuple.remove(tuple) {
            self.by_end.remove(&(wait.until, *tuple));
        }
    }

    /// What a segment for one of them leads to; none where it is for none. O(log n).
    pub fn handle_segment(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
    ) -> Option<Late> {
        let wait = self.by_tuple.get_mut(tuple)?;
        let before = wait.until;
        let late = wait.handle_segment(now, segment);
        if wait.until != before {
            let until = wait.until;
            self.by_end.remove(&(before, *tuple));
            self.by_end.insert((until, *tuple));
        }
        Some(late)
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.by_end.first().map(|&(at, _)| at)
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, tuple)) = self.by_end.first()
            && at <= now
        {
            self.by_end.remove(&(at, tuple));
            self.by_tuple.remove(&tuple);
        }
    }
}
