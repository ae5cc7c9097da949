//! Many TCP connections and listening ports behind one object, without I/O: segments with addresses
//! in, segments out, events by name.
//!
//! The verbs are the engines' own. Everything is O(log connections) beside what the connection itself
//! costs. A segment's bytes are copied once: from where they arrived into its connection's buffer, and
//! from there into the [`Batch`] that leaves.
//!
//! `slots` has the connections, `listening` the ports, `waits` what is left in TIME-WAIT; `app` is what
//! an application does with a connection, `opening` how one begins.

mod app;
mod batch;
pub mod config;
mod listening;
mod opening;
mod slots;
mod waits;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;

use fullbore_base::Instant;
use fullbore_tcp::Seq;
use fullbore_tcp::connection::{self, Connection};
use fullbore_tcp::isn::{Generator, Randomness, Tuple};
use fullbore_tcp::listener::Heard;
use fullbore_tcp::segment::{Flags, HEADER_BYTES, HEADER_BYTES_MAX, Header, Pseudo, Segment};
use fullbore_tcp::time_wait::Late;

pub use self::app::Read;
pub use self::batch::{BATCH_SEGMENTS_MAX, Batch, Outgoing};
pub use self::config::StackConfig;
pub use self::listening::ListenerId;
pub use self::slots::ConnectionId;

use self::config::{ORPHAN_PATIENCE, REPLIES_MAX, TURN_SEGMENTS};
use self::listening::Listeners;
use self::slots::Slots;
use self::waits::TimeWaits;

/// A segment that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The address it came to: ours.
    pub local: IpAddr,
    /// The address it came from.
    pub remote: IpAddr,
    /// Header and payload. Several that a wire has joined to one are one.
    pub bytes: &'a [u8],
    /// Whether the wire vouches for its checksum.
    pub is_verified: bool,
    /// Whether the path marked it (RFC 3168 CE).
    pub is_marked: bool,
}

/// Something to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// At a connection.
    Connection(ConnectionId, connection::Event),
    /// A connection waits to be accepted.
    Incoming(ListenerId),
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// As many connections as there may be.
    Full,
    /// The address is taken.
    InUse,
    /// Addresses of two families, or none.
    Address,
    /// No connection of this name.
    Unknown,
    /// The connection's own error.
    Connection(connection::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too many connections",
            Self::InUse => "the address is in use",
            Self::Address => "no connection is possible between these addresses",
            Self::Unknown => "the connection is over",
            Self::Connection(error) => return error.fmt(f),
        })
    }
}

impl std::error::Error for Error {}

/// What a stack did beside what its connections count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackStats {
    /// Segments that arrived.
    pub segments_received: u64,
    /// Of them, those that are none, or whose checksum is wrong.
    pub invalid: u64,
    /// Segments of no connection that were answered with a RST.
    pub refused: u64,
    /// Segments dropped since there were too many connections, or too many to accept.
    pub overflowed: u64,
    /// Segments that left.
    pub segments_sent: u64,
}

