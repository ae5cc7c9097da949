//! The control bits of a header.

use core::fmt;
use core::ops::BitOr;

/// A set of control bits, in the header's own order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// No bit.
    pub const NONE: Self = Self(0);
    /// The sender has no more data.
    pub const FIN: Self = Self(0x01);
    /// The stream starts here.
    pub const SYN: Self = Self(0x02);
    /// The connection is over at once.
    pub const RST: Self = Self(0x04);
    /// The receiver should pass on what it has.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field means something.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer means something.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// The flags of a header's byte 13.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Byte 13 of a header.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether every bit of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The same without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// `other` if `condition` holds, else no bit.
    #[must_use]
    pub const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

impl fmt::Debug for Flags {
    /// As scripts write them: `S`, `.` for ACK, `P`, `F`, `R`, `U`, `E`, `W`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LETTERS: [char; 8] = ['F', 'S', 'R', 'P', '.', 'U', 'E', 'W'];
        for (i, letter) in LETTERS.into_iter().enumerate() {
            if self.0 >> i & 1 == 1 {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}
