//! How sockets get a name and a peer: bind, listen, accept, connect.

use std::net::SocketAddr;

use fullbore_tcp::connection::{Config, State};
use fullbore_tcp::isn::Tuple;

use super::{Entry, Fd, Outcome, Role, Socket, Sockets, bare, errno_of, fail, shown, unspecified};
use crate::host::FlowId;

/// Connections that may wait to be accepted, whatever the program asks for (Linux's somaxconn).
const BACKLOG_MAX: i32 = 4096;

/// How far a blocking connect is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    has_begun: bool,
}

impl Sockets {
    /// Gives the socket its own address; port 0 for any.
    ///
    /// # Errors
    /// `EINVAL` when it has one, `EAFNOSUPPORT` for one of another family.
    pub fn bind(&mut self, fd: Fd, address: SocketAddr) -> Outcome<()> {
        let socket = self.get(fd)?;
        if socket.local.is_some() || socket.role != Role::Fresh {
            return fail(libc::EINVAL);
        }
        if socket.is_v4 != address.is_ipv4() {
            return fail(libc::EAFNOSUPPORT);
        }
        let mut address = bare(address);
        if address.port() == 0 {
            address.set_port(self.host.free_port());
        }
        self.get_mut(fd)?.local = Some(address);
        Ok(())
    }

    /// Waits for connections. A second call changes nothing.
    ///
    /// # Errors
    /// `EINVAL` when it is connected, `EADDRINUSE` when somebody listens at the port.
    pub fn listen(&mut self, fd: Fd, backlog: i32) -> Outcome<()> {
        let socket = self.get(fd)?;
        match socket.role {
            Role::Fresh => {}
            Role::Listening(_) => return Ok(()),
            Role::Connected(_) => return fail(libc::EINVAL),
        }
        let local = socket.local.unwrap_or_else(|| unspecified(socket.is_v4));
        let options = socket.options;
        let port = match local.port() {
            0 => self.host.free_port(),
            port => port,
        };
        let settings = self.host.settings().clone();
        let config = |is_v4| options.shape(settings.config(is_v4, false));
        let queue_max = usize::try_from(backlog.clamp(0, BACKLOG_MAX)).expect("it is not negative");
        if !self.host.listen(port, queue_max, options.tos, config) {
            return fail(libc::EADDRINUSE);
        }
        let socket = self.get_mut(fd)?;
        socket.role = Role::Listening(port);
        socket.local = Some(SocketAddr::new(local.ip(), port));
        Ok(())
    }

    /// Takes the next connection: `name` is asked for the descriptor that it will be called by.
    ///
    /// # Errors
    /// `EINVAL` when it does not listen, `EAGAIN`; what `name` says.
    pub fn accept(
        &mut self,
        fd: Fd,
        flags: i32,
        name: impl FnOnce() -> Outcome<Fd>,
    ) -> Outcome<(Fd, SocketAddr)> {
        let socket = self.get(fd)?;
        let Role::Listening(port) = socket.role else {
            return fail(libc::EINVAL);
        };
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return fail(libc::EINVAL);
        }
        let (is_v4, options) = (socket.is_v4, socket.options);
        if !self.host.has_caller(port) {
            return self.block(fd, false);
        }
        let new = name()?;
        let id = self.host.accept(port).expect("somebody waits");
        let mut socket = Socket::new(is_v4, Role::Connected(id), options);
        socket.is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        let tuple = self.host.flow(id).tuple;
        socket.local = Some(tuple.local.into());
        self.table.insert(new, Entry::Socket(socket));
        self.host.with(id, |now, flow| options.apply(now, flow));
        Ok((new, shown(tuple.remote.into(), is_v4)))
    }

    /// Opens a connection to `remote`. `opening` is to be the same for each try of one call.
    ///
    /// # Errors
    /// `EINPROGRESS` and `EALREADY` where it does not block, `EISCONN`, and why the opening failed.
    pub fn connect(&mut self, fd: Fd, remote: SocketAddr, opening: &mut Opening) -> Outcome<()> {
        let socket = self.get(fd)?;
        match socket.role {
            Role::Listening(_) => fail(libc::EISCONN),
            Role::Connected(id) => self.follow_opening(fd, id, opening),
            Role::Fresh => {
                if socket.is_v4 != remote.is_ipv4() {
                    return fail(libc::EAFNOSUPPORT);
                }
                self.begin_opening(fd, bare(remote))?;
                opening.has_begun = true;
                if self.get(fd)?.is_nonblocking {
                    return fail(libc::EINPROGRESS);
                }
                self.block(fd, false)
            }
        }
    }

    fn begin_opening(&mut self, fd: Fd, remote: SocketAddr) -> Outcome<()> {
        let socket = self.get(fd)?;
        let (bound, options) = (socket.local, socket.options);
        let settings = self.host.settings();
        let is_v4 = remote.is_ipv4();
        let ours = if is_v4 {
            settings.local_v4
        } else {
            settings.local_v6
        };
        let config: Config = options.shape(settings.config(is_v4, true));
        let ip = bound.map(|b| b.ip()).filter(|ip| !ip.is_unspecified());
        let port = match bound.map_or(0, |b| b.port()) {
            0 => self.host.free_port(),
            port => port,
        };
        let tuple = Tuple {
            local: (ip.unwrap_or(ours), port),
            remote: (remote.ip(), remote.port()),
        };
        if self.host.is_taken(&tuple) {
            return fail(libc::EADDRNOTAVAIL);
        }
        let id = self.host.connect(tuple, options.tos, config);
        self.host.with(id, |now, flow| options.apply(now, flow));
        let socket = self.get_mut(fd)?;
        socket.local = Some(tuple.local.into());
        socket.role = Role::Connected(id);
        socket.is_opening = true;
        socket.is_error_told = false;
        Ok(())
    }

    fn follow_opening(&mut self, fd: Fd, id: FlowId, opening: &mut Opening) -> Outcome<()> {
        if !self.get(fd)?.is_opening {
            return fail(libc::EISCONN);
        }
        let flow = self.host.flow(id);
        let state = flow.connection.state();
        let errno = errno_of(flow);
        if matches!(state, State::SynSent | State::SynReceived) {
            let is_second = !core::mem::replace(&mut opening.has_begun, true);
            if is_second && self.get(fd)?.is_nonblocking {
                return fail(libc::EALREADY);
            }
            return self.block(fd, false);
        }
        if state == State::Closed {
            // The socket may try again.
            self.host.release(id);
            let socket = self.get_mut(fd)?;
            socket.role = Role::Fresh;
            socket.is_opening = false;
            return fail(errno.unwrap_or(libc::ECONNABORTED));
        }
        self.get_mut(fd)?.is_opening = false;
        Ok(())
    }

    /// The socket's own address.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`.
    #[cfg(test)]
    pub fn local_address(&self, fd: Fd) -> Outcome<SocketAddr> {
        let socket = self.get(fd)?;
        let local = socket.local.unwrap_or_else(|| unspecified(socket.is_v4));
        Ok(shown(local, socket.is_v4))
    }
}