/// Many connections.
pub struct Stack {
    config: StackConfig,
    randomness: Box<dyn Randomness + Send>,
    generator: Generator,
    slots: Slots,
    by_tuple: BTreeMap<Tuple, ConnectionId>,
    /// Whom the last segment was for: the next one is often for the same.
    last: Option<(Tuple, ConnectionId)>,
    listeners: Listeners,
    time_waits: TimeWaits,
    /// Headers that leave ahead of everything else.
    replies: VecDeque<(Tuple, Header)>,
    /// Connections that may have a segment to send.
    ready: VecDeque<ConnectionId>,
    /// Connections that may have an event.
    noted: VecDeque<ConnectionId>,
    incoming: VecDeque<ListenerId>,
    stats: StackStats,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("connections", &self.slots.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Stack {
    /// With nothing in it. `randomness` is for secrets.
    #[must_use]
    pub fn new(config: StackConfig, mut randomness: Box<dyn Randomness + Send>) -> Self {
        Self {
            config,
            generator: Generator::new(&mut *randomness),
            randomness,
            slots: Slots::default(),
            by_tuple: BTreeMap::new(),
            last: None,
            listeners: Listeners::default(),
            time_waits: TimeWaits::default(),
            replies: VecDeque::new(),
            ready: VecDeque::new(),
            noted: VecDeque::new(),
            incoming: VecDeque::new(),
            stats: StackStats::default(),
        }
    }

    /// What it was told.
    #[must_use]
    pub const fn config(&self) -> &StackConfig {
        &self.config
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> &StackStats {
        &self.stats
    }

    /// Connections that are not over, or not let go.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.slots.len()
    }

    /// Connections in TIME-WAIT that nothing else is kept of.
    #[must_use]
    pub fn time_wait_count(&self) -> usize {
        self.time_waits.len()
    }

    /// The longest segment that leaves: what a batch must have room for, beside its headroom.
    #[must_use]
    pub fn segment_len_max(&self) -> usize {
        let mss = usize::from(self.mss_max());
        (mss + HEADER_BYTES).max(HEADER_BYTES_MAX)
    }

    /// What a listener counts.
    #[must_use]
    pub fn listen_stats(&self, id: ListenerId) -> Option<&fullbore_tcp::listener::ListenStats> {
        self.listeners.stats(id)
    }

    /// Takes a segment. What it makes necessary leaves with the next [`Stack::poll_transmit`].
    pub fn handle_segment(&mut self, now: Instant, arrival: &Arrival<'_>) {
        self.stats.segments_received += 1;
        let (local, remote) = (arrival.local, arrival.remote);
        let pseudo = if arrival.is_verified {
            Pseudo::Unchecked
        } else {
            self.pseudo(local, remote)
        };
        let Ok(segment) = Segment::parse(arrival.bytes, pseudo) else {
            self.stats.invalid += 1;
            return;
        };
        let tuple = Tuple {
            local: (local, segment.header.destination_port),
            remote: (remote, segment.header.source_port),
        };
        match self.find(&tuple) {
            Some(id) => self.handle_own(now, id, &segment, arrival.is_marked),
            None => self.handle_stray(now, &tuple, &segment, arrival.is_marked),
        }
    }

    fn find(&mut self, tuple: &Tuple) -> Option<ConnectionId> {
        if let Some((last, id)) = self.last
            && last == *tuple
        {
            return Some(id);
        }
        let id = *self.by_tuple.get(tuple)?;
        self.last = Some((*tuple, id));
        Some(id)
    }

    fn handle_own(&mut self, now: Instant, id: ConnectionId, segment: &Segment<'_>, marked: bool) {
        let entry = self.slots.get_mut(id).expect("found by its addresses");
        entry.connection.handle_segment(now, segment, marked);
        // RFC 2525 2.17: nobody will read it, and the peer should know.
        if entry.orphan.is_some() && entry.connection.readable_bytes() > 0 {
            entry.connection.abort();
        }
        self.touch(id);
    }

    fn handle_stray(&mut self, now: Instant, tuple: &Tuple, segment: &Segment<'_>, marked: bool) {
        match self.time_waits.handle_segment(now, tuple, segment) {
            Some(Late::Drop) => return,
            Some(Late::Answer(header)) => return self.reply(tuple, header),
            Some(Late::Reopen) => self.time_waits.remove(tuple),
            None => {}
        }
        let Some(id) = self.listeners.at(tuple.local) else {
            return self.refuse(tuple, segment);
        };
        let is_full = self.slots.len() >= self.config.connections_max;
        let listening = self.listeners.get_mut(id).expect("found by its address");
        let is_full = is_full || listening.accepted.len() >= self.config.accepts_max;
        if is_full && !segment.header.flags.has(Flags::RST) {
            self.stats.overflowed += 1;
            return;
        }
        let listener = &mut listening.listener;
        let heard = listener.handle_segment(now, tuple, segment, marked);
        self.listeners.arm(id);
        match heard {
            Heard::Nothing => {}
            Heard::Reply(header) => self.reply(tuple, header),
            Heard::Accepted(connection) => self.take_in(id, tuple, connection),
        }
    }

    fn take_in(&mut self, listener: ListenerId, tuple: &Tuple, connection: Box<Connection>) {
        let id = self.insert(*tuple, connection);
        let listening = self.listeners.get_mut(listener).expect("it accepted");
        listening.accepted.push_back(id);
        if listening.accepted.len() == 1 {
            self.incoming.push_back(listener);
        }
    }

    fn refuse(&mut self, tuple: &Tuple, segment: &Segment<'_>) {
        if let Some(header) = Connection::refuse(segment) {
            self.stats.refused += 1;
            self.reply(tuple, header);
        }
    }

    fn reply(&mut self, tuple: &Tuple, header: Header) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.push_back((*tuple, header));
        }
    }

    /// A router dropped a segment of ours, whose first header words it sends back: `seq` as it stands
    /// there. Its link takes segments of `mss` as the option counts it.
    pub fn handle_too_big(&mut self, now: Instant, tuple: &Tuple, seq: Seq, mss: u16) {
        if let Some(id) = self.find(tuple) {
            let entry = self.slots.get_mut(id).expect("found by its addresses");
            entry.connection.handle_too_big(now, seq, mss);
            self.touch(id);
        }
    }

