//! What ends a connection, told apart by who is at fault.
//!
//! Owns the error kinds and the wire code of each. Does not own the text of the DISCONNECT
//! message's delivery (transport). Read first: RFC 4253 section 11.1.

use crate::msg::DisconnectReason;
use crate::wire::FieldError;
use fullbore_base::escape_for_display;
use std::fmt;
use std::time::Duration;

/// Why a connection is over, or why a call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Bytes of the peer do not parse.
    InvalidMessage(InvalidMessage),
    /// The peer sent what parses but is not allowed now.
    PeerMisbehaved(PeerMisbehaved),
    /// Both sides are right and have nothing in common.
    PeerIncompatible(Box<PeerIncompatible>),
    /// The caller broke the engine's contract. Never caused by peer data; the connection lives.
    ApiMisuse(ApiMisuse),
    /// The connection ended without a fault of the protocol.
    Closed(Closed),
}

/// Which end started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This side found or decided it.
    Local,
    /// The other side did, or the path between.
    Remote,
}

/// Bytes that do not parse, by what is wrong with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidMessage {
    /// A field of a message.
    Field(FieldError),
    /// An empty payload: no message number.
    Empty,
    /// The packet length is under the minimum, or no multiple of the cipher's block.
    PacketLength,
    /// The padding is under four bytes or longer than its packet.
    Padding,
    /// The compressed stream is damaged.
    Compression,
    /// The version line is no SSH version line.
    VersionLine,
    /// A key, certificate or signature blob does not parse.
    KeyBlob,
}

/// A rule that the peer broke; one variant for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerMisbehaved {
    /// Announced a packet longer than the limit.
    PacketTooLong {
        /// The length word.
        packet_len: u32,
    },
    /// The packet's authentication tag is wrong.
    BadMac,
    /// Payload that unpacks to more than a packet may carry.
    DecompressedTooLong,
    /// More lines before the version line than allowed, or from a client at all.
    TooManyBannerLines,
    /// A line before or with the version that is too long.
    LineTooLong,
    /// Speaks an SSH version other than 2.0.
    ProtocolVersion,
    /// A message that the state of the connection does not allow.
    UnexpectedMessage {
        /// Its number.
        message: u8,
    },
    /// Strict key exchange: something other than KEXINIT came first, or between its messages.
    StrictKexViolation {
        /// The message that came.
        message: u8,
    },
    /// A message above 49 between the peer's KEXINIT and its NEWKEYS.
    DataDuringKex {
        /// Its number.
        message: u8,
    },
    /// A second KEXINIT before the first exchange was done.
    KexInitTwice,
    /// The peer's public value of the key exchange is not acceptable.
    KexPublicValue,
    /// A Diffie-Hellman group outside the bounds that were asked for, or no usable group.
    KexGroup,
    /// A group request whose bounds exclude each other.
    KexGroupRequest,
    /// The host key's signature over the exchange hash is wrong.
    HostKeySignature,
    /// The host key is of another type than was negotiated.
    HostKeyType,
    /// Another host key in a later exchange of the same connection.
    HostKeyChanged,
    /// Too many packets under one key: the next nonce would repeat.
    PacketsPerKey,
    /// The sequence number wrapped during the first key exchange under strict rules.
    SequenceWrap,
    /// More EXT_INFO messages or extensions than allowed.
    TooManyExtensions,
    /// Sent more to a channel than its window held.
    WindowOverrun,
    /// Added more to a window than 2^32 - 1 in all.
    WindowOverflow,
    /// Sent more in one message than the maximum packet that was announced.
    MaxPacketOverrun,
    /// A maximum packet of zero bytes.
    MaxPacketZero,
    /// Named a channel that is not open.
    UnknownChannel,
    /// A message to a channel that its state does not allow (data after EOF, a second CLOSE).
    ChannelState,
    /// Answered a request that was not asked.
    UnexpectedReply,
    /// Asked for more at once than a named limit allows.
    TooManyRequests,
    /// Authentication went against the order of RFC 4252.
    AuthSequence,
    /// Asked for a service that is not offered, or confirmed one that was not asked for.
    UnknownService,
}

