//! Processor time of the calling thread, and the time it waited for a processor.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::path::ThreadTimes;

/// Reads the times of the thread that made it, on that thread.
#[derive(Debug)]
pub struct ThreadClock {
    /// proc(5): nanoseconds run, nanoseconds waited to run, number of time slices. Names one thread
    /// from its opening on. None where the kernel keeps no such statistics.
    schedstat: Option<File>,
}

impl ThreadClock {
    /// A clock of the calling thread.
    #[must_use]
    pub fn here() -> Self {
        Self {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
        }
    }

    /// The times so far. One or two system calls.
    #[must_use]
    pub fn read(&self) -> ThreadTimes {
        self.schedstat
            .as_ref()
            .and_then(read_schedstat)
            .unwrap_or_else(|| ThreadTimes {
                running: exact(),
                waiting: Duration::ZERO,
            })
    }
}

/// What the calling thread has run so far, exact: what the kernel's statistics show a tick later. One system
/// call.
#[must_use]
pub fn exact() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn read_schedstat(file: &File) -> Option<ThreadTimes> {
    let mut text = [0; 64];
    let len = file.read_at(&mut text, 0).ok()?;
    let mut numbers = std::str::from_utf8(&text[..len]).ok()?.split_whitespace();
    let mut next = || Some(Duration::from_nanos(numbers.next()?.parse().ok()?));
    Some(ThreadTimes {
        running: next()?,
        waiting: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_as_running_and_sleep_as_nothing() {
        for clock in [ThreadClock::here(), ThreadClock { schedstat: None }] {
            let before = clock.read();
            let mut after = before;
            let mut sum = 0u64;
            // Until it shows: the kernel counts in ticks.
            while after.running == before.running {
                for i in 0..1_000_000u64 {
                    sum = sum.wrapping_mul(31).wrapping_add(std::hint::black_box(i));
                }
                after = clock.read();
            }
            assert!(after.running > before.running, "{sum}");
            assert!(after.running < Duration::from_secs(3600));
        }
    }
}
