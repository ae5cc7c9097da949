//! When a lane counts as stuck. Sans-IO.
//!
//! Lanes wait for each other: nothing is handed out further than a span past the first hole. So one that
//! says nothing - its server process hangs, its connection is cut off by a router - soon stops all of
//! them, and its own deadline is a minute away. What it has is then moved by others, after a time that
//! the path gives.
//!
//! Time counts against a lane only while others move, or while one has nothing left to do and the far
//! end answers: a path that is down altogether says nothing about one lane.
//!
//! Worked example, 320 Mbit/s at 200 ms over four lanes of 10 MB/s: one falls silent, the others go on for
//! 1.6 s until the span is full, and wait. 3 s after its last sign the lane is given up: the copy has
//! stood for 1.4 s.
//!
//! **What a lane that was given up may still do.** Its WRITEs that left are never taken back: a server
//! that hangs may serve them whenever it goes on, even once the file has its final name. They are bytes of
//! the same source at the same offsets, so they change nothing that is there but the time: as long as the source was
//! not written to while it was copied. That is looked at before the file gets its name, and the copy fails
//! otherwise (`note_changes` in `transfer/file.rs`). Besides, its handle is closed behind them, and the
//! answer waited for a moment (`LATE_CLOSE_MAX`); then its session goes. READs are simply not
//! wanted any more: what they bring late is thrown away where it arrives.

use std::time::Duration;

/// Never sooner than this. Chosen: TCP has sent a segment four times by then on a path of 200 ms.
const STILL_MIN: Duration = Duration::from_secs(3);

/// Round trips that a lane may stand still.
const STILL_ROUNDS: u32 = 10;

/// The longest requests that a lane would have moved by then.
const STILL_REQUESTS: u64 = 8;

/// More than this between two looks says that this process stood still.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// How long a lane may stand still, whose fair part is `rate` bytes a second; 0 where nothing is known.
pub(super) fn patience(rtt: Duration, rate: u64) -> Duration {
    let bytes = STILL_REQUESTS * u64::from(fullbore_sftp::client::config::REQUEST_LEN_MAX);
    let time = match rate {
        0 => Duration::ZERO,
        rate => Duration::from_millis(bytes * 1000 / rate),
    };
    STILL_MIN.max(rtt * STILL_ROUNDS).max(time)
}

/// What all lanes did since the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub(super) took: Duration,
    pub(super) moved_count: usize,
    /// A lane has nothing to do: it waits for others.
    pub(super) has_idle: bool,
    /// The far end has shown life.
    pub(super) is_answered: bool,
}

/// How long one lane has stood still.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Still {
    has_moved: bool,
    stood: Duration,
}

impl Still {
    pub(super) const fn on_moved(&mut self, bytes: u64) {
        self.has_moved |= bytes > 0;
    }

    /// Whether it has since the last look.
    pub(super) const fn has_moved(&self) -> bool {
        self.has_moved
    }

    pub(super) const fn stood(&self) -> Duration {
        self.stood
    }

    pub(super) fn on_look(&mut self, looked: &Looked, is_busy: bool) {
        if std::mem::take(&mut self.has_moved) || !is_busy {
            self.stood = Duration::ZERO;
            return;
        }
        let others_wait = looked.has_idle && looked.is_answered;
        if looked.moved_count > 0 || others_wait {
            self.stood += looked.took.min(LOOK_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn looked(moved_count: usize, has_idle: bool, is_answered: bool) -> Looked {
        Looked {
            took: 250 * MS,
            moved_count,
            has_idle,
            is_answered,
        }
    }

    #[test]
    fn time_counts_while_others_move_or_wait_and_the_far_end_answers() {
        let mut still = Still::default();
        let cases = [
            (looked(1, false, false), 250),
            // All stand still: the path.
            (looked(0, false, true), 250),
            (looked(0, true, true), 500),
            (looked(0, true, false), 500),
        ];
        for (looked, stood) in cases {
            still.on_look(&looked, true);
            assert_eq!(still.stood(), stood * MS);
        }
        still.on_moved(1);
        still.on_look(&looked(1, false, true), true);
        assert_eq!(still.stood(), Duration::ZERO);
        still.on_look(&looked(1, true, true), false);
        assert_eq!(still.stood(), Duration::ZERO, "it has nothing to do");
    }

    #[test]
    fn a_process_that_was_stopped_blames_nobody() {
        let mut still = Still::default();
        let long = Looked {
            took: Duration::from_secs(3600),
            ..looked(1, false, true)
        };
        still.on_look(&long, true);
        assert!(still.stood() < patience(MS, 0));
    }

    #[test]
    fn patience_follows_the_path() {
        assert_eq!(patience(MS, 0), STILL_MIN);
        assert_eq!(patience(MS, 10 << 20), STILL_MIN);
        assert_eq!(patience(600 * MS, 10 << 20), 6000 * MS);
        let slow = patience(MS, 100_000);
        assert!(slow > 20_000 * MS && slow < 21_000 * MS, "{slow:?}");
    }
}
