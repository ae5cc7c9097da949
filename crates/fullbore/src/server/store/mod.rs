//! The machine's file system as the SFTP server's store.
//!
//! What a session may reach is decided in `root`; this file maps each request to system calls
//! and keeps the open files. Paths go to the kernel as the peer sent them.

mod errno;
mod files;
mod listing;
mod log;
mod names;
mod offload;
mod paths;
mod realpath;
mod root;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::IoSliceMut;

use fullbore_sftp::proto::{Attrs, Code, OpenFlags, StatVfs};
use fullbore_sftp::server::{
    CheckRange, CheckTarget, CopyRange, DirSink, FileId, Outcome, Store, StoreError, Token,
};
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io;

pub use log::{Level, Log, Shown};
pub use names::{Names, User};
pub use offload::{Job, Offload, Progress};
pub use root::RootPolicy;
pub(crate) use root::retry;

use errno::store_error;
use files::{OpenDir, OpenFile, Opened};
use listing::{Listing, attrs};
use root::Root;

/// What a [`FileStore`] is made of.
pub struct Options {
    /// What the session may reach.
    pub root: RootPolicy,
    /// Mode bits that new files and folders do not get, besides those of the process's own umask.
    pub umask: u32,
    /// Show owners by name, and answer questions for the names of ids.
    pub owner_names: bool,
    /// Where the session's log goes.
    pub log: Option<Box<dyn Log>>,
    /// Where calls go that may block for long; without it they are made in line.
    pub offload: Option<Box<dyn Offload>>,
}

impl Options {
    /// Options for a root, with owner names, and no umask, log and offload.
    #[must_use]
    pub fn new(root: RootPolicy) -> Self {
        Self {
            root,
            umask: 0,
            owner_names: true,
            log: None,
            offload: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("root", &self.root)
            .field("umask", &self.umask)
            .finish_non_exhaustive()
    }
}

/// The file system as one session sees it.
pub struct FileStore {
    root: Root,
    umask: u32,
    names: Names,
    owner_names: bool,
    log: Option<Box<dyn Log>>,
    offload: Option<Box<dyn Offload>>,
    /// Indexed by [`FileId`].
    open: Vec<Option<Opened>>,
    /// Buffers of reads that were made elsewhere, for the next ones.
    buffers: Vec<Vec<u8>>,
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore")
            .field("root", &self.root)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

/// Buffers kept for reads made elsewhere. Chosen: more are in use only while a disk is busy.
const BUFFER_COUNT_MAX: usize = 4;

impl FileStore {
    /// A store below the root of `options`.
    ///
    /// # Errors
    /// When the folder cannot be opened, or the kernel cannot confine a session.
    pub fn new(options: Options) -> std::io::Result<Self> {
        Ok(Self {
            root: Root::open(&options.root)?,
            umask: options.umask,
            names: Names::default(),
            owner_names: options.owner_names,
            log: options.log,
            offload: options.offload,
            open: Vec::new(),
            buffers: Vec::new(),
        })
    }

    /// Closes what the peer left open, and says so in the log.
    pub fn close_all(&mut self) {
        for index in 0..self.open.len() {
            if let Some(opened) = self.open[index].take() {
                self.log_close(&opened, "forced ");
            }
        }
    }

    fn log(&mut self, level: Level, message: fmt::Arguments<'_>) {
        if let Some(log) = &mut self.log
            && log.is_enabled(level)
        {
            log.log(level, message);
        }
    }

    fn is_logging(&self) -> bool {
        self.log
            .as_ref()
            .is_some_and(|log| log.is_enabled(Level::Info))
    }

