//! Packets as a TUN device with `IFF_VNET_HDR` hands them over: a `virtio_net_hdr`, then IP. Owns what
//! a packet of many segments (TSO) weighs on the wire, and how part of it is cut out. Read first: the
//! kernel's `include/uapi/linux/virtio_net.h`, RFC 791 3.1, RFC 9293 3.1, RFC 1071.

pub use fullbore::driver::tun::VNET_LEN;
use fullbore::driver::tun::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6};

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;
const PROTOCOL_TCP: u16 = 6;

/// One packet, perhaps of many segments, with its `virtio_net_hdr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet(Vec<u8>);

/// How a packet falls into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where TCP begins in the IP packet; zero unless there are segments.
    tcp_start: usize,
    /// IP and TCP headers that each segment has.
    header_len: usize,
    /// Payload of all segments.
    payload_len: usize,
    /// Payload of each segment but the last; zero for a packet that is one segment.
    mss: usize,
    /// At least 1.
    pub segment_count: usize,
}

impl Layout {
    /// Bytes of IP that segment `index` has on the wire.
    #[must_use]
    pub fn wire_len(&self, index: usize) -> usize {
        self.header_len
            + self
                .payload_len
                .saturating_sub(index * self.mss)
                .min(self.payload_max())
    }

    const fn payload_max(&self) -> usize {
        if self.mss == 0 {
            self.payload_len
        } else {
            self.mss
        }
    }
}

impl Packet {
    /// Takes what a read of the device gave; nothing when that is no packet.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() > VNET_LEN).then_some(Self(bytes))
    }

    /// What a write to the device takes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn ip(&self) -> &[u8] {
        &self.0[VNET_LEN..]
    }

    /// One of the header's words: 0 header length, 1 GSO size, 2 checksum start, 3 checksum offset.
    fn vnet_word(&self, index: usize) -> usize {
        let at = 2 + 2 * index;
        usize::from(u16::from_ne_bytes([self.0[at], self.0[at + 1]]))
    }

    /// How the packet falls into segments. One that is not TSO, or whose headers make no sense, is one
    /// segment.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let whole = Layout {
            tcp_start: 0,
            header_len: 0,
            payload_len: self.ip().len(),
            mss: 0,
            segment_count: 1,
        };
        let (mss, tcp_start) = (self.vnet_word(1), self.vnet_word(2));
        if !matches!(self.0[1] & !GSO_ECN, GSO_TCPV4 | GSO_TCPV6) || mss == 0 {
            return whole;
        }
        let Some(tcp_header_len) = tcp_header_len(self.ip(), tcp_start) else {
            return whole;
        };
        let header_len = tcp_start + tcp_header_len;
        let Some(payload_len) = self.ip().len().checked_sub(header_len) else {
            return whole;
        };
        Layout {
            tcp_start,
            header_len,
            payload_len,
            mss,
            segment_count: payload_len.div_ceil(mss).max(1),
        }
    }

    /// Segments `first..end` as a packet of their own, as the sender's hardware would have cut it. Its
    /// TCP checksum is left as partial as that of the whole (the pseudo header's sum alone).
    ///
    /// Example: 10 segments of 1,448 bytes at sequence number 1,000; `slice(layout, 4, 10)` begins at
    /// 1,000 + 4 x 1,448 and keeps FIN and PSH, which `slice(layout, 0, 4)` loses.
    ///
    /// # Panics
    /// When the range is empty or past the packet's segments.
    #[must_use]
    pub fn slice(&self, layout: &Layout, first: usize, end: usize) -> Self {
        assert!(
            first < end && end <= layout.segment_count,
            "no such segments"
        );
        if first == 0 && end == layout.segment_count {
            return self.clone();
        }
        let payload = layout.header_len + first * layout.mss
            ..layout.header_len + layout.payload_len.min(end * layout.mss);
        let mut bytes = Vec::with_capacity(VNET_LEN + layout.header_len + payload.len());
        bytes.extend_from_slice(&self.0[..VNET_LEN + layout.header_len]);
        bytes.extend_from_slice(&self.ip()[payload.clone()]);
        let (vnet, ip) = bytes.split_at_mut(VNET_LEN);
        if payload.len() <= layout.mss {
            vnet[1] = GSO_NONE;
            vnet[4..6].fill(0);
        }
        let tcp = layout.tcp_start;
        let sequence = u32::from_be_bytes([ip[tcp + 4], ip[tcp + 5], ip[tcp + 6], ip[tcp + 7]]);
        let skipped = u32::try_from(first * layout.mss).expect("a packet is at most 64 KiB");
        ip[tcp + 4..tcp + 8].copy_from_slice(&sequence.wrapping_add(skipped).to_be_bytes());
        if end < layout.segment_count {
            ip[tcp + 13] &= !(TCP_FIN | TCP_PSH);
        }
        if first > 0 {
            ip[tcp + 13] &= !TCP_CWR;
        }
        set_lengths(
            ip,
            tcp,
            u16::try_from(first).expect("as many as fit 64 KiB"),
        );
        Self(bytes)
    }
}

