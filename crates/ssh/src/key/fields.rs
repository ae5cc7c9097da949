//! Reads the fields of a stored structure (key blob, certificate, key file, agent message), and says which structure it was that did not parse.
//!
//! RFC 4251 5 gives the types.

use super::KeyError;

/// What is left to read of one structure.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Fields<'a> {
    /// Starts at the front of `bytes`; `what` names the structure in errors.
    pub(crate) const fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], KeyError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(KeyError::Malformed(self.what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, KeyError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, KeyError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, KeyError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8], KeyError> {
        let len = self.u32()?;
        self.take(usize::try_from(len).map_err(|_| KeyError::Malformed(self.what))?)
    }

    /// A string of exactly `N` bytes.
    pub(crate) fn string_array<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        self.string()?
            .try_into()
            .map_err(|_| KeyError::Malformed(self.what))
    }

    /// A positive mpint in its shortest form, without the sign byte.
    pub(crate) fn positive(&mut self) -> Result<&'a [u8], KeyError> {
        match self.string()? {
            // RFC 4251 5: "Unnecessary leading bytes with the value 0 or 255 MUST NOT be included."
            [0, rest @ ..] if rest.first().is_some_and(|b| b & 0x80 != 0) => Ok(rest),
            whole @ [first, ..] if *first != 0 && *first & 0x80 == 0 => Ok(whole),
            _ => Err(KeyError::Malformed(self.what)),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Nothing may be left.
    pub(crate) fn finish(self) -> Result<(), KeyError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(KeyError::TrailingBytes(self.what))
        }
    }
}

/// Appends a string with its length in front.
pub(crate) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("every string here has a limit far below 4 GiB");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a non-negative big-endian number as the shortest mpint.
pub(crate) fn put_mpint(out: &mut Vec<u8>, number: &[u8]) {
    let start = number.iter().position(|b| *b != 0).unwrap_or(number.len());
    let digits = &number[start..];
    let sign = usize::from(digits.first().is_some_and(|b| b & 0x80 != 0));
    let len = u32::try_from(digits.len() + sign).expect("RSA_BITS_MAX bounds every number");
    out.extend_from_slice(&len.to_be_bytes());
    out.resize(out.len() + sign, 0);
    out.extend_from_slice(digits);
}
