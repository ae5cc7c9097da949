//! The rules: two samples in, the share of the interval that each limit held out.

use std::time::Duration;

use super::limit::{End, Flow, Limit, LimitKind};
use super::sample::Sample;
use super::waits::{Wait, WaitTimes};
use crate::driver::tcp_info::TcpInfo;

/// Credit and replies that take up to so many round trips (in halves) to come back are the path's;
/// later, the far end held on to them. Chosen: what is acknowledged in batches takes up to a third
/// longer than the path.
const TURNAROUND_HALF_RTTS: u32 = 3;

/// Time that any program takes to answer, on top of that.
const TURNAROUND_SLACK: Duration = Duration::from_millis(1);

/// A window counts as used up when three quarters of it arrive per round trip: rates are averages
/// over bursts.
const USED_UP_NUMERATOR: u64 = 4;
const USED_UP_DENOMINATOR: u64 = 3;

/// The kernel counts what its own structures take into a send buffer: about every other byte is left
/// for data (socket(7), `SO_SNDBUF`).
const BUFFER_OVERHEAD: u64 = 2;

/// Share of an interval, its inverse, in which a budget that was spent counts as the reason for a window.
const BUDGET_SHARE: u32 = 10;

/// Bytes in front of an answer to a ping that tell of a full socket at the far end. Chosen: more than
/// two packets of 32 KiB, less than the 128 KiB that OpenSSH queues in front of a socket that takes no
/// more.
const STANDING_QUEUE_BYTES: u64 = 96 * 1024;

/// A rate that is so much higher than in the interval before (in quarters) is still on its way up: TCP
/// has not found out yet what the path takes.
const GROWTH_QUARTERS: u64 = 5;

/// Loss that tells of a path at its limit, in millionths. Chosen: ten times what clean links lose.
const LOST_PPM_MIN: u32 = 100;

/// Quarters of an interval in which something stood unacknowledged, from which on loss explains late
/// answers. Chosen: a far end that is slow by itself acknowledges at once, and TCP idles meanwhile.
const RECOVERING_QUARTERS: u32 = 3;

/// Part of an interval, its inverse, without credit that makes windows the reason for what TCP was given.
const FED_FRACTION: u32 = 8;

/// Rise of the round-trip time over its minimum that tells of a queue in the path, and the least
/// rise that counts as one.
const QUEUE_RTT_FRACTION: u32 = 4;
const QUEUE_RTT_MIN: Duration = Duration::from_millis(2);

/// Bytes unsent in the kernel from which on TCP, not what feeds it, is behind.
const UNSENT_BYTES: u32 = 64 * 1024;

/// Silence that is one, and how many round trips it lasts at least. Chosen: interactive programs are
/// said to hang after two seconds.
const SILENCE_MIN: Duration = Duration::from_secs(2);
const SILENCE_RTTS: u32 = 8;

/// Largest values seen before, against which a window that is closed now is judged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peaks {
    /// Of the peer's TCP receive window.
    pub(super) snd_wnd: u64,
    /// Of our TCP receive window.
    pub(super) rcv_wnd: u64,
}

/// How long each limit held, with the evidence of each. At most one entry of a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(Vec<(Limit, Duration)>);

impl Shares {
    pub(super) fn add(&mut self, limit: Limit, time: Duration) {
        if time.is_zero() {
            return;
        }
        match self.0.iter_mut().find(|(l, _)| l.kind() == limit.kind()) {
            Some((_, total)) => *total += time,
            None => self.0.push((limit, time)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Limit, Duration)> {
        self.0.iter()
    }

    pub(super) fn of(&self, kind: LimitKind) -> Option<&(Limit, Duration)> {
        self.0.iter().find(|(limit, _)| limit.kind() == kind)
    }

    /// The one that held longest; the order of [`LimitKind`] decides between equals.
    pub(super) fn first(&self) -> Limit {
        let longest = self
            .0
            .iter()
            .max_by_key(|(limit, time)| (*time, std::cmp::Reverse(limit.kind())));
        longest.map_or(Limit::Nothing, |(limit, _)| *limit)
    }
}

/// What happened between two samples. O(1).
pub(super) struct Between<'a> {
    before: &'a Sample,
    after: &'a Sample,
    peaks: Peaks,
    rate_before: u64,
    elapsed: Duration,
    pub(super) flow: Flow,
    waits: WaitTimes,
}

impl<'a> Between<'a> {
    /// `rate_before`: of the interval before.
    pub(super) fn new(
        before: &'a Sample,
        after: &'a Sample,
        peaks: Peaks,
        rate_before: u64,
    ) -> Self {
        let elapsed = after.at.saturating_duration_since(before.at);
        // A socket takes bytes in bursts; what was acknowledged meanwhile tells how fast they go.
        let acked = |sample: &Sample| sample.tcp.and_then(|tcp| tcp.bytes_acked).unwrap_or(0);
        let sent = after.sent.saturating_sub(before.sent);
        let sent = sent.max(acked(after).saturating_sub(acked(before)));
        let received = after.received.saturating_sub(before.received);
        let is_reading = before.lanes.is_reading || after.lanes.is_reading;
        Self {
            before,
            after,
            peaks,
            rate_before,
            elapsed,
            flow: Flow {
                rate: per_second(sent.max(received), elapsed),
                rtt: after.path_rtt(),
                is_sending: !is_reading || sent >= received,
            },
            waits: after.waits.since(&before.waits),
        }
    }

