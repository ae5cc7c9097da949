//! One file: copied to a temporary name, checked, given its mode and times, then renamed.
//!
//! ```text
//! source ──► .NAME.hash.fullbore ──size──► (hash) ──► mode, times ──► (fsync) ──► close ──► rename
//! ```
//! Whatever fails before the rename leaves the target as it was. A temporary file stays only when
//! the session was lost or the program was killed: the next run finds it and goes on.
//!
//! What the target is already decides what happens, as scp users expect: a symbolic link is
//! followed, a folder is refused, a device or pipe is written to directly, a file that may not be
//! written is refused although the folder would allow to replace it, and a file that is replaced
//! hands its mode on.

use fullbore_sftp::proto::{Attrs, FileType};

use super::content::transfer;
use super::observer::{Event, Observer};
use super::run::{Options, Tally};
use super::side::{Fault, FaultKind, OpenHow, Side, Span};
use super::temp::temp_path;
use super::verify::{At, compare, prove};

/// Mode bits that a copy may hand on: no setuid, setgid or sticky bit.
const MODE_BITS: u32 = 0o777;

/// Mode of a file whose source does not say.
const MODE_DEFAULT: u32 = 0o666;

/// What there is to copy and where to.
pub(crate) struct FileJob<'a> {
    pub(crate) source: &'a [u8],
    /// Names the source apart from all others; the same in the next run.
    pub(crate) source_id: &'a [u8],
    pub(crate) target: &'a [u8],
    /// The target's folder was made by this run: nothing is in it.
    pub(crate) is_folder_new: bool,
    /// The file's number in this run.
    pub(crate) number: u64,
}

/// Copies files from one side to the other.
pub(crate) struct Copier<'a, S: Side, D: Side> {
    pub(crate) source: &'a S,
    pub(crate) target: &'a D,
    pub(crate) options: &'a Options,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) tally: &'a Tally,
}

/// Where the file goes.
struct Place {
    path: Vec<u8>,
    /// Mode of what is replaced.
    mode: Option<u32>,
    /// No temporary file: a device, or told so.
    is_in_place: bool,
    exists: bool,
}

