//! Reads the fields of a stored structure (key blob, certificate, key file, agent message), and says
//! which structure it was that did not parse.
//!
//! The types are RFC 4251 5's, read by `wire`.

use super::KeyError;
use crate::wire::FieldError;
use crate::wire::Reader;

/// What is left to read of one structure.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    reader: Reader<'a>,
    what: &'static str,
}

impl<'a> Fields<'a> {
    /// Starts at the front of `bytes`; `what` names the structure in errors.
    pub(crate) const fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self {
            reader: Reader::new(bytes),
            what,
        }
    }

    fn named<T>(&self, field: Result<T, FieldError>) -> Result<T, KeyError> {
        field.map_err(|_| KeyError::Malformed(self.what))
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], KeyError> {
        let field = self.reader.bytes(len);
        self.named(field)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, KeyError> {
        let field = self.reader.u8();
        self.named(field)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, KeyError> {
        let field = self.reader.u32();
        self.named(field)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, KeyError> {
        let field = self.reader.u64();
        self.named(field)
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8], KeyError> {
        let field = self.reader.string();
        self.named(field)
    }

    /// A string of exactly `N` bytes.
    pub(crate) fn string_array<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        self.string()?
            .try_into()
            .map_err(|_| KeyError::Malformed(self.what))
    }

    /// A positive mpint in its shortest form, without the sign byte.
    pub(crate) fn positive(&mut self) -> Result<&'a [u8], KeyError> {
        let field = self.reader.mpint();
        match self.named(field)? {
            [] => Err(KeyError::Malformed(self.what)),
            number => Ok(number),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }

    /// Nothing may be left.
    pub(crate) fn finish(self) -> Result<(), KeyError> {
        self.reader
            .finish()
            .map_err(|_| KeyError::TrailingBytes(self.what))
    }
}
