//! Channels between two of our own ends: flows, windows, ends in every order.

#![allow(clippy::unwrap_used)]

mod common;

use common::apps::{Ask, Flow};
use common::*;
use fullbore_sim::PairConfig;
use fullbore_ssh::config::{ClientConfig, ServerConfig};
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn exec(command: &str, flow: Flow) -> (Ask, Flow) {
    (Ask::Exec(command.to_owned()), flow)
}

fn windows(bytes: u32) -> (ClientConfig, ServerConfig) {
    let (mut client, mut server) = (client_config(), server_config());
    client.connection.local_window = Some(bytes);
    server.connection.local_window = Some(bytes);
    (client, server)
}

fn attempts() -> Vec<fullbore_ssh::auth::Attempt> {
    vec![fullbore_ssh::auth::Attempt::None]
}

#[test]
fn an_exec_channel_echoes_its_bytes_and_ends_with_its_status() {
    let seed = seed(1);
    let mut flow = Flow::new(3 * MIB);
    flow.chunk = 10_000;
    let client = Client::new(attempts(), vec![exec("cat", flow)]);
    let mut pair = pair(
        network(seed),
        (client_config(), client),
        (server_config(), Server::new(welcome)),
        512 * 1024,
    );
    run(&mut pair, all_closed);
    let flow = pair.a.app.flow(0);
    assert_eq!((flow.received, flow.exit_status), (3 * MIB, Some(7)));
    assert_eq!(flow.done, [true]);
    assert!(flow.is_eof_seen);
    assert_eq!(pair.a.conn.channel_count(), 0);
    run(&mut pair, |pair| pair.b.conn.channel_count() == 0);
}

#[test]
fn both_ends_push_on_two_channels_at_once_whatever_the_windows() {
    let seed = seed(2);
    for (window, tx_bytes) in [
        (64 << 10, 300 << 10),
        (200_000, 64 << 10),
        (2 << 20, 512 << 10),
        (16 << 20, 300 << 10),
    ] {
        let total = 64 * MIB;
        let plan = || exec(&format!("flow {total} 1"), Flow::new(total));
        let (client, server) = windows(window);
        let mut pair = pair(
            PairConfig {
                buffer_bytes_max: 256 << 10,
                ..network(seed)
            },
            (client, Client::new(attempts(), vec![plan(), plan()])),
            (server, Server::new(welcome)),
            tx_bytes,
        );
        run(&mut pair, all_closed);
        for index in 0..2 {
            assert_eq!(pair.a.app.flow(index).received, total);
            assert_eq!(pair.a.app.flow(index).exit_status, Some(7));
        }
    }
}

#[test]
fn a_channel_that_nobody_reads_does_not_stop_the_other() {
    let seed = seed(3);
    let mut unread = Flow::new(0);
    unread.is_reading = false;
    unread.ends = false;
    let (client, server) = windows(1 << 20);
    let client_app = Client::new(
        attempts(),
        vec![
            exec(&format!("flow {} 0", 8 * MIB), unread),
            exec(&format!("flow {} 1", 32 * MIB), Flow::new(32 * MIB)),
        ],
    );
    let mut pair = pair(
        network(seed),
        (client, client_app),
        (server, Server::new(welcome)),
        512 << 10,
    );
    run(&mut pair, |pair| {
        pair.a.app.order.len() == 2 && pair.a.app.flow(1).closed
    });
    assert_eq!(pair.a.app.flow(1).received, 32 * MIB);
    let ch = pair.a.app.order[0];
    assert_eq!(pair.a.conn.backlog_len(ch), 1 << 20, "exactly its window");
    assert_eq!(pair.a.app.flow(0).received, 0);
    // And it goes on where it stood once somebody reads.
    let now = pair.now();
    let flow = pair.a.app.flows.get_mut(&ch).unwrap();
    flow.is_reading = true;
    flow.ends = true;
    flow.read(now, &mut pair.a.conn, ch);
    run(&mut pair, all_closed);
    assert_eq!(pair.a.app.flow(0).received, 8 * MIB);
}

#[test]
fn refused_programs_are_told_and_leave_the_channel_open() {
    let client = Client::new(attempts(), vec![exec("fail", Flow::new(0))]);
    let mut pair = pair(
        network(seed(4)),
        (client_config(), client),
        (server_config(), Server::new(welcome)),
        512 << 10,
    );
    run(&mut pair, |pair| {
        !pair.a.app.order.is_empty() && !pair.a.app.flow(0).done.is_empty()
    });
    assert_eq!(pair.a.app.flow(0).done, [false]);
    let ch = pair.a.app.order[0];
    pair.a.conn.close_channel(ch).unwrap();
    run(&mut pair, all_closed);
    run(&mut pair, |pair| pair.b.conn.channel_count() == 0);
}