impl<S: Side, D: Side> Copier<'_, S, D> {
    /// Copies one file; `attrs` are the source's, links followed.
    pub(crate) async fn copy(&self, job: &FileJob<'_>, attrs: Attrs) -> Result<u64, Fault> {
        if attrs.is_dir() {
            return Err(Fault::failure("is a folder; use -r"));
        }
        let (place, file) =
            tokio::join!(self.place(job), self.source.open(job.source, OpenHow::Read));
        let file = file?;
        let result = match place {
            Ok(place) => self.copy_open(job, attrs, &file, &place).await,
            Err(fault) => Err(fault),
        };
        // Nothing was written there: a failing close says nothing about the copy.
        let _ = self.source.close(file).await;
        result
    }

    /// Finds out what is under the target's name.
    async fn place(&self, job: &FileJob<'_>) -> Result<Place, Fault> {
        let mut place = Place {
            path: job.target.to_vec(),
            mode: None,
            is_in_place: self.options.in_place,
            exists: false,
        };
        if job.is_folder_new {
            return Ok(place);
        }
        let mut attrs = match self.target.lstat(job.target).await {
            Ok(attrs) => attrs,
            Err(fault) if fault.is_not_found() => return Ok(place),
            Err(fault) => return Err(fault),
        };
        if attrs.file_type() == Some(FileType::Symlink) {
            let dangling = |fault: Fault| {
                let text = format!("the target is a symbolic link to nowhere: {fault}");
                Fault::new(fault.kind, text)
            };
            place.path = self.target.realpath(job.target).await.map_err(dangling)?;
            attrs = self.target.stat(&place.path).await.map_err(dangling)?;
        }
        match attrs.file_type() {
            Some(FileType::Directory) => return Err(Fault::failure("the target is a folder")),
            Some(FileType::Special) => place.is_in_place = true,
            Some(FileType::Regular | FileType::Symlink) | None => {}
        }
        self.check_not_same(job, &place.path).await?;
        place.exists = true;
        place.mode = attrs.permissions.map(|mode| mode & MODE_BITS);
        if !place.is_in_place {
            let probe = self.target.open(&place.path, OpenHow::Probe).await?;
            self.target.close(probe).await?;
        }
        Ok(place)
    }

    async fn check_not_same(&self, job: &FileJob<'_>, target: &[u8]) -> Result<(), Fault> {
        if self.source.prefix() != self.target.prefix() {
            return Ok(());
        }
        let is_same = match (
            self.source.identity(job.source),
            self.target.identity(target),
        ) {
            (Some(source), Some(target)) => source == target,
            _ => {
                let (source, target) = tokio::join!(
                    self.source.realpath(job.source),
                    self.target.realpath(target)
                );
                source? == target?
            }
        };
        if is_same {
            return Err(Fault::failure("source and target are the same file"));
        }
        Ok(())
    }

    async fn copy_open(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
        place: &Place,
    ) -> Result<u64, Fault> {
        let mode = place.mode.unwrap_or_else(|| self.source_mode(attrs));
        if place.is_in_place {
            let file = self
                .target
                .open(&place.path, OpenHow::InPlace(mode))
                .await?;
            let filled = self.fill(job, attrs, source, (&file, &place.path), 0).await;
            let end = match filled {
                Ok(end) => self.dress(job, attrs, &file, None).await.map(|()| end),
                Err(fault) => Err(fault),
            };
            self.target.close(file).await?;
            return end;
        }
        let temp = temp_path(&place.path, job.source_id);
        let (file, kept) = self.open_temp(&temp, mode).await?;
        let result = self
            .through_temp(job, attrs, source, (&file, &temp, kept), place)
            .await;
        // Where opening locks, the lock is held until the file has its name.
        let _lock = file.clone();
        let closed = self.target.close(file).await;
        let end = match result.and_then(|end| closed.map(|()| end)) {
            Ok(end) => end,
            Err(fault) => {
                self.drop_temp(&temp, &fault).await;
                return Err(fault);
            }
        };
        self.rename(&temp, place).await.map(|()| end)
    }

    /// A temporary file is of use only if the failure was not about this file.
    async fn drop_temp(&self, temp: &[u8], fault: &Fault) {
        if fault.kind != FaultKind::Lost {
            // If even this fails, the next run overwrites it.
            let _ = self.target.remove(temp).await;
        }
    }

    fn source_mode(&self, attrs: Attrs) -> u32 {
        attrs
            .permissions
            .map_or(MODE_DEFAULT, |mode| mode & MODE_BITS)
    }

    /// Opens the temporary file, made new or found; and how long it is.
    async fn open_temp(&self, temp: &[u8], mode: u32) -> Result<(D::File, u64), Fault> {
        // The owner must be able to write to it, and to read it back.
        let how = OpenHow::Create(mode | 0o600);
        let fault = match self.target.open(temp, how).await {
            Ok(file) => return Ok((file, 0)),
            Err(fault) => fault,
        };
        let Ok(found) = self.target.lstat(temp).await else {
            return Err(fault);
        };
        let is_regular = matches!(found.file_type(), Some(FileType::Regular) | None);
        if !is_regular || !self.options.resume {
            self.target.remove(temp).await?;
            return Ok((self.target.open(temp, how).await?, 0));
        }
        let file = match self.target.open(temp, OpenHow::Existing).await {
            Ok(file) => file,
            Err(fault) if fault.kind == FaultKind::Denied => {
                // It was given its final, read-only mode before it was interrupted.
                self.target.remove(temp).await?;
                return Ok((self.target.open(temp, how).await?, 0));
            }
            Err(fault) => return Err(fault),
        };
        let kept = self
            .target
            .fstat(&file)
            .await
            .map(|attrs| attrs.size.unwrap_or(0));
        match kept {
            Ok(kept) => Ok((file, kept)),
            Err(fault) => {
                let _ = self.target.close(file).await;
                Err(fault)
            }
        }
    }

    async fn through_temp(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
        (file, temp, kept): (&D::File, &[u8], u64),
        place: &Place,
    ) -> Result<u64, Fault> {
        let offset = self.resume(job, attrs, source, (file, temp), kept).await?;
        let end = self.fill(job, attrs, source, (file, temp), offset).await?;
        self.check_size(file, end).await?;
        if self.options.verify {
            let from = self.at_source(job, source);
            let to = self.at_target(file, temp);
            let Some(method) = compare(from, to, end).await? else {
                return Err(Fault::failure(
                    "the copy differs from its source and was removed; \
                     the file changed meanwhile, or a disk or memory is faulty",
                ));
            };
            let method = &method;
            let file = job.number;
            self.observer.notice(&Event::Verified { file, method });
        }
        self.dress(job, attrs, file, place.mode).await?;
        Ok(end)
    }

    fn at_source<'b>(&'b self, job: &'b FileJob<'_>, file: &'b S::File) -> At<'b, S> {
        At {
            side: self.source,
            file,
            path: job.source,
        }
    }

    fn at_target<'b>(&'b self, file: &'b D::File, path: &'b [u8]) -> At<'b, D> {
        At {
            side: self.target,
            file,
            path,
        }
    }

    /// Where to go on in a temporary file that was found; it is emptied if it is of no use.
    async fn resume(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
        (file, temp): (&D::File, &[u8]),
        kept: u64,
    ) -> Result<u64, Fault> {
        if kept == 0 {
            return Ok(0);
        }
        let size = attrs.size.unwrap_or(0);
        let why = if kept > size {
            "what an interrupted copy left is longer than the source; sent anew"
        } else {
            let from = self.at_source(job, source);
            let to = self.at_target(file, temp);
            if let Some((offset, proof)) = prove(from, to, kept, self.options.verify).await? {
                let (file, proof) = (job.number, proof.as_str());
                self.observer.notice(&Event::Resumed {
                    file,
                    offset,
                    proof,
                });
                return Ok(offset);
            }
            "what an interrupted copy left is not the beginning of the source, \
             or too short to be told; sent anew"
        };
        self.warn(self.target.prefix(), job.target, why);
        self.truncate(file, 0).await?;
        Ok(0)
    }

    async fn truncate(&self, file: &D::File, size: u64) -> Result<(), Fault> {
        let size = Attrs {
            size: Some(size),
            ..Attrs::EMPTY
        };
        self.target.fsetstat(file, size).await
    }

    /// Moves the content from `offset` on; returns where the file ends.
    async fn fill(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
        (file, _): (&D::File, &[u8]),
        offset: u64,
    ) -> Result<u64, Fault> {
        let hint = attrs.size.unwrap_or(0);
        let span = Span {
            offset,
            size_hint: hint,
            end_max: None,
        };
        let number = job.number;
        let moving = |bytes: u64| {
            let bytes = offset + bytes;
            self.observer.notice(&Event::Moved {
                file: number,
                bytes,
            });
        };
        let moved = transfer((self.source, source), (self.target, file), span, &moving).await;
        self.tally.add_bytes(moved.end.saturating_sub(offset));
        if let Some(fault) = moved.fault {
            // Where the session is lost and the target is here, what may have holes goes.
            let _ = self.truncate(file, moved.end).await;
            return Err(fault);
        }
        if hint > 0 && moved.end != hint {
            let change = if moved.end > hint { "grew" } else { "shrank" };
            let end = moved.end;
            let text = format!("{change} from {hint} to {end} bytes while it was copied");
            self.warn(self.source.prefix(), job.source, &text);
        }
        Ok(moved.end)
    }

    /// The target must be as long as what was sent. A longer one holds the end of an older copy.
    async fn check_size(&self, file: &D::File, end: u64) -> Result<(), Fault> {
        let Some(mut size) = self.target.fstat(file).await?.size else {
            return Ok(());
        };
        if size > end {
            self.truncate(file, end).await?;
            size = self.target.fstat(file).await?.size.unwrap_or(end);
        }
        if size != end {
            return Err(Fault::failure(format!(
                "the copy has {size} bytes where {end} were sent; it was removed"
            )));
        }
        Ok(())
    }

    /// Mode, times, stable storage. A refusal to set attributes is a warning.
    async fn dress(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        file: &D::File,
        replaced_mode: Option<u32>,
    ) -> Result<(), Fault> {
        let mut wanted = Attrs {
            permissions: replaced_mode,
            ..Attrs::EMPTY
        };
        if self.options.preserve {
            wanted.permissions = attrs.permissions.map(|mode| mode & MODE_BITS);
            wanted.times = attrs.times;
        } else if wanted.permissions.is_none() && self.source_mode(attrs) & 0o600 != 0o600 {
            // Made with more than it should have, so that it could be written.
            wanted.permissions = Some(self.source_mode(attrs));
        }
        if wanted != Attrs::EMPTY
            && let Err(fault) = self.target.fsetstat(file, wanted).await
        {
            if fault.kind == FaultKind::Lost {
                return Err(fault);
            }
            let text = format!("mode and times were not set: {fault}");
            self.warn(self.target.prefix(), job.target, &text);
        }
        if self.options.fsync {
            match self.target.fsync(file).await {
                Err(fault) if fault.kind == FaultKind::Unsupported => {
                    let text = "the server cannot fsync";
                    self.warn(self.target.prefix(), job.target, text);
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Puts the temporary file under its final name: in one step; where the server cannot, by a
    /// plain rename, after removing what is there.
    async fn rename(&self, temp: &[u8], place: &Place) -> Result<(), Fault> {
        let mut result = self.target.replace(temp, &place.path).await;
        if let Err(fault) = &result
            && fault.kind == FaultKind::Unsupported
        {
            // Some servers replace with a plain rename, too; then nothing has to be removed.
            result = self.target.rename(temp, &place.path).await;
            if result.is_err() && place.exists {
                return self.remove_and_rename(temp, place).await;
            }
        }
        if let Err(fault) = &result {
            self.drop_temp(temp, fault).await;
        }
        result
    }

    /// For a moment there is no file under the final name, but never a wrong one. Once the old one
    /// is gone what was sent is the only copy, and stays whatever happens.
    async fn remove_and_rename(&self, temp: &[u8], place: &Place) -> Result<(), Fault> {
        if let Err(fault) = self.target.remove(&place.path).await {
            self.drop_temp(temp, &fault).await;
            return Err(fault);
        }
        let text = "the server cannot replace a file in one step: \
                    the old file was removed, then the new one renamed";
        self.warn(self.target.prefix(), &place.path, text);
        self.target
            .rename(temp, &place.path)
            .await
            .map_err(|fault| {
                let text = format!(
                    "the old file was removed, but the new one could not be renamed \
                 and is kept as {}: {fault}",
                    temp.escape_ascii()
                );
                Fault::new(fault.kind, text)
            })
    }

    fn warn(&self, prefix: &str, path: &[u8], text: &str) {
        let path = &[prefix.as_bytes(), path].concat();
        self.tally.add_warning();
        self.observer.notice(&Event::Warning { path, text });
    }
}
