//! The SFTP server engine.
//!
//! Requests are taken whole from a contiguous view, in order, only while the outlet has room for
//! the longest reply that the next one can cause, and only until the turn's work is done. The
//! engine queues next to nothing itself: what is not taken stays in the receive buffer and closes the
//! channel's window behind it, so the cost of a request does not depend on what waits.
//!
//! ```text
//! view ──► parse ──► room? ──► file free? ──► allowed? ──► Store ──► reply laid out in the outlet
//!            │         └ Stop::Outlet  └ waits                └ Pending ──complete()──► reply
//!            └ Error: the session is over
//! ```
//!
//! Replies come in the order of requests, but for operations that the store runs outside: those
//! on one file keep their order (reads go on beside reads), others overtake them. A request that
//! must wait for a pending one is put aside, in a list of bounded length, and those on other handles go on;
//! when the list is full, and for requests that name a path, the session waits.

mod config;
mod execute;
mod handles;
pub mod memory;
mod needs;
mod pending;
mod reply;
mod store;
mod waiting;

#[cfg(test)]
mod tests;

use std::fmt;

use fullbore_base::Outlet;

pub use config::Config;
pub use reply::DirSink;
pub use store::{
    CheckRange, CheckTarget, Completion, CopyRange, FileId, Outcome, Store, StoreError, Token,
};

use crate::proto::{
    self, Code, LEN_WORD, Packet, Reply, Request, RequestKind, RequestSet, fxp, next_packet,
    parse_init, put_extension,
};
use crate::wire::{Count, InvalidMessage, Put, SliceSink, len_u32};
use handles::{Handles, Kind};
use needs::Turn;
use pending::{Answer, Op, Pending, Uses};
use reply::SMALL_REPLY_LEN_MAX;
use waiting::Waiting;

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The bytes do not parse.
    InvalidMessage(InvalidMessage),
    /// A request came before INIT.
    RequestBeforeInit,
    /// The outlet refused a message that its room allows: its owner broke the contract.
    OutletRefused,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidMessage(error) => write!(f, "bad message from client: {error}"),
            Self::RequestBeforeInit => f.write_str("client sent a request before INIT"),
            Self::OutletRefused => f.write_str("the outlet refused a reply within its room"),
        }
    }
}

impl std::error::Error for Error {}

impl From<InvalidMessage> for Error {
    fn from(error: InvalidMessage) -> Self {
        Self::InvalidMessage(error)
    }
}

/// Why [`Server::handle_input`] took no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The view holds no further whole request.
    Input,
    /// The outlet has no room for the longest reply to the next request.
    Outlet,
    /// The next request waits for a pending operation.
    Pending,
    /// The turn's share of work is done: call again after others had theirs.
    Work,
}

/// Where one turn reads and writes.
struct Io<'a> {
    out: &'a mut dyn Outlet,
    store: &'a mut dyn Store,
}

/// One SFTP session, server side.
#[derive(Debug)]
pub struct Server {
    config: Config,
    served: RequestSet,
    handles: Handles,
    pending: Pending,
    waiting: Waiting,
    /// The version of the last INIT.
    remote_version: Option<u32>,
    stop: Stop,
    error: Option<Error>,
    /// Memory for paths, names and digests on their way into a reply.
    scratch: Vec<u8>,
}

impl Server {
    /// A session that waits for INIT.
    #[must_use]
    pub fn new(mut config: Config) -> Self {
        config.packet_bytes_max = config
            .packet_bytes_max
            .clamp(Config::PACKET_BYTES_MIN, proto::PACKET_BYTES_MAX);
        Self {
            served: config.served(),
            handles: Handles::new(config.handles_max, config.dirs_max),
            pending: Pending::new(config.pending_count_max, config.pending_bytes_max),
            waiting: Waiting::new(config.waiting_count_max, config.waiting_bytes_max),
            remote_version: None,
            stop: Stop::Input,
            error: None,
            scratch: Vec::new(),
            config,
        }
    }

