//! `fullbore master`: its words.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command};

use super::copy::{ConnectionValues, connection_arguments, place};

/// What is wanted of a connection that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MasterTask {
    /// Says whether there is one.
    Check,
    /// Ends it.
    Stop,
}

/// What was written on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MasterValues {
    pub(crate) task: MasterTask,
    pub(crate) connection: ConnectionValues,
    pub(crate) place: OsString,
}

const EXAMPLES: &str = "\
`fullbore cp -o ControlMaster=auto -o ControlPersist=60 ...` leaves a connection behind, for 60 seconds after its
last use; later commands with the same options use it and start at once. The options belong into ssh_config.
ControlPath, where it is set, names the socket, with .fullbore behind it: OpenSSH's own is another.

Examples:
  fullbore master check server
  fullbore master stop -P 2222 me@server

Exit status: 0 when there was one, 255 when there was none.";

/// The definition.
pub(super) fn command() -> Command {
    let task = Arg::new("task")
        .value_name("TASK")
        .required(true)
        .value_parser(["check", "stop"])
        .help("Whether to look for it, or to end it");
    Command::new("master")
        .about("Looks for a connection that an earlier copy has left for others, or ends it")
        .after_help(EXAMPLES)
        .disable_version_flag(true)
        .args(connection_arguments())
        .arg(task)
        .arg(place("host", "HOST", "The server, as it was named to copy"))
}

impl MasterValues {
    /// Takes the values out.
    pub(super) fn from_matches(matches: &ArgMatches) -> MasterValues {
        let task = matches.get_one::<String>("task").map(String::as_str);
        MasterValues {
            task: match task {
                Some("stop") => MasterTask::Stop,
                Some(_) | None => MasterTask::Check,
            },
            connection: ConnectionValues::from_matches(matches),
            place: matches.get_one("host").cloned().unwrap_or_default(),
        }
    }
}
