//! `fullbore doctor`: connects, measures, and says what limits and what to do.

mod json;
mod report;

use std::rc::Rc;
use std::time::Duration;

use fullbore::client::{self, Asker, Context, Error, Examination};
use fullbore::config::destination::Remote;
use fullbore::config::prompt::Prompter;
use fullbore::config::ssh_config::HostConfig;
use fullbore::config::{Environment, text};
use fullbore::driver::clock::Clock;
use fullbore::driver::environment::Machine;
use fullbore::driver::terminal::{self, Person};
use fullbore::path::doctor::Findings;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::DoctorValues;
use crate::exit::{self, Exit};
use crate::output;
use crate::plan;

/// How long the server may take to hear the goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// The same to remove the temporary file, behind what is on its way to it.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// Examines.
pub(crate) fn run(values: &DoctorValues) -> Exit {
    let remote = match plan::remote("doctor", &values.place) {
        Ok(remote) => remote,
        Err(why) => return exit::usage(&why),
    };
    let host = match configure(values, &remote) {
        Ok(host) => host,
        Err(why) => return no_connection(values, &why),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(&format!("fullbore: cannot start: {}", text::reason(&error)));
            return Exit::Failed;
        }
    };
    let tasks = tokio::task::LocalSet::new();
    let exit = tasks.block_on(&runtime, examine(values, &remote, &host));
    runtime.shutdown_background();
    exit
}

fn configure(values: &DoctorValues, remote: &Remote) -> Result<HostConfig, String> {
    let flags = plan::ssh_options(&values.connection, values.verbosity, false);
    let mut host = plan::resolve(&values.connection, remote, flags)?;
    // The way there is to be measured, not the way to another process.
    host.connection.sharing = None;
    Ok(host)
}

fn no_connection(values: &DoctorValues, why: &str) -> Exit {
    match values.json {
        true => output::print(&json::failed(why)),
        false => output::error(&format!("fullbore: {why}")),
    }
    Exit::Connection
}

async fn examine(values: &DoctorValues, remote: &Remote, host: &HostConfig) -> Exit {
    let environment: Rc<dyn Environment> = Rc::new(Machine);
    let person: Box<dyn Prompter + Send> = Box::new(Person::new(&Machine));
    let context = Context {
        environment,
        asker: match host.auth.batch {
            true => Asker::nobody(),
            false => Asker::new(person),
        },
        config_file: plan::config_file(&values.connection),
        clock: Clock::start(),
        local_window: None,
    };
    let mut interrupts = Interrupts::new();
    let connected = tokio::select! {
        connected = client::connect(host, &context) => connected,
        exit = interrupts.next() => return exit,
    };
    let sftp = match connected {
        Ok(sftp) => sftp,
        Err(error) => return no_connection(values, &error.to_string()),
    };
    let connection = sftp.connection().clone();
    let folder = folder(&remote.path);
    let examination = Examination::new(sftp, context.clock, values.time, folder);
    let tell = |doing: &str| {
        if !values.json {
            output::error(&format!("{doing} ..."));
        }
    };
    let exit = tokio::select! {
        found = examination.run(&tell) => report(values, host, found),
        exit = interrupts.next() => exit,
    };
    let clean_up = tokio::time::timeout(CLEAN_UP_TIMEOUT, examination.clean_up());
    tokio::select! {
        _ = clean_up => {}
        // Asked for a second time.
        _ = interrupts.next() => {}
    }
    if let Some(path) = examination.left() {
        let path = text::escape_for_display(&path);
        let host = &host.original_host;
        output::error(&format!(
            "fullbore: {host}:{path} may have stayed: remove it there"
        ));
    }
    let _ = tokio::time::timeout(GOODBYE_TIMEOUT, connection.close()).await;
    exit
}

/// Where a temporary file is wanted, if one is: sessions start in the home folder.
fn folder(path: &[u8]) -> Option<Vec<u8>> {
    match path.strip_prefix(b"~/").unwrap_or(path) {
        b"" if path.is_empty() => None,
        b"" | b"~" => Some(b".".to_vec()),
        path => Some(path.to_vec()),
    }
}

fn report(values: &DoctorValues, host: &HostConfig, found: Result<Findings, Error>) -> Exit {
    let found = match found {
        Ok(found) => found,
        Err(error) if error.is_fatal() => return no_connection(values, &error.to_string()),
        Err(error) => {
            let why = format!("{}: {error}", host.original_host);
            match values.json {
                true => output::print(&json::failed(&why)),
                false => output::error(&format!("fullbore: {why}")),
            }
            return Exit::Failed;
        }
    };
    let name = format!("{}@{} port {}", host.user, host.host_name, host.port);
    match values.json {
        true => output::print(&json::findings(&name, &found)),
        false => output::print(&report::text(&name, &found)),
    }
    if !found.gaps.is_empty() {
        return Exit::Failed;
    }
    Exit::Done
}

/// Ctrl-C and SIGTERM.
struct Interrupts(Option<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)>);

impl Interrupts {
    fn new() -> Interrupts {
        let interrupt = signal(SignalKind::interrupt());
        Interrupts(interrupt.ok().zip(signal(SignalKind::terminate()).ok()))
    }

    /// How to end when one comes.
    async fn next(&mut self) -> Exit {
        let Some((interrupt, terminate)) = &mut self.0 else {
            return std::future::pending().await;
        };
        let exit = tokio::select! {
            _ = interrupt.recv() => Exit::Interrupted,
            // 128 and SIGTERM's number.
            _ = terminate.recv() => Exit::Code(143),
        };
        terminal::restore();
        exit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_measured_only_where_one_is_named() {
        assert_eq!(folder(b""), None);
        for (path, wanted) in [
            (&b"~"[..], &b"."[..]),
            (b"~/", b"."),
            (b"~/a", b"a"),
            (b"/srv", b"/srv"),
            (b".", b"."),
        ] {
            assert_eq!(folder(path).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn a_bare_name_is_a_host_and_a_path_is_none() {
        let place_of = |word: &str| plan::remote("doctor", word.as_ref());
        assert_eq!(place_of("me@server").expect("a host").host, "server");
        let remote = place_of("server:/srv").expect("a host");
        assert_eq!(
            (remote.host.as_str(), &remote.path[..]),
            ("server", &b"/srv"[..])
        );
        assert!(place_of("./file").is_err());
        assert!(place_of("/srv").is_err());
    }
}
