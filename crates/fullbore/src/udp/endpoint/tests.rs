//! Two endpoints on a simulated network, with somebody who hears all of it and sends it again.

use super::*;
use crate::udp::door::{ARRIVAL_MAX, SILENCE_MAX};
use fullbore_base::{Rate, Rng};
use fullbore_sim::{Chance, Faults, LinkConfig, Net, Node, NodeId, Payload, QueueConfig, Stop};
use fullbore_testkit::{seed, seeds};

const MS: Duration = Duration::from_millis(1);
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

/// A datagram, where it comes from, and what is around it.
#[derive(Clone, Debug)]
struct Packet {
    from: SocketAddr,
    bytes: Vec<u8>,
}

impl Payload for Packet {
    fn wire_len(&self) -> usize {
        self.bytes.len() + 28
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        self.bytes.corrupt(rng);
    }
}

/// A hostile neighbour of a host: whatever arrives there is kept, changed and sent again.
struct Adversary {
    rng: Rng,
    heard: VecDeque<Vec<u8>>,
}

impl Adversary {
    fn attack(&mut self, now: Instant, endpoint: &mut Endpoint, bytes: &[u8]) {
        self.heard.push_back(bytes.to_vec());
        if self.heard.len() > 64 {
            self.heard.pop_front();
        }
        for _ in 0..self.rng.below(3) {
            let mut bytes = self.heard[self.rng.index(self.heard.len())].clone();
            // The very bytes, or others: the number moved on for one.
            match self.rng.below(4) {
                0 => bytes.corrupt(&mut self.rng),
                1 => bytes[8..16].copy_from_slice(&self.rng.below(1 << 40).to_be_bytes()),
                2 => bytes.truncate(self.rng.index(bytes.len())),
                _ => {}
            }
            let port = u16::try_from(self.rng.below(60_000)).expect("a port");
            let from = SocketAddr::from(([203, 0, 113, 9], port));
            endpoint.handle_datagram(now, from.into(), &bytes);
        }
    }
}

/// An end: sends `to_send` bytes of a pattern on each connection, and checks what comes.
struct Host {
    endpoint: Endpoint,
    address: SocketAddr,
    peer: NodeId,
    ids: Vec<PathId>,
    to_send: u64,
    written: Vec<u64>,
    read: Vec<u64>,
    events: Vec<(PathId, Event)>,
    adversary: Option<Adversary>,
    batch: VecDeque<Vec<u8>>,
    out: Vec<u8>,
}

fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Host {
    fn new(role: Role, count: u64, to_send: u64) -> Self {
        let mut endpoint = Endpoint::new(16);
        let ids: Vec<_> = (0..count).map(|i| PathId::new(i << 32 | 5)).collect();
        for &id in &ids {
            let opening = opening(id, role);
            endpoint
                .open(Instant::ZERO, &opening)
                .expect("there is room");
        }
        let address = match role {
            Role::Client => ([192, 0, 2, 1], 4000).into(),
            Role::Server => SERVER,
        };
        Self {
            endpoint,
            address,
            peer: node(1 - role as usize),
            to_send,
            written: vec![0; ids.len()],
            read: vec![0; ids.len()],
            ids,
            events: Vec::new(),
            adversary: None,
            batch: VecDeque::new(),
            out: vec![0; BUFFER_BYTES],
        }
    }

    fn work(&mut self, now: Instant) {
        for (i, &id) in self.ids.iter().enumerate() {
            while self.written[i] < self.to_send {
                let len = (self.to_send - self.written[i]).min(10_000);
                let bytes: Vec<u8> = (0..len).map(|j| byte_at(self.written[i] + j)).collect();
                match self.endpoint.write(id, &bytes) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => self.written[i] += n as u64,
                }
            }
            let mut buf = [0; 4096];
            while let Ok(Some(n)) = self.endpoint.read(now, id, &mut buf)
                && n > 0
            {
                for &byte in &buf[..n] {
                    assert_eq!(byte, byte_at(self.read[i]), "byte {} of {id}", self.read[i]);
                    self.read[i] += 1;
                }
            }
        }
    }

    fn has_read(&self, bytes: u64) -> bool {
        self.read.iter().all(|&read| read == bytes)
    }
}

fn opening(id: PathId, role: Role) -> Opening {
    Opening {
        id,
        secret: Secret::from_bytes([id.value() as u8 ^ (id.value() >> 32) as u8; 32]),
        role,
        remote: (role == Role::Client).then_some(SERVER),
        limits: PathLimits::new(SERVER.ip(), 1500),
        rtt: None,
    }
}

/// Nodes are numbered in the order in which they are added.
fn node(number: usize) -> NodeId {
    let mut net: Net<Packet, Host> = Net::new(0);
    let first = net.add_router();
    let second = net.add_router();
    [first, second][number]
}

