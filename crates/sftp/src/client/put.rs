//! One file being written: which ranges are unanswered, and how far the server has confirmed.

use std::collections::BTreeMap;

use super::config::is_within_span;
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
    /// Refused for their length, to be sent again in shorter ones: offset to length.
    again: BTreeMap<u64, u32>,
    /// The source has no more.
    ended: bool,
}

impl Put {
    pub(super) fn new(offset: u64, end_max: u64) -> Self {
        Self {
            next: offset,
            end_max: end_max.min(OFFSET_MAX),
            unanswered: BTreeMap::new(),
            again: BTreeMap::new(),
            ended: end_max <= offset,
        }
    }

    /// Bytes that the next block may have.
    pub(super) fn room(&self) -> u64 {
        match self.again.first_key_value() {
            Some((_, &len)) => u64::from(len),
            None => self.end_max - self.next,
        }
    }

    /// Whether the end is a range's, not that of what can be addressed.
    pub(super) const fn is_range(&self) -> bool {
        self.end_max < OFFSET_MAX
    }

    /// Where the next block goes.
    pub(super) fn next(&self) -> u64 {
        let again = self.again.first_key_value();
        again.map_or(self.next, |(&offset, _)| offset)
    }

    /// Whether a block should be read and sent.
    pub(super) fn wants(&self) -> bool {
        !self.again.is_empty() || (!self.ended && is_within_span(self.next, self.frontier()))
    }

    /// Whether all has been sent.
    pub(super) fn is_ended(&self) -> bool {
        self.ended && self.again.is_empty()
    }

    /// The source has no more.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.again.clear();
    }

    /// The block at `offset` was refused for its length.
    pub(super) fn on_refused(&mut self, offset: u64) {
        if let Some(len) = self.unanswered.remove(&offset) {
            self.again.insert(offset, len);
        }
    }

    /// A block of `len` bytes was sent.
    pub(super) fn on_sent(&mut self, len: u32) {
        if let Some((offset, left)) = self.again.pop_first() {
            self.unanswered.insert(offset, len);
            if len < left {
                self.again.insert(offset + u64::from(len), left - len);
            }
            return;
        }
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
        let first = |ranges: &BTreeMap<u64, u32>| ranges.first_key_value().map(|(&at, _)| at);
        let firsts = first(&self.unanswered)
            .into_iter()
            .chain(first(&self.again));
        firsts.min().unwrap_or(self.next)
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

    #[test]
    fn what_was_refused_for_its_length_is_sent_again_in_pieces() {
        let mut put = Put::new(0, 100);
        put.on_sent(60);
        put.on_sent(40);
        assert!(put.is_ended());
        put.on_refused(0);
        put.on_ok(60);
        assert_eq!(
            (put.frontier(), put.is_ended(), put.wants()),
            (0, false, true)
        );
        assert_eq!((put.next(), put.room()), (0, 60));
        put.on_sent(32);
        assert_eq!((put.next(), put.room()), (32, 28));
        put.on_sent(28);
        assert!(put.is_ended() && !put.wants());
        put.on_ok(32);
        assert_eq!(put.frontier(), 0);
        put.on_ok(0);
        assert_eq!(put.frontier(), 100);
    }
}
