//! Runs scenarios, prints what they found and writes the report.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fullbore_lab::backlog::{self, Server};
use fullbore_lab::driver::{machine, sack_kernel, sack_target};
use fullbore_lab::report::{self, Section};
use fullbore_lab::{handbrake, sack, window};

use crate::args::{Scenario, ScenarioValues};
use crate::exit::Exit;
use crate::output;

/// MiB of the burst of READs: 2,048 requests.
const BURST_MIB: u64 = 64;

/// Where Debian, Fedora and others keep OpenSSH's server.
const OPENSSH_SERVERS: [&str; 3] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
];

/// Does what was asked.
pub(super) fn run(values: &ScenarioValues) -> Exit {
    let (mut sections, mut is_right) = (Vec::new(), true);
    for &scenario in &values.scenarios {
        match section(scenario, values) {
            Ok((section, has_succeeded)) => {
                output::print(&format!("{}\n", section.to_text()));
                sections.push(section);
                is_right &= has_succeeded;
            }
            Err(error) => {
                output::error(&format!("fullbore: lab: {error}"));
                return Exit::Failed;
            }
        }
    }
    let page = report::html("fullbore lab", &machine::describe(), &sections);
    match replace(&values.html, page.as_bytes()) {
        Ok(()) => {
            let html = values.html.display();
            output::print_error(&format!("The report with its plots: {html}\n"));
            if is_right { Exit::Done } else { Exit::Failed }
        }
        Err(error) => {
            let html = values.html.display();
            output::error(&format!(
                "fullbore: lab: cannot write the report to {html}: {error}; --html names another place"
            ));
            Exit::Failed
        }
    }
}

/// What a scenario found, and whether it found all that it looked for.
fn section(scenario: Scenario, values: &ScenarioValues) -> io::Result<(Section, bool)> {
    let mut tell = |step: &str| output::print_error(&format!("{step}\n"));
    Ok(match scenario {
        Scenario::Handbrake => {
            let cells = handbrake::run(values.seed, &mut tell);
            (handbrake::section(&cells), true)
        }
        Scenario::Window => (window::run(values.seed, &mut tell).section(), true),
        Scenario::Sack => {
            let found = sack(&values.sack, &mut tell);
            if let Some(path) = &values.json {
                replace(path, (found.to_json() + "\n").as_bytes())?;
            }
            (found.section(), found.failures.is_empty())
        }
        Scenario::Backlog => {
            let folder = OwnFolder::new()?;
            let options = backlog::Options {
                servers: servers(values)?,
                sizes_mib: values.sizes_mib.clone(),
                burst_mib: BURST_MIB,
                rounds: values.rounds,
                folder: folder.0.clone(),
            };
            let outcome = backlog::run(&options, &mut tell)?;
            (outcome.section(), outcome.failures.is_empty())
        }
    })
}

fn sack(options: &sack::Options, tell: &mut dyn FnMut(&str)) -> sack::Found {
    let cpu_clock = fullbore::driver::thread_clock::exact;
    let mut outside = |options: &sack::Options, _, mode, window, rtt| match &options.target {
        Some(target) => sack_target::run(options, target, mode, window, rtt),
        None => sack_kernel::run(options, mode, window, rtt),
    };
    sack::run(options, &cpu_clock, &mut outside, tell)
}

/// A folder of this run's own, gone at its end.
struct OwnFolder(PathBuf);

impl OwnFolder {
    /// In memory where there is some for files, so that no disk is measured.
    fn new() -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let path = parent.join(format!("fullbore-lab-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // What cannot be removed is left; nothing depends on it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The servers that were named; else ours and OpenSSH's.
fn servers(values: &ScenarioValues) -> io::Result<Vec<Server>> {
    if !values.servers.is_empty() {
        return Ok(values.servers.iter().map(named).collect());
    }
    let ours = Server {
        name: "fullbore".to_owned(),
        command: vec![std::env::current_exe()?.into(), "sftp-server".into()],
    };
    let installed = OPENSSH_SERVERS.iter().find(|path| Path::new(path).exists());
    let openssh = installed.map(|&path| Server {
        name: "OpenSSH".to_owned(),
        command: vec![path.into()],
    });
    Ok(std::iter::once(ours).chain(openssh).collect())
}

/// A command, split at blanks; its program's name stands in the tables.
fn named(command: &OsString) -> Server {
    let words = command.as_bytes().split(u8::is_ascii_whitespace);
    let words = words.filter(|word| !word.is_empty());
    let command: Vec<OsString> = words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    let program = command.first().map(Path::new).and_then(Path::file_name);
    Server {
        name: program.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        command,
    }
}

/// Writes a file beside its final name, then renames it.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let written = std::fs::write(&part, content).and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        // The reason for the failure counts, not whether this works.
        let _ = std::fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_split_at_blanks_and_called_by_its_program() {
        let server = named(&"/usr/lib/openssh/sftp-server  -l ERROR".into());
        assert_eq!(server.name, "sftp-server");
        assert_eq!(server.command.len(), 3);
        assert!(named(&" ".into()).command.is_empty());
    }
}
