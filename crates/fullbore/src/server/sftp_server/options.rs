//! Arguments of `sftp-server`, as getopt(3) reads them for OpenSSH's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use fullbore_sftp::proto::{RequestKind, RequestSet};

use crate::server::store::{Level, User};

const USAGE: &str = "\
usage: sftp-server [-ehR] [-d start_directory] [-f log_facility]
\t[-l log_level] [-P denied_requests]
\t[-p allowed_requests] [-u umask]
       sftp-server -Q protocol_feature
";

/// Where the system log files the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facility(pub u8);

impl Facility {
    /// LOG_AUTH, OpenSSH's default.
    pub const AUTH: Self = Self(4);

    fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_uppercase();
        Some(Self(match name.as_str() {
            "USER" => 1,
            "DAEMON" => 3,
            "AUTH" => 4,
            "AUTHPRIV" => 10,
            local => match local.strip_prefix("LOCAL")?.as_bytes() {
                [digit @ b'0'..=b'7'] => 16 + digit - b'0',
                _ => return None,
            },
        }))
    }
}

/// What the arguments ask for.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-d`, before expansion.
    pub start: Option<OsString>,
    /// `-e`.
    pub log_to_stderr: bool,
    /// `-f`.
    pub facility: Facility,
    /// `-l`.
    pub log_level: Level,
    /// `-p` and `-P` taken together.
    pub requests: RequestSet,
    /// `-R`.
    pub read_only: bool,
    /// `-u`.
    pub umask: Option<u32>,
    /// Complaints about arguments that do not stop the program.
    pub warnings: Vec<String>,
}

/// What came of the arguments.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// Serve.
    Run(Options),
    /// Print and exit.
    Exit {
        /// Exit code.
        code: i32,
        /// For standard output.
        out: String,
        /// For standard error.
        err: String,
    },
}

impl Parsed {
    fn usage(complaint: &str) -> Self {
        Self::Exit {
            code: 1,
            out: String::new(),
            err: format!("{complaint}{USAGE}"),
        }
    }

    fn fatal(message: &str) -> Self {
        Self::Exit {
            code: 255,
            out: String::new(),
            err: format!("{message}\n"),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start: None,
            log_to_stderr: false,
            facility: Facility::AUTH,
            log_level: Level::Error,
            requests: RequestSet::ALL,
            read_only: false,
            umask: None,
            warnings: Vec::new(),
        }
    }
}

/// What `-p` and `-P` gave.
#[derive(Default)]
struct Lists {
    allowed: Option<RequestSet>,
    denied: Option<RequestSet>,
}

impl Options {
    /// Parses the arguments behind the program's name.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Parsed {
        let mut options = Self::default();
        let mut lists = Lists::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let bytes = arg.as_bytes();
            if bytes == b"--" || bytes.first() != Some(&b'-') || bytes.len() < 2 {
                break;
            }
            let mut at = 1;
            while at < bytes.len() {
                let flag = bytes[at];
                at += 1;
                let value = if b"dflPpQu".contains(&flag) {
                    // The rest of the word, or the next word.
                    let value = if at < bytes.len() {
                        Some(OsStr::from_bytes(&bytes[at..]).to_owned())
                    } else {
                        args.next()
                    };
                    at = bytes.len();
                    match value {
                        Some(value) => value,
                        None => {
                            let flag = char::from(flag);
                            return Parsed::usage(&format!(
                                "sftp-server: option requires an argument -- '{flag}'\n"
                            ));
                        }
                    }
                } else {
                    OsString::new()
                };
                // As a login shell, "-c command" is all there is: nothing behind it counts.
                if flag == b'c' {
                    return options.finish(&lists);
                }
                if let Err(parsed) = options.apply(flag, value, &mut lists) {
                    return parsed;
                }
            }
        }
        options.finish(&lists)
    }

    fn finish(mut self, lists: &Lists) -> Parsed {
        if let Some(allowed) = lists.allowed {
            self.requests = allowed;
        }
        if let Some(denied) = lists.denied {
            for kind in RequestKind::ALL {
                if denied.contains(kind) {
                    self.requests.remove(kind);
                }
            }
        }
        Parsed::Run(self)
    }

    fn apply(&mut self, flag: u8, value: OsString, lists: &mut Lists) -> Result<(), Parsed> {
        let text = value.to_string_lossy();
        match flag {
            b'd' => self.start = Some(value),
            b'e' => self.log_to_stderr = true,
            b'R' => self.read_only = true,
            b'f' => match Facility::from_name(&text) {
                Some(facility) => self.facility = facility,
                None => self
                    .warnings
                    .push(format!("Invalid log facility \"{text}\"")),
            },
            b'l' => match level_from_name(&text) {
                Some(level) => self.log_level = level,
                None => self.warnings.push(format!("Invalid log level \"{text}\"")),
            },
            b'u' => match u32::from_str_radix(&text, 8) {
                Ok(mask) if mask <= 0o777 => self.umask = Some(mask),
                Ok(_) | Err(_) => {
                    return Err(Parsed::fatal(&format!("Invalid umask \"{text}\"")));
                }
            },
            b'p' if lists.allowed.is_some() => {
                return Err(Parsed::fatal("Permitted requests already set"));
            }
            b'p' => lists.allowed = Some(requests(&text)),
            b'P' if lists.denied.is_some() => {
                return Err(Parsed::fatal("Refused requests already set"));
            }
            b'P' => lists.denied = Some(requests(&text)),
            b'Q' => return Err(query(&text)),
            b'h' => return Err(Parsed::usage("")),
            other => {
                let complaint = format!("sftp-server: invalid option -- '{}'\n", char::from(other));
                return Err(Parsed::usage(&complaint));
            }
        }
        Ok(())
    }

    /// The start folder with `~`, `%d`, `%u`, `%U` and `%%` expanded, if one was given.
    #[must_use]
    pub fn start_dir(&self, user: Option<&User>, uid: u32) -> Option<PathBuf> {
        let start = self.start.as_ref()?.as_bytes();
        let home = user.map_or(&b"/"[..], |user| &user.home);
        let mut dir = Vec::new();
        let mut rest = start;
        if start == b"~" || start.starts_with(b"~/") {
            dir.extend_from_slice(home);
            rest = &start[1..];
        }
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte != b'%' {
                dir.push(byte);
                continue;
            }
            let Some((&token, tail)) = rest.split_first() else {
                dir.push(b'%');
                break;
            };
            rest = tail;
            match token {
                b'd' => dir.extend_from_slice(home),
                b'u' => match user {
                    Some(user) => dir.extend_from_slice(&user.name),
                    None => dir.extend_from_slice(uid.to_string().as_bytes()),
                },
                b'U' => dir.extend_from_slice(uid.to_string().as_bytes()),
                b'%' => dir.push(b'%'),
                other => dir.extend_from_slice(&[b'%', other]),
            }
        }
        Some(OsString::from_vec(dir).into())
    }
}

