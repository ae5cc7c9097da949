//! A public key: its blob, its text line, its fingerprint.

use super::{
    Fields, KEY_BLOB_BYTES_MAX, KeyError, KeyType, RSA_BITS_MAX, RSA_BITS_MIN,
    RSA_EXPONENT_BITS_MAX, SK_APPLICATION_BYTES_MAX, shown,
};
use crate::wire::Put;
use aws_lc_rs::{digest, signature};
use base64ct::{Base64, Base64Unpadded, Encoding};
use core::fmt;

/// The curves of RFC 5656 that are implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    /// The curve's identifier inside key blobs (RFC 5656 6.1).
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::P256 => "nistp256",
            Self::P384 => "nistp384",
            Self::P521 => "nistp521",
        }
    }

    /// Bytes of a coordinate or a scalar.
    pub(super) const fn field_len(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    pub(super) const fn verification(self) -> &'static signature::EcdsaVerificationAlgorithm {
        match self {
            Self::P256 => &signature::ECDSA_P256_SHA256_FIXED,
            Self::P384 => &signature::ECDSA_P384_SHA384_FIXED,
            Self::P521 => &signature::ECDSA_P521_SHA512_FIXED,
        }
    }

    const fn key_type(self) -> KeyType {
        match self {
            Self::P256 => KeyType::EcdsaP256,
            Self::P384 => KeyType::EcdsaP384,
            Self::P521 => KeyType::EcdsaP521,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Numbers {
    Ed25519([u8; 32]),
    /// `point` is uncompressed (SEC 1), on the curve.
    Ecdsa {
        curve: Curve,
        point: Vec<u8>,
    },
    /// Both without leading zero bytes, within the limits.
    Rsa {
        e: Vec<u8>,
        n: Vec<u8>,
    },
    SkEd25519 {
        key: [u8; 32],
        application: Vec<u8>,
    },
    SkEcdsaP256 {
        point: Vec<u8>,
        application: Vec<u8>,
    },
}

/// A public key that was parsed completely: its numbers are in range and its point is on the curve.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey {
    pub(super) numbers: Numbers,
}

impl PublicKey {
    /// Reads a whole key blob (RFC 4253 6.6). Nothing may follow.
    ///
    /// # Errors
    /// `Malformed`, `TrailingBytes`, `UnknownType`, `RsaBits`, `RsaExponent`, `InvalidPoint`, `TooLong`.
    pub fn from_blob(blob: &[u8]) -> Result<Self, KeyError> {
        if blob.len() > KEY_BLOB_BYTES_MAX {
            return Err(KeyError::TooLong("public key"));
        }
        let mut fields = Fields::new(blob, "public key");
        let name = fields.string()?;
        let kind = KeyType::from_name(name).ok_or_else(|| KeyError::UnknownType(shown(name)))?;
        let key = Self::from_fields(kind, &mut fields)?;
        fields.finish()?;
        Ok(key)
    }

    /// Reads what follows the type's name: the form inside certificates.
    pub(crate) fn from_fields(kind: KeyType, fields: &mut Fields<'_>) -> Result<Self, KeyError> {
        let numbers = match kind {
            KeyType::Ed25519 => Numbers::Ed25519(fields.string_array()?),
            KeyType::EcdsaP256 => ecdsa(Curve::P256, fields)?,
            KeyType::EcdsaP384 => ecdsa(Curve::P384, fields)?,
            KeyType::EcdsaP521 => ecdsa(Curve::P521, fields)?,
            KeyType::Rsa => {
                let e = fields.positive()?;
                rsa(e, fields.positive()?)?
            }
            KeyType::SkEd25519 => Numbers::SkEd25519 {
                key: fields.string_array()?,
                application: application(fields)?,
            },
            KeyType::SkEcdsaP256 => Numbers::SkEcdsaP256 {
                point: point(Curve::P256, fields)?,
                application: application(fields)?,
            },
        };
        Ok(Self { numbers })
    }

    /// The blob, as it goes over the wire.
    #[must_use]
    pub fn to_blob(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.put_string(self.key_type().name().as_bytes());
        self.put_fields(&mut out);
        out
    }

    /// Appends what follows the type's name.
    pub(crate) fn put_fields(&self, out: &mut Vec<u8>) {
        match &self.numbers {
            Numbers::Ed25519(key) => out.put_string(key),
            Numbers::Ecdsa { curve, point } => {
                out.put_string(curve.name().as_bytes());
                out.put_string(point);
            }
            Numbers::Rsa { e, n } => {
                out.put_mpint(e);
                out.put_mpint(n);
            }
            Numbers::SkEd25519 { key, application } => {
                out.put_string(key);
                out.put_string(application);
            }
            Numbers::SkEcdsaP256 { point, application } => {
                out.put_string(Curve::P256.name().as_bytes());
                out.put_string(point);
                out.put_string(application);
            }
        }
    }

    /// Reads the text form: type, base64 of the blob, and perhaps a comment, which is returned.
    ///
    /// Blanks around the fields are skipped. The comment is the rest of the line.
    ///
    /// # Errors
    /// As `from_blob`; `Malformed` also if the name on the line is not the blob's.
    pub fn from_line(line: &[u8]) -> Result<(Self, &[u8]), KeyError> {
        let (name, rest) = word(line);
        let (encoded, comment) = word(rest);
        let key = Self::from_base64(encoded)?;
        if key.key_type().name().as_bytes() == name {
            Ok((key, comment.trim_ascii()))
        } else {
            Err(KeyError::Malformed("public key line"))
        }
    }

    /// Reads a blob in base64, as in `authorized_keys` and `known_hosts`.
    ///
    /// # Errors
    /// As `from_blob`.
    pub fn from_base64(encoded: &[u8]) -> Result<Self, KeyError> {
        Self::from_blob(&decode_base64(encoded)?)
    }

    /// The text form, without a line end. The comment is left out if it is empty.
    #[must_use]
    pub fn to_line(&self, comment: &str) -> String {
        let mut line = String::from(self.key_type().name());
        line.push(' ');
        line.push_str(&Base64::encode_string(&self.to_blob()));
        if !comment.is_empty() {
            line.push(' ');
            line.push_str(comment);
        }
        line
    }

    /// What kind of key this is.
    #[must_use]
    pub const fn key_type(&self) -> KeyType {
        match &self.numbers {
            Numbers::Ed25519(_) => KeyType::Ed25519,
            Numbers::Ecdsa { curve, .. } => curve.key_type(),
            Numbers::Rsa { .. } => KeyType::Rsa,
            Numbers::SkEd25519 { .. } => KeyType::SkEd25519,
            Numbers::SkEcdsaP256 { .. } => KeyType::SkEcdsaP256,
        }
    }

    /// The size that people know the key by: bits of the modulus or of the curve.
    #[must_use]
    pub fn bits(&self) -> usize {
        match &self.numbers {
            Numbers::Ed25519(_) | Numbers::SkEd25519 { .. } | Numbers::SkEcdsaP256 { .. } => 256,
            Numbers::Ecdsa { curve, .. } => match curve {
                Curve::P256 => 256,
                Curve::P384 => 384,
                Curve::P521 => 521,
            },
            Numbers::Rsa { n, .. } => bits(n),
        }
    }

    /// A security key's application string (usually `ssh:`); `None` for other keys.
    #[must_use]
    pub fn application(&self) -> Option<&[u8]> {
        match &self.numbers {
            Numbers::SkEd25519 { application, .. } | Numbers::SkEcdsaP256 { application, .. } => {
                Some(application)
            }
            Numbers::Ed25519(_) | Numbers::Ecdsa { .. } | Numbers::Rsa { .. } => None,
        }
    }

    /// The SHA-256 fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_blob(&self.to_blob())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PublicKey({} {})",
            self.key_type().name(),
            self.fingerprint()
        )
    }
}

