//! Connections behind one socket, with a TCP engine each.
//!
//! The verbs are those of the engines. [`Endpoint::poll_transmit`] writes datagrams of one connection one
//! behind the other, all as long as the first but for the last, so that a driver can hand them to the
//! kernel at once.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use fullbore_base::Instant;
use fullbore_tcp::connection::{Connection, Error as TcpError, Event as TcpEvent, Info, State};
use fullbore_tcp::segment::{Pseudo, Segment};

use super::datagram::{HEADER_BYTES, LEN_MAX, PathId};
use super::door::{Door, Full, Route, Stats};
use super::keys::{Role, Secret};
use super::settings::{self, PathLimits, UNSENT_BYTES_MAX};

/// Datagrams written at once: what Linux takes in one call (UDP_MAX_SEGMENTS of older versions).
pub const BATCH_COUNT_MAX: usize = 64;

/// Bytes of them: the longest UDP datagram, which they count as until they are cut.
pub const BATCH_BYTES_MAX: usize = 65_535 - 48;

/// What the buffer holds that a batch is written to.
pub const BUFFER_BYTES: usize = BATCH_BYTES_MAX + LEN_MAX;

/// What a connection starts from.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Its name.
    pub id: PathId,
    /// What both ends know.
    pub secret: Secret,
    /// Which end this is.
    pub role: Role,
    /// Where the peer is; a server learns that from the first datagram.
    pub remote: Option<SocketAddr>,
    /// What the path takes.
    pub limits: PathLimits,
    /// How long the path takes there and back, where that is known.
    pub rtt: Option<Duration>,
}

/// Something to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first datagram of a peer has come.
    Arrived,
    /// Bytes may be read.
    Readable,
    /// There is room to write again.
    Writable,
    /// The peer writes nothing more.
    Finished,
    /// Over: see [`Endpoint::end`].
    Closed,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides were done.
    Done,
    /// The TCP connection failed.
    Tcp(TcpError),
    /// Nothing was heard for too long.
    Silence,
}

/// How long the last words of a connection that nobody has any more may take.
const LAST_WORDS_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Link {
    tcp: Connection,
    /// Its place in `due`.
    due_at: Option<Instant>,
    /// It is in `ready`.
    is_ready: bool,
    /// A write found no room.
    is_write_blocked: bool,
    /// Nobody reads or writes it any more: it goes once it has said all, and then at the latest.
    released_until: Option<Instant>,
    is_expired: bool,
}

impl Link {
    fn deadline(&self) -> Option<Instant> {
        let of_tcp = self.tcp.poll_timeout();
        of_tcp.into_iter().chain(self.released_until).min()
    }

    fn end(&self) -> Option<End> {
        let is_over = matches!(self.tcp.state(), State::Closed | State::TimeWait);
        if !is_over {
            return None;
        }
        Some(match self.tcp.error() {
            _ if self.is_expired => End::Silence,
            Some(error) => End::Tcp(error),
            None => End::Done,
        })
    }
}

/// Datagrams that leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: Route,
    /// Bytes written.
    pub len: usize,
    /// Bytes of each, but for the last, which may be shorter.
    pub segment_len: usize,
}

/// The connections behind one socket.
#[derive(Debug)]
pub struct Endpoint {
    door: Door<Link>,
    /// Connections that may have something to send, each once.
    ready: VecDeque<PathId>,
    /// When connections want to be called.
    due: BTreeSet<(Instant, PathId)>,
    /// A few for each connection, until they are polled.
    events: VecDeque<(PathId, Event)>,
    /// A datagram that was made and is longer than those of its batch.
    held: Option<(Route, Vec<u8>)>,
}

impl Endpoint {
    /// One for at most `paths_max` connections.
    #[must_use]
    pub fn new(paths_max: usize) -> Self {
        Self {
            door: Door::new(paths_max),
            ready: VecDeque::new(),
            due: BTreeSet::new(),
            events: VecDeque::new(),
            held: None,
        }
    }

