//! The lab's only place with devices, namespaces, processes, signals and clocks.

mod congestion;
mod forward;
pub mod init;
pub mod machine;
mod netns;
mod process;
mod run;
pub mod sack_kernel;
pub mod sack_target;
mod sack_tun;
pub mod sftp_peer;
mod signals;
pub mod stream;
mod tun;

pub use run::run;

use std::fmt;
use std::io;

/// What could not be done, in words for a person.
#[derive(Debug)]
pub struct LabError(String);

impl LabError {
    /// `what` failed, and how.
    fn new(what: &str, error: &dyn fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LabError {}

/// The result of a system call that says -1 on failure.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Whether a call that does not wait is to be made again, once something has happened.
fn is_for_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
