//! What can be wrong: bytes that do not parse, calls that break the contract, and why a connection
//! is over.
//!
//! TCP drops what does not parse and counts it (RFC 9293 3.1 and MUST-7); it never ends a connection.

use core::fmt;

/// Bytes that are no TCP segment, by what is wrong with them. The segment is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidMessage {
    /// Shorter than a header.
    Truncated,
    /// The data offset is under 5, or points past the end.
    DataOffset(u8),
    /// An option's length is under 2, or reaches past the header.
    OptionLength {
        /// The option's kind.
        kind: u8,
        /// Its length byte; 0 when it is missing.
        len: u8,
    },
    /// An option that we know, with a length that it cannot have.
    OptionSize {
        /// The option's kind.
        kind: u8,
        /// Its length byte.
        len: u8,
    },
    /// The checksum does not fit.
    Checksum,
}

impl fmt::Display for InvalidMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("shorter than a TCP header"),
            Self::DataOffset(words) => write!(f, "data offset of {words} words"),
            Self::OptionLength { kind, len } => {
                write!(f, "option {kind} of length {len} does not fit its header")
            }
            Self::OptionSize { kind, len } => {
                write!(f, "option {kind} cannot have length {len}")
            }
            Self::Checksum => f.write_str("wrong checksum"),
        }
    }
}

impl core::error::Error for InvalidMessage {}
