//! Keys: public key blobs and lines, signatures, private key files.
//!
//! Owns what a key is and how it signs and verifies. Does not own certificates (`cert`), who may
//! log in with a key (the application) nor where key files are (the application).
//! Read first: RFC 4253 6.6, RFC 5656 3.1, RFC 8332, RFC 8709, OpenSSH PROTOCOL.key and PROTOCOL.u2f.

mod error;
mod fields;
mod openssh;
mod pem;
mod private;
mod public;
mod secret;
mod signature;

pub use error::KeyError;
pub(crate) use error::shown;
pub(crate) use fields::Fields;
pub use private::PrivateKey;
pub(crate) use public::decode_base64;
pub use public::{Fingerprint, PublicKey};
pub use secret::Secret;
pub(crate) use signature::named_algorithm;
pub use signature::{SkDetails, SkPolicy};

/// Fewer bits than this are refused everywhere. NIST SP 800-131A; below OpenSSH's 1024 on purpose.
pub const RSA_BITS_MIN: usize = 2048;
/// More bits than this are refused when parsed. OpenSSH's `OPENSSL_RSA_MAX_MODULUS_BITS`.
pub const RSA_BITS_MAX: usize = 16384;
/// Up to here signatures can be made and verified; the cryptographic library's limit.
pub const RSA_SIGN_BITS_MAX: usize = 8192;
/// Longer public exponents are refused; the cryptographic library's limit, for bounded work.
pub const RSA_EXPONENT_BITS_MAX: usize = 33;
/// A public key or certificate blob is not longer than this: RSA-16384 with room for a certificate
/// of 256 principals that is signed by another such key.
pub const KEY_BLOB_BYTES_MAX: usize = 64 * 1024;
/// A signature blob is not longer than this: RSA-16384 is 2 KiB and a name.
pub const SIGNATURE_BYTES_MAX: usize = 4 * 1024;
/// A private key file is not longer than this.
pub const KEY_FILE_BYTES_MAX: usize = 256 * 1024;
/// Most bcrypt rounds that are worked off to open a private key: `ssh-keygen` writes 16 or 24, and
/// one round is about 5 ms, so that this is some seconds.
pub const KDF_ROUNDS_MAX: u32 = 2048;
/// The application string of a security key ("ssh:") is not longer than this. Ours.
pub const SK_APPLICATION_BYTES_MAX: usize = 1024;

/// What kind of key a blob holds; its name is the blob's first string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyType {
    /// `ssh-ed25519` (RFC 8709)
    Ed25519,
    /// `ecdsa-sha2-nistp256` (RFC 5656)
    EcdsaP256,
    /// `ecdsa-sha2-nistp384` (RFC 5656)
    EcdsaP384,
    /// `ecdsa-sha2-nistp521` (RFC 5656)
    EcdsaP521,
    /// `ssh-rsa` (RFC 4253), which signs as `rsa-sha2-256` and `rsa-sha2-512` only
    Rsa,
    /// `sk-ssh-ed25519@openssh.com` (PROTOCOL.u2f)
    SkEd25519,
    /// `sk-ecdsa-sha2-nistp256@openssh.com` (PROTOCOL.u2f)
    SkEcdsaP256,
}

impl KeyType {
    /// Every key type, in order of preference.
    pub const ALL: [Self; 7] = [
        Self::Ed25519,
        Self::EcdsaP256,
        Self::EcdsaP384,
        Self::EcdsaP521,
        Self::SkEd25519,
        Self::SkEcdsaP256,
        Self::Rsa,
    ];

