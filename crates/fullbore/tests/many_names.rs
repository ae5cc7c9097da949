//! A million names: what a copy holds of a tree does not grow with it. The names are made when they are
//! asked for, and the heap is counted: alone in its file, since the counter is the process's.

#![allow(clippy::unwrap_used)]

use std::alloc::System;
use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::rc::Rc;

use fullbore::transfer::{
    Batch, Digest, Entry, Fault, FaultKind, FileIo, Finished, Moved, Moving, OpenHow, Options, Run,
    Side, Silent, Span, Whole,
};
use fullbore_sftp::proto::{Attrs, HashAlgorithm};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes of the heap in use.
fn live_bytes() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Names that a folder tells at once, as OpenSSH's does in 16 replies.
const BATCH: u64 = 1600;

/// What a copy may hold of a tree. Chosen: a third of it is what such a run takes.
const HELD_BYTES_MAX: usize = 8 << 20;

/// What the names of a copy may take where folders must be held whole, and a batch more.
const NAMES_BYTES_MAX: usize = (256 << 20) + (16 << 20);

/// A tree with as many entries in each folder as its level says, folders down to a depth and empty files
/// in the last.
struct Tree {
    widths: Vec<u64>,
    /// Bytes of a name at least, names of a batch, open handles.
    name_len: usize,
    batch: u64,
    handles: usize,
    base: usize,
    most: Cell<usize>,
    opens: Cell<u64>,
    /// Folders being made and files being opened; the sum of that whenever another begins, and of those.
    under_way: Cell<u64>,
    under_way_sum: Cell<u64>,
    begun: Cell<u64>,
}

impl Tree {
    fn new(widths: &[u64]) -> Self {
        Self {
            widths: widths.to_vec(),
            name_len: 12,
            batch: BATCH,
            handles: 1019,
            base: live_bytes(),
            most: Cell::new(0),
            opens: Cell::new(0),
            under_way: Cell::new(0),
            under_way_sum: Cell::new(0),
            begun: Cell::new(0),
        }
    }

    fn files(&self) -> u64 {
        self.widths.iter().product()
    }

    /// How many others are under way when one begins, on average.
    fn under_way_mean(&self) -> u64 {
        self.under_way_sum.get() / self.begun.get()
    }

    fn sample(&self) {
        let live = live_bytes().saturating_sub(self.base);
        self.most.set(self.most.get().max(live));
    }

    /// Takes the time of a round trip.
    async fn ask(&self) {
        self.begun.set(self.begun.get() + 1);
        self.under_way_sum
            .set(self.under_way_sum.get() + self.under_way.get());
        self.under_way.set(self.under_way.get() + 1);
        tokio::task::yield_now().await;
        self.under_way.set(self.under_way.get() - 1);
    }

    fn attrs(&self, level: usize) -> Attrs {
        let kind = if level < self.widths.len() {
            0o040_755
        } else {
            0o100_644
        };
        Attrs {
            size: Some(0),
            permissions: Some(kind),
            ..Attrs::EMPTY
        }
    }
}

/// How many folders a path is below `/t`.
fn level(path: &[u8]) -> usize {
    path.iter().filter(|&&b| b == b'/').count() - 1
}

/// The listing of a folder: its level, and the next name.
struct Listing(usize, u64);

#[derive(Clone)]
struct Empty;

