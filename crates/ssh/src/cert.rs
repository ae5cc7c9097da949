//! OpenSSH certificates for users and hosts: a key, what it may be used for, and a CA's signature.
//!
//! Owns parsing, the CA's signature, the validity window, principals and options. Does not own which
//! CAs are trusted nor who may log in: that is the application's. Read first: PROTOCOL.certkeys.

mod host;

pub use host::HostIdentity;

use crate::key::{
    Algorithm, Fields, KEY_BLOB_BYTES_MAX, KeyError, KeyType, PublicKey, named_algorithm, shown,
};
use core::fmt;
use fullbore_base::{Network, matches_wildcard};
use std::net::IpAddr;

/// More principals than this are refused. OpenSSH's `SSHKEY_CERT_MAX_PRINCIPALS`.
pub const PRINCIPALS_MAX: usize = 256;
/// More critical options or extensions than this are refused. Ours; six and three are defined.
pub const OPTIONS_MAX: usize = 64;
/// More networks in `source-address` than this are refused. Ours.
pub const SOURCE_NETWORKS_MAX: usize = 256;

const WHAT: &str = "certificate";

/// What the certificate's key may prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateKind {
    /// `SSH_CERT_TYPE_USER`
    User,
    /// `SSH_CERT_TYPE_HOST`
    Host,
}

/// Why a certificate was not taken, or does not hold for a use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateError {
    /// It, its key or its CA's key does not parse.
    Key(KeyError),
    /// The CA key is itself a certificate.
    NestedCa,
    /// The CA's signature is wrong, or made with an algorithm that is not accepted (SHA-1).
    CaSignature(KeyError),
    /// Neither for users nor for hosts; the number found.
    UnknownKind(u32),
    /// More of something than its named limit.
    TooMany(&'static str),
    /// An option or extension that stands there twice.
    DuplicateOption(String),
    /// A user's where a host's is needed, or the other way round.
    WrongKind(CertificateKind),
    /// Valid only from this time on (Unix seconds).
    NotYetValid(u64),
    /// Was valid until this time (Unix seconds).
    Expired(u64),
    /// Lists no principals where one is required.
    NoPrincipals,
    /// Does not list the name in question.
    WrongPrincipal(String),
    /// A critical option that is not known, or not allowed for this kind.
    CriticalOption(String),
    /// Not from an address in its `source-address` list.
    SourceAddress,
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(why) => why.fmt(f),
            Self::NestedCa => write!(f, "certificate is signed by a certificate"),
            Self::CaSignature(why) => write!(f, "certificate's CA signature: {why}"),
            Self::UnknownKind(kind) => write!(f, "certificate of unknown kind {kind}"),
            Self::TooMany(what) => write!(f, "certificate has too many {what}"),
            Self::DuplicateOption(name) => write!(f, "certificate repeats option \"{name}\""),
            Self::WrongKind(CertificateKind::User) => {
                write!(f, "certificate is for users, not for hosts")
            }
            Self::WrongKind(CertificateKind::Host) => {
                write!(f, "certificate is for hosts, not for users")
            }
            Self::NotYetValid(from) => {
                write!(f, "certificate is not valid before Unix time {from}")
            }
            Self::Expired(until) => write!(f, "certificate expired at Unix time {until}"),
            Self::NoPrincipals => write!(f, "certificate lists no principals"),
            Self::WrongPrincipal(name) => write!(f, "certificate does not list \"{name}\""),
            Self::CriticalOption(name) => {
                write!(
                    f,
                    "certificate has critical option \"{name}\", which is not supported"
                )
            }
            Self::SourceAddress => {
                write!(f, "certificate does not allow the address it is used from")
            }
        }
    }
}

impl core::error::Error for CertificateError {}

impl From<KeyError> for CertificateError {
    fn from(why: KeyError) -> Self {
        Self::Key(why)
    }
}

