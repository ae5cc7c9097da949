//! New keys while data flows.

use super::*;
use crate::error::PeerMisbehaved;
use crate::msg::{
    SSH_MSG_GLOBAL_REQUEST, SSH_MSG_KEXINIT, SSH_MSG_REQUEST_FAILURE, SSH_MSG_REQUEST_SUCCESS,
};
use crate::transport::pace::{REKEY_PERIOD, REKEYS_AT_ONCE};
use std::time::Duration;

#[test]
fn either_side_or_both_at_once_can_replace_keys_with_data_in_flight() {
    for (by_client, by_server) in [(true, false), (false, true), (true, true)] {
        let mut pair = Pair::established(&quick());
        let session = pair.client.transport.session_id().map(<[u8]>::to_vec);
        let mut sent = 0;
        for round in 0..20u8 {
            // Data that is sealed before the KEXINIT is still under way when it is handled.
            for end in [&mut pair.client, &mut pair.server] {
                if end.transport.may_send() {
                    end.send(&data(1000, round));
                }
            }
            sent += 1;
            if by_client {
                pair.client.transport.rekey(NOW).expect("authenticated");
            }
            if by_server {
                pair.server.transport.rekey(NOW).expect("authenticated");
            }
            assert_eq!(pair.client.transport.may_send(), !by_client);
            pair.run().expect("both agree");
            assert!(pair.client.transport.may_send() && pair.server.transport.may_send());
        }
        for end in [&pair.client, &pair.server] {
            assert_eq!(end.received.len(), sent);
            assert_eq!(end.transport.session_id().map(<[u8]>::to_vec), session);
        }
    }
}

#[test]
fn data_of_the_peer_is_taken_between_own_kexinit_and_its_newkeys() {
    let mut pair = Pair::established(&quick());
    pair.client.transport.rekey(NOW).expect("authenticated");
    let kexinit = pair.client.take_output();
    pair.server.send(&data(5, 1));
    let early = pair.server.take_output();
    pair.client.feed(&early).expect("still allowed");
    assert_eq!(pair.client.received.len(), 1);
    pair.server.feed(&kexinit).expect("well-formed");
    assert!(!pair.server.transport.may_send());
    pair.run().expect("both agree");
}

#[test]
fn the_server_may_send_under_new_keys_before_the_clients_arrive() {
    let mut pair = Pair::established(&quick());
    pair.client.transport.rekey(NOW).expect("authenticated");
    // KEXINIT there; KEXINIT back; INIT there: then REPLY and NEWKEYS leave together.
    for _ in 0..2 {
        let bytes = pair.client.take_output();
        pair.server.feed(&bytes).expect("well-formed");
        let bytes = pair.server.take_output();
        if pair.server.transport.may_send() {
            pair.server.send(&data(9, 9));
        }
        pair.client.feed(&bytes).expect("well-formed");
    }
    pair.run().expect("both agree");
    assert_eq!(pair.client.received, [data(9, 9)]);
}

#[test]
fn keys_are_replaced_by_bytes_in_either_direction() {
    for from_client in [true, false] {
        let mut pair = Pair::established(&rekeying(20_000));
        let mut exchanges = 0;
        for _ in 0..50 {
            let end = if from_client {
                &mut pair.client
            } else {
                &mut pair.server
            };
            end.send(&data(2000, 3));
            let before = pair.client.transport.exchange.begun_count();
            pair.run().expect("both agree");
            exchanges += u32::from(pair.client.transport.exchange.begun_count() != before);
        }
        // 50 x 2,036 bytes and the exchanges' own: one each ten messages.
        assert_eq!(exchanges, 5);
    }
}

#[test]
fn keys_are_replaced_by_packets() {
    let mut config = quick();
    config.rekey.packets = 10;
    let mut pair = Pair::established(&config);
    let before = pair.client.transport.exchange.begun_count();
    // EXT_INFO was the first.
    for _ in 0..8 {
        pair.client.send(&data(1, 1));
    }
    pair.run().expect("both agree");
    assert_eq!(pair.client.transport.exchange.begun_count(), before);
    pair.client.send(&data(1, 1));
    pair.run().expect("both agree");
    assert_eq!(pair.client.transport.exchange.begun_count(), before + 1);
}

