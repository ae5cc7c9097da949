//! The SFTP client engine, version 3 (draft-ietf-secsh-filexfer-02) with OpenSSH's extensions.
//!
//! Sans-IO: bytes come in through [`Client::handle_input`], leave through [`Client::poll_transmit`],
//! time is an argument. Two kinds of work share one session and overtake each other freely:
//! requests of the caller ([`Client::request`]), whose replies are kept until taken, and *bulk*
//! transfers ([`Client::start_get`], [`Client::start_put`]), whose READs and WRITEs the engine
//! makes, pipelines, matches and repeats itself; their file bytes pass through [`Blocks`] in place.
//!
//! Bounds: outstanding requests, their bytes, encoded requests that wait, kept replies, transfers;
//! all in [`config`]. Cost per reply is O(log of what is outstanding).
//!
//! ```text
//! INIT sent ──VERSION──► ready (limits@openssh.com asked at once) ──error──► failed, for good
//! ```

mod bulk;
pub mod config;
mod error;
mod get;
mod input;
mod output;
mod overdue;
mod pipeline;
mod put;
mod request_len;
mod server_info;
mod table;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use fullbore_base::{ByteQueue, Instant};

pub use bulk::{Blocks, BulkId, BulkReport, Handle, Progress};
pub use config::Config;
pub use error::{BlockError, BulkError, Error, Misbehaviour};
pub use server_info::ServerInfo;

use bulk::{Bulk, Bulks, Direction};
use config::{BULKS_MAX, QUEUE_BYTES_MAX, REPLY_BYTES_MAX, REQUEST_LEN_MIN, REQUESTS_RESERVED};
use overdue::Overdue;
use pipeline::Pipeline;
use request_len::RequestLen;
use table::{Expect, Purpose, Table};

use crate::proto::{LEN_WORD, Packet, Reply, Request};

/// Names one request of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u32);

/// What the caller should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// VERSION arrived: [`Client::server_info`] knows the extensions.
    Ready,
    /// The reply to a request is here: [`Client::take_reply`].
    Reply(RequestId),
    /// A transfer moved: [`Client::progress`]. At most one waits per transfer.
    Progress(BulkId),
    /// A transfer is over, all its replies are in: [`Client::take_bulk`].
    BulkDone(BulkId),
    /// The session is over: [`Client::error`]. Said once.
    Failed,
}

/// One whole reply, kept for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyMessage {
    kind: u8,
    body: Box<[u8]>,
}

impl ReplyMessage {
    fn new(packet: Packet<'_>) -> Self {
        Self {
            kind: packet.kind,
            body: packet.body.into(),
        }
    }

    fn packet(&self) -> Packet<'_> {
        Packet {
            kind: self.kind,
            body: &self.body,
            total_len: LEN_WORD + 1 + self.body.len(),
        }
    }

    /// The reply. Of a type that answers its request; handles are of lawful length, names and
    /// data all there.
    #[must_use]
    pub fn reply(&self) -> Reply<'_> {
        let (_, reply) = Reply::parse(self.packet()).expect("parsed when it arrived");
        reply
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests sent, those of transfers included.
    pub requests: u64,
    /// Replies received.
    pub replies: u64,
    /// READs answered with less than was asked for, not at the end of the file.
    pub short_replies: u64,
    /// Requests put off because `outstanding_bytes_max` was reached.
    pub outstanding_limited: u64,
}

/// One client session.
#[derive(Debug)]
pub struct Client {
    config: Config,
    /// INIT was sent.
    is_started: bool,
    server: Option<ServerInfo>,
    read_len: RequestLen,
    write_len: RequestLen,
    /// A transfer whose READs were cut, and to what.
    cut: Option<(BulkId, u32)>,
    table: Table,
    /// Encoded requests on their way to the outlet.
    queue: ByteQueue,
    /// Encoded requests that wait for VERSION.
    held: ByteQueue,
    /// One encoded request; kept for its memory.
    scratch: Vec<u8>,
    bulks: Bulks,
    /// Transfers that want to send, in turn.
    ready: VecDeque<BulkId>,
    pipeline: Pipeline,
    inbound: input::Inbound,
    /// Bytes of the last view that were not taken.
    view_left: usize,
    replies: BTreeMap<RequestId, ReplyMessage>,
    replies_bytes: usize,
    events: VecDeque<Event>,
    /// When something last arrived, or work began while there was none.
    quiet_since: Instant,
    overdue: Overdue,
    error: Option<Error>,
    stats: Stats,
}

