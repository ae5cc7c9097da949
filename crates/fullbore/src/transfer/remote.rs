//! An SFTP session as a place that has files.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use fullbore_sftp::client::Handle;
use fullbore_sftp::client::config::REQUEST_LEN_DEFAULT;
use fullbore_sftp::proto::{Attrs, CheckFile, Code, HashAlgorithm, OpenFlags, ext};

use super::handles::Handles;
use super::hash::Hasher;
use super::lanes::{Caps, Direction, FileCrew, Fleet, RemoteFile, STRIPED_BYTES_MIN, stripe};
use super::pool::Pool;
use super::questions::about_paths;
use super::side::{
    Batch, Digest, Entry, Fault, FaultKind, FileIo, Finished, Moved, Moving, OpenHow, Side, Span,
    Whole,
};
use crate::client::{DirEntry, Error, Reconnect, Sftp, Transferred};

/// Names that one folder may have; a server that lists more is not believed.
pub const NAMES_MAX: usize = 4 << 20;

/// READDIR replies without a name, neither the end: a server that goes on so never ends.
const EMPTY_REPLIES_MAX: usize = 16;

/// Requests for the next names of one folder that are in flight at once. A batch is what they bring:
/// with OpenSSH, which gives 100 names a reply, 1,600.
const READDIRS_IN_FLIGHT_MAX: usize = 16;

/// The same for the first batch: a folder of 300 names is listed, and its end told, in one round trip.
const READDIRS_AT_FIRST: usize = 4;

/// With so many handles or fewer, a CLOSE is waited for before the next OPEN.
const HANDLES_FEW: usize = 64;

/// A copy under way writes more often than that, and servers tell times in whole seconds.
const WRITERS_SHOW_AFTER: Duration = Duration::from_millis(1100);

/// Files up to this length are written with all that ends them in one flight. The length of a WRITE
/// that every server takes.
pub const FINISH_BYTES_MAX: usize = REQUEST_LEN_DEFAULT as usize;

/// Files of a server.
#[derive(Clone, Debug)]
pub struct SftpSide {
    sftp: Sftp,
    fleet: Rc<Fleet>,
    prefix: String,
    handles: Rc<Handles>,
    /// The folders among them, where the server lets fewer be open than it says of all.
    folders: Rc<Handles>,
    refused: Rc<Refused>,
}

/// What the server was asked for and does not know: not asked again in this run.
#[derive(Debug, Default)]
struct Refused {
    attributes: Cell<bool>,
    extensions: RefCell<BTreeSet<String>>,
}

/// A folder of a server that is being listed.
#[derive(Debug)]
pub struct SftpListing {
    handle: Handle,
    /// READDIRs of the next batch.
    in_flight: usize,
    listed: usize,
    empty: usize,
}

impl SftpSide {
    /// `prefix` stands in front of paths that are shown: `host:`. It also tells this place's files
    /// from others', so it should be the same in every run.
    #[must_use]
    pub fn new(sftp: Sftp, prefix: impl Into<String>) -> Self {
        Self {
            fleet: Rc::new(Fleet::new(sftp.clone())),
            sftp,
            prefix: prefix.into(),
            handles: Rc::default(),
            folders: Rc::default(),
            refused: Rc::default(),
        }
    }

    /// Lets large files use further lanes as `caps` say, on connections that `reconnect` makes. Without
    /// this they use channels of the session's own connection.
    #[must_use]
    pub fn with_lanes(mut self, reconnect: Reconnect, caps: Caps) -> Self {
        let mut fleet = Fleet::new(self.sftp.clone());
        fleet.allow(reconnect, caps);
        self.fleet = Rc::new(fleet);
        self
    }

    /// The session.
    #[must_use]
    pub const fn sftp(&self) -> &Sftp {
        &self.sftp
    }

    /// The connections in use now, the first one first.
    #[must_use]
    pub fn connections(&self) -> Vec<crate::client::Connection> {
        self.fleet.connections()
    }

    /// Most lanes that there were at once.
    #[must_use]
    pub fn lanes_most(&self) -> usize {
        self.fleet.sessions_most()
    }

    /// For how long a session has waited for an answer, and how long it will: of that which has waited
    /// longest. `None` where none waits.
    #[must_use]
    pub fn silence(&self) -> Option<(Duration, Duration)> {
        let extra = self.fleet.extra();
        let sessions = extra.iter().map(|session| session.sftp.silence());
        sessions.chain([self.sftp.silence()]).flatten().max()
    }

