//! Making contact with a server: with the haste that an earlier connection permits, and once more
//! without it where the server ended the connection over that.

use std::task::Poll;

use fullbore_sftp::client as sftp;
use fullbore_ssh::Error as SshError;
use fullbore_ssh::error::Closed;

use super::ahead::Ahead;
use super::connect::{Context, Way, log_in, reach, start, through};
use super::connection::{Connection, PlainChannel};
use super::error::Error;
use super::lane::Lane;
use super::login::LoggedIn;
use super::proposal::Haste;
use super::remembered::{Memory, Seen};
use super::shared;
use crate::config::fingerprint;
use crate::config::ssh_config::{HostConfig, LogLevel};
use crate::driver::random;

/// How a host is reached.
pub(super) enum Route {
    /// As its configuration says, through so many hosts at most.
    AsConfigured { jumps_max: usize },
    /// Through a connection that is there.
    Through(Connection),
}

/// The SFTP session that is to be opened at once, and what it is asked at once.
pub(super) struct First<'a> {
    pub(super) config: sftp::Config,
    pub(super) ahead: &'a [Ahead],
}

/// A contact to be made.
pub(super) struct Contact<'a> {
    pub(super) host: &'a HostConfig,
    pub(super) context: &'a Context,
    pub(super) route: Route,
    pub(super) first: Option<First<'a>>,
    /// The command that is to be run at once.
    pub(super) command: Option<&'a [u8]>,
}

/// A contact that was made.
pub(super) struct Made {
    pub(super) connection: Connection,
    /// Where one was asked for.
    pub(super) lane: Option<Lane>,
    /// The channel of the command, where one was to be run.
    pub(super) channel: Option<PlainChannel>,
    logged_in: LoggedIn,
}

/// One that was not.
struct Failed {
    error: Error,
    /// The connection ended before the server had decided on what was sent ahead.
    is_undecided: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self {
            error,
            is_undecided: false,
        }
    }
}

