//! Packets that arrive.

use super::direction::Direction;
use super::zlib::Inflate;
use crate::config::{
    PACKET_LEN_BEFORE_AUTH_MAX, PACKET_LEN_MAX, PACKETS_PER_KEY_MAX, PAYLOAD_BYTES_MAX,
};
use crate::error::{Error, InvalidMessage, PeerMisbehaved};
use crate::provider::OpeningKey;
use std::ops::Range;

/// The incoming direction, and the packet at its front.
pub(crate) struct Opener {
    pub(crate) direction: Direction<dyn OpeningKey, Inflate>,
    /// The length word of the packet at the front, once known and within its limits.
    packet_len: Option<u32>,
}

/// A packet that was opened at the front of the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Its bytes on the wire.
    pub(crate) wire_len: usize,
    /// Where its payload lies in the buffer; `None` when it was decompressed elsewhere
    /// ([`Opener::inflated`]).
    pub(crate) payload: Option<Range<usize>>,
}

impl Opener {
    /// In the clear, as a connection starts.
    pub(crate) const fn new() -> Self {
        Self {
            direction: Direction::new(),
            packet_len: None,
        }
    }

    /// The sequence number of the packet opened last.
    pub(crate) const fn last_sequence(&self) -> u32 {
        self.direction.sequence.wrapping_sub(1)
    }

    /// The payload that was decompressed last.
    pub(crate) fn inflated(&self) -> &[u8] {
        self.direction.stream.as_ref().map_or(&[], Inflate::output)
    }

    /// Opens the packet at the front of `buf` in place; `None` while it is not there in full. The
    /// length is checked as soon as it can be read, before anything is waited for.
    pub(crate) fn open(&mut self, buf: &mut [u8]) -> Result<Option<Opened>, Error> {
        let Some(packet_len) = self.read_packet_len(buf)? else {
            return Ok(None);
        };
        let packet_end = 4 + packet_len as usize;
        let wire_len = packet_end + self.direction.layout.tag_len;
        if buf.len() < wire_len {
            return Ok(None);
        }
        if self.direction.packets >= PACKETS_PER_KEY_MAX {
            return Err(PeerMisbehaved::PacketsPerKey.into());
        }
        let (packet, tag) = buf[..wire_len].split_at_mut(packet_end);
        if let Some(key) = &mut self.direction.key {
            key.open(self.direction.sequence, packet, tag)
                .map_err(|_| PeerMisbehaved::BadMac)?;
        }
        self.advance(wire_len)?;
        let payload = payload_range(packet)?;
        let payload = match &mut self.direction.stream {
            Some(inflate) => {
                inflate.run(&packet[payload])?;
                None
            }
            None => Some(payload),
        };
        Ok(Some(Opened { wire_len, payload }))
    }

    fn read_packet_len(&mut self, buf: &mut [u8]) -> Result<Option<u32>, Error> {
        if self.packet_len.is_some() {
            return Ok(self.packet_len);
        }
        let head_len = self.direction.key.as_ref().map_or(4, |key| key.head_len());
        let Some(head) = buf.get_mut(..head_len) else {
            return Ok(None);
        };
        let packet_len = match &mut self.direction.key {
            Some(key) => key.packet_len(self.direction.sequence, head),
            None => u32::from_be_bytes([head[0], head[1], head[2], head[3]]),
        };
        let packet_len_max = if self.direction.is_authenticated {
            PACKET_LEN_MAX
        } else {
            PACKET_LEN_BEFORE_AUTH_MAX
        };
        if packet_len > packet_len_max {
            return Err(PeerMisbehaved::PacketTooLong { packet_len }.into());
        }
        let padded = self.direction.counted_len() + packet_len as usize;
        if packet_len < PACKET_LEN_MIN || !padded.is_multiple_of(self.direction.layout.block_len) {
            return Err(InvalidMessage::PacketLength.into());
        }
        self.packet_len = Some(packet_len);
        Ok(self.packet_len)
    }

    fn advance(&mut self, wire_len: usize) -> Result<(), Error> {
        self.packet_len = None;
        self.direction.advance(wire_len);
        // OpenSSH PROTOCOL 1.10: no wrap before the first NEWKEYS; nobody needs 2^32 packets there.
        if self.direction.sequence == 0 && self.direction.key.is_none() {
            return Err(PeerMisbehaved::SequenceWrap.into());
        }
        Ok(())
    }
}

/// A padding length and four bytes of padding. A packet without payload is refused later, by name.
const PACKET_LEN_MIN: u32 = 5;

/// RFC 4253 6: where the payload lies in an opened packet.
fn payload_range(packet: &[u8]) -> Result<Range<usize>, Error> {
    let padding_len = usize::from(packet[4]);
    let rest = packet.len() - 5;
    if padding_len < 4 || padding_len > rest {
        return Err(InvalidMessage::Padding.into());
    }
    let payload_len = rest - padding_len;
    if payload_len == 0 {
        return Err(InvalidMessage::Empty.into());
    }
    if payload_len > PAYLOAD_BYTES_MAX {
        let packet_len = u32::try_from(packet.len() - 4).expect("bounded by PACKET_LEN_MAX");
        return Err(PeerMisbehaved::PacketTooLong { packet_len }.into());
    }
    Ok(5..5 + payload_len)
}