    /// The shares of the interval.
    pub(super) fn shares(&self) -> Shares {
        let mut shares = Shares::default();
        let left = self.add_work(&mut shares);
        let asleep = self.waits.total();
        // Ready to run but without a processor, the thread looks asleep: that time is not the wait's.
        let scaled = |wait: Wait| match asleep.is_zero() {
            true => Duration::ZERO,
            false => self
                .waits
                .of(wait)
                .mul_f64(left.min(asleep).div_duration_f64(asleep)),
        };
        let rate = self.after.rate_limit.unwrap_or(0);
        shares.add(Limit::RateLimit { rate }, scaled(Wait::RateLimit));
        let replies = scaled(Wait::Requests) + scaled(Wait::Replies);
        if let Some(silent) = self.silence() {
            let waits = scaled(Wait::Socket) + scaled(Wait::PeerWindow);
            shares.add(silent, waits + replies);
        } else {
            self.add_socket(&mut shares, scaled(Wait::Socket));
            shares.add(self.window_limit(), scaled(Wait::PeerWindow));
            shares.add(self.reply_limit(), replies);
        }
        shares.add(Limit::Nothing, scaled(Wait::Idle));
        shares
    }

    /// Time at work: in files, or with the processor. Returns the time that is left.
    fn add_work(&self, shares: &mut Shares) -> Duration {
        let (before, after) = (self.before, self.after);
        let since = |after: Duration, before: Duration| after.saturating_sub(before);
        let running = since(after.thread.running, before.thread.running);
        let waiting = since(after.thread.waiting, before.thread.waiting);
        let running = running.min(self.elapsed);
        let waiting = waiting.min(self.elapsed - running);
        let reading = since(after.disk.reading, before.disk.reading);
        let writing = since(after.disk.writing, before.disk.writing);
        // Copying from the page cache is work of the processor; what is left of the time in reads
        // and writes was spent waiting for a disk.
        let awake = self.elapsed.saturating_sub(self.waits.total());
        let stopped = awake
            .saturating_sub(running + waiting)
            .min(reading + writing);
        let stopped_reading = share_of(stopped, reading, reading + writing);
        let share = |time| thousandths(time, self.elapsed);
        shares.add(
            Limit::DiskRead {
                share: share(stopped_reading),
            },
            stopped_reading,
        );
        shares.add(
            Limit::DiskWrite {
                share: share(stopped - stopped_reading),
            },
            stopped - stopped_reading,
        );
        let cpu = Limit::Cpu {
            running: share(running),
            waiting: share(waiting),
        };
        shares.add(cpu, running + waiting);
        self.elapsed
            .saturating_sub(running + waiting)
            .saturating_sub(stopped)
    }

    /// The socket took nothing: the kernel says what it waited for itself.
    fn add_socket(&self, shares: &mut Shares, time: Duration) {
        if time.is_zero() {
            return;
        }
        let (Some(before), Some(after)) = (self.before.tcp, self.after.tcp) else {
            shares.add(self.congestion(), time);
            return;
        };
        let since = |of: fn(&TcpInfo) -> Option<Duration>| {
            let (before, after) = (of(&before), of(&after));
            after
                .unwrap_or_default()
                .saturating_sub(before.unwrap_or_default())
        };
        let busy = since(|tcp| tcp.busy).max(Duration::from_nanos(1));
        let closed = share_of(time, since(|tcp| tcp.rwnd_limited), busy);
        let small = share_of(time, since(|tcp| tcp.sndbuf_limited), busy).min(time - closed);
        shares.add(self.closed_window(), closed);
        shares.add(self.send_buffer(), small);
        shares.add(self.socket_rest(), time - closed - small);
    }