#[test]
fn keys_are_replaced_by_time_when_the_deadline_passes_and_not_before() {
    let mut config = quick();
    config.rekey.time = Some(Duration::from_secs(5));
    let mut pair = Pair::established(&config);
    let due = NOW + Duration::from_secs(5);
    let client = &mut pair.client.transport;
    assert_eq!(client.poll_timeout(), Some(due));
    client.handle_timeout(Instant::from_nanos(due.as_nanos() - 1));
    assert!(client.may_send());
    client.handle_timeout(due);
    assert!(!client.may_send());
    assert_eq!(client.poll_timeout(), Some(due + config.kex_timeout));
}

#[test]
fn no_rekey_is_started_before_authentication() {
    let mut config = quick();
    config.rekey.packets = 1;
    let mut pair = Pair::new(config.clone(), config);
    pair.run().expect("both agree");
    assert!(pair.client.transport.rekey(NOW).is_err());
    pair.client.send(&data(1, 1));
    pair.run().expect("both agree");
    assert_eq!(pair.server.received.len(), 1);
}

/// What the server makes of a message that its peer sends behind its KEXINIT.
fn behind_kexinit(message: &[u8]) -> (Pair, Result<(), Error>) {
    let mut pair = Pair::established(&quick());
    pair.client.transport.rekey(NOW).expect("authenticated");
    let mut bytes = pair.client.take_output();
    // The gate is forced open to misbehave.
    pair.client.transport.gate = Gate::Open;
    pair.client.send(message);
    bytes.extend(pair.client.take_output());
    pair.client.transport.gate = Gate::Closed;
    let outcome = pair.server.feed(&bytes);
    (pair, outcome)
}

#[test]
fn data_behind_the_peers_kexinit_is_refused() {
    for message in [SSH_MSG_CHANNEL_DATA, SSH_MSG_GLOBAL_REQUEST] {
        let (_, outcome) = behind_kexinit(&[message, 0, 0, 0, 0]);
        let error = PeerMisbehaved::DataDuringKex { message };
        assert_eq!(outcome, Err(error.into()));
    }
}

#[test]
fn answers_to_global_requests_may_stand_behind_the_peers_kexinit() {
    for message in [SSH_MSG_REQUEST_SUCCESS, SSH_MSG_REQUEST_FAILURE] {
        let (mut pair, outcome) = behind_kexinit(&[message]);
        assert_eq!(outcome, Ok(()));
        assert_eq!(pair.server.received, [[message]]);
        pair.run().expect("both agree");
        assert_eq!(exchange_counts(&pair), [2, 2]);
    }
}

#[test]
fn a_second_kexinit_is_refused() {
    let mut pair = Pair::established(&quick());
    pair.client.transport.rekey(NOW).expect("authenticated");
    let init = pair
        .client
        .transport
        .control
        .front()
        .expect("queued")
        .to_vec();
    assert_eq!(init[0], SSH_MSG_KEXINIT);
    pair.client.transport.control.push(init);
    let bytes = pair.client.take_output();
    assert_eq!(
        pair.server.feed(&bytes),
        Err(PeerMisbehaved::KexInitTwice.into())
    );
}

#[test]
fn exchanges_before_authentication_are_counted() {
    let mut pair = Pair::new(quick(), quick());
    pair.run().expect("both agree");
    pair.client.transport.on_authenticated(NOW);
    for _ in 1..crate::config::KEX_BEFORE_AUTH_MAX {
        pair.client.transport.rekey(NOW).expect("authenticated");
        assert_eq!(pair.run(), Ok(()));
    }
    pair.client.transport.rekey(NOW).expect("authenticated");
    assert_eq!(pair.run(), Err(PeerMisbehaved::TooManyRequests.into()));
}

