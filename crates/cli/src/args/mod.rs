//! The command line: from words to values. What they mean together is decided by `plan` and `serve`.

mod copy;
mod doctor;
mod lab;
mod master;
mod serve;
mod udp_server;

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

pub(crate) use copy::{ConnectionValues, CopyValues, window_budget};
pub(crate) use doctor::DoctorValues;
pub(crate) use lab::{LabValues, Scenario, ScenarioValues};
pub(crate) use master::{MasterTask, MasterValues};
pub(crate) use serve::{FLAGS as SERVE_FLAGS, Kind, ServeValues};
pub(crate) use udp_server::UdpServerValues;

use crate::exit::Exit;
use crate::output;

/// What to do.
pub(crate) enum Task {
    /// `cp`
    Copy(CopyValues),
    /// `doctor`
    Doctor(DoctorValues),
    /// `serve`
    Serve(ServeValues),
    /// `udp-server`
    UdpServer(UdpServerValues),
    /// `hash-password`
    HashPassword,
    /// `demo`
    Demo,
    /// `lab`
    Lab(LabValues),
    /// `master`
    Master(MasterValues),
    /// `completions`
    Completions(clap_complete::Shell),
    /// Help or the version was asked for, and has been printed.
    Printed(Exit),
}

const ABOUT: &str = "Moves files over SSH as fast as the path allows";

const EXAMPLES: &str = "\
Examples:
  fullbore cp report.pdf server:                  to the home folder there
  fullbore cp -r user@server:/srv/data ./data     a folder from there
  fullbore cp --verify -P 2222 big.iso server:/tmp/
  fullbore doctor server                          what limits the way there, and the remedy
  fullbore serve --root /srv/files --read-only    a file server in one process
  fullbore demo                                   the whole thing on this machine

`fullbore COMMAND --help` tells more of each.";

/// The whole command line.
pub(crate) fn command() -> Command {
    Command::new("fullbore")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(copy::command())
        .subcommand(doctor::command())
        .subcommand(serve::command())
        .subcommand(
            Command::new("hash-password")
                .about("Asks for a password and prints its hash, for `serve --password-hash`"),
        )
        .subcommand(Command::new("demo").about(
            "Shows it all on this machine: a private server, copies up and down, over an emulated link too",
        ))
        .subcommand(lab::command())
        .subcommand(master::command())
        .subcommand(sftp_server_command())
        .subcommand(udp_server::command())
        .subcommand(completions_command())
}

fn sftp_server_command() -> Command {
    Command::new("sftp-server")
        .about("Speaks SFTP on standard input and output, as OpenSSH's sftp-server does")
        .disable_help_flag(true)
        .arg(
            Arg::new("arguments")
                .num_args(0..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .value_parser(value_parser!(OsString))
                .help("OpenSSH's: -d -e -f -h -l -P -p -Q -R -u"),
        )
}

fn completions_command() -> Command {
    Command::new("completions")
        .about("Prints a completion script for a shell")
        .after_help("Example:\n  fullbore completions bash > ~/.local/share/bash-completion/completions/fullbore")
        .arg(
            Arg::new("shell")
                .required(true)
                .value_parser(["bash", "zsh", "fish"])
                .action(ArgAction::Set)
                .help("The shell"),
        )
}

/// Reads the command line.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Task, String> {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return printed_or_wrong(&error),
    };
    let (name, matches) = matches.subcommand().ok_or("a command is missing")?;
    match name {
        "cp" => Ok(Task::Copy(CopyValues::from_matches(matches))),
        "doctor" => Ok(Task::Doctor(DoctorValues::from_matches(matches))),
        "serve" => Ok(Task::Serve(ServeValues::from_matches(matches))),
        "udp-server" => Ok(Task::UdpServer(UdpServerValues::from_matches(matches))),
        "hash-password" => Ok(Task::HashPassword),
        "demo" => Ok(Task::Demo),
        "master" => Ok(Task::Master(MasterValues::from_matches(matches))),
        "lab" => LabValues::from_matches(matches).map(Task::Lab),
        "completions" => shell(matches).map(Task::Completions),
        other => Err(format!("\"{other}\" cannot be used here")),
    }
}

fn shell(matches: &ArgMatches) -> Result<clap_complete::Shell, String> {
    let name = matches.get_one::<String>("shell");
    let name = name.ok_or("a shell is missing")?;
    name.parse()
}

fn printed_or_wrong(error: &clap::Error) -> Result<Task, String> {
    use clap::error::ErrorKind;
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::print(&text);
            Ok(Task::Printed(Exit::Done))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::print_error(&text);
            Ok(Task::Printed(Exit::Failed))
        }
        _ => Err(text.strip_prefix("error: ").unwrap_or(&text).to_owned()),
    }
}

/// Prints a completion script.
pub(crate) fn print_completions(shell: clap_complete::Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "fullbore", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    Exit::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }
}
