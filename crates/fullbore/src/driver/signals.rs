//! What a process does about itself before it serves or copies: signals whose default would end it
//! where an error code is wanted, its limits, who may look into it.

use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit,
};

/// Makes a write past the file-size limit an error (`EFBIG`) instead of the end of the process.
#[allow(unsafe_code)]
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no handler, so no code runs in signal context.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Keeps this process's memory from being read or written through `/proc/self/mem`, which a peer could
/// reach as a file; OpenSSH's server does so too. Root is not kept out.
pub fn hide_memory() {
    // Where it is refused, nothing else changes.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Lets the process open as many files as it may, not as many as shells are given for old programs.
pub fn raise_file_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let files = Rlimit {
        current: maximum,
        maximum,
    };
    // The limit that is there does for most.
    let _ = setrlimit(Resource::Nofile, files);
}

/// Asks a process to end.
///
/// # Errors
/// What the operating system says.
pub fn terminate(pid: i32) -> std::io::Result<()> {
    let pid = Pid::from_raw(pid).ok_or(std::io::ErrorKind::NotFound)?;
    Ok(kill_process(pid, Signal::TERM)?)
}
