//! A file system in memory: deterministic, without owners and permission checks, for tests, models
//! and the simulator. Paths, links and errors behave as Linux's do.

mod tree;

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSliceMut;

use super::reply::DirSink;
use super::store::{
    CheckRange, CheckTarget, Completion, CopyRange, FileId, Outcome, Store, StoreError, Token,
};
use crate::proto::{Attrs, Code, HashAlgorithm, Name, OpenFlags, StatVfs};

use tree::{
    BAD_FILE, BUSY, Body, EXISTS, INVALID, IS_DIR, Ino, LINK_COUNT_MAX, LOOP, NO_SPACE, NOT_DIR,
    NOT_EMPTY, NOT_FOUND, NOT_PERMITTED, Tree,
};

#[derive(Debug)]
enum Opened {
    File {
        ino: Ino,
        flags: OpenFlags,
    },
    Dir {
        ino: Ino,
        /// Names to come; taken down when the first are asked for, as Linux does.
        names: Option<VecDeque<Vec<u8>>>,
    },
}

/// Computes a digest for check-file.
pub type DigestFn = fn(HashAlgorithm, &[u8]) -> Vec<u8>;

/// How it departs from a file system, as servers over other storage do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// SETSTAT and FSETSTAT are not known.
    pub refuses_attributes: bool,
    /// A file is opened to read or to write, not both.
    pub refuses_both: bool,
    /// A file that exists is not opened to write, unless it is emptied.
    pub writes_once: bool,
    /// A name that exists is not renamed to, by any request.
    pub keeps_names: bool,
    /// Files and folders open at once; 0 is no limit.
    pub open_max: usize,
}

/// The file system.
#[derive(Debug)]
pub struct MemoryStore {
    tree: Tree,
    open: Vec<Option<Opened>>,
    digest: Option<DigestFn>,
    habits: Habits,
    /// Whether long operations are left to [`MemoryStore::finish_next`].
    is_deferring: bool,
    deferred: VecDeque<(Token, Completion)>,
}

