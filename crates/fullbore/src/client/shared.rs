//! A connection that another command has left behind, used by this one (ControlPath).
//!
//! The two processes are the same user's, which both have seen from the kernel, and talk SSH over a
//! socket of this machine: so everything that works on a connection works on a shared one, lanes and
//! commands included. Keys and logins mean nothing there.

use std::time::Duration;

use fullbore_ssh::auth::{Attempt, ClientAuth};
use fullbore_ssh::config::{ClientConfig, TransportConfig};
use fullbore_ssh::kex::Method;
use fullbore_ssh::transport::HostKeyVerified;
use fullbore_ssh::{Connection as Ssh, Event};

use super::connect::{Context, Way, start_with};
use super::connection::Connection;
use super::error::Error;
use crate::config::ssh_config::HostConfig;
use crate::driver::local_socket;
use crate::driver::stream::Stream;

/// How long a shared connection may take to answer before it is taken for dead. Longer than any path,
/// shorter than a person waits.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The one method that a master offers: nothing is recorded on this machine's own sockets.
pub(super) const KEX: Method = Method::Curve25519Sha256;

/// Why a process that shares a connection says nothing to a client.
const NO_PLACE: &str = "it is ending, or has no place free: 32 commands use it";
const _: () = assert!(super::master::CLIENTS_MAX == 32, "as told");

/// The number of the process that shares a connection to `host` with others, if one does.
#[must_use]
pub fn master_of(host: &HostConfig) -> Option<i32> {
    let sharing = host.connection.sharing.as_ref()?;
    local_socket::connect(&sharing.socket)
        .ok()
        .map(|(_, pid)| pid)
}

/// Ends the process that [`master_of`] names, and waits until it has gone.
///
/// # Errors
/// What the operating system says; `TimedOut` when it does not end.
pub fn stop_master(host: &HostConfig) -> std::io::Result<()> {
    match &host.connection.sharing {
        Some(sharing) => local_socket::end(&sharing.socket),
        None => Ok(()),
    }
}

/// A connection over the one that is shared; `None` where none is.
pub(super) async fn join(
    host: &HostConfig,
    context: &Context,
) -> Option<Result<Connection, Error>> {
    let sharing = host.connection.sharing.as_ref()?;
    let (socket, _) = local_socket::connect(&sharing.socket).ok()?;
    let stream = Stream::socket(socket).ok()?;
    let config = ClientConfig {
        auth: ClientAuth {
            user: host.user.clone().into_bytes(),
        },
        transport: TransportConfig {
            kex: vec![KEX],
            ..TransportConfig::default()
        },
        ..ClientConfig::default()
    };
    let connection = match start_with(config, host, context, Way::over(stream)) {
        Ok(connection) => connection,
        Err(error) => return Some(Err(error)),
    };
    connection.core.is_shared.set(true);
    let entered = enter(&connection).await;
    let is_mute = connection.remote_version().is_empty();
    let entered = entered.map_err(|error| match is_mute {
        true => Error::Connect(NO_PLACE.into()),
        false => error,
    });
    Some(entered.map(|()| connection))
}

async fn enter(connection: &Connection) -> Result<(), Error> {
    let core = &connection.core;
    loop {
        match core.news().await? {
            Event::HostKey => core.change(|state, now| {
                let conn: &mut Ssh = state.session.conn_mut();
                let Some(offer) = conn.host_key() else { return };
                // The kernel has said whose process it is.
                let proof = HostKeyVerified::by_application(offer);
                let _ = conn.accept_host_key(now, proof);
                let _ = conn.authenticate(Attempt::None);
            }),
            Event::Authenticated => return Ok(()),
            Event::HostKeysAnnounced
            | Event::HostKeysProved
            | Event::Banner
            | Event::AuthNeeded
            | Event::SignatureNeeded
            | Event::Prompt
            | Event::AuthRequest
            | Event::ChannelOpen(_)
            | Event::Opened(_)
            | Event::OpenFailed(_)
            | Event::Request(_)
            | Event::RequestDone { .. }
            | Event::Readable(_)
            | Event::ReadableStderr(_)
            | Event::Writable(_)
            | Event::Eof(_)
            | Event::ExitStatus(..)
            | Event::ExitSignal(_)
            | Event::ChannelClosed(_)
            | Event::Closed => {}
        }
    }
}
