//! Reading and writing the SSH data types of RFC 4251 section 5 that SFTP uses: bounds-checked
//! reads from a borrowed view, writes into anything that takes bytes in order.

use std::fmt;
use std::io::IoSliceMut;

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

/// A cursor over a borrowed message body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, n: usize, field: &'static str) -> Result<&'a [u8], InvalidMessage> {
        let (head, rest) = self
            .rest
            .split_at_checked(n)
            .ok_or(InvalidMessage::Truncated(field))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, InvalidMessage> {
        let (head, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(InvalidMessage::Truncated(field))?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*head))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, InvalidMessage> {
        let (head, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(InvalidMessage::Truncated(field))?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*head))
    }

    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a [u8], InvalidMessage> {
        let len = self.u32(field)?;
        self.take(len as usize, field)
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

/// Takes bytes in order. Encoders run once against a counter to learn their length and once
/// against the destination.
pub trait Sink {
    /// Appends `bytes`.
    fn put(&mut self, bytes: &[u8]);

    /// Appends a `uint32`.
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Appends a `uint64`.
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// Appends a `string`: its length, then its bytes.
    fn put_string(&mut self, bytes: &[u8]) {
        self.put_u32(len_u32(bytes.len()));
        self.put(bytes);
    }
}

/// A length as the wire carries it.
///
/// # Panics
/// At 4 GiB: no message that we make comes near it, packets being limited far below.
pub(crate) fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("messages are limited far below 4 GiB")
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts what an encoder would write.
#[derive(Debug, Default)]
pub(crate) struct Count(pub(crate) usize);

impl Sink for Count {
    fn put(&mut self, bytes: &[u8]) {
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

impl Sink for SliceSink<'_, '_> {
    /// # Panics
    /// When the bytes do not fit: whoever asked for the slices knew the length.
    fn put(&mut self, mut bytes: &[u8]) {
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
        sink.put(&[5]);
        assert_eq!(sink.written(), 5);
        assert_eq!((a, c), ([1], [2, 3, 4, 5, 0]));
    }
}