/// What each side offered where nothing was in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIncompatible {
    /// What was being agreed on.
    pub category: Category,
    /// What this side offers, best first.
    pub local: Vec<String>,
    /// What the peer offers, best first; cut at [`PeerIncompatible::NAMES_MAX`] names.
    pub remote: Vec<String>,
}

impl PeerIncompatible {
    /// The most names of the peer that an error keeps.
    pub const NAMES_MAX: usize = 64;
}

/// What is negotiated in KEXINIT, or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Key exchange methods.
    Kex,
    /// Host key algorithms.
    HostKey,
    /// Ciphers from client to server.
    CipherClientToServer,
    /// Ciphers from server to client.
    CipherServerToClient,
    /// MACs from client to server.
    MacClientToServer,
    /// MACs from server to client.
    MacServerToClient,
    /// Compression from client to server.
    CompressionClientToServer,
    /// Compression from server to client.
    CompressionServerToClient,
    /// Authentication methods.
    AuthMethods,
}

/// How the caller broke the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiMisuse {
    /// A message was to be sent while [`crate::transport::Transport::may_send`] is false.
    SendNotAllowed,
    /// A message longer than a packet may carry.
    MessageTooLong,
    /// No host key waits for a verdict, or the proof is for another key.
    NoSuchHostKey,
    /// The call needs the other role.
    WrongRole,
    /// The call needs a state that the connection is not in.
    WrongState,
    /// The channel does not exist, or is closed.
    NoSuchChannel,
    /// A named limit of this side is reached.
    LimitReached,
}

/// An end that breaks no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The peer sent DISCONNECT.
    ByPeer {
        /// Its reason code, whatever it is.
        reason: u32,
        /// Its words, cut at 1 KiB. Untrusted: escape before showing.
        description: String,
    },
    /// The caller disconnected.
    ByUs {
        /// The reason it gave.
        reason: DisconnectReason,
        /// Its words.
        description: String,
    },
    /// The byte stream ended without DISCONNECT.
    Eof,
    /// The caller refused the host key.
    HostKeyRejected {
        /// Why, in the caller's words.
        why: String,
    },
    /// The peer did not finish a key exchange in time.
    KexTimeout {
        /// How long it was waited for.
        after: Duration,
    },
    /// The peer did not answer keepalives in time.
    KeepaliveTimeout,
    /// Authentication was not done in time.
    LoginTimeout,
    /// No authentication method is left to try.
    AuthFailed,
    /// Cryptography failed for a reason that is not in the peer's bytes (a signer refused, no
    /// randomness).
    Crypto {
        /// What was being done.
        what: &'static str,
    },
}

impl Error {
    /// Who started it.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        match self {
            Self::InvalidMessage(_) | Self::PeerMisbehaved(_) => Origin::Remote,
            Self::PeerIncompatible(_) | Self::ApiMisuse(_) => Origin::Local,
            Self::Closed(closed) => match closed {
                Closed::ByPeer { .. } | Closed::Eof => Origin::Remote,
                Closed::KexTimeout { .. } | Closed::KeepaliveTimeout | Closed::LoginTimeout => {
                    Origin::Remote
                }
                Closed::ByUs { .. } | Closed::HostKeyRejected { .. } => Origin::Local,
                Closed::AuthFailed | Closed::Crypto { .. } => Origin::Local,
            },
        }
    }

    /// The reason code of the DISCONNECT message that answers this error; `None` when nothing is
    /// sent: the peer is gone, or the error is the caller's and the connection lives.
    #[must_use]
    pub const fn disconnect_reason(&self) -> Option<DisconnectReason> {
        match self {
            Self::InvalidMessage(invalid) => Some(invalid.disconnect_reason()),
            Self::PeerMisbehaved(rule) => Some(rule.disconnect_reason()),
            Self::PeerIncompatible(what) => Some(what.category.disconnect_reason()),
            Self::ApiMisuse(_) => None,
            Self::Closed(closed) => closed.disconnect_reason(),
        }
    }
}

