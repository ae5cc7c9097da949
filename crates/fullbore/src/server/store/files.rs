//! Open files: reading, writing, hashing, copying, setting attributes.

use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fullbore_sftp::proto::{Code, OpenFlags};
use fullbore_sftp::server::{
    CheckRange, CheckTarget, Completion, CopyRange, FileId, Outcome, StoreError, Token,
};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::{self, Errno, ReadWriteFlags};

use super::errno::store_error;
use super::listing::Listing;
use super::log::{Level, Shown};
use super::offload::{Call, Copy};
use super::root::retry;
use super::{FileStore, map};

/// Slices that one preadv takes (`IOV_MAX`).
const SLICE_COUNT_MAX: usize = 1024;

/// The answer to a call that may take long while too many are under way.
const BUSY: StoreError = StoreError::new(
    Code::Failure,
    "too many such operations are under way: try again later",
);

/// What a handle stands for.
#[derive(Debug)]
pub(super) enum Opened {
    File(OpenFile),
    Dir(OpenDir),
}

#[derive(Debug)]
pub(super) struct OpenFile {
    /// Shared with calls that run elsewhere.
    pub(super) fd: Arc<OwnedFd>,
    /// For the log; empty when there is none.
    pub(super) path: Vec<u8>,
    /// Shared likewise.
    pub(super) read_bytes: Arc<AtomicU64>,
    pub(super) written_bytes: u64,
    /// Whether the file system can say that a read would block.
    knows_cached: bool,
}

#[derive(Debug)]
pub(super) struct OpenDir {
    pub(super) listing: Listing,
    /// For the log; empty when there is none.
    pub(super) path: Vec<u8>,
}

impl OpenFile {
    pub(super) fn new(fd: OwnedFd, path: Vec<u8>) -> Self {
        Self {
            fd: Arc::new(fd),
            path,
            read_bytes: Arc::default(),
            written_bytes: 0,
            knows_cached: true,
        }
    }
}

impl Opened {
    /// Closes it and says what the file system thinks of that.
    pub(super) fn close(self) -> io::Result<()> {
        match self {
            Self::Dir(_) => Ok(()),
            // No call runs elsewhere while its file is closed, so this is the only owner.
            Self::File(file) => match Arc::try_unwrap(file.fd) {
                Ok(fd) => crate::driver::close::close(fd)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
                Err(_) => Ok(()),
            },
        }
    }
}

/// OPEN's flags as open(2) has them: without READ and WRITE it is a read, as OpenSSH has it.
pub(super) fn open_flags(flags: OpenFlags) -> OFlags {
    let mut open = match (
        flags.contains(OpenFlags::READ),
        flags.contains(OpenFlags::WRITE),
    ) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    };
    for (flag, bit) in [
        (OpenFlags::APPEND, OFlags::APPEND),
        (OpenFlags::CREAT, OFlags::CREATE),
        (OpenFlags::TRUNC, OFlags::TRUNC),
        (OpenFlags::EXCL, OFlags::EXCL),
    ] {
        if flags.contains(flag) {
            open |= bit;
        }
    }
    open
}

/// OPEN's flags as the log shows them.
pub(super) struct ShownFlags(pub(super) OpenFlags);

impl fmt::Display for ShownFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (flag, name) in [
            (OpenFlags::READ, "READ"),
            (OpenFlags::WRITE, "WRITE"),
            (OpenFlags::APPEND, "APPEND"),
            (OpenFlags::CREAT, "CREATE"),
            (OpenFlags::TRUNC, "TRUNCATE"),
            (OpenFlags::EXCL, "EXCL"),
        ] {
            if self.0.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = ",";
            }
        }
        Ok(())
    }
}

impl FileStore {
    pub(super) fn insert(&mut self, id: FileId, opened: Opened) {
        let index = id.0 as usize;
        if self.open.len() <= index {
            self.open.resize_with(index + 1, || None);
        }
        self.open[index] = Some(opened);
    }

