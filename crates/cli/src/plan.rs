//! `fullbore cp`: from values to a plan, or to what is wrong with them together.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use fullbore::client;
use fullbore::config::destination::{Location, Remote};
use fullbore::config::ssh_config::{self, ConfigFile, HostConfig, Request};
use fullbore::driver::environment::Machine;
use fullbore::transfer::Options;
use fullbore::transfer::lanes::{Caps, default_caps};

use crate::args::{ConnectionValues, CopyValues};

/// What a copy does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyPlan {
    /// Sources in order; those beside each other on one place together.
    pub(crate) sources: Vec<Source>,
    /// Where they go.
    pub(crate) target: Place,
    /// The path there.
    pub(crate) target_path: Vec<u8>,
    /// Several sources, or a pattern that may be several: the target must be a folder.
    pub(crate) needs_folder: bool,
    pub(crate) options: Options,
    /// Kbit/s.
    pub(crate) limit: Option<u64>,
    /// What all windows here may add up to, in bytes.
    pub(crate) window_budget: Option<u64>,
    /// How many lanes and connections a large file may use.
    pub(crate) caps: Caps,
    /// The command that has a far end go on over UDP, where that is wanted.
    pub(crate) udp_server: Option<String>,
    /// `-o` and the flags that stand for one, the flags first: they were asked for by name.
    pub(crate) ssh_options: Vec<String>,
    pub(crate) config_file: ConfigFile,
    pub(crate) report: Report,
    /// How much is told beside: `-v`.
    pub(crate) verbosity: u8,
}

fn caps(values: &CopyValues) -> Caps {
    let Caps {
        channels,
        connections,
    } = default_caps();
    let count = |given: Option<u64>, default| given.map_or(default, |n| n as usize);
    Caps {
        channels: count(values.lanes, channels),
        connections: count(values.connections, connections),
    }
}

/// Paths on one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) place: Place,
    /// Local: as they are. Remote: patterns.
    pub(crate) paths: Vec<Vec<u8>>,
}

/// This machine or another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Local,
    Remote {
        user: Option<String>,
        host: String,
        port: Option<u16>,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place::Remote { user, host, .. } = self else {
            return f.write_str("this machine");
        };
        if let Some(user) = user {
            write!(f, "{user}@")?;
        }
        write!(f, "{host}:")
    }
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// Errors only.
    Quiet,
    /// A line that changes, if there is a terminal, and a summary.
    Person,
    /// JSON lines.
    Json,
}

impl CopyPlan {
    /// Whether what looks like a host may have been meant as one: `cp FILE HOST`, the colon left out.
    pub(crate) fn names_no_host(&self) -> bool {
        let is_local = |place: &Place| *place == Place::Local;
        is_local(&self.target)
            && self.sources.iter().all(|source| is_local(&source.place))
            && !self.target_path.contains(&b'/')
            && !matches!(self.target_path.as_slice(), b"." | b"..")
    }
}

/// Makes the plan.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn copy_plan(values: &CopyValues) -> Result<CopyPlan, String> {
    let (target, sources) = values
        .places
        .split_last()
        .filter(|(_, sources)| !sources.is_empty())
        .ok_or("cp: a source and a target are needed")?;
    let (target, target_path) = place(target)?;
    let sources = grouped(sources)?;
    let paths_count: usize = sources.iter().map(|source| source.paths.len()).sum();
    Ok(CopyPlan {
        sources,
        target,
        target_path,
        needs_folder: paths_count > 1,
        options: Options {
            recursive: values.recursive,
            preserve: values.preserve,
            resume: !values.no_resume,
            verify: values.verify,
            fsync: values.fsync,
            in_place: values.in_place,
            ..Options::default()
        },
        limit: values.limit,
        window_budget: values.window_budget,
        caps: caps(values),
        udp_server: values.udp_server.clone(),
        ssh_options: ssh_options(&values.connection, values.verbosity, values.quiet),
        config_file: config_file(&values.connection),
        report: match (values.json, values.quiet) {
            (true, _) => Report::Json,
            (false, true) => Report::Quiet,
            (false, false) => Report::Person,
        },
        verbosity: values.verbosity,
    })
}