impl InvalidMessage {
    const fn disconnect_reason(self) -> DisconnectReason {
        match self {
            Self::Compression => DisconnectReason::CompressionError,
            Self::VersionLine => DisconnectReason::ProtocolVersionNotSupported,
            Self::Field(_) | Self::Empty | Self::PacketLength | Self::Padding | Self::KeyBlob => {
                DisconnectReason::ProtocolError
            }
        }
    }

    /// What is wrong, for a person.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Field(field) => field.text(),
            Self::Empty => "a packet without a message",
            Self::PacketLength => "a packet length that the cipher cannot have",
            Self::Padding => "a padding length outside its packet",
            Self::Compression => "a damaged compressed stream",
            Self::VersionLine => "no SSH version line",
            Self::KeyBlob => "a malformed key, certificate or signature",
        }
    }
}

impl PeerMisbehaved {
    const fn disconnect_reason(self) -> DisconnectReason {
        match self {
            Self::BadMac => DisconnectReason::MacError,
            Self::DecompressedTooLong => DisconnectReason::CompressionError,
            Self::ProtocolVersion => DisconnectReason::ProtocolVersionNotSupported,
            Self::KexPublicValue
            | Self::KexGroup
            | Self::KexGroupRequest
            | Self::HostKeyType
            | Self::KexInitTwice
            | Self::StrictKexViolation { .. } => DisconnectReason::KeyExchangeFailed,
            Self::HostKeySignature | Self::HostKeyChanged => DisconnectReason::HostKeyNotVerifiable,
            Self::UnknownService => DisconnectReason::ServiceNotAvailable,
            Self::PacketTooLong { .. }
            | Self::TooManyBannerLines
            | Self::LineTooLong
            | Self::UnexpectedMessage { .. }
            | Self::DataDuringKex { .. }
            | Self::PacketsPerKey
            | Self::SequenceWrap
            | Self::TooManyExtensions
            | Self::WindowOverrun
            | Self::WindowOverflow
            | Self::MaxPacketOverrun
            | Self::MaxPacketZero
            | Self::UnknownChannel
            | Self::ChannelState
            | Self::UnexpectedReply
            | Self::TooManyRequests
            | Self::AuthSequence => DisconnectReason::ProtocolError,
        }
    }

    /// The broken rule, for a person.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::PacketTooLong { .. } => "a packet longer than the limit",
            Self::BadMac => "a packet whose authentication tag is wrong",
            Self::DecompressedTooLong => "a packet that unpacks to more than the limit",
            Self::TooManyBannerLines => "too many lines before the version line",
            Self::LineTooLong => "a line that is too long before or with the version",
            Self::ProtocolVersion => "an SSH protocol version other than 2.0",
            Self::UnexpectedMessage { .. } => "a message that is not allowed now",
            Self::StrictKexViolation { .. } => "a message that strict key exchange forbids",
            Self::DataDuringKex { .. } => "data during its key exchange",
            Self::KexInitTwice => "a second KEXINIT during a key exchange",
            Self::KexPublicValue => "an unacceptable public key exchange value",
            Self::KexGroup => "an unacceptable Diffie-Hellman group",
            Self::KexGroupRequest => "a group request whose bounds exclude each other",
            Self::HostKeySignature => "a wrong host key signature",
            Self::HostKeyType => "a host key of another type than was agreed on",
            Self::HostKeyChanged => "another host key in the same connection",
            Self::PacketsPerKey => "too many packets under one key",
            Self::SequenceWrap => "too many packets during the first key exchange",
            Self::TooManyExtensions => "too many protocol extensions",
            Self::WindowOverrun => "more data than the channel's window held",
            Self::WindowOverflow => "a window beyond 2^32 - 1 bytes",
            Self::MaxPacketOverrun => "more data in a packet than the channel's maximum",
            Self::MaxPacketZero => "a channel with a maximum packet of zero bytes",
            Self::UnknownChannel => "a message to a channel that is not open",
            Self::ChannelState => "a message that the channel's state does not allow",
            Self::UnexpectedReply => "a reply to nothing",
            Self::TooManyRequests => "too many requests at once",
            Self::AuthSequence => "an authentication message out of order",
            Self::UnknownService => "a service that is not offered",
        }
    }
}