impl Node<Packet> for Host {
    fn handle_packet(&mut self, now: Instant, _from: NodeId, item: Packet) {
        self.endpoint
            .handle_datagram(now, item.from.into(), &item.bytes);
        if let Some(adversary) = &mut self.adversary {
            adversary.attack(now, &mut self.endpoint, &item.bytes);
        }
        self.work(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(NodeId, Packet)> {
        while self.batch.is_empty() {
            let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.out) else {
                let events: Vec<_> = std::iter::from_fn(|| self.endpoint.poll_event()).collect();
                if events.is_empty() {
                    return None;
                }
                self.events.extend(events);
                self.work(now);
                continue;
            };
            let batch = self.out[..transmit.len].chunks(transmit.segment_len);
            assert!(batch.len() <= BATCH_COUNT_MAX && transmit.len <= BATCH_BYTES_MAX);
            self.batch.extend(batch.map(<[u8]>::to_vec));
        }
        let bytes = self.batch.pop_front()?;
        let from = self.address;
        Some((self.peer, Packet { from, bytes }))
    }
}

fn link(rate: u64, delay: Duration, faults: Faults) -> LinkConfig {
    LinkConfig {
        delay,
        rate: Some(Rate::from_bytes_per_sec(rate)),
        queue: QueueConfig::TailDrop { bytes_max: 200_000 },
        mtu: Some(1500),
        faults,
    }
}

fn net(seed: u64, count: u64, to_send: [u64; 2], config: LinkConfig) -> Net<Packet, Host> {
    let mut net = Net::new(seed);
    let client = net.add_node(Host::new(Role::Client, count, to_send[0]));
    let server = net.add_node(Host::new(Role::Server, count, to_send[1]));
    net.connect(client, server, config, config);
    net.node_mut(client).work(Instant::ZERO);
    net.node_mut(server).work(Instant::ZERO);
    net
}

fn at(duration: Duration) -> Instant {
    Instant::ZERO + duration
}

fn run_to_end(net: &mut Net<Packet, Host>, bytes: [u64; 2]) {
    let done = |net: &Net<Packet, Host>| {
        net.node(node(0)).has_read(bytes[1]) && net.node(node(1)).has_read(bytes[0])
    };
    let stop = net.run(at(Duration::from_secs(600)), done, |_| {});
    assert_eq!(stop, Stop::Done, "read {:?}", net.node(node(1)).read);
}

#[test]
fn the_first_datagram_carries_data() {
    let mut net = net(
        1,
        1,
        [100, 100],
        link(10_000_000, 50 * MS, Faults::default()),
    );
    run_to_end(&mut net, [100, 100]);
    // There and back: the server knows where its client is once it has heard of it.
    let took = net.now() - Instant::ZERO;
    assert!((100 * MS..101 * MS).contains(&took), "{took:?}");
}

/// Bytes arrive right on several connections, whatever the network does and an adversary sends.
#[test]
fn a_hostile_network_changes_no_byte() {
    for seed in seeds(0..8) {
        let faults = Faults {
            loss: Chance::per_million(20_000),
            duplicate: Chance::per_million(20_000),
            corrupt: Chance::per_million(10_000),
            reorder: Chance::per_million(50_000),
            reorder_delay: 20 * MS,
        };
        let bytes = [300_000, 100_000];
        let mut net = net(seed, 3, bytes, link(5_000_000, 10 * MS, faults));
        for i in 0..2 {
            net.node_mut(node(i)).adversary = Some(Adversary {
                rng: Rng::seeded(seed ^ i as u64),
                heard: VecDeque::new(),
            });
        }
        run_to_end(&mut net, bytes);
        for i in 0..2 {
            let stats = net.node(node(i)).endpoint.stats();
            assert!(stats.forged > 0 && stats.replayed > 0 && stats.malformed > 0);
            assert_eq!(stats.moved, 0, "nobody has moved");
        }
    }
}

/// An address translator gives the client another port in the middle, and then another.
#[test]
fn a_transfer_survives_a_change_of_address() {
    let seed = seed(3);
    let bytes = [2_000_000, 2_000_000];
    let config = link(2_000_000, 20 * MS, Faults::default());
    let mut net = net(seed, 2, bytes, config);
    for (i, millis) in [300, 600].into_iter().enumerate() {
        let stop = net.run(at(millis * MS), |_| false, |_| {});
        assert_eq!(stop, Stop::Deadline);
        let port = 5000 + u16::try_from(i).expect("small");
        net.node_mut(node(0)).address = ([198, 51, 100, 7], port).into();
    }
    run_to_end(&mut net, bytes);
    let server = &net.node(node(1)).endpoint;
    assert_eq!(server.stats().moved, 4, "two connections, twice each");
    for &id in &net.node(node(1)).ids {
        assert_eq!(server.remote(id), Some(net.node(node(0)).address));
    }
}

#[test]
fn larger_datagrams_are_found_and_a_smaller_path_too() {
    let bytes = [2_000_000, 0];
    let mut config = link(5_000_000, 10 * MS, Faults::default());
    let mut wide = net(1, 1, bytes, config);
    run_to_end(&mut wide, bytes);
    let id = wide.node(node(0)).ids[0];
    let mss = |net: &Net<Packet, Host>| {
        let info = net.node(node(0)).endpoint.info(id);
        info.expect("it is there").snd_mss
    };
    // Packets of 1500 bytes: less headers of IP, UDP, ours, TCP and its timestamps.
    assert_eq!(mss(&wide), 1500 - 28 - 32 - 20 - 12);

    config.mtu = Some(1400);
    let mut narrow = net(1, 1, bytes, config);
    run_to_end(&mut narrow, bytes);
    let found = mss(&narrow) + 28 + 32 + 20 + 12;
    assert!((1400 - 32..=1400).contains(&found), "{found}");
}

#[test]
fn a_connection_ends_with_the_last_byte_on_both_sides() {
    let bytes = [50_000, 0];
    let mut net = net(1, 1, bytes, link(5_000_000, 10 * MS, Faults::default()));
    net.run(at(5 * MS), |_| false, |_| {});
    let (client, server) = (node(0), node(1));
    let id = net.node(client).ids[0];
    let now = net.now();
    net.node_mut(client).endpoint.release(now, id);
    run_to_end(&mut net, bytes);
    let _ = net.run(at(Duration::from_secs(1)), |_| false, |_| {});
    let now = net.now();
    let end = net.node_mut(server).endpoint.read(now, id, &mut [0; 10]);
    assert_eq!(end, Ok(Some(0)));
    assert!(net.node(server).events.contains(&(id, Event::Finished)));
    net.node_mut(server).endpoint.release(now, id);
    let _ = net.run(at(Duration::from_secs(2)), |_| false, |_| {});
    assert!(net.node(client).endpoint.is_empty());
    assert!(net.node(server).endpoint.is_empty());
    assert_eq!(
        net.node(server).endpoint.poll_timeout(),
        None,
        "nothing is left"
    );
}

#[test]
fn who_never_comes_is_forgotten() {
    let mut server = Endpoint::new(1);
    let id = PathId::new(1);
    let opening = opening(id, Role::Server);
    server.open(Instant::ZERO, &opening).expect("there is room");
    assert_eq!(server.open(Instant::ZERO, &opening), Err(Full));
    let mut out = vec![0; BUFFER_BYTES];
    server.write(id, b"hello").expect("it is open");
    assert_eq!(
        server.poll_transmit(Instant::ZERO, &mut out),
        None,
        "to nowhere"
    );
    server.handle_timeout(at(ARRIVAL_MAX));
    let events: Vec<_> = std::iter::from_fn(|| server.poll_event()).collect();
    assert_eq!(events, [(id, Event::Closed)]);
    assert!(server.is_empty());
    assert_eq!(server.end(id), Some(End::Done));
    // Or is let go of before.
    server.open(Instant::ZERO, &opening).expect("there is room");
    server.release(Instant::ZERO, id);
    assert!(server.is_empty());
}

#[test]
fn a_peer_that_is_gone_is_noticed() {
    let mut net = net(
        1,
        1,
        [100, 100],
        link(5_000_000, 10 * MS, Faults::default()),
    );
    run_to_end(&mut net, [100, 100]);
    let hole = LinkConfig {
        faults: Faults {
            loss: Chance::ALWAYS,
            ..Faults::default()
        },
        ..link(5_000_000, 10 * MS, Faults::default())
    };
    net.set_link(node(0), node(1), hole);
    net.set_link(node(1), node(0), hole);
    let since = net.now();
    let ends = |net: &Net<Packet, Host>, number| {
        let host = net.node(node(number));
        host.endpoint.end(host.ids[0])
    };
    let both = |net: &Net<Packet, Host>| ends(net, 0).is_some() && ends(net, 1).is_some();
    let stop = net.run(since + SILENCE_MAX, both, |_| {});
    assert_eq!(stop, Stop::Done);
    assert_eq!(ends(&net, 0), Some(End::Tcp(TcpError::TimedOut)));
}

/// Connections take turns: one that has much to send does not keep another waiting.
#[test]
fn connections_share_the_socket() {
    let (rate, bytes) = (1_000_000, [400_000, 0]);
    let mut net = net(1, 4, bytes, link(rate, 10 * MS, Faults::default()));
    let half = |net: &Net<Packet, Host>| net.node(node(1)).read.iter().sum::<u64>() > 800_000;
    assert_eq!(
        net.run(at(Duration::from_secs(60)), half, |_| {}),
        Stop::Done
    );
    let least = net.node(node(1)).read.iter().min().copied();
    assert!(least > Some(80_000), "{:?}", net.node(node(1)).read);
}
