//! Files and folders of a run: walks the sources and keeps a bounded number of files in flight.

use std::cell::Cell;
use std::rc::Rc;

use fullbore_sftp::proto::{Attrs, FileType};

use super::file::{Copier, FileJob};
use super::flight::Flight;
use super::observer::Event;
use super::pool::Pool;
use super::run::{DEPTH_MAX, FILES_IN_FLIGHT_MAX, Run, is_inside, is_same_place};
use super::side::{Entry, Fault, FaultKind, Side};
use super::temp::{is_temp_name, join, split};
use super::unfinished::{remove_mark, set_mark};
use super::work::{Allowance, Share, Task, Work};

/// With fewer handles than that beside those of open folders, folders are read to their end at once.
const HANDLES_SPARE: usize = 8;

/// What the names of a run that wait may take, with their attributes; a folder that brings more fails.
/// Far from reached where listings can be left open. With few handles, of which the server says how many
/// there are, a folder is held whole, beside those it is in: then this is the bound. Chosen: some 1.5
/// million names of usual length.
const NAMES_BYTES_MAX: usize = 256 << 20;

/// How often a file is tried again with fewer others open.
const TRIES_MAX: u8 = 8;

/// Where something is, and where it goes.
pub(crate) struct Paths {
    pub(crate) source: Vec<u8>,
    /// Prefix and absolute path.
    pub(crate) id: Vec<u8>,
    pub(crate) target: Vec<u8>,
}

/// A source and where it goes.
pub(crate) struct Root {
    pub(crate) paths: Paths,
    /// Links followed.
    pub(crate) attrs: Attrs,
    /// What marks the target as unfinished, where that is wanted: only where this is the one source.
    pub(crate) mark: Option<Vec<u8>>,
}

/// A folder whose contents are being copied.
pub(super) struct Folder {
    parent: Option<Rc<Folder>>,
    depth: usize,
    paths: Paths,
    attrs: Attrs,
    /// Absolute path without links.
    real: Vec<u8>,
    /// Made by this run.
    is_new: Cell<bool>,
    /// Entries known and not yet copied, and one while there may be more.
    pending: Cell<usize>,
}

/// A file or folder to be copied. Little, because many wait: paths are made when its turn comes.
pub(super) struct Node {
    place: Place,
    pub(super) attrs: Attrs,
    /// Its number, once it was begun.
    number: Option<u64>,
    tries: u8,
}

enum Place {
    Root(Box<Paths>),
    /// An entry; the attributes are its own, and it may be a link.
    Entry(Rc<Folder>, Box<[u8]>),
}

/// What a task leaves.
struct Outcome<L> {
    share: Share,
    nodes: Vec<Node>,
    listing: Option<(Rc<Folder>, L)>,
    finished: Option<Rc<Folder>>,
    is_lost: bool,
}

/// What a task found: nodes to copy, and whether there may be more.
enum Found<L> {
    Nothing,
    Again(Node),
    Nodes(Rc<Folder>, Vec<Node>, Option<L>),
}

/// Copies `roots` from `source` to the target of `run`.
pub(crate) async fn copy<S: Side, D: Side>(run: &Run<'_, D>, source: &S, roots: Vec<Root>) {
    let walk = Walk {
        run,
        source,
        names_bytes: Cell::new(0),
        mark: roots.iter().find_map(|root| root.mark.clone()),
        is_lost: Cell::new(false),
    };
    let clock = &run.clock;
    let most = run.options.files_in_flight.clamp(1, FILES_IN_FLIGHT_MAX);
    let mut flight = Flight::new(clock.now(), most);
    let mut work = Work::new();
    roots
        .into_iter()
        .rev()
        .for_each(|root| work.add(root.into()));
    let mut pool = Pool::new();
    loop {
        flight.on_turnaround(run.turnaround.get());
        let allowed = walk.allowance(&flight, work.open_listings());
        while let Some(task) = work.begin(allowed) {
            pool.push(walk.perform(task));
        }
        if pool.len() >= flight.limit() && work.waiting() > 0 {
            flight.on_full();
        }
        let Some(outcome) = pool.next().await else {
            return;
        };
        work.end(outcome.share);
        if outcome.share == Share::Folder {
            let folders = outcome.nodes.iter().filter(|node| node.attrs.is_dir());
            let folders = folders.count();
            work.note_folder(outcome.nodes.len() - folders, folders);
        }
        if let Share::File(bytes) = outcome.share {
            flight.on_done(clock.now(), bytes);
        }
        if outcome.is_lost {
            walk.is_lost.set(true);
            // The others in flight fail for the same reason; they say so themselves.
            if work.waiting() > 0 {
                let text = format!("the session was lost; {} more not tried", work.waiting());
                run.fail(source.prefix(), b"", None, &Fault::failure(text));
            }
            work.clear();
            continue;
        }
        outcome.nodes.into_iter().for_each(|node| work.add(node));
        if let Some((folder, listing)) = outcome.listing {
            work.add_listing(folder, listing);
        }
        if let Some(folder) = outcome.finished {
            work.add_finished(folder);
        }
    }
}

