//! OpenSSH PROTOCOL 1.10: strict key exchange.

use super::*;
use crate::error::PeerMisbehaved;
use crate::msg::{SSH_MSG_DEBUG, SSH_MSG_SERVICE_REQUEST, SSH_MSG_UNIMPLEMENTED};

/// Splits plain packets at their ends; the version line comes first.
fn packets(bytes: &[u8]) -> Vec<Vec<u8>> {
    let line_len = bytes
        .iter()
        .position(|b| *b == b'\n')
        .expect("a version line")
        + 1;
    let (line, mut rest) = bytes.split_at(line_len);
    let mut packets = vec![line.to_vec()];
    while !rest.is_empty() {
        let len = u32::from_be_bytes(rest[..4].try_into().expect("a length word"));
        let (packet, behind) = rest.split_at(4 + len as usize);
        packets.push(packet.to_vec());
        rest = behind;
    }
    packets
}

/// The server's verdict when `extra` is put in at `place` of the client's first flight (version
/// line, KEXINIT, guessed INIT).
fn with_extra(config: &TransportConfig, place: usize, extra: &[u8]) -> Result<(), Error> {
    let config = TransportConfig {
        guess_kex: true,
        host_key_algorithms: vec!["ssh-ed25519".into()],
        ..config.clone()
    };
    let mut pair = Pair::new(config.clone(), config);
    let mut flight = packets(&pair.client.take_output());
    assert_eq!(flight.len(), 3);
    flight.insert(place, plain_packet(extra));
    pair.server.feed(&flight.concat())
}

fn lax() -> TransportConfig {
    TransportConfig {
        strict_kex: false,
        ..quick()
    }
}

#[test]
fn nothing_may_come_before_kexinit_or_between_it_and_newkeys() {
    let unimplemented = [SSH_MSG_UNIMPLEMENTED, 0, 0, 0, 0];
    let debug = [SSH_MSG_DEBUG, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for extra in [&ignore()[..], &unimplemented, &debug] {
        let message = extra[0];
        let violation = Err(PeerMisbehaved::StrictKexViolation { message }.into());
        for place in [1, 2] {
            assert_eq!(
                with_extra(&quick(), place, extra),
                violation,
                "{message} at {place}"
            );
            assert_eq!(
                with_extra(&lax(), place, extra),
                Ok(()),
                "{message} at {place}"
            );
        }
        // Behind INIT the server waits for NEWKEYS.
        assert_eq!(with_extra(&quick(), 3, extra), violation);
        assert_eq!(with_extra(&lax(), 3, extra), Ok(()));
    }
}

#[test]
fn data_and_services_never_come_in_the_clear() {
    for config in [quick(), lax()] {
        for place in [1, 2, 3] {
            for message in [SSH_MSG_SERVICE_REQUEST, SSH_MSG_CHANNEL_DATA] {
                assert!(with_extra(&config, place, &[message, 0, 0, 0, 0]).is_err());
            }
        }
    }
}

#[test]
fn method_messages_out_of_turn_are_refused() {
    for config in [quick(), lax()] {
        for message in [31, 32, 33, 34, 49] {
            assert_eq!(
                with_extra(&config, 2, &[message, 0, 0, 0, 0]),
                Err(PeerMisbehaved::UnexpectedMessage { message }.into())
            );
        }
        let message = 21;
        assert_eq!(
            with_extra(&config, 2, &[message]),
            Err(PeerMisbehaved::UnexpectedMessage { message }.into())
        );
    }
}

#[test]
fn a_prefix_cut_from_the_encrypted_stream_is_noticed() {
    // CVE-2023-48795: a packet is put in before NEWKEYS, one behind it is taken out. Sequence
    // numbers that start anew leave the attacker nothing to shift.
    let config = TransportConfig {
        ciphers: vec![crate::cipher::Cipher::Chacha20Poly1305],
        ..quick()
    };
    let mut pair = Pair::established(&config);
    pair.client.send(&data(1, 1));
    let _lost = pair.client.take_output();
    pair.client.send(&data(1, 2));
    let bytes = pair.client.take_output();
    assert!(pair.server.feed(&bytes).is_err());
}

#[test]
fn ignore_and_debug_are_fine_once_encrypted() {
    let mut pair = Pair::established(&quick());
    pair.client.send(&ignore());
    pair.client
        .send(&[SSH_MSG_DEBUG, 1, 0, 0, 0, 1, b'x', 0, 0, 0, 0]);
    pair.client.send(&data(3, 3));
    pair.run().expect("well-formed");
    assert_eq!(pair.server.received, [data(3, 3)]);
}
