//! Starting programs inside namespaces.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::{checked, signals};

/// Has `command` run in the network namespace `net`, with signals as a program expects them.
pub(super) fn in_network(command: &mut Command, net: &File) {
    let net: RawFd = net.as_raw_fd();
    // SAFETY: between fork and exec only system calls are made; the descriptor is open there, since the
    // caller's `File` outlives the start of the child and a fork copies descriptors.
    unsafe {
        command.pre_exec(move || {
            let net = BorrowedFd::borrow_raw(net);
            move_into_link_name_space(net, Some(LinkNameSpaceType::Network))?;
            signals::reset()
        });
    }
}

/// Has `command` be the first process of a new PID namespace with mounts of its own, and end when this
/// thread does; it inherits `kept`. Must be called on a thread that starts no other process or thread
/// afterwards.
pub(super) fn as_init(command: &mut Command, kept: [&File; 2]) -> io::Result<()> {
    // SAFETY: only children of this thread are affected.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }?;
    let kept = kept.map(AsRawFd::as_raw_fd);
    // SAFETY: between fork and exec only system calls are made; the descriptors are open there, as above.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            unshare_unsafe(UnshareFlags::NEWNS)?;
            for fd in kept {
                fcntl_setfd(BorrowedFd::borrow_raw(fd), FdFlags::empty())?;
            }
            Ok(())
        });
    }
    Ok(())
}

/// Takes over the descriptor `fd`, inherited from the parent; children do not get it.
pub(super) fn inherited(fd: RawFd) -> io::Result<File> {
    // SAFETY: asks whether the number is an open descriptor, and does nothing else.
    checked(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    // SAFETY: it is open, was put there for this process, and nothing else here knows its number.
    let file = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
    fcntl_setfd(file.as_fd(), FdFlags::CLOEXEC)?;
    Ok(file)
}

/// Gives this process a `/proc` that shows its PID namespace, seen by nothing outside.
pub(super) fn mount_proc() -> io::Result<()> {
    let none = std::ptr::null();
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the strings end in zero and live through the calls; the data may be null.
    unsafe {
        checked(libc::mount(
            none,
            c"/".as_ptr(),
            none,
            flags,
            std::ptr::null(),
        ))?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let proc = c"proc".as_ptr();
        checked(libc::mount(
            proc,
            c"/proc".as_ptr(),
            proc,
            flags,
            std::ptr::null(),
        ))?;
    }
    Ok(())
}

/// Asks the kernel to run this thread before all ordinary ones. False where it may not.
pub(super) fn run_first() -> bool {
    // The least of the real-time priorities is above everything that is not.
    let parameter = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is the calling thread, and the parameter lives through the call.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) == 0 }
}

/// Asks every other process of this PID namespace to end.
pub(super) fn terminate_others() {
    // SAFETY: sends a signal. To the first process of a PID namespace, -1 is everything in it but itself.
    // Where there is nothing else, it fails, and all is well.
    unsafe {
        libc::kill(-1, libc::SIGTERM);
    }
}
