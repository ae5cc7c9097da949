//! The front door: joins transport, authentication and channels for either role.
//!
//! Owns the order in which messages are opened and sent, the table of channels and every timer above
//! the transport's. Does not own packets and keys (`transport`), who the user is (`auth`), or the
//! rules of a single channel (`channel`). Read first: RFC 4254.

mod ahead;
mod channels;
mod config;
mod dispatch;
mod event;
mod gate;
mod global;
mod liveness;
mod loan;
mod login;
mod opening;
mod outlet;
mod requests;
mod stats;
mod table;
mod transmit;
mod windows;

pub use config::*;
pub use event::{Event, Transmit};
pub use loan::Loan;
pub use outlet::ChannelOutlet;
pub use stats::Stats;
pub use windows::{ChannelWindows, WindowsUse};

use crate::channel::{MessageQueue, Stream};
use crate::config::{ClientConfig, PAYLOAD_BYTES_MAX, ServerConfig};
use crate::error::{ApiMisuse, Closed, Error};
use crate::kex::Proposal;
use crate::msg::DisconnectReason;
use crate::provider::Provider;
use crate::transport::{Algorithms, HostKeyOffer, HostKeyVerified, Transport};
use event::Signs;
use fullbore_base::{Instant, TxBuf};
use global::Globals;
use liveness::Liveness;
use login::Login;
use std::sync::Arc;
use std::time::Duration;
use table::Table;

/// One SSH connection, either role, without I/O. The crate's page says what its verbs promise.
#[derive(Debug)]
pub struct Connection {
    transport: Transport,
    login: Login,
    config: ConnectionConfig,
    /// Client: see [`ClientConfig::patient_version`].
    patient_version: Option<Vec<u8>>,
    /// Client: see [`Connection::presume_patience`].
    is_patience_presumed: bool,
    /// Client: something went between the last attempt to log in and its answer.
    was_ahead_of_success: bool,
    table: Table,
    /// Channel bytes that lie where they were opened.
    lent: Option<Lent>,
    /// Messages above the transport's that go before any channel data, oldest first.
    control: MessageQueue,
    globals: Globals,
    liveness: Liveness,
    /// What the application has not been told about the connection as a whole.
    signs: Signs,
    /// A channel whose last event was told: removed when the next event is asked for.
    retired: Option<usize>,
    /// A channel that the peer asked for and the application has not answered.
    asked: Option<usize>,
    /// Channels whose unanswered requests are at their limit.
    full_requests: usize,
    is_host_key_told: bool,
    /// The peer's stream has ended; told to the transport once all of it was opened.
    is_eof: bool,
    /// Nothing can be sent any more either.
    is_reset: bool,
    is_closed_told: bool,
    /// A channel is due credit that the share does not have.
    has_starved: bool,
    /// Bytes consumed since starved channels last asked again.
    freed: u64,
    /// The share was lowered below what is held.
    is_over_share: bool,
    /// What the windows use or want may have changed since the owner of the share looked.
    has_windows_changed: bool,
    stats: Stats,
    /// Memory in which messages are built.
    scratch: Vec<u8>,
}

/// The unread part of the channel message that was opened last: a range of the transport's payload.
#[derive(Clone, Copy, Debug)]
struct Lent {
    slot: usize,
    stream: Stream,
    start: usize,
    end: usize,
}

/// Room in the control queue above the level at which no further packet is opened: one reply as long
/// as a packet (a pong), and answers that the application gives later (9 bytes each, all channels).
const CONTROL_SLACK_BYTES: usize = PAYLOAD_BYTES_MAX + 64 * 1024;

impl Connection {
    /// The client's side of a connection that has just been made.
    #[must_use]
    pub fn client(config: Arc<ClientConfig>, provider: Box<dyn Provider>, now: Instant) -> Self {
        let login = Login::client(&config);
        let connection = config.connection;
        let patient_version = config.patient_version.clone();
        let transport = Transport::client(config, provider, now);
        Self {
            patient_version,
            ..Self::new(transport, login, connection, now)
        }
    }