impl FileIo for Empty {
    fn read_at(&self, _: u64, _: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(0)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

fn never<T>() -> Result<T, Fault> {
    Err(Fault::new(FaultKind::NotFound, "not there"))
}

/// The same place as source and, where nothing is, as target: it forgets what it is given.
impl Side for Tree {
    type File = Empty;
    type Listing = Listing;

    fn prefix(&self) -> &str {
        "t:"
    }
    async fn stat(&self, path: &[u8]) -> Result<Attrs, Fault> {
        if path.starts_with(b"/c") {
            return never();
        }
        Ok(self.attrs(level(path)))
    }
    async fn lstat(&self, _: &[u8]) -> Result<Attrs, Fault> {
        Ok(self.attrs(self.widths.len()))
    }
    async fn realpath(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(path.to_vec())
    }
    async fn expand(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(path.to_vec())
    }
    async fn list(&self, path: &[u8]) -> Result<Listing, Fault> {
        Ok(Listing(level(path), 0))
    }
    async fn next_entries(&self, listing: &mut Listing) -> Result<Batch, Fault> {
        // Others have their turn, as while a server is asked.
        tokio::task::yield_now().await;
        let width = self.widths[listing.0];
        let end = width.min(listing.1 + self.batch);
        let entries = (listing.1..end).map(|number| Entry {
            name: format!("name-{number:0len$}", len = self.name_len - 5).into_bytes(),
            attrs: self.attrs(listing.0 + 1),
        });
        let entries = entries.collect();
        listing.1 = end;
        self.sample();
        Ok(Batch {
            entries,
            is_last: end == width,
        })
    }
    async fn stop_listing(&self, _: Listing) {}
    fn handles_max(&self) -> Option<usize> {
        Some(self.handles)
    }
    fn folders_max(&self) -> Option<usize> {
        None
    }
    async fn open(&self, _: &[u8], _: OpenHow) -> Result<Empty, Fault> {
        self.ask().await;
        self.opens.set(self.opens.get() + 1);
        if self.opens.get().is_multiple_of(512) {
            self.sample();
        }
        Ok(Empty)
    }
    async fn close(&self, _: Empty) -> Result<(), Fault> {
        Ok(())
    }
    async fn release(&self, _: Empty) {}
    fn finish_bytes_max(&self) -> Option<usize> {
        Some(32_768)
    }
    async fn finish(&self, _: Empty, _: &Whole<'_>) -> Result<Finished<Fault>, Fault> {
        Ok(Finished {
            written: Ok(()),
            attributes: Ok(()),
            synced: Ok(()),
            size: Ok(self.attrs(self.widths.len())),
            closed: Ok(()),
        })
    }
    async fn let_writers_show(&self) {}
    async fn fstat(&self, _: &Empty) -> Result<Attrs, Fault> {
        Ok(self.attrs(self.widths.len()))
    }
    async fn fsetstat(&self, _: &Empty, _: Attrs) -> Result<(), Fault> {
        Ok(())
    }
    async fn setstat(&self, _: &[u8], _: Attrs) -> Result<(), Fault> {
        Ok(())
    }
    async fn fsync(&self, _: &Empty) -> Result<(), Fault> {
        Ok(())
    }
    async fn sync_name(&self, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
    async fn mkdir(&self, _: &[u8], _: u32) -> Result<(), Fault> {
        self.ask().await;
        Ok(())
    }
    async fn remove(&self, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
    async fn rename(&self, _: &[u8], _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
    async fn replace(&self, _: &[u8], _: &[u8]) -> Result<(), Fault> {
        tokio::task::yield_now().await;
        Ok(())
    }
    async fn read_to(&self, _: &Empty, _: Rc<dyn FileIo>, _: Span, _: Moving<'_>) -> Moved {
        Moved {
            end: 0,
            fault: None,
        }
    }
    async fn write_from(&self, _: &Empty, _: Rc<dyn FileIo>, _: Span, _: Moving<'_>) -> Moved {
        Moved {
            end: 0,
            fault: None,
        }
    }
    async fn hash(
        &self,
        _: (&Empty, &[u8]),
        _: &[HashAlgorithm],
        _: u64,
        _: u64,
    ) -> Result<Option<Digest>, Fault> {
        never()
    }
    async fn exec(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
    fn direct(&self, _: &Empty) -> Option<Rc<dyn FileIo>> {
        Some(Rc::new(Empty))
    }
    fn identity(&self, _: &[u8]) -> Option<(u64, u64)> {
        None
    }
}

/// Copies the whole tree: files, and what failed.
fn copy(tree: &Tree) -> (u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let options = Options {
            recursive: true,
            ..Options::default()
        };
        let run = Run::new(tree, b"/c", false, options, &Silent).await;
        let run = run.unwrap();
        run.copy_from(tree, &[b"/t".to_vec()]).await;
        let summary = run.summary();
        (summary.files, summary.failed)
    })
}

/// The most bytes of the heap that were in use while the whole tree was copied.
fn peak(widths: &[u64]) -> usize {
    let tree = Tree::new(widths);
    assert_eq!(copy(&tree), (tree.files(), 0));
    tree.most.get()
}

#[test]
fn a_million_names_take_no_more_memory_than_a_hundred_thousand() {
    // The reserve of files, a batch for each folder that is open, and what is in flight.
    let (few, many) = (peak(&[100_000]), peak(&[1_000_000]));
    println!("in one folder: {few} bytes for 100,000 files, {many} for 1,000,000");
    assert!(many < HELD_BYTES_MAX, "{many} bytes");
    assert!(
        many < few + few / 4,
        "{many} bytes for ten times the names of {few}"
    );

    let (few, many) = (peak(&[46; 3]), peak(&[100; 3]));
    println!("in folders in folders: {few} bytes for 97,336 files, {many} for 1,000,000");
    assert!(many < HELD_BYTES_MAX, "{many} bytes");
}

#[test]
fn a_hundred_thousand_folders_in_one_are_read_on_as_they_are_copied() {
    let tree = Tree::new(&[100_000, 1]);
    assert_eq!(copy(&tree), (100_000, 0));
    let (most, mean) = (tree.most.get(), tree.under_way_mean());
    println!("{most} bytes, {mean} under way");
    assert!(most < HELD_BYTES_MAX, "{most} bytes");
    // It begins with 64 at once; a walk that takes folders one by one has none beside.
    assert!(mean >= 24, "{mean} under way");
}

#[test]
fn a_folder_that_must_be_held_whole_is_refused_at_a_limit() {
    let mut tree = Tree::new(&[4600]);
    (tree.name_len, tree.batch, tree.handles) = (60_000, 128, 4);
    assert_eq!(copy(&tree), (0, 1));
    let most = tree.most.get();
    assert!(most < NAMES_BYTES_MAX, "{most} bytes");

    let mut tree = Tree::new(&[4400]);
    (tree.name_len, tree.batch, tree.handles) = (60_000, 128, 4);
    assert_eq!(copy(&tree), (4400, 0));
}
