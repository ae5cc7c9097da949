//! Carries out one request that has room for its reply and its files to itself: calls the store,
//! and lays the reply out.

use fullbore_base::{gather, scatter};

use super::pending::{Answer, Op, Uses};
use super::reply::{DirSink, NAME_HEADER_LEN, PATH_BYTES_MAX, SMALL_REPLY_LEN_MAX};
use super::{
    CheckRange, CheckTarget, CopyRange, FileId, Io, Kind, Outcome, Server, StoreError, Token,
};
use crate::proto::{
    Attrs, CheckFile, Code, DATA_BYTES_MAX, DATA_HEADER_LEN, HashAlgorithm, Ids, LEN_WORD, Limits,
    Name, OpenFlags, Reply, Request, StatVfs, data_header, ext, fxp,
};
use crate::wire::{Put, SliceSink, len_u32};

/// A handle that is not open, or not to what the request wants. OpenSSH answers some requests
/// with "failure" and others with "no such file".
const BAD_HANDLE: StoreError = StoreError::new(Code::Failure, "invalid handle");
const NO_SUCH_HANDLE: StoreError = StoreError::new(Code::NoSuchFile, "invalid handle");
const DENIED: StoreError = StoreError::new(
    Code::PermissionDenied,
    "this server does not permit the request",
);
const READ_ONLY: StoreError = StoreError::new(Code::PermissionDenied, "this server is read-only");
const SAME_FILE: StoreError = StoreError::new(Code::Failure, "source and target are the same");
const OUT_OF_RANGE: StoreError = StoreError::new(Code::BadMessage, "offset out of range");

/// Bytes of an EXTENDED_REPLY with digests that are not digests: more than it needs, so that the
/// reply of a pending check-file never needs more room than the longest packet.
const DIGESTS_OVERHEAD_LEN: usize = SMALL_REPLY_LEN_MAX;

impl Server {
    /// Serves one request. False when it would need one more pending operation than allowed: it
    /// is to be tried again later.
    pub(super) fn execute(
        &mut self,
        id: u32,
        request: &Request<'_>,
        uses: Uses,
        io: &mut Io<'_>,
    ) -> bool {
        if let Err(error) = self.permit(request) {
            self.status(id, Err(error), io);
            return true;
        }
        match *request {
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Fsync { .. }
            | Request::CopyData { .. }
            | Request::CheckFileName { .. }
            | Request::CheckFileHandle { .. } => {
                let Some(token) = self.pending.next() else {
                    return false;
                };
                if let Some(answer) = self.execute_long(id, request, token, io) {
                    for (file, how) in uses.into_iter().flatten() {
                        self.handles.begin(file, how);
                    }
                    let op = Op {
                        request_id: id,
                        answer,
                        uses,
                        completion: None,
                    };
                    self.pending.begin(token, op);
                }
            }
            Request::Open { path, flags, attrs } => {
                self.open(id, Kind::File, io, |file, io| {
                    io.store.open(file, path, flags, &attrs)
                });
            }
            Request::Opendir { path } => {
                self.open(id, Kind::Dir, io, |dir, io| io.store.opendir(dir, path));
            }
            Request::Close { handle } => self.close(id, handle, io),
            Request::Readdir { handle } => self.readdir(id, handle, io),
            Request::UsersGroupsById { uids, gids } => self.names_by_id(id, uids, gids, io),
            Request::Lstat { .. }
            | Request::Fstat { .. }
            | Request::Setstat { .. }
            | Request::Fsetstat { .. }
            | Request::Remove { .. }
            | Request::Mkdir { .. }
            | Request::Rmdir { .. }
            | Request::Realpath { .. }
            | Request::Stat { .. }
            | Request::Rename { .. }
            | Request::Readlink { .. }
            | Request::Symlink { .. }
            | Request::PosixRename { .. }
            | Request::Statvfs { .. }
            | Request::Fstatvfs { .. }
            | Request::Hardlink { .. }
            | Request::Lsetstat { .. }
            | Request::Limits
            | Request::ExpandPath { .. }
            | Request::HomeDirectory { .. }
            | Request::UnknownExtended { .. }
            | Request::Unknown { .. } => self.execute_path(id, request, io),
        }
        true
    }

