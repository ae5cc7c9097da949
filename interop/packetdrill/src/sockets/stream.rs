//! Bytes through sockets: read, write, and what comes of ends and errors.

use fullbore_tcp::connection::State;

use super::{Fd, Outcome, Role, Sockets, fail};

/// What a receiving call wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receive {
    /// Leave the bytes where they are.
    pub is_peek: bool,
    /// Fail instead of blocking.
    pub is_nonblocking: bool,
    /// Wait until the buffer is full, the stream ends, or it breaks.
    pub is_all: bool,
}

impl Receive {
    /// What `MSG_*` say. `EOPNOTSUPP` for what streams of ours do not have.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a flag that is not known.
    pub const fn from_flags(flags: i32) -> Outcome<Self> {
        const KNOWN: i32 =
            libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        if flags & !KNOWN != 0 {
            return fail(libc::EOPNOTSUPP);
        }
        Ok(Self {
            is_peek: flags & libc::MSG_PEEK != 0,
            is_nonblocking: flags & libc::MSG_DONTWAIT != 0,
            is_all: flags & libc::MSG_WAITALL != 0,
        })
    }
}

/// What a sending call wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Send {
    /// Fail instead of blocking.
    pub is_nonblocking: bool,
    /// More follows: hold back what fills no segment.
    pub is_more: bool,
}

impl Send {
    /// What `MSG_*` say.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a flag that is not known, and for urgent data.
    pub const fn from_flags(flags: i32) -> Outcome<Self> {
        const KNOWN: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR;
        if flags & !KNOWN != 0 {
            return fail(libc::EOPNOTSUPP);
        }
        Ok(Self {
            is_nonblocking: flags & libc::MSG_DONTWAIT != 0,
            is_more: flags & libc::MSG_MORE != 0,
        })
    }
}

impl Sockets {
    /// Reads into `out`, behind the `done` bytes that earlier tries of this call have put there.
    /// Returns how many bytes the call read; 0 at the stream's end.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOTCONN`, the connection's error once.
    pub fn receive(
        &mut self,
        fd: Fd,
        out: &mut [u8],
        wanted: Receive,
        done: &mut usize,
    ) -> Outcome<usize> {
        let id = self.flow_of(fd)?;
        let room = out.len() - *done;
        let count = self.host.with(id, |now, flow| {
            let (first, second) = flow.connection.peek();
            let count = room.min(first.len() + second.len());
            let head = count.min(first.len());
            let target = &mut out[*done..*done + count];
            target[..head].copy_from_slice(&first[..head]);
            target[head..].copy_from_slice(&second[..count - head]);
            // Reading nothing makes no room that the peer should be told of.
            if count > 0 && !wanted.is_peek {
                flow.connection.consume(now, count);
            }
            count
        });
        *done += count;
        let is_enough = if wanted.is_all && !wanted.is_peek {
            *done == out.len()
        } else {
            *done > 0 || out.is_empty()
        };
        if is_enough {
            return Ok(*done);
        }
        self.receive_nothing(fd, wanted, *done)
    }

    /// Nothing is there to be read: the end, an error, or later.
    fn receive_nothing(&mut self, fd: Fd, wanted: Receive, done: usize) -> Outcome<usize> {
        let id = self.flow_of(fd)?;
        let connection = &self.host.flow(id).connection;
        let is_over = connection.is_at_end() || connection.state() == State::Closed;
        if done > 0 && (is_over || wanted.is_nonblocking) {
            return Ok(done);
        }
        self.check_error(fd)?;
        if is_over || self.get(fd)?.is_read_shut {
            return Ok(done);
        }
        match self.block(fd, wanted.is_nonblocking) {
            Err(super::Stop::Errno(_)) if done > 0 => Ok(done),
            blocked => blocked,
        }
    }

    /// Writes `bytes`, of which earlier tries of this call have taken `done`. Returns how many bytes
    /// the call took: all of them, unless it must not block.
    ///
    /// # Errors
    /// `EAGAIN`, `EPIPE`, the connection's error once.
    pub fn send(&mut self, fd: Fd, bytes: &[u8], wanted: Send, done: &mut usize) -> Outcome<usize> {
        let Role::Connected(id) = self.get(fd)?.role else {
            return fail(libc::EPIPE);
        };
        match self.check_error(fd) {
            Err(_) if *done > 0 => return Ok(*done),
            checked => checked?,
        }
        let state = self.host.flow(id).connection.state();
        if self.get(fd)?.is_write_shut || state == State::Closed {
            return if *done > 0 {
                Ok(*done)
            } else {
                fail(libc::EPIPE)
            };
        }
        if !matches!(state, State::SynSent | State::SynReceived) {
            *done += self.take(fd, &bytes[*done..], wanted.is_more)?;
            if *done == bytes.len() {
                return Ok(*done);
            }
        }
        self.get_mut(fd)?.refused_writes += 1;
        match self.block(fd, wanted.is_nonblocking) {
            Err(super::Stop::Errno(_)) if *done > 0 => Ok(*done),
            blocked => blocked,
        }
    }

    /// Takes as much as there is room for. What fills no segment is held back while more follows.
    fn take(&mut self, fd: Fd, bytes: &[u8], is_more: bool) -> Outcome<usize> {
        let id = self.flow_of(fd)?;
        let connection = &self.host.flow(id).connection;
        let room = usize::try_from(connection.writable_bytes()).unwrap_or(usize::MAX);
        let mss = usize::try_from(connection.info().snd_mss).unwrap_or(usize::MAX);
        let socket = self.get_mut(fd)?;
        let is_held = is_more || socket.options.is_corked;
        let count = bytes.len().min(room.saturating_sub(socket.tail.len()));
        socket.tail.extend_from_slice(&bytes[..count]);
        let leaving = if is_held {
            socket.tail.len() / mss * mss
        } else {
            socket.tail.len()
        };
        let leaving: Vec<u8> = socket.tail.drain(..leaving).collect();
        self.host.with(id, |_, flow| {
            // What is over takes nothing, and the next call is told.
            let _ = flow.connection.write(&leaving);
        });
        Ok(count)
    }

    /// Sends what was held back.
    pub(super) fn flush_tail(&mut self, fd: Fd) -> Outcome<()> {
        let socket = self.get_mut(fd)?;
        let Role::Connected(id) = socket.role else {
            return Ok(());
        };
        let tail = core::mem::take(&mut socket.tail);
        if !tail.is_empty() {
            self.host.with(id, |_, flow| {
                let _ = flow.connection.write(&tail);
            });
        }
        Ok(())
    }
}
