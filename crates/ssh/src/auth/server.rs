//! The server's side: one request at a time, signatures verified before the application is asked.
//!
//! ```text
//!  Idle ─request─► Asking ─answer─► Idle, after FAILURE or PK_OK
//!   ▲                │ │  └─accept─► Done, after SUCCESS
//!   └──new request───┤ └─prompts───► Prompted ─INFO_RESPONSE─► Asking
//! ```

mod pending;
mod request;

pub use request::{AuthAnswer, AuthRequest, Credential, ServerAuth};

use super::prompts::parse_answers;
use super::{
    KeyFields, METHOD_HOSTBOUND, Message, Method, MethodSet, NAME_BYTES_MAX, PASSWORD_BYTES_MAX,
    PROMPTS_MAX, PromptKind, Prompts, REQUESTS_MAX, ROUNDS_MAX, SERVICE_CONNECTION,
    SERVICE_USERAUTH, Secret, Session, USER_BYTES_MAX,
};
use crate::error::{ApiMisuse, Closed, Error, PeerMisbehaved};
use crate::key::{KEY_BLOB_BYTES_MAX, SIGNATURE_BYTES_MAX, SkPolicy};
use crate::msg::{
    DisconnectReason, SSH_MSG_SERVICE_ACCEPT, SSH_MSG_SERVICE_REQUEST, SSH_MSG_USERAUTH_BANNER,
    SSH_MSG_USERAUTH_FAILURE, SSH_MSG_USERAUTH_INFO_RESPONSE, SSH_MSG_USERAUTH_PK_OK,
    SSH_MSG_USERAUTH_REQUEST, SSH_MSG_USERAUTH_SUCCESS,
};
use crate::wire::{Put, Reader};
use pending::{Pending, Proof, ShownKey};
use std::collections::VecDeque;
use zeroize::Zeroizing;

#[derive(Debug)]
enum State {
    Idle,
    Asking(Pending),
    /// The number of prompts that answers are awaited to.
    Prompted(usize),
    Done,
}

/// The server's authentication. Sans-IO: messages go in by `handle_message` and out by `poll_message`.
#[derive(Debug)]
pub struct Authenticator {
    config: ServerAuth,
    state: State,
    /// Of the first request; it may not change.
    user: Option<Vec<u8>>,
    methods: MethodSet,
    is_service_accepted: bool,
    is_banner_sent: bool,
    failures: u32,
    /// Of any kind, so that even requests that cost no attempt are bounded.
    request_count: u32,
    rounds: u32,
    /// At most three messages for each that came.
    outgoing: VecDeque<Message>,
}

impl Authenticator {
    /// Waits for the client's service request.
    #[must_use]
    pub fn new(config: &ServerAuth) -> Self {
        Self {
            config: config.clone(),
            state: State::Idle,
            user: None,
            methods: config.methods,
            is_service_accepted: false,
            is_banner_sent: false,
            failures: 0,
            request_count: 0,
            rounds: 0,
            outgoing: VecDeque::new(),
        }
    }

    /// True once the user is in. The transport must be told right behind the last message of `poll_message`.
    #[must_use]
    pub const fn is_authenticated(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// True while the application's answer is awaited: no further message may be taken.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Asking(_))
    }

    /// The user's name, once it was said.
    #[must_use]
    pub fn user(&self) -> Option<&[u8]> {
        self.user.as_deref()
    }

