//! Where a server keeps its files: the trait that the engine calls, one method per thing that a
//! request can ask for.

use std::fmt;
use std::io::IoSliceMut;

use super::reply::DirSink;
use crate::proto::{Attrs, Code, HashAlgorithm, OpenFlags, StatVfs};

/// An open file or folder: the index of its entry in the server's handle table, so it is dense,
/// below [`super::Config::handles_max`], and reused once closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Names an operation that goes on outside: handed to the store with the call, and back to
/// [`super::Server::complete`] with the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub(super) slot: u16,
    pub(super) generation: u32,
}

/// Why an operation failed: the code for the peer's program, the reason for the person behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// Code of the STATUS reply.
    pub code: Code,
    /// Text of the STATUS reply; at most [`StoreError::REASON_BYTES_MAX`] bytes are sent.
    pub reason: &'static str,
}

impl StoreError {
    /// Bytes of a reason that a STATUS carries.
    pub const REASON_BYTES_MAX: usize = 200;

    /// An error with a reason of its own.
    #[must_use]
    pub const fn new(code: Code, reason: &'static str) -> Self {
        Self { code, reason }
    }

    /// The end of a file or folder.
    pub const EOF: Self = Self::new(Code::Eof, Code::Eof.text());

    /// An operation that this store does not have.
    pub const UNSUPPORTED: Self = Self::new(Code::OpUnsupported, Code::OpUnsupported.text());
}

impl From<Code> for StoreError {
    fn from(code: Code) -> Self {
        Self::new(code, code.text())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for StoreError {}

/// What became of an operation that may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It is done.
    Ready(Result<T, StoreError>),
    /// It goes on outside, and ends with [`super::Server::complete`] for the token that the call
    /// was given.
    Pending,
}

impl<T> From<Result<T, StoreError>> for Outcome<T> {
    fn from(result: Result<T, StoreError>) -> Self {
        Self::Ready(result)
    }
}

/// The result of an operation that was [`Outcome::Pending`].
#[derive(Debug, PartialEq, Eq)]
pub enum Completion {
    /// Of write, fsync and copy-data.
    Done(Result<(), StoreError>),
    /// Of read: the bytes, at least one, at most as many as were asked; they go back through
    /// [`Store::recycle`].
    Data(Result<Vec<u8>, StoreError>),
    /// Of check-file: the digests, one behind the other.
    Digests(Result<Vec<u8>, StoreError>),
}

/// A copy between two open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// Read from here.
    pub from: FileId,
    /// First byte to read.
    pub from_offset: u64,
    /// Bytes to copy; 0 = to the end of the file.
    pub len: u64,
    /// Written to here.
    pub to: FileId,
    /// Where the first byte goes.
    pub to_offset: u64,
}

/// What check-file hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckTarget<'a> {
    /// The file of that path.
    Path(&'a [u8]),
    /// An open file.
    File(FileId),
}

/// A range of a file to hash, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckRange {
    /// The hash.
    pub algorithm: HashAlgorithm,
    /// First byte.
    pub offset: u64,
    /// Bytes to hash; 0 = to the end of the file.
    pub len: u64,
    /// Bytes per digest, the last may cover fewer; 0 = one digest for all.
    pub block_bytes: u32,
    /// Digests that the reply has room for; more are an error.
    pub digests_max: usize,
}

/// Files, folders and what can be asked about them. Paths are as the peer sent them: any bytes
/// but zero, absolute or relative to the start folder. An empty one names nothing, but for
/// `realpath`, where it is the start folder.
///
/// Methods that get a [`Token`] may return [`Outcome::Pending`]; all others answer at once. The
/// server keeps the order of operations on one file: while one is pending, only reads go
/// on beside reads.
pub trait Store {
    /// Opens a file as `file`. `attrs.permissions` is the mode of a file that it makes.
    fn open(
        &mut self,
        file: FileId,
        path: &[u8],
        flags: OpenFlags,
        attrs: &Attrs,
    ) -> Result<(), StoreError>;

    /// Opens a folder for listing as `dir`.
    fn opendir(&mut self, dir: FileId, path: &[u8]) -> Result<(), StoreError>;

    /// Closes a file or folder. Its id is free again, even after an error.
    fn close(&mut self, file: FileId) -> Result<(), StoreError>;

