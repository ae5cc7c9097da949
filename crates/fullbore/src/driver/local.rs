//! This machine's files as a place that copies come from and go to.
//!
//! Calls are made inline: they touch names and cached pages. What takes long, hashing and copying
//! within the machine, lets other tasks run in between.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, IoSliceMut};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;

use fullbore_sftp::proto::{Attrs, HashAlgorithm};
use rustix::fs::{AtFlags, CWD, FlockOperation, Timespec, Timestamps};
use rustix::process::{Resource, getrlimit};

use crate::transfer::split;
use crate::transfer::{
    Batch, Digest, Entry, Fault, FaultKind, FileIo, Finished, Hasher, Moved, Moving, OpenHow, Side,
    Span, Whole,
};

/// Bytes read at a time where this machine's files are hashed or copied.
const BLOCK_BYTES: usize = 1024 * 1024;

/// Entries of a folder that are looked at together: fewer at first, because many folders may begin.
const ENTRIES_AT_FIRST: usize = 128;
const ENTRIES_MAX: usize = 1024;

/// Descriptors that are left to sockets, the terminal and what else a program has open.
const DESCRIPTORS_SPARE: u64 = 64;

/// The files of this machine, as the current user may use them.
#[derive(Clone, Copy, Debug)]
pub struct LocalSide {
    handles_max: Option<usize>,
}

/// A folder of this machine that is being listed.
#[derive(Debug)]
pub struct LocalListing {
    folder: fs::ReadDir,
    batch_len: usize,
}

impl LocalSide {
    /// With as many files open at once as the process may have by now.
    #[must_use]
    pub fn new() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current;
        let handles = descriptors.map(|max| max.saturating_sub(DESCRIPTORS_SPARE).max(2));
        Self {
            handles_max: handles.map(|max| usize::try_from(max).unwrap_or(usize::MAX)),
        }
    }
}

impl Default for LocalSide {
    fn default() -> Self {
        Self::new()
    }
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// What SFTP would say; times outside 1970 to 2106 are cut to that.
fn attrs_of(metadata: &Metadata) -> Attrs {
    let seconds = |time: i64| time.clamp(0, i64::from(u32::MAX)) as u32;
    Attrs {
        size: Some(metadata.len()),
        uid_gid: Some((metadata.uid(), metadata.gid())),
        permissions: Some(metadata.mode()),
        times: Some((seconds(metadata.atime()), seconds(metadata.mtime()))),
    }
}

fn timestamps((atime, mtime): (u32, u32)) -> Timestamps {
    let timespec = |seconds: u32| Timespec {
        tv_sec: seconds.into(),
        tv_nsec: 0,
    };
    Timestamps {
        last_access: timespec(atime),
        last_modification: timespec(mtime),
    }
}

fn errno(error: rustix::io::Errno) -> Fault {
    io::Error::from(error).into()
}

/// Keeps two copies from writing to one temporary file. Where the file system cannot lock, there
/// is no such protection.
fn lock(file: &File) -> Result<(), Fault> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(in_use()),
        _ => Ok(()),
    }
}

fn in_use() -> Fault {
    Fault::failure("another copy of the same file to the same place is running")
}

async fn pump(from: &dyn FileIo, to: &dyn FileIo, span: Span, moving: Moving<'_>) -> Moved {
    let mut block = vec![0; BLOCK_BYTES];
    let end_max = span.end_max.unwrap_or(u64::MAX);
    let mut offset = span.offset;
    loop {
        let len = end_max.saturating_sub(offset).min(BLOCK_BYTES as u64) as usize;
        let result = from
            .read_at(offset, &mut [IoSliceMut::new(&mut block[..len])])
            .and_then(|n| to.write_at(offset, &block[..n]).map(|()| n));
        match result {
            Ok(0) => {
                return Moved {
                    end: offset,
                    fault: None,
                };
            }
            Ok(n) => offset += n as u64,
            Err(error) => {
                return Moved {
                    end: offset,
                    fault: Some(error.into()),
                };
            }
        }
        moving(offset - span.offset);
        tokio::task::yield_now().await;
    }
}

impl Side for LocalSide {
    type File = Rc<File>;
    type Listing = LocalListing;

    fn prefix(&self) -> &str {
        ""
    }

    async fn stat(&self, path: &[u8]) -> Result<Attrs, Fault> {
        Ok(attrs_of(&fs::metadata(as_path(path))?))
    }

    async fn lstat(&self, path: &[u8]) -> Result<Attrs, Fault> {
        Ok(attrs_of(&fs::symlink_metadata(as_path(path))?))
    }