fn place(argument: &OsStr) -> Result<(Place, Vec<u8>), String> {
    match Location::parse(argument).map_err(|error| format!("cp: {error}"))? {
        Location::Local(path) => Ok((Place::Local, path.as_os_str().as_bytes().to_vec())),
        Location::Remote(remote) => {
            let place = Place::Remote {
                user: remote.user,
                host: remote.host,
                port: remote.port,
            };
            Ok((place, remote.path))
        }
    }
}

fn grouped(arguments: &[std::ffi::OsString]) -> Result<Vec<Source>, String> {
    let mut sources: Vec<Source> = Vec::new();
    for argument in arguments {
        let (place, path) = place(argument)?;
        match sources.last_mut() {
            Some(last) if last.place == place => last.paths.push(path),
            _ => sources.push(Source {
                place,
                paths: vec![path],
            }),
        }
    }
    Ok(sources)
}

/// Which files configure hosts.
pub(crate) fn config_file(connection: &ConnectionValues) -> ConfigFile {
    match &connection.config_file {
        None => ConfigFile::UserAndSystem,
        Some(file) if file.as_os_str().eq_ignore_ascii_case("none") => ConfigFile::None,
        Some(file) => ConfigFile::Only(file.clone()),
    }
}

/// What the configuration says of a host, behind the `flags`.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn resolve(
    connection: &ConnectionValues,
    remote: &Remote,
    flags: Vec<String>,
) -> Result<HostConfig, String> {
    let port = remote.port.map(|port| format!("Port={port}"));
    let options: Vec<String> = port.into_iter().chain(flags).collect();
    let request = Request {
        host: &remote.host,
        user: remote.user.as_deref(),
        options: &options,
        config_file: config_file(connection),
    };
    let defaults = client::algorithm_defaults();
    ssh_config::resolve(&Machine, &defaults, &request).map_err(|error| error.to_string())
}

/// A host as it is named on the command line, with or without a colon or a folder behind it; `command`
/// is whose argument it is.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn remote(command: &str, host: &OsStr) -> Result<Remote, String> {
    let parsed =
        |word: &OsStr| Location::parse(word).map_err(|error| format!("{command}: {error}"));
    if let Location::Remote(remote) = parsed(host)? {
        return Ok(remote);
    }
    // A bare name is a host: nothing else is asked for.
    let mut with_colon = host.to_owned();
    with_colon.push(":");
    match parsed(&with_colon)? {
        Location::Remote(remote) => Ok(remote),
        Location::Local(_) => Err(format!(
            "{command}: {} is no host; write [user@]host or [user@]host:folder",
            host.display()
        )),
    }
}

/// `-o` and the flags that stand for one, the flags first: they were asked for by name.
pub(crate) fn ssh_options(
    connection: &ConnectionValues,
    verbosity: u8,
    is_quiet: bool,
) -> Vec<String> {
    let mut options = Vec::new();
    let mut add = |key: &str, value: &str| options.push(format!("{key}={value}"));
    if let Some(port) = connection.port {
        add("Port", &port.to_string());
    }
    for file in &connection.identities {
        add("IdentityFile", &quoted(file));
    }
    if let Some(jump) = &connection.jump {
        add("ProxyJump", &quoted(jump));
    }
    if let Some(ciphers) = &connection.ciphers {
        add("Ciphers", &quoted(ciphers));
    }
    if connection.ipv4 {
        add("AddressFamily", "inet");
    }
    if connection.ipv6 {
        add("AddressFamily", "inet6");
    }
    if connection.compression {
        add("Compression", "yes");
    }
    if connection.batch {
        add("BatchMode", "yes");
    }
    if verbosity > 0 {
        let level = ["VERBOSE", "DEBUG1", "DEBUG2", "DEBUG3"];
        let index = usize::from(verbosity).min(level.len()) - 1;
        add("LogLevel", level[index]);
    } else if is_quiet {
        add("LogLevel", "QUIET");
    }
    options.extend(connection.options.iter().cloned());
    options
}

