//! The keys that a login may try, in the order in which it should.

use fullbore_base::escape_for_display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_ssh::auth::Identity;
use fullbore_ssh::cert::Certificate;
use fullbore_ssh::key::{KeyError, KeyType, PrivateKey, PublicKey};

use super::agent::Agent;
use super::host_key::is_short_rsa;
use crate::config::ssh_config::{AuthOptions, IdentityAgent};
use crate::config::text::reason;
use crate::config::{Environment, KeyLine, fingerprint};

/// Keys and certificates that are tried at most; agents can hold thousands, servers end the
/// connection after a handful.
const CANDIDATES_MAX: usize = 64;

/// The longest key file that is read: an RSA-16384 key takes 13 KiB.
const KEY_FILE_BYTES_MAX: usize = 256 * 1024;

/// Who can sign for a candidate.
#[derive(Clone, Debug)]
pub(super) enum Holder {
    /// A key file without a passphrase.
    Open(Arc<PrivateKey>),
    /// A key file that needs a passphrase first.
    Locked(PathBuf),
    /// The agent.
    Agent,
}

/// A key that may be tried.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) identity: Identity,
    pub(super) holder: Holder,
    /// How a person knows it.
    pub(super) name: String,
}

impl Candidate {
    /// The fingerprint of its key, or of its certificate.
    pub(super) fn fingerprint(&self) -> String {
        fingerprint(&blob_of(&self.identity))
    }

    /// Whether it is on a device that somebody has to touch.
    pub(super) fn is_touched(&self) -> bool {
        match self.identity.key().key_type() {
            KeyType::SkEd25519 | KeyType::SkEcdsaP256 => true,
            KeyType::Ed25519
            | KeyType::EcdsaP256
            | KeyType::EcdsaP384
            | KeyType::EcdsaP521
            | KeyType::Rsa => false,
        }
    }
}

/// The candidates, and what should be said about files that gave none.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    pub(super) list: Vec<Candidate>,
    pub(super) agent: Option<Agent>,
    pub(super) remarks: Vec<String>,
}

/// What a key file turned out to hold.
struct FileKey {
    key: PublicKey,
    /// `None`: nothing can be signed with it here, but the agent may have the key.
    holder: Option<Holder>,
    name: String,
}

impl Candidates {
    /// Finds the keys that `options` allow, in OpenSSH's order: the files' keys that the agent
    /// holds, the agent's others (unless IdentitiesOnly), the files' own. A certificate goes
    /// before its key.
    pub(super) async fn find(options: &AuthOptions, environment: &dyn Environment) -> Self {
        let mut found = Self::default();
        if !options.pubkey {
            return found;
        }
        let files = found.read_files(options, environment);
        let certificates = found.read_certificates(options, environment);
        let held = found.ask_agent(&options.agent, environment).await;
        let in_agent = |key: &PublicKey| held.iter().any(|(held, _)| held.key() == key);
        for file in files.iter().filter(|file| in_agent(&file.key)) {
            found.add_key(&file.key, Holder::Agent, &file.name, &certificates);
        }
        if !options.identities_only {
            for (identity, name) in &held {
                found.add(identity.clone(), Holder::Agent, name.clone());
            }
        }
        for file in files {
            if let Some(holder) = file.holder.filter(|_| !in_agent(&file.key)) {
                found.add_key(&file.key, holder, &file.name, &certificates);
            }
        }
        found.list.truncate(CANDIDATES_MAX);
        found
    }

    /// RequiredRSASize: keys that are too short are not tried, and that is said.
    pub(super) fn drop_short_rsa(&mut self, bits_min: u32) {
        let remarks = &mut self.remarks;
        self.list.retain(|candidate| {
            let key = candidate.identity.key();
            let is_short = is_short_rsa(key, bits_min);
            if is_short {
                let (name, bits) = (&candidate.name, key.bits());
                remarks.push(format!(
                    "{name}: not used, because it has {bits} bits, fewer than RequiredRSASize ({bits_min})"
                ));
            }
            !is_short
        });
    }

    /// Puts the one with this fingerprint first; the others keep their order.
    pub(super) fn prefer(&mut self, fingerprint: &str) {
        let mut list = self.list.iter();
        if let Some(at) = list.position(|candidate| candidate.fingerprint() == fingerprint) {
            self.list[..=at].rotate_right(1);
        }
    }

    fn add_key(
        &mut self,
        key: &PublicKey,
        holder: Holder,
        name: &str,
        certificates: &[(Certificate, String)],
    ) {
        for (certificate, path) in certificates.iter().filter(|(c, _)| c.key() == key) {
            let identity = Identity::Certificate(Box::new(certificate.clone()));
            self.add(identity, holder.clone(), format!("certificate {path}"));
        }
        self.add(Identity::Key(key.clone()), holder, name.to_owned());
    }

    fn add(&mut self, identity: Identity, holder: Holder, name: String) {
        let blob = blob_of(&identity);
        if self.list.iter().all(|c| blob_of(&c.identity) != blob) {
            self.list.push(Candidate {
                identity,
                holder,
                name,
            });
        }
    }

    fn read_files(&mut self, options: &AuthOptions, environment: &dyn Environment) -> Vec<FileKey> {
        let mut keys = Vec::new();
        for file in &options.identity_files {
            match read_key(&file.path, environment) {
                Ok(key) => keys.push(key),
                Err(why) if file.given => {
                    self.remarks.push(format!("{}: {why}", file.path.display()))
                }
                Err(_) => {}
            }
        }
        keys
    }