    /// Serves requests from the front of `view` and returns how many bytes they took; why it
    /// stopped there is in [`Server::stop`]. Replies of operations completed meanwhile go first.
    ///
    /// # Errors
    /// When the peer broke the protocol: the session is over, and every later call says so.
    pub fn handle_input(
        &mut self,
        view: &[u8],
        out: &mut dyn Outlet,
        store: &mut dyn Store,
    ) -> Result<usize, Error> {
        let io = &mut Io { out, store };
        self.flush(io);
        let mut turn = Turn::default();
        let mut taken = 0;
        while self.error.is_none() {
            if turn.is_over(&self.config) {
                self.stop = Stop::Work;
                break;
            }
            let served = if self.waiting.is_due {
                self.serve_waiting(io)
            } else {
                match next_packet(&view[taken..], self.config.packet_bytes_max) {
                    Ok(Some(packet)) => {
                        let served = self.serve(packet, io);
                        if matches!(served, Ok(Served::Done { .. })) {
                            taken += packet.total_len;
                            turn.bytes += packet.total_len;
                        }
                        served
                    }
                    Ok(None) => Ok(Served::Later(Stop::Input)),
                    Err(error) => Err(error.into()),
                }
            };
            match served {
                Ok(Served::Done { reply_bytes, work }) => {
                    turn.count += work;
                    turn.bytes += reply_bytes;
                }
                Ok(Served::Later(stop)) => {
                    self.stop = stop;
                    break;
                }
                Err(error) => self.error = Some(error),
            }
        }
        self.error.map_or(Ok(taken), Err)
    }

    /// Takes the result of a pending operation, and sends its reply now or, without room, in
    /// the next call. A token that was completed before is ignored.
    pub fn complete(
        &mut self,
        token: Token,
        completion: Completion,
        out: &mut dyn Outlet,
        store: &mut dyn Store,
    ) {
        if self.pending.finish(token, completion) {
            self.flush(&mut Io { out, store });
        }
    }

    /// Why the last [`Server::handle_input`] took no more.
    #[must_use]
    pub const fn stop(&self) -> Stop {
        self.stop
    }

