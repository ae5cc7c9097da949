//! The handle that programs hold: one async function per SFTP operation.

use std::rc::Rc;
use std::time::Duration;

use fullbore_sftp::client::{Handle, ReplyMessage, ServerInfo};
use fullbore_sftp::proto::{
    Attrs, CheckFile, CheckFileReply, Code, HashAlgorithm, Ids, Limits, NamesById, OpenFlags,
    Reply, Request, StatVfs,
};

use super::ahead::Ahead;
use super::connection::{Connection, ExecOutput};
use super::error::Error;
use super::lane::{Lane, Part, Progress, Transferred};
use crate::config::quirks::Quirks;
use crate::transfer::{FileIo, Span};

/// An SFTP session. Clones share it; all of them live on one thread. Dropping the future of a call
/// gives it up: its reply is thrown away when it comes, a handle it brings is closed.
#[derive(Clone, Debug)]
pub struct Sftp {
    pub(super) lane: Rc<Lane>,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, as bytes.
    pub name: Vec<u8>,
    /// A line as `ls -l` prints it.
    pub longname: Vec<u8>,
    /// Attributes, as the server chose to send them; symbolic links are not followed.
    pub attrs: Attrs,
}

/// Digests of a file, made by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    /// The algorithm used.
    pub algorithm: HashAlgorithm,
    /// One digest for each block, one behind the other.
    pub digests: Vec<u8>,
}

impl Sftp {
    /// Waits until the server has said what it offers. Requests need not wait for it.
    ///
    /// # Errors
    /// When there is no SFTP server, or the connection is over.
    pub async fn ready(&self) -> Result<(), Error> {
        self.lane.ready().await
    }

    /// What the server said about itself: extensions and limits. Empty until [`Sftp::ready`].
    #[must_use]
    pub fn server_info(&self) -> ServerInfo {
        self.lane
            .with(|lane| lane.server_info().cloned().unwrap_or_default())
    }

    /// Whether the server offers an extension, and is known to serve it; false until [`Sftp::ready`].
    #[must_use]
    pub fn has_extension(&self, name: &str) -> bool {
        let is_ignored = |quirks: &Quirks| quirks.ignored_extensions.iter().any(|n| n == name);
        let is_offered = self.lane.with(|lane| {
            lane.server_info()
                .is_some_and(|info| info.has_extension(name))
        });
        is_offered && !self.quirks(is_ignored)
    }

