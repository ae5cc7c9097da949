//! Further connections to a host that somebody is logged in to, without asking again.

use super::ask::Asker;
use super::connect::{Context, connect};
use super::connection::Connection;
use super::error::Error;
use super::sftp::Sftp;
use crate::config::ssh_config::{HostConfig, LogLevel};

/// Makes them. What needs a person - a password, a passphrase, a new host key - fails.
#[derive(Clone, Debug)]
pub struct Reconnect {
    host: HostConfig,
    /// As the first connection had it.
    context: Context,
    first: Connection,
}

impl Reconnect {
    /// To the host of `first`, as it was configured.
    #[must_use]
    pub fn new(host: &HostConfig, context: &Context, first: &Connection) -> Self {
        let mut host = host.clone();
        // The first refusal counts.
        host.connection.connection_attempts = 1;
        Self {
            host,
            context: context.clone(),
            first: first.clone(),
        }
    }

    /// Connects, logs in and opens an SFTP session.
    ///
    /// # Errors
    /// As [`connect`]; and where the first login had to ask somebody, without trying.
    pub async fn connect(&self) -> Result<Sftp, Error> {
        if self.first.core.was_asked.get() {
            let why = "somebody would have to be asked for a password or passphrase again";
            return Err(Error::Connect(why.into()));
        }
        let context = Context {
            asker: Asker::nobody(),
            ..self.context.clone()
        };
        connect(&self.host, &context).await
    }

    /// Says what is for those who want to know more (`-v`).
    pub async fn tell(&self, text: String) {
        if self.host.session.log_level >= LogLevel::Verbose {
            let text = format!("{}: {text}", self.host.host_name);
            self.context.asker.tell(text).await;
        }
    }
}
