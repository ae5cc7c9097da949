//! How many files a server lets be open at once: what it says, else what it refuses.
//!
//! Servers answer an OPEN too many with a bare "Failure", which may mean anything. So the first such
//! refusal is taken as a sign, the file is tried again with fewer open, and what happens then is
//! believed:
//!
//! ```text
//! refused with n open ──► at most n ──┬─ opened again by then ──► it is the limit
//!                                     ├─ more than 2 n are opened meanwhile ──► it was not
//!                                     └─ refused with none open ──► it was not
//! ```
//! Between n and 2 n it was more than was thought: a server may count files that it has yet to close.

use std::cell::Cell;

/// Signs that proved wrong before "Failure" is only a failure. Chosen: a folder of files that cannot
/// be opened must not hold up the others for long.
const WRONG_SIGNS_MAX: u32 = 4;

/// A limit that a refusal told.
#[derive(Clone, Copy, Debug)]
struct Learned {
    max: usize,
    /// How many were open when one was refused.
    refused_at: usize,
    /// It was reached again.
    is_sure: bool,
}

/// The open files and folders of one session.
#[derive(Debug, Default)]
pub(super) struct Handles {
    open: Cell<usize>,
    learned: Cell<Option<Learned>>,
    wrong_signs: Cell<u32>,
}

impl Handles {
    /// The most that may be open, as far as refusals tell.
    pub(super) fn learned(&self) -> Option<usize> {
        self.learned.get().map(|learned| learned.max)
    }

    /// One was opened.
    pub(super) fn on_opened(&self) {
        let open = self.open.get() + 1;
        self.open.set(open);
        let Some(learned) = self.learned.get() else {
            return;
        };
        if open > 2 * learned.refused_at {
            self.learned.set(None);
            self.count_wrong(!learned.is_sure);
        } else if open >= learned.max {
            self.learned.set(Some(Learned {
                max: open,
                is_sure: learned.is_sure || open == learned.max,
                ..learned
            }));
        }
    }

    /// One was closed.
    pub(super) fn on_closed(&self) {
        self.open.set(self.open.get().saturating_sub(1));
    }

    /// One was refused without a reason. Whether it is worth another try with fewer open.
    pub(super) fn on_refused(&self) -> bool {
        let open = self.open.get();
        if open == 0 {
            let learned = self.learned.take();
            self.count_wrong(learned.is_some_and(|learned| !learned.is_sure));
            return false;
        }
        if self.wrong_signs.get() >= WRONG_SIGNS_MAX {
            return false;
        }
        let is_lower = self.learned.get().is_none_or(|learned| open < learned.max);
        if is_lower {
            self.learned.set(Some(Learned {
                max: open,
                refused_at: open,
                is_sure: false,
            }));
        }
        true
    }

    fn count_wrong(&self, is_wrong: bool) {
        self.wrong_signs
            .set(self.wrong_signs.get() + u32::from(is_wrong));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(handles: &Handles, count: usize) {
        (0..count).for_each(|_| handles.on_opened());
    }

    #[test]
    fn a_limit_is_learned_from_what_was_open_when_one_was_refused() {
        let handles = Handles::default();
        open(&handles, 3);
        assert!(handles.on_refused());
        assert_eq!(handles.learned(), Some(3));
        handles.on_closed();
        handles.on_opened();
        assert!(handles.on_refused(), "the same again");
        assert_eq!(handles.learned(), Some(3));
    }

    #[test]
    fn many_more_open_than_learned_prove_it_wrong() {
        let handles = Handles::default();
        open(&handles, 3);
        assert!(handles.on_refused());
        open(&handles, 3);
        assert_eq!(handles.learned(), Some(6));
        open(&handles, 1);
        assert_eq!(handles.learned(), None);
    }

    #[test]
    fn a_server_that_is_late_in_closing_is_not_taken_for_one_that_cannot_open() {
        let handles = Handles::default();
        // It takes 64, and has up to eight more that are closed here already.
        for round in 0..100 {
            let late = round % 8;
            while handles.open.get() < 64 - late {
                handles.on_opened();
            }
            assert!(handles.on_refused(), "round {round}");
            open(&handles, late);
            for _ in 0..40 {
                handles.on_closed();
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_at_all_is_told_apart_and_soon_at_once() {
        let handles = Handles::default();
        for _ in 0..WRONG_SIGNS_MAX {
            open(&handles, 1);
            assert!(handles.on_refused());
            handles.on_closed();
            assert!(!handles.on_refused(), "alone, and refused");
            assert_eq!(handles.learned(), None);
        }
        open(&handles, 1);
        assert!(!handles.on_refused());
    }
}
