//! A place in memory, for tests: files, folders, links, and a fault at any chosen operation.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::rc::Rc;
use std::time::Duration;

use fullbore_base::Instant;

use fullbore_sftp::proto::{Attrs, HashAlgorithm};

use super::handles::Handles;
use super::hash::Hasher;
use super::lanes::{Change, Crew, STRIPED_MODE, UnitMoving, stripe};
use super::side::{
    Batch, Digest, Entry, Fault, FaultKind, FileIo, Finished, Moved, Moving, OpenHow, Side, Span,
    Whole,
};

#[derive(Clone, Debug)]
pub(crate) enum Object {
    File(Rc<RefCell<Vec<u8>>>),
    Folder,
    Link(Vec<u8>),
    Device,
}

#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) object: Object,
    pub(crate) mode: u32,
    pub(crate) times: (u32, u32),
    /// Several lanes have written to it.
    pub(crate) is_striped: Rc<Cell<bool>>,
}

#[derive(Clone)]
pub(crate) struct OpenFile {
    bytes: Rc<RefCell<Vec<u8>>>,
    path: Vec<u8>,
    is_striped: Rc<Cell<bool>>,
}

impl FileIo for OpenFile {
    fn read_at(&self, offset: u64, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let bytes = self.bytes.borrow();
        let mut rest = bytes.get(offset as usize..).unwrap_or_default();
        let before = rest.len();
        for slice in slices {
            let n = slice.len().min(rest.len());
            slice[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        Ok(before - rest.len())
    }

    fn write_at(&self, offset: u64, new: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.borrow_mut();
        let end = offset as usize + new.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(new);
        Ok(())
    }

    fn begin_stripes(&self) -> io::Result<()> {
        self.is_striped.set(true);
        Ok(())
    }
}

/// The place. Paths are absolute.
pub(crate) struct MemorySide {
    pub(crate) prefix: &'static str,
    pub(crate) items: RefCell<BTreeMap<Vec<u8>, Item>>,
    /// Files can be reached without a network.
    pub(crate) is_direct: bool,
    pub(crate) can_hash: bool,
    pub(crate) can_exec: bool,
    pub(crate) can_replace: bool,
    pub(crate) can_setstat: bool,
    /// What can be written in one flight.
    pub(crate) finish_bytes_max: Option<usize>,
    /// A plain rename replaces.
    pub(crate) rename_replaces: bool,
    /// Bytes that may still be written.
    pub(crate) room: Cell<usize>,
    /// Lanes that long files get.
    pub(crate) lanes_max: usize,
    /// Operations so far.
    pub(crate) calls: Cell<usize>,
    /// The operation of this number fails, and with [`FaultKind::Lost`] all after it.
    pub(crate) fail_at: Cell<Option<(usize, FaultKind)>>,
    /// A bit of the next block is flipped on its way.
    pub(crate) corrupts: Cell<bool>,
    /// What attributes say is the size, whatever it is.
    pub(crate) false_size: Cell<Option<u64>>,
    /// What another copy appends to a file while this one looks whether there is one.
    pub(crate) other_writes: Cell<Option<(Vec<u8>, Vec<u8>)>>,
    /// Entries of a folder that are told at once.
    pub(crate) batch_len: usize,
    /// Handles that may be open, told to nobody.
    pub(crate) handles_cap: Option<usize>,
    pub(crate) handles_open: Cell<usize>,
    pub(crate) handles_most: Cell<usize>,
    handles: Handles,
    pub(crate) in_flight: Cell<usize>,
    pub(crate) in_flight_most: Cell<usize>,
    pub(crate) log: RefCell<Vec<String>>,
}

impl MemorySide {
    pub(crate) fn new(prefix: &'static str) -> Self {
        let side = Self {
            prefix,
            items: RefCell::default(),
            is_direct: prefix.is_empty(),
            can_hash: true,
            can_exec: false,
            can_replace: true,
            can_setstat: true,
            finish_bytes_max: None,
            rename_replaces: false,
            room: Cell::new(usize::MAX),
            lanes_max: 1,
            calls: Cell::new(0),
            fail_at: Cell::new(None),
            corrupts: Cell::new(false),
            false_size: Cell::new(None),
            other_writes: Cell::new(None),
            batch_len: usize::MAX,
            handles_cap: None,
            handles_open: Cell::new(0),
            handles_most: Cell::new(0),
            handles: Handles::default(),
            in_flight: Cell::new(0),
            in_flight_most: Cell::new(0),
            log: RefCell::default(),
        };
        side.put_item(b"/", Object::Folder);
        side
    }

    pub(crate) fn put_item(&self, path: &[u8], object: Object) {
        let mode = match object {
            Object::File(_) => 0o640,
            Object::Folder => 0o750,
            Object::Link(_) => 0o777,
            Object::Device => 0o666,
        };
        let item = Item {
            object,
            mode,
            times: (1000, 2000),
            is_striped: Rc::default(),
        };
        self.items.borrow_mut().insert(path.to_vec(), item);
    }

    /// Opens one more, where not too many are.
    fn open_one(&self) -> Result<(), Fault> {
        let open = self.handles_open.get();
        self.handles_most.set(self.handles_most.get().max(open + 1));
        if self.handles_cap.is_none_or(|cap| open < cap) {
            self.handles_open.set(open + 1);
            self.handles.on_opened();
            return Ok(());
        }
        let kind = match self.handles.on_refused() {
            true => FaultKind::Busy,
            false => FaultKind::Failure,
        };
        Err(Fault::new(kind, "Failure"))
    }

    fn close_one(&self) {
        self.handles_open.set(self.handles_open.get() - 1);
        self.handles.on_closed();
    }

    pub(crate) fn put_file(&self, path: &[u8], bytes: &[u8]) {
        self.put_item(path, Object::File(Rc::new(RefCell::new(bytes.to_vec()))));
    }

    pub(crate) fn file(&self, path: &[u8]) -> Option<Vec<u8>> {
        match &self.items.borrow().get(path)?.object {
            Object::File(bytes) => Some(bytes.borrow().clone()),
            _ => None,
        }
    }

    pub(crate) fn item(&self, path: &[u8]) -> Item {
        self.items.borrow().get(path).expect("is there").clone()
    }

    pub(crate) fn paths(&self) -> Vec<Vec<u8>> {
        self.items.borrow().keys().cloned().collect()
    }

    /// Every operation passes here: counts, waits a turn, fails when its number has come.
    async fn call(&self, name: &str) -> Result<(), Fault> {
        let number = self.calls.get();
        self.calls.set(number + 1);
        self.log.borrow_mut().push(name.to_owned());
        self.in_flight.set(self.in_flight.get() + 1);
        self.in_flight_most
            .set(self.in_flight_most.get().max(self.in_flight.get()));
        tokio::task::yield_now().await;
        self.in_flight.set(self.in_flight.get() - 1);
        match self.fail_at.get() {
            Some((at, kind)) if number == at || (number > at && kind == FaultKind::Lost) => {
                Err(Fault::new(kind, format!("injected into {name} {number}")))
            }
            _ => Ok(()),
        }
    }

    /// The path without links.
    fn resolve(&self, path: &[u8]) -> Vec<u8> {
        let mut done: Vec<u8> = Vec::new();
        let mut left: Vec<Vec<u8>> = components(path);
        left.reverse();
        let mut steps = 0;
        while let Some(name) = left.pop() {
            let here = [done.as_slice(), b"/", &name].concat();
            let items = self.items.borrow();
            match items.get(&here).map(|item| &item.object) {
                Some(Object::Link(to)) if steps < 40 => {
                    steps += 1;
                    if to.starts_with(b"/") {
                        done.clear();
                    }
                    left.extend(components(to).into_iter().rev());
                }
                _ => done = here,
            }
        }
        if done.is_empty() { b"/".to_vec() } else { done }
    }

    fn attrs(&self, path: &[u8]) -> Result<Attrs, Fault> {
        let items = self.items.borrow();
        let item = items.get(path).ok_or_else(not_found)?;
        let (kind, size) = match &item.object {
            Object::File(bytes) => (0o100_000, bytes.borrow().len() as u64),
            Object::Folder => (0o040_000, 0),
            Object::Link(to) => (0o120_000, to.len() as u64),
            Object::Device => (0o020_000, 0),
        };
        Ok(Attrs {
            size: Some(self.false_size.get().unwrap_or(size)),
            uid_gid: None,
            permissions: Some(
                kind | item.mode
                    | if item.is_striped.get() {
                        STRIPED_MODE
                    } else {
                        0
                    },
            ),
            times: Some(item.times),
        })
    }

    fn set(&self, path: &[u8], attrs: Attrs) -> Result<(), Fault> {
        let mut items = self.items.borrow_mut();
        let item = items.get_mut(path).ok_or_else(not_found)?;
        if let (Some(size), Object::File(bytes)) = (attrs.size, &item.object) {
            bytes.borrow_mut().resize(size as usize, 0);
        }
        if !self.can_setstat && (attrs.permissions.is_some() || attrs.times.is_some()) {
            return Err(Fault::new(FaultKind::Denied, "Permission denied"));
        }
        if let Some(mode) = attrs.permissions {
            item.is_striped.set(mode & STRIPED_MODE != 0);
        }
        item.mode = attrs.permissions.unwrap_or(item.mode);
        item.times = attrs.times.unwrap_or(item.times);
        Ok(())
    }

    fn open_file(&self, path: &[u8], how: OpenHow) -> Result<OpenFile, Fault> {
        let path = self.resolve(path);
        let found = self.items.borrow().get(&path).cloned();
        match (how, found) {
            (OpenHow::Create(mode), None) => {
                self.put_file(&path, b"");
                if let Some(item) = self.items.borrow_mut().get_mut(&path) {
                    item.mode = mode;
                }
            }
            (OpenHow::Create(_), Some(_)) => return Err(Fault::failure("file exists")),
            (OpenHow::InPlace(_), None) => self.put_file(&path, b""),
            (_, None) => return Err(not_found()),
            (OpenHow::Read, Some(_)) => {}
            (_, Some(item)) if item.mode & 0o200 == 0 => {
                return Err(Fault::new(FaultKind::Denied, "Permission denied"));
            }
            (
                OpenHow::InPlace(_),
                Some(Item {
                    object: Object::File(bytes),
                    ..
                }),
            ) => {
                bytes.borrow_mut().clear();
            }
            (_, Some(_)) => {}
        }
        let bytes = match &self.items.borrow()[&path].object {
            Object::File(bytes) => Rc::clone(bytes),
            Object::Device => Rc::default(),
            Object::Folder | Object::Link(_) => return Err(Fault::failure("Failure")),
        };
        let is_striped = Rc::clone(&self.items.borrow()[&path].is_striped);
        Ok(OpenFile {
            bytes,
            path,
            is_striped,
        })
    }

    /// The same over several lanes, each slower than the one before.
    async fn stripe(
        &self,
        file: &OpenFile,
        io: Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
        is_up: bool,
    ) -> Moved {
        let crew = MemoryCrew {
            side: self,
            file,
            io,
            is_up,
            lanes_count: Cell::new(1),
        };
        stripe(&crew, span, !is_up, moving).await
    }

    /// Copies between a file of this place and another, in blocks with faults between them.
    async fn pump(
        &self,
        from: &dyn FileIo,
        to: &dyn FileIo,
        span: Span,
        moving: Moving<'_>,
        name: &str,
    ) -> Moved {
        let mut offset = span.offset;
        let end_max = span.end_max.unwrap_or(u64::MAX);
        let mut block = vec![0; 10_000];
        loop {
            if let Err(fault) = self.call(name).await {
                return Moved {
                    end: offset,
                    fault: Some(fault),
                };
            }
            let len = (end_max - offset).min(block.len() as u64) as usize;
            let read = from.read_at(offset, &mut [IoSliceMut::new(&mut block[..len])]);
            let n = read.expect("memory does not fail");
            if n == 0 {
                return Moved {
                    end: offset,
                    fault: None,
                };
            }
            if self.corrupts.take() {
                block[0] ^= 1;
            }
            if n > self.room.get() {
                let fault = Some(Fault::failure("no space left on device"));
                return Moved { end: offset, fault };
            }
            self.room.set(self.room.get() - n);
            if let Err(error) = to.write_at(offset, &block[..n]) {
                return Moved {
                    end: offset,
                    fault: Some(error.into()),
                };
            }
            offset += n as u64;
            moving(offset - span.offset);
        }
    }
}

/// The lanes of a long file: number N moves a block in N turns.
struct MemoryCrew<'a> {
    side: &'a MemorySide,
    file: &'a OpenFile,
    io: Rc<dyn FileIo>,
    is_up: bool,
    lanes_count: Cell<usize>,
}

/// Bytes that a lane moves at once.
const LANE_BLOCK_BYTES: u64 = 100_000;

impl Crew for MemoryCrew<'_> {
    type Lane = usize;

