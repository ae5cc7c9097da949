//! IP packets around TCP segments, and what ICMP says of them.
//!
//! RFC 791, RFC 8200 (no extension headers), RFC 792 and 4443 (unreachable, too big), RFC 5927 (which part
//! of the original an ICMP message repeats). Knows no connection.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fullbore_tcp::Seq;
use fullbore_tcp::isn::Tuple;

/// Bytes of an IPv4 header without options, as we send it.
pub const V4_HEADER_BYTES: usize = 20;
/// Bytes of an IPv6 header.
pub const V6_HEADER_BYTES: usize = 40;
/// The largest packet that the length fields of both families can name.
pub const PACKET_BYTES_MAX: usize = 65_535;

const TCP: u8 = 6;
const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;
const TTL: u8 = 64;

/// The two bits of congestion notification in the type of service (RFC 3168 section 5).
pub const ECN_MASK: u8 = 0b11;
/// ECT(0): the packet may be marked.
pub const ECT_0: u8 = 0b10;
/// The path marked it.
pub const CE: u8 = 0b11;

/// A packet that concerns us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A TCP segment, not yet parsed.
    Tcp {
        /// Who sent it.
        source: IpAddr,
        /// Whom it is for.
        destination: IpAddr,
        /// The type of service, congestion bits included.
        tos: u8,
        /// The segment.
        segment: &'a [u8],
    },
    /// What a router or the far host says of a segment of ours.
    Icmp {
        /// The connection it is about.
        tuple: Tuple,
        /// The number of the segment's first byte.
        seq: Seq,
        /// What happened to it.
        verdict: Verdict,
    },
}

/// What became of a segment according to ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A link takes no packets of more than so many bytes.
    TooBig(u32),
    /// It cannot be delivered, as this `errno` says.
    Unreachable(i32),
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..at + 2)
        .map(|b| u16::from_be_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16_at(bytes, at)?) << 16 | u32::from(u16_at(bytes, at + 2)?))
}

/// The checksum of RFC 1071 over `bytes`, of an even number.
fn checksum(bytes: &[u8]) -> u16 {
    let (words, _) = bytes.as_chunks::<2>();
    let mut sum: u32 = words
        .iter()
        .map(|w| u32::from(u16::from_be_bytes(*w)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("it is folded")
}

/// An IP header taken apart.
struct Envelope<'a> {
    source: IpAddr,
    destination: IpAddr,
    tos: u8,
    protocol: u8,
    body: &'a [u8],
}

/// Reads the header; `None` when it is none, or of a fragment. `is_whole`: the body is all there (ICMP
/// repeats only the beginning).
fn open(bytes: &[u8], is_whole: bool) -> Option<Envelope<'_>> {
    match bytes.first()? >> 4 {
        4 => open_v4(bytes, is_whole),
        6 => open_v6(bytes, is_whole),
        _ => None,
    }
}

fn open_v4(bytes: &[u8], is_whole: bool) -> Option<Envelope<'_>> {
    const FRAGMENT_MASK: u16 = 0x3fff;
    let header_len = usize::from(bytes[0] & 0xf) * 4;
    let header = bytes.get(..header_len)?;
    if header_len < V4_HEADER_BYTES || checksum(header) != 0 {
        return None;
    }
    if u16_at(bytes, 6)? & FRAGMENT_MASK != 0 {
        return None;
    }
    let total = usize::from(u16_at(bytes, 2)?);
    let end = if is_whole {
        total
    } else {
        total.min(bytes.len())
    };
    Some(Envelope {
        source: Ipv4Addr::from_bits(u32_at(bytes, 12)?).into(),
        destination: Ipv4Addr::from_bits(u32_at(bytes, 16)?).into(),
        tos: bytes[1],
        protocol: bytes[9],
        body: bytes.get(header_len..end)?,
    })
}

fn open_v6(bytes: &[u8], is_whole: bool) -> Option<Envelope<'_>> {
    let address = |at: usize| {
        let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(octets)))
    };
    let total = V6_HEADER_BYTES + usize::from(u16_at(bytes, 4)?);
    let end = if is_whole {
        total
    } else {
        total.min(bytes.len())
    };
    Some(Envelope {
        source: address(8)?,
        destination: address(24)?,
        tos: (bytes[0] & 0xf) << 4 | bytes[1] >> 4,
        protocol: bytes[6],
        body: bytes.get(V6_HEADER_BYTES..end)?,
    })
}

