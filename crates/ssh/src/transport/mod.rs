//! The transport protocol of one connection, both roles: version lines, key exchange, packets.
//!
//! Owns the receive buffer, the keys and every message up to 49. Does not own what is above.
//! Read first: RFC 4253, OpenSSH PROTOCOL 1.10 (strict key exchange), RFC 8308.

mod control;
mod dispatch;
mod exchange;
mod ext_info;
mod host_key;
mod loan;
mod pace;
#[cfg(test)]
mod tests;
mod transmit;
mod version;

pub use host_key::{HostKeyOffer, HostKeyVerified};
pub(crate) use loan::PayloadLoan;
pub(crate) use version::is_fullbore;

use crate::cipher::Suite;
use crate::config::{
    ClientConfig, HostKey, PACKET_LEN_MAX, RECEIVE_BYTES_BEFORE_AUTH, ServerConfig, TransportConfig,
};
use crate::error::{Closed, Error};
use crate::kex::{HostKeyAlgorithm, Method, Proposal};
use crate::msg::DisconnectReason;
use crate::packet::{Compression, Opened, Opener, Sealer};
use crate::provider::Provider;
use control::ControlQueue;
use exchange::{Exchange, Step};
use fullbore_base::{Instant, RxBuf};
use std::sync::Arc;
use version::Versions;

/// One connection's transport.
///
/// `next_packet` opens packets one after another and stops at each that is for the layers above;
/// `poll_transmit` seals what the transport itself has to say, and must run before `seal` and
/// `seal_at` whenever it has something (order on the wire is order of sealing).
pub struct Transport {
    role: Role,
    provider: Box<dyn Provider>,
    versions: Versions,
    rx: RxBuf,
    opener: Opener,
    /// The packet at the front of `rx`, until the next one is asked for.
    current: Option<Opened>,
    sealer: Sealer,
    control: ControlQueue,
    gate: Gate,
    exchange: Exchange,
    session: Option<Session>,
    extensions: PeerExtensions,
    ext_info_count: u32,
    is_authenticated: bool,
    error: Option<Error>,
    /// The DISCONNECT of a dead connection, until it is sealed.
    goodbye: Option<Vec<u8>>,
}

/// Whether messages above 49 may be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// They may.
    Open,
    /// Own KEXINIT is queued or sent, own NEWKEYS not.
    Closed,
    /// Own NEWKEYS is sent; what is queued behind it goes first.
    Opening,
}

/// Which end this is, and what it was told.
enum Role {
    Client(Arc<ClientConfig>),
    Server(Arc<ServerConfig>),
}

impl Role {
    const fn is_client(&self) -> bool {
        match self {
            Self::Client(_) => true,
            Self::Server(_) => false,
        }
    }

    fn transport(&self) -> &TransportConfig {
        match self {
            Self::Client(config) => &config.transport,
            Self::Server(config) => &config.transport,
        }
    }

    /// The first key that serves `algorithm`.
    fn host_key(&self, algorithm: HostKeyAlgorithm) -> Option<&dyn HostKey> {
        match self {
            Self::Client(_) => None,
            Self::Server(config) => config
                .host_keys
                .iter()
                .find(|key| key.blob(algorithm.name()).is_some())
                .map(|key| &**key),
        }
    }
}

/// What the first exchange fixed, and the algorithms of the latest.
struct Session {
    id: Vec<u8>,
    algorithms: Algorithms,
    /// Of the first exchange: the key that the client's application accepted, or that the server
    /// showed. Hostbound authentication names it.
    host_key: Option<HostKeyOffer>,
}

/// What was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithms {
    /// Key exchange method.
    pub kex: Method,
    /// Host key algorithm.
    pub host_key: HostKeyAlgorithm,
    /// How packets from the client are protected.
    pub client_to_server: Suite,
    /// How packets from the server are protected.
    pub server_to_client: Suite,
    /// Compression of packets from the client.
    pub compression_client_to_server: Compression,
    /// Compression of packets from the server.
    pub compression_server_to_client: Compression,
    /// Whether strict key exchange is in force.
    pub strict: bool,
}