    /// A mode for something new.
    fn mode(&self, attrs: &Attrs, default: u32) -> Mode {
        let mode = attrs.permissions.unwrap_or(default) & 0o7777 & !self.umask;
        Mode::from_raw_mode(mode)
    }
}

fn map<T>(result: io::Result<T>) -> Result<T, StoreError> {
    result.map_err(store_error)
}

impl Store for FileStore {
    fn open(
        &mut self,
        file: FileId,
        path: &[u8],
        flags: OpenFlags,
        attrs: &Attrs,
    ) -> Result<(), StoreError> {
        let mode = self.mode(attrs, 0o666);
        self.log(
            Level::Info,
            format_args!(
                "open \"{}\" flags {} mode 0{:o}",
                Shown(path),
                files::ShownFlags(flags),
                attrs.permissions.unwrap_or(0o666) & 0o7777
            ),
        );
        let fd = map(self.open_file(path, files::open_flags(flags), mode))?;
        let opened = Opened::File(OpenFile::new(fd, self.logged_path(path)));
        self.insert(file, opened);
        Ok(())
    }

    fn opendir(&mut self, dir: FileId, path: &[u8]) -> Result<(), StoreError> {
        self.log(Level::Info, format_args!("opendir \"{}\"", Shown(path)));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let fd = map(self.root.open_path(path, flags, Mode::empty()))?;
        let opened = Opened::Dir(OpenDir {
            listing: Listing::new(map(fs::Dir::new(fd))?),
            path: self.logged_path(path),
        });
        self.insert(dir, opened);
        Ok(())
    }

    fn close(&mut self, file: FileId) -> Result<(), StoreError> {
        if let Some(opened) = self.open.get_mut(file.0 as usize).and_then(Option::take) {
            self.log_close(&opened, "");
            map(opened.close())?;
        }
        Ok(())
    }

