//! The checksum over a segment and its pseudo header.
//!
//! RFC 9293 section 3.1, RFC 8200 section 8.1, arithmetic of RFC 1071.

use core::net::IpAddr;

/// TCP's number in the IP header.
const PROTOCOL: u16 = 6;

/// What the checksum covers besides the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pseudo {
    /// The addresses of the IP header, as their sum.
    Addresses {
        /// Sum of the 16-bit words of both addresses.
        sum: u32,
    },
    /// The checksum is not ours: the driver leaves it to the device, or what carries the segment
    /// protects it.
    Unchecked,
}

impl Pseudo {
    /// The pseudo header of segments between these two. It is the same in both directions.
    #[must_use]
    pub fn between(one: IpAddr, other: IpAddr) -> Self {
        Self::Addresses {
            sum: address_sum(one) + address_sum(other),
        }
    }

    /// The checksum of `segment`, whose checksum field is zero. `None` when it is not ours.
    #[must_use]
    pub fn checksum(self, segment: &[u8]) -> Option<u16> {
        match self {
            Self::Addresses { sum } => Some(!fold(sum_with_length(sum, segment))),
            Self::Unchecked => None,
        }
    }

    /// Whether the checksum inside `segment` is right, or not ours to check.
    #[must_use]
    pub fn is_valid(self, segment: &[u8]) -> bool {
        match self {
            Self::Addresses { sum } => fold(sum_with_length(sum, segment)) == 0xffff,
            Self::Unchecked => true,
        }
    }
}

fn address_sum(address: IpAddr) -> u32 {
    let words = |bytes: &[u8]| fold(sum_of(bytes));
    u32::from(match address {
        IpAddr::V4(v4) => words(&v4.octets()),
        IpAddr::V6(v6) => words(&v6.octets()),
    })
}

fn sum_with_length(addresses: u32, segment: &[u8]) -> u64 {
    // The length is a 32-bit field in IPv6 and a 16-bit one in IPv4: the same sum.
    u64::from(addresses) + u64::from(PROTOCOL) + segment.len() as u64 + sum_of(segment)
}

/// The sum of `bytes` as 16-bit words, not folded; an odd last byte counts as the upper half.
///
/// Adds four bytes at a time: ones' complement sums may be taken over any multiple of 16 bits and
/// folded later (RFC 1071 section 2 (C)).
fn sum_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_be_bytes(*word)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("it is folded")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of RFC 1071 section 3: 0001 f203 f4f5 f6f7 add up to ddf2.
    #[test]
    fn the_sum_is_that_of_the_rfc() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum_of(&bytes)), 0xddf2);
    }

    #[test]
    fn an_odd_byte_counts_as_the_upper_half_of_a_word() {
        assert_eq!(fold(sum_of(&[0x12])), 0x1200);
        assert_eq!(fold(sum_of(&[0, 0, 0, 0, 0, 1, 0x12])), 0x1201);
    }

    #[test]
    fn both_directions_and_both_families_check() {
        let pairs: [(IpAddr, IpAddr); 2] = [
            ([10, 0, 0, 1].into(), [192, 168, 7, 255].into()),
            (
                [0xfe80, 0, 0, 0, 1, 2, 3, 4].into(),
                [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
            ),
        ];
        for (a, b) in pairs {
            let mut segment = *b"0123456789abcdef\0\0and an odd tail.";
            let sum = Pseudo::between(a, b).checksum(&segment).expect("ours");
            segment[16..18].copy_from_slice(&sum.to_be_bytes());
            assert!(Pseudo::between(b, a).is_valid(&segment));
            segment[3] ^= 0x10;
            assert!(!Pseudo::between(b, a).is_valid(&segment));
            assert!(Pseudo::Unchecked.is_valid(&segment));
        }
    }
}
