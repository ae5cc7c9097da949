//! Both sides of each limit, and bytes that no peer sends.

use super::*;
use crate::cipher::{Cipher, Mac};
use crate::config::{
    CONTROL_BYTES_MAX, PACKET_LEN_BEFORE_AUTH_MAX, PACKETS_PER_KEY_MAX, PAYLOAD_BYTES_MAX,
    RECEIVE_BYTES_BEFORE_AUTH,
};
use crate::error::{ApiMisuse, InvalidMessage, PeerMisbehaved};
use crate::msg::SSH_MSG_UNIMPLEMENTED;

#[test]
fn the_longest_message_passes_under_every_suite_and_one_longer_does_not() {
    for &cipher in Cipher::ALL {
        for &mac in Mac::ALL {
            let config = TransportConfig {
                ciphers: vec![cipher],
                macs: vec![mac],
                ..quick()
            };
            let mut pair = Pair::established(&config);
            pair.client.send(&data(PAYLOAD_BYTES_MAX - 1, 1));
            pair.run().expect("at the limit");
            assert_eq!(pair.server.received[0].len(), PAYLOAD_BYTES_MAX);
            let client = &mut pair.client;
            assert_eq!(
                client
                    .transport
                    .seal(&mut client.tx, &data(PAYLOAD_BYTES_MAX, 1)),
                Err(ApiMisuse::MessageTooLong.into())
            );
        }
    }
}

#[test]
fn a_claimed_length_is_refused_from_its_word_alone() {
    for packet_len in [PACKET_LEN_BEFORE_AUTH_MAX + 1, 0x4000_0000, u32::MAX] {
        let mut server = End::new(server_with(quick()));
        server.feed(b"SSH-2.0-x\r\n").expect("a version");
        assert_eq!(
            server.feed(&packet_len.to_be_bytes()),
            Err(PeerMisbehaved::PacketTooLong { packet_len }.into())
        );
        let goodbye = server.take_output();
        assert!(!goodbye.is_empty());
    }
}

#[test]
fn a_stranger_gets_little_memory_and_a_user_enough_for_the_longest_packet() {
    let mut server = End::new(server_with(quick()));
    assert_eq!(
        server.transport.input_space().len(),
        RECEIVE_BYTES_BEFORE_AUTH
    );
    server.transport.on_authenticated(NOW);
    assert!(server.transport.input_space().len() > PACKET_LEN_MAX as usize);
}

#[test]
fn every_output_of_a_real_handshake_cut_anywhere_waits_for_more() {
    let mut pair = Pair::new(quick(), quick());
    let flight = pair.client.take_output();
    for cut in 0..flight.len() {
        let mut server = End::new(server_with(quick()));
        assert_eq!(server.feed(&flight[..cut]), Ok(()));
        assert_eq!(server.feed(&flight[cut..]), Ok(()));
    }
}

#[test]
fn a_flipped_bit_anywhere_in_an_encrypted_packet_is_found() {
    for &cipher in Cipher::ALL {
        for &mac in &Mac::ALL[..if cipher.is_aead() { 1 } else { 4 }] {
            let config = TransportConfig {
                ciphers: vec![cipher],
                macs: vec![mac],
                ..quick()
            };
            let mut pair = Pair::established(&config);
            pair.client.send(&data(20, 7));
            let packet = pair.client.take_output();
            // The length's low byte makes the packet longer: more is waited for. All else dies.
            for at in [4, 5, 20, packet.len() - 1] {
                let mut pair = Pair::established(&config);
                let mut packet = packet.clone();
                packet[at] ^= 0x10;
                let error = pair.server.feed(&packet).expect_err("damaged");
                assert_eq!(
                    error,
                    PeerMisbehaved::BadMac.into(),
                    "{cipher:?} {mac:?} {at}"
                );
            }
        }
    }
}

#[test]
fn garbage_of_any_seed_ends_in_an_error_or_waits() {
    for seed in fullbore_testkit::seeds(0..200) {
        let mut random = Seeded(seed);
        let mut bytes = vec![0; 600];
        random.fill(&mut bytes);
        for version in [&b""[..], b"SSH-2.0-x\r\n"] {
            let input = [version, &bytes].concat();
            let mut server = End::new(server_with(quick()));
            let _ = server.feed(&input);
            let _ = server.take_output();
            let mut client = End::new(client_with(quick()));
            let _ = client.feed(&input);
            let _ = client.take_output();
        }
    }
}

#[test]
fn a_mutated_kexinit_ends_in_an_error_or_waits() {
    let flight = client_with(quick());
    let mut flight = End::new(flight);
    let flight = flight.take_output();
    for seed in fullbore_testkit::seeds(0..300) {
        let mut random = Seeded(seed);
        let mut input = flight.clone();
        for _ in 0..4 {
            let mut draw = [0; 3];
            random.fill(&mut draw);
            let at = usize::from(u16::from_be_bytes([draw[0], draw[1]])) % input.len();
            input[at] = draw[2];
        }
        let mut server = End::new(server_with(quick()));
        let _ = server.feed(&input);
        let _ = server.take_output();
    }
}

#[test]
fn unknown_messages_are_answered_with_their_sequence_number() {
    let mut pair = Pair::established(&quick());
    pair.client.send(&[15, 1, 2, 3]);
    pair.client.send(&[22]);
    let bytes = pair.client.take_output();
    pair.server.feed(&bytes).expect("tolerated");
    let queued = pair.server.transport.control.front().map(<[u8]>::to_vec);
    // EXT_INFO was the client's packet 0 under strict rules.
    assert_eq!(queued, Some(vec![SSH_MSG_UNIMPLEMENTED, 0, 0, 0, 1]));
    pair.run().expect("well-formed");
}

