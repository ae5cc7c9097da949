//! Sequence numbers of the wire, and the positions that the engine counts in.
//!
//! RFC 9293 section 3.4. On the wire a stream is numbered modulo 2^32 from a random start; inside
//! the engine a position is a `u64` that never wraps: 0 is the SYN, 1 the first byte, and the FIN
//! follows the last byte. [`Seq`] is all that knows of the wrap.

use core::fmt;

/// A sequence number as the header carries it: modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(u32);

impl Seq {
    /// The sequence number `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The number as it stands in the header.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number `count` behind this one.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// How far this lies behind `other`: negative when it lies in front. Numbers 2^31 apart count
    /// as in front.
    ///
    /// `Seq::new(2).since(Seq::new(u32::MAX))` is 3.
    #[must_use]
    pub const fn since(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// The number of position `position` in a stream that starts with this number.
    #[must_use]
    pub const fn at(self, position: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "modulo 2^32 is the point")]
        self.plus(position as u32)
    }

    /// The position of `seq` in a stream that starts with this number: of all that it may be, the
    /// one nearest to `near`. `None` when that lies before the stream.
    #[must_use]
    pub fn position(self, seq: Self, near: u64) -> Option<u64> {
        let distance = seq.since(self.at(near));
        near.checked_add_signed(i64::from(distance))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_cross_the_wrap() {
        assert_eq!(Seq::new(2).since(Seq::new(u32::MAX)), 3);
        assert_eq!(Seq::new(u32::MAX).since(Seq::new(2)), -3);
        assert_eq!(Seq::new(0).since(Seq::new(0x7fff_ffff)), -0x7fff_ffff);
        assert!(Seq::new(0).since(Seq::new(0x8000_0000)) < 0);
    }

    #[test]
    fn a_position_survives_the_wire_when_it_is_near() {
        let initial = Seq::new(0xffff_ff00);
        for position in [0, 1, 0xff, 0x100, 0x1_0000_0000, 0x7_1234_5678] {
            let seq = initial.at(position);
            for near in [position, position + 0x7fff_ffff, position.saturating_sub(9)] {
                assert_eq!(initial.position(seq, near), Some(position));
            }
        }
    }

    #[test]
    fn a_number_before_the_stream_has_no_position() {
        let initial = Seq::new(1000);
        assert_eq!(initial.position(Seq::new(999), 0), None);
        assert_eq!(initial.position(Seq::new(999), 1), None);
        assert_eq!(initial.position(Seq::new(1000), 1), Some(0));
    }
}
