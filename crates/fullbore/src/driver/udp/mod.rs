//! Connections of our own TCP over a UDP socket: [`crate::udp`] with a socket, a clock and wakers.
//!
//! [`Udp`] makes connections and waits for them, [`Driver`] is the task that has to run for anything to
//! happen, and a [`Link`] is a connection as a stream of bytes, which an SSH session runs over as over any
//! other. All of it lives on one thread.

mod socket;
mod task;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use fullbore_tcp::connection::{Error as TcpError, Info};

pub use self::socket::Bound;
use self::socket::Socket;
pub use self::task::Driver;
use super::clock::Clock;
use super::net::info;
use super::stream::Tunnel;
use super::tcp_info::TcpInfo;
use crate::udp::datagram::PathId;
use crate::udp::door::{Full, Stats};
use crate::udp::endpoint::{End, Endpoint, Event, Opening};
use crate::udp::settings::PathLimits;

/// The MTU that is assumed where the kernel does not tell: Ethernet's.
const MTU_DEFAULT: usize = 1500;

/// What is known of the way to `peer` before anything was sent.
#[must_use]
pub fn limits_towards(peer: SocketAddr) -> PathLimits {
    let mtu = socket::mtu_towards(peer).unwrap_or(MTU_DEFAULT);
    PathLimits::new(peer.ip(), mtu)
}

/// Who waits for what at one connection.
#[derive(Debug, Default)]
struct Waiting {
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// What the task and the connections share.
#[derive(Debug)]
struct State {
    endpoint: Endpoint,
    /// Connections that somebody has, and who waits there.
    waiting: BTreeMap<PathId, Waiting>,
    /// Connections whose peer has come, or that ended before: nobody has taken them yet. At most as many
    /// as there are connections, twice.
    news: VecDeque<News>,
    accepting: Option<Waker>,
    /// Wait until there is no connection, or nothing to send, any more.
    draining: Vec<Waker>,
    /// The task's.
    driver: Option<Waker>,
    /// The socket broke.
    failure: Option<io::ErrorKind>,
}

/// What became of a connection that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Its peer has come: [`Udp::take`] is next.
    Arrived(PathId),
    /// Nobody came.
    Expired(PathId),
}

