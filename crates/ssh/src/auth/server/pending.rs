//! What a client showed, until the application has answered.

use super::Credential;
use crate::auth::Secret;
use crate::cert::{Certificate, CertificateKind};
use crate::key::{Algorithm, PublicKey, SkDetails, SkPolicy};

/// A credential that waits for its answer.
#[derive(Debug)]
pub(super) enum Pending {
    None,
    Key {
        key: Box<ShownKey>,
        /// `None` in a query.
        proof: Option<Proof>,
    },
    Password {
        old: Secret,
        new: Option<Secret>,
    },
    Interactive {
        answers: Vec<Secret>,
    },
}

#[derive(Debug)]
pub(super) struct ShownKey {
    pub(super) key: PublicKey,
    pub(super) certificate: Option<Certificate>,
    pub(super) algorithm: Algorithm,
    pub(super) blob: Vec<u8>,
}

/// The signature was verified.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proof {
    pub(super) sk: Option<SkDetails>,
}

impl ShownKey {
    /// The key or certificate of a request; `None` if it is not one that can be accepted.
    pub(super) fn parse(name: &[u8], blob: &[u8], allowed: &[Algorithm]) -> Option<Self> {
        let is_allowed = |algorithm: &Algorithm| allowed.contains(algorithm);
        let (key, certificate, algorithm) =
            if let Some(algorithm) = Algorithm::from_name(name).filter(is_allowed) {
                (PublicKey::from_blob(blob).ok()?, None, algorithm)
            } else {
                let algorithm = Algorithm::from_certificate_name(name).filter(is_allowed)?;
                let certificate = Certificate::from_blob(blob).ok()?;
                if certificate.kind() != CertificateKind::User {
                    return None;
                }
                (certificate.key().clone(), Some(certificate), algorithm)
            };
        (key.key_type() == algorithm.key_type()).then(|| Self {
            key,
            certificate,
            algorithm,
            blob: blob.to_vec(),
        })
    }

    pub(super) const fn algorithm_name(&self) -> &'static str {
        match &self.certificate {
            Some(_) => self.algorithm.certificate_name(),
            None => self.algorithm.name(),
        }
    }
}

impl Pending {
    /// As the application sees it.
    pub(super) fn credential(&self, rounds: u32) -> Credential<'_> {
        match self {
            Self::None => Credential::None,
            Self::Key { key, proof: None } => Credential::KeyQuery {
                key: &key.key,
                certificate: key.certificate.as_ref(),
            },
            Self::Key {
                key,
                proof: Some(proof),
            } => Credential::Key {
                key: &key.key,
                certificate: key.certificate.as_ref(),
                algorithm: key.algorithm,
                sk: proof.sk,
            },
            Self::Password { old, new: None } => Credential::Password(old),
            Self::Password {
                old,
                new: Some(new),
            } => Credential::PasswordChange { old, new },
            Self::Interactive { answers } => Credential::Interactive {
                answers,
                round: rounds,
            },
        }
    }

    /// A certificate must agree that its key need not be touched.
    pub(super) fn may_go_untouched(&self) -> bool {
        match self {
            Self::Key { key, .. } => key
                .certificate
                .as_ref()
                .is_none_or(|certificate| certificate.has_extension("no-touch-required")),
            Self::None | Self::Password { .. } | Self::Interactive { .. } => false,
        }
    }

    /// Whether a security key did what the policy and its certificate ask; true for all else.
    pub(super) fn is_sk_right(&self, mut policy: SkPolicy) -> bool {
        match self {
            Self::Key { key, proof } => {
                policy.verification_required |= key
                    .certificate
                    .as_ref()
                    .is_some_and(Certificate::is_verify_required);
                proof.is_some_and(|proof| policy.check(proof.sk).is_ok())
            }
            Self::None | Self::Password { .. } | Self::Interactive { .. } => true,
        }
    }
}
