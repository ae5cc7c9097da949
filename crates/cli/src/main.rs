//! The program `fullbore`.
//!
//! Arguments become values (`args`), values become a plan (`plan`, `serve`), and a plan is carried
//! out (`copy`, `serve`, `demo`). Called by the name of OpenSSH's `sftp-server`, it is that program.

mod args;
mod copy;
mod doctor;
mod exit;
mod lab;
mod master;
mod output;
mod plan;
mod progress;
mod serve;
mod udp_server;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use args::Task;
use exit::Exit;
use fullbore_lab::demo;

fn main() -> std::process::ExitCode {
    // A limit on the size of files is an error to report, here and in what is served.
    fullbore::driver::signals::ignore_file_size_signal();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    run(&arguments).into()
}

fn run(arguments: &[OsString]) -> Exit {
    let called_as = arguments.first().map(Path::new).and_then(Path::file_name);
    if is_sftp_server(called_as) {
        return sftp_server(arguments);
    }
    // Its options are OpenSSH's own and are not ours to read, but for the one that it lacks.
    if let [program, command, help] = arguments
        && command == "sftp-server"
        && help == "--help"
    {
        return run(&[program.clone(), "help".into(), command.clone()]);
    }
    if arguments.get(1).is_some_and(|word| word == "sftp-server") {
        return sftp_server(&arguments[1..]);
    }
    // The lab starts itself again, with words that are not for a person.
    if let [_, command, link_init, rest @ ..] = arguments
        && command == "lab"
        && link_init == lab::LINK_INIT
    {
        return Exit::Code(fullbore_lab::driver::init::main(rest));
    }
    match args::parse(arguments) {
        Ok(Task::Copy(values)) => match plan::copy_plan(&values) {
            Ok(plan) => copy::run(&plan),
            Err(why) => exit::usage(&why),
        },
        Ok(Task::Doctor(values)) => doctor::run(&values),
        Ok(Task::Serve(values)) => serve::run(&values),
        Ok(Task::UdpServer(values)) => udp_server::run(&values),
        Ok(Task::HashPassword) => serve::hash_password(),
        Ok(Task::Demo) => demo(),
        Ok(Task::Lab(values)) => lab::run(values),
        Ok(Task::Master(values)) => master::run(&values),
        Ok(Task::Completions(shell)) => args::print_completions(shell),
        Ok(Task::Printed(exit)) => exit,
        Err(why) => exit::usage(&why),
    }
}

/// Whether the program was called by the name of the drop-in.
fn is_sftp_server(called_as: Option<&OsStr>) -> bool {
    called_as.is_some_and(|name| name == "sftp-server" || name == "fullbore-sftp-server")
}

/// The drop-in; `arguments` begin with its name.
fn sftp_server(arguments: &[OsString]) -> Exit {
    let code = fullbore::server::sftp_server::main(arguments.iter().skip(1).cloned());
    Exit::Code(u8::try_from(code).unwrap_or(u8::MAX))
}

/// The main job with nothing else installed.
fn demo() -> Exit {
    output::print(&format!("{}\n", demo::HEAD));
    match demo::run(|row| output::print(&format!("{row}\n"))) {
        Ok(rows) if rows.iter().all(|row| row.is_same) => Exit::Done,
        Ok(_) => Exit::Failed,
        Err(error) => {
            output::error(&format!("fullbore: demo: {error}"));
            Exit::Failed
        }
    }
}
