//! Who may log in: authorized_keys files, read again when they change, and a password.

use std::fs;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fullbore_ssh::auth::{AuthAnswer, Credential, Method, MethodSet};
use fullbore_ssh::key::{PublicKey, Secret, SkPolicy};

use super::log::Log;
use super::password::PasswordHash;
use crate::config::authorized_keys::{self, AuthorizedKeys, Grant, Login, SftpCommand};
use crate::config::{FILE_BYTES_MAX, fingerprint, text::escape_for_display};
use crate::driver::environment::open_regular;
use crate::driver::local_time::utc_offset_seconds;

/// What a login may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Nothing may be changed.
    pub read_only: bool,
}

/// What becomes of a credential.
#[derive(Debug)]
pub enum Verdict {
    /// The answer, and what was granted with it.
    Answer(AuthAnswer, Rights),
    /// Checking the password takes long: this says whether it is right.
    Check(PasswordHash, Secret),
}

/// A file of keys as it was read last.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    /// Device, inode, size and time of change.
    seen: Option<(u64, u64, u64, i64, i64)>,
    keys: AuthorizedKeys,
}

/// The rules for all connections of one thread.
#[derive(Debug)]
pub struct Policy {
    user: Option<String>,
    password: Option<PasswordHash>,
    files: Vec<KeyFile>,
    log: Log,
}

impl Policy {
    /// The rules that `files`, a user name and a password make.
    #[must_use]
    pub fn new(
        files: &[PathBuf],
        user: Option<String>,
        password: Option<PasswordHash>,
        log: Log,
    ) -> Self {
        let files = files.iter().map(|path| KeyFile {
            path: path.clone(),
            seen: None,
            keys: AuthorizedKeys::default(),
        });
        Self {
            user,
            password,
            files: files.collect(),
            log,
        }
    }

    /// What is offered to clients.
    #[must_use]
    pub fn methods(&self) -> MethodSet {
        let methods = MethodSet::of(&[Method::PublicKey]);
        if self.password.is_none() {
            return methods;
        }
        methods
            .with(Method::Password)
            .with(Method::KeyboardInteractive)
    }

    /// Decides about what a client shows.
    pub fn judge(
        &mut self,
        user: &[u8],
        from: Option<IpAddr>,
        credential: &Credential<'_>,
        log: &Log,
    ) -> Verdict {
        let refused = Verdict::Answer(AuthAnswer::Reject, Rights::default());
        let is_user_right = self.user.as_ref().is_none_or(|u| u.as_bytes() == user);
        match *credential {
            Credential::None => refused,
            Credential::KeyQuery { key, certificate }
            | Credential::Key {
                key, certificate, ..
            } => {
                let is_proof = matches!(credential, Credential::Key { .. });
                let shown = match certificate {
                    Some(certificate) => authorized_keys::Credential::Certificate(certificate),
                    None => authorized_keys::Credential::Key(&key.to_blob()),
                };
                let what = describe(key, certificate.is_some());
                if !is_user_right {
                    self.refuse(log, user, &what, "no such user", is_proof);
                    return refused;
                }
                let verdict = self.check_key(user, from, shown, credential);
                match verdict {
                    Ok((answer, rights)) => {
                        if is_proof {
                            let user = escape_for_display(user);
                            log.line(format_args!("accepted {what} for {user}"));
                        }
                        Verdict::Answer(answer, rights)
                    }
                    Err(why) => {
                        self.refuse(log, user, &what, &why, is_proof);
                        refused
                    }
                }
            }
            Credential::Password(password) => self.judge_password(is_user_right, password),
            Credential::Interactive { answers, .. } => match answers {
                [password] => self.judge_password(is_user_right, password),
                _ => refused,
            },
            Credential::PasswordChange { .. } => refused,
        }
    }

    /// The hash of a password is checked for users that do not exist too, so that the time taken
    /// does not tell which do.
    fn judge_password(&self, is_user_right: bool, password: &Secret) -> Verdict {
        let Some(hash) = &self.password else {
            return Verdict::Answer(AuthAnswer::Reject, Rights::default());
        };
        let hash = if is_user_right {
            hash.clone()
        } else {
            hash.never()
        };
        Verdict::Check(hash, Secret::new(password.expose().to_vec()))
    }

    fn refuse(&self, log: &Log, user: &[u8], what: &str, why: &str, is_proof: bool) {
        // Queries come by the dozen from every agent; only what was proved is worth a line.
        if is_proof {
            let user = escape_for_display(user);
            log.line(format_args!("refused {what} for {user}: {why}"));
        }
    }

