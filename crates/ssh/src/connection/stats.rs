//! Counters of a connection.

use std::time::Duration;

/// What a connection has done so far. Bytes are those of the channels, headers not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes read from the socket.
    pub wire_bytes_received: u64,
    /// Bytes appended for the socket.
    pub wire_bytes_sent: u64,
    /// Channel bytes received, both streams.
    pub channel_bytes_received: u64,
    /// Channel bytes sent, both streams.
    pub channel_bytes_sent: u64,
    /// Of those sent, laid out in place in the packet they left in.
    pub channel_bytes_direct: u64,
    /// Of those received, copied because their consumer was behind.
    pub channel_bytes_kept: u64,
    /// Window adjusts sent.
    pub adjusts_sent: u64,
    /// Window adjusts received.
    pub adjusts_received: u64,
    /// Most bytes of replies that waited at once.
    pub control_bytes_peak: usize,
    /// Time that bytes waited for nothing but the peer's window, on channels that are closed now.
    pub window_limited: Duration,
    /// Time that channels that are closed now were due credit which the connection's share did not have.
    pub budget_limited: Duration,
    /// Samples of the round-trip time.
    pub rtt_count: u64,
}
