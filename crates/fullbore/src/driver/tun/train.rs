//! What goes to a TUN device: consecutive segments of one connection as one packet, which the kernel, or
//! the card behind it, cuts again (TSO). The payloads are gathered from where they lie in the batch.
//!
//! Example: 45 segments of 1,448 bytes that differ only in their sequence number leave with one `writev`
//! of 46 pieces: the headers of the first, and each payload.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use fullbore_tcp::segment::{Flags, HEADER_BYTES};
use rustix::io::Errno;

use super::frame::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, TCP, VNET_LEN};
use super::{IPV4_BYTES, IPV6_BYTES};
use crate::stack::{Batch, Outgoing};

/// Segments of one packet: 64 KiB of segments for Ethernet are 45; more of shorter ones bring little.
const SEGMENTS_MAX: usize = 64;

/// The longest IP packet.
const PACKET_BYTES_MAX: usize = 0xffff;

/// RFC 9293 3.1: where these stand in TCP's header.
const SEQ_AT: usize = 4;
const ACK_AT: usize = 8;
const FLAGS_AT: usize = 13;
const CHECKSUM_AT: usize = 16;

const HOP_LIMIT: u8 = 64;
const ECT_0: u8 = 2;

/// Bytes of the headers that a train has once: for the device, IP, and TCP with options.
const HEAD_BYTES_MAX: usize = VNET_LEN + IPV6_BYTES as usize + 60;

/// The front of a batch that leaves as one packet.
pub struct Train {
    head: [u8; HEAD_BYTES_MAX],
    head_len: usize,
    tcp_header_len: usize,
    segment_count: usize,
}

/// TCP's header as it stands in a segment.
#[derive(Clone, Copy)]
struct Look<'a> {
    header: &'a [u8],
    payload_len: usize,
}

impl<'a> Look<'a> {
    fn at(segment: &'a [u8]) -> Self {
        let header_len = usize::from(segment[12] >> 4) * 4;
        Self {
            header: &segment[..header_len],
            payload_len: segment.len() - header_len,
        }
    }

    fn seq(&self) -> u32 {
        let bytes = self.header[SEQ_AT..ACK_AT].try_into();
        u32::from_be_bytes(bytes.expect("four"))
    }

    fn flags(&self) -> u8 {
        self.header[FLAGS_AT]
    }

    /// Whether what the headers say apart from number, flags and checksum is the same.
    fn is_like(&self, other: &Look<'_>) -> bool {
        let same = |from: usize, to: usize| self.header[from..to] == other.header[from..to];
        self.header.len() == other.header.len()
            && same(0, SEQ_AT)
            && same(ACK_AT, FLAGS_AT)
            && same(FLAGS_AT + 1, CHECKSUM_AT)
            && same(HEADER_BYTES, self.header.len())
    }
}

const ACK: u8 = Flags::ACK.bits();
const CWR: u8 = Flags::CWR.bits();
/// What only the last segment of a train may have.
const LAST_ONLY: u8 = Flags::PSH.bits() | Flags::FIN.bits();

/// How many segments at the front of the batch may leave as one packet; at least one.
fn joinable(batch: &Batch) -> usize {
    let segments = batch.segments();
    let first_out = &segments[0];
    let first = Look::at(batch.segment(first_out));
    // ECN's echo may stand in all of them alike.
    let common = first.flags() & !(CWR | LAST_ONLY);
    let is_plain = common & !Flags::ECE.bits() == ACK && first.payload_len > 0;
    if !is_plain || first.flags() & LAST_ONLY != 0 {
        return 1;
    }
    let headers = usize::from(IPV6_BYTES) + first.header.len();
    let (mut count, mut bytes) = (1, first.payload_len);
    let mut seq = first.seq().wrapping_add(low(first.payload_len));
    for out in &segments[1..segments.len().min(SEGMENTS_MAX)] {
        let next = Look::at(batch.segment(out));
        let is_next = is_same_path(first_out, out)
            && next.is_like(&first)
            && next.seq() == seq
            && next.flags() & !LAST_ONLY == common
            && (1..=first.payload_len).contains(&next.payload_len)
            && headers + bytes + next.payload_len <= PACKET_BYTES_MAX;
        if !is_next {
            break;
        }
        count += 1;
        bytes += next.payload_len;
        seq = seq.wrapping_add(low(next.payload_len));
        if next.payload_len < first.payload_len || next.flags() & LAST_ONLY != 0 {
            break;
        }
    }
    count
}

fn is_same_path(one: &Outgoing, other: &Outgoing) -> bool {
    one.local == other.local && one.remote == other.remote && one.is_ect == other.is_ect
}

fn low(len: usize) -> u32 {
    u32::try_from(len).expect("a segment is short")
}

fn len16(len: usize) -> u16 {
    u16::try_from(len).expect("an IP packet's length has 16 bits")
}