    /// What the kernel does not account for itself. Congestion control that measures the rate (BBR)
    /// paces at what a window lets through: the window is behind that as well.
    fn socket_rest(&self) -> Limit {
        let buffer = self.after.send_buffer.map(|bytes| bytes / BUFFER_OVERHEAD);
        if self.is_used_up(self.peaks.snd_wnd) {
            self.closed_window()
        } else if self.is_used_up(buffer.unwrap_or(0)) {
            self.send_buffer()
        } else if self.is_fed_by_windows() {
            self.peer_window()
        } else {
            self.congestion()
        }
    }

    /// Whether a good part of the interval passed without credit, nothing was lost or queues, and TCP's
    /// congestion window would hold all that windows let through: what it is given between two waits,
    /// it paces at the rate at which it was fed before.
    fn is_fed_by_windows(&self) -> bool {
        let Some(tcp) = self.after.tcp else {
            return false;
        };
        let lanes = &self.after.lanes;
        let cwnd = u64::from(tcp.snd_cwnd) * u64::from(tcp.snd_mss);
        self.waits.of(Wait::PeerWindow) >= self.elapsed / FED_FRACTION
            && self.lost_ppm() < LOST_PPM_MIN
            && !is_path_queueing(&tcp)
            && lanes.remote_window.saturating_mul(lanes.busy as u64) <= cwnd
    }

    fn send_buffer(&self) -> Limit {
        Limit::SendBuffer {
            bytes: self.after.send_buffer,
            flow: self.flow,
        }
    }

    /// The peer's TCP window is closed. One that could hold twice what is in flight is closed because
    /// the peer does not read.
    fn closed_window(&self) -> Limit {
        // What is in between closes its window because the way behind it takes no more.
        if self.after.relayed_rtt().is_some() {
            return self.congestion();
        }
        let window = self.peaks.snd_wnd;
        if window > 0 && self.per_rtt().saturating_mul(2) < window {
            return self.far_end();
        }
        Limit::TcpReceiveWindow {
            end: End::Remote,
            window: Some(window).filter(|window| *window > 0),
            flow: self.flow,
        }
    }

    /// Lanes had something to send and no credit.
    fn window_limit(&self) -> Limit {
        let lanes = &self.after.lanes;
        if self.is_tcp_behind() {
            return self.congestion();
        }
        if self.is_far_end_slow(lanes.remote_window) {
            return self.late_end();
        }
        // A window that is used up only because its bytes stand in the path's queue: more of it would
        // make the queue longer.
        if self.is_rtt_raised() && !self.is_used_up(lanes.remote_window) {
            return self.congestion();
        }
        self.peer_window()
    }

    fn peer_window(&self) -> Limit {
        Limit::PeerWindow {
            window: self.after.lanes.remote_window,
            lanes: self.after.lanes.busy,
            flow: self.flow,
        }
    }

    /// Nothing comes from the far end, not even acknowledgements of what is sent.
    fn silence(&self) -> Option<Limit> {
        let rtt = self.flow.rtt.unwrap_or_default();
        let acked = |sample: &Sample| sample.tcp.and_then(|tcp| tcp.bytes_acked);
        let is_silent = self.after.quiet >= SILENCE_MIN.max(rtt * SILENCE_RTTS)
            && acked(self.before) == acked(self.after);
        is_silent.then_some(Limit::RemoteSilent {
            since: self.after.quiet,
            count: self.after.lanes.outstanding_count,
        })
    }

    /// Replies were waited for.
    fn reply_limit(&self) -> Limit {
        if !self.flow.is_sending {
            return self.download_limit();
        }
        if self.is_tcp_behind() {
            return self.congestion();
        }
        if self.is_reply_slow() {
            return self.late_end();
        }
        self.requests()
    }

