//! `fullbore cp`: its flags, scp's where scp has them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use fullbore::config::text::parse_size;
use fullbore::driver::budget::BUDGET_MIN;
use fullbore::transfer::lanes::policy::{CHANNELS_MAX, CONNECTIONS_MAX};
use fullbore::udp::offer::COMMAND as UDP_COMMAND;

/// What was written on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CopyValues {
    pub(crate) recursive: bool,
    pub(crate) preserve: bool,
    pub(crate) verify: bool,
    pub(crate) no_resume: bool,
    pub(crate) fsync: bool,
    pub(crate) in_place: bool,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbosity: u8,
    pub(crate) limit: Option<u64>,
    pub(crate) lanes: Option<u64>,
    pub(crate) connections: Option<u64>,
    pub(crate) window_budget: Option<u64>,
    /// The command that has the far end go on over UDP, where that is wanted.
    pub(crate) udp_server: Option<String>,
    pub(crate) connection: ConnectionValues,
    /// Sources, then the target.
    pub(crate) places: Vec<OsString>,
}

/// The flags that say how to connect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ConnectionValues {
    pub(crate) port: Option<u16>,
    pub(crate) identities: Vec<String>,
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) options: Vec<String>,
    pub(crate) jump: Option<String>,
    pub(crate) ciphers: Option<String>,
    pub(crate) compression: bool,
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
    pub(crate) batch: bool,
}

const EXAMPLES: &str = "\
SRC and DST are local paths, [user@]host:path, or sftp://[user@]host[:port]/path. A path that does
not begin with / starts in the home folder there; `host:` is that folder. Patterns in remote sources
(*.log) are expanded there. A local name that holds a colon is written ./like:this.

Examples:
  fullbore cp notes.txt server:
  fullbore cp -rp server:/srv/photos /mnt/backup
  fullbore cp -P 2222 -i ~/.ssh/work big.iso me@[2001:db8::1]:/tmp/
  fullbore cp 'server:logs/*.gz' other:archive/
  fullbore cp --verify -J gate sftp://me@inner//var/dump.sql .
  fullbore cp --transport udp big.iso server:     where the path loses packets

Exit status: 0 when every file is right, 1 when one is not, 255 without a connection.";

/// Reads a window budget.
pub(crate) fn window_budget(text: &str) -> Result<u64, String> {
    parse_size(text.as_bytes())
        .filter(|bytes| *bytes >= BUDGET_MIN)
        .ok_or_else(|| format!("{text}: a size of {}M or more", BUDGET_MIN >> 20))
}

pub(super) fn flag(name: &'static str, short: char, help: &'static str) -> Arg {
    long_flag(name, help).short(short)
}

pub(super) fn long_flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

pub(super) fn option(
    name: &'static str,
    short: char,
    value: &'static str,
    help: &'static str,
) -> Arg {
    long_option(name, value, help).short(short)
}

pub(super) fn long_option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

pub(super) fn place(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .value_name(value)
        .required(true)
        .value_parser(value_parser!(OsString))
        .help(help)
}

/// The definition.
pub(super) fn command() -> Command {
    Command::new("cp")
        .about("Copies files between here and any SSH server; resumes, verifies, never leaves half a file")
        .after_help(EXAMPLES)
        .disable_version_flag(true)
        .args(copy_arguments())
        .args(transport_arguments())
        .args(connection_arguments())
        .args(output_arguments())
        .arg(place("sources", "SRC", "What to copy: one or more").num_args(1..))
        .arg(place("target", "DST", "Where to; for several sources a folder"))
}

fn copy_arguments() -> [Arg; 10] {
    [
        flag(
            "recursive",
            'r',
            "Copy folders with what is in them; symbolic links are followed",
        ),
        flag("preserve", 'p', "Keep times and modes"),
        long_flag(
            "verify",
            "Compare hashes end to end before a file gets its name",
        ),
        long_flag(
            "no-resume",
            "Begin anew instead of going on with an interrupted copy",
        ),
        long_flag(
            "fsync",
            "Bring each file to stable storage before it gets its name",
        ),
        long_flag(
            "in-place",
            "Write to the final name directly (half a file may be seen there)",
        ),
        option("limit", 'l', "KBIT", "At most so many Kbit/s")
            .value_parser(value_parser!(u64).range(1..=u64::from(u32::MAX))),
        long_option(
            "window-budget",
            "BYTES",
            "What servers may have on its way here, unread (64M, 2G) [default: an eighth of the memory]",
        )
        .value_parser(window_budget),
        long_option(
            "lanes",
            "N",
            "At most so many sessions on one connection for a large file (10); 1: never more",
        )
        .value_parser(value_parser!(u64).range(1..=CHANNELS_MAX as u64)),
        long_option(
            "connections",
            "N",
            "At most so many connections where TCP limits one (8); 1: never more",
        )
        .value_parser(value_parser!(u64).range(1..=CONNECTIONS_MAX as u64)),
    ]
}