    /// Counters of the door.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        self.door.stats()
    }

    /// Connections there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.door.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.door.is_empty()
    }

    /// Adds a connection. Bytes may be written at once.
    ///
    /// # Errors
    /// [`Full`].
    pub fn open(&mut self, now: Instant, opening: &Opening) -> Result<(), Full> {
        let keys = opening.secret.keys(opening.role);
        let millis = now.as_nanos() / 1_000_000;
        let config = settings::config(opening.limits, millis, opening.id.value());
        let accepted = settings::arrangement(&keys, opening.rtt);
        let link = Link {
            tcp: Connection::arranged(now, config, &accepted),
            due_at: None,
            is_ready: false,
            is_write_blocked: false,
            released_until: None,
            is_expired: false,
        };
        let both = (keys.sealer, keys.opener);
        let route = opening.remote.map(Route::from);
        self.door.add(now, opening.id, both, route, link)?;
        self.touch(opening.id);
        Ok(())
    }

    /// Where the peer of a connection is, once that is known.
    #[must_use]
    pub fn remote(&self, id: PathId) -> Option<SocketAddr> {
        self.door.route(id).map(|route| route.remote)
    }

    /// How a connection stands. O(1).
    #[must_use]
    pub fn info(&self, id: PathId) -> Option<Info> {
        self.door.get(id).map(|link| link.tcp.info())
    }

    /// Why a connection is over; `None` while it is not. One that is not there is done.
    #[must_use]
    pub fn end(&self, id: PathId) -> Option<End> {
        self.door.get(id).map_or(Some(End::Done), Link::end)
    }

    /// Takes a datagram that came from `from`. One that is not genuine or not new is counted and
    /// changes nothing else.
    pub fn handle_datagram(&mut self, now: Instant, from: Route, datagram: &[u8]) {
        let Ok(admitted) = self.door.handle_datagram(now, from, datagram) else {
            return;
        };
        let id = admitted.id;
        if admitted.is_first {
            self.events.push_back((id, Event::Arrived));
        }
        let segment = Segment::parse(&datagram[admitted.segment], Pseudo::Unchecked);
        if let (Ok(segment), Some(link)) = (segment, self.door.get_mut(id)) {
            link.tcp.handle_segment(now, &segment, false);
        }
        self.touch(id);
    }

    /// The peer is to be looked at again by [`Endpoint::poll_transmit`].
    fn touch(&mut self, id: PathId) {
        if let Some(link) = self.door.get_mut(id)
            && !std::mem::replace(&mut link.is_ready, true)
        {
            self.ready.push_back(id);
        }
    }

    /// Takes what there is room for of `bytes`; none means that [`Event::Writable`] will tell. O(bytes).
    ///
    /// # Errors
    /// How the connection ended.
    pub fn write(&mut self, id: PathId, bytes: &[u8]) -> Result<usize, End> {
        let link = self.door.get_mut(id).ok_or(End::Done)?;
        let room = UNSENT_BYTES_MAX.saturating_sub(link.tcp.notsent_bytes());
        let len = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
        let taken = match link.tcp.write(&bytes[..len]) {
            Ok(taken) => taken,
            Err(error) => return Err(link.end().unwrap_or(End::Tcp(error))),
        };
        link.is_write_blocked = taken < bytes.len();
        if taken > 0 {
            self.touch(id);
        }
        Ok(taken)
    }

    /// Reads into `buf`: `Ok(None)` when nothing is there yet, `Ok(Some(0))` at the end. O(bytes).
    ///
    /// # Errors
    /// How the connection ended, once all that came before was read.
    pub fn read(&mut self, now: Instant, id: PathId, buf: &mut [u8]) -> Result<Option<usize>, End> {
        let link = self.door.get_mut(id).ok_or(End::Done)?;
        let (first, second) = link.tcp.peek();
        let n = first.len().min(buf.len());
        buf[..n].copy_from_slice(&first[..n]);
        let m = second.len().min(buf.len() - n);
        buf[n..n + m].copy_from_slice(&second[..m]);
        if n + m > 0 {
            link.tcp.consume(now, n + m);
            self.touch(id);
            return Ok(Some(n + m));
        }
        match link.end() {
            _ if link.tcp.is_at_end() => Ok(Some(0)),
            Some(end) => Err(end),
            None => Ok(None),
        }
    }

    /// Nobody will read or write the connection any more. What was written still goes out.
    pub fn release(&mut self, now: Instant, id: PathId) {
        if self.door.route(id).is_none() {
            // Nobody came who could be told anything.
            self.remove(id);
        } else if let Some(link) = self.door.get_mut(id) {
            link.tcp.close();
            link.released_until = Some(now + LAST_WORDS_MAX);
            self.touch(id);
        }
    }

    /// Ends a connection at once; the peer is told.
    pub fn abort(&mut self, id: PathId) {
        if let Some(link) = self.door.get_mut(id) {
            link.tcp.abort();
            self.touch(id);
        }
    }

    /// A deadline may have passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.due.first() {
            if at > now {
                break;
            }
            self.due.pop_first();
            let Some(link) = self.door.get_mut(id) else {
                continue;
            };
            link.due_at = None;
            link.tcp.handle_timeout(now);
            if link.released_until.is_some_and(|until| until <= now) {
                link.released_until = Some(now);
                link.tcp.abort();
            }
            self.touch(id);
        }
        while let Some(id) = self.door.poll_expired(now) {
            self.on_expired(id);
        }
    }

    fn on_expired(&mut self, id: PathId) {
        if !self.door.has_arrived(id) && self.door.route(id).is_none() {
            // Announced, and nobody came.
            self.events.push_back((id, Event::Closed));
            self.remove(id);
        } else if let Some(link) = self.door.get_mut(id) {
            link.is_expired = true;
            // The peer is told, should it listen.
            link.tcp.abort();
            self.touch(id);
        }
    }

    fn remove(&mut self, id: PathId) {
        let link = self.door.remove(id);
        if let Some(at) = link.and_then(|link| link.due_at) {
            self.due.remove(&(at, id));
        }
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let of_links = self.due.first().map(|&(at, _)| at);
        of_links.into_iter().chain(self.door.poll_timeout()).min()
    }

    /// The next thing that a connection's owner should know. To be called until there is none, after
    /// [`Endpoint::poll_transmit`].
    #[must_use]
    pub fn poll_event(&mut self) -> Option<(PathId, Event)> {
        self.events.pop_front()
    }

    /// Whether [`Endpoint::poll_transmit`] is to be called.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.held.is_some() || !self.ready.is_empty()
    }

    /// Whether all that was written has left at least once, but for what has nowhere to go. O(n).
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        let mut links = self.door.iter();
        !self.has_output() && links.all(|link| link.tcp.notsent_bytes() == 0)
    }

    /// Writes datagrams that are to leave now to `out`, all of one connection; `None` when there are
    /// none. To be called until then after every other verb. O(bytes).
    ///
    /// # Panics
    /// When `out` has fewer than [`BUFFER_BYTES`] bytes.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        assert!(out.len() >= BUFFER_BYTES, "the buffer takes a batch");
        if let Some((to, held)) = self.held.take() {
            let len = held.len();
            out[..len].copy_from_slice(&held);
            return Some(Transmit {
                to,
                len,
                segment_len: len,
            });
        }
        while let Some(&id) = self.ready.front() {
            let transmit = self.fill(now, id, out);
            if transmit.is_some() {
                // Others have their turn before the rest of it.
                self.ready.rotate_left(1);
                return transmit;
            }
            self.ready.pop_front();
            self.rest(now, id);
        }
        None
    }

    /// Writes datagrams of one connection; `None` when it has nothing to send, or nowhere to.
    fn fill(&mut self, now: Instant, id: PathId, out: &mut [u8]) -> Option<Transmit> {
        let to = self.door.route(id)?;
        let (mut len, mut segment_len) = (0, 0);
        for _ in 0..BATCH_COUNT_MAX {
            if len + segment_len > BATCH_BYTES_MAX {
                break;
            }
            let tcp = &mut self.door.get_mut(id)?.tcp;
            let Some(segment) = tcp.poll_transmit(now, &mut out[len + HEADER_BYTES..]) else {
                break;
            };
            let Some(sealed) = self.door.seal(id, &mut out[len..], segment.len) else {
                break;
            };
            if len == 0 {
                segment_len = sealed;
            } else if sealed > segment_len {
                self.held = Some((to, out[len..len + sealed].to_vec()));
                break;
            }
            len += sealed;
            if sealed < segment_len {
                break;
            }
        }
        (len > 0).then_some(Transmit {
            to,
            len,
            segment_len,
        })
    }

    /// A connection has sent all that it may: when is it to be called, what is to be told of it?
    fn rest(&mut self, now: Instant, id: PathId) {
        let Some(link) = self.door.get_mut(id) else {
            return;
        };
        link.is_ready = false;
        while let Some(event) = link.tcp.poll_event() {
            let event = match event {
                TcpEvent::Readable => Event::Readable,
                TcpEvent::Finished => Event::Finished,
                TcpEvent::Closed => Event::Closed,
                // There is no handshake; room is judged below.
                TcpEvent::Connected | TcpEvent::Writable => continue,
            };
            self.events.push_back((id, event));
        }
        if link.is_write_blocked && link.tcp.notsent_bytes() <= UNSENT_BYTES_MAX / 2 {
            link.is_write_blocked = false;
            self.events.push_back((id, Event::Writable));
        }
        if link.released_until.is_some() {
            let unread = usize::try_from(link.tcp.readable_bytes()).expect("it is in memory");
            link.tcp.consume(now, unread);
            if link.end().is_some() {
                self.remove(id);
                return;
            }
        }
        let (was, at) = (link.due_at, link.deadline());
        if was == at {
            return;
        }
        link.due_at = at;
        if let Some(was) = was {
            self.due.remove(&(was, id));
        }
        if let Some(at) = at {
            self.due.insert((at, id));
        }
    }
}

#[cfg(test)]
mod tests;
