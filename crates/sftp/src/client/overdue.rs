//! Requests that are never answered while later ones are: no silence tells of them.
//!
//! Servers may answer in any order, so nothing follows from being overtaken but that the request is with
//! the server. One that has been overtaken for a whole [`Config::reply_timeout`](super::Config) counts as
//! forgotten there. Looked at twice in that time, in O(requests outstanding), with two marks:
//!
//! ```text
//! look 1: the newest request answered by now was made at A        marks: -, A
//! look 2: ... at B                                                marks: A, B
//! look 3: what was made before A and still waits was overtaken at look 1 at the latest: overdue
//! ```

use std::time::Duration;

use fullbore_base::Instant;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    /// When the newest request that is answered was made.
    answered: Instant,
    marks: [Instant; 2],
    /// `None` while nothing was answered that could have overtaken anything.
    look_at: Option<Instant>,
}

impl Overdue {
    /// Requests wait from now on, where none did.
    pub(super) const fn start(&mut self) {
        self.marks = [Instant::ZERO; 2];
        self.look_at = None;
    }

    /// A request that was made at `sent` is answered.
    pub(super) fn on_answer(&mut self, now: Instant, sent: Instant, timeout: Duration) {
        self.answered = self.answered.max(sent);
        self.look_at.get_or_insert(now + timeout / 2);
    }

    /// When to look next, as long as requests wait.
    pub(super) const fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Looks, if it is time: requests made before the instant returned are overdue.
    pub(super) fn look(&mut self, now: Instant, timeout: Duration) -> Option<Instant> {
        if self.look_at.is_none_or(|at| now < at) {
            return None;
        }
        self.look_at = Some(now + timeout / 2);
        let [limit, newer] = self.marks;
        self.marks = [newer, self.answered];
        Some(limit)
    }
}
