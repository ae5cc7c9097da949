//! Against values from standards and from code that is not ours (testdata/transport/make.py).

use super::*;
use crate::cipher::{Cipher, Mac};
use crate::kex::{GROUP14, GROUP16};
use zeroize::Zeroizing;

const PACKETS: &str = include_str!("../../../testdata/transport/packets.txt");
const AGREEMENTS: &str = include_str!("../../../testdata/transport/agreements.txt");

fn hex(text: &str) -> Vec<u8> {
    let text: String = text.split_whitespace().collect();
    if text == "-" {
        return Vec::new();
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').collect())
}

/// "Randomness" that is one known value, over and over.
struct Fixed(Vec<u8>);

impl SecureRandom for Fixed {
    fn fill(&mut self, out: &mut [u8]) {
        out.copy_from_slice(&self.0);
    }
}

fn fixed(bytes: &[u8]) -> AwsLc {
    AwsLc::new(Box::new(Fixed(bytes.to_vec())))
}

/// Randomness for tests that do not look at it.
struct Counting(u8);

impl SecureRandom for Counting {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_mul(5).wrapping_add(77);
            *byte = self.0;
        }
    }
}

fn any() -> AwsLc {
    AwsLc::new(Box::new(Counting(1)))
}

fn material(iv: &[u8], key: &[u8], mac_key: &[u8]) -> KeyMaterial {
    KeyMaterial {
        iv: Zeroizing::new(iv.to_vec()),
        key: Zeroizing::new(key.to_vec()),
        mac_key: Zeroizing::new(mac_key.to_vec()),
    }
}

/// Both directions of the suite of that name.
type Keys = (String, Box<dyn SealingKey>, Box<dyn OpeningKey>);

#[test]
fn packets_of_asyncssh_are_made_and_opened_bit_for_bit() {
    let mut keys: Option<Keys> = None;
    let mut count = 0;
    for row in rows(PACKETS) {
        let [cipher, mac, iv, key, mac_key, sequence, payload, wire] = row[..] else {
            unreachable!("eight columns");
        };
        let suite = Suite {
            cipher: Cipher::from_name(cipher).expect("known"),
            mac: Mac::from_name(mac),
        };
        let name = format!("{cipher} {mac}");
        let mut pair = keys.take().filter(|k| k.0 == name).unwrap_or_else(|| {
            let material = material(&hex(iv), &hex(key), &hex(mac_key));
            let mut provider = any();
            let sealing = provider.sealing_key(suite, &material);
            (
                name.clone(),
                sealing,
                provider.opening_key(suite, &material),
            )
        });
        let sequence: u32 = sequence.parse().expect("a number");
        let wire = hex(wire);
        let (packet_len, tag_len) = (wire.len() - suite.layout().tag_len, suite.layout().tag_len);
        let payload = hex(payload);
        let mut clear = u32::try_from(packet_len - 4)
            .expect("short")
            .to_be_bytes()
            .to_vec();
        clear.push(u8::try_from(packet_len - 5 - payload.len()).expect("short"));
        clear.extend(&payload);
        clear.resize(packet_len, 0);

        let (mut packet, mut tag) = (clear.clone(), vec![0; tag_len]);
        pair.1.seal(sequence, &mut packet, &mut tag);
        assert_eq!([packet, tag].concat(), wire, "{name}");

        let (mut packet, tag) = (wire[..packet_len].to_vec(), &wire[packet_len..]);
        let head_len = pair.2.head_len();
        let len_word = pair.2.packet_len(sequence, &mut packet[..head_len]);
        assert_eq!(len_word as usize, packet_len - 4, "{name}");
        assert_eq!(pair.2.open(sequence, &mut packet, tag), Ok(()), "{name}");
        assert_eq!(packet[4..], clear[4..], "{name}");
        keys = Some(pair);
        count += 1;
    }
    assert_eq!(count, 3 * (3 + 3 * 4));
}