/// Length of the TCP header at `tcp_start`; nothing where the headers of `ip` make no sense.
fn tcp_header_len(ip: &[u8], tcp_start: usize) -> Option<usize> {
    let first = *ip.first()?;
    let fits = match first >> 4 {
        4 => usize::from(first & 0xf) * 4 == tcp_start && tcp_start >= 20,
        6 => tcp_start >= 40,
        _ => false,
    };
    let len = usize::from(ip.get(tcp_start + 12)? >> 4) * 4;
    (fits && len >= 20).then_some(len)
}

/// Writes what follows from the length of `ip`: the IP header's fields and checksum, and the partial TCP
/// checksum. `id_step` is added to IPv4's identification.
fn set_lengths(ip: &mut [u8], tcp_start: usize, id_step: u16) {
    let len = |bytes: usize| u16::try_from(bytes).expect("an IP packet's length has 16 bits");
    let tcp_len = len(ip.len() - tcp_start);
    let addresses = if ip[0] >> 4 == 4 {
        let total = len(ip.len());
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(id_step);
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        ip[10..12].fill(0);
        let header_len = usize::from(ip[0] & 0xf) * 4;
        let checksum = !ones_sum(&ip[..header_len], 0);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        12..20
    } else {
        let behind_fixed = len(ip.len() - 40);
        ip[4..6].copy_from_slice(&behind_fixed.to_be_bytes());
        8..40
    };
    let pseudo = ones_sum(&ip[addresses], u32::from(PROTOCOL_TCP) + u32::from(tcp_len));
    ip[tcp_start + 16..tcp_start + 18].copy_from_slice(&pseudo.to_be_bytes());
}

