//! What known_hosts says about a key that a host offers.

use std::path::PathBuf;

use fullbore_ssh::cert::{Certificate, CertificateError};

use super::{Entry, HostName, KnownHosts, Marker};
use crate::config::public_key::{blob_algorithm, fingerprint};

/// What the host shows.
#[derive(Debug, Clone, Copy)]
pub enum Offer<'a> {
    /// A plain key's blob.
    Key(&'a [u8]),
    /// A certificate, its CA signature already verified.
    Certificate(&'a Certificate),
}

/// An entry that holds another key for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The known key's type.
    pub algorithm: String,
    /// The known key's fingerprint.
    pub fingerprint: String,
}

/// The verdict about an offered key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The key is known for this host.
    Trusted {
        /// Where it stands.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The certificate is signed by an authority for this host, and holds now.
    TrustedByAuthority {
        /// Where the authority stands.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The host is not known.
    Unknown,
    /// The host is known by other keys only.
    Changed(Vec<Conflict>),
    /// The key, or the authority that signed it, is marked as revoked for this host.
    Revoked {
        /// Where it stands.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// Signed by an authority for this host, but does not hold: wrong name, expired...
    BadCertificate(CertificateError),
}

impl KnownHosts {
    /// Decides about an offered key.
    ///
    /// A certificate that no entry's authority signed is judged by its plain key, and a key that is
    /// unknown under `[host]:port` is looked for under `host` (both as OpenSSH does).
    #[must_use]
    pub fn check(&self, host: &HostName, offer: Offer<'_>, now_unix: u64) -> Verdict {
        if let Offer::Certificate(certificate) = offer
            && let Some(verdict) = self.check_certificate(host, certificate, now_unix)
        {
            return verdict;
        }
        let plain = match offer {
            Offer::Key(blob) => blob.to_vec(),
            Offer::Certificate(certificate) => certificate.key().to_blob(),
        };
        let verdict = self.check_key(&host.lookup, &plain);
        match (&verdict, &host.without_port) {
            (Verdict::Unknown, Some(name)) => match self.check_key(name, &plain) {
                Verdict::Changed(_) => Verdict::Unknown,
                other => other,
            },
            _ => verdict,
        }
    }

    fn check_certificate(
        &self,
        host: &HostName,
        certificate: &Certificate,
        now_unix: u64,
    ) -> Option<Verdict> {
        let authority = certificate.ca_key().to_blob();
        let plain = certificate.key().to_blob();
        for name in std::iter::once(&host.lookup).chain(&host.without_port) {
            if let Some(entry) = self.revocation(name, &[&authority, &plain]) {
                return Some(self.revoked(entry));
            }
            let entry = self
                .entries_for(name)
                .find(|e| e.marker == Marker::Authority && e.key.blob == authority);
            if let Some(entry) = entry {
                return Some(
                    match certificate.valid_for_host(&host.principal, now_unix) {
                        Ok(()) => Verdict::TrustedByAuthority {
                            file: self.file_of(entry).to_owned(),
                            line: entry.line,
                        },
                        Err(why) => Verdict::BadCertificate(why),
                    },
                );
            }
        }
        None
    }

    fn check_key(&self, name: &str, blob: &[u8]) -> Verdict {
        if let Some(entry) = self.revocation(name, &[blob]) {
            return self.revoked(entry);
        }
        let mut conflicts = Vec::new();
        for entry in self.entries_for(name) {
            if entry.marker != Marker::HostKey {
                continue;
            }
            let file = self.file_of(entry).to_owned();
            let line = entry.line;
            if entry.key.blob == blob {
                return Verdict::Trusted { file, line };
            }
            conflicts.push(Conflict {
                file,
                line,
                algorithm: entry.key.algorithm.clone(),
                fingerprint: fingerprint(&entry.key.blob),
            });
        }
        if conflicts.is_empty() {
            return Verdict::Unknown;
        }
        // The entry of the same type is the one that the host replaced: it is named first.
        let offered = blob_algorithm(blob).unwrap_or_default();
        conflicts.sort_by_key(|c| c.algorithm.as_bytes() != offered);
        Verdict::Changed(conflicts)
    }

    fn revocation(&self, name: &str, blobs: &[&[u8]]) -> Option<&Entry> {
        self.entries.iter().find(|e| {
            e.marker == Marker::Revoked
                && blobs.contains(&e.key.blob.as_slice())
                && e.hosts.matches(name)
        })
    }

    fn revoked(&self, entry: &Entry) -> Verdict {
        Verdict::Revoked {
            file: self.file_of(entry).to_owned(),
            line: entry.line,
        }
    }

    /// The key types known for a host, and whether an authority is: what HostKeyAlgorithms should
    /// begin with.
    #[must_use]
    pub fn known_types(&self, host: &HostName) -> KnownTypes {
        let mut types = KnownTypes::default();
        for entry in self.entries_for(&host.lookup) {
            match entry.marker {
                Marker::HostKey => types.keys.push(entry.key.algorithm.clone()),
                Marker::Authority => types.has_authority = true,
                Marker::Revoked => {}
            }
        }
        types
    }
}

/// What is known of a host before it shows a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownTypes {
    /// Types of its plain keys, in the files' order.
    pub keys: Vec<String>,
    /// Whether an authority signs its certificates.
    pub has_authority: bool,
}

impl KnownTypes {
    /// Whether a key shown under this algorithm can be checked.
    #[must_use]
    pub fn knows(&self, algorithm: &str) -> bool {
        if algorithm.contains("-cert-v01@") {
            self.has_authority
        } else {
            self.keys.iter().any(|key| key == key_type_of(algorithm))
        }
    }
}

/// Puts the algorithms whose key is known in front, so that the host shows a key that can be
/// checked (and a guessed key exchange is right); the order among them stays.
///
/// With `ed25519, ecdsa, rsa-sha2-512` and a known `ssh-rsa` key: `rsa-sha2-512, ed25519, ecdsa`.
#[must_use]
pub fn order_host_key_algorithms(algorithms: &[String], known: &KnownTypes) -> Vec<String> {
    let (mut first, rest): (Vec<_>, Vec<_>) = algorithms
        .iter()
        .cloned()
        .partition(|name| known.knows(name));
    first.extend(rest);
    first
}

/// The key type behind a signature algorithm: `rsa-sha2-256` and `-512` sign with `ssh-rsa` keys.
fn key_type_of(algorithm: &str) -> &str {
    match algorithm {
        "rsa-sha2-256" | "rsa-sha2-512" => "ssh-rsa",
        other => other,
    }
}
