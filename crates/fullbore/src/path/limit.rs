//! What a transfer can be limited by, each with the figures that say so.

use std::fmt;
use std::time::Duration;

use super::units::{binary_bytes, decimal_bytes, millis};

/// Which end of the connection something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// This machine.
    Local,
    /// The server.
    Remote,
}

/// How fast bytes move, and how far they have to go: part of most evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Bytes per second, of the direction that moves more.
    pub rate: u64,
    /// Round-trip time of the path.
    pub rtt: Option<Duration>,
    /// Whether what moves is sent from here.
    pub is_sending: bool,
}

/// What limits, with the evidence. Shares are in thousandths of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The peer grants so much credit on its channels, and it is back one round trip later.
    PeerWindow {
        /// Bytes of all lanes together.
        window: u64,
        /// How many lanes share it.
        lanes: usize,
        /// The flow.
        flow: Flow,
    },
    /// What we let the peer send is used up once per round trip.
    CreditBudget {
        /// Bytes of all lanes together.
        window: u64,
        /// Whether it cannot grow, because the process's budget is spent.
        is_budget_spent: bool,
        /// The flow.
        flow: Flow,
    },
    /// So many requests may be outstanding, and their replies are back one round trip later.
    RequestsOutstanding {
        /// Bytes of READs and WRITEs outstanding; 0 for requests without content.
        bytes: u64,
        /// Requests outstanding.
        count: usize,
        /// The flow.
        flow: Flow,
    },
    /// The receiver's TCP window is full.
    TcpReceiveWindow {
        /// Whose window.
        end: End,
        /// Its size in bytes, where it is known.
        window: Option<u64>,
        /// The flow.
        flow: Flow,
    },
    /// TCP sends no faster: its congestion window follows what the path takes.
    TcpCongestion {
        /// Who sends.
        end: End,
        /// The congestion window in bytes; known only here.
        cwnd: Option<u64>,
        /// Bytes sent again, of a million sent; for the other end's sending, segments out of
        /// order of a million received.
        lost_ppm: u32,
        /// Bytes per second that TCP delivered at its last measurement.
        delivery_rate: Option<u64>,
        /// The path's round-trip time without queues.
        min_rtt: Option<Duration>,
        /// The flow.
        flow: Flow,
    },
    /// All that the socket's send buffer holds is in flight.
    SendBuffer {
        /// Its size.
        bytes: Option<u64>,
        /// The flow.
        flow: Flow,
    },
    /// The thread that moves the bytes has no processor time left.
    Cpu {
        /// Share in which it ran.
        running: u16,
        /// Share in which it was ready and other programs ran.
        waiting: u16,
    },
    /// Reading files on this machine.
    DiskRead {
        /// Share spent in reads.
        share: u16,
    },
    /// Writing files on this machine.
    DiskWrite {
        /// Share spent in writes.
        share: u16,
    },
    /// The far end takes its time: its program, its processor or its disk.
    RemoteProcessing {
        /// How long it takes to answer what is outstanding; none if it answered nothing.
        reply_time: Option<Duration>,
        /// Bytes it has to work on.
        outstanding: u64,
        /// How long it takes to answer a ping: what stands in front of the answer is in its socket.
        pong: Option<Duration>,
        /// The flow.
        flow: Flow,
    },
    /// The far end has stopped talking.
    RemoteSilent {
        /// For how long.
        since: Duration,
        /// Requests that it has not answered.
        count: usize,
    },
    /// The limit that the user set.
    RateLimit {
        /// Bytes per second.
        rate: u64,
    },
    /// Nothing is to be moved.
    Nothing,
}

/// A limit without its evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKind {
    /// [`Limit::PeerWindow`].
    PeerWindow,
    /// [`Limit::CreditBudget`].
    CreditBudget,
    /// [`Limit::RequestsOutstanding`].
    RequestsOutstanding,
    /// [`Limit::TcpReceiveWindow`].
    TcpReceiveWindow,
    /// [`Limit::TcpCongestion`].
    TcpCongestion,
    /// [`Limit::SendBuffer`].
    SendBuffer,
    /// [`Limit::Cpu`].
    Cpu,
    /// [`Limit::DiskRead`].
    DiskRead,
    /// [`Limit::DiskWrite`].
    DiskWrite,
    /// [`Limit::RemoteProcessing`].
    RemoteProcessing,
    /// [`Limit::RemoteSilent`].
    RemoteSilent,
    /// [`Limit::RateLimit`].
    RateLimit,
    /// [`Limit::Nothing`].
    Nothing,
}

