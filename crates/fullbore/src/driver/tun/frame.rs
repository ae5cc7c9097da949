//! What comes from a TUN device: a `virtio_net_hdr`, an IP packet, in it a segment, or a router's word
//! that one was too long. Read first: the kernel's `include/uapi/linux/virtio_net.h`, RFC 791 3.1, RFC
//! 8200 3, RFC 792, RFC 1191 4, RFC 4443 3.2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fullbore_tcp::Seq;
use fullbore_tcp::isn::Tuple;

use super::{IPV4_BYTES, IPV6_BYTES};
use crate::driver::net::Received;
use crate::stack::Arrival;

/// Bytes of `virtio_net_hdr` in front of each packet: flags, GSO type, then four words of 16 bits in the
/// machine's order (header length, GSO size, checksum start, checksum offset).
pub const VNET_LEN: usize = 10;

/// One segment.
pub const GSO_NONE: u8 = 0;
/// Several, in IPv4.
pub const GSO_TCPV4: u8 = 1;
/// Several, in IPv6.
pub const GSO_TCPV6: u8 = 4;
/// A bit beside the type: the segments carry ECN.
pub const GSO_ECN: u8 = 0x80;

/// The checksum is still to be computed: the packet never was on a wire.
pub(super) const NEEDS_CSUM: u8 = 1;
/// Somebody has checked it.
const DATA_VALID: u8 = 2;

pub(super) const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// RFC 792, RFC 1191: destination unreachable, fragmentation needed.
const ICMP_TOO_BIG: [u8; 2] = [3, 4];
/// RFC 4443: packet too big.
const ICMPV6_TOO_BIG: [u8; 2] = [2, 0];
/// The header of either, in front of the packet that it speaks of.
const ICMP_BYTES: usize = 8;

/// RFC 3168: both bits set are a mark.
const ECN_CE: u8 = 3;

/// An IP packet.
struct Packet<'a> {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    is_marked: bool,
    /// As much of it as there is.
    payload: &'a [u8],
}

/// Reads what a read of the device gave; nothing when that is not for TCP.
pub fn open(bytes: &[u8]) -> Option<Received<'_>> {
    let (vnet, ip) = bytes.split_at_checked(VNET_LEN)?;
    let packet = parse(ip, true)?;
    match packet.protocol {
        TCP => Some(Received::Segment(Arrival {
            local: packet.destination,
            remote: packet.source,
            bytes: packet.payload,
            is_verified: vnet[0] & (NEEDS_CSUM | DATA_VALID) != 0,
            is_marked: packet.is_marked,
        })),
        ICMP => too_big(packet.payload, ICMP_TOO_BIG, IPV4_BYTES),
        ICMPV6 => too_big(packet.payload, ICMPV6_TOO_BIG, IPV6_BYTES),
        _ => None,
    }
}

fn parse(ip: &[u8], is_whole: bool) -> Option<Packet<'_>> {
    match ip.first()? >> 4 {
        4 => parse_v4(ip, is_whole),
        6 => parse_v6(ip, is_whole),
        _ => None,
    }
}

fn parse_v4(ip: &[u8], is_whole: bool) -> Option<Packet<'_>> {
    let header: &[u8; 20] = ip.first_chunk()?;
    let header_len = usize::from(header[0] & 0xf) * 4;
    let total = usize::from(word(header, 2));
    // More fragments, or an offset: TCP is told to avoid them, and nobody puts them together here.
    let is_fragment = word(header, 6) & 0x3fff != 0;
    if header_len < 20 || (is_whole && is_fragment) {
        return None;
    }
    // A packet of more than 64 KiB says that it is of none.
    let end = if is_whole && total != 0 {
        total
    } else {
        ip.len()
    };
    let address =
        |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&header[at..at + 4]).expect("four"));
    Some(Packet {
        source: address(12).into(),
        destination: address(16).into(),
        protocol: header[9],
        is_marked: header[1] & ECN_CE == ECN_CE,
        payload: ip.get(header_len..end)?,
    })
}

