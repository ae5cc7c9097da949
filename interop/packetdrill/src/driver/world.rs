//! One world for all threads that call in: a lock, a clock that moves only when told to, and calls that
//! wait for something to change.
//!
//! Whoever changes something lets everyone who waits look again before the clock moves on: a call that
//! becomes possible at some instant of virtual time is over at that instant, whatever the machine's
//! scheduler does. A counter of changes and the last one that each waiting call has seen do this.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_base::Instant;

use crate::host::Host;
use crate::settings::Settings;
use crate::sockets::{Fd, Outcome, Sockets, Stop};

/// How long a call waits, in real time, for somebody else to move the clock before it does so itself:
/// a program with one thread would wait for ever.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long, in real time, a packet is waited for that only a call of another thread could bring: it may
/// just not have begun.
const GRACE: Duration = Duration::from_secs(1);
/// Deadlines that may pass without a packet while somebody waits for one. A connection gives up long
/// before.
const DEADLINES_MAX: usize = 100_000;

thread_local! {
    /// When the last call of this thread, which had to wait, was over: what it is told is the time.
    static RETURNED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A call that waits.
#[derive(Debug)]
struct Waiter {
    until: Option<Instant>,
    /// The last change that it knows of.
    seen: u64,
}

/// Everything, behind the lock.
#[derive(Debug)]
pub struct World {
    pub sockets: Sockets,
    /// The real descriptors that ours are named after.
    pub descriptors: BTreeMap<Fd, OwnedFd>,
    waiters: BTreeMap<u64, Waiter>,
    next_waiter: u64,
    changes: u64,
}

impl World {
    fn next_deadline(&self) -> Option<Instant> {
        let waiters = self.waiters.values().filter_map(|w| w.until);
        let host = self.sockets.host().next_timer();
        waiters.chain(host).min()
    }

    fn is_settled(&self) -> bool {
        self.waiters.values().all(|w| w.seen == self.changes)
    }
}

/// What the C side's handle leads to.
#[derive(Debug)]
pub struct Shared {
    world: Mutex<World>,
    changed: Condvar,
    /// The flags as they came: they go over sysctls that are read later.
    pub flags: String,
}

type Guard<'a> = MutexGuard<'a, World>;

impl Shared {
    /// A world in which nothing has happened.
    pub fn new(settings: Settings, flags: String) -> Self {
        Self {
            world: Mutex::new(World {
                sockets: Sockets::new(Host::new(settings)),
                descriptors: BTreeMap::new(),
                waiters: BTreeMap::new(),
                next_waiter: 0,
                changes: 0,
            }),
            changed: Condvar::new(),
            flags,
        }
    }

    /// The world, for something that changes nothing that anybody waits for.
    pub fn look(&self) -> Guard<'_> {
        // A call that panicked ends the process; nobody sees what it left.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause<'a>(&self, guard: Guard<'a>) -> Guard<'a> {
        let paused = self.changed.wait(guard);
        paused.unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has changed: everyone who waits looks again, and then the caller goes on.
    fn settle<'a>(&self, mut guard: Guard<'a>) -> Guard<'a> {
        guard.changes += 1;
        self.changed.notify_all();
        while !guard.is_settled() {
            guard = self.pause(guard);
        }
        guard
    }

    /// Changes something.
    pub fn change<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        let mut guard = self.look();
        let done = act(&mut guard);
        drop(self.settle(guard));
        done
    }

    /// A call: it is made again each time that something changes, until it is possible or fails.
    ///
    /// # Errors
    /// Its `errno`. `EDEADLK` when nothing can happen any more that it waits for.
    pub fn call<T>(&self, mut step: impl FnMut(&mut World) -> Outcome<T>) -> Result<T, i32> {
        let mut guard = self.look();
        let mut ticket = None;
        let result = loop {
            let until = match step(&mut guard) {
                Ok(done) => break Ok(done),
                Err(Stop::Errno(errno)) => break Err(errno),
                Err(Stop::Wait(until)) => until,
            };
            let ticket = *ticket.get_or_insert_with(|| {
                guard.next_waiter += 1;
                guard.next_waiter
            });
            let seen = guard.changes;
            guard.waiters.insert(ticket, Waiter { until, seen });
            self.changed.notify_all();
            match self.await_change(guard, seen) {
                (next, true) => guard = next,
                (next, false) => {
                    guard = next;
                    break Err(libc::EDEADLK);
                }
            }
        };
        if let Some(ticket) = ticket {
            guard.waiters.remove(&ticket);
            RETURNED_AT.set(Some(guard.sockets.host().now()));
        }
        drop(self.settle(guard));
        result
    }

    /// Waits until there is a change behind `seen`. When nobody makes one for too long, the clock
    /// is moved from here; false when there is nothing to move it to.
    fn await_change<'a>(&self, mut guard: Guard<'a>, seen: u64) -> (Guard<'a>, bool) {
        while guard.changes == seen {
            let waited = self.changed.wait_timeout(guard, PATIENCE);
            let (next, result) = waited.unwrap_or_else(PoisonError::into_inner);
            guard = next;
            if result.timed_out() && guard.changes == seen {
                let Some(at) = guard.next_deadline() else {
                    return (guard, false);
                };
                guard.sockets.host_mut().advance(at);
                guard.changes += 1;
                self.changed.notify_all();
            }
        }
        (guard, true)
    }

    /// Moves the clock to `to`, stopping at every deadline on the way.
    fn advance<'a>(&self, mut guard: Guard<'a>, to: Instant) -> Guard<'a> {
        while let Some(at) = guard.next_deadline().filter(|&at| at <= to) {
            guard.sockets.host_mut().advance(at);
            guard = self.settle(guard);
        }
        guard.sockets.host_mut().advance(to);
        guard
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.look().waiters.len()
    }

    /// Lets `duration` pass.
    pub fn sleep(&self, duration: Duration) {
        let guard = self.look();
        let to = guard.sockets.host().now() + duration;
        drop(self.advance(guard, to));
    }

    /// The time. It is a little later each time it is asked for, so that who spins until some
    /// instant gets there; but a thread whose call has just stopped to wait is told when that was.
    pub fn clock(&self) -> Instant {
        if let Some(at) = RETURNED_AT.take() {
            return at;
        }
        let guard = self.look();
        let to = guard.sockets.host().now() + Duration::from_micros(1);
        self.advance(guard, to).sockets.host().now()
    }

    /// The next packet out and when it left. The clock is moved to each deadline until there is one;
    /// `None` when no deadline is left that could bring it.
    pub fn receive_packet(&self) -> Option<(Instant, Vec<u8>)> {
        let mut guard = self.look();
        for _ in 0..DEADLINES_MAX {
            if let Some(packet) = guard.sockets.host_mut().pop_packet() {
                return Some(packet);
            }
            guard = match guard.next_deadline() {
                Some(at) => self.advance(guard, at),
                None => self.await_other(guard)?,
            };
        }
        None
    }

    /// Waits until another thread has changed something; `None` when none does.
    fn await_other<'a>(&self, guard: Guard<'a>) -> Option<Guard<'a>> {
        let changes = guard.changes;
        let is_same = |world: &mut World| world.changes == changes;
        let waited = self.changed.wait_timeout_while(guard, GRACE, is_same);
        let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (!result.timed_out()).then_some(guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn shared() -> Arc<Shared> {
        Arc::new(Shared::new(Settings::default(), String::new()))
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_call_that_waits_is_over_when_the_clock_reaches_its_time() {
        let shared = shared();
        let start = shared.look().sockets.host().now();
        let until = start + SECOND;
        let other = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let done = other.call(|world| {
                if world.sockets.host().now() >= until {
                    Ok(world.sockets.host().now())
                } else {
                    Err(Stop::Wait(Some(until)))
                }
            });
            (done, other.clock(), other.clock())
        });
        while shared.waiting() == 0 {
            std::thread::yield_now();
        }
        shared.sleep(SECOND * 5);
        let (done, first, second) = thread.join().expect("it does not panic");
        assert_eq!(done, Ok(until), "not when the sleep was over");
        assert_eq!(first, until, "what the thread is told");
        assert!(second > until, "it goes on from there");
        assert!(shared.clock() > start + SECOND * 5);
    }

    #[test]
    fn a_change_is_seen_by_every_call_that_waits_before_who_made_it_goes_on() {
        let shared = shared();
        let threads: Vec<_> = (0..3)
            .map(|wanted: Fd| {
                let other = Arc::clone(&shared);
                std::thread::spawn(move || {
                    other.call(|world| {
                        if world.sockets.has(wanted) {
                            Ok(())
                        } else {
                            Err(Stop::Wait(None))
                        }
                    })
                })
            })
            .collect();
        while shared.waiting() < threads.len() {
            std::thread::yield_now();
        }
        for fd in 0..3 {
            let made = shared.change(|world| {
                world
                    .sockets
                    .socket(fd, libc::AF_INET, libc::SOCK_STREAM, 0)
            });
            assert_eq!(made, Ok(()));
            assert_eq!(
                shared.look().waiters.len(),
                2 - usize::try_from(fd).expect("small")
            );
        }
        for thread in threads {
            assert_eq!(thread.join().expect("it does not panic"), Ok(()));
        }
    }

    #[test]
    fn a_program_with_one_thread_does_not_wait_for_ever() {
        let shared = shared();
        let never = shared.call(|_| Err::<(), _>(Stop::Wait(None)));
        assert_eq!(never, Err(libc::EDEADLK));
        assert_eq!(shared.receive_packet(), None);
    }

    #[test]
    fn a_packet_of_a_call_that_has_not_begun_is_waited_for() {
        let shared = shared();
        let other = Arc::clone(&shared);
        let receiver = std::thread::spawn(move || other.receive_packet());
        let remote = std::net::SocketAddr::from(([192, 0, 2, 1], 80));
        let mut opening = crate::sockets::Opening::default();
        let begun = shared.call(|world| {
            let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
            world.sockets.socket(1, libc::AF_INET, kind, 0)?;
            world.sockets.connect(1, remote, &mut opening)
        });
        assert_eq!(begun, Err(libc::EINPROGRESS));
        let received = receiver.join().expect("it does not panic");
        let (at, packet) = received.expect("a SYN");
        assert_eq!(packet[20 + 13], 2);
        assert!(at <= shared.clock());
    }

    #[test]
    fn the_clock_is_later_each_time() {
        let shared = shared();
        let first = shared.clock();
        assert_eq!(shared.clock() - first, Duration::from_micros(1));
        shared.sleep(SECOND);
        assert_eq!(shared.clock() - first, SECOND + Duration::from_micros(2));
    }
}
