//! A TCP segment: header, options, payload; read from bytes and written to them.
//!
//! RFC 9293 section 3.1, options in [`options`], the checksum in [`checksum`]. Knows nothing of
//! connections; addresses come in for the checksum alone.

pub mod checksum;
mod flags;
pub mod options;

pub use checksum::Pseudo;
pub use flags::Flags;
pub use options::{Options, SackBlock, SackBlocks, Timestamps};

use crate::error::InvalidMessage;
use crate::seq::Seq;

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;

/// Bytes of the longest header: a data offset of 15 words.
pub const HEADER_BYTES_MAX: usize = 60;

/// Where the checksum stands in the header.
const CHECKSUM_AT: usize = 16;

/// What a segment says, apart from its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Number of the first byte of the payload, or of the SYN.
    pub seq: Seq,
    /// What the sender expects next; meaningful with ACK.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// The receive window, not yet scaled.
    pub window: u16,
    /// What the options say.
    pub options: Options,
}

/// A header and the payload behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The header.
    pub header: Header,
    /// The bytes behind it.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Reads a segment. Costs O(header), and O(segment) when the checksum is checked.
    ///
    /// # Errors
    /// Says what is wrong; the segment is then to be dropped (RFC 9293 MUST-3, MUST-7).
    pub fn parse(bytes: &'a [u8], pseudo: Pseudo) -> Result<Self, InvalidMessage> {
        let fixed: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(InvalidMessage::Truncated)?;
        let words = fixed[12] >> 4;
        let header_len = usize::from(words) * 4;
        if header_len < HEADER_BYTES || header_len > bytes.len() {
            return Err(InvalidMessage::DataOffset(words));
        }
        if !pseudo.is_valid(bytes) {
            return Err(InvalidMessage::Checksum);
        }
        let u16_at = |i: usize| u16::from_be_bytes([fixed[i], fixed[i + 1]]);
        let u32_at = |i: usize| u32::from(u16_at(i)) << 16 | u32::from(u16_at(i + 2));
        let header = Header {
            source_port: u16_at(0),
            destination_port: u16_at(2),
            seq: Seq::new(u32_at(4)),
            ack: Seq::new(u32_at(8)),
            flags: Flags::from_bits(fixed[13]),
            window: u16_at(14),
            options: Options::parse(&bytes[HEADER_BYTES..header_len])?,
        };
        Ok(Self {
            header,
            payload: &bytes[header_len..],
        })
    }

    /// How much of the sequence space it takes: the payload, and one each for SYN and FIN.
    #[must_use]
    pub fn sequence_len(&self) -> u64 {
        let controls = u64::from(self.header.flags.has(Flags::SYN))
            + u64::from(self.header.flags.has(Flags::FIN));
        self.payload.len() as u64 + controls
    }
}

impl Header {
    /// Bytes that the header takes with its options.
    #[must_use]
    pub fn len(&self) -> usize {
        HEADER_BYTES + self.options.len(self.flags)
    }

    /// Whether it takes none: never.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header to the front of `out`, in front of the `payload_len` bytes of payload that
    /// stand there already, and the checksum over both. Returns the length of the whole.
    ///
    /// # Panics
    /// When `out` is shorter than [`Header::len`] and the payload.
    pub fn emit(&self, out: &mut [u8], payload_len: usize, pseudo: Pseudo) -> usize {
        let header_len = self.len();
        let total = header_len + payload_len;
        let out = &mut out[..total];
        out[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        out[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        out[4..8].copy_from_slice(&self.seq.value().to_be_bytes());
        out[8..12].copy_from_slice(&self.ack.value().to_be_bytes());
        let words = u8::try_from(header_len / 4).expect("a header has at most 15 words");
        out[12] = words << 4;
        out[13] = self.flags.bits();
        out[14..16].copy_from_slice(&self.window.to_be_bytes());
        // Checksum, and the urgent pointer, which we never set (RFC 6093 section 5).
        out[CHECKSUM_AT..HEADER_BYTES].fill(0);
        self.options
            .emit(self.flags, &mut out[HEADER_BYTES..header_len]);
        if let Some(sum) = pseudo.checksum(out) {
            out[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        }
        total
    }
}

#[cfg(test)]
mod tests;
