//! The server's key as the client sees it, and the proof that the application accepted it.

use crate::kex::HostKeyAlgorithm;

/// A host key whose signature over the exchange hash is verified. Whether it belongs to the host
/// is for the application to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeyOffer {
    pub(super) algorithm: HostKeyAlgorithm,
    pub(super) blob: Vec<u8>,
}

impl HostKeyOffer {
    /// The negotiated algorithm, such as `ssh-ed25519` or `ssh-ed25519-cert-v01@openssh.com`.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        self.algorithm.name()
    }

    /// The public key or certificate as it came.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }
}

/// The application's verdict that a host key is the right one. The only way to the encrypted
/// state, and good for that one key.
#[derive(Debug)]
pub struct HostKeyVerified {
    pub(super) blob: Vec<u8>,
}

impl HostKeyVerified {
    /// Made by the application once it has compared `offer` with what it knows of the host.
    #[must_use]
    pub fn by_application(offer: &HostKeyOffer) -> Self {
        Self {
            blob: offer.blob.clone(),
        }
    }
}
