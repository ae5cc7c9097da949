//! A store for fuzzing the SFTP server: answers by chance (done, failed, later), and checks that the
//! engine keeps its side of the contract.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSliceMut;

use fullbore_base::Rng;
use fullbore_sftp::proto::{Attrs, Code, Name, OpenFlags, StatVfs};
use fullbore_sftp::server::{
    CheckRange, CheckTarget, Completion, CopyRange, DirSink, FileId, Outcome, Store, StoreError,
    Token,
};

type Done = Result<(), StoreError>;

/// The store, with what is open and what is under way.
pub struct Chance {
    rng: Rng,
    open: BTreeSet<FileId>,
    /// Operations on their way: what to complete, with what.
    pub pending: Vec<(Token, Completion)>,
    /// Entries that a folder has left.
    listed: BTreeMap<FileId, u32>,
}

const REFUSED: StoreError = StoreError::new(Code::PermissionDenied, "not by chance");

impl Chance {
    /// An empty store whose answers follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::seeded(seed),
            open: BTreeSet::new(),
            pending: Vec::new(),
            listed: BTreeMap::new(),
        }
    }

    /// Takes one of the pending operations, any of them.
    pub fn take_pending(&mut self) -> Option<(Token, Completion)> {
        if self.pending.is_empty() {
            return None;
        }
        let at = self.rng.index(self.pending.len());
        Some(self.pending.swap_remove(at))
    }

    fn done(&mut self) -> Done {
        if self.rng.one_in(8) {
            Err(REFUSED)
        } else {
            Ok(())
        }
    }

    fn later_or_done(&mut self, token: Token) -> Outcome<()> {
        let result = self.done();
        if self.rng.one_in(3) {
            self.pending.push((token, Completion::Done(result)));
            return Outcome::Pending;
        }
        result.into()
    }

    fn opened(&mut self, file: FileId) -> Done {
        self.done()?;
        assert!(self.open.insert(file), "{file:?} was open already");
        Ok(())
    }

    fn check_open(&self, file: FileId) {
        assert!(self.open.contains(&file), "{file:?} is not open");
    }

    fn attrs(&mut self) -> Result<Attrs, StoreError> {
        self.done()?;
        Ok(Attrs {
            size: Some(self.rng.next_u64() >> 1),
            permissions: Some(0o100_644),
            ..Attrs::default()
        })
    }

    fn text(&mut self, path: &[u8], out: &mut Vec<u8>) -> Done {
        check_path(path);
        self.done()?;
        out.push(b'/');
        out.extend_from_slice(path);
        Ok(())
    }
}

/// Paths hold any bytes but zero.
fn check_path(path: &[u8]) {
    assert!(!path.contains(&0), "a zero byte in a path");
}

impl Store for Chance {
    fn open(&mut self, file: FileId, path: &[u8], _flags: OpenFlags, _attrs: &Attrs) -> Done {
        check_path(path);
        self.opened(file)
    }

    fn opendir(&mut self, dir: FileId, path: &[u8]) -> Done {
        check_path(path);
        self.opened(dir)?;
        let entries = u32::try_from(self.rng.below(2000)).expect("it is small");
        self.listed.insert(dir, entries);
        Ok(())
    }

    fn close(&mut self, file: FileId) -> Done {
        assert!(self.open.remove(&file), "{file:?} is not open");
        self.listed.remove(&file);
        self.done()
    }

