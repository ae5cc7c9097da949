//! Byte streams a connection can run over, with raw non-blocking reads and writes: the bytes go
//! from the kernel to the engine's own memory and back, nothing is buffered here.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::tcp_info::{self, TcpInfo};

/// A descriptor in the reactor. [`AsyncFd`] wants [`AsRawFd`], which [`OwnedFd`] has.
#[derive(Debug)]
pub(super) struct Descriptor(OwnedFd);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[allow(unsafe_code)]
pub(super) fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<Descriptor>> {
    // SAFETY: `Descriptor` owns its descriptor, always names the same one and is never taken out
    // of the `AsyncFd`, so the descriptor outlives its registration.
    let registered = unsafe { AsyncFd::register_with_interest(Descriptor(fd), interest) };
    Ok(registered?)
}

/// A stream that is no descriptor: a channel of another connection that carries this one (ProxyJump), or a
/// connection of our own TCP.
pub trait Tunnel: std::fmt::Debug {
    /// Reads into `buf`: `Ok(0)` is the end. Pending: the waker is kept.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;
    /// Takes what it can of `bytes`. Pending: the waker is kept.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// What is known of the TCP connection, where this is one of our own.
    fn tcp_info(&self) -> Option<TcpInfo> {
        None
    }
}

/// A stream of bytes both ways: a socket, two pipes, or a channel of another connection.
#[derive(Debug)]
pub enum Stream {
    /// One descriptor for both directions.
    Socket(Duplex),
    /// A child process's standard input and output, with the child.
    Child(Box<ChildPipes>),
    /// A `direct-tcpip` channel, or a connection of our own TCP.
    Tunnel(Box<dyn Tunnel>),
}

/// One descriptor, readable and writable.
#[derive(Debug)]
pub struct Duplex(AsyncFd<Descriptor>);

/// The two pipes of a ProxyCommand. The child is killed when this is dropped.
#[derive(Debug)]
pub struct ChildPipes {
    stdout: AsyncFd<Descriptor>,
    stdin: AsyncFd<Descriptor>,
    _child: tokio::process::Child,
}

impl Stream {
    /// Takes over a connected socket.
    ///
    /// # Errors
    /// When the descriptor cannot be made non-blocking or registered.
    pub fn socket(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        Ok(Self::Socket(Duplex(register(fd, both)?)))
    }

    /// Takes over a child whose standard input and output are pipes.
    ///
    /// # Errors
    /// When a pipe is missing, or cannot be made non-blocking or registered.
    pub fn child(mut child: tokio::process::Child) -> io::Result<Self> {
        let missing = || io::Error::other("the child's input and output are not pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?.into_owned_fd()?;
        let stdout = child.stdout.take().ok_or_else(missing)?.into_owned_fd()?;
        for fd in [&stdin, &stdout] {
            rustix::io::ioctl_fionbio(fd, true)?;
            // A larger pipe means fewer wake-ups; the default does when this is refused.
            let _ = rustix::pipe::fcntl_setpipe_size(fd, PIPE_BYTES);
        }
        Ok(Self::Child(Box::new(ChildPipes {
            stdout: register(stdout, Interest::READABLE)?,
            stdin: register(stdin, Interest::WRITABLE)?,
            _child: child,
        })))
    }

    /// What the kernel, or our own TCP, knows about the connection; `None` where the stream is none.
    #[must_use]
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            Self::Socket(duplex) => tcp_info::read(duplex.0.get_ref().0.as_fd()).ok(),
            Self::Child(_) => None,
            Self::Tunnel(tunnel) => tunnel.tcp_info(),
        }
    }

    /// The address of the other end, where the stream is a socket of the Internet's.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(duplex) => {
                let peer = rustix::net::getpeername(&duplex.0.get_ref().0);
                SocketAddr::try_from(peer.ok()??).ok()
            }
            Self::Child(_) | Self::Tunnel(_) => None,
        }
    }

    /// The address of this end, likewise.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(duplex) => {
                let local = rustix::net::getsockname(&duplex.0.get_ref().0);
                SocketAddr::try_from(local.ok()?).ok()
            }
            Self::Child(_) | Self::Tunnel(_) => None,
        }
    }

    /// Whether the stream is a socket whose other end is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let peer = self.peer_address();
        peer.is_some_and(|address| address.ip().is_loopback())
    }

    /// Size of the socket's send buffer as it is now; `None` where the stream is no socket.
    #[must_use]
    pub fn send_buffer(&self) -> Option<u64> {
        match self {
            Self::Socket(duplex) => {
                let fd = &duplex.0.get_ref().0;
                let size = rustix::net::sockopt::socket_send_buffer_size(fd).ok()?;
                u64::try_from(size).ok()
            }
            Self::Child(_) | Self::Tunnel(_) => None,
        }
    }

    /// Reads once into `buf`, which is not empty. `Ok(0)` is the end of the stream.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(duplex) => read_fd(&duplex.0, cx, buf),
            Self::Child(pipes) => read_fd(&pipes.stdout, cx, buf),
            Self::Tunnel(tunnel) => tunnel.poll_read(cx, buf),
        }
    }

    /// Has the kernel acknowledge what was read at once, not together with the next bytes or 40 ms later.
    /// OpenSSH's server leaves Nagle's algorithm on until a session runs: its next message waits for
    /// that. The kernel forgets it, so it is said again after each read.
    pub fn acknowledge(&self) {
        if let Self::Socket(duplex) = self {
            // A socket that is none of TCP's has nothing to acknowledge.
            let _ = rustix::net::sockopt::set_tcp_quickack(&duplex.0.get_ref().0, true);
        }
    }

    /// Writes once from `bytes`, which is not empty; returns how many were taken.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(duplex) => write_fd(&duplex.0, cx, bytes),
            Self::Child(pipes) => write_fd(&pipes.stdin, cx, bytes),
            Self::Tunnel(tunnel) => tunnel.poll_write(cx, bytes),
        }
    }
}

/// What a ProxyCommand's pipes are asked to hold: Linux's default limit for unprivileged users.
const PIPE_BYTES: usize = 1 << 20;

/// One `read`. A short one means that the kernel has no more, so the reactor is asked to tell of
/// the next arrival (it reports edges) and no second call finds that out.
fn read_fd(
    fd: &AsyncFd<Descriptor>,
    cx: &mut Context<'_>,
    buf: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        let mut ready = ready!(fd.poll_read_ready(cx))?;
        let len = buf.len();
        match rustix::io::read(&fd.get_ref().0, &mut *buf) {
            Ok(n) => {
                if n < len && n > 0 {
                    ready.clear_ready();
                }
                return Poll::Ready(Ok(n));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
            Err(error) => return Poll::Ready(Err(error.into())),
        }
    }
}

/// One `write`. A short one means that the kernel's buffer is full.
fn write_fd(
    fd: &AsyncFd<Descriptor>,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    loop {
        let mut ready = ready!(fd.poll_write_ready(cx))?;
        match rustix::io::write(&fd.get_ref().0, bytes) {
            Ok(n) => {
                if n < bytes.len() {
                    ready.clear_ready();
                }
                return Poll::Ready(Ok(n));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
            Err(error) => return Poll::Ready(Err(error.into())),
        }
    }
}