/// Reads a packet; `None` for what is no packet, or nothing to us. O(header).
pub fn parse(bytes: &[u8]) -> Option<Packet<'_>> {
    let outer = open(bytes, true)?;
    match (outer.protocol, outer.source.is_ipv4()) {
        (TCP, _) => Some(Packet::Tcp {
            source: outer.source,
            destination: outer.destination,
            tos: outer.tos,
            segment: outer.body,
        }),
        (ICMP_V4, true) => parse_icmp(outer.body, verdict_v4(outer.body)?),
        (ICMP_V6, false) => parse_icmp(outer.body, verdict_v6(outer.body)?),
        _ => None,
    }
}

fn verdict_v4(body: &[u8]) -> Option<Verdict> {
    match (body.first()?, body.get(1)?) {
        (3, 0) => Some(Verdict::Unreachable(libc::ENETUNREACH)),
        (3, 1) => Some(Verdict::Unreachable(libc::EHOSTUNREACH)),
        (3, 2) => Some(Verdict::Unreachable(libc::ENOPROTOOPT)),
        (3, 3) => Some(Verdict::Unreachable(libc::ECONNREFUSED)),
        // A router older than RFC 1191 names no size: there is nothing to go by.
        (3, 4) => match u16_at(body, 6)? {
            0 => None,
            mtu => Some(Verdict::TooBig(u32::from(mtu))),
        },
        _ => None,
    }
}

fn verdict_v6(body: &[u8]) -> Option<Verdict> {
    match (body.first()?, body.get(1)?) {
        (1, 0) => Some(Verdict::Unreachable(libc::ENETUNREACH)),
        (1, 1) => Some(Verdict::Unreachable(libc::EACCES)),
        (1, 3) => Some(Verdict::Unreachable(libc::EHOSTUNREACH)),
        (1, 4) => Some(Verdict::Unreachable(libc::ECONNREFUSED)),
        (2, 0) => Some(Verdict::TooBig(u32_at(body, 4)?)),
        _ => None,
    }
}

/// Behind eight bytes of ICMP stands the beginning of what was sent: our header and at least the
/// ports and the number of the segment.
fn parse_icmp(body: &[u8], verdict: Verdict) -> Option<Packet<'_>> {
    let inner = open(body.get(8..)?, false)?;
    if inner.protocol != TCP {
        return None;
    }
    Some(Packet::Icmp {
        tuple: Tuple {
            local: (inner.source, u16_at(inner.body, 0)?),
            remote: (inner.destination, u16_at(inner.body, 2)?),
        },
        seq: Seq::new(u32_at(inner.body, 4)?),
        verdict,
    })
}

/// A packet with `segment` in it. `identification` is the IPv4 header's; fragments are forbidden.
///
/// # Panics
/// When the addresses are of two families, or the packet would be longer than [`PACKET_BYTES_MAX`].
pub fn wrap(tuple: &Tuple, tos: u8, identification: u16, segment: &[u8]) -> Vec<u8> {
    let mut packet = match (tuple.local.0, tuple.remote.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header_v4(from, to, tos, identification, segment.len()).to_vec()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => header_v6(from, to, tos, segment.len()).to_vec(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
            panic!("both ends of a connection are of one family")
        }
    };
    packet.extend_from_slice(segment);
    packet
}

