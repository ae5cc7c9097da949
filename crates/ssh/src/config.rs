//! What a connection is told at its start, and the named limit of everything a peer can grow in
//! the transport layer.

use crate::auth::{ClientAuth, ServerAuth};
use crate::cipher::{Cipher, Mac};
use crate::connection::ConnectionConfig;
use crate::kex::Method;
use crate::packet::Compression;
use std::sync::Arc;
use std::time::Duration;

/// The longest payload of a packet, compressed or not: 256 KiB of file data and room for the
/// headers of the layers above it (CHANNEL_DATA takes 9 bytes, SFTP's DATA and WRITE under 300).
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024 + 1024;

/// The largest length word that is accepted: padding length, payload, the longest padding.
pub const PACKET_LEN_MAX: u32 = 1 + PAYLOAD_BYTES_MAX as u32 + 255;

/// The same before authentication has succeeded: strangers get little memory. The longest there is a
/// host key or a user's certificate of [`HOST_KEY_BYTES_MAX`] with its signature.
pub const PACKET_LEN_BEFORE_AUTH_MAX: u32 = 96 * 1024;

/// Bytes of the receive buffer before authentication has succeeded: one packet and the start of
/// the next.
pub const RECEIVE_BYTES_BEFORE_AUTH: usize = 128 * 1024;

/// RFC 4253 4.2: a version line, CR LF included.
pub const VERSION_LINE_BYTES_MAX: usize = 255;

/// A line of text before the server's version line. OpenSSH's client takes 8 KiB; banners that
/// people write are shorter than this.
pub const BANNER_LINE_BYTES_MAX: usize = 1024;

/// Lines before the server's version line. OpenSSH's client takes 1,024.
pub const BANNER_LINES_MAX: usize = 256;

/// Transport messages that wait to be sent. Reached only by a peer that provokes replies and does
/// not read them: then no more of its input is taken until they are gone. One reply may go past it.
pub const CONTROL_BYTES_MAX: usize = 64 * 1024;

/// Key exchanges before authentication has succeeded. One is what peers do; each costs a server a
/// signature, so a stranger may not ask for them without end.
pub const KEX_BEFORE_AUTH_MAX: u32 = 4;

/// A KEXINIT of a peer, which is kept for the exchange hash.
pub const KEXINIT_BYTES_MAX: usize = 32 * 1024;

/// A host key or host certificate of a peer. A certificate for hundreds of names fits.
pub const HOST_KEY_BYTES_MAX: usize = 64 * 1024;

/// EXT_INFO messages of a peer. RFC 8308 allows two; some send one after each rekey.
pub const EXT_INFO_COUNT_MAX: u32 = 1024;

/// Extensions in an EXT_INFO message, and names of `server-sig-algs`.
pub const EXTENSIONS_MAX: usize = 128;

/// Packets under one key, each way: the sequence number is chacha20-poly1305's nonce and may not
/// repeat. A rekey is asked for far earlier.
pub const PACKETS_PER_KEY_MAX: u64 = (1 << 32) - 1;

/// RFC 4419 3 and RFC 8270: bounds of a group exchange's modulus, in bits.
pub const GEX_BITS_MIN: u32 = 2048;

/// As [`GEX_BITS_MIN`].
pub const GEX_BITS_MAX: u32 = 8192;

/// What the client prefers. RFC 8270 recommends 3,072 for 128-bit security.
pub const GEX_BITS_PREFERRED: u32 = 3072;

/// When keys are replaced. Whatever comes first, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RekeyLimits {
    /// Bytes on the wire under one key.
    pub bytes: u64,
    /// Packets under one key; capped at 2^31 (RFC 4344 3.1).
    pub packets: u64,
    /// Time since the last exchange.
    pub time: Option<Duration>,
}

impl Default for RekeyLimits {
    fn default() -> Self {
        Self {
            // RFC 4344 3.2: 2^(L/4) blocks, which is 64 GiB for AES. OpenSSH's default too.
            bytes: 1 << 36,
            packets: 1 << 31,
            // RFC 4253 9 recommends each hour or gigabyte; the hour costs nothing.
            time: Some(Duration::from_secs(3600)),
        }
    }
}