impl State {
    /// Has the task look at what changed.
    fn stir(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    /// Wakes whoever waits for what happened.
    fn tell(&mut self) {
        while let Some((id, event)) = self.endpoint.poll_event() {
            let news = match event {
                Event::Arrived if !self.waiting.contains_key(&id) => Some(News::Arrived(id)),
                Event::Closed if !self.waiting.contains_key(&id) => Some(News::Expired(id)),
                Event::Arrived
                | Event::Closed
                | Event::Readable
                | Event::Writable
                | Event::Finished => None,
            };
            if let Some(news) = news {
                self.news.push_back(news);
                self.accepting.take().into_iter().for_each(Waker::wake);
            }
            let Some(waiting) = self.waiting.get_mut(&id) else {
                continue;
            };
            let is_read = event != Event::Writable;
            let is_write = matches!(event, Event::Writable | Event::Closed);
            let reader = waiting.reader.take_if(|_| is_read);
            let writer = waiting.writer.take_if(|_| is_write);
            reader.into_iter().chain(writer).for_each(Waker::wake);
        }
        // They look again by themselves.
        self.draining.drain(..).for_each(Waker::wake);
    }

    fn fail(&mut self, kind: io::ErrorKind) {
        self.failure = Some(kind);
        for waiting in self.waiting.values_mut() {
            let both = [waiting.reader.take(), waiting.writer.take()];
            both.into_iter().flatten().for_each(Waker::wake);
        }
        let others = self.accepting.take().into_iter();
        others.chain(self.draining.drain(..)).for_each(Waker::wake);
    }

    fn check(&self) -> io::Result<()> {
        self.failure.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

/// A UDP socket with connections. Clones are of the same.
#[derive(Clone, Debug)]
pub struct Udp {
    state: Rc<RefCell<State>>,
    local: SocketAddr,
    clock: Clock,
}

impl Udp {
    /// Connections over a socket, at most `paths_max`.
    ///
    /// # Errors
    /// When the socket cannot be watched.
    pub fn new(bound: Bound, paths_max: usize, clock: Clock) -> io::Result<(Self, Driver)> {
        let socket = Socket::new(bound)?;
        let udp = Self {
            local: socket.local(),
            state: Rc::new(RefCell::new(State {
                endpoint: Endpoint::new(paths_max),
                waiting: BTreeMap::new(),
                news: VecDeque::new(),
                accepting: None,
                draining: Vec::new(),
                driver: None,
                failure: None,
            })),
            clock,
        };
        let driver = Driver::new(udp.clone(), socket);
        Ok((udp, driver))
    }

    /// Where the socket is bound.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Counters of the door.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *self.state.borrow().endpoint.stats()
    }

    /// Announces a connection whose peer will come: [`Udp::news`] tells when it has.
    ///
    /// # Errors
    /// [`Full`].
    pub fn expect(&self, opening: &Opening) -> Result<(), Full> {
        let mut state = self.state.borrow_mut();
        state.endpoint.open(self.clock.now(), opening)?;
        state.stir();
        Ok(())
    }

    /// Opens a connection to a peer that expects it.
    ///
    /// # Errors
    /// [`Full`].
    pub fn open(&self, opening: &Opening) -> Result<Link, Full> {
        self.expect(opening)?;
        Ok(self.take(opening.id))
    }

    /// What became of a connection that was announced.
    ///
    /// # Errors
    /// When the socket is broken.
    pub async fn news(&self) -> io::Result<News> {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if let Some(news) = state.news.pop_front() {
                return Poll::Ready(Ok(news));
            }
            state.check()?;
            state.accepting = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The connection of that name, which nobody has yet.
    #[must_use]
    pub fn take(&self, id: PathId) -> Link {
        let mut state = self.state.borrow_mut();
        state.waiting.insert(id, Waiting::default());
        Link {
            udp: self.clone(),
            id,
        }
    }

    /// Waits until no connection is left: what was written before they were dropped has arrived by then, or
    /// their peers are gone.
    pub async fn drained(&self) {
        self.until(Endpoint::is_empty).await;
    }

    /// Waits until all that was written has left: for goodbyes, which nobody waits to see answered.
    pub async fn flushed(&self) {
        self.until(Endpoint::is_flushed).await;
    }

    async fn until(&self, is_done: impl Fn(&Endpoint) -> bool) {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if is_done(&state.endpoint) || state.failure.is_some() {
                return Poll::Ready(());
            }
            state.draining.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A connection as a stream of bytes. Dropped, it still delivers what was written, as long as the task
/// runs.
#[derive(Debug)]
pub struct Link {
    udp: Udp,
    id: PathId,
}

impl Link {
    /// Where the peer is now.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.udp.state.borrow().endpoint.remote(self.id)
    }

    /// How the TCP connection inside stands.
    #[must_use]
    pub fn info(&self) -> Option<Info> {
        self.udp.state.borrow().endpoint.info(self.id)
    }

    /// One that may end the connection while another part of the program has it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper {
            udp: self.udp.clone(),
            id: self.id,
        }
    }
}

/// Ends a connection.
#[derive(Clone, Debug)]
pub struct Stopper {
    udp: Udp,
    id: PathId,
}

impl Stopper {
    /// Ends it at once; whoever reads or writes it is told.
    pub fn stop(&self) {
        let mut state = self.udp.state.borrow_mut();
        state.endpoint.abort(self.id);
        state.stir();
    }
}

impl Tunnel for Link {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.udp.state.borrow_mut();
        let now = self.udp.clock.now();
        match state.endpoint.read(now, self.id, buf) {
            Ok(Some(count)) => {
                if count > 0 && state.endpoint.has_output() {
                    // The window may have to be told.
                    state.stir();
                }
                Poll::Ready(Ok(count))
            }
            Ok(None) => {
                state.check()?;
                if let Some(waiting) = state.waiting.get_mut(&self.id) {
                    waiting.reader = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            Err(End::Done) => Poll::Ready(Ok(0)),
            Err(end) => Poll::Ready(Err(io_error(end))),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.udp.state.borrow_mut();
        state.check()?;
        let taken = state.endpoint.write(self.id, bytes).map_err(io_error)?;
        if taken == 0 {
            if let Some(waiting) = state.waiting.get_mut(&self.id) {
                waiting.writer = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        state.stir();
        Poll::Ready(Ok(taken))
    }

    fn tcp_info(&self) -> Option<TcpInfo> {
        self.info().map(|info| info::of(&info))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut state = self.udp.state.borrow_mut();
        state.waiting.remove(&self.id);
        state.endpoint.release(self.udp.clock.now(), self.id);
        state.stir();
    }
}

/// An end as sockets tell it.
fn io_error(end: End) -> io::Error {
    let kind = match end {
        End::Done | End::Tcp(TcpError::ApiMisuse(_)) => io::ErrorKind::BrokenPipe,
        End::Silence | End::Tcp(TcpError::TimedOut) => io::ErrorKind::TimedOut,
        End::Tcp(TcpError::Reset | TcpError::Refused) => io::ErrorKind::ConnectionReset,
        End::Tcp(TcpError::Aborted) => io::ErrorKind::ConnectionAborted,
    };
    kind.into()
}