/// RFC 8308: what the peer announced in EXT_INFO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerExtensions {
    /// `server-sig-algs`: what the server verifies user keys with.
    pub server_sig_algs: Option<Vec<String>>,
    /// `ping@openssh.com` at version 0.
    pub ping: bool,
    /// `publickey-hostbound@openssh.com` at version 0.
    pub publickey_hostbound: bool,
}

impl Transport {
    /// A client's side. Version line and KEXINIT wait in `poll_transmit`.
    #[must_use]
    pub fn client(config: Arc<ClientConfig>, provider: Box<dyn Provider>, now: Instant) -> Self {
        Self::new(Role::Client(config), provider, now)
    }

    /// A server's side. Version line and KEXINIT wait in `poll_transmit`.
    #[must_use]
    pub fn server(config: Arc<ServerConfig>, provider: Box<dyn Provider>, now: Instant) -> Self {
        Self::new(Role::Server(config), provider, now)
    }

    fn new(role: Role, provider: Box<dyn Provider>, now: Instant) -> Self {
        let config = role.transport();
        let versions = Versions::new(&config.software_version, role.is_client());
        let rx = RxBuf::new(RECEIVE_BYTES_BEFORE_AUTH);
        let mut transport = Self {
            role,
            provider,
            versions,
            rx,
            opener: Opener::new(),
            current: None,
            sealer: Sealer::new(),
            control: ControlQueue::default(),
            gate: Gate::Closed,
            exchange: Exchange::new(now),
            session: None,
            extensions: PeerExtensions::default(),
            ext_info_count: 0,
            is_authenticated: false,
            error: None,
            goodbye: None,
        };
        if let Err(error) = transport.start_exchange(now) {
            transport.fail(error);
        }
        transport
    }

    /// Memory to read the socket into; empty is back-pressure.
    pub fn input_space(&mut self) -> &mut [u8] {
        self.rx.space()
    }

    /// `n` bytes were written to the front of `input_space`.
    ///
    /// # Errors
    /// The error of a dead connection.
    pub fn handle_input(&mut self, _now: Instant, n: usize) -> Result<(), Error> {
        self.check_alive()?;
        self.rx.filled(n);
        Ok(())
    }

    /// The stream ended; what was received before is gone unless it was taken.
    ///
    /// # Errors
    /// `Closed::Eof`, or the error that the connection died of before.
    pub fn handle_eof(&mut self, _now: Instant) -> Result<(), Error> {
        self.fail(Closed::Eof.into());
        self.check_alive()
    }

