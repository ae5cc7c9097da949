//! What can go wrong with the whole session ([`Error`]) and with one transfer ([`BulkError`]).

use fullbore_base::escape_for_display;
use std::fmt;
use std::time::Duration;

use crate::InvalidMessage;
use crate::proto::Code;

/// A failure of the local side of a transfer. Carries the operating system's code.
pub type BlockError = std::io::Error;

/// A rule that the server broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    /// A reply to a request that is not outstanding.
    UnknownId(u32),
    /// A reply of a type that does not answer its request.
    WrongReply {
        /// Message number received.
        kind: u8,
    },
    /// More DATA than the READ asked for.
    DataTooLong {
        /// Bytes asked for.
        asked: u32,
        /// Bytes the reply claims.
        claimed: u32,
    },
    /// A second VERSION, or a reply before the first.
    VersionOutOfPlace,
    /// A handle longer than the draft's 256 bytes, or empty.
    HandleLength(usize),
}

impl fmt::Display for Misbehaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownId(id) => write!(f, "it answered request {id}, which is not outstanding"),
            Self::WrongReply { kind } => {
                write!(
                    f,
                    "message type {kind} does not answer the request it names"
                )
            }
            Self::DataTooLong { asked, claimed } => {
                write!(f, "it sent {claimed} bytes where {asked} were asked for")
            }
            Self::VersionOutOfPlace => f.write_str("VERSION came twice, or not first"),
            Self::HandleLength(len) => write!(f, "it gave out a handle of {len} bytes (1..=256)"),
        }
    }
}

/// Why the session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Bytes that do not parse.
    InvalidMessage(InvalidMessage),
    /// Parses, but is not allowed now.
    PeerMisbehaved(Misbehaviour),
    /// The server speaks another protocol version.
    PeerIncompatible {
        /// The version it announced.
        version: u32,
    },
    /// The server has been silent for this long while requests waited for it.
    Silent(Duration),
    /// The server has not answered a request for this long, while it answered later ones.
    Unanswered(Duration),
    /// The byte stream ended while requests were outstanding.
    Closed,
    /// The caller broke the contract; never caused by the peer.
    ApiMisuse(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidMessage(what) => {
                write!(f, "the SFTP server sent a malformed message: {what}")
            }
            Self::PeerMisbehaved(rule) => write!(f, "the SFTP server broke the protocol: {rule}"),
            Self::PeerIncompatible { version } => write!(
                f,
                "the SFTP server speaks protocol version {version}; only version 3 is supported"
            ),
            Self::Silent(time) => write!(
                f,
                "SFTP server silent for {} s while the SSH connection answers; \
                 it is stopped, or its disk hangs",
                time.as_secs()
            ),
            Self::Unanswered(time) => write!(
                f,
                "the SFTP server left a request unanswered for {} s while it answered others",
                time.as_secs()
            ),
            Self::Closed => f.write_str("the SFTP server ended the session"),
            Self::ApiMisuse(what) => write!(f, "SFTP client misused: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Misbehaviour> for Error {
    fn from(rule: Misbehaviour) -> Self {
        Self::PeerMisbehaved(rule)
    }
}

impl From<InvalidMessage> for Error {
    fn from(what: InvalidMessage) -> Self {
        Self::InvalidMessage(what)
    }
}

/// Why one transfer ended early. The session goes on.
#[derive(Debug)]
pub enum BulkError {
    /// The server refused a READ or a WRITE.
    Status {
        /// Why, as the protocol has it.
        code: Code,
        /// The server's text, as sent, shortened to 1 KiB.
        text: Vec<u8>,
        /// File offset of the first request refused.
        offset: u64,
    },
    /// The local side failed.
    Local {
        /// File offset of the failing block.
        offset: u64,
        /// What the operating system said.
        error: BlockError,
    },
    /// The server answered READs with empty DATA again and again.
    NoProgress {
        /// File offset of the READ.
        offset: u64,
    },
    /// The server says end of file at this offset, but sends data that lies behind it.
    EndInside {
        /// File offset of the hole.
        offset: u64,
    },
    /// The file goes past 2^63 bytes.
    TooLong,
    /// [`super::Client::cancel`] was called.
    Cancelled,
}

impl fmt::Display for BulkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { code, text, offset } => {
                write!(f, "the server refused at offset {offset}: {code}")?;
                if !text.is_empty() && text != code.text().as_bytes() {
                    write!(f, " ({})", escape_for_display(text))?;
                }
                Ok(())
            }
            Self::Local { offset, error } => write!(f, "{error} at offset {offset}"),
            Self::NoProgress { offset } => {
                write!(f, "the server keeps sending no data at offset {offset}")
            }
            Self::EndInside { offset } => write!(
                f,
                "the server says the file ends at offset {offset}, but sends data behind it"
            ),
            Self::TooLong => f.write_str("the file goes past 2^63 bytes"),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for BulkError {}
