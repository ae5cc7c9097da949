//! Which descriptors are ready: `poll` and `epoll`.
//!
//! An edge is a change since the last time that it was told: more bytes arrived, the stream ended or broke,
//! or a write found no room since then and would find some now.

use std::collections::BTreeMap;

use fullbore_base::Instant;
use fullbore_tcp::connection::State;

use super::{Entry, Fd, Outcome, Role, Sockets, Stop, errno_of, fail};

/// A descriptor and what is asked of it, by `POLL*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    pub fd: Fd,
    pub events: i16,
}

/// What an epoll descriptor watches, by `EPOLL*`, and the word that it gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    pub events: u32,
    pub word: u64,
}

/// What a socket had come to when an edge was told: how often it changed, for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Edges {
    reads: u64,
    writes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    watch: Watch,
    /// None until something was told.
    told: Option<Edges>,
}

/// An epoll descriptor.
#[derive(Debug, Default)]
pub struct Epoll {
    watched: BTreeMap<Fd, Watched>,
}

impl Epoll {
    pub fn forget(&mut self, fd: Fd) {
        self.watched.remove(&fd);
    }
}

/// Told whether they are asked for or not.
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
/// `EPOLLIN` and the like are the same bits as `POLLIN`; above them are the modes.
const EPOLL_EVENTS: u32 = 0xffff;

impl Sockets {
    /// What holds of `fd` now, by `POLL*`.
    fn readiness(&self, fd: Fd) -> i16 {
        let Ok(socket) = self.get(fd) else {
            return libc::POLLNVAL;
        };
        let id = match socket.role {
            Role::Fresh => return libc::POLLOUT | libc::POLLHUP,
            Role::Listening(port) if self.host.has_caller(port) => return libc::POLLIN,
            Role::Listening(_) => return 0,
            Role::Connected(id) => id,
        };
        let flow = self.host.flow(id);
        let connection = &flow.connection;
        let state = connection.state();
        if matches!(state, State::SynSent | State::SynReceived) {
            return 0;
        }
        let is_broken = errno_of(flow).is_some() && !socket.is_error_told;
        let has_fin = !state.takes_data();
        let is_over = state == State::Closed || (has_fin && socket.is_write_shut);
        let is_read_over = has_fin || socket.is_read_shut;
        let is_writable = connection.writable_bytes() > 0 || socket.is_write_shut || is_over;
        let bit = |is_on: bool, bit: i16| if is_on { bit } else { 0 };
        bit(
            connection.readable_bytes() > 0 || is_read_over,
            libc::POLLIN,
        ) | bit(is_writable, libc::POLLOUT)
            | bit(is_read_over, libc::POLLRDHUP)
            | bit(is_over, libc::POLLHUP)
            | bit(is_broken, libc::POLLERR)
    }

    fn answer(&self, interest: Interest) -> i16 {
        const NORMAL: i16 = libc::POLLIN | libc::POLLOUT;
        let mut ready = self.readiness(interest.fd);
        // Other names of the same.
        if ready & libc::POLLIN != 0 {
            ready |= libc::POLLRDNORM;
        }
        if ready & NORMAL & libc::POLLOUT != 0 {
            ready |= libc::POLLWRNORM;
        }
        ready & (interest.events | ALWAYS)
    }

    /// Writes what holds of each of `interests` to `ready`, and returns of how many something does.
    /// Blocks until one is, or the clock reaches `until`; for ever when there is none.
    ///
    /// # Errors
    /// Only that it blocks.
    pub fn poll(
        &self,
        interests: &[Interest],
        ready: &mut [i16],
        until: Option<Instant>,
    ) -> Outcome<usize> {
        let mut count = 0;
        for (interest, ready) in interests.iter().zip(ready) {
            // As POSIX: a negative one is skipped.
            *ready = if interest.fd < 0 {
                0
            } else {
                self.answer(*interest)
            };
            count += usize::from(*ready != 0);
        }
        if count > 0 || until.is_some_and(|at| at <= self.host.now()) {
            Ok(count)
        } else {
            Err(Stop::Wait(until))
        }
    }

    /// An epoll descriptor that will be called `fd`.
    pub fn epoll_create(&mut self, fd: Fd) {
        self.table.insert(fd, Entry::Epoll(Epoll::default()));
    }