    async fn realpath(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        let path = as_path(path);
        let found = fs::canonicalize(path);
        let (Err(error), Some(name)) = (&found, path.file_name()) else {
            return Ok(found?.into_os_string().into_vec());
        };
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        if !is_missing || fs::symlink_metadata(path).is_ok() {
            return Ok(found?.into_os_string().into_vec());
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = fs::canonicalize(folder)?;
        Ok(folder.join(name).into_os_string().into_vec())
    }

    /// The shell has done that.
    async fn expand(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(path.to_vec())
    }

    async fn list(&self, path: &[u8]) -> Result<LocalListing, Fault> {
        Ok(LocalListing {
            folder: fs::read_dir(as_path(path))?,
            batch_len: ENTRIES_AT_FIRST,
        })
    }

    async fn next_entries(&self, listing: &mut LocalListing) -> Result<Batch, Fault> {
        let mut entries = Vec::new();
        while entries.len() < listing.batch_len {
            let Some(entry) = listing.folder.next().transpose()? else {
                let is_last = true;
                return Ok(Batch { entries, is_last });
            };
            match entry.metadata() {
                Ok(metadata) => entries.push(Entry {
                    attrs: attrs_of(&metadata),
                    name: entry.file_name().into_vec(),
                }),
                // Removed since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        listing.batch_len = ENTRIES_MAX;
        let is_last = false;
        Ok(Batch { entries, is_last })
    }

    async fn stop_listing(&self, _: LocalListing) {}

    /// What the program may have open, less what is not for files to be copied.
    fn handles_max(&self) -> Option<usize> {
        self.handles_max
    }

    fn folders_max(&self) -> Option<usize> {
        None
    }

    async fn open(&self, path: &[u8], how: OpenHow) -> Result<Rc<File>, Fault> {
        let mut options = OpenOptions::new();
        // A pipe without a writer must not hold up the program.
        let mut flags = libc::O_NONBLOCK;
        match how {
            OpenHow::Read => {
                options.read(true);
            }
            OpenHow::Create(mode) => {
                options.read(true).write(true).create_new(true).mode(mode);
            }
            OpenHow::Existing => {
                options.read(true).write(true);
                flags |= libc::O_NOFOLLOW;
            }
            OpenHow::InPlace(mode) => {
                options.write(true).create(true).truncate(true).mode(mode);
            }
            OpenHow::Probe => {
                options.write(true);
            }
        }
        let file = options.custom_flags(flags).open(as_path(path))?;
        if matches!(how, OpenHow::Create(_) | OpenHow::Existing) {
            lock(&file)?;
            // The lock may have become free because the file got its final name.
            let (opened, named) = (file.metadata()?, fs::symlink_metadata(as_path(path))?);
            if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
                return Err(in_use());
            }
        }
        Ok(Rc::new(file))
    }

    /// Closing reports nothing here; what could fail was reported by the writes, or is by
    /// [`Side::fsync`].
    async fn close(&self, _: Rc<File>) -> Result<(), Fault> {
        Ok(())
    }

    async fn release(&self, _: Rc<File>) {}

    fn finish_bytes_max(&self) -> Option<usize> {
        None
    }

    async fn finish(&self, _: Rc<File>, _: &Whole<'_>) -> Result<Finished<Fault>, Fault> {
        Err(Fault::new(FaultKind::Unsupported, "saves nothing here"))
    }

    async fn let_writers_show(&self) {}

    async fn fstat(&self, file: &Rc<File>) -> Result<Attrs, Fault> {
        Ok(attrs_of(&file.metadata()?))
    }

    async fn fsetstat(&self, file: &Rc<File>, attrs: Attrs) -> Result<(), Fault> {
        if let Some(size) = attrs.size {
            file.set_len(size)?;
        }
        if let Some(mode) = attrs.permissions {
            file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some(times) = attrs.times {
            rustix::fs::futimens(&**file, &timestamps(times)).map_err(errno)?;
        }
        Ok(())
    }

    async fn setstat(&self, path: &[u8], attrs: Attrs) -> Result<(), Fault> {
        let path = as_path(path);
        if let Some(mode) = attrs.permissions {
            fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some(times) = attrs.times {
            let times = timestamps(times);
            rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).map_err(errno)?;
        }
        Ok(())
    }

    async fn fsync(&self, file: &Rc<File>) -> Result<(), Fault> {
        Ok(file.sync_all()?)
    }

    async fn sync_name(&self, path: &[u8]) -> Result<(), Fault> {
        let (folder, _) = split(path);
        let folder = if folder.is_empty() { b"." } else { folder };
        Ok(File::open(as_path(folder))?.sync_all()?)
    }

    async fn mkdir(&self, path: &[u8], mode: u32) -> Result<(), Fault> {
        use std::os::unix::fs::DirBuilderExt;
        let mut builder = fs::DirBuilder::new();
        Ok(builder.mode(mode).create(as_path(path))?)
    }

    async fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        Ok(fs::remove_file(as_path(path))?)
    }

    async fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Fault> {
        Ok(fs::rename(as_path(from), as_path(to))?)
    }

    async fn replace(&self, from: &[u8], to: &[u8]) -> Result<(), Fault> {
        self.rename(from, to).await
    }

    async fn read_to(
        &self,
        file: &Rc<File>,
        sink: Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved {
        pump(&**file, &*sink, span, moving).await
    }

    async fn write_from(
        &self,
        file: &Rc<File>,
        source: Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved {
        pump(&*source, &**file, span, moving).await
    }

    async fn hash(
        &self,
        (file, _): (&Rc<File>, &[u8]),
        algorithms: &[HashAlgorithm],
        offset: u64,
        len: u64,
    ) -> Result<Option<Digest>, Fault> {
        let &first = algorithms
            .first()
            .ok_or_else(|| Fault::new(FaultKind::Failure, "no hash algorithm"))?;
        let mut hasher = Hasher::new(first);
        let mut block = vec![0; BLOCK_BYTES];
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let want = (end - at).min(BLOCK_BYTES as u64) as usize;
            let n = FileIo::read_at(&**file, at, &mut [IoSliceMut::new(&mut block[..want])])?;
            if n == 0 {
                break;
            }
            hasher.update(&block[..n]);
            at += n as u64;
            tokio::task::yield_now().await;
        }
        Ok(Some(hasher.finish()))
    }

    async fn exec(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn direct(&self, file: &Rc<File>) -> Option<Rc<dyn FileIo>> {
        Some(Rc::clone(file) as Rc<dyn FileIo>)
    }

    fn identity(&self, path: &[u8]) -> Option<(u64, u64)> {
        let metadata = fs::metadata(as_path(path)).ok()?;
        Some((metadata.dev(), metadata.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::{Options, Run, Silent};
    use fullbore_testkit::Folder;

    /// The name of what is in the folder.
    fn at(folder: &Folder, name: &[u8]) -> Vec<u8> {
        [folder.path().as_os_str().as_bytes(), b"/", name].concat()
    }

    async fn copy(source: &[u8], target: &[u8], options: Options) -> bool {
        let side = LocalSide::new();
        let run = Run::new(&side, target, false, options, &Silent)
            .await
            .expect("a usable target");
        run.copy_from(&side, &[source.to_vec()]).await;
        run.summary().is_success()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_tree_is_copied_with_mode_times_and_any_name() {
        let folder = Folder::new("tree");
        let name = b"d/\xff\xfe\n -x*";
        fs::create_dir_all(as_path(&at(&folder, b"s/d"))).expect("made");
        let file = at(&folder, &[b"s/", name.as_slice()].concat());
        fs::write(as_path(&file), b"content").expect("written");
        let attrs = Attrs {
            permissions: Some(0o604),
            times: Some((1_000_000, 2_000_000)),
            ..Attrs::EMPTY
        };
        LocalSide::new().setstat(&file, attrs).await.expect("set");
        let options = Options {
            recursive: true,
            preserve: true,
            verify: true,
            fsync: true,
            ..Options::default()
        };
        assert!(copy(&at(&folder, b"s"), &at(&folder, b"t"), options).await);
        let copied = at(&folder, &[b"t/", name.as_slice()].concat());
        assert_eq!(fs::read(as_path(&copied)).expect("there"), b"content");
        let metadata = fs::metadata(as_path(&copied)).expect("there");
        assert_eq!(
            (metadata.mode() & 0o777, metadata.mtime()),
            (0o604, 2_000_000)
        );
    }

    #[tokio::test(flavor = "current_thread")]
    async fn files_whose_size_is_not_known_are_read_to_their_end() {
        let folder = Folder::new("proc");
        let target = at(&folder, b"version");
        assert!(copy(b"/proc/version", &target, Options::default()).await);
        let is = fs::read(as_path(&target)).expect("there");
        assert_eq!(is, fs::read("/proc/version").expect("there"));
        assert!(!is.is_empty());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn two_names_of_one_file_are_seen_to_be_one() {
        let folder = Folder::new("same");
        let (one, two) = (at(&folder, b"one"), at(&folder, b"two"));
        fs::write(as_path(&one), b"content").expect("written");
        fs::hard_link(as_path(&one), as_path(&two)).expect("linked");
        assert!(!copy(&one, &two, Options::default()).await);
        assert_eq!(fs::read(as_path(&two)).expect("there"), b"content");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_temporary_file_in_use_is_left_alone() {
        let folder = Folder::new("lock");
        let path = at(&folder, b"temp");
        let first = LocalSide::new()
            .open(&path, OpenHow::Create(0o600))
            .await
            .expect("new");
        assert!(
            LocalSide::new()
                .open(&path, OpenHow::Existing)
                .await
                .is_err()
        );
        drop(first);
        assert!(
            LocalSide::new()
                .open(&path, OpenHow::Existing)
                .await
                .is_ok()
        );
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_missing_last_component_has_an_absolute_path() {
        let scratch = Folder::new("real");
        let folder = LocalSide::new()
            .realpath(&at(&scratch, b""))
            .await
            .expect("there");
        let path = LocalSide::new()
            .realpath(&at(&scratch, b"none"))
            .await
            .expect("fine");
        assert_eq!(path, [folder.as_slice(), b"/none"].concat());
        assert!(
            LocalSide::new()
                .realpath(&at(&scratch, b"none/none"))
                .await
                .is_err()
        );
    }
}
