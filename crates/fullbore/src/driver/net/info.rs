//! What our TCP knows of a connection, as the kernel would tell it of its own.

use fullbore_tcp::connection::Info;

use crate::driver::tcp_info::TcpInfo;

pub fn of(info: &Info) -> TcpInfo {
    let mss = u64::from(info.snd_mss.max(1));
    let segments = |bytes: u64| low(bytes.div_ceil(mss));
    TcpInfo {
        rtt: info.rtt,
        rttvar: info.rttvar,
        min_rtt: info.min_rtt,
        rcv_rtt: info.rcv_rtt.unwrap_or_default(),
        snd_cwnd: segments(info.snd_cwnd),
        snd_ssthresh: segments(info.snd_ssthresh).min(SSTHRESH_NONE),
        snd_mss: info.snd_mss,
        unacked: u32::try_from(info.outstanding_count).unwrap_or(u32::MAX),
        lost: segments(info.lost_bytes),
        total_retrans: low(info.recovery.retransmissions),
        rcv_space: low(info.rcv_space),
        pacing_rate: info.pacing_rate.map(|rate| rate.bytes_per_sec()),
        bytes_acked: Some(info.stats.bytes_acked),
        bytes_received: Some(info.stats.bytes_received),
        notsent_bytes: Some(low(info.notsent_bytes)),
        delivery_rate: None,
        is_delivery_app_limited: None,
        busy: Some(info.stats.busy),
        rwnd_limited: Some(info.stats.window_limited),
        sndbuf_limited: None,
        bytes_sent: Some(info.stats.bytes_sent + info.recovery.bytes_retransmitted),
        bytes_retrans: Some(info.recovery.bytes_retransmitted),
        rcv_ooopack: None,
        snd_wnd: Some(low(info.snd_wnd)),
        rcv_wnd: Some(low(info.rcv_wnd)),
    }
}

/// What the kernel says while nothing was lost.
const SSTHRESH_NONE: u32 = 0x7fff_ffff;

fn low(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
