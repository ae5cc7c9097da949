//! A TCP sender against receivers that lie: what an acknowledgement costs it, and what becomes of the stream.
//!
//! Up to four SACK blocks ride on each acknowledgement, and for each the sender has to find the segments that it
//! names. A queue that is walked for that costs more the longer it is, and the receiver can make it be walked
//! for every segment. The senders are those of Linux 2.6.22 and 2.6.25 as far as their queues go ([`list`]), ours,
//! and, over a TUN device, the running kernel's.

pub mod lies;
pub mod list;
pub mod mode;
pub mod path;
pub mod receiver;
mod report;
pub mod sender;

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use fullbore_base::{Instant, Rate};
pub use fullbore_tcp::congestion::Algorithm;
use fullbore_tcp::congestion::Settings;
use fullbore_tcp::isn::Tuple;
use fullbore_tcp::segment::Pseudo;

use self::list::{ListSender, Search};
use self::mode::Mode;
use self::path::{Outcome, Run, Setting};
use self::receiver::Receiver;
use self::sender::{OurSender, Sender, Wire};

/// Whose sender it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A list that is walked from its head: Linux 2.6.22.
    List,
    /// A list with the last position kept: Linux 2.6.25.
    Cached,
    /// This project's.
    Ours,
    /// The running kernel's.
    Kernel,
    /// A server's that was named.
    Target,
}

/// A TCP server to point the receiver at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddrV4,
    /// What makes it send.
    pub request: Vec<u8>,
}

/// Those that need no server, the oldest first.
pub const SENDERS: [Who; 4] = [Who::List, Who::Cached, Who::Ours, Who::Kernel];

impl Who {
    /// Its name on the command line and in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Cached => "cached",
            Self::Ours => "ours",
            Self::Kernel => "kernel",
            Self::Target => "target",
        }
    }

    /// The sender called `name`.
    ///
    /// # Errors
    /// Names all there are.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = SENDERS.into_iter().find(|who| who.name() == name);
        found.ok_or_else(|| {
            let names = SENDERS.map(Self::name).join(", ");
            format!("\"{name}\" is no sender: {names}")
        })
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Senders, in this order.
    pub senders: Vec<Who>,
    /// Receivers, in this order.
    pub modes: Vec<Mode>,
    /// Bytes of the windows.
    pub windows: Vec<u64>,
    /// Round trips.
    pub rtts: Vec<Duration>,
    /// Windows that are received under attack.
    pub attack_windows: u64,
    /// The senders' congestion control.
    pub congestion: Algorithm,
    /// How long the cumulative acknowledgement is held at most, in percent of the round trip.
    pub hold_percent: u32,
    /// The receiver takes its claims back, so that the sender keeps its window.
    pub is_kept_open: bool,
    /// What is random.
    pub seed: u64,
    /// The server that [`Who::Target`] stands for.
    pub target: Option<Target>,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The sender.
    pub who: Who,
    /// The receiver.
    pub mode: Mode,
    /// Bytes of the window.
    pub window: u64,
    /// The round trip.
    pub rtt: Duration,
    /// What it came to.
    pub outcome: Outcome,
}

impl Row {
    /// Bytes acknowledged per second of the run.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.outcome.counters.bytes_acked as f64 / self.outcome.wall.as_secs_f64().max(1e-9)
    }

    /// The sender's processor time, in nanoseconds, for each acknowledgement sent to it.
    #[must_use]
    pub fn nanos_per_ack(&self) -> f64 {
        self.outcome.cpu.as_nanos() as f64 / (self.outcome.acks as f64).max(1.0)
    }

    /// The same for each KiB that was acknowledged.
    #[must_use]
    pub fn nanos_per_kib(&self) -> f64 {
        let kib = self.outcome.counters.bytes_acked as f64 / 1024.0;
        self.outcome.cpu.as_nanos() as f64 / kib.max(1.0)
    }
}

/// All figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Runs, by sender, then window and round trip.
    pub rows: Vec<Row>,
    /// Senders that could not be run, and why.
    pub failures: Vec<String>,
}