    /// Moves a span over one lane, or over several where it is long.
    async fn move_span(
        &self,
        file: &RemoteFile,
        io: Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved {
        let is_long = span.size_hint.saturating_sub(span.offset) >= STRIPED_BYTES_MIN;
        let is_up = file.direction() == Direction::Up;
        // Such a server takes WRITEs one behind the other only.
        let in_order = is_up && !self.sftp.quirks(|quirks| quirks.writes_anywhere);
        if is_long && !in_order {
            let crew = FileCrew::new(&self.fleet, file, io);
            return stripe(&crew, span, !is_up, moving).await;
        }
        let progress = |at: crate::client::Progress| moving(at.bytes);
        let handle = file.handle();
        let result = match file.direction() {
            Direction::Down => self.sftp.get(handle, io, span, progress).await,
            Direction::Up => self.sftp.put(handle, io, span, progress).await,
        };
        moved(result, span)
    }

    /// Closes a handle through which nothing was written. It is waited for where the next OPEN may be
    /// looked at before it, and handles are few.
    async fn release_handle(&self, handle: &Handle) {
        let is_waited_for = self.handles_max().is_some_and(|max| max <= HANDLES_FEW);
        let _ = match is_waited_for && !self.sftp.serves_in_order() {
            true => self.sftp.close(handle).await,
            false => self.sftp.release(handle).await,
        };
        self.handles.on_closed();
    }

    async fn offers(&self, extension: &str) -> Result<bool, Fault> {
        self.sftp.ready().await?;
        let is_refused = self.refused.extensions.borrow().contains(extension);
        Ok(self.sftp.has_extension(extension) && !is_refused)
    }

    /// Remembers an extension that the server announces and does not know.
    fn note_extension<T>(&self, extension: &str, result: Result<T, Error>) -> Result<T, Fault> {
        let result = result.map_err(Fault::from);
        if matches!(&result, Err(fault) if fault.kind == FaultKind::Unsupported) {
            let mut refused = self.refused.extensions.borrow_mut();
            refused.insert(extension.to_owned());
        }
        result
    }

    fn sets_attributes(&self) -> bool {
        !self.refused.attributes.get() && self.sftp.quirks(|quirks| quirks.sets_attributes)
    }

    /// Sets attributes, but those that the server does not set.
    async fn set(
        &self,
        attrs: Attrs,
        request: impl AsyncFnOnce(&Attrs) -> Result<(), Error>,
    ) -> Result<(), Fault> {
        // A size is content.
        if attrs.size.is_none() && !self.sets_attributes() {
            return Err(no_attributes());
        }
        let result = request(&attrs).await.map_err(Fault::from);
        self.note_attributes(&result);
        result
    }

    fn note_attributes(&self, result: &Result<(), Fault>) {
        if matches!(result, Err(fault) if fault.kind == FaultKind::Unsupported) {
            self.refused.attributes.set(true);
        }
    }

    /// What an attempt to open came to. A refusal without a reason may be for want of handles.
    fn opened(&self, result: Result<Handle, Error>) -> Result<Handle, Fault> {
        match result {
            Ok(handle) => {
                self.handles.on_opened();
                Ok(handle)
            }
            Err(error) => {
                let mut fault = Fault::from(error);
                let is_told = self.sftp.server_info().open_handles_max().is_some();
                if fault.kind == FaultKind::Failure && !is_told && self.handles.on_refused() {
                    fault.kind = FaultKind::Busy;
                }
                Err(fault)
            }
        }
    }

    /// The same for a folder.
    fn opened_folder(&self, result: Result<Handle, Error>) -> Result<Handle, Fault> {
        let is_told = self.sftp.server_info().open_handles_max().is_some();
        let mut result = self.opened(result);
        match &mut result {
            Ok(_) => self.folders.on_opened(),
            Err(fault) if fault.kind == FaultKind::Failure && is_told => {
                if self.folders.on_refused() {
                    fault.kind = FaultKind::Busy;
                }
            }
            Err(_) => {}
        }
        result
    }

    /// Several requests for names at once, and what they brought.
    async fn read_names(&self, listing: &mut SftpListing) -> Result<Batch, Fault> {
        let mut pool = Pool::new();
        let most = self.sftp.quirks(|quirks| quirks.readdirs_max);
        for _ in 0..listing.in_flight.min(most) {
            pool.push(self.sftp.readdir(&listing.handle));
        }
        let mut batch = Batch::default();
        while let Some(names) = pool.next().await {
            let Some(names) = names? else {
                batch.is_last = true;
                continue;
            };
            listing.listed += names.len();
            listing.empty += usize::from(names.is_empty());
            let entries = names.into_iter().filter(is_entry).map(|entry| Entry {
                name: entry.name,
                attrs: entry.attrs,
            });
            batch.entries.extend(entries);
        }
        listing.in_flight = (listing.in_flight * 2).min(READDIRS_IN_FLIGHT_MAX);
        if listing.listed > NAMES_MAX {
            return Err(Fault::failure("the folder has too many entries"));
        }
        if listing.empty > EMPTY_REPLIES_MAX {
            return Err(Fault::failure("the server goes on listing no names"));
        }
        Ok(batch)
    }
}

fn is_entry(entry: &DirEntry) -> bool {
    !matches!(entry.name.as_slice(), b"." | b"..")
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let kind = match error.status() {
            _ if error.is_fatal() => FaultKind::Lost,
            Some(Code::NoSuchFile) => FaultKind::NotFound,
            Some(Code::PermissionDenied) => FaultKind::Denied,
            Some(Code::OpUnsupported) => FaultKind::Unsupported,
            Some(
                Code::Ok
                | Code::Eof
                | Code::Failure
                | Code::BadMessage
                | Code::NoConnection
                | Code::ConnectionLost
                | Code::Other(_),
            )
            | None => FaultKind::Failure,
        };
        Self::new(kind, error.to_string())
    }
}

