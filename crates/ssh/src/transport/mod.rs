//! The transport protocol of one connection, both roles: version lines, key exchange, packets.
//!
//! Owns the receive buffer, the keys and every message up to 49. Does not own what is above.
//! Read first: RFC 4253, OpenSSH PROTOCOL 1.10 (strict key exchange), RFC 8308.

mod host_key;

pub use host_key::{HostKeyOffer, HostKeyVerified};

use crate::cipher::Suite;
use crate::config::{ClientConfig, ServerConfig};
use crate::error::Error;
use crate::kex::Method;
use crate::msg::DisconnectReason;
use crate::packet::Compression;
use crate::provider::Provider;
use fullbore_base::{Instant, TxBuf};
use std::sync::Arc;

/// One connection's transport.
#[derive(Debug)]
pub struct Transport {}

/// What was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithms {
    /// Key exchange method.
    pub kex: Method,
    /// Host key algorithm.
    pub host_key: String,
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

#[allow(clippy::todo, missing_docs, unused_variables)]
impl Transport {
    pub fn client(config: Arc<ClientConfig>, provider: Box<dyn Provider>, now: Instant) -> Self {
        todo!()
    }
    pub fn server(config: Arc<ServerConfig>, provider: Box<dyn Provider>, now: Instant) -> Self {
        todo!()
    }

    /// Memory to read the socket into; empty is back-pressure.
    pub fn input_space(&mut self) -> &mut [u8] {
        todo!()
    }
    /// `n` bytes were written to the front of `input_space`.
    pub fn handle_input(&mut self, now: Instant, n: usize) -> Result<(), Error> {
        todo!()
    }
    /// The stream ended.
    pub fn handle_eof(&mut self, now: Instant) -> Result<(), Error> {
        todo!()
    }
    /// Drops the current packet and opens the next in place. True: `payload` is a message of the
    /// layers above (5, 6, 50..). False: more input is needed, a host key waits for its verdict,
    /// or `poll_transmit` must run first. Messages 1-49 are handled inside (not 5 and 6).
    pub fn next_packet(&mut self, now: Instant) -> Result<bool, Error> {
        todo!()
    }
    /// The current message, number first.
    pub fn payload(&self) -> &[u8] {
        todo!()
    }
    /// The current message, to be changed in place.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        todo!()
    }
    /// Answers the current message with UNIMPLEMENTED (bounded: see CONTROL_BYTES_MAX).
    pub fn reject_unknown(&mut self) {
        todo!()
    }

    /// Whether messages above 49 may be sealed now.
    pub fn may_send(&self) -> bool {
        todo!()
    }
    /// Whether packets are encrypted and both NEWKEYS of the first exchange are done.
    pub fn is_encrypted(&self) -> bool {
        todo!()
    }
    /// Appends one message. Ok(false): `out` has no room for `sealed_len_max(payload.len())`.
    /// Errors: SendNotAllowed while `may_send` is false, MessageTooLong.
    pub fn seal(&mut self, out: &mut TxBuf, payload: &[u8]) -> Result<bool, Error> {
        todo!()
    }
    /// Bytes in front of the payload area: 4 + 1.
    pub const HEADER_LEN: usize = 5;
    /// Exact length on the wire of a packet with that payload; `None` while the direction compresses
    /// (use `seal` then: the zero-copy layout is not possible).
    pub fn sealed_len(&self, payload_len: usize) -> Option<usize> {
        todo!()
    }
    /// Upper bound in every state.
    pub fn sealed_len_max(&self, payload_len: usize) -> usize {
        todo!()
    }
    /// Seals in place: the payload lies at `buf[5..5 + payload_len]`, `buf` is `sealed_len(payload_len)` long.
    /// The caller has checked `may_send`, commits the bytes to the TxBuf in sealing order.
    pub fn seal_at(&mut self, buf: &mut [u8], payload_len: usize) {
        todo!()
    }
    /// Appends what the transport itself has to send (also the goodbye of a dead connection). True when something was appended.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut TxBuf) -> bool {
        todo!()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!()
    }
    pub fn handle_timeout(&mut self, now: Instant) {
        todo!()
    }

    /// The server's key, its signature verified, waiting for a verdict.
    pub fn host_key(&self) -> Option<&HostKeyOffer> {
        todo!()
    }
    /// The key that was accepted, for the life of the connection.
    pub fn accepted_host_key(&self) -> Option<&HostKeyOffer> {
        todo!()
    }
    pub fn accept_host_key(&mut self, now: Instant, proof: HostKeyVerified) -> Result<(), Error> {
        todo!()
    }
    pub fn reject_host_key(&mut self, now: Instant, why: &str) {
        todo!()
    }

    /// Authentication succeeded: delayed compression starts with the next packet each way, rekeys are allowed.
    /// Client: call when USERAUTH_SUCCESS was taken, before `next_packet`. Server: right after sealing it.
    pub fn on_authenticated(&mut self, now: Instant) {
        todo!()
    }
    pub fn rekey(&mut self, now: Instant) -> Result<(), Error> {
        todo!()
    }
    /// Ends the connection: `poll_transmit` yields DISCONNECT with the error's code.
    pub fn fail(&mut self, error: Error) {
        todo!()
    }
    pub fn disconnect(&mut self, reason: DisconnectReason, description: &str) {
        todo!()
    }
    pub fn error(&self) -> Option<&Error> {
        todo!()
    }

    pub fn session_id(&self) -> Option<&[u8]> {
        todo!()
    }
    pub fn algorithms(&self) -> Option<&Algorithms> {
        todo!()
    }
    pub fn remote_version(&self) -> &[u8] {
        todo!()
    }
    pub fn peer_extensions(&self) -> &PeerExtensions {
        todo!()
    }
}
