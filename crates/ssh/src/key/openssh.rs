//! OpenSSH's private key format (PROTOCOL.key), encrypted or not.

use super::private::{Pair, RsaNumbers};
use super::public::Curve;
use super::{Fields, KDF_ROUNDS_MAX, KeyError, KeyType, PrivateKey, PublicKey, Secret};
use super::{pem, shown};
use crate::wire::Put;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm as BlockCipher, DecryptingKey, DecryptionContext,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use zeroize::Zeroizing;

/// The PEM label.
pub(super) const LABEL: &str = "OPENSSH PRIVATE KEY";

const MAGIC: &[u8] = b"openssh-key-v1\0";
const WHAT: &str = "OpenSSH private key";
/// PROTOCOL.key: without a cipher, padding goes to 8 bytes.
const BLOCK_BYTES_NONE: usize = 8;
/// A bcrypt salt is not longer than this; `ssh-keygen` writes 16.
const SALT_BYTES_MAX: usize = 256;

/// The outer structure, before anything is decrypted.
struct Envelope<'a> {
    cipher: &'a [u8],
    kdf: &'a [u8],
    kdf_options: &'a [u8],
    public: PublicKey,
    secret: &'a [u8],
    /// An AEAD's tag stands behind the last string.
    tag: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, KeyError> {
        let mut fields = Fields::new(bytes, WHAT);
        if fields.take(MAGIC.len())? != MAGIC {
            return Err(KeyError::Malformed(WHAT));
        }
        let cipher = fields.string()?;
        let kdf = fields.string()?;
        let kdf_options = fields.string()?;
        match fields.u32()? {
            1 => {}
            count => return Err(KeyError::SeveralKeys(count)),
        }
        let public = PublicKey::from_blob(fields.string()?)?;
        let secret = fields.string()?;
        Ok(Self {
            cipher,
            kdf,
            kdf_options,
            public,
            secret,
            tag: fields.rest(),
        })
    }
}

/// The public key, which is not encrypted.
pub(super) fn public_key(bytes: &[u8]) -> Result<PublicKey, KeyError> {
    Envelope::parse(bytes).map(|envelope| envelope.public)
}

/// The private key.
pub(super) fn decode(bytes: &[u8], passphrase: Option<&Secret>) -> Result<PrivateKey, KeyError> {
    let envelope = Envelope::parse(bytes)?;
    if envelope.cipher == b"none" {
        if envelope.kdf != b"none" || !envelope.kdf_options.is_empty() || !envelope.tag.is_empty() {
            return Err(KeyError::Malformed(WHAT));
        }
        return decode_secret(envelope.secret, &envelope.public, BLOCK_BYTES_NONE)?
            .ok_or(KeyError::Malformed(WHAT));
    }
    let cipher = Cipher::from_name(envelope.cipher)
        .ok_or_else(|| KeyError::UnknownCipher(shown(envelope.cipher)))?;
    if envelope.kdf != b"bcrypt" {
        return Err(KeyError::UnknownKdf(shown(envelope.kdf)));
    }
    let passphrase = passphrase.ok_or(KeyError::PassphraseNeeded)?;
    let key = derive(
        envelope.kdf_options,
        passphrase,
        cipher.key_len() + cipher.iv_len(),
    )?;
    let plain = cipher.open(&key, envelope.secret, envelope.tag)?;
    decode_secret(&plain, &envelope.public, cipher.block_len())?.ok_or(KeyError::WrongPassphrase)
}