#[test]
fn another_host_key_in_a_later_exchange_is_refused() {
    #[derive(Debug)]
    struct Turncoat([Arc<dyn HostKey>; 2], std::sync::atomic::AtomicUsize);
    impl HostKey for Turncoat {
        fn blob(&self, algorithm: &str) -> Option<Vec<u8>> {
            let turn = self.1.load(std::sync::atomic::Ordering::Relaxed);
            self.0[turn.min(1)].blob(algorithm)
        }
        fn sign(&self, algorithm: &str, data: &[u8]) -> Option<Vec<u8>> {
            let turn = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.0[turn.min(1)].sign(algorithm, data)
        }
    }
    let config = ServerConfig {
        transport: quick(),
        host_keys: vec![Arc::new(Turncoat([test_key(1), test_key(2)], 0.into()))],
        ..ServerConfig::default()
    };
    let mut pair = Pair::new(quick(), quick());
    pair.server = End::new(Transport::server(Arc::new(config), provider(3), NOW));
    pair.run().expect("both agree");
    pair.client.transport.on_authenticated(NOW);
    pair.client.transport.rekey(NOW).expect("authenticated");
    assert_eq!(pair.run(), Err(PeerMisbehaved::HostKeyChanged.into()));
}

/// A pair whose client has asked for new keys once more than it may at one instant.
fn impatient() -> Pair {
    let mut pair = Pair::established(&quick());
    for asked in 1..=u64::from(REKEYS_AT_ONCE) {
        pair.client.transport.rekey(NOW).expect("authenticated");
        pair.run().expect("both agree");
        assert_eq!(pair.server.transport.key_exchange_count(), 1 + asked);
    }
    pair.client.transport.rekey(NOW).expect("authenticated");
    pair.run().expect("both agree");
    assert!(!pair.client.transport.may_send());
    pair
}

fn exchange_counts(pair: &Pair) -> [u64; 2] {
    [&pair.client, &pair.server].map(|end| end.transport.key_exchange_count())
}

#[test]
fn who_asks_for_new_keys_all_the_time_is_answered_later() {
    let mut pair = impatient();
    let before = exchange_counts(&pair);
    // Own data goes on, and so does what the peer sent before it asked.
    pair.server.send(&data(10, 1));
    pair.run().expect("both agree");
    assert_eq!(pair.client.received.len(), 1);
    let until = NOW + REKEY_PERIOD;
    assert_eq!(pair.server.transport.poll_timeout(), Some(until));
    let early = NOW + (REKEY_PERIOD - Duration::from_nanos(1));
    pair.server.transport.handle_timeout(early);
    pair.run().expect("both agree");
    assert_eq!(exchange_counts(&pair), before);
    pair.server.transport.handle_timeout(until);
    pair.run().expect("both agree");
    assert_eq!(exchange_counts(&pair), before.map(|count| count + 1));
    pair.client.send(&data(10, 1));
    pair.run().expect("both agree");
    assert_eq!(pair.server.received.len(), 1);
}

#[test]
fn an_own_exchange_answers_the_one_that_is_held_back() {
    let mut pair = impatient();
    let before = exchange_counts(&pair);
    pair.server.transport.rekey(NOW).expect("authenticated");
    pair.server.pump().expect("nothing came");
    pair.run().expect("both agree");
    assert_eq!(exchange_counts(&pair), before.map(|count| count + 1));
}

#[test]
fn who_asks_for_new_keys_after_a_quarter_of_a_mib_is_never_kept_waiting() {
    let mut pair = Pair::established(&quick());
    for round in 1..=3 * u64::from(REKEYS_AT_ONCE) {
        for _ in 0..8 {
            pair.client.send(&data(32 << 10, 1));
            pair.run().expect("both agree");
            pair.server.received.clear();
        }
        pair.client.transport.rekey(NOW).expect("authenticated");
        pair.run().expect("both agree");
        assert_eq!(exchange_counts(&pair), [1 + round; 2]);
    }
}
