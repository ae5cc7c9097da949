//! The receiving side of a stream: its bytes, its window, what to report of it.
//!
//! RFC 9293 section 3.8.6 (windows, silly window avoidance), RFC 7323 section 2 (scaled windows).
//! Does not know segments: positions and bytes come in.

mod autotune;
mod reassembly;

pub use autotune::Autotune;
pub use reassembly::{Arrival, Reassembly};

use core::ops::Range;
use core::time::Duration;
use fullbore_base::Instant;

use crate::ring::Ring;

/// The receiving side. Positions count the SYN as 0, so the first byte is 1.
#[derive(Debug)]
pub struct Receiver {
    reassembly: Reassembly,
    ring: Ring,
    autotune: Autotune,
    /// The position that the window told to the peer ends at. Never moves back.
    edge: u64,
    /// Where the stream ends, once the FIN was seen.
    fin: Option<u64>,
    /// Bytes dropped for want of room or of ranges.
    refused_bytes: u64,
}

impl Receiver {
    /// A stream of which only the SYN has arrived, with a buffer of `initial` to `max` bytes.
    #[must_use]
    pub const fn new(initial: u64, max: u64) -> Self {
        Self {
            reassembly: Reassembly::new(1),
            ring: Ring::new(1),
            autotune: Autotune::new(initial, max),
            edge: 1,
            fin: None,
            refused_bytes: 0,
        }
    }

    /// The next position expected, the FIN's included once it is reached.
    #[must_use]
    pub fn rcv_nxt(&self) -> u64 {
        let nxt = self.reassembly.rcv_nxt();
        nxt + u64::from(self.is_finished())
    }

    /// Whether everything up to the FIN has arrived.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.fin == Some(self.reassembly.rcv_nxt())
    }

    /// Whether something has arrived beyond a hole.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        self.reassembly.has_holes()
    }

    /// Ranges beyond the first hole.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.reassembly.range_count()
    }

    /// The right edge of the window that the peer knows of.
    #[must_use]
    pub const fn edge(&self) -> u64 {
        self.edge
    }

    /// The peer was told of a window up to `edge` before this receiver was made.
    pub fn set_edge(&mut self, edge: u64) {
        self.edge = self.edge.max(edge);
    }

    /// The window that the peer knows of.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.edge.saturating_sub(self.rcv_nxt())
    }

    /// Bytes dropped for want of room or of ranges.
    #[must_use]
    pub const fn refused_bytes(&self) -> u64 {
        self.refused_bytes
    }

    /// The measure of what the application takes.
    #[must_use]
    pub const fn autotune(&self) -> &Autotune {
        &self.autotune
    }

    /// A segment brings back the timestamp `echo` of one of ours that left `sample` ago.
    pub fn on_echo(&mut self, echo: u32, sample: Duration) {
        self.autotune.on_echo(echo, sample);
    }

    /// Takes what of `bytes`, which start at `position`, is inside the window and new.
    pub fn on_data(&mut self, now: Instant, position: u64, bytes: &[u8]) -> Arrival {
        let end = position + bytes.len() as u64;
        let limit = self.fin.map_or(self.edge, |fin| fin.min(self.edge));
        let kept_end = end.min(limit.max(position));
        self.refused_bytes += end - kept_end;
        let arrival = self.reassembly.insert(position..kept_end);
        if arrival.is_refused {
            self.refused_bytes += kept_end - position;
            return arrival;
        }
        if arrival.new_bytes > 0 {
            self.autotune.on_arrived(arrival.new_bytes);
            // What was held before is written again: the same bytes, or a peer's contradiction.
            let from = position.max(self.ring.start());
            let skip = usize::try_from(from - position).expect("inside the segment");
            let len = usize::try_from(kept_end - from).expect("inside the segment");
            self.ring.write(from, &bytes[skip..skip + len]);
        }
        if self.reassembly.has_holes() {
            self.autotune
                .on_span(self.ring.end() - self.reassembly.rcv_nxt());
        }
        if arrival.advanced > 0 {
            let nxt = self.reassembly.rcv_nxt();
            self.autotune.on_data(now, nxt, self.edge);
        }
        arrival
    }

    /// A FIN stands at `position`. False when that contradicts an earlier one, or what has arrived
    /// behind it.
    pub fn on_fin(&mut self, position: u64) -> bool {
        let highest = self.ring.end().max(self.reassembly.rcv_nxt());
        match self.fin {
            Some(fin) => fin == position,
            None if position < highest => false,
            None => {
                self.fin = Some(position);
                true
            }
        }
    }

    fn readable(&self) -> Range<u64> {
        self.ring.start()..self.reassembly.rcv_nxt()
    }

    /// Bytes in order that the application has not taken.
    #[must_use]
    pub fn readable_bytes(&self) -> u64 {
        let range = self.readable();
        range.end - range.start
    }

    /// Those bytes, in two pieces where the buffer's circle closes.
    #[must_use]
    pub fn peek(&self) -> (&[u8], &[u8]) {
        self.ring.slices(self.readable())
    }

    /// The application took `count` of them.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn consume(&mut self, now: Instant, count: u64, mss: u64) {
        assert!(count <= self.readable_bytes(), "consumed past what is held");
        self.ring.forget_before(self.ring.start() + count);
        self.autotune.on_taken(now, count, mss);
    }

    /// The window that a segment sent now would tell, without moving the edge. It opens only by
    /// steps worth telling: a segment or half the buffer (RFC 9293 3.8.6.2.2), and never shrinks.
    #[must_use]
    pub fn next_edge(&self, mss: u64, scale: u8) -> u64 {
        let nxt = self.rcv_nxt();
        let target = self.autotune.target();
        let free = target.saturating_sub(self.readable_bytes());
        let unit = 1 << scale;
        let largest = u64::from(u16::MAX) * unit;
        let wanted = nxt + (free / unit * unit).min(largest);
        let step = mss.min(target / 2).max(1);
        if wanted >= self.edge + step {
            wanted
        } else {
            self.edge
        }
    }

    /// The window field of a segment that leaves now.
    pub fn advertise(&mut self, mss: u64, scale: u8) -> u16 {
        self.edge = self.edge.max(self.next_edge(mss, scale));
        // Rounded up: an edge once told is not taken back by the scale's granularity. The buffer
        // takes the few bytes more.
        let window = self.window().div_ceil(1 << scale);
        let field = u16::try_from(window).unwrap_or(u16::MAX);
        self.edge = self.edge.max(self.rcv_nxt() + (u64::from(field) << scale));
        field
    }

    /// The ranges to report in SACK blocks.
    pub fn blocks(
        &self,
        duplicate: Option<Range<u64>>,
        limit: usize,
    ) -> impl Iterator<Item = Range<u64>> + '_ {
        self.reassembly.blocks(duplicate, limit)
    }

    /// Gives memory back that nothing is held in.
    pub fn release(&mut self) {
        self.ring.release();
    }

    /// Memory in use for bytes.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.ring.capacity()
    }
}

#[cfg(test)]
mod tests;
