//! `fullbore sftp-server`: the SFTP server over standard input and output, a drop-in for
//! OpenSSH's sftp-server.

mod log;
mod options;
mod session;

use std::ffi::OsString;
use std::io::Write;

use fullbore_sftp::server::{Config, Server};
use rustix::process::{Resource, getrlimit, getuid};

pub use options::{Facility, Options, Parsed};

use super::store::{self, FileStore, Level, Log, Names, RootPolicy};
use crate::driver::signals::{hide_memory, ignore_file_size_signal};
use log::Logger;

/// Descriptors that the process itself needs: standard streams, the log, and one to spare.
const RESERVED_DESCRIPTOR_COUNT: u64 = 5;

/// Handles offered when the descriptor limit is below what is reserved.
const HANDLE_COUNT_MIN: u32 = 8;

/// Runs the program with the arguments behind its name, and returns its exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    match Options::parse(args) {
        Parsed::Run(options) => run(&options),
        Parsed::Exit { code, out, err } => {
            // Nobody is left to tell when these fail.
            let _ = std::io::stdout().write_all(out.as_bytes());
            let _ = std::io::stderr().write_all(err.as_bytes());
            code
        }
    }
}

/// Serves one session on standard input and output, and returns the exit code: 0 after the end
/// of input, 1 when a stream fails, 11 after an overlong packet, 255 after any other fatal error.
#[must_use]
pub fn run(options: &Options) -> i32 {
    ignore_file_size_signal();
    hide_memory();
    let mut logger = Logger::new(options.log_level, options.facility, options.log_to_stderr);
    for warning in &options.warnings {
        logger.log(Level::Error, format_args!("{warning}"));
    }
    let mut names = Names::default();
    let uid = getuid().as_raw();
    let user = names.user(uid).cloned();
    let user_name = match &user {
        Some(user) => String::from_utf8_lossy(&user.name).into_owned(),
        None => uid.to_string(),
    };
    let client = std::env::var("SSH_CONNECTION")
        .ok()
        .and_then(|value| value.split(' ').next().map(str::to_owned))
        .filter(|address| !address.is_empty())
        .unwrap_or_else(|| "UNKNOWN".to_owned());
    logger.log(
        Level::Info,
        format_args!("session opened for local user {user_name} from [{client}]"),
    );
    if let Some(mask) = options.umask {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
    }
    if let Some(dir) = options.start_dir(user.as_ref(), uid)
        && let Err(error) = std::env::set_current_dir(&dir)
    {
        let dir = dir.display();
        logger.log(
            Level::Error,
            format_args!("chdir to \"{dir}\" failed: {error}"),
        );
    }
    let code = serve(options, logger.clone());
    logger.log(
        Level::Info,
        format_args!("session closed for local user {user_name} from [{client}]"),
    );
    code
}

fn serve(options: &Options, mut logger: Logger) -> i32 {
    let store_options = store::Options {
        log: Some(Box::new(logger.clone())),
        ..store::Options::new(RootPolicy::Whole { start: ".".into() })
    };
    let mut store = match FileStore::new(store_options) {
        Ok(store) => store,
        Err(error) => {
            logger.log(
                Level::Fatal,
                format_args!("cannot open the start folder: {error}"),
            );
            return session::EXIT_FATAL;
        }
    };
    let server = Server::new(config(options));
    let end = session::serve(server, &mut store);
    store.close_all();
    if let Err(error) = &end {
        logger.log(Level::Error, format_args!("{error}"));
    }
    session::exit_code(&end)
}

fn config(options: &Options) -> Config {
    let told = getrlimit(Resource::Nofile)
        .current
        .map_or(0, |limit| limit.saturating_sub(RESERVED_DESCRIPTOR_COUNT));
    let handles_max = match told {
        0 => Config::HANDLES_MAX,
        limit => u32::try_from(limit)
            .unwrap_or(Config::HANDLES_MAX)
            .clamp(HANDLE_COUNT_MIN, Config::HANDLES_MAX),
    };
    Config {
        handles_max,
        handles_told: told,
        requests: options.requests,
        read_only: options.read_only,
        ..Config::default()
    }
}
