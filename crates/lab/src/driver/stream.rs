//! The proxy of [`crate::stream`]: one thread that moves the bytes of all its connections.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fullbore::driver::clock::Clock;
use fullbore_base::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::pipe::{PipeFlags, pipe_with};

use super::is_for_later;
use crate::stream::{Chunk, StreamOptions, Way};

/// What the kernel holds in front of the proxy. Little: it would be a queue that nobody asked for.
const RECEIVE_BUFFER: usize = 128 * 1024;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// How long the server, on the same machine, has to take a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// A proxy that runs until it is dropped; its connections end with it.
#[derive(Debug)]
pub struct Emulator {
    address: SocketAddr,
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Emulator {
    /// Listens on the loopback address and connects each client to `server`.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(options: &StreamOptions, server: SocketAddr) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        // Before the connections are there: they inherit it, and it decides the window's scale.
        set_socket_recv_buffer_size(&listener, RECEIVE_BUFFER)?;
        bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        listen(&listener, BACKLOG)?;
        let listener = TcpListener::from(listener);
        let address = listener.local_addr()?;
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut proxy = Proxy::new(options, listener, server);
        let thread = thread::Builder::new()
            .name("emulated link".into())
            .spawn(move || proxy.run(&stopped))?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where clients connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // What failed in it has ended its connections, which their users saw.
            let _ = thread.join();
        }
    }
}

/// One of a connection's two sockets: what it sends goes into a [`Way`], what comes out of the other one
/// goes to it.
#[derive(Debug)]
struct End {
    socket: TcpStream,
    /// It may send more.
    is_open: bool,
    /// What came out of the link and it did not take.
    untaken: VecDeque<Vec<u8>>,
    untaken_bytes: usize,
    /// No more will come out: to be shut once all is taken.
    is_ending: bool,
    is_shut: bool,
}

