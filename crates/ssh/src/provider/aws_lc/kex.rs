//! Key agreement: elliptic curves, hybrids with a KEM, finite fields.
//!
//! Read first: RFC 5656 4, RFC 8731, draft-ietf-sshm-mlkem-hybrid-kex,
//! draft-ietf-sshm-ntruprime-ssh.

use super::dh;
use crate::kex::{GROUP14, GROUP16, GROUP18, Method};
use crate::provider::{ClientKex, Group, KexError, SecureRandom, SharedSecret};
use crate::wire::Put;
use aws_lc_rs::agreement::{
    self, ECDH_P256, ECDH_P384, ECDH_P521, PrivateKey, UnparsedPublicKey, X25519,
};
use aws_lc_rs::{digest, kem};
use sntrup::{Sntrup761, sntrup761};
use std::convert::Infallible;
use zeroize::Zeroizing;

const X25519_LEN: usize = 32;
const MLKEM768_PUBLIC_LEN: usize = 1184;
const MLKEM768_CIPHERTEXT_LEN: usize = 1088;
const SNTRUP761_PUBLIC_LEN: usize = 1158;
const SNTRUP761_CIPHERTEXT_LEN: usize = 1039;

/// How a method agrees on its secret.
enum Agreement<'a> {
    X25519,
    Nist(&'static agreement::Algorithm),
    Mlkem,
    Sntrup,
    Dh(&'a Group),
}

fn agreement<'a>(method: Method, group: Option<&'a Group>) -> Result<Agreement<'a>, KexError> {
    Ok(match method {
        Method::Mlkem768X25519Sha256 => Agreement::Mlkem,
        Method::Sntrup761X25519Sha512 | Method::Sntrup761X25519Sha512Openssh => Agreement::Sntrup,
        Method::Curve25519Sha256 | Method::Curve25519Sha256Libssh => Agreement::X25519,
        Method::EcdhNistp256 => Agreement::Nist(&ECDH_P256),
        Method::EcdhNistp384 => Agreement::Nist(&ECDH_P384),
        Method::EcdhNistp521 => Agreement::Nist(&ECDH_P521),
        Method::DhGroup14Sha256 => Agreement::Dh(&GROUP14),
        Method::DhGroup16Sha512 => Agreement::Dh(&GROUP16),
        Method::DhGroup18Sha512 => Agreement::Dh(&GROUP18),
        Method::DhGroupExchangeSha256 => Agreement::Dh(group.ok_or(KexError::Group)?),
    })
}

pub(super) fn client(
    method: Method,
    group: Option<&Group>,
    random: &mut dyn SecureRandom,
) -> Result<Box<dyn ClientKex>, KexError> {
    Ok(match agreement(method, group)? {
        Agreement::X25519 => Box::new(Curve::generate(&X25519, random)?),
        Agreement::Nist(algorithm) => Box::new(Curve::generate(algorithm, random)?),
        Agreement::Mlkem => Box::new(Hybrid::mlkem(random)?),
        Agreement::Sntrup => Box::new(Hybrid::sntrup(random)?),
        Agreement::Dh(group) => Box::new(dh::Secret::generate(group, random)?),
    })
}

pub(super) fn server(
    method: Method,
    group: Option<&Group>,
    remote_public: &[u8],
    random: &mut dyn SecureRandom,
) -> Result<(Vec<u8>, SharedSecret), KexError> {
    match agreement(method, group)? {
        Agreement::X25519 => curve_server(&X25519, remote_public, random),
        Agreement::Nist(algorithm) => curve_server(algorithm, remote_public, random),
        Agreement::Mlkem => mlkem_server(remote_public, random),
        Agreement::Sntrup => sntrup_server(remote_public, random),
        Agreement::Dh(group) => {
            let secret = dh::Secret::generate(group, random)?;
            let shared = secret.agree(remote_public)?;
            Ok((secret.public().to_vec(), mpint_secret(&shared)))
        }
    }
}

/// K as an mpint. The buffer is sized up front so that no copy stays behind in freed memory.
fn mpint_secret(magnitude: &[u8]) -> SharedSecret {
    let mut encoded = Zeroizing::new(Vec::with_capacity(magnitude.len() + 5));
    encoded.put_mpint(magnitude);
    SharedSecret(encoded)
}