    /// The server's side of a connection that has just been accepted.
    #[must_use]
    pub fn server(config: Arc<ServerConfig>, provider: Box<dyn Provider>, now: Instant) -> Self {
        let login = Login::server(&config);
        let connection = config.connection;
        let host_keys = config.host_keys.clone();
        let mut this = Self::new(
            Transport::server(config, provider, now),
            login,
            connection,
            now,
        );
        this.globals.host_keys = host_keys;
        this
    }

    fn new(transport: Transport, login: Login, config: ConnectionConfig, now: Instant) -> Self {
        let config = config.clamped(login.is_server());
        Self {
            transport,
            login,
            patient_version: None,
            is_patience_presumed: false,
            was_ahead_of_success: false,
            table: Table::default(),
            lent: None,
            control: MessageQueue::new(CONTROL_BYTES_MAX + CONTROL_SLACK_BYTES),
            globals: Globals::default(),
            liveness: Liveness::new(&config, now),
            signs: Signs::default(),
            retired: None,
            asked: None,
            full_requests: 0,
            is_host_key_told: false,
            is_eof: false,
            is_reset: false,
            is_closed_told: false,
            has_starved: false,
            freed: 0,
            is_over_share: false,
            has_windows_changed: true,
            stats: Stats::default(),
            scratch: Vec::new(),
            config,
        }
    }

    /// Memory to read the socket into. Empty is back-pressure: poll events and transmit first.
    pub fn input_space(&mut self) -> &mut [u8] {
        self.transport.input_space()
    }

    /// Takes note that `n` bytes were read to the front of [`Connection::input_space`]. O(1).
    ///
    /// # Errors
    /// The error that ended the connection.
    pub fn handle_input(&mut self, now: Instant, n: usize) -> Result<(), Error> {
        self.alive()?;
        self.stats.wire_bytes_received += n as u64;
        self.liveness.on_input(now);
        let result = self.transport.handle_input(now, n);
        self.keep_error(result)
    }

    /// Takes note that the peer sends nothing more. What was received before is still opened by
    /// [`Connection::poll_event`], then the connection ends.
    ///
    /// # Errors
    /// The error that ended the connection.
    pub fn handle_eof(&mut self, _now: Instant) -> Result<(), Error> {
        self.alive()?;
        self.is_eof = true;
        Ok(())
    }

    /// As [`Connection::handle_eof`], for a stream that is broken: nothing can be sent either, so
    /// what would have to be sent before more is opened ends the connection too.
    ///
    /// # Errors
    /// The error that ended the connection.
    pub fn handle_reset(&mut self, now: Instant) -> Result<(), Error> {
        self.is_reset = true;
        self.handle_eof(now)
    }