/// SHA-256 of a key blob; shown as `SHA256:` and unpadded base64, as OpenSSH does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of any blob, also of a key type that is not implemented.
    #[must_use]
    pub fn of_blob(blob: &[u8]) -> Self {
        let mut out = [0; 32];
        out.copy_from_slice(digest::digest(&digest::SHA256, blob).as_ref());
        Self(out)
    }

    /// The hash itself.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", Base64Unpadded::encode_string(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Splits off the first word; what follows keeps its leading blanks.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let line = line.trim_ascii_start();
    let end = line
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(line.len());
    line.split_at(end)
}

/// Padded base64, bounded.
pub(crate) fn decode_base64(encoded: &[u8]) -> Result<Vec<u8>, KeyError> {
    if encoded.len() > KEY_BLOB_BYTES_MAX * 4 / 3 + 4 {
        return Err(KeyError::TooLong("public key"));
    }
    let text = core::str::from_utf8(encoded).map_err(|_| KeyError::Malformed("base64"))?;
    Base64::decode_vec(text).map_err(|_| KeyError::Malformed("base64"))
}

fn bits(number: &[u8]) -> usize {
    number
        .first()
        .map_or(0, |first| number.len() * 8 - first.leading_zeros() as usize)
}

/// Checks the numbers of an RSA key, which are without leading zeros.
pub(super) fn rsa(e: &[u8], n: &[u8]) -> Result<Numbers, KeyError> {
    let modulus_bits = bits(n);
    if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&modulus_bits) {
        return Err(KeyError::RsaBits(modulus_bits));
    }
    let is_even = |number: &[u8]| number.last().is_none_or(|b| b & 1 == 0);
    if is_even(e) || bits(e) < 2 || bits(e) > RSA_EXPONENT_BITS_MAX {
        return Err(KeyError::RsaExponent);
    }
    if is_even(n) {
        return Err(KeyError::Malformed("RSA modulus"));
    }
    Ok(Numbers::Rsa {
        e: e.to_vec(),
        n: n.to_vec(),
    })
}

fn ecdsa(curve: Curve, fields: &mut Fields<'_>) -> Result<Numbers, KeyError> {
    Ok(Numbers::Ecdsa {
        curve,
        point: point(curve, fields)?,
    })
}

/// The curve's name, which must be the one of the key type, and the uncompressed point.
fn point(curve: Curve, fields: &mut Fields<'_>) -> Result<Vec<u8>, KeyError> {
    if fields.string()? != curve.name().as_bytes() {
        return Err(KeyError::Malformed("curve name"));
    }
    let point = fields.string()?;
    check_point(curve, point)?;
    Ok(point.to_vec())
}

/// RFC 5656 3.1: points may be compressed; OpenSSH refuses those, and so do we.
pub(super) fn check_point(curve: Curve, point: &[u8]) -> Result<(), KeyError> {
    if point.len() != 1 + 2 * curve.field_len() || point[0] != 4 {
        return Err(KeyError::InvalidPoint);
    }
    signature::ParsedPublicKey::new(curve.verification(), point)
        .map(|_| ())
        .map_err(|_| KeyError::InvalidPoint)
}

fn application(fields: &mut Fields<'_>) -> Result<Vec<u8>, KeyError> {
    let application = fields.string()?;
    if application.len() > SK_APPLICATION_BYTES_MAX {
        return Err(KeyError::TooLong("security key application"));
    }
    Ok(application.to_vec())
}