    fn now(&self) -> Instant {
        Instant::from_nanos(self.side.calls.get() as u64 * 1_000_000)
    }

    fn rtt(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn lanes(&self) -> Vec<Rc<usize>> {
        vec![Rc::new(1)]
    }

    async fn change(&self) -> Change<usize> {
        let number = self.lanes_count.get() + 1;
        if number > self.side.lanes_max {
            return std::future::pending().await;
        }
        tokio::task::yield_now().await;
        self.lanes_count.set(number);
        let striped = match self.is_up {
            true => self.file.begin_stripes(),
            false => self.io.begin_stripes(),
        };
        striped.expect("memory does not fail");
        Change::Join(vec![Rc::new(number)])
    }

    async fn run(&self, lane: &usize, span: Span, moving: UnitMoving<'_>) -> Moved {
        let (from, to): (&dyn FileIo, &dyn FileIo) = match self.is_up {
            true => (&*self.io, self.file),
            false => (self.file, &*self.io),
        };
        let mut at = span.offset;
        let mut block = vec![0; LANE_BLOCK_BYTES as usize];
        loop {
            for _ in 0..*lane {
                if let Err(fault) = self.side.call("lane").await {
                    return Moved {
                        end: at,
                        fault: Some(fault),
                    };
                }
            }
            let len = span.end_max.map_or(LANE_BLOCK_BYTES, |end| end - at);
            let len = len.min(LANE_BLOCK_BYTES) as usize;
            let read = from.read_at(at, &mut [IoSliceMut::new(&mut block[..len])]);
            let n = read.expect("memory does not fail");
            if n == 0 {
                return Moved {
                    end: at,
                    fault: None,
                };
            }
            to.write_at(at, &block[..n]).expect("memory does not fail");
            at += n as u64;
            moving(at - span.offset, at);
        }
    }

    async fn leave(&self, _: Rc<usize>) -> Result<(), Fault> {
        Ok(())
    }

    async fn on_failed(&self, _: &usize, _: &Fault) {}

    async fn on_stalled(&self, _: &usize, _: Duration) {}

    async fn until_look(&self) {
        std::future::pending().await
    }

    fn answers_count(&self) -> u64 {
        0
    }
}

fn not_found() -> Fault {
    Fault::new(FaultKind::NotFound, "No such file")
}

fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            name => parts.push(name.to_vec()),
        }
    }
    parts
}

