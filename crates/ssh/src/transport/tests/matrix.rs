//! Every method with every cipher and MAC, and the messages carried both ways.

use super::*;
use crate::cipher::{Cipher, Mac};

fn check(method: Method, cipher: Cipher, mac: Mac, compression: Compression) {
    let config = TransportConfig {
        kex: vec![method],
        ciphers: vec![cipher],
        macs: vec![mac],
        compression: vec![compression],
        ..TransportConfig::default()
    };
    let what = format!("{} {} {}", method.name(), cipher.name(), mac.name());
    let mut pair = Pair::new(config.clone(), config);
    assert_eq!(pair.run(), Ok(()), "{what}");
    for end in [&mut pair.client, &mut pair.server] {
        end.transport.on_authenticated(NOW);
    }
    let messages: Vec<Vec<u8>> = [0, 1, 7, 15, 16, 17, 4096, 32_768]
        .map(|len| data(len, 0x5a))
        .to_vec();
    for round in 0..2 {
        for message in &messages {
            pair.client.send(message);
            pair.server.send(message);
        }
        assert_eq!(pair.run(), Ok(()), "{what}");
        assert_eq!(
            std::mem::take(&mut pair.server.received),
            messages,
            "{what}"
        );
        assert_eq!(
            std::mem::take(&mut pair.client.received),
            messages,
            "{what}"
        );
        if round == 0 {
            pair.client.transport.rekey(NOW).expect("authenticated");
            assert_eq!(pair.run(), Ok(()), "{what}");
        }
    }
    let algorithms = pair.server.transport.algorithms().expect("agreed");
    assert_eq!(
        (algorithms.kex, algorithms.client_to_server.cipher),
        (method, cipher)
    );
    assert_eq!(
        algorithms.client_to_server.mac,
        (!cipher.is_aead()).then_some(mac)
    );
    assert!(algorithms.strict);
    assert_eq!(
        pair.client.transport.session_id(),
        pair.server.transport.session_id()
    );
}

#[test]
fn every_cipher_works_with_every_mac() {
    for &cipher in Cipher::ALL {
        for &mac in Mac::ALL {
            for &compression in Compression::ALL {
                check(Method::Curve25519Sha256, cipher, mac, compression);
            }
        }
    }
}

#[test]
fn every_method_works_with_every_cipher() {
    for &method in Method::ALL {
        // Finite fields take a while without optimisation: one cipher with the longest keys.
        let is_slow = method.public_is_mpint();
        let ciphers = if is_slow {
            &Cipher::ALL[2..3]
        } else {
            Cipher::ALL
        };
        for &cipher in ciphers {
            check(method, cipher, Mac::HmacSha256Etm, Compression::None);
        }
    }
}

#[test]
fn both_ends_learn_what_the_other_is_and_can_do() {
    let pair = Pair::established(&quick());
    let client = &pair.client.transport;
    let server = &pair.server.transport;
    assert!(client.remote_version().starts_with(b"SSH-2.0-fullbore_"));
    assert!(client.peer_extensions().ping && client.peer_extensions().publickey_hostbound);
    assert!(client.peer_extensions().server_sig_algs.is_some());
    assert!(server.peer_extensions().ping);
    let key = client.accepted_host_key().expect("accepted");
    assert_eq!(key.algorithm(), "ssh-ed25519");
    assert_eq!(server.accepted_host_key(), Some(key));
    assert_eq!(Some(key.blob().to_vec()), test_key(7).blob("ssh-ed25519"));
}

#[test]
fn a_zero_copy_layout_of_several_packets_arrives_as_sealed() {
    let config = quick();
    let mut pair = Pair::established(&config);
    let lens = [1, 9, 32_777, 100_000];
    let client = &mut pair.client;
    let sealed: Vec<usize> = lens
        .iter()
        .map(|len| client.transport.sealed_len(*len).expect("not compressed"))
        .collect();
    let total = sealed.iter().sum();
    let buf = client.tx.tail_mut(total);
    let mut at = 0;
    for (len, sealed_len) in lens.iter().zip(&sealed) {
        let packet = &mut buf[at..at + sealed_len];
        packet[Transport::HEADER_LEN..Transport::HEADER_LEN + len].fill(94);
        client.transport.seal_at(packet, *len);
        at += sealed_len;
    }
    client.tx.commit(total);
    pair.run().expect("well-formed");
    let received: Vec<usize> = pair.server.received.iter().map(Vec::len).collect();
    assert_eq!(received, lens);
}
