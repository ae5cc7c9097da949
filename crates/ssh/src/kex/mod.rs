//! Key exchange: methods by name, the negotiation of algorithms, exchange hash and key
//! derivation. The mathematics is the provider's, the order of messages the transport's.
//!
//! Read first: RFC 4253 sections 7 and 8, RFC 4419, RFC 5656 section 4, RFC 8268, RFC 8731.

mod client;
mod groups;
mod hash;
mod init;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use client::{AwaitGroup, ClientStep, Reply};
use groups::server_group;
pub(crate) use groups::{GROUP14, GROUP16, GROUP18};
pub(crate) use hash::{Agreed, Direction, Transcript, derive};
pub use init::Proposal;
pub(crate) use init::{
    EXT_INFO_CLIENT, EXT_INFO_SERVER, KexInit, Offer, STRICT_CLIENT, STRICT_SERVER,
};
pub(crate) use server::{AwaitGroupRequest, ServerStep, Signer};

use crate::key;

/// A key exchange method that can be negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `mlkem768x25519-sha256`.
    Mlkem768X25519Sha256,
    /// `sntrup761x25519-sha512`.
    Sntrup761X25519Sha512,
    /// `sntrup761x25519-sha512@openssh.com`: the same under its first name.
    Sntrup761X25519Sha512Openssh,
    /// `curve25519-sha256`.
    Curve25519Sha256,
    /// `curve25519-sha256@libssh.org`: the same under its first name.
    Curve25519Sha256Libssh,
    /// `ecdh-sha2-nistp256`.
    EcdhNistp256,
    /// `ecdh-sha2-nistp384`.
    EcdhNistp384,
    /// `ecdh-sha2-nistp521`.
    EcdhNistp521,
    /// `diffie-hellman-group-exchange-sha256`.
    DhGroupExchangeSha256,
    /// `diffie-hellman-group14-sha256`.
    DhGroup14Sha256,
    /// `diffie-hellman-group16-sha512`.
    DhGroup16Sha512,
    /// `diffie-hellman-group18-sha512`.
    DhGroup18Sha512,
}

/// The hash of a method: of the exchange and of key derivation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Method {
    /// Every method, in the order that is offered by default: safe against a quantum computer
    /// first, then by cost.
    pub const ALL: &[Self] = &[
        Self::Mlkem768X25519Sha256,
        Self::Sntrup761X25519Sha512,
        Self::Sntrup761X25519Sha512Openssh,
        Self::Curve25519Sha256,
        Self::Curve25519Sha256Libssh,
        Self::EcdhNistp256,
        Self::EcdhNistp384,
        Self::EcdhNistp521,
        Self::DhGroupExchangeSha256,
        Self::DhGroup16Sha512,
        Self::DhGroup18Sha512,
        Self::DhGroup14Sha256,
    ];

    /// Its name in KEXINIT.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mlkem768X25519Sha256 => "mlkem768x25519-sha256",
            Self::Sntrup761X25519Sha512 => "sntrup761x25519-sha512",
            Self::Sntrup761X25519Sha512Openssh => "sntrup761x25519-sha512@openssh.com",
            Self::Curve25519Sha256 => "curve25519-sha256",
            Self::Curve25519Sha256Libssh => "curve25519-sha256@libssh.org",
            Self::EcdhNistp256 => "ecdh-sha2-nistp256",
            Self::EcdhNistp384 => "ecdh-sha2-nistp384",
            Self::EcdhNistp521 => "ecdh-sha2-nistp521",
            Self::DhGroupExchangeSha256 => "diffie-hellman-group-exchange-sha256",
            Self::DhGroup14Sha256 => "diffie-hellman-group14-sha256",
            Self::DhGroup16Sha512 => "diffie-hellman-group16-sha512",
            Self::DhGroup18Sha512 => "diffie-hellman-group18-sha512",
        }
    }

    /// The method of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|m| m.name() == name)
    }

    /// Its hash.
    #[must_use]
    pub const fn hash(self) -> HashAlgorithm {
        match self {
            Self::Mlkem768X25519Sha256
            | Self::Curve25519Sha256
            | Self::Curve25519Sha256Libssh
            | Self::EcdhNistp256
            | Self::DhGroupExchangeSha256
            | Self::DhGroup14Sha256 => HashAlgorithm::Sha256,
            Self::EcdhNistp384 => HashAlgorithm::Sha384,
            Self::Sntrup761X25519Sha512
            | Self::Sntrup761X25519Sha512Openssh
            | Self::EcdhNistp521
            | Self::DhGroup16Sha512
            | Self::DhGroup18Sha512 => HashAlgorithm::Sha512,
        }
    }

    /// Whether the public values travel as mpint (finite-field Diffie-Hellman) or as strings.
    #[must_use]
    pub const fn public_is_mpint(self) -> bool {
        match self {
            Self::DhGroupExchangeSha256
            | Self::DhGroup14Sha256
            | Self::DhGroup16Sha512
            | Self::DhGroup18Sha512 => true,
            Self::Mlkem768X25519Sha256
            | Self::Sntrup761X25519Sha512
            | Self::Sntrup761X25519Sha512Openssh
            | Self::Curve25519Sha256
            | Self::Curve25519Sha256Libssh
            | Self::EcdhNistp256
            | Self::EcdhNistp384
            | Self::EcdhNistp521 => false,
        }
    }
}

/// A host key algorithm that can be negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostKeyAlgorithm {
    /// What the exchange hash is signed with.
    pub signature: key::Algorithm,
    /// Whether the key comes as an OpenSSH certificate.
    pub certificate: bool,
}

impl HostKeyAlgorithm {
    /// With a plain public key.
    #[must_use]
    pub const fn plain(signature: key::Algorithm) -> Self {
        Self {
            signature,
            certificate: false,
        }
    }

    /// With a certificate.
    #[must_use]
    pub const fn certificate(signature: key::Algorithm) -> Self {
        Self {
            signature,
            certificate: true,
        }
    }

    /// Its name in KEXINIT.
    #[must_use]
    pub const fn name(self) -> &'static str {
        if self.certificate {
            self.signature.certificate_name()
        } else {
            self.signature.name()
        }
    }

    /// The algorithm of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let plain = key::Algorithm::from_name(name.as_bytes()).map(Self::plain);
        plain.or_else(|| {
            key::Algorithm::from_certificate_name(name.as_bytes()).map(Self::certificate)
        })
    }
}

/// RFC 4419 3: the modulus sizes of a group request, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GexBounds {
    pub(crate) min: u32,
    pub(crate) preferred: u32,
    pub(crate) max: u32,
}
