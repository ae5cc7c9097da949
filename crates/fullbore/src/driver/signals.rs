//! Signals whose default would end the process where an error code is wanted.

/// Makes a write past the file-size limit an error (`EFBIG`) instead of the end of the process.
#[allow(unsafe_code)]
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no handler, so no code runs in signal context.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
