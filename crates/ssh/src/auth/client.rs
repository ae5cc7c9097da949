//! The client's side: one attempt at a time, with as few round trips as the method allows.
//!
//! ```text
//!  Idle ─authenticate─► Queued ─poll_message─► Awaiting ─FAILURE─► Idle
//!                        ▲  │                  │  │  └─SUCCESS─► Done
//!                        │  └► Signing ─────►──┤  │
//!                        └──────────────PK_OK──┘  └─60─► Prompting ─answers─► Awaiting
//! ```

mod attempt;
mod input;

pub use attempt::{
    Attempt, AuthMethods, ClientAuth, Event, Identity, KeyAttempt, Outcome, SignatureRequest,
    Signer, SignerFailed,
};

use super::prompts::put_answers;
use super::{
    KeyFields, Message, Method, PASSWORD_BYTES_MAX, PromptKind, Prompts, SERVICE_USERAUTH, Secret,
    Session, put_request,
};
use crate::error::{ApiMisuse, Error};
use crate::key::{Algorithm, named_algorithm};
use crate::msg::SSH_MSG_SERVICE_REQUEST;
use crate::wire::Put;
use zeroize::Zeroizing;

/// A list of methods is kept up to this length.
const NAMES_SHOWN_BYTES_MAX: usize = 1024;

/// What the next reply of the server is about.
#[derive(Debug)]
enum Awaited {
    None,
    KeyQuery {
        attempt: KeyAttempt,
        algorithm: Algorithm,
    },
    KeySigned,
    /// The password that was sent: a request to change it needs it again.
    Password(Secret),
    KeyboardInteractive,
}

#[derive(Debug)]
enum State {
    Idle,
    Queued(Attempt),
    Signing {
        /// Session identifier and request, see `signed_data`.
        data: Vec<u8>,
        request_start: usize,
        key_blob: Vec<u8>,
        algorithm: Algorithm,
    },
    Outgoing {
        message: Message,
        awaited: Awaited,
    },
    Awaiting(Awaited),
    Prompting {
        prompts: Prompts,
        /// The old password, if it is to be changed.
        old: Option<Secret>,
    },
    Done,
}

/// The client's authentication. Sans-IO: messages go in by `handle_message` and out by `poll_message`.
#[derive(Debug)]
pub struct Authenticator {
    user: Vec<u8>,
    state: State,
    is_service_requested: bool,
    is_service_accepted: bool,
    methods: AuthMethods,
    /// Rounds of prompts in this attempt.
    rounds: u32,
    banner: Vec<u8>,
    banner_count: usize,
    is_banner_told: bool,
    untold: Option<Event>,
}

impl Authenticator {
    /// Starts with nothing to try: the first event is `Needed`, unless `authenticate` comes first.
    #[must_use]
    pub fn new(config: &ClientAuth) -> Self {
        Self {
            user: config.user.clone(),
            state: State::Idle,
            is_service_requested: false,
            is_service_accepted: false,
            methods: AuthMethods::default(),
            rounds: 0,
            banner: Vec::new(),
            banner_count: 0,
            is_banner_told: true,
            untold: Some(Event::Needed),
        }
    }

    /// Tries this next. May come before the transport is encrypted: it goes out as soon as it may.
    ///
    /// # Errors
    /// `ApiMisuse::WrongState` while an attempt is in progress or after success;
    /// `LimitReached` for a password longer than `PASSWORD_BYTES_MAX`.
    pub fn authenticate(&mut self, attempt: Attempt) -> Result<(), Error> {
        if !matches!(self.state, State::Idle) {
            return Err(ApiMisuse::WrongState.into());
        }
        if matches!(&attempt, Attempt::Password(p) if p.len() > PASSWORD_BYTES_MAX) {
            return Err(ApiMisuse::LimitReached.into());
        }
        self.rounds = 0;
        self.untold = None;
        self.state = State::Queued(attempt);
        Ok(())
    }