    /// Content of files was waited for.
    fn download_limit(&self) -> Limit {
        let lanes = &self.after.lanes;
        if self.is_used_up(lanes.local_window) {
            let starved = self
                .after
                .budget_limited
                .saturating_sub(self.before.budget_limited);
            return Limit::CreditBudget {
                window: lanes.local_window,
                is_budget_spent: starved * BUDGET_SHARE >= self.elapsed,
                flow: self.flow,
            };
        }
        if self.is_used_up(lanes.outstanding_bytes_max) {
            return self.requests();
        }
        let is_relayed = self.after.relayed_rtt().is_some();
        if !is_relayed && self.is_used_up(self.peaks.rcv_wnd) {
            return Limit::TcpReceiveWindow {
                end: End::Local,
                window: Some(self.peaks.rcv_wnd),
                flow: self.flow,
            };
        }
        if self.is_queue_standing() || self.is_growing() {
            return self.congestion();
        }
        if self.is_reply_slow() {
            return self.far_end();
        }
        self.requests()
    }

    fn requests(&self) -> Limit {
        let lanes = &self.after.lanes;
        let is_full = self.waits.of(Wait::Requests) > Duration::ZERO;
        Limit::RequestsOutstanding {
            bytes: match is_full {
                true => lanes.outstanding_bytes_max,
                false => lanes.outstanding_bytes,
            },
            count: lanes.outstanding_count,
            flow: self.flow,
        }
    }

    fn far_end(&self) -> Limit {
        Limit::RemoteProcessing {
            reply_time: self.reply_time(),
            outstanding: self.after.lanes.outstanding_bytes,
            pong: self.after.pong,
            flow: self.flow,
        }
    }

    /// Something of an upload came back late: the far end's doing, unless TCP had to send again.
    fn late_end(&self) -> Limit {
        match self.is_recovering() {
            true => self.congestion(),
            false => self.far_end(),
        }
    }

    fn congestion(&self) -> Limit {
        let tcp = self.after.tcp;
        let is_sending = self.flow.is_sending;
        Limit::TcpCongestion {
            end: if is_sending { End::Local } else { End::Remote },
            cwnd: tcp
                .filter(|_| is_sending)
                .map(|tcp| u64::from(tcp.snd_cwnd) * u64::from(tcp.snd_mss)),
            lost_ppm: self.lost_ppm(),
            delivery_rate: tcp.and_then(|tcp| tcp.delivery_rate).filter(|_| is_sending),
            min_rtt: tcp.and_then(|tcp| tcp.min_rtt),
            flow: self.flow,
        }
    }

    /// Of what TCP sent, how much was sent again; of what it received, how much came out of order.
    fn lost_ppm(&self) -> u32 {
        let (Some(before), Some(after)) = (self.before.tcp, self.after.tcp) else {
            return 0;
        };
        let since = |after: Option<u64>, before: Option<u64>| {
            after.unwrap_or(0).saturating_sub(before.unwrap_or(0))
        };
        let (again, all) = if self.flow.is_sending {
            (
                since(after.bytes_retrans, before.bytes_retrans),
                since(after.bytes_sent, before.bytes_sent),
            )
        } else {
            let segments = after.rcv_ooopack.map(u64::from);
            let segments_before = before.rcv_ooopack.map(u64::from);
            let mss = u64::from(after.snd_mss.max(1));
            (
                since(segments, segments_before),
                since(after.bytes_received, before.bytes_received) / mss,
            )
        };
        let ppm = again.saturating_mul(1_000_000) / all.max(1);
        u32::try_from(ppm.min(1_000_000)).unwrap_or(1_000_000)
    }

    /// Bytes that move per round trip.
    fn per_rtt(&self) -> u64 {
        let rtt = self.flow.rtt.unwrap_or_default();
        (self.flow.rate as f64 * rtt.as_secs_f64()) as u64
    }

    /// Whether `window` is what arrives per round trip of the path at rest. Under load, any window is:
    /// what the path does not carry waits in its queue.
    fn is_used_up(&self, window: u64) -> bool {
        let moved = (self.flow.rate as f64 * self.rtt_at_rest().as_secs_f64()) as u64;
        window > 0 && moved / USED_UP_DENOMINATOR * USED_UP_NUMERATOR >= window
    }

    /// The round-trip time now, or at most as much over the least as is no queue.
    fn rtt_at_rest(&self) -> Duration {
        let rtt = self.flow.rtt.unwrap_or_default();
        match self.after.tcp.and_then(|tcp| tcp.min_rtt) {
            Some(min_rtt) if self.after.relayed_rtt().is_none() => {
                rtt.min(min_rtt + QUEUE_RTT_MIN.max(min_rtt / QUEUE_RTT_FRACTION))
            }
            Some(_) | None => rtt,
        }
    }