fn transport_arguments() -> [Arg; 2] {
    [
        long_option(
            "transport",
            "NAME",
            "How bytes travel once you are logged in: tcp, or udp where the far end has fullbore too [default: tcp]",
        )
        .value_parser(["tcp", "udp"]),
        long_option(
            "udp-server",
            "COMMAND",
            "What the far end runs for --transport udp [default: fullbore udp-server]",
        ),
    ]
}

pub(super) fn connection_arguments() -> [Arg; 10] {
    [
        option("port", 'P', "PORT", "Port of the server")
            .value_parser(value_parser!(u16).range(1..)),
        option(
            "identity",
            'i',
            "FILE",
            "Private key file; may be given again",
        )
        .action(ArgAction::Append),
        option(
            "config",
            'F',
            "FILE",
            "Read this instead of ~/.ssh/config; `none` reads nothing",
        )
        .value_parser(value_parser!(PathBuf)),
        option(
            "option",
            'o',
            "KEY=VALUE",
            "An option of ssh_config; may be given again",
        )
        .action(ArgAction::Append),
        option("jump", 'J', "HOST,...", "Connect through these hosts"),
        option("cipher", 'c', "LIST", "Ciphers, best first"),
        flag("compress", 'C', "Compress on the wire"),
        flag("ipv4", '4', "IPv4 only").conflicts_with("ipv6"),
        flag("ipv6", '6', "IPv6 only"),
        flag("batch", 'B', "Ask for nothing"),
    ]
}

fn output_arguments() -> [Arg; 3] {
    [
        flag(
            "verbose",
            'v',
            "Say more; -vv says the same, as -v says all there is",
        )
        .action(ArgAction::Count),
        flag("quiet", 'q', "No progress and no summary, errors only").conflicts_with("verbose"),
        long_flag("json", "Tell what happens as JSON, one object a line"),
    ]
}

impl ConnectionValues {
    /// Takes the values out.
    pub(super) fn from_matches(matches: &ArgMatches) -> ConnectionValues {
        let many = |name: &str| {
            matches
                .get_many::<String>(name)
                .unwrap_or_default()
                .cloned()
        };
        ConnectionValues {
            port: matches.get_one("port").copied(),
            identities: many("identity").collect(),
            config_file: matches.get_one("config").cloned(),
            options: many("option").collect(),
            jump: matches.get_one("jump").cloned(),
            ciphers: matches.get_one("cipher").cloned(),
            compression: matches.get_flag("compress"),
            ipv4: matches.get_flag("ipv4"),
            ipv6: matches.get_flag("ipv6"),
            batch: matches.get_flag("batch"),
        }
    }
}

fn udp_server(matches: &ArgMatches) -> Option<String> {
    let transport: &String = matches.get_one("transport")?;
    let given = matches.get_one::<String>("udp-server").cloned();
    (transport == "udp").then(|| given.unwrap_or_else(|| UDP_COMMAND.to_owned()))
}

impl CopyValues {
    /// Takes the values out.
    pub(super) fn from_matches(matches: &ArgMatches) -> CopyValues {
        CopyValues {
            recursive: matches.get_flag("recursive"),
            preserve: matches.get_flag("preserve"),
            verify: matches.get_flag("verify"),
            no_resume: matches.get_flag("no-resume"),
            fsync: matches.get_flag("fsync"),
            in_place: matches.get_flag("in-place"),
            json: matches.get_flag("json"),
            quiet: matches.get_flag("quiet"),
            verbosity: matches.get_count("verbose"),
            limit: matches.get_one("limit").copied(),
            lanes: matches.get_one("lanes").copied(),
            connections: matches.get_one("connections").copied(),
            window_budget: matches.get_one("window-budget").copied(),
            udp_server: udp_server(matches),
            connection: ConnectionValues::from_matches(matches),
            places: ["sources", "target"]
                .into_iter()
                .filter_map(|name| matches.get_many(name))
                .flatten()
                .cloned()
                .collect(),
        }
    }
}
