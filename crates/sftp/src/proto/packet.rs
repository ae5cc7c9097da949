//! Framing, and the headers of the two packets whose payload is moved without a copy.

use super::{DATA_HEADER_LEN, fxp};
use crate::wire::{InvalidMessage, Reader, len_u32};

/// Bytes of the length word in front of every packet.
pub const LEN_WORD: usize = 4;

/// One whole packet at the front of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Packet type, one of [`fxp`].
    pub kind: u8,
    /// What follows the type.
    pub body: &'a [u8],
    /// Bytes of the view that the packet takes, its length word included.
    pub total_len: usize,
}

/// The packet at the front of `view`, or `None` while it is not all there.
///
/// # Errors
/// A length above `len_max` is refused as soon as the length word is there.
pub fn next_packet(view: &[u8], len_max: u32) -> Result<Option<Packet<'_>>, InvalidMessage> {
    let mut reader = Reader::new(view);
    let Ok(len) = reader.u32("length") else {
        return Ok(None);
    };
    if len > len_max {
        return Err(InvalidMessage::TooLong { len, len_max });
    }
    if len == 0 {
        return Err(InvalidMessage::Empty);
    }
    let Some(packet) = reader.rest().get(..len as usize) else {
        return Ok(None);
    };
    Ok(Some(Packet {
        kind: packet[0],
        body: &packet[1..],
        total_len: LEN_WORD + len as usize,
    }))
}

/// Header of a DATA reply with a payload of `data_len` bytes behind it.
#[must_use]
pub fn data_header(id: u32, data_len: usize) -> [u8; DATA_HEADER_LEN] {
    let mut header = [0; DATA_HEADER_LEN];
    let len = len_u32(DATA_HEADER_LEN - LEN_WORD + data_len);
    header[..4].copy_from_slice(&len.to_be_bytes());
    header[4] = fxp::SSH_FXP_DATA;
    header[5..9].copy_from_slice(&id.to_be_bytes());
    header[9..].copy_from_slice(&len_u32(data_len).to_be_bytes());
    header
}

/// Bytes in front of the payload of a WRITE request for a handle of `handle_len` bytes.
#[must_use]
pub const fn write_header_len(handle_len: usize) -> usize {
    LEN_WORD + 1 + 4 + 4 + handle_len + 8 + 4
}

/// Appends the header of a WRITE request with a payload of `data_len` bytes to come behind it:
/// [`write_header_len`] bytes.
pub fn write_header(
    sink: &mut impl crate::wire::Put,
    id: u32,
    head: super::WriteHead<'_>,
    data_len: usize,
) {
    let rest = write_header_len(head.handle.len()) - LEN_WORD;
    sink.put_u32(len_u32(rest + data_len));
    sink.put_raw(&[fxp::SSH_FXP_WRITE]);
    sink.put_u32(id);
    sink.put_string(head.handle);
    sink.put_u64(head.offset);
    sink.put_u32(len_u32(data_len));
}

/// Appends an INIT packet: the client's first.
pub fn encode_init(sink: &mut impl crate::wire::Put, version: u32) {
    sink.put_u32(5);
    sink.put_raw(&[fxp::SSH_FXP_INIT]);
    sink.put_u32(version);
}

/// The version that an INIT packet offers; its extensions are ignored, as OpenSSH does.
///
/// # Errors
/// When it is cut.
pub fn parse_init(packet: Packet<'_>) -> Result<u32, InvalidMessage> {
    Reader::new(packet.body).u32("version")
}
