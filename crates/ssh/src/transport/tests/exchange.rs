//! Negotiation, guesses, host keys, ends.

use super::*;
use crate::cipher::{Cipher, Mac};
use crate::error::{ApiMisuse, Category, Origin, PeerMisbehaved};

fn guessing(kex: &[Method]) -> TransportConfig {
    TransportConfig {
        kex: kex.to_vec(),
        guess_kex: true,
        host_key_algorithms: vec!["ssh-ed25519".into()],
        ..TransportConfig::default()
    }
}

/// Half round trips until the client may send.
fn flights(client: TransportConfig, server: TransportConfig) -> usize {
    let mut pair = Pair::new(client, server);
    for flight in 0..10 {
        let to_server = pair.client.take_output();
        let to_client = pair.server.take_output();
        if pair.client.transport.may_send() {
            return flight;
        }
        pair.client.feed(&to_client).expect("both agree");
        pair.server.feed(&to_server).expect("both agree");
    }
    unreachable!("the exchange ends");
}

#[test]
fn a_right_guess_saves_a_round_trip_and_a_wrong_one_costs_none() {
    let plain = || TransportConfig {
        guess_kex: false,
        ..guessing(&[Method::Curve25519Sha256, Method::EcdhNistp256])
    };
    let right = || guessing(&[Method::Curve25519Sha256, Method::EcdhNistp256]);
    let wrong = || guessing(&[Method::EcdhNistp256, Method::Curve25519Sha256]);
    assert_eq!(flights(plain(), plain()), 3);
    assert_eq!(flights(right(), plain()), 2);
    assert_eq!(flights(wrong(), plain()), 3);
}

#[test]
fn a_guess_of_the_method_is_wrong_when_the_first_host_keys_differ() {
    let mut client = guessing(&[Method::Curve25519Sha256]);
    client.host_key_algorithms.insert(0, "rsa-sha2-512".into());
    assert_eq!(flights(client, guessing(&[Method::Curve25519Sha256])), 3);
}

#[test]
fn a_group_exchange_can_be_guessed_too() {
    let mut config = guessing(&[Method::DhGroupExchangeSha256]);
    let mut pair = Pair::new(config.clone(), config.clone());
    pair.run().expect("both agree");
    assert!(pair.client.transport.may_send());
    config.kex.insert(0, Method::Curve25519Sha256);
    let mut pair = Pair::new(guessing(&[Method::DhGroupExchangeSha256]), config);
    pair.run().expect("both agree");
    assert!(pair.client.transport.may_send());
}

#[test]
fn nothing_in_common_names_what_each_side_offers() {
    type Change = fn(&mut TransportConfig, bool);
    let cases: [(Category, Change); 4] = [
        (Category::Kex, |c, left| {
            c.kex = vec![if left {
                Method::Curve25519Sha256
            } else {
                Method::EcdhNistp256
            }];
        }),
        (Category::CipherClientToServer, |c, left| {
            c.ciphers = vec![if left {
                Cipher::Aes128Gcm
            } else {
                Cipher::Aes256Ctr
            }];
        }),
        (Category::MacClientToServer, |c, left| {
            c.ciphers = vec![Cipher::Aes128Ctr];
            c.macs = vec![if left {
                Mac::HmacSha256
            } else {
                Mac::HmacSha512Etm
            }];
        }),
        (Category::CompressionClientToServer, |c, left| {
            c.compression = vec![if left {
                Compression::None
            } else {
                Compression::ZlibDelayed
            }];
        }),
    ];
    for (category, change) in cases {
        let (mut client, mut server) = (quick(), quick());
        change(&mut client, true);
        change(&mut server, false);
        let mut pair = Pair::new(client, server);
        let error = pair.run().expect_err("nothing in common");
        let Error::PeerIncompatible(what) = &error else {
            unreachable!("{error}");
        };
        assert_eq!(what.category, category);
        assert_eq!((what.local.len(), what.remote.len()), (1, 1));
        assert_ne!(what.local, what.remote);
        assert_eq!(error.origin(), Origin::Local);
        assert!(error.to_string().contains(&what.remote[0]));
    }
}

#[test]
fn a_host_key_algorithm_without_a_key_is_not_offered() {
    let mut client = quick();
    client.host_key_algorithms = vec!["rsa-sha2-512".into()];
    let error = Pair::new(client, quick()).run().expect_err("no such key");
    let Error::PeerIncompatible(what) = error else {
        unreachable!("{error}");
    };
    assert_eq!(what.category, Category::HostKey);
    assert_eq!(what.remote, ["ssh-ed25519"]);
}

/// A pair whose client has the server's key before it.
fn at_verdict() -> Pair {
    let mut pair = Pair::new(quick(), quick());
    loop {
        let to_client = pair.server.take_output();
        let to_server = pair.client.take_output();
        for (end, bytes) in [
            (&mut pair.client.transport, to_client),
            (&mut pair.server.transport, to_server),
        ] {
            end.input_space()[..bytes.len()].copy_from_slice(&bytes);
            end.handle_input(NOW, bytes.len()).expect("alive");
            assert_eq!(end.next_packet(NOW), Ok(false));
        }
        if pair.client.transport.host_key().is_some() {
            return pair;
        }
    }
}

#[test]
fn without_a_verdict_nothing_goes_on() {
    let mut pair = at_verdict();
    // NEWKEYS and EXT_INFO of the server are here already, and wait.
    assert_eq!(pair.client.transport.next_packet(NOW), Ok(false));
    assert!(!pair.client.transport.is_encrypted() && !pair.client.transport.may_send());
    assert!(pair.client.take_output().is_empty());
    assert_eq!(
        pair.client
            .transport
            .seal(&mut TxBuf::new(1000), &data(1, 0)),
        Err(ApiMisuse::SendNotAllowed.into())
    );
    assert_eq!(pair.client.transport.poll_timeout(), None);
    pair.client.pump().expect("accepted");
    assert!(pair.client.transport.poll_timeout().is_none());
    pair.run().expect("goes on");
    assert!(pair.client.transport.may_send() && pair.server.transport.may_send());
}

