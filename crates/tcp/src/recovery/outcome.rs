//! What loss recovery is told and what it answers.

use fullbore_base::Instant;

use crate::rate::RateSample;
use crate::scoreboard::{Applied, Blocks, Snapshot};

/// Where the connection stands:
///
/// ```text
///   Open ──loss──► Fast ──all that was sent before it is acknowledged──► Open
///     │             │ time-out
///     └─time-out──► Timeout ──likewise, or needless──► Open
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Losses are repaired while acknowledgements come in.
    Fast {
        /// SND.NXT when it began.
        recover: u64,
    },
    /// Acknowledgements did not come in.
    Timeout {
        /// SND.NXT at the time-out.
        recover: u64,
    },
}

/// What a segment of the peer acknowledges, in positions.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// The cumulative acknowledgement, between SND.UNA and SND.NXT.
    pub position: u64,
    /// Its SACK blocks.
    pub blocks: &'a Blocks,
    /// When we sent the timestamp that it echoes; rounded down to a millisecond.
    pub echoed_at: Option<Instant>,
    /// It acknowledges nothing new, carries nothing and leaves the window as it was (RFC 5681 2).
    pub is_duplicate: bool,
}

/// A segment deemed lost, for who models the path.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Bytes of it.
    pub bytes: u64,
    /// The counters when it was sent.
    pub snapshot: Snapshot,
    /// Bytes deemed lost in all, this included.
    pub lost_total: u64,
}

/// What an acknowledgement led to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// What changed on the scoreboard.
    pub applied: Applied,
    /// Bytes that left the network: delivered, or a duplicate acknowledgement's guess.
    pub delivered_bytes: u64,
    /// What it says of the path's rate.
    pub sample: RateSample,
    /// Bytes deemed lost by it.
    pub lost_bytes: u64,
    /// Fast recovery began.
    pub has_entered: bool,
    /// A recovery ended.
    pub has_left: bool,
    /// The last recovery was needless: its reduction is to be taken back.
    pub is_undone: bool,
    /// The window was reduced since the path marked a packet.
    pub is_mark_answered: bool,
    /// A tail loss probe repaired a loss: the window is to be reduced as for any.
    pub is_probe_repaired: bool,
}