impl Category {
    const fn disconnect_reason(self) -> DisconnectReason {
        match self {
            Self::AuthMethods => DisconnectReason::NoMoreAuthMethodsAvailable,
            Self::Kex
            | Self::HostKey
            | Self::CipherClientToServer
            | Self::CipherServerToClient
            | Self::MacClientToServer
            | Self::MacServerToClient
            | Self::CompressionClientToServer
            | Self::CompressionServerToClient => DisconnectReason::KeyExchangeFailed,
        }
    }

    /// Its name for a person, in the plural.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Kex => "key exchange methods",
            Self::HostKey => "host key algorithms",
            Self::CipherClientToServer => "ciphers (client to server)",
            Self::CipherServerToClient => "ciphers (server to client)",
            Self::MacClientToServer => "MACs (client to server)",
            Self::MacServerToClient => "MACs (server to client)",
            Self::CompressionClientToServer => "compression methods (client to server)",
            Self::CompressionServerToClient => "compression methods (server to client)",
            Self::AuthMethods => "authentication methods",
        }
    }
}

impl Closed {
    const fn disconnect_reason(&self) -> Option<DisconnectReason> {
        match self {
            Self::ByPeer { .. } | Self::Eof => None,
            Self::ByUs { reason, .. } => Some(*reason),
            Self::HostKeyRejected { .. } => Some(DisconnectReason::HostKeyNotVerifiable),
            Self::KexTimeout { .. } | Self::Crypto { .. } => {
                Some(DisconnectReason::KeyExchangeFailed)
            }
            Self::KeepaliveTimeout | Self::LoginTimeout => Some(DisconnectReason::ConnectionLost),
            Self::AuthFailed => Some(DisconnectReason::NoMoreAuthMethodsAvailable),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidMessage(invalid) => write!(f, "the peer sent {}", invalid.text()),
            Self::PeerMisbehaved(rule) => {
                write!(f, "the peer sent {}", rule.text())?;
                if let PeerMisbehaved::PacketTooLong { packet_len } = rule {
                    write!(f, " ({packet_len} bytes)")?;
                }
                if let PeerMisbehaved::UnexpectedMessage { message }
                | PeerMisbehaved::StrictKexViolation { message }
                | PeerMisbehaved::DataDuringKex { message } = rule
                {
                    write!(f, " ({})", crate::msg::name(*message))?;
                }
                Ok(())
            }
            Self::PeerIncompatible(what) => write!(
                f,
                "no {} in common: this side offers {}; the peer offers {}",
                what.category.text(),
                what.local.join(","),
                escape_for_display(what.remote.join(",").as_bytes()),
            ),
            Self::ApiMisuse(misuse) => write!(f, "the engine was misused: {misuse:?}"),
            Self::Closed(closed) => closed.fmt(f),
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPeer {
                reason,
                description,
            } => write!(
                f,
                "the peer disconnected: {} (reason {reason})",
                escape_for_display(description.as_bytes())
            ),
            Self::ByUs { description, .. } => write!(f, "disconnected: {description}"),
            Self::Eof => f.write_str("the peer closed the connection"),
            Self::HostKeyRejected { why } => write!(f, "the host key was refused: {why}"),
            Self::KexTimeout { after } => {
                let seconds = after.as_secs_f64();
                write!(
                    f,
                    "the peer did not finish the key exchange within {seconds} s"
                )
            }
            Self::KeepaliveTimeout => f.write_str("the peer does not answer"),
            Self::LoginTimeout => f.write_str("authentication was not done in time"),
            Self::AuthFailed => f.write_str("no authentication method is left to try"),
            Self::Crypto { what } => write!(f, "cryptography failed: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<FieldError> for InvalidMessage {
    fn from(field: FieldError) -> Self {
        Self::Field(field)
    }
}

impl From<FieldError> for Error {
    fn from(field: FieldError) -> Self {
        Self::InvalidMessage(field.into())
    }
}

impl From<InvalidMessage> for Error {
    fn from(invalid: InvalidMessage) -> Self {
        Self::InvalidMessage(invalid)
    }
}

impl From<PeerMisbehaved> for Error {
    fn from(rule: PeerMisbehaved) -> Self {
        Self::PeerMisbehaved(rule)
    }
}

impl From<PeerIncompatible> for Error {
    fn from(what: PeerIncompatible) -> Self {
        Self::PeerIncompatible(Box::new(what))
    }
}

impl From<ApiMisuse> for Error {
    fn from(misuse: ApiMisuse) -> Self {
        Self::ApiMisuse(misuse)
    }
}

impl From<Closed> for Error {
    fn from(closed: Closed) -> Self {
        Self::Closed(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DisconnectReason as R;

    /// Each variant once, with the code that goes on the wire.
    fn invalid() -> Vec<(InvalidMessage, DisconnectReason)> {
        use InvalidMessage as I;
        vec![
            (I::Field(FieldError::Truncated), R::ProtocolError),
            (I::Field(FieldError::TrailingBytes), R::ProtocolError),
            (I::Empty, R::ProtocolError),
            (I::Field(FieldError::StringTooLong), R::ProtocolError),
            (I::Field(FieldError::Mpint), R::ProtocolError),
            (I::Field(FieldError::Text), R::ProtocolError),
            (I::PacketLength, R::ProtocolError),
            (I::Padding, R::ProtocolError),
            (I::Compression, R::CompressionError),
            (I::VersionLine, R::ProtocolVersionNotSupported),
            (I::KeyBlob, R::ProtocolError),
        ]
    }

    fn misbehaved() -> Vec<(PeerMisbehaved, DisconnectReason)> {
        use PeerMisbehaved as P;
        vec![
            (P::PacketTooLong { packet_len: 9 }, R::ProtocolError),
            (P::BadMac, R::MacError),
            (P::DecompressedTooLong, R::CompressionError),
            (P::TooManyBannerLines, R::ProtocolError),
            (P::LineTooLong, R::ProtocolError),
            (P::ProtocolVersion, R::ProtocolVersionNotSupported),
            (P::UnexpectedMessage { message: 94 }, R::ProtocolError),
            (P::StrictKexViolation { message: 2 }, R::KeyExchangeFailed),
            (P::DataDuringKex { message: 94 }, R::ProtocolError),
            (P::KexInitTwice, R::KeyExchangeFailed),
            (P::KexPublicValue, R::KeyExchangeFailed),
            (P::KexGroup, R::KeyExchangeFailed),
            (P::KexGroupRequest, R::KeyExchangeFailed),
            (P::HostKeySignature, R::HostKeyNotVerifiable),
            (P::HostKeyType, R::KeyExchangeFailed),
            (P::HostKeyChanged, R::HostKeyNotVerifiable),
            (P::PacketsPerKey, R::ProtocolError),
            (P::SequenceWrap, R::ProtocolError),
            (P::TooManyExtensions, R::ProtocolError),
            (P::WindowOverrun, R::ProtocolError),
            (P::WindowOverflow, R::ProtocolError),
            (P::MaxPacketOverrun, R::ProtocolError),
            (P::MaxPacketZero, R::ProtocolError),
            (P::UnknownChannel, R::ProtocolError),
            (P::ChannelState, R::ProtocolError),
            (P::UnexpectedReply, R::ProtocolError),
            (P::TooManyRequests, R::ProtocolError),
            (P::AuthSequence, R::ProtocolError),
            (P::UnknownService, R::ServiceNotAvailable),
        ]
    }

    fn closed() -> Vec<(Closed, Option<DisconnectReason>, Origin)> {
        let description = "words".to_owned();
        let by_us = Closed::ByUs {
            reason: R::TooManyConnections,
            description: description.clone(),
        };
        let by_peer = Closed::ByPeer {
            reason: 11,
            description: description.clone(),
        };
        let rejected = Closed::HostKeyRejected { why: description };
        let crypto = Closed::Crypto { what: "signing" };
        vec![
            (by_peer, None, Origin::Remote),
            (by_us, Some(R::TooManyConnections), Origin::Local),
            (Closed::Eof, None, Origin::Remote),
            (rejected, Some(R::HostKeyNotVerifiable), Origin::Local),
            (
                Closed::KexTimeout {
                    after: Duration::from_secs(9),
                },
                Some(R::KeyExchangeFailed),
                Origin::Remote,
            ),
            (
                Closed::KeepaliveTimeout,
                Some(R::ConnectionLost),
                Origin::Remote,
            ),
            (
                Closed::AuthFailed,
                Some(R::NoMoreAuthMethodsAvailable),
                Origin::Local,
            ),
            (crypto, Some(R::KeyExchangeFailed), Origin::Local),
        ]
    }

    fn categories() -> Vec<(Category, DisconnectReason)> {
        vec![
            (Category::Kex, R::KeyExchangeFailed),
            (Category::HostKey, R::KeyExchangeFailed),
            (Category::CipherClientToServer, R::KeyExchangeFailed),
            (Category::CipherServerToClient, R::KeyExchangeFailed),
            (Category::MacClientToServer, R::KeyExchangeFailed),
            (Category::MacServerToClient, R::KeyExchangeFailed),
            (Category::CompressionClientToServer, R::KeyExchangeFailed),
            (Category::CompressionServerToClient, R::KeyExchangeFailed),
            (Category::AuthMethods, R::NoMoreAuthMethodsAvailable),
        ]
    }

    #[test]
    fn the_wire_code_is_a_function_of_the_error() {
        for (what, reason) in invalid() {
            let error = Error::from(what);
            assert_eq!(
                (error.disconnect_reason(), error.origin()),
                (Some(reason), Origin::Remote)
            );
        }
        for (rule, reason) in misbehaved() {
            let error = Error::from(rule);
            assert_eq!(
                (error.disconnect_reason(), error.origin()),
                (Some(reason), Origin::Remote)
            );
        }
        for (category, reason) in categories() {
            let error = Error::from(PeerIncompatible {
                category,
                local: vec!["a".into()],
                remote: vec!["b\n".into()],
            });
            assert_eq!(
                (error.disconnect_reason(), error.origin()),
                (Some(reason), Origin::Local)
            );
            assert!(
                !error.to_string().contains('\n'),
                "untrusted names are escaped"
            );
        }
        for (end, reason, origin) in closed() {
            let error = Error::from(end);
            assert_eq!(
                (error.disconnect_reason(), error.origin()),
                (reason, origin)
            );
        }
        let misuse = Error::from(ApiMisuse::WrongRole);
        assert_eq!(
            (misuse.disconnect_reason(), misuse.origin()),
            (None, Origin::Local)
        );
    }

    #[test]
    fn every_rule_has_words_of_its_own() {
        let mut texts: Vec<&str> = misbehaved().iter().map(|(rule, _)| rule.text()).collect();
        texts.extend(invalid().iter().map(|(what, _)| what.text()));
        texts.extend(categories().iter().map(|(category, _)| category.text()));
        let count = texts.len();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), count);
        let error = Error::from(PeerMisbehaved::DataDuringKex { message: 94 });
        assert_eq!(
            error.to_string(),
            "the peer sent data during its key exchange (SSH_MSG_CHANNEL_DATA)"
        );
    }
}
