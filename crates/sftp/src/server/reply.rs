//! Lays replies out in the outlet.

use std::io::IoSliceMut;

use fullbore_base::{Outlet, scatter};

use super::store::StoreError;
use crate::proto::{Code, LEN_WORD, Name, Reply, fxp};
use crate::wire::{Put, SliceSink, len_u32};

/// Bytes of the longest reply but for data, names, digests and the like: a STATUS with its
/// reason, attributes, a handle, the figures of a file system.
pub(super) const SMALL_REPLY_LEN_MAX: usize =
    LEN_WORD + 1 + 4 + 4 + 4 + StoreError::REASON_BYTES_MAX + 4;

/// The longest path that a reply carries, as POSIX has it (`PATH_MAX`).
pub(super) const PATH_BYTES_MAX: usize = 4096;

/// Bytes of the longest reply to REALPATH and its like: the path comes twice.
pub(super) const PATH_REPLY_LEN_MAX: usize = NAME_HEADER_LEN + 2 * (4 + PATH_BYTES_MAX) + 4;

/// Bytes in front of the entries of a NAME reply: length, type, id, count.
pub(super) const NAME_HEADER_LEN: usize = LEN_WORD + 1 + 4 + 4;

/// Emits a whole reply. The caller has made sure of the room.
pub(super) fn emit(out: &mut dyn Outlet, id: u32, reply: &Reply<'_>) -> bool {
    out.emit(reply.encoded_len(), &mut |slices| {
        let mut sink = SliceSink::new(slices);
        reply.encode(id, &mut sink);
        sink.written()
    })
}

/// Emits a STATUS without message and language tag, as OpenSSH answers clients of versions
/// below 3.
pub(super) fn emit_bare_status(out: &mut dyn Outlet, id: u32, code: Code) -> bool {
    const LEN: usize = LEN_WORD + 1 + 4 + 4;
    out.emit(LEN, &mut |slices| {
        let mut sink = SliceSink::new(slices);
        sink.put_u32(len_u32(LEN - LEN_WORD));
        sink.put_raw(&[fxp::SSH_FXP_STATUS]);
        sink.put_u32(id);
        sink.put_u32(code.to_u32());
        sink.written()
    })
}

/// Takes the entries of a folder into a NAME reply that is laid out in place.
#[derive(Debug)]
pub struct DirSink<'s, 'b> {
    sink: SliceSink<'s, 'b>,
    len_max: usize,
    count: u32,
    is_full: bool,
}

impl<'s, 'b> DirSink<'s, 'b> {
    /// Starts a reply of at most `len_max` bytes at the front of `slices`.
    pub(super) fn new(slices: &'s mut [IoSliceMut<'b>], len_max: usize) -> Self {
        let mut sink = SliceSink::new(slices);
        sink.put_raw(&[0; NAME_HEADER_LEN]);
        Self {
            sink,
            len_max,
            count: 0,
            is_full: false,
        }
    }

    /// Appends an entry. False when it does not fit: keep it for the next call.
    #[must_use]
    pub fn push(&mut self, name: &Name<'_>) -> bool {
        if self.is_full || name.encoded_len() > self.len_max - self.sink.written() {
            self.is_full = true;
            return false;
        }
        name.encode(&mut self.sink);
        self.count += 1;
        true
    }

    /// Entries and bytes laid out, and whether one was refused.
    pub(super) fn finish(self) -> Filled {
        Filled {
            count: self.count,
            len: self.sink.written(),
            is_full: self.is_full,
        }
    }
}

/// What a [`DirSink`] holds in the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    pub(super) count: u32,
    pub(super) len: usize,
    pub(super) is_full: bool,
}

impl Filled {
    /// Writes the header that was left out.
    pub(super) fn backfill(self, id: u32, slices: &mut [IoSliceMut<'_>]) {
        let mut header = [0; NAME_HEADER_LEN];
        header[..4].copy_from_slice(&len_u32(self.len - LEN_WORD).to_be_bytes());
        header[4] = fxp::SSH_FXP_NAME;
        header[5..9].copy_from_slice(&id.to_be_bytes());
        header[9..].copy_from_slice(&self.count.to_be_bytes());
        scatter(slices, 0, &header);
    }
}