    /// Operations that were not answered yet, and requests that wait for them.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.pending.count() + self.waiting.count()
    }

    /// Handles open now.
    #[must_use]
    pub fn handle_count(&self) -> usize {
        self.handles.count()
    }

    /// The error that ended the session.
    #[must_use]
    pub const fn error(&self) -> Option<Error> {
        self.error
    }

    fn serve(&mut self, packet: Packet<'_>, io: &mut Io<'_>) -> Result<Served, Error> {
        if packet.kind == fxp::SSH_FXP_INIT {
            return self.serve_init(packet, io);
        }
        if self.remote_version.is_none() {
            return Err(Error::RequestBeforeInit);
        }
        let (id, request) = Request::parse(packet)?;
        let request = request.in_order(self.config.symlink_order);
        let uses = self.uses(&request);
        let names_handle = uses.iter().any(Option::is_some);
        if !names_handle && self.waiting.count() > 0 {
            return Ok(Served::Later(Stop::Pending));
        }
        if self.waiting.holds_back(&uses) || !self.is_free_for(&uses) {
            if !self.waiting.push(packet, uses) {
                return Ok(Served::Later(Stop::Pending));
            }
            return Ok(Served::Done {
                reply_bytes: 0,
                work: 1,
            });
        }
        Ok(self.serve_now(id, &request, uses, io))
    }

    /// Serves the first request of the waiting list whose files are free by now.
    fn serve_waiting(&mut self, io: &mut Io<'_>) -> Result<Served, Error> {
        let first = (0..self.waiting.count()).find(|&index| {
            let uses = self.waiting.candidate(index);
            uses.is_some_and(|uses| self.is_free_for(&uses))
        });
        let Some(index) = first else {
            self.waiting.is_due = false;
            return Ok(Served::Done {
                reply_bytes: 0,
                work: 0,
            });
        };
        let entry = self.waiting.take(index);
        let (id, request) = Request::parse(entry.packet())?;
        // A handle that was closed meanwhile is not found again.
        let uses = self.uses(&request);
        let served = self.serve_now(id, &request, uses, io);
        if matches!(served, Served::Later(_)) {
            self.waiting.put_back(index, entry);
        }
        Ok(served)
    }

    /// Serves a request whose files are free, if there is room for its reply.
    fn serve_now(&mut self, id: u32, request: &Request<'_>, uses: Uses, io: &mut Io<'_>) -> Served {
        let cost = self.cost(request);
        if io.out.room() < cost.reply_len_max {
            return Served::Later(Stop::Outlet);
        }
        if !self.execute(id, request, uses, io) {
            return Served::Later(Stop::Pending);
        }
        Served::Done {
            reply_bytes: cost.reply_bytes,
            work: cost.work,
        }
    }

    /// Whether no pending operation keeps these files.
    fn is_free_for(&self, uses: &Uses) -> bool {
        let mut uses = uses.iter().flatten();
        uses.all(|&(file, how)| self.handles.is_free_for(file, how))
    }

    fn serve_init(&mut self, packet: Packet<'_>, io: &mut Io<'_>) -> Result<Served, Error> {
        let version = parse_init(packet)?;
        let mut count = Count::default();
        self.put_version(&mut count);
        if io.out.room() < LEN_WORD + count.0 {
            return Ok(Served::Later(Stop::Outlet));
        }
        let is_sent = io.out.emit(LEN_WORD + count.0, &mut |slices| {
            let mut sink = SliceSink::new(slices);
            sink.put_u32(len_u32(count.0));
            self.put_version(&mut sink);
            sink.written()
        });
        self.check(is_sent);
        self.remote_version = Some(version);
        io.store.version_received(version);
        Ok(Served::Done {
            reply_bytes: 0,
            work: 1,
        })
    }

    /// VERSION behind its length: 3 whatever the client offers, and every extension served.
    fn put_version(&self, sink: &mut impl Put) {
        sink.put_raw(&[fxp::SSH_FXP_VERSION]);
        sink.put_u32(proto::VERSION);
        for kind in RequestKind::ALL {
            if let Some((name, data)) = kind.extension()
                && self.served.contains(kind)
            {
                put_extension(sink, name, data.as_bytes());
            }
        }
    }

    /// Sends the replies of completed operations while there is room.
    fn flush(&mut self, io: &mut Io<'_>) {
        while let Some(op) = self.pending.front() {
            if io.out.room() < completed_len(op) {
                return;
            }
            let Some(op) = self.pending.pop_front() else {
                return;
            };
            for (file, how) in op.uses.into_iter().flatten() {
                self.handles.end(file, how);
            }
            self.waiting.is_due = self.waiting.count() > 0;
            let id = op.request_id;
            match (op.completion, op.answer) {
                (Some(Completion::Data(Ok(data))), Answer::Data { len }) => {
                    let n = data.len().min(len as usize);
                    self.emit(id, &Reply::Data(&data[..n]), io);
                    io.store.recycle(data);
                }
                (Some(Completion::Digests(Ok(digests))), Answer::Digests { algorithm, echo }) => {
                    self.emit_digests(id, algorithm, echo, &digests, io);
                }
                (Some(Completion::Done(result)), Answer::Status) => self.status(id, result, io),
                (
                    Some(
                        Completion::Data(Err(error))
                        | Completion::Digests(Err(error))
                        | Completion::Done(Err(error)),
                    ),
                    _,
                ) => self.status(id, Err(error), io),
                // The store answered another question: the peer still gets its one reply.
                (_, _) => self.status(id, Err(Code::Failure.into()), io),
            }
        }
    }

    fn emit(&mut self, id: u32, reply: &Reply<'_>, io: &mut Io<'_>) {
        let is_sent = reply::emit(io.out, id, reply);
        self.check(is_sent);
    }

    fn status(&mut self, id: u32, result: Result<(), StoreError>, io: &mut Io<'_>) {
        let StoreError { code, reason } = match result {
            Ok(()) => Code::Ok.into(),
            Err(error) => error,
        };
        let message = reason.as_bytes();
        let message = &message[..message.len().min(StoreError::REASON_BYTES_MAX)];
        let is_sent = if self.remote_version.is_some_and(|version| version >= 3) {
            reply::emit(io.out, id, &Reply::Status { code, message })
        } else {
            reply::emit_bare_status(io.out, id, code)
        };
        self.check(is_sent);
        io.store.status_sent(code);
    }

    fn check(&mut self, is_sent: bool) {
        if !is_sent {
            self.error = Some(Error::OutletRefused);
        }
    }
}

/// What became of one packet.
enum Served {
    /// It was served, with a reply of about so many bytes beyond a small one, and as much work as
    /// that many short requests.
    Done { reply_bytes: usize, work: u32 },
    /// It stays where it is: in the view, or in the waiting list.
    Later(Stop),
}

/// Bytes of the reply to a completed operation, at most.
fn completed_len(op: &Op) -> usize {
    let payload_len = match &op.completion {
        Some(Completion::Data(Ok(bytes)) | Completion::Digests(Ok(bytes))) => bytes.len(),
        Some(Completion::Data(Err(_)) | Completion::Digests(Err(_)) | Completion::Done(_))
        | None => 0,
    };
    SMALL_REPLY_LEN_MAX + payload_len
}
