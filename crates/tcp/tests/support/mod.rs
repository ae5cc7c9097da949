//! Two hosts with an application each, joined by a simulated network: what every transfer test
//! shares.

#![allow(dead_code, reason = "each test file uses a part")]

use std::time::Duration;

use fullbore_base::{Instant, Rate, Rng};
use fullbore_sim::{LinkConfig, Net, Node, NodeId, Payload, Stop};
use fullbore_tcp::congestion::{Algorithm, Settings};
use fullbore_tcp::connection::{Config, Connection, Event, Info};
use fullbore_tcp::isn::{Randomness, Tuple};
use fullbore_tcp::listener::{Heard, ListenConfig, Listener};
use fullbore_tcp::segment::{Flags, Header, Pseudo, Segment};

pub const MS: Duration = Duration::from_millis(1);

/// Bytes of an IP header.
const IP_BYTES: usize = 20;

/// A segment on the wire.
#[derive(Clone, Debug)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub is_ect: bool,
    pub is_marked: bool,
}

impl Payload for Packet {
    fn wire_len(&self) -> usize {
        self.bytes.len() + IP_BYTES
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        let at = rng.index(self.bytes.len());
        self.bytes[at] ^= 1 << rng.below(8);
    }
}

/// Secrets of tests: none.
pub struct Secrets(pub Rng);

impl Randomness for Secrets {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

/// A stream whose byte at each place is known: a table of a prime length, over and over.
pub struct Pattern(Vec<u8>);

impl Pattern {
    pub fn new(seed: u64) -> Self {
        let mut table = vec![0; 65_521];
        Rng::seeded(seed).fill(&mut table);
        Self(table)
    }

    /// The bytes from `at` on, as many as lie in one piece.
    pub fn from(&self, at: u64) -> &[u8] {
        let at = usize::try_from(at % self.0.len() as u64).expect("below the length");
        &self.0[at..]
    }

    pub fn check(&self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let expected = self.from(at);
            let len = expected.len().min(bytes.len());
            assert!(expected[..len] == bytes[..len], "wrong bytes at {at}");
            bytes = &bytes[len..];
            at += len as u64;
        }
    }
}

/// What the application of a host does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Job {
    /// Bytes to send, then close.
    pub send: u64,
    /// Reads at most this many bytes per second; none reads at once.
    pub read_rate: Option<u64>,
    /// Keeps its side open when it is done.
    pub is_open_ended: bool,
}

/// A host with one connection.
pub struct Host {
    pub listener: Option<Listener>,
    pub connection: Option<Connection>,
    tuple: Tuple,
    peer: Option<NodeId>,
    job: Job,
    pattern: Pattern,
    theirs: Pattern,
    replies: Vec<Header>,
    pub written: u64,
    pub read: u64,
    pub events: Vec<Event>,
    pub invalid: u64,
    /// The highest window edge told, as the peer computes it.
    edge: Option<(fullbore_tcp::Seq, u32)>,
    next_read_at: Instant,
    out: Vec<u8>,
}

fn tuple(is_client: bool) -> Tuple {
    let (client, server) = (([10, 0, 0, 1].into(), 40_000), ([10, 0, 0, 2].into(), 22));
    if is_client {
        Tuple {
            local: client,
            remote: server,
        }
    } else {
        Tuple {
            local: server,
            remote: client,
        }
    }
}

pub fn with_addresses(config: Config, is_client: bool) -> Config {
    let tuple = tuple(is_client);
    Config {
        local_port: tuple.local.1,
        remote_port: tuple.remote.1,
        pseudo: Pseudo::between(tuple.local.0, tuple.remote.0),
        ..config
    }
}

impl Host {
    fn new(is_client: bool, job: Job) -> Self {
        Self {
            listener: None,
            connection: None,
            tuple: tuple(is_client),
            peer: None,
            job,
            pattern: Pattern::new(u64::from(is_client)),
            theirs: Pattern::new(u64::from(!is_client)),
            replies: Vec::new(),
            written: 0,
            read: 0,
            events: Vec::new(),
            invalid: 0,
            edge: None,
            next_read_at: Instant::ZERO,
            out: vec![0; 65_536],
        }
    }

    pub fn client(config: Config, job: Job) -> Self {
        let mut host = Self::new(true, job);
        let initial = fullbore_tcp::Seq::new(0xffff_0000);
        let config = with_addresses(config, true);
        host.connection = Some(Connection::connect(Instant::ZERO, config, initial));
        host
    }

