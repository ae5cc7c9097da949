//! The outside world as configuration sees it: one trait, so that every decision can be tested
//! against a made-up machine.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What decides whether a file may be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// The owner's user id.
    pub uid: u32,
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    /// Whether it is a folder.
    pub is_dir: bool,
}

/// Files, variables and services that configuration asks for. Calls may block: they happen before
/// a connection exists.
pub trait Environment {
    /// The file's bytes; an error of kind `InvalidData` when it is longer than `bytes_max`.
    ///
    /// # Errors
    /// Whatever opening or reading gives.
    fn read_file(&self, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>>;
    /// The same of a file that nobody named, at a place of its own: never waits for a pipe that happens to
    /// be there.
    ///
    /// # Errors
    /// The same, and `InvalidInput` for what is no regular file.
    fn read_regular_file(&self, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        self.read_file(path, bytes_max)
    }
    /// Owner and mode, following symlinks.
    ///
    /// # Errors
    /// Whatever stat gives.
    fn file_facts(&self, path: &Path) -> io::Result<FileFacts>;
    /// The names in a folder, without `.` and `..`, in any order.
    ///
    /// # Errors
    /// Whatever reading the folder gives.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<OsString>>;
    /// Appends a line in one write, so that programs which do that at once lose nothing. The file is
    /// made (mode 0600, missing folder with 0700) where there is none; a last line without its end
    /// gets one.
    ///
    /// # Errors
    /// Whatever creating, opening or writing gives.
    fn append_line(&self, path: &Path, line: &[u8]) -> io::Result<()>;
    /// Replaces a file of the user's own in one step: readers see the old content or the new. The
    /// file has mode 0600, a missing folder is made with 0700.
    ///
    /// # Errors
    /// Whatever creating, writing or renaming gives; the old file stays then.
    fn replace_file(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// An environment variable.
    fn variable(&self, name: &str) -> Option<OsString>;
    /// The names of all environment variables that are UTF-8.
    fn variable_names(&self) -> Vec<String>;
    /// The home folder of the user who runs this.
    fn home(&self) -> PathBuf;
    /// The home folder of a named user, for `~name`.
    fn home_of(&self, user: &str) -> Option<PathBuf>;
    /// The name of the user who runs this.
    fn user(&self) -> String;
    /// The id of the user who runs this.
    fn uid(&self) -> u32;
    /// This machine's host name.
    fn host_name(&self) -> String;
    /// Runs a command with the user's shell; whether it exited with 0 (`Match exec`).
    ///
    /// # Errors
    /// When it cannot be started.
    fn run(&self, command: &str) -> io::Result<bool>;
    /// Resolves a name: its canonical name if it has addresses, with CNAMEs followed when known.
    fn resolve(&self, name: &str) -> Option<String>;
    /// Fills a buffer with secret randomness (salts of hashed host names).
    fn fill_random(&self, out: &mut [u8]);
}

/// `~`, `~/x` and `~user/x` replaced by the home folder; other paths as they are. None when the
/// user is unknown.
#[must_use]
pub fn expand_tilde(environment: &dyn Environment, path: &[u8]) -> Option<PathBuf> {
    let Some(rest) = path.strip_prefix(b"~") else {
        return Some(PathBuf::from(OsString::from_vec(path.to_vec())));
    };
    let end = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let (user, below) = rest.split_at(end);
    let home = if user.is_empty() {
        environment.home()
    } else {
        environment.home_of(std::str::from_utf8(user).ok()?)?
    };
    let below = below.strip_prefix(b"/").unwrap_or(below);
    if below.is_empty() {
        return Some(home);
    }
    Some(home.join(std::ffi::OsStr::from_bytes(below)))
}
