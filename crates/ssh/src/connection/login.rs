//! Authentication as the connection sees it: when its messages may come and go, and what follows
//! from its success. The rules of authentication itself are `auth`'s.

use super::transmit::seal;
use super::{Connection, Event};
use crate::auth::{
    Attempt, AuthAnswer, AuthMethods, AuthRequest, Message, Prompts, Secret, Session,
    SignatureRequest, SignerFailed, client, server,
};
use crate::config::{ClientConfig, ServerConfig};
use crate::error::{ApiMisuse, Error};
use crate::msg::{SSH_MSG_USERAUTH_BANNER, SSH_MSG_USERAUTH_SUCCESS};
use crate::transport::Transport;
use fullbore_base::{Instant, TxBuf};

/// The authenticator of this side, and its message that waits for room.
#[derive(Debug)]
pub(super) struct Login {
    side: Side,
    /// Kept apart from other messages: it may hold a secret, and wipes it.
    outgoing: Option<Message>,
    /// Success was sent (server) or received (client).
    is_done: bool,
}

#[derive(Debug)]
enum Side {
    Client(Box<client::Authenticator>),
    Server(Box<server::Authenticator>),
}

impl Login {
    pub(super) fn client(config: &ClientConfig) -> Self {
        Self::new(Side::Client(Box::new(client::Authenticator::new(
            &config.auth,
        ))))
    }

    pub(super) fn server(config: &ServerConfig) -> Self {
        Self::new(Side::Server(Box::new(server::Authenticator::new(
            &config.auth,
        ))))
    }

    const fn new(side: Side) -> Self {
        Self {
            side,
            outgoing: None,
            is_done: false,
        }
    }

    pub(super) const fn is_server(&self) -> bool {
        matches!(self.side, Side::Server(_))
    }

    /// Success was sent or received.
    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Server: no packet may be opened. The application has an answer to give, or success has not
    /// been sent: what comes next depends on it (and on compression, which starts there).
    pub(super) const fn is_answer_owed(&self) -> bool {
        match &self.side {
            Side::Client(_) => false,
            Side::Server(auth) => auth.is_waiting() || (auth.is_authenticated() && !self.is_done),
        }
    }

    /// Client: an attempt is under way whose answer may be success.
    pub(super) fn is_attempt_decisive(&self) -> bool {
        match &self.side {
            Side::Client(auth) => auth.is_proof_sent() && self.outgoing.is_none(),
            Side::Server(_) => false,
        }
    }

    /// As [`Login::is_attempt_decisive`], by a key's signature.
    pub(super) fn is_signature_sent(&self) -> bool {
        match &self.side {
            Side::Client(auth) => auth.is_signature_sent() && self.outgoing.is_none(),
            Side::Server(_) => false,
        }
    }

    fn as_client(&self) -> Option<&client::Authenticator> {
        match &self.side {
            Side::Client(auth) => Some(auth),
            Side::Server(_) => None,
        }
    }

    fn as_client_mut(&mut self) -> Result<&mut client::Authenticator, Error> {
        match &mut self.side {
            Side::Client(auth) => Ok(auth),
            Side::Server(_) => Err(ApiMisuse::WrongRole.into()),
        }
    }

    fn as_server(&self) -> Option<&server::Authenticator> {
        match &self.side {
            Side::Server(auth) => Some(auth),
            Side::Client(_) => None,
        }
    }

    /// Fetches the next message to send, unless one waits.
    fn fetch(&mut self, transport: &Transport) {
        if self.outgoing.is_some() || !transport.may_send() {
            return;
        }
        self.outgoing = match &mut self.side {
            Side::Server(auth) => auth.poll_message(),
            Side::Client(auth) => {
                session(transport).and_then(|session| auth.poll_message(&session))
            }
        };
    }
}

/// What authentication needs to know of the transport, once there are keys.
fn session(transport: &Transport) -> Option<Session<'_>> {
    Some(Session {
        session_id: transport.session_id()?,
        host_key: transport.accepted_host_key().map_or(&[], |key| key.blob()),
        extensions: transport.peer_extensions(),
    })
}

impl Connection {
    /// Whether the user is in.
    #[must_use]
    pub const fn is_authenticated(&self) -> bool {
        self.login.is_done
    }

    /// Client: what can be tried, and how the last attempt ended.
    #[must_use]
    pub fn auth_methods(&self) -> Option<&AuthMethods> {
        self.login.as_client().map(client::Authenticator::methods)
    }

    /// Client: the server's words to the user, all of them so far. Untrusted: escape before showing.
    #[must_use]
    pub fn banner(&self) -> &[u8] {
        self.login
            .as_client()
            .map_or(&[], client::Authenticator::banner)
    }

    /// Client: tries this next. May come before the connection is encrypted: it is sent as soon as
    /// it may be.
    ///
    /// # Errors
    /// `ApiMisuse`: an attempt is under way, or its password is too long.
    pub fn authenticate(&mut self, attempt: Attempt) -> Result<(), Error> {
        self.alive()?;
        self.login.as_client_mut()?.authenticate(attempt)?;
        self.was_ahead_of_success = false;
        Ok(())
    }

