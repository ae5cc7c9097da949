//! What a program sees of the host: descriptors, calls, `errno`.
//!
//! POSIX's sockets as Linux has them. A call that would block says so by [`Stop::Wait`], and is made again
//! when something has changed or its time has come; who waits, and how, is the driver's business. What
//! a descriptor is, as well: here it is a number that somebody chose.

mod connect;
mod control;
mod info;
mod options;
mod poll;
mod stream;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use fullbore_base::Instant;
use fullbore_tcp::connection::{Error, State};

use crate::host::{Flow, FlowId, Host};
pub use connect::Opening;
use options::SocketOptions;
use poll::Epoll;
pub use poll::{Interest, Watch};
pub use stream::{Receive, Send};

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It failed.
    Errno(i32),
    /// It blocks: until something changes, or the clock reaches this.
    Wait(Option<Instant>),
}

/// What a call comes to.
pub type Outcome<T> = Result<T, Stop>;

/// The failure of a call.
pub const fn fail<T>(errno: i32) -> Outcome<T> {
    Err(Stop::Errno(errno))
}

/// A descriptor.
pub type Fd = i32;

/// What a socket is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Nothing yet, or no longer.
    Fresh,
    /// A port.
    Listening(u16),
    /// A connection.
    Connected(FlowId),
}

/// One socket.
#[derive(Debug)]
struct Socket {
    is_v4: bool,
    is_nonblocking: bool,
    local: Option<SocketAddr>,
    role: Role,
    options: SocketOptions,
    /// An opening under way whose end nobody was told.
    is_opening: bool,
    is_read_shut: bool,
    is_write_shut: bool,
    /// The connection's error was told.
    is_error_told: bool,
    /// Writes that found no room for all.
    refused_writes: u64,
    /// Bytes that are held back until a segment is full.
    tail: Vec<u8>,
}

#[derive(Debug)]
enum Entry {
    Socket(Socket),
    Epoll(Epoll),
}

/// All descriptors, and the host behind them.
#[derive(Debug)]
pub struct Sockets {
    host: Host,
    table: BTreeMap<Fd, Entry>,
}

