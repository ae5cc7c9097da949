//! Whole transfers over a simulated network: every byte arrives, both sides close.

mod support;

use fullbore_sim::{Chance, Faults, LinkConfig, Stop};
use fullbore_tcp::congestion::Algorithm;
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
