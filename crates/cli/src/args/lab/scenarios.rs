//! `fullbore lab handbrake`, `backlog`, `window`, `sack` and `report`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use fullbore_lab::sack;

/// What is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// Waiting on top of TCP.
    Handbrake,
    /// A queue whose cost grows with what is queued.
    Backlog,
    /// The channel window and the path.
    Window,
    /// What an acknowledgement costs a TCP sender.
    Sack,
}

/// What was asked of the scenarios.
#[derive(Debug)]
pub(crate) struct ScenarioValues {
    /// What to run, in this order.
    pub(crate) scenarios: Vec<Scenario>,
    /// Replays the simulations.
    pub(crate) seed: u64,
    /// Where the report goes.
    pub(crate) html: PathBuf,
    /// Servers of the backlog; none is this program's and OpenSSH's.
    pub(crate) servers: Vec<OsString>,
    /// MiB of the backlog's uploads.
    pub(crate) sizes_mib: Vec<u64>,
    /// Runs of each size.
    pub(crate) rounds: usize,
    /// Senders and receivers of the SACK scenario.
    pub(crate) sack: sack::Options,
    /// Where the figures go as JSON.
    pub(crate) json: Option<PathBuf>,
}

/// Largest upload, so that a size that was meant in bytes is told.
const SIZE_MIB_MAX: u64 = 64 * 1024;

const BACKLOG_EXAMPLES: &str = "\
A SERVER is a command that speaks SFTP on standard input and output; it is split at blanks. Without one, this
program's sftp-server is looked at, and OpenSSH's where it is installed. A server that takes more than 20 s for a
size is not asked for a larger one.

Examples:
  fullbore lab backlog
  fullbore lab backlog --server /usr/lib/openssh/sftp-server --sizes 8,16,32";

/// The definitions.
pub(super) fn commands() -> [Command; 5] {
    [
        Command::new("handbrake")
            .about("Shows what waiting on top of TCP costs, in the simulator")
            .args([seed(), html("fullbore-handbrake.html")]),
        Command::new("backlog")
            .about("Shows what a backlog of requests costs an SFTP server program")
            .after_help(BACKLOG_EXAMPLES)
            .args(backlog_args())
            .arg(html("fullbore-backlog.html")),
        Command::new("window")
            .about("Shows how the channel window follows the path or does not, in the simulator")
            .args([seed(), html("fullbore-window.html")]),
        super::sack::command().arg(html("fullbore-sack.html")),
        Command::new("report")
            .about("Runs all scenarios and writes one report")
            .args(backlog_args())
            .args([seed(), html("fullbore-report.html")]),
    ]
    .map(|command| command.disable_version_flag(true))
}

pub(super) fn seed() -> Arg {
    Arg::new("seed")
        .long("seed")
        .value_name("N")
        .default_value("1")
        .value_parser(value_parser!(u64))
        .help("Replays a run")
}

fn html(default: &'static str) -> Arg {
    Arg::new("html")
        .long("html")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .default_value(default)
        .help("Where the report with its plots goes")
}

fn backlog_args() -> [Arg; 3] {
    let server = Arg::new("server")
        .long("server")
        .value_name("SERVER")
        .action(ArgAction::Append)
        .value_parser(value_parser!(OsString))
        .help("A server program; may be given again");
    let sizes = Arg::new("sizes")
        .long("sizes")
        .value_name("MIB,...")
        .value_delimiter(',')
        .value_parser(value_parser!(u64).range(1..=SIZE_MIB_MAX))
        .default_value("8,16,32,64,128,256")
        .help("MiB of the uploads");
    let rounds = Arg::new("rounds")
        .long("rounds")
        .value_name("N")
        .value_parser(value_parser!(u16).range(1..))
        .default_value("3")
        .help("Runs of each size; the median counts");
    [server, sizes, rounds]
}

impl ScenarioValues {
    /// Reads what was written behind `lab NAME`.
    pub(super) fn from_matches(name: &str, matches: &ArgMatches) -> Result<Self, String> {
        use Scenario::{Backlog, Handbrake, Sack, Window};
        let scenarios = match name {
            "handbrake" => vec![Handbrake],
            "backlog" => vec![Backlog],
            "window" => vec![Window],
            "sack" => vec![Sack],
            _ => vec![Handbrake, Window, Sack, Backlog],
        };
        let html = matches.get_one::<PathBuf>("html");
        // A scenario has only the flags that mean something to it.
        let many = |name| matches.try_get_many(name).ok().flatten();
        let servers = matches.try_get_many::<OsString>("server").ok().flatten();
        let mut sizes_mib: Vec<u64> = many("sizes").unwrap_or_default().copied().collect();
        sizes_mib.sort_unstable();
        let rounds = matches.try_get_one::<u16>("rounds").ok().flatten();
        let seed = matches.try_get_one("seed").ok().flatten().copied();
        let seed = seed.unwrap_or(1);
        let json = matches.try_get_one::<PathBuf>("json").ok().flatten();
        Ok(Self {
            scenarios,
            seed,
            sack: super::sack::options(matches, seed)?,
            json: json.cloned(),
            html: html.ok_or("--html is missing")?.clone(),
            servers: servers.unwrap_or_default().cloned().collect(),
            sizes_mib,
            rounds: rounds.copied().map_or(1, usize::from),
        })
    }
}
