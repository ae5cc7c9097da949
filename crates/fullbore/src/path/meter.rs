//! Samples in, intervals out: which limit held, steadily enough to be read, and the sums of a run.

use std::time::Duration;

use fullbore_base::Instant;

use super::classify::{Between, Peaks, Shares, thousandths};
use super::limit::{Flow, Limit, LimitKind};
use super::sample::{LaneFacts, Sample};
use crate::driver::tcp_info::TcpInfo;

/// Length of an interval: some round trips, so that a burst per round trip does not look like
/// anything else, within what a person takes as now.
const INTERVAL_MIN: Duration = Duration::from_millis(250);
const INTERVAL_MAX: Duration = Duration::from_secs(1);
const INTERVAL_RTTS: u32 = 4;

/// Share of an interval, in thousandths, with which a limit takes over at once. With less it has to
/// come first twice in a row.
const TAKE_OVER: u16 = 800;

/// What limited during one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Its number, from 1.
    pub number: u64,
    /// Its begin.
    pub from: Instant,
    /// Its end.
    pub to: Instant,
    /// The flow.
    pub flow: Flow,
    /// What held longest.
    pub first: Limit,
    /// What to show: as `first`, but without flicker.
    pub steady: Limit,
    /// The lanes at its end.
    pub lanes: LaneFacts,
    /// The kernel's TCP at its end.
    pub tcp: Option<TcpInfo>,
    /// Share of the interval of each limit that held at all, in thousandths, longest first.
    pub shares: Vec<(LimitKind, u16)>,
}

impl Interval {
    /// Share of the interval in which something was to be moved, in thousandths.
    #[must_use]
    pub fn busy(&self) -> u16 {
        let of = |(kind, share): &(LimitKind, u16)| match kind {
            LimitKind::Nothing => 0,
            LimitKind::PeerWindow
            | LimitKind::CreditBudget
            | LimitKind::RequestsOutstanding
            | LimitKind::TcpReceiveWindow
            | LimitKind::TcpCongestion
            | LimitKind::SendBuffer
            | LimitKind::Cpu
            | LimitKind::DiskRead
            | LimitKind::DiskWrite
            | LimitKind::RemoteProcessing
            | LimitKind::RemoteSilent
            | LimitKind::RateLimit => *share,
        };
        self.shares.iter().map(of).sum()
    }
}

/// What limited during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// For each limit that held: how long, and its evidence from the interval in which it held longest;
    /// of about equal ones the last in which not much less moved.
    held: Vec<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    limit: Limit,
    /// Time in the interval that its evidence is of.
    longest: Duration,
    time: Duration,
}

/// What comes within a twentieth counts as equal.
const ABOUT_EQUAL: (u32, u32) = (20, 19);

impl Totals {
    fn add(&mut self, shares: &Shares) {
        for &(limit, time) in shares.iter() {
            let longest = time;
            self.hold(Held {
                limit,
                longest,
                time,
            });
        }
    }

    /// Adds what limited on another connection.
    pub fn merge(&mut self, other: &Self) {
        for held in &other.held {
            self.hold(*held);
        }
    }

    fn hold(&mut self, more: Held) {
        let (whole, nearly) = ABOUT_EQUAL;
        let kind = more.limit.kind();
        let known = self.held.iter_mut().find(|held| held.limit.kind() == kind);
        match known {
            Some(held) => {
                held.time += more.time;
                let is_longer = more.longest * nearly > held.longest * whole;
                let is_equal = more.longest * whole >= held.longest * nearly;
                // What is left at the end of a file says little about the rest of it.
                let is_as_fast = more.limit.rate() >= held.limit.rate().map(|rate| rate / 2);
                if is_longer || is_equal && is_as_fast {
                    held.limit = more.limit;
                    held.longest = held.longest.max(more.longest);
                }
            }
            None => self.held.push(more),
        }
    }

    /// The limits that held while something was to be moved, longest first, with their times.
    #[must_use]
    pub fn ranking(&self) -> Vec<(Limit, Duration)> {
        let busy = self.held.iter().filter(|held| held.limit != Limit::Nothing);
        let mut ranking: Vec<_> = busy.map(|held| (held.limit, held.time)).collect();
        ranking.sort_by_key(|(limit, total)| (std::cmp::Reverse(*total), limit.kind()));
        ranking
    }

