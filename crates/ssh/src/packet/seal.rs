//! Packets that leave.

use super::direction::Direction;
use super::zlib::Deflate;
use crate::config::PACKETS_PER_KEY_MAX;
use crate::provider::SealingKey;

/// Length word and padding length, in front of the payload.
pub(crate) const HEADER_LEN: usize = 5;

/// RFC 4253 6: at least four bytes of padding.
const PADDING_MIN: usize = 4;

/// The outgoing direction.
pub(crate) struct Sealer {
    pub(crate) direction: Direction<dyn SealingKey, Deflate>,
}

impl Sealer {
    /// In the clear, as a connection starts.
    pub(crate) const fn new() -> Self {
        Self {
            direction: Direction::new(),
        }
    }

    pub(crate) const fn compresses(&self) -> bool {
        self.direction.stream.is_some()
    }

    /// Whether the next packet would repeat a nonce.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.direction.packets >= PACKETS_PER_KEY_MAX
    }

    /// Worked example, AES-GCM, payload 100: 1 + 100 + 11 = 112 = 7 blocks; 11 bytes of padding.
    fn padding_len(&self, payload_len: usize) -> usize {
        let unpadded = self.direction.counted_len() + 1 + payload_len;
        let block = self.direction.layout.block_len;
        let padding = block - unpadded % block;
        if padding < PADDING_MIN {
            padding + block
        } else {
            padding
        }
    }

    /// Length on the wire of a packet with a payload of `payload_len` as it goes into the packet.
    pub(crate) fn sealed_len(&self, payload_len: usize) -> usize {
        HEADER_LEN + payload_len + self.padding_len(payload_len) + self.direction.layout.tag_len
    }

    /// The same for a message before compression: an upper bound.
    pub(crate) fn sealed_len_max(&self, message_len: usize) -> usize {
        if self.compresses() {
            self.sealed_len(Deflate::bound(message_len)) + self.direction.layout.block_len
        } else {
            self.sealed_len(message_len)
        }
    }

    /// Lays `message` out at the front of `buf` and seals it, compressed if that is on; returns
    /// the length on the wire, at most `sealed_len_max`.
    pub(crate) fn seal_message(&mut self, buf: &mut [u8], message: &[u8]) -> usize {
        let payload = match &mut self.direction.stream {
            Some(deflate) => deflate.run(message),
            None => message,
        };
        let payload_len = payload.len();
        buf[HEADER_LEN..HEADER_LEN + payload_len].copy_from_slice(payload);
        let sealed_len = self.sealed_len(payload_len);
        self.seal_at(&mut buf[..sealed_len], payload_len);
        sealed_len
    }

    /// Seals the payload that lies behind the header's room. `buf` is `sealed_len(payload_len)`.
    ///
    /// Padding is zeros. RFC 4253 6 wants it random, which served CBC: under every cipher here it
    /// is covered by the key stream, and before the first NEWKEYS it hides nothing.
    pub(crate) fn seal_at(&mut self, buf: &mut [u8], payload_len: usize) {
        assert!(!self.is_exhausted(), "the caller asked before it sealed");
        let padding_len = self.padding_len(payload_len);
        let packet_len = 1 + payload_len + padding_len;
        let (packet, tag) = buf.split_at_mut(4 + packet_len);
        assert_eq!(
            tag.len(),
            self.direction.layout.tag_len,
            "buf is sealed_len long"
        );
        let len_word = u32::try_from(packet_len).expect("payloads are bounded under 4 GiB");
        packet[..4].copy_from_slice(&len_word.to_be_bytes());
        packet[4] = u8::try_from(padding_len).expect("padding is under two blocks of 16");
        packet[HEADER_LEN + payload_len..].fill(0);
        if let Some(key) = &mut self.direction.key {
            key.seal(self.direction.sequence, packet, tag);
        }
        self.direction.advance(buf.len());
    }
}