    /// True once the server let the user in.
    #[must_use]
    pub const fn is_authenticated(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// True when an attempt that could succeed is on its way: what is sent behind it is not lost if it does.
    #[must_use]
    pub const fn is_proof_sent(&self) -> bool {
        matches!(
            self.state,
            State::Awaiting(Awaited::KeySigned | Awaited::Password(_) | Awaited::None)
        )
    }

    /// As [`Authenticator::is_proof_sent`], where the proof is a key's signature.
    #[must_use]
    pub const fn is_signature_sent(&self) -> bool {
        matches!(self.state, State::Awaiting(Awaited::KeySigned))
    }

    /// What can be tried, and how the last attempt ended.
    #[must_use]
    pub const fn methods(&self) -> &AuthMethods {
        &self.methods
    }

    /// The server's words to the user, all of them in order. Untrusted: escape before showing.
    #[must_use]
    pub fn banner(&self) -> &[u8] {
        &self.banner
    }

    /// What to sign, while an external signer is awaited.
    #[must_use]
    pub fn signature_request(&self) -> Option<SignatureRequest<'_>> {
        match &self.state {
            State::Signing {
                data,
                key_blob,
                algorithm,
                ..
            } => Some(SignatureRequest {
                data,
                key_blob,
                algorithm: *algorithm,
                agent_flags: crate::agent::sign_flags(*algorithm),
            }),
            State::Idle
            | State::Queued(_)
            | State::Outgoing { .. }
            | State::Awaiting(_)
            | State::Prompting { .. }
            | State::Done => None,
        }
    }

    /// The external signer's answer: a signature blob.
    ///
    /// # Errors
    /// `ApiMisuse::WrongState` if none is awaited.
    pub fn provide_signature(
        &mut self,
        signature: Result<Vec<u8>, SignerFailed>,
    ) -> Result<(), Error> {
        let State::Signing {
            data,
            request_start,
            algorithm,
            ..
        } = &self.state
        else {
            return Err(ApiMisuse::WrongState.into());
        };
        // RFC 8332 3.2: an agent that does not know the flags signs with SHA-1 under "ssh-rsa".
        let signature = signature
            .ok()
            .filter(|blob| named_algorithm(blob) == Ok(*algorithm));
        match signature {
            Some(blob) => {
                let mut message = Zeroizing::new(data[*request_start..].to_vec());
                message.put_string(&blob);
                self.untold = None;
                self.state = State::Outgoing {
                    message,
                    awaited: Awaited::KeySigned,
                };
            }
            None => self.give_up(Outcome::SignerFailed),
        }
        Ok(())
    }

    /// What to ask the user, while answers are awaited.
    #[must_use]
    pub fn prompts(&self) -> Option<&Prompts> {
        match &self.state {
            State::Prompting { prompts, .. } => Some(prompts),
            State::Idle
            | State::Queued(_)
            | State::Signing { .. }
            | State::Outgoing { .. }
            | State::Awaiting(_)
            | State::Done => None,
        }
    }

    /// The user's answers, one for each prompt and in their order.
    ///
    /// # Errors
    /// `ApiMisuse::WrongState` if none are awaited or their number is wrong; `LimitReached` if one is
    /// longer than `PASSWORD_BYTES_MAX`. The prompts stay.
    pub fn answer_prompts(&mut self, answers: Vec<Secret>) -> Result<(), Error> {
        let State::Prompting { prompts, old } = &mut self.state else {
            return Err(ApiMisuse::WrongState.into());
        };
        if answers.len() != prompts.prompts.len() {
            return Err(ApiMisuse::WrongState.into());
        }
        if answers.iter().any(|a| a.len() > PASSWORD_BYTES_MAX) {
            return Err(ApiMisuse::LimitReached.into());
        }
        let room = 256 + self.user.len() + (answers.len() + 1) * (PASSWORD_BYTES_MAX + 4);
        let mut message = Zeroizing::new(Vec::with_capacity(room));
        let awaited = match (prompts.kind, old.take(), answers.as_slice()) {
            (PromptKind::PasswordChange, Some(old), [new]) => {
                put_request(&mut message, &self.user, Method::Password.name());
                message.put_bool(true);
                message.put_string(old.expose());
                message.put_string(new.expose());
                Awaited::Password(new.clone())
            }
            (PromptKind::PasswordChange | PromptKind::KeyboardInteractive, _, answers) => {
                put_answers(&mut message, answers);
                Awaited::KeyboardInteractive
            }
        };
        self.untold = None;
        self.state = State::Outgoing { message, awaited };
        Ok(())
    }

