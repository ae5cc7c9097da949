//! PEM armour (RFC 7468), and the private keys that come as DER inside: PKCS#8 (RFC 5958), PKCS#1
//! (RFC 8017 A.1.2) and SEC 1 (RFC 5915). The DER of private keys is read by the cryptographic library.

use super::private::signing;
use super::public::Curve;
use super::{KeyError, PrivateKey, Secret};
use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
/// ssh-keygen breaks its lines here; RFC 7468 asks for 64. Readers take both.
const LINE_CHARS: usize = 70;

/// The first block of a PEM file.
pub(super) struct Document<'a> {
    pub(super) label: &'a str,
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

impl<'a> Document<'a> {
    pub(super) fn parse(file: &'a [u8]) -> Result<Self, KeyError> {
        let no_pem = || KeyError::UnknownFormat(String::new());
        let text = core::str::from_utf8(file).map_err(|_| no_pem())?;
        let mut lines = text.lines().map(str::trim_end);
        let label = lines
            .find_map(|line| between(line, BEGIN))
            .ok_or_else(no_pem)?;
        let mut body = Zeroizing::new(String::with_capacity(text.len()));
        let mut has_end = false;
        for line in lines {
            if let Some(end) = between(line, END) {
                has_end = end == label;
                break;
            }
            match line.split_once(':') {
                None => body.push_str(line.trim()),
                // RFC 1421 headers: OpenSSL's old encryption of legacy PEM.
                Some(("DEK-Info", value)) => return Err(legacy_cipher(value)),
                Some(_) => {}
            }
        }
        if !has_end {
            return Err(KeyError::Malformed("PEM file"));
        }
        let bytes = Base64::decode_vec(&body).map_err(|_| KeyError::Malformed("PEM file"))?;
        Ok(Self {
            label,
            bytes: Zeroizing::new(bytes),
        })
    }
}

fn between<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    line.strip_prefix(start)?.strip_suffix(DASHES)
}

fn legacy_cipher(dek_info: &str) -> KeyError {
    let name = dek_info.split(',').next().unwrap_or_default().trim();
    KeyError::UnknownCipher(super::shown(name.as_bytes()))
}

/// Armours `bytes`.
pub(super) fn encode(label: &str, bytes: &[u8]) -> Secret {
    let encoded = Zeroizing::new(Base64::encode_string(bytes));
    let room = encoded.len() + encoded.len() / LINE_CHARS + 2 * (label.len() + 24);
    let mut out = Vec::with_capacity(room);
    out.extend_from_slice(format!("{BEGIN}{label}{DASHES}\n").as_bytes());
    for line in encoded.as_bytes().chunks(LINE_CHARS) {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.extend_from_slice(format!("{END}{label}{DASHES}\n").as_bytes());
    Secret::new(out)
}

/// The key of a document that is not OpenSSH's.
pub(super) fn decode(document: &Document<'_>) -> Result<PrivateKey, KeyError> {
    let der = document.bytes.as_slice();
    match document.label {
        "PRIVATE KEY" => pkcs8(der),
        "RSA PRIVATE KEY" => rsa(RsaKeyPair::from_der(der)),
        "EC PRIVATE KEY" => ec(der),
        label => Err(KeyError::UnknownFormat(super::shown(label.as_bytes()))),
    }
}

/// RFC 8410 3: id-Ed25519, 1.3.101.112.
const OID_ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];
/// RFC 8017 A.1: rsaEncryption, 1.2.840.113549.1.1.1.
const OID_RSA: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
];
/// RFC 5480 2.1.1: id-ecPublicKey, 1.2.840.10045.2.1.
const OID_EC: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];

/// RFC 5958 2: version, algorithm, key. The algorithm says who reads the whole.
fn pkcs8(der: &[u8]) -> Result<PrivateKey, KeyError> {
    let malformed = KeyError::Malformed("PKCS#8 private key");
    let (sequence, _) = element(der, 0x30).ok_or(malformed.clone())?;
    let (_version, rest) = element(sequence, 0x02).ok_or(malformed.clone())?;
    let (algorithm, _) = element(rest, 0x30).ok_or(malformed.clone())?;
    if algorithm.starts_with(OID_ED25519) {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(|_| malformed)?;
        let seed = pair.seed().map_err(|_| KeyError::Inconsistent)?;
        let bytes = aws_lc_rs::encoding::AsBigEndian::<
            aws_lc_rs::encoding::Curve25519SeedBin<'static>,
        >::as_be_bytes(&seed)
        .map_err(|_| KeyError::Inconsistent)?;
        let seed: &[u8; 32] = bytes
            .as_ref()
            .try_into()
            .map_err(|_| KeyError::Inconsistent)?;
        PrivateKey::from_ed25519_seed(seed)
    } else if algorithm.starts_with(OID_RSA) {
        rsa(RsaKeyPair::from_pkcs8(der))
    } else if algorithm.starts_with(OID_EC) {
        ec(der)
    } else {
        Err(KeyError::UnknownType(String::from(
            "PKCS#8 of another kind",
        )))
    }
}

fn rsa(pair: Result<RsaKeyPair, aws_lc_rs::error::KeyRejected>) -> Result<PrivateKey, KeyError> {
    // The library refuses what is outside of 2048 to 8192 bits, and does not say how many there were.
    let pair = pair.map_err(|why| match why.description_() {
        "TooSmall" => KeyError::Unsupported("an RSA key below 2048 bits"),
        "TooLarge" => KeyError::Unsupported("signing with RSA keys above 8192 bits"),
        _ => KeyError::Malformed("RSA private key"),
    })?;
    PrivateKey::from_rsa_pair(pair)
}

fn ec(der: &[u8]) -> Result<PrivateKey, KeyError> {
    [Curve::P256, Curve::P384, Curve::P521]
        .into_iter()
        .find_map(|curve| {
            let pair = EcdsaKeyPair::from_private_key_der(signing(curve), der).ok()?;
            Some(PrivateKey::from_ecdsa_pair(curve, pair))
        })
        .ok_or(KeyError::Malformed("EC private key"))
}

/// Modulus and exponent of a DER `RSAPublicKey` (RFC 8017 A.1.1), without leading zeros.
pub(super) fn rsa_public_key(der: &[u8]) -> Result<(&[u8], &[u8]), KeyError> {
    let parse = || {
        let (sequence, _) = element(der, 0x30)?;
        let (n, rest) = element(sequence, 0x02)?;
        let (e, _) = element(rest, 0x02)?;
        Some((unsigned(n), unsigned(e)))
    };
    parse().ok_or(KeyError::Malformed("RSA public key"))
}

fn unsigned(number: &[u8]) -> &[u8] {
    match number {
        [0, rest @ ..] => rest,
        whole => whole,
    }
}

/// One DER element with this tag: its content, and what follows it (X.690 8.1).
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    let (len, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 3 {
            return None;
        }
        let len = digits.iter().fold(0, |len, d| len << 8 | usize::from(*d));
        (len, rest)
    };
    rest.split_at_checked(len)
}