impl From<Root> for Node {
    fn from(root: Root) -> Self {
        Self {
            place: Place::Root(Box::new(root.paths)),
            attrs: root.attrs,
            number: None,
            tries: 0,
        }
    }
}

impl Node {
    /// An entry of a folder.
    pub(super) fn found(folder: &Rc<Folder>, name: Vec<u8>, attrs: Attrs) -> Self {
        Self {
            place: Place::Entry(Rc::clone(folder), name.into_boxed_slice()),
            attrs,
            number: None,
            tries: 0,
        }
    }

    /// What it takes while it waits; nothing for a source, which the caller holds, too.
    fn held_bytes(&self) -> usize {
        match &self.place {
            Place::Root(_) => 0,
            Place::Entry(_, name) => size_of::<Self>() + name.len(),
        }
    }

    /// Folders that it is in, up to the source.
    pub(super) fn depth(&self) -> usize {
        self.parent().map_or(0, |parent| parent.depth + 1)
    }

    const fn parent(&self) -> Option<&Rc<Folder>> {
        match &self.place {
            Place::Root(_) => None,
            Place::Entry(parent, _) => Some(parent),
        }
    }

    const fn is_listed(&self) -> bool {
        matches!(self.place, Place::Entry(..))
    }

    fn paths(&self) -> Paths {
        match &self.place {
            Place::Root(paths) => Paths {
                source: paths.source.clone(),
                id: paths.id.clone(),
                target: paths.target.clone(),
            },
            Place::Entry(parent, name) => Paths {
                source: join(&parent.paths.source, name),
                id: join(&parent.paths.id, name),
                target: join(&parent.paths.target, name),
            },
        }
    }
}

struct Walk<'a, 'r, S: Side, D: Side> {
    run: &'a Run<'r, D>,
    source: &'a S,
    /// What the names take that were found and not begun, at most [`NAMES_BYTES_MAX`] and a batch.
    names_bytes: Cell<usize>,
    /// What marks the target as unfinished.
    mark: Option<Vec<u8>>,
    /// A session was lost: not everything was gone through.
    is_lost: Cell<bool>,
}

impl<S: Side, D: Side> Walk<'_, '_, S, D> {
    /// Tasks that may run now: each has at most one file or folder open on either side.
    fn allowance(&self, flight: &Flight, open_listings: usize) -> Allowance {
        let (source, target) = (self.source.handles_max(), self.run.target.handles_max());
        let is_same = self.source.prefix() == self.run.target.prefix();
        let left = source.map(|max| max.saturating_sub(open_listings));
        let each = if is_same { 2 } else { 1 };
        let handles = left.map(|max| max / each).into_iter().chain(target).min();
        Allowance {
            tasks: flight.limit().min(handles.unwrap_or(usize::MAX)).max(1),
            folders: self.source.folders_max().unwrap_or(usize::MAX),
            is_scarce: left.is_some_and(|left| left < HANDLES_SPARE),
        }
    }