    /// What the application has to decide.
    #[must_use]
    pub fn request(&self) -> Option<AuthRequest<'_>> {
        let State::Asking(pending) = &self.state else {
            return None;
        };
        let credential = pending.credential(self.rounds);
        Some(AuthRequest {
            user: self.user.as_deref().unwrap_or_default(),
            failures: self.failures,
            credential,
        })
    }

    /// The next message to send.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<Message> {
        self.outgoing.pop_front()
    }

    /// Takes a message of the client: SERVICE_REQUEST or 50 to 79. After success they are ignored.
    ///
    /// # Errors
    /// `InvalidMessage`, `PeerMisbehaved`, or `Closed` after too many failures: the connection is over.
    /// `ApiMisuse::WrongState` while `is_waiting`.
    pub fn handle_message(&mut self, session: &Session<'_>, payload: &[u8]) -> Result<(), Error> {
        // RFC 4252 5.3: "any further authentication requests received after that SHOULD be silently
        // ignored".
        if self.is_authenticated() {
            return Ok(());
        }
        if self.is_waiting() {
            return Err(ApiMisuse::WrongState.into());
        }
        let mut message = Reader::new(payload);
        match message.u8()? {
            SSH_MSG_SERVICE_REQUEST => self.on_service_request(message),
            _ if !self.is_service_accepted => Err(PeerMisbehaved::AuthSequence.into()),
            SSH_MSG_USERAUTH_REQUEST => self.on_request(session, message),
            SSH_MSG_USERAUTH_INFO_RESPONSE => self.on_answers(message),
            number => Err(PeerMisbehaved::UnexpectedMessage { message: number }.into()),
        }
    }

    fn count_request(&mut self) -> Result<(), Error> {
        if self.request_count == REQUESTS_MAX {
            return Err(PeerMisbehaved::TooManyRequests.into());
        }
        self.request_count += 1;
        Ok(())
    }

    fn on_service_request(&mut self, mut message: Reader<'_>) -> Result<(), Error> {
        if message.string()? != SERVICE_USERAUTH.as_bytes() {
            return Err(PeerMisbehaved::UnknownService.into());
        }
        message.finish()?;
        self.count_request()?;
        self.is_service_accepted = true;
        let mut accept = Zeroizing::new(Vec::with_capacity(32));
        accept.put_u8(SSH_MSG_SERVICE_ACCEPT);
        accept.put_string(SERVICE_USERAUTH.as_bytes());
        self.outgoing.push_back(accept);
        if let Some(banner) = self.config.banner.as_ref().filter(|_| !self.is_banner_sent) {
            let mut message = Zeroizing::new(Vec::new());
            message.put_u8(SSH_MSG_USERAUTH_BANNER);
            message.put_string(banner.as_bytes());
            message.put_string(b"");
            self.outgoing.push_back(message);
            self.is_banner_sent = true;
        }
        Ok(())
    }

    fn on_request(&mut self, session: &Session<'_>, mut message: Reader<'_>) -> Result<(), Error> {
        self.count_request()?;
        let user = message.string_max(USER_BYTES_MAX)?;
        let service = message.string()?;
        let method = message.string_max(NAME_BYTES_MAX)?;
        if service != SERVICE_CONNECTION.as_bytes() {
            return Err(PeerMisbehaved::UnknownService.into());
        }
        // RFC 4252 5: on another name the server must forget what was accepted. As OpenSSH, we
        // disconnect instead.
        let known = self.user.get_or_insert_with(|| user.to_vec());
        if known != user {
            return Err(PeerMisbehaved::AuthSequence.into());
        }
        // RFC 4256 3.1: a new request ends what was going on.
        self.state = State::Idle;
        self.rounds = 0;
        let is_hostbound = method == METHOD_HOSTBOUND.as_bytes();
        if method == b"none" {
            message.finish()?;
            return self.on_none();
        }
        let method = Method::ALL
            .into_iter()
            .find(|m| m.name().as_bytes() == method || (is_hostbound && *m == Method::PublicKey));
        match method.filter(|method| self.methods.contains(*method)) {
            Some(Method::PublicKey) => self.on_key(session, message, is_hostbound),
            Some(Method::Password) => self.on_password(message),
            Some(Method::KeyboardInteractive) => self.on_interactive(message),
            None => self.fail(),
        }
    }

    fn on_none(&mut self) -> Result<(), Error> {
        if self.config.is_none_asked {
            self.state = State::Asking(Pending::None);
            return Ok(());
        }
        self.refuse_none()
    }

    /// RFC 4252 5.2: `none` is how clients ask for the list; the first time is free, as with OpenSSH.
    fn refuse_none(&mut self) -> Result<(), Error> {
        if self.request_count > 2 {
            return self.fail();
        }
        self.state = State::Idle;
        self.push_failure(false);
        Ok(())
    }

    fn on_key(
        &mut self,
        session: &Session<'_>,
        mut message: Reader<'_>,
        is_hostbound: bool,
    ) -> Result<(), Error> {
        let has_signature = message.bool()?;
        let name = message.string_max(NAME_BYTES_MAX)?;
        let blob = message.string_max(KEY_BLOB_BYTES_MAX)?;
        let host_key = is_hostbound.then(|| message.string()).transpose()?;
        let signature = has_signature
            .then(|| message.string_max(SIGNATURE_BYTES_MAX))
            .transpose()?;
        message.finish()?;
        // PROTOCOL: "If the hostkey does not match ... the server must refuse".
        if host_key.is_some_and(|host_key| host_key != session.host_key) {
            return self.fail();
        }
        let Some(key) = ShownKey::parse(name, blob, &self.config.algorithms) else {
            return self.fail();
        };
        let Some(signature) = signature else {
            self.state = State::Asking(Pending::Key {
                key: Box::new(key),
                proof: None,
            });
            return Ok(());
        };
        let data = KeyFields {
            user: self.user.as_deref().unwrap_or_default(),
            host_key,
            algorithm: key.algorithm_name(),
            key_blob: blob,
        }
        .signed_data(session.session_id);
        match key.key.verify_any(key.algorithm, &data, signature) {
            Ok(sk) => {
                self.state = State::Asking(Pending::Key {
                    key: Box::new(key),
                    proof: Some(Proof { sk }),
                });
                Ok(())
            }
            Err(_) => self.fail(),
        }
    }

    fn on_password(&mut self, mut message: Reader<'_>) -> Result<(), Error> {
        let is_change = message.bool()?;
        let old = Secret::from(message.string_max(PASSWORD_BYTES_MAX)?);
        let new = is_change
            .then(|| message.string_max(PASSWORD_BYTES_MAX).map(Secret::from))
            .transpose()?;
        message.finish()?;
        self.state = State::Asking(Pending::Password { old, new });
        Ok(())
    }

    fn on_interactive(&mut self, mut message: Reader<'_>) -> Result<(), Error> {
        let _language = message.string()?;
        let _submethods = message.string()?;
        message.finish()?;
        match &self.config.interactive_prompt {
            Some(text) => {
                let prompts = Prompts::password(text);
                self.push_prompts(&prompts);
            }
            None => {
                let answers = Vec::new();
                self.state = State::Asking(Pending::Interactive { answers });
            }
        }
        Ok(())
    }

    fn on_answers(&mut self, message: Reader<'_>) -> Result<(), Error> {
        let State::Prompted(count) = self.state else {
            return Err(PeerMisbehaved::AuthSequence.into());
        };
        let answers = parse_answers(message, count)?;
        self.state = State::Asking(Pending::Interactive { answers });
        Ok(())
    }

    /// The application's answer to `request`.
    ///
    /// # Errors
    /// `ApiMisuse::WrongState` if nothing was asked, or the answer does not fit the credential (the
    /// request stays); `Closed` after too many failures: the connection is over.
    pub fn answer(&mut self, answer: AuthAnswer) -> Result<(), Error> {
        let State::Asking(pending) = &self.state else {
            return Err(ApiMisuse::WrongState.into());
        };
        match answer {
            AuthAnswer::Accept => self.accept(SkPolicy::default()),
            AuthAnswer::AcceptWithoutTouch => self.accept(SkPolicy {
                presence_required: !pending.may_go_untouched(),
                ..SkPolicy::default()
            }),
            AuthAnswer::Partial(methods) => self.accept_partly(methods),
            AuthAnswer::Reject if matches!(pending, Pending::None) => self.refuse_none(),
            AuthAnswer::Reject => self.fail(),
            AuthAnswer::Prompt(prompts) => {
                let is_possible = matches!(pending, Pending::Interactive { .. })
                    && prompts.kind == PromptKind::KeyboardInteractive
                    && prompts.prompts.len() <= PROMPTS_MAX;
                if !is_possible {
                    return Err(ApiMisuse::WrongState.into());
                }
                if self.rounds == ROUNDS_MAX {
                    return self.fail();
                }
                self.push_prompts(&prompts);
                Ok(())
            }
            AuthAnswer::ChangePassword(why) => {
                if !matches!(pending, Pending::Password { .. }) {
                    return Err(ApiMisuse::WrongState.into());
                }
                let mut prompts = Prompts::password("");
                prompts.kind = PromptKind::PasswordChange;
                prompts.instruction = why;
                self.outgoing
                    .push_back(Zeroizing::new(prompts.to_message()));
                self.state = State::Idle;
                Ok(())
            }
        }
    }

    fn accept(&mut self, policy: SkPolicy) -> Result<(), Error> {
        match core::mem::replace(&mut self.state, State::Idle) {
            State::Asking(Pending::Key { key, proof: None }) => {
                let mut ok = Zeroizing::new(Vec::with_capacity(key.blob.len() + 64));
                ok.put_u8(SSH_MSG_USERAUTH_PK_OK);
                ok.put_string(key.algorithm_name().as_bytes());
                ok.put_string(&key.blob);
                self.outgoing.push_back(ok);
                Ok(())
            }
            State::Asking(pending) if pending.is_sk_right(policy) => {
                self.outgoing
                    .push_back(Zeroizing::new(vec![SSH_MSG_USERAUTH_SUCCESS]));
                self.state = State::Done;
                Ok(())
            }
            State::Asking(_) | State::Idle | State::Prompted(_) | State::Done => self.fail(),
        }
    }

    fn accept_partly(&mut self, methods: MethodSet) -> Result<(), Error> {
        let is_proof = match &self.state {
            State::Asking(Pending::Key { proof: None, .. }) => {
                // A query is answered as if the key were enough: the proof comes next.
                return self.accept(SkPolicy::default());
            }
            State::Asking(pending) => pending.is_sk_right(SkPolicy::default()),
            State::Idle | State::Prompted(_) | State::Done => false,
        };
        if !is_proof || methods.is_empty() {
            return self.fail();
        }
        self.methods = methods;
        self.state = State::Idle;
        self.push_failure(true);
        Ok(())
    }

    fn push_prompts(&mut self, prompts: &Prompts) {
        self.rounds += 1;
        self.outgoing
            .push_back(Zeroizing::new(prompts.to_message()));
        self.state = State::Prompted(prompts.prompts.len());
    }

    fn fail(&mut self) -> Result<(), Error> {
        self.state = State::Idle;
        self.failures += 1;
        if self.failures >= self.config.attempts_max {
            return Err(Closed::ByUs {
                reason: DisconnectReason::NoMoreAuthMethodsAvailable,
                description: "too many authentication failures".to_owned(),
            }
            .into());
        }
        self.push_failure(false);
        Ok(())
    }

    fn push_failure(&mut self, is_partial: bool) {
        let mut message = Zeroizing::new(Vec::with_capacity(64));
        message.put_u8(SSH_MSG_USERAUTH_FAILURE);
        // `Zeroizing` derefs to the vector that the trait is for.
        Put::put_name_list(&mut *message, self.methods.iter().map(Method::name));
        message.put_bool(is_partial);
        self.outgoing.push_back(message);
    }
}
