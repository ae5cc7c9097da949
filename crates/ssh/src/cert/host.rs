//! A server's host key, plain and with its certificate, as the transport asks for it.

use super::{Certificate, CertificateError, CertificateKind};
use crate::config::HostKey;
use crate::key::{Algorithm, KeyError, PrivateKey};

/// A host's private key and perhaps the certificate made for it.
#[derive(Debug)]
pub struct HostIdentity {
    key: PrivateKey,
    certificate: Option<Certificate>,
}

impl HostIdentity {
    /// Joins the two.
    ///
    /// # Errors
    /// `WrongKind` for a user's certificate, `Key(Inconsistent)` for one of another key.
    pub fn new(
        key: PrivateKey,
        certificate: Option<Certificate>,
    ) -> Result<Self, CertificateError> {
        if let Some(certificate) = &certificate {
            if certificate.kind() != CertificateKind::Host {
                return Err(CertificateError::WrongKind(certificate.kind()));
            }
            if certificate.key() != key.public_key() {
                return Err(KeyError::Inconsistent.into());
            }
        }
        Ok(Self { key, certificate })
    }

    /// A key without a certificate.
    #[must_use]
    pub const fn plain(key: PrivateKey) -> Self {
        Self {
            key,
            certificate: None,
        }
    }

    /// The private key.
    #[must_use]
    pub const fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// The certificate.
    #[must_use]
    pub const fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// The algorithm of a plain or certificate name, if this key has it.
    fn algorithm(&self, name: &str) -> Option<Algorithm> {
        let name = name.as_bytes();
        Algorithm::from_name(name)
            .or_else(|| Algorithm::from_certificate_name(name))
            .filter(|algorithm| algorithm.key_type() == self.key.public_key().key_type())
    }
}

impl HostKey for HostIdentity {
    fn blob(&self, algorithm: &str) -> Option<Vec<u8>> {
        let found = self.algorithm(algorithm)?;
        if found.name() == algorithm {
            return Some(self.key.public_key().to_blob());
        }
        self.certificate
            .as_ref()
            .map(|certificate| certificate.as_blob().to_vec())
    }

    fn sign(&self, algorithm: &str, data: &[u8]) -> Option<Vec<u8>> {
        self.key.sign(self.algorithm(algorithm)?, data).ok()
    }
}