    pub(super) fn file(&mut self, id: FileId) -> Result<&mut OpenFile, StoreError> {
        match self.open.get_mut(id.0 as usize) {
            Some(Some(Opened::File(file))) => Ok(file),
            Some(Some(Opened::Dir(_)) | None) | None => Err(Code::Failure.into()),
        }
    }

    /// A path to keep for the log, if there is one.
    pub(super) fn logged_path(&self, path: &[u8]) -> Vec<u8> {
        if self.is_logging() {
            path.to_vec()
        } else {
            Vec::new()
        }
    }

    pub(super) fn log_close(&mut self, opened: &Opened, how: &str) {
        match opened {
            Opened::Dir(dir) => self.log(
                Level::Info,
                format_args!("{how}closedir \"{}\"", Shown(&dir.path)),
            ),
            Opened::File(file) => self.log(
                Level::Info,
                format_args!(
                    "{how}close \"{}\" bytes read {} written {}",
                    Shown(&file.path),
                    file.read_bytes.load(Ordering::Relaxed),
                    file.written_bytes
                ),
            ),
        }
    }

    /// Opens without waiting for a partner, if it is a pipe: a session must not hang on one.
    pub(super) fn open_file(&self, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        match self.root.open_path(path, flags | OFlags::NONBLOCK, mode) {
            // Not a pipe, which would not say this, but a file under another's lease. A confined
            // session has others beside it, and may have lost a race for the path instead: it does
            // not wait.
            Err(Errno::AGAIN) if !self.root.is_confined() => self.root.open_path(path, flags, mode),
            result => result,
        }
    }