/// The requests of a comma-separated list; names nobody knows are ignored, as OpenSSH does.
/// Extensions are known by their short names.
fn requests(list: &str) -> RequestSet {
    let mut set = RequestSet::NONE;
    for name in list.split(',') {
        if let Some(kind) = RequestKind::from_name(name.trim()) {
            set.insert(kind);
        }
    }
    set
}

fn query(feature: &str) -> Parsed {
    if feature != "requests" {
        return Parsed::fatal("Invalid query type");
    }
    let mut out = String::new();
    for kind in RequestKind::ALL {
        out.push_str(kind.name());
        out.push('\n');
    }
    Parsed::Exit {
        code: 0,
        out,
        err: String::new(),
    }
}

fn level_from_name(name: &str) -> Option<Level> {
    Some(match name.to_ascii_uppercase().as_str() {
        "QUIET" => Level::Quiet,
        "FATAL" => Level::Fatal,
        "ERROR" => Level::Error,
        "INFO" => Level::Info,
        "VERBOSE" => Level::Verbose,
        "DEBUG" | "DEBUG1" => Level::Debug1,
        "DEBUG2" => Level::Debug2,
        "DEBUG3" => Level::Debug3,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Parsed {
        Options::parse(args.iter().map(OsString::from))
    }

    fn options(args: &[&str]) -> Options {
        match parse(args) {
            Parsed::Run(options) => options,
            Parsed::Exit { err, .. } => panic!("exits: {err}"),
        }
    }

    fn code(args: &[&str]) -> i32 {
        match parse(args) {
            Parsed::Run(_) => panic!("runs"),
            Parsed::Exit { code, .. } => code,
        }
    }

    #[test]
    fn flags_may_be_joined_and_values_attached() {
        let options = options(&["-eR", "-u022", "-l", "verbose", "-fLOCAL3", "-d%d/in"]);
        assert!(options.log_to_stderr && options.read_only);
        assert_eq!(options.umask, Some(0o022));
        assert_eq!(options.log_level, Level::Verbose);
        assert_eq!(options.facility, Facility(19));
        let user = User {
            name: b"u".to_vec(),
            uid: 7,
            home: b"/home/u".to_vec(),
        };
        let dir = options.start_dir(Some(&user), 7);
        assert_eq!(dir, Some("/home/u/in".into()));
    }

    #[test]
    fn denied_requests_are_taken_out_of_the_allowed_ones() {
        let options = options(&["-p", "open,read,close,nonsense", "-P", "read"]);
        assert!(options.requests.contains(RequestKind::Open));
        assert!(!options.requests.contains(RequestKind::Read));
        assert!(!options.requests.contains(RequestKind::Write));
    }

    #[test]
    fn bad_arguments_end_the_program_as_openssh_ends() {
        assert_eq!(code(&["-h"]), 1);
        assert_eq!(code(&["-x"]), 1);
        assert_eq!(code(&["-u"]), 1);
        assert_eq!(code(&["-u", "1000"]), 255);
        assert_eq!(code(&["-u", "9"]), 255);
        assert_eq!(code(&["-p", "open", "-p", "open"]), 255);
        assert_eq!(code(&["-Q", "requests"]), 0);
        assert_eq!(code(&["-Q", "ciphers"]), 255);
        assert_eq!(options(&["-l", "LOUD"]).warnings.len(), 1);
    }

    #[test]
    fn a_login_shell_ignores_what_follows() {
        assert!(!options(&["-c", "-R"]).read_only);
    }
}
