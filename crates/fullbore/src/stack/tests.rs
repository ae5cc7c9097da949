//! Two stacks joined by simulated links, and an application at each that the tests play.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fullbore_base::{Instant, Rate, Rng};
use fullbore_sim::{Chance, Faults, Link, LinkConfig};
use fullbore_tcp::connection::{self, Config, State};
use fullbore_tcp::isn::Randomness;
use fullbore_testkit::seeds;

use super::config::ORPHAN_PATIENCE;
use super::*;

const MS: Duration = Duration::from_millis(1);
const HOSTS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

struct Secrets(Rng);

impl Randomness for Secrets {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

struct World {
    now: Instant,
    stacks: [Stack; 2],
    /// From the first to the second, and back.
    links: [Link<Vec<u8>>; 2],
    batch: Batch,
    events: [Vec<Event>; 2],
}

fn address(host: usize, port: u16) -> SocketAddr {
    (HOSTS[host], port).into()
}

impl World {
    fn new(config: StackConfig, link: LinkConfig, seed: u64) -> Self {
        let stack = |salt| Stack::new(config, Box::new(Secrets(Rng::seeded(seed ^ salt))));
        Self {
            now: Instant::ZERO + MS,
            stacks: [stack(1), stack(2)],
            links: [Link::seeded(link, seed), Link::seeded(link, !seed)],
            batch: Batch::new(16 * 1024, 7),
            events: [Vec::new(), Vec::new()],
        }
    }

    fn plain() -> Self {
        let link = LinkConfig {
            delay: MS * 5,
            ..LinkConfig::default()
        };
        Self::new(StackConfig::default(), link, 1)
    }

    fn connect(&mut self, port: u16) -> ConnectionId {
        let (from, to) = (address(0, 0), address(1, port));
        let connected = self.stacks[0].connect(self.now, from, to, &Config::default());
        connected.expect("there is room")
    }

    fn listen(&mut self, port: u16) -> ListenerId {
        let listener = self.stacks[1].listen(address(1, port), &Config::default());
        listener.expect("the port is free")
    }

    /// A connection with both ends.
    fn joined(&mut self, port: u16) -> (ConnectionId, ConnectionId) {
        let listener = self.listen(port);
        let near = self.connect(port);
        self.run(MS * 100);
        let far = self.stacks[1].accept(listener).expect("it came");
        (near, far)
    }

    fn send(&mut self) {
        for (host, stack) in self.stacks.iter_mut().enumerate() {
            loop {
                stack.poll_transmit(self.now, &mut self.batch);
                if self.batch.is_empty() {
                    break;
                }
                let mut follows = 0;
                for outgoing in self.batch.segments() {
                    assert_eq!(outgoing.frame().start, follows, "without a gap");
                    follows = outgoing.frame().end;
                    assert_eq!(outgoing.remote, IpAddr::from(HOSTS[1 - host]));
                    let segment = self.batch.segment(outgoing).to_vec();
                    assert_eq!(segment.len() + 7, outgoing.frame_len());
                    self.links[host].send(self.now, segment);
                }
                self.batch.take(self.batch.segments().len());
            }
            self.events[host].extend(std::iter::from_fn(|| stack.poll_event()));
        }
    }

    /// Moves to the next thing that happens; false when that is not before `until`.
    fn step(&mut self, until: Instant) -> bool {
        self.send();
        let stacks = self.stacks.iter().filter_map(Stack::poll_timeout);
        let links = self.links.iter().filter_map(Link::next_event);
        let at = stacks.chain(links).min().unwrap_or(until);
        if at > until {
            self.now = until;
            return false;
        }
        self.now = self.now.max(at);
        for host in 0..2 {
            while let Some(bytes) = self.links[1 - host].receive(self.now) {
                let arrival = Arrival {
                    local: HOSTS[host].into(),
                    remote: HOSTS[1 - host].into(),
                    bytes: &bytes,
                    is_verified: false,
                    is_marked: false,
                };
                self.stacks[host].handle_segment(self.now, &arrival);
            }
            self.stacks[host].handle_timeout(self.now);
        }
        true
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until && self.step(until) {}
    }