    /// The next deadline: of a key exchange, of the keys' age, or of an answer that is held back.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.error.is_some() {
            return None;
        }
        let held = self.exchange.held.as_ref().map(|held| held.until);
        [self.exchange.deadline, self.rekey_time(), held]
            .into_iter()
            .flatten()
            .min()
    }

    /// A deadline passed; an early call does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.error.is_some() {
            return;
        }
        if self.exchange.deadline.is_some_and(|at| at <= now) {
            let after = self.role.transport().kex_timeout;
            self.fail(Closed::KexTimeout { after }.into());
            return;
        }
        self.rekey_if_due(now);
        if let Err(error) = self.is_holding(now) {
            self.fail(error);
        }
    }

    /// Received bytes that were moved within the receive buffer so far.
    pub(crate) const fn moved_bytes(&self) -> u64 {
        self.rx.moved_bytes()
    }

    /// Key exchanges done so far, the first one counted.
    #[must_use]
    pub const fn key_exchange_count(&self) -> u64 {
        self.exchange.done_count
    }

    /// When the age of the keys asks for new ones.
    fn rekey_time(&self) -> Option<Instant> {
        let may_start = self.is_authenticated && self.exchange.is_idle();
        let time = self.role.transport().rekey.time?;
        may_start.then(|| self.exchange.last_done + time)
    }

    /// The server's key, its signature verified, waiting for a verdict.
    #[must_use]
    pub fn host_key(&self) -> Option<&HostKeyOffer> {
        match &self.exchange.step {
            Step::AwaitVerdict(_, _, offer) if self.error.is_none() => Some(offer),
            Step::AwaitVerdict(..)
            | Step::Idle
            | Step::AwaitInit
            | Step::Client(..)
            | Step::Server(..)
            | Step::AwaitNewKeys(_) => None,
        }
    }

    /// The host key of the first exchange, for the life of the connection: the one that the client
    /// accepted, or that the server showed.
    #[must_use]
    pub fn accepted_host_key(&self) -> Option<&HostKeyOffer> {
        self.session.as_ref()?.host_key.as_ref()
    }

    /// The host key is the right one: the exchange goes on.
    ///
    /// # Errors
    /// `NoSuchHostKey` when none waits or the proof is for another, or the error of a dead
    /// connection.
    pub fn accept_host_key(&mut self, now: Instant, proof: HostKeyVerified) -> Result<(), Error> {
        self.check_alive()?;
        self.on_verdict(now, proof)
    }

    /// The host key is not the right one: the connection ends, and the peer is told.
    pub fn reject_host_key(&mut self, _now: Instant, why: &str) {
        self.on_rejection(why);
    }

    /// Authentication succeeded: delayed compression starts with the next packet each way, and
    /// keys may be replaced. A client calls it when it has taken USERAUTH_SUCCESS, before the next
    /// `next_packet`; a server right after it sealed it.
    pub fn on_authenticated(&mut self, _now: Instant) {
        self.is_authenticated = true;
        let bytes = self.role.transport().receive_buffer_bytes;
        self.rx.grow(bytes.max(RECEIVE_BUFFER_BYTES_MIN));
        self.sealer.direction.on_authenticated();
        self.opener.direction.on_authenticated();
    }

    /// Ends the connection with `error`; `poll_transmit` then yields DISCONNECT with the error's
    /// code, if it has one. The first error stays.
    pub fn fail(&mut self, error: Error) {
        if self.error.is_some() || matches!(error, Error::ApiMisuse(_)) {
            return;
        }
        self.goodbye = error
            .disconnect_reason()
            .map(|reason| transmit::disconnect_message(reason, &error));
        self.control.clear();
        self.current = None;
        self.error = Some(error);
    }

    /// Ends the connection; `poll_transmit` then yields DISCONNECT.
    pub fn disconnect(&mut self, reason: DisconnectReason, description: &str) {
        self.fail(
            Closed::ByUs {
                reason,
                description: description.to_owned(),
            }
            .into(),
        );
    }

    /// What the connection died of.
    #[must_use]
    pub const fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    fn check_alive(&self) -> Result<(), Error> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// RFC 4253 7.2: the exchange hash of the first exchange.
    #[must_use]
    pub fn session_id(&self) -> Option<&[u8]> {
        self.session.as_ref().map(|session| session.id.as_slice())
    }

    /// What the latest exchange agreed on.
    #[must_use]
    pub fn algorithms(&self) -> Option<&Algorithms> {
        self.session.as_ref().map(|session| &session.algorithms)
    }

    /// The peer's version line without CR LF; empty until it came.
    #[must_use]
    pub fn remote_version(&self) -> &[u8] {
        self.versions.remote()
    }

    /// What the peer's first KEXINIT offered, once it came.
    #[must_use]
    pub const fn remote_proposal(&self) -> Option<&Proposal> {
        self.exchange.remote_proposal.as_ref()
    }

    /// What the peer announced in EXT_INFO so far.
    #[must_use]
    pub const fn peer_extensions(&self) -> &PeerExtensions {
        &self.extensions
    }

    /// Whether packets are encrypted both ways.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.opener.direction.has_key() && self.sealer.direction.has_key()
    }

    /// Whether this is the client's end.
    #[must_use]
    pub const fn is_client(&self) -> bool {
        self.role.is_client()
    }
}

/// The longest packet with the longest tag.
const RECEIVE_BUFFER_BYTES_MIN: usize = 4 + PACKET_LEN_MAX as usize + 64;

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport")
            .field("is_client", &self.role.is_client())
            .field("algorithms", &self.algorithms())
            .field("gate", &self.gate)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
