//! What the application is asked, and what it may answer.

use crate::auth::{ATTEMPTS_MAX, Method, MethodSet, Prompts, Secret};
use crate::cert::Certificate;
use crate::key::{Algorithm, PublicKey, SkDetails};

/// What the server is told at its start.
#[derive(Debug, Clone)]
pub struct ServerAuth {
    /// Methods that are offered; others are refused without asking the application.
    pub methods: MethodSet,
    /// Failed attempts until the server disconnects; at least 1.
    pub attempts_max: u32,
    /// What users are shown before they authenticate.
    pub banner: Option<String>,
    /// The one question of keyboard-interactive, asked by the engine. `None`: the application asks,
    /// by `AuthAnswer::Prompt`.
    pub interactive_prompt: Option<String>,
    /// Signature algorithms that are accepted of users; also what `server-sig-algs` should say.
    pub algorithms: Vec<Algorithm>,
    /// Whether the application is asked about method `none`. Otherwise it is refused.
    pub is_none_asked: bool,
}

impl Default for ServerAuth {
    fn default() -> Self {
        Self {
            methods: MethodSet::of(&[Method::PublicKey]),
            attempts_max: ATTEMPTS_MAX,
            banner: None,
            interactive_prompt: Some("Password: ".to_owned()),
            algorithms: Algorithm::ALL.to_vec(),
            is_none_asked: false,
        }
    }
}

/// What a client wants the application to decide.
#[derive(Debug, Clone, Copy)]
pub struct AuthRequest<'a> {
    /// The name as it was sent. Any bytes; may be empty.
    pub user: &'a [u8],
    /// Failed attempts so far.
    pub failures: u32,
    /// What proves it.
    pub credential: Credential<'a>,
}

/// What a client shows.
#[derive(Debug, Clone, Copy)]
pub enum Credential<'a> {
    /// Nothing.
    None,
    /// A key that the client would sign with, if it is told that this would do. Proves nothing.
    KeyQuery {
        /// The key.
        key: &'a PublicKey,
        /// The certificate it came in. Its CA's signature is right, whoever the CA is.
        certificate: Option<&'a Certificate>,
    },
    /// A key that the client holds: its signature is verified.
    Key {
        /// The key.
        key: &'a PublicKey,
        /// The certificate it came in: to be held against the CAs that are trusted and
        /// `Certificate::valid_for_user`.
        certificate: Option<&'a Certificate>,
        /// What the client signed with.
        algorithm: Algorithm,
        /// What a security key said.
        sk: Option<SkDetails>,
    },
    /// A password.
    Password(&'a Secret),
    /// An old password and the new one that shall take its place.
    PasswordChange {
        /// The password so far.
        old: &'a Secret,
        /// The one from now on.
        new: &'a Secret,
    },
    /// keyboard-interactive. Without answers in the first round, if the application asks by itself.
    Interactive {
        /// One for each prompt.
        answers: &'a [Secret],
        /// Rounds of prompts before this.
        round: u32,
    },
}

/// The application's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthAnswer {
    /// Yes: the user is in, or the key would do. A security key must have been touched.
    Accept,
    /// As `Accept`, also without a touch (`no-touch-required`). If the key came in a certificate,
    /// that must say so as well.
    AcceptWithoutTouch,
    /// Yes, and one of these besides.
    Partial(MethodSet),
    /// No.
    Reject,
    /// Only to keyboard-interactive: ask this.
    Prompt(Prompts),
    /// Only to passwords: it must be changed first; the text says why.
    ChangePassword(String),
}
