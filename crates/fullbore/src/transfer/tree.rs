//! Files and folders of a run: walks the sources and keeps a bounded number of files in flight.

use std::cell::Cell;
use std::rc::Rc;

use fullbore_sftp::proto::{Attrs, FileType};

use super::file::{Copier, FileJob};
use super::observer::Event;
use super::pool::Pool;
use super::run::{BYTES_IN_FLIGHT_MAX, DEPTH_MAX, FILES_IN_FLIGHT_MAX, Run};
use super::side::{Entry, Fault, FaultKind, Side};
use super::temp::{SUFFIX, join, split};

/// A source and where it goes.
pub(crate) struct Root {
    pub(crate) source: Vec<u8>,
    /// Prefix and absolute path.
    pub(crate) id: Vec<u8>,
    /// Links followed.
    pub(crate) attrs: Attrs,
    pub(crate) target: Vec<u8>,
}

/// A folder whose contents are being copied.
struct Folder {
    parent: Option<Rc<Folder>>,
    depth: usize,
    source: Vec<u8>,
    target: Vec<u8>,
    attrs: Attrs,
    /// Absolute path without links.
    real: Vec<u8>,
    /// Made by this run.
    is_new: Cell<bool>,
    /// Entries not yet copied.
    pending: Cell<usize>,
}

/// Something to be done.
struct Node {
    source: Vec<u8>,
    id: Vec<u8>,
    target: Vec<u8>,
    attrs: Attrs,
    /// The attributes are of the entry itself, which may be a link.
    is_listed: bool,
    parent: Option<Rc<Folder>>,
}

enum Task {
    Copy(Node),
    /// All that is in the folder is copied.
    Finish(Rc<Folder>),
}

/// What a task leaves.
struct Outcome {
    tasks: Vec<Task>,
    /// Known size of the file it copied.
    weight: u64,
    is_lost: bool,
}

/// Copies `roots` from `source` to the target of `run`.
pub(crate) async fn copy<S: Side, D: Side>(run: &Run<'_, D>, source: &S, roots: Vec<Root>) {
    let walk = Walk { run, source };
    // Last in, first out: what waits is at most the entries of the folders on one path.
    let mut waiting: Vec<Task> = roots.into_iter().rev().map(Task::of_root).collect();
    let mut pool = Pool::new();
    let mut weight = 0u64;
    let files_max = run.options.files_in_flight.clamp(1, FILES_IN_FLIGHT_MAX);
    loop {
        while pool.len() < files_max
            && (pool.len() < 2 || weight < BYTES_IN_FLIGHT_MAX)
            && let Some(task) = waiting.pop()
        {
            weight += task.weight();
            pool.push(walk.perform(task));
        }
        let Some(outcome) = pool.next().await else {
            return;
        };
        weight -= outcome.weight;
        if outcome.is_lost {
            // The others in flight fail for the same reason; they say so themselves.
            if !waiting.is_empty() {
                let text = format!("the session was lost; {} more not tried", waiting.len());
                run.fail(source.prefix(), b"", None, &Fault::failure(text));
            }
            waiting.clear();
        } else {
            waiting.extend(outcome.tasks);
        }
    }
}

impl Task {
    fn of_root(root: Root) -> Self {
        Self::Copy(Node {
            source: root.source,
            id: root.id,
            target: root.target,
            attrs: root.attrs,
            is_listed: false,
            parent: None,
        })
    }

    /// Bytes that it will move, as far as known.
    fn weight(&self) -> u64 {
        match self {
            Self::Copy(node) if !node.attrs.is_dir() => {
                node.attrs.size.unwrap_or(0).min(BYTES_IN_FLIGHT_MAX)
            }
            Self::Copy(_) | Self::Finish(_) => 0,
        }
    }
}

struct Walk<'a, 'r, S: Side, D: Side> {
    run: &'a Run<'r, D>,
    source: &'a S,
}

impl<S: Side, D: Side> Walk<'_, '_, S, D> {
    async fn perform(&self, task: Task) -> Outcome {
        let weight = task.weight();
        let (parent, result) = match task {
            Task::Copy(node) => {
                let parent = node.parent.clone();
                (parent, self.node(node).await)
            }
            Task::Finish(folder) => {
                let result = self.finish(&folder).await;
                (folder.parent.clone(), result.map(|()| Vec::new()))
            }
        };
        let is_lost = matches!(&result, Err(fault) if fault.kind == FaultKind::Lost);
        let mut tasks = result.unwrap_or_default();
        // A folder that yields tasks is done when the one that finishes it is.
        if tasks.is_empty()
            && let Some(folder) = parent
        {
            folder.pending.set(folder.pending.get() - 1);
            if folder.pending.get() == 0 {
                tasks.push(Task::Finish(folder));
            }
        }
        Outcome {
            tasks,
            weight,
            is_lost,
        }
    }

