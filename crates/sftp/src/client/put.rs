//! One file being written: which ranges are unanswered, and how far the server has confirmed.

use std::collections::BTreeMap;

use super::config::SPAN_BYTES_MAX;
use super::get::OFFSET_MAX;

/// The ranges of an upload. Everything from the start to `next` that is not in `unanswered` has
/// been confirmed with `SSH_FX_OK`.
#[derive(Debug)]
pub(super) struct Put {
    next: u64,
    /// Nothing is written from here on.
    end_max: u64,
    /// Offset to length, sent and without a reply.
    unanswered: BTreeMap<u64, u32>,
    /// The source has no more.
    ended: bool,
}

impl Put {
    pub(super) fn new(offset: u64, end_max: u64) -> Self {
        Self {
            next: offset,
            end_max: end_max.min(OFFSET_MAX),
            unanswered: BTreeMap::new(),
            ended: end_max <= offset,
        }
    }

    /// Bytes that may still be written.
    pub(super) const fn room(&self) -> u64 {
        self.end_max - self.next
    }

    /// Whether the end is a range's, not that of what can be addressed.
    pub(super) const fn is_range(&self) -> bool {
        self.end_max < OFFSET_MAX
    }

    /// Where the next block goes.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether a block should be read and sent.
    pub(super) fn wants(&self) -> bool {
        !self.ended && self.next - self.frontier() < SPAN_BYTES_MAX
    }

    /// Whether all has been sent.
    pub(super) const fn is_ended(&self) -> bool {
        self.ended
    }

    /// The source has no more.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// A block of `len` bytes was sent.
    pub(super) fn on_sent(&mut self, len: u32) {
        self.unanswered.insert(self.next, len);
        self.next += u64::from(len);
        self.ended |= self.next >= self.end_max && self.is_range();
    }

    /// The block at `offset` was confirmed.
    pub(super) fn on_ok(&mut self, offset: u64) {
        self.unanswered.remove(&offset);
    }

    /// Everything before this offset has been confirmed.
    pub(super) fn frontier(&self) -> u64 {
        self.unanswered
            .first_key_value()
            .map_or(self.next, |(&offset, _)| offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_waits_for_the_oldest_answer() {
        let mut put = Put::new(10, u64::MAX);
        put.on_sent(5);
        put.on_sent(7);
        put.on_ok(15);
        assert_eq!((put.frontier(), put.next()), (10, 22));
        put.on_ok(10);
        assert_eq!(put.frontier(), 22);
    }
}
