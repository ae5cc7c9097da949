//! Whole transfers over a simulated network: every byte arrives, both sides close.

mod support;

use fullbore_base::Rng;
use fullbore_sim::{Chance, Faults, LinkConfig, QueueConfig, Stop};
use fullbore_tcp::congestion::{Algorithm, Settings};
use fullbore_tcp::connection::{Config, Event, State};
use fullbore_testkit::seeds;
use std::time::Duration;
use support::{Host, Job, MS, World, config, link};

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr];

fn world(seed: u64, config: Config, send: (u64, u64), path: LinkConfig) -> World {
    let job = |send| Job {
        send,
        ..Job::default()
    };
    let client = Host::client(config, job(send.0));
    let server = Host::server(config, job(send.1), 16, seed);
    World::new(seed, client, server, path, path)
}

fn assert_complete(world: &World, send: (u64, u64)) {
    assert_eq!(world.server().read, send.0);
    assert_eq!(world.client().read, send.1);
    for host in [world.client(), world.server()] {
        let connection = host.connection.as_ref().expect("it was made");
        assert_eq!(connection.error(), None);
        assert_eq!(connection.state(), State::Closed);
        assert!(host.events.contains(&Event::Finished));
    }
}

#[test]
fn a_clean_path_carries_both_ways_and_closes() {
    for algorithm in ALGORITHMS {
        let config = config(algorithm);
        let send = (3_000_000, 1_000_000);
        let mut world = world(1, config, send, link(MS * 25, 100));
        assert_eq!(world.run_to_end(Duration::from_secs(200)), Stop::Done);
        assert_complete(&world, send);
        let counters = world.client().info().recovery;
        assert_eq!(counters.timeouts, 0, "{algorithm:?}");
    }
}

#[test]
fn a_bad_path_loses_nothing_of_the_stream() {
    for seed in seeds(0..6) {
        for algorithm in ALGORITHMS {
            let config = config(algorithm);
            let mut path = link(MS * 10, 50);
            path.faults = Faults {
                loss: Chance::per_million(20_000),
                duplicate: Chance::per_million(10_000),
                corrupt: Chance::per_million(10_000),
                reorder: Chance::per_million(30_000),
                reorder_delay: MS * 8,
            };
            let send = (600_000, 300_000);
            let mut world = world(seed, config, send, path);
            assert_eq!(world.run_to_end(Duration::from_secs(600)), Stop::Done);
            assert_complete(&world, send);
            assert!(world.client().invalid + world.server().invalid > 0);
        }
    }
}

/// Every combination of what may be agreed.
#[test]
fn each_option_may_be_missing() {
    for bits in 0..16u32 {
        let has = |bit: u32| bits >> bit & 1 == 1;
        let config = Config {
            is_sack: has(0),
            is_timestamps: has(1),
            is_window_scaling: has(2),
            is_ecn: has(3),
            ..Config::default()
        };
        let mut path = link(MS * 10, 50);
        path.faults.loss = Chance::per_million(10_000);
        let send = (500_000, 200_000);
        let mut world = world(u64::from(bits), config, send, path);
        assert_eq!(world.run_to_end(Duration::from_secs(600)), Stop::Done);
        assert_complete(&world, send);
        let agreed = *world.client().connection.as_ref().expect("made").agreed();
        assert_eq!(agreed.is_sack, has(0));
        assert_eq!(agreed.is_timestamps, has(1));
        assert_eq!(agreed.is_scaled, has(2));
        assert_eq!(agreed.is_ecn, has(3));
    }
}

/// A configuration drawn from all that may be chosen.
fn any_config(rng: &mut Rng) -> Config {
    let mss = [300, 536, 1000, 1460][rng.index(4)];
    let receive_buffer = 2000 << rng.below(8);
    Config {
        is_sack: !rng.one_in(4),
        is_timestamps: !rng.one_in(3),
        is_window_scaling: !rng.one_in(3),
        is_ecn: rng.one_in(3),
        is_nagle: rng.one_in(3),
        is_paced: !rng.one_in(3),
        mss,
        mss_max: if rng.one_in(3) { 1460 } else { mss },
        mss_base: 300,
        receive_buffer,
        receive_buffer_max: receive_buffer << rng.below(4),
        send_buffer_max: 1000 << rng.below(10),
        congestion: Settings {
            algorithm: ALGORITHMS[rng.index(3)],
            ..Settings::default()
        },
        ..Config::default()
    }
}

fn any_path(rng: &mut Rng) -> LinkConfig {
    let below = |rng: &mut Rng, parts| {
        let parts = u32::try_from(rng.below(parts)).expect("small");
        Chance::per_million(parts)
    };
    let delay = Duration::from_micros(100 << rng.below(9));
    let mut path = link(delay, 1 << rng.below(6));
    path.faults = Faults {
        loss: below(rng, 50_000),
        duplicate: below(rng, 30_000),
        corrupt: below(rng, 20_000),
        reorder: below(rng, 50_000),
        reorder_delay: delay,
    };
    if rng.one_in(3) {
        path.mtu = Some(1100);
    }
    if rng.one_in(2) {
        let bytes_max = 6000 << rng.below(6);
        path.queue = QueueConfig::TailDrop { bytes_max };
    }
    path
}

/// Whatever the two sides and the path between them are, the stream arrives.
#[test]
fn any_two_ends_over_any_path() {
    for seed in seeds(0..60) {
        let mut rng = Rng::seeded(seed);
        let job = |rng: &mut Rng| Job {
            send: rng.below(200_000),
            read_rate: rng.one_in(4).then(|| 20_000 + rng.below(1_000_000)),
            ..Job::default()
        };
        let (up, down) = (job(&mut rng), job(&mut rng));
        let client = Host::client(any_config(&mut rng), up);
        let backlog_max = rng.index(2);
        let server = Host::server(any_config(&mut rng), down, backlog_max, seed);
        let there = any_path(&mut rng);
        let back = any_path(&mut rng);
        let mut world = World::new(seed, client, server, there, back);
        let stop = world.run(Duration::from_secs(3600), |client, server| {
            client.read == down.send && server.read == up.send
        });
        let state = |host: &Host| host.connection.as_ref().map(|c| (c.state(), c.error()));
        let (client, server) = (world.client(), world.server());
        assert_eq!(
            stop,
            Stop::Done,
            "seed {seed}: {} of {}, {} of {}, {:?}, {:?}",
            server.read,
            up.send,
            client.read,
            down.send,
            state(client),
            state(server)
        );
    }
}