    /// Copies a file, or makes a folder and yields what is in it.
    async fn node(&self, mut node: Node) -> Result<Vec<Task>, Fault> {
        let is_link = node.is_listed && node.attrs.file_type() == Some(FileType::Symlink);
        if node.is_listed && (is_link || node.attrs.file_type().is_none()) {
            match self.source.stat(&node.source).await {
                Ok(attrs) => node.attrs = attrs,
                Err(fault) => return Err(self.fail(&node.source, None, fault)),
            }
        }
        match node.attrs.file_type() {
            Some(FileType::Directory) => self
                .folder(&node, is_link)
                .await
                .map_err(|fault| self.fail(&node.source, None, fault)),
            Some(FileType::Special) if node.is_listed => {
                let text = "is a device, pipe or socket; not copied";
                self.run.warn(self.source.prefix(), &node.source, text);
                Ok(Vec::new())
            }
            Some(FileType::Special | FileType::Regular | FileType::Symlink) | None => {
                self.file(&node).await.map(|()| Vec::new())
            }
        }
    }

    async fn file(&self, node: &Node) -> Result<(), Fault> {
        let run = self.run;
        let number = run.tally.number();
        run.observer.notice(&Event::Started {
            file: number,
            source: &[self.source.prefix().as_bytes(), &node.source].concat(),
            target: &[run.target.prefix().as_bytes(), &node.target].concat(),
            size: node.attrs.size,
        });
        let copier = Copier {
            source: self.source,
            target: run.target,
            options: &run.options,
            observer: run.observer,
            tally: &run.tally,
        };
        let job = FileJob {
            source: &node.source,
            source_id: &node.id,
            target: &node.target,
            is_folder_new: node
                .parent
                .as_ref()
                .is_some_and(|folder| folder.is_new.get()),
            number,
        };
        match copier.copy(&job, node.attrs).await {
            Ok(bytes) => {
                run.tally.add_file();
                let file = number;
                run.observer.notice(&Event::Done { file, bytes });
                Ok(())
            }
            Err(fault) => Err(self.fail(&node.source, Some(number), fault)),
        }
    }

    async fn folder(&self, node: &Node, is_link: bool) -> Result<Vec<Task>, Fault> {
        let depth = node.parent.as_ref().map_or(0, |parent| parent.depth + 1);
        if depth > DEPTH_MAX {
            let text = format!("folders are nested deeper than {DEPTH_MAX}");
            return Err(Fault::failure(text));
        }
        let real = match &node.parent {
            Some(parent) if !is_link => join(&parent.real, split(&node.source).1),
            _ => self.source.realpath(&node.source).await?,
        };
        let folder = Rc::new(Folder {
            parent: node.parent.clone(),
            depth,
            source: node.source.clone(),
            target: node.target.clone(),
            attrs: node.attrs,
            real,
            is_new: Cell::new(false),
            pending: Cell::new(0),
        });
        if is_link && folder.is_inside_itself() {
            let text = "is a symbolic link to a folder it is in; not followed";
            return Err(Fault::failure(text));
        }
        folder.is_new.set(self.make_folder(&node.target).await?);
        self.run.tally.add_folder();
        let entries = self.source.list(&node.source).await?;
        let mut tasks = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Some(task) = self.entry(node, &folder, entry) {
                tasks.push(task);
            }
        }
        folder.pending.set(tasks.len());
        if tasks.is_empty() {
            tasks.push(Task::Finish(folder));
        }
        Ok(tasks)
    }

    /// What to do about an entry. Names that would lead out of the target are refused: the server
    /// is not trusted with them.
    fn entry(&self, node: &Node, folder: &Rc<Folder>, entry: Entry) -> Option<Task> {
        let name = &entry.name;
        let source = join(&node.source, name);
        if name.is_empty()
            || name.contains(&b'/')
            || name.contains(&0)
            || name == b".."
            || name == b"."
        {
            let fault = Fault::failure("the server lists a name that is no file name; refused");
            self.fail(&source, None, fault);
            return None;
        }
        if name.starts_with(b".") && name.ends_with(SUFFIX) {
            // What an interrupted copy left there is no content.
            return None;
        }
        Some(Task::Copy(Node {
            id: join(&node.id, name),
            target: join(&node.target, name),
            source,
            attrs: entry.attrs,
            is_listed: true,
            parent: Some(Rc::clone(folder)),
        }))
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
        if !self.run.options.preserve {
            return Ok(());
        }
        let attrs = Attrs {
            permissions: folder.attrs.permissions.map(|mode| mode & 0o777),
            times: folder.attrs.times,
            ..Attrs::EMPTY
        };
        match self.run.target.setstat(&folder.target, attrs).await {
            Err(fault) if fault.kind == FaultKind::Lost => {
                Err(self.fail(&folder.source, None, fault))
            }
            Err(fault) => {
                let text = format!("mode and times were not set: {fault}");
                self.run
                    .warn(self.run.target.prefix(), &folder.target, &text);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn fail(&self, path: &[u8], file: Option<u64>, fault: Fault) -> Fault {
        self.run.fail(self.source.prefix(), path, file, &fault);
        fault
    }
}

impl Folder {
    /// Whether a folder that it is in would be reached again through it.
    fn is_inside_itself(&self) -> bool {
        let mut above = self.parent.as_deref();
        while let Some(folder) = above {
            if let Some(rest) = folder.real.strip_prefix(self.real.as_slice())
                && (rest.is_empty() || rest.starts_with(b"/") || self.real == b"/")
            {
                return true;
            }
            above = folder.parent.as_deref();
        }
        false
    }
}
