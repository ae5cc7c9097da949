//! How many lanes and connections a transfer uses: found while it runs, from what limits it. Sans-IO.
//!
//! ```text
//!   the peer's window limits ────► channels: as many as fill the path where its rate is known, else twice
//!   TCP limits (window, loss) ───► connections: twice
//!   the far end's work limits ───► channels: one more
//!          │ settle, then compare
//!          ├─ at least a tenth faster ──► again, as long as it limits
//!          └─ not ──► close them; try again only after a longer and longer while
//!   nothing of that for a while ─► close what is not needed
//! ```
//! Worked example, 40 MB/s at 200 ms to a server with windows of 2 MiB: one lane moves 10.5 MB/s and
//! its window limits; two move 21, four 40, of which the path is the limit: it stays at four.

use std::time::Duration;

/// Channels of one connection at most: OpenSSH's `MaxSessions` default.
pub const CHANNELS_MAX: usize = 10;

/// Connections at most where the user does not say: what helps against loss, and below what servers
/// commonly take from one address.
pub const CONNECTIONS_MAX_DEFAULT: usize = 8;

/// Connections at most, whatever the user says; OpenSSH's `MaxStartups` refuses from 10 on.
pub const CONNECTIONS_MAX: usize = 32;

/// Shorter paths are never filled by lanes: something else limits, and it shows as the window.
pub const RTT_MIN: Duration = Duration::from_millis(2);

/// An addition must raise the rate by this to be kept, in percent.
const GAIN_PERCENT: u64 = 10;

/// Something limits when it does for this part of an interval, in percent.
pub(crate) const LIMITED_PERCENT: u64 = 50;

/// Round trips from an addition until it is judged: opening takes up to three, filling one, and the
/// answers one.
const SETTLE_ROUNDS: u32 = 6;

/// Round trips that are compared.
const JUDGE_ROUNDS: u32 = 3;

/// Round trips without a limit of ours before surplus lanes are closed.
const SURPLUS_ROUNDS: u32 = 50;

/// Round trips until something that brought nothing is tried again; doubled each time.
const RETRY_ROUNDS: u32 = 64;

/// What limits a transfer now, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The peer's channel windows: they are used up most of the time, and what they hold is what
    /// moves in a round trip.
    PeerWindow,
    /// TCP itself: its receive window, or loss.
    Tcp,
    /// The far end's reading or writing.
    FarEnd,
    /// The path, this machine, a limit on the rate, or nothing known: lanes cannot help.
    Other,
}

/// What was seen in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// How long it was.
    pub took: Duration,
    /// The round-trip time, least of the samples.
    pub rtt: Duration,
    /// Bytes moved a second, over all lanes.
    pub rate: u64,
    /// What limited.
    pub limit: Limit,
    /// Lanes in use.
    pub lanes: usize,
    /// Connections in use.
    pub connections: usize,
    /// What the path can carry, bytes a second, where that is known.
    pub path_rate: Option<u64>,
    /// Bytes of one of the peer's windows, where that is known.
    pub window: Option<u64>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// As it is.
    Stay,
    /// Have so many lanes on the connections that there are.
    Lanes(usize),
    /// Have so many connections, each with a lane.
    Connections(usize),
}

/// What may not be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Lanes of one connection.
    pub channels: usize,
    /// Connections.
    pub connections: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Looking whether something limits; for so long nothing of ours has.
    Watch { surplus: Duration },
    /// Lanes or connections were added, at a rate of `before`.
    Settle { before: Before, waited: Duration },
    /// Measuring what they bring.
    Judge {
        before: Before,
        waited: Duration,
        moved: u128,
    },
}

/// How it was before an addition.
#[derive(Clone, Copy, Debug)]
struct Before {
    rate: u64,
    lanes: usize,
    connections: usize,
    is_connections: bool,
}

/// When a kind of addition that brought nothing may be tried again.
#[derive(Clone, Copy, Debug, Default)]
struct Retry {
    wait: Duration,
    failures: u32,
}

impl Retry {
    fn on_failure(&mut self, rtt: Duration) {
        self.wait = rtt * RETRY_ROUNDS * (1 << self.failures.min(6));
        self.failures += 1;
    }
}

/// Decides. One per connection to a host.
#[derive(Clone, Debug)]
pub struct Policy {
    state: State,
    channels: Retry,
    connections: Retry,
}

impl Default for Policy {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy {
    /// At the start: one lane.
    #[must_use]
    pub const fn new() -> Self {
        let retry = Retry {
            wait: Duration::ZERO,
            failures: 0,
        };
        Self {
            state: State::Watch {
                surplus: Duration::ZERO,
            },
            channels: retry,
            connections: retry,
        }
    }

