//! Exchanges recorded from asyncssh (testdata/transport/make.py), and negotiation.

use super::*;
use crate::cipher::{Cipher, Mac, Suite};
use crate::config::TransportConfig;
use crate::error::Category;
use crate::packet::Compression;
use crate::provider::{AwsLc, Group, Provider, SecureRandom, SharedSecret};
use crate::wire::{FieldError, Put, Reader};
use hash::{GexRecord, Values};
use zeroize::Zeroizing;

const EXCHANGES: &str = include_str!("../../testdata/transport/exchanges.txt");

fn hex(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

struct NoRandom;

impl SecureRandom for NoRandom {
    fn fill(&mut self, _out: &mut [u8]) {
        unreachable!("verification draws nothing");
    }
}

fn gex_record(recorded: &[u8]) -> GexRecord {
    let mut fields = Reader::new(recorded);
    let bounds = GexBounds {
        min: fields.u32().expect("min"),
        preferred: fields.u32().expect("preferred"),
        max: fields.u32().expect("max"),
    };
    let group = Group {
        p: fields.mpint().expect("p").to_vec(),
        g: fields.mpint().expect("g").to_vec(),
    };
    GexRecord { bounds, group }
}

#[test]
fn recorded_exchanges_give_the_recorded_hash_signature_and_keys() {
    let mut count = 0;
    for line in EXCHANGES.lines().filter(|line| !line.starts_with('#')) {
        let row: Vec<&str> = line.split(' ').collect();
        let method = Method::from_name(row[0]).expect("known");
        let f: Vec<Vec<u8>> = row[1..].iter().map(|field| hex(field)).collect();
        let transcript = Transcript {
            client_version: f[0].clone(),
            server_version: f[1].clone(),
            client_kexinit: f[2].clone(),
            server_kexinit: f[3].clone(),
        };
        let gex = (!f[5].is_empty()).then(|| gex_record(&f[5]));
        let public = |encoded: &[u8]| {
            let mut fields = Reader::new(encoded);
            if method.public_is_mpint() {
                fields.mpint().expect("an mpint").to_vec()
            } else {
                fields.string().expect("a string").to_vec()
            }
        };
        let (client_public, server_public) = (public(&f[6]), public(&f[7]));
        let secret = SharedSecret(Zeroizing::new(f[8].clone()));
        let exchange_hash = transcript.hash(&Values {
            method,
            host_key: &f[4],
            gex: gex.as_ref(),
            client_public: &client_public,
            server_public: &server_public,
            secret: &secret,
        });
        assert_eq!(exchange_hash, f[10], "{}", row[0]);

        let algorithm = HostKeyAlgorithm::from_name("ssh-ed25519").expect("known");
        let mut provider = AwsLc::new(Box::new(NoRandom));
        let verdict = provider.verify_host_key(&f[4], algorithm, &exchange_hash, &f[9]);
        assert_eq!(verdict, Ok(()), "{}", row[0]);

        let agreed = Agreed {
            hash: method.hash(),
            secret,
            exchange_hash: exchange_hash.clone(),
        };
        check_keys(&agreed, &exchange_hash, &f[11..]);
        count += 1;
    }
    assert_eq!(count, 9);
}

/// `letters` are 64 bytes each of A to F.
fn check_keys(agreed: &Agreed, session_id: &[u8], letters: &[Vec<u8>]) {
    let ctr = Suite {
        cipher: Cipher::Aes256Ctr,
        mac: Some(Mac::HmacSha512),
    };
    let chacha = Suite {
        cipher: Cipher::Chacha20Poly1305,
        mac: None,
    };
    for (direction, [iv, key, mac]) in [
        (Direction::ClientToServer, [0, 2, 4]),
        (Direction::ServerToClient, [1, 3, 5]),
    ] {
        let keys = derive(agreed, session_id, ctr, direction);
        assert_eq!(keys.iv[..], letters[iv][..16]);
        assert_eq!(keys.key[..], letters[key][..32]);
        assert_eq!(keys.mac_key[..], letters[mac][..64]);
        let keys = derive(agreed, session_id, chacha, direction);
        assert_eq!((keys.iv.len(), keys.mac_key.len()), (0, 0));
        assert_eq!(keys.key[..], letters[key][..64]);
    }
}

fn offer(is_client: bool) -> Offer {
    let host_keys = ["ssh-ed25519", "rsa-sha2-512"]
        .iter()
        .filter_map(|name| HostKeyAlgorithm::from_name(name))
        .collect();
    Offer::new(&TransportConfig::default(), is_client, host_keys)
}

/// A KEXINIT with lists as they are given: kex, host keys, then cipher, MAC and compression for
/// both directions.
fn kexinit(lists: [&str; 5]) -> Vec<u8> {
    let mut out = vec![20];
    out.put_raw(&[7; 16]);
    let [kex, host_keys, ciphers, macs, compression] = lists;
    for list in [
        kex,
        host_keys,
        ciphers,
        ciphers,
        macs,
        macs,
        compression,
        compression,
        "",
        "",
    ] {
        out.put_string(list.as_bytes());
    }
    out.put_bool(false);
    out.put_u32(0);
    out
}

const LIBSSH: [&str; 5] = [
    "curve25519-sha256,ext-info-c",
    "rsa-sha2-512,ssh-ed25519",
    // libssh 0.10 ends its list with an empty name.
    "aes256-ctr,aes128-gcm@openssh.com,",
    "hmac-sha2-512,hmac-sha2-256",
    "zlib@openssh.com,none",
];

#[test]
fn the_clients_order_decides_whoever_we_are() {
    let init = kexinit(LIBSSH);
    let remote = KexInit::parse(&init).expect("well-formed");
    let as_server = offer(false).negotiate(&remote).expect("in common");
    assert_eq!(as_server.kex, Method::Curve25519Sha256);
    assert_eq!(as_server.host_key.name(), "rsa-sha2-512");
    assert_eq!(as_server.client_to_server.cipher, Cipher::Aes256Ctr);
    assert_eq!(as_server.server_to_client.mac, Some(Mac::HmacSha512));
    assert_eq!(
        as_server.compression_client_to_server,
        Compression::ZlibDelayed
    );
    let as_client = offer(true).negotiate(&remote).expect("in common");
    assert_eq!(as_client.host_key.name(), "ssh-ed25519");
    assert_eq!(as_client.client_to_server.cipher, Cipher::Aes128Gcm);
    assert_eq!(as_client.client_to_server.mac, None);
    assert_eq!(as_client.compression_server_to_client, Compression::None);
}

#[test]
fn macs_need_not_agree_under_an_aead() {
    let mut lists = LIBSSH;
    lists[2] = "aes256-gcm@openssh.com";
    lists[3] = "hmac-md5";
    let init = kexinit(lists);
    let remote = KexInit::parse(&init).expect("well-formed");
    assert!(offer(false).negotiate(&remote).is_ok());
    lists[2] = "aes256-ctr";
    let init = kexinit(lists);
    let remote = KexInit::parse(&init).expect("well-formed");
    let error = offer(false).negotiate(&remote).expect_err("no MAC");
    assert_eq!(error.category, Category::MacClientToServer);
    assert_eq!(error.remote, ["hmac-md5"]);
}

#[test]
fn markers_are_no_methods_and_long_lists_are_cut_in_errors() {
    let names: Vec<String> = (0..1000).map(|n| format!("kex{n}")).collect();
    let list = format!("ext-info-c,{}", names.join(","));
    let mut lists = LIBSSH;
    lists[0] = &list;
    let init = kexinit(lists);
    let remote = KexInit::parse(&init).expect("well-formed");
    let error = offer(false).negotiate(&remote).expect_err("nothing");
    assert_eq!(
        error.remote.len(),
        crate::error::PeerIncompatible::NAMES_MAX
    );
    assert_eq!(error.remote[0], "kex0");
}

#[test]
fn a_guess_is_right_only_when_both_first_names_agree() {
    let mut lists = LIBSSH;
    for (kex, host_key, right) in [
        ("mlkem768x25519-sha256,x", "ssh-ed25519,x", true),
        (",mlkem768x25519-sha256", "ssh-ed25519", true),
        (
            "curve25519-sha256,mlkem768x25519-sha256",
            "ssh-ed25519",
            false,
        ),
        ("mlkem768x25519-sha256", "rsa-sha2-512,ssh-ed25519", false),
        ("", "ssh-ed25519", false),
    ] {
        (lists[0], lists[1]) = (kex, host_key);
        let init = kexinit(lists);
        let remote = KexInit::parse(&init).expect("well-formed");
        for is_client in [true, false] {
            assert_eq!(
                offer(is_client).guess_is_right(&remote),
                right,
                "{kex} {host_key}"
            );
        }
    }
}

#[test]
fn a_kexinit_cut_anywhere_or_prolonged_is_refused() {
    let init = kexinit(LIBSSH);
    for len in 1..init.len() {
        assert_eq!(
            KexInit::parse(&init[..len]).map(|_| ()),
            Err(FieldError::Truncated)
        );
    }
    let longer = [init, vec![0]].concat();
    assert_eq!(
        KexInit::parse(&longer).map(|_| ()),
        Err(FieldError::TrailingBytes)
    );
}

#[test]
fn markers_go_with_the_first_kexinit_only() {
    for (is_client, markers) in [
        (true, [EXT_INFO_CLIENT, STRICT_CLIENT]),
        (false, [EXT_INFO_SERVER, STRICT_SERVER]),
    ] {
        let first = offer(is_client).encode([0; 16], true, true);
        let first = KexInit::parse(&first).expect("well-formed");
        let later = offer(is_client).encode([0; 16], false, false);
        let later = KexInit::parse(&later).expect("well-formed");
        for marker in markers {
            assert!(first.kex.contains(marker) && !later.kex.contains(marker));
        }
        assert!(first.guess_follows && !later.guess_follows);
        let lax = Offer {
            strict: false,
            ..offer(is_client)
        };
        let lax = lax.encode([0; 16], true, false);
        let lax = KexInit::parse(&lax).expect("well-formed");
        assert!(lax.kex.contains(markers[0]) && !lax.kex.contains(markers[1]));
    }
}

#[test]
fn names_lead_back_to_what_they_name() {
    for method in Method::ALL {
        assert_eq!(Method::from_name(method.name()), Some(*method));
    }
    for cipher in Cipher::ALL {
        assert_eq!(Cipher::from_name(cipher.name()), Some(*cipher));
    }
    for mac in Mac::ALL {
        assert_eq!(Mac::from_name(mac.name()), Some(*mac));
    }
    for compression in Compression::ALL {
        assert_eq!(
            Compression::from_name(compression.name()),
            Some(*compression)
        );
    }
    for name in crate::config::HOST_KEY_ALGORITHMS {
        let algorithm = HostKeyAlgorithm::from_name(name).expect("known");
        assert_eq!(algorithm.name(), *name);
    }
    for old in ["ssh-rsa", "ssh-dss", "ssh-rsa-cert-v01@openssh.com", ""] {
        assert_eq!(HostKeyAlgorithm::from_name(old), None);
    }
}

const SNTRUP: &str = include_str!("../../testdata/transport/sntrup.txt");

/// The same numbers each time: what was recorded belongs to them.
struct Numbers(u64);

impl SecureRandom for Numbers {
    fn fill(&mut self, out: &mut [u8]) {
        // SplitMix64, as published.
        for chunk in out.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
}

/// What OpenSSH's server signed is a hash of the secret that it found. Each name hashes alike.
#[test]
fn openssh_finds_the_same_secret_by_sntrup761() {
    let row: Vec<&str> = SNTRUP.lines().filter(|l| !l.starts_with('#')).collect();
    let f: Vec<Vec<u8>> = row.iter().map(|field| hex(field)).collect();
    let transcript = Transcript {
        client_version: f[0].clone(),
        server_version: f[1].clone(),
        client_kexinit: f[2].clone(),
        server_kexinit: f[3].clone(),
    };
    let algorithm = HostKeyAlgorithm::from_name("ssh-ed25519").expect("known");
    for name in [
        "sntrup761x25519-sha512",
        "sntrup761x25519-sha512@openssh.com",
    ] {
        let method = Method::from_name(name).expect("known");
        let mut provider = AwsLc::new(Box::new(Numbers(1)));
        let client = provider.kex_client(method, None).expect("a key");
        let public = client.public().to_vec();
        let hash = |secret: &SharedSecret| {
            transcript.hash(&Values {
                method,
                host_key: &f[4],
                gex: None,
                client_public: &public,
                server_public: &f[5],
                secret,
            })
        };
        let secret = client.finish(&f[5]).expect("fine");
        let verdict = provider.verify_host_key(&f[4], algorithm, &hash(&secret), &f[6]);
        assert_eq!(verdict, Ok(()), "{name}");
        let other = SharedSecret(Zeroizing::new(vec![7; secret.0.len()]));
        let verdict = provider.verify_host_key(&f[4], algorithm, &hash(&other), &f[6]);
        assert!(verdict.is_err(), "{name}");
    }
}
