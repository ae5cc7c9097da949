//! The loop between standard streams and the engine: one thread, three buffers of fixed size.
//!
//! Input is read only while the engine wants more, that is while replies have room; neither a
//! read nor a write ever blocks, so a peer that sends without reading, or reads without
//! sending, is served as far as the buffers go and then waited for with poll(2).

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use fullbore_base::{Outlet, RxBuf, TxBuf};
use fullbore_sftp::InvalidMessage;
use fullbore_sftp::server::{Error, Server, Stop, Store};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::{self, Errno};
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Input held: twice the longest packet, so that one packet's rest is read while the next is
/// there.
const RX_BYTES: usize = 512 * 1024 + 4096;

/// Output held: replies to some 600 MiB of 4 KiB WRITEs, for peers that send all before they
/// read any. Memory is touched only as far as the peer lags behind.
const TX_BYTES: usize = 4 * 1024 * 1024;

/// OpenSSH's exit code for a fatal error.
pub(super) const EXIT_FATAL: i32 = 255;
/// OpenSSH's exit code for an overlong packet.
const EXIT_TOO_LONG: i32 = 11;
/// OpenSSH's exit code when a stream fails.
const EXIT_STREAM: i32 = 1;

/// Why a session ended before the end of input.
#[derive(Debug)]
pub(super) enum End {
    Protocol(Error),
    Read(Errno),
    Write(Errno),
    Poll(Errno),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(error) => error.fmt(f),
            Self::Read(errno) => write!(f, "read: {errno}"),
            Self::Write(errno) => write!(f, "write: {errno}"),
            Self::Poll(errno) => write!(f, "poll: {errno}"),
        }
    }
}

/// The exit code for an end, as OpenSSH has it.
pub(super) fn exit_code(end: &Result<(), End>) -> i32 {
    match end {
        Ok(()) => 0,
        Err(End::Protocol(Error::InvalidMessage(InvalidMessage::TooLong { .. }))) => EXIT_TOO_LONG,
        Err(End::Protocol(_) | End::Poll(_)) => EXIT_FATAL,
        Err(End::Read(_) | End::Write(_)) => EXIT_STREAM,
    }
}

/// Serves standard input to standard output until the input ends.
pub(super) fn serve(server: Server, store: &mut dyn Store) -> Result<(), End> {
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let input = Stream::new(stdin.as_fd());
    let output = Stream::new(stdout.as_fd());
    Session {
        server,
        rx: RxBuf::new(RX_BYTES),
        tx: Output(TxBuf::new(TX_BYTES)),
        is_eof: false,
    }
    .run(&input, &output, store)
}

struct Session {
    server: Server,
    rx: RxBuf,
    tx: Output,
    is_eof: bool,
}

impl Session {
    fn run(
        mut self,
        input: &Stream<'_>,
        output: &Stream<'_>,
        store: &mut dyn Store,
    ) -> Result<(), End> {
        loop {
            let taken = self
                .server
                .handle_input(self.rx.bytes(), &mut self.tx, store);
            let is_blocked = self.write(output)?;
            self.rx.consume(taken.map_err(End::Protocol)?);
            let wants_input = match self.server.stop() {
                Stop::Work => continue,
                Stop::Outlet if !is_blocked => continue,
                Stop::Outlet | Stop::Pending => false,
                Stop::Input if self.is_eof && !is_blocked => return Ok(()),
                Stop::Input => !self.is_eof,
            };
            if wants_input && self.read(input)? {
                continue;
            }
            wait(
                wants_input.then_some(input.fd),
                is_blocked.then_some(output.fd),
            )
            .map_err(End::Poll)?;
        }
    }

    /// Reads once. False when nothing is there yet.
    fn read(&mut self, input: &Stream<'_>) -> Result<bool, End> {
        match input.read(self.rx.space()) {
            Ok(0) => self.is_eof = true,
            Ok(n) => self.rx.filled(n),
            Err(Errno::AGAIN) => return Ok(false),
            Err(errno) => return Err(End::Read(errno)),
        }
        Ok(true)
    }

    /// Writes what the peer takes. True when some is left.
    fn write(&mut self, output: &Stream<'_>) -> Result<bool, End> {
        while !self.tx.0.is_empty() {
            match output.write(self.tx.0.pending()) {
                Ok(n) => self.tx.0.consume(n),
                Err(Errno::AGAIN) => return Ok(true),
                Err(errno) => return Err(End::Write(errno)),
            }
        }
        Ok(false)
    }
}

fn wait(input: Option<BorrowedFd<'_>>, output: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let input = input.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let output = output.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT));
    let result = match (input, output) {
        (Some(input), Some(output)) => poll(&mut [input, output], None),
        (Some(one), None) | (None, Some(one)) => poll(&mut [one], None),
        (None, None) => Ok(0),
    };
    match result {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// One of the standard streams, never blocking: a socket by flags of each call, anything else by
/// a flag of the descriptor, which others may share and which is put back in the end.
struct Stream<'fd> {
    fd: BorrowedFd<'fd>,
    is_socket: bool,
    restore: Option<OFlags>,
}

impl<'fd> Stream<'fd> {
    fn new(fd: BorrowedFd<'fd>) -> Self {
        let is_socket =
            fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        let mut restore = None;
        if !is_socket
            && let Ok(flags) = fcntl_getfl(fd)
            && !flags.contains(OFlags::NONBLOCK)
            && fcntl_setfl(fd, flags | OFlags::NONBLOCK).is_ok()
        {
            restore = Some(flags);
        }
        Self {
            fd,
            is_socket,
            restore,
        }
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        crate::server::store::retry(|| {
            if self.is_socket {
                recv(self.fd, &mut *into, RecvFlags::DONTWAIT).map(|(_, n)| n)
            } else {
                io::read(self.fd, &mut *into)
            }
        })
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        crate::server::store::retry(|| {
            if self.is_socket {
                send(self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            } else {
                io::write(self.fd, bytes)
            }
        })
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if let Some(flags) = self.restore {
            // The stream may be gone by now.
            let _ = fcntl_setfl(self.fd, flags);
        }
    }
}

/// The transmit buffer as the engine's outlet: replies are laid out where they are sent from.
struct Output(TxBuf);

impl Outlet for Output {
    fn room(&self) -> usize {
        self.0.room()
    }

    fn emit(
        &mut self,
        len_max: usize,
        fill: &mut dyn FnMut(&mut [std::io::IoSliceMut<'_>]) -> usize,
    ) -> bool {
        if len_max > self.0.room() {
            return false;
        }
        let tail = self.0.tail_mut(len_max);
        let n = fill(&mut [std::io::IoSliceMut::new(tail)]);
        self.0.commit(n);
        true
    }
}