impl MemoryStore {
    /// An empty file system whose files may hold `capacity_bytes` together.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            tree: Tree::new(capacity_bytes),
            open: Vec::new(),
            digest: None,
            habits: Habits::default(),
            is_deferring: false,
            deferred: VecDeque::new(),
        }
    }

    /// Serves check-file with `digest`; without, it is unsupported.
    pub fn set_digest(&mut self, digest: DigestFn) {
        self.digest = Some(digest);
    }

    /// Has it behave as told.
    pub fn set_habits(&mut self, habits: Habits) {
        self.habits = habits;
    }

    /// Files and folders that are open.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.iter().flatten().count()
    }

    /// Another may be opened.
    fn check_open(&self) -> Result<(), StoreError> {
        let max = self.habits.open_max;
        if max > 0 && self.open_count() >= max {
            return Err(StoreError::new(Code::Failure, "Failure"));
        }
        Ok(())
    }

    fn check_flags(&mut self, path: &[u8], flags: OpenFlags) -> Result<(), StoreError> {
        let has = |flag| flags.contains(flag);
        if self.habits.refuses_both && has(OpenFlags::READ) && has(OpenFlags::WRITE) {
            return Err(StoreError::new(Code::PermissionDenied, "read or write"));
        }
        let is_new = self.tree.walk(path, true).is_err();
        if self.habits.writes_once && has(OpenFlags::WRITE) && !is_new && !has(OpenFlags::TRUNC) {
            return Err(StoreError::new(Code::PermissionDenied, "written once"));
        }
        Ok(())
    }

    fn check_attributes(&self) -> Result<(), StoreError> {
        match self.habits.refuses_attributes {
            true => Err(StoreError::UNSUPPORTED),
            false => Ok(()),
        }
    }

    fn check_name(&mut self, to: &[u8]) -> Result<(), StoreError> {
        match self.habits.keeps_names && self.tree.walk(to, false).is_ok() {
            true => Err(EXISTS),
            false => Ok(()),
        }
    }

    /// From now on READ, FSYNC, copy-data and check-file are pending until
    /// [`MemoryStore::finish_next`].
    pub fn set_deferring(&mut self, is_deferring: bool) {
        self.is_deferring = is_deferring;
    }

    /// The result of the oldest pending operation, for `Server::complete`.
    pub fn finish_next(&mut self) -> Option<(Token, Completion)> {
        self.deferred.pop_front()
    }

    /// The result of the newest pending operation.
    pub fn finish_last(&mut self) -> Option<(Token, Completion)> {
        self.deferred.pop_back()
    }

    /// Calls that moved data or looked something up.
    #[must_use]
    pub const fn call_count(&self) -> u64 {
        self.tree.call_count
    }

    fn put(&mut self, id: FileId, opened: Opened) {
        let index = id.0 as usize;
        if self.open.len() <= index {
            self.open.resize_with(index + 1, || None);
        }
        let (Opened::File { ino, .. } | Opened::Dir { ino, .. }) = opened;
        self.tree.nodes[ino].open_count += 1;
        self.open[index] = Some(opened);
    }

    fn file(&self, id: FileId) -> Result<(Ino, OpenFlags), StoreError> {
        match self.open.get(id.0 as usize) {
            Some(Some(Opened::File { ino, flags })) => Ok((*ino, *flags)),
            Some(Some(Opened::Dir { .. }) | None) | None => Err(BAD_FILE),
        }
    }

    /// The bytes of an open file from `offset`, at most `len`.
    fn slice(&self, id: FileId, offset: u64, len: u64) -> Result<&[u8], StoreError> {
        let (ino, flags) = self.file(id)?;
        if flags.contains(OpenFlags::WRITE) && !flags.contains(OpenFlags::READ) {
            return Err(BAD_FILE);
        }
        match &self.tree.nodes[ino].body {
            Body::File(data) => Ok(range(data, offset, len)),
            Body::Dir { .. } => Err(IS_DIR),
            Body::Link(_) => Err(INVALID),
        }
    }

    fn write_at(&mut self, id: FileId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (ino, flags) = self.file(id)?;
        if !flags.contains(OpenFlags::WRITE) {
            return Err(BAD_FILE);
        }
        let Body::File(data) = &self.tree.nodes[ino].body else {
            return Err(IS_DIR);
        };
        let len = data.len() as u64;
        let offset = if flags.contains(OpenFlags::APPEND) {
            len
        } else {
            offset
        };
        let end = offset.checked_add(bytes.len() as u64).ok_or(INVALID)?;
        if end > len && !bytes.is_empty() {
            self.tree.resize(ino, end)?;
        }
        if let Body::File(data) = &mut self.tree.nodes[ino].body
            && !bytes.is_empty()
        {
            let start = usize::try_from(offset).map_err(|_| NO_SPACE)?;
            data[start..start + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn copy(&mut self, copy: CopyRange) -> Result<(), StoreError> {
        if self.file(copy.from)?.0 == self.file(copy.to)?.0 {
            return Err(StoreError::new(
                Code::Failure,
                "source and target are the same file",
            ));
        }
        let asked = if copy.len == 0 { u64::MAX } else { copy.len };
        let bytes = self.slice(copy.from, copy.from_offset, asked)?.to_vec();
        self.write_at(copy.to, copy.to_offset, &bytes)?;
        if copy.len != 0 && (bytes.len() as u64) < copy.len {
            return Err(StoreError::EOF);
        }
        Ok(())
    }

    fn digests(
        &mut self,
        target: CheckTarget<'_>,
        check: CheckRange,
    ) -> Result<Vec<u8>, StoreError> {
        let digest = self.digest.ok_or(StoreError::UNSUPPORTED)?;
        let ino = match target {
            CheckTarget::Path(path) => self.tree.walk(path, true)?,
            CheckTarget::File(id) => self.file(id)?.0,
        };
        let Body::File(data) = &self.tree.nodes[ino].body else {
            return Err(IS_DIR);
        };
        let asked = if check.len == 0 { u64::MAX } else { check.len };
        let data = range(data, check.offset, asked);
        if check.len != 0 && (data.len() as u64) < check.len {
            return Err(StoreError::EOF);
        }
        let block = match check.block_bytes {
            0 => data.len().max(1),
            bytes => bytes as usize,
        };
        if data.len().div_ceil(block) > check.digests_max {
            return Err(StoreError::new(
                Code::Failure,
                "more blocks than one reply can hold",
            ));
        }
        if data.is_empty() {
            return Ok(digest(check.algorithm, data));
        }
        Ok(data
            .chunks(block)
            .flat_map(|b| digest(check.algorithm, b))
            .collect())
    }

    fn maybe_defer(&mut self, token: Token, completion: Completion) -> Outcome<()> {
        if self.is_deferring {
            self.deferred.push_back((token, completion));
            return Outcome::Pending;
        }
        match completion {
            Completion::Done(result) => result.into(),
            Completion::Data(result) | Completion::Digests(result) => result.map(drop).into(),
        }
    }
}

fn range(data: &[u8], offset: u64, len: u64) -> &[u8] {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(data.len());
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    &data[start..start + len.min(data.len() - start)]
}

impl Store for MemoryStore {
    fn open(
        &mut self,
        file: FileId,
        path: &[u8],
        flags: OpenFlags,
        attrs: &Attrs,
    ) -> Result<(), StoreError> {
        self.check_open()?;
        self.check_flags(path, flags)?;
        let mode = attrs.permissions.unwrap_or(0o666) & 0o7777;
        let ino = self.tree.open_path(path, flags, mode)?;
        let is_dir = self.tree.is_dir(ino);
        let writes = flags.contains(OpenFlags::WRITE) || flags.contains(OpenFlags::TRUNC);
        if is_dir && (writes || flags.contains(OpenFlags::CREAT)) {
            return Err(IS_DIR);
        }
        if flags.contains(OpenFlags::TRUNC) {
            self.tree.resize(ino, 0)?;
        }
        self.put(file, Opened::File { ino, flags });
        Ok(())
    }

    fn opendir(&mut self, dir: FileId, path: &[u8]) -> Result<(), StoreError> {
        self.check_open()?;
        let ino = self.tree.walk(path, true)?;
        if !self.tree.is_dir(ino) {
            return Err(NOT_DIR);
        }
        self.put(dir, Opened::Dir { ino, names: None });
        Ok(())
    }

    fn close(&mut self, file: FileId) -> Result<(), StoreError> {
        if let Some(Opened::File { ino, .. } | Opened::Dir { ino, .. }) =
            self.open.get_mut(file.0 as usize).and_then(Option::take)
        {
            self.tree.nodes[ino].open_count -= 1;
            self.tree.release(ino);
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
        self.tree.call_count += 1;
        let len: usize = into.iter().map(|slice| slice.len()).sum();
        if self.is_deferring {
            let result = match self.slice(file, offset, len as u64) {
                Ok([]) => Err(StoreError::EOF),
                other => other.map(<[u8]>::to_vec),
            };
            self.deferred.push_back((token, Completion::Data(result)));
            return Outcome::Pending;
        }
        let bytes = match self.slice(file, offset, len as u64) {
            Ok(bytes) => bytes,
            Err(error) => return Err(error).into(),
        };
        fullbore_base::scatter(into, 0, bytes);
        Ok(bytes.len()).into()
    }

    fn write(&mut self, _: Token, file: FileId, offset: u64, data: &[u8]) -> Outcome<()> {
        self.tree.call_count += 1;
        self.write_at(file, offset, data).into()
    }

    fn fsync(&mut self, token: Token, file: FileId) -> Outcome<()> {
        let result = self.file(file).map(drop);
        self.maybe_defer(token, Completion::Done(result))
    }

    fn copy_data(&mut self, token: Token, copy: CopyRange) -> Outcome<()> {
        let result = self.copy(copy);
        self.maybe_defer(token, Completion::Done(result))
    }

    fn check_file(
        &mut self,
        token: Token,
        target: CheckTarget<'_>,
        range: CheckRange,
        digests: &mut Vec<u8>,
    ) -> Outcome<()> {
        let result = self.digests(target, range);
        if !self.is_deferring
            && let Ok(bytes) = &result
        {
            digests.extend_from_slice(bytes);
        }
        self.maybe_defer(token, Completion::Digests(result))
    }

    fn readdir(&mut self, dir: FileId, sink: &mut DirSink<'_, '_>) -> Result<(), StoreError> {
        let index = dir.0 as usize;
        loop {
            let Some(Some(Opened::Dir { ino, names })) = self.open.get_mut(index) else {
                return Err(BAD_FILE);
            };
            let node = &self.tree.nodes[*ino];
            let Body::Dir { parent, entries } = &node.body else {
                return Err(BAD_FILE);
            };
            if node.link_count == 0 {
                // A removed folder lists nothing, not even itself.
                return Ok(());
            }
            let names = names.get_or_insert_with(|| {
                let dots = [b".".to_vec(), b"..".to_vec()];
                dots.into_iter().chain(entries.keys().cloned()).collect()
            });
            let Some(name) = names.pop_front() else {
                return Ok(());
            };
            let entry_ino = match &name[..] {
                b"." => *ino,
                b".." => *parent,
                other => match entries.get(other) {
                    Some(entry) => *entry,
                    // Gone since it was listed.
                    None => continue,
                },
            };
            let entry = Name {
                filename: &name,
                longname: &name,
                attrs: self.tree.attrs(entry_ino),
            };
            if !sink.push(&entry) {
                names.push_front(name);
                return Ok(());
            }
        }
    }

    fn stat(&mut self, path: &[u8]) -> Result<Attrs, StoreError> {
        self.tree.walk(path, true).map(|ino| self.tree.attrs(ino))
    }

    fn lstat(&mut self, path: &[u8]) -> Result<Attrs, StoreError> {
        self.tree.walk(path, false).map(|ino| self.tree.attrs(ino))
    }

    fn fstat(&mut self, file: FileId) -> Result<Attrs, StoreError> {
        self.file(file).map(|(ino, _)| self.tree.attrs(ino))
    }

    fn setstat(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError> {
        self.check_attributes()?;
        if *attrs == Attrs::EMPTY {
            return Ok(());
        }
        let ino = self.tree.walk(path, true)?;
        self.tree.set(ino, attrs)
    }

    fn lsetstat(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError> {
        let ino = self.tree.walk(path, false)?;
        if attrs.size.is_some() {
            return Err(INVALID);
        }
        if attrs.permissions.is_some() && matches!(self.tree.nodes[ino].body, Body::Link(_)) {
            return Err(StoreError::new(
                Code::Failure,
                "operation not supported by the file system",
            ));
        }
        self.tree.set(ino, attrs)
    }

    fn fsetstat(&mut self, file: FileId, attrs: &Attrs) -> Result<(), StoreError> {
        self.check_attributes()?;
        let (ino, flags) = self.file(file)?;
        if attrs.size.is_some() && !flags.contains(OpenFlags::WRITE) {
            let rest = Attrs {
                size: None,
                ..*attrs
            };
            return self.tree.set(ino, &rest).and(Err(INVALID));
        }
        self.tree.set(ino, attrs)
    }

    fn remove(&mut self, path: &[u8]) -> Result<(), StoreError> {
        let (dir, name, slash) = self.tree.parent(path, IS_DIR)?;
        let ino = self.tree.entry(dir, name).ok_or(NOT_FOUND)?;
        if self.tree.is_dir(ino) {
            return Err(IS_DIR);
        }
        if slash {
            return Err(NOT_DIR);
        }
        self.tree.unlink(dir, name);
        Ok(())
    }

    fn mkdir(&mut self, path: &[u8], attrs: &Attrs) -> Result<(), StoreError> {
        let (dir, name, _) = self.tree.parent(path, EXISTS)?;
        if self.tree.entry(dir, name).is_some() {
            return Err(EXISTS);
        }
        let body = Body::Dir {
            parent: dir,
            entries: BTreeMap::new(),
        };
        self.tree
            .add(dir, name, body, attrs.permissions.unwrap_or(0o777) & 0o1777);
        Ok(())
    }

    fn rmdir(&mut self, path: &[u8]) -> Result<(), StoreError> {
        let (dir, name, _) = self.tree.parent(path, BUSY)?;
        let ino = self.tree.entry(dir, name).ok_or(NOT_FOUND)?;
        if !self.tree.is_dir(ino) {
            return Err(NOT_DIR);
        }
        if !self.tree.entries(ino).is_empty() {
            return Err(NOT_EMPTY);
        }
        self.tree.unlink(dir, name);
        Ok(())
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        self.check_name(to)?;
        self.tree.move_entry(from, to, false)
    }

    fn posix_rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        self.check_name(to)?;
        self.tree.move_entry(from, to, true)
    }

    fn symlink(&mut self, target: &[u8], link: &[u8]) -> Result<(), StoreError> {
        if target.is_empty() {
            return Err(NOT_FOUND);
        }
        let (dir, name, slash) = self.tree.parent(link, EXISTS)?;
        if self.tree.entry(dir, name).is_some() {
            return Err(EXISTS);
        }
        if slash {
            return Err(NOT_FOUND);
        }
        self.tree.add(dir, name, Body::Link(target.to_vec()), 0o777);
        Ok(())
    }

    fn hardlink(&mut self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        let ino = self.tree.walk(from, false)?;
        let (dir, name, slash) = self.tree.parent(to, EXISTS)?;
        if self.tree.entry(dir, name).is_some() {
            return Err(EXISTS);
        }
        if slash {
            return Err(NOT_FOUND);
        }
        if self.tree.is_dir(ino) {
            return Err(NOT_PERMITTED);
        }
        self.tree.link(dir, name, ino);
        Ok(())
    }

    fn readlink(&mut self, path: &[u8], target: &mut Vec<u8>) -> Result<(), StoreError> {
        let ino = self.tree.walk(path, false)?;
        match &self.tree.nodes[ino].body {
            Body::Link(text) => target.extend_from_slice(text),
            Body::File(_) | Body::Dir { .. } => return Err(INVALID),
        }
        Ok(())
    }

    fn realpath(&mut self, path: &[u8], real: &mut Vec<u8>) -> Result<(), StoreError> {
        let mut path = if path.is_empty() { b"." } else { path }.to_vec();
        for _ in 0..=LINK_COUNT_MAX {
            if let Ok(ino) = self.tree.walk(&path, true)
                && self.tree.is_dir(ino)
            {
                let found = self.tree.dir_path(ino);
                real.extend_from_slice(if found.is_empty() { b"/" } else { &found });
                return Ok(());
            }
            let (dir, name, _) = self.tree.parent(&path, NOT_FOUND)?;
            let mut found = self.tree.dir_path(dir);
            found.push(b'/');
            let entry = self.tree.entry(dir, name);
            match entry.map(|ino| &self.tree.nodes[ino].body) {
                Some(Body::Link(target)) if target.first() == Some(&b'/') => path = target.clone(),
                Some(Body::Link(target)) => path = [&found, &target[..]].concat(),
                Some(Body::File(_) | Body::Dir { .. }) | None => {
                    found.extend_from_slice(name);
                    real.extend_from_slice(&found);
                    return Ok(());
                }
            }
        }
        Err(LOOP)
    }

    fn expand_path(&mut self, path: &[u8], expanded: &mut Vec<u8>) -> Result<(), StoreError> {
        match path.strip_prefix(b"~") {
            None => self.realpath(path, expanded),
            Some(b"") => self.realpath(b"/", expanded),
            Some(below) if below[0] == b'/' => self.realpath(below, expanded),
            Some(_) => Err(StoreError::new(Code::NoSuchFile, "no such user")),
        }
    }

    fn home_directory(&mut self, user: &[u8], home: &mut Vec<u8>) -> Result<(), StoreError> {
        if !user.is_empty() {
            return Err(StoreError::new(Code::NoSuchFile, "no such user"));
        }
        home.push(b'/');
        Ok(())
    }

    fn user_name(&mut self, uid: u32, name: &mut Vec<u8>) {
        if uid == 0 {
            name.extend_from_slice(b"root");
        }
    }

    fn group_name(&mut self, gid: u32, name: &mut Vec<u8>) {
        self.user_name(gid, name);
    }

    fn statvfs(&mut self, path: &[u8]) -> Result<StatVfs, StoreError> {
        self.tree.walk(path, true)?;
        let free = self.tree.capacity_bytes - self.tree.used_bytes;
        Ok(StatVfs {
            bsize: 1,
            frsize: 1,
            blocks: self.tree.capacity_bytes,
            bfree: free,
            bavail: free,
            namemax: 255,
            ..StatVfs::default()
        })
    }

    fn fstatvfs(&mut self, file: FileId) -> Result<StatVfs, StoreError> {
        self.file(file)?;
        self.statvfs(b"/")
    }
}