    /// What the application should know next.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        if !self.is_banner_told {
            self.is_banner_told = true;
            return Some(Event::Banner);
        }
        self.untold.take()
    }

    /// The next message to send. Call it when the transport is encrypted and may send, after the input
    /// that is there has been taken (EXT_INFO says which algorithms the server verifies).
    ///
    /// The service request comes in front of the first request, and nothing waits for its answer.
    #[must_use]
    pub fn poll_message(&mut self, session: &Session<'_>) -> Option<Message> {
        if matches!(self.state, State::Queued(_))
            && let State::Queued(attempt) = core::mem::replace(&mut self.state, State::Idle)
        {
            self.begin(attempt, session);
        }
        if !matches!(self.state, State::Outgoing { .. }) {
            return None;
        }
        if !self.is_service_requested {
            self.is_service_requested = true;
            let mut message = Zeroizing::new(Vec::with_capacity(32));
            message.put_u8(SSH_MSG_SERVICE_REQUEST);
            message.put_string(SERVICE_USERAUTH.as_bytes());
            return Some(message);
        }
        match core::mem::replace(&mut self.state, State::Idle) {
            State::Outgoing { message, awaited } => {
                self.state = State::Awaiting(awaited);
                Some(message)
            }
            State::Idle
            | State::Queued(_)
            | State::Signing { .. }
            | State::Awaiting(_)
            | State::Prompting { .. }
            | State::Done => unreachable!("the state was seen to be Outgoing"),
        }
    }

    fn begin(&mut self, attempt: Attempt, session: &Session<'_>) {
        let mut message = Zeroizing::new(Vec::with_capacity(
            256 + self.user.len() + PASSWORD_BYTES_MAX,
        ));
        let awaited = match attempt {
            Attempt::PublicKey(attempt) => return self.begin_key(attempt, session),
            Attempt::None => {
                put_request(&mut message, &self.user, "none");
                Awaited::None
            }
            Attempt::Password(password) => {
                put_request(&mut message, &self.user, Method::Password.name());
                message.put_bool(false);
                message.put_string(password.expose());
                Awaited::Password(password)
            }
            Attempt::KeyboardInteractive => {
                put_request(&mut message, &self.user, Method::KeyboardInteractive.name());
                // RFC 4256 3.1: language tag (deprecated) and submethods, both left to the server.
                message.put_string(b"");
                message.put_string(b"");
                Awaited::KeyboardInteractive
            }
        };
        self.state = State::Outgoing { message, awaited };
    }

    fn begin_key(&mut self, attempt: KeyAttempt, session: &Session<'_>) {
        let Some(algorithm) = choose_algorithm(&attempt, session) else {
            return self.give_up(Outcome::NoCommonAlgorithm);
        };
        let key_blob = attempt.identity.to_blob();
        let fields = KeyFields {
            user: &self.user,
            host_key: session
                .extensions
                .publickey_hostbound
                .then_some(session.host_key),
            algorithm: attempt.identity.algorithm_name(algorithm),
            key_blob: &key_blob,
        };
        if !attempt.known {
            let mut message = Zeroizing::new(Vec::new());
            fields.put(&mut message, false);
            let awaited = Awaited::KeyQuery { attempt, algorithm };
            self.state = State::Outgoing { message, awaited };
            return;
        }
        let data = fields.signed_data(session.session_id);
        let signature = match &attempt.signer {
            Signer::External => None,
            Signer::Local(key) => Some(key.sign(algorithm, &data)),
        };
        self.state = State::Signing {
            request_start: 4 + session.session_id.len(),
            data,
            key_blob,
            algorithm,
        };
        match signature {
            None => self.untold = Some(Event::SignatureNeeded),
            Some(signature) => self
                .provide_signature(signature.map_err(|_| SignerFailed))
                .expect("the state awaits a signature since the line above"),
        }
    }

    /// The attempt ends on this side.
    fn give_up(&mut self, outcome: Outcome) {
        self.state = State::Idle;
        self.methods.outcome = Some(outcome);
        self.untold = Some(Event::Needed);
    }
}

/// The best algorithm of the key that the server says it verifies. Keys with a single one are
/// tried in any case: some servers list only what RFC 8332 was made for.
fn choose_algorithm(attempt: &KeyAttempt, session: &Session<'_>) -> Option<Algorithm> {
    let of_key = attempt.identity.key().key_type().algorithms();
    if let Some(wanted) = attempt.algorithm {
        return of_key.contains(&wanted).then_some(wanted);
    }
    if let [only] = of_key {
        return Some(*only);
    }
    match &session.extensions.server_sig_algs {
        Some(names) => of_key.iter().copied().find(|algorithm| {
            // Servers list plain names; some list certificates' names besides.
            names.iter().any(|name| name == algorithm.name())
        }),
        // RFC 8332 3.3: without the extension a client may only guess. The last is the one that the
        // RFC recommends to implement: rsa-sha2-256.
        None => of_key.last().copied(),
    }
}
