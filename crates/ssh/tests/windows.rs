//! Windows that follow the path, between two of our own ends on simulated links.

#![allow(clippy::unwrap_used)]

mod common;

use common::apps::{Ask, Flow};
use common::raw::{message, open_session, request};
use common::*;
use fullbore_base::{Instant, Rate};
use fullbore_sim::{PairConfig, Stop};
use fullbore_ssh::auth::Attempt;
use fullbore_ssh::msg::{SSH_MSG_CHANNEL_DATA, SSH_MSG_CHANNEL_WINDOW_ADJUST};
use fullbore_ssh::wire::Put;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn path(mbit: u64, rtt: Duration) -> PairConfig {
    let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
    let bdp = rate.bytes_per_sec() as f64 * rtt.as_secs_f64();
    PairConfig {
        delay: rtt / 2,
        rate: Some(rate),
        cuts: false,
        // What TCP has under way at most: the path, and a queue of half of it.
        buffer_bytes_max: (bdp * 1.5) as usize + (64 << 10),
        segment_bytes_max: 64 << 10,
        seed: 1,
        ..PairConfig::default()
    }
}

/// A connection on which the server sends (`down`) or the client does, and nobody ever stops.
fn flow(config: PairConfig, down: bool) -> TestPair {
    let (ask, flow) = if down {
        (format!("flow {} 1", 1u64 << 40), Flow::new(0))
    } else {
        ("flow 0 1".to_owned(), Flow::new(1 << 40))
    };
    let mut flow = flow;
    flow.chunk = 100_000;
    let client = Client::new(vec![Attempt::None], vec![(Ask::Exec(ask), flow)]);
    pair(
        config,
        (client_config(), client),
        (server_config(), Server::new(welcome)),
        512 << 10,
    )
}

fn run_until(pair: &mut TestPair, at: Instant) {
    let stop = pair.run(at, |_| false, |_| {});
    assert_eq!(stop, Stop::Deadline);
}

#[test]
fn the_window_is_no_limit_for_either_direction() {
    for down in [true, false] {
        let config = path(320, MS * 200);
        let mut pair = flow(config, down);
        // Five round trips of login at most, five for the window to pass the path's 8 MB.
        run_until(&mut pair, Instant::ZERO + MS * 2000);
        let before = pair.bytes_delivered();
        run_until(&mut pair, Instant::ZERO + MS * 4000);
        let after = pair.bytes_delivered();
        let moved = (after.0 - before.0).max(after.1 - before.1);
        assert!(moved >= 80_000_000 * 97 / 100, "down {down}: {moved}");
    }
}

#[test]
fn a_peer_that_adjusts_one_byte_at_a_time_gets_its_bytes_in_as_many_packets() {
    const BYTES: u64 = 2000;
    let mut node = server_node(server_config(), Server::new(welcome), 256 << 10);
    let mut raw = Raw::client();
    raw.log_in(&mut node);
    raw.send(&open_session(0, 1, 32 << 10));
    raw.exchange(&mut node);
    raw.send(&request(0, "exec", true, &format!("flow {BYTES} 1")));
    let mut got = Vec::new();
    let mut packets = 0;
    while (got.len() as u64) < BYTES {
        raw.inbox.clear();
        raw.exchange(&mut node);
        for data in raw.inbox.iter().filter(|m| m[0] == SSH_MSG_CHANNEL_DATA) {
            got.extend_from_slice(&data[9..]);
            packets += 1;
        }
        raw.send(&message(SSH_MSG_CHANNEL_WINDOW_ADJUST, |m| {
            m.put_u32(0);
            m.put_u32(1);
        }));
    }
    // Not one byte more than it allowed, and nothing else for it.
    assert_eq!((got.len() as u64, packets), (BYTES, BYTES));
    assert_eq!(node.conn.stats().channel_bytes_sent, BYTES);
    assert_eq!(node.conn.error(), None);
}

#[test]
fn a_peer_that_adjusts_a_second_late_gets_a_window_a_second() {
    const WINDOW: u64 = 256 << 10;
    let mut reader = Flow::new(0);
    reader.is_reading = false;
    let ask = Ask::Exec(format!("flow {} 1", 8 * WINDOW));
    let mut client = client_config();
    client.connection.local_window = Some(WINDOW as u32);
    // So that the clock goes on while nothing else happens.
    client.connection.ping_interval = Some(MS * 50);
    let app = Client::new(vec![Attempt::None], vec![(ask, reader)]);
    let config = PairConfig {
        delay: MS * 10,
        cuts: false,
        ..network(1)
    };
    let mut pair = pair(
        config,
        (client, app),
        (server_config(), Server::new(welcome)),
        512 << 10,
    );
    for second in 1..=8 {
        let _quiet = pair.run(Instant::ZERO + MS * 1000 * second, |_| false, |_| {});
        let ch = pair.a.app.order[0];
        assert_eq!(pair.a.conn.readable(ch).len() as u64, WINDOW, "{second}");
        let limited = pair.b.conn.window_limited_total(pair.now());
        assert!(
            limited >= MS * 800 * (second - 1),
            "{limited:?} in {second} s"
        );
        pair.a.conn.consume(pair.now(), ch, WINDOW as usize);
    }
}
