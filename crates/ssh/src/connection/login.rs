//! Authentication as the connection sees it.

use super::Connection;
use crate::config::{ClientConfig, ServerConfig};
use crate::error::Error;
use fullbore_base::Instant;

/// How far the user's authentication has come.
#[derive(Debug)]
pub(super) enum Login {
    /// Client.
    Client,
    /// Server.
    Server,
}

impl Login {
    pub(super) fn client(_config: &ClientConfig) -> Self {
        Self::Client
    }

    pub(super) fn server(_config: &ServerConfig) -> Self {
        Self::Server
    }

    pub(super) const fn is_server(&self) -> bool {
        matches!(self, Self::Server)
    }

    /// Server: the application has an authentication request to answer.
    pub(super) const fn is_answer_owed(&self) -> bool {
        false
    }

    /// Client: an attempt is under way whose answer may be success.
    pub(super) const fn is_attempt_decisive(&self) -> bool {
        false
    }
}

impl Connection {
    /// Whether the user is known.
    #[must_use]
    pub const fn is_authenticated(&self) -> bool {
        false
    }

    pub(super) fn handle_login(&mut self, _now: Instant) -> Result<(), Error> {
        Ok(())
    }

    /// Queues what authentication has to say.
    pub(super) fn login_output(&mut self) {}

    /// Notes what the transport has to tell once it opened all it could.
    pub(super) fn after_transport(&mut self, _now: Instant) {}
}