    /// Asks without waiting: each answer is for the first call that asks the same, unless something
    /// is changed before that. What there is no room for is left out.
    ///
    /// # Errors
    /// The end of the session.
    pub fn ask_ahead(&self, questions: &[Ahead]) -> Result<(), Error> {
        self.lane.ask_ahead(questions)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// The server's status, or the end of the session; so for every operation below.
    pub async fn open(
        &self,
        path: &[u8],
        flags: OpenFlags,
        attrs: &Attrs,
    ) -> Result<Handle, Error> {
        let attrs = *attrs;
        self.handle(Request::Open { path, flags, attrs }).await
    }

    /// Closes a file or a folder. The status counts: some servers report write errors here.
    pub async fn close(&self, handle: &Handle) -> Result<(), Error> {
        let handle = handle.as_bytes();
        self.status(Request::Close { handle }).await
    }

    /// Reads once; shorter than asked only where the server says so, `None` at the end of the file.
    pub async fn read(
        &self,
        handle: &Handle,
        offset: u64,
        len: u32,
    ) -> Result<Option<Vec<u8>>, Error> {
        let handle = handle.as_bytes();
        let reply = self
            .lane
            .call(&Request::Read {
                handle,
                offset,
                len,
            })
            .await?;
        match reply.reply() {
            Reply::Data(data) => Ok(Some(data.to_vec())),
            Reply::Status {
                code: Code::Eof, ..
            } => Ok(None),
            other => Err(failure(&other)),
        }
    }

    /// Writes all of `data`, at most a server's longest WRITE.
    pub async fn write(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<(), Error> {
        let handle = handle.as_bytes();
        self.status(Request::Write {
            handle,
            offset,
            data,
        })
        .await
    }

    /// Attributes of a path; symbolic links are followed.
    pub async fn stat(&self, path: &[u8]) -> Result<Attrs, Error> {
        self.attrs(Request::Stat { path }).await
    }

    /// Attributes of a path; symbolic links are not followed.
    pub async fn lstat(&self, path: &[u8]) -> Result<Attrs, Error> {
        self.attrs(Request::Lstat { path }).await
    }

    /// Attributes of an open file.
    pub async fn fstat(&self, handle: &Handle) -> Result<Attrs, Error> {
        let handle = handle.as_bytes();
        self.attrs(Request::Fstat { handle }).await
    }

    /// Sets the attributes that are there; symbolic links are followed.
    pub async fn setstat(&self, path: &[u8], attrs: &Attrs) -> Result<(), Error> {
        let attrs = *attrs;
        self.status(Request::Setstat { path, attrs }).await
    }

    /// Sets the attributes that are there, on an open file.
    pub async fn fsetstat(&self, handle: &Handle, attrs: &Attrs) -> Result<(), Error> {
        let (handle, attrs) = (handle.as_bytes(), *attrs);
        self.status(Request::Fsetstat { handle, attrs }).await
    }

    /// Sets the attributes that are there; symbolic links are not followed
    /// (`lsetstat@openssh.com`).
    pub async fn lsetstat(&self, path: &[u8], attrs: &Attrs) -> Result<(), Error> {
        let attrs = *attrs;
        self.status(Request::Lsetstat { path, attrs }).await
    }

    /// Opens a folder.
    pub async fn opendir(&self, path: &[u8]) -> Result<Handle, Error> {
        self.handle(Request::Opendir { path }).await
    }

    /// The next entries of a folder, `.` and `..` included; `None` at its end.
    pub async fn readdir(&self, handle: &Handle) -> Result<Option<Vec<DirEntry>>, Error> {
        let handle = handle.as_bytes();
        let reply = self.lane.call(&Request::Readdir { handle }).await?;
        match reply.reply() {
            Reply::Name(names) => {
                let entry = |name: fullbore_sftp::proto::Name<'_>| DirEntry {
                    name: name.filename.to_vec(),
                    longname: name.longname.to_vec(),
                    attrs: name.attrs,
                };
                Ok(Some(names.iter().map(entry).collect()))
            }
            Reply::Status {
                code: Code::Eof, ..
            } => Ok(None),
            other => Err(failure(&other)),
        }
    }

    /// Removes a file or a symbolic link.
    pub async fn remove(&self, path: &[u8]) -> Result<(), Error> {
        self.status(Request::Remove { path }).await
    }

    /// Makes a folder.
    pub async fn mkdir(&self, path: &[u8], attrs: &Attrs) -> Result<(), Error> {
        let attrs = *attrs;
        self.status(Request::Mkdir { path, attrs }).await
    }

    /// Removes an empty folder.
    pub async fn rmdir(&self, path: &[u8]) -> Result<(), Error> {
        self.status(Request::Rmdir { path }).await
    }

    /// The absolute path without links; `.` gives the folder where the session starts.
    pub async fn realpath(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        self.name(Request::Realpath { path }).await
    }

    /// Renames; whether an existing target is replaced is the server's choice.
    pub async fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        self.status(Request::Rename { from, to }).await
    }

    /// Renames and replaces the target in one step (`posix-rename@openssh.com`).
    pub async fn posix_rename(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        self.status(Request::PosixRename { from, to }).await
    }

    /// Where a symbolic link points.
    pub async fn readlink(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        self.name(Request::Readlink { path }).await
    }

    /// Makes a symbolic link at `link` that points to `target`, in the order that the server wants.
    pub async fn symlink(&self, target: &[u8], link: &[u8]) -> Result<(), Error> {
        let (target, link) = match self.quirks(|quirks| quirks.symlink_link_first) {
            true => (link, target),
            false => (target, link),
        };
        self.status(Request::Symlink { target, link }).await
    }

    /// Makes a second name for a file (`hardlink@openssh.com`).
    pub async fn hardlink(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        self.status(Request::Hardlink { from, to }).await
    }

    /// Figures of the file system a path is on (`statvfs@openssh.com`).
    pub async fn statvfs(&self, path: &[u8]) -> Result<StatVfs, Error> {
        let reply = self.lane.call(&Request::Statvfs { path }).await?;
        parsed(StatVfs::parse(extended(&reply)?))
    }

    /// Figures of the file system an open file is on (`fstatvfs@openssh.com`).
    pub async fn fstatvfs(&self, handle: &Handle) -> Result<StatVfs, Error> {
        let handle = handle.as_bytes();
        let reply = self.lane.call(&Request::Fstatvfs { handle }).await?;
        parsed(StatVfs::parse(extended(&reply)?))
    }

    /// Brings an open file to stable storage (`fsync@openssh.com`).
    pub async fn fsync(&self, handle: &Handle) -> Result<(), Error> {
        let handle = handle.as_bytes();
        self.status(Request::Fsync { handle }).await
    }

    /// The server's limits (`limits@openssh.com`).
    pub async fn limits(&self) -> Result<Limits, Error> {
        let reply = self.lane.call(&Request::Limits).await?;
        parsed(Limits::parse(extended(&reply)?))
    }

