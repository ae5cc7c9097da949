//! 10,000 connections of our TCP in one process, which have all carried data both ways and then idle: what
//! each of them costs in memory.

#![allow(clippy::unwrap_used)]

use std::alloc::System;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fullbore::stack::{Arrival, Batch, ConnectionId, Event, Read, Stack, StackConfig};
use fullbore_base::{Instant, Rng};
use fullbore_tcp::connection::{Config, State};
use fullbore_tcp::isn::Randomness;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CONNECTIONS: usize = 10_000;

/// Bytes that each connection carries either way before it idles.
const CARRIED: usize = 50_000;

/// What a connection that idles may cost, with its part of every table.
const BYTES_MAX: usize = 8 * 1024;

struct Secrets(Rng);

impl Randomness for Secrets {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

fn held() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// A segment on its way, with the addresses of who takes it and who sent it.
type Frame = (IpAddr, IpAddr, Vec<u8>);

/// Two hosts without a network between them.
struct World {
    now: Instant,
    stacks: [Stack; 2],
    frames: VecDeque<(usize, Frame)>,
    batch: Batch,
    buf: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let stack = |seed| {
            let secrets = Box::new(Secrets(Rng::seeded(seed)));
            Stack::new(StackConfig::default(), secrets)
        };
        Self {
            now: Instant::ZERO + Duration::from_secs(1),
            stacks: [stack(1), stack(2)],
            frames: VecDeque::new(),
            batch: Batch::new(256 * 1024, 0),
            buf: vec![0; 64 * 1024],
        }
    }

    /// Everything that is on its way arrives, and what that leads to.
    fn settle(&mut self) {
        loop {
            for (host, stack) in self.stacks.iter_mut().enumerate() {
                stack.handle_timeout(self.now);
                stack.poll_transmit(self.now, &mut self.batch);
                for out in self.batch.segments() {
                    let bytes = self.batch.segment(out).to_vec();
                    self.frames
                        .push_back((1 - host, (out.remote, out.local, bytes)));
                }
                self.batch.take(self.batch.segments().len());
                while let Some(event) = stack.poll_event() {
                    let Event::Connection(id, _) = event else {
                        continue;
                    };
                    while let Ok(Read::Bytes(_)) = stack.read(self.now, id, &mut self.buf) {}
                }
            }
            self.now += Duration::from_micros(100);
            if self.frames.is_empty() && !self.stacks.iter().any(Stack::has_output) {
                return;
            }
            for (host, (local, remote, bytes)) in self.frames.drain(..) {
                let arrival = Arrival {
                    local,
                    remote,
                    bytes: &bytes,
                    is_verified: false,
                    is_marked: false,
                };
                self.stacks[host].handle_segment(self.now, &arrival);
            }
        }
    }

    /// Lets time pass: whatever is due happens.
    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.stacks.iter().filter_map(Stack::poll_timeout).min()
            && at <= until
        {
            self.now = self.now.max(at);
            self.settle();
        }
        self.now = self.now.max(until);
        self.settle();
    }
}

#[test]
fn ten_thousand_idle_connections_cost_eight_kib_each_at_most() {
    let server: SocketAddr = "10.0.0.2:22".parse().unwrap();
    let mut world = World::new();
    let config = Config::default();
    let listener = world.stacks[1].listen(server, &config).unwrap();
    let before = held();
    let mut ends: Vec<[ConnectionId; 2]> = Vec::with_capacity(CONNECTIONS);
    let bytes = vec![7; CARRIED];
    for i in 0..CONNECTIONS {
        let local = IpAddr::from([10, 1, 0, u8::try_from(i % 200).unwrap()]);
        let now = world.now;
        let near = world.stacks[0].connect(now, SocketAddr::new(local, 0), server, &config);
        let near = near.unwrap();
        world.settle();
        let far = world.stacks[1].accept(listener).expect("it came");
        assert_eq!(world.stacks[0].write(near, &bytes), Ok(CARRIED));
        assert_eq!(world.stacks[1].write(far, &bytes), Ok(CARRIED));
        world.settle();
        ends.push([near, far]);
    }
    world.wait(Duration::from_secs(5));
    let own = ends.capacity() * size_of::<[ConnectionId; 2]>() + bytes.capacity();
    let each = (held() - before - own) / (2 * CONNECTIONS);
    println!("{each} bytes for each");
    for pair in &ends {
        for (stack, &id) in world.stacks.iter().zip(pair) {
            let connection = stack.connection(id).expect("held");
            assert_eq!(connection.state(), State::Established);
            let info = connection.info();
            assert_eq!(info.stats.bytes_received, CARRIED as u64);
            assert_eq!(info.outstanding_bytes, 0);
        }
    }
    assert!(each <= BYTES_MAX, "{each} bytes for each");
    // And they still work.
    let [near, far] = ends[CONNECTIONS / 2];
    assert_eq!(world.stacks[0].write(near, b"awake"), Ok(5));
    world.settle();
    let info = world.stacks[1].info(far).expect("held");
    assert_eq!(info.stats.bytes_received, CARRIED as u64 + 5);
}