impl Side for MemorySide {
    type File = OpenFile;
    type Listing = Vec<Entry>;

    fn prefix(&self) -> &str {
        self.prefix
    }

    async fn stat(&self, path: &[u8]) -> Result<Attrs, Fault> {
        self.call("stat").await?;
        self.attrs(&self.resolve(path))
    }

    async fn lstat(&self, path: &[u8]) -> Result<Attrs, Fault> {
        self.call("lstat").await?;
        let (folder, name) = super::temp::split(path);
        let path = if name.is_empty() || folder.is_empty() {
            self.resolve(path)
        } else {
            super::temp::join(&self.resolve(folder), name)
        };
        self.attrs(&path)
    }

    async fn realpath(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        self.call("realpath").await?;
        Ok(self.resolve(path))
    }

    async fn expand(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(path.to_vec())
    }

    async fn list(&self, path: &[u8]) -> Result<Vec<Entry>, Fault> {
        self.call("list").await?;
        self.open_one()?;
        let folder = self.resolve(path);
        let prefix = super::temp::join(&folder, b"");
        let names: Vec<Vec<u8>> = self
            .items
            .borrow()
            .keys()
            .filter_map(|path| path.strip_prefix(prefix.as_slice()))
            .filter(|name| !name.is_empty() && !name.contains(&b'/'))
            .map(<[u8]>::to_vec)
            .collect();
        names
            .into_iter()
            .map(|name| {
                let attrs = self.attrs(&super::temp::join(&folder, &name))?;
                Ok(Entry { name, attrs })
            })
            .collect()
    }