    /// Reads what is cached at once; the rest goes elsewhere if it can.
    pub(super) fn read_file(
        &mut self,
        token: Token,
        id: FileId,
        offset: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Outcome<usize> {
        let may_offload = self.offload.is_some();
        let file = match self.file(id) {
            Ok(file) => file,
            Err(error) => return Err(error).into(),
        };
        let into_len = into.len().min(SLICE_COUNT_MAX);
        let into = &mut into[..into_len];
        if may_offload && file.knows_cached {
            match read_cached(&file.fd, offset, into) {
                Cached::All(n) => {
                    file.read_bytes.fetch_add(n as u64, Ordering::Relaxed);
                    return Ok(n).into();
                }
                Cached::Unknown => file.knows_cached = false,
                Cached::Failed(errno) => return Err(store_error(errno)).into(),
                Cached::No => {
                    let len = into.iter().map(|slice| slice.len()).sum();
                    let call = Call::Read {
                        file: Arc::clone(&file.fd),
                        offset,
                        len,
                        read_bytes: Arc::clone(&file.read_bytes),
                    };
                    if self.submit(token, &call) {
                        return Outcome::Pending;
                    }
                }
            }
        }
        self.read_in_line(id, offset, into).into()
    }

    fn read_in_line(
        &mut self,
        id: FileId,
        offset: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<usize, StoreError> {
        let file = self.file(id)?;
        let n = map(retry(|| rustix::io::preadv(&file.fd, into, offset)))?;
        file.read_bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }

    /// Hands a call to the offload. False when it is to be made in line.
    fn submit(&mut self, token: Token, call: &Call) -> bool {
        let Some(offload) = &mut self.offload else {
            return false;
        };
        let call = call.clone();
        let buffer = match &call {
            Call::Read { .. } => self.buffers.pop().unwrap_or_default(),
            Call::Fsync { .. } | Call::Copy(_) | Call::Check { .. } => Vec::new(),
        };
        offload.submit(token, call.job(buffer))
    }

    /// Whether a call that could not be handed over may not be made in line either: others are
    /// served by this thread.
    fn must_refuse(&self, call: &Call) -> bool {
        self.offload.is_some() && call.is_long()
    }

    /// Makes a call that ends in a status: elsewhere if it can.
    fn run(&mut self, token: Token, call: Call) -> Outcome<()> {
        if self.submit(token, &call) {
            return Outcome::Pending;
        }
        if self.must_refuse(&call) {
            return Err(BUSY).into();
        }
        match call.finish() {
            Completion::Done(result) => result.into(),
            Completion::Data(_) | Completion::Digests(_) => Err(Code::Failure.into()).into(),
        }
    }

    pub(super) fn fsync_file(&mut self, token: Token, id: FileId) -> Outcome<()> {
        let file = match self.file(id) {
            Ok(file) => Arc::clone(&file.fd),
            Err(error) => return Err(error).into(),
        };
        self.run(token, Call::Fsync { file })
    }

    pub(super) fn copy_files(&mut self, token: Token, copy: CopyRange) -> Outcome<()> {
        match self.copy_call(copy) {
            Ok(call) => self.run(token, call),
            Err(error) => Err(error).into(),
        }
    }

    fn copy_call(&mut self, copy: CopyRange) -> Result<Call, StoreError> {
        let from = Arc::clone(&self.file(copy.from)?.fd);
        let to = Arc::clone(&self.file(copy.to)?.fd);
        let (from_stat, to_stat) = (map(fs::fstat(&from))?, map(fs::fstat(&to))?);
        if (from_stat.st_dev, from_stat.st_ino) == (to_stat.st_dev, to_stat.st_ino) {
            return Err(StoreError::new(
                Code::Failure,
                "source and target are the same file",
            ));
        }
        Ok(Call::Copy(Copy {
            from,
            from_offset: copy.from_offset,
            len: copy.len,
            to,
            to_offset: copy.to_offset,
        }))
    }

    pub(super) fn check(
        &mut self,
        token: Token,
        target: CheckTarget<'_>,
        range: CheckRange,
        digests: &mut Vec<u8>,
    ) -> Outcome<()> {
        let file = match target {
            CheckTarget::File(id) => self.file(id).map(|file| Arc::clone(&file.fd)),
            CheckTarget::Path(path) => {
                map(self.open_file(path, OFlags::RDONLY, Mode::empty())).map(Arc::new)
            }
        };
        let file = match file {
            Ok(file) => file,
            Err(error) => return Err(error).into(),
        };
        let call = Call::Check { file, range };
        if self.submit(token, &call) {
            return Outcome::Pending;
        }
        if self.must_refuse(&call) {
            return Err(BUSY).into();
        }
        match call.finish() {
            Completion::Digests(Ok(made)) => {
                digests.extend_from_slice(&made);
                Ok(()).into()
            }
            Completion::Digests(Err(error)) => Err(error).into(),
            Completion::Data(_) | Completion::Done(_) => Err(Code::Failure.into()).into(),
        }
    }
}

/// What a read that must not block found.
enum Cached {
    /// All there is, up to the end of the file.
    All(usize),
    /// Some of it would block.
    No,
    /// The file system cannot tell.
    Unknown,
    Failed(Errno),
}

fn read_cached(file: &OwnedFd, offset: u64, into: &mut [IoSliceMut<'_>]) -> Cached {
    let want: usize = into.iter().map(|slice| slice.len()).sum();
    let read = |into: &mut [IoSliceMut<'_>], offset| {
        retry(|| rustix::io::preadv2(file, into, offset, ReadWriteFlags::NOWAIT))
    };
    match read(into, offset) {
        Ok(n) if n == want || n == 0 => Cached::All(n),
        // The end of the file, or of what is cached: the next byte tells.
        Ok(n) => match read(
            &mut [IoSliceMut::new(&mut [0])],
            offset.saturating_add(n as u64),
        ) {
            Ok(0) => Cached::All(n),
            Ok(_) | Err(_) => Cached::No,
        },
        Err(Errno::AGAIN) => Cached::No,
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Cached::Unknown,
        Err(errno) => Cached::Failed(errno),
    }
}