pub(super) fn moved(result: Result<Transferred, Error>, span: Span) -> Moved {
    match result {
        Ok(transferred) => Moved {
            end: transferred.end,
            fault: transferred.error.map(Fault::from),
        },
        Err(error) => Moved {
            end: span.offset,
            fault: Some(error.into()),
        },
    }
}

fn no_attributes() -> Fault {
    Fault::new(FaultKind::Unsupported, "the server does not set them")
}

fn not_written(error: Error) -> Fault {
    with_usual_reason(error.into())
}

/// OpenSSH's sftp-server has the same bare word for every reason why it cannot write; this is the
/// one behind nearly all.
fn with_usual_reason(mut fault: Fault) -> Fault {
    if fault.text.ends_with(Code::Failure.text()) {
        fault
            .text
            .push_str(" (it says no more; often its disk or a quota is full)");
    }
    fault
}

/// Only what says nothing about the session.
fn unless_lost<T>(error: Error) -> Result<Option<T>, Fault> {
    if error.is_fatal() {
        Err(error.into())
    } else {
        Ok(None)
    }
}

impl Side for SftpSide {
    type File = RemoteFile;
    type Listing = SftpListing;

    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn ask_ahead(&self, paths: &[Vec<u8>], is_recursive: bool) {
        // Where the session has ended, the first call that waits says so.
        let _ = self.sftp.ask_ahead(&about_paths(paths, is_recursive));
    }

    async fn stat(&self, path: &[u8]) -> Result<Attrs, Fault> {
        Ok(self.sftp.stat(path).await?)
    }

    async fn lstat(&self, path: &[u8]) -> Result<Attrs, Fault> {
        Ok(self.sftp.lstat(path).await?)
    }

    async fn realpath(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(self.sftp.realpath(path).await?)
    }

    async fn expand(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        if !path.starts_with(b"~") {
            return Ok(path.to_vec());
        }
        if self.offers(ext::EXPAND_PATH).await? {
            return Ok(self.sftp.expand_path(path).await?);
        }
        // Sessions start in the home folder.
        match path.strip_prefix(b"~/") {
            Some(b"") => Ok(b".".to_vec()),
            Some(rest) => Ok(rest.to_vec()),
            None if path == b"~" => Ok(b".".to_vec()),
            None => Err(Fault::new(
                FaultKind::Unsupported,
                "the server does not expand ~user; give the whole path",
            )),
        }
    }

    async fn list(&self, path: &[u8]) -> Result<SftpListing, Fault> {
        Ok(SftpListing {
            handle: self.opened_folder(self.sftp.opendir(path).await)?,
            in_flight: READDIRS_AT_FIRST,
            listed: 0,
            empty: 0,
        })
    }

    async fn next_entries(&self, listing: &mut SftpListing) -> Result<Batch, Fault> {
        let batch = self.read_names(listing).await;
        if batch.as_ref().is_ok_and(|batch| !batch.is_last) {
            return batch;
        }
        self.release_handle(&listing.handle).await;
        self.folders.on_closed();
        batch
    }

    async fn stop_listing(&self, listing: SftpListing) {
        self.release_handle(&listing.handle).await;
        self.folders.on_closed();
    }