/// A run against a sender that this program does not drive by itself: the kernel's, or a server's.
pub type Outside<'a> =
    &'a mut dyn FnMut(&Options, Who, Mode, u64, Duration) -> Result<Outcome, String>;

/// Runs everything. `cpu_clock` is the processor time of the calling thread, `outside` a run against a
/// sender of others; `tell` hears of each step.
pub fn run(
    options: &Options,
    cpu_clock: &dyn Fn() -> Duration,
    outside: Outside<'_>,
    tell: &mut dyn FnMut(&str),
) -> Found {
    let mut found = Found::default();
    for &who in &options.senders {
        for (&window, &rtt) in options
            .windows
            .iter()
            .flat_map(|window| options.rtts.iter().map(move |rtt| (window, rtt)))
        {
            for &mode in &options.modes {
                tell(&format!(
                    "{}: {}, {} MiB, {} ms",
                    who.name(),
                    mode.name(),
                    window >> 20,
                    rtt.as_millis()
                ));
                let outcome = match who {
                    Who::Kernel | Who::Target => outside(options, who, mode, window, rtt),
                    Who::List | Who::Cached | Who::Ours => {
                        Ok(one(options, who, mode, window, rtt, cpu_clock))
                    }
                };
                match outcome {
                    Ok(outcome) => found.rows.push(Row {
                        who,
                        mode,
                        window,
                        rtt,
                        outcome,
                    }),
                    Err(error) => {
                        found.failures.push(format!("{}: {error}", who.name()));
                        return found;
                    }
                }
            }
        }
    }
    found
}

const SENDER: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), 5001);
const RECEIVER: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)), 40_000);

/// What the receiver is told in a run of `options`.
#[must_use]
pub fn receiver_config(
    options: &Options,
    mode: Mode,
    window: u64,
    rtt: Duration,
) -> receiver::Config {
    receiver::Config {
        mode,
        window,
        rtt,
        hold: rtt * options.hold_percent / 100,
        is_kept_open: options.is_kept_open,
        seed: options.seed,
        ports: (RECEIVER.1, SENDER.1),
        pseudo: Pseudo::between(RECEIVER.0, SENDER.0),
        request: Vec::new(),
    }
}

/// One sender of this process against one receiver, on a virtual clock.
#[must_use]
pub fn one(
    options: &Options,
    who: Who,
    mode: Mode,
    window: u64,
    rtt: Duration,
    cpu_clock: &dyn Fn() -> Duration,
) -> Outcome {
    let settings = Settings {
        algorithm: options.congestion,
        ..Settings::default()
    };
    let config = receiver_config(options, mode, window, rtt);
    let pseudo = config.pseudo;
    let wire = || Wire::new((SENDER.1, RECEIVER.1), pseudo);
    let tuple = Tuple {
        local: SENDER,
        remote: RECEIVER,
    };
    let mut sender: Box<dyn Sender> = match who {
        Who::List => Box::new(ListSender::new(Search::Head, &settings, wire())),
        Who::Cached => Box::new(ListSender::new(Search::Cached, &settings, wire())),
        Who::Ours | Who::Kernel | Who::Target => {
            Box::new(OurSender::new(&settings, window, tuple, options.seed))
        }
    };
    let mut receiver = Receiver::new(Instant::ZERO, config);
    let setting = Setting {
        rtt,
        rate: rate_of(window, rtt),
        bytes: window * options.attack_windows,
    };
    Run::new(setting, sender.as_mut(), &mut receiver, cpu_clock).go()
}

/// The path takes two windows in a round trip: the window is the limit, and the queue stays empty.
fn rate_of(window: u64, rtt: Duration) -> Rate {
    let nanos = rtt.as_nanos().max(1);
    let rate = u128::from(window) * 2 * 1_000_000_000 / nanos;
    Rate::from_bytes_per_sec(u64::try_from(rate).unwrap_or(u64::MAX))
}