/// The hybrids: K is a hash of both secrets, as a string.
fn hybrid_secret(algorithm: &'static digest::Algorithm, pq: &[u8], classic: &[u8]) -> SharedSecret {
    let mut context = digest::Context::new(algorithm);
    context.update(pq);
    context.update(classic);
    let mut encoded = Zeroizing::new(Vec::with_capacity(4 + digest::MAX_OUTPUT_LEN));
    encoded.put_string(context.finish().as_ref());
    SharedSecret(encoded)
}

impl ClientKex for dh::Secret {
    fn public(&self) -> &[u8] {
        Self::public(self)
    }

    fn finish(self: Box<Self>, remote_public: &[u8]) -> Result<SharedSecret, KexError> {
        Ok(mpint_secret(&self.agree(remote_public)?))
    }
}

/// A secret on a curve.
struct Curve {
    algorithm: &'static agreement::Algorithm,
    private: PrivateKey,
    public: Vec<u8>,
}

impl Curve {
    fn generate(
        algorithm: &'static agreement::Algorithm,
        random: &mut dyn SecureRandom,
    ) -> Result<Self, KexError> {
        let private = private_key(algorithm, random)?;
        let public = private
            .compute_public_key()
            .map_err(|_| KexError::Internal)?
            .as_ref()
            .to_vec();
        Ok(Self {
            algorithm,
            private,
            public,
        })
    }

    /// The shared coordinate. An all-zero X25519 result is refused by the library (RFC 8731 3).
    fn agree(&self, remote_public: &[u8]) -> Result<Zeroizing<Vec<u8>>, KexError> {
        // RFC 5656 4: points may be compressed; OpenSSH refuses those, and so do we.
        let is_uncompressed = self.algorithm == &X25519 || remote_public.first() == Some(&4);
        if remote_public.len() != self.public.len() || !is_uncompressed {
            return Err(KexError::PublicValue);
        }
        agreement::agree(
            &self.private,
            UnparsedPublicKey::new(self.algorithm, remote_public),
            KexError::PublicValue,
            |shared| Ok(Zeroizing::new(shared.to_vec())),
        )
    }
}

/// Drawn from the driver's randomness. The NIST curves take a scalar under the group's order: a
/// draw above it is drawn again.
fn private_key(
    algorithm: &'static agreement::Algorithm,
    random: &mut dyn SecureRandom,
) -> Result<PrivateKey, KexError> {
    /// For P-256 one draw in 2^32 fails, for the others fewer.
    const DRAWS_MAX: usize = 8;
    let (len, top_mask) = if algorithm == &ECDH_P384 {
        (48, 0xff)
    } else if algorithm == &ECDH_P521 {
        (66, 0x01)
    } else {
        (32, 0xff)
    };
    let mut bytes = Zeroizing::new([0; 66]);
    for _ in 0..DRAWS_MAX {
        random.fill(&mut bytes[..len]);
        bytes[0] &= top_mask;
        if let Ok(key) = PrivateKey::from_private_key(algorithm, &bytes[..len]) {
            return Ok(key);
        }
    }
    Err(KexError::Internal)
}

impl ClientKex for Curve {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn finish(self: Box<Self>, remote_public: &[u8]) -> Result<SharedSecret, KexError> {
        Ok(mpint_secret(&self.agree(remote_public)?))
    }
}

fn curve_server(
    algorithm: &'static agreement::Algorithm,
    remote_public: &[u8],
    random: &mut dyn SecureRandom,
) -> Result<(Vec<u8>, SharedSecret), KexError> {
    let curve = Curve::generate(algorithm, random)?;
    let shared = curve.agree(remote_public)?;
    Ok((curve.public, mpint_secret(&shared)))
}

/// The KEM half of a hybrid client.
enum Kem {
    Mlkem(kem::DecapsulationKey),
    Sntrup(Box<sntrup761::DecapsulationKey>),
}

/// KEM public key and X25519 public key, one behind the other.
struct Hybrid {
    kem: Kem,
    curve: Curve,
    public: Vec<u8>,
}