impl LimitKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::PeerWindow,
        Self::CreditBudget,
        Self::RequestsOutstanding,
        Self::TcpReceiveWindow,
        Self::TcpCongestion,
        Self::SendBuffer,
        Self::Cpu,
        Self::DiskRead,
        Self::DiskWrite,
        Self::RemoteProcessing,
        Self::RemoteSilent,
        Self::RateLimit,
        Self::Nothing,
    ];

    /// Its name for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PeerWindow => "peer_window",
            Self::CreditBudget => "credit_budget",
            Self::RequestsOutstanding => "requests_outstanding",
            Self::TcpReceiveWindow => "tcp_receive_window",
            Self::TcpCongestion => "tcp_congestion",
            Self::SendBuffer => "send_buffer",
            Self::Cpu => "cpu",
            Self::DiskRead => "disk_read",
            Self::DiskWrite => "disk_write",
            Self::RemoteProcessing => "remote_processing",
            Self::RemoteSilent => "remote_silent",
            Self::RateLimit => "rate_limit",
            Self::Nothing => "nothing",
        }
    }
}

/// One figure of a limit's evidence, for programs. Keys carry the unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Evidence {
    /// A count, bytes, or bytes per second.
    Count(u64),
    /// Milliseconds or a share.
    Number(f64),
    /// A word.
    Word(&'static str),
    /// Yes or no.
    Flag(bool),
}

