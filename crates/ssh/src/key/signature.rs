//! Signature blobs: how each algorithm lays its numbers out, and verification.
//!
//! RFC 4253 6.6, RFC 5656 3.1.2, RFC 8332 3, RFC 8709 6, PROTOCOL.u2f "SSH U2F signatures".

use super::public::{Curve, Numbers};
use super::{
    Algorithm, Fields, KeyError, PublicKey, RSA_SIGN_BITS_MAX, SIGNATURE_BYTES_MAX, shown,
};
use crate::wire::Put;
use aws_lc_rs::digest;
use aws_lc_rs::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

const SK_FLAG_USER_PRESENT: u8 = 0x01;
const SK_FLAG_USER_VERIFIED: u8 = 0x04;

/// What a security key says beside the signature; the signature covers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkDetails {
    /// Somebody touched the device.
    pub user_present: bool,
    /// The device verified its user (PIN, fingerprint).
    pub user_verified: bool,
    /// Counts the device's signatures; 0 always on some.
    pub counter: u32,
}

/// What a security key's signature must show. The default asks for a touch, as OpenSSH does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkPolicy {
    /// A touch is required; off with `no-touch-required`.
    pub presence_required: bool,
    /// User verification is required; on with `verify-required`.
    pub verification_required: bool,
}

impl Default for SkPolicy {
    fn default() -> Self {
        Self {
            presence_required: true,
            verification_required: false,
        }
    }
}

impl SkPolicy {
    /// Asks for nothing: only the signature counts.
    pub const ANY: Self = Self {
        presence_required: false,
        verification_required: false,
    };

    /// Holds the policy against what the key said; keys that are not security keys pass.
    ///
    /// # Errors
    /// `TouchMissing`, `UserVerificationMissing`.
    pub fn check(self, details: Option<SkDetails>) -> Result<(), KeyError> {
        let Some(details) = details else {
            return Ok(());
        };
        if self.presence_required && !details.user_present {
            return Err(KeyError::TouchMissing);
        }
        if self.verification_required && !details.user_verified {
            return Err(KeyError::UserVerificationMissing);
        }
        Ok(())
    }
}

impl PublicKey {
    /// Verifies a signature blob over `data`, made with `algorithm`. Security keys must have been touched.
    ///
    /// # Errors
    /// `Malformed`, `TrailingBytes`, `WrongAlgorithm`, `BadSignature`, `TouchMissing`,
    /// `Unsupported` (RSA above `RSA_SIGN_BITS_MAX`).
    pub fn verify(
        &self,
        algorithm: Algorithm,
        data: &[u8],
        signature_blob: &[u8],
    ) -> Result<(), KeyError> {
        let details = self.verify_any(algorithm, data, signature_blob)?;
        SkPolicy::default().check(details)
    }

    /// Verifies a signature blob over `data` and returns what a security key said beside it,
    /// which the caller must hold against its `SkPolicy`.
    ///
    /// # Errors
    /// As `verify`, without `TouchMissing`.
    pub fn verify_any(
        &self,
        algorithm: Algorithm,
        data: &[u8],
        signature_blob: &[u8],
    ) -> Result<Option<SkDetails>, KeyError> {
        if signature_blob.len() > SIGNATURE_BYTES_MAX {
            return Err(KeyError::TooLong("signature"));
        }
        let mut fields = Fields::new(signature_blob, "signature");
        let name = fields.string()?;
        if name != algorithm.name().as_bytes() || algorithm.key_type() != self.key_type() {
            return Err(KeyError::WrongAlgorithm(shown(name)));
        }
        let body = fields.string()?;
        let details = match self.numbers {
            Numbers::SkEd25519 { .. } | Numbers::SkEcdsaP256 { .. } => Some(fields.array()?),
            Numbers::Ed25519(_) | Numbers::Ecdsa { .. } | Numbers::Rsa { .. } => None,
        };
        fields.finish()?;
        self.verify_body(algorithm, data, body, details)?;
        Ok(details.map(|[flags, counter @ ..]| SkDetails {
            user_present: flags & SK_FLAG_USER_PRESENT != 0,
            user_verified: flags & SK_FLAG_USER_VERIFIED != 0,
            counter: u32::from_be_bytes(counter),
        }))
    }