/// A certificate whose CA signature was verified when it was parsed.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    blob: Vec<u8>,
    key: PublicKey,
    ca_key: PublicKey,
    ca_algorithm: Algorithm,
    kind: CertificateKind,
    serial: u64,
    key_id: Vec<u8>,
    principals: Vec<Vec<u8>>,
    /// Unix seconds; valid if `valid_after <= now < valid_before`.
    valid_after: u64,
    valid_before: u64,
    critical: CriticalOptions,
    /// Names in order, with their data.
    extensions: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What must be obeyed, or the certificate be refused.
#[derive(Clone, Default, PartialEq, Eq)]
struct CriticalOptions {
    force_command: Option<Vec<u8>>,
    source_networks: Option<Vec<Network>>,
    verify_required: bool,
    /// The first one that is not known.
    unknown: Option<String>,
    count: usize,
}

impl Certificate {
    /// Reads a whole certificate blob and verifies its CA's signature. Nothing may follow.
    ///
    /// # Errors
    /// Those of parsing: `Key`, `NestedCa`, `CaSignature`, `UnknownKind`, `TooMany`, `DuplicateOption`.
    pub fn from_blob(blob: &[u8]) -> Result<Self, CertificateError> {
        if blob.len() > KEY_BLOB_BYTES_MAX {
            return Err(KeyError::TooLong(WHAT).into());
        }
        let mut fields = Fields::new(blob, WHAT);
        let name = fields.string()?;
        let key_type = KeyType::from_certificate_name(name)
            .ok_or_else(|| KeyError::UnknownType(shown(name)))?;
        let _nonce = fields.string()?;
        let key = PublicKey::from_fields(key_type, &mut fields)?;
        let serial = fields.u64()?;
        let kind = match fields.u32()? {
            1 => CertificateKind::User,
            2 => CertificateKind::Host,
            other => return Err(CertificateError::UnknownKind(other)),
        };
        let key_id = fields.string()?.to_vec();
        let principals = principals(fields.string()?)?;
        let valid_after = fields.u64()?;
        let valid_before = fields.u64()?;
        let critical = CriticalOptions::parse(fields.string()?)?;
        let extensions = options(fields.string()?)?
            .into_iter()
            .map(|(name, data)| (name.to_vec(), data.to_vec()))
            .collect();
        let _reserved = fields.string()?;
        let ca_key = ca_key(fields.string()?)?;
        let signed = &blob[..blob.len() - fields.rest().len()];
        let signature = fields.string()?;
        fields.finish()?;
        let ca_algorithm = verify_ca(&ca_key, signed, signature)?;
        Ok(Self {
            blob: blob.to_vec(),
            key,
            ca_key,
            ca_algorithm,
            kind,
            serial,
            key_id,
            principals,
            valid_after,
            valid_before,
            critical,
            extensions,
        })
    }

    /// Reads the text form of a `-cert.pub` file: type, base64 of the blob, and perhaps a comment.
    ///
    /// # Errors
    /// As `from_blob`.
    pub fn from_line(line: &[u8]) -> Result<Self, CertificateError> {
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let (name, encoded) = (words.next(), words.next().unwrap_or_default());
        let certificate = Self::from_blob(&crate::key::decode_base64(encoded)?)?;
        if name == Some(certificate.key.key_type().certificate_name().as_bytes()) {
            Ok(certificate)
        } else {
            Err(KeyError::Malformed("certificate line").into())
        }
    }

    /// The blob, as it goes over the wire.
    #[must_use]
    pub fn as_blob(&self) -> &[u8] {
        &self.blob
    }

    /// The key that is certified.
    #[must_use]
    pub const fn key(&self) -> &PublicKey {
        &self.key
    }

    /// The CA's key. Whether it is trusted is for the caller to say.
    #[must_use]
    pub const fn ca_key(&self) -> &PublicKey {
        &self.ca_key
    }

    /// What the CA signed with.
    #[must_use]
    pub const fn ca_algorithm(&self) -> Algorithm {
        self.ca_algorithm
    }

    /// For users or for hosts.
    #[must_use]
    pub const fn kind(&self) -> CertificateKind {
        self.kind
    }

