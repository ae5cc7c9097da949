//! `fullbore lab`: emulated links and what is measured on them.

mod sack;
mod scenarios;
mod tcp;

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use scenarios::{Scenario, ScenarioValues};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use fullbore_lab::endpoint::EndpointOptions;
use fullbore_lab::link::{LinkOptions, MTU_MIN};
use fullbore_lab::units::{self, Queue};

/// What was asked of the lab.
pub(crate) enum LabValues {
    /// `link`
    Link {
        /// Without how the program starts itself.
        options: LinkOptions,
        /// Where the report goes as JSON.
        json: Option<PathBuf>,
        /// No report for a person.
        quiet: bool,
    },
    /// `tcp`
    Tcp(EndpointOptions),
    /// Everything that makes a report.
    Scenarios(ScenarioValues),
}

const LINK_EXAMPLES: &str = "\
The command runs in the near namespace at 10.77.0.1, the servers in the far one at 10.77.0.2. Both find these
in FULLBORE_NEAR and FULLBORE_FAR, and the namespaces in FULLBORE_NEAR_NETNS and FULLBORE_FAR_NETNS, so that
`nsenter --net=$FULLBORE_FAR_NETNS PROGRAM` starts more of them. Each direction has a queue with tail drop, then
its rate (bytes of IP), then loss, then half of the round-trip time. When the command ends, or the emulator is
ended, by whatever signal, all processes in both namespaces end with it. The exit code is the command's.
Needs root, or `unshare -Ur` in front where users may be root of their own namespaces.

Examples:
  fullbore lab link --rtt 200ms --rate 320mbit -- ping -c 3 10.77.0.2
  fullbore lab link --rtt 100ms --rate 1gbit --tcp-buffers 64m --far '/usr/sbin/sshd -D' --far-port 22 \\
      -- scp big.iso 10.77.0.2:/tmp/
  fullbore lab link --rtt 100ms --rate 100mbit --loss 0.1% --congestion cubic -- bash";

/// Flags with one value: name, the value's name, help, default.
const LINK_FLAGS: &[(&str, &str, &str, Option<&str>)] = &[
    (
        "rtt",
        "TIME",
        "Round-trip time: 200ms, 50us, 1s",
        Some("0ms"),
    ),
    (
        "rate",
        "RATE",
        "Of each direction: 56kbit, 320mbit, 1gbit",
        Some("1gbit"),
    ),
    ("up-rate", "RATE", "Near to far [default: --rate]", None),
    ("down-rate", "RATE", "Far to near [default: --rate]", None),
    (
        "queue",
        "SIZE",
        "In front of each direction: 1bdp (at least 128k), 50ms, 256k",
        Some("1bdp"),
    ),
    (
        "loss",
        "SHARE",
        "Of the packets of each direction: 0.1%",
        Some("0"),
    ),
    (
        "reorder",
        "SHARE",
        "Of the packets, that fall 3 ms behind",
        Some("0"),
    ),
    (
        "jitter",
        "TIME",
        "Added to the delay at random, at most",
        Some("0ms"),
    ),
    ("mtu", "BYTES", "Of both devices", Some("1500")),
    ("seed", "N", "Decides what is random", Some("1")),
    (
        "congestion",
        "NAME",
        "TCP's at both ends: bbr, cubic [default: the kernel's]",
        None,
    ),
    (
        "tcp-buffers",
        "BYTES",
        "Maximum of tcp_rmem and tcp_wmem [default: the kernel's]",
        None,
    ),
];

/// The definition.
pub(super) fn command() -> Command {
    Command::new("lab")
        .about("Emulates links and measures on them")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_version_flag(true)
        .subcommand(link_command())
        .subcommand(tcp::command())
        .subcommands(scenarios::commands())
}

fn link_command() -> Command {
    let values = LINK_FLAGS.iter().map(|&(name, value, help, default)| {
        let arg = Arg::new(name).long(name).value_name(value).help(help);
        match default {
            Some(default) => arg.default_value(default),
            None => arg,
        }
    });
    let far = Arg::new("far")
        .long("far")
        .value_name("COMMAND")
        .action(ArgAction::Append)
        .value_parser(value_parser!(OsString))
        .help("A shell command to run at the far end; may be given again");
    let far_port = Arg::new("far-port")
        .long("far-port")
        .value_name("PORT")
        .action(ArgAction::Append)
        .value_parser(value_parser!(u16))
        .help("Start only when this port of the far end takes connections; may be given again");
    let json = Arg::new("json")
        .long("json")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Write the report as JSON");
    let quiet = Arg::new("quiet")
        .long("quiet")
        .short('q')
        .action(ArgAction::SetTrue)
        .help("No report on the standard error");
    let command = Arg::new("command")
        .value_name("CMD")
        .required(true)
        .num_args(1..)
        .last(true)
        .value_parser(value_parser!(OsString))
        .help("What to run at the near end, behind --");
    Command::new("link")
        .about("Runs a command behind an emulated link, in real time and exact to the packet")
        .after_help(LINK_EXAMPLES)
        .disable_version_flag(true)
        .args(values)
        .args([far, far_port, json, quiet, command])
}

impl LabValues {
    /// Reads what was written.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn from_matches(matches: &ArgMatches) -> Result<Self, String> {
        let (name, matches) = matches.subcommand().ok_or("a command is missing")?;
        match name {
            "link" => link(matches),
            "tcp" => tcp::options(matches).map(Self::Tcp),
            "handbrake" | "backlog" | "window" | "sack" | "report" => {
                ScenarioValues::from_matches(name, matches).map(Self::Scenarios)
            }
            other => Err(format!("\"lab {other}\" cannot be used here")),
        }
    }
}

fn link(matches: &ArgMatches) -> Result<LabValues, String> {
    let text = |name| matches.get_one::<String>(name).map(String::as_str);
    let needed = |name| text(name).ok_or_else(|| format!("--{name} is missing"));
    let rate = units::rate(needed("rate")?)?;
    let options = LinkOptions {
        rtt: units::time(needed("rtt")?)?,
        up_rate: text("up-rate").map_or(Ok(rate), units::rate)?,
        down_rate: text("down-rate").map_or(Ok(rate), units::rate)?,
        queue: Queue::parse(needed("queue")?)?,
        loss: units::share(needed("loss")?)?,
        reorder: units::share(needed("reorder")?)?,
        jitter: units::time(needed("jitter")?)?,
        mtu: mtu(needed("mtu")?)?,
        seed: needed("seed")?
            .parse()
            .map_err(|e| format!("--seed: {e}"))?,
        congestion: text("congestion").map(str::to_owned),
        tcp_buffers: text("tcp-buffers").map(units::bytes).transpose()?,
        far: matches
            .get_many("far")
            .unwrap_or_default()
            .cloned()
            .collect(),
        far_ports: matches
            .get_many("far-port")
            .unwrap_or_default()
            .copied()
            .collect(),
        command: matches
            .get_many("command")
            .unwrap_or_default()
            .cloned()
            .collect(),
        init: Vec::new(),
    };
    Ok(LabValues::Link {
        options,
        json: matches.get_one("json").cloned(),
        quiet: matches.get_flag("quiet"),
    })
}

fn mtu(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(mtu) if mtu >= MTU_MIN => Ok(mtu),
        Ok(_) | Err(_) => Err(format!("--mtu is {MTU_MIN} to {}", u16::MAX)),
    }
}