    pub fn server(config: Config, job: Job, backlog_max: usize, seed: u64) -> Self {
        let mut host = Self::new(false, job);
        let listen = ListenConfig {
            connection: with_addresses(config, false),
            backlog_max,
        };
        let mut secrets = Secrets(Rng::seeded(seed));
        host.listener = Some(Listener::new(listen, &mut secrets));
        host
    }

    pub fn set_peer(&mut self, peer: NodeId) {
        self.peer = Some(peer);
    }

    pub fn info(&self) -> Info {
        self.connection.as_ref().expect("it is connected").info()
    }

    pub fn is_closed(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_closed)
    }

    /// The application's turn: reads what there is, writes what fits.
    fn work(&mut self, now: Instant) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        while let Some(event) = connection.poll_event() {
            self.events.push(event);
        }
        let may_read = self.job.read_rate.is_none() || now >= self.next_read_at;
        if may_read && connection.readable_bytes() > 0 {
            let (first, second) = connection.peek();
            let limit = self.job.read_rate.map_or(usize::MAX, |rate| {
                usize::try_from(rate / 100).expect("small")
            });
            let first = &first[..first.len().min(limit)];
            let second = &second[..second.len().min(limit - first.len())];
            self.theirs.check(self.read, first);
            self.theirs.check(self.read + first.len() as u64, second);
            let count = first.len() + second.len();
            self.read += count as u64;
            self.next_read_at = now + MS * 10;
            connection.consume(now, count);
        }
        self.write();
    }

    fn write(&mut self) {
        let connection = self.connection.as_mut().expect("it is there");
        while self.written < self.job.send && connection.error().is_none() {
            let bytes = self.pattern.from(self.written);
            let rest = usize::try_from(self.job.send - self.written).unwrap_or(usize::MAX);
            let taken = connection.write(&bytes[..bytes.len().min(rest)]);
            let taken = taken.expect("it is open");
            self.written += taken as u64;
            if taken == 0 {
                return;
            }
        }
        if !self.job.is_open_ended {
            connection.close();
        }
    }

    fn take(&mut self, now: Instant, packet: &Packet) {
        let pseudo = Pseudo::between(self.tuple.local.0, self.tuple.remote.0);
        let Ok(segment) = Segment::parse(&packet.bytes, pseudo) else {
            self.invalid += 1;
            return;
        };
        let is_marked = packet.is_marked;
        if let Some(connection) = &mut self.connection {
            connection.handle_segment(now, &segment, is_marked);
            return;
        }
        let listener = self.listener.as_mut().expect("one or the other");
        match listener.handle_segment(now, &self.tuple, &segment, is_marked) {
            Heard::Nothing => {}
            Heard::Reply(header) => self.replies.push(header),
            Heard::Accepted(connection) => self.connection = Some(*connection),
        }
    }

    /// A window edge that was told once is never taken back.
    fn check_edge(&mut self, bytes: &[u8]) {
        let segment = Segment::parse(bytes, Pseudo::Unchecked).expect("it is ours");
        let header = segment.header;
        if !header.flags.has(Flags::ACK) || header.flags.has(Flags::RST) {
            return;
        }
        let agreed = self.connection.as_ref().map(|c| *c.agreed());
        let scale = match agreed {
            Some(agreed) if !header.flags.has(Flags::SYN) => agreed.receive_scale,
            Some(_) | None => 0,
        };
        let window = u32::from(header.window) << scale;
        let edge = header.ack.plus(window);
        if let Some((told, _)) = self.edge {
            assert!(edge.since(told) >= 0, "the window shrank: {header:?}");
        }
        self.edge = Some((edge, window));
    }
}

