//! TCP connections of our own over anything that carries segments.
//!
//! A [`Wire`] moves batches of segments and knows nothing of connections; a [`Driver`] is the task that
//! runs a [`Stack`] over it; [`Net`] makes connections, which are streams as sockets are. Connections
//! may be used on other threads than the task's.

pub(super) mod alarm;
pub(super) mod info;
mod stream;
mod task;

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use fullbore_ssh::provider::SecureRandom as _;
use fullbore_tcp::Seq;
use fullbore_tcp::connection::{Config, Event as ConnectionEvent};
use fullbore_tcp::isn::{Randomness, Tuple};
use fullbore_tcp::listener::ListenStats;

pub use self::stream::Connection;
pub use self::task::Driver;

use super::clock::Clock;
use super::random::SystemRandom;
use crate::stack::{
    Arrival, Batch, ConnectionId, Error, Event, ListenerId, Stack, StackConfig, StackStats,
};

/// What a wire brings.
#[derive(Clone, Copy, Debug)]
pub enum Received<'a> {
    /// A segment. It is taken from where it lies: one copy, into its connection's buffer.
    Segment(Arrival<'a>),
    /// A router dropped one of ours: it was too long.
    TooBig {
        /// Whose it was.
        tuple: Tuple,
        /// The sequence number that the router sent back.
        seq: Seq,
        /// What fits, as the MSS option counts it.
        mss: u16,
    },
}

/// What carries segments: a TUN device, a UDP socket. Never blocks.
pub trait Wire: fmt::Debug + Send {
    /// Bytes that it writes in front of each segment.
    fn headroom(&self) -> usize;

    /// Receives once - a batch where the system gives one - and hands on what came. Ready when more may
    /// wait, be it that nothing was for us. Pending: the waker is kept.
    ///
    /// # Errors
    /// Only what ends the wire. That one peer cannot be reached does not.
    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Poll<io::Result<()>>;

    /// Sends from the front of `batch` and takes what left; at least one segment when ready. What cannot
    /// leave for a reason of its own is taken as well: segments may be lost. Pending: the waker is
    /// kept.
    ///
    /// # Errors
    /// As for [`Wire::poll_recv`].
    fn poll_send(&mut self, cx: &mut Context<'_>, batch: &mut Batch) -> Poll<io::Result<()>>;
}

/// Who waits for what at one connection.
#[derive(Debug, Default)]
struct Waiting {
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// What the task and the connections share.
#[derive(Debug)]
struct Shared {
    stack: Stack,
    /// By [`ConnectionId::index`].
    waiting: Vec<Waiting>,
    accepting: BTreeMap<ListenerId, Waker>,
    /// Wait for the last connection to be over.
    draining: Vec<Waker>,
    /// The task's.
    driver: Option<Waker>,
    /// Why nothing goes on any more.
    failure: Option<(io::ErrorKind, String)>,
}

impl Shared {
    fn waiting(&mut self, id: ConnectionId) -> &mut Waiting {
        if self.waiting.len() <= id.index() {
            self.waiting.resize_with(id.index() + 1, Waiting::default);
        }
        &mut self.waiting[id.index()]
    }

    /// Has the task look at what changed.
    fn stir(&mut self) {
        if let Some(waker) = &self.driver {
            waker.wake_by_ref();
        }
    }

    /// Wakes whoever waits for what happened.
    fn tell(&mut self) {
        while let Some(event) = self.stack.poll_event() {
            match event {
                Event::Incoming(listener) => {
                    self.accepting
                        .remove(&listener)
                        .into_iter()
                        .for_each(Waker::wake);
                }
                Event::Connection(id, event) => self.tell_connection(id, event),
            }
        }
        if self.stack.connection_count() == 0 {
            self.draining.drain(..).for_each(Waker::wake);
        }
    }

    fn tell_connection(&mut self, id: ConnectionId, event: ConnectionEvent) {
        let waiting = self.waiting(id);
        let is_read = event != ConnectionEvent::Writable;
        let is_write = matches!(
            event,
            ConnectionEvent::Writable | ConnectionEvent::Connected | ConnectionEvent::Closed
        );
        let reader = waiting.reader.take_if(|_| is_read);
        let writer = waiting.writer.take_if(|_| is_write);
        reader.into_iter().chain(writer).for_each(Waker::wake);
    }

    fn fail(&mut self, error: &io::Error) {
        self.failure = Some((error.kind(), error.to_string()));
        for waiting in &mut self.waiting {
            let both = [waiting.reader.take(), waiting.writer.take()];
            both.into_iter().flatten().for_each(Waker::wake);
        }
        std::mem::take(&mut self.accepting)
            .into_values()
            .chain(self.draining.drain(..))
            .for_each(Waker::wake);
    }