    /// The path with `~` and `~user` replaced (`expand-path@openssh.com`).
    pub async fn expand_path(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        self.name(Request::ExpandPath { path }).await
    }

    /// The home folder of a user; an empty name is the user logged in (`home-directory`).
    pub async fn home_directory(&self, user: &[u8]) -> Result<Vec<u8>, Error> {
        self.name(Request::HomeDirectory { user }).await
    }

    /// The names of users and groups, in the order of their ids, an empty one where the server knows none
    /// (`users-groups-by-id@openssh.com`).
    pub async fn names_by_id(
        &self,
        uids: &[u32],
        gids: &[u32],
    ) -> Result<(Vec<Vec<u8>>, Vec<Vec<u8>>), Error> {
        let packed = |ids: &[u32]| ids.iter().flat_map(|id| id.to_be_bytes()).collect();
        let (uids, gids): (Vec<u8>, Vec<u8>) = (packed(uids), packed(gids));
        let request = Request::UsersGroupsById {
            uids: parsed(Ids::from_packed(&uids))?,
            gids: parsed(Ids::from_packed(&gids))?,
        };
        let reply = self.lane.call(&request).await?;
        let names = parsed(NamesById::parse(extended(&reply)?))?;
        let owned = |name: &[u8]| name.to_vec();
        Ok((
            names.users().map(owned).collect(),
            names.groups().map(owned).collect(),
        ))
    }

    /// Copies on the server (`copy-data`). A `len` of 0 copies to the end of the file.
    pub async fn copy_data(
        &self,
        from: (&Handle, u64),
        len: u64,
        to: (&Handle, u64),
    ) -> Result<(), Error> {
        self.status(Request::CopyData {
            from: from.0.as_bytes(),
            from_offset: from.1,
            len,
            to: to.0.as_bytes(),
            to_offset: to.1,
        })
        .await
    }

    /// Digests of an open file, made by the server (`check-file-handle`).
    pub async fn check_file(
        &self,
        handle: &Handle,
        check: CheckFile<'_>,
    ) -> Result<Digests, Error> {
        let request = Request::CheckFileHandle {
            handle: handle.as_bytes(),
            check,
            echo: false,
        };
        digests(&self.lane.call(&request).await?)
    }

    /// Digests of the file at a path, made by the server (`check-file-name`).
    pub async fn check_file_name(
        &self,
        path: &[u8],
        check: CheckFile<'_>,
    ) -> Result<Digests, Error> {
        digests(
            &self
                .lane
                .call(&Request::CheckFileName { path, check })
                .await?,
        )
    }

    /// Reads a file from `offset` to its end, or to `end_max`, into `file` at the same offsets.
    /// `size_hint` is where the end is expected; it costs a round trip when wrong. `progress` is
    /// called now and then. Dropping the future cancels the transfer.
    ///
    /// # Errors
    /// When it could not be started. How it ended, and how far it came, is in the result.
    pub async fn get(
        &self,
        handle: &Handle,
        file: Rc<dyn FileIo>,
        span: Span,
        mut progress: impl FnMut(Progress),
    ) -> Result<Transferred, Error> {
        let part = Part::Rest(span);
        self.lane.get(handle, file, part, &mut progress).await
    }

    /// Writes a file from `offset` to the end of `file`, or to `end_max`. As [`Sftp::get`].
    ///
    /// # Errors
    /// As [`Sftp::get`].
    pub async fn put(
        &self,
        handle: &Handle,
        file: Rc<dyn FileIo>,
        span: Span,
        mut progress: impl FnMut(Progress),
    ) -> Result<Transferred, Error> {
        let part = Part::Rest(span);
        self.lane.put(handle, file, part, &mut progress).await
    }

    /// As [`Sftp::get`], for one of several parts of a file that follow each other: parts of this
    /// session are asked for one after the other, in the order in which they were begun.
    ///
    /// # Errors
    /// As [`Sftp::get`].
    pub async fn get_unit(
        &self,
        handle: &Handle,
        file: Rc<dyn FileIo>,
        span: Span,
        mut progress: impl FnMut(Progress),
    ) -> Result<Transferred, Error> {
        let part = Part::Unit(span);
        self.lane.get(handle, file, part, &mut progress).await
    }

    /// As [`Sftp::put`], for one of several parts, as [`Sftp::get_unit`].
    ///
    /// # Errors
    /// As [`Sftp::get`].
    pub async fn put_unit(
        &self,
        handle: &Handle,
        file: Rc<dyn FileIo>,
        span: Span,
        mut progress: impl FnMut(Progress),
    ) -> Result<Transferred, Error> {
        let part = Part::Unit(span);
        self.lane.put(handle, file, part, &mut progress).await
    }