    async fn perform(&self, task: Task<S::Listing>) -> Outcome<S::Listing> {
        let share = task.share();
        let (parent, result) = match task {
            Task::Copy(node) => {
                self.drop_names(node.held_bytes());
                let parent = node.parent().cloned();
                (parent, self.node(node).await)
            }
            Task::List(folder, listing) => {
                let result = self.list(&folder, listing).await;
                // The folder itself waits for the rest of its list.
                (Some(folder), result)
            }
            Task::Finish(folder) => {
                let result = self.finish(&folder).await;
                (folder.parent.clone(), result.map(|()| Found::Nothing))
            }
        };
        let mut outcome = Outcome {
            share,
            nodes: Vec::new(),
            listing: None,
            finished: None,
            is_lost: matches!(&result, Err(fault) if fault.kind == FaultKind::Lost),
        };
        match result {
            Ok(Found::Again(node)) => {
                self.hold_names(node.held_bytes());
                outcome.nodes.push(node);
            }
            Ok(Found::Nodes(folder, nodes, listing)) => {
                folder.pending.set(folder.pending.get() + nodes.len());
                outcome.nodes = nodes;
                match listing {
                    Some(listing) => outcome.listing = Some((folder, listing)),
                    None => outcome.finished = folder.settle(),
                }
            }
            // A folder that was begun is done when the task that finishes it is.
            Ok(Found::Nothing) | Err(_) => {
                outcome.finished = parent.and_then(|folder| folder.settle());
            }
        }
        outcome
    }

    /// Copies a file, or makes a folder and yields what is in it.
    async fn node(&self, mut node: Node) -> Result<Found<S::Listing>, Fault> {
        let paths = node.paths();
        let is_link = node.is_listed() && node.attrs.file_type() == Some(FileType::Symlink);
        if node.is_listed() && (is_link || node.attrs.file_type().is_none()) {
            match self.source.stat(&paths.source).await {
                Ok(attrs) => node.attrs = attrs,
                Err(fault) => return Err(self.fail(&paths.source, None, fault)),
            }
        }
        match node.attrs.file_type() {
            Some(FileType::Directory) => self.folder(node, paths, is_link).await,
            Some(FileType::Special) if node.is_listed() => {
                let text = "is a device, pipe or socket; not copied";
                self.run.warn(self.source.prefix(), &paths.source, text);
                Ok(Found::Nothing)
            }
            Some(FileType::Special | FileType::Regular | FileType::Symlink) | None => {
                self.file(node, &paths).await
            }
        }
    }

    async fn file(&self, mut node: Node, paths: &Paths) -> Result<Found<S::Listing>, Fault> {
        let run = self.run;
        let number = node.number.unwrap_or_else(|| {
            let number = run.tally.number();
            run.observer.notice(&Event::Started {
                file: number,
                source: &[self.source.prefix().as_bytes(), &paths.source].concat(),
                target: &[run.target.prefix().as_bytes(), &paths.target].concat(),
                size: node.attrs.size,
            });
            number
        });
        let copier = Copier {
            source: self.source,
            target: run.target,
            options: &run.options,
            observer: run.observer,
            tally: &run.tally,
        };
        let job = FileJob {
            source: &paths.source,
            source_id: &paths.id,
            target: &paths.target,
            is_folder_new: node.parent().is_some_and(|folder| folder.is_new.get()),
            number,
        };
        match copier.copy(&job, node.attrs).await {
            Ok(bytes) => {
                run.tally.add_file();
                let file = number;
                run.observer.notice(&Event::Done { file, bytes });
                Ok(Found::Nothing)
            }
            Err(fault) if fault.kind == FaultKind::Busy && node.tries < TRIES_MAX => {
                node.number = Some(number);
                node.tries += 1;
                Ok(Found::Again(node))
            }
            Err(fault) => Err(self.fail(&paths.source, Some(number), fault)),
        }
    }

