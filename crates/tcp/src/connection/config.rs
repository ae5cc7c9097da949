//! What a connection is told at its start, and the named limits of what a peer can make it do.

use core::time::Duration;

use crate::congestion::Settings;
use crate::scoreboard::RECORDS_MAX;
use crate::segment::Pseudo;
use crate::segment::options::WINDOW_SCALE_MAX;

/// The MSS of a peer that names none (RFC 9293 3.7.1).
pub const MSS_DEFAULT: u16 = 536;

/// The least MSS that we follow a peer to: with less, each byte of it would cost us ten of headers.
/// Ours; RFC 879's minimum of 576 bytes less headers is 536, and what Linux takes is 48.
pub const MSS_MIN: u16 = 216;

/// Challenge acknowledgements and answers to empty segments outside the window, within
/// [`CHALLENGE_INTERVAL`] (RFC 5961 section 7 names these figures). Segments with data are answered
/// each: no two ends answer each other with them for ever.
pub const CHALLENGES_MAX: u32 = 10;

/// See [`CHALLENGES_MAX`].
pub const CHALLENGE_INTERVAL: Duration = Duration::from_secs(5);

/// Time-outs in a row of a SYN before the peer is given up: 1 + 2 + ... + 32 + 60 s.
pub const SYN_TIMEOUTS_MAX: u32 = 6;

/// Time-outs in a row before an established peer is given up, unless a user timeout says otherwise
/// (RFC 9293 3.8.3 asks for at least 100 s: R2).
pub const TIMEOUTS_MAX: u32 = 15;

/// How long a peer's user timeout option may make us wait (RFC 5482 3.1: upper limit).
pub const USER_TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);

/// How short it may make us (RFC 5482 3.1: lower limit).
pub const USER_TIMEOUT_MIN: Duration = Duration::from_secs(100);

/// Asking an idle peer whether it lives (RFC 9293 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// After how long a silence.
    pub idle: Duration,
    /// How long until the next question.
    pub interval: Duration,
    /// Questions without an answer after which the peer is given up.
    pub count_max: u32,
}

/// What the owner decides.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Our port.
    pub local_port: u16,
    /// The peer's.
    pub remote_port: u16,
    /// What the checksum covers.
    pub pseudo: Pseudo,
    /// The largest segment, as the MSS option counts it: MTU less 40 for IPv4, 60 for IPv6.
    pub mss: u16,
    /// Larger ones are tried up to this (RFC 8899); equal to `mss` for none.
    pub mss_max: u16,
    /// What is fallen back to when segments of `mss` vanish (RFC 8899's BASE_PLPMTU).
    pub mss_base: u16,
    /// Bytes that the receive buffer starts with.
    pub receive_buffer: u64,
    /// Bytes that it may grow to.
    pub receive_buffer_max: u64,
    /// Bytes that may wait to be sent or acknowledged.
    pub send_buffer_max: u64,
    /// Segments that may wait to be acknowledged, however short; at least one.
    pub records_max: usize,
    /// Congestion control.
    pub congestion: Settings,
    /// Whether segments leave at a rate instead of in bursts.
    pub is_paced: bool,
    /// Whether a pause longer than the retransmission timer runs makes the window start anew (RFC 5681
    /// section 4.1).
    pub is_restarted_after_idle: bool,
    /// Whether a tail that is not acknowledged is probed for ahead of a time-out (RFC 8985 section 7).
    pub is_tail_probed: bool,
    /// Whether small segments wait for the acknowledgement of earlier data (Nagle).
    pub is_nagle: bool,
    /// Offer SACK (RFC 2018).
    pub is_sack: bool,
    /// Offer timestamps (RFC 7323).
    pub is_timestamps: bool,
    /// Offer window scaling (RFC 7323).
    pub is_window_scaling: bool,
    /// Offer explicit congestion notification (RFC 3168).
    pub is_ecn: bool,
    /// Ask an idle peer whether it lives.
    pub keepalive: Option<Keepalive>,
    /// How long data may go without acknowledgement (RFC 5482); told to the peer.
    pub user_timeout: Option<Duration>,
    /// How long an acknowledgement may be held back; at most 500 ms (RFC 9293 MUST-58).
    pub delayed_ack: Duration,
    /// How long the side that closed first answers late segments: twice the segment lifetime.
    pub time_wait: Duration,
    /// Where our timestamps start (RFC 7323 5.4: random, different for each peer).
    pub timestamp_offset: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            local_port: 0,
            remote_port: 0,
            pseudo: Pseudo::Unchecked,
            mss: 1460,
            mss_max: 1460,
            mss_base: 1024,
            receive_buffer: 128 * 1024,
            receive_buffer_max: 15 * 1024 * 1024,
            send_buffer_max: 16 * 1024 * 1024,
            records_max: RECORDS_MAX,
            congestion: Settings::default(),
            is_paced: true,
            is_restarted_after_idle: true,
            is_tail_probed: true,
            is_nagle: false,
            is_sack: true,
            is_timestamps: true,
            is_window_scaling: true,
            is_ecn: false,
            keepalive: None,
            user_timeout: None,
            delayed_ack: Duration::from_millis(40),
            time_wait: Duration::from_secs(60),
            timestamp_offset: 0,
        }
    }
}

impl Config {
    /// By how many bits our windows are shifted: the least that lets the whole buffer be told.
    ///
    /// 15 MiB give 8, as Linux does with its default limits.
    #[must_use]
    pub fn window_scale(&self) -> u8 {
        let fits = |&scale: &u8| u64::from(u16::MAX) << scale >= self.receive_buffer_max;
        (0..WINDOW_SCALE_MAX).find(fits).unwrap_or(WINDOW_SCALE_MAX)
    }
}
