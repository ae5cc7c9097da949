//! What the server's messages do.

use super::{Authenticator, Awaited, Event, KeyAttempt, NAMES_SHOWN_BYTES_MAX, Outcome, State};
use crate::auth::{
    BANNER_BYTES_MAX, BANNERS_MAX, MethodSet, Prompts, ROUNDS_MAX, SERVICE_USERAUTH, Secret,
};
use crate::error::{Error, PeerMisbehaved};
use crate::key::Algorithm;
use crate::msg::{
    SSH_MSG_SERVICE_ACCEPT, SSH_MSG_USERAUTH_BANNER, SSH_MSG_USERAUTH_FAILURE,
    SSH_MSG_USERAUTH_PK_OK, SSH_MSG_USERAUTH_SUCCESS,
};
use crate::wire::Reader;

impl Authenticator {
    /// Takes a message of the server: SERVICE_ACCEPT or 50 to 79.
    ///
    /// # Errors
    /// `InvalidMessage` and `PeerMisbehaved`; the connection is over.
    pub fn handle_message(&mut self, payload: &[u8]) -> Result<(), Error> {
        let mut message = Reader::new(payload);
        match message.u8()? {
            SSH_MSG_SERVICE_ACCEPT => self.on_service_accept(message),
            _ if !self.is_service_accepted => Err(PeerMisbehaved::AuthSequence.into()),
            SSH_MSG_USERAUTH_BANNER => self.on_banner(message),
            SSH_MSG_USERAUTH_FAILURE => self.on_failure(message),
            SSH_MSG_USERAUTH_SUCCESS => self.on_success(message),
            SSH_MSG_USERAUTH_PK_OK => self.on_method_message(message),
            number => Err(PeerMisbehaved::UnexpectedMessage { message: number }.into()),
        }
    }

    fn on_service_accept(&mut self, mut message: Reader<'_>) -> Result<(), Error> {
        if message.string()? != SERVICE_USERAUTH.as_bytes() {
            return Err(PeerMisbehaved::UnknownService.into());
        }
        message.finish()?;
        if !self.is_service_requested || self.is_service_accepted {
            return Err(PeerMisbehaved::AuthSequence.into());
        }
        self.is_service_accepted = true;
        Ok(())
    }

    fn on_banner(&mut self, mut message: Reader<'_>) -> Result<(), Error> {
        let text = message.string()?;
        let _language = message.string()?;
        message.finish()?;
        // RFC 4252 5.4: "at any time after this authentication protocol starts and before
        // authentication is successful".
        if self.is_authenticated() {
            return Err(PeerMisbehaved::AuthSequence.into());
        }
        if self.banner_count == BANNERS_MAX {
            return Err(PeerMisbehaved::TooManyRequests.into());
        }
        self.banner_count += 1;
        let room = BANNER_BYTES_MAX - self.banner.len();
        self.banner.extend_from_slice(&text[..text.len().min(room)]);
        self.is_banner_told = false;
        Ok(())
    }

    fn on_failure(&mut self, mut message: Reader<'_>) -> Result<(), Error> {
        let names = message.name_list()?;
        let is_partial = message.bool()?;
        message.finish()?;
        if !matches!(self.state, State::Awaiting(_)) {
            return Err(PeerMisbehaved::AuthSequence.into());
        }
        self.methods.offered = Some(MethodSet::from_names(names));
        names
            .as_str()
            .get(..NAMES_SHOWN_BYTES_MAX)
            .unwrap_or(names.as_str())
            .clone_into(&mut self.methods.names);
        self.methods.partial_success |= is_partial;
        self.give_up(if is_partial {
            Outcome::Partial
        } else {
            Outcome::Refused
        });
        Ok(())
    }

    fn on_success(&mut self, message: Reader<'_>) -> Result<(), Error> {
        message.finish()?;
        match &self.state {
            // A query proves nothing, so there is nothing yet that could succeed.
            State::Awaiting(Awaited::KeyQuery { .. })
            | State::Idle
            | State::Queued(_)
            | State::Signing { .. }
            | State::Outgoing { .. }
            | State::Prompting { .. }
            | State::Done => Err(PeerMisbehaved::AuthSequence.into()),
            State::Awaiting(
                Awaited::None
                | Awaited::KeySigned
                | Awaited::Password(_)
                | Awaited::KeyboardInteractive,
            ) => {
                self.state = State::Done;
                self.untold = Some(Event::Authenticated);
                Ok(())
            }
        }
    }

    /// 60 means what the method in progress says.
    fn on_method_message(&mut self, message: Reader<'_>) -> Result<(), Error> {
        let unexpected = PeerMisbehaved::UnexpectedMessage {
            message: SSH_MSG_USERAUTH_PK_OK,
        };
        match core::mem::replace(&mut self.state, State::Idle) {
            State::Awaiting(Awaited::KeyQuery { attempt, algorithm }) => {
                self.on_key_ok(message, attempt, algorithm)
            }
            State::Awaiting(Awaited::Password(old)) => {
                let prompts = Prompts::parse_password_change(message)?;
                self.prompt(prompts, Some(old))
            }
            State::Awaiting(Awaited::KeyboardInteractive) => {
                let prompts = Prompts::parse(message)?;
                self.prompt(prompts, None)
            }
            other @ (State::Awaiting(Awaited::None | Awaited::KeySigned)
            | State::Idle
            | State::Queued(_)
            | State::Signing { .. }
            | State::Outgoing { .. }
            | State::Prompting { .. }
            | State::Done) => {
                self.state = other;
                Err(unexpected.into())
            }
        }
    }

    fn on_key_ok(
        &mut self,
        mut message: Reader<'_>,
        mut attempt: KeyAttempt,
        algorithm: Algorithm,
    ) -> Result<(), Error> {
        let name = message.string()?;
        let blob = message.string()?;
        message.finish()?;
        let is_ours = name == attempt.identity.algorithm_name(algorithm).as_bytes()
            && blob == attempt.identity.to_blob();
        if !is_ours {
            return Err(PeerMisbehaved::AuthSequence.into());
        }
        attempt.known = true;
        attempt.algorithm = Some(algorithm);
        self.state = State::Queued(super::Attempt::PublicKey(attempt));
        Ok(())
    }

    fn prompt(&mut self, prompts: Prompts, old: Option<Secret>) -> Result<(), Error> {
        if self.rounds == ROUNDS_MAX {
            return Err(PeerMisbehaved::TooManyRequests.into());
        }
        self.rounds += 1;
        // RFC 4256 3.2: without prompts and without anything to show, the answer is empty. OpenSSH's
        // PAM ends each conversation with such a round.
        let is_silent =
            prompts.prompts.is_empty() && prompts.name.is_empty() && prompts.instruction.is_empty();
        self.state = State::Prompting { prompts, old };
        if is_silent {
            return self.answer_prompts(Vec::new());
        }
        self.untold = Some(Event::Prompt);
        Ok(())
    }
}
