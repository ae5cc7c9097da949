//! What a stack is told at its start, and the named limits of what peers can make it keep.

use std::time::Duration;

use fullbore_tcp::connection::Config;

/// Connections at once, those included that only wait for their last bytes to be acknowledged.
pub const CONNECTIONS_MAX: usize = 65_536;

/// Listening ports at once.
pub const LISTENERS_MAX: usize = 1024;

/// Connections of one port that are made and not accepted. More handshakes are not completed: the peer
/// tries again.
pub const ACCEPTS_MAX: usize = 1024;

/// Handshakes of one port that are remembered; cookies beyond.
pub const BACKLOG_MAX: usize = 1024;

/// Connections in TIME-WAIT: 80 bytes each. Beyond, the oldest are forgotten, as RFC 9293 allows a
/// system that cannot hold them.
pub const TIME_WAITS_MAX: usize = 16_384;

/// Answers to segments of no connection that wait to leave; more are not made.
pub const REPLIES_MAX: usize = 256;

/// How long a connection that the application has let go may make no progress. Linux's default for
/// FIN-WAIT-2.
pub const ORPHAN_PATIENCE: Duration = Duration::from_secs(60);

/// Bytes written and not yet sent that a connection takes before it asks its writer to wait: enough for
/// two milliseconds at 4 Gbit/s, little enough that what is written next is not late.
pub const NOTSENT_MAX: u64 = 1 << 20;

/// Segments of one connection before the next has its turn.
pub const TURN_SEGMENTS: usize = 64;

/// What a stack is told.
#[derive(Clone, Copy, Debug)]
pub struct StackConfig {
    /// For each connection unless it is told otherwise; ports, checksum, timestamps and seed are set
    /// for each.
    pub connection: Config,
    /// Whether segments have checksums of ours; not where the wire does them, or protects what it
    /// carries.
    pub is_checksummed: bool,
    /// Connections at once.
    pub connections_max: usize,
    /// Connections in TIME-WAIT.
    pub time_waits_max: usize,
    /// Connections of one port that wait to be accepted.
    pub accepts_max: usize,
    /// Handshakes of one port that are remembered.
    pub backlog_max: usize,
    /// Bytes that a connection takes ahead of sending them.
    pub notsent_max: u64,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            connection: Config::default(),
            is_checksummed: true,
            connections_max: CONNECTIONS_MAX,
            time_waits_max: TIME_WAITS_MAX,
            accepts_max: ACCEPTS_MAX,
            backlog_max: BACKLOG_MAX,
            notsent_max: NOTSENT_MAX,
        }
    }
}