    async fn next_entries(&self, listing: &mut Vec<Entry>) -> Result<Batch, Fault> {
        self.call("next_entries").await?;
        let rest = listing.split_off(listing.len().min(self.batch_len));
        let entries = std::mem::replace(listing, rest);
        let is_last = listing.is_empty();
        if is_last {
            self.close_one();
        }
        Ok(Batch { entries, is_last })
    }

    async fn stop_listing(&self, _: Vec<Entry>) {
        self.close_one();
    }

    fn handles_max(&self) -> Option<usize> {
        self.handles.learned()
    }

    fn folders_max(&self) -> Option<usize> {
        None
    }

    async fn open(&self, path: &[u8], how: OpenHow) -> Result<OpenFile, Fault> {
        self.call("open").await?;
        self.open_one()?;
        let opened = self.open_file(path, how);
        if opened.is_err() {
            self.close_one();
        }
        opened
    }

    async fn close(&self, _: OpenFile) -> Result<(), Fault> {
        self.close_one();
        self.call("close").await
    }

    async fn release(&self, _: OpenFile) {
        self.close_one();
        let _ = self.call("close").await;
    }

    fn finish_bytes_max(&self) -> Option<usize> {
        self.finish_bytes_max
    }

    /// One flight; each step can fail.
    async fn finish(&self, file: OpenFile, whole: &Whole<'_>) -> Result<Finished<Fault>, Fault> {
        let mut moved = Ok(());
        if !whole.bytes.is_empty() {
            let from = OpenFile {
                bytes: Rc::new(RefCell::new(whole.bytes.to_vec())),
                path: Vec::new(),
                is_striped: Rc::default(),
            };
            let span = Span {
                offset: 0,
                size_hint: 0,
                end_max: Some(whole.bytes.len() as u64),
            };
            moved = self
                .pump(&from, &file, span, &|_| {}, "write")
                .await
                .fault
                .map_or(Ok(()), Err);
        }
        let mut attributes = Ok(());
        if whole.attrs != Attrs::EMPTY {
            attributes = self.fsetstat(&file, whole.attrs).await;
        }
        let synced = match whole.fsync {
            true => self.fsync(&file).await,
            false => Ok(()),
        };
        let size = self.fstat(&file).await;
        let closed = self.close(file).await;
        let results = [&moved, &attributes, &synced, &closed];
        let lost = |result: &&Result<(), Fault>| matches!(result, Err(fault) if fault.kind == FaultKind::Lost);
        if let Some(Err(fault)) = results.into_iter().find(lost) {
            return Err(fault.clone());
        }
        Ok(Finished {
            written: moved,
            attributes,
            synced,
            size,
            closed,
        })
    }

