//! close(2) with its answer, which dropping a descriptor throws away.

use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};

/// Closes a descriptor. It is closed whatever the answer is; an error is that of an earlier write,
/// as network file systems report it.
///
/// # Errors
/// What the file system says.
#[allow(unsafe_code)]
pub fn close(fd: OwnedFd) -> io::Result<()> {
    let raw = fd.into_raw_fd();
    // SAFETY: the descriptor was owned here alone, and nothing uses its number afterwards.
    match unsafe { libc::close(raw) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
