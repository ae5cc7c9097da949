//! The binary packet protocol: framing, padding, limits and compression, in place.
//!
//! Owns sequence numbers, the use counts of keys and the compression streams. Does not own when
//! keys change (transport). Read first: RFC 4253 section 6.

mod direction;
mod open;
mod seal;
#[cfg(test)]
mod tests;
mod zlib;

pub(crate) use open::{Opened, Opener};
pub(crate) use seal::{HEADER_LEN, Sealer};

/// A compression method that can be negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// `none`.
    None,
    /// `zlib@openssh.com`: zlib that starts when authentication has succeeded.
    ZlibDelayed,
}

impl Compression {
    /// Every method.
    pub const ALL: &[Self] = &[Self::None, Self::ZlibDelayed];

    /// Its name in KEXINIT.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ZlibDelayed => "zlib@openssh.com",
        }
    }

    /// The method of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.name() == name)
    }
}