    fn read(
        &mut self,
        token: Token,
        file: FileId,
        offset: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Outcome<usize> {
        self.read_file(token, file, offset, into)
    }

    fn write(&mut self, _: Token, file: FileId, offset: u64, data: &[u8]) -> Outcome<()> {
        let result = self.file(file).and_then(|file| {
            map(offload::write_all(&file.fd, offset, data))?;
            file.written_bytes += data.len() as u64;
            Ok(())
        });
        result.into()
    }

    fn fsync(&mut self, token: Token, file: FileId) -> Outcome<()> {
        self.fsync_file(token, file)
    }

    fn copy_data(&mut self, token: Token, copy: CopyRange) -> Outcome<()> {
        self.copy_files(token, copy)
    }

    fn check_file(
        &mut self,
        token: Token,
        target: CheckTarget<'_>,
        range: CheckRange,
        digests: &mut Vec<u8>,
    ) -> Outcome<()> {
        self.check(token, target, range, digests)
    }

    fn readdir(&mut self, dir: FileId, sink: &mut DirSink<'_, '_>) -> Result<(), StoreError> {
        match self.open.get_mut(dir.0 as usize) {
            Some(Some(Opened::Dir(dir))) => {
                let names = self.owner_names.then_some(&mut self.names);
                map(dir.listing.fill(&self.root, names, sink))
            }
            Some(Some(Opened::File(_)) | None) | None => Err(Code::Failure.into()),
        }
    }

    fn stat(&mut self, path: &[u8]) -> Result<Attrs, StoreError> {
        map(self.root.stat(path, true)).map(|stat| attrs(&stat))
    }

    fn lstat(&mut self, path: &[u8]) -> Result<Attrs, StoreError> {
        map(self.root.stat(path, false)).map(|stat| attrs(&stat))
    }

    fn fstat(&mut self, file: FileId) -> Result<Attrs, StoreError> {
        let file = self.file(file)?;
        map(fs::fstat(&file.fd)).map(|stat| attrs(&stat))
    }

    fn setstat(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError> {
        self.set_path(path, attrs)
    }

    fn lsetstat(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError> {
        self.set_link(path, attrs)
    }

    fn fsetstat(&mut self, file: FileId, attrs: &Attrs) -> Result<(), StoreError> {
        self.set_file(file, attrs)
    }

    fn remove(&mut self, path: &[u8]) -> Result<(), StoreError> {
        self.log(Level::Info, format_args!("remove name \"{}\"", Shown(path)));
        let at = map(self.root.parent(path, io::Errno::ISDIR))?;
        map(fs::unlinkat(at.dir(), at.name(), AtFlags::empty()))
    }

    fn mkdir(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError> {
        let mode = self.mode(attrs, 0o777);
        self.log(
            Level::Info,
            format_args!(
                "mkdir name \"{}\" mode 0{:o}",
                Shown(path),
                attrs.permissions.unwrap_or(0o777) & 0o7777
            ),
        );
        let at = map(self.root.parent(path, io::Errno::EXIST))?;
        map(fs::mkdirat(at.dir(), at.name(), mode))
    }

    fn rmdir(&mut self, path: &[u8]) -> Result<(), StoreError> {
        self.log(Level::Info, format_args!("rmdir name \"{}\"", Shown(path)));
        let at = map(self.root.parent(path, io::Errno::BUSY))?;
        map(fs::unlinkat(at.dir(), at.name(), AtFlags::REMOVEDIR))
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        self.log_two("rename old", from, to);
        map(self.rename_new(from, to))
    }

    fn posix_rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        self.log_two("posix-rename old", from, to);
        let from = map(self.root.parent(from, io::Errno::BUSY))?;
        let to = map(self.root.parent(to, io::Errno::BUSY))?;
        let flags = RenameFlags::empty();
        map(fs::renameat_with(
            from.dir(),
            from.name(),
            to.dir(),
            to.name(),
            flags,
        ))
    }

    fn symlink(&mut self, target: &[u8], link: &[u8]) -> Result<(), StoreError> {
        self.log_two("symlink old", target, link);
        let at = map(self.root.parent(link, io::Errno::EXIST))?;
        map(fs::symlinkat(target, at.dir(), at.name()))
    }

    fn hardlink(&mut self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        self.log_two("hardlink old", from, to);
        map(self.link(from, to))
    }

    fn readlink(&mut self, path: &[u8], target: &mut Vec<u8>) -> Result<(), StoreError> {
        let link = map(self.root.readlink(path))?;
        target.extend_from_slice(link.as_bytes());
        Ok(())
    }

    fn realpath(&mut self, path: &[u8], real: &mut Vec<u8>) -> Result<(), StoreError> {
        map(realpath::realpath(&self.root, path, real))
    }

    fn expand_path(&mut self, path: &[u8], expanded: &mut Vec<u8>) -> Result<(), StoreError> {
        self.expand(path, expanded)
    }

    fn home_directory(&mut self, user: &[u8], home: &mut Vec<u8>) -> Result<(), StoreError> {
        self.home(user, home)
    }

    fn user_name(&mut self, uid: u32, name: &mut Vec<u8>) {
        if self.owner_names
            && let Some(user) = self.names.user(uid)
        {
            name.extend_from_slice(&user.name);
        }
    }

    fn group_name(&mut self, gid: u32, name: &mut Vec<u8>) {
        if self.owner_names
            && let Some(group) = self.names.group(gid)
        {
            name.extend_from_slice(group);
        }
    }

    fn statvfs(&mut self, path: &[u8]) -> Result<StatVfs, StoreError> {
        self.log(Level::Info, format_args!("statvfs \"{}\"", Shown(path)));
        let pinned = map(self.root.pin(path, true))?;
        map(fs::fstatvfs(&pinned)).map(paths::figures)
    }

    fn fstatvfs(&mut self, file: FileId) -> Result<StatVfs, StoreError> {
        let file = self.file(file)?;
        map(fs::fstatvfs(&file.fd)).map(paths::figures)
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < BUFFER_COUNT_MAX {
            self.buffers.push(buffer);
        }
    }

    fn status_sent(&mut self, code: Code) {
        // OpenSSH says so of failures, and of success only when verbose.
        let level = match code {
            Code::Ok | Code::Eof => Level::Debug1,
            Code::NoSuchFile
            | Code::PermissionDenied
            | Code::Failure
            | Code::BadMessage
            | Code::NoConnection
            | Code::ConnectionLost
            | Code::OpUnsupported
            | Code::Other(_) => Level::Info,
        };
        self.log(level, format_args!("sent status {code}"));
    }

    fn version_received(&mut self, version: u32) {
        self.log(
            Level::Verbose,
            format_args!("received client version {version}"),
        );
    }
}