type List = Vec<(&'static str, Evidence)>;

impl Limit {
    /// Which one it is.
    #[must_use]
    pub const fn kind(&self) -> LimitKind {
        match self {
            Self::PeerWindow { .. } => LimitKind::PeerWindow,
            Self::CreditBudget { .. } => LimitKind::CreditBudget,
            Self::RequestsOutstanding { .. } => LimitKind::RequestsOutstanding,
            Self::TcpReceiveWindow { .. } => LimitKind::TcpReceiveWindow,
            Self::TcpCongestion { .. } => LimitKind::TcpCongestion,
            Self::SendBuffer { .. } => LimitKind::SendBuffer,
            Self::Cpu { .. } => LimitKind::Cpu,
            Self::DiskRead { .. } => LimitKind::DiskRead,
            Self::DiskWrite { .. } => LimitKind::DiskWrite,
            Self::RemoteProcessing { .. } => LimitKind::RemoteProcessing,
            Self::RemoteSilent { .. } => LimitKind::RemoteSilent,
            Self::RateLimit { .. } => LimitKind::RateLimit,
            Self::Nothing => LimitKind::Nothing,
        }
    }

    /// Bytes a second that moved under it, where that is part of the evidence.
    pub(super) const fn rate(&self) -> Option<u64> {
        match self {
            Self::PeerWindow { flow, .. }
            | Self::CreditBudget { flow, .. }
            | Self::RequestsOutstanding { flow, .. }
            | Self::TcpReceiveWindow { flow, .. }
            | Self::TcpCongestion { flow, .. }
            | Self::SendBuffer { flow, .. }
            | Self::RemoteProcessing { flow, .. } => Some(flow.rate),
            Self::Cpu { .. }
            | Self::DiskRead { .. }
            | Self::DiskWrite { .. }
            | Self::RemoteSilent { .. }
            | Self::RateLimit { .. }
            | Self::Nothing => None,
        }
    }

    /// The figures, for programs.
    #[must_use]
    pub fn evidence(&self) -> List {
        match *self {
            Self::PeerWindow {
                window,
                lanes,
                flow,
            } => with_flow(
                flow,
                vec![bytes("window_bytes", window), count("lanes", lanes)],
            ),
            Self::CreditBudget {
                window,
                is_budget_spent,
                flow,
            } => with_flow(
                flow,
                vec![
                    bytes("window_bytes", window),
                    ("is_budget_spent", Evidence::Flag(is_budget_spent)),
                ],
            ),
            Self::RequestsOutstanding {
                bytes: outstanding,
                count: requests,
                flow,
            } => with_flow(
                flow,
                vec![
                    bytes("outstanding_bytes", outstanding),
                    count("requests", requests),
                ],
            ),
            Self::TcpReceiveWindow { end, window, flow } => {
                let mut list = vec![end_of(end)];
                list.extend(window.map(|window| bytes("window_bytes", window)));
                with_flow(flow, list)
            }
            Self::TcpCongestion { .. } => self.congestion_evidence(),
            Self::SendBuffer { bytes: size, flow } => {
                let size = size.map(|size| bytes("send_buffer_bytes", size));
                with_flow(flow, size.into_iter().collect())
            }
            Self::Cpu { running, waiting } => {
                vec![THREAD, share("running", running), share("waiting", waiting)]
            }
            Self::DiskRead { share: of } | Self::DiskWrite { share: of } => {
                vec![share("disk", of)]
            }
            Self::RemoteProcessing {
                reply_time,
                outstanding,
                pong,
                flow,
            } => {
                let mut list = vec![bytes("outstanding_bytes", outstanding)];
                list.extend(reply_time.map(|time| time_ms("reply_ms", time)));
                list.extend(pong.map(|time| time_ms("pong_ms", time)));
                with_flow(flow, list)
            }
            Self::RemoteSilent {
                since,
                count: requests,
            } => vec![time_ms("silent_ms", since), count("requests", requests)],
            Self::RateLimit { rate } => vec![bytes("limit_bytes_per_second", rate)],
            Self::Nothing => Vec::new(),
        }
    }

    fn congestion_evidence(&self) -> List {
        let Self::TcpCongestion {
            end,
            cwnd,
            lost_ppm,
            delivery_rate,
            min_rtt,
            flow,
        } = *self
        else {
            return Vec::new();
        };
        let lost = f64::from(lost_ppm) / 1e6;
        let key = match end {
            End::Local => "lost",
            End::Remote => "out_of_order",
        };
        let mut list = vec![end_of(end), (key, Evidence::Number(lost))];
        list.extend(cwnd.map(|cwnd| bytes("cwnd_bytes", cwnd)));
        list.extend(delivery_rate.map(|rate| bytes("delivery_bytes_per_second", rate)));
        list.extend(min_rtt.map(|rtt| time_ms("min_rtt_ms", rtt)));
        with_flow(flow, list)
    }
}

/// The thread that moves the bytes, encrypts and decrypts them, and calls the disk.
const THREAD: (&str, Evidence) = ("thread", Evidence::Word("connection"));

const fn bytes(key: &'static str, value: u64) -> (&'static str, Evidence) {
    (key, Evidence::Count(value))
}

const fn count(key: &'static str, value: usize) -> (&'static str, Evidence) {
    (key, Evidence::Count(value as u64))
}

fn share(key: &'static str, thousandths: u16) -> (&'static str, Evidence) {
    (key, Evidence::Number(f64::from(thousandths) / 1e3))
}

fn time_ms(key: &'static str, time: Duration) -> (&'static str, Evidence) {
    (key, Evidence::Number(time.as_secs_f64() * 1e3))
}

const fn end_of(end: End) -> (&'static str, Evidence) {
    let word = match end {
        End::Local => "local",
        End::Remote => "remote",
    };
    ("end", Evidence::Word(word))
}

fn with_flow(flow: Flow, mut list: List) -> List {
    list.push(bytes("bytes_per_second", flow.rate));
    list.extend(flow.rtt.map(|rtt| time_ms("rtt_ms", rtt)));
    list
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", decimal_bytes(self.rate))?;
        match self.rtt {
            Some(rtt) => write!(f, " at {}", millis(rtt)),
            None => Ok(()),
        }
    }
}

fn percent(thousandths: u16) -> u16 {
    (thousandths + 5) / 10
}