impl Client {
    /// A session at its start; the first [`Client::poll_transmit`] sends INIT.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let len = config::REQUEST_LEN_DEFAULT.min(config.request_len_max);
        let read_len = RequestLen::new(len, config.request_len_max);
        Self {
            config,
            is_started: false,
            server: None,
            read_len,
            write_len: RequestLen::new(len, len),
            cut: None,
            table: Table::default(),
            queue: ByteQueue::new(2 * QUEUE_BYTES_MAX),
            held: ByteQueue::new(QUEUE_BYTES_MAX),
            scratch: Vec::new(),
            bulks: Bulks::default(),
            ready: VecDeque::new(),
            pipeline: Pipeline::default(),
            inbound: input::Inbound::default(),
            view_left: 0,
            replies: BTreeMap::new(),
            replies_bytes: 0,
            events: VecDeque::new(),
            quiet_since: Instant::ZERO,
            overdue: Overdue::default(),
            error: None,
            stats: Stats::default(),
        }
    }

    /// What the server said about itself; `None` until [`Event::Ready`].
    #[must_use]
    pub const fn server_info(&self) -> Option<&ServerInfo> {
        self.server.as_ref()
    }

    /// Why the session is over.
    #[must_use]
    pub const fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Counters since the start.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Bytes of READs and WRITEs without a reply.
    #[must_use]
    pub const fn outstanding_bytes(&self) -> u64 {
        self.pipeline.outstanding()
    }

    /// Requests without a reply.
    #[must_use]
    pub fn outstanding_count(&self) -> usize {
        self.table.len()
    }

    /// Whether there is something to send that does not wait for a reply: it is held up by the outlet
    /// or by [`Client::outstanding_bytes_max`].
    #[must_use]
    pub fn has_more_to_send(&self) -> bool {
        !self.queue.is_empty() || !self.ready.is_empty()
    }

    /// Whether a transfer reads. O(transfers).
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.bulks.is_any_reading()
    }

    /// Sets how many bytes of READs and WRITEs may be unanswered at once at most, from now on. What is
    /// outstanding already stays so. One request is always allowed.
    pub const fn set_outstanding_bytes_max(&mut self, bytes: u64) {
        self.config.outstanding_bytes_max = bytes;
    }

    /// Bytes of READs and WRITEs that may be unanswered now: what the path holds, and at most what
    /// [`Client::set_outstanding_bytes_max`] said.
    #[must_use]
    pub fn outstanding_bytes_max(&self) -> u64 {
        self.pipeline
            .target()
            .min(self.config.outstanding_bytes_max)
    }

    /// Most bytes of READs and WRITEs that ever were unanswered.
    #[must_use]
    pub const fn outstanding_bytes_peak(&self) -> u64 {
        self.pipeline.outstanding_peak()
    }

    /// Bytes of READs and WRITEs answered per round trip of late.
    #[must_use]
    pub fn delivered_per_rtt(&self) -> u64 {
        self.pipeline.delivered_per_rtt()
    }

    /// Takes a round trip that the transport measured: what may be unanswered follows the path more
    /// closely than answers tell that wait behind others. O(1).
    pub fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        self.pipeline.on_rtt(now, rtt);
    }

    /// The shortest time of late from a request to its reply; `None` before the first.
    #[must_use]
    pub fn rtt_min(&self, now: Instant) -> Option<Duration> {
        self.pipeline.rtt().min(now)
    }

    /// Time that READs or WRITEs waited for nothing but [`Client::outstanding_bytes_max`], or for a
    /// free place among the requests.
    #[must_use]
    pub fn pipeline_limited(&self, now: Instant) -> Duration {
        self.pipeline.limited(now)
    }

    /// Time that no READ or WRITE was unanswered, from the first one's reply on.
    #[must_use]
    pub fn pipeline_idle(&self, now: Instant) -> Duration {
        self.pipeline.idle(now)
    }

    /// Length of READs now, in bytes.
    #[must_use]
    pub const fn read_len(&self) -> u32 {
        self.read_len.len()
    }

    /// Length of WRITEs now, in bytes. An outlet must at times have room for one such, with up to
    /// 300 bytes of header.
    #[must_use]
    pub const fn write_len(&self) -> u32 {
        self.write_len.len()
    }

    /// Sets how long READs and WRITEs may become where the server does not say: what is known of it.
    pub fn set_request_len_unless_told(&mut self, max: u32) {
        let max = max.clamp(
            REQUEST_LEN_MIN,
            self.config.request_len_max.max(REQUEST_LEN_MIN),
        );
        if self
            .server
            .as_ref()
            .is_none_or(|server| !server.has_limits())
        {
            self.read_len.limit(max);
            self.write_len.limit(max);
            self.write_len.allow(max);
        }
    }

    /// Says that the server is known to serve in order from one input buffer, so that requests may go
    /// out behind INIT: [`Config::pipeline_init`], learned later.
    pub fn pipeline_init(&mut self) {
        self.config.pipeline_init = true;
        let moved = self.queue.push(self.held.as_slice());
        debug_assert_eq!(
            moved,
            self.held.len(),
            "the queue's limit is twice that of `held`"
        );
        self.held.consume(moved);
    }

    /// Whether a request of ordinary size would be taken now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room_for(1)
    }

    /// Whether so many requests of ordinary size would be taken now.
    #[must_use]
    pub fn has_room_for(&self, count: usize) -> bool {
        let queued = self.queue.len().max(self.held.len());
        self.error.is_none() && self.table.room() >= count && queued < QUEUE_BYTES_MAX / 2
    }

    /// Queues a request of the caller. It is sent by the next [`Client::poll_transmit`]s, in order
    /// and before any request of a transfer.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] when [`Client::has_room`] would have said no, else what ended the
    /// session.
    pub fn request(&mut self, now: Instant, request: &Request<'_>) -> Result<RequestId, Error> {
        let expect = Expect::of(request);
        let slow = table::is_slow(request);
        self.submit(now, Purpose::Call { expect, slow }, request)
            .map(RequestId)
    }

    fn submit(
        &mut self,
        now: Instant,
        purpose: Purpose,
        request: &Request<'_>,
    ) -> Result<u32, Error> {
        self.check()?;
        let was_idle = !self.is_busy();
        let id = self
            .table
            .insert(now, purpose)
            .ok_or(Error::ApiMisuse("more requests than has_room() allows"))?;
        self.scratch.clear();
        request.encode(id, &mut self.scratch);
        let is_held = self.server.is_none() && !self.config.pipeline_init;
        let queue = if is_held {
            &mut self.held
        } else {
            &mut self.queue
        };
        if self.scratch.len() > QUEUE_BYTES_MAX.saturating_sub(queue.len()) {
            self.table.remove(id);
            return Err(Error::ApiMisuse("longer requests than has_room() allows"));
        }
        let taken = queue.push(&self.scratch);
        debug_assert_eq!(taken, self.scratch.len(), "the limit was checked");
        if was_idle {
            self.on_busy(now);
        }
        self.stats.requests += 1;
        Ok(id)
    }

    /// Says that nobody waits for the reply to `id` any more. If it turns out to be a new handle,
    /// the engine closes it.
    pub fn forget(&mut self, id: RequestId) {
        if let Some(reply) = self.replies.remove(&id) {
            self.replies_bytes -= reply.packet().total_len;
            self.close_unwanted(self.quiet_since, &reply.reply());
        } else {
            self.table.forget(id.0);
        }
    }

    /// The reply to `id`, once [`Event::Reply`] named it.
    pub fn take_reply(&mut self, id: RequestId) -> Option<ReplyMessage> {
        let reply = self.replies.remove(&id)?;
        self.replies_bytes -= reply.packet().total_len;
        Some(reply)
    }

    /// Reads a file from `offset` to its end. `size_hint` is where the end is expected; it
    /// costs nothing when wrong but a round trip. `handle` must stay open until
    /// [`Event::BulkDone`].
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] when [`config::BULKS_MAX`] transfers are not yet taken.
    pub fn start_get(
        &mut self,
        now: Instant,
        handle: Handle,
        offset: u64,
        size_hint: u64,
    ) -> Result<BulkId, Error> {
        let get = get::Get::new(offset, size_hint, u64::MAX);
        self.start(now, handle, Direction::Get(get))
    }

    /// Reads the bytes of `range`, or fewer where the file ends inside it.
    ///
    /// # Errors
    /// As [`Client::start_get`].
    pub fn start_get_range(
        &mut self,
        now: Instant,
        handle: Handle,
        range: Range<u64>,
    ) -> Result<BulkId, Error> {
        let get = get::Get::new(range.start, range.end, range.end.max(range.start));
        self.start(now, handle, Direction::Get(get))
    }

    /// Writes a file from `offset` to the end of its source. `handle` must stay open until
    /// [`Event::BulkDone`].
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] when [`config::BULKS_MAX`] transfers are not yet taken.
    pub fn start_put(
        &mut self,
        now: Instant,
        handle: Handle,
        offset: u64,
    ) -> Result<BulkId, Error> {
        let put = put::Put::new(offset, u64::MAX);
        self.start(now, handle, Direction::Put(put))
    }

    /// Writes the bytes of `range`, or fewer where the source ends inside it.
    ///
    /// # Errors
    /// As [`Client::start_put`].
    pub fn start_put_range(
        &mut self,
        now: Instant,
        handle: Handle,
        range: Range<u64>,
    ) -> Result<BulkId, Error> {
        let put = put::Put::new(range.start, range.end.max(range.start));
        self.start(now, handle, Direction::Put(put))
    }

    fn start(
        &mut self,
        now: Instant,
        handle: Handle,
        direction: Direction,
    ) -> Result<BulkId, Error> {
        self.check()?;
        let was_idle = !self.is_busy();
        let bulk = Bulk::new(handle, direction, self.config.request_len_max);
        let id = self
            .bulks
            .insert(bulk)
            .ok_or(Error::ApiMisuse("more transfers than BULKS_MAX"))?;
        if was_idle {
            self.on_busy(now);
        }
        // An empty range is done at once.
        self.settle(id);
        Ok(id)
    }

    /// Lets the transfer `id`, once it is its turn, send all that it has to before any other has its
    /// turn again: for parts of one file, which are to be read and written one behind the other.
    /// Other transfers wait that long, so parts should be short.
    pub fn hold_turn(&mut self, id: BulkId) {
        if let Some(bulk) = self.bulks.get_mut(id) {
            bulk.holds_turn = true;
        }
    }

    /// Whether another transfer can start.
    #[must_use]
    pub const fn has_bulk_room(&self) -> bool {
        self.bulks.len() < BULKS_MAX
    }

    /// Stops a transfer: no [`Blocks`] call for it from now on. Ends with [`Event::BulkDone`]
    /// once its outstanding requests are answered, until when its handle must stay open.
    pub fn cancel(&mut self, id: BulkId) {
        if let Some(bulk) = self.bulks.get_mut(id) {
            bulk.fail(BulkError::Cancelled);
        }
        self.settle(id);
    }

    /// How far the transfer `id` is.
    #[must_use]
    pub fn progress(&self, id: BulkId) -> Option<Progress> {
        let bulk = self.bulks.get(id)?;
        Some(Progress {
            bytes: bulk.bytes,
            frontier: bulk.frontier(),
        })
    }

    /// How the transfer `id` ended. After [`Event::BulkDone`], or when the session has failed;
    /// then `end` says from where it can be resumed.
    pub fn take_bulk(&mut self, id: BulkId) -> Option<BulkReport> {
        if self.error.is_none() && !self.bulks.get(id)?.done {
            return None;
        }
        let bulk = self.bulks.remove(id)?;
        Some(BulkReport {
            bytes: bulk.bytes,
            end: bulk.frontier(),
            error: bulk.error,
        })
    }

    /// What the caller should know next.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Progress(id) = event
            && let Some(bulk) = self.bulks.get_mut(id)
        {
            bulk.progress_queued = false;
        }
        Some(event)
    }

    /// When [`Client::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent_at = self.quiet_since + self.patience();
        let look_at = self.overdue.look_at();
        self.is_awaited()
            .then(|| look_at.map_or(silent_at, |at| at.min(silent_at)))
    }

    /// Fails the session when the server has been silent for too long, or has forgotten a request.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.is_awaited() {
            return;
        }
        if self.is_input_held() {
            // Not the server's silence: its replies wait for the caller.
            self.on_busy(now);
            return;
        }
        let timeout = self.config.reply_timeout;
        if now >= self.quiet_since + self.patience() {
            self.fail(Error::Silent(self.patience()));
        } else if let Some(limit) = self.overdue.look(now, timeout)
            && self.table.is_any_made_before(limit)
        {
            self.fail(Error::Unanswered(timeout));
        }
    }

    /// For how long nothing has come from the server that is waited for, and how long that may be; `None`
    /// while nothing is waited for.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Option<(Duration, Duration)> {
        self.is_awaited().then(|| {
            (
                now.saturating_duration_since(self.quiet_since),
                self.patience(),
            )
        })
    }

    fn is_awaited(&self) -> bool {
        self.error.is_none() && self.is_started && self.is_busy()
    }

    /// Something is waited for from now on.
    fn on_busy(&mut self, now: Instant) {
        self.quiet_since = now;
        self.overdue.start();
    }

    /// Counts the server's silence from now: what was asked before waited on this side.
    pub const fn restart_patience(&mut self, now: Instant) {
        self.quiet_since = now;
    }

    /// Whether [`Client::handle_input`] takes nothing because replies wait to be taken.
    #[must_use]
    pub const fn is_input_held(&self) -> bool {
        self.replies_bytes >= REPLY_BYTES_MAX
    }

    /// The byte stream ended. An error only if something was outstanding.
    pub fn handle_eof(&mut self) {
        self.fail(Error::Closed);
    }

    fn patience(&self) -> Duration {
        if self.table.has_slow() {
            self.config.slow_reply_timeout
        } else {
            self.config.reply_timeout
        }
    }

    fn is_busy(&self) -> bool {
        self.server.is_none() || self.table.len() > 0 || !self.ready.is_empty()
    }

    fn check(&self) -> Result<(), Error> {
        self.error.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: Error) {
        if self.error.is_none() {
            self.error = Some(error);
            self.events.push_back(Event::Failed);
        }
    }

    /// Lists the transfer among those that may send, if it wants to.
    fn note_ready(&mut self, id: BulkId) {
        if let Some(bulk) = self.bulks.get_mut(id)
            && !bulk.in_ready
            && bulk.wants()
        {
            bulk.in_ready = true;
            self.ready.push_back(id);
        }
    }

    fn note_progress(&mut self, id: BulkId) {
        if let Some(bulk) = self.bulks.get_mut(id)
            && !bulk.progress_queued
        {
            bulk.progress_queued = true;
            self.events.push_back(Event::Progress(id));
        }
    }

    /// Tells the caller if the transfer is over; lets it send again if it is not.
    fn settle(&mut self, id: BulkId) {
        let Some(bulk) = self.bulks.get_mut(id) else {
            return;
        };
        if bulk.is_settled() {
            bulk.done = true;
            self.events.push_back(Event::BulkDone(id));
        } else {
            self.note_ready(id);
        }
    }

    /// Takes the server's limits as evidence of what it serves.
    fn adopt_limits(&mut self) {
        let Some(server) = &self.server else { return };
        let max = self.config.request_len_max;
        let clamp = |limit: u64| (limit.min(u64::from(max)) as u32).max(REQUEST_LEN_MIN.min(max));
        if let Some(len) = server.read_len().map(clamp) {
            self.read_len = RequestLen::new(len, len);
        }
        if let Some(len) = server.write_len().map(clamp) {
            self.write_len = RequestLen::new(len, len);
        }
    }

    /// Whether transfers leave enough of the table for the caller's requests.
    fn has_bulk_slot(&self) -> bool {
        self.table.room() > REQUESTS_RESERVED
    }

    /// Closes a handle that nobody waits for.
    fn close_unwanted(&mut self, now: Instant, reply: &Reply<'_>) {
        if let Reply::Handle(handle) = *reply {
            let purpose = Purpose::Forgotten {
                expect: Expect::Status,
                slow: false,
            };
            // Without room the handle stays open until the session ends: nobody's data is at
            // stake.
            let _ = self.submit(now, purpose, &Request::Close { handle });
        }
    }
}
