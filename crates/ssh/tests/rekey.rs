//! Key exchanges while data flows, keepalives, pings and host key proofs.

#![allow(clippy::unwrap_used)]

mod common;

use common::apps::{Ask, Flow};
use common::*;
use fullbore_base::Instant;
use fullbore_sim::{Pair, PairConfig, Stop};
use fullbore_ssh::cipher::{Cipher, Mac};
use fullbore_ssh::packet::Compression;
use fullbore_ssh::{Connection, Event};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Runs a duplex of `total` bytes each way on two channels, with rekeys after these many bytes at
/// the client and the server; returns how many exchanges there were.
fn exchanges(seed: u64, client_bytes: u64, server_bytes: u64, total: u64) -> usize {
    let (mut client, mut server) = (client_config(), server_config());
    client.transport.rekey.bytes = client_bytes;
    server.transport.rekey.bytes = server_bytes;
    client.connection.local_window = Some(1 << 20);
    server.connection.local_window = Some(300_000);
    let count = Arc::new(AtomicUsize::new(0));
    let now = Instant::ZERO;
    let plan = || (Ask::Exec(format!("flow {total} 1")), Flow::new(total));
    let app = Client::new(vec![key_attempt(2, true)], vec![plan(), plan()]);
    let counting = Box::new(Counting(provider(seed), Arc::clone(&count)));
    let mut pair = Pair::new(
        PairConfig {
            buffer_bytes_max: 200_000,
            ..network(seed)
        },
        Node::new(
            Connection::client(Arc::new(client), provider(!seed), now),
            app,
            300 << 10,
        ),
        Node::new(
            Connection::server(Arc::new(server), counting, now),
            Server::new(welcome),
            300 << 10,
        ),
    );
    run(&mut pair, all_closed);
    for index in 0..2 {
        assert_eq!(pair.a.app.flow(index).received, total);
        assert_eq!(pair.a.app.flow(index).exit_status, Some(7));
    }
    count.load(Ordering::Relaxed)
}

#[test]
fn data_flows_both_ways_through_rekeys_of_either_side_and_both() {
    // A message above 49 between KEXINIT and NEWKEYS would end the connection: both sides check.
    let seed = seed(20);
    let never = u64::MAX;
    assert_eq!(exchanges(seed, never, never, 2 * MIB), 1);
    for (client, server) in [(MIB, never), (never, MIB), (MIB, MIB)] {
        let count = exchanges(seed, client, server, 16 * MIB);
        // 32 MiB each way, a rekey after each in either direction.
        assert!((16..=80).contains(&count), "{count} exchanges");
    }
}

/// The longest time in which no byte of a steady flow arrives, in legs (a leg is one way), with keys replaced
/// after each MiB by the client or the server. On a path without a limit of rate nothing else takes time.
fn longest_stall(is_up: bool, by_client: bool) -> f64 {
    const TOTAL: u64 = 32 * MIB;
    let leg = Duration::from_millis(20);
    let (mut client, mut server) = (client_config(), server_config());
    let limits = if by_client {
        &mut client.transport
    } else {
        &mut server.transport
    };
    limits.rekey.bytes = MIB;
    // As much as flows: no window stalls anything.
    client.connection.local_window = Some(64 << 20);
    server.connection.local_window = Some(64 << 20);
    let (down, up) = if is_up { (0, TOTAL) } else { (TOTAL, 0) };
    let plan = (Ask::Exec(format!("flow {down} 1")), Flow::new(up));
    let app = Client::new(vec![key_attempt(2, true)], vec![plan]);
    let path = PairConfig {
        delay: leg,
        cuts: false,
        ..network(seed(28))
    };
    let mut pair = pair(
        path,
        (client, app),
        (server, Server::new(welcome)),
        300 << 10,
    );
    let received = |pair: &TestPair| {
        let end = if is_up { &pair.b.conn } else { &pair.a.conn };
        end.stats().channel_bytes_received
    };
    let (mut longest, mut last) = (Duration::ZERO, None);
    let stop = pair.run(
        Instant::ZERO + Duration::from_secs(100),
        |pair| received(pair) == TOTAL,
        |pair| {
            let (bytes, now) = (received(pair), pair.now());
            match last {
                Some((before, _)) if bytes == before => {}
                Some((_, at)) => {
                    longest = longest.max(now - at);
                    last = Some((bytes, now));
                }
                // Behind what is sent ahead of the login's success.
                None if bytes > MIB / 2 => last = Some((bytes, now)),
                None => {}
            }
        },
    );
    assert_eq!(stop, Stop::Done);
    let exchanges = pair.b.conn.key_exchange_count();
    assert!(exchanges > 1, "no key was replaced");
    longest.as_secs_f64() / leg.as_secs_f64()
}

/// What an exchange itself takes: who sends stops with its KEXINIT and goes on with its NEWKEYS. The client has
/// its keys two round trips after it asked and one after the server did; the server has them one after
/// either KEXINIT.
#[test]
fn data_stops_for_the_exchange_itself_and_no_longer() {
    for (is_up, by_client, legs) in [
        (true, true, 4.0),
        (true, false, 2.0),
        (false, true, 2.0),
        (false, false, 2.0),
    ] {
        let stall = longest_stall(is_up, by_client);
        assert!(
            (stall - legs).abs() < 0.01,
            "up {is_up}, client asks {by_client}: {stall} legs of {legs}"
        );
    }
}