    /// The CA's number for it; 0 if the CA does not count.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// The CA's name for it, for logs. Any bytes.
    #[must_use]
    pub fn key_id(&self) -> &[u8] {
        &self.key_id
    }

    /// Users or hosts it is for.
    pub fn principals(&self) -> impl Iterator<Item = &[u8]> {
        self.principals.iter().map(Vec::as_slice)
    }

    /// First second of validity (Unix time).
    #[must_use]
    pub const fn valid_after(&self) -> u64 {
        self.valid_after
    }

    /// First second when it is no longer valid (Unix time); `u64::MAX` is for ever.
    #[must_use]
    pub const fn valid_before(&self) -> u64 {
        self.valid_before
    }

    /// The only command that may be run (critical option `force-command`).
    #[must_use]
    pub fn force_command(&self) -> Option<&[u8]> {
        self.critical.force_command.as_deref()
    }

    /// The security key must verify its user (critical option `verify-required`).
    #[must_use]
    pub const fn is_verify_required(&self) -> bool {
        self.critical.verify_required
    }

    /// Whether it has this extension, for example `permit-pty` or `no-touch-required`.
    #[must_use]
    pub fn has_extension(&self, name: &str) -> bool {
        self.extensions.iter().any(|(n, _)| n == name.as_bytes())
    }

    /// Whether it proves a host of this name now. Names are compared in lower case; principals may
    /// hold `*` and `?`. A list without principals is for every host (PROTOCOL.certkeys).
    ///
    /// # Errors
    /// `WrongKind`, `NotYetValid`, `Expired`, `CriticalOption` (hosts have none), `WrongPrincipal`.
    pub fn valid_for_host(&self, name: &str, now_unix: u64) -> Result<(), CertificateError> {
        self.check_kind_and_time(CertificateKind::Host, now_unix)?;
        if self.critical.count != 0 {
            let name = self.critical.unknown.clone();
            return Err(CertificateError::CriticalOption(
                name.unwrap_or_else(|| "of a user".to_owned()),
            ));
        }
        let name = name.to_ascii_lowercase();
        let is_listed = self
            .principals
            .iter()
            .any(|pattern| matches_wildcard(name.as_bytes(), &pattern.to_ascii_lowercase()));
        if self.principals.is_empty() || is_listed {
            Ok(())
        } else {
            Err(CertificateError::WrongPrincipal(shown(name.as_bytes())))
        }
    }

    /// Whether it proves this principal now, coming from `source`. An empty list of principals proves nobody.
    ///
    /// `force_command` and `is_verify_required` remain to be obeyed; the server's authenticator obeys the second.
    ///
    /// # Errors
    /// `WrongKind`, `NotYetValid`, `Expired`, `CriticalOption`, `SourceAddress`, `NoPrincipals`, `WrongPrincipal`.
    pub fn valid_for_user(
        &self,
        principal: &[u8],
        now_unix: u64,
        source: Option<IpAddr>,
    ) -> Result<(), CertificateError> {
        self.check_kind_and_time(CertificateKind::User, now_unix)?;
        if let Some(name) = &self.critical.unknown {
            return Err(CertificateError::CriticalOption(name.clone()));
        }
        if let Some(networks) = &self.critical.source_networks {
            let is_inside =
                source.is_some_and(|source| networks.iter().any(|n| n.contains(source)));
            if !is_inside {
                return Err(CertificateError::SourceAddress);
            }
        }
        if self.principals.is_empty() {
            return Err(CertificateError::NoPrincipals);
        }
        if self.principals.iter().any(|p| p == principal) {
            Ok(())
        } else {
            Err(CertificateError::WrongPrincipal(shown(principal)))
        }
    }