    /// What to do after an interval.
    pub fn on_interval(&mut self, seen: &Observation, caps: Caps) -> Step {
        for retry in [&mut self.channels, &mut self.connections] {
            retry.wait = retry.wait.saturating_sub(seen.took);
        }
        match self.state {
            State::Watch { surplus } => self.watch(seen, caps, surplus),
            State::Settle { before, waited } => {
                let waited = waited + seen.took;
                self.state = if waited < seen.rtt * SETTLE_ROUNDS {
                    State::Settle { before, waited }
                } else {
                    let waited = Duration::ZERO;
                    State::Judge {
                        before,
                        waited,
                        moved: 0,
                    }
                };
                Step::Stay
            }
            State::Judge {
                before,
                waited,
                moved,
            } => {
                let waited = waited + seen.took;
                let moved = moved + u128::from(seen.rate) * seen.took.as_nanos();
                if waited < seen.rtt * JUDGE_ROUNDS {
                    self.state = State::Judge {
                        before,
                        waited,
                        moved,
                    };
                    return Step::Stay;
                }
                let rate = moved / waited.as_nanos().max(1);
                self.judge(seen, caps, before, u64::try_from(rate).unwrap_or(u64::MAX))
            }
        }
    }

    /// What was asked for was refused: it is not waited for.
    pub fn on_refused(&mut self) {
        self.state = State::Watch {
            surplus: Duration::ZERO,
        };
    }

    fn watch(&mut self, seen: &Observation, caps: Caps, surplus: Duration) -> Step {
        self.state = State::Watch {
            surplus: Duration::ZERO,
        };
        let wanted = match seen.limit {
            Limit::PeerWindow => self.more_channels(seen, caps, needed_lanes(seen)),
            Limit::FarEnd => self.more_channels(seen, caps, seen.lanes + 1),
            Limit::Tcp => self.more_connections(seen, caps),
            Limit::Other => {
                self.state = State::Watch {
                    surplus: surplus + seen.took,
                };
                return self.shrink(seen, surplus + seen.took);
            }
        };
        if wanted != Step::Stay {
            let before = Before {
                rate: seen.rate,
                lanes: seen.lanes,
                connections: seen.connections,
                is_connections: matches!(wanted, Step::Connections(_)),
            };
            let waited = Duration::ZERO;
            self.state = State::Settle { before, waited };
        }
        wanted
    }

    fn more_channels(&self, seen: &Observation, caps: Caps, wanted: usize) -> Step {
        let max = caps.channels * seen.connections;
        let wanted = wanted.min(max);
        if seen.rtt < RTT_MIN || !self.channels.wait.is_zero() || wanted <= seen.lanes {
            return Step::Stay;
        }
        Step::Lanes(wanted)
    }

    fn more_connections(&self, seen: &Observation, caps: Caps) -> Step {
        let wanted = (seen.connections * 2).min(caps.connections);
        if seen.rtt < RTT_MIN || !self.connections.wait.is_zero() || wanted <= seen.connections {
            return Step::Stay;
        }
        Step::Connections(wanted)
    }

    /// Whether the addition was worth it.
    fn judge(&mut self, seen: &Observation, caps: Caps, before: Before, rate: u64) -> Step {
        let wanted = u128::from(before.rate) * u128::from(100 + GAIN_PERCENT) / 100;
        if u128::from(rate) >= wanted {
            let seen = Observation { rate, ..*seen };
            return self.watch(&seen, caps, Duration::ZERO);
        }
        self.state = State::Watch {
            surplus: Duration::ZERO,
        };
        if before.is_connections {
            self.connections.on_failure(seen.rtt);
            Step::Connections(before.connections)
        } else {
            self.channels.on_failure(seen.rtt);
            Step::Lanes(before.lanes)
        }
    }

    /// Fewer lanes, when the limit has been elsewhere for long: as many as the rate needs, and one.
    fn shrink(&mut self, seen: &Observation, surplus: Duration) -> Step {
        let Some(window) = seen.window else {
            return Step::Stay;
        };
        if surplus < seen.rtt.max(RTT_MIN) * SURPLUS_ROUNDS || seen.connections > 1 {
            return Step::Stay;
        }
        self.state = State::Watch {
            surplus: Duration::ZERO,
        };
        let needed = lanes_for(seen.rate, seen.rtt, window) + 1;
        match needed < seen.lanes {
            true => Step::Lanes(needed),
            false => Step::Stay,
        }
    }
}

/// Lanes that fill the path, or twice those that there are.
fn needed_lanes(seen: &Observation) -> usize {
    let twice = seen.lanes * 2;
    match (seen.path_rate, seen.window) {
        (Some(rate), Some(window)) => lanes_for(rate, seen.rtt, window).max(twice),
        _ => twice,
    }
}

/// Windows of `window` bytes that hold what `rate` moves in `rtt`.
fn lanes_for(rate: u64, rtt: Duration, window: u64) -> usize {
    let bytes = u128::from(rate) * rtt.as_nanos() / 1_000_000_000;
    usize::try_from(bytes.div_ceil(u128::from(window.max(1)))).unwrap_or(usize::MAX)
}