    fn check(&self) -> io::Result<()> {
        match &self.failure {
            Some((kind, why)) => Err(io::Error::new(*kind, why.clone())),
            None => Ok(()),
        }
    }
}

/// Secrets of the stack from the machine's generator.
struct Secrets(SystemRandom);

impl Randomness for Secrets {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

/// Makes connections and waits for them. Clones are of the same stack.
#[derive(Clone, Debug)]
pub struct Net {
    shared: Arc<Mutex<Shared>>,
    clock: Clock,
}

impl Net {
    /// A stack over `wire`, and the task that has to run for anything to happen.
    #[must_use]
    pub fn new(config: StackConfig, wire: Box<dyn Wire>, clock: Clock) -> (Self, Driver) {
        let secrets = Box::new(Secrets(SystemRandom::new()));
        let shared = Arc::new(Mutex::new(Shared {
            stack: Stack::new(config, secrets),
            waiting: Vec::new(),
            accepting: BTreeMap::new(),
            draining: Vec::new(),
            driver: None,
            failure: None,
        }));
        let net = Self { shared, clock };
        let driver = Driver::new(net.clone(), wire);
        (net, driver)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("no holder panics")
    }

    /// Connects to `remote` from `local`, whose port may be 0 for any.
    ///
    /// # Errors
    /// What keeps it from being made; [`io::ErrorKind::ConnectionRefused`] where nobody listens.
    pub async fn connect(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        config: &Config,
    ) -> io::Result<Connection> {
        let mut connection = {
            let mut shared = self.lock();
            shared.check()?;
            let now = self.clock.now();
            let id = shared.stack.connect(now, local, remote, config);
            let id = id.map_err(io_error)?;
            shared.stir();
            Connection::new(self.clone(), id)
        };
        poll_fn(|cx| connection.poll_connected(cx)).await?;
        Ok(connection)
    }

    /// Waits for connections at `local`, whose address may be unspecified for all of its family.
    ///
    /// # Errors
    /// When the address is taken or none to listen at.
    pub fn listen(&self, local: SocketAddr, config: &Config) -> io::Result<Listener> {
        let mut shared = self.lock();
        shared.check()?;
        let id = shared.stack.listen(local, config).map_err(io_error)?;
        Ok(Listener {
            net: self.clone(),
            id,
        })
    }

    /// What the stack counts.
    #[must_use]
    pub fn stats(&self) -> StackStats {
        *self.lock().stack.stats()
    }

    /// Connections that are not over.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.lock().stack.connection_count()
    }

    /// Waits until no connection is left: what was written before they were dropped has arrived by then.
    /// Whoever is in a hurry sets a time limit.
    pub async fn drained(&self) {
        poll_fn(|cx| {
            let mut shared = self.lock();
            if shared.stack.connection_count() == 0 || shared.failure.is_some() {
                return Poll::Ready(());
            }
            shared.draining.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A port that waits for connections; no longer once it is dropped.
#[derive(Debug)]
pub struct Listener {
    net: Net,
    id: ListenerId,
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// When the wire is broken.
    pub async fn accept(&self) -> io::Result<Connection> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The same; one task at a time may wait.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        let mut shared = self.net.lock();
        shared.check()?;
        if let Some(id) = shared.stack.accept(self.id) {
            drop(shared);
            return Poll::Ready(Ok(Connection::new(self.net.clone(), id)));
        }
        shared.accepting.insert(self.id, cx.waker().clone());
        Poll::Pending
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> ListenStats {
        let shared = self.net.lock();
        shared
            .stack
            .listen_stats(self.id)
            .copied()
            .unwrap_or_default()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut shared = self.net.lock();
        let now = self.net.clock.now();
        shared.accepting.remove(&self.id);
        shared.stack.unlisten(now, self.id);
        shared.stir();
    }
}

/// A stack's error as sockets tell it.
fn io_error(error: Error) -> io::Error {
    use fullbore_tcp::connection::Error as Tcp;
    let kind = match error {
        Error::Full => io::ErrorKind::QuotaExceeded,
        Error::InUse => io::ErrorKind::AddrInUse,
        Error::Address => io::ErrorKind::AddrNotAvailable,
        Error::Unknown => io::ErrorKind::NotConnected,
        Error::Connection(Tcp::Refused) => io::ErrorKind::ConnectionRefused,
        Error::Connection(Tcp::Reset) => io::ErrorKind::ConnectionReset,
        Error::Connection(Tcp::Aborted) => io::ErrorKind::ConnectionAborted,
        Error::Connection(Tcp::TimedOut) => io::ErrorKind::TimedOut,
        Error::Connection(Tcp::ApiMisuse(_)) => io::ErrorKind::BrokenPipe,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests;