    /// Client: what an external signer shall sign.
    #[must_use]
    pub fn signature_request(&self) -> Option<SignatureRequest<'_>> {
        self.login.as_client()?.signature_request()
    }

    /// Client: the external signer's answer.
    ///
    /// # Errors
    /// `ApiMisuse::WrongState` when none is awaited.
    pub fn provide_signature(
        &mut self,
        signature: Result<Vec<u8>, SignerFailed>,
    ) -> Result<(), Error> {
        self.alive()?;
        self.login.as_client_mut()?.provide_signature(signature)
    }

    /// Client: what the server asks the user.
    #[must_use]
    pub fn prompts(&self) -> Option<&Prompts> {
        self.login.as_client()?.prompts()
    }

    /// Client: the user's answers, one for each prompt.
    ///
    /// # Errors
    /// `ApiMisuse`: none are awaited, or their number or length is wrong.
    pub fn answer_prompts(&mut self, answers: Vec<Secret>) -> Result<(), Error> {
        self.alive()?;
        self.login.as_client_mut()?.answer_prompts(answers)
    }

    /// Server: what the application has to decide.
    #[must_use]
    pub fn auth_request(&self) -> Option<AuthRequest<'_>> {
        self.login.as_server()?.request()
    }

    /// Server: the user's name, once it was said.
    #[must_use]
    pub fn user(&self) -> Option<&[u8]> {
        self.login.as_server()?.user()
    }

    /// Server: the application's decision.
    ///
    /// # Errors
    /// `ApiMisuse` when nothing was asked or the answer does not fit; `Closed` when it was one
    /// failure too many.
    pub fn answer_auth(&mut self, answer: AuthAnswer) -> Result<(), Error> {
        self.alive()?;
        let result = match &mut self.login.side {
            Side::Server(auth) => auth.answer(answer),
            Side::Client(_) => Err(ApiMisuse::WrongRole.into()),
        };
        self.keep_error(result)
    }

    /// Takes SERVICE_REQUEST, SERVICE_ACCEPT or a message of authentication.
    pub(super) fn handle_login(&mut self, now: Instant) -> Result<(), Error> {
        let payload = self.transport.payload();
        let number = payload.first().copied();
        match &mut self.login.side {
            Side::Server(auth) => {
                let Some(session) = session(&self.transport) else {
                    return Ok(());
                };
                let handled = auth.handle_message(&session, payload);
                // A password or an answer may stand in it.
                self.transport.wipe_payload();
                handled?;
                if auth.is_waiting() {
                    self.signs.tell(Event::AuthRequest);
                }
            }
            Side::Client(auth) => {
                auth.handle_message(payload)?;
                if number == Some(SSH_MSG_USERAUTH_SUCCESS) {
                    self.login.is_done = true;
                    self.transport.on_authenticated(now);
                    self.on_authenticated(now);
                } else if number != Some(SSH_MSG_USERAUTH_BANNER) && !auth.is_proof_sent() {
                    self.rewind_early();
                }
                self.take_login_events();
            }
        }
        Ok(())
    }

    fn take_login_events(&mut self) {
        let Side::Client(auth) = &mut self.login.side else {
            return;
        };
        while let Some(event) = auth.poll_event() {
            match event {
                client::Event::Banner => self.signs.tell(Event::Banner),
                client::Event::Needed => self.signs.tell(Event::AuthNeeded),
                client::Event::SignatureNeeded => self.signs.tell(Event::SignatureNeeded),
                client::Event::Prompt => self.signs.tell(Event::Prompt),
                // Told with what follows from it.
                client::Event::Authenticated => {}
            }
        }
    }

    /// All packets that are there were opened: tells what waits for that.
    pub(super) fn after_transport(&mut self) {
        if self.transport.host_key().is_some() && !self.is_host_key_told {
            self.is_host_key_told = true;
            self.signs.tell(Event::HostKey);
        }
        if !self.login.is_done && self.transport.is_encrypted() {
            self.login.fetch(&self.transport);
            self.take_login_events();
        }
    }

    /// Sends what authentication has to say. False when it did not all go.
    pub(super) fn send_login(&mut self, now: Instant, out: &mut TxBuf) -> Result<bool, Error> {
        loop {
            self.login.fetch(&self.transport);
            let Some(message) = &self.login.outgoing else {
                return Ok(true);
            };
            let is_success = message.first() == Some(&SSH_MSG_USERAUTH_SUCCESS);
            if !seal(&mut self.transport, out, message)? {
                return Ok(false);
            }
            self.login.outgoing = None;
            if is_success {
                self.login.is_done = true;
                self.transport.on_authenticated(now);
                self.on_authenticated(now);
            } else if self.login.is_attempt_decisive() {
                self.list_eager();
            }
        }
    }
}
