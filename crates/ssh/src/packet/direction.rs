//! What both directions of a connection keep about the key in use.

use super::Compression;
use crate::cipher::Layout;

/// One direction: its key `K` and compression stream `Z`, and what the key has been used for.
pub(crate) struct Direction<K: ?Sized, Z> {
    pub(super) key: Option<Box<K>>,
    pub(super) layout: Layout,
    /// Of the next packet.
    pub(super) sequence: u32,
    /// Packets under the present key.
    pub(super) packets: u64,
    /// Bytes on the wire under the present key.
    bytes: u64,
    /// Runs while compression is on.
    pub(super) stream: Option<Z>,
    compression: Compression,
    pub(super) is_authenticated: bool,
}

impl<K: ?Sized, Z: Default> Direction<K, Z> {
    /// In the clear, as a connection starts.
    pub(super) const fn new() -> Self {
        Self {
            key: None,
            layout: Layout::PLAIN,
            sequence: 0,
            packets: 0,
            bytes: 0,
            stream: None,
            compression: Compression::None,
            is_authenticated: false,
        }
    }

    /// NEWKEYS went by: what follows uses `key`.
    pub(crate) fn install(
        &mut self,
        key: Box<K>,
        layout: Layout,
        compression: Compression,
        reset_sequence: bool,
    ) {
        self.key = Some(key);
        self.layout = layout;
        self.packets = 0;
        self.bytes = 0;
        self.compression = compression;
        if reset_sequence {
            self.sequence = 0;
        }
        self.start_compression();
    }

    /// Delayed compression starts.
    pub(crate) fn on_authenticated(&mut self) {
        self.is_authenticated = true;
        self.start_compression();
    }

    /// RFC 4253 6.2: the context starts anew after each key exchange.
    fn start_compression(&mut self) {
        self.stream = match self.compression {
            Compression::None => None,
            Compression::ZlibDelayed => self.is_authenticated.then(Z::default),
        };
    }

    /// A packet of `wire_len` bytes went by.
    pub(super) fn advance(&mut self, wire_len: usize) {
        self.sequence = self.sequence.wrapping_add(1);
        self.packets += 1;
        self.bytes += wire_len as u64;
    }

    pub(crate) const fn has_key(&self) -> bool {
        self.key.is_some()
    }

    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the length word that count towards the blocks that padding fills.
    pub(super) const fn counted_len(&self) -> usize {
        if self.layout.len_is_padded { 4 } else { 0 }
    }

    #[cfg(test)]
    pub(crate) fn set_usage(&mut self, sequence: u32, packets: u64) {
        self.sequence = sequence;
        self.packets = packets;
    }
}
