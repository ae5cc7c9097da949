//! Moves packets between the two devices: one thread, which the kernel runs before all others where it
//! may.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fullbore::driver::clock::Clock;
use fullbore_base::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};

use super::{is_for_later, process};
use crate::link::{Lateness, Packet, Shaper, VNET_LEN};

/// Packets that are read from one device before the other has its turn.
const BATCH_PACKETS_MAX: usize = 64;
/// The longest IP packet, and what stands before it.
const READ_BYTES: usize = VNET_LEN + 0x1_0000;

/// One direction: where packets come from, what happens to them, where they go.
#[derive(Debug)]
pub(super) struct Direction {
    pub(super) shaper: Shaper,
    pub(super) lateness: Lateness,
    pub(super) refused: u64,
}

impl Direction {
    pub(super) fn new(shaper: Shaper) -> Self {
        Self {
            shaper,
            lateness: Lateness::default(),
            refused: 0,
        }
    }

    /// Reads what the sender's stack has sent.
    fn take(&mut self, clock: &Clock, mut from: &File, scratch: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH_PACKETS_MAX {
            match from.read(scratch) {
                Ok(len) => {
                    if let Some(packet) = Packet::new(scratch[..len].to_vec()) {
                        self.shaper.send(clock.now(), packet);
                    }
                }
                Err(error) if is_for_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands what has arrived to the receiver's stack.
    fn give(&mut self, clock: &Clock, mut to: &File) {
        while let Some((at, packet)) = self.shaper.receive(clock.now()) {
            self.lateness.record(clock.now() - at);
            if to.write(packet.as_bytes()).is_err() {
                self.refused += 1;
            }
        }
    }
}

/// Both directions, and how the thread was scheduled.
#[derive(Debug)]
pub(super) struct Forwarded {
    pub(super) up: Direction,
    pub(super) down: Direction,
    pub(super) scheduling: &'static str,
}

/// Forwards until the other end of `stop` is closed.
///
/// # Errors
/// When a device cannot be read any more; this process then is told to end, as by a signal from outside.
pub(super) fn run(
    near: &File,
    far: &File,
    shapers: [Shaper; 2],
    stop: &OwnedFd,
) -> io::Result<Forwarded> {
    forward(near, far, shapers, stop).inspect_err(|_| {
        // A process can always signal itself.
        let _ = kill_process(getpid(), Signal::TERM);
    })
}

fn forward(near: &File, far: &File, shapers: [Shaper; 2], stop: &OwnedFd) -> io::Result<Forwarded> {
    let scheduling = if process::run_first() {
        "real-time thread"
    } else {
        // Without the right to be first, timers at least are not rounded; that is never refused.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        "ordinary thread"
    };
    let clock = Clock::start();
    let mut scratch = vec![0; READ_BYTES];
    let [mut up, mut down] = shapers.map(Direction::new);
    loop {
        up.give(&clock, far);
        down.give(&clock, near);
        let next = [up.shaper.next_arrival(), down.shaper.next_arrival()];
        let next = next.into_iter().flatten().min();
        let [from_near, from_far, is_over] =
            wait(&clock, next, [near.as_fd(), far.as_fd(), stop.as_fd()])?;
        if is_over {
            break;
        }
        if from_near {
            up.take(&clock, near, &mut scratch)?;
        }
        if from_far {
            down.take(&clock, far, &mut scratch)?;
        }
    }
    Ok(Forwarded {
        up,
        down,
        scheduling,
    })
}

/// Waits for one of `fds`, at most until `next`. Returns which there is something on.
fn wait(clock: &Clock, next: Option<Instant>, fds: [BorrowedFd<'_>; 3]) -> io::Result<[bool; 3]> {
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let time = next.map(|at| {
        let left = at - clock.now();
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    match poll(&mut polled, time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.map(|fd| !fd.revents().is_empty()))
}