#[test]
fn a_proof_for_another_key_is_refused_and_the_connection_lives() {
    let mut pair = at_verdict();
    let other = HostKeyOffer {
        algorithm: HostKeyAlgorithm::plain(Algorithm::Ed25519),
        blob: test_key(8).blob("ssh-ed25519").expect("its key"),
    };
    let proof = HostKeyVerified::by_application(&other);
    let misuse = Err(ApiMisuse::NoSuchHostKey.into());
    assert_eq!(pair.client.transport.accept_host_key(NOW, proof), misuse);
    assert!(pair.client.transport.host_key().is_some());
    pair.client.pump().expect("accepted");
    let proof = HostKeyVerified::by_application(&other);
    assert_eq!(pair.client.transport.accept_host_key(NOW, proof), misuse);
}

#[test]
fn a_refused_key_ends_the_connection_and_the_server_learns_it() {
    let mut pair = at_verdict();
    pair.client.transport.reject_host_key(NOW, "changed");
    assert_eq!(
        pair.client.transport.error(),
        Some(
            &Closed::HostKeyRejected {
                why: "changed".into()
            }
            .into()
        )
    );
    let goodbye = pair.client.take_output();
    let error = pair.server.feed(&goodbye).expect_err("told");
    let Error::Closed(Closed::ByPeer { reason, .. }) = error else {
        unreachable!("{error}");
    };
    assert_eq!(reason, DisconnectReason::HostKeyNotVerifiable.code());
}

/// A host key that signs something else.
#[derive(Debug)]
struct Liar(Arc<dyn HostKey>);

impl HostKey for Liar {
    fn blob(&self, algorithm: &str) -> Option<Vec<u8>> {
        self.0.blob(algorithm)
    }

    fn sign(&self, algorithm: &str, data: &[u8]) -> Option<Vec<u8>> {
        self.0.sign(algorithm, &data[1..])
    }
}

#[test]
fn a_wrong_signature_is_found_before_the_application_is_asked() {
    let config = ServerConfig {
        transport: quick(),
        host_keys: vec![Arc::new(Liar(test_key(7)))],
        ..ServerConfig::default()
    };
    let mut pair = Pair::new(quick(), quick());
    pair.server = End::new(Transport::server(Arc::new(config), provider(3), NOW));
    assert_eq!(pair.run(), Err(PeerMisbehaved::HostKeySignature.into()));
    assert!(pair.client.transport.host_key().is_none());
}

#[test]
fn both_ends_without_extensions_and_strict_rules_still_agree() {
    let config = TransportConfig {
        strict_kex: false,
        ..quick()
    };
    for (client, server) in [(&config, &quick()), (&quick(), &config), (&config, &config)] {
        let mut pair = Pair::new(client.clone(), server.clone());
        pair.run().expect("both agree");
        assert!(!pair.client.transport.algorithms().expect("agreed").strict);
        pair.client.send(&data(10, 1));
        pair.server.send(&data(10, 2));
        pair.run().expect("well-formed");
        assert_eq!(
            (pair.client.received.len(), pair.server.received.len()),
            (1, 1)
        );
    }
}

#[test]
fn a_slow_exchange_times_out_at_its_deadline_and_not_before() {
    let mut client = client_with(quick());
    let deadline = NOW + quick().kex_timeout;
    assert_eq!(client.poll_timeout(), Some(deadline));
    client.handle_timeout(Instant::from_nanos(deadline.as_nanos() - 1));
    assert_eq!(client.error(), None);
    client.handle_timeout(deadline);
    let after = quick().kex_timeout;
    assert_eq!(client.error(), Some(&Closed::KexTimeout { after }.into()));
    assert_eq!(client.poll_timeout(), None);
}

#[test]
fn a_dead_connection_keeps_its_first_error_and_says_goodbye_once() {
    let mut pair = Pair::established(&quick());
    pair.client
        .transport
        .disconnect(DisconnectReason::ByApplication, "done");
    pair.client.transport.fail(Closed::Eof.into());
    let error = Closed::ByUs {
        reason: DisconnectReason::ByApplication,
        description: "done".into(),
    };
    for _ in 0..2 {
        assert_eq!(
            pair.client.transport.next_packet(NOW),
            Err(error.clone().into())
        );
        assert_eq!(
            pair.client.transport.handle_input(NOW, 0),
            Err(error.clone().into())
        );
    }
    assert!(!pair.client.transport.may_send());
    let goodbye = pair.client.take_output();
    assert!(pair.client.take_output().is_empty());
    assert_eq!(
        pair.server.feed(&goodbye),
        Err(Closed::ByPeer {
            reason: 11,
            description: "done".into()
        }
        .into())
    );
    // Who was told says nothing back.
    assert!(pair.server.take_output().is_empty());
}

#[test]
fn an_end_of_the_stream_is_an_error_of_its_own() {
    let mut pair = Pair::established(&quick());
    assert_eq!(
        pair.client.transport.handle_eof(NOW),
        Err(Closed::Eof.into())
    );
    assert!(pair.client.take_output().is_empty());
}

#[test]
fn debug_output_shows_no_secret() {
    let pair = Pair::established(&quick());
    let shown = format!("{:?}", pair.client.transport);
    assert!(
        shown.contains("Curve25519Sha256") && shown.len() < 1000,
        "{shown}"
    );
}