    /// Time that what was to be sent waited for nothing but the server's window, so far.
    #[must_use]
    pub fn window_limited(&self) -> Duration {
        let now = self.connection().now();
        self.lane
            .look(|state, ch| state.session.conn().window_limited(now, ch))
    }

    /// Most bytes that the server's window ever took; 0 until the channel is open.
    #[must_use]
    pub fn remote_window_peak(&self) -> u32 {
        self.lane
            .look(|state, ch| state.session.conn().remote_window_peak(ch))
    }

    /// For how long the server has not answered, and how long it may be silent; `None` while nothing is
    /// waited for.
    #[must_use]
    pub fn silence(&self) -> Option<(Duration, Duration)> {
        let now = self.connection().now();
        self.lane.with(|lane| lane.silence(now))
    }

    /// Bytes of READs and WRITEs that the path is thought to hold now, which many may be unanswered.
    #[must_use]
    pub fn outstanding_bytes_max(&self) -> u64 {
        self.lane.with(|lane| lane.outstanding_bytes_max())
    }

    /// Whether the session is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.lane.look(|state, ch| state.lane_error(ch).is_some())
    }

    /// Runs a command on the server, over the same connection.
    ///
    /// # Errors
    /// When the connection is over or the server runs no commands.
    pub async fn exec(&self, command: &[u8]) -> Result<ExecOutput, Error> {
        self.lane.connection.exec(command).await
    }

    /// Something of what is known of the server by its name.
    pub fn quirks<R>(&self, look: impl FnOnce(&Quirks) -> R) -> R {
        self.lane.connection.quirks(look)
    }

    /// The connection that carries the session.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.lane.connection
    }

    /// Sets how many bytes of READs and WRITEs may be unanswered at once.
    pub fn set_outstanding_bytes_max(&self, bytes: u64) {
        self.lane
            .change(|client| client.set_outstanding_bytes_max(bytes));
    }

    async fn status(&self, request: Request<'_>) -> Result<(), Error> {
        as_status(&self.lane.call(&request).await?)
    }

    async fn handle(&self, request: Request<'_>) -> Result<Handle, Error> {
        match self.lane.call(&request).await?.reply() {
            Reply::Handle(bytes) => Ok(Handle::new(bytes)?),
            other => Err(failure(&other)),
        }
    }

    async fn attrs(&self, request: Request<'_>) -> Result<Attrs, Error> {
        as_attrs(&self.lane.call(&request).await?)
    }

    async fn name(&self, request: Request<'_>) -> Result<Vec<u8>, Error> {
        let reply = self.lane.call(&request).await?;
        match reply.reply() {
            Reply::Name(names) => match names.iter().next() {
                Some(name) => Ok(name.filename.to_vec()),
                None => Err(unusable("an empty list of names")),
            },
            other => Err(failure(&other)),
        }
    }
}

pub(super) fn as_status(reply: &ReplyMessage) -> Result<(), Error> {
    match reply.reply() {
        Reply::Status { code: Code::Ok, .. } => Ok(()),
        other => Err(failure(&other)),
    }
}

pub(super) fn as_attrs(reply: &ReplyMessage) -> Result<Attrs, Error> {
    match reply.reply() {
        Reply::Attrs(attrs) => Ok(attrs),
        other => Err(failure(&other)),
    }
}

/// The server's status as an error. A status of success, or a reply that carries something, where
/// that was not asked for, is a failure too.
fn failure(reply: &Reply<'_>) -> Error {
    match *reply {
        Reply::Status { code: Code::Ok, .. } => unusable("success, but not what was asked for"),
        Reply::Status { code, message } => Error::Status {
            code,
            message: message.into(),
        },
        Reply::Handle(_)
        | Reply::Data(_)
        | Reply::Name(_)
        | Reply::Attrs(_)
        | Reply::Extended(_) => unusable("a reply of another kind"),
    }
}

fn unusable(what: &str) -> Error {
    Error::Status {
        code: Code::BadMessage,
        message: format!("the server answered with {what}")
            .into_bytes()
            .into(),
    }
}

fn extended(reply: &ReplyMessage) -> Result<&[u8], Error> {
    match reply.reply() {
        Reply::Extended(payload) => Ok(payload),
        other => Err(failure(&other)),
    }
}

fn parsed<T>(result: Result<T, fullbore_sftp::InvalidMessage>) -> Result<T, Error> {
    result.map_err(|_| unusable("fields that do not parse"))
}

fn digests(reply: &ReplyMessage) -> Result<Digests, Error> {
    let payload = parsed(CheckFileReply::parse(extended(reply)?))?;
    Ok(Digests {
        algorithm: payload.algorithm,
        digests: payload.digests.to_vec(),
    })
}