    /// A deadline may have passed; an early call does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.time_waits.handle_timeout(now);
        while let Some(id) = self.slots.take_due(now) {
            let entry = self.slots.get_mut(id).expect("it was due");
            entry.connection.handle_timeout(now);
            entry.give_up_orphan(now);
            self.touch(id);
        }
    }

    /// The next deadline, once [`Stack::poll_transmit`] has nothing more. Some are early.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.slots.next_deadline(),
            self.listeners.poll_timeout(),
            self.time_waits.poll_timeout(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The next thing that the application should know.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(listener) = self.incoming.pop_front() {
            return Some(Event::Incoming(listener));
        }
        while let Some(&id) = self.noted.front() {
            if let Some(entry) = self.slots.get_mut(id) {
                if let Some(event) = entry.poll_event() {
                    return Some(Event::Connection(id, event));
                }
                entry.is_noted = false;
            }
            self.noted.pop_front();
        }
        None
    }

    /// Whether [`Stack::poll_transmit`] may have something.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.ready.is_empty() || !self.replies.is_empty()
    }

    /// Fills `batch` with what is to leave now, as far as it has room. To be called until the batch
    /// stays empty after every other verb.
    pub fn poll_transmit(&mut self, now: Instant, batch: &mut Batch) {
        self.collect_handshakes(now);
        let len_max = self.segment_len_max();
        while batch.has_room(len_max) {
            if let Some((tuple, header)) = self.replies.pop_front() {
                let pseudo = self.pseudo(tuple.local.0, tuple.remote.0);
                let addresses = (tuple.local.0, tuple.remote.0);
                batch.push(addresses, |out| Some((header.emit(out, 0, pseudo), false)));
                self.stats.segments_sent += 1;
            } else if let Some(id) = self.ready.pop_front() {
                self.transmit(now, id, len_max, batch);
            } else {
                return;
            }
        }
    }

    fn collect_handshakes(&mut self, now: Instant) {
        while self.replies.len() < REPLIES_MAX
            && let Some(reply) = self.listeners.poll_transmit(now)
        {
            self.replies.push_back(reply);
        }
    }

    /// One connection's turn. What has no room now comes back at the end of the queue.
    fn transmit(&mut self, now: Instant, id: ConnectionId, len_max: usize, batch: &mut Batch) {
        let Some(entry) = self.slots.get_mut(id) else {
            return;
        };
        let addresses = (entry.tuple.local.0, entry.tuple.remote.0);
        let connection = &mut entry.connection;
        for _ in 0..TURN_SEGMENTS {
            if !batch.has_room(len_max) {
                break;
            }
            let is_pushed = batch.push(addresses, |out| {
                let transmit = connection.poll_transmit(now, out)?;
                Some((transmit.len, transmit.is_ect))
            });
            if !is_pushed {
                return self.settle(id);
            }
            self.stats.segments_sent += 1;
        }
        self.ready.push_back(id);
    }

    /// A connection has nothing to send until something happens.
    fn settle(&mut self, id: ConnectionId) {
        let notsent_max = self.config.notsent_max;
        let Some(entry) = self.slots.get_mut(id) else {
            return;
        };
        entry.is_ready = false;
        if entry.unblock_writer(notsent_max) && !entry.is_noted {
            entry.is_noted = true;
            self.noted.push_back(id);
        }
        let orphan = entry.orphan;
        if orphan.is_none() {
            let at = entry.connection.poll_timeout();
            if entry.connection.is_closed() {
                // Its ports are free, though its error may still be asked for.
                let tuple = entry.tuple;
                self.free(&tuple, id);
            }
            return self.slots.arm(id, at);
        }
        if let Some(wait) = entry.connection.time_wait() {
            let tuple = entry.tuple;
            self.forget(id);
            let count_max = self.config.time_waits_max;
            return self.time_waits.insert(tuple, wait, count_max);
        }
        if entry.connection.is_closed() {
            return self.forget(id);
        }
        let patience = orphan.map(|orphan| orphan.progress_at + ORPHAN_PATIENCE);
        let own = entry.connection.poll_timeout();
        let at = [own, patience].into_iter().flatten().min();
        self.slots.arm(id, at);
    }

    fn forget(&mut self, id: ConnectionId) {
        if let Some(entry) = self.slots.remove(id) {
            self.free(&entry.tuple, id);
        }
    }

    fn free(&mut self, tuple: &Tuple, id: ConnectionId) {
        if self.by_tuple.get(tuple) == Some(&id) {
            self.by_tuple.remove(tuple);
            self.last = None;
        }
    }

    /// Something happened at a connection: it may have something to send, and to say.
    fn touch(&mut self, id: ConnectionId) {
        let Some(entry) = self.slots.get_mut(id) else {
            return;
        };
        if !entry.is_ready {
            entry.is_ready = true;
            self.ready.push_back(id);
        }
        if !entry.is_noted {
            entry.is_noted = true;
            self.noted.push_back(id);
        }
    }
}

#[cfg(test)]
mod tests;
