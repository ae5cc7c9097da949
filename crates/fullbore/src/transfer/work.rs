//! What a run still has to do, in an order that keeps it little: as many files as are worth having in
//! reserve, folders depth first, and listings that are read on only when nothing else is left.
//!
//! What waits is bounded by the depth of a tree and the length of a batch, not by the number of files or
//! folders, as long as the source has handles enough to leave listings open.

use std::rc::Rc;

use super::run::{BYTES_IN_FLIGHT_MAX, FILES_IN_FLIGHT_MAX};
use super::tree::{Folder, Node};

/// Folders that are read on at once, a batch each.
const READING_ON_MAX: usize = 8;

/// Folders that stay open because not all of them is known; from there on they are read before others
/// are opened.
const OPEN_LISTINGS_MAX: usize = 64;

/// What is expected of the first folders.
const FILES_PER_FOLDER_AT_FIRST: usize = 8;

/// What is expected of the first folders.
const FOLDERS_PER_FOLDER_AT_FIRST: usize = 8;

/// Folders that wait before no more names are asked for: as many as run at once, at most.
const FOLDERS_RESERVE: usize = FILES_IN_FLIGHT_MAX;

/// Folders that wait, or are expected, before only such are opened together that bring less than one
/// folder each; others are taken one by one, deepest first.
const FOLDERS_WAITING_MAX: usize = 4096;