    /// `sk_details` are the flags byte and the counter of a security key's signature.
    fn verify_body(
        &self,
        algorithm: Algorithm,
        data: &[u8],
        body: &[u8],
        sk_details: Option<[u8; 5]>,
    ) -> Result<(), KeyError> {
        let sk_details = sk_details.unwrap_or_default();
        match &self.numbers {
            Numbers::Ed25519(key) => check(&signature::ED25519, key, data, body),
            Numbers::Ecdsa { curve, point } => {
                check(curve.verification(), point, data, &fixed(*curve, body)?)
            }
            Numbers::Rsa { e, n } => verify_rsa(rsa_parameters(algorithm), e, n, data, body),
            Numbers::SkEd25519 { key, application } => {
                let signed = sk_signed(application, sk_details, data);
                check(&signature::ED25519, key, &signed, body)
            }
            Numbers::SkEcdsaP256 { point, application } => {
                let signed = sk_signed(application, sk_details, data);
                let body = fixed(Curve::P256, body)?;
                check(Curve::P256.verification(), point, &signed, &body)
            }
        }
    }
}

/// The algorithm a signature blob says it was made with, if it is one that is implemented.
pub(crate) fn named_algorithm(signature_blob: &[u8]) -> Result<Algorithm, KeyError> {
    let name = Fields::new(signature_blob, "signature").string()?;
    Algorithm::from_name(name).ok_or_else(|| KeyError::WrongAlgorithm(shown(name)))
}

fn check(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    data: &[u8],
    signature: &[u8],
) -> Result<(), KeyError> {
    UnparsedPublicKey::new(algorithm, key)
        .verify(data, signature)
        .map_err(|_| KeyError::BadSignature)
}

fn rsa_parameters(algorithm: Algorithm) -> &'static RsaParameters {
    if algorithm == Algorithm::RsaSha256 {
        &signature::RSA_PKCS1_2048_8192_SHA256
    } else {
        &signature::RSA_PKCS1_2048_8192_SHA512
    }
}

fn verify_rsa(
    parameters: &RsaParameters,
    e: &[u8],
    n: &[u8],
    data: &[u8],
    body: &[u8],
) -> Result<(), KeyError> {
    if n.len() * 8 > RSA_SIGN_BITS_MAX {
        return Err(KeyError::Unsupported(
            "verification with RSA keys above 8192 bits",
        ));
    }
    if body.is_empty() || body.len() > n.len() {
        return Err(KeyError::Malformed("RSA signature"));
    }
    // RFC 8332 3: the signature is an octet string of the modulus' length; some peers strip leading
    // zeros, and OpenSSH takes those too.
    let mut padded = vec![0; n.len()];
    padded[n.len() - body.len()..].copy_from_slice(body);
    RsaPublicKeyComponents { n, e }
        .verify(parameters, data, &padded)
        .map_err(|_| KeyError::BadSignature)
}

/// RFC 5656 3.1.2: two mpints, here laid out at the curve's fixed width.
fn fixed(curve: Curve, body: &[u8]) -> Result<Vec<u8>, KeyError> {
    let width = curve.field_len();
    let mut fields = Fields::new(body, "ECDSA signature");
    let mut out = vec![0; 2 * width];
    for half in out.chunks_exact_mut(width) {
        let number = fields.positive()?;
        let start = width
            .checked_sub(number.len())
            .ok_or(KeyError::Malformed("ECDSA signature"))?;
        half[start..].copy_from_slice(number);
    }
    fields.finish()?;
    Ok(out)
}

/// PROTOCOL.u2f: SHA256(application) || flags || counter || SHA256(data) is what the device signs.
fn sk_signed(application: &[u8], sk_details: [u8; 5], data: &[u8]) -> Vec<u8> {
    let mut signed = Vec::with_capacity(69);
    signed.extend_from_slice(digest::digest(&digest::SHA256, application).as_ref());
    signed.extend_from_slice(&sk_details);
    signed.extend_from_slice(digest::digest(&digest::SHA256, data).as_ref());
    signed
}

/// The signature blob of a number string.
pub(super) fn blob(algorithm: Algorithm, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 32);
    out.put_string(algorithm.name().as_bytes());
    out.put_string(body);
    out
}

/// The signature blob of an ECDSA signature at fixed width.
pub(super) fn ecdsa_blob(algorithm: Algorithm, fixed: &[u8]) -> Vec<u8> {
    let (r, s) = fixed.split_at(fixed.len() / 2);
    let mut body = Vec::with_capacity(fixed.len() + 10);
    body.put_mpint(r);
    body.put_mpint(s);
    blob(algorithm, &body)
}
