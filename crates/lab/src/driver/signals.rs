//! Signals as values: blocked, then waited for.

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

use super::checked;

/// What ends the lab, and what tells that a child ended.
const AWAITED: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD];

fn awaited() -> libc::sigset_t {
    // SAFETY: `sigemptyset` makes a valid set of the zeroed memory, and `sigaddset` is given that set and
    // numbers of signals.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in AWAITED {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Blocks the awaited signals in this thread and those it starts.
pub(super) fn block() -> io::Result<()> {
    let set = awaited();
    // SAFETY: the set is valid, and the old one is not asked for.
    let code =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(code))
    }
}

/// The next awaited signal; none within `time`.
pub(super) fn wait(time: Duration) -> io::Result<Option<libc::c_int>> {
    let set = awaited();
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: set and time are valid, and the details are not asked for.
    match checked(unsafe {
        libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const time)
    }) {
        Ok(signal) => Ok(Some(signal)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Undoes in a child, between fork and exec, what a program must not inherit: the blocked signals, and
/// the ignored SIGXFSZ.
pub(super) fn reset() -> io::Result<()> {
    // SAFETY: `sigemptyset` makes a valid set of the zeroed memory; these calls are async-signal-safe and
    // install no handler.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        checked(libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null_mut(),
        ))
        .map(|_| ())
    }
}
