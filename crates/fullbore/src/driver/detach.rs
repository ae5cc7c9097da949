//! One process becomes two: one that a shell waits for, and one that does the work and may stay when the
//! other has gone.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, WaitOptions};

/// Which of the two this is.
#[derive(Debug)]
pub enum Split {
    /// The one that was waited for; the other said with what code to end, or ended with it.
    Front(u8),
    /// The one that works.
    Back(Background),
}

/// The way to the process in front.
#[derive(Debug)]
pub struct Background {
    front: File,
}

/// Splits this process. Only where it has a single thread: others would not be in the copy.
///
/// # Errors
/// What the operating system says; then nothing was split.
#[allow(unsafe_code)]
pub fn split() -> io::Result<Split> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: the caller has one thread, so no lock or other state of another is half changed in the
    // copy.
    let child = unsafe { libc::fork() };
    match Pid::from_raw(child) {
        _ if child < 0 => Err(io::Error::last_os_error()),
        None => {
            drop(reader);
            // Whoever ends the one in front means this one too.
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
            let front = File::from(writer);
            Ok(Split::Back(Background { front }))
        }
        Some(child) => {
            drop(writer);
            Ok(Split::Front(wait(reader, child)))
        }
    }
}

/// Waits for a code, or for the end of the process behind.
#[allow(unsafe_code)]
fn wait(reader: OwnedFd, child: Pid) -> u8 {
    // The terminal sends its signals to both: the one behind cleans up, and says how it ended.
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let mut code = [0];
    if File::from(reader).read_exact(&mut code).is_ok() {
        return code[0];
    }
    match rustix::process::waitpid(Some(child), WaitOptions::empty()) {
        Ok(Some((_, status))) => {
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = status.exit_status().or(signal).unwrap_or(1);
            u8::try_from(code).unwrap_or(1)
        }
        Ok(None) | Err(_) => 1,
    }
}

impl Background {
    /// Lets the process in front end with `code`, and leaves its terminal, folder and session.
    pub fn leave(mut self, code: u8) {
        let _ = rustix::process::set_parent_process_death_signal(None);
        let _ = rustix::process::setsid();
        let _ = std::env::set_current_dir("/");
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        // It may have been killed.
        let _ = self.front.write_all(&[code]);
    }
}
