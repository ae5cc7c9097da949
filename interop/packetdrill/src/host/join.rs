//! Segments that leave at one instant, joined into one as hardware offload would cut them.
//!
//! What can be joined: the same headers but for the number, each but the last of one size, and nothing
//! behind a PSH or FIN. A segment's bytes come in and go out; nothing of them is understood.

use core::ops::Range;

use fullbore_tcp::segment::{Flags, HEADER_BYTES, Pseudo};

use crate::ip::{PACKET_BYTES_MAX, V6_HEADER_BYTES};

// Where the fields of a header stand.
const PORTS: Range<usize> = 0..4;
const SEQ: Range<usize> = 4..8;
const ACK_AND_OFFSET: Range<usize> = 8..13;
const FLAGS: usize = 13;
const WINDOW: Range<usize> = 14..16;
const CHECKSUM: Range<usize> = 16..18;

/// A segment that others may be joined to.
#[derive(Debug)]
pub struct Joined {
    bytes: Vec<u8>,
    header_len: usize,
    /// The payload of each but the last.
    piece_len: usize,
    is_open: bool,
    is_ect: bool,
}

fn header_len(segment: &[u8]) -> usize {
    usize::from(segment[12] >> 4) * 4
}

fn seq(segment: &[u8]) -> u32 {
    u32::from_be_bytes(*segment[SEQ].first_chunk().expect("four bytes"))
}

/// Whether another may follow.
fn is_plain(segment: &[u8]) -> bool {
    segment[FLAGS] & (Flags::SYN | Flags::FIN | Flags::RST | Flags::PSH).bits() == 0
}

impl Joined {
    /// Begins with `segment`, which has a whole header.
    pub fn new(segment: &[u8], is_ect: bool) -> Self {
        let header_len = header_len(segment);
        let piece_len = segment.len() - header_len;
        Self {
            is_open: piece_len > 0 && is_plain(segment),
            bytes: segment.to_vec(),
            header_len,
            piece_len,
            is_ect,
        }
    }

    /// Whether the packet may be marked by the path.
    pub const fn is_ect(&self) -> bool {
        self.is_ect
    }

    /// Appends `segment` if it may be; says whether it was.
    pub fn append(&mut self, segment: &[u8], is_ect: bool) -> bool {
        if !self.is_open || is_ect != self.is_ect || !self.fits(segment) {
            return false;
        }
        let payload = &segment[self.header_len..];
        self.is_open = payload.len() == self.piece_len && is_plain(segment);
        self.bytes.extend_from_slice(payload);
        self.bytes[FLAGS] |= segment[FLAGS];
        true
    }

    fn fits(&self, segment: &[u8]) -> bool {
        let is_equal = |range: Range<usize>| self.bytes[range.clone()] == segment[range];
        let payload_len = segment.len() - header_len(segment);
        let held = self.bytes.len() - self.header_len;
        let next = seq(&self.bytes).wrapping_add(u32::try_from(held).expect("a packet is short"));
        let flags = |bytes: &[u8]| Flags::from_bits(bytes[FLAGS]).without(Flags::PSH | Flags::FIN);
        (1..=self.piece_len).contains(&payload_len)
            && self.bytes.len() + payload_len + V6_HEADER_BYTES <= PACKET_BYTES_MAX
            && seq(segment) == next
            && flags(&self.bytes) == flags(segment)
            && is_equal(PORTS)
            && is_equal(ACK_AND_OFFSET)
            && is_equal(WINDOW)
            && is_equal(HEADER_BYTES..self.header_len)
    }

    /// The segment, its checksum made anew.
    pub fn finish(mut self, pseudo: Pseudo) -> Vec<u8> {
        self.bytes[CHECKSUM].fill(0);
        if let Some(sum) = pseudo.checksum(&self.bytes) {
            self.bytes[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_tcp::Seq;
    use fullbore_tcp::segment::{Header, Segment};

    fn segment(seq: u32, len: usize, flags: Flags) -> Vec<u8> {
        let header = Header {
            seq: Seq::new(seq),
            flags: flags | Flags::ACK,
            window: 100,
            ..Header::default()
        };
        let mut bytes = vec![7; HEADER_BYTES + len];
        let _ = header.emit(&mut bytes, len, Pseudo::Unchecked);
        bytes
    }

    /// How many packets come of segments with these numbers, lengths and flags.
    fn packets(segments: &[(u32, usize, Flags)]) -> usize {
        let mut count = 0;
        let mut open: Option<Joined> = None;
        for &(seq, len, flags) in segments {
            let bytes = segment(seq, len, flags);
            if !open.as_mut().is_some_and(|o| o.append(&bytes, false)) {
                open = Some(Joined::new(&bytes, false));
                count += 1;
            }
        }
        count
    }

    #[test]
    fn full_segments_and_a_shorter_last_one_make_one_packet() {
        let none = Flags::NONE;
        let across_the_wrap = [(u32::MAX, 10, none), (9, 10, none), (19, 4, Flags::PSH)];
        assert_eq!(packets(&across_the_wrap), 1);
        assert_eq!(
            packets(&[(0, 10, none), (10, 10, Flags::PSH | Flags::FIN)]),
            1
        );
    }

    #[test]
    fn what_differs_or_does_not_follow_stays_apart() {
        let none = Flags::NONE;
        let cases = [
            [(0, 10, none), (11, 10, none)],
            [(0, 10, none), (10, 11, none)],
            [(0, 10, none), (10, 0, none)],
            [(0, 10, Flags::PSH), (10, 10, none)],
            [(0, 10, none), (10, 10, Flags::CWR)],
            [(0, 0, none), (0, 10, none)],
        ];
        for case in cases {
            assert_eq!(packets(&case), 2, "{case:?}");
        }
        // Behind a short one nothing follows.
        assert_eq!(packets(&[(0, 10, none), (10, 4, none), (14, 4, none)]), 2);
        let mut marked = Joined::new(&segment(0, 10, none), true);
        assert!(!marked.append(&segment(10, 10, none), false));
    }

    #[test]
    fn a_packet_is_never_longer_than_its_length_field() {
        let mut joined = Joined::new(&segment(0, 1000, Flags::NONE), false);
        let mut at = 1000;
        while joined.append(&segment(at, 1000, Flags::NONE), false) {
            at += 1000;
        }
        let len = joined.finish(Pseudo::Unchecked).len();
        let longest = PACKET_BYTES_MAX - V6_HEADER_BYTES;
        assert!((64_000..=longest).contains(&len), "{len}");
    }

    #[test]
    fn the_checksum_covers_the_whole() {
        let pseudo = Pseudo::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut joined = Joined::new(&segment(5, 10, Flags::NONE), false);
        assert!(joined.append(&segment(15, 10, Flags::PSH), false));
        let bytes = joined.finish(pseudo);
        let whole = Segment::parse(&bytes, pseudo).expect("the checksum fits");
        assert_eq!((whole.header.seq, whole.payload.len()), (Seq::new(5), 20));
        assert_eq!(whole.header.flags, Flags::PSH | Flags::ACK);
    }
}