    /// Time in which something was to be moved.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.ranking().iter().map(|(_, time)| *time).sum()
    }

    /// The limit that held longest, and its share in thousandths of the time in which something was
    /// to be moved.
    #[must_use]
    pub fn first(&self) -> Option<(Limit, u16)> {
        let (limit, time) = *self.ranking().first()?;
        Some((limit, thousandths(time, self.busy())))
    }
}

/// Makes intervals of samples. O(1) per sample, whatever is open on the connection.
#[derive(Debug, Default)]
pub struct Meter {
    last: Option<Sample>,
    peaks: Peaks,
    shown: Option<Limit>,
    /// What came first in the last interval without being shown.
    rival: Option<LimitKind>,
    latest: Option<Interval>,
    /// The latest was not taken yet.
    is_news: bool,
    totals: Totals,
    count: u64,
}

impl Meter {
    /// When the interval under way ends; none while none is.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let last = self.last.as_ref()?;
        let rtts = last.path_rtt().unwrap_or_default() * INTERVAL_RTTS;
        Some(last.at + rtts.clamp(INTERVAL_MIN, INTERVAL_MAX))
    }

    /// Whether an interval is under way.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.last.is_some()
    }

    /// Ends the interval under way, if one is, and starts the next.
    pub fn on_sample(&mut self, sample: Sample) {
        self.note_peaks(&sample);
        if let Some(last) = self.last.replace(sample)
            && sample.at > last.at
        {
            let rate_before = self.latest.as_ref().map_or(0, |latest| latest.flow.rate);
            let between = Between::new(&last, &sample, self.peaks, rate_before);
            let shares = between.shares();
            self.finish(&last, &sample, between.flow, &shares);
        }
    }

    /// Ends the last interval: what follows, until the next sample, belongs to none.
    pub fn pause(&mut self, sample: Sample) {
        self.on_sample(sample);
        self.last = None;
    }

    /// The last interval that ended.
    #[must_use]
    pub const fn latest(&self) -> Option<&Interval> {
        self.latest.as_ref()
    }

    /// The last interval that ended, once.
    pub fn take_latest(&mut self) -> Option<Interval> {
        std::mem::take(&mut self.is_news)
            .then(|| self.latest.clone())
            .flatten()
    }

    /// Sums of all intervals, which start anew.
    pub fn take_totals(&mut self) -> Totals {
        std::mem::take(&mut self.totals)
    }

    /// Sums of all intervals.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    fn note_peaks(&mut self, sample: &Sample) {
        if let Some(tcp) = &sample.tcp {
            let peak = |peak: u64, now: Option<u32>| peak.max(u64::from(now.unwrap_or(0)));
            self.peaks.snd_wnd = peak(self.peaks.snd_wnd, tcp.snd_wnd);
            self.peaks.rcv_wnd = peak(self.peaks.rcv_wnd, tcp.rcv_wnd);
        }
    }

    fn finish(&mut self, last: &Sample, sample: &Sample, flow: Flow, shares: &Shares) {
        self.totals.add(shares);
        self.count += 1;
        let elapsed = sample.at.saturating_duration_since(last.at);
        let mut listed: Vec<_> = shares
            .iter()
            .map(|(limit, time)| (limit.kind(), thousandths(*time, elapsed)))
            .collect();
        listed.sort_by_key(|(kind, share)| (std::cmp::Reverse(*share), *kind));
        let first = shares.first();
        let share = listed.first().map_or(0, |(_, share)| *share);
        self.is_news = true;
        self.latest = Some(Interval {
            number: self.count,
            from: last.at,
            to: sample.at,
            flow,
            lanes: sample.lanes,
            tcp: sample.tcp,
            first,
            steady: self.steady(first, share, shares),
            shares: listed,
        });
    }

    /// What is shown changes when another limit holds nearly all of an interval, comes first twice in
    /// a row, or when what was shown does not hold at all any more.
    fn steady(&mut self, first: Limit, share: u16, shares: &Shares) -> Limit {
        let kind = first.kind();
        let held_on = self
            .shown
            .and_then(|shown| shares.of(shown.kind()))
            .map(|(limit, _)| *limit);
        let is_again = self.rival == Some(kind);
        let steady = match held_on {
            Some(still) if still.kind() != kind && share < TAKE_OVER && !is_again => {
                self.rival = Some(kind);
                still
            }
            _ => {
                self.rival = None;
                first
            }
        };
        self.shown = Some(steady);
        steady
    }
}