    fn check_key(
        &mut self,
        user: &[u8],
        from: Option<IpAddr>,
        shown: authorized_keys::Credential<'_>,
        credential: &Credential<'_>,
    ) -> Result<(AuthAnswer, Rights), String> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_unix = since.map_or(0, |since| since.as_secs());
        let login = Login {
            user,
            address: from,
            host_name: None,
            now_unix,
            utc_offset_seconds: utc_offset_seconds(i64::try_from(now_unix).unwrap_or(0)),
        };
        let mut why = "no authorized_keys file".to_owned();
        for i in 0..self.files.len() {
            self.refresh(i);
            match self.files[i].keys.check(&login, shown) {
                Ok(grant) => return accept(&grant, credential),
                Err(refusal) => why = refusal.to_string(),
            }
        }
        Err(why)
    }

    /// Reads a file again if it has changed since.
    fn refresh(&mut self, i: usize) {
        let file = &mut self.files[i];
        let facts = fs::metadata(&file.path).ok();
        let seen = facts.map(|f| (f.dev(), f.ino(), f.size(), f.mtime(), f.mtime_nsec()));
        if seen == file.seen {
            return;
        }
        file.seen = seen;
        file.keys = AuthorizedKeys::default();
        let path = file.path.display();
        match seen {
            None => {}
            Some((_, _, size, ..)) if size > FILE_BYTES_MAX as u64 => {
                self.log.line(format_args!("{path}: too long, not used"));
            }
            Some(_) => match read(&file.path) {
                Ok(content) => file.keys = AuthorizedKeys::parse(&content),
                Err(error) => self.log.line(format_args!("{path}: {error}")),
            },
        }
        for warning in &file.keys.warnings {
            self.log.line(format_args!("{path}: {warning}"));
        }
    }

    /// Keys that may log in now.
    pub fn key_count(&mut self) -> usize {
        (0..self.files.len())
            .map(|i| {
                self.refresh(i);
                self.files[i].keys.entries().len()
            })
            .sum()
    }
}

fn accept(grant: &Grant, credential: &Credential<'_>) -> Result<(AuthAnswer, Rights), String> {
    if let Credential::Key { sk, .. } = *credential {
        let policy = SkPolicy {
            presence_required: !grant.no_touch_required,
            verification_required: grant.verify_required,
        };
        policy.check(sk).map_err(|error| error.to_string())?;
    }
    let rights = match &grant.command {
        None => Rights::default(),
        Some(command) => rights_of(command)?,
    };
    let answer = if grant.no_touch_required {
        AuthAnswer::AcceptWithoutTouch
    } else {
        AuthAnswer::Accept
    };
    Ok((answer, rights))
}

/// What the arguments of a forced sftp-server leave. Those that would restrict it further are not
/// known here, so they let nobody in rather than let too much through.
fn rights_of(command: &SftpCommand) -> Result<Rights, String> {
    let mut rights = Rights::default();
    let mut arguments = command.arguments.iter().map(Vec::as_slice);
    while let Some(argument) = arguments.next() {
        match argument {
            b"-R" => rights.read_only = true,
            b"-e" => {}
            b"-l" | b"-f" => {
                arguments.next();
            }
            other => {
                let other = escape_for_display(other);
                return Err(format!("forced command: {other} is not supported here"));
            }
        }
    }
    Ok(rights)
}

fn describe(key: &PublicKey, is_certificate: bool) -> String {
    let what = if is_certificate {
        "certificate of "
    } else {
        ""
    };
    let name = key.key_type().name();
    format!("{what}key {name} {}", fingerprint(&key.to_blob()))
}

/// Never waits for a pipe: all logins would.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = open_regular(path)?;
    file.take(FILE_BYTES_MAX as u64).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::random::SystemRandom;
    use crate::server::serve::host_key;
    use crate::server::serve::log::NoLog;
    use std::sync::Arc;

    fn key() -> PublicKey {
        let key = host_key::make(&mut SystemRandom::new()).expect("a key");
        key.public_key().clone()
    }

    fn is_accepted(policy: &mut Policy, user: &str, key: &PublicKey) -> bool {
        let credential = Credential::KeyQuery {
            key,
            certificate: None,
        };
        let log = Log::new(Arc::new(NoLog));
        let verdict = policy.judge(user.as_bytes(), None, &credential, &log);
        matches!(verdict, Verdict::Answer(AuthAnswer::Accept, _))
    }

    #[test]
    fn a_changed_file_counts_at_the_next_login() {
        let folder = fullbore_testkit::Folder::new("authorized");
        let path = folder.0.join("authorized_keys");
        let log = Log::new(Arc::new(NoLog));
        let mut policy = Policy::new(std::slice::from_ref(&path), None, None, log);
        let key = key();
        assert!(!is_accepted(&mut policy, "u", &key));
        fs::write(&path, key.to_line("me")).expect("written");
        assert!(is_accepted(&mut policy, "u", &key));
        fs::remove_file(&path).expect("removed");
        assert!(!is_accepted(&mut policy, "u", &key));
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_lets_nobody_in_and_is_not_waited_for() {
        let folder = fullbore_testkit::Folder::new("pipe");
        let path = folder.0.join("authorized_keys");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo runs").success());
        let log = Log::new(Arc::new(NoLog));
        let mut policy = Policy::new(&[path], None, None, log);
        assert!(!is_accepted(&mut policy, "u", &key()));
    }

    #[test]
    fn only_the_named_user_gets_in() {
        let folder = fullbore_testkit::Folder::new("user");
        let path = folder.0.join("authorized_keys");
        let key = key();
        fs::write(&path, key.to_line("me")).expect("written");
        let log = Log::new(Arc::new(NoLog));
        let mut policy = Policy::new(&[path], Some("u".to_owned()), None, log);
        assert!(is_accepted(&mut policy, "u", &key));
        assert!(!is_accepted(&mut policy, "root", &key));
    }

    #[test]
    fn forced_commands_restrict_or_refuse() {
        let of = |text: &str| rights_of(&SftpCommand::parse(text.as_bytes()).expect("sftp"));
        assert_eq!(of("internal-sftp"), Ok(Rights { read_only: false }));
        assert_eq!(
            of("internal-sftp -R -l INFO"),
            Ok(Rights { read_only: true })
        );
        assert!(of("internal-sftp -P read").is_err());
    }
}
