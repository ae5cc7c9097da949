//! authorized_keys: who may log in to our server (sshd(8) AUTHORIZED_KEYS FILE FORMAT).
//!
//! `options` reads the options in front of a key; this file reads lines and decides. Options about
//! forwarding, terminals and environment are accepted and change nothing: the server offers none of it.

mod options;
mod time;

use std::fmt;
use std::net::IpAddr;

use fullbore_ssh::cert::{Certificate, CertificateError};

pub use options::{Options, SftpCommand};
pub use time::Expiry;

use super::pattern::{self, ListMatch};
use super::{KeyLine, text};

/// The most entries that are kept. Ours; every login looks at all of them.
pub const ENTRIES_MAX: usize = 1 << 16;

/// One usable line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The line in the file, from 1.
    pub line: usize,
    /// What stands in front of the key.
    pub options: Options,
    /// The key, or the authority's.
    pub key: KeyLine,
}

impl Entry {
    /// Reads `[options] type base64 [comment]`. `Ok(None)` for blank lines and comments.
    ///
    /// # Errors
    /// What is wrong with the line; it must then not let anybody in.
    pub fn parse(line: &[u8]) -> Result<Option<Entry>, String> {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            return Ok(None);
        }
        if let Some(key) = KeyLine::parse(line) {
            let options = Options::default();
            return Ok(Some(Entry {
                line: 0,
                options,
                key,
            }));
        }
        let end = options::end(line).ok_or("a quote is not closed")?;
        let key = KeyLine::parse(&line[end..]).ok_or("no key that parses")?;
        let options = Options::parse(&line[..end])?;
        Ok(Some(Entry {
            line: 0,
            options,
            key,
        }))
    }
}

/// Who asks to log in.
#[derive(Debug, Clone, Copy)]
pub struct Login<'a> {
    /// The user name.
    pub user: &'a [u8],
    /// Where the connection comes from; none if that is no network address.
    pub address: Option<IpAddr>,
    /// The name of that address, if it was looked up.
    pub host_name: Option<&'a [u8]>,
    /// Unix seconds.
    pub now_unix: u64,
    /// What local time is ahead of UTC: `expiry-time` without `Z` is local.
    pub utc_offset_seconds: i64,
}

/// What is shown. The engine has verified that the peer holds the key, and a certificate's signature.
#[derive(Debug, Clone, Copy)]
pub enum Credential<'a> {
    /// A plain key's blob.
    Key(&'a [u8]),
    /// A certificate.
    Certificate(&'a Certificate),
}

/// A login that is allowed, and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The line that allows it.
    pub line: usize,
    /// Options of the SFTP server that `command=` (or the certificate) forces.
    pub command: Option<SftpCommand>,
    /// A security key need not have been touched.
    pub no_touch_required: bool,
    /// A security key must have verified its user.
    pub verify_required: bool,
}

/// Why nobody gets in. For the log; the peer learns nothing of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No line holds the key, or the authority that signed it.
    NotListed,
    /// `from=` does not name the address.
    From {
        /// The line.
        line: usize,
    },
    /// `expiry-time=` has passed.
    Expired {
        /// The line.
        line: usize,
    },
    /// The certificate is not for this.
    Certificate {
        /// The line.
        line: usize,
        /// Why.
        why: CertificateError,
    },
    /// The forced command is not a file server, and nothing else runs here.
    Command {
        /// The line.
        line: usize,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotListed => write!(f, "key is not in authorized_keys"),
            Refusal::From { line } => {
                write!(
                    f,
                    "authorized_keys line {line}: address not allowed by from="
                )
            }
            Refusal::Expired { line } => {
                write!(f, "authorized_keys line {line}: expiry-time has passed")
            }
            Refusal::Certificate { line, why } => write!(f, "authorized_keys line {line}: {why}"),
            Refusal::Command { line } => write!(
                f,
                "authorized_keys line {line}: forced command is no SFTP server"
            ),
        }
    }
}

/// A file of keys that may log in.
#[derive(Debug, Clone, Default)]
pub struct AuthorizedKeys {
    entries: Vec<Entry>,
    /// Lines that let nobody in because something is wrong with them.
    pub warnings: Vec<String>,
}