    /// Takes note of time. An early call does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.error().is_some() {
            return;
        }
        self.transport.handle_timeout(now);
        self.handle_liveness(now);
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.error().is_some() {
            return None;
        }
        [self.transport.poll_timeout(), self.liveness.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Why the connection is over; `None` while it is not.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.transport.error()
    }

    /// Ends the connection: the peer is told, then nothing more is sent.
    pub fn disconnect(&mut self, _now: Instant, reason: DisconnectReason, text: &str) {
        if self.error().is_none() {
            self.transport.disconnect(reason, text);
        }
    }

    /// Starts a key exchange now, unless one runs.
    ///
    /// # Errors
    /// `ApiMisuse` before the first exchange is done.
    pub fn rekey(&mut self, now: Instant) -> Result<(), Error> {
        self.alive()?;
        self.transport.rekey(now)
    }

    /// Key exchanges done so far, the first one counted.
    #[must_use]
    pub const fn key_exchange_count(&self) -> u64 {
        self.transport.key_exchange_count()
    }

    /// Client: the server's host key, proved and waiting for a verdict.
    #[must_use]
    pub fn host_key(&self) -> Option<&HostKeyOffer> {
        self.transport.host_key()
    }

    /// The host key that was accepted.
    #[must_use]
    pub fn accepted_host_key(&self) -> Option<&HostKeyOffer> {
        self.transport.accepted_host_key()
    }

    /// Client: the host key is the right one; the connection goes on.
    ///
    /// # Errors
    /// `ApiMisuse::NoSuchHostKey` when the proof is for another key.
    pub fn accept_host_key(&mut self, now: Instant, proof: HostKeyVerified) -> Result<(), Error> {
        self.alive()?;
        self.transport.accept_host_key(now, proof)
    }

    /// Client: the host key is the wrong one; the connection ends.
    pub fn reject_host_key(&mut self, now: Instant, why: &str) {
        self.transport.reject_host_key(now, why);
    }

    /// What the peer's version line says, without CR LF.
    #[must_use]
    pub fn remote_version(&self) -> &[u8] {
        self.transport.remote_version()
    }

    /// What the peer offered at the start, once it did.
    #[must_use]
    pub const fn remote_proposal(&self) -> Option<&Proposal> {
        self.transport.remote_proposal()
    }

    /// What was agreed on in the last key exchange.
    #[must_use]
    pub fn algorithms(&self) -> Option<&Algorithms> {
        self.transport.algorithms()
    }

    /// The first exchange hash, which names the connection for ever.
    #[must_use]
    pub fn session_id(&self) -> Option<&[u8]> {
        self.transport.session_id()
    }

    /// Counters so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Received bytes that were moved within the receive buffer and the open channels' backlogs so far: the
    /// part of the work that could grow with what waits. O(channels).
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        let channels = self.table.slots().filter_map(|slot| self.table.at(slot));
        let kept: u64 = channels.map(|channel| channel.input.moved_bytes()).sum();
        self.transport.moved_bytes() + kept
    }

    /// The round-trip time, smoothed as TCP does (RFC 6298), once it has been measured.
    #[must_use]
    pub const fn rtt(&self) -> Option<Duration> {
        self.liveness.srtt()
    }

    /// Whether the server's role is played here.
    #[must_use]
    pub const fn is_server(&self) -> bool {
        self.login.is_server()
    }

    fn alive(&self) -> Result<(), Error> {
        self.error().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Ends the connection on `error`, unless it is the caller's own or another came first.
    fn fail(&mut self, error: Error) {
        if self.error().is_none() && !matches!(error, Error::ApiMisuse(_)) {
            self.transport.fail(error);
        }
    }

    fn keep_error<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result {
            self.fail(error.clone());
        }
        result
    }

    /// Queues a message that was built in `scratch` to go before channel data.
    fn queue_scratch(&mut self) {
        let fits = self.control.push(&self.scratch);
        debug_assert!(fits, "every source of control messages has its own bound");
        if !fits {
            self.fail(Error::Closed(Closed::Crypto {
                what: "queueing a reply past its bound",
            }));
        }
        let peak = &mut self.stats.control_bytes_peak;
        *peak = (*peak).max(self.control.len());
    }

    const fn misuse(misuse: ApiMisuse) -> Error {
        Error::ApiMisuse(misuse)
    }

    /// Appends sealed packets to `out`: the transport's own, then control messages and window
    /// adjusts, then what the channels have staged, in turn. `None`: nothing to send, or no room.
    ///
    /// A buffer shorter than a longest packet ([`PAYLOAD_BYTES_MAX`] and a frame) works, with shorter
    /// packets, unless the peer asks for a longer reply (a ping of 200 KiB): that waits for ever.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let before = out.pending().len();
        self.transmit(now, out);
        let len = out.pending().len() - before;
        self.stats.wire_bytes_sent += len as u64;
        (len > 0).then_some(Transmit { len })
    }
}