/// The address as a socket of the other family shows it, and back.
fn shown(address: SocketAddr, is_v4: bool) -> SocketAddr {
    let ip = match (address.ip(), is_v4) {
        (IpAddr::V4(v4), false) => IpAddr::V6(v4.to_ipv6_mapped()),
        (ip @ (IpAddr::V4(_) | IpAddr::V6(_)), true | false) => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// An IPv4 address in IPv6's clothes, taken out of them.
fn bare(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
        ip @ IpAddr::V4(_) => ip,
    };
    SocketAddr::new(ip, address.port())
}

const fn unspecified(is_v4: bool) -> SocketAddr {
    let ip = if is_v4 {
        IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    SocketAddr::new(ip, 0)
}

/// What became of a connection, as a socket tells it.
fn errno_of(flow: &Flow) -> Option<i32> {
    let error = flow.connection.error()?;
    Some(match error {
        Error::Refused => libc::ECONNREFUSED,
        Error::Reset => libc::ECONNRESET,
        Error::TimedOut => libc::ETIMEDOUT,
        Error::Aborted => flow.unreachable.unwrap_or(libc::ECONNABORTED),
        Error::ApiMisuse(_) => libc::EINVAL,
    })
}

impl Sockets {
    /// No descriptors yet.
    pub const fn new(host: Host) -> Self {
        Self {
            host,
            table: BTreeMap::new(),
        }
    }

    pub const fn host(&self) -> &Host {
        &self.host
    }

    pub const fn host_mut(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Whether `fd` is one of ours.
    pub fn has(&self, fd: Fd) -> bool {
        self.table.contains_key(&fd)
    }

    /// A TCP socket that will be called `fd`, and must not be in use.
    ///
    /// # Errors
    /// `EAFNOSUPPORT` and `EPROTONOSUPPORT` for what is no TCP.
    pub fn socket(&mut self, fd: Fd, domain: i32, kind: i32, protocol: i32) -> Outcome<()> {
        let is_v4 = match domain {
            libc::AF_INET => true,
            libc::AF_INET6 => false,
            _ => return fail(libc::EAFNOSUPPORT),
        };
        let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let is_tcp = protocol == 0 || protocol == libc::IPPROTO_TCP;
        if kind & !flags != libc::SOCK_STREAM || !is_tcp {
            return fail(libc::EPROTONOSUPPORT);
        }
        let mut socket = Socket::new(is_v4, Role::Fresh, SocketOptions::default());
        socket.is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        self.table.insert(fd, Entry::Socket(socket));
        Ok(())
    }

    fn get(&self, fd: Fd) -> Outcome<&Socket> {
        match self.table.get(&fd) {
            Some(Entry::Socket(socket)) => Ok(socket),
            Some(Entry::Epoll(_)) => fail(libc::ENOTSOCK),
            None => fail(libc::EBADF),
        }
    }

    fn get_mut(&mut self, fd: Fd) -> Outcome<&mut Socket> {
        match self.table.get_mut(&fd) {
            Some(Entry::Socket(socket)) => Ok(socket),
            Some(Entry::Epoll(_)) => fail(libc::ENOTSOCK),
            None => fail(libc::EBADF),
        }
    }

    /// The connection behind `fd`; `ENOTCONN` when there is none.
    fn flow_of(&self, fd: Fd) -> Outcome<FlowId> {
        match self.get(fd)?.role {
            Role::Connected(id) => Ok(id),
            Role::Fresh | Role::Listening(_) => fail(libc::ENOTCONN),
        }
    }

    /// The connection's error, once.
    fn take_error(&mut self, fd: Fd) -> Outcome<Option<i32>> {
        let socket = self.get(fd)?;
        let Role::Connected(id) = socket.role else {
            return Ok(None);
        };
        if socket.is_error_told {
            return Ok(None);
        }
        let errno = errno_of(self.host.flow(id));
        self.get_mut(fd)?.is_error_told = errno.is_some();
        Ok(errno)
    }

    /// Fails with the connection's error, if it has one that was not told.
    fn check_error(&mut self, fd: Fd) -> Outcome<()> {
        self.take_error(fd)?.map_or(Ok(()), fail)
    }

    /// Blocks, or fails where the socket or the call does not want to.
    fn block<T>(&self, fd: Fd, is_refused: bool) -> Outcome<T> {
        if is_refused || self.get(fd)?.is_nonblocking {
            return fail(libc::EAGAIN);
        }
        Err(Stop::Wait(None))
    }

    /// The descriptor is given up. The connection lives on until both sides closed it, unless bytes
    /// were never read (RFC 2525 2.17), or the owner asked for a hard end.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, fd: Fd) -> Outcome<()> {
        if self.get(fd).is_ok() {
            self.flush_tail(fd)?;
        }
        let Some(entry) = self.table.remove(&fd) else {
            return fail(libc::EBADF);
        };
        for other in self.table.values_mut() {
            if let Entry::Epoll(epoll) = other {
                epoll.forget(fd);
            }
        }
        let Entry::Socket(socket) = entry else {
            return Ok(());
        };
        match socket.role {
            Role::Fresh => {}
            Role::Listening(port) => self.host.unlisten(port),
            Role::Connected(id) => {
                let is_hard = socket.options.is_linger_zero();
                self.host.with(id, |_, flow| {
                    if is_hard || flow.connection.readable_bytes() > 0 {
                        flow.connection.abort();
                    } else {
                        flow.connection.close();
                    }
                });
                self.host.release(id);
            }
        }
        Ok(())
    }

    /// Ends one direction or both.
    ///
    /// # Errors
    /// `ENOTCONN`, `EINVAL`, `EBADF`.
    pub fn shutdown(&mut self, fd: Fd, how: i32) -> Outcome<()> {
        let (reads, writes) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return fail(libc::EINVAL),
        };
        let id = self.flow_of(fd)?;
        if self.host.flow(id).connection.state() == State::Closed {
            return fail(libc::ENOTCONN);
        }
        if writes {
            self.flush_tail(fd)?;
            self.host.with(id, |_, flow| flow.connection.close());
        }
        let socket = self.get_mut(fd)?;
        socket.is_read_shut |= reads;
        socket.is_write_shut |= writes;
        Ok(())
    }
}

impl Socket {
    const fn new(is_v4: bool, role: Role, options: SocketOptions) -> Self {
        Self {
            is_v4,
            is_nonblocking: false,
            local: None,
            role,
            options,
            is_opening: false,
            is_read_shut: false,
            is_write_shut: false,
            is_error_told: false,
            refused_writes: 0,
            tail: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
