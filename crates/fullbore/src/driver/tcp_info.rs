//! What the kernel knows about a TCP connection (tcp(7), `TCP_INFO`; Linux, `struct tcp_info` in
//! `linux/tcp.h`).
//!
//! The structure only ever grows at its end, and the kernel says how much of it it filled in: fields
//! that an older kernel lacks are `None`. Offsets are written down here, since the C library's
//! declaration may be older than the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// One reading. The times and counts whose names do not say otherwise are totals since the
/// connection was made; the kernel's fields are called the same with `tcpi_` in front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, as the sending side measures it; zero before the first sample.
    pub rtt: Duration,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// Smallest round-trip time seen lately (Linux 4.6); none before the first sample.
    pub min_rtt: Option<Duration>,
    /// Round-trip time as the receiving side estimates it; zero before it did.
    pub rcv_rtt: Duration,
    /// Congestion window, in segments.
    pub snd_cwnd: u32,
    /// Segments after which slow start ends; `0x7fff_ffff` while nothing was lost.
    pub snd_ssthresh: u32,
    /// Largest segment that is sent, in bytes.
    pub snd_mss: u32,
    /// Segments in flight.
    pub unacked: u32,
    /// Segments in flight that count as lost.
    pub lost: u32,
    /// Segments sent again.
    pub total_retrans: u32,
    /// Bytes that the receive buffer's autotuning saw taken per round trip.
    pub rcv_space: u32,
    /// Rate at which the kernel paces segments out, bytes per second (3.15).
    pub pacing_rate: Option<u64>,
    /// Bytes that the peer acknowledged (4.1).
    pub bytes_acked: Option<u64>,
    /// Bytes received in order (4.1).
    pub bytes_received: Option<u64>,
    /// Bytes written that have not been sent for the first time (4.6).
    pub notsent_bytes: Option<u32>,
    /// Rate of the last delivery sample, bytes per second (4.9).
    pub delivery_rate: Option<u64>,
    /// Whether the application, not the path, limited that sample (4.9).
    pub is_delivery_app_limited: Option<bool>,
    /// Time with data to send or unacknowledged (4.10).
    pub busy: Option<Duration>,
    /// Of it, held up by the peer's receive window (4.10).
    pub rwnd_limited: Option<Duration>,
    /// Of it, held up because the send buffer was too small (4.10).
    pub sndbuf_limited: Option<Duration>,
    /// Bytes sent, retransmissions included (4.19).
    pub bytes_sent: Option<u64>,
    /// Bytes sent again (4.19).
    pub bytes_retrans: Option<u64>,
    /// Segments that came out of order (5.16).
    pub rcv_ooopack: Option<u32>,
    /// The peer's receive window now, in bytes (6.2; some 5.x).
    pub snd_wnd: Option<u32>,
    /// Our receive window now, in bytes (6.2).
    pub rcv_wnd: Option<u32>,
}

/// Longer than any kernel's structure so far (248 bytes in 6.18); what is past it is not read.
const STRUCT_BYTES: usize = 512;

/// Where a field of some size stands in the structure.
mod at {
    pub(super) const FLAGS: usize = 7;
    pub(super) const SND_MSS: usize = 16;
    pub(super) const UNACKED: usize = 24;
    pub(super) const LOST: usize = 32;
    pub(super) const RTT: usize = 68;
    pub(super) const RTTVAR: usize = 72;
    pub(super) const SND_SSTHRESH: usize = 76;
    pub(super) const SND_CWND: usize = 80;
    pub(super) const RCV_RTT: usize = 92;
    pub(super) const RCV_SPACE: usize = 96;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const PACING_RATE: usize = 104;
    pub(super) const BYTES_ACKED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const NOTSENT_BYTES: usize = 144;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const DELIVERY_RATE: usize = 160;
    pub(super) const BUSY_TIME: usize = 168;
    pub(super) const RWND_LIMITED: usize = 176;
    pub(super) const SNDBUF_LIMITED: usize = 184;
    pub(super) const BYTES_SENT: usize = 200;
    pub(super) const BYTES_RETRANS: usize = 208;
    pub(super) const RCV_OOOPACK: usize = 224;
    pub(super) const SND_WND: usize = 228;
    pub(super) const RCV_WND: usize = 232;
}