    /// Those named, and `FILE-cert.pub` beside each key file.
    fn read_certificates(
        &mut self,
        options: &AuthOptions,
        environment: &dyn Environment,
    ) -> Vec<(Certificate, String)> {
        let beside = options.identity_files.iter().map(|file| {
            let mut path = file.path.clone().into_os_string();
            path.push("-cert.pub");
            (PathBuf::from(path), false)
        });
        let named = options.certificate_files.iter();
        let named = named.map(|path| (path.clone(), true));
        let mut certificates = Vec::new();
        for (path, is_given) in named.chain(beside) {
            let text = environment.read_file(&path, KEY_FILE_BYTES_MAX);
            let certificate = text
                .map_err(|error| reason(&error))
                .and_then(|text| Certificate::from_line(&text).map_err(|error| error.to_string()));
            match certificate {
                Ok(certificate) => certificates.push((certificate, path.display().to_string())),
                Err(why) if is_given => self.remarks.push(format!("{}: {why}", path.display())),
                Err(_) => {}
            }
        }
        certificates
    }

    /// What the agent holds, of the types that are implemented.
    async fn ask_agent(
        &mut self,
        which: &IdentityAgent,
        environment: &dyn Environment,
    ) -> Vec<(Identity, String)> {
        let socket = match which {
            IdentityAgent::None => return Vec::new(),
            IdentityAgent::Socket(path) => path.clone(),
            IdentityAgent::FromEnvironment => match environment.variable("SSH_AUTH_SOCK") {
                Some(path) if !path.is_empty() => PathBuf::from(path),
                _ => return Vec::new(),
            },
        };
        let identities = match Agent::connect(&socket).await {
            Ok((agent, identities)) => {
                self.agent = Some(agent);
                identities
            }
            Err(error) => {
                self.remarks
                    .push(format!("agent at {}: {}", socket.display(), reason(&error)));
                return Vec::new();
            }
        };
        let known = identities.into_iter().filter_map(|held| {
            let identity = match PublicKey::from_blob(&held.blob) {
                Ok(key) => Identity::Key(key),
                Err(_) => Identity::Certificate(Box::new(Certificate::from_blob(&held.blob).ok()?)),
            };
            let comment = escape_for_display(&held.comment);
            let name = format!("agent key {} ({comment})", fingerprint(&held.blob));
            Some((identity, name))
        });
        known.take(CANDIDATES_MAX).collect()
    }
}

fn blob_of(identity: &Identity) -> Vec<u8> {
    match identity {
        Identity::Key(key) => key.to_blob(),
        Identity::Certificate(certificate) => certificate.as_blob().to_vec(),
    }
}

/// Reads a key file as far as that goes without a passphrase.
fn read_key(path: &Path, environment: &dyn Environment) -> Result<FileKey, String> {
    let name = format!("key {}", path.display());
    let text = environment.read_file(path, KEY_FILE_BYTES_MAX);
    let text = zeroize::Zeroizing::new(text.map_err(|error| reason(&error))?);
    if let Ok(facts) = environment.file_facts(path)
        && facts.mode & 0o077 != 0
        && facts.uid == environment.uid()
        && KeyLine::parse(&text).is_none()
    {
        return Err(format!(
            "not used, because its mode {:04o} lets others read it; say: chmod 600 {}",
            facts.mode,
            path.display()
        ));
    }
    match PrivateKey::from_file(&text, None) {
        Ok(key) => Ok(FileKey {
            key: key.public_key().clone(),
            holder: Some(Holder::Open(Arc::new(key))),
            name,
        }),
        Err(KeyError::PassphraseNeeded) => {
            let key = PrivateKey::public_in_file(&text).or_else(|_| read_public(path, environment));
            Ok(FileKey {
                key: key.map_err(|error| error.to_string())?,
                holder: Some(Holder::Locked(path.to_owned())),
                name,
            })
        }
        // A public key in its place, or a key on a device: the agent may be able to sign for it.
        Err(error) => {
            let line = PublicKey::from_line(&text).map(|(key, _)| key);
            let key = line.or_else(|_| PrivateKey::public_in_file(&text));
            Ok(FileKey {
                key: key.map_err(|_| error.to_string())?,
                holder: None,
                name,
            })
        }
    }
}

fn read_public(path: &Path, environment: &dyn Environment) -> Result<PublicKey, KeyError> {
    let mut public = path.as_os_str().to_owned();
    public.push(".pub");
    let text = environment
        .read_file(Path::new(&public), KEY_FILE_BYTES_MAX)
        .map_err(|_| KeyError::PassphraseNeeded)?;
    PublicKey::from_line(&text).map(|(key, _)| key)
}

/// Whether PubkeyAcceptedAlgorithms allows the key at all; an empty list allows everything.
pub(super) fn is_accepted(identity: &Identity, accepted: &[String]) -> bool {
    let key_type: KeyType = identity.key().key_type();
    let algorithms = key_type.algorithms().iter();
    accepted.is_empty()
        || algorithms
            .map(|algorithm| match identity {
                Identity::Key(_) => algorithm.name(),
                Identity::Certificate(_) => algorithm.certificate_name(),
            })
            .any(|name| accepted.iter().any(|a| a == name))
}
