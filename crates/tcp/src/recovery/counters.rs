//! What loss recovery did, counted.

use crate::scoreboard::Blocks;

/// Counters since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Acknowledgements read.
    pub acks: u64,
    /// Segments of the scoreboard looked at for them.
    pub segments_examined: u64,
    /// The most for one acknowledgement.
    pub segments_examined_max: u64,
    /// SACK blocks of sense.
    pub sack_blocks: u64,
    /// SACK blocks that say nothing that can be true.
    pub sack_blocks_invalid: u64,
    /// D-SACK blocks.
    pub dsack_blocks: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Fast recoveries.
    pub fast_recoveries: u64,
    /// Recoveries that turned out to be needless.
    pub undone: u64,
    /// Time-outs that found SACKed data thrown away.
    pub reneges: u64,
    /// Segments sent again, probes included.
    pub retransmissions: u64,
    /// Bytes of them.
    pub bytes_retransmitted: u64,
    /// Of those segments, how many the receiver had already.
    pub spurious_retransmissions: u64,
}

impl Counters {
    pub(super) fn on_ack(&mut self, blocks: &Blocks, examined: u64) {
        self.acks += 1;
        self.segments_examined += examined;
        self.segments_examined_max = self.segments_examined_max.max(examined);
        self.sack_blocks += blocks.ranges().len() as u64;
        self.sack_blocks_invalid += u64::from(blocks.invalid_count);
        self.dsack_blocks += u64::from(blocks.duplicate.is_some());
    }
}