impl Contact<'_> {
    /// Connects and logs in.
    pub(super) async fn make(&self) -> Result<Made, Error> {
        if let Some(made) = self.share().await {
            return Ok(made);
        }
        let memory = Memory::of(self.host, &*self.context.environment);
        let (seen, remark) = memory
            .as_ref()
            .map_or((None, None), |memory| memory.recall());
        if let Some(remark) = remark {
            self.tell(remark).await;
        }
        let haste = match &seen {
            None => Haste::ByName,
            Some(seen) if seen.bears_haste => Haste::AsSeen(seen),
            Some(_) => Haste::None,
        };
        if let Some(seen) = &seen {
            self.tell(format!("{}: {}", self.host.host_name, seen.describe()))
                .await;
        }
        let (made, was_too_hasty) = match self.attempt(haste, seen.as_ref()).await {
            Ok(made) => (made, false),
            Err(failed) if failed.is_undecided => {
                let text = format!(
                    "{}: once more, with nothing sent ahead: {}",
                    self.host.host_name, failed.error
                );
                self.tell(text).await;
                let made = self.attempt(Haste::None, seen.as_ref()).await;
                (made.map_err(|failed| failed.error)?, true)
            }
            Err(failed) => return Err(failed.error),
        };
        if let Some(memory) = memory {
            self.keep(&memory, seen.as_ref(), &made, was_too_hasty)
                .await;
        }
        Ok(made)
    }

    /// Over the connection that another command has left, if there is one and it answers.
    async fn share(&self) -> Option<Made> {
        let first = self.first.as_ref()?;
        let shared = async {
            let connection = match shared::join(self.host, self.context).await? {
                Ok(connection) => connection,
                Err(error) => return Some(Err(error)),
            };
            Some(self.open_shared(connection, first).await)
        };
        let shared = tokio::time::timeout(shared::ANSWER_MAX, shared).await;
        let why = match shared {
            Ok(None) => return None,
            Ok(Some(Ok(made))) => {
                let host = &self.host.host_name;
                self.tell(format!("{host}: over the connection of an earlier command"))
                    .await;
                return Some(made);
            }
            Ok(Some(Err(error))) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        self.tell(format!(
            "{}: not over the connection of an earlier command: {why}",
            self.host.host_name
        ))
        .await;
        None
    }

    async fn open_shared(&self, connection: Connection, first: &First<'_>) -> Result<Made, Error> {
        let lane = Lane::open(&connection, first.config.clone())?;
        lane.ask_ahead(first.ahead)?;
        // A master that cannot open a session says so here.
        lane.ready().await?;
        Ok(Made {
            connection,
            lane: Some(lane),
            channel: None,
            logged_in: LoggedIn::elsewhere(),
        })
    }

    async fn way(&self) -> Result<Way, Error> {
        match &self.route {
            Route::AsConfigured { jumps_max } => reach(self.host, self.context, *jumps_max).await,
            Route::Through(carrier) => through(carrier.clone(), self.host).await,
        }
    }

    async fn attempt(&self, haste: Haste<'_>, seen: Option<&Seen>) -> Result<Made, Failed> {
        random::prepare();
        let connection = start(self.host, self.context, self.way().await?, haste)?;
        // Its messages wait in the connection until they may go.
        let lane = match &self.first {
            Some(first) => {
                let lane = Lane::open(&connection, first.config.clone())?;
                lane.ask_ahead(first.ahead)?;
                Some(lane)
            }
            None => None,
        };
        let channel = match self.command {
            Some(command) => Some(PlainChannel::command(&connection, command)?),
            None => None,
        };
        let failed = |error| Failed {
            error,
            is_undecided: is_undecided(&connection, haste),
        };
        let logged_in = log_in(&connection, self.host, self.context, seen)
            .await
            .map_err(failed)?;
        if let (Some(lane), Some(first)) = (&lane, &self.first)
            && (!first.ahead.is_empty() || is_ahead(&connection))
            && let Err(error) = lane.ready().await
        {
            // The answer comes in one flight with those to what was asked ahead; and a server that does not
            // bear what was sent ahead of its consent has to say so while there is another way. What
            // has nothing to do with either is told to whoever asks for something.
            let failed = failed(error);
            if failed.is_undecided || !first.ahead.is_empty() {
                return Err(failed);
            }
        }
        if let Some(channel) = &channel
            && is_ahead(&connection)
        {
            let _ = std::future::poll_fn(|cx| match channel.poll_started(cx) {
                Some(is_started) => Poll::Ready(is_started),
                None => Poll::Pending,
            })
            .await;
            if let Some(error) = connection.core.look(|state| state.closed().cloned()) {
                return Err(failed(error));
            }
        }
        Ok(Made {
            connection,
            lane,
            channel,
            logged_in,
        })
    }

    async fn keep(
        &self,
        memory: &Memory<'_>,
        seen: Option<&Seen>,
        made: &Made,
        was_too_hasty: bool,
    ) {
        let now = made.connection.core.look(|state| {
            let conn = state.session.conn();
            let proposal = conn.remote_proposal()?;
            Some(Seen {
                host_key: fingerprint(conn.accepted_host_key()?.blob()),
                user_key: made.logged_in.key.clone(),
                bears_haste: !was_too_hasty && seen.is_none_or(|seen| seen.bears_haste),
                kex: proposal.kex.clone(),
                host_keys: proposal.host_keys.clone(),
                version: conn.remote_version().to_vec(),
            })
        });
        let Some(mut now) = now else { return };
        if !was_too_hasty && seen.is_some_and(|seen| seen.version != now.version) {
            // Another server, or another version of it: it may bear what the old one did not.
            now.bears_haste = true;
        }
        if let Err(remark) = memory.keep(&now) {
            self.tell(remark).await;
        }
    }

    async fn tell(&self, text: String) {
        if self.host.session.log_level >= LogLevel::Verbose {
            self.context.asker.tell(text).await;
        }
    }
}

/// Whether the server has not consented yet to what was sent ahead.
fn is_ahead(connection: &Connection) -> bool {
    connection
        .core
        .look(|state| state.session.conn().is_ahead_of_consent())
}

/// Whether the server, or we ourselves over its answers, ended the connection when it had spoken but
/// not decided on what was sent ahead: haste is the likeliest reason.
fn is_undecided(connection: &Connection, haste: Haste<'_>) -> bool {
    connection.core.look(|state| {
        let conn = state.session.conn();
        // Who does not trust the key decides for good; nobody is asked twice.
        let is_ours = matches!(
            conn.error(),
            None | Some(SshError::Closed(Closed::HostKeyRejected { .. }))
        );
        if is_ours || conn.remote_version().is_empty() {
            return false;
        }
        let is_ahead = conn.is_ahead_of_consent();
        match conn.is_authenticated() {
            true => is_ahead,
            // An attempt that was refused was decided on, but for what came behind it.
            false => {
                let methods = conn.auth_methods();
                let is_first = methods.is_none_or(|methods| methods.offered.is_none());
                conn.was_ahead_of_success()
                    || is_first && (is_ahead || matches!(haste, Haste::AsSeen(_)))
            }
        }
    })
}
