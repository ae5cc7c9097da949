//! Names: what is under the target's, the temporary file beside it, and the rename in the end.

use fullbore_base::escape_for_display;
use fullbore_sftp::proto::{Attrs, FileType};

use super::file::{Copier, FileJob, MODE_BITS};
use super::side::{Fault, FaultKind, OpenHow, Side};

/// Where the file goes.
pub(super) struct Place {
    pub(super) path: Vec<u8>,
    /// Mode of what is replaced.
    pub(super) mode: Option<u32>,
    /// No temporary file: a device, or told so.
    pub(super) is_in_place: bool,
    /// A device, pipe or socket.
    pub(super) is_special: bool,
    pub(super) exists: bool,
}

impl<S: Side, D: Side> Copier<'_, S, D> {
    /// Finds out what is under the target's name.
    pub(super) async fn place(&self, job: &FileJob<'_>) -> Result<Place, Fault> {
        let mut place = Place {
            path: job.target.to_vec(),
            mode: None,
            is_in_place: self.options.in_place,
            is_special: false,
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
            Some(FileType::Special) => {
                place.is_in_place = true;
                place.is_special = true;
            }
            Some(FileType::Regular | FileType::Symlink) | None => {}
        }
        self.check_not_same(job, &place.path).await?;
        place.exists = true;
        place.mode = attrs.permissions.map(|mode| mode & MODE_BITS);
        if !place.is_in_place {
            match self.target.open(&place.path, OpenHow::Probe).await {
                Ok(probe) => self.target.close(probe).await?,
                // Not to be told in this way: the rename will.
                Err(fault) if fault.kind == FaultKind::Unsupported => {}
                Err(fault) => return Err(fault),
            }
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

    /// A temporary file is of use only if the failure was not about this file.
    pub(super) async fn drop_temp(&self, temp: &[u8], fault: &Fault) {
        if fault.kind != FaultKind::Lost {
            // If even this fails, the next run overwrites it.
            let _ = self.target.remove(temp).await;
        }
    }

    /// Opens the temporary file, made new or found; and what it was found to be.
    pub(super) async fn open_temp(
        &self,
        temp: &[u8],
        mode: u32,
    ) -> Result<(D::File, Option<Attrs>), Fault> {
        let fault = match self.create_temp(temp, mode).await {
            Ok(file) => return Ok((file, None)),
            Err(fault) => fault,
        };
        let Ok(found) = self.target.lstat(temp).await else {
            return Err(fault);
        };
        let is_regular = matches!(found.file_type(), Some(FileType::Regular) | None);
        if !is_regular {
            return Ok((self.recreate_temp(temp, mode).await?, None));
        }
        let file = match self.target.open(temp, OpenHow::Existing).await {
            Ok(file) => file,
            Err(fault) if matches!(fault.kind, FaultKind::Denied | FaultKind::Unsupported) => {
                // It was given its final, read-only mode before it was interrupted; or the server
                // cannot go on with a file.
                return Ok((self.recreate_temp(temp, mode).await?, None));
            }
            Err(fault) => return Err(fault),
        };
        match self.target.fstat(&file).await {
            Ok(found) => Ok((file, Some(found))),
            Err(fault) => {
                let _ = self.target.close(file).await;
                Err(fault)
            }
        }
    }

    async fn create_temp(&self, temp: &[u8], mode: u32) -> Result<D::File, Fault> {
        // The owner must be able to write to it, and to read it back.
        let opened = self.target.open(temp, OpenHow::Create(mode | 0o600)).await;
        opened.map_err(|fault| match fault.kind {
            FaultKind::NotFound => Fault::new(
                fault.kind,
                "its folder is not there; make that folder first",
            ),
            FaultKind::Denied
            | FaultKind::Unsupported
            | FaultKind::Busy
            | FaultKind::Failure
            | FaultKind::Lost => fault,
        })
    }

    /// Never empties what is there: whoever may still write to it keeps a file of his own.
    pub(super) async fn recreate_temp(&self, temp: &[u8], mode: u32) -> Result<D::File, Fault> {
        self.target.remove(temp).await?;
        self.create_temp(temp, mode).await
    }

    /// Fails when somebody else writes to the temporary file that was found to be `before`.
    pub(super) async fn check_abandoned(&self, file: &D::File, before: Attrs) -> Result<(), Fault> {
        self.target.let_writers_show().await;
        let now = self.target.fstat(file).await?;
        if (now.size, now.times.map(|t| t.1)) == (before.size, before.times.map(|t| t.1)) {
            return Ok(());
        }
        Err(Fault::failure(
            "another copy of the same file to the same place is running; let it end, then try again",
        ))
    }

    /// Puts the temporary file under its final name: in one step; where the server cannot, by a
    /// plain rename, after removing what is there.
    pub(super) async fn rename(&self, temp: &[u8], place: &Place) -> Result<(), Fault> {
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
        match result {
            Ok(()) => self.sync_name(place).await,
            Err(fault) => {
                self.drop_temp(temp, &fault).await;
                Err(fault)
            }
        }
    }

    async fn sync_name(&self, place: &Place) -> Result<(), Fault> {
        match self.options.fsync {
            true => self.target.sync_name(&place.path).await,
            false => Ok(()),
        }
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
                    escape_for_display(temp)
                );
                Fault::new(fault.kind, text)
            })?;
        self.sync_name(place).await
    }
}
