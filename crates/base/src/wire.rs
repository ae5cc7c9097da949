//! RFC 4251 section 5: the data types of every SSH and SFTP message, read without allocation and
//! with every length checked, written to anything that takes bytes in order.

use std::fmt;

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// It ends behind the end of its message.
    Truncated,
    /// It was the last, and bytes follow.
    TrailingBytes,
    /// A string longer than its named limit.
    StringTooLong,
    /// An integer that is negative, or padded with zeros beyond what the encoding needs.
    Mpint,
    /// Text that is not UTF-8, or a name that is not printable US-ASCII.
    Text,
}

impl FieldError {
    /// What is wrong, for a person.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Truncated => "a message ends before its last field does",
            Self::TrailingBytes => "a message has bytes behind its last field",
            Self::StringTooLong => "a string longer than the limit for its field",
            Self::Mpint => "a malformed integer",
            Self::Text => "text that is not UTF-8, or a name that is not printable ASCII",
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for FieldError {}

type Result<T> = std::result::Result<T, FieldError>;

/// Reads fields from the front of a message. Every read is bounds-checked and borrows.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader over a whole payload or a part of one.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// `Truncated` when fewer are left.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(FieldError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// A byte.
    ///
    /// # Errors
    /// `Truncated` at the end.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    /// A boolean: any non-zero byte is true.
    ///
    /// # Errors
    /// `Truncated` at the end.
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }

    /// A uint32.
    ///
    /// # Errors
    /// `Truncated` when fewer than four bytes are left.
    pub fn u32(&mut self) -> Result<u32> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A uint64.
    ///
    /// # Errors
    /// `Truncated` when fewer than eight bytes are left.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// A string, borrowed from the message.
    ///
    /// # Errors
    /// `Truncated` when it ends behind the message.
    pub fn string(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(usize::try_from(len).map_err(|_| FieldError::Truncated)?)
    }

    /// A string of at most `len_max` bytes.
    ///
    /// # Errors
    /// `StringTooLong` past the limit, `Truncated` as [`Reader::string`].
    pub fn string_max(&mut self, len_max: usize) -> Result<&'a [u8]> {
        let string = self.string()?;
        if string.len() > len_max {
            return Err(FieldError::StringTooLong);
        }
        Ok(string)
    }

    /// A string that must be UTF-8.
    ///
    /// # Errors
    /// `Text` when it is not, `Truncated` as [`Reader::string`].
    pub fn utf8(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.string()?).map_err(|_| FieldError::Text)
    }

    /// A non-negative mpint: its magnitude, most significant byte first, without leading zeros
    /// (zero is empty).
    ///
    /// # Errors
    /// `Mpint` when negative or not in its shortest form.
    pub fn mpint(&mut self) -> Result<&'a [u8]> {
        let bytes = self.string()?;
        match bytes {
            [] => Ok(bytes),
            [first, ..] if *first >= 0x80 => Err(FieldError::Mpint),
            [0, second, ..] if *second >= 0x80 => Ok(&bytes[1..]),
            [0, ..] => Err(FieldError::Mpint),
            _ => Ok(bytes),
        }
    }

    /// A name-list.
    ///
    /// # Errors
    /// `Text` when a byte is not printable US-ASCII, `Truncated` as [`Reader::string`].
    pub fn name_list(&mut self) -> Result<NameList<'a>> {
        NameList::new(self.string()?)
    }

    /// What is left, without taking it.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Ends the parse.
    ///
    /// # Errors
    /// `TrailingBytes` when something is left.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(FieldError::TrailingBytes)
        }
    }
}

/// A comma-separated list of names, as it stands in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameList<'a>(&'a str);

impl<'a> NameList<'a> {
    /// Checks that the list is printable US-ASCII.
    ///
    /// # Errors
    /// `Text` when it is not.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        if !bytes.iter().all(u8::is_ascii_graphic) {
            return Err(FieldError::Text);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| FieldError::Text)?;
        Ok(Self(text))
    }

    /// The names in order. Empty ones are left out: RFC 4251 forbids them, libssh 0.10 sends them.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        self.0.split(',').filter(|name| !name.is_empty())
    }

    /// Whether `name` is in it.
    #[must_use]
    pub fn contains(self, name: &str) -> bool {
        self.iter().any(|n| n == name)
    }

    /// The list as it was sent.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// A length as the wire carries it.
///
/// # Panics
/// Past 4 GiB, which no message reaches.
#[must_use]
pub fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("messages are bounded far under 4 GiB")
}

/// Takes a message's fields in order. Encoders that need their length first run once against a
/// counter and once against the destination.
pub trait Put {
    /// Appends raw bytes.
    fn put_raw(&mut self, bytes: &[u8]);

    /// Appends a byte.
    fn put_u8(&mut self, value: u8) {
        self.put_raw(&[value]);
    }

