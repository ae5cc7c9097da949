//! zlib@openssh.com: one stream for each direction, flushed at each packet's end.
//!
//! Read first: RFC 4253 6.2, RFC 1950.

use crate::config::PAYLOAD_BYTES_MAX;
use crate::error::{Error, InvalidMessage, PeerMisbehaved};
use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

/// Memory for output that is kept between packets.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The stream of packets that leave.
pub(crate) struct Deflate {
    stream: Compress,
    output: Vec<u8>,
}

impl Default for Deflate {
    fn default() -> Self {
        // Level 6 is zlib's and OpenSSH's.
        Self {
            stream: Compress::new(flate2::Compression::new(6), true),
            output: Vec::new(),
        }
    }
}

impl Deflate {
    /// The most that `message_len` bytes become: miniz's own bound, and the flush marker.
    pub(super) const fn bound(message_len: usize) -> usize {
        256 + message_len + message_len / 8
    }

    pub(super) fn run(&mut self, message: &[u8]) -> &[u8] {
        self.output.clear();
        self.output.shrink_to(KEPT_BYTES_MAX);
        self.output.reserve(Self::bound(message.len()));
        let before = self.stream.total_in();
        // RFC 4253 6.2 wants a partial flush; a sync flush is one, with four bytes more.
        let status = self
            .stream
            .compress_vec(message, &mut self.output, FlushCompress::Sync);
        assert!(
            matches!(status, Ok(Status::Ok))
                && self.stream.total_in() - before == message.len() as u64
                && self.output.len() < self.output.capacity(),
            "the bound leaves room for all input and its flush marker"
        );
        &self.output
    }
}

/// The stream of packets that arrive.
pub(crate) struct Inflate {
    stream: Decompress,
    output: Vec<u8>,
}

impl Default for Inflate {
    fn default() -> Self {
        Self {
            stream: Decompress::new(true),
            output: Vec::new(),
        }
    }
}

impl Inflate {
    pub(super) fn output(&self) -> &[u8] {
        &self.output
    }

    /// Unpacks one packet's payload. Memory and work are bounded by `PAYLOAD_BYTES_MAX`, whatever
    /// the ratio claimed: output grows as it is filled.
    pub(super) fn run(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.output.clear();
        self.output.shrink_to(KEPT_BYTES_MAX);
        let mut taken = 0;
        loop {
            if self.output.len() == self.output.capacity() {
                // One byte past the limit is room enough to see that it is broken.
                let more = self
                    .output
                    .len()
                    .max(4096)
                    .min(PAYLOAD_BYTES_MAX + 1 - self.output.len());
                self.output.reserve_exact(more);
            }
            let before = (self.stream.total_in(), self.output.len());
            let status = self
                .stream
                .decompress_vec(&payload[taken..], &mut self.output, FlushDecompress::Sync)
                .map_err(|_| InvalidMessage::Compression)?;
            if self.output.len() > PAYLOAD_BYTES_MAX {
                return Err(PeerMisbehaved::DecompressedTooLong.into());
            }
            let step = usize::try_from(self.stream.total_in() - before.0)
                .expect("no more is taken than was given");
            taken += step;
            if status == Status::StreamEnd {
                return Err(InvalidMessage::Compression.into());
            }
            let is_full = self.output.len() == self.output.capacity();
            if taken == payload.len() && !is_full {
                break;
            }
            if step == 0 && self.output.len() == before.1 && !is_full {
                return Err(InvalidMessage::Compression.into());
            }
        }
        if self.output.is_empty() {
            return Err(InvalidMessage::Empty.into());
        }
        Ok(())
    }
}