    /// The name that begins the key's blob.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ed25519 => "ssh-ed25519",
            Self::EcdsaP256 => "ecdsa-sha2-nistp256",
            Self::EcdsaP384 => "ecdsa-sha2-nistp384",
            Self::EcdsaP521 => "ecdsa-sha2-nistp521",
            Self::Rsa => "ssh-rsa",
            Self::SkEd25519 => "sk-ssh-ed25519@openssh.com",
            Self::SkEcdsaP256 => "sk-ecdsa-sha2-nistp256@openssh.com",
        }
    }

    /// The name that begins the blob of a certificate for such a key.
    #[must_use]
    pub const fn certificate_name(self) -> &'static str {
        match self {
            Self::Ed25519 => "ssh-ed25519-cert-v01@openssh.com",
            Self::EcdsaP256 => "ecdsa-sha2-nistp256-cert-v01@openssh.com",
            Self::EcdsaP384 => "ecdsa-sha2-nistp384-cert-v01@openssh.com",
            Self::EcdsaP521 => "ecdsa-sha2-nistp521-cert-v01@openssh.com",
            Self::Rsa => "ssh-rsa-cert-v01@openssh.com",
            Self::SkEd25519 => "sk-ssh-ed25519-cert-v01@openssh.com",
            Self::SkEcdsaP256 => "sk-ecdsa-sha2-nistp256-cert-v01@openssh.com",
        }
    }

    /// The type of a plain key blob's name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name().as_bytes() == name)
    }

    /// The type of a certificate blob's name.
    #[must_use]
    pub fn from_certificate_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|t| t.certificate_name().as_bytes() == name)
    }

    /// The signature algorithms of such a key, best first.
    #[must_use]
    pub const fn algorithms(self) -> &'static [Algorithm] {
        match self {
            Self::Ed25519 => &[Algorithm::Ed25519],
            Self::EcdsaP256 => &[Algorithm::EcdsaP256],
            Self::EcdsaP384 => &[Algorithm::EcdsaP384],
            Self::EcdsaP521 => &[Algorithm::EcdsaP521],
            Self::Rsa => &[Algorithm::RsaSha512, Algorithm::RsaSha256],
            Self::SkEd25519 => &[Algorithm::SkEd25519],
            Self::SkEcdsaP256 => &[Algorithm::SkEcdsaP256],
        }
    }
}

/// A signature algorithm. RSA keys have two (RFC 8332), every other key has one of its own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// `ssh-ed25519`
    Ed25519,
    /// `ecdsa-sha2-nistp256`
    EcdsaP256,
    /// `ecdsa-sha2-nistp384`
    EcdsaP384,
    /// `ecdsa-sha2-nistp521`
    EcdsaP521,
    /// `rsa-sha2-512`
    RsaSha512,
    /// `rsa-sha2-256`
    RsaSha256,
    /// `sk-ssh-ed25519@openssh.com`
    SkEd25519,
    /// `sk-ecdsa-sha2-nistp256@openssh.com`
    SkEcdsaP256,
}

impl Algorithm {
    /// Every algorithm, in order of preference.
    pub const ALL: [Self; 8] = [
        Self::Ed25519,
        Self::EcdsaP256,
        Self::EcdsaP384,
        Self::EcdsaP521,
        Self::SkEd25519,
        Self::SkEcdsaP256,
        Self::RsaSha512,
        Self::RsaSha256,
    ];

    /// The name in signatures, in `server-sig-algs` and in requests with a plain key.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RsaSha512 => "rsa-sha2-512",
            Self::RsaSha256 => "rsa-sha2-256",
            Self::Ed25519
            | Self::EcdsaP256
            | Self::EcdsaP384
            | Self::EcdsaP521
            | Self::SkEd25519
            | Self::SkEcdsaP256 => self.key_type().name(),
        }
    }

    /// The name in requests and host key negotiation when the key comes as a certificate.
    #[must_use]
    pub const fn certificate_name(self) -> &'static str {
        match self {
            Self::RsaSha512 => "rsa-sha2-512-cert-v01@openssh.com",
            Self::RsaSha256 => "rsa-sha2-256-cert-v01@openssh.com",
            Self::Ed25519
            | Self::EcdsaP256
            | Self::EcdsaP384
            | Self::EcdsaP521
            | Self::SkEd25519
            | Self::SkEcdsaP256 => self.key_type().certificate_name(),
        }
    }

    /// The type of key that signs with this.
    #[must_use]
    pub const fn key_type(self) -> KeyType {
        match self {
            Self::Ed25519 => KeyType::Ed25519,
            Self::EcdsaP256 => KeyType::EcdsaP256,
            Self::EcdsaP384 => KeyType::EcdsaP384,
            Self::EcdsaP521 => KeyType::EcdsaP521,
            Self::RsaSha512 | Self::RsaSha256 => KeyType::Rsa,
            Self::SkEd25519 => KeyType::SkEd25519,
            Self::SkEcdsaP256 => KeyType::SkEcdsaP256,
        }
    }

    /// The algorithm of a plain name. `ssh-rsa` is SHA-1 and has none.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name().as_bytes() == name)
    }

    /// The algorithm of a certificate's name. `ssh-rsa-cert-v01@openssh.com` is SHA-1 and has none.
    #[must_use]
    pub fn from_certificate_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|a| a.certificate_name().as_bytes() == name)
    }
}

#[cfg(test)]
mod tests;
