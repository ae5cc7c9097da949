//! Requests about names: attributes to set, renames and links, home folders.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use fullbore_sftp::proto::{Attrs, Code, StatVfs};
use fullbore_sftp::server::{FileId, StoreError};
use rustix::fs::{self, AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec};
use rustix::fs::{StatVfsMountFlags, Timestamps, Uid};
use rustix::io::{self, Errno};

use super::log::{Level, Shown};
use super::realpath::realpath;
use super::{FileStore, map};
use crate::driver::local_time::local_time;

const NO_SUCH_USER: StoreError = StoreError::new(Code::NoSuchFile, "no such user");

/// What a SETSTAT works on.
enum Target<'a> {
    /// A path, links followed.
    Path(&'a [u8]),
    /// A path, the link itself.
    Link(&'a [u8]),
    /// An open file.
    File(&'a OwnedFd),
}

impl FileStore {
    pub(super) fn set_path(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError> {
        self.log_set(path, attrs);
        self.set(&Target::Path(path), attrs)
    }

    pub(super) fn set_link(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError> {
        self.log_set(path, attrs);
        self.set(&Target::Link(path), attrs)
    }

    pub(super) fn set_file(&mut self, id: FileId, attrs: &Attrs) -> Result<(), StoreError> {
        let file = self.file(id)?;
        let (fd, path) = (std::sync::Arc::clone(&file.fd), file.path.clone());
        self.log_set(&path, attrs);
        self.set(&Target::File(&fd), attrs)
    }

    /// Size, mode, times, owner, in that order; goes on after an error, reports the last.
    fn set(&self, target: &Target<'_>, attrs: &Attrs) -> Result<(), StoreError> {
        let mut result = Ok(());
        let mut note = |step: io::Result<()>| {
            if let Err(errno) = step {
                result = Err(errno);
            }
        };
        if let Some(size) = attrs.size {
            note(self.set_size(target, size));
        }
        if let Some(mode) = attrs.permissions {
            note(self.set_mode(target, Mode::from_raw_mode(mode & 0o7777)));
        }
        if let Some((atime, mtime)) = attrs.times {
            let times = Timestamps {
                last_access: whole_seconds(atime),
                last_modification: whole_seconds(mtime),
            };
            note(self.set_times(target, &times));
        }
        if let Some((uid, gid)) = attrs.uid_gid {
            note(self.set_owner(target, Uid::from_raw(uid), Gid::from_raw(gid)));
        }
        map(result)
    }

    fn set_size(&self, target: &Target<'_>, size: u64) -> io::Result<()> {
        match target {
            // A link has no size to set.
            Target::Link(_) => Err(Errno::INVAL),
            Target::File(fd) => fs::ftruncate(fd, size),
            Target::Path(path) => {
                let file = self.open_file(path, OFlags::WRONLY, Mode::empty())?;
                fs::ftruncate(&file, size)
            }
        }
    }

    fn set_mode(&self, target: &Target<'_>, mode: Mode) -> io::Result<()> {
        match target {
            Target::File(fd) => fs::fchmod(fd, mode),
            Target::Path(path) if !self.root.is_confined() => {
                fs::chmodat(self.root.dir(), *path, mode, AtFlags::empty())
            }
            Target::Path(path) => chmod_pinned(&self.root.pin(path, true)?, mode),
            Target::Link(path) => chmod_pinned(&self.root.pin(path, false)?, mode),
        }
    }

    fn set_times(&self, target: &Target<'_>, times: &Timestamps) -> io::Result<()> {
        match target {
            Target::File(fd) => fs::futimens(fd, times),
            Target::Path(path) => self.utimens(path, true, times),
            Target::Link(path) => self.utimens(path, false, times),
        }
    }

    fn utimens(&self, path: &[u8], follow: bool, times: &Timestamps) -> io::Result<()> {
        if self.root.is_confined() {
            let pinned = self.root.pin(path, follow)?;
            return fs::utimensat(&pinned, "", times, AtFlags::EMPTY_PATH);
        }
        fs::utimensat(self.root.dir(), path, times, follow_flag(follow))
    }

    fn set_owner(&self, target: &Target<'_>, uid: Uid, gid: Gid) -> io::Result<()> {
        match target {
            Target::File(fd) => fs::fchown(fd, Some(uid), Some(gid)),
            Target::Path(path) => self.chown(path, true, uid, gid),
            Target::Link(path) => self.chown(path, false, uid, gid),
        }
    }

    fn chown(&self, path: &[u8], follow: bool, uid: Uid, gid: Gid) -> io::Result<()> {
        if self.root.is_confined() {
            let pinned = self.root.pin(path, follow)?;
            return fs::chownat(&pinned, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH);
        }
        let flags = follow_flag(follow);
        fs::chownat(self.root.dir(), path, Some(uid), Some(gid), flags)
    }

    fn log_set(&mut self, path: &[u8], attrs: &Attrs) {
        if !self.is_logging() {
            return;
        }
        let path = Shown(path);
        if let Some(size) = attrs.size {
            self.log(Level::Info, format_args!("set \"{path}\" size {size}"));
        }
        if let Some(mode) = attrs.permissions {
            let mode = mode & 0o7777;
            self.log(Level::Info, format_args!("set \"{path}\" mode {mode:04o}"));
        }
        if let Some((_, mtime)) = attrs.times {
            let time = ShownTime(i64::from(mtime));
            self.log(Level::Info, format_args!("set \"{path}\" modtime {time}"));
        }
        if let Some((uid, gid)) = attrs.uid_gid {
            self.log(
                Level::Info,
                format_args!("set \"{path}\" owner {uid} group {gid}"),
            );
        }
    }

    pub(super) fn log_two(&mut self, what: &str, old: &[u8], new: &[u8]) {
        self.log(
            Level::Info,
            format_args!("{what} \"{}\" new \"{}\"", Shown(old), Shown(new)),
        );
    }

    /// Renames without ever replacing. Where the file system cannot do that in one step, as
    /// OpenSSH: a regular file by link and unlink, others only when nothing is at `to`.
    pub(super) fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let from_at = self.root.parent(from, Errno::BUSY)?;
        let to_at = self.root.parent(to, Errno::EXIST)?;
        let rename = |flags| {
            fs::renameat_with(
                from_at.dir(),
                from_at.name(),
                to_at.dir(),
                to_at.name(),
                flags,
            )
        };
        match rename(RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            result => return result,
        }
        let stat = fs::statat(from_at.dir(), from_at.name(), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            match self.link(from, to) {
                Ok(()) => {
                    return fs::unlinkat(from_at.dir(), from_at.name(), AtFlags::empty())
                        .inspect_err(|_| {
                            // The second name goes again; if not, both name the whole file.
                            let _ = fs::unlinkat(to_at.dir(), to_at.name(), AtFlags::empty());
                        });
                }
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV | Errno::PERM) => {}
                Err(errno) => return Err(errno),
            }
        }
        match fs::statat(to_at.dir(), to_at.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rename(RenameFlags::empty()),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn link(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let from = self.root.parent(from, Errno::PERM)?;
        let to = self.root.parent(to, Errno::EXIST)?;
        // linkat(2) follows a link with a slash behind it, out of a confined session's root.
        if self.root.is_confined() && from.name().ends_with(b"/") {
            return Err(Errno::NOTDIR);
        }
        fs::linkat(
            from.dir(),
            from.name(),
            to.dir(),
            to.name(),
            AtFlags::empty(),
        )
    }

    /// `~` and `~/x` are below the start folder, `~user` is that user's home.
    pub(super) fn expand(&mut self, path: &[u8], expanded: &mut Vec<u8>) -> Result<(), StoreError> {
        let mut absolute = Vec::new();
        let path = match path.strip_prefix(b"~") {
            None => path,
            Some(rest) => {
                let user_len = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
                let (user, below) = rest.split_at(user_len);
                if user.is_empty() {
                    absolute.extend_from_slice(self.root.start());
                } else {
                    self.home(user, &mut absolute)?;
                }
                absolute.extend_from_slice(below);
                &absolute
            }
        };
        map(realpath(&self.root, path, expanded))
    }

    /// The home of a user, or of the session's own for an empty name. A confined session has one
    /// home, its root, and learns of no other.
    pub(super) fn home(&mut self, user: &[u8], home: &mut Vec<u8>) -> Result<(), StoreError> {
        let own = rustix::process::getuid().as_raw();
        if self.root.is_confined() {
            let is_own = user.is_empty() || self.names.user(own).is_some_and(|u| u.name == user);
            if !is_own {
                return Err(NO_SUCH_USER);
            }
            home.push(b'/');
            return Ok(());
        }
        let user = if user.is_empty() {
            self.names.user(own)
        } else {
            self.names.user_by_name(user)
        };
        home.extend_from_slice(&user.ok_or(NO_SUCH_USER)?.home);
        Ok(())
    }
}

/// A time as OpenSSH's log shows it.
struct ShownTime(i64);

impl fmt::Display for ShownTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match local_time(self.0) {
            Some(t) => write!(
                f,
                "{:04}{:02}{:02}-{:02}:{:02}:{:02}",
                t.year,
                t.month + 1,
                t.day,
                t.hour,
                t.minute,
                t.second
            ),
            None => write!(f, "{}", self.0),
        }
    }
}

fn follow_flag(follow: bool) -> AtFlags {
    if follow {
        AtFlags::empty()
    } else {
        AtFlags::SYMLINK_NOFOLLOW
    }
}

/// Sets the mode of what a descriptor names that is not open: through `/proc`, whose entry leads
/// to the very inode, so that no race can swap it.
fn chmod_pinned(pinned: &OwnedFd, mode: Mode) -> io::Result<()> {
    let stat = fs::fstat(pinned)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
        return Err(Errno::OPNOTSUPP);
    }
    let path = format!("/proc/self/fd/{}", pinned.as_fd().as_raw_fd());
    fs::chmodat(CWD, path, mode, AtFlags::empty())
}

fn whole_seconds(seconds: u32) -> Timespec {
    Timespec {
        tv_sec: i64::from(seconds),
        tv_nsec: 0,
    }
}

/// statvfs(3) as the extension sends it.
pub(super) fn figures(vfs: fs::StatVfs) -> StatVfs {
    let mut flag = 0;
    if vfs.f_flag.contains(StatVfsMountFlags::RDONLY) {
        flag |= 1;
    }
    if vfs.f_flag.contains(StatVfsMountFlags::NOSUID) {
        flag |= 2;
    }
    StatVfs {
        bsize: vfs.f_bsize,
        frsize: vfs.f_frsize,
        blocks: vfs.f_blocks,
        bfree: vfs.f_bfree,
        bavail: vfs.f_bavail,
        files: vfs.f_files,
        ffree: vfs.f_ffree,
        favail: vfs.f_favail,
        fsid: vfs.f_fsid,
        flag,
        namemax: vfs.f_namemax,
    }
}