    /// Appends a boolean.
    fn put_bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }

    /// Appends a uint32.
    fn put_u32(&mut self, value: u32) {
        self.put_raw(&value.to_be_bytes());
    }

    /// Appends a uint64.
    fn put_u64(&mut self, value: u64) {
        self.put_raw(&value.to_be_bytes());
    }

    /// Appends a string.
    ///
    /// # Panics
    /// Past 4 GiB, which no message reaches.
    fn put_string(&mut self, bytes: &[u8]) {
        self.put_u32(len_u32(bytes.len()));
        self.put_raw(bytes);
    }

    /// Appends a non-negative mpint from its magnitude, most significant byte first.
    fn put_mpint(&mut self, magnitude: &[u8]) {
        let zeros = magnitude.iter().take_while(|byte| **byte == 0).count();
        let digits = &magnitude[zeros..];
        let sign = usize::from(digits.first().is_some_and(|byte| *byte >= 0x80));
        self.put_u32(len_u32(digits.len() + sign));
        self.put_raw(&[0][..sign]);
        self.put_raw(digits);
    }

    /// Appends a name-list.
    fn put_name_list<'n>(&mut self, names: impl IntoIterator<Item = &'n str>)
    where
        Self: Sized,
    {
        let mut list = String::new();
        for name in names {
            if !list.is_empty() {
                list.push(',');
            }
            list.push_str(name);
        }
        self.put_string(list.as_bytes());
    }
}

impl Put for Vec<u8> {
    fn put_raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mpint(bytes: &[u8]) -> Result<Vec<u8>> {
        let mut message = Vec::new();
        message.put_string(bytes);
        Reader::new(&message).mpint().map(<[u8]>::to_vec)
    }

    #[test]
    fn rfc_4251_mpint_examples() {
        // RFC 4251 section 5.
        for (magnitude, wire) in [
            (&[][..], &[0, 0, 0, 0][..]),
            (
                &[0x09, 0xa3, 0x78, 0xf9, 0xb2, 0xe3, 0x32, 0xa7],
                &[0, 0, 0, 8, 0x09, 0xa3, 0x78, 0xf9, 0xb2, 0xe3, 0x32, 0xa7],
            ),
            (&[0x80], &[0, 0, 0, 2, 0, 0x80]),
        ] {
            let mut out = Vec::new();
            out.put_mpint(magnitude);
            assert_eq!(out, wire);
            assert_eq!(Reader::new(wire).mpint(), Ok(magnitude));
        }
        // -1234 and -deadbeef.
        assert_eq!(mpint(&[0xed, 0xcc]), Err(FieldError::Mpint));
        assert_eq!(
            mpint(&[0xff, 0x21, 0x52, 0x41, 0x11]),
            Err(FieldError::Mpint)
        );
    }

    #[test]
    fn mpint_leading_zeros_are_stripped_on_writing_and_refused_on_reading() {
        let mut out = Vec::new();
        out.put_mpint(&[0, 0, 0, 0x7f]);
        assert_eq!(out, [0, 0, 0, 1, 0x7f]);
        assert_eq!(mpint(&[0, 0x7f]), Err(FieldError::Mpint));
        assert_eq!(mpint(&[0]), Err(FieldError::Mpint));
        assert_eq!(mpint(&[0, 0xff]), Ok(vec![0xff]));
    }

    #[test]
    fn fields_end_where_the_message_does() {
        assert_eq!(
            Reader::new(&[0, 0, 0, 2, 1]).string(),
            Err(FieldError::Truncated)
        );
        assert_eq!(Reader::new(&[0, 0, 0, 1, 1]).string(), Ok(&[1][..]));
        assert_eq!(Reader::new(&[0xff; 4]).string(), Err(FieldError::Truncated));
        assert_eq!(Reader::new(&[0; 3]).u32(), Err(FieldError::Truncated));
        assert_eq!(Reader::new(&[0; 7]).u64(), Err(FieldError::Truncated));
        assert_eq!(
            Reader::new(&[0, 0, 0, 0, 1, 0, 0, 2]).u64(),
            Ok(0x0100_0002)
        );
        assert_eq!(Reader::new(&[]).finish(), Ok(()));
        assert_eq!(Reader::new(&[0]).finish(), Err(FieldError::TrailingBytes));
    }

    #[test]
    fn a_string_is_taken_at_its_limit_and_refused_past_it() {
        let message = [0, 0, 0, 3, 1, 2, 3];
        assert!(Reader::new(&message).string_max(3).is_ok());
        assert_eq!(
            Reader::new(&message).string_max(2),
            Err(FieldError::StringTooLong)
        );
    }

    #[test]
    fn name_lists_tolerate_empty_names_and_refuse_what_is_not_printable() {
        let list = NameList::new(b"aes128-ctr,,aes256-ctr,").expect("printable");
        assert_eq!(
            list.iter().collect::<Vec<_>>(),
            ["aes128-ctr", "aes256-ctr"]
        );
        assert!(list.contains("aes256-ctr") && !list.contains("") && !list.contains("aes"));
        assert_eq!(NameList::new(b"").expect("empty").iter().count(), 0);
        assert_eq!(NameList::new(b"a b"), Err(FieldError::Text));
        assert_eq!(NameList::new(b"a\n"), Err(FieldError::Text));
        assert_eq!(NameList::new(b"\xc3\xa9"), Err(FieldError::Text));
        let mut out = Vec::new();
        out.put_name_list(["a", "b"]);
        assert_eq!(out, b"\0\0\0\x03a,b");
    }
}
