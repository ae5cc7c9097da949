//! Layout and compression, without keys.

use super::zlib::{Deflate, Inflate};
use super::*;
use crate::cipher::{Cipher, Layout, Mac, Suite};
use crate::config::PAYLOAD_BYTES_MAX;
use crate::error::{Error, InvalidMessage, PeerMisbehaved};
use crate::kex::Method;
use crate::provider::{Group, KeyMaterial, Provider, fake::Fake};
use flate2::{Compress, FlushCompress};
use zeroize::Zeroizing;

fn suites() -> impl Iterator<Item = Suite> {
    Cipher::ALL.iter().flat_map(|cipher| {
        let macs = if cipher.is_aead() {
            &Mac::ALL[..1]
        } else {
            Mac::ALL
        };
        macs.iter().map(|mac| Suite {
            cipher: *cipher,
            mac: (!cipher.is_aead()).then_some(*mac),
        })
    })
}

#[test]
fn padding_is_4_to_255_and_fills_blocks_under_every_suite() {
    let none = || Zeroizing::new(Vec::new());
    let material = KeyMaterial {
        iv: none(),
        key: none(),
        mac_key: none(),
    };
    for suite in suites() {
        let layout = suite.layout();
        let mut sealer = Sealer::new();
        let key = Fake::new(1).sealing_key(suite, &material);
        sealer
            .direction
            .install(key, layout, Compression::None, false);
        for payload_len in 1..100 {
            let sealed_len = sealer.sealed_len(payload_len);
            let mut buf = vec![0xee; sealed_len];
            sealer.seal_at(&mut buf, payload_len);
            let packet_len = u32::from_be_bytes(buf[..4].try_into().expect("a word")) as usize;
            let padding = usize::from(buf[4]);
            assert!((4..20).contains(&padding));
            assert_eq!(packet_len, 1 + payload_len + padding);
            assert_eq!(sealed_len, 4 + packet_len + layout.tag_len);
            let padded = packet_len + if layout.len_is_padded { 4 } else { 0 };
            assert_eq!(padded % layout.block_len, 0);
            assert_eq!(buf[5..5 + payload_len], vec![0xee; payload_len]);
            assert_eq!(buf[5 + payload_len..4 + packet_len], vec![0; padding]);
        }
    }
}

#[test]
fn plain_packets_count_their_length_word() {
    // RFC 4253 6: NEWKEYS alone takes 16 bytes.
    assert_eq!(Sealer::new().sealed_len(1), 16);
    assert_eq!(Layout::PLAIN.block_len, 8);
}

#[test]
fn a_compressed_stream_comes_back_packet_by_packet() {
    let (mut deflate, mut inflate) = (Deflate::default(), Inflate::default());
    let mut random = Fake::new(3);
    for len in [1, 2, 100, 5000, 32_768, PAYLOAD_BYTES_MAX, 1] {
        let mut noise = vec![0; len];
        random.fill_random(&mut noise);
        for message in [noise, vec![7; len]] {
            let packed = deflate.run(&message);
            assert!(packed.len() <= Deflate::bound(len), "{len}");
            // Noise of the full length does not fit a packet once packed; the sender cuts earlier.
            inflate.run(packed).expect("well-formed");
            assert_eq!(inflate.output(), message);
        }
    }
}

#[test]
fn a_bomb_is_defused_at_the_limit() {
    for (len, fits) in [
        (PAYLOAD_BYTES_MAX, true),
        (PAYLOAD_BYTES_MAX + 1, false),
        (50_000_000, false),
    ] {
        let mut packed = Vec::with_capacity(1 << 20);
        Compress::new(flate2::Compression::best(), true)
            .compress_vec(&vec![0; len], &mut packed, FlushCompress::Sync)
            .expect("room enough");
        let mut inflate = Inflate::default();
        let expected = if fits {
            Ok(())
        } else {
            Err(Error::from(PeerMisbehaved::DecompressedTooLong))
        };
        assert_eq!(inflate.run(&packed), expected, "{len}");
        assert!(inflate.output().len() <= PAYLOAD_BYTES_MAX + 1);
    }
}

#[test]
fn damaged_ended_and_empty_streams_are_refused() {
    let damaged = Err(Error::from(InvalidMessage::Compression));
    assert_eq!(Inflate::default().run(b"no zlib at all"), damaged);
    let mut finished = Vec::with_capacity(1000);
    Compress::new(flate2::Compression::fast(), true)
        .compress_vec(b"all", &mut finished, FlushCompress::Finish)
        .expect("room enough");
    assert_eq!(Inflate::default().run(&finished), damaged);
    // A header and nothing in it.
    assert_eq!(
        Inflate::default().run(&[0x78, 0x9c]),
        Err(InvalidMessage::Empty.into())
    );
}

#[test]
fn a_stream_of_zlib_itself_is_understood() {
    // Python's zlib: compressobj(6), two messages, Z_PARTIAL_FLUSH behind each, as OpenSSH does.
    let first = [
        0x78, 0x9c, 0x4a, 0x2c, 0x29, 0x49, 0x4c, 0xce, 0x56, 0x48, 0x2c, 0x51, 0x48, 0x49, 0x2c,
        0xcf, 0xd3, 0x01, 0x32, 0xe0, 0xfc, 0xd2, 0xe2, 0x6c, 0x80, 0x00,
    ];
    let second = [0x02, 0x61, 0x80, 0x00];
    let mut inflate = Inflate::default();
    inflate.run(&first).expect("well-formed");
    assert_eq!(inflate.output(), b"attack at dawn, attack at dusk");
    inflate.run(&second).expect("well-formed");
    assert_eq!(inflate.output(), b"dusk");
}

#[test]
fn the_fake_provider_agrees_with_itself() {
    let mut fake = Fake::new(1);
    let group: Option<&Group> = None;
    let client = fake
        .kex_client(Method::DhGroup14Sha256, group)
        .expect("instant");
    let (public, server) = fake
        .kex_server(Method::DhGroup14Sha256, group, client.public())
        .expect("instant");
    let secret = client.finish(&public).expect("instant");
    assert_eq!(secret.0, server.0);
}
