//! What a connection did, and how it stands: counters, and a snapshot like the kernel's TCP_INFO.

use core::time::Duration;
use fullbore_base::Rate;

use super::{Connection, State};
use crate::recovery::{Counters, Phase};

/// Counters since the connection began, beside those of loss recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments taken.
    pub segments_received: u64,
    /// Segments made.
    pub segments_sent: u64,
    /// Positions sent for the first time.
    pub bytes_sent: u64,
    /// Positions that the peer acknowledged.
    pub bytes_acked: u64,
    /// Bytes that arrived, each once.
    pub bytes_received: u64,
    /// Challenge acknowledgements (RFC 5961).
    pub challenges: u64,
    /// Segments of an earlier turn of the numbers (RFC 7323).
    pub paws_drops: u64,
    /// Packets that the path marked.
    pub marks: u64,
    /// Zero-window and keepalive probes.
    pub questions: u64,
    /// Probes for a larger segment.
    pub mtu_probes: u64,
    /// Times that full segments stopped to pass.
    pub black_holes: u64,
    /// Time with data to send or unacknowledged.
    pub busy: Duration,
    /// Of it, held up by the peer's window.
    pub window_limited: Duration,
}

/// How a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Where it is.
    pub state: State,
    /// Whether losses are being repaired.
    pub phase: Phase,
    /// The smoothed round-trip time; zero before it is known.
    pub rtt: Duration,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// The least of the last half minute.
    pub min_rtt: Option<Duration>,
    /// The retransmission timer, with backoff.
    pub rto: Duration,
    /// The receiver's round trip.
    pub rcv_rtt: Option<Duration>,
    /// Bytes that may be in flight.
    pub snd_cwnd: u64,
    /// The slow start threshold; `u64::MAX` for none.
    pub snd_ssthresh: u64,
    /// Bytes of data in a full segment.
    pub snd_mss: u32,
    /// The peer's window.
    pub snd_wnd: u64,
    /// Our window, as the peer knows it.
    pub rcv_wnd: u64,
    /// What the receive buffer may hold.
    pub rcv_space: u64,
    /// Bytes deemed in flight, SACKed, lost.
    pub pipe_bytes: u64,
    /// See `pipe_bytes`.
    pub sacked_bytes: u64,
    /// See `pipe_bytes`.
    pub lost_bytes: u64,
    /// Bytes sent and not cumulatively acknowledged: the sum of the three.
    pub outstanding_bytes: u64,
    /// Segments of them.
    pub outstanding_count: usize,
    /// Segments that the receiver holds beyond a hole.
    pub sacked_count: u32,
    /// Segments deemed lost and not yet sent again.
    pub lost_count: u32,
    /// Bytes in flight for at least the second time.
    pub retransmitted_bytes: u64,
    /// Segments of them.
    pub retransmitted_count: u32,
    /// Time-outs in a row.
    pub backoff: u32,
    /// Bytes written and never sent.
    pub notsent_bytes: u64,
    /// Bytes that arrived in order and were not read.
    pub unread_bytes: u64,
    /// How fast segments leave.
    pub pacing_rate: Option<Rate>,
    /// Whether the application is what limits the rate.
    pub is_app_limited: bool,
    /// Whether the path was seen to reorder.
    pub is_reordering_seen: bool,
    /// Counters of the connection.
    pub stats: Stats,
    /// Counters of loss recovery.
    pub recovery: Counters,
}

impl Connection {
    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// How it stands. O(1).
    #[must_use]
    pub fn info(&self) -> Info {
        let recovery = self.sender.recovery();
        let (board, rtt) = (recovery.board(), recovery.rtt());
        Info {
            state: self.state,
            phase: recovery.phase(),
            rtt: rtt.srtt().unwrap_or_default(),
            rttvar: rtt.rttvar(),
            min_rtt: rtt.min(),
            rto: rtt.rto(),
            rcv_rtt: self.receiver.autotune().rtt(),
            snd_cwnd: self.sender.cwnd(),
            snd_ssthresh: self.sender.controller().get().ssthresh(),
            snd_mss: self.send_mss(),
            snd_wnd: self.window.size,
            rcv_wnd: self.receiver.window(),
            rcv_space: self.receiver.autotune().target(),
            pipe_bytes: board.pipe().bytes,
            sacked_bytes: board.sacked().bytes,
            lost_bytes: board.lost().bytes,
            outstanding_bytes: board.snd_nxt() - board.snd_una(),
            outstanding_count: board.len(),
            sacked_count: board.sacked().count,
            lost_count: board.lost().count,
            retransmitted_bytes: board.retransmitted().bytes,
            retransmitted_count: board.retransmitted().count,
            backoff: rtt.backoff(),
            notsent_bytes: self.notsent_bytes(),
            unread_bytes: self.receiver.readable_bytes(),
            pacing_rate: self.sender.pacing_rate(),
            is_app_limited: recovery.delivery().is_app_limited(),
            is_reordering_seen: recovery.is_reordering_seen(),
            stats: self.stats,
            recovery: *recovery.counters(),
        }
    }

    /// The counters of loss recovery alone: O(1), for who looks at each segment.
    #[must_use]
    pub const fn recovery_counters(&self) -> &Counters {
        self.sender.recovery().counters()
    }

    /// Bytes of memory in buffers, beside the connection itself.
    #[must_use]
    pub const fn buffer_capacity(&self) -> usize {
        self.outbox.capacity() + self.receiver.capacity()
    }
}