    /// Reads at `offset` into the front of `into`, as much as there is. 0 = end of file.
    fn read(
        &mut self,
        token: Token,
        file: FileId,
        offset: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Outcome<usize>;

    /// Writes all of `data` at `offset`, or at the end of a file opened for appending.
    fn write(&mut self, token: Token, file: FileId, offset: u64, data: &[u8]) -> Outcome<()>;

    /// Makes what was written durable.
    fn fsync(&mut self, token: Token, file: FileId) -> Outcome<()>;

    /// Copies between two files. Meeting the end before `len` bytes is [`StoreError::EOF`].
    fn copy_data(&mut self, token: Token, copy: CopyRange) -> Outcome<()>;

    /// Appends the digests of a range to `digests`.
    fn check_file(
        &mut self,
        token: Token,
        target: CheckTarget<'_>,
        range: CheckRange,
        digests: &mut Vec<u8>,
    ) -> Outcome<()>;

    /// Pushes entries of a folder, from where the last call stopped, until `names` refuses one.
    /// A refused entry comes first in the next call. Pushing none says that the folder is at
    /// its end.
    fn readdir(&mut self, dir: FileId, names: &mut DirSink<'_, '_>) -> Result<(), StoreError>;

    /// Attributes of a path, links followed.
    fn stat(&mut self, path: &[u8]) -> Result<Attrs, StoreError>;
    /// Attributes of a path, of the link itself if it is one.
    fn lstat(&mut self, path: &[u8]) -> Result<Attrs, StoreError>;
    /// Attributes of an open file.
    fn fstat(&mut self, file: FileId) -> Result<Attrs, StoreError>;
    /// Sets size, mode, times and owner, in that order; goes on after an error and returns the
    /// last. Links followed.
    fn setstat(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError>;
    /// Like [`Store::setstat`] on the link itself.
    fn lsetstat(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError>;
    /// Like [`Store::setstat`] on an open file.
    fn fsetstat(&mut self, file: FileId, attrs: &Attrs) -> Result<(), StoreError>;

    /// Removes a file.
    fn remove(&mut self, path: &[u8]) -> Result<(), StoreError>;
    /// Makes a folder.
    fn mkdir(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError>;
    /// Removes an empty folder.
    fn rmdir(&mut self, path: &[u8]) -> Result<(), StoreError>;
    /// Renames; never replaces what is at `to`.
    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), StoreError>;
    /// Renames; replaces what is at `to` in one step.
    fn posix_rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), StoreError>;
    /// Makes a symbolic link at `link` that says `target`.
    fn symlink(&mut self, target: &[u8], link: &[u8]) -> Result<(), StoreError>;
    /// Gives the file at `from` a second name.
    fn hardlink(&mut self, from: &[u8], to: &[u8]) -> Result<(), StoreError>;

    /// Appends what a symbolic link says.
    fn readlink(&mut self, path: &[u8], target: &mut Vec<u8>) -> Result<(), StoreError>;
    /// Appends the absolute path without links; only its last component may be missing.
    fn realpath(&mut self, path: &[u8], real: &mut Vec<u8>) -> Result<(), StoreError>;
    /// Appends the absolute path, `~` and `~user` expanded.
    fn expand_path(&mut self, path: &[u8], expanded: &mut Vec<u8>) -> Result<(), StoreError>;
    /// Appends the home folder of a user; an empty name is the session's own.
    fn home_directory(&mut self, user: &[u8], home: &mut Vec<u8>) -> Result<(), StoreError>;
    /// Appends the name of a user; nothing when there is none.
    fn user_name(&mut self, uid: u32, name: &mut Vec<u8>);
    /// Appends the name of a group; nothing when there is none.
    fn group_name(&mut self, gid: u32, name: &mut Vec<u8>);

    /// Figures of the file system that holds a path.
    fn statvfs(&mut self, path: &[u8]) -> Result<StatVfs, StoreError>;
    /// Figures of the file system that holds an open file.
    fn fstatvfs(&mut self, file: FileId) -> Result<StatVfs, StoreError>;

    /// Takes back the buffer of a [`Completion::Data`] that was sent.
    fn recycle(&mut self, buffer: Vec<u8>) {
        drop(buffer);
    }

    /// Learns of each STATUS that is sent, for a log.
    fn status_sent(&mut self, code: Code) {
        let _ = code;
    }

    /// Learns which version the client offered, for a log.
    fn version_received(&mut self, version: u32) {
        let _ = version;
    }
}
