//! Paths that change under a connection: smaller MTUs, outages, slow readers, reordering.

mod support;

use fullbore_sim::{Chance, LinkConfig, QueueConfig, Stop};
use fullbore_tcp::congestion::Algorithm;
use fullbore_tcp::connection::Config;
use std::time::Duration;
use support::{Host, Job, MS, World, config, link};

const SECS: Duration = Duration::from_secs(1);

fn upload(config: Config, send: u64, path: LinkConfig) -> World {
    let job = Job {
        send,
        ..Job::default()
    };
    let client = Host::client(config, job);
    let server = Host::server(config, Job::default(), 16, 3);
    World::new(3, client, server, path, path)
}

/// A link whose far end takes only `mtu`, and says nothing when it drops.
fn narrow(mtu: usize) -> LinkConfig {
    LinkConfig {
        mtu: Some(mtu),
        ..link(MS * 20, 50)
    }
}

#[test]
fn segments_that_vanish_are_sent_smaller() {
    let mut world = upload(Config::default(), 500_000, narrow(1300));
    assert_eq!(world.run_to_end(SECS * 150), Stop::Done);
    assert_eq!(world.server().read, 500_000);
    let info = world.client().info();
    assert_eq!(info.stats.black_holes, 1);
    assert!(info.snd_mss < 1300);
}

#[test]
fn a_path_that_shrinks_in_mid_stream_goes_on() {
    let mut world = upload(Config::default(), 3_000_000, narrow(1500));
    let stop = world.run(SECS * 20, |_, server| server.read > 1_000_000);
    assert_eq!(stop, Stop::Done);
    let (client, server) = (world.client, world.server);
    world.net.set_link(client, server, narrow(1200));
    assert_eq!(world.run_to_end(SECS * 150), Stop::Done);
    assert_eq!(world.server().read, 3_000_000);
    assert_eq!(world.client().info().stats.black_holes, 1);
}

#[test]
fn larger_segments_are_found_where_they_pass() {
    for (mtu, least) in [(9000, 8900), (4000, 3800), (1500, 1440)] {
        let config = Config {
            mss: 1460,
            mss_max: 8960,
            ..Config::default()
        };
        let mut world = upload(config, 16_000_000, narrow(mtu));
        assert_eq!(world.run_to_end(SECS * 150), Stop::Done);
        assert_eq!(world.server().read, 16_000_000);
        let info = world.client().info();
        let mss = info.snd_mss as usize;
        assert!(mss >= least && mss + 52 <= mtu, "{mtu}: {mss}");
        assert_eq!(info.recovery.timeouts, 0, "a lost probe costs no time-out");
    }
}

/// Nothing passes for twenty seconds, then all does again.
#[test]
fn an_outage_is_survived() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr] {
        let config = config(algorithm);
        let path = link(MS * 20, 20);
        let mut world = upload(config, 4_000_000, path);
        let stop = world.run(SECS * 20, |_, server| server.read > 1_000_000);
        assert_eq!(stop, Stop::Done);
        let mut dead = path;
        dead.faults.loss = Chance::ALWAYS;
        let (client, server) = (world.client, world.server);
        world.net.set_link(client, server, dead);
        assert_eq!(world.run(SECS * 20, |_, _| false), Stop::Deadline);
        world.net.set_link(client, server, path);
        assert_eq!(world.run_to_end(SECS * 150), Stop::Done);
        assert_eq!(world.server().read, 4_000_000);
        let timeouts = world.client().info().recovery.timeouts;
        assert!((3..10).contains(&timeouts), "{algorithm:?}: {timeouts}");
    }
}

/// The window closes and opens again and again; nothing is lost, nothing deemed lost.
#[test]
fn a_slow_reader_holds_the_sender_back() {
    let job = Job {
        send: 600_000,
        ..Job::default()
    };
    let reader = Job {
        read_rate: Some(100_000),
        ..Job::default()
    };
    let config = Config {
        receive_buffer: 30_000,
        receive_buffer_max: 30_000,
        ..Config::default()
    };
    let client = Host::client(config, job);
    let server = Host::server(config, reader, 16, 3);
    let path = link(MS * 20, 50);
    let mut world = World::new(3, client, server, path, path);
    assert_eq!(world.run_to_end(SECS * 150), Stop::Done);
    assert_eq!(world.server().read, 600_000);
    let info = world.client().info();
    assert_eq!(info.recovery.timeouts, 0);
    assert_eq!(info.recovery.retransmissions, 0);
}

/// RACK learns that the path reorders: after that, little is sent again for nothing.
#[test]
fn reordering_is_not_taken_for_loss() {
    let mut path = link(MS * 20, 50);
    path.faults.reorder = Chance::per_million(50_000);
    path.faults.reorder_delay = MS * 6;
    let mut world = upload(Config::default(), 6_000_000, path);
    assert_eq!(world.run_to_end(SECS * 150), Stop::Done);
    let recovery = world.client().info().recovery;
    assert!(
        recovery.retransmissions * 50 < 6_000_000 / 1448,
        "{recovery:?}"
    );
    assert_eq!(recovery.timeouts, 0);
    assert!(world.client().info().is_reordering_seen);
}

/// The receive buffer grows with what the path brings, ahead of it.
#[test]
fn the_window_follows_the_path() {
    let mut path = link(MS * 50, 200);
    path.queue = QueueConfig::TailDrop {
        bytes_max: 1_000_000,
    };
    let config = Config {
        receive_buffer_max: 64 << 20,
        ..Config::default()
    };
    let mut world = upload(config, 60_000_000, path);
    let stop = world.run(SECS * 3, |_, _| false);
    assert_eq!(stop, Stop::Deadline);
    let info = world.server().info();
    // 2.5 MB fit into the path and 1 MB into its queue; a repair holds two round trips.
    let space = info.rcv_space;
    assert!((5_000_000..21_000_000).contains(&space), "{space}");
}

/// A reader at a tenth of the path's rate keeps the window closed; one that is fast enough does not.
#[test]
fn what_holds_a_sender_up_is_counted() {
    for (read_rate, is_by_window) in [(Some(600_000), true), (None, false)] {
        let config = Config {
            receive_buffer_max: if is_by_window { 256 << 10 } else { 15 << 20 },
            ..Config::default()
        };
        let path = link(MS * 10, 50);
        let client = Host::client(
            config,
            Job {
                send: 3_000_000,
                ..Job::default()
            },
        );
        let job = Job {
            read_rate,
            ..Job::default()
        };
        let server = Host::server(config, job, 16, 1);
        let mut world = World::new(3, client, server, path, path);
        assert_eq!(world.run_to_end(SECS * 200), Stop::Done);
        let stats = world.client().info().stats;
        assert!(stats.busy > MS * 400, "{stats:?}");
        let share = stats.window_limited.as_secs_f64() / stats.busy.as_secs_f64();
        assert_eq!(share > 0.5, is_by_window, "{share}");
        assert!(is_by_window || share < 0.1, "{share}");
    }
}

#[test]
fn lost_handshakes_are_repeated() {
    let mut path = link(MS * 20, 50);
    path.faults.loss = Chance::per_million(400_000);
    let mut world = upload(Config::default(), 2000, path);
    let stop = world.run(SECS * 120, |_, server| server.read == 2000);
    assert_eq!(stop, Stop::Done);
}
