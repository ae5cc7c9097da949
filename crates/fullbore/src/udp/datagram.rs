//! A datagram: which connection, which number, a segment, a token.
//!
//! ```text
//! bytes  0        8        16                      len - 16
//!        connection  number   segment ...              token
//! ```
//!
//! Both numbers are big endian. A network sees them, and the TCP header in the segment, as it would see
//! that of any other TCP; the token covers everything in front of it.

use std::fmt;
use std::ops::Range;

use fullbore_tcp::segment::HEADER_BYTES as SEGMENT_HEADER_BYTES;

/// Bytes in front of the segment.
pub const HEADER_BYTES: usize = 16;

/// Bytes of the token.
pub const TOKEN_BYTES: usize = 16;

/// What a datagram needs besides its segment.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TOKEN_BYTES;

/// The shortest datagram: a segment that is all header.
pub const LEN_MIN: usize = OVERHEAD_BYTES + SEGMENT_HEADER_BYTES;

/// The longest that is sent or taken: what fits into one packet of a network with jumbo frames.
pub const LEN_MAX: usize = 9000 - 28;

/// The name of a connection: random, chosen by the server, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u64);

impl PathId {
    /// From its number.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// Its number.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What stands in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The connection.
    pub id: PathId,
    /// Counts the datagrams of one sender on one connection, from 0.
    pub number: u64,
}

impl Header {
    /// Reads the front of a datagram; `None` where its length cannot be one of ours. O(1).
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        if !(LEN_MIN..=LEN_MAX).contains(&datagram.len()) {
            return None;
        }
        let (id, rest) = datagram.split_first_chunk()?;
        let (number, _) = rest.split_first_chunk()?;
        Some(Self {
            id: PathId(u64::from_be_bytes(*id)),
            number: u64::from_be_bytes(*number),
        })
    }

    /// Writes it to the front of a datagram.
    ///
    /// # Panics
    /// When `datagram` is shorter than [`HEADER_BYTES`].
    pub fn emit(&self, datagram: &mut [u8]) {
        datagram[..8].copy_from_slice(&self.id.0.to_be_bytes());
        datagram[8..HEADER_BYTES].copy_from_slice(&self.number.to_be_bytes());
    }
}

/// Where the segment lies in a datagram of `len` bytes, which [`Header::parse`] took.
#[must_use]
pub const fn segment(len: usize) -> Range<usize> {
    HEADER_BYTES..len - TOKEN_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_at_the_limits_are_taken_and_one_past_them_not() {
        for (len, is_taken) in [
            (0, false),
            (LEN_MIN - 1, false),
            (LEN_MIN, true),
            (LEN_MAX, true),
            (LEN_MAX + 1, false),
        ] {
            assert_eq!(Header::parse(&vec![0; len]).is_some(), is_taken, "{len}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let header = Header {
            id: PathId::new(0x0102_0304_0506_0708),
            number: u64::MAX - 1,
        };
        let mut datagram = [0; LEN_MIN];
        header.emit(&mut datagram);
        assert_eq!(datagram[..9], [1, 2, 3, 4, 5, 6, 7, 8, 0xff]);
        assert_eq!(Header::parse(&datagram), Some(header));
        assert_eq!(segment(LEN_MIN), HEADER_BYTES..HEADER_BYTES + 20);
    }
}
