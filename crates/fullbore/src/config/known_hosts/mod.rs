//! known_hosts: which host keys are believed (sshd(8) SSH_KNOWN_HOSTS FILE FORMAT).
//!
//! `entry` reads and writes lines, `lookup` decides about a key that a host offers, `update` remembers
//! a new one. Keys are kept as blobs, so that a file with types unknown to this build still works.

mod entry;
mod lookup;
mod update;

use std::path::{Path, PathBuf};

pub use entry::{Entry, HashedName, Hosts, Marker};
pub use lookup::{Conflict, KnownTypes, Offer, Verdict, order_host_key_algorithms};
pub use update::{new_line, remember};

use super::{Environment, FILE_BYTES_MAX, text};

/// The most entries that are kept, over all files. Ours: bounds memory at some hundred MiB whatever
/// the files hold.
pub const ENTRIES_MAX: usize = 1 << 20;

/// The names under which a host's keys are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    /// `host`, `[host]:port` for a port other than 22, or the HostKeyAlias; in lower case.
    pub lookup: String,
    /// The plain host, tried for an unknown key when `lookup` has a port in it.
    pub without_port: Option<String>,
    /// The name that a certificate must be for.
    pub principal: String,
}

impl HostName {
    /// Names of a host; `alias` is HostKeyAlias, which stands for name and port.
    #[must_use]
    pub fn new(host: &str, port: u16, alias: Option<&str>) -> HostName {
        let plain = alias.unwrap_or(host).to_lowercase();
        if alias.is_some() || port == 22 {
            return HostName {
                lookup: plain.clone(),
                without_port: None,
                principal: plain,
            };
        }
        HostName {
            lookup: format!("[{plain}]:{port}"),
            without_port: Some(plain.clone()),
            principal: plain,
        }
    }
}

/// The entries of all known_hosts files, in order.
#[derive(Debug, Clone, Default)]
pub struct KnownHosts {
    files: Vec<PathBuf>,
    entries: Vec<Entry>,
    /// Lines that were passed over, for the user to know at `-v`.
    pub warnings: Vec<String>,
}

impl KnownHosts {
    /// Reads the files that exist. A file that cannot be read, and a line that does not parse, are
    /// noted in `warnings` and passed over, as OpenSSH does.
    pub fn load<'a>(
        environment: &dyn Environment,
        files: impl IntoIterator<Item = &'a PathBuf>,
    ) -> KnownHosts {
        let mut known = KnownHosts::default();
        for file in files {
            match environment.read_file(file, FILE_BYTES_MAX) {
                Ok(content) => known.add(file, &content),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    known
                        .warnings
                        .push(format!("{}: {}", file.display(), text::reason(&error)))
                }
            }
        }
        known
    }

    /// Adds a file's content behind what is there.
    pub fn add(&mut self, file: &Path, content: &[u8]) {
        let file_index = self.files.len();
        self.files.push(file.to_owned());
        for line in text::lines(content) {
            let (number, parsed) = match line {
                Ok(line) => (line.number, Entry::parse(line.text)),
                Err(number) => (number, Err("line too long")),
            };
            let parsed = match parsed {
                Ok(Some(_)) if self.entries.len() >= ENTRIES_MAX => Err("too many entries"),
                other => other,
            };
            match parsed {
                Ok(None) => {}
                Ok(Some(mut entry)) => {
                    entry.file = file_index;
                    entry.line = number;
                    self.entries.push(entry);
                }
                Err(why) => self.warn(file, number, why),
            }
        }
    }

    /// Beyond the limit further remarks are dropped: one bad file shall not fill memory with them.
    fn warn(&mut self, file: &Path, line: usize, why: &str) {
        const WARNINGS_MAX: usize = 100;
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings
                .push(format!("{} line {line}: {why}", file.display()));
        }
    }

    /// The file that an entry came from.
    #[must_use]
    pub fn file_of(&self, entry: &Entry) -> &Path {
        &self.files[entry.file]
    }

    /// The entries whose patterns match a name (as it stands in [`HostName::lookup`]).
    pub fn entries_for<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries
            .iter()
            .filter(move |entry| entry.hosts.matches(name))
    }
}

#[cfg(test)]
mod tests;
