//! How many lanes and connections a transfer uses: found while it runs, from what limits it. Sans-IO.
//!
//! ```text
//!   the peer's window limits ────► channels: four, then half as many again
//!   TCP limits (buffers, loss) ──► connections: twice as many
//!   the far end's work limits ───► channels: one more
//!          │ settle, then compare
//!          ├─ at least a tenth faster ──► again, as long as it limits
//!          └─ not ──► close them; try again only after a longer and longer while
//!   nothing of that for a while ─► close what is not needed
//! ```
//! Worked example, 60 MB/s at 200 ms to a server with windows of 2 MiB: one lane moves 10.5 MB/s and
//! its window limits; four move 42, and their windows limit; six move 60, of which the path is the
//! limit, and it stays at that. More would fill the queues of the path: what windows hold is in flight.

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

/// Twice as many connections that raise it by this are judged early.
const CLEAR_GAIN_PERCENT: u64 = 50;

/// Something limits when it does for this part of an interval, in percent.
pub(crate) const LIMITED_PERCENT: u64 = 50;

/// Round trips from an addition until it is judged: opening takes up to three, filling one, and the
/// answers one.
const SETTLE_ROUNDS: u32 = 6;

/// Round trips that are compared: more where loss makes the rate jump.
const JUDGE_ROUNDS: u32 = 3;
const JUDGE_ROUNDS_LOSSY: u32 = 10;

/// Lanes after the first step: a window that limits is mostly short by more than half, and each
/// further step costs some round trips.
const LANES_FIRST: usize = 4;

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
    /// TCP itself: its receive window, its send buffer, or loss.
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