/// What both roles tell the transport.
#[derive(Clone, Debug)]
pub struct TransportConfig {
    /// Behind `SSH-2.0-`: printable US-ASCII without space or minus.
    pub software_version: String,
    /// Key exchange methods, best first.
    pub kex: Vec<Method>,
    /// Host key algorithms by name, best first; unknown names are passed over. A server offers
    /// those that it has keys for.
    pub host_key_algorithms: Vec<String>,
    /// Ciphers, best first.
    pub ciphers: Vec<Cipher>,
    /// MACs, best first.
    pub macs: Vec<Mac>,
    /// Compression methods, best first.
    pub compression: Vec<Compression>,
    /// When keys are replaced.
    pub rekey: RekeyLimits,
    /// The longest that a peer may take for one key exchange; a person's verdict on a host key
    /// does not count.
    pub kex_timeout: Duration,
    /// Whether the client sends its first key exchange message before it has seen the server's
    /// KEXINIT. Saves a round trip when both sides' first choices agree. For servers whose lists are
    /// known from an earlier connection: peers differ in what makes a guess wrong (asyncssh looks
    /// at the method alone, OpenSSH and RFC 4253 7 at the host key algorithm too), so a half
    /// right guess can end the connection. No method lets a server speak first: servers have nothing
    /// to guess.
    pub guess_kex: bool,
    /// Whether strict key exchange is offered. Only a test would say no.
    pub strict_kex: bool,
    /// Bytes of the receive buffer once the user is in; at least one longest packet.
    pub receive_buffer_bytes: usize,
}

/// Host key algorithms that are offered by default: certificates first, as only who has an
/// authority for the host sees them. Security keys do not serve as host keys.
pub const HOST_KEY_ALGORITHMS: &[&str] = &[
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "rsa-sha2-256-cert-v01@openssh.com",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            software_version: concat!("fullbore_", env!("CARGO_PKG_VERSION")).to_owned(),
            kex: Method::ALL.to_vec(),
            host_key_algorithms: HOST_KEY_ALGORITHMS
                .iter()
                .map(|n| (*n).to_owned())
                .collect(),
            ciphers: Cipher::ALL.to_vec(),
            macs: Mac::ALL.to_vec(),
            compression: vec![Compression::None, Compression::ZlibDelayed],
            rekey: RekeyLimits::default(),
            kex_timeout: Duration::from_secs(120),
            guess_kex: false,
            strict_kex: true,
            receive_buffer_bytes: 640 * 1024,
        }
    }
}

/// What a client is told.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// Authentication's part.
    pub auth: ClientAuth,
    /// The transport's part.
    pub transport: TransportConfig,
    /// The connection layer's part.
    pub connection: ConnectionConfig,
    /// Version line of a server that an earlier connection was logged in to: one that bears being
    /// sent a channel's first messages behind an authentication request gets them there while its
    /// line is the same.
    pub patient_version: Option<Vec<u8>>,
}

/// A server's host key, with the certificates made for it.
pub trait HostKey: Send + Sync + std::fmt::Debug {
    /// The blob that is sent for `algorithm`, if the key can sign under it: the public key, or a
    /// certificate for the `-cert-v01@openssh.com` algorithms.
    fn blob(&self, algorithm: &str) -> Option<Vec<u8>>;

    /// The signature blob over `data`; `None` when signing fails. For a certificate's algorithm
    /// the signature names the plain one.
    fn sign(&self, algorithm: &str, data: &[u8]) -> Option<Vec<u8>>;
}

/// What a server is told.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Authentication's part.
    pub auth: ServerAuth,
    /// The transport's part.
    pub transport: TransportConfig,
    /// The connection layer's part.
    pub connection: ConnectionConfig,
    /// Host keys; each algorithm is served by the first that can.
    pub host_keys: Vec<Arc<dyn HostKey>>,
}