/// RFC 1071: the ones' complement sum of `bytes` and `start`, folded to 16 bits.
fn ones_sum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from(sum).expect("folded twice")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const NEEDS_CSUM: u8 = 1;

    /// A TSO packet as the kernel would hand it over: partial checksum, FIN, PSH and CWR set.
    pub(crate) fn tso(version: u8, payload_len: usize, mss: u16) -> Packet {
        let tcp_start: u16 = if version == 4 { 20 } else { 40 };
        let start = usize::from(tcp_start);
        let mut bytes = vec![NEEDS_CSUM, if version == 4 { GSO_TCPV4 } else { GSO_TCPV6 }];
        for word in [tcp_start + 32, mss, tcp_start, 16] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        let mut ip = vec![0u8; start + 32 + payload_len];
        for (i, byte) in ip.iter_mut().enumerate() {
            *byte = u8::try_from(i % 251).expect("below 251");
        }
        ip[0] = if version == 4 { 0x45 } else { 0x60 };
        if version == 4 {
            ip[9] = 6;
        }
        ip[start + 12] = 8 << 4;
        ip[start + 13] = 0x10 | TCP_FIN | TCP_PSH | TCP_CWR;
        set_lengths(&mut ip, start, 0);
        bytes.extend_from_slice(&ip);
        Packet::new(bytes).expect("long enough")
    }

    /// Checks a slice's headers, completing the checksum as hardware does, and returns its sequence
    /// number and payload.
    fn open(packet: &Packet) -> (u32, Vec<u8>) {
        let ip = packet.ip();
        let tcp = packet.vnet_word(2);
        let mut segment = ip[tcp..].to_vec();
        let complete = !ones_sum(&segment, 0);
        segment[16..18].copy_from_slice(&complete.to_be_bytes());
        let tcp_len = u32::try_from(segment.len()).expect("short");
        let addresses = if ip[0] >> 4 == 4 {
            assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
            assert_eq!(ones_sum(&ip[..20], 0), 0xffff, "IP header checksum");
            &ip[12..20]
        } else {
            assert_eq!(
                usize::from(u16::from_be_bytes([ip[4], ip[5]])),
                ip.len() - 40
            );
            &ip[8..40]
        };
        let pseudo = ones_sum(addresses, 6 + tcp_len);
        assert_eq!(
            ones_sum(&segment, u32::from(pseudo)),
            0xffff,
            "TCP checksum"
        );
        let sequence = u32::from_be_bytes(segment[4..8].try_into().expect("four"));
        (sequence, segment[32..].to_vec())
    }

    #[test]
    fn slices_join_to_the_whole_and_their_checksums_hold() {
        for version in [4, 6] {
            let whole = tso(version, 10_000, 1448);
            let layout = whole.layout();
            assert_eq!(layout.segment_count, 7);
            let (start, expected) = open(&whole);
            let mut joined = Vec::new();
            for (first, end) in [(0, 1), (1, 4), (4, 6), (6, 7)] {
                let slice = whole.slice(&layout, first, end);
                assert_eq!(slice.layout().segment_count, end - first);
                let (sequence, payload) = open(&slice);
                let offset = u32::try_from(joined.len()).expect("short");
                assert_eq!(sequence, start.wrapping_add(offset));
                joined.extend(payload);
            }
            assert_eq!(joined, expected);
        }
    }

    #[test]
    fn flags_stay_with_the_segment_they_belong_to() {
        let whole = tso(4, 3 * 1448, 1448);
        let layout = whole.layout();
        let flags = |first, end| whole.slice(&layout, first, end).ip()[20 + 13] & !0x10;
        assert_eq!(flags(0, 1), TCP_CWR);
        assert_eq!(flags(1, 2), 0);
        assert_eq!(flags(2, 3), TCP_FIN | TCP_PSH);
        assert_eq!(flags(0, 3), TCP_CWR | TCP_FIN | TCP_PSH);
    }

    #[test]
    fn a_single_segment_is_no_gso_packet_any_more() {
        let whole = tso(4, 2 * 1448, 1448);
        let slice = whole.slice(&whole.layout(), 1, 2);
        assert_eq!((slice.0[0], slice.0[1]), (NEEDS_CSUM, GSO_NONE));
        assert_eq!(slice.vnet_word(1), 0);
    }

    #[test]
    fn the_weight_on_the_wire_counts_each_segments_headers() {
        let layout = tso(4, 10_000, 1448).layout();
        let total: usize = (0..7).map(|i| layout.wire_len(i)).sum();
        assert_eq!(total, 10_000 + 7 * 52);
        assert_eq!(layout.wire_len(6), 52 + 10_000 - 6 * 1448);
    }

    #[test]
    fn what_is_not_tso_is_one_segment() {
        let mut packet = tso(4, 100, 1448);
        packet.0[1] = GSO_NONE;
        let layout = packet.layout();
        assert_eq!((layout.segment_count, layout.wire_len(0)), (1, 152));
        let mut nonsense = tso(4, 100, 1448);
        nonsense.0[6..8].copy_from_slice(&60_000u16.to_ne_bytes());
        assert_eq!(nonsense.layout().segment_count, 1);
        assert!(Packet::new(vec![0; VNET_LEN]).is_none());
    }
}
