//! What is counted: one reading of everything that the verdict rests on.

use std::time::Duration;

use fullbore_base::Instant;

use super::waits::WaitTimes;
use crate::driver::tcp_info::TcpInfo;

/// Processor time of the thread that moves the connection's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time running.
    pub running: Duration,
    /// Time ready to run, waiting for a processor; zero where the kernel does not tell.
    pub waiting: Duration,
}

/// Time spent in reads and writes of this machine's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskTimes {
    /// In reads.
    pub reading: Duration,
    /// In writes.
    pub writing: Duration,
}

/// The state of a connection's lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneFacts {
    /// Lanes with something under way.
    pub busy: usize,
    /// One of them reads file content.
    pub is_reading: bool,
    /// Their channels' largest credit seen, together: what the peer lets be in flight.
    pub remote_window: u64,
    /// What we let the peer have in flight on them, together.
    pub local_window: u64,
    /// Bytes of READs and WRITEs without a reply.
    pub outstanding_bytes: u64,
    /// How many there may be.
    pub outstanding_bytes_max: u64,
    /// Requests without a reply.
    pub outstanding_count: usize,
    /// Replies so far, those of lanes that are closed included.
    pub replies: u64,
}

/// One reading. Times and counts are totals since the connection was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// What the connection's task slept for.
    pub waits: WaitTimes,
    /// The time that requests have waited for their replies, of all requests together.
    pub requests_waited: Duration,
    /// Its thread.
    pub thread: ThreadTimes,
    /// Its files.
    pub disk: DiskTimes,
    /// Time that channels were due credit which their connection's share did not have.
    pub budget_limited: Duration,
    /// Bytes of channels sent.
    pub sent: u64,
    /// Bytes of channels received.
    pub received: u64,
    /// The round-trip time, smoothed, as the engine knows it.
    pub rtt: Option<Duration>,
    /// The last answer to a ping, from end to end: whatever stood in front of it counts.
    pub pong: Option<Duration>,
    /// The shortest answer to a ping.
    pub pong_min: Option<Duration>,
    /// How long nothing has come from the peer, while something was awaited.
    pub quiet: Duration,
    /// The lanes.
    pub lanes: LaneFacts,
    /// The user's limit in bytes per second.
    pub rate_limit: Option<u64>,
    /// Size of the socket's send buffer.
    pub send_buffer: Option<u64>,
    /// The TCP connection ends on this machine.
    pub is_tcp_local: bool,
    /// The kernel's TCP, where the connection is one of its own.
    pub tcp: Option<TcpInfo>,
}

/// Beyond twice what TCP measures, and this, no ping was ever answered: the TCP connection ends at something
/// in between (a forwarded port, a proxy, an emulated link). More than a server takes to set a session up,
/// behind which the first answer stands.
const RELAY_SLACK: Duration = Duration::from_millis(20);

impl Sample {
    /// The round-trip time that the path has now: TCP's measurement is of the path alone, but it goes no
    /// further than the TCP connection does.
    #[must_use]
    pub fn path_rtt(&self) -> Option<Duration> {
        let of_tcp = self.tcp.map(|tcp| tcp.rtt).filter(|rtt| !rtt.is_zero());
        self.relayed_rtt().or(of_tcp).or(self.rtt).or(self.pong)
    }

    /// The path's round-trip time where TCP knows the way to a relay only: that of the fastest ping. Only
    /// of a relay on this machine: farther away, what is queued in front of every ping looks the same.
    #[must_use]
    pub fn relayed_rtt(&self) -> Option<Duration> {
        let of_tcp = self.tcp.map(|tcp| tcp.rtt)?;
        let is_late = |shortest: &Duration| *shortest > of_tcp * 2 + RELAY_SLACK;
        self.pong_min
            .filter(|shortest| self.is_tcp_local && is_late(shortest))
    }
}