/// `None` if the two check numbers differ, that is, if it was decrypted with a wrong key.
fn decode_secret(
    plain: &[u8],
    public: &PublicKey,
    block_len: usize,
) -> Result<Option<PrivateKey>, KeyError> {
    let mut fields = Fields::new(plain, WHAT);
    if !plain.len().is_multiple_of(block_len) {
        return Err(KeyError::Malformed(WHAT));
    }
    if fields.u32()? != fields.u32()? {
        return Ok(None);
    }
    let name = fields.string()?;
    let kind = KeyType::from_name(name).ok_or_else(|| KeyError::UnknownType(shown(name)))?;
    let key = decode_key(kind, &mut fields)?;
    let _comment = fields.string()?;
    // PROTOCOL.key: the padding counts 1, 2, 3, ... and is shorter than a block.
    let padding = fields.rest();
    let counts = padding.iter().zip(1_u8..=255).all(|(byte, n)| *byte == n);
    if padding.len() >= block_len || !counts {
        return Err(KeyError::Malformed(WHAT));
    }
    if key.public_key() == public {
        Ok(Some(key))
    } else {
        Err(KeyError::Inconsistent)
    }
}

fn decode_key(kind: KeyType, fields: &mut Fields<'_>) -> Result<PrivateKey, KeyError> {
    match kind {
        KeyType::Ed25519 => {
            let public = fields.string()?;
            let (seed, again) = fields
                .string()?
                .split_first_chunk::<32>()
                .ok_or(KeyError::Malformed(WHAT))?;
            if public != again {
                return Err(KeyError::Inconsistent);
            }
            PrivateKey::ed25519(seed, public)
        }
        KeyType::EcdsaP256 => decode_ecdsa(Curve::P256, fields),
        KeyType::EcdsaP384 => decode_ecdsa(Curve::P384, fields),
        KeyType::EcdsaP521 => decode_ecdsa(Curve::P521, fields),
        KeyType::Rsa => PrivateKey::rsa(&RsaNumbers {
            n: fields.positive()?,
            e: fields.positive()?,
            d: fields.positive()?,
            q_inverse: fields.positive()?,
            p: fields.positive()?,
            q: fields.positive()?,
        }),
        KeyType::SkEd25519 | KeyType::SkEcdsaP256 => Err(KeyError::NeedsDevice),
    }
}

fn decode_ecdsa(curve: Curve, fields: &mut Fields<'_>) -> Result<PrivateKey, KeyError> {
    if fields.string()? != curve.name().as_bytes() {
        return Err(KeyError::Malformed("curve name"));
    }
    let point = fields.string()?;
    super::public::check_point(curve, point)?;
    PrivateKey::ecdsa(curve, fields.positive()?, point)
}

/// Key and IV from the passphrase.
fn derive(options: &[u8], passphrase: &Secret, len: usize) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let mut fields = Fields::new(options, "key derivation options");
    let salt = fields.string()?;
    let rounds = fields.u32()?;
    fields.finish()?;
    if rounds == 0 || rounds > KDF_ROUNDS_MAX {
        return Err(KeyError::KdfRounds(rounds));
    }
    if salt.is_empty() || salt.len() > SALT_BYTES_MAX {
        return Err(KeyError::Malformed("key derivation options"));
    }
    // The derivation has no value for an empty passphrase, so no key was ever encrypted with one.
    if passphrase.is_empty() {
        return Err(KeyError::WrongPassphrase);
    }
    let mut out = Zeroizing::new(vec![0; len]);
    bcrypt_pbkdf::bcrypt_pbkdf(passphrase.expose(), salt, rounds, &mut out)
        .map_err(|_| KeyError::Malformed("key derivation options"))?;
    Ok(out)
}

#[derive(Clone, Copy)]
enum Cipher {
    Ctr(&'static BlockCipher, usize),
    Cbc(&'static BlockCipher, usize),
    Gcm(&'static aws_lc_rs::aead::Algorithm),
}

impl Cipher {
    fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"aes128-ctr" => Self::Ctr(&AES_128, 16),
            b"aes192-ctr" => Self::Ctr(&AES_192, 24),
            b"aes256-ctr" => Self::Ctr(&AES_256, 32),
            // What ssh-keygen wrote before aes256-ctr became its default (OpenSSH 6.5 to 7.5).
            b"aes256-cbc" => Self::Cbc(&AES_256, 32),
            b"aes128-gcm@openssh.com" => Self::Gcm(&AES_128_GCM),
            b"aes256-gcm@openssh.com" => Self::Gcm(&AES_256_GCM),
            _ => return None,
        })
    }

