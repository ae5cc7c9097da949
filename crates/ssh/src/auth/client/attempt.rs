//! What the application tries, and what it is told about it.

use crate::auth::{MethodSet, Secret};
use crate::cert::Certificate;
use crate::key::{Algorithm, PrivateKey, PublicKey};
use std::sync::Arc;

/// What the client is told at its start.
#[derive(Debug, Clone, Default)]
pub struct ClientAuth {
    /// The user's name. Any bytes; UTF-8 by the RFC.
    pub user: Vec<u8>,
}

/// One try to prove who the user is.
#[derive(Debug)]
pub enum Attempt {
    /// Asks for nothing but the list of methods; a server may let the user in.
    None,
    /// A key or certificate.
    PublicKey(KeyAttempt),
    /// A password.
    Password(Secret),
    /// Whatever the server asks.
    KeyboardInteractive,
}

/// A key to try.
#[derive(Debug)]
pub struct KeyAttempt {
    /// What is shown to the server.
    pub identity: Identity,
    /// Who signs.
    pub signer: Signer,
    /// The signature algorithm; `None` takes the best that both sides know.
    pub algorithm: Option<Algorithm>,
    /// True signs at once. False asks the server first whether the key would do, at the cost of a
    /// round trip: for keys that a person must unlock or touch, and where there are several.
    pub known: bool,
}

/// What is shown to the server.
#[derive(Debug, Clone)]
pub enum Identity {
    /// A plain key.
    Key(PublicKey),
    /// A certificate; its key signs.
    Certificate(Box<Certificate>),
}

impl Identity {
    /// The key that signs.
    #[must_use]
    pub fn key(&self) -> &PublicKey {
        match self {
            Self::Key(key) => key,
            Self::Certificate(certificate) => certificate.key(),
        }
    }

    pub(super) fn to_blob(&self) -> Vec<u8> {
        match self {
            Self::Key(key) => key.to_blob(),
            Self::Certificate(certificate) => certificate.as_blob().to_vec(),
        }
    }

    pub(super) fn algorithm_name(&self, algorithm: Algorithm) -> &'static str {
        match self {
            Self::Key(_) => algorithm.name(),
            Self::Certificate(_) => algorithm.certificate_name(),
        }
    }
}

/// Who signs.
#[derive(Debug, Clone)]
pub enum Signer {
    /// This key, at once.
    Local(Arc<PrivateKey>),
    /// The application, through `signature_request` and `provide_signature`: an agent.
    External,
}

/// What an external signer is to sign.
#[derive(Debug, Clone, Copy)]
pub struct SignatureRequest<'a> {
    /// The bytes to sign.
    pub data: &'a [u8],
    /// The blob of the key, or of the certificate: what an agent knows it by.
    pub key_blob: &'a [u8],
    /// The algorithm to sign with.
    pub algorithm: Algorithm,
    /// The agent protocol's flags that ask for this algorithm.
    pub agent_flags: u32,
}

/// The external signer could not or would not sign; the attempt is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignerFailed;

/// How the last attempt ended without success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server refused it.
    Refused,
    /// The server took it and wants another method besides.
    Partial,
    /// Not sent: the server takes no signature algorithm of this key.
    NoCommonAlgorithm,
    /// Not sent: the signer failed, or signed with another algorithm than was asked for.
    SignerFailed,
}

/// What the server lets the user try.
#[derive(Debug, Clone, Default)]
pub struct AuthMethods {
    /// Methods that can continue; `None` until the server said so.
    pub offered: Option<MethodSet>,
    /// The server's list as it was sent, with methods that we do not know. At most 1 KiB.
    pub names: String,
    /// Whether some attempt was taken in part.
    pub partial_success: bool,
    /// How the last attempt ended.
    pub outcome: Option<Outcome>,
}

/// What the application should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// `banner` has something to show.
    Banner,
    /// Nothing is being tried; `methods` says how the last attempt ended.
    Needed,
    /// `signature_request` waits for `provide_signature`.
    SignatureNeeded,
    /// `prompts` wait for `answer_prompts`.
    Prompt,
    /// The server let the user in.
    Authenticated,
}
