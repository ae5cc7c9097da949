//! Segments on their way out, one behind the other in one piece of memory, each with room in front for
//! what the wire writes there. Neighbours of one size to one peer are what GSO takes as they lie.

use std::net::IpAddr;
use std::ops::Range;

/// Segments that a batch holds at most.
pub const BATCH_SEGMENTS_MAX: usize = 256;

/// One segment of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Our address.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
    /// The path may mark its packet: ECT(0) (RFC 3168).
    pub is_ect: bool,
    /// Where its frame begins.
    start: usize,
    /// Bytes of the frame: headroom and segment.
    len: usize,
}

impl Outgoing {
    /// Where its frame lies in [`Batch::bytes_mut`]: the headroom, then the segment. The next frame
    /// follows without a gap.
    #[must_use]
    pub const fn frame(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// Bytes of the frame.
    #[must_use]
    pub const fn frame_len(&self) -> usize {
        self.len
    }
}

/// Memory for segments that leave together. The stack fills it, the wire empties it from the front.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    headroom: usize,
    filled: usize,
    segments: Vec<Outgoing>,
    /// So many of them have left.
    taken: usize,
}

impl Batch {
    /// With memory of `capacity` bytes, and `headroom` bytes in front of each segment.
    #[must_use]
    pub fn new(capacity: usize, headroom: usize) -> Self {
        Self {
            bytes: vec![0; capacity],
            headroom,
            filled: 0,
            segments: Vec::with_capacity(BATCH_SEGMENTS_MAX),
            taken: 0,
        }
    }

    /// Bytes in front of each segment.
    #[must_use]
    pub const fn headroom(&self) -> usize {
        self.headroom
    }

    /// Segments that have not left.
    #[must_use]
    pub fn segments(&self) -> &[Outgoing] {
        &self.segments[self.taken..]
    }

    /// The memory that [`Outgoing::frame`] speaks of.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The memory that [`Outgoing::frame`] speaks of.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The segment without its headroom.
    #[must_use]
    pub fn segment(&self, outgoing: &Outgoing) -> &[u8] {
        &self.bytes[outgoing.start + self.headroom..outgoing.start + outgoing.len]
    }

    /// Whether everything has left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken == self.segments.len()
    }

    /// The first `count` segments have left, or need not leave.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn take(&mut self, count: usize) {
        assert!(count <= self.segments().len(), "more than the batch has");
        self.taken += count;
        if self.is_empty() {
            self.taken = 0;
            self.filled = 0;
            self.segments.clear();
        }
    }

    /// Whether a segment of `len` bytes fits.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.segments.len() < BATCH_SEGMENTS_MAX
            && self.filled + self.headroom + len <= self.bytes.len()
    }

    /// Adds what `write` writes: the length of the segment and whether its packet may be marked.
    /// Returns false when it writes nothing.
    pub(super) fn push(
        &mut self,
        (local, remote): (IpAddr, IpAddr),
        write: impl FnOnce(&mut [u8]) -> Option<(usize, bool)>,
    ) -> bool {
        let start = self.filled;
        let Some((len, is_ect)) = write(&mut self.bytes[start + self.headroom..]) else {
            return false;
        };
        let len = self.headroom + len;
        self.filled = start + len;
        self.segments.push(Outgoing {
            local,
            remote,
            is_ect,
            start,
            len,
        });
        true
    }
}
