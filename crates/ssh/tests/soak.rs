//! Whole connections with everything about them drawn from a seed; invariants after every step.

#![allow(clippy::unwrap_used)]

mod common;

use common::apps::{Ask, Flow};
use common::*;
use fullbore_base::{Instant, Rng};
use fullbore_sim::{PairConfig, Stop};
use fullbore_ssh::channel::output::{STAGING_BYTES_MAX, STDERR_STAGING_BYTES_MAX};
use fullbore_ssh::config::PAYLOAD_BYTES_MAX;
use fullbore_ssh::connection::{CONTROL_BYTES_MAX, ConnectionConfig};
use fullbore_ssh::packet::Compression;
use std::time::Duration;

/// One of these, at random.
fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.index(of.len())]
}

fn connection(rng: &mut Rng) -> ConnectionConfig {
    ConnectionConfig {
        local_window: pick(
            rng,
            &[
                None,
                Some(32 << 10),
                Some(50_000),
                Some(300_000),
                Some(1 << 20),
                Some(8 << 20),
            ],
        ),
        local_maxpacket: pick(rng, &[100, 1000, 32 << 10, 100_000, 256 << 10]),
        eager: rng.one_in(2),
        keepalive_interval: rng.one_in(2).then_some(Duration::from_secs(1)),
        ping_interval: rng.one_in(2).then_some(Duration::from_millis(300)),
        ..ConnectionConfig::default()
    }
}

fn plan(rng: &mut Rng) -> (Ask, Flow) {
    let len = |rng: &mut Rng| {
        let below = pick(rng, &[1, 1000, 100_000, 1_500_000]);
        rng.below(below)
    };
    let to_server = len(rng);
    let mut flow = Flow::new(to_server);
    flow.chunk = pick(rng, &[100, 5000, 32 << 10, 262_144]);
    let command = match rng.below(5) {
        0 => "cat".to_owned(),
        1 => format!("complain {}", rng.below(60_000)),
        _ => {
            let chunk = pick(rng, &[100, 5000, 32 << 10, 262_144]);
            format!("flow {} 1 {chunk}", len(rng))
        }
    };
    let ask = if rng.one_in(2) && !command.starts_with("complain") {
        Ask::Subsystem(command)
    } else {
        Ask::Exec(command)
    };
    (ask, flow)
}

/// What an ask sends back when it is sent `bytes`.
fn expected(ask: &Ask, bytes: u64) -> u64 {
    let (Ask::Exec(command) | Ask::Subsystem(command)) = ask;
    let words: Vec<&str> = command.split(' ').collect();
    match words[0] {
        "flow" => words[1].parse().unwrap(),
        _ => bytes,
    }
}

fn check(pair: &TestPair, windows: (Option<u32>, Option<u32>), seed: u64) {
    let windows = (windows.0.unwrap_or(u32::MAX), windows.1.unwrap_or(u32::MAX));
    for conn in [&pair.a.conn, &pair.b.conn] {
        assert!(conn.windows_use().held <= conn.windows_max(), "seed {seed}");
    }
    for conn in [&pair.a.conn, &pair.b.conn] {
        assert_eq!(conn.error(), None, "seed {seed}");
        let control_max = CONTROL_BYTES_MAX + PAYLOAD_BYTES_MAX;
        assert!(conn.control_len() <= control_max, "seed {seed}");
    }
    for ch in pair.a.app.flows.keys() {
        let conn = &pair.a.conn;
        assert!(conn.backlog_len(*ch) <= windows.0 as usize, "seed {seed}");
        assert!(
            conn.staged_len(*ch) <= STAGING_BYTES_MAX + STDERR_STAGING_BYTES_MAX + (32 << 10),
            "seed {seed}"
        );
    }
    for ch in pair.b.app.flows.keys() {
        assert!(
            pair.b.conn.backlog_len(*ch) <= windows.1 as usize,
            "seed {seed}"
        );
    }
}

fn soak(seed: u64) {
    let mut rng = Rng::seeded(seed);
    let (mut client, mut server) = (client_config(), server_config());
    client.connection = connection(&mut rng);
    server.connection = connection(&mut rng);
    for transport in [&mut client.transport, &mut server.transport] {
        transport.rekey.bytes = pick(&mut rng, &[200_000, 1 << 20, u64::MAX]);
        transport.guess_kex = rng.one_in(2);
        if rng.one_in(3) {
            transport.compression = vec![Compression::ZlibDelayed];
        }
    }
    let plans: Vec<_> = (0..=rng.index(6)).map(|_| plan(&mut rng)).collect();
    let wanted: Vec<u64> = plans
        .iter()
        .map(|(ask, f)| expected(ask, f.to_send))
        .collect();
    let attempts = (0..=rng.below(3))
        .map(|_| key_attempt(2, rng.one_in(2)))
        .collect();
    let windows = (
        client.connection.local_window,
        server.connection.local_window,
    );
    let network = PairConfig {
        seed,
        delay: Duration::from_micros(pick(&mut rng, &[1, 1000, 100_000])),
        cuts: true,
        buffer_bytes_max: pick(&mut rng, &[5000, 64 << 10, 4 << 20]),
        ..PairConfig::default()
    };
    let tx_bytes = pick(&mut rng, &[40_000, 300_000, 1 << 20]);
    let mut pair = pair(
        network,
        (client, Client::new(attempts, plans)),
        (server, Server::new(welcome)),
        tx_bytes,
    );
    let stop = pair.run(
        Instant::ZERO + Duration::from_secs(100_000),
        |pair| all_closed(pair) && pair.b.conn.channel_count() == 0,
        |pair| check(pair, windows, seed),
    );
    assert_eq!(
        stop,
        Stop::Done,
        "seed {seed}, client {:?} {:?}, server {:?}",
        pair.a.app.error,
        pair.a.app.flows,
        pair.b.app.error
    );
    for (index, wanted) in wanted.iter().enumerate() {
        let flow = pair.a.app.flow(index);
        assert_eq!(flow.received, *wanted, "seed {seed}");
        assert_eq!(flow.exit_status, Some(7), "seed {seed}");
        assert_eq!(flow.done, [true], "seed {seed}");
    }
}

#[test]
fn a_keepalive_behind_a_full_buffer_is_no_sign_of_death() {
    soak(10_000);
    soak(40_003);
}

#[test]
fn connections_of_every_shape_deliver_every_byte() {
    let first = seed(1000);
    for seed in first..first + SEEDS {
        soak(seed);
    }
}

/// How many shapes one run tries.
const SEEDS: u64 = 40;
