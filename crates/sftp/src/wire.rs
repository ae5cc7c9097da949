//! What SFTP adds to the data types of RFC 4251 section 5: fields that are read by name, and
//! places that messages are written to.

use std::fmt;
use std::io::IoSliceMut;

use fullbore_base::wire::{self, FieldError};

pub use fullbore_base::wire::Put;
pub(crate) use fullbore_base::wire::len_u32;

/// Bytes that do not parse as the message they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidMessage {
    /// The length word asks for more than the receiver allows.
    TooLong {
        /// What the length word says.
        len: u32,
        /// The receiver's limit.
        len_max: u32,
    },
    /// A packet without a type byte.
    Empty,
    /// The packet ends inside the named field.
    Truncated(&'static str),
    /// A path holds a zero byte, which no file system can name.
    NulInPath,
    /// The named field holds a value outside its type, such as a list of ids cut in one.
    BadValue(&'static str),
    /// A reply of a type that no server sends.
    UnknownReply(u8),
}

impl fmt::Display for InvalidMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len, len_max } => {
                write!(f, "packet of {len} bytes, at most {len_max} are allowed")
            }
            Self::Empty => f.write_str("packet without a type"),
            Self::Truncated(field) => write!(f, "packet ends inside its {field}"),
            Self::NulInPath => f.write_str("path with a zero byte"),
            Self::BadValue(field) => write!(f, "{field} is not valid"),
            Self::UnknownReply(kind) => write!(f, "packet of type {kind} where a reply belongs"),
        }
    }
}

impl std::error::Error for InvalidMessage {}

/// Reads fields of a borrowed message body, each by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(wire::Reader<'a>);

/// Says which field does not parse. Nothing but the end of the message makes the types of SFTP fail.
fn named<T>(field: Result<T, FieldError>, name: &'static str) -> Result<T, InvalidMessage> {
    field.map_err(|_| InvalidMessage::Truncated(name))
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(wire::Reader::new(bytes))
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0.rest()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, InvalidMessage> {
        named(self.0.u32(), field)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, InvalidMessage> {
        named(self.0.u64(), field)
    }

    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a [u8], InvalidMessage> {
        named(self.0.string(), field)
    }

    /// A string that names a file: no zero bytes.
    pub(crate) fn path(&mut self, field: &'static str) -> Result<&'a [u8], InvalidMessage> {
        let path = self.string(field)?;
        if path.contains(&0) {
            return Err(InvalidMessage::NulInPath);
        }
        Ok(path)
    }
}

/// Counts what an encoder would write.
#[derive(Debug, Default)]
pub(crate) struct Count(pub(crate) usize);

impl Put for Count {
    fn put_raw(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Writes into the slices that an outlet lends, across their boundaries.
#[derive(Debug)]
pub struct SliceSink<'s, 'b> {
    slices: &'s mut [IoSliceMut<'b>],
    /// Slice that the next byte goes to.
    index: usize,
    /// Position in that slice.
    at: usize,
    written: usize,
}

impl<'s, 'b> SliceSink<'s, 'b> {
    /// Starts at the first byte of `slices`.
    pub fn new(slices: &'s mut [IoSliceMut<'b>]) -> Self {
        Self {
            slices,
            index: 0,
            at: 0,
            written: 0,
        }
    }

    /// Bytes written so far.
    #[must_use]
    pub const fn written(&self) -> usize {
        self.written
    }
}

impl Put for SliceSink<'_, '_> {
    /// # Panics
    /// When the bytes do not fit: whoever asked for the slices knew the length.
    fn put_raw(&mut self, mut bytes: &[u8]) {
        self.written += bytes.len();
        while !bytes.is_empty() {
            let slice = self
                .slices
                .get_mut(self.index)
                .expect("the slices hold what their requester asked for");
            let n = bytes.len().min(slice.len() - self.at);
            slice[self.at..self.at + n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            self.at += n;
            if self.at == slice.len() {
                self.index += 1;
                self.at = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_longer_than_what_is_there_are_refused() {
        let mut reader = Reader::new(&[0xff, 0xff, 0xff, 0xff, 1]);
        assert_eq!(
            reader.string("name"),
            Err(InvalidMessage::Truncated("name"))
        );
        let mut reader = Reader::new(&[0, 0, 0, 1, b'x']);
        assert_eq!(reader.string("name"), Ok(&b"x"[..]));
        assert!(reader.is_empty());
    }

    #[test]
    fn paths_hold_any_byte_but_zero() {
        let mut bytes = Vec::new();
        bytes.put_string(b"a\xff\xfe\n");
        assert_eq!(Reader::new(&bytes).path("path"), Ok(&b"a\xff\xfe\n"[..]));
        bytes.clear();
        bytes.put_string(b"a\0b");
        assert_eq!(
            Reader::new(&bytes).path("path"),
            Err(InvalidMessage::NulInPath)
        );
    }

    #[test]
    fn slices_are_filled_across_boundaries() {
        let (mut a, mut b, mut c) = ([0u8; 1], [0u8; 0], [0u8; 5]);
        let mut slices = [
            IoSliceMut::new(&mut a),
            IoSliceMut::new(&mut b),
            IoSliceMut::new(&mut c),
        ];
        let mut sink = SliceSink::new(&mut slices);
        sink.put_u32(0x0102_0304);
        sink.put_raw(&[5]);
        assert_eq!(sink.written(), 5);
        assert_eq!((a, c), ([1], [2, 3, 4, 5, 0]));
    }
}