    /// `EPOLL_CTL_ADD`, `_MOD` and `_DEL`.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `EINVAL`, `EBADF`.
    pub fn epoll_control(
        &mut self,
        epoll: Fd,
        operation: i32,
        fd: Fd,
        watch: Watch,
    ) -> Outcome<()> {
        let _ = self.get(fd)?;
        let watched = match self.table.get_mut(&epoll) {
            Some(Entry::Epoll(epoll)) => &mut epoll.watched,
            Some(Entry::Socket(_)) => return fail(libc::EINVAL),
            None => return fail(libc::EBADF),
        };
        let is_there = watched.contains_key(&fd);
        match operation {
            libc::EPOLL_CTL_ADD if is_there => return fail(libc::EEXIST),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !is_there => return fail(libc::ENOENT),
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {
                watched.insert(fd, Watched { watch, told: None });
            }
            libc::EPOLL_CTL_DEL => {
                watched.remove(&fd);
            }
            _ => return fail(libc::EINVAL),
        }
        Ok(())
    }

    /// What of a watched descriptor is to be told now.
    fn due(&self, fd: Fd, watched: &Watched) -> Option<u32> {
        const EDGES: u32 = libc::EPOLLET.cast_unsigned();
        const READS: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDHUP;
        const WRITES: i16 = libc::POLLOUT | libc::POLLWRNORM;
        let wanted = watched.watch.events & EPOLL_EVENTS;
        // One that was told once watches nothing, not even errors.
        if wanted == 0 {
            return None;
        }
        let wanted = u16::try_from(wanted).expect("it is masked");
        let events = i16::from_ne_bytes(wanted.to_ne_bytes());
        let holds = self.answer(Interest { fd, events });
        let mut news = holds;
        if let Some(told) = watched.told.filter(|_| watched.watch.events & EDGES != 0) {
            let edges = self.edges(fd);
            if edges.reads == told.reads {
                news &= !(READS | ALWAYS);
            }
            if edges.writes == told.writes {
                news &= !WRITES;
            }
        }
        // An edge of one direction tells of both.
        (news != 0).then(|| u32::from(holds.cast_unsigned()))
    }

    fn edges(&self, fd: Fd) -> Edges {
        let Ok(socket) = self.get(fd) else {
            return Edges::default();
        };
        let reads = match socket.role {
            Role::Fresh => 0,
            Role::Listening(port) => self.host.callers_ever(port),
            Role::Connected(id) => {
                let connection = &self.host.flow(id).connection;
                let state = connection.state();
                let ends = u64::from(!state.takes_data()) + u64::from(state == State::Closed);
                connection.stats().bytes_received + ends
            }
        };
        Edges {
            reads,
            writes: socket.refused_writes,
        }
    }

    /// What holds of the watched, at most `limit` of them. Blocks as [`Sockets::poll`].
    ///
    /// # Errors
    /// `EBADF`, `EINVAL`.
    pub fn epoll_wait(
        &mut self,
        epoll: Fd,
        limit: usize,
        until: Option<Instant>,
    ) -> Outcome<Vec<Watch>> {
        const ONCE: u32 = libc::EPOLLONESHOT.cast_unsigned();
        let watched = match self.table.get(&epoll) {
            Some(Entry::Epoll(epoll)) => epoll.watched.clone(),
            Some(Entry::Socket(_)) => return fail(libc::EINVAL),
            None => return fail(libc::EBADF),
        };
        let mut ready = Vec::new();
        for (fd, watched) in watched {
            let Some(events) = self.due(fd, &watched).filter(|_| ready.len() < limit) else {
                continue;
            };
            ready.push(Watch {
                events,
                ..watched.watch
            });
            let told = Some(self.edges(fd));
            if let Some(Entry::Epoll(epoll)) = self.table.get_mut(&epoll)
                && let Some(watched) = epoll.watched.get_mut(&fd)
            {
                watched.told = told;
                if watched.watch.events & ONCE != 0 {
                    watched.watch.events = 0;
                }
            }
        }
        if ready.is_empty() && until.is_none_or(|at| at > self.host.now()) {
            return Err(Stop::Wait(until));
        }
        Ok(ready)
    }
}