impl Before {
    fn is_beaten(&self, rate: u64, percent: u64) -> bool {
        let wanted = u128::from(self.rate) * u128::from(100 + percent) / 100;
        u128::from(rate) >= wanted
    }
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
    /// Bytes a second, smoothed, since `limit` began to limit.
    rate: u64,
    limit: Limit,
    /// It is the first interval with that limit.
    is_news: bool,
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
            rate: 0,
            limit: Limit::Other,
            is_news: true,
        }
    }

    /// What to do after an interval.
    pub fn on_interval(&mut self, seen: &Observation, caps: Caps) -> Step {
        for retry in [&mut self.channels, &mut self.connections] {
            retry.wait = retry.wait.saturating_sub(seen.took);
        }
        // A quarter of the newest, since single intervals jump; but only of what one limit allows.
        self.is_news = seen.limit != self.limit;
        self.limit = seen.limit;
        self.rate = match self.is_news {
            true => seen.rate,
            false => self.rate - self.rate / 4 + seen.rate / 4,
        };
        match self.state {
            State::Watch { surplus } => self.watch(seen, caps, surplus),
            State::Settle { before, waited } => self.settle(seen, caps, before, waited),
            State::Judge {
                before,
                waited,
                moved,
            } => {
                let waited = waited + seen.took;
                let moved = moved + u128::from(seen.rate) * seen.took.as_nanos();
                let rounds = match before.is_connections {
                    true => JUDGE_ROUNDS_LOSSY,
                    false => JUDGE_ROUNDS,
                };
                if waited < seen.rtt * rounds {
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

    /// Channels that are full, too, need not be waited for: their windows limit again. Nor need
    /// connections that bring much.
    fn settle(&mut self, seen: &Observation, caps: Caps, before: Before, waited: Duration) -> Step {
        let is_clear = match before.is_connections {
            true => before.is_beaten(seen.rate, CLEAR_GAIN_PERCENT),
            false => seen.limit == Limit::PeerWindow && before.is_beaten(seen.rate, GAIN_PERCENT),
        };
        if is_clear {
            return self.judge(seen, caps, before, seen.rate);
        }
        let waited = waited + seen.took;
        self.state = if waited < seen.rtt * SETTLE_ROUNDS {
            State::Settle { before, waited }
        } else {
            State::Judge {
                before,
                waited: Duration::ZERO,
                moved: 0,
            }
        };
        Step::Stay
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
            Limit::PeerWindow => {
                let more = seen.lanes + seen.lanes.div_ceil(2);
                self.more_channels(seen, caps, more.max(LANES_FIRST))
            }
            Limit::FarEnd => self.more_channels(seen, caps, seen.lanes + 1),
            // TCP's windows and buffers grow by themselves at first.
            Limit::Tcp if self.is_news || seen.rate > self.rate / 4 * 5 => Step::Stay,
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
                // Where it falls, what was before is no measure.
                rate: self.rate.min(seen.rate),
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
        if before.is_beaten(rate, GAIN_PERCENT) {
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
            // One to spare: windows never hold all that they could.
            let needed = seen
                .window
                .map_or(0, |window| lanes_for(rate, seen.rtt, window) + 1);
            match needed.max(before.lanes) {
                kept if kept < seen.lanes => Step::Lanes(kept),
                _ => Step::Stay,
            }
        }
    }

    /// Fewer, when the limit has been elsewhere for long: half the connections, or as many lanes as
    /// the rate needs and one.
    fn shrink(&mut self, seen: &Observation, surplus: Duration) -> Step {
        if surplus < seen.rtt.max(RTT_MIN) * SURPLUS_ROUNDS {
            return Step::Stay;
        }
        self.state = State::Watch {
            surplus: Duration::ZERO,
        };
        if seen.connections > 1 {
            // Not to and fro.
            self.connections.on_failure(seen.rtt);
            return Step::Connections(seen.connections / 2);
        }
        let Some(window) = seen.window else {
            return Step::Stay;
        };
        let needed = lanes_for(self.rate, seen.rtt, window) + 1;
        match needed < seen.lanes {
            true => Step::Lanes(needed),
            false => Step::Stay,
        }
    }
}

/// Windows of `window` bytes that hold what `rate` moves in `rtt`.
fn lanes_for(rate: u64, rtt: Duration, window: u64) -> usize {
    let bytes = u128::from(rate) * rtt.as_nanos() / 1_000_000_000;
    usize::try_from(bytes.div_ceil(u128::from(window.max(1)))).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(200);
    const WINDOW: u64 = 2 << 20;
    const CAPS: Caps = Caps {
        channels: CHANNELS_MAX,
        connections: CONNECTIONS_MAX_DEFAULT,
    };

    /// A path, and what lanes move over it.
    struct Path {
        rate: u64,
        rtt: Duration,
        /// What one connection is limited to by loss.
        lossy: Option<u64>,
        lanes: usize,
        connections: usize,
        steps: Vec<Step>,
    }

    impl Path {
        fn new(rate: u64, rtt: Duration) -> Self {
            Self {
                rate,
                rtt,
                lossy: None,
                lanes: 1,
                connections: 1,
                steps: Vec::new(),
            }
        }

        fn observation(&self) -> Observation {
            let by_window = WINDOW * 1000 / self.rtt.as_millis() as u64 * self.lanes as u64;
            let by_loss = self
                .lossy
                .map_or(u64::MAX, |rate| rate * self.connections as u64);
            let rate = self.rate.min(by_window).min(by_loss);
            let limit = match rate {
                _ if rate == by_loss => Limit::Tcp,
                _ if rate == by_window => Limit::PeerWindow,
                _ => Limit::Other,
            };
            Observation {
                took: self.rtt,
                rtt: self.rtt,
                rate,
                limit,
                lanes: self.lanes,
                connections: self.connections,
                window: Some(WINDOW),
            }
        }

        fn run(&mut self, policy: &mut Policy, caps: Caps, rounds: u32) {
            for _ in 0..rounds {
                let step = policy.on_interval(&self.observation(), caps);
                match step {
                    Step::Stay => continue,
                    Step::Lanes(count) => self.lanes = count,
                    Step::Connections(count) => {
                        self.lanes = self.lanes + count - self.connections;
                        self.connections = count;
                    }
                }
                self.steps.push(step);
            }
        }
    }

    #[test]
    fn channels_are_added_until_the_path_is_full_and_what_is_too_many_goes_again() {
        let mut path = Path::new(60_000_000, RTT);
        let mut policy = Policy::new();
        path.run(&mut policy, CAPS, 12);
        assert_eq!(path.steps, [Step::Lanes(4), Step::Lanes(6)]);
        path.run(&mut policy, CAPS, 1000);
        assert_eq!(path.lanes, 6);
        path.rate = 20_000_000;
        path.run(&mut policy, CAPS, 1000);
        assert_eq!(path.lanes, 3, "{:?}", path.steps);
    }

    #[test]
    fn never_more_than_the_caps() {
        let mut path = Path::new(1_000_000_000, RTT);
        path.run(&mut Policy::new(), CAPS, 1000);
        assert_eq!((path.lanes, path.connections), (10, 1));
        let mut path = Path::new(1_000_000_000, RTT);
        let one = Caps {
            channels: 1,
            connections: 1,
        };
        path.run(&mut Policy::new(), one, 1000);
        assert_eq!(path.steps, []);
    }

    #[test]
    fn a_short_path_gets_none() {
        let mut path = Path::new(u64::MAX / 4, Duration::from_millis(1));
        path.run(&mut Policy::new(), CAPS, 1000);
        assert_eq!(path.steps, []);
    }

    #[test]
    fn connections_are_added_while_loss_limits_each() {
        let mut path = Path::new(12_500_000, Duration::from_millis(100));
        path.lossy = Some(190_000);
        path.run(&mut Policy::new(), CAPS, 200);
        let wanted = [2, 4, 8].map(Step::Connections);
        assert_eq!(path.steps, wanted);
    }

    /// Always limited, never faster.
    fn in_vain(limit: Limit, rounds: u32) -> Vec<Step> {
        let mut policy = Policy::new();
        let mut path = Path::new(1, RTT);
        let mut steps = Vec::new();
        for _ in 0..rounds {
            let seen = Observation {
                limit,
                rate: 5_000_000,
                window: None,
                ..path.observation()
            };
            match policy.on_interval(&seen, CAPS) {
                Step::Stay => continue,
                Step::Lanes(count) => path.lanes = count,
                Step::Connections(count) => path.connections = count,
            }
            steps.push(Step::Lanes(path.lanes * path.connections));
        }
        steps
    }

    #[test]
    fn what_brings_nothing_is_closed_and_tried_again_ever_more_rarely() {
        for (limit, tried) in [(Limit::PeerWindow, 4), (Limit::Tcp, 2), (Limit::FarEnd, 2)] {
            let steps = in_vain(limit, 2000);
            for pair in steps.chunks(2) {
                assert_eq!(pair[0], Step::Lanes(tried), "{limit:?}");
                assert!(pair.len() < 2 || pair[1] == Step::Lanes(1), "{limit:?}");
            }
            // Waits of 64, 128, ... round trips.
            assert!((6..=12).contains(&steps.len()), "{}", steps.len());
        }
    }

    #[test]
    fn connections_go_when_loss_has_gone() {
        let mut path = Path::new(12_500_000, Duration::from_millis(100));
        path.lossy = Some(190_000);
        let mut policy = Policy::new();
        path.run(&mut policy, CAPS, 200);
        assert_eq!(path.connections, 8);
        path.lossy = None;
        path.run(&mut policy, CAPS, 400);
        assert_eq!(path.connections, 1);
    }

    #[test]
    fn a_refusal_is_not_waited_for() {
        let mut policy = Policy::new();
        let path = Path::new(60_000_000, RTT);
        assert_eq!(
            policy.on_interval(&path.observation(), CAPS),
            Step::Lanes(4)
        );
        policy.on_refused();
        let two = Caps {
            channels: 2,
            ..CAPS
        };
        assert_eq!(policy.on_interval(&path.observation(), two), Step::Lanes(2));
    }

    #[test]
    fn the_limits_that_lanes_cannot_move_get_none() {
        assert_eq!(in_vain(Limit::Other, 1000), []);
    }
}
