//! Congestion control by name. A namespace may only be given an algorithm that every user of the machine
//! may choose, though it is root who gives it; so while the namespaces are made, the one that is wanted is
//! allowed to all. Read first: `tcp_allowed_congestion_control` in the kernel's `ip-sysctl.rst`.

use std::fs::{self, File, OpenOptions};
use std::io;

use rustix::fs::{FlockOperation, flock};

use super::LabError;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// An algorithm that all may choose for as long as this lives.
#[derive(Debug)]
pub(super) struct Allowed {
    /// What the machine's list was.
    before: String,
    /// Locked, so that of two that change the list each restores what it found.
    _lock: File,
}

impl Allowed {
    /// Allows `name`; nothing is to be done, and nothing comes back, where it is allowed anyway.
    pub(super) fn new(name: &str) -> Result<Option<Self>, LabError> {
        let failed = |e: io::Error| LabError::new(&format!("congestion control \"{name}\""), &e);
        let lists = |text: &str| text.split_whitespace().any(|word| word == name);
        let available = fs::read_to_string(AVAILABLE).map_err(failed)?;
        if !lists(&available) {
            let text = format!("the kernel has {}", available.trim());
            return Err(failed(io::Error::other(text)));
        }
        // What the list cannot be read or written for, the namespaces may still allow.
        let Ok(lock) = OpenOptions::new().read(true).write(true).open(ALLOWED) else {
            return Ok(None);
        };
        flock(&lock, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
        let before = fs::read_to_string(ALLOWED).map_err(failed)?;
        if lists(&before) {
            return Ok(None);
        }
        fs::write(ALLOWED, format!("{} {name}", before.trim())).map_err(failed)?;
        Ok(Some(Self {
            before,
            _lock: lock,
        }))
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        // It could be written a moment ago; what may be chosen beyond it does no harm.
        let _ = fs::write(ALLOWED, &self.before);
    }
}
