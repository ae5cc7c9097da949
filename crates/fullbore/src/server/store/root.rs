//! Which part of the file system a session sees, and how its paths become system calls.
//!
//! A confined session resolves every path with `openat2(RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)`
//! below its root: `..` stops at the root, absolute links start there, and the kernel itself
//! guards against renames that race with the walk. `RESOLVE_BENEATH` would be as safe, but refuses
//! absolute links altogether, which a peer that sees the root as "/" makes in good faith.
//! Operations on a name rather than a file (rename, unlink, mkdir, ...) open the parent folder
//! that way and then pass a single component, which those calls never follow.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{self, Errno};

/// The part of the file system that a session sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootPolicy {
    /// All of it; relative paths start at `start`. What OpenSSH's sftp-server does.
    Whole {
        /// The start folder.
        start: PathBuf,
    },
    /// A folder that requests cannot leave; the peer sees it as "/", and relative paths start
    /// there.
    Confined {
        /// That folder.
        root: PathBuf,
    },
}

/// How often a walk is repeated that raced with renames (openat2 answers EAGAIN then). Chosen;
/// each try is as likely to succeed as the one before.
const RACE_TRY_COUNT_MAX: usize = 32;

/// A [`RootPolicy`] with its folder open.
#[derive(Debug)]
pub(super) struct Root {
    dir: OwnedFd,
    /// Device and inode of the folder.
    identity: (u64, u64),
    is_confined: bool,
    /// Where relative paths start, as the peer sees it.
    start: Vec<u8>,
}

/// A name in a folder: what calls on names take.
pub(super) struct At<'r> {
    dir: DirFd<'r>,
    name: Vec<u8>,
}

enum DirFd<'r> {
    Borrowed(BorrowedFd<'r>),
    Owned(OwnedFd),
}

impl At<'_> {
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        match &self.dir {
            DirFd::Borrowed(fd) => *fd,
            DirFd::Owned(fd) => fd.as_fd(),
        }
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }
}

impl Root {
    /// Opens the folder.
    pub(super) fn open(policy: &RootPolicy) -> io::Result<Self> {
        let (path, is_confined) = match policy {
            RootPolicy::Whole { start } => (start, false),
            RootPolicy::Confined { root } => (root, true),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::openat(CWD, path, flags, Mode::empty())?;
        let stat = fs::fstat(&dir)?;
        let root = Self {
            dir,
            identity: identity(&stat),
            is_confined,
            start: if is_confined {
                b"/".to_vec()
            } else {
                absolute(path)?
            },
        };
        // A kernel or sandbox without openat2 must not become a server without walls.
        root.pin(b".", true)?;
        Ok(root)
    }

    /// The folder itself.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub(super) fn is_confined(&self) -> bool {
        self.is_confined
    }

    /// Where relative paths start, as the peer sees it.
    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }

    /// Whether `stat` is of the folder itself.
    pub(super) fn is_self(&self, stat: &Stat) -> bool {
        identity(stat) == self.identity
    }

    /// Opens a path.
    pub(super) fn open_path(&self, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let mut flags = flags | OFlags::CLOEXEC;
        // openat2 refuses flags that a mere path descriptor has no use for.
        if !flags.contains(OFlags::PATH) {
            flags |= OFlags::NOCTTY;
        }
        if !self.is_confined {
            return retry(|| fs::openat(&self.dir, path, flags, mode));
        }
        // openat2 takes a mode only with a flag that makes something.
        let mode = if flags.contains(OFlags::CREATE) {
            mode
        } else {
            Mode::empty()
        };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut result = Err(Errno::AGAIN);
        for _ in 0..RACE_TRY_COUNT_MAX {
            result = retry(|| fs::openat2(&self.dir, path, flags, mode, resolve));
            if !matches!(result, Err(Errno::AGAIN)) {
                break;
            }
        }
        result
    }

    /// A descriptor that names what is at a path, without opening it; with `follow` false the
    /// link itself.
    pub(super) fn pin(&self, path: &[u8], follow: bool) -> io::Result<OwnedFd> {
        let flags = if follow {
            OFlags::PATH
        } else {
            OFlags::PATH | OFlags::NOFOLLOW
        };
        self.open_path(path, flags, Mode::empty())
    }

    /// Attributes of a path.
    pub(super) fn stat(&self, path: &[u8], follow: bool) -> io::Result<Stat> {
        if self.is_confined {
            return fs::fstat(self.pin(path, follow)?);
        }
        let flags = if follow {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        fs::statat(&self.dir, path, flags)
    }

    /// What a link says.
    pub(super) fn readlink(&self, path: &[u8]) -> io::Result<CString> {
        if !self.is_confined {
            return fs::readlinkat(&self.dir, path, Vec::new());
        }
        let link = self.pin(path, false)?;
        fs::readlinkat(&link, "", Vec::new()).map_err(|errno| match errno {
            // Of an empty path the kernel says ENOENT where a path to no link is EINVAL.
            Errno::NOENT => Errno::INVAL,
            other => other,
        })
    }

    /// Folder and name of a path whose last component need not exist. `special` is the error
    /// for paths that end in ".", ".." or nothing: they name no entry of a folder.
    pub(super) fn parent(&self, path: &[u8], special: Errno) -> io::Result<At<'_>> {
        if !self.is_confined {
            return Ok(At {
                dir: DirFd::Borrowed(self.dir.as_fd()),
                name: path.to_vec(),
            });
        }
        let trimmed_len = path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
        let (trimmed, slashes) = path.split_at(trimmed_len);
        let name_at = trimmed
            .iter()
            .rposition(|&b| b == b'/')
            .map_or(0, |i| i + 1);
        let (parent, name) = trimmed.split_at(name_at);
        let dir = if parent.iter().all(|&b| b == b'/') {
            DirFd::Borrowed(self.dir.as_fd())
        } else {
            DirFd::Owned(self.open_path(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?)
        };
        if matches!(name, b"" | b"." | b"..") {
            return Err(if path.is_empty() {
                Errno::NOENT
            } else {
                special
            });
        }
        // A trailing slash keeps its meaning (only a folder may be there), and the calls that
        // take an `At` do not follow links for it.
        let mut name = name.to_vec();
        if !slashes.is_empty() {
            name.push(b'/');
        }
        Ok(At { dir, name })
    }
}

/// Repeats a call that a signal interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn absolute(path: &Path) -> io::Result<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    let path = std::fs::canonicalize(path)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(path.into_os_string().into_vec())
}