    fn read_all(&mut self, host: usize, id: ConnectionId) -> (Vec<u8>, Result<Read, Error>) {
        let (mut all, mut part) = (Vec::new(), [0; 1000]);
        loop {
            match self.stacks[host].read(self.now, id, &mut part) {
                Ok(Read::Bytes(n)) => all.extend_from_slice(&part[..n]),
                other => return (all, other),
            }
        }
    }

    fn has(&self, host: usize, id: ConnectionId, event: connection::Event) -> bool {
        self.events[host].contains(&Event::Connection(id, event))
    }
}

fn stream(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::seeded(seed).fill(&mut bytes);
    bytes
}

/// Connections of one test, with what is still to be written and what has been read.
#[derive(Default)]
struct Jobs(BTreeMap<ConnectionId, (Vec<u8>, usize, Vec<u8>)>);

impl Jobs {
    fn work(&mut self, world: &mut World, host: usize) {
        for (&id, (bytes, written, read)) in &mut self.0 {
            read.extend(world.read_all(host, id).0);
            if *written == bytes.len() {
                continue;
            }
            let taken = world.stacks[host].write(id, &bytes[*written..]);
            *written += taken.expect("open");
            if *written == bytes.len() {
                world.stacks[host].shutdown(id);
            }
        }
    }
}

#[test]
fn many_connections_share_a_bad_link_and_each_gets_its_own_bytes() {
    const COUNT: u16 = 40;
    for seed in seeds(0..3) {
        let faults = Faults {
            loss: Chance::per_million(20_000),
            duplicate: Chance::per_million(10_000),
            reorder: Chance::per_million(50_000),
            corrupt: Chance::per_million(10_000),
            ..Faults::default()
        };
        let link = LinkConfig {
            delay: MS * 10,
            rate: Some(Rate::from_bits_per_sec(50_000_000)),
            faults,
            ..LinkConfig::default()
        };
        let mut world = World::new(StackConfig::default(), link, seed);
        let listener = world.listen(80);
        let (mut near, mut far) = (Jobs::default(), Jobs::default());
        for i in 0..COUNT {
            let id = world.connect(80);
            let port = world.stacks[0].tuple(id).expect("it is there").local.1;
            let bytes = stream(port.into(), 20_000 + usize::from(i) * 1000);
            near.0.insert(id, (bytes, 0, Vec::new()));
        }
        let until = world.now + Duration::from_secs(300);
        while world.now < until && world.step(until) {
            while let Some(id) = world.stacks[1].accept(listener) {
                let port = world.stacks[1].tuple(id).expect("it is there").remote.1;
                let bytes = stream(!u64::from(port), 30_000);
                far.0.insert(id, (bytes, 0, Vec::new()));
            }
            near.work(&mut world, 0);
            far.work(&mut world, 1);
        }
        assert_eq!(far.0.len(), usize::from(COUNT));
        for (&id, (_, _, read)) in &far.0 {
            let port = world.stacks[1].tuple(id).expect("held").remote.1;
            let expected = stream(port.into(), read.len());
            assert!(read.len() >= 20_000 && *read == expected);
        }
        for (&id, (_, _, read)) in &near.0 {
            let port = world.stacks[0].tuple(id).expect("held").local.1;
            assert!(*read == stream(!u64::from(port), 30_000));
        }
        assert!(world.stacks[1].stats().invalid > 0, "corruption is noticed");
    }
}

#[test]
fn a_port_that_nobody_listens_at_refuses() {
    let mut world = World::plain();
    let id = world.connect(81);
    world.run(MS * 50);
    assert!(world.has(0, id, connection::Event::Closed));
    let read = world.read_all(0, id).1;
    assert_eq!(read, Err(Error::Connection(connection::Error::Refused)));
    assert_eq!(world.stacks[1].stats().refused, 1);
    world.stacks[0].release(world.now, id);
    world.run(MS);
    assert_eq!(world.stacks[0].connection_count(), 0);
    assert_eq!(
        world.stacks[0].read(world.now, id, &mut [0]),
        Err(Error::Unknown)
    );
}

#[test]
fn a_listener_at_any_address_takes_what_comes_to_one() {
    let mut world = World::plain();
    let any: SocketAddr = ([0, 0, 0, 0], 80).into();
    let listener = world.stacks[1]
        .listen(any, &Config::default())
        .expect("free");
    let again = world.stacks[1].listen(any, &Config::default());
    assert_eq!(again, Err(Error::InUse));
    world.connect(80);
    world.run(MS * 50);
    assert!(world.events[1].contains(&Event::Incoming(listener)));
    assert!(world.stacks[1].accept(listener).is_some());
    assert!(world.stacks[1].accept(listener).is_none());
}

#[test]
fn what_was_written_before_the_release_arrives_and_then_nothing_is_kept() {
    let mut world = World::plain();
    let (near, far) = world.joined(80);
    let bytes = stream(5, 100_000);
    assert_eq!(world.stacks[0].write(near, &bytes), Ok(bytes.len()));
    world.stacks[0].release(world.now, near);
    world.run(MS * 500);
    assert_eq!(world.read_all(1, far), (bytes, Ok(Read::End)));
    world.stacks[1].release(world.now, far);
    world.run(MS * 500);
    let counts = world.stacks.each_ref().map(Stack::connection_count);
    assert_eq!(counts, [0, 0]);
    // Who closed first waits for what is late, and not for ever.
    let waits = world.stacks.each_ref().map(Stack::time_wait_count);
    assert_eq!(waits, [1, 0]);
    world.run(Duration::from_secs(61));
    assert_eq!(world.stacks[0].time_wait_count(), 0);
}

#[test]
fn data_that_nobody_will_read_is_answered_with_a_reset() {
    let mut world = World::plain();
    let (near, far) = world.joined(80);
    world.stacks[0].release(world.now, near);
    world.run(MS * 50);
    assert_eq!(world.stacks[1].write(far, b"still there?"), Ok(12));
    world.run(MS * 50);
    let read = world.read_all(1, far).1;
    // The FIN came first; the RST behind it ended the connection.
    assert!(matches!(read, Ok(Read::End) | Err(_)), "{read:?}");
    assert!(world.has(1, far, connection::Event::Closed));
    assert_eq!(world.stacks[0].connection_count(), 0);
}

#[test]
fn unread_bytes_turn_a_release_into_a_reset() {
    let mut world = World::plain();
    let (near, far) = world.joined(80);
    assert_eq!(world.stacks[1].write(far, b"unread"), Ok(6));
    world.run(MS * 50);
    world.stacks[0].release(world.now, near);
    world.run(MS * 50);
    let read = world.read_all(1, far).1;
    assert_eq!(read, Err(Error::Connection(connection::Error::Reset)));
}

#[test]
fn a_peer_that_never_closes_does_not_keep_a_released_connection_for_ever() {
    let mut world = World::plain();
    let (near, far) = world.joined(80);
    world.stacks[0].release(world.now, near);
    world.run(ORPHAN_PATIENCE - MS * 500);
    assert_eq!(world.stacks[0].connection_count(), 1);
    world.run(MS * 1000);
    assert_eq!(world.stacks[0].connection_count(), 0);
    let state = world.stacks[1].connection(far).expect("held").state();
    assert_eq!(state, State::Closed, "it was told");
}

#[test]
fn connections_up_to_the_limit_and_not_one_more() {
    let config = StackConfig {
        connections_max: 3,
        ..StackConfig::default()
    };
    let mut world = World::new(config, LinkConfig::default(), 1);
    let listener = world.listen(80);
    for _ in 0..3 {
        world.connect(80);
    }
    let one_more =
        world.stacks[0].connect(world.now, address(0, 0), address(1, 80), &Config::default());
    assert_eq!(one_more, Err(Error::Full));
    world.run(MS * 50);
    let accepted: Vec<_> = std::iter::from_fn(|| world.stacks[1].accept(listener)).collect();
    assert_eq!(accepted.len(), 3);
}

#[test]
fn handshakes_beyond_what_waits_to_be_accepted_are_completed_later() {
    let config = StackConfig {
        accepts_max: 2,
        ..StackConfig::default()
    };
    let mut world = World::new(config, LinkConfig::default(), 1);
    let listener = world.listen(80);
    let ids: Vec<_> = (0..3).map(|_| world.connect(80)).collect();
    world.run(MS * 50);
    assert!(world.stacks[1].stats().overflowed > 0);
    let first: Vec<_> = std::iter::from_fn(|| world.stacks[1].accept(listener)).collect();
    assert_eq!(first.len(), 2);
    // The third's SYN, or what it says next, comes again.
    world.stacks[0].write(ids[2], b"hello").expect("open");
    world.run(Duration::from_secs(5));
    let third = world.stacks[1].accept(listener).expect("it tried again");
    assert_eq!(world.read_all(1, third).0, b"hello");
}

#[test]
fn the_oldest_in_time_wait_make_room() {
    let config = StackConfig {
        time_waits_max: 2,
        ..StackConfig::default()
    };
    let mut world = World::new(config, LinkConfig::default(), 1);
    let listener = world.listen(80);
    for _ in 0..4 {
        let near = world.connect(80);
        world.run(MS * 10);
        let far = world.stacks[1].accept(listener).expect("it came");
        world.stacks[0].release(world.now, near);
        world.run(MS * 10);
        world.stacks[1].release(world.now, far);
        world.run(MS * 100);
    }
    assert_eq!(world.stacks[0].time_wait_count(), 2);
    assert_eq!(world.stacks[0].connection_count(), 0);
}

#[test]
fn the_same_ports_connect_again_over_a_time_wait() {
    let mut world = World::plain();
    let listener = world.listen(80);
    let from = address(0, 5000);
    for round in 0..3 {
        // The server closes first, so it is the server that waits.
        let near = world.stacks[0].connect(world.now, from, address(1, 80), &Config::default());
        let near = near.unwrap_or_else(|error| panic!("round {round}: {error}"));
        world.run(MS * 50);
        let far = world.stacks[1].accept(listener).expect("taken in again");
        world.stacks[1].release(world.now, far);
        world.run(MS * 50);
        world.stacks[0].release(world.now, near);
        world.run(MS * 100);
        assert_eq!(world.stacks[1].time_wait_count(), 1);
        assert_eq!(world.stacks[0].connection_count(), 0);
    }
}

#[test]
fn a_writer_is_told_when_there_is_room_again() {
    let config = StackConfig {
        notsent_max: 10_000,
        ..StackConfig::default()
    };
    let link = LinkConfig {
        delay: MS * 5,
        rate: Some(Rate::from_bits_per_sec(8_000_000)),
        ..LinkConfig::default()
    };
    let mut world = World::new(config, link, 1);
    let (near, far) = world.joined(80);
    world.events[0].clear();
    let taken = world.stacks[0].write(near, &[1; 50_000]);
    assert_eq!(taken, Ok(10_000), "as much as it may keep unsent");
    world.run(MS * 50);
    assert!(world.has(0, near, connection::Event::Writable));
    assert!(world.stacks[0].write(near, &[1; 50_000]).expect("open") > 0);
    world.run(MS * 50);
    assert!(world.read_all(1, far).0.len() > 10_000);
}

#[test]
fn closing_a_port_ends_what_nobody_accepted() {
    let mut world = World::plain();
    let listener = world.listen(80);
    let near = world.connect(80);
    world.run(MS * 50);
    world.stacks[1].unlisten(world.now, listener);
    world.run(MS * 50);
    let read = world.read_all(0, near).1;
    assert_eq!(read, Err(Error::Connection(connection::Error::Reset)));
    assert_eq!(world.stacks[1].connection_count(), 0);
    let again = world.connect(80);
    world.run(MS * 50);
    let read = world.read_all(0, again).1;
    assert_eq!(read, Err(Error::Connection(connection::Error::Refused)));
}
