//! Writing to the standard streams: a reader that has gone away ends the program, quietly.

use std::io::{self, Write as _};

/// 128 and SIGPIPE's number: what a shell sees of a program that the signal ends.
const PIPE_EXIT: i32 = 141;

/// Writes to the standard output.
pub(crate) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    check(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    );
}

/// Writes a line to the standard error.
pub(crate) fn error(line: &str) {
    print_error(&format!("{line}\n"));
}

/// Writes to the standard error in one piece.
pub(crate) fn print_error(text: &str) {
    let mut stderr = io::stderr().lock();
    check(
        stderr
            .write_all(text.as_bytes())
            .and_then(|()| stderr.flush()),
    );
}

/// What else fails in writing a message (a full disk behind a redirection) does not change what the
/// program does, and there is nowhere to tell it.
fn check(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() == io::ErrorKind::BrokenPipe
    {
        std::process::exit(PIPE_EXIT);
    }
}