#[test]
fn counter_mode_as_in_nist_sp_800_38a() {
    // F.5.1, F.5.3, F.5.5.
    let clear = hex(
        "6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51
         30c81c46a35ce411e5fbc1191a0a52ef f69f2445df4f9b17ad2b417be66c3710",
    );
    for (cipher, key, expected) in [
        (
            Cipher::Aes128Ctr,
            "2b7e151628aed2a6abf7158809cf4f3c",
            "874d6191b620e3261bef6864990db6ce 9806f66b7970fdff8617187bb9fffdff
             5ae4df3edbd5d35e5b4f09020db03eab 1e031dda2fbe03d1792170a0f3009cee",
        ),
        (
            Cipher::Aes192Ctr,
            "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
            "1abc932417521ca24f2b0459fe7e6e0b 090339ec0aa6faefd5ccc2c6f4ce8e94
             1e36b26bd1ebc670d1bd1d665620abf7 4f78a7f6d29809585a97daec58c6b050",
        ),
        (
            Cipher::Aes256Ctr,
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "601ec313775789a5b7a7f504bbf3d228 f443e3ca4d62b59aca84e990cacaf5c5
             2b0930daa23de94ce87017ba2d84988d dfc9c58db67aada613c2dd08457941a6",
        ),
    ] {
        let iv = hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
        let suite = Suite {
            cipher,
            mac: Some(Mac::HmacSha256),
        };
        let mut sealing = any().sealing_key(suite, &material(&iv, &hex(key), &[0; 32]));
        // In two pieces: the counter goes on.
        let mut out = clear.clone();
        sealing.seal(0, &mut out[..32], &mut [0; 32]);
        sealing.seal(1, &mut out[32..], &mut [0; 32]);
        assert_eq!(out, hex(expected));
    }
}

#[test]
fn hmac_as_in_rfc_4231_case_1() {
    // "Hi There" is sequence number "Hi T" and a packet "here" of which nothing is encrypted.
    for (mac, expected) in [
        (
            Mac::HmacSha256Etm,
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        ),
        (
            Mac::HmacSha512Etm,
            "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde
             daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
        ),
    ] {
        let suite = Suite {
            cipher: Cipher::Aes128Ctr,
            mac: Some(mac),
        };
        let material = material(&[0; 16], &[0; 16], &[0x0b; 20]);
        let mut tag = vec![0; mac.tag_len()];
        any().sealing_key(suite, &material).seal(
            u32::from_be_bytes(*b"Hi T"),
            &mut b"here".to_vec(),
            &mut tag,
        );
        assert_eq!(tag, hex(expected));
    }
}

#[test]
fn x25519_as_in_rfc_7748() {
    // Section 6.1.
    agree(&[
        "curve25519-sha256",
        "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
        "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
    ]);
}

fn agree(row: &[&str]) {
    let [name, private, public, remote, shared] = row[..] else {
        unreachable!("five columns");
    };
    let method = Method::from_name(name).expect("known");
    let mut expected = Vec::new();
    crate::wire::Put::put_mpint(&mut expected, &hex(shared));
    let mut provider = fixed(&hex(private));
    let kex = provider.kex_client(method, None).expect("a key");
    assert_eq!(kex.public(), hex(public), "{name}");
    let secret = kex.finish(&hex(remote)).expect("agrees");
    assert_eq!(*secret.0, expected, "{name}");
    let (server_public, secret) = provider
        .kex_server(method, None, &hex(remote))
        .expect("agrees");
    assert_eq!(
        (server_public, &*secret.0),
        (hex(public), &expected),
        "{name}"
    );
}

#[test]
fn agreements_are_those_of_other_libraries_in_both_roles() {
    assert_eq!(rows(AGREEMENTS).map(|row| agree(&row)).count(), 7);
}

fn refuses(method: Method, remote: &[u8]) -> bool {
    let client = any()
        .kex_client(method, None)
        .expect("a key")
        .finish(remote);
    let server = any().kex_server(method, None, remote);
    matches!(
        (client, server),
        (Err(KexError::PublicValue), Err(KexError::PublicValue))
    )
}