#[test]
fn replies_that_nobody_reads_stop_the_input_and_memory_stays_bounded() {
    let mut pair = Pair::established(&quick());
    let mut opened = 0;
    let mut fed = 0;
    loop {
        pair.client.send(&[15]);
        let bytes = pair.client.take_output();
        let space = pair.server.transport.input_space();
        if space.len() < bytes.len() {
            break;
        }
        space[..bytes.len()].copy_from_slice(&bytes);
        fed += 1;
        pair.server
            .transport
            .handle_input(NOW, bytes.len())
            .expect("alive");
        assert_eq!(pair.server.transport.next_packet(NOW), Ok(false));
        if !pair.server.transport.control.is_full() {
            opened = fed;
        }
    }
    assert_eq!(opened + 1, CONTROL_BYTES_MAX.div_ceil(5));
    assert!(fed > opened + 1000, "{fed} {opened}");
    // What was held back is answered once the replies are gone.
    let mut answers = 0;
    loop {
        let bytes = pair.server.take_output();
        if bytes.is_empty() {
            break;
        }
        answers += bytes.len();
        pair.server.pump().expect("alive");
    }
    assert!(answers > fed * 16);
}

#[test]
fn packets_under_one_key_are_limited_both_ways() {
    let mut pair = Pair::established(&quick());
    pair.client
        .transport
        .sealer
        .direction
        .set_usage(u32::MAX, PACKETS_PER_KEY_MAX - 1);
    pair.server
        .transport
        .opener
        .direction
        .set_usage(u32::MAX, PACKETS_PER_KEY_MAX - 1);
    pair.client.send(&data(1, 1));
    assert!(
        !pair.client.transport.may_send(),
        "the next nonce would repeat"
    );
    let bytes = pair.client.tx.pending().to_vec();
    pair.client.tx.consume(bytes.len());
    pair.server.feed(&bytes).expect("the last one");
    assert_eq!(pair.server.received.len(), 1);
    // A peer that goes on is cut off before its packet is opened.
    pair.client.transport.sealer.direction.set_usage(0, 0);
    pair.client.send(&data(1, 1));
    let bytes = pair.client.tx.pending().to_vec();
    assert_eq!(
        pair.server.feed(&bytes),
        Err(PeerMisbehaved::PacketsPerKey.into())
    );
}

#[test]
fn sequence_numbers_wrap_under_keys_and_not_before_them() {
    let mut pair = Pair::established(&TransportConfig {
        ciphers: vec![Cipher::Aes128Ctr],
        ..quick()
    });
    pair.client
        .transport
        .sealer
        .direction
        .set_usage(u32::MAX, 5);
    pair.server
        .transport
        .opener
        .direction
        .set_usage(u32::MAX, 5);
    for fill in 0..3 {
        pair.client.send(&data(1, fill));
    }
    pair.run().expect("wraps");
    assert_eq!(pair.server.received.len(), 3);

    let mut server = End::new(server_with(TransportConfig {
        strict_kex: false,
        ..quick()
    }));
    server.feed(b"SSH-2.0-x\r\n").expect("a version");
    server.transport.opener.direction.set_usage(u32::MAX - 1, 5);
    assert_eq!(server.feed(&plain_packet(&ignore())), Ok(()));
    assert_eq!(
        server.feed(&plain_packet(&ignore())),
        Err(PeerMisbehaved::SequenceWrap.into())
    );
}

#[test]
fn padding_and_length_rules_hold_in_the_clear() {
    // Length word, padding length, payload, padding.
    let packet = |packet_len: u32, padding: u8| {
        let mut packet = packet_len.to_be_bytes().to_vec();
        packet.push(padding);
        packet.resize(4 + packet_len as usize, 2);
        packet
    };
    for (bytes, error) in [
        (packet(12, 10), None),
        (packet(12, 4), None),
        (packet(12, 3), Some(InvalidMessage::Padding)),
        (packet(12, 11), Some(InvalidMessage::Empty)),
        (packet(12, 12), Some(InvalidMessage::Padding)),
        (packet(13, 4), Some(InvalidMessage::PacketLength)),
        (packet(4, 4), Some(InvalidMessage::PacketLength)),
    ] {
        let mut server = End::new(server_with(TransportConfig {
            strict_kex: false,
            ..quick()
        }));
        server.feed(b"SSH-2.0-x\r\n").expect("a version");
        let result = server.feed(&bytes);
        assert_eq!(result, error.map_or(Ok(()), |e| Err(e.into())), "{bytes:?}");
    }
}

#[test]
fn a_full_transmit_buffer_loses_nothing() {
    let mut pair = Pair::new(quick(), quick());
    pair.client.tx = TxBuf::new(1600);
    pair.server.tx = TxBuf::new(1600);
    pair.run().expect("both agree");
    assert!(pair.client.transport.may_send() && pair.server.transport.may_send());
    let client = &mut pair.client;
    assert_eq!(
        client.transport.seal(&mut client.tx, &data(2000, 0)),
        Ok(false)
    );
    client.send(&data(1000, 0));
    pair.run().expect("well-formed");
    assert_eq!(pair.server.received.len(), 1);
}