    fn handles_max(&self) -> Option<usize> {
        let told = self.sftp.server_info().open_handles_max();
        let told = told.map(|max| usize::try_from(max).unwrap_or(usize::MAX));
        let known = self.sftp.quirks(|quirks| quirks.handles_max);
        // What the server says itself is better than what is said of it.
        told.or(known)
            .into_iter()
            .chain(self.handles.learned())
            .min()
    }

    fn folders_max(&self) -> Option<usize> {
        self.folders.learned()
    }

    async fn open(&self, path: &[u8], how: OpenHow) -> Result<RemoteFile, Fault> {
        let (opens_for_both, writes_anywhere) = self
            .sftp
            .quirks(|quirks| (quirks.opens_for_both, quirks.writes_anywhere));
        if matches!(how, OpenHow::Existing | OpenHow::Probe) && !writes_anywhere {
            let text = "the server writes no file twice";
            return Err(Fault::new(FaultKind::Unsupported, text));
        }
        let both = match opens_for_both {
            true => OpenFlags::READ.with(OpenFlags::WRITE),
            false => OpenFlags::WRITE,
        };
        let (flags, permissions) = match how {
            OpenHow::Read => (OpenFlags::READ, None),
            OpenHow::Create(mode) => {
                let new = OpenFlags::CREAT.with(OpenFlags::EXCL);
                (both.with(new), Some(mode))
            }
            OpenHow::Existing => (both, None),
            OpenHow::InPlace(mode) => {
                let emptied = OpenFlags::CREAT.with(OpenFlags::TRUNC);
                (OpenFlags::WRITE.with(emptied), Some(mode))
            }
            OpenHow::Probe => (OpenFlags::WRITE, None),
        };
        let attrs = Attrs {
            permissions,
            ..Attrs::EMPTY
        };
        let direction = match how {
            OpenHow::Read => Direction::Down,
            OpenHow::Create(_) | OpenHow::Existing | OpenHow::InPlace(_) | OpenHow::Probe => {
                Direction::Up
            }
        };
        self.fleet.look();
        let handle = self.opened(self.sftp.open(path, flags, &attrs).await)?;
        Ok(RemoteFile::new(handle, path, direction))
    }

    async fn close(&self, file: RemoteFile) -> Result<(), Fault> {
        let (lanes, first) = tokio::join!(file.close_lanes(), self.sftp.close(file.handle()));
        self.handles.on_closed();
        lanes.and(Ok(first?))
    }

    fn has_late_writes(&self, file: &RemoteFile) -> bool {
        file.has_late_writes()
    }

    async fn release(&self, file: RemoteFile) {
        // Nothing was written through it: a failing close says nothing about the copy.
        let (_, ()) = tokio::join!(file.close_lanes(), self.release_handle(file.handle()));
    }

    fn finish_bytes_max(&self) -> Option<usize> {
        self.sftp.serves_in_order().then_some(FINISH_BYTES_MAX)
    }

    async fn finish(&self, file: RemoteFile, whole: &Whole<'_>) -> Result<Finished<Fault>, Fault> {
        let can_sync = !whole.fsync || self.offers(ext::FSYNC).await?;
        let sets_attributes = whole.attrs == Attrs::EMPTY || self.sets_attributes();
        let wanted = Whole {
            fsync: whole.fsync && can_sync,
            attrs: if sets_attributes {
                whole.attrs
            } else {
                Attrs::EMPTY
            },
            bytes: whole.bytes,
        };
        let done = self.sftp.finish(file.handle(), &wanted).await;
        self.handles.on_closed();
        let done = done?;
        let attributes = match sets_attributes {
            true => done.attributes.map_err(Fault::from),
            false => Err(no_attributes()),
        };
        self.note_attributes(&attributes);
        let synced = match can_sync {
            true => done.synced.map_err(Fault::from),
            false => Err(Fault::new(FaultKind::Unsupported, "not offered")),
        };
        Ok(Finished {
            written: done.written.map_err(not_written),
            attributes,
            synced,
            size: done.size.map_err(Fault::from),
            closed: done.closed.map_err(Fault::from),
        })
    }

    async fn let_writers_show(&self) {
        tokio::time::sleep(WRITERS_SHOW_AFTER).await;
    }

    async fn fstat(&self, file: &RemoteFile) -> Result<Attrs, Fault> {
        Ok(self.sftp.fstat(file.handle()).await?)
    }

    async fn fsetstat(&self, file: &RemoteFile, attrs: Attrs) -> Result<(), Fault> {
        self.set(attrs, async |attrs| {
            self.sftp.fsetstat(file.handle(), attrs).await
        })
        .await
    }