    /// Whether policy allows a request. Unknown ones pass: they are answered as unsupported.
    fn permit(&self, request: &Request<'_>) -> Result<(), StoreError> {
        let Some(kind) = request.kind() else {
            return Ok(());
        };
        if !self.config.requests.contains(kind) {
            return Err(DENIED);
        }
        if !self.config.read_only {
            return Ok(());
        }
        let is_writing = if let Request::Open { flags, .. } = request {
            [
                OpenFlags::WRITE,
                OpenFlags::APPEND,
                OpenFlags::CREAT,
                OpenFlags::TRUNC,
            ]
            .into_iter()
            .any(|flag| flags.contains(flag))
        } else {
            kind.is_writing()
        };
        if is_writing { Err(READ_ONLY) } else { Ok(()) }
    }

    /// The open file of a handle; not a folder.
    fn file(&self, handle: &[u8]) -> Option<FileId> {
        match self.handles.find(handle)? {
            (file, Kind::File) => Some(file),
            (_, Kind::Dir) => None,
        }
    }

    /// Requests whose work may go on outside. Returns how to answer then; `None` when the
    /// answer is out.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "`execute` tells all requests apart"
    )]
    fn execute_long(
        &mut self,
        id: u32,
        request: &Request<'_>,
        token: Token,
        io: &mut Io<'_>,
    ) -> Option<Answer> {
        let outcome = match *request {
            Request::Read {
                handle,
                offset,
                len,
            } => return self.read(id, token, (handle, offset, len), io),
            Request::Write {
                handle,
                offset,
                data,
            } => match self.file(handle) {
                None => Err(BAD_HANDLE).into(),
                Some(_) if i64::try_from(offset).is_err() => Err(OUT_OF_RANGE).into(),
                Some(file) => io.store.write(token, file, offset, data),
            },
            Request::Fsync { handle } => match self.file(handle) {
                None => Err(NO_SUCH_HANDLE).into(),
                Some(file) => io.store.fsync(token, file),
            },
            Request::CopyData {
                from,
                from_offset,
                len,
                to,
                to_offset,
            } => match (self.file(from), self.file(to)) {
                (Some(from), Some(to)) if from != to => {
                    let copy = CopyRange {
                        from,
                        from_offset,
                        len,
                        to,
                        to_offset,
                    };
                    io.store.copy_data(token, copy)
                }
                (Some(_), Some(_)) => Err(SAME_FILE).into(),
                (_, _) => Err(NO_SUCH_HANDLE).into(),
            },
            Request::CheckFileName { path, check } => {
                return self.check_file(id, token, CheckTarget::Path(path), (check, false), io);
            }
            Request::CheckFileHandle {
                handle,
                check,
                echo,
            } => match self.file(handle) {
                None => Err(BAD_HANDLE).into(),
                Some(file) => {
                    return self.check_file(id, token, CheckTarget::File(file), (check, echo), io);
                }
            },
            _ => Err(StoreError::UNSUPPORTED).into(),
        };
        match outcome {
            Outcome::Ready(result) => {
                self.status(id, result, io);
                None
            }
            Outcome::Pending => Some(Answer::Status),
        }
    }

    /// Has the store read straight to where the reply leaves from; its header follows once the
    /// length is known.
    fn read(
        &mut self,
        id: u32,
        token: Token,
        (handle, offset, len): (&[u8], u64, u32),
        io: &mut Io<'_>,
    ) -> Option<Answer> {
        let Some(file) = self.file(handle) else {
            self.status(id, Err(BAD_HANDLE), io);
            return None;
        };
        if i64::try_from(offset).is_err() {
            self.status(id, Err(OUT_OF_RANGE), io);
            return None;
        }
        let len = len.min(self.config.read_bytes_max());
        if len == 0 {
            self.emit(id, &Reply::Data(&[]), io);
            return None;
        }
        let mut outcome = Outcome::Pending;
        let store = &mut *io.store;
        let is_sent = io.out.emit(DATA_HEADER_LEN + len as usize, &mut |slices| {
            outcome = gather(slices, DATA_HEADER_LEN, |body| {
                store.read(token, file, offset, body)
            });
            match outcome {
                Outcome::Ready(Ok(n)) if n > 0 => {
                    let n = n.min(len as usize);
                    scatter(slices, 0, &data_header(id, n));
                    DATA_HEADER_LEN + n
                }
                Outcome::Ready(_) | Outcome::Pending => 0,
            }
        });
        self.check(is_sent);
        match outcome {
            Outcome::Ready(Ok(0)) => self.status(id, Err(StoreError::EOF), io),
            Outcome::Ready(Ok(_)) => {}
            Outcome::Ready(Err(error)) => self.status(id, Err(error), io),
            Outcome::Pending => return Some(Answer::Data { len }),
        }
        None
    }

    fn check_file(
        &mut self,
        id: u32,
        token: Token,
        target: CheckTarget<'_>,
        (check, echo): (CheckFile<'_>, bool),
        io: &mut Io<'_>,
    ) -> Option<Answer> {
        let refused = |reason| Err(StoreError::new(Code::Failure, reason));
        let Some(algorithm) = HashAlgorithm::choose(check.algorithms) else {
            self.status(id, refused("no known hash algorithm among those asked"), io);
            return None;
        };
        if check.block_bytes != 0 && check.block_bytes < CheckFile::BLOCK_BYTES_MIN {
            self.status(id, refused("block size below 256 bytes"), io);
            return None;
        }
        let room = self.config.packet_bytes_max as usize - DIGESTS_OVERHEAD_LEN;
        let range = CheckRange {
            algorithm,
            offset: check.offset,
            len: check.len,
            block_bytes: check.block_bytes,
            digests_max: room / algorithm.digest_len(),
        };
        let mut digests = std::mem::take(&mut self.scratch);
        digests.clear();
        let outcome = io.store.check_file(token, target, range, &mut digests);
        match outcome {
            Outcome::Ready(Ok(())) => self.emit_digests(id, algorithm, echo, &digests, io),
            Outcome::Ready(Err(error)) => self.status(id, Err(error), io),
            Outcome::Pending => {}
        }
        self.scratch = digests;
        (outcome == Outcome::Pending).then_some(Answer::Digests { algorithm, echo })
    }

    /// An EXTENDED_REPLY with digests, in the draft's form or with "check-file" in front.
    pub(super) fn emit_digests(
        &mut self,
        id: u32,
        algorithm: HashAlgorithm,
        echo: bool,
        digests: &[u8],
        io: &mut Io<'_>,
    ) {
        let room = self.config.packet_bytes_max as usize - DIGESTS_OVERHEAD_LEN;
        let digests = &digests[..digests.len().min(room)];
        let is_sent = io.out.emit(
            LEN_WORD + DIGESTS_OVERHEAD_LEN + digests.len(),
            &mut |slices| {
                let mut sink = SliceSink::new(slices);
                sink.put_raw(&[0; LEN_WORD]);
                sink.put_raw(&[fxp::SSH_FXP_EXTENDED_REPLY]);
                sink.put_u32(id);
                if echo {
                    sink.put_string(ext::CHECK_FILE.as_bytes());
                }
                sink.put_string(algorithm.name().as_bytes());
                sink.put_raw(digests);
                let len = sink.written();
                scatter(slices, 0, &len_u32(len - LEN_WORD).to_be_bytes());
                len
            },
        );
        self.check(is_sent);
    }

    fn open(
        &mut self,
        id: u32,
        kind: Kind,
        io: &mut Io<'_>,
        open: impl FnOnce(FileId, &mut Io<'_>) -> Result<(), StoreError>,
    ) {
        let Some(file) = self.handles.next(kind) else {
            let error = StoreError::new(Code::Failure, "too many open handles");
            self.status(id, Err(error), io);
            return;
        };
        match open(file, io) {
            Ok(()) => {
                let handle = self.handles.insert(file, kind);
                self.emit(id, &Reply::Handle(&handle), io);
            }
            Err(error) => self.status(id, Err(error), io),
        }
    }

    fn close(&mut self, id: u32, handle: &[u8], io: &mut Io<'_>) {
        let result = match self.handles.find(handle) {
            None => Err(NO_SUCH_HANDLE),
            Some((file, _)) => {
                self.handles.remove(file);
                io.store.close(file)
            }
        };
        self.status(id, result, io);
    }

    fn readdir(&mut self, id: u32, handle: &[u8], io: &mut Io<'_>) {
        let Some((dir, Kind::Dir)) = self.handles.find(handle) else {
            self.status(id, Err(BAD_HANDLE), io);
            return;
        };
        let len_max = self.readdir_len();
        let mut result = Ok(());
        let mut is_empty = true;
        let store = &mut *io.store;
        let is_sent = io.out.emit(len_max, &mut |slices| {
            let mut names = DirSink::new(slices, len_max);
            result = store.readdir(dir, &mut names);
            let filled = names.finish();
            if filled.count == 0 {
                if filled.is_full {
                    result = Err(StoreError::new(Code::Failure, "name too long for a reply"));
                }
                return 0;
            }
            is_empty = false;
            filled.backfill(id, slices);
            filled.len
        });
        self.check(is_sent);
        if is_empty {
            let error = result.err().unwrap_or(StoreError::EOF);
            self.status(id, Err(error), io);
        }
    }

    /// A name for each id; empty ones once the reply is full.
    fn names_by_id(&mut self, id: u32, uids: Ids<'_>, gids: Ids<'_>, io: &mut Io<'_>) {
        let mut payload = std::mem::take(&mut self.scratch);
        payload.clear();
        let mut left = self.config.packet_bytes_max as usize - NAME_HEADER_LEN - 8;
        left = left.saturating_sub(4 * (uids.count() + gids.count()));
        for (ids, is_user) in [(uids, true), (gids, false)] {
            let list_at = payload.len();
            payload.put_u32(0);
            for one in ids.iter() {
                let at = payload.len();
                payload.put_u32(0);
                if is_user {
                    io.store.user_name(one, &mut payload);
                } else {
                    io.store.group_name(one, &mut payload);
                }
                let name_len = payload.len() - at - 4;
                if name_len > left {
                    payload.truncate(at + 4);
                } else {
                    left -= name_len;
                    payload[at..at + 4].copy_from_slice(&len_u32(name_len).to_be_bytes());
                }
            }
            let list_len = len_u32(payload.len() - list_at - 4);
            payload[list_at..list_at + 4].copy_from_slice(&list_len.to_be_bytes());
        }
        self.emit(id, &Reply::Extended(&payload), io);
        self.scratch = payload;
    }

    /// Requests that answer at once, with a small reply or a path.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "`execute` tells all requests apart"
    )]
    fn execute_path(&mut self, id: u32, request: &Request<'_>, io: &mut Io<'_>) {
        let store = &mut *io.store;
        let result = match *request {
            Request::Lstat { path } => return self.attrs(id, |io| io.store.lstat(path), io),
            Request::Stat { path } => return self.attrs(id, |io| io.store.stat(path), io),
            Request::Fstat { handle } => {
                let file = self.file(handle);
                return self.attrs(id, |io| io.store.fstat(file.ok_or(BAD_HANDLE)?), io);
            }
            Request::Realpath { path } => {
                return self.path(id, |io, out| io.store.realpath(path, out), io);
            }
            Request::Readlink { path } => {
                return self.path(id, |io, out| io.store.readlink(path, out), io);
            }
            Request::ExpandPath { path } => {
                return self.path(id, |io, out| io.store.expand_path(path, out), io);
            }
            Request::HomeDirectory { user } => {
                return self.path(id, |io, out| io.store.home_directory(user, out), io);
            }
            Request::Statvfs { path } => return self.figures(id, |io| io.store.statvfs(path), io),
            Request::Fstatvfs { handle } => {
                let file = self.file(handle);
                return self.figures(id, |io| io.store.fstatvfs(file.ok_or(BAD_HANDLE)?), io);
            }
            Request::Limits => return self.limits(id, io),
            Request::Setstat { path, attrs } => store.setstat(path, &attrs),
            Request::Lsetstat { path, attrs } => store.lsetstat(path, &attrs),
            Request::Fsetstat { handle, attrs } => match self.file(handle) {
                Some(file) => store.fsetstat(file, &attrs),
                None => Err(BAD_HANDLE),
            },
            Request::Remove { path } => store.remove(path),
            Request::Mkdir { path, attrs } => store.mkdir(path, &attrs),
            Request::Rmdir { path } => store.rmdir(path),
            Request::Rename { from, to } => store.rename(from, to),
            Request::PosixRename { from, to } => store.posix_rename(from, to),
            Request::Symlink { target, link } => store.symlink(target, link),
            Request::Hardlink { from, to } => store.hardlink(from, to),
            // Unknown ones; the kinds served elsewhere do not come here.
            _ => Err(StoreError::UNSUPPORTED),
        };
        self.status(id, result, io);
    }

    fn attrs(
        &mut self,
        id: u32,
        ask: impl FnOnce(&mut Io<'_>) -> Result<Attrs, StoreError>,
        io: &mut Io<'_>,
    ) {
        match ask(io) {
            Ok(attrs) => self.emit(id, &Reply::Attrs(attrs), io),
            Err(error) => self.status(id, Err(error), io),
        }
    }

    fn figures(
        &mut self,
        id: u32,
        ask: impl FnOnce(&mut Io<'_>) -> Result<StatVfs, StoreError>,
        io: &mut Io<'_>,
    ) {
        match ask(io) {
            Ok(figures) => self.small_payload(id, |sink| figures.encode(sink), io),
            Err(error) => self.status(id, Err(error), io),
        }
    }

    fn limits(&mut self, id: u32, io: &mut Io<'_>) {
        let data_bytes_max =
            u64::from(DATA_BYTES_MAX.min(self.config.packet_bytes_max.saturating_sub(1024)));
        let limits = Limits {
            packet_bytes_max: u64::from(self.config.packet_bytes_max),
            read_bytes_max: data_bytes_max,
            write_bytes_max: data_bytes_max,
            handles_max: self.config.handles_told,
        };
        self.small_payload(id, |sink| limits.encode(sink), io);
    }

    /// An EXTENDED_REPLY of a payload that fits a small reply.
    fn small_payload(&mut self, id: u32, encode: impl FnOnce(&mut Vec<u8>), io: &mut Io<'_>) {
        let mut payload = std::mem::take(&mut self.scratch);
        payload.clear();
        encode(&mut payload);
        self.emit(id, &Reply::Extended(&payload), io);
        self.scratch = payload;
    }

    /// A NAME reply of one path, the answer of REALPATH and its like.
    fn path(
        &mut self,
        id: u32,
        ask: impl FnOnce(&mut Io<'_>, &mut Vec<u8>) -> Result<(), StoreError>,
        io: &mut Io<'_>,
    ) {
        let mut path = std::mem::take(&mut self.scratch);
        path.clear();
        match ask(io, &mut path) {
            Ok(()) if path.len() <= PATH_BYTES_MAX => self.emit_path(id, &path, io),
            Ok(()) => {
                let error = StoreError::new(Code::BadMessage, "file name too long");
                self.status(id, Err(error), io);
            }
            Err(error) => self.status(id, Err(error), io),
        }
        self.scratch = path;
    }

    fn emit_path(&mut self, id: u32, path: &[u8], io: &mut Io<'_>) {
        let name = Name {
            filename: path,
            longname: path,
            attrs: Attrs::EMPTY,
        };
        let len = NAME_HEADER_LEN + name.encoded_len();
        let is_sent = io.out.emit(len, &mut |slices| {
            let mut names = DirSink::new(slices, len);
            let is_in = names.push(&name);
            debug_assert!(is_in, "the length was asked for");
            let filled = names.finish();
            filled.backfill(id, slices);
            filled.len
        });
        self.check(is_sent);
    }
}
