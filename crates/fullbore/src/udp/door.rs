//! The table of connections behind one socket: what arrives is let in or dropped, what leaves is
//! numbered and sealed.
//!
//! A datagram that nobody with the secret has sent, or that has come before, costs a search in the table
//! and at most one token, and changes nothing but a counter. A peer is where its newest genuine datagram
//! came from: an address translator may give it another port at any time, and what is old says nothing
//! of where it is now. Somebody on the way who passes a datagram on from elsewhere, ahead of itself, has
//! what is sent go there until the next genuine one: he can hold a connection up, and reads nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use fullbore_base::Instant;

use super::datagram::{self, HEADER_BYTES, Header, LEN_MAX, PathId, TOKEN_BYTES};
use super::guard::{NUMBERS_MAX, Opener, Sealer};
use super::replay::Window;

/// Connections behind one socket: as many as a server lets in.
pub const PATHS_MAX: usize = 4096;

/// How long a connection that was announced may take to send its first datagram.
pub const ARRIVAL_MAX: Duration = Duration::from_secs(30);

/// How long a peer may be silent. Its keepalive asks four times as often, and more.
pub const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Between which addresses datagrams of a connection go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The peer's.
    pub remote: SocketAddr,
    /// The one of this machine that the peer knows, where the socket has several.
    pub local: Option<IpAddr>,
}

impl From<SocketAddr> for Route {
    fn from(remote: SocketAddr) -> Self {
        Self {
            remote,
            local: None,
        }
    }
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Its length or its number cannot be.
    Malformed,
    /// There is no such connection.
    Unknown,
    /// It has come before, or is so old that it may have.
    Replayed,
    /// Its token is wrong.
    Forged,
}

/// What a door did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams let in.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Datagrams sealed.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// See [`Dropped`].
    pub malformed: u64,
    /// See [`Dropped`].
    pub unknown: u64,
    /// See [`Dropped`].
    pub replayed: u64,
    /// See [`Dropped`].
    pub forged: u64,
    /// Peers that came from another address.
    pub moved: u64,
    /// Connections that ended for silence.
    pub expired: u64,
}

impl Stats {
    const fn count(&mut self, dropped: Dropped) {
        let counter = match dropped {
            Dropped::Malformed => &mut self.malformed,
            Dropped::Unknown => &mut self.unknown,
            Dropped::Replayed => &mut self.replayed,
            Dropped::Forged => &mut self.forged,
        };
        *counter += 1;
    }
}

/// A connection cannot be added: there is one of that name, or there are [`PATHS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Debug)]
struct Path<T> {
    sealer: Sealer,
    opener: Opener,
    window: Window,
    /// Where the peer is; unknown until it has sent something.
    route: Option<Route>,
    has_arrived: bool,
    heard_at: Instant,
    /// Its place in the door's `due`; none once it was told to be silent.
    due_at: Option<Instant>,
    inner: T,
}

impl<T> Path<T> {
    fn expires_at(&self) -> Instant {
        let patience = if self.has_arrived {
            SILENCE_MAX
        } else {
            ARRIVAL_MAX
        };
        self.heard_at + patience
    }
}

/// A datagram that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its connection.
    pub id: PathId,
    /// Where its segment lies.
    pub segment: Range<usize>,
    /// It is the first of its connection.
    pub is_first: bool,
}

/// The door, with a `T` behind each connection.
#[derive(Debug)]
pub struct Door<T> {
    paths: BTreeMap<PathId, Path<T>>,
    /// When to look whether a connection is silent: not after it would expire.
    due: BTreeSet<(Instant, PathId)>,
    paths_max: usize,
    stats: Stats,
}

impl<T> Door<T> {
    /// One with room for `paths_max` connections, at most [`PATHS_MAX`].
    #[must_use]
    pub fn new(paths_max: usize) -> Self {
        Self {
            paths: BTreeMap::new(),
            due: BTreeSet::new(),
            paths_max: paths_max.min(PATHS_MAX),
            stats: Stats::default(),
        }
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Connections there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Adds a connection, whose peer is at the end of `route` if that is known. O(log n), as every verb.
    ///
    /// # Errors
    /// [`Full`].
    pub fn add(
        &mut self,
        now: Instant,
        id: PathId,
        (sealer, opener): (Sealer, Opener),
        route: Option<Route>,
        inner: T,
    ) -> Result<(), Full> {
        if self.paths.len() >= self.paths_max || self.paths.contains_key(&id) {
            return Err(Full);
        }
        let path = Path {
            sealer,
            opener,
            window: Window::default(),
            route,
            has_arrived: false,
            heard_at: now,
            due_at: Some(now + ARRIVAL_MAX),
            inner,
        };
        self.due.insert((now + ARRIVAL_MAX, id));
        self.paths.insert(id, path);
        Ok(())
    }

    /// Takes a connection away.
    pub fn remove(&mut self, id: PathId) -> Option<T> {
        let path = self.paths.remove(&id)?;
        if let Some(at) = path.due_at {
            self.due.remove(&(at, id));
        }
        Some(path.inner)
    }

    /// What is behind a connection.
    #[must_use]
    pub fn get(&self, id: PathId) -> Option<&T> {
        self.paths.get(&id).map(|path| &path.inner)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: PathId) -> Option<&mut T> {
        self.paths.get_mut(&id).map(|path| &mut path.inner)
    }

    /// What is behind each connection.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.paths.values().map(|path| &path.inner)
    }