#[test]
fn both_sides_may_start_an_exchange_at_once() {
    let client = Client::new(vec![key_attempt(2, true)], Vec::new());
    let mut pair = pair(
        network(21),
        (client_config(), client),
        (server_config(), Server::new(welcome)),
        64 << 10,
    );
    run(&mut pair, |pair| {
        pair.b.conn.is_authenticated() && pair.a.app.is_authenticated
    });
    let now = pair.now();
    pair.a.conn.rekey(now).unwrap();
    pair.b.conn.rekey(now).unwrap();
    let flow = (Ask::Exec("cat".to_owned()), Flow::new(MIB));
    pair.a.app.plans.push(flow);
    run(&mut pair, all_closed);
    assert_eq!(pair.a.app.flow(0).received, MIB);
}

#[test]
fn an_idle_connection_is_rekeyed_by_time() {
    let (mut client, server) = (client_config(), server_config());
    client.transport.rekey.time = Some(Duration::from_secs(1));
    let count = Arc::new(AtomicUsize::new(0));
    let now = Instant::ZERO;
    let mut pair = Pair::new(
        network(22),
        Node::new(
            Connection::client(Arc::new(client), provider(1), now),
            Client::new(vec![key_attempt(2, true)], Vec::new()),
            64 << 10,
        ),
        Node::new(
            Connection::server(
                Arc::new(server),
                Box::new(Counting(provider(2), Arc::clone(&count))),
                now,
            ),
            Server::new(welcome),
            64 << 10,
        ),
    );
    run(&mut pair, |pair| {
        pair.now() > Instant::ZERO + Duration::from_secs(20)
    });
    let count = count.load(Ordering::Relaxed);
    assert!((19..=21).contains(&count), "{count} exchanges");
}

#[test]
fn every_cipher_mac_and_compression_carries_the_same_bytes() {
    let seed = seed(23);
    for cipher in Cipher::ALL {
        for mac in Mac::ALL {
            for compression in Compression::ALL {
                let (mut client, server) = (client_config(), server_config());
                client.transport.ciphers = vec![*cipher];
                client.transport.macs = vec![*mac];
                client.transport.compression = vec![*compression];
                client.transport.rekey.bytes = 200_000;
                let flow = (Ask::Exec("cat".to_owned()), Flow::new(500_000));
                let app = Client::new(vec![key_attempt(2, true)], vec![flow]);
                let mut pair = pair(
                    network(seed),
                    (client, app),
                    (server, Server::new(welcome)),
                    300 << 10,
                );
                run(&mut pair, all_closed);
                assert_eq!(pair.a.app.flow(0).received, 500_000);
            }
        }
    }
}

#[test]
fn a_dead_peer_is_noticed_by_keepalives_and_a_living_one_is_not() {
    for side in ["client", "server"] {
        let (mut client, mut server) = (client_config(), server_config());
        let config = if side == "client" {
            &mut client.connection
        } else {
            &mut server.connection
        };
        config.keepalive_interval = Some(Duration::from_secs(10));
        config.keepalive_count_max = 3;
        let app = Client::new(vec![key_attempt(2, true)], Vec::new());
        let mut pair = pair(
            network(24),
            (client, app),
            (server, Server::new(welcome)),
            64 << 10,
        );
        let hour = Instant::ZERO + Duration::from_secs(1000);
        run(&mut pair, |pair| pair.now() > hour);
        assert!(pair.a.conn.error().is_none() && pair.b.conn.error().is_none());
        let start = pair.now();
        if side == "client" {
            pair.b.is_deaf = true;
        } else {
            pair.a.is_deaf = true;
        }
        run(&mut pair, |pair| {
            pair.a.conn.error().is_some() || pair.b.conn.error().is_some()
        });
        let took = pair.now() - start;
        assert!(
            (Duration::from_secs(30)..=Duration::from_secs(50)).contains(&took),
            "{took:?} at the {side}"
        );
    }
}

#[test]
fn pings_measure_the_round_trip() {
    let app = Client::new(vec![key_attempt(2, true)], Vec::new());
    let mut config = client_config();
    config.connection.ping_interval = Some(Duration::from_secs(1));
    let mut pair = pair(
        PairConfig {
            delay: Duration::from_millis(30),
            cuts: false,
            ..network(25)
        },
        (config, app),
        (server_config(), Server::new(welcome)),
        64 << 10,
    );
    run(&mut pair, |pair| pair.a.conn.stats().rtt_count == 3);
    assert_eq!(pair.a.conn.rtt(), Some(Duration::from_millis(60)));
}

#[test]
fn host_keys_are_announced_and_can_be_proved() {
    let app = Client::new(vec![key_attempt(2, true)], Vec::new());
    let mut server = server_config();
    server.host_keys = vec![host_key(1), host_key(3)];
    let mut pair = pair(
        network(26),
        (client_config(), app),
        (server, Server::new(welcome)),
        64 << 10,
    );
    run(&mut pair, |pair| {
        pair.a.events.contains(&Event::HostKeysAnnounced)
    });
    let announced = pair.a.conn.announced_host_keys().to_vec();
    // The engine serves an algorithm by its first key; the second key is announced all the same.
    assert_eq!(announced.len(), 2);
    pair.a.conn.prove_host_keys(announced.clone()).unwrap();
    run(&mut pair, |pair| {
        pair.a.events.contains(&Event::HostKeysProved)
    });
    assert_eq!(pair.a.conn.proved_host_keys(), announced);
    // A key that is not the server's proves nothing, and costs the others their proof.
    pair.a.events.clear();
    let foreign = private_key(4).public_key().to_blob();
    pair.a
        .conn
        .prove_host_keys(vec![announced[0].clone(), foreign])
        .unwrap();
    run(&mut pair, |pair| {
        pair.a.events.contains(&Event::HostKeysProved)
    });
    assert!(pair.a.conn.proved_host_keys().is_empty());
}
