//! `fullbore doctor`: its flags.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgMatches, Command, value_parser};

use super::copy::{ConnectionValues, connection_arguments, flag, long_flag, option, place};

/// Seconds that each direction is measured for, if not told otherwise: slow start on a path of
/// 200 ms takes about two.
const SECONDS: u64 = 5;

/// What was written on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DoctorValues {
    pub(crate) connection: ConnectionValues,
    pub(crate) json: bool,
    pub(crate) verbosity: u8,
    /// How long each direction is measured.
    pub(crate) time: Duration,
    pub(crate) place: OsString,
}

const EXAMPLES: &str = "\
HOST is [user@]host, [user@]host:folder, or sftp://[user@]host[:port]/folder. Rates are measured with the
server's /dev/null and /dev/zero; with a folder, or where there are no devices, with a temporary file of at
most 256 MiB, which is removed afterwards.

Examples:
  fullbore doctor server
  fullbore doctor --seconds 10 me@server:/srv/data
  fullbore doctor --json -J gate inner

Exit status: 0 when all was measured, 1 when something could not be, 255 without a connection.";

/// The definition.
pub(super) fn command() -> Command {
    Command::new("doctor")
        .about("Measures the way to a server layer by layer, names what limits, and says what to do about it")
        .after_help(EXAMPLES)
        .disable_version_flag(true)
        .args(connection_arguments())
        .arg(
            option("seconds", 's', "N", "How long each direction is measured [default: 5]")
                .value_parser(value_parser!(u64).range(1..=3600)),
        )
        .arg(flag("verbose", 'v', "Say more; -vv says the same, as -v says all there is").action(clap::ArgAction::Count))
        .arg(long_flag("json", "Print what was found as one JSON object"))
        .arg(place("host", "HOST", "The server, with a folder if its disk matters"))
}

impl DoctorValues {
    /// Takes the values out.
    pub(super) fn from_matches(matches: &ArgMatches) -> DoctorValues {
        DoctorValues {
            connection: ConnectionValues::from_matches(matches),
            json: matches.get_flag("json"),
            verbosity: matches.get_count("verbose"),
            time: Duration::from_secs(*matches.get_one("seconds").unwrap_or(&SECONDS)),
            place: matches.get_one("host").cloned().unwrap_or_default(),
        }
    }
}