impl End {
    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        set_tcp_nodelay(&socket, true)?;
        Ok(Self {
            socket,
            is_open: true,
            untaken: VecDeque::new(),
            untaken_bytes: 0,
            is_ending: false,
            is_shut: false,
        })
    }

    /// Reads once, as much as `way` has room for.
    fn take(&mut self, now: Instant, id: u64, way: &mut Way, untaken: usize) -> io::Result<bool> {
        let room = way.room(untaken);
        if !self.is_open || room == 0 {
            return Ok(false);
        }
        let mut bytes = vec![0; room];
        match self.socket.read(&mut bytes) {
            Ok(len) => {
                bytes.truncate(len);
                self.is_open = len > 0;
                way.send(
                    now,
                    Chunk {
                        connection: id,
                        bytes,
                    },
                );
                Ok(true)
            }
            Err(error) if is_for_later(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn push(&mut self, bytes: Vec<u8>) {
        self.is_ending |= bytes.is_empty();
        self.untaken_bytes += bytes.len();
        if !bytes.is_empty() {
            self.untaken.push_back(bytes);
        }
    }

    /// Writes what it takes.
    fn give(&mut self) -> io::Result<()> {
        while let Some(front) = self.untaken.front_mut() {
            match self.socket.write(front) {
                Ok(len) => {
                    self.untaken_bytes -= len;
                    front.drain(..len);
                    if front.is_empty() {
                        self.untaken.pop_front();
                    }
                }
                Err(error) if is_for_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if self.is_ending && !self.is_shut {
            self.is_shut = true;
            self.socket.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    fn interest(&self, has_room: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.is_open && has_room);
        flags.set(PollFlags::OUT, !self.untaken.is_empty());
        flags
    }
}

/// The client's end, then the server's.
type Ends = [End; 2];

#[derive(Debug)]
struct Proxy {
    listener: TcpListener,
    server: SocketAddr,
    clock: Clock,
    /// What the client sends, then what the server sends.
    ways: [Way; 2],
    connections: BTreeMap<u64, Ends>,
    accepted_count: u64,
}

impl Proxy {
    fn new(options: &StreamOptions, listener: TcpListener, server: SocketAddr) -> Self {
        Self {
            listener,
            server,
            clock: Clock::start(),
            ways: [Way::new(options), Way::new(options)],
            connections: BTreeMap::new(),
            accepted_count: 0,
        }
    }

    /// Runs until the other end of `stop` is closed. Each round costs O(connections).
    fn run(&mut self, stop: &OwnedFd) -> io::Result<()> {
        loop {
            self.deliver();
            while self.turn() {}
            if self.wait(stop)? {
                return Ok(());
            }
            self.accept()?;
        }
    }

    /// Hands out what has arrived.
    fn deliver(&mut self) {
        let now = self.clock.now();
        for (from, way) in self.ways.iter_mut().enumerate() {
            while let Some(chunk) = way.receive(now) {
                if let Some(ends) = self.connections.get_mut(&chunk.connection) {
                    ends[1 - from].push(chunk.bytes);
                }
            }
        }
    }

    /// Lets each end of each connection read one chunk and write what it can. False when nothing more
    /// can be read.
    fn turn(&mut self) -> bool {
        let now = self.clock.now();
        let ways = &mut self.ways;
        let mut has_read = false;
        // A connection that fails is over for both ends, as when a peer resets it.
        self.connections.retain(|&id, ends| {
            let mut step = || -> io::Result<()> {
                for from in [0, 1] {
                    let untaken = ends[1 - from].untaken_bytes;
                    has_read |= ends[from].take(now, id, &mut ways[from], untaken)?;
                    ends[from].give()?;
                }
                Ok(())
            };
            step().is_ok() && !ends.iter().all(|end| end.is_shut)
        });
        has_read
    }

    /// Waits until there is something to do. True when it is to end.
    fn wait(&self, stop: &OwnedFd) -> io::Result<bool> {
        let next = self.ways.iter().filter_map(Way::next_event).min();
        let mut fds: Vec<PollFd<'_>> =
            vec![readable(stop.as_fd()), readable(self.listener.as_fd())];
        for ends in self.connections.values() {
            for from in [0, 1] {
                let has_room = self.ways[from].room(ends[1 - from].untaken_bytes) > 0;
                let interest = ends[from].interest(has_room);
                if !interest.is_empty() {
                    fds.push(PollFd::from_borrowed_fd(
                        ends[from].socket.as_fd(),
                        interest,
                    ));
                }
            }
        }
        let time = next.map(|at| {
            let left = at - self.clock.now();
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        match poll(&mut fds, time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(!fds[0].revents().is_empty())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let client = match self.listener.accept() {
                Ok((client, _)) => client,
                Err(error) if is_for_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            // A server that is not there closes the client's connection.
            if let Ok(ends) = connect(client, self.server) {
                self.connections.insert(self.accepted_count, ends);
                self.accepted_count += 1;
            }
        }
    }
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

fn connect(client: TcpStream, server: SocketAddr) -> io::Result<Ends> {
    let server = TcpStream::connect_timeout(&server, CONNECT_TIME)?;
    set_socket_recv_buffer_size(&server, RECEIVE_BUFFER)?;
    Ok([End::new(client)?, End::new(server)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_base::{Rate, Rng};

    /// An echo server, a client, and a link between them.
    fn echo(options: &StreamOptions) -> (Emulator, TcpStream, JoinHandle<io::Result<u64>>) {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = server.local_addr().expect("it is bound");
        let serving = thread::spawn(move || {
            let (mut socket, _) = server.accept()?;
            let mut back = socket.try_clone()?;
            let copied = io::copy(&mut socket, &mut back)?;
            back.shutdown(Shutdown::Write)?;
            Ok(copied)
        });
        let emulator = Emulator::start(options, address).expect("it starts");
        let client = TcpStream::connect(emulator.address()).expect("it listens");
        (emulator, client, serving)
    }

    #[test]
    fn bytes_and_their_end_come_back_as_they_went() {
        let options = StreamOptions {
            rtt: Duration::from_millis(20),
            rate: Rate::from_bits_per_sec(800_000_000),
        };
        let (_emulator, client, serving) = echo(&options);
        let mut wanted = vec![0; 3_000_000];
        Rng::seeded(fullbore_testkit::seed(5)).fill(&mut wanted);
        let mut writer = client.try_clone().expect("it can be cloned");
        let sent = wanted.clone();
        let started = std::time::Instant::now();
        let writing = thread::spawn(move || {
            writer.write_all(&sent).expect("it is open");
            writer.shutdown(Shutdown::Write).expect("it is open");
        });
        let mut found = Vec::new();
        (&client).read_to_end(&mut found).expect("it ends");
        // No machine is so fast that the link could be faster than it is said to be: the delay both
        // ways, and 30 ms of sending.
        assert!(started.elapsed() >= Duration::from_millis(49));
        assert!(found == wanted, "{} bytes", found.len());
        writing.join().expect("it wrote");
        let copied = serving.join().expect("it served").expect("it could");
        assert_eq!(copied, 3_000_000);
    }

    #[test]
    fn dropping_it_ends_its_connections() {
        let options = StreamOptions {
            rtt: Duration::from_millis(1),
            rate: Rate::from_bits_per_sec(1_000_000_000),
        };
        let (emulator, mut client, serving) = echo(&options);
        client.write_all(b"a").expect("it is open");
        let mut byte = [0];
        client.read_exact(&mut byte).expect("it comes back");
        drop(emulator);
        assert!(matches!(client.read(&mut byte), Ok(0) | Err(_)));
        // The server saw the end of its stream, or a reset.
        let _ = serving.join().expect("it ended");
    }

    #[test]
    fn a_server_that_is_not_there_ends_the_connection() {
        let options = StreamOptions {
            rtt: Duration::ZERO,
            rate: Rate::from_bits_per_sec(1_000_000_000),
        };
        let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let emulator = Emulator::start(&options, address).expect("it starts");
        let mut client = TcpStream::connect(emulator.address()).expect("it listens");
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    }
}