impl Hybrid {
    fn mlkem(random: &mut dyn SecureRandom) -> Result<Self, KexError> {
        let key =
            kem::DecapsulationKey::generate(&kem::ML_KEM_768).map_err(|_| KexError::Internal)?;
        let public = key
            .encapsulation_key()
            .and_then(|public| public.key_bytes())
            .map_err(|_| KexError::Internal)?;
        Self::new(Kem::Mlkem(key), public.as_ref(), random)
    }

    fn sntrup(random: &mut dyn SecureRandom) -> Result<Self, KexError> {
        let (public, key) = Sntrup761::generate_key(&mut Random(random));
        Self::new(Kem::Sntrup(Box::new(key)), public.as_ref(), random)
    }

    fn new(kem: Kem, kem_public: &[u8], random: &mut dyn SecureRandom) -> Result<Self, KexError> {
        let curve = Curve::generate(&X25519, random)?;
        let public = [kem_public, &curve.public].concat();
        Ok(Self { kem, curve, public })
    }
}

impl ClientKex for Hybrid {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn finish(self: Box<Self>, remote_public: &[u8]) -> Result<SharedSecret, KexError> {
        let ciphertext_len = match &self.kem {
            Kem::Mlkem(_) => MLKEM768_CIPHERTEXT_LEN,
            Kem::Sntrup(_) => SNTRUP761_CIPHERTEXT_LEN,
        };
        let (ciphertext, point) = split(remote_public, ciphertext_len)?;
        let classic = self.curve.agree(point)?;
        match &self.kem {
            Kem::Mlkem(key) => {
                let pq = key
                    .decapsulate(ciphertext.into())
                    .map_err(|_| KexError::PublicValue)?;
                Ok(hybrid_secret(&digest::SHA256, pq.as_ref(), &classic))
            }
            Kem::Sntrup(key) => {
                let ciphertext = sntrup761::Ciphertext::try_from(ciphertext)
                    .map_err(|_| KexError::PublicValue)?;
                let pq = key.decapsulate(&ciphertext);
                Ok(hybrid_secret(&digest::SHA512, pq.as_ref(), &classic))
            }
        }
    }
}

/// The KEM's part and the X25519 part, both of their exact lengths.
fn split(public: &[u8], kem_len: usize) -> Result<(&[u8], &[u8]), KexError> {
    if public.len() != kem_len + X25519_LEN {
        return Err(KexError::PublicValue);
    }
    Ok(public.split_at(kem_len))
}

fn mlkem_server(
    remote_public: &[u8],
    random: &mut dyn SecureRandom,
) -> Result<(Vec<u8>, SharedSecret), KexError> {
    let (kem_public, point) = split(remote_public, MLKEM768_PUBLIC_LEN)?;
    let curve = Curve::generate(&X25519, random)?;
    let classic = curve.agree(point)?;
    let key = kem::EncapsulationKey::new(&kem::ML_KEM_768, kem_public)
        .map_err(|_| KexError::PublicValue)?;
    let (ciphertext, pq) = key.encapsulate().map_err(|_| KexError::PublicValue)?;
    let public = [ciphertext.as_ref(), &curve.public].concat();
    Ok((
        public,
        hybrid_secret(&digest::SHA256, pq.as_ref(), &classic),
    ))
}

fn sntrup_server(
    remote_public: &[u8],
    random: &mut dyn SecureRandom,
) -> Result<(Vec<u8>, SharedSecret), KexError> {
    let (kem_public, point) = split(remote_public, SNTRUP761_PUBLIC_LEN)?;
    let curve = Curve::generate(&X25519, random)?;
    let classic = curve.agree(point)?;
    let key =
        sntrup761::EncapsulationKey::try_from(kem_public).map_err(|_| KexError::PublicValue)?;
    let (ciphertext, pq) = key.encapsulate(&mut Random(random));
    let public = [ciphertext.as_ref(), &curve.public].concat();
    Ok((
        public,
        hybrid_secret(&digest::SHA512, pq.as_ref(), &classic),
    ))
}

/// The driver's randomness in the shape that sntrup asks for.
struct Random<'a>(&'a mut dyn SecureRandom);

impl rand_core::TryRng for Random<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(out);
        Ok(())
    }
}

impl rand_core::TryCryptoRng for Random<'_> {}