fn parse_v6(ip: &[u8], is_whole: bool) -> Option<Packet<'_>> {
    let header: &[u8; 40] = ip.first_chunk()?;
    let len = usize::from(word(header, 4));
    let end = if is_whole && len != 0 {
        40 + len
    } else {
        ip.len()
    };
    let address =
        |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).expect("sixteen"));
    Some(Packet {
        source: address(8).into(),
        destination: address(24).into(),
        protocol: header[6],
        // The traffic class lies across two bytes.
        is_marked: header[1] >> 4 & ECN_CE == ECN_CE,
        payload: ip.get(40..end)?,
    })
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// What a router sends back begins with the packet that was too long: its IP header, and at least
/// eight bytes of TCP's, which are ports and sequence number.
fn too_big(icmp: &[u8], kind: [u8; 2], ip_bytes: u16) -> Option<Received<'_>> {
    if icmp.get(..2)? != kind {
        return None;
    }
    // IPv6 has 32 bits for it, of which 16 are enough.
    let mtu = word(icmp.get(..ICMP_BYTES)?, 6);
    let ours = parse(icmp.get(ICMP_BYTES..)?, false)?;
    let tcp: &[u8; 8] = ours.payload.first_chunk()?;
    if ours.protocol != TCP {
        return None;
    }
    let seq = u32::from(word(tcp, 4)) << 16 | u32::from(word(tcp, 6));
    Some(Received::TooBig {
        tuple: Tuple {
            local: (ours.source, word(tcp, 0)),
            remote: (ours.destination, word(tcp, 2)),
        },
        seq: Seq::new(seq),
        mss: mtu.checked_sub(ip_bytes + 20)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x45, 2, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0];
        ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        ip.extend(payload);
        let total = u16::try_from(ip.len()).expect("short");
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip
    }

    fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let len = u16::try_from(payload.len()).expect("short").to_be_bytes();
        let mut ip = vec![0x60, 0x30, 0, 0, len[0], len[1], protocol, 64];
        ip.extend(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1).octets());
        ip.extend(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2).octets());
        ip.extend(payload);
        ip
    }

    fn with_vnet(flags: u8, ip: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; VNET_LEN];
        bytes[0] = flags;
        bytes.extend(ip);
        bytes
    }

    fn arrival(bytes: &[u8]) -> Arrival<'_> {
        match open(bytes) {
            Some(Received::Segment(arrival)) => arrival,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_segment_of_either_family_is_found_with_its_marks() {
        let mut bytes = with_vnet(0, &v4(TCP, b"segment"));
        // A link may have padded it.
        bytes.extend([0; 6]);
        let four = arrival(&bytes);
        assert_eq!(four.bytes, b"segment");
        assert_eq!(four.remote, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(four.local, IpAddr::from([10, 0, 0, 2]));
        assert!(!four.is_marked && !four.is_verified);

        let bytes = with_vnet(NEEDS_CSUM, &v6(TCP, b"segment"));
        let six = arrival(&bytes);
        assert_eq!(six.bytes, b"segment");
        assert_eq!(six.local, IpAddr::from([0xfd99, 0, 0, 0, 0, 0, 0, 2]));
        assert!(six.is_marked && six.is_verified);
    }

    #[test]
    fn what_is_cut_short_or_a_fragment_is_nothing() {
        let whole = with_vnet(0, &v4(TCP, b"segment"));
        for len in 0..whole.len() {
            assert!(open(&whole[..len]).is_none(), "{len}");
        }
        let mut fragment = whole.clone();
        fragment[VNET_LEN + 6] |= 0x20;
        assert!(open(&fragment).is_none());
        let mut short = whole;
        short[VNET_LEN] = 0x44;
        assert!(open(&short).is_none());
        assert!(open(&with_vnet(0, &v4(17, b"datagram"))).is_none());
    }

    /// Ports 22 and 4000, number 0x01020304.
    const TCP_START: [u8; 8] = [0, 22, 15, 160, 1, 2, 3, 4];

    #[test]
    fn a_router_that_says_too_big_is_understood() {
        let mut icmp = vec![3, 4, 0, 0, 0, 0, 5, 120];
        icmp.extend(v4(TCP, &TCP_START));
        let bytes = with_vnet(0, &v4(ICMP, &icmp));
        let Some(Received::TooBig { tuple, seq, mss }) = open(&bytes) else {
            panic!("not understood");
        };
        assert_eq!((tuple.local.1, tuple.remote.1), (22, 4000));
        assert_eq!(tuple.local.0, IpAddr::from([10, 0, 0, 1]));
        assert_eq!((seq, mss), (Seq::new(0x0102_0304), 1400 - 40));

        let mut icmp = vec![2, 0, 0, 0, 0, 0, 5, 0];
        icmp.extend(v6(TCP, &TCP_START));
        let bytes = with_vnet(0, &v6(ICMPV6, &icmp));
        let Some(Received::TooBig { mss, .. }) = open(&bytes) else {
            panic!("not understood");
        };
        assert_eq!(mss, 1280 - 60);
        // An echo request is not for us.
        assert!(open(&with_vnet(0, &v4(ICMP, &[8; 40]))).is_none());
    }
}