    async fn folder(
        &self,
        mut node: Node,
        paths: Paths,
        is_link: bool,
    ) -> Result<Found<S::Listing>, Fault> {
        let parent = node.parent().cloned();
        let fail = |path: &[u8], fault: Fault| self.fail(path, None, fault);
        let depth = node.depth();
        if depth > DEPTH_MAX {
            let text = format!("folders are nested deeper than {DEPTH_MAX}");
            return Err(fail(&paths.source, Fault::failure(text)));
        }
        let real = match &parent {
            Some(parent) if !is_link => join(&parent.real, split(&paths.source).1),
            _ => match self.source.realpath(&paths.source).await {
                Ok(real) => real,
                Err(fault) => return Err(fail(&paths.source, fault)),
            },
        };
        let folder = Rc::new(Folder {
            parent,
            depth,
            paths,
            attrs: node.attrs,
            real,
            is_new: Cell::new(false),
            pending: Cell::new(1),
        });
        if is_link && folder.is_inside_itself() {
            let text = "is a symbolic link to a folder it is in; not followed";
            return Err(fail(&folder.paths.source, Fault::failure(text)));
        }
        if is_link && self.leads_to_target(&folder).await {
            let text = "is a symbolic link to a folder that the target is in; not followed";
            return Err(fail(&folder.paths.source, Fault::failure(text)));
        }
        let asked = self.run.clock.now();
        match self.open_folder(&folder).await {
            Ok(listing) => {
                self.run.tally.add_folder();
                let found = self.list(&folder, listing).await;
                if folder.depth == 0 {
                    // Later ones wait behind what else is in flight.
                    self.run.note_turnaround(asked);
                }
                found
            }
            Err(fault) if fault.kind == FaultKind::Busy && node.tries < TRIES_MAX => {
                node.tries += 1;
                Ok(Found::Again(node))
            }
            Err(fault) => Err(fail(&folder.paths.source, fault)),
        }
    }

    /// Whether what is copied would be found, and copied, again through `folder`.
    async fn leads_to_target(&self, folder: &Folder) -> bool {
        let (source, target) = (self.source, self.run.target);
        if !is_same_place(source, target, &folder.paths.source) {
            return false;
        }
        let real = target.realpath(&folder.paths.target).await;
        real.is_ok_and(|real| is_inside(&real, &folder.real))
    }

    /// Makes the folder and begins to list it, both in one round trip.
    async fn open_folder(&self, folder: &Folder) -> Result<S::Listing, Fault> {
        let paths = &folder.paths;
        let make = async {
            let target = self.run.target;
            let Some(mark) = self.mark_of(folder) else {
                return self.make_folder(&paths.target).await;
            };
            if target.finish_bytes_max().is_some() {
                // In the order in which they are asked for.
                let (made, marked) =
                    tokio::join!(self.make_folder(&paths.target), set_mark(target, mark));
                return marked.and(made);
            }
            let is_new = self.make_folder(&paths.target).await?;
            set_mark(target, mark).await?;
            Ok(is_new)
        };
        let (made, listing) = tokio::join!(make, self.source.list(&paths.source));
        match (made, listing) {
            (Ok(is_new), Ok(listing)) => {
                folder.is_new.set(is_new);
                Ok(listing)
            }
            (Err(fault), Ok(listing)) => {
                self.source.stop_listing(listing).await;
                Err(fault)
            }
            (_, Err(fault)) => Err(fault),
        }
    }

    /// The next entries of a folder, as nodes.
    async fn list(
        &self,
        folder: &Rc<Folder>,
        mut listing: S::Listing,
    ) -> Result<Found<S::Listing>, Fault> {
        let mut nodes = Vec::new();
        let mut bytes = 0;
        let fault = loop {
            let batch = match self.source.next_entries(&mut listing).await {
                Ok(batch) => batch,
                Err(fault) => break fault,
            };
            let entries = batch.entries.into_iter();
            let before = nodes.len();
            nodes.extend(entries.filter_map(|entry| self.entry(folder, entry)));
            let new: usize = nodes[before..].iter().map(Node::held_bytes).sum();
            self.hold_names(new);
            bytes += new;
            if self.names_bytes.get() > NAMES_BYTES_MAX {
                if !batch.is_last {
                    self.source.stop_listing(listing).await;
                }
                break Fault::failure("has more names than are held at once");
            }
            let handles_max = self.source.handles_max();
            let is_scarce = handles_max.is_some_and(|max| max < HANDLES_SPARE);
            if batch.is_last || !is_scarce {
                let listing = (!batch.is_last).then_some(listing);
                return Ok(Found::Nodes(Rc::clone(folder), nodes, listing));
            }
        };
        self.drop_names(bytes);
        Err(self.fail(&folder.paths.source, None, fault))
    }