/// What follows "limited by ".
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PeerWindow {
                window,
                lanes,
                flow,
            } => write_peer_window(f, window, lanes, flow),
            Self::CreditBudget {
                window,
                is_budget_spent,
                flow,
            } => write_credit(f, window, is_budget_spent, flow),
            Self::RequestsOutstanding {
                bytes: 0,
                count,
                flow,
            } => write!(f, "round trips, {count} requests at a time: {flow}"),
            Self::RequestsOutstanding { bytes, flow, .. } => {
                write!(f, "{} of requests in flight: {flow}", binary_bytes(bytes))
            }
            Self::TcpReceiveWindow { end, window, flow } => {
                let whose = match end {
                    End::Local => "our",
                    End::Remote => "the server's",
                };
                write!(f, "{whose} {}TCP receive window: {flow}", sized(window))
            }
            Self::TcpCongestion {
                end,
                lost_ppm,
                flow,
                ..
            } => write_congestion(f, end, lost_ppm, flow),
            Self::SendBuffer { bytes, flow } => {
                write!(f, "our {}TCP send buffer: {flow}", sized(bytes))
            }
            Self::Cpu { running, waiting } => write_cpu(f, running, waiting),
            Self::DiskRead { share } => {
                write!(
                    f,
                    "reading from this machine's disk: {}% of the time",
                    percent(share)
                )
            }
            Self::DiskWrite { share } => {
                write!(
                    f,
                    "writing to this machine's disk: {}% of the time",
                    percent(share)
                )
            }
            Self::RemoteProcessing {
                reply_time, flow, ..
            } => write_remote(f, reply_time, flow),
            Self::RemoteSilent { since, count } => {
                let since = millis(since);
                write!(
                    f,
                    "the server's silence: nothing for {since}, {count} requests wait"
                )
            }
            Self::RateLimit { rate } => write!(f, "the chosen limit of {}/s", decimal_bytes(rate)),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

/// A size with a space behind it, where it is known.
fn sized(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| format!("{} ", binary_bytes(bytes)))
}

fn write_peer_window(
    f: &mut fmt::Formatter<'_>,
    window: u64,
    lanes: usize,
    flow: Flow,
) -> fmt::Result {
    let window = binary_bytes(window);
    match lanes {
        0 | 1 => write!(f, "the server's {window} window: {flow}"),
        _ => write!(
            f,
            "the server's windows, {window} on {lanes} channels: {flow}"
        ),
    }
}

fn write_credit(
    f: &mut fmt::Formatter<'_>,
    window: u64,
    is_budget_spent: bool,
    flow: Flow,
) -> fmt::Result {
    let window = binary_bytes(window);
    match is_budget_spent {
        true => write!(
            f,
            "our {window} window (all that the memory budget leaves): {flow}"
        ),
        false => write!(f, "our {window} window: {flow}"),
    }
}

fn write_congestion(
    f: &mut fmt::Formatter<'_>,
    end: End,
    lost_ppm: u32,
    flow: Flow,
) -> fmt::Result {
    if lost_ppm == 0 {
        let what = match end {
            End::Local => "the path",
            End::Remote => "the path or the server's TCP",
        };
        return write!(f, "{what}: {flow}, nothing lost");
    }
    let percent = f64::from(lost_ppm) / 1e4;
    let what = match end {
        End::Local => "lost",
        End::Remote => "out of order",
    };
    write!(
        f,
        "the path and TCP's congestion control: {flow}, {percent:.2}% {what}"
    )
}

fn write_cpu(f: &mut fmt::Formatter<'_>, running: u16, waiting: u16) -> fmt::Result {
    let (running, waiting) = (percent(running), percent(waiting));
    if waiting > running {
        return write!(
            f,
            "other programs on this machine's processors: ours ran {running}% and waited {waiting}% of \
             the time"
        );
    }
    write!(
        f,
        "this machine's processor: one thread ran {running}% of the time"
    )
}

fn write_remote(
    f: &mut fmt::Formatter<'_>,
    reply_time: Option<Duration>,
    flow: Flow,
) -> fmt::Result {
    f.write_str(match flow.is_sending {
        true => "the server's program, processor or disk",
        // What its send buffer holds is in flight: nothing here tells that from a slow program.
        false => "the server's program, processor, disk or TCP send buffer",
    })?;
    match reply_time {
        Some(time) => write!(f, ": it answers after {}", millis(time)),
        None => Ok(()),
    }
}
