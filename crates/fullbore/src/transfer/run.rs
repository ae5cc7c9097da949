//! One run: several sources, from one or more places, into one target.

use std::cell::Cell;
use std::time::Duration;

use fullbore_base::Instant;
use fullbore_sftp::proto::Attrs;

use super::observer::{Event, Observer, Summary};
use super::pool::Pool;
use super::questions::ASKED_TOGETHER;
use super::side::{Fault, FaultKind, Side};
use super::temp::{join, split};
use super::tree::{self, Paths, Root};
use super::unfinished::{is_marked, mark_path};
use crate::config::text::escape_for_display;
use crate::driver::clock::Clock;

/// Files that are copied at once, at most: an upload of 4 KiB files takes three round trips each, so
/// that 1,024 are 340 files in a round trip, 3,400 a second at 100 ms. OpenSSH's server has 1,019
/// handles in most places.
pub const FILES_IN_FLIGHT_MAX: usize = 1024;

/// Sources that are looked at together.
const ROOTS_TOGETHER: usize = 256;

/// Bytes of the files that are copied at once, as far as sizes are known. Two are always allowed.
pub const BYTES_IN_FLIGHT_MAX: u64 = 64 * 1024 * 1024;

/// Folders below a source that are followed; OpenSSH's limit.
pub const DEPTH_MAX: usize = 64;

/// What a user can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Copy folders with what is in them. Symbolic links are followed, as scp does.
    pub recursive: bool,
    /// Hand on times and mode.
    pub preserve: bool,
    /// Go on with what an interrupted copy left.
    pub resume: bool,
    /// Compare the content from end to end before a file gets its final name.
    pub verify: bool,
    /// Bring each file to stable storage before it gets its final name.
    pub fsync: bool,
    /// Write to the final name directly. Gives up that it never holds half a file.
    pub in_place: bool,
    /// Files at once, at most [`FILES_IN_FLIGHT_MAX`].
    pub files_in_flight: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            recursive: false,
            preserve: false,
            resume: true,
            verify: false,
            fsync: false,
            in_place: false,
            files_in_flight: FILES_IN_FLIGHT_MAX,
        }
    }
}

/// Counts what becomes of the files.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    summary: Cell<Summary>,
    next_number: Cell<u64>,
    is_without_attributes: Cell<bool>,
}

impl Tally {
    fn change(&self, change: impl FnOnce(&mut Summary)) {
        let mut summary = self.summary.get();
        change(&mut summary);
        self.summary.set(summary);
    }

    pub(crate) fn number(&self) -> u64 {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        number
    }

    /// Whether this is the first time that attributes cannot be set.
    pub(crate) fn is_first_without_attributes(&self) -> bool {
        !self.is_without_attributes.replace(true)
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.change(|summary| summary.bytes += bytes);
    }

    pub(crate) fn add_warning(&self) {
        self.change(|summary| summary.warnings += 1);
    }

    pub(crate) fn add_file(&self) {
        self.change(|summary| summary.files += 1);
    }

    pub(crate) fn add_folder(&self) {
        self.change(|summary| summary.folders += 1);
    }

    pub(crate) fn add_failure(&self) {
        self.change(|summary| summary.failed += 1);
    }
}

/// Copies into one target. Dropping the future of [`Run::copy_from`] stops at once: temporary
/// files stay for the next run, nothing half is under a final name.
pub struct Run<'a, D: Side> {
    pub(crate) target: &'a D,
    path: Vec<u8>,
    is_folder: bool,
    exists: bool,
    pub(crate) options: Options,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) tally: Tally,
    pub(crate) clock: Clock,
    /// How long the slowest first answer took, of the target, a source, or the first folders.
    pub(crate) turnaround: Cell<Duration>,
}

impl<'a, D: Side> Run<'a, D> {
    /// Looks at the target. `path` is taken literally, but for a leading `~`; empty is the start
    /// folder. `needs_folder`: there are several sources.
    ///
    /// # Errors
    /// When several sources are to go to something that is no folder, or the path ends in a slash
    /// and names none.
    pub async fn new(
        target: &'a D,
        path: &[u8],
        needs_folder: bool,
        options: Options,
        observer: &'a dyn Observer,
    ) -> Result<Self, Fault> {
        let mut path = target.expand(path).await?;
        if path.is_empty() {
            path = b".".to_vec();
        }
        let clock = Clock::start();
        let found = target.stat(&path).await;
        let turnaround = clock.now() - Instant::ZERO;
        let (is_folder, exists) = match found {
            Ok(attrs) => (attrs.is_dir(), true),
            Err(fault) if fault.is_not_found() => (false, false),
            Err(fault) => return Err(fault),
        };
        let wants_folder = path.ends_with(b"/") && (exists || !options.recursive);
        if !is_folder && (needs_folder || wants_folder) {
            let why = if exists {
                "is not a folder"
            } else {
                "is not there; make that folder first"
            };
            return Err(Fault::failure(why));
        }
        Ok(Self {
            target,
            path,
            is_folder,
            exists,
            options,
            observer,
            tally: Tally::default(),
            clock,
            turnaround: Cell::new(turnaround),
        })
    }