    fn read(
        &mut self,
        token: Token,
        file: FileId,
        offset: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Outcome<usize> {
        self.check_open(file);
        assert!(i64::try_from(offset).is_ok(), "an offset past any file");
        let len: usize = into.iter().map(|s| s.len()).sum();
        if let Err(error) = self.done() {
            return Err(error).into();
        }
        let short = self.rng.index(len + 1);
        if self.rng.one_in(3) && short > 0 {
            let data = Completion::Data(Ok(vec![7; short]));
            self.pending.push((token, data));
            return Outcome::Pending;
        }
        Ok(short).into()
    }

    fn write(&mut self, token: Token, file: FileId, _offset: u64, _data: &[u8]) -> Outcome<()> {
        self.check_open(file);
        self.later_or_done(token)
    }

    fn fsync(&mut self, token: Token, file: FileId) -> Outcome<()> {
        self.check_open(file);
        self.later_or_done(token)
    }

    fn copy_data(&mut self, token: Token, copy: CopyRange) -> Outcome<()> {
        self.check_open(copy.from);
        self.check_open(copy.to);
        self.later_or_done(token)
    }

    fn check_file(
        &mut self,
        token: Token,
        target: CheckTarget<'_>,
        range: CheckRange,
        digests: &mut Vec<u8>,
    ) -> Outcome<()> {
        match target {
            CheckTarget::Path(path) => check_path(path),
            CheckTarget::File(file) => self.check_open(file),
        }
        let count = self.rng.index(range.digests_max.clamp(1, 64)).max(1);
        let bytes = vec![5; count * range.algorithm.digest_len()];
        if self.rng.one_in(3) {
            self.pending.push((token, Completion::Digests(Ok(bytes))));
            return Outcome::Pending;
        }
        digests.extend(bytes);
        self.done().into()
    }

    fn readdir(&mut self, dir: FileId, names: &mut DirSink<'_, '_>) -> Done {
        self.check_open(dir);
        self.done()?;
        let left = self.listed.get_mut(&dir).expect("only folders are listed");
        while *left > 0 {
            let name = vec![b'n'; 1 + usize::try_from(*left % 255).expect("it is small")];
            let entry = Name {
                filename: &name,
                longname: b"-rw-r--r-- 1 u g 0 Jan  1 00:00 n",
                attrs: Attrs::default(),
            };
            if !names.push(&entry) {
                break;
            }
            *left -= 1;
        }
        Ok(())
    }

    fn stat(&mut self, path: &[u8]) -> Result<Attrs, StoreError> {
        check_path(path);
        self.attrs()
    }

    fn lstat(&mut self, path: &[u8]) -> Result<Attrs, StoreError> {
        check_path(path);
        self.attrs()
    }

    fn fstat(&mut self, file: FileId) -> Result<Attrs, StoreError> {
        self.check_open(file);
        self.attrs()
    }

    fn setstat(&mut self, path: &[u8], _attrs: &Attrs) -> Done {
        check_path(path);
        self.done()
    }

    fn lsetstat(&mut self, path: &[u8], _attrs: &Attrs) -> Done {
        check_path(path);
        self.done()
    }

    fn fsetstat(&mut self, file: FileId, _attrs: &Attrs) -> Done {
        self.check_open(file);
        self.done()
    }

    fn remove(&mut self, path: &[u8]) -> Done {
        check_path(path);
        self.done()
    }

    fn mkdir(&mut self, path: &[u8], _attrs: &Attrs) -> Done {
        check_path(path);
        self.done()
    }

    fn rmdir(&mut self, path: &[u8]) -> Done {
        check_path(path);
        self.done()
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Done {
        check_path(from);
        check_path(to);
        self.done()
    }

    fn posix_rename(&mut self, from: &[u8], to: &[u8]) -> Done {
        self.rename(from, to)
    }

    fn symlink(&mut self, target: &[u8], link: &[u8]) -> Done {
        self.rename(target, link)
    }

    fn hardlink(&mut self, from: &[u8], to: &[u8]) -> Done {
        self.rename(from, to)
    }

    fn readlink(&mut self, path: &[u8], target: &mut Vec<u8>) -> Done {
        self.text(path, target)
    }

    fn realpath(&mut self, path: &[u8], real: &mut Vec<u8>) -> Done {
        self.text(path, real)
    }

    fn expand_path(&mut self, path: &[u8], expanded: &mut Vec<u8>) -> Done {
        self.text(path, expanded)
    }

    fn home_directory(&mut self, user: &[u8], home: &mut Vec<u8>) -> Done {
        self.text(user, home)
    }

    fn user_name(&mut self, uid: u32, name: &mut Vec<u8>) {
        name.extend(
            uid.to_string()
                .bytes()
                .take(usize::from(uid.is_multiple_of(2)) * 20),
        );
    }

    fn group_name(&mut self, gid: u32, name: &mut Vec<u8>) {
        self.user_name(gid, name);
    }

    fn statvfs(&mut self, path: &[u8]) -> Result<StatVfs, StoreError> {
        check_path(path);
        self.done()?;
        Ok(figures())
    }

    fn fstatvfs(&mut self, file: FileId) -> Result<StatVfs, StoreError> {
        self.check_open(file);
        self.done()?;
        Ok(figures())
    }
}

fn figures() -> StatVfs {
    StatVfs {
        bsize: 4096,
        frsize: 4096,
        blocks: 1,
        bfree: 1,
        bavail: 1,
        files: 1,
        ffree: 1,
        favail: 1,
        fsid: 1,
        flag: 0,
        namemax: 255,
    }
}