/// A word as ssh_config reads it back.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Task};

    fn plan(arguments: &[&str]) -> Result<CopyPlan, String> {
        let words = ["fullbore", "cp"].iter().chain(arguments);
        let words: Vec<_> = words.map(std::ffi::OsString::from).collect();
        match args::parse(&words)? {
            Task::Copy(values) => copy_plan(&values),
            _ => panic!("cp was asked for"),
        }
    }

    fn host(name: &str) -> Place {
        Place::Remote {
            user: None,
            host: name.to_owned(),
            port: None,
        }
    }

    #[test]
    fn sources_on_one_place_go_together() {
        let plan = plan(&["a", "b", "h:c", "h:d", "e", "g:"]).expect("valid");
        let expected = [
            (Place::Local, vec![b"a".to_vec(), b"b".to_vec()]),
            (host("h"), vec![b"c".to_vec(), b"d".to_vec()]),
            (Place::Local, vec![b"e".to_vec()]),
        ];
        let expected = expected.map(|(place, paths)| Source { place, paths });
        assert_eq!(plan.sources, expected);
        assert_eq!((plan.target, plan.target_path), (host("g"), Vec::new()));
        assert!(plan.needs_folder);
    }

    #[test]
    fn flags_become_options_of_ssh_config() {
        let plan = plan(&[
            "-4",
            "-C",
            "-B",
            "-P",
            "2222",
            "-i",
            "my \"key\"",
            "-J",
            "a,b",
            "-c",
            "aes128-ctr",
            "-vv",
            "-o",
            "Port=1",
            "-F",
            "none",
            "x",
            "h:",
        ])
        .expect("valid");
        let expected = [
            "Port=2222",
            "IdentityFile=\"my \\\"key\\\"\"",
            "ProxyJump=\"a,b\"",
            "Ciphers=\"aes128-ctr\"",
            "AddressFamily=inet",
            "Compression=yes",
            "BatchMode=yes",
            "LogLevel=DEBUG1",
            "Port=1",
        ];
        assert_eq!(plan.ssh_options, expected);
        assert_eq!(plan.config_file, ConfigFile::None);
    }

    #[test]
    fn switches_reach_the_transfer() {
        let plan = plan(&[
            "-rp",
            "--verify",
            "--no-resume",
            "--fsync",
            "-l",
            "800",
            "--json",
            "x",
            "h:",
        ]);
        let plan = plan.expect("valid");
        let options = &plan.options;
        assert!(options.recursive && options.preserve && options.verify && options.fsync);
        assert!(!options.resume && !options.in_place);
        assert_eq!((plan.limit, plan.report), (Some(800), Report::Json));
        assert!(!plan.needs_folder);
    }

    #[test]
    fn a_host_without_its_colon_is_noticed() {
        let names_no_host = |arguments: &[&str]| plan(arguments).expect("valid").names_no_host();
        assert!(names_no_host(&["a", "h"]) && names_no_host(&["/d/a", "b.example.com"]));
        for arguments in [["a", "h:"], ["h:a", "b"], ["a", "./h"], ["a", "."]] {
            assert!(!names_no_host(&arguments), "{arguments:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for arguments in [
            &["x"][..],
            &[],
            &["-4", "-6", "x", "h:"],
            &["-P", "0", "x", "h:"],
            &["-P", "65536", "x", "h:"],
            &["-l", "0", "x", "h:"],
            &["", "h:"],
            &["x", ":y"],
            &["http://h/x", "."],
            &["--frob", "x", "h:"],
            &["-q", "-v", "x", "h:"],
        ] {
            assert!(plan(arguments).is_err(), "{arguments:?}");
        }
    }
}