impl Node<Packet> for Host {
    fn handle_packet(&mut self, now: Instant, from: NodeId, item: Packet) {
        self.peer = Some(from);
        self.take(now, &item);
        self.work(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
        }
        self.work(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let connection = self.connection.as_ref();
        let listener = self.listener.as_ref().and_then(Listener::poll_timeout);
        let is_reading =
            self.job.read_rate.is_some() && connection.is_some_and(|c| c.readable_bytes() > 0);
        let reading = is_reading.then_some(self.next_read_at);
        let own = connection.and_then(Connection::poll_timeout);
        [own, listener, reading].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(NodeId, Packet)> {
        if let Some(listener) = &mut self.listener
            && let Some((_, header)) = listener.poll_transmit(now)
        {
            self.replies.push(header);
        }
        let pseudo = Pseudo::between(self.tuple.local.0, self.tuple.remote.0);
        let mut out = std::mem::take(&mut self.out);
        let transmit = if let Some(header) = self.replies.pop() {
            Some((header.emit(&mut out, 0, pseudo), false))
        } else {
            self.work(now);
            let connection = self.connection.as_mut();
            let transmit = connection.and_then(|c| c.poll_transmit(now, &mut out));
            transmit.map(|t| (t.len, t.is_ect))
        };
        let packet = transmit.map(|(len, is_ect)| Packet {
            bytes: out[..len].to_vec(),
            is_ect,
            is_marked: false,
        });
        self.out = out;
        let packet = packet?;
        self.check_edge(&packet.bytes);
        Some((self.peer.expect("a peer is known"), packet))
    }
}

/// A client and a server, and the path between them.
pub struct World {
    pub net: Net<Packet, Host>,
    pub client: NodeId,
    pub server: NodeId,
}

impl World {
    pub fn new(seed: u64, client: Host, server: Host, up: LinkConfig, down: LinkConfig) -> Self {
        println!("FULLBORE_SEED={seed}");
        let mut net = Net::new(seed);
        let client = net.add_node(client);
        let server = net.add_node(server);
        net.connect(client, server, up, down);
        net.node_mut(client).peer = Some(server);
        Self {
            net,
            client,
            server,
        }
    }

    pub fn client(&self) -> &Host {
        self.net.node(self.client)
    }

    pub fn server(&self) -> &Host {
        self.net.node(self.server)
    }

    /// Runs until `done`; invariants hold after every step.
    pub fn run(&mut self, limit: Duration, done: impl Fn(&Host, &Host) -> bool) -> Stop {
        let (client, server) = (self.client, self.server);
        let deadline = self.net.now() + limit;
        self.net.run(
            deadline,
            |net| done(net.node(client), net.node(server)),
            |net| {
                check(net.node(client));
                check(net.node(server));
                check_pair(net.node(client), net.node(server));
                check_pair(net.node(server), net.node(client));
            },
        )
    }

    /// Runs until both sides are over.
    pub fn run_to_end(&mut self, limit: Duration) -> Stop {
        self.run(limit, |client, server| {
            client.is_closed() && server.is_closed()
        })
    }
}

/// Nothing is acknowledged that was not sent, and nothing arrives that was not written.
fn check_pair(sender: &Host, receiver: &Host) {
    if let (Some(_), Some(_)) = (&sender.connection, &receiver.connection) {
        let (sent, received) = (sender.info().stats, receiver.info().stats);
        assert!(received.bytes_received <= sent.bytes_sent);
        assert!(sent.bytes_acked <= sent.bytes_sent + 1, "the SYN's, once");
        assert!(receiver.read <= sender.written);
    }
}

fn check(host: &Host) {
    let Some(connection) = &host.connection else {
        return;
    };
    let info = connection.info();
    let outstanding = info.pipe_bytes + info.sacked_bytes + info.lost_bytes;
    assert_eq!(outstanding, info.outstanding_bytes, "pipe is a sum");
    assert!(info.retransmitted_bytes <= info.pipe_bytes);
    // At most 4 x blocks x log2(2^18), and each segment as it is delivered or lost.
    let recovery = &info.recovery;
    let fair = 4 * 18 * (recovery.acks + recovery.sack_blocks)
        + 2 * info.stats.segments_sent
        + 2 * recovery.retransmissions;
    assert!(recovery.segments_examined <= fair, "{recovery:?}");
    assert!(info.unread_bytes <= info.rcv_space + 256);
}

/// What connections use unless a test says otherwise, with this congestion control.
pub fn config(algorithm: Algorithm) -> Config {
    Config {
        congestion: Settings {
            algorithm,
            ..Settings::default()
        },
        ..Config::default()
    }
}

pub fn link(delay: Duration, mbit: u64) -> LinkConfig {
    LinkConfig {
        delay,
        rate: (mbit > 0).then(|| Rate::from_bits_per_sec(mbit * 1_000_000)),
        ..LinkConfig::default()
    }
}