    /// Copies `sources`, paths on one place as [`super::glob::expand`] gives them. What fails is
    /// told to the observer and counted; the other files go on, unless the session is lost.
    pub async fn copy_from<S: Side>(&self, source: &S, sources: &[Vec<u8>]) {
        let mut roots = Vec::with_capacity(sources.len());
        let is_only = sources.len() == 1;
        for paths in sources.chunks(ROOTS_TOGETHER) {
            let ahead = &paths[..paths.len().min(ASKED_TOGETHER)];
            source.ask_ahead(ahead, self.options.recursive);
            let mut pool = Pool::new();
            for (index, path) in paths.iter().enumerate() {
                pool.push(async move { (index, self.root(source, path, is_only).await) });
            }
            let mut found = Vec::with_capacity(paths.len());
            while let Some(root) = pool.next().await {
                found.push(root);
            }
            found.sort_unstable_by_key(|(index, _)| *index);
            for (index, root) in found {
                match root {
                    Ok(root) => roots.push(root),
                    Err(fault) => {
                        self.fail(source.prefix(), &paths[index], None, &fault);
                        if fault.kind == FaultKind::Lost {
                            return;
                        }
                    }
                }
            }
        }
        tree::copy(self, source, roots).await;
    }

    /// What came of it so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.tally.summary.get()
    }

    /// What was asked at `asked` is answered now.
    pub(crate) fn note_turnaround(&self, asked: Instant) {
        let took = self.clock.now() - asked;
        self.turnaround.set(self.turnaround.get().max(took));
    }

    /// `is_only`: there is no other source.
    async fn root<S: Side>(&self, source: &S, path: &[u8], is_only: bool) -> Result<Root, Fault> {
        let path = if path.is_empty() { b"." } else { path };
        let asked = self.clock.now();
        let (attrs, real) = tokio::join!(source.stat(path), source.realpath(path));
        self.note_turnaround(asked);
        let (attrs, real) = (attrs?, real?);
        if attrs.is_dir() && !self.options.recursive {
            return Err(Fault::failure(
                "is a folder; use -r to copy it with what is in it",
            ));
        }
        if is_stream(attrs) {
            return Err(Fault::failure(
                "is a pipe, socket or terminal: it has no end to copy to; write it to a file first",
            ));
        }
        let id = [source.prefix().as_bytes(), &real].concat();
        // A folder that is, or becomes, the target itself, which the next run must recognise; several
        // sources go into the target.
        let mark = base_name(path).filter(|_| attrs.is_dir() && is_only);
        let mut mark = mark.map(|name| mark_path(&self.path, name, &id));
        let target = if self.is_folder {
            let is_begun = match &mark {
                Some(mark) => is_marked(self.target, mark).await?,
                None => false,
            };
            match base_name(path) {
                Some(_) if is_begun => self.path.clone(),
                Some(name) => {
                    mark = None;
                    match self.path.as_slice() {
                        b"." => name.to_vec(),
                        folder => join(folder, name),
                    }
                }
                // Its contents go into the folder.
                None => self.path.clone(),
            }
        } else if attrs.is_dir() && self.exists {
            return Err(Fault::failure("is a folder, but the target is a file"));
        } else {
            self.path.clone()
        };
        if attrs.is_dir() && is_same_place(source, self.target, path) {
            self.check_not_inside(&real, &target).await?;
        }
        let paths = Paths {
            source: path.to_vec(),
            id,
            target,
        };
        Ok(Root { paths, attrs, mark })
    }

    /// A folder cannot be copied to a place in itself: that would never end.
    async fn check_not_inside(&self, real: &[u8], target: &[u8]) -> Result<(), Fault> {
        let Ok(target) = self.target.realpath(target).await else {
            // Making it will say why.
            return Ok(());
        };
        match is_inside(&target, real) {
            true => Err(Fault::failure(format!(
                "cannot be copied into itself, to {}",
                escape_for_display(&target)
            ))),
            false => Ok(()),
        }
    }

    pub(crate) fn fail(&self, prefix: &str, path: &[u8], file: Option<u64>, fault: &Fault) {
        self.tally.add_failure();
        let path = &[prefix.as_bytes(), path].concat();
        let text = &fault.text;
        self.observer.notice(&Event::Failed { file, path, text });
    }

    pub(crate) fn warn(&self, prefix: &str, path: &[u8], text: &str) {
        self.tally.add_warning();
        let path = &[prefix.as_bytes(), path].concat();
        self.observer.notice(&Event::Warning { path, text });
    }
}

/// Whether both sides are one place, seen by a path that is there. Places that cannot tell files apart are
/// known by their prefix.
pub(crate) fn is_same_place<S: Side, D: Side>(source: &S, target: &D, path: &[u8]) -> bool {
    source.prefix() == target.prefix() && source.identity(path) == target.identity(path)
}

/// Whether the absolute `path` is `folder`, or leads through it.
pub(crate) fn is_inside(path: &[u8], folder: &[u8]) -> bool {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Whether this is no file or disk, but something that bytes come from one after the other.
fn is_stream(attrs: Attrs) -> bool {
    // S_IFIFO, S_IFCHR, S_IFSOCK.
    matches!(
        attrs.permissions.map(|mode| mode & 0o170_000),
        Some(0o010_000 | 0o020_000 | 0o140_000)
    )
}

/// The last component, if it names something.
fn base_name(path: &[u8]) -> Option<&[u8]> {
    let (_, name) = split(path);
    (!matches!(name, b"" | b"." | b"..")).then_some(name)
}