    fn check_kind_and_time(
        &self,
        kind: CertificateKind,
        now_unix: u64,
    ) -> Result<(), CertificateError> {
        if self.kind != kind {
            return Err(CertificateError::WrongKind(self.kind));
        }
        // PROTOCOL.certkeys: valid if valid_after <= now < valid_before.
        if now_unix < self.valid_after {
            return Err(CertificateError::NotYetValid(self.valid_after));
        }
        if now_unix >= self.valid_before {
            return Err(CertificateError::Expired(self.valid_before));
        }
        Ok(())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("kind", &self.kind)
            .field("key", &self.key)
            .field("key_id", &shown(&self.key_id))
            .field("serial", &self.serial)
            .field("ca_key", &self.ca_key)
            .finish_non_exhaustive()
    }
}

impl CriticalOptions {
    fn parse(bytes: &[u8]) -> Result<Self, CertificateError> {
        let mut parsed = Self::default();
        for (name, data) in options(bytes)? {
            parsed.count += 1;
            match name {
                b"force-command" => parsed.force_command = Some(inner(data)?.to_vec()),
                b"source-address" => parsed.source_networks = Some(networks(inner(data)?)?),
                b"verify-required" if data.is_empty() => parsed.verify_required = true,
                _ => {
                    parsed.unknown.get_or_insert_with(|| shown(name));
                }
            }
        }
        Ok(parsed)
    }
}

fn ca_key(blob: &[u8]) -> Result<PublicKey, CertificateError> {
    let name = Fields::new(blob, WHAT).string()?;
    // PROTOCOL.certkeys: "Chained certificates, where the signature key type is a certificate type
    // itself are NOT supported."
    if KeyType::from_certificate_name(name).is_some() {
        return Err(CertificateError::NestedCa);
    }
    Ok(PublicKey::from_blob(blob)?)
}

/// A CA on a security key must have been touched, as any signature by one.
fn verify_ca(
    ca_key: &PublicKey,
    signed: &[u8],
    signature: &[u8],
) -> Result<Algorithm, CertificateError> {
    let algorithm = named_algorithm(signature).map_err(CertificateError::CaSignature)?;
    ca_key
        .verify(algorithm, signed, signature)
        .map_err(CertificateError::CaSignature)?;
    Ok(algorithm)
}

fn principals(bytes: &[u8]) -> Result<Vec<Vec<u8>>, CertificateError> {
    let mut fields = Fields::new(bytes, "certificate principals");
    let mut principals = Vec::new();
    while !fields.is_empty() {
        if principals.len() == PRINCIPALS_MAX {
            return Err(CertificateError::TooMany("principals"));
        }
        principals.push(fields.string()?.to_vec());
    }
    Ok(principals)
}

/// An option's or extension's name and data.
type NamedOption<'a> = (&'a [u8], &'a [u8]);

/// Each name may stand there once.
fn options(bytes: &[u8]) -> Result<Vec<NamedOption<'_>>, CertificateError> {
    let mut fields = Fields::new(bytes, "certificate options");
    let mut options: Vec<NamedOption<'_>> = Vec::new();
    while !fields.is_empty() {
        if options.len() == OPTIONS_MAX {
            return Err(CertificateError::TooMany("options"));
        }
        let (name, data) = (fields.string()?, fields.string()?);
        if options.iter().any(|(n, _)| *n == name) {
            return Err(CertificateError::DuplicateOption(shown(name)));
        }
        options.push((name, data));
    }
    Ok(options)
}

/// An option's value is a string inside of its data.
fn inner(data: &[u8]) -> Result<&[u8], KeyError> {
    let mut fields = Fields::new(data, "certificate option");
    let value = fields.string()?;
    fields.finish()?;
    Ok(value)
}

fn networks(list: &[u8]) -> Result<Vec<Network>, CertificateError> {
    let malformed = || KeyError::Malformed("source-address option");
    let text = core::str::from_utf8(list).map_err(|_| malformed())?;
    let mut networks = Vec::new();
    for item in text.split(',') {
        if networks.len() == SOURCE_NETWORKS_MAX {
            return Err(CertificateError::TooMany("source addresses"));
        }
        networks.push(Network::parse(item).ok_or_else(malformed)?);
    }
    Ok(networks)
}

#[cfg(test)]
mod tests;
