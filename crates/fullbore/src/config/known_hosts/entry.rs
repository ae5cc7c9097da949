//! One line of known_hosts.

use aws_lc_rs::hmac;

use crate::config::Environment;
use crate::config::pattern::{self, ListMatch};
use crate::config::public_key::{KeyLine, split_word};
use crate::config::text::{base64_decode, base64_encode};

/// What an entry says about its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// The host's key.
    HostKey,
    /// `@cert-authority`: may sign certificates of these hosts.
    Authority,
    /// `@revoked`: must not be believed, for a host or as an authority.
    Revoked,
}

/// Which hosts an entry is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// Patterns separated by commas, `!` negates.
    Patterns(Vec<u8>),
    /// One name that cannot be read back.
    Hashed(HashedName),
}

impl Hosts {
    /// Whether a name in lower case is meant.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Hosts::Patterns(list) => pattern::matches_host(name.as_bytes(), list) == ListMatch::Yes,
            Hosts::Hashed(hashed) => hashed.is(name),
        }
    }
}

/// Length of salt and hash, in bytes: SHA-1's.
pub const HASH_LEN: usize = 20;

/// `|1|salt|hash`: HMAC-SHA1 of the name, keyed by the salt. The format demands SHA-1; it hides names
/// in a file, nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashedName {
    salt: [u8; HASH_LEN],
    hash: [u8; HASH_LEN],
}

impl HashedName {
    /// Hashes a name in lower case.
    #[must_use]
    pub fn new(name: &str, salt: [u8; HASH_LEN]) -> HashedName {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
        let tag = hmac::sign(&key, name.as_bytes());
        let mut hash = [0; HASH_LEN];
        hash.copy_from_slice(tag.as_ref());
        HashedName { salt, hash }
    }

    /// Hashes a name in lower case with a fresh salt.
    #[must_use]
    pub fn salted(name: &str, environment: &dyn Environment) -> HashedName {
        let mut salt = [0; HASH_LEN];
        environment.fill_random(&mut salt);
        HashedName::new(name, salt)
    }

    /// Reads what [`HashedName::to_text`] made.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<HashedName> {
        let mut parts = text.strip_prefix(b"|1|")?.split(|b| *b == b'|');
        let salt = base64_decode(parts.next()?)?.try_into().ok()?;
        let hash = base64_decode(parts.next()?)?.try_into().ok()?;
        parts.next().is_none().then_some(HashedName { salt, hash })
    }

    /// Whether this is the hash of a name in lower case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        *self == HashedName::new(name, self.salt)
    }

    /// As it stands in the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let (salt, hash) = (base64_encode(&self.salt), base64_encode(&self.hash));
        format!("|1|{salt}|{hash}")
    }
}

/// One usable line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Index into the files that were read.
    pub(super) file: usize,
    /// The line in its file, from 1.
    pub line: usize,
    /// What it says about the key.
    pub marker: Marker,
    /// For which hosts.
    pub hosts: Hosts,
    /// The key.
    pub key: KeyLine,
}

impl Entry {
    /// Reads `[@marker] hosts type base64 [comment]`. `Ok(None)` for blank lines and comments.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn parse(line: &[u8]) -> Result<Option<Entry>, &'static str> {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            return Ok(None);
        }
        let (marker, rest) = split_marker(line)?;
        let (hosts, key) = split_word(rest);
        let hosts = if hosts.first() == Some(&b'|') {
            Hosts::Hashed(HashedName::from_text(hosts).ok_or("a hashed name that does not parse")?)
        } else {
            Hosts::Patterns(hosts.to_vec())
        };
        let key = KeyLine::parse(key).ok_or("no key that parses")?;
        Ok(Some(Entry {
            file: 0,
            line: 0,
            marker,
            hosts,
            key,
        }))
    }
}

fn split_marker(line: &[u8]) -> Result<(Marker, &[u8]), &'static str> {
    if line[0] != b'@' {
        return Ok((Marker::HostKey, line));
    }
    let (word, rest) = split_word(line);
    match word {
        b"@cert-authority" => Ok((Marker::Authority, rest)),
        b"@revoked" => Ok((Marker::Revoked, rest)),
        _ => Err("an unknown marker"),
    }
}