#[test]
fn values_that_give_the_secret_away_or_do_not_fit_are_refused() {
    // RFC 7748 6.1 / RFC 8731 3: points of small order lead to zero.
    let order_8 = hex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800");
    for point in [vec![0; 32], order_8, vec![9; 31], vec![9; 33], Vec::new()] {
        assert!(refuses(Method::Curve25519Sha256, &point));
    }
    for (method, len) in [
        (Method::EcdhNistp256, 32),
        (Method::EcdhNistp384, 48),
        (Method::EcdhNistp521, 66),
    ] {
        let good = any()
            .kex_client(method, None)
            .expect("a key")
            .public()
            .to_vec();
        assert!(!refuses(method, &good));
        let mut off_curve = good.clone();
        off_curve[2 * len] ^= 1;
        let mut compressed = good[..=len].to_vec();
        compressed[0] = 2 | (good[2 * len] & 1);
        for point in [
            off_curve,
            compressed,
            vec![0],
            good[..2 * len].to_vec(),
            vec![4; 1 + 2 * len],
        ] {
            assert!(refuses(method, &point), "{method:?}");
        }
    }
    for method in [Method::Mlkem768X25519Sha256, Method::Sntrup761X25519Sha512] {
        let good = any()
            .kex_client(method, None)
            .expect("a key")
            .public()
            .to_vec();
        assert!(any().kex_server(method, None, &good).is_ok());
        assert!(refuses(method, &good[1..]));
        let mut zero_point = good.clone();
        let at = zero_point.len() - 32;
        zero_point[at..].fill(0);
        let result = any().kex_server(method, None, &zero_point).map(|_| ());
        assert_eq!(result, Err(KexError::PublicValue));
    }
    // FIPS 203 7.2: coefficients of an encapsulation key are under q.
    let mut too_large = any()
        .kex_client(Method::Mlkem768X25519Sha256, None)
        .expect("a key")
        .public()
        .to_vec();
    too_large[..3].fill(0xff);
    let result = any().kex_server(Method::Mlkem768X25519Sha256, None, &too_large);
    assert_eq!(result.map(|_| ()), Err(KexError::PublicValue));
}

#[test]
fn finite_field_values_are_taken_from_2_to_p_minus_2() {
    let p = &GROUP14.p;
    let minus = |n: u8| {
        let mut value = p.clone();
        *value.last_mut().expect("not empty") -= n;
        value
    };
    for bad in [
        vec![],
        vec![0],
        vec![1],
        minus(1),
        minus(0),
        [p.as_slice(), &[0]].concat(),
    ] {
        assert!(refuses(Method::DhGroup14Sha256, &bad));
    }
    for good in [vec![2], minus(2)] {
        assert!(!refuses(Method::DhGroup14Sha256, &good));
    }
}

#[test]
fn groups_that_are_none_are_refused() {
    let group = |p: &[u8], g: &[u8]| Group {
        p: p.to_vec(),
        g: g.to_vec(),
    };
    let p = &GROUP16.p;
    let mut even = p.clone();
    *even.last_mut().expect("not empty") = 0xfe;
    for bad in [
        group(&even, &[2]),
        group(p, &[1]),
        group(p, &[]),
        group(p, p),
        group(&[], &[2]),
    ] {
        let result = any().kex_client(Method::DhGroupExchangeSha256, Some(&bad));
        assert!(matches!(result, Err(KexError::Group)));
    }
    assert!(
        any()
            .kex_client(Method::DhGroupExchangeSha256, None)
            .is_err()
    );
}

#[test]
fn secrets_are_not_shown() {
    let (_, secret) = any()
        .kex_server(Method::DhGroup14Sha256, None, &[2])
        .expect("agrees");
    assert_eq!(format!("{secret:?}"), "SharedSecret(..)");
}
