//! Joins a connection of our TCP with one of the kernel's: any server behind our stack.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use fullbore::driver::net::Connection;
use tokio::net::TcpStream;

use super::job::Done;

/// Bytes in between, for each direction.
const BUFFER_BYTES: usize = 256 * 1024;

/// Bytes on their way from one connection to the other.
struct Way {
    buf: Vec<u8>,
    start: usize,
    end: usize,
    total: u64,
    /// The reading side has ended, and the writing side knows.
    is_over: bool,
}

/// What either connection does in its own way.
trait End {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    fn shutdown(&mut self);
}

impl End for Connection {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Self::poll_read(self, cx, buf)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(self, cx, bytes)
    }

    fn shutdown(&mut self) {
        Self::shutdown(self);
    }
}

impl End for TcpStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            match self.try_read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(cx))?;
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn shutdown(&mut self) {
        // One that is gone has nothing to be told.
        let _ = rustix::net::shutdown(&*self, rustix::net::Shutdown::Write);
    }
}

impl Way {
    fn new() -> Self {
        Self {
            buf: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            total: 0,
            is_over: false,
        }
    }

    /// Moves what can be moved; ready at the end.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn End,
        to: &mut dyn End,
    ) -> Poll<io::Result<()>> {
        while !self.is_over {
            if self.start == self.end {
                let count = ready!(from.poll_read(cx, &mut self.buf))?;
                (self.start, self.end) = (0, count);
                if count == 0 {
                    to.shutdown();
                    self.is_over = true;
                    break;
                }
            }
            let count = ready!(to.poll_write(cx, &self.buf[self.start..self.end]))?;
            self.start += count;
            self.total += count as u64;
        }
        Poll::Ready(Ok(()))
    }
}

/// Forwards until both sides have ended.
pub async fn run(to: SocketAddr, near: &mut Connection) -> Done {
    let (mut there, mut back) = (Way::new(), Way::new());
    let result = join(to, near, &mut there, &mut back).await;
    Done {
        sent: back.total,
        received: there.total,
        error: result.err().map(|e| e.to_string()),
        ..Done::default()
    }
}

async fn join(
    to: SocketAddr,
    near: &mut Connection,
    there: &mut Way,
    back: &mut Way,
) -> io::Result<()> {
    let mut far = TcpStream::connect(to).await?;
    far.set_nodelay(true)?;
    poll_fn(|cx| {
        let out = there.poll(cx, near, &mut far)?;
        let home = back.poll(cx, &mut far, near)?;
        if out.is_ready() && home.is_ready() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    })
    .await
}
