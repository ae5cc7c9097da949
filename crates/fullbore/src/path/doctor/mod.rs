//! What was found out about a path, what each layer can carry on it, and what to change first.
//! Without I/O: the client measures.

mod advice;

use std::time::Duration;

use super::limit::{Limit, LimitKind};
use super::meter::Totals;
use crate::driver::tcp_info::TcpInfo;
use crate::path::LaneFacts;

pub use advice::Advice;

/// One phase of connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// How long it took.
    pub time: Duration,
}

/// Round-trip times of several pings, one after the other, on a path at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// How many.
    pub count: u32,
    /// The shortest.
    pub min: Duration,
    /// The mean.
    pub mean: Duration,
    /// Mean difference of two that follow each other (RFC 3550 6.4.1's measure, unweighted).
    pub jitter: Duration,
}

impl RoundTrips {
    /// Sums up `samples`, in order.
    #[must_use]
    pub fn of(samples: &[Duration]) -> Self {
        let count = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        let sum: Duration = samples.iter().sum();
        let steps: Duration = samples.windows(2).map(|w| w[0].abs_diff(w[1])).sum();
        Self {
            count,
            min: samples.iter().min().copied().unwrap_or_default(),
            mean: sum.checked_div(count).unwrap_or_default(),
            jitter: steps
                .checked_div(count.saturating_sub(1))
                .unwrap_or_default(),
        }
    }
}

/// A direction, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// What was read or written there.
    pub file: String,
    /// Channels that worked side by side.
    pub lanes: usize,
    /// Bytes that arrived.
    pub bytes: u64,
    /// How long that took.
    pub time: Duration,
    /// Bytes per second of the second half of that time, when the path had been filled.
    pub rate: u64,
    /// What limited during the second half.
    pub totals: Totals,
    /// The kernel's TCP at the end.
    pub tcp: Option<TcpInfo>,
    /// The lanes at the end.
    pub facts: LaneFacts,
}

impl Probe {
    /// What limited longest.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.totals
            .first()
            .map_or(Limit::Nothing, |(limit, _)| limit)
    }

    fn is_limited_by(&self, kind: LimitKind) -> bool {
        self.limit().kind() == kind
    }
}

/// All that was found out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The peer's version line.
    pub version: String,
    /// What is known of servers that call themselves so.
    pub profile: String,
    /// Key exchange, host key, ciphers.
    pub algorithms: String,
    /// The cipher of what is sent, and how many bytes a second this processor seals with it.
    pub cipher: Option<(&'static str, u64)>,
    /// Connecting, phase by phase.
    pub phases: Vec<Phase>,
    /// The path at rest.
    pub round_trips: RoundTrips,
    /// From there to here.
    pub down: Option<Probe>,
    /// From here to there, over one channel.
    pub up: Option<Probe>,
    /// The same over several, where one channel's window was the limit.
    pub up_wide: Option<Probe>,
    /// What could not be measured, and why.
    pub gaps: Vec<String>,
    /// This machine's settings, by name.
    pub settings: Vec<(&'static str, String)>,
}

/// What one layer can carry: a window per round trip, or a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cap {
    /// The layer.
    pub layer: &'static str,
    /// Its window, buffer or pipeline in bytes; none for a processor.
    pub bytes: Option<u64>,
    /// Bytes per second; `None` while no window was measured against the path.
    pub rate: u64,
    /// Which direction it concerns.
    pub way: Way,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From here to there.
    Up,
    /// From there to here.
    Down,
    /// Either.
    Both,
}

impl Findings {
    /// The round-trip time that windows are held against.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        let tcp = [&self.up, &self.down].into_iter().flatten();
        let of_tcp = tcp.filter_map(|probe| probe.tcp?.min_rtt).min();
        of_tcp.unwrap_or(self.round_trips.min)
    }

    /// A setting's value.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&str> {
        let setting = self.settings.iter().find(|(known, _)| *known == name);
        setting.map(|(_, value)| value.as_str())
    }

    /// The last of a setting's three numbers: the maximum.
    fn maximum(&self, name: &str) -> Option<u64> {
        self.setting(name)?.split(' ').next_back()?.parse().ok()
    }

    /// Bytes per second of a window of `bytes` per round trip.
    fn per_rtt(&self, bytes: u64) -> u64 {
        let seconds = self.rtt().as_secs_f64().max(1e-6);
        (bytes as f64 / seconds) as u64
    }

    /// What each layer can carry, least first.
    #[must_use]
    pub fn caps(&self) -> Vec<Cap> {
        let mut caps = Vec::new();
        let mut add = |layer, bytes: Option<u64>, way| {
            if let Some(bytes) = bytes.filter(|bytes| *bytes > 0) {
                caps.push(Cap {
                    layer,
                    bytes: Some(bytes),
                    rate: self.per_rtt(bytes),
                    way,
                });
            }
        };
        let facts = |probe: &Option<Probe>| probe.as_ref().map(|probe| probe.facts);
        let (up, down) = (facts(&self.up), facts(&self.down));
        add(
            "the server's channel window",
            up.map(|f| f.remote_window),
            Way::Up,
        );
        add(
            "requests in flight",
            up.map(|f| f.outstanding_bytes_max),
            Way::Up,
        );
        add(
            "our channel window",
            down.map(|f| f.local_window),
            Way::Down,
        );
        add(
            "requests in flight",
            down.map(|f| f.outstanding_bytes_max),
            Way::Down,
        );
        add(
            "our TCP send buffer (net.ipv4.tcp_wmem)",
            self.maximum("net.ipv4.tcp_wmem"),
            Way::Up,
        );
        add(
            "our TCP receive buffer (net.ipv4.tcp_rmem)",
            self.maximum("net.ipv4.tcp_rmem"),
            Way::Down,
        );
        add(
            "the server's TCP receive window",
            self.up.as_ref().and_then(|p| p.tcp?.snd_wnd).map(u64::from),
            Way::Up,
        );
        caps.extend(self.cipher.map(|(_, rate)| Cap {
            layer: "our processor, encrypting",
            bytes: None,
            rate,
            way: Way::Both,
        }));
        caps.sort_by_key(|cap| cap.rate);
        caps
    }
}
