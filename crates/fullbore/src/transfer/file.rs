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

use fullbore_sftp::client::config::span_margin;
use fullbore_sftp::proto::Attrs;

use super::content::transfer;
use super::lanes::{self, STRIPED_MODE};
use super::observer::{Event, Observer};
use super::place::Place;
use super::run::{Options, Tally};
use super::side::{Fault, FaultKind, OpenHow, Side, Span};
use super::temp::temp_path;
use super::verify::{At, compare, prove};
use crate::config::text::escape_for_display;

/// Mode bits that a copy may hand on: no setuid, setgid or sticky bit.
pub(super) const MODE_BITS: u32 = 0o777;

/// What a broken copy to the final name leaves.
const IN_PLACE_REST: &str = "under that name is a part of it now, perhaps with holes (then its sticky bit is set): copy it again";

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
        let result = result.map_err(|fault| self.with_target(job, fault));
        self.source.release(file).await;
        result
    }

    /// The fault with the name of the target: the source's is told beside it.
    fn with_target(&self, job: &FileJob<'_>, mut fault: Fault) -> Fault {
        let target = [self.target.prefix().as_bytes(), job.target].concat();
        fault.text = format!("to {}: {}", escape_for_display(&target), fault.text);
        fault
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
            return self.in_place(job, attrs, source, place, mode).await;
        }
        let temp = temp_path(&place.path, job.source_id);
        let (file, offset) = self.prepare(job, attrs, source, &temp, mode).await?;
        if let Some(bytes) = self.short_content(attrs, source, offset)? {
            let end = self
                .short(job, attrs, source, (file, &temp), place, &bytes)
                .await?;
            return self.rename(&temp, place).await.map(|()| end);
        }
        let result = self
            .through_temp(job, attrs, source, (&file, &temp, offset), place)
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

    /// Writes to the final name: a device or pipe, or told so.
    async fn in_place(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
        place: &Place,
        mode: u32,
    ) -> Result<u64, Fault> {
        let file = self
            .target
            .open(&place.path, OpenHow::InPlace(mode))
            .await?;
        let filled = self.fill(job, attrs, source, &file, 0).await;
        let dressed = match filled {
            Ok(end) if place.is_special => Ok(end),
            Ok(end) => match self.check_size(&file, end).await {
                Ok(found) => {
                    let dressed = self.dress(job, attrs, &file, (None, found)).await;
                    dressed.map(|()| end)
                }
                Err(fault) => Err(fault),
            },
            Err(fault) => Err(fault),
        };
        let closed = self.target.close(file).await;
        let end = dressed.and_then(|end| closed.map(|()| end));
        let end = end.map_err(|fault| match place.is_special {
            true => fault,
            false => Fault::new(fault.kind, format!("{fault}; {IN_PLACE_REST}")),
        })?;
        if self.options.verify && place.is_special {
            let text = "is no regular file: what was written cannot be compared";
            self.warn(self.target.prefix(), &place.path, text);
        } else if self.options.verify {
            let file = self.target.open(&place.path, OpenHow::Read).await?;
            let verified = self.verify(job, source, (&file, &place.path), end).await;
            // Nothing was written through this handle.
            let _ = self.target.close(file).await;
            if let Err(fault) = verified {
                self.drop_temp(&place.path, &fault).await;
                return Err(fault);
            }
        }
        Ok(end)
    }

    fn source_mode(&self, attrs: Attrs) -> u32 {
        attrs
            .permissions
            .map_or(MODE_DEFAULT, |mode| mode & MODE_BITS)
    }

    async fn through_temp(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
        (file, temp, offset): (&D::File, &[u8], u64),
        place: &Place,
    ) -> Result<u64, Fault> {
        let end = self.fill(job, attrs, source, file, offset).await?;
        let (found, named) = tokio::join!(self.check_size(file, end), self.target.lstat(temp));
        let (found, named) = (found?, named?);
        if named.size.is_some_and(|size| size != end) || !is_same_striped(found, named) {
            return Err(Fault::failure(
                "another copy of the same file to the same place has taken the temporary file",
            ));
        }
        if self.options.verify {
            self.verify(job, source, (file, temp), end).await?;
        }
        self.dress(job, attrs, file, (place.mode, found)).await?;
        Ok(end)
    }

    async fn verify(
        &self,
        job: &FileJob<'_>,
        source: &S::File,
        (file, path): (&D::File, &[u8]),
        end: u64,
    ) -> Result<(), Fault> {
        let from = self.at_source(job, source);
        let to = self.at_target(file, path);
        let Some(method) = compare(from, to, end).await? else {
            return Err(Fault::failure(
                "the copy differs from its source and was removed; \
                 the file changed meanwhile, or a disk or memory is faulty",
            ));
        };
        let (file, method) = (job.number, method.as_str());
        self.observer.notice(&Event::Verified { file, method });
        Ok(())
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

    /// The temporary file, open, and where to go on in it. What was found there is of use if it is
    /// the beginning of the source, and nobody else writes to it.
    async fn prepare(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
        temp: &[u8],
        mode: u32,
    ) -> Result<(D::File, u64), Fault> {
        let (file, found) = self.open_temp(temp, mode).await?;
        let Some(found) = found else {
            return Ok((file, 0));
        };
        let at = (&file, temp);
        let (offset, abandoned) = tokio::join!(
            self.resume(job, attrs, source, at, found),
            self.check_abandoned(&file, found)
        );
        match abandoned.and(offset) {
            Ok(Some(offset)) => Ok((file, offset)),
            Ok(None) => {
                self.target.release(file).await;
                Ok((self.recreate_temp(temp, mode).await?, 0))
            }
            Err(fault) => {
                self.target.release(file).await;
                Err(fault)
            }
        }
    }

    /// Where to go on in a temporary file that was found; `None` if it is of no use.
    async fn resume(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
        (file, temp): (&D::File, &[u8]),
        found: Attrs,
    ) -> Result<Option<u64>, Fault> {
        let kept = found.size.unwrap_or(0);
        if kept == 0 || !self.options.resume {
            return Ok(None);
        }
        let size = attrs.size.unwrap_or(0);
        let why = if kept > size {
            "what an interrupted copy left is longer than the source; sent anew"
        } else {
            let from = self.at_source(job, source);
            let to = self.at_target(file, temp);
            let span = match is_striped(found) {
                true => lanes::SPAN_BYTES_MAX,
                false => span_margin(kept),
            };
            match prove(from, to, (kept, span), self.options.verify).await? {
                Ok((offset, proof)) => {
                    let (file, proof) = (job.number, proof.as_str());
                    self.observer.notice(&Event::Resumed {
                        file,
                        offset,
                        proof,
                    });
                    return Ok(Some(offset));
                }
                Err(why) => why,
            }
        };
        self.warn(self.target.prefix(), job.target, why);
        Ok(None)
    }

    /// Cuts off what may have holes, so that the next run need not look for any.
    async fn cut(&self, file: &D::File, size: u64) -> Result<(), Fault> {
        self.truncate(file, size).await?;
        let found = self.target.fstat(file).await?;
        if !is_striped(found) {
            return Ok(());
        }
        let attrs = Attrs {
            permissions: found.permissions.map(|mode| mode & MODE_BITS),
            ..Attrs::EMPTY
        };
        self.target.fsetstat(file, attrs).await
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
        file: &D::File,
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
            let _ = self.cut(file, moved.end).await;
            return Err(fault);
        }
        let is_late = self.target.has_late_writes(file);
        let end = (moved.end, is_late);
        let is_same = self.note_changes(job, attrs, source, end).await?;
        if !is_same && is_late {
            return Err(Fault::failure(
                "the source was written to while it was copied, and the server may still hold on to parts \
                 of what it was before; copy it again",
            ));
        }
        Ok(moved.end)
    }

    /// Says so when the source became longer or shorter, or was written to; looks for the latter where that
    /// costs no round trip, somebody asked for certainty, or it matters. Returns whether nothing was seen.
    pub(super) async fn note_changes(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
        (end, does_matter): (u64, bool),
    ) -> Result<bool, Fault> {
        let hint = attrs.size.unwrap_or(0);
        if hint > 0 && end != hint {
            let change = if end > hint { "grew" } else { "shrank" };
            let text = format!("{change} from {hint} to {end} bytes while it was copied");
            self.warn(self.source.prefix(), job.source, &text);
            Ok(false)
        } else if self.source.direct(source).is_some() || self.options.verify || does_matter {
            self.check_unchanged(job, attrs, source).await
        } else {
            Ok(true)
        }
    }

    async fn check_unchanged(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
    ) -> Result<bool, Fault> {
        let now = self.source.fstat(source).await?;
        let mtime = |attrs: &Attrs| attrs.times.map(|(_, mtime)| mtime);
        let is_same = mtime(&now) == mtime(&attrs);
        if !is_same {
            let text = "was written to while it was copied";
            self.warn(self.source.prefix(), job.source, text);
        }
        Ok(is_same)
    }

    /// The target must be as long as what was sent. A longer one holds the end of an older copy.
    async fn check_size(&self, file: &D::File, end: u64) -> Result<Attrs, Fault> {
        let mut found = self.target.fstat(file).await?;
        if found.size.is_some_and(|size| size > end) {
            self.truncate(file, end).await?;
            found = self.target.fstat(file).await?;
        }
        match found.size {
            Some(size) if size != end => Err(Fault::failure(format!(
                "the copy has {size} bytes where {end} were sent; it was removed"
            ))),
            Some(_) | None => Ok(found),
        }
    }

    /// Mode, times, stable storage. A refusal to set attributes is a warning. `found` is what the
    /// file has.
    async fn dress(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        file: &D::File,
        (replaced_mode, found): (Option<u32>, Attrs),
    ) -> Result<(), Fault> {
        let mut wanted = self.wanted_attrs(attrs, replaced_mode);
        if is_striped(found) {
            let mode = found.permissions.map(|mode| mode & MODE_BITS);
            wanted.permissions = wanted.permissions.or(mode);
            // The access time was a mark.
            let times = found.times.map(|(_, modified)| (modified, modified));
            wanted.times = wanted.times.or(times);
        }
        if wanted != Attrs::EMPTY {
            self.attributes_set(job, self.target.fsetstat(file, wanted).await)?;
        }
        if self.options.fsync {
            self.synced(job, self.target.fsync(file).await)?;
        }
        Ok(())
    }

    /// The attributes that a complete file still needs.
    pub(super) fn wanted_attrs(&self, attrs: Attrs, replaced_mode: Option<u32>) -> Attrs {
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
        wanted
    }

    /// A refusal to set attributes is a warning; one, where the server never does.
    pub(super) fn attributes_set(
        &self,
        job: &FileJob<'_>,
        result: Result<(), Fault>,
    ) -> Result<(), Fault> {
        match result {
            Err(fault) if fault.kind == FaultKind::Unsupported => {
                if self.tally.is_first_without_attributes() {
                    let text = format!("mode and times were not set, nor will others be: {fault}");
                    self.warn(self.target.prefix(), job.target, &text);
                }
                Ok(())
            }
            Err(fault) if fault.kind != FaultKind::Lost => {
                let text = format!("mode and times were not set: {fault}");
                self.warn(self.target.prefix(), job.target, &text);
                Ok(())
            }
            other => other,
        }
    }

    /// A server that cannot fsync is a warning; one that fails to has not got the file.
    pub(super) fn synced(&self, job: &FileJob<'_>, result: Result<(), Fault>) -> Result<(), Fault> {
        match result {
            Err(fault) if fault.kind == FaultKind::Unsupported => {
                self.warn(self.target.prefix(), job.target, "the server cannot fsync");
                Ok(())
            }
            other => other,
        }
    }

    pub(super) fn warn(&self, prefix: &str, path: &[u8], text: &str) {
        let path = &[prefix.as_bytes(), path].concat();
        self.tally.add_warning();
        self.observer.notice(&Event::Warning { path, text });
    }
}

/// Whether several lanes have written to the file.
fn is_striped(attrs: Attrs) -> bool {
    attrs
        .permissions
        .is_some_and(|mode| mode & STRIPED_MODE != 0)
}

/// Whether the file that was opened and the one that has its name carry the same mark, if the first
/// has one: lanes may have made another as long.
fn is_same_striped(opened: Attrs, named: Attrs) -> bool {
    let mark = |attrs: Attrs| attrs.times.map(|times| times.0);
    !is_striped(opened) || mark(opened) == mark(named)
}
