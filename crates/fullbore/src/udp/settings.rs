//! What the TCP connection inside is told: windows, segment sizes, congestion control, timers.

use std::net::IpAddr;
use std::time::Duration;

use fullbore_tcp::congestion::{Algorithm, Settings as Congestion};
use fullbore_tcp::connection::{Accepted, Agreed, Config, Keepalive};
use fullbore_tcp::segment::{HEADER_BYTES as SEGMENT_HEADER_BYTES, Pseudo};

use super::datagram::{LEN_MAX, OVERHEAD_BYTES};
use super::keys::Keys;

/// By how many bits windows are shifted.
const WINDOW_SCALE: u8 = 10;

/// Bytes that a connection may hold for its reader: twice the product of 1 Gbit/s and 250 ms. Memory grows
/// only as the reader takes that much in a round trip.
pub const RECEIVE_BYTES_MAX: u64 = (u16::MAX as u64) << WINDOW_SCALE;

/// Bytes that may wait to be acknowledged: as many as a peer's window.
pub const SEND_BYTES_MAX: u64 = RECEIVE_BYTES_MAX;

/// Bytes that are taken from a writer before they can be sent, so that what is urgent is not behind much.
pub const UNSENT_BYTES_MAX: u64 = 256 * 1024;

/// The window that both ends start with: four times the first flight of RFC 6928.
const FIRST_WINDOW_BYTES: u64 = 60_000;

/// Bytes of an IP packet that every path takes (RFC 8200 section 5: 1280); what is started with.
const PACKET_BYTES_BASE: u16 = 1280;

/// Losses of a round trip, in percent, that are no sign of congestion. Ours: where UDP is asked for, paths
/// lose some percent whatever is sent; a queue that overflows loses more.
const LOSS_PERCENT: u8 = 5;

/// How long data may go unacknowledged before the peer counts as gone.
pub const USER_TIMEOUT: Duration = Duration::from_secs(100);

/// After how long a silence a peer is asked. Address translators forget UDP after 30 s (RFC 4787 REQ-5 allows
/// two minutes, and most keep less).
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// How a path carries packets, as far as this end knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimits {
    /// The longest packet that the first link takes, IP header included.
    pub packet_bytes_max: u16,
    /// The header of IP and UDP.
    pub header_bytes: u16,
}

impl PathLimits {
    /// For datagrams to `peer` over a first link of `mtu` bytes.
    #[must_use]
    pub fn new(peer: IpAddr, mtu: usize) -> Self {
        let header_bytes = if is_v4(peer) { 20 + 8 } else { 40 + 8 };
        let longest = LEN_MAX + usize::from(header_bytes);
        let packet_bytes_max = u16::try_from(mtu.min(longest)).unwrap_or(u16::MAX);
        Self {
            packet_bytes_max,
            header_bytes,
        }
    }

    /// The MSS, as the option counts it, of a segment in a packet of so many bytes.
    fn mss_of(self, packet_bytes: u16) -> u16 {
        let around = usize::from(self.header_bytes) + OVERHEAD_BYTES + SEGMENT_HEADER_BYTES;
        let around = u16::try_from(around).expect("a hundred bytes");
        packet_bytes.saturating_sub(around)
    }

    /// The longest datagram that is ever tried.
    #[must_use]
    pub fn datagram_bytes_max(self) -> usize {
        usize::from(self.packet_bytes_max.saturating_sub(self.header_bytes)).min(LEN_MAX)
    }
}

/// An IPv4 address, be it written as IPv6's.
fn is_v4(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
    }
}

/// The engine's configuration for a path. `seed` decides when BBR probes; it is not secret.
#[must_use]
pub fn config(path: PathLimits, now_millis: u64, seed: u64) -> Config {
    let mss = path.mss_of(path.packet_bytes_max.min(PACKET_BYTES_BASE));
    #[expect(clippy::cast_possible_truncation, reason = "a clock modulo 2^32")]
    let started = now_millis as u32;
    Config {
        // What carries the segment protects it.
        pseudo: Pseudo::Unchecked,
        mss,
        mss_base: mss,
        mss_max: path.mss_of(path.packet_bytes_max),
        receive_buffer: FIRST_WINDOW_BYTES,
        receive_buffer_max: RECEIVE_BYTES_MAX,
        send_buffer_max: SEND_BYTES_MAX,
        congestion: Congestion {
            algorithm: Algorithm::Bbr,
            loss_percent: LOSS_PERCENT,
            seed,
        },
        keepalive: Some(Keepalive {
            idle: KEEPALIVE_IDLE,
            interval: Duration::from_secs(5),
            count_max: 6,
        }),
        user_timeout: Some(USER_TIMEOUT),
        // What comes late is known by its number: nothing has to be kept for it.
        time_wait: Duration::ZERO,
        // Both ends' timestamps begin at 1, whatever their clocks say.
        timestamp_offset: 1u32.wrapping_sub(started),
        ..Config::default()
    }
}

/// What both ends would have told each other in a handshake.
#[must_use]
pub fn arrangement(keys: &Keys, rtt: Option<Duration>) -> Accepted {
    Accepted {
        local_initial: keys.local_initial,
        remote_initial: keys.remote_initial,
        agreed: Agreed {
            mss: u16::MAX,
            is_scaled: true,
            send_scale: WINDOW_SCALE,
            receive_scale: WINDOW_SCALE,
            is_sack: true,
            is_timestamps: true,
            is_ecn: false,
        },
        // None has come yet: it is not echoed.
        timestamp: 0,
        told_window: FIRST_WINDOW_BYTES,
        rtt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_fill_the_packets_that_the_link_takes() {
        let v4 = PathLimits::new([192, 0, 2, 1].into(), 1500);
        let config = config(v4, 77, 0);
        assert_eq!(config.mss_max, 1500 - 28 - 32 - 20);
        assert_eq!(config.mss, 1280 - 28 - 32 - 20);
        assert_eq!(v4.datagram_bytes_max(), 1472);
        let mapped = PathLimits::new("::ffff:192.0.2.1".parse().expect("an address"), 1500);
        assert_eq!(mapped, v4);
        let v6 = PathLimits::new("2001:db8::1".parse().expect("an address"), 1500);
        assert_eq!(v6.datagram_bytes_max(), 1452);
        let loopback = PathLimits::new([127, 0, 0, 1].into(), 65536);
        assert_eq!(loopback.datagram_bytes_max(), LEN_MAX);
    }

    #[test]
    fn the_scale_is_the_one_that_both_ends_take_for_agreed() {
        let path = PathLimits::new([127, 0, 0, 1].into(), 1500);
        assert_eq!(config(path, 0, 0).window_scale(), WINDOW_SCALE);
    }
}
