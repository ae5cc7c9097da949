//! What an earlier connection saw of a server, kept in a file of the user's so that the next one needs
//! fewer round trips.
//!
//! Nothing here is believed: the host key, the login and every answer are checked as at a first
//! contact. A memory that is wrong costs the round trips that it would have saved; where haste made a
//! server end the connection, the caller connects once more without it and has that remembered.
//!
//! The file has a line for each server, the latest last:
//!
//! ```text
//! NAME  HOSTKEY  USERKEY  HASTE  KEX  HOSTKEYALGORITHMS  VERSION
//! NAME  user@[host]:port, or its hash as known_hosts has it (HashKnownHosts)
//! HASTE yes, or no for a server that ended a connection because of it
//! ```
//! Keys are fingerprints (`-` for a login without one), VERSION is base64.

use std::io::ErrorKind;
use std::path::Path;

use fullbore_base::escape_for_display;
use fullbore_ssh::kex::Proposal;

use crate::config::Environment;
use crate::config::known_hosts::HashedName;
use crate::config::ssh_config::{HostConfig, Proxy};
use crate::config::text::{base64_decode, base64_encode, reason};

/// Servers that are remembered; the one whose line is oldest is forgotten first. Ours.
pub const SERVERS_MAX: usize = 256;

/// Bytes of a line: two lists, a version line in base64, a name, two fingerprints.
pub const LINE_BYTES_MAX: usize = 2 * Proposal::LIST_BYTES_MAX + 2048;

/// Bytes of the file that are read.
pub const FILE_BYTES_MAX: usize = SERVERS_MAX * LINE_BYTES_MAX;

/// How an earlier connection saw a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Fingerprint of the host key.
    pub(super) host_key: String,
    /// Fingerprint of the key that let the user in.
    pub(super) user_key: Option<String>,
    /// Whether to send ahead of the server's answers: no, once it ended a connection over that.
    pub(super) bears_haste: bool,
    /// Its key exchange methods, as KEXINIT has them.
    pub(super) kex: String,
    /// Its host key algorithms.
    pub(super) host_keys: String,
    /// Its version line.
    pub(super) version: Vec<u8>,
}

/// Why nothing was read from the file.
enum Unread {
    /// There is none.
    Missing,
    /// It is not ours to use, nor to replace.
    Foreign(String),
    /// It is ours, and nothing that this program writes.
    Useless(String),
}

/// The file, and the line in it that is about one server.
pub(super) struct Memory<'a> {
    environment: &'a dyn Environment,
    file: &'a Path,
    name: String,
    is_hashed: bool,
}

impl<'a> Memory<'a> {
    /// `None` where the configuration wants nothing remembered.
    pub(super) fn of(host: &'a HostConfig, environment: &'a dyn Environment) -> Option<Self> {
        let file = host.connection.remembered_file.as_deref()?;
        let (user, name, port) = (&host.user, &host.host_name, host.port);
        let mut name = format!("{user}@[{name}]:{port}");
        if let Some(Proxy::Command(_) | Proxy::Jump(_)) = host.connection.proxy {
            // The same address behind another proxy is another server.
            name.push('/');
            name.push_str(&host.original_host);
        }
        Some(Self {
            environment,
            file,
            is_hashed: host.host_keys.hash || !is_word(&name) || name.starts_with('|'),
            name: name.to_lowercase(),
        })
    }

    /// What is remembered of the server, and what is wrong with the file, for a person.
    pub(super) fn recall(&self) -> (Option<Seen>, Option<String>) {
        match self.read() {
            Ok(content) => {
                let mut lines = content.split(|&b| b == b'\n');
                let line = lines.rfind(|line| self.is_mine(line));
                let seen = line.map(|line| parse(line).map(|(_, seen)| seen));
                match seen {
                    Some(None) => (None, Some(self.remark("a line that does not parse"))),
                    seen => (seen.flatten(), None),
                }
            }
            Err(Unread::Missing) => (None, None),
            Err(Unread::Foreign(why) | Unread::Useless(why)) => (None, Some(self.remark(&why))),
        }
    }

    /// Remembers the server, unless the file says so already. What is wrong with the file, else.
    ///
    /// # Errors
    /// Why it could not be written, for a person.
    pub(super) fn keep(&self, seen: &Seen) -> Result<(), String> {
        if self.recall().0.as_ref() == Some(seen) {
            return Ok(());
        }
        self.rewrite(Some(seen))
    }

