//! What the connection layer is told at its start, and the named limit of everything a peer can grow
//! in it. A single channel's limits stand with the channel.

use std::time::Duration;

/// Channels open at once on one connection. OpenSSH serves 10 sessions; lanes of a transfer and
/// jumps through us stay far under it.
pub const CHANNELS_MAX: usize = 64;

/// Bytes of queued replies (to requests, opens and pings) at which no further packet is opened: the
/// peer does not read what it asked for.
pub const CONTROL_BYTES_MAX: usize = 64 * 1024;

/// Global requests of ours that wait for their replies.
pub const GLOBALS_AWAITED_MAX: usize = 16;

/// Channel requests of ours that wait for their replies, on one channel.
pub const REQUESTS_AWAITED_MAX: usize = 256;

/// Proofs of host keys that a server makes on one connection: each costs a signature per key, and
/// OpenSSH's client asks once.
pub const HOST_KEY_PROOFS_MAX: u32 = 4;

/// Host keys of a server's announcement that a client keeps; further ones are ignored.
pub const ANNOUNCED_KEYS_MAX: usize = 32;

/// Messages of the connection layer that a server drops before authentication: a client that sends
/// them ahead and is refused sends a handful with each attempt.
pub const EARLY_MESSAGES_MAX: u32 = 1024;

/// What a client may send to a channel before the confirmation tells it the window, when it knows
/// that the server is of this kind (see [`ConnectionConfig::eager`]). No local window is smaller.
pub const EAGER_BYTES_MAX: u32 = 32 * 1024;

/// The longest data field of a message that is sent so. No server of ours takes less.
pub const EAGER_MAXPACKET: u32 = 4 * 1024;

/// The longest data field we take in one message of a peer that is not fullbore: what everybody
/// takes, and OpenSSH's own.
pub const MAXPACKET_OTHERS: u32 = 32 * 1024;

/// The longest data field in one message, sent or received: one SFTP block with its header.
pub const MAXPACKET_MAX: u32 = 256 * 1024;

/// What every channel can count on, whatever others take of [`ConnectionConfig::windows_max`]: 8/7 of the
/// longest message, so that it can be waited for whole. Kept free for it from its opening to its end; a
/// channel for which there is not so much is refused.
pub const LOCAL_WINDOW_MIN: u32 = 300 * 1024;

/// The target of a window that follows the path, from the first byte consumed until a round trip has
/// been seen, and after an idle time. A new TCP connection needs seven round trips to send so much in
/// one (RFC 6928: 10 segments, doubled); by then the target has followed.
pub const LOCAL_WINDOW_START: u32 = 1024 * 1024;

/// How much of what is free one channel may hold, besides [`LOCAL_WINDOW_MIN`]: 8 times as much as stays
/// free. One alone gets 8/9 of all, two get 8/17 each, ...: none more than any other that wants as
/// much, and the next finds something (dynamic thresholds: Choudhury and Hahne, 1998).
pub const FREE_SHARE: u64 = 8;

/// Shortest time between pings that are sent to measure the round trip for the windows.
pub const RTT_SPACING: Duration = Duration::from_millis(100);

/// For how long a round-trip time told by the driver is believed; pings measure it afterwards.
pub const RTT_TOLD_VALID: Duration = Duration::from_secs(2);

/// What both roles tell the connection layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// `None`: the window of each channel follows the path. A client's starts at
    /// [`LOCAL_WINDOW_START`], a server's at [`EAGER_BYTES_MAX`] until the first byte was consumed.
    ///
    /// `Some`: the bytes that the peer may have on their way and unread on each channel (see
    /// [`LocalWindow`](crate::channel::window::LocalWindow)), as most implementations do it; for
    /// comparisons. At least [`EAGER_BYTES_MAX`], and 8/7 of the longest message that the application
    /// waits to see whole.
    pub local_window: Option<u32>,
    /// What the peer may have on its way and unread on all channels together. Divided by
    /// [`FREE_SHARE`]; a fixed window gets at most half of what is left when its channel opens. See
    /// [`Connection::set_windows_max`](super::Connection::set_windows_max).
    pub windows_max: u64,
    /// Longest data field of a message that a fullbore peer may send; up to [`MAXPACKET_MAX`], and
    /// for a server at least [`EAGER_MAXPACKET`]. Others are told at most [`MAXPACKET_OTHERS`].
    pub local_maxpacket: u32,
    /// Channels at once; up to [`CHANNELS_MAX`].
    pub channels_max: usize,
    /// From the start to the end of authentication (server: login grace time; client: connect
    /// timeout; time that a person takes counts).
    pub login_timeout: Option<Duration>,
    /// After how long a silence the peer is asked whether it lives.
    pub keepalive_interval: Option<Duration>,
    /// Unanswered questions in a row after which the connection is given up.
    pub keepalive_count_max: u32,
    /// How often the round-trip time is measured.
    pub ping_interval: Option<Duration>,
    /// Client: send requests and up to [`EAGER_BYTES_MAX`] of data behind the first channel's open
    /// message, and all of them behind an authentication attempt, without waiting for consent. Takes
    /// effect only towards servers that are known to bear it: see `ahead.rs`.
    pub eager: bool,
    /// Server: confirm channels with a window of 0 and give the window with the answer to the first
    /// request, as OpenSSH does. Only tests want it: it costs clients a round trip.
    pub withholds_window: bool,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            local_window: None,
            // Twice 10 Gbit/s x 100 ms, for a connection that nobody set a share for.
            windows_max: 256 * 1024 * 1024,
            local_maxpacket: MAXPACKET_MAX,
            channels_max: CHANNELS_MAX,
            login_timeout: Some(Duration::from_secs(120)),
            keepalive_interval: None,
            keepalive_count_max: 3,
            ping_interval: None,
            eager: true,
            withholds_window: false,
        }
    }
}

impl ConnectionConfig {
    /// The values in force: out-of-range ones are moved to their limit.
    pub(crate) fn clamped(mut self, is_server: bool) -> Self {
        self.local_window = self.local_window.map(|bytes| bytes.max(EAGER_BYTES_MAX));
        let maxpacket_min = if is_server { EAGER_MAXPACKET } else { 1 };
        self.local_maxpacket = self.local_maxpacket.clamp(maxpacket_min, MAXPACKET_MAX);
        self.channels_max = self.channels_max.clamp(1, CHANNELS_MAX);
        self
    }
}