impl AuthorizedKeys {
    /// Reads a file's content.
    #[must_use]
    pub fn parse(content: &[u8]) -> AuthorizedKeys {
        let mut keys = AuthorizedKeys::default();
        for line in text::lines(content) {
            let (number, parsed) = match line {
                Ok(line) => (line.number, Entry::parse(line.text)),
                Err(number) => (number, Err("the line is too long".to_owned())),
            };
            match parsed {
                Ok(None) => {}
                Ok(Some(_)) if keys.entries.len() >= ENTRIES_MAX => {
                    keys.warn(number, "too many entries");
                }
                Ok(Some(mut entry)) => {
                    entry.line = number;
                    keys.entries.push(entry);
                }
                Err(why) => keys.warn(number, &why),
            }
        }
        keys
    }

    fn warn(&mut self, line: usize, why: &str) {
        const WARNINGS_MAX: usize = 100;
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(format!("line {line}: {why}"));
        }
    }

    /// The usable lines.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Decides about a login: the first line that allows it does. Otherwise the reason of the last
    /// line that holds the key.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check(&self, login: &Login<'_>, credential: Credential<'_>) -> Result<Grant, Refusal> {
        let blob = match credential {
            Credential::Key(blob) => blob.to_vec(),
            Credential::Certificate(certificate) => certificate.ca_key().to_blob(),
        };
        let wants_authority = matches!(credential, Credential::Certificate(_));
        let mut refusal = Refusal::NotListed;
        for entry in &self.entries {
            if entry.key.blob != blob || entry.options.cert_authority != wants_authority {
                continue;
            }
            match entry.check(login, credential) {
                Ok(grant) => return Ok(grant),
                Err(why) => refusal = why,
            }
        }
        Err(refusal)
    }
}

impl Entry {
    fn check(&self, login: &Login<'_>, credential: Credential<'_>) -> Result<Grant, Refusal> {
        let line = self.line;
        let options = &self.options;
        if let Some(expiry) = options.expiry
            && expiry.has_passed(login.now_unix, login.utc_offset_seconds)
        {
            return Err(Refusal::Expired { line });
        }
        if let Some(list) = &options.from {
            let found = login
                .address
                .and_then(|address| pattern::matches_address(address, login.host_name, list));
            if found != Some(ListMatch::Yes) {
                return Err(Refusal::From { line });
            }
        }
        let mut forced = options.command.clone();
        let mut verify_required = options.verify_required;
        let mut no_touch_required = options.no_touch_required;
        if let Credential::Certificate(certificate) = credential {
            self.check_certificate(login, certificate)
                .map_err(|why| Refusal::Certificate { line, why })?;
            verify_required |= certificate.is_verify_required();
            // Both must let it go, as in OpenSSH's sshauthopt_merge.
            no_touch_required &= certificate.has_extension("no-touch-required");
            if let Some(command) = certificate.force_command() {
                // Two different commands: neither may be left out.
                if forced.as_deref().is_some_and(|own| own != command) {
                    return Err(Refusal::Command { line });
                }
                forced = Some(command.to_vec());
            }
        }
        let command = match forced {
            Some(text) => Some(SftpCommand::parse(&text).ok_or(Refusal::Command { line })?),
            None => None,
        };
        Ok(Grant {
            line,
            command,
            no_touch_required,
            verify_required,
        })
    }

    /// With `principals=` one of those must be in the certificate, else the user's name.
    fn check_certificate(
        &self,
        login: &Login<'_>,
        certificate: &Certificate,
    ) -> Result<(), CertificateError> {
        let holds = |name: &[u8]| certificate.valid_for_user(name, login.now_unix, login.address);
        let Some(list) = &self.options.principals else {
            return holds(login.user);
        };
        let mut verdict = Err(CertificateError::NoPrincipals);
        for name in list.split(|b| *b == b',').filter(|name| !name.is_empty()) {
            verdict = holds(name);
            if verdict.is_ok() {
                break;
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests;