    fn hold_names(&self, bytes: usize) {
        self.names_bytes.set(self.names_bytes.get() + bytes);
    }

    fn drop_names(&self, bytes: usize) {
        self.names_bytes.set(self.names_bytes.get() - bytes);
    }

    /// What to do about an entry. Names that would lead out of the target are refused: the server
    /// is not trusted with them.
    fn entry(&self, folder: &Rc<Folder>, entry: Entry) -> Option<Node> {
        let name = &entry.name;
        if name.is_empty()
            || name.contains(&b'/')
            || name.contains(&0)
            || name == b".."
            || name == b"."
        {
            let fault = Fault::failure("the server lists a name that is no file name; refused");
            self.fail(&join(&folder.paths.source, name), None, fault);
            return None;
        }
        if is_temp_name(name) && !entry.attrs.is_dir() {
            // What an interrupted copy left there is no content.
            return None;
        }
        Some(Node::found(folder, entry.name, entry.attrs))
    }

    /// Makes a folder that the owner can use until it gets its final mode; false if there is one.
    async fn make_folder(&self, path: &[u8]) -> Result<bool, Fault> {
        let fault = match self.run.target.mkdir(path, 0o777).await {
            Ok(()) => return Ok(true),
            Err(fault) => fault,
        };
        match self.run.target.stat(path).await {
            Ok(attrs) if attrs.is_dir() => Ok(false),
            Ok(_) => Err(Fault::failure("the target is a file, not a folder")),
            Err(_) => Err(fault),
        }
    }

    /// Gives a folder its times and mode, once nothing in it changes any more.
    async fn finish(&self, folder: &Folder) -> Result<(), Fault> {
        if let Some(mark) = self.mark_of(folder)
            && !self.is_lost.get()
            && let Err(fault) = remove_mark(self.run.target, mark).await
        {
            return Err(self.fail(&folder.paths.source, None, fault));
        }
        if !self.run.options.preserve {
            return Ok(());
        }
        let attrs = Attrs {
            permissions: folder.attrs.permissions.map(|mode| mode & 0o777),
            times: folder.attrs.times,
            ..Attrs::EMPTY
        };
        let paths = &folder.paths;
        match self.run.target.setstat(&paths.target, attrs).await {
            Err(fault) if fault.kind == FaultKind::Lost => {
                Err(self.fail(&paths.source, None, fault))
            }
            Err(fault)
                if fault.kind == FaultKind::Unsupported
                    && !self.run.tally.is_first_without_attributes() =>
            {
                Ok(())
            }
            Err(fault) => {
                let text = format!("mode and times were not set: {fault}");
                self.run
                    .warn(self.run.target.prefix(), &paths.target, &text);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// What marks `folder` as unfinished.
    fn mark_of(&self, folder: &Folder) -> Option<&[u8]> {
        self.mark.as_deref().filter(|_| folder.depth == 0)
    }

    fn fail(&self, path: &[u8], file: Option<u64>, fault: Fault) -> Fault {
        self.run.fail(self.source.prefix(), path, file, &fault);
        fault
    }
}

impl Folder {
    /// Folders that it is in, up to the source.
    pub(super) const fn depth(&self) -> usize {
        self.depth
    }

    #[cfg(test)]
    pub(super) fn at_depth(depth: usize) -> Rc<Self> {
        Rc::new(Self {
            parent: None,
            depth,
            paths: Paths {
                source: Vec::new(),
                id: Vec::new(),
                target: Vec::new(),
            },
            attrs: Attrs::EMPTY,
            real: Vec::new(),
            is_new: Cell::new(false),
            pending: Cell::new(1),
        })
    }

    /// One of what it waits for is done; itself once it was the last.
    fn settle(self: Rc<Self>) -> Option<Rc<Self>> {
        self.pending.set(self.pending.get() - 1);
        (self.pending.get() == 0).then_some(self)
    }

    /// Whether a folder that it is in would be reached again through it.
    fn is_inside_itself(&self) -> bool {
        let mut above = self.parent.as_deref();
        while let Some(folder) = above {
            if is_inside(&folder.real, &self.real) {
                return true;
            }
            above = folder.parent.as_deref();
        }
        false
    }
}
