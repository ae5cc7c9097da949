//! `fullbore serve`: one table of flags, which are the keys of its settings file too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing; in a file `true` or `false`.
    Switch,
    /// One value.
    One,
    /// A value each time it is given; in a file a list.
    Many,
}

/// One flag: name, what it takes, the value's name, help.
pub(crate) type Flag = (&'static str, Kind, &'static str, &'static str);

/// The flags.
pub(crate) const FLAGS: &[Flag] = &[
    (
        "listen",
        Kind::Many,
        "ADDR:PORT",
        "Where to listen; may be given again [default: 127.0.0.1:2222]",
    ),
    (
        "udp",
        Kind::One,
        "PORT",
        "Let clients go on over this UDP port once they are logged in (0: any)",
    ),
    (
        "root",
        Kind::One,
        "DIR",
        "The folder that is served and that nothing leaves [default: .]",
    ),
    (
        "read-only",
        Kind::Switch,
        "",
        "Refuse everything that changes something",
    ),
    (
        "user",
        Kind::One,
        "NAME",
        "The one user name that may log in [default: any]",
    ),
    (
        "authorized-keys",
        Kind::Many,
        "FILE",
        "Keys that may log in; may be given again",
    ),
    (
        "password-hash",
        Kind::One,
        "FILE",
        "A file with the hash of a password that may be used too",
    ),
    (
        "host-key",
        Kind::Many,
        "FILE",
        "The server's key, with its certificate in FILE-cert.pub if that is there; may be given again [default: made at the first start]",
    ),
    (
        "login-grace",
        Kind::One,
        "SECONDS",
        "How long a login may take [default: 120]",
    ),
    (
        "rekey-limit",
        Kind::One,
        "BYTES",
        "Replace a connection's keys after so many bytes (1M, 4G) [default: 64G]",
    ),
    ("connections-max", Kind::One, "N", "Connections at once"),
    ("sessions-max", Kind::One, "N", "Sessions of one connection"),
    (
        "window-budget",
        Kind::One,
        "BYTES",
        "What all clients together may have on its way here, unread (64M, 2G) [default: an eighth of the memory]",
    ),
    (
        "workers",
        Kind::One,
        "N",
        "Threads that serve connections; 0 is one for each core",
    ),
    ("quiet", Kind::Switch, "", "No log"),
];

const EXAMPLES: &str = "\
Without any flag: this machine only, port 2222, the current folder, the keys of
~/.ssh/authorized_keys, and a host key of its own.

--config names a file whose keys are the names of these flags, as in TOML:
  listen = [\"0.0.0.0:2222\", \"[::]:2222\"]
  root = \"/srv/files\"
  read-only = true
A flag on the command line stands in place of the file's.

Examples:
  fullbore serve
  fullbore serve --listen 0.0.0.0:2222 --root /srv/files --user backup --authorized-keys keys
  fullbore serve --listen 0.0.0.0:2222 --udp 2222
  fullbore serve --config /etc/fullbore.toml --read-only";

/// What was written: for each flag its values (a switch has `true`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServeValues {
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) values: BTreeMap<&'static str, Vec<OsString>>,
}

/// The definition.
pub(super) fn command() -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Read flags from a file");
    Command::new("serve")
        .about("Serves a folder over SSH: users, keys and limits in one process")
        .after_help(EXAMPLES)
        .disable_version_flag(true)
        .args(FLAGS.iter().map(argument))
        .arg(config)
}

fn argument((name, kind, value, help): &Flag) -> Arg {
    let argument = Arg::new(*name).long(*name).help(*help);
    match kind {
        Kind::Switch => argument.action(ArgAction::SetTrue),
        Kind::One | Kind::Many => argument
            .value_name(*value)
            .value_parser(value_parser!(OsString))
            .action(if *kind == Kind::Many {
                ArgAction::Append
            } else {
                ArgAction::Set
            }),
    }
}

impl ServeValues {
    /// Takes the values out.
    pub(super) fn from_matches(matches: &ArgMatches) -> ServeValues {
        let mut values = BTreeMap::new();
        for (name, kind, ..) in FLAGS {
            let given: Vec<OsString> = match kind {
                Kind::Switch if matches.get_flag(name) => vec!["true".into()],
                Kind::Switch => Vec::new(),
                Kind::One | Kind::Many => matches
                    .get_many(name)
                    .unwrap_or_default()
                    .cloned()
                    .collect(),
            };
            if !given.is_empty() {
                values.insert(*name, given);
            }
        }
        ServeValues {
            config_file: matches.get_one("config").cloned(),
            values,
        }
    }
}