    async fn let_writers_show(&self) {
        if let Some((path, bytes)) = self.other_writes.take() {
            let file = self.open(&path, OpenHow::Existing).await;
            let file = file.expect("the other has it open");
            file.bytes.borrow_mut().extend(bytes);
        }
    }

    async fn fstat(&self, file: &OpenFile) -> Result<Attrs, Fault> {
        self.call("fstat").await?;
        self.attrs(&file.path)
    }

    async fn fsetstat(&self, file: &OpenFile, attrs: Attrs) -> Result<(), Fault> {
        self.call("fsetstat").await?;
        self.set(&file.path, attrs)
    }

    async fn setstat(&self, path: &[u8], attrs: Attrs) -> Result<(), Fault> {
        self.call("setstat").await?;
        self.set(&self.resolve(path), attrs)
    }

    async fn fsync(&self, _: &OpenFile) -> Result<(), Fault> {
        self.call("fsync").await
    }

    async fn sync_name(&self, path: &[u8]) -> Result<(), Fault> {
        assert!(self.items.borrow().contains_key(path), "it has its name");
        self.call("sync_name").await
    }

    async fn mkdir(&self, path: &[u8], _: u32) -> Result<(), Fault> {
        self.call("mkdir").await?;
        let path = self.resolve(path);
        if self.items.borrow().contains_key(&path) {
            return Err(Fault::failure("Failure"));
        }
        self.put_item(&path, Object::Folder);
        Ok(())
    }