    /// Whether round trips take longer than they do at rest.
    fn is_rtt_raised(&self) -> bool {
        self.flow.rtt.is_some_and(|rtt| rtt > self.rtt_at_rest())
    }

    fn is_growing(&self) -> bool {
        self.flow.rate > 0 && self.flow.rate >= self.rate_before / 4 * GROWTH_QUARTERS
    }

    /// Whether the kernel holds bytes that it could not send yet, and says that not its user but the
    /// path limits what it delivers.
    fn is_tcp_behind(&self) -> bool {
        let is_behind = |sample: &Sample| {
            sample.tcp.is_some_and(|tcp| {
                tcp.notsent_bytes.unwrap_or(0) >= UNSENT_BYTES
                    && tcp.is_delivery_app_limited != Some(true)
            })
        };
        is_behind(self.before) && is_behind(self.after)
    }

    /// Whether segments were lost and something stood unacknowledged nearly all the time: what comes
    /// back late stood behind a retransmission, not at a far end that has everything.
    fn is_recovering(&self) -> bool {
        let busy = |sample: &Sample| sample.tcp.and_then(|tcp| tcp.busy).unwrap_or_default();
        let busy = busy(self.after).saturating_sub(busy(self.before));
        self.lost_ppm() >= LOST_PPM_MIN && busy >= self.elapsed * RECOVERING_QUARTERS / 4
    }

    /// Whether so many bytes come back later than the path explains.
    fn is_far_end_slow(&self, outstanding: u64) -> bool {
        if self.flow.rate == 0 {
            return true;
        }
        let back = outstanding as f64 / self.flow.rate as f64;
        self.is_late(Duration::try_from_secs_f64(back).unwrap_or(Duration::MAX))
    }

    fn is_late(&self, back: Duration) -> bool {
        match self.flow.rtt {
            // Unknown: the benefit of the doubt is the far end's.
            None => false,
            Some(rtt) => back > rtt * TURNAROUND_HALF_RTTS / 2 + TURNAROUND_SLACK,
        }
    }

    fn is_reply_slow(&self) -> bool {
        self.reply_time().is_none_or(|time| self.is_late(time))
    }

    /// Little's law on requests: how long one waits for its reply.
    fn reply_time(&self) -> Option<Duration> {
        let answered = self
            .after
            .lanes
            .replies
            .saturating_sub(self.before.lanes.replies);
        let waited = self
            .after
            .requests_waited
            .saturating_sub(self.before.requests_waited);
        let answered = u32::try_from(answered).unwrap_or(u32::MAX);
        waited.checked_div(answered)
    }

    /// Whether bytes of a download queue on their way: segments went missing, the path's queue
    /// makes itself felt, or the answer to a ping stood behind them in the far end's socket.
    fn is_queue_standing(&self) -> bool {
        let Some(tcp) = self.after.tcp else {
            return false;
        };
        if self.lost_ppm() >= LOST_PPM_MIN || is_path_queueing(&tcp) {
            return true;
        }
        let min_rtt = tcp.min_rtt.unwrap_or(tcp.rtt);
        let Some(pong) = self.after.pong else {
            return false;
        };
        let unloaded = self.after.relayed_rtt().unwrap_or(min_rtt);
        let late = pong.saturating_sub(unloaded);
        let queued = late.as_secs_f64() * self.flow.rate as f64;
        late > QUEUE_RTT_MIN.max(tcp.rttvar) && queued >= STANDING_QUEUE_BYTES as f64
    }
}

/// Whether the round-trip time is that of a queue in the path.
#[must_use]
pub fn is_path_queueing(tcp: &TcpInfo) -> bool {
    let min_rtt = tcp.min_rtt.unwrap_or(tcp.rtt);
    let rise = tcp.rtt.saturating_sub(min_rtt);
    rise > QUEUE_RTT_MIN.max(min_rtt / QUEUE_RTT_FRACTION)
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    (bytes as f64 / time.as_secs_f64().max(1e-9)) as u64
}

/// `part / whole` of `time`, at most all of it.
fn share_of(time: Duration, part: Duration, whole: Duration) -> Duration {
    if whole.is_zero() {
        return Duration::ZERO;
    }
    time.mul_f64(part.div_duration_f64(whole).min(1.0))
        .min(time)
}

pub(super) fn thousandths(part: Duration, whole: Duration) -> u16 {
    if whole.is_zero() {
        return 0;
    }
    (part.div_duration_f64(whole).clamp(0.0, 1.0) * 1e3).round() as u16
}
