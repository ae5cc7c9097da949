//! A private key that is ready to sign.

use super::public::{Curve, Numbers};
use super::{Algorithm, KEY_FILE_BYTES_MAX, KeyError, PublicKey, RSA_SIGN_BITS_MAX, Secret};
use super::{openssh, pem, signature};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self as lc, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaKeyPair,
};
use core::fmt;
use crypto_bigint::{BoxedUint, NonZero};
use zeroize::{Zeroize, Zeroizing};

pub(super) enum Pair {
    Ed25519 {
        seed: Zeroizing<[u8; 32]>,
        pair: Ed25519KeyPair,
    },
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// A private key. Its two halves were checked to belong together. Never shown; wiped when dropped.
pub struct PrivateKey {
    public: PublicKey,
    pub(super) pair: Pair,
}

impl PrivateKey {
    /// Reads a private key file: OpenSSH's own format, PKCS#8, or the legacy PEM of RSA and EC keys.
    ///
    /// A passphrase is used only if the file is encrypted; only OpenSSH's format may be.
    ///
    /// # Errors
    /// `PassphraseNeeded`, `WrongPassphrase`, `UnknownFormat`, `UnknownCipher`, `UnknownKdf`, `KdfRounds`,
    /// `Inconsistent`, `SeveralKeys`, `NeedsDevice`, and those of `PublicKey::from_blob`.
    pub fn from_file(file: &[u8], passphrase: Option<&Secret>) -> Result<Self, KeyError> {
        if file.len() > KEY_FILE_BYTES_MAX {
            return Err(KeyError::TooLong("private key file"));
        }
        let document = pem::Document::parse(file)?;
        if document.label == openssh::LABEL {
            openssh::decode(&document.bytes, passphrase)
        } else {
            pem::decode(&document)
        }
    }

    /// The public key of a private key file, where it can be had without a passphrase.
    ///
    /// It is what the file claims; only opening the file proves it.
    ///
    /// # Errors
    /// As `from_file`, without those of encryption.
    pub fn public_in_file(file: &[u8]) -> Result<PublicKey, KeyError> {
        if file.len() > KEY_FILE_BYTES_MAX {
            return Err(KeyError::TooLong("private key file"));
        }
        let document = pem::Document::parse(file)?;
        if document.label == openssh::LABEL {
            openssh::public_key(&document.bytes)
        } else {
            pem::decode(&document).map(|key| key.public)
        }
    }

    /// Makes an Ed25519 key from 32 secret random bytes.
    ///
    /// # Errors
    /// `Inconsistent` if the cryptographic library fails.
    pub fn from_ed25519_seed(seed: &[u8; 32]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| KeyError::Inconsistent)?;
        let mut key = [0; 32];
        key.copy_from_slice(pair.public_key().as_ref());
        Ok(Self {
            public: PublicKey {
                numbers: Numbers::Ed25519(key),
            },
            pair: Pair::Ed25519 {
                seed: Zeroizing::new(*seed),
                pair,
            },
        })
    }

    /// The public half.
    #[must_use]
    pub const fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// The file in OpenSSH's format, not encrypted. Only for Ed25519 keys.
    ///
    /// # Errors
    /// `Unsupported` for other key types.
    pub fn to_openssh(&self, comment: &str) -> Result<Secret, KeyError> {
        openssh::encode(self, comment)
    }

