//! A deadline kept to a fraction of a millisecond: what pacing needs, and the runtime's timers, which
//! count milliseconds, do not give.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fullbore_base::Instant;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::driver::clock::Clock;
use crate::driver::stream::{Descriptor, register};

/// No deadline is kept closer than this: a segment of a fast connection leaves every few microseconds,
/// and each wake-up costs as much. The pacer lets a millisecond's worth leave at once.
const GRAIN: Duration = Duration::from_micros(400);

/// A timer of the kernel's; of the runtime's where time is virtual.
#[derive(Debug)]
pub enum Alarm {
    Kernel {
        timer: AsyncFd<Descriptor>,
        at: Option<Instant>,
    },
    Runtime(Pin<Box<tokio::time::Sleep>>),
}

impl Alarm {
    pub fn new(clock: &Clock) -> io::Result<Self> {
        if clock.is_virtual() {
            return Ok(Self::Runtime(Box::pin(tokio::time::sleep(Duration::ZERO))));
        }
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let timer = register(timer, Interest::READABLE)?;
        Ok(Self::Kernel { timer, at: None })
    }

    /// Ready when `at` has passed. Pending: the waker is kept.
    pub fn poll(&mut self, cx: &mut Context<'_>, clock: &Clock, at: Instant) -> Poll<()> {
        match self {
            Self::Runtime(sleep) => {
                sleep.as_mut().reset(clock.timer(at));
                sleep.as_mut().poll(cx)
            }
            Self::Kernel { timer, at: set } => {
                let now = clock.now();
                if at <= now {
                    return Poll::Ready(());
                }
                // One that is earlier stays: it costs a wake-up, as setting it anew costs a call.
                if set.is_none_or(|set| at < set || set <= now) {
                    let after = (at - now).max(GRAIN);
                    set_timer(timer.get_ref(), after);
                    *set = Some(now + after);
                }
                match timer.poll_read_ready(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Ok(mut ready)) => {
                        ready.clear_ready();
                        let _ = rustix::io::read(timer.get_ref(), &mut [0; 8]);
                        *set = None;
                        Poll::Ready(())
                    }
                    // The reactor is gone: nothing waits any more.
                    Poll::Ready(Err(_)) => Poll::Pending,
                }
            }
        }
    }
}

fn set_timer(timer: &Descriptor, after: Duration) {
    let value = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: after.subsec_nanos().into(),
        },
    };
    rustix::time::timerfd_settime(timer, TimerfdTimerFlags::empty(), &value)
        .expect("a timer takes any time from now on");
}