/// Folders that wait before all are taken one by one, whatever the last ones brought. Chosen: four times
/// what [`READING_ON_MAX`] batches of OpenSSH bring above the reserve.
const FOLDERS_WAITING_HARD_MAX: usize = 64 * 1024;

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
    /// The same for folders.
    folders_per_folder: usize,
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
            folders_per_folder: 8 * FOLDERS_PER_FOLDER_AT_FIRST,
        }
    }

    pub(super) fn add(&mut self, node: Node) {
        match node.attrs.is_dir() {
            true => self.folders.push(node),
            false => self.files.push(node),
        }
    }

    /// Notes how many files and folders the first batch of a folder brought. With 80 a folder on average,
    /// and now 160: 70 + 20 = 90.
    pub(super) fn note_folder(&mut self, files: usize, folders: usize) {
        self.files_per_folder -= self.files_per_folder / 8;
        self.files_per_folder += files;
        self.folders_per_folder -= self.folders_per_folder / 8;
        self.folders_per_folder += folders;
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
        // Handles come back when listings are read to their end.
        let is_short = is_full || allowed.is_scarce;
        let is_crowded = is_short || self.listings.len() >= OPEN_LISTINGS_MAX;
        let is_below = !is_short && self.is_below_listing();
        let is_next = !is_crowded
            || self.listings.is_empty()
            || (is_below && self.running_folders < OPEN_LISTINGS_MAX);
        if !is_full
            && is_next
            && self.may_open(allowed)
            && let Some(node) = self.folders.pop()
        {
            return Some(Task::Copy(node));
        }
        if self.folders.len() >= FOLDERS_RESERVE
            && self.running_folders > 0
            && (!is_crowded || is_below)
        {
            return None;
        }
        if self.running_readings < READING_ON_MAX
            && let Some((folder, listing)) = self.listings.pop()
        {
            return Some(Task::List(folder, listing));
        }
        None
    }

    /// Whether another folder brings what is wanted, and not too much.
    fn may_open(&self, allowed: Allowance) -> bool {
        // Folders on their way will bring files, and folders.
        let files = self.running_folders * self.files_per_folder / 8;
        let folders = self.running_folders * self.folders_per_folder / 8;
        let is_wanted = self.files.len() + files < 2 * allowed.tasks;
        let is_draining =
            self.folders_per_folder < 8 && self.folders.len() < FOLDERS_WAITING_HARD_MAX;
        let is_safe = self.folders.len() + folders < FOLDERS_WAITING_MAX || is_draining;
        is_wanted && (is_safe || self.running_folders == 0)
    }

    /// Whether the next folder is deeper than the listing that would be read on: what was found in a
    /// folder is done before more of it is read, and its list read to the end before its neighbours.
    fn is_below_listing(&self) -> bool {
        match (self.folders.last(), self.listings.last()) {
            (Some(node), Some((folder, _))) => node.depth() > folder.depth(),
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use fullbore_sftp::proto::Attrs;

    use super::*;

    const MANY: Allowance = Allowance {
        tasks: 1024,
        folders: usize::MAX,
        is_scarce: false,
    };

    /// Names that are left to list of a folder.
    type Rest = usize;

    fn found(parent: &Rc<Folder>, mode: u32) -> Node {
        let attrs = Attrs {
            permissions: Some(mode),
            size: Some(0),
            ..Attrs::EMPTY
        };
        Node::found(parent, b"name".to_vec(), attrs)
    }

    /// A walk in rounds: all that was begun ends before the next begins.
    struct Rounds {
        work: Work<Rest>,
        /// Folders in a folder, by depth; in the last there is one file.
        widths: Vec<usize>,
        waiting_max: usize,
        listings_max: usize,
        rounds: usize,
        files: usize,
    }

    impl Rounds {
        const FIRST_BATCH: usize = 400;
        const BATCH: usize = 1600;

        fn run(widths: &[usize], allowed: Allowance) -> Self {
            let mut walk = Self {
                work: Work::new(),
                widths: widths.to_vec(),
                waiting_max: 0,
                listings_max: 0,
                rounds: 0,
                files: 0,
            };
            walk.names(&Folder::at_depth(0), widths[0], Self::FIRST_BATCH);
            loop {
                let mut begun = Vec::new();
                while let Some(task) = walk.work.begin(allowed) {
                    begun.push(task);
                }
                if begun.is_empty() {
                    break;
                }
                walk.rounds += 1;
                begun.into_iter().for_each(|task| walk.end(task));
            }
            assert_eq!((walk.work.waiting(), walk.work.open_listings()), (0, 0));
            walk
        }

        fn end(&mut self, task: Task<Rest>) {
            self.work.end(task.share());
            match task {
                Task::Copy(node) if node.attrs.is_dir() => {
                    let folder = Folder::at_depth(node.depth());
                    match self.widths.get(node.depth()).copied() {
                        Some(width) => {
                            self.work.note_folder(0, width.min(Self::FIRST_BATCH));
                            self.names(&folder, width, Self::FIRST_BATCH);
                        }
                        None => {
                            self.work.note_folder(1, 0);
                            self.work.add(found(&folder, 0o100_644));
                        }
                    }
                }
                Task::Copy(_) => self.files += 1,
                Task::List(folder, rest) => self.names(&folder, rest, Self::BATCH),
                Task::Finish(_) => {}
            }
            self.waiting_max = self.waiting_max.max(self.work.waiting());
            self.listings_max = self.listings_max.max(self.work.open_listings());
        }

        fn names(&mut self, folder: &Rc<Folder>, rest: usize, batch: usize) {
            let count = rest.min(batch);
            (0..count).for_each(|_| self.work.add(found(folder, 0o040_755)));
            if rest > count {
                self.work.add_listing(Rc::clone(folder), rest - count);
            }
        }
    }

    #[test]
    fn a_folder_of_many_folders_is_read_on_as_they_are_done() {
        let walk = Rounds::run(&[100_000], MANY);
        assert_eq!(walk.files, 100_000);
        assert!(walk.waiting_max < 20_000, "{} wait", walk.waiting_max);
        // A round for a thousand folders, and one for their files, at best 196.
        assert!(walk.rounds < 400, "{} rounds", walk.rounds);
    }

    #[test]
    fn more_folders_than_may_wait_are_still_opened_together() {
        let mut work = Work::<Rest>::new();
        let root = Folder::at_depth(0);
        (0..2 * FOLDERS_WAITING_MAX).for_each(|_| work.add(found(&root, 0o040_755)));
        let begin_all = |work: &mut Work<Rest>| std::iter::from_fn(|| work.begin(MANY)).count();
        assert_eq!(begin_all(&mut work), 1, "not known what they bring");
        (0..40).for_each(|_| work.note_folder(1, 0));
        assert_eq!(begin_all(&mut work), MANY.tasks - 1);
    }

    #[test]
    fn beyond_the_hard_limit_folders_are_opened_one_by_one() {
        let mut work = Work::<Rest>::new();
        let root = Folder::at_depth(0);
        (0..40).for_each(|_| work.note_folder(1, 0));
        (0..FOLDERS_WAITING_HARD_MAX).for_each(|_| work.add(found(&root, 0o040_755)));
        work.add(found(&root, 0o040_755));
        assert!(work.begin(MANY).is_some());
        assert!(work.begin(MANY).is_none(), "as many wait as the limit says");
        work.end(Share::Folder);
        assert!(work.begin(MANY).is_some() && work.begin(MANY).is_some());
    }

    #[test]
    fn many_long_folders_in_a_folder_hold_few_listings_and_names() {
        let walk = Rounds::run(&[200, 2000], MANY);
        assert_eq!(walk.files, 400_000);
        assert!(walk.waiting_max < 100_000, "{} wait", walk.waiting_max);
        assert!(walk.listings_max < 4 * OPEN_LISTINGS_MAX);
    }

    #[test]
    fn folders_are_read_to_their_end_where_handles_are_few() {
        let few = Allowance {
            tasks: 2,
            folders: 1,
            is_scarce: true,
        };
        let walk = Rounds::run(&[5000], few);
        assert_eq!((walk.files, walk.listings_max), (5000, 1));
        assert!(walk.waiting_max >= 5000);
    }
}
