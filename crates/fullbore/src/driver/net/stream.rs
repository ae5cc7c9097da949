//! One connection as a stream of bytes.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use fullbore_tcp::connection::{Agreed, Info, State};

use super::{Net, info, io_error};
use crate::driver::stream::Tunnel;
use crate::driver::tcp_info::TcpInfo;
use crate::stack::{ConnectionId, Error, Read};

/// A connection. Dropped, it still delivers what was written, as long as its task runs.
#[derive(Debug)]
pub struct Connection {
    net: Net,
    id: ConnectionId,
}

impl Connection {
    pub(super) const fn new(net: Net, id: ConnectionId) -> Self {
        Self { net, id }
    }

    pub(super) fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.net.lock();
        shared.check()?;
        let connection = shared.stack.connection(self.id);
        let connection = connection.ok_or_else(|| io_error(Error::Unknown))?;
        if let Some(error) = connection.error() {
            return Poll::Ready(Err(io_error(Error::Connection(error))));
        }
        if !matches!(connection.state(), State::SynSent | State::SynReceived) {
            return Poll::Ready(Ok(()));
        }
        shared.waiting(self.id).writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads into `buf`, which is not empty: `Ok(0)` is the end. Pending: the waker is kept.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut shared = self.net.lock();
        let now = self.net.clock.now();
        match shared.stack.read(now, self.id, buf).map_err(io_error)? {
            Read::Bytes(count) => {
                // The window may have to be told.
                shared.stir();
                Poll::Ready(Ok(count))
            }
            Read::End => Poll::Ready(Ok(0)),
            Read::Later => {
                shared.check()?;
                shared.waiting(self.id).reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Takes what it can of `bytes`, which are not empty. Pending: the waker is kept.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = self.net.lock();
        shared.check()?;
        let taken = shared.stack.write(self.id, bytes).map_err(io_error)?;
        if taken == 0 {
            shared.waiting(self.id).writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        shared.stir();
        Poll::Ready(Ok(taken))
    }

    /// Reads into `buf`, which is not empty: 0 is the end.
    ///
    /// # Errors
    /// The connection's.
    pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buf)).await
    }

    /// Writes all of `bytes`: it has been taken, not yet delivered.
    ///
    /// # Errors
    /// The connection's.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = poll_fn(|cx| self.poll_write(cx, bytes)).await?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Sends nothing more after what was written. Reading goes on.
    pub fn shutdown(&mut self) {
        let mut shared = self.net.lock();
        shared.stack.shutdown(self.id);
        shared.stir();
    }

    /// Ends it at once; the peer is told by a RST.
    pub fn abort(&mut self) {
        let mut shared = self.net.lock();
        shared.stack.abort(self.id);
        shared.stir();
    }

    /// How it stands.
    #[must_use]
    pub fn info(&self) -> Option<Info> {
        self.net.lock().stack.info(self.id)
    }

    /// What the handshake agreed.
    #[must_use]
    pub fn agreed(&self) -> Option<Agreed> {
        let shared = self.net.lock();
        Some(*shared.stack.connection(self.id)?.agreed())
    }

    /// The peer's address.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        let tuple = self.net.lock().stack.tuple(self.id)?;
        Some(tuple.remote.into())
    }

    /// Our address.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        let tuple = self.net.lock().stack.tuple(self.id)?;
        Some(tuple.local.into())
    }
}

impl Tunnel for Connection {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Self::poll_read(self, cx, buf)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(self, cx, bytes)
    }

    fn tcp_info(&self) -> Option<TcpInfo> {
        self.info().map(|info| info::of(&info))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A task that is gone has nobody to tell.
        let Ok(mut shared) = self.net.shared.lock() else {
            return;
        };
        *shared.waiting(self.id) = super::Waiting::default();
        shared.stack.release(self.net.clock.now(), self.id);
        shared.stir();
    }
}
