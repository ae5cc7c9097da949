//! What was seen in an interval, as the policy wants it: the rate, and what limits it.

use std::time::Duration;

use fullbore_base::Instant;

use super::{Direction, Fleet, STALE_AFTER};
use crate::client::Connection;
use crate::path;
use crate::transfer::lanes::policy::{LIMITED_PERCENT, Limit, Observation};

/// A rate is taken over so many bytes, or over this long: what is confirmed comes in requests of a
/// quarter of a MiB.
const SURE_BYTES: u64 = 1 << 20;
const SURE_AFTER: Duration = Duration::from_secs(2);

/// A path that has lost something counts as lossy for so long: slow connections lose rarely.
const LOSSY_FOR: Duration = Duration::from_secs(10);

/// Loss that further connections may help against, in millionths. Chosen: at 100 ms it keeps a
/// loss-based congestion control below 10 MB/s.
const LOST_PPM_MIN: u32 = 200;

/// Part of what windows hold that must move in a round trip for them to be the limit, in percent: of
/// one lane, and of several. Chosen: OpenSSH's moves 96, one that gives credit back by halves 50.
const HELD_PERCENT_ALONE: u128 = 50;
const HELD_PERCENT: u128 = 80;

impl Fleet {
    pub(super) fn observe(&self, direction: Direction) -> Option<Observation> {
        let seen = self.seen.get();
        let (rtt, took) = (seen.rtt?, self.now() - seen.at?);
        let nanos = took.as_nanos().max(1);
        let bytes = self.moved_bytes.get() - seen.bytes;
        let rate = u128::from(bytes) * 1_000_000_000 / nanos;
        let lanes = 1 + self.extra.borrow().len();
        let mut observation = Observation {
            took,
            rtt,
            rate: u64::try_from(rate).unwrap_or(u64::MAX),
            limit: Limit::Other,
            lanes,
            connections: self.connections().len(),
            window: (seen.window > 0).then(|| u64::from(seen.window)),
        };
        observation.limit = self.limit(direction, &observation);
        // A few requests more or less are a wrong rate.
        if bytes < SURE_BYTES && took < SURE_AFTER && observation.limit != Limit::PeerWindow {
            return None;
        }
        self.rate_before.set(observation.rate);
        Some(observation)
    }

    fn limit(&self, direction: Direction, seen: &Observation) -> Limit {
        let connection = self.main.sftp.connection();
        if self.is_closed.get() || connection.has_rate_limit() {
            return Limit::Other;
        }
        if direction == Direction::Up && self.is_window_limited(seen) {
            return Limit::PeerWindow;
        }
        let connections = self.connections();
        let within = |at: Option<Instant>, time| at.is_some_and(|at| self.now() - at < time);
        if connections.iter().any(is_queueing) {
            self.queued_at.set(Some(self.now()));
        }
        if connections.iter().any(has_lost) {
            // A queue that was full is reason enough, and then one connection is, too.
            match within(self.queued_at.get(), STALE_AFTER) {
                true => self.overrun_at.set(Some(self.now())),
                false => self.lost_at.set(Some(self.now())),
            }
        }
        let is_lossy = within(self.lost_at.get(), LOSSY_FOR);
        // What comes late stood behind what was sent again.
        let is_late = is_lossy || within(self.overrun_at.get(), LOSSY_FOR);
        let limits = connections
            .iter()
            .map(|connection| limit_of(connection, direction, is_lossy, is_late));
        let limits: Vec<Limit> = limits.collect();
        // What holds for at least half of them.
        let count = |wanted: Limit| limits.iter().filter(|limit| **limit == wanted).count();
        [Limit::Tcp, Limit::FarEnd]
            .into_iter()
            .find(|limit| count(*limit) * 2 >= limits.len())
            .unwrap_or(Limit::Other)
    }

    /// Whether windows were used up most of the time, and what moved in a round trip is what they
    /// hold: on a short path a window that is used up means that the far end is slow. One lane need
    /// move only half of that: servers differ in how early they give credit back.
    fn is_window_limited(&self, seen: &Observation) -> bool {
        let Some(window) = seen.window else {
            return false;
        };
        let in_flight = u128::from(seen.rate) * seen.rtt.as_nanos() / 1_000_000_000;
        let held = u128::from(window) * seen.lanes as u128;
        // One that still grows fast will have used it up by when lanes are open.
        let is_growing = seen.rate > (self.rate_before.get() / 2).saturating_mul(3);
        if seen.lanes == 1 && is_growing && in_flight * 4 >= held {
            return true;
        }
        let extra = self.extra.borrow();
        let sessions = extra.iter().chain([&self.main]);
        let limited: Duration = sessions
            .map(|session| {
                session
                    .sftp
                    .window_limited()
                    .saturating_sub(session.limited.get())
            })
            .sum();
        let all = seen.took.as_nanos() * seen.lanes as u128;
        let percent = match seen.lanes {
            1 => HELD_PERCENT_ALONE,
            _ => HELD_PERCENT,
        };
        limited.as_nanos() * 100 >= all * u128::from(LIMITED_PERCENT)
            && in_flight * 100 >= held * percent
    }
}

/// The last interval of a connection.
fn interval_of(connection: &Connection) -> Option<path::Interval> {
    let interval = connection.path()?;
    (connection.now() - interval.to <= STALE_AFTER).then_some(interval)
}

/// Whether segments of the connection were lost in its last interval.
fn has_lost(connection: &Connection) -> bool {
    interval_of(connection).is_some_and(|interval| {
        [interval.first, interval.steady].iter().any(
            |limit| matches!(limit, path::Limit::TcpCongestion { lost_ppm, .. } if *lost_ppm >= LOST_PPM_MIN),
        )
    })
}

/// Whether there was a queue in the path at the end of the connection's last interval.
fn is_queueing(connection: &Connection) -> bool {
    let tcp = interval_of(connection).and_then(|interval| interval.tcp);
    tcp.is_some_and(|tcp| path::is_path_queueing(&tcp))
}

/// What limited the last interval of a connection, as far as further lanes could help. On a lossy
/// path, congestion control is held down by loss also where none was seen just now.
fn limit_of(connection: &Connection, direction: Direction, is_lossy: bool, is_late: bool) -> Limit {
    let Some(interval) = interval_of(connection) else {
        return Limit::Other;
    };
    match interval.steady {
        path::Limit::TcpReceiveWindow { .. } | path::Limit::SendBuffer { .. } => Limit::Tcp,
        path::Limit::TcpCongestion { .. } if is_lossy => Limit::Tcp,
        path::Limit::RemoteProcessing { .. } if direction == Direction::Down && !is_late => {
            Limit::FarEnd
        }
        path::Limit::PeerWindow { .. }
        | path::Limit::CreditBudget { .. }
        | path::Limit::RequestsOutstanding { .. }
        | path::Limit::TcpCongestion { .. }
        | path::Limit::Cpu { .. }
        | path::Limit::DiskRead { .. }
        | path::Limit::DiskWrite { .. }
        | path::Limit::RemoteProcessing { .. }
        | path::Limit::RemoteSilent { .. }
        | path::Limit::RateLimit { .. }
        | path::Limit::Nothing => Limit::Other,
    }
}
