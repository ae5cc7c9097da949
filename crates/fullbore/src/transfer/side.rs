//! What the planner needs from the place that files come from or go to: this machine
//! (`driver::local`), an SFTP session, or memory in tests.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::rc::Rc;

use fullbore_sftp::proto::{Attrs, HashAlgorithm};

use crate::config::text::reason;

/// Positioned access to the bytes of a file: what bulk transfers read from and write to, in place.
pub trait FileIo {
    /// Fills `slices` from `offset`; 0 is the end, fewer than asked is not.
    ///
    /// # Errors
    /// What the operating system says.
    fn read_at(&self, offset: u64, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Stores all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the operating system says; a full disk for one.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Several lanes are about to write, far apart: whatever they leave must be known for it, so that
    /// a file gets [`STRIPED_MODE`](super::lanes::STRIPED_MODE). Nothing to do where nothing is left.
    ///
    /// # Errors
    /// When this cannot be made known: then there is one lane.
    fn begin_stripes(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Why an operation failed, as far as the planner tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// There is no such file.
    NotFound,
    /// Permission denied.
    Denied,
    /// The other side does not know the operation.
    Unsupported,
    /// Perhaps only because too many files are open: it may succeed once some are closed.
    Busy,
    /// Anything else about this file.
    Failure,
    /// The session is over: no other file can succeed.
    Lost,
}

/// A failed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of failure.
    pub kind: FaultKind,
    /// The reason, in words for people.
    pub text: String,
}

impl Fault {
    /// A failure that only matters to this file.
    #[must_use]
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }

    /// [`FaultKind::Failure`] with a reason.
    #[must_use]
    pub fn failure(text: impl Into<String>) -> Self {
        Self::new(FaultKind::Failure, text)
    }

    /// Whether there is no such file.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind == FaultKind::NotFound
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => FaultKind::NotFound,
            io::ErrorKind::PermissionDenied => FaultKind::Denied,
            io::ErrorKind::Unsupported => FaultKind::Unsupported,
            _ if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                FaultKind::Busy
            }
            _ => FaultKind::Failure,
        };
        Self::new(kind, reason(&error))
    }
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenHow {
    /// To read.
    Read,
    /// To read and write a new file with this mode; fails where one exists.
    Create(u32),
    /// To read and write the existing file, as it is.
    Existing,
    /// To write a file that may exist, emptied, with this mode if it is made.
    InPlace(u32),
    /// To learn whether the existing file may be written; nothing is changed.
    Probe,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, as bytes.
    pub name: Vec<u8>,
    /// Attributes; symbolic links are not followed.
    pub attrs: Attrs,
}

/// Some entries of a folder, in the order in which they come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The entries, without `.` and `..`.
    pub entries: Vec<Entry>,
    /// No others follow.
    pub is_last: bool,
}

/// How a bulk move ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// All bytes from the start to here are at their place.
    pub end: u64,
    /// Why it ended early.
    pub fault: Option<Fault>,
}

/// What to move: bytes from `offset` to the end of the file, or to `end_max` where that is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where to start.
    pub offset: u64,
    /// Where the end is expected: a hint, not a promise. Not used by writes.
    pub size_hint: u64,
    /// Where to stop at the latest.
    pub end_max: Option<u64>,
}

/// A digest and what made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The algorithm.
    pub algorithm: HashAlgorithm,
    /// Its output.
    pub bytes: [u8; 32],
}

/// All that is to be written to a short file.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// Its content: at most what one WRITE takes.
    pub bytes: &'a [u8],
    /// Attributes to set; empty sets none.
    pub attrs: Attrs,
    /// Whether to bring it to stable storage.
    pub fsync: bool,
}

/// What became of the steps that end a short file; those that were not wanted succeed.
#[derive(Clone, Debug)]
pub struct Finished<E> {
    /// Of the content.
    pub written: Result<(), E>,
    /// Of the attributes.
    pub attributes: Result<(), E>,
    /// Of bringing it to stable storage.
    pub synced: Result<(), E>,
    /// The attributes behind all that.
    pub size: Result<Attrs, E>,
    /// Of closing.
    pub closed: Result<(), E>,
}

/// Called with the bytes that a move has brought to their place so far.
pub type Moving<'a> = &'a dyn Fn(u64);

/// A place that has files. Paths are bytes; relative ones start at the place's own start folder.
///
/// All methods take `&self` and run concurrently, on one thread.
#[allow(async_fn_in_trait)] // One thread: nothing has to be `Send`.
pub trait Side {
    /// An open file.
    type File: Clone + 'static;
    /// A folder that is being listed.
    type Listing: 'static;

    /// What stands in front of a path when it is shown or identified: `host:`; empty for this
    /// machine.
    fn prefix(&self) -> &str;