fn header_v4(from: Ipv4Addr, to: Ipv4Addr, tos: u8, id: u16, len: usize) -> [u8; V4_HEADER_BYTES] {
    const DO_NOT_FRAGMENT: u8 = 0x40;
    let total = u16::try_from(V4_HEADER_BYTES + len).expect("a packet fits its length field");
    let mut header = [0; V4_HEADER_BYTES];
    header[0] = 0x45;
    header[1] = tos;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[6] = DO_NOT_FRAGMENT;
    header[8] = TTL;
    header[9] = TCP;
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn header_v6(from: Ipv6Addr, to: Ipv6Addr, tos: u8, len: usize) -> [u8; V6_HEADER_BYTES] {
    let len = u16::try_from(len).expect("a packet fits its length field");
    let mut header = [0; V6_HEADER_BYTES];
    header[0] = 0x60 | tos >> 4;
    header[1] = tos << 4;
    header[4..6].copy_from_slice(&len.to_be_bytes());
    header[6] = TCP;
    header[7] = TTL;
    header[8..24].copy_from_slice(&from.octets());
    header[24..40].copy_from_slice(&to.octets());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4() -> Tuple {
        Tuple {
            local: ([192, 168, 0, 1].into(), 8080),
            remote: ([192, 0, 2, 1].into(), 40_000),
        }
    }

    fn v6() -> Tuple {
        Tuple {
            local: ([0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), 8080),
            remote: ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), 40_000),
        }
    }

    #[test]
    fn what_is_wrapped_can_be_read() {
        for tuple in [v4(), v6()] {
            let packet = wrap(&tuple, 0xb8 | ECT_0, 7, b"a segment");
            let expected = Packet::Tcp {
                source: tuple.local.0,
                destination: tuple.remote.0,
                tos: 0xba,
                segment: b"a segment",
            };
            assert_eq!(parse(&packet), Some(expected));
            // Bytes behind the packet's own length are padding; one byte too few is no packet.
            let mut padded = packet.clone();
            padded.push(0);
            assert_eq!(parse(&padded), Some(expected));
            assert_eq!(parse(&packet[..packet.len() - 1]), None);
        }
    }

    #[test]
    fn a_damaged_header_and_a_fragment_are_nothing() {
        let packet = wrap(&v4(), 0, 7, b"a segment");
        let mut damaged = packet.clone();
        damaged[8] ^= 1;
        assert_eq!(parse(&damaged), None);
        let mut fragment = packet;
        fragment[6] = 0x20;
        fragment[10..12].fill(0);
        let sum = checksum(&fragment[..20]);
        fragment[10..12].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(parse(&fragment), None);
        for bytes in [&b""[..], b"\x45", b"\x60\0\0", b"\x00"] {
            assert_eq!(parse(bytes), None);
        }
    }

    /// An ICMP message about the first bytes of a segment from `tuple`.
    fn icmp(tuple: &Tuple, head: [u8; 8]) -> Vec<u8> {
        let mut segment = vec![0; 20];
        segment[0..2].copy_from_slice(&tuple.local.1.to_be_bytes());
        segment[2..4].copy_from_slice(&tuple.remote.1.to_be_bytes());
        segment[4..8].copy_from_slice(&77u32.to_be_bytes());
        let mut inner = wrap(tuple, 0, 1, &segment);
        inner.truncate(inner.len() - 12);
        let body = [&head[..], &inner].concat();
        let back = Tuple {
            local: tuple.remote,
            remote: tuple.local,
        };
        let mut packet = wrap(&back, 0, 2, &body);
        if tuple.local.0.is_ipv4() {
            packet[9] = ICMP_V4;
            packet[10..12].fill(0);
            let sum = checksum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            packet[6] = ICMP_V6;
        }
        packet
    }

    #[test]
    fn icmp_names_the_connection_the_number_and_what_happened() {
        let cases = [
            (v4(), [3, 4, 0, 0, 0, 0, 4, 0], Verdict::TooBig(1024)),
            (v6(), [2, 0, 0, 0, 0, 0, 5, 0], Verdict::TooBig(1280)),
            (
                v4(),
                [3, 1, 0, 0, 0, 0, 0, 0],
                Verdict::Unreachable(libc::EHOSTUNREACH),
            ),
            (
                v6(),
                [1, 4, 0, 0, 0, 0, 0, 0],
                Verdict::Unreachable(libc::ECONNREFUSED),
            ),
        ];
        for (tuple, head, verdict) in cases {
            let packet = icmp(&tuple, head);
            let expected = Packet::Icmp {
                tuple,
                seq: Seq::new(77),
                verdict,
            };
            assert_eq!(parse(&packet), Some(expected));
        }
        // A size that is not named, and an echo, are nothing to us.
        assert_eq!(parse(&icmp(&v4(), [3, 4, 0, 0, 0, 0, 0, 0])), None);
        assert_eq!(parse(&icmp(&v4(), [8, 0, 0, 0, 0, 0, 0, 0])), None);
    }
}
