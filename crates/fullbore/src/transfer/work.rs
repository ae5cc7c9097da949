//! What a run still has to do, in an order that keeps it little: as many files as are worth having in
//! reserve, folders depth first, and listings that are read on only when nothing else is left.
//!
//! What waits is bounded by the depth of a tree and the length of a batch, not by the number of files.

use std::rc::Rc;

use super::run::BYTES_IN_FLIGHT_MAX;
use super::tree::{Folder, Node};

/// Folders that are read on at once, a batch each.
const READING_ON_MAX: usize = 8;

/// Folders that stay open because not all of them is known; from there on they are read before others
/// are opened.
const OPEN_LISTINGS_MAX: usize = 64;

/// What is expected of the first folders.
const FILES_PER_FOLDER_AT_FIRST: usize = 8;

/// Folders that wait before they are taken one by one, deepest first.
const FOLDERS_WAITING_MAX: usize = 4096;

/// How much may be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Tasks that run at once.
    pub(super) tasks: usize,
    /// Folders that are open at once.
    pub(super) folders: usize,
    /// The source has so few handles that a folder must be read to its end and closed first.
    pub(super) is_scarce: bool,
}

/// Something to be done. `L` is a folder that is being listed.
pub(super) enum Task<L> {
    /// Copy a file, or make a folder and begin to list it.
    Copy(Node),
    /// Go on listing.
    List(Rc<Folder>, L),
    /// All that is in the folder is copied.
    Finish(Rc<Folder>),
}

/// What a running task counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// A file of so many bytes, as far as known.
    File(u64),
    /// Makes a folder and begins to list it.
    Folder,
    /// Reads on in a folder.
    Reading,
    /// Finishes a folder.
    Finish,
}

impl<L> Task<L> {
    pub(super) fn share(&self) -> Share {
        match self {
            Self::Copy(node) if node.attrs.is_dir() => Share::Folder,
            Self::Copy(node) => Share::File(node.attrs.size.unwrap_or(0).min(BYTES_IN_FLIGHT_MAX)),
            Self::List(..) => Share::Reading,
            Self::Finish(_) => Share::Finish,
        }
    }
}

impl Share {
    const fn bytes(self) -> u64 {
        match self {
            Self::File(bytes) => bytes,
            Self::Folder | Self::Reading | Self::Finish => 0,
        }
    }
}

/// What waits, and how much runs.
pub(super) struct Work<L> {
    finished: Vec<Rc<Folder>>,
    files: Vec<Node>,
    folders: Vec<Node>,
    listings: Vec<(Rc<Folder>, L)>,
    running: usize,
    running_folders: usize,
    running_readings: usize,
    running_bytes: u64,
    /// Files that the first batch of a folder brings, on average, in eighths.
    files_per_folder: usize,
}

impl<L> Work<L> {
    pub(super) const fn new() -> Self {
        Self {
            finished: Vec::new(),
            files: Vec::new(),
            folders: Vec::new(),
            listings: Vec::new(),
            running: 0,
            running_folders: 0,
            running_readings: 0,
            running_bytes: 0,
            files_per_folder: 8 * FILES_PER_FOLDER_AT_FIRST,
        }
    }

    pub(super) fn add(&mut self, node: Node) {
        match node.attrs.is_dir() {
            true => self.folders.push(node),
            false => self.files.push(node),
        }
    }

    /// Notes how many files the first batch of a folder brought. With 80 a folder on average, and now
    /// 160: 70 + 20 = 90.
    pub(super) fn note_folder(&mut self, files: usize) {
        self.files_per_folder -= self.files_per_folder / 8;
        self.files_per_folder += files;
    }

    pub(super) fn add_listing(&mut self, folder: Rc<Folder>, listing: L) {
        self.listings.push((folder, listing));
    }

    pub(super) fn add_finished(&mut self, folder: Rc<Folder>) {
        self.finished.push(folder);
    }

    /// Folders that are open, and are not read from now.
    pub(super) fn open_listings(&self) -> usize {
        self.listings.len()
    }

    /// Files and folders known, and not begun.
    pub(super) fn waiting(&self) -> usize {
        self.files.len() + self.folders.len()
    }

    /// Forgets all that waits.
    pub(super) fn clear(&mut self) {
        self.finished.clear();
        self.files.clear();
        self.folders.clear();
        self.listings.clear();
    }

    /// What to begin next; `None` until something ends.
    pub(super) fn begin(&mut self, allowed: Allowance) -> Option<Task<L>> {
        if self.running >= allowed.tasks {
            return None;
        }
        let task = self.choose(allowed)?;
        let share = task.share();
        self.running += 1;
        self.running_folders += usize::from(share == Share::Folder);
        self.running_readings += usize::from(share == Share::Reading);
        self.running_bytes += share.bytes();
        Some(task)
    }

    /// A task that was begun has ended.
    pub(super) fn end(&mut self, share: Share) {
        self.running -= 1;
        self.running_folders -= usize::from(share == Share::Folder);
        self.running_readings -= usize::from(share == Share::Reading);
        self.running_bytes -= share.bytes();
    }

    fn choose(&mut self, allowed: Allowance) -> Option<Task<L>> {
        if let Some(folder) = self.finished.pop() {
            return Some(Task::Finish(folder));
        }
        if allowed.is_scarce || self.files.len() < allowed.tasks {
            let listing = self.next_listing(allowed);
            if listing.is_some() || (allowed.is_scarce && self.running_readings > 0) {
                return listing;
            }
        }
        if self.running >= 2 && self.running_bytes >= BYTES_IN_FLIGHT_MAX {
            return None;
        }
        self.files.pop().map(Task::Copy)
    }

    /// Folders that were found come before the rest of those they were found in, deepest first.
    fn next_listing(&mut self, allowed: Allowance) -> Option<Task<L>> {
        let open = self.listings.len() + self.running_folders + self.running_readings;
        let is_full = open >= allowed.folders.max(1);
        let is_crowded = is_full || allowed.is_scarce || self.listings.len() >= OPEN_LISTINGS_MAX;
        // Folders on their way will bring files, too.
        let expected = self.running_folders * self.files_per_folder / 8;
        let may_open = !is_full
            && match self.folders.len() < FOLDERS_WAITING_MAX {
                true => self.files.len() + expected < 2 * allowed.tasks,
                false => self.running_folders == 0,
            };
        if may_open
            && (!is_crowded || self.listings.is_empty())
            && let Some(node) = self.folders.pop()
        {
            return Some(Task::Copy(node));
        }
        if self.running_readings < READING_ON_MAX
            && let Some((folder, listing)) = self.listings.pop()
        {
            return Some(Task::List(folder, listing));
        }
        None
    }
}