    /// Another program that writes at the same moment may be undone: it will remember again.
    fn rewrite(&self, seen: Option<&Seen>) -> Result<(), String> {
        let content = match self.read() {
            Ok(content) => content,
            // What cannot be used is replaced, but for what others may have a hand in.
            Err(Unread::Missing | Unread::Useless(_)) => Vec::new(),
            Err(Unread::Foreign(why)) => return Err(self.remark(&why)),
        };
        let others = content.split(|&b| b == b'\n');
        let others = others.filter(|line| parse(line).is_some() && !self.is_mine(line));
        let mut lines: Vec<Vec<u8>> = others.map(<[u8]>::to_vec).collect();
        if let Some(line) = seen.and_then(|seen| self.line(seen)) {
            lines.push(line.into_bytes());
        }
        let forgotten = lines.len().saturating_sub(SERVERS_MAX);
        let mut text = lines[forgotten..].join(&b'\n');
        text.push(b'\n');
        self.environment
            .replace_file(self.file, &text)
            .map_err(|error| self.remark(&reason(&error)))
    }

    fn read(&self) -> Result<Vec<u8>, Unread> {
        let facts = match self.environment.file_facts(self.file) {
            Ok(facts) => facts,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Unread::Missing),
            Err(error) => return Err(Unread::Foreign(reason(&error))),
        };
        if facts.uid != self.environment.uid() || facts.mode & 0o022 != 0 {
            return Err(Unread::Foreign("others may write to it".to_owned()));
        }
        let content = self
            .environment
            .read_regular_file(self.file, FILE_BYTES_MAX);
        content.map_err(|error| match error.kind() {
            ErrorKind::InvalidData => Unread::Useless(format!("{error}; begun anew")),
            _ => Unread::Foreign(reason(&error)),
        })
    }

    fn remark(&self, why: &str) -> String {
        format!(
            "{}: not used to save round trips: {why}",
            self.file.display()
        )
    }

    fn is_mine(&self, line: &[u8]) -> bool {
        let name = line.split(|&b| b == b' ').next().unwrap_or_default();
        match name.first() {
            Some(b'|') => HashedName::from_text(name).is_some_and(|hash| hash.is(&self.name)),
            _ => name == self.name.as_bytes(),
        }
    }

    /// `None` for what would not read back.
    fn line(&self, seen: &Seen) -> Option<String> {
        let name = match self.is_hashed {
            true => HashedName::salted(&self.name, self.environment).to_text(),
            false => self.name.clone(),
        };
        let user_key = seen.user_key.as_deref().unwrap_or("-");
        let haste = if seen.bears_haste { "yes" } else { "no" };
        let version = base64_encode(&seen.version);
        let (kex, host_keys) = (&seen.kex, &seen.host_keys);
        let line = format!(
            "{name} {} {user_key} {haste} {kex} {host_keys} {version}",
            seen.host_key
        );
        parse(line.as_bytes()).is_some().then_some(line)
    }
}

/// Whether it can stand in a line of words.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

fn parse(line: &[u8]) -> Option<(&str, Seen)> {
    let line = std::str::from_utf8(line).ok()?;
    if line.len() > LINE_BYTES_MAX {
        return None;
    }
    let words: Vec<&str> = line.split(' ').collect();
    let [name, host_key, user_key, haste, kex, host_keys, version] = words[..] else {
        return None;
    };
    if !words.iter().all(|word| is_word(word)) {
        return None;
    }
    let seen = Seen {
        host_key: host_key.to_owned(),
        user_key: (user_key != "-").then(|| user_key.to_owned()),
        bears_haste: match haste {
            "yes" => true,
            "no" => false,
            _ => return None,
        },
        kex: kex.to_owned(),
        host_keys: host_keys.to_owned(),
        version: base64_decode(version.as_bytes())?,
    };
    Some((name, seen))
}

impl Seen {
    /// In words, for `-v`.
    pub(super) fn describe(&self) -> String {
        format!(
            "remembered as {} with host key {}{}",
            escape_for_display(&self.version),
            self.host_key,
            if self.bears_haste {
                ""
            } else {
                ", which does not bear messages sent ahead"
            },
        )
    }
}

#[cfg(test)]
mod tests;