    /// Where the peer of a connection is, once that is known.
    #[must_use]
    pub fn route(&self, id: PathId) -> Option<Route> {
        self.paths.get(&id)?.route
    }

    /// Lets a datagram in that came from `from`.
    ///
    /// # Errors
    /// Why it was dropped; it is counted.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: Route,
        datagram: &[u8],
    ) -> Result<Admitted, Dropped> {
        let admitted = self.judge(now, from, datagram);
        match &admitted {
            Ok(_) => {
                self.stats.received += 1;
                self.stats.received_bytes += datagram.len() as u64;
            }
            Err(dropped) => self.stats.count(*dropped),
        }
        admitted
    }

    fn judge(&mut self, now: Instant, from: Route, datagram: &[u8]) -> Result<Admitted, Dropped> {
        let header = Header::parse(datagram).ok_or(Dropped::Malformed)?;
        let Header { id, number } = header;
        if number >= NUMBERS_MAX {
            return Err(Dropped::Malformed);
        }
        let path = self.paths.get_mut(&id).ok_or(Dropped::Unknown)?;
        if !path.window.is_new(number) {
            return Err(Dropped::Replayed);
        }
        if !path.opener.is_genuine(number, datagram) {
            return Err(Dropped::Forged);
        }
        if path.window.is_newest(number) && path.route != Some(from) {
            let had_one = path.route.replace(from).is_some();
            self.stats.moved += u64::from(had_one);
        }
        path.window.take(number);
        path.heard_at = now;
        let is_first = !std::mem::replace(&mut path.has_arrived, true);
        Ok(Admitted {
            id,
            segment: datagram::segment(datagram.len()),
            is_first,
        })
    }

    /// Makes a datagram of the segment of `segment_len` bytes that stands in `out` behind
    /// [`HEADER_BYTES`]. Returns its length; `None` where there is no such connection any more, or it
    /// has used up its numbers. O(bytes).
    ///
    /// # Panics
    /// When `out` is too short, or the datagram would be longer than [`LEN_MAX`].
    #[must_use]
    pub fn seal(&mut self, id: PathId, out: &mut [u8], segment_len: usize) -> Option<usize> {
        let len = HEADER_BYTES + segment_len + TOKEN_BYTES;
        assert!(len <= LEN_MAX, "segments are bounded by the configuration");
        let path = self.paths.get_mut(&id)?;
        let number = path.sealer.take_number()?;
        Header { id, number }.emit(out);
        path.sealer.seal(number, &mut out[..len]);
        self.stats.sent += 1;
        self.stats.sent_bytes += len as u64;
        Some(len)
    }

    /// When [`Door::poll_expired`] may have something to say.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|&(at, _)| at)
    }

    /// The next connection that was silent for too long. Each is named once; it is for the caller to
    /// [`Door::remove`] it.
    #[must_use]
    pub fn poll_expired(&mut self, now: Instant) -> Option<PathId> {
        while let Some(&(at, id)) = self.due.first() {
            if at > now {
                return None;
            }
            self.due.pop_first();
            let path = self.paths.get_mut(&id).expect("it leaves both tables");
            let expires_at = path.expires_at();
            path.due_at = (expires_at > now).then_some(expires_at);
            match path.due_at {
                Some(at) => self.due.insert((at, id)),
                None => {
                    self.stats.expired += 1;
                    return Some(id);
                }
            };
        }
        None
    }

    /// Whether anything genuine has come from its peer.
    #[must_use]
    pub fn has_arrived(&self, id: PathId) -> bool {
        self.paths.get(&id).is_some_and(|path| path.has_arrived)
    }
}

#[cfg(test)]
mod tests;