    fn key_len(self) -> usize {
        match self {
            Self::Ctr(_, len) | Self::Cbc(_, len) => len,
            Self::Gcm(algorithm) => algorithm.key_len(),
        }
    }

    const fn iv_len(self) -> usize {
        match self {
            Self::Ctr(..) | Self::Cbc(..) => 16,
            Self::Gcm(_) => 12,
        }
    }

    const fn block_len(self) -> usize {
        match self {
            Self::Ctr(..) | Self::Cbc(..) | Self::Gcm(_) => 16,
        }
    }

    fn open(self, key: &[u8], secret: &[u8], tag: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let malformed = |_| KeyError::Malformed(WHAT);
        let (key, iv) = key.split_at(self.key_len());
        let mut plain = Zeroizing::new(secret.to_vec());
        if plain.is_empty() || !plain.len().is_multiple_of(self.block_len()) {
            return Err(KeyError::Malformed(WHAT));
        }
        let is_aead = matches!(self, Self::Gcm(_));
        if is_aead == tag.is_empty() {
            return Err(KeyError::Malformed(WHAT));
        }
        match self {
            Self::Ctr(algorithm, _) | Self::Cbc(algorithm, _) => {
                let key = UnboundCipherKey::new(algorithm, key).map_err(malformed)?;
                let key = if matches!(self, Self::Ctr(..)) {
                    DecryptingKey::ctr(key)
                } else {
                    DecryptingKey::cbc(key)
                }
                .map_err(malformed)?;
                let iv = FixedLength::<16>::try_from(iv).map_err(malformed)?;
                key.decrypt(&mut plain, DecryptionContext::Iv128(iv))
                    .map_err(malformed)?;
            }
            Self::Gcm(algorithm) => {
                let key = LessSafeKey::new(UnboundKey::new(algorithm, key).map_err(malformed)?);
                let nonce = Nonce::try_assume_unique_for_key(iv).map_err(malformed)?;
                plain.extend_from_slice(tag);
                let len = key
                    .open_in_place(nonce, Aad::empty(), &mut plain)
                    .map_err(|_| KeyError::WrongPassphrase)?
                    .len();
                plain.truncate(len);
            }
        }
        Ok(plain)
    }
}

/// The whole file, not encrypted.
pub(super) fn encode(key: &PrivateKey, comment: &str) -> Result<Secret, KeyError> {
    let Pair::Ed25519 { seed, .. } = &key.pair else {
        return Err(KeyError::Unsupported(
            "writing private keys other than ssh-ed25519",
        ));
    };
    let blob = key.public_key().to_blob();
    let public = &blob[blob.len() - 32..];
    // One allocation: growing would leave copies of the seed behind.
    let mut secret = Zeroizing::new(Vec::with_capacity(256 + comment.len()));
    // PROTOCOL.key: two equal numbers show a right passphrase; there is none here, so any will do.
    secret.extend_from_slice(&[0; 8]);
    secret.put_string(KeyType::Ed25519.name().as_bytes());
    secret.put_string(public);
    let mut both = Zeroizing::new([0; 64]);
    both[..32].copy_from_slice(seed.as_slice());
    both[32..].copy_from_slice(public);
    secret.put_string(both.as_slice());
    secret.put_string(comment.as_bytes());
    let mut count = 0_u8;
    while !secret.len().is_multiple_of(BLOCK_BYTES_NONE) {
        count += 1;
        secret.push(count);
    }

    let mut out = Zeroizing::new(Vec::with_capacity(512 + comment.len()));
    out.extend_from_slice(MAGIC);
    out.put_string(b"none");
    out.put_string(b"none");
    out.put_string(b"");
    out.extend_from_slice(&1_u32.to_be_bytes());
    out.put_string(&blob);
    out.put_string(&secret);
    Ok(pem::encode(LABEL, &out))
}