#[test]
fn a_peer_with_tiny_packets_is_served() {
    let seed = seed(6);
    let mut client = client_config();
    client.connection.local_maxpacket = 1;
    let app = Client::new(attempts(), vec![exec("flow 20000 1", Flow::new(20_000))]);
    let mut pair = pair(
        PairConfig {
            delay: Duration::from_micros(10),
            ..network(seed)
        },
        (client, app),
        (server_config(), Server::new(welcome)),
        64 << 10,
    );
    run(&mut pair, all_closed);
    assert_eq!(pair.a.app.flow(0).received, 20_000);
}

#[test]
fn staged_bytes_have_their_turn_beside_a_channel_that_fills_the_buffer() {
    let seed = seed(7);
    let mut client = client_config();
    // Messages of 256 KiB need more packets than are laid out at once: they are staged.
    client.connection.local_maxpacket = 1000;
    // Both start at once, and no window is ever short: what meets its end is staged.
    client.connection.eager = false;
    client.connection.local_window = Some(8 << 20);
    let total = 8 * MIB;
    let direct = format!("flow {total} 1 50000");
    let staged = format!("flow {total} 1 262144");
    let app = Client::new(
        attempts(),
        vec![exec(&direct, Flow::new(0)), exec(&staged, Flow::new(0))],
    );
    let mut pair = pair(
        network(seed),
        (client, app),
        (server_config(), Server::new(welcome)),
        128 << 10,
    );
    run(&mut pair, |pair| {
        pair.a.app.order.len() == 2 && pair.a.app.flow(0).received == total
    });
    let behind = pair.a.app.flow(1).received;
    assert!(behind > total / 4, "only {behind} of {total}");
    let stats = pair.b.conn.stats();
    assert!(stats.channel_bytes_direct >= total - MIB);
    run(&mut pair, all_closed);
    assert_eq!(pair.a.app.flow(1).received, total);
}

#[test]
fn the_error_stream_is_apart_bounded_and_shares_the_window() {
    let (client, server) = windows(64 << 10);
    let app = Client::new(
        attempts(),
        vec![exec("complain 100000", Flow::new(5 * MIB))],
    );
    let mut pair = pair(
        network(seed(8)),
        (client, app),
        (server, Server::new(welcome)),
        64 << 10,
    );
    run(&mut pair, all_closed);
    let flow = pair.a.app.flow(0);
    assert_eq!((flow.received, flow.received_stderr), (5 * MIB, 32 << 10));
    assert_eq!(pair.b.app.complaints, [32 << 10]);
}

#[test]
fn a_program_that_was_killed_is_told_with_its_signal() {
    let app = Client::new(attempts(), vec![exec("die", Flow::new(0))]);
    let mut pair = pair(
        network(seed(9)),
        (client_config(), app),
        (server_config(), Server::new(welcome)),
        64 << 10,
    );
    run(&mut pair, |pair| {
        !pair.a.app.order.is_empty() && pair.a.app.flow(0).signal.is_some()
    });
    assert_eq!(pair.a.app.flow(0).signal.as_deref(), Some(&b"KILL"[..]));
    run(&mut pair, all_closed);
}

#[test]
fn time_without_window_is_counted_and_time_without_bytes_is_not() {
    let (mut client, server) = windows(1 << 20);
    // 64 KiB each 100 ms round trip: 1 MiB takes 1.6 s.
    client.connection.local_window = Some(64 << 10);
    let app = Client::new(
        attempts(),
        vec![exec(&format!("flow {MIB} 1"), Flow::new(0))],
    );
    let mut pair = pair(
        PairConfig {
            delay: Duration::from_millis(50),
            cuts: false,
            ..network(1)
        },
        (client, app),
        (server, Server::new(welcome)),
        512 << 10,
    );
    run(&mut pair, all_closed);
    run(&mut pair, |pair| pair.b.conn.channel_count() == 0);
    let limited = pair.b.conn.stats().window_limited;
    let expected = Duration::from_millis(1300)..=Duration::from_millis(1700);
    assert!(expected.contains(&limited), "{limited:?}");
    assert_eq!(pair.a.conn.stats().window_limited, Duration::ZERO);
}