impl Train {
    /// The first segments of `batch`, which is not empty, as far as they may leave together.
    pub fn new(batch: &Batch, ip_id: u16) -> Self {
        let segment_count = joinable(batch);
        let segments = &batch.segments()[..segment_count];
        let (first, last) = (&segments[0], &segments[segment_count - 1]);
        let look = Look::at(batch.segment(first));
        let payload_len: usize = segments
            .iter()
            .map(|out| batch.segment(out).len() - look.header.len())
            .sum();
        let tcp_len = look.header.len() + payload_len;
        let mut train = Self {
            head: [0; HEAD_BYTES_MAX],
            head_len: 0,
            tcp_header_len: look.header.len(),
            segment_count,
        };
        let ip_len = match (first.local, first.remote) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                train.put_v4(from, to, first.is_ect, ip_id, tcp_len)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => train.put_v6(from, to, first.is_ect, tcp_len),
            // The stack makes no connections between families.
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => 0,
        };
        let tcp_start = VNET_LEN + ip_len;
        train.head_len = tcp_start + look.header.len();
        let tcp = &mut train.head[tcp_start..train.head_len];
        tcp.copy_from_slice(look.header);
        tcp[FLAGS_AT] |= Look::at(batch.segment(last)).flags() & LAST_ONLY;
        let sum = pseudo_sum(first, tcp_len);
        tcp[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        train.put_vnet(&look, ip_len, first.local.is_ipv4());
        train
    }

    /// How many segments it is of.
    pub const fn segment_count(&self) -> usize {
        self.segment_count
    }

    /// Writes it to the device.
    pub fn write(&self, device: impl AsFd, batch: &Batch) -> Result<usize, Errno> {
        let mut pieces = [IoSlice::new(&[]); SEGMENTS_MAX + 1];
        pieces[0] = IoSlice::new(&self.head[..self.head_len]);
        let segments = &batch.segments()[..self.segment_count];
        for (piece, out) in pieces[1..].iter_mut().zip(segments) {
            *piece = IoSlice::new(&batch.segment(out)[self.tcp_header_len..]);
        }
        rustix::io::writev(device, &pieces[..=self.segment_count])
    }

    fn put_vnet(&mut self, first: &Look<'_>, ip_len: usize, is_v4: bool) {
        let is_many = self.segment_count > 1;
        let kind = match (is_many, is_v4) {
            (false, _) => GSO_NONE,
            (true, true) => GSO_TCPV4,
            (true, false) => GSO_TCPV6,
        };
        let is_cwr = is_many && first.flags() & CWR != 0;
        self.head[0] = NEEDS_CSUM;
        self.head[1] = kind | if is_cwr { GSO_ECN } else { 0 };
        let words = [
            if is_many {
                ip_len + first.header.len()
            } else {
                0
            },
            if is_many { first.payload_len } else { 0 },
            ip_len,
            CHECKSUM_AT,
        ];
        for (at, word) in self.head[2..VNET_LEN].chunks_mut(2).zip(words) {
            at.copy_from_slice(&len16(word).to_ne_bytes());
        }
    }

    fn put_v4(&mut self, from: Ipv4Addr, to: Ipv4Addr, is_ect: bool, id: u16, len: usize) -> usize {
        let header_len = usize::from(IPV4_BYTES);
        let ip = &mut self.head[VNET_LEN..VNET_LEN + header_len];
        ip[0] = 0x45;
        ip[1] = if is_ect { ECT_0 } else { 0 };
        ip[2..4].copy_from_slice(&len16(header_len + len).to_be_bytes());
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        // Don't fragment: the path's MTU is to be found.
        ip[6] = 0x40;
        ip[8] = HOP_LIMIT;
        ip[9] = TCP;
        ip[12..16].copy_from_slice(&from.octets());
        ip[16..20].copy_from_slice(&to.octets());
        let sum = !fold(sum_of(ip));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        header_len
    }

    fn put_v6(&mut self, from: Ipv6Addr, to: Ipv6Addr, is_ect: bool, len: usize) -> usize {
        let header_len = usize::from(IPV6_BYTES);
        let ip = &mut self.head[VNET_LEN..VNET_LEN + header_len];
        ip[0] = 0x60;
        ip[1] = if is_ect { ECT_0 << 4 } else { 0 };
        ip[4..6].copy_from_slice(&len16(len).to_be_bytes());
        ip[6] = TCP;
        ip[7] = HOP_LIMIT;
        ip[8..24].copy_from_slice(&from.octets());
        ip[24..40].copy_from_slice(&to.octets());
        header_len
    }
}

/// The sum over the pseudo header, where the rest of the checksum is left to the device.
fn pseudo_sum(out: &Outgoing, tcp_len: usize) -> u16 {
    let of = |address: IpAddr| match address {
        IpAddr::V4(v4) => sum_of(&v4.octets()),
        IpAddr::V6(v6) => sum_of(&v6.octets()),
    };
    fold(of(out.local) + of(out.remote) + u32::from(TCP) + low(tcp_len))
}

/// RFC 1071, not folded; `bytes` are few, and of an even number.
fn sum_of(bytes: &[u8]) -> u32 {
    let (words, _) = bytes.as_chunks::<2>();
    words
        .iter()
        .map(|w| u32::from(u16::from_be_bytes(*w)))
        .sum()
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from(sum).expect("folded twice")
}

#[cfg(test)]
mod tests;