/// Reads the state of the connection behind `fd`. One system call; the kernel locks the socket for a
/// moment.
///
/// # Errors
/// When `fd` is no TCP socket, or the system does not tell.
#[allow(unsafe_code)]
pub fn read(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut bytes = [0u8; STRUCT_BYTES];
    let mut len = STRUCT_BYTES as libc::socklen_t;
    // SAFETY: `bytes` and `len` live through the call, and `len` says how many bytes `bytes` has;
    // the kernel writes no more of them than that. Any bytes are valid in an array of `u8`. The
    // standard library and rustix do not read `TCP_INFO`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let filled = usize::try_from(len).unwrap_or(0).min(STRUCT_BYTES);
    parse(&bytes[..filled]).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Takes the fields out of what the kernel filled in; `None` when even those that were always there
/// are missing.
fn parse(bytes: &[u8]) -> Option<TcpInfo> {
    let word = |at: usize| {
        let field = bytes.get(at..at + 4)?;
        Some(u32::from_ne_bytes(field.try_into().ok()?))
    };
    let long = |at: usize| {
        let field = bytes.get(at..at + 8)?;
        Some(u64::from_ne_bytes(field.try_into().ok()?))
    };
    let micros = |at: usize| word(at).map(|n| Duration::from_micros(n.into()));
    let long_micros = |at: usize| long(at).map(Duration::from_micros);
    let delivery_rate = long(at::DELIVERY_RATE);
    Some(TcpInfo {
        rtt: micros(at::RTT)?,
        rttvar: micros(at::RTTVAR)?,
        // The kernel says all ones before the first sample.
        min_rtt: micros(at::MIN_RTT).filter(|rtt| rtt.as_micros() < u128::from(u32::MAX)),
        rcv_rtt: micros(at::RCV_RTT)?,
        snd_cwnd: word(at::SND_CWND)?,
        snd_ssthresh: word(at::SND_SSTHRESH)?,
        snd_mss: word(at::SND_MSS)?,
        unacked: word(at::UNACKED)?,
        lost: word(at::LOST)?,
        total_retrans: word(at::TOTAL_RETRANS)?,
        rcv_space: word(at::RCV_SPACE)?,
        pacing_rate: long(at::PACING_RATE),
        bytes_acked: long(at::BYTES_ACKED),
        bytes_received: long(at::BYTES_RECEIVED),
        notsent_bytes: word(at::NOTSENT_BYTES),
        delivery_rate,
        // The bit stands in a byte that was padding before the rate came.
        is_delivery_app_limited: delivery_rate.map(|_| bytes[at::FLAGS] & APP_LIMITED != 0),
        busy: long_micros(at::BUSY_TIME),
        rwnd_limited: long_micros(at::RWND_LIMITED),
        sndbuf_limited: long_micros(at::SNDBUF_LIMITED),
        bytes_sent: long(at::BYTES_SENT),
        bytes_retrans: long(at::BYTES_RETRANS),
        rcv_ooopack: word(at::RCV_OOOPACK),
        snd_wnd: word(at::SND_WND),
        rcv_wnd: word(at::RCV_WND),
    })
}

/// `tcpi_delivery_rate_app_limited`, the first bit field of its byte: the lowest bit where the
/// lowest byte comes first.
const APP_LIMITED: u8 = if cfg!(target_endian = "little") {
    0x01
} else {
    0x80
};

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("bound");
        let near = TcpStream::connect(address).expect("connects");
        let (far, _) = listener.accept().expect("accepted");
        (near, far)
    }

    #[test]
    fn bytes_are_counted_at_both_ends_of_a_real_connection() {
        let (mut near, mut far) = pair();
        near.write_all(&[7; 300_000]).expect("written");
        let mut taken = vec![0; 300_000];
        far.read_exact(&mut taken).expect("read");
        // An answer carries the acknowledgement of all that came before it.
        far.write_all(b"!").expect("written");
        near.read_exact(&mut taken[..1]).expect("read");

        let sent = read(near.as_fd()).expect("told");
        let received = read(far.as_fd()).expect("told");
        // The SYN counts as an acknowledged byte in some kernels.
        let acked = sent.bytes_acked.expect("Linux 4.1");
        assert!((300_000..=300_001).contains(&acked), "{acked}");
        assert_eq!(received.bytes_received, Some(300_000));
        assert!(sent.rtt > Duration::ZERO && sent.rtt < Duration::from_secs(5));
        let min = sent.min_rtt.expect("sampled");
        assert!(min <= sent.rtt + sent.rttvar * 4, "{sent:?}");
        assert!(sent.snd_cwnd >= 1 && sent.snd_mss >= 536, "{sent:?}");
        assert_eq!((sent.unacked, sent.lost), (0, 0));
        // Counted in ticks of the kernel: may be none yet.
        assert!(sent.busy.is_some());
        assert!(received.rcv_space > 0);
    }

    #[test]
    fn a_peer_that_does_not_read_limits_by_its_window() {
        let (near, _far) = pair();
        near.set_nonblocking(true).expect("set");
        let block = vec![0; 1 << 20];
        let written: usize = std::iter::from_fn(|| (&near).write(&block).ok()).sum();
        assert!(written > 0);
        let info = read(near.as_fd()).expect("told");
        assert!(info.notsent_bytes.expect("Linux 4.6") > 0, "{info:?}");
        let acked = info.bytes_acked.expect("Linux 4.1");
        assert!(acked < written as u64, "{info:?}");
    }

    #[test]
    fn what_an_older_kernel_lacks_is_none_and_what_it_has_is_read() {
        let mut bytes = [0u8; 248];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(at::RTT, &199_000u32.to_ne_bytes());
        put(at::MIN_RTT, &198_500u32.to_ne_bytes());
        put(at::BYTES_ACKED, &7u64.to_ne_bytes());
        put(at::DELIVERY_RATE, &40_000_000u64.to_ne_bytes());
        put(at::BUSY_TIME, &1_500_000u64.to_ne_bytes());
        put(at::SND_WND, &65_535u32.to_ne_bytes());
        put(at::FLAGS, &[APP_LIMITED]);

        let whole = parse(&bytes).expect("whole");
        assert_eq!(whole.rtt, Duration::from_millis(199));
        assert_eq!(whole.min_rtt, Some(Duration::from_micros(198_500)));
        assert_eq!(whole.delivery_rate, Some(40_000_000));
        assert_eq!(whole.is_delivery_app_limited, Some(true));
        assert_eq!(whole.busy, Some(Duration::from_millis(1500)));
        assert_eq!(whole.snd_wnd, Some(65_535));

        // Linux 4.1's ended behind `tcpi_segs_in`, 3.14's behind `tcpi_total_retrans`.
        let of_4_1 = parse(&bytes[..144]).expect("enough");
        assert_eq!((of_4_1.bytes_acked, of_4_1.min_rtt), (Some(7), None));
        assert_eq!(of_4_1.is_delivery_app_limited, None);
        let of_3_14 = parse(&bytes[..104]).expect("enough");
        assert_eq!((of_3_14.bytes_acked, of_3_14.pacing_rate), (None, None));
        assert_eq!(parse(&bytes[..103]), None);
    }

    #[test]
    fn before_the_first_sample_there_is_no_smallest_round_trip() {
        let mut bytes = [0u8; 248];
        bytes[at::MIN_RTT..at::MIN_RTT + 4].fill(0xff);
        assert_eq!(parse(&bytes).expect("whole").min_rtt, None);
    }

    #[test]
    fn something_that_is_no_tcp_socket_is_an_error() {
        let null = std::fs::File::open("/dev/null").expect("there");
        assert!(read(null.as_fd()).is_err());
    }
}
