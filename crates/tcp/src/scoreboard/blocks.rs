//! The SACK blocks of one acknowledgement: numbers to positions, D-SACK told from SACK, nonsense
//! counted and dropped.
//!
//! RFC 2018 section 4, RFC 2883 section 4.

use core::ops::Range;

use crate::segment::SackBlock;
use crate::segment::options::SACK_BLOCKS_MAX;
use crate::seq::Seq;

/// Where the sender's stream stands when the blocks arrive.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The number of position 0.
    pub initial: Seq,
    /// The first position not acknowledged so far.
    pub snd_una: u64,
    /// The position behind the last one ever sent.
    pub snd_nxt: u64,
}

/// What the blocks say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    ranges: [Range<u64>; SACK_BLOCKS_MAX],
    count: usize,
    /// What arrived at the receiver twice.
    pub duplicate: Option<Range<u64>>,
    /// Blocks that say nothing that can be true.
    pub invalid_count: u32,
}

impl Blocks {
    /// Reads the blocks of a segment that acknowledges `ack`. O(blocks).
    #[must_use]
    pub fn read(frame: &Frame, ack: u64, blocks: &[SackBlock]) -> Self {
        let mut read = Self::default();
        let position = |seq| frame.initial.position(seq, ack);
        let ranges = blocks.iter().map(|block| {
            let range = position(block.start)?..position(block.end)?;
            (range.start < range.end && range.end <= frame.snd_nxt).then_some(range)
        });
        let mut ranges = ranges.take(SACK_BLOCKS_MAX).peekable();
        if let Some(Some(first)) = ranges.peek().cloned() {
            let mut following = ranges.clone().skip(1);
            let second = following.next().flatten();
            // RFC 2883 4: a first block under the cumulative acknowledgement, or inside the second.
            let is_inside = second.is_some_and(|s| s.start <= first.start && first.end <= s.end);
            if first.end <= ack || is_inside {
                read.duplicate = Some(first);
                let _ = ranges.next();
            }
        }
        for range in ranges {
            match range {
                // One that starts under its own acknowledgement contradicts itself.
                Some(range) if range.start >= ack => read.push(range, frame.snd_una),
                _ => read.invalid_count += 1,
            }
        }
        read
    }

    /// Keeps what of `range` is not yet acknowledged: an acknowledgement may come late.
    fn push(&mut self, range: Range<u64>, snd_una: u64) {
        let range = range.start.max(snd_una)..range.end;
        if !range.is_empty() {
            self.ranges[self.count] = range;
            self.count += 1;
        }
    }

    /// The ranges that the receiver holds, as far as they are news.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges[..self.count]
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::single_range_in_vec_init, reason = "a list of one block")]
    use super::*;

    const INITIAL: u32 = 0xffff_f000;

    fn frame() -> Frame {
        Frame {
            initial: Seq::new(INITIAL),
            snd_una: 5000,
            snd_nxt: 9000,
        }
    }

    fn read(ack: u64, blocks: &[(u64, u64)]) -> Blocks {
        let seq = |position| Seq::new(INITIAL).at(position);
        let blocks: Vec<SackBlock> = blocks
            .iter()
            .map(|&(start, end)| SackBlock {
                start: seq(start),
                end: seq(end),
            })
            .collect();
        Blocks::read(&frame(), ack, &blocks)
    }

    #[test]
    fn blocks_become_positions_across_the_wrap() {
        let blocks = read(5000, &[(6000, 7000), (8000, 9000)]);
        assert_eq!(blocks.ranges(), [6000..7000, 8000..9000]);
        assert_eq!((blocks.duplicate, blocks.invalid_count), (None, 0));
    }

    #[test]
    fn a_first_block_under_the_acknowledgement_is_a_duplicate() {
        let blocks = read(5000, &[(4000, 5000), (6000, 7000)]);
        assert_eq!(blocks.duplicate, Some(4000..5000));
        assert_eq!(blocks.ranges(), [6000..7000]);
    }

    #[test]
    fn a_first_block_inside_the_second_is_a_duplicate() {
        let blocks = read(5000, &[(6500, 6800), (6000, 7000)]);
        assert_eq!(blocks.duplicate, Some(6500..6800));
        assert_eq!(blocks.ranges(), [6000..7000]);
        let apart = read(5000, &[(6500, 7001), (6000, 7000)]);
        assert_eq!(apart.duplicate, None);
        assert_eq!(apart.ranges().len(), 2);
    }

    #[test]
    fn a_late_acknowledgement_still_says_what_is_held() {
        let blocks = read(4000, &[(4500, 6000), (4600, 4900)]);
        assert_eq!(blocks.ranges(), [5000..6000]);
        assert_eq!((blocks.duplicate, blocks.invalid_count), (None, 0));
    }

    #[test]
    fn nonsense_is_counted_and_dropped() {
        let cases = [
            (7000, 6000),
            (6000, 6000),
            (8000, 9001),
            (0x7000_0000, 0x7000_1000),
        ];
        for (start, end) in cases {
            let blocks = read(5000, &[(6000, 6500), (start, end)]);
            assert_eq!((blocks.ranges().len(), blocks.invalid_count), (1, 1));
        }
        // A second block under the acknowledgement is no D-SACK.
        assert_eq!(read(5000, &[(6000, 6500), (4000, 4500)]).invalid_count, 1);
        assert_eq!(read(5000, &[(4900, 5100)]).invalid_count, 1);
    }
}