    /// Asks what a copy of `paths` will need to know first, where asking without waiting saves time.
    fn ask_ahead(&self, _paths: &[Vec<u8>], _is_recursive: bool) {}

    /// Attributes; symbolic links are followed.
    async fn stat(&self, path: &[u8]) -> Result<Attrs, Fault>;
    /// Attributes; symbolic links are not followed.
    async fn lstat(&self, path: &[u8]) -> Result<Attrs, Fault>;
    /// The absolute path without links. The last component may be missing.
    async fn realpath(&self, path: &[u8]) -> Result<Vec<u8>, Fault>;
    /// The path with a leading `~` or `~user` replaced; the same path where there is none.
    async fn expand(&self, path: &[u8]) -> Result<Vec<u8>, Fault>;
    /// Begins to list a folder.
    async fn list(&self, path: &[u8]) -> Result<Self::Listing, Fault>;
    /// The next entries; a batch is bounded, whatever the folder holds. Not called
    /// after the last, or an error.
    async fn next_entries(&self, listing: &mut Self::Listing) -> Result<Batch, Fault>;
    /// Closes a folder before its last batch.
    async fn stop_listing(&self, listing: Self::Listing);
    /// Files and folders that may be open at once, as far as is known by now.
    fn handles_max(&self) -> Option<usize>;
    /// The same for folders alone.
    fn folders_max(&self) -> Option<usize>;

    /// Opens a file.
    async fn open(&self, path: &[u8], how: OpenHow) -> Result<Self::File, Fault>;
    /// Closes it. Errors count: some places report failed writes here.
    async fn close(&self, file: Self::File) -> Result<(), Fault>;
    /// Whether something may still be written to the file behind our back: content that was sent, given
    /// up, and sent again, because the place did not answer. Harmless as long as it is the same.
    fn has_late_writes(&self, _file: &Self::File) -> bool {
        false
    }
    /// Closes a file through which nothing was written, without waiting for what comes of it.
    async fn release(&self, file: Self::File);
    /// Bytes of a file that [`Side::finish`] takes; `None` where it would save nothing, or the
    /// order of requests is not certain.
    fn finish_bytes_max(&self) -> Option<usize>;
    /// Writes all of a new file, gives it its attributes, asks for its size and closes it.
    async fn finish(&self, file: Self::File, whole: &Whole<'_>) -> Result<Finished<Fault>, Fault>;
    /// Waits until another writer of a file would have changed it; at once where opening locks.
    async fn let_writers_show(&self);
    /// Attributes of an open file.
    async fn fstat(&self, file: &Self::File) -> Result<Attrs, Fault>;
    /// Sets the attributes that are there. A size shortens or lengthens the file.
    async fn fsetstat(&self, file: &Self::File, attrs: Attrs) -> Result<(), Fault>;
    /// Sets the attributes that are there.
    async fn setstat(&self, path: &[u8], attrs: Attrs) -> Result<(), Fault>;
    /// Brings an open file to stable storage.
    async fn fsync(&self, file: &Self::File) -> Result<(), Fault>;

    /// Brings the name of a file to stable storage, where that can be asked for.
    async fn sync_name(&self, path: &[u8]) -> Result<(), Fault>;

    /// Makes a folder.
    async fn mkdir(&self, path: &[u8], mode: u32) -> Result<(), Fault>;
    /// Removes a file.
    async fn remove(&self, path: &[u8]) -> Result<(), Fault>;
    /// Renames. Where the target exists it may fail or replace it.
    async fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Fault>;
    /// Renames and replaces the target in one step; [`FaultKind::Unsupported`] where it cannot.
    async fn replace(&self, from: &[u8], to: &[u8]) -> Result<(), Fault>;

    /// Reads a span of `file` into `sink`, at the same offsets.
    async fn read_to(
        &self,
        file: &Self::File,
        sink: Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved;
    /// Writes a span of `source` into `file`, at the same offsets.
    async fn write_from(
        &self,
        file: &Self::File,
        source: Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved;

    /// Digest of `len` bytes from `offset`, made where the file is, by the first of `algorithms`
    /// that it knows; `None` if it cannot. The file is given by its path, too.
    async fn hash(
        &self,
        file: (&Self::File, &[u8]),
        algorithms: &[HashAlgorithm],
        offset: u64,
        len: u64,
    ) -> Result<Option<Digest>, Fault>;
    /// Output of a shell command run where the files are; `None` if it cannot be run or fails.
    async fn exec(&self, command: &[u8]) -> Option<Vec<u8>>;

    /// The bytes of an open file, if they can be reached without a network.
    fn direct(&self, file: &Self::File) -> Option<Rc<dyn FileIo>>;
    /// Device and inode of a path, where they are known; tells two names of one file.
    fn identity(&self, path: &[u8]) -> Option<(u64, u64)>;
}