    async fn setstat(&self, path: &[u8], attrs: Attrs) -> Result<(), Fault> {
        self.set(attrs, async |attrs| self.sftp.setstat(path, attrs).await)
            .await
    }

    async fn fsync(&self, file: &RemoteFile) -> Result<(), Fault> {
        if !self.offers(ext::FSYNC).await? {
            return Err(Fault::new(FaultKind::Unsupported, "not offered"));
        }
        self.note_extension(ext::FSYNC, self.sftp.fsync(file.handle()).await)
    }

    /// SFTP has no such request; OpenSSH's fsync is for files.
    async fn sync_name(&self, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    async fn mkdir(&self, path: &[u8], mode: u32) -> Result<(), Fault> {
        let attrs = Attrs {
            permissions: Some(mode),
            ..Attrs::EMPTY
        };
        Ok(self.sftp.mkdir(path, &attrs).await?)
    }

    async fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        Ok(self.sftp.remove(path).await?)
    }

    async fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Fault> {
        Ok(self.sftp.rename(from, to).await?)
    }

    async fn replace(&self, from: &[u8], to: &[u8]) -> Result<(), Fault> {
        if !self.offers(ext::POSIX_RENAME).await? {
            return Err(Fault::new(FaultKind::Unsupported, "not offered"));
        }
        self.note_extension(ext::POSIX_RENAME, self.sftp.posix_rename(from, to).await)
    }

    async fn read_to(
        &self,
        file: &RemoteFile,
        sink: Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved {
        if file.direction() == Direction::Down {
            return self.move_span(file, sink, span, moving).await;
        }
        // Reading back what was written.
        let progress = |at: crate::client::Progress| moving(at.bytes);
        let result = self.sftp.get(file.handle(), sink, span, progress).await;
        moved(result, span)
    }

    async fn write_from(
        &self,
        file: &RemoteFile,
        source: Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved {
        let mut moved = self.move_span(file, source, span, moving).await;
        moved.fault = moved.fault.map(with_usual_reason);
        moved
    }

    async fn hash(
        &self,
        (file, path): (&RemoteFile, &[u8]),
        algorithms: &[HashAlgorithm],
        offset: u64,
        len: u64,
    ) -> Result<Option<Digest>, Fault> {
        let by_both = self.offers(ext::CHECK_FILE).await?;
        let by_handle = by_both || self.offers(ext::CHECK_FILE_HANDLE).await?;
        let by_name = by_both || self.offers(ext::CHECK_FILE_NAME).await?;
        if !by_handle && !by_name {
            return Ok(None);
        }
        if len == 0 {
            // On the wire 0 means to the end of the file.
            return Ok(algorithms.first().map(|&first| Hasher::new(first).finish()));
        }
        let names: Vec<&str> = algorithms
            .iter()
            .map(|algorithm| algorithm.name())
            .collect();
        let names = names.join(",");
        let check = CheckFile {
            algorithms: names.as_bytes(),
            offset,
            len,
            block_bytes: 0,
        };
        let mut result = match by_handle {
            true => self.sftp.check_file(file.handle(), check).await,
            false => self.sftp.check_file_name(path, check).await,
        };
        // Servers announce the two as one, and some know only the name.
        if by_handle && by_name && matches!(&result, Err(error) if !error.is_fatal()) {
            result = self.sftp.check_file_name(path, check).await;
        }
        let digests = match result {
            Ok(digests) => digests,
            Err(error) => return unless_lost(error),
        };
        let bytes = digests.digests.as_slice().try_into().ok();
        let algorithm = digests.algorithm;
        Ok(bytes
            .filter(|_| algorithms.contains(&algorithm))
            .map(|bytes| Digest { algorithm, bytes }))
    }

    async fn exec(&self, command: &[u8]) -> Option<Vec<u8>> {
        let output = self.sftp.exec(command).await.ok()?;
        (output.status == Some(0)).then_some(output.stdout)
    }

    fn direct(&self, _: &RemoteFile) -> Option<Rc<dyn FileIo>> {
        None
    }

    fn identity(&self, _: &[u8]) -> Option<(u64, u64)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_failure_to_write_gets_its_usual_reason() {
        let refused = |message: &[u8]| {
            let message = message.into();
            let code = Code::Failure;
            not_written(Error::Status { code, message }).text
        };
        assert!(refused(b"").contains("disk"));
        assert!(refused(b"Failure").contains("disk"));
        let told = refused(b"No space left on device");
        assert!(told.ends_with("No space left on device"), "{told}");
    }
}