    /// Signs `data`; the result is a signature blob (RFC 4253 6.6).
    ///
    /// # Errors
    /// `WrongAlgorithm` if it is not one of this key's, `Unsupported` if the library fails.
    pub fn sign(&self, algorithm: Algorithm, data: &[u8]) -> Result<Vec<u8>, KeyError> {
        if algorithm.key_type() != self.public.key_type() {
            return Err(KeyError::WrongAlgorithm(algorithm.name().to_owned()));
        }
        let failed = |_| KeyError::Unsupported("signing with this key");
        // The library draws nonces and blinding from its own generator and ignores this argument.
        let ignored = SystemRandom::new();
        match &self.pair {
            Pair::Ed25519 { pair, .. } => {
                let signature = pair.try_sign(data).map_err(failed)?;
                Ok(signature::blob(algorithm, signature.as_ref()))
            }
            Pair::Ecdsa(pair) => {
                let signature = pair.sign(&ignored, data).map_err(failed)?;
                Ok(signature::ecdsa_blob(algorithm, signature.as_ref()))
            }
            Pair::Rsa(pair) => {
                let padding: &'static lc::RsaSignatureEncoding =
                    if algorithm == Algorithm::RsaSha256 {
                        &lc::RSA_PKCS1_SHA256
                    } else {
                        &lc::RSA_PKCS1_SHA512
                    };
                let mut body = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &ignored, data, &mut body)
                    .map_err(failed)?;
                Ok(signature::blob(algorithm, &body))
            }
        }
    }

    /// Ed25519 from both halves, which must agree.
    pub(super) fn ed25519(seed: &[u8; 32], public: &[u8]) -> Result<Self, KeyError> {
        let key = Self::from_ed25519_seed(seed)?;
        match &key.public.numbers {
            Numbers::Ed25519(own) if own.as_slice() == public => Ok(key),
            Numbers::Ed25519(_)
            | Numbers::Ecdsa { .. }
            | Numbers::Rsa { .. }
            | Numbers::SkEd25519 { .. }
            | Numbers::SkEcdsaP256 { .. } => Err(KeyError::Inconsistent),
        }
    }

    /// ECDSA from both halves, which must agree. `scalar` is without leading zeros.
    pub(super) fn ecdsa(curve: Curve, scalar: &[u8], point: &[u8]) -> Result<Self, KeyError> {
        let mut fixed = Zeroizing::new(vec![0; curve.field_len()]);
        let start = fixed
            .len()
            .checked_sub(scalar.len())
            .ok_or(KeyError::Malformed("ECDSA private key"))?;
        fixed[start..].copy_from_slice(scalar);
        let pair = EcdsaKeyPair::from_private_key_and_public_key(signing(curve), &fixed, point)
            .map_err(|_| KeyError::Inconsistent)?;
        Ok(Self::from_ecdsa_pair(curve, pair))
    }

    pub(super) fn from_ecdsa_pair(curve: Curve, pair: EcdsaKeyPair) -> Self {
        let point = pair.public_key().as_ref().to_vec();
        Self {
            public: PublicKey {
                numbers: Numbers::Ecdsa { curve, point },
            },
            pair: Pair::Ecdsa(pair),
        }
    }

    /// RSA from the numbers that OpenSSH stores; all without leading zeros.
    pub(super) fn rsa(numbers: &RsaNumbers<'_>) -> Result<Self, KeyError> {
        let public = super::public::rsa(numbers.e, numbers.n)?;
        if numbers.n.len() * 8 > RSA_SIGN_BITS_MAX {
            return Err(KeyError::Unsupported(
                "signing with RSA keys above 8192 bits",
            ));
        }
        let d_p = crt_exponent(numbers.d, numbers.p)?;
        let d_q = crt_exponent(numbers.d, numbers.q)?;
        let pair = RsaKeyPair::from_components(&aws_lc_rs::rsa::KeyPairComponents {
            public_key: lc::RsaPublicKeyComponents {
                n: numbers.n,
                e: numbers.e,
            },
            d: numbers.d,
            p: numbers.p,
            q: numbers.q,
            dP: &d_p,
            dQ: &d_q,
            qInv: numbers.q_inverse,
        })
        .map_err(|_| KeyError::Inconsistent)?;
        Ok(Self {
            public: PublicKey { numbers: public },
            pair: Pair::Rsa(pair),
        })
    }

    pub(super) fn from_rsa_pair(pair: RsaKeyPair) -> Result<Self, KeyError> {
        let (n, e) = pem::rsa_public_key(pair.public_key().as_ref())?;
        Ok(Self {
            public: PublicKey {
                numbers: super::public::rsa(e, n)?,
            },
            pair: Pair::Rsa(pair),
        })
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(of {:?})", self.public)
    }
}

/// What an RSA private key is made of in OpenSSH's format.
pub(super) struct RsaNumbers<'a> {
    pub(super) n: &'a [u8],
    pub(super) e: &'a [u8],
    pub(super) d: &'a [u8],
    pub(super) q_inverse: &'a [u8],
    pub(super) p: &'a [u8],
    pub(super) q: &'a [u8],
}

pub(super) const fn signing(curve: Curve) -> &'static EcdsaSigningAlgorithm {
    match curve {
        Curve::P256 => &lc::ECDSA_P256_SHA256_FIXED_SIGNING,
        Curve::P384 => &lc::ECDSA_P384_SHA384_FIXED_SIGNING,
        Curve::P521 => &lc::ECDSA_P521_SHA512_FIXED_SIGNING,
    }
}

/// `d mod (prime - 1)` in constant time for given lengths (RFC 8017 3.2: dP and dQ).
fn crt_exponent(d: &[u8], prime: &[u8]) -> Result<Zeroizing<Box<[u8]>>, KeyError> {
    let number = |bytes: &[u8]| {
        let precision = u32::try_from(bytes.len() * 8).map_err(|_| KeyError::Inconsistent)?;
        BoxedUint::from_be_slice(bytes, precision).map_err(|_| KeyError::Inconsistent)
    };
    let mut d = number(d)?;
    let mut prime = number(prime)?;
    let one = BoxedUint::one_with_precision(prime.bits_precision());
    let modulus = Option::<NonZero<BoxedUint>>::from(prime.wrapping_sub(&one).to_nz())
        .ok_or(KeyError::Inconsistent)?;
    let mut exponent = d.rem(&modulus);
    let bytes = Zeroizing::new(exponent.to_be_bytes());
    d.zeroize();
    prime.zeroize();
    exponent.zeroize();
    modulus.get().zeroize();
    Ok(bytes)
}
