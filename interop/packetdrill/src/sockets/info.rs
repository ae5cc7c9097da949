//! `TCP_INFO`, as Linux lays it out.
//!
//! The bytes are made one field after another: the structure has no padding apart from that of its
//! eighth byte's bit fields. What the engine has no figure for is zero.

use core::time::Duration;

use fullbore_base::Rate;
use fullbore_tcp::connection::State;
use fullbore_tcp::recovery::Phase;

use crate::host::Flow;

/// Linux's numbers of states that a connection of the engine is never in.
pub const TCP_CLOSE: u8 = 7;
/// A port.
pub const TCP_LISTEN: u8 = 10;

/// "No limit yet", as Linux writes it.
const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;
/// The reordering that Linux assumes, in segments; RACK does not count it.
const REORDERING: u32 = 3;

const TCPI_OPT_TIMESTAMPS: u8 = 1;
const TCPI_OPT_SACK: u8 = 2;
const TCPI_OPT_WSCALE: u8 = 4;
const TCPI_OPT_ECN: u8 = 8;

const fn number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => TCP_CLOSE,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// Fields, one after another.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u8s(&mut self, values: &[u8]) {
        self.0.extend_from_slice(values);
    }

    fn u32s(&mut self, values: &[u32]) {
        self.0.extend(values.iter().flat_map(|v| v.to_ne_bytes()));
    }

    fn u64s(&mut self, values: &[u64]) {
        self.0.extend(values.iter().flat_map(|v| v.to_ne_bytes()));
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

fn short(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn byte(value: u64) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

/// Of something that is no connection: the state, and zeroes for the rest of what Linux fills in
/// then.
pub fn of_state(state: u8) -> Vec<u8> {
    let mut bytes = vec![0; 104];
    bytes[0] = state;
    bytes
}

/// Of a connection. O(1).
pub fn of_connection(flow: &Flow) -> Vec<u8> {
    let connection = &flow.connection;
    let (info, agreed) = (connection.info(), connection.agreed());
    let (stats, recovery) = (&info.stats, &info.recovery);
    let in_segments = |bytes: u64| short(bytes / u64::from(info.snd_mss.max(1)));
    let ca_state = match info.phase {
        Phase::Timeout { .. } => 4,
        Phase::Fast { .. } => 3,
        Phase::Open => u8::from(info.sacked_count > 0),
    };
    let flag = |is_on: bool, bit: u8| if is_on { bit } else { 0 };
    let options = flag(agreed.is_timestamps, TCPI_OPT_TIMESTAMPS)
        | flag(agreed.is_sack, TCPI_OPT_SACK)
        | flag(agreed.is_scaled, TCPI_OPT_WSCALE)
        | flag(agreed.is_ecn, TCPI_OPT_ECN);
    let ssthresh = if info.snd_ssthresh == u64::MAX {
        SSTHRESH_INFINITE
    } else {
        in_segments(info.snd_ssthresh)
    };
    let mut fields = Fields::default();
    fields.u8s(&[number(info.state), ca_state, byte(info.backoff.into())]);
    fields.u8s(&[0, byte(info.backoff.into()), options]);
    fields.u8s(&[agreed.send_scale | agreed.receive_scale << 4]);
    fields.u8s(&[u8::from(info.is_app_limited)]);
    let config = connection.config();
    // rto, ato, snd_mss, rcv_mss; unacked, sacked, lost, retrans, fackets; four ages.
    fields.u32s(&[micros(info.rto), micros(config.delayed_ack), info.snd_mss]);
    fields.u32s(&[u32::from(config.mss)]);
    let outstanding = u32::try_from(info.outstanding_count).unwrap_or(u32::MAX);
    fields.u32s(&[outstanding, info.sacked_count, info.lost_count]);
    fields.u32s(&[info.retransmitted_count, 0, 0, 0, 0, 0]);
    // pmtu, rcv_ssthresh, rtt, rttvar, snd_ssthresh, snd_cwnd, advmss, reordering.
    fields.u32s(&[u32::from(config.mss) + 40, short(info.rcv_space)]);
    fields.u32s(&[micros(info.rtt), micros(info.rttvar), ssthresh]);
    fields.u32s(&[
        in_segments(info.snd_cwnd),
        u32::from(config.mss),
        REORDERING,
    ]);
    let rcv_rtt = info.rcv_rtt.map_or(0, micros);
    fields.u32s(&[
        rcv_rtt,
        short(info.rcv_space),
        short(recovery.retransmissions),
    ]);
    // pacing_rate, max_pacing_rate, bytes_acked, bytes_received.
    let pacing = info.pacing_rate.map_or(u64::MAX, Rate::bytes_per_sec);
    fields.u64s(&[pacing, u64::MAX, stats.bytes_acked, stats.bytes_received]);
    // segs_out, segs_in, notsent_bytes, min_rtt, data_segs_in, data_segs_out.
    fields.u32s(&[short(stats.segments_sent), short(stats.segments_received)]);
    let min_rtt = info.min_rtt.map_or(u32::MAX, micros);
    fields.u32s(&[short(info.notsent_bytes), min_rtt, 0, 0]);
    // delivery_rate, busy_time, rwnd_limited, sndbuf_limited; delivered, delivered_ce.
    fields.u64s(&[0, 0, 0, 0]);
    fields.u32s(&[in_segments(stats.bytes_acked), 0]);
    // bytes_sent, bytes_retrans; dsack_dups, reord_seen, rcv_ooopack, snd_wnd, rcv_wnd.
    fields.u64s(&[stats.bytes_sent, recovery.bytes_retransmitted]);
    fields.u32s(&[
        short(recovery.dsack_blocks),
        u32::from(info.is_reordering_seen),
    ]);
    fields.u32s(&[0, short(info.snd_wnd), short(info.rcv_wnd), 0]);
    fields.0
}