    async fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        self.call("remove").await?;
        let removed = self.items.borrow_mut().remove(path);
        removed.map(|_| ()).ok_or_else(not_found)
    }

    async fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Fault> {
        self.call("rename").await?;
        if !self.rename_replaces && self.items.borrow().contains_key(to) {
            return Err(Fault::failure("Failure"));
        }
        let item = self.items.borrow_mut().remove(from).ok_or_else(not_found)?;
        self.items.borrow_mut().insert(to.to_vec(), item);
        Ok(())
    }

    async fn replace(&self, from: &[u8], to: &[u8]) -> Result<(), Fault> {
        self.call("replace").await?;
        if !self.can_replace {
            return Err(Fault::new(FaultKind::Unsupported, "Operation unsupported"));
        }
        let item = self.items.borrow_mut().remove(from).ok_or_else(not_found)?;
        self.items.borrow_mut().insert(to.to_vec(), item);
        Ok(())
    }

    async fn read_to(
        &self,
        file: &OpenFile,
        sink: Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved {
        match self.lanes_max {
            1 => self.pump(file, &*sink, span, moving, "read").await,
            _ => self.stripe(file, sink, span, moving, false).await,
        }
    }

    async fn write_from(
        &self,
        file: &OpenFile,
        source: Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved {
        match self.lanes_max {
            1 => self.pump(&*source, file, span, moving, "write").await,
            _ => self.stripe(file, source, span, moving, true).await,
        }
    }

    async fn hash(
        &self,
        (file, _): (&OpenFile, &[u8]),
        algorithms: &[HashAlgorithm],
        offset: u64,
        len: u64,
    ) -> Result<Option<Digest>, Fault> {
        self.call("hash").await?;
        if !self.can_hash && !self.is_direct {
            return Ok(None);
        }
        let bytes = file.bytes.borrow();
        let end = bytes.len().min((offset + len) as usize);
        let mut hasher = Hasher::new(algorithms[0]);
        hasher.update(&bytes[(offset as usize).min(end)..end]);
        Ok(Some(hasher.finish()))
    }

    async fn exec(&self, command: &[u8]) -> Option<Vec<u8>> {
        self.call("exec").await.ok()?;
        let path = command.strip_prefix(b"sha256sum < '")?.strip_suffix(b"'")?;
        let bytes = self.file(path).filter(|_| self.can_exec)?;
        let mut hasher = Hasher::new(HashAlgorithm::Sha256);
        hasher.update(&bytes);
        let hex: String = hasher
            .finish()
            .bytes
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        Some(format!("{hex}  -\n").into_bytes())
    }

    fn direct(&self, file: &OpenFile) -> Option<Rc<dyn FileIo>> {
        self.is_direct
            .then(|| Rc::new(file.clone()) as Rc<dyn FileIo>)
    }

    /// Two places are never one, whatever they are called.
    fn identity(&self, path: &[u8]) -> Option<(u64, u64)> {
        let path = self.resolve(path);
        let hash = blake3::hash(&path);
        let inode = u64::from_le_bytes(*hash.as_bytes().first_chunk()?);
        let device = std::ptr::from_ref(self).addr() as u64;
        self.items
            .borrow()
            .contains_key(&path)
            .then_some((device, inode))
    }
}
