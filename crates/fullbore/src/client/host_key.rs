//! Whether the server is the one that was meant: known_hosts, first use, changed keys.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use fullbore_ssh::cert::Certificate;
use fullbore_ssh::key::{KeyType, PublicKey};
use fullbore_ssh::transport::{HostKeyOffer, HostKeyVerified};

use super::connect::Context;
use super::core::Core;
use super::error::Error;
use crate::config::known_hosts::{Conflict, HostName, KnownHosts, Offer, Verdict, remember};
use crate::config::prompt::FirstUse;
use crate::config::ssh_config::{HostConfig, LogLevel, StrictHostKeyChecking};
use crate::config::{FILE_BYTES_MAX, KeyLine, fingerprint, text};

/// What was found about the host key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// It is the right one, and stands as such in the user's own file: what it vouches for may go
    /// there too.
    Known,
    /// It is the right one.
    Full,
    /// It is not known to be, and the user switched checking off: nothing secret may be sent.
    NoSecrets,
}

/// Checks the host key that waits for a verdict, and gives it.
pub(super) async fn check(
    core: &Core,
    host: &HostConfig,
    context: &Context,
) -> Result<Trust, Error> {
    let Some(offer) = core.look(|state| state.session.conn().host_key().cloned()) else {
        return Err(Error::Connect("no host key waits for a verdict".into()));
    };
    match judge(host, context, &offer).await {
        Ok(trust) => {
            let proof = HostKeyVerified::by_application(&offer);
            let accepted = core.change(|state, now| {
                let conn = state.session.conn_mut();
                conn.accept_host_key(now, proof)
            });
            accepted.map_err(|error| Error::Connect(error.to_string().into()))?;
            Ok(trust)
        }
        Err(why) => {
            core.change(|state, now| {
                let conn = state.session.conn_mut();
                conn.reject_host_key(now, "host key verification failed");
            });
            Err(Error::Connect(why.into()))
        }
    }
}

async fn judge(
    host: &HostConfig,
    context: &Context,
    offer: &HostKeyOffer,
) -> Result<Trust, String> {
    let options = &host.host_keys;
    let environment = &*context.environment;
    if options.skip_localhost && is_loopback(&host.host_name) {
        return Ok(Trust::Full);
    }
    if let Some(file) = &options.revoked_file {
        check_revoked(context, file, offer)?;
    }
    let files = options.user_files.iter().chain(&options.global_files);
    let known = KnownHosts::load(environment, files);
    let name = HostName::new(&host.host_name, host.port, options.alias.as_deref());
    let certificate = Certificate::from_blob(offer.blob()).ok();
    check_strength(host, offer, certificate.as_ref())?;
    let shown = match &certificate {
        Some(certificate) => Offer::Certificate(certificate),
        None => Offer::Key(offer.blob()),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    match known.check(&name, shown, now.map_or(0, |since| since.as_secs())) {
        Verdict::Trusted { file, .. } if options.user_files.contains(&file) => Ok(Trust::Known),
        Verdict::Trusted { .. } | Verdict::TrustedByAuthority { .. } => Ok(Trust::Full),
        Verdict::Unknown => first_use(host, context, &name, &plain_blob(offer)).await,
        Verdict::Changed(conflicts) => {
            let text = changed(host, &name, offer, &conflicts);
            if options.strict == StrictHostKeyChecking::Off {
                context.asker.tell(text).await;
                return Ok(Trust::NoSecrets);
            }
            Err(text)
        }
        Verdict::Revoked { file, line } => Err(format!(
            "The host key of {} is marked as revoked in {} line {line}.\n\
             Somebody else may hold it: do not connect before you have asked the administrator.",
            name.lookup,
            file.display()
        )),
        Verdict::BadCertificate(error) => Err(format!(
            "The host certificate of {} does not hold: {error}",
            name.lookup
        )),
    }
}

/// RequiredRSASize and CASignatureAlgorithms.
fn check_strength(
    host: &HostConfig,
    offer: &HostKeyOffer,
    certificate: Option<&Certificate>,
) -> Result<(), String> {
    let algorithms = &host.algorithms;
    if let Ok(key) = PublicKey::from_blob(&plain_blob(offer))
        && is_short_rsa(&key, algorithms.rsa_bits_min)
    {
        return Err(format!(
            "The RSA host key of {} has {} bits, fewer than RequiredRSASize ({})",
            host.host_name,
            key.bits(),
            algorithms.rsa_bits_min
        ));
    }
    let signed_with = certificate.map(|certificate| certificate.ca_algorithm().name());
    match signed_with.filter(|name| !algorithms.ca_signatures.iter().any(|a| a == name)) {
        Some(name) => Err(format!(
            "The host certificate of {} is signed with {name}, which CASignatureAlgorithms does not \
             allow",
            host.host_name
        )),
        None => Ok(()),
    }
}

/// Whether RequiredRSASize forbids a key.
pub(super) fn is_short_rsa(key: &PublicKey, bits_min: u32) -> bool {
    key.key_type() == KeyType::Rsa && key.bits() < bits_min as usize
}

/// The host's key itself, without the certificate around it.
fn plain_blob(offer: &HostKeyOffer) -> Vec<u8> {
    match Certificate::from_blob(offer.blob()) {
        Ok(certificate) => certificate.key().to_blob(),
        Err(_) => offer.blob().to_vec(),
    }
}

/// How OpenSSH's binary revocation lists begin.
const KRL_MAGIC: &[u8] = b"SSHKRL\n\0";

fn check_revoked(
    context: &Context,
    file: &std::path::Path,
    offer: &HostKeyOffer,
) -> Result<(), String> {
    // A list that cannot be read must not let a revoked key pass.
    let content = context
        .environment
        .read_file(file, FILE_BYTES_MAX)
        .map_err(|error| {
            let (file, why) = (file.display(), text::reason(&error));
            format!(
                "RevokedHostKeys {file}: {why}. No host key is believed while that list cannot be read"
            )
        })?;
    if content.starts_with(KRL_MAGIC) {
        return Err(format!(
            "RevokedHostKeys {}: is a KRL, which is not read here; give a file with one public key a \
             line",
            file.display()
        ));
    }
    let mut blobs = vec![plain_blob(offer)];
    if let Ok(certificate) = Certificate::from_blob(offer.blob()) {
        blobs.push(certificate.ca_key().to_blob());
    }
    let revoked = text::lines(&content)
        .flatten()
        .filter_map(|line| KeyLine::parse(line.text))
        .any(|line| blobs.contains(&line.blob));
    if revoked {
        let file = file.display();
        return Err(format!(
            "The host key is revoked by {file}. Somebody else may hold it: do not connect before you \
             have asked the administrator."
        ));
    }
    Ok(())
}

/// A host that known_hosts does not hold.
async fn first_use(
    host: &HostConfig,
    context: &Context,
    name: &HostName,
    blob: &[u8],
) -> Result<Trust, String> {
    let options = &host.host_keys;
    let (kind, print) = (kind_of(blob), fingerprint(blob));
    let unknown = format!("No {kind} host key is known for {}", name.lookup);
    match options.strict {
        StrictHostKeyChecking::Strict => {
            return Err(format!(
                "{unknown} and StrictHostKeyChecking is set: compare the fingerprint {print} with \
                 what the server's administrator says, then connect once with \
                 -o StrictHostKeyChecking=ask"
            ));
        }
        StrictHostKeyChecking::Ask => {
            let shown = match &name.lookup {
                lookup if *lookup == host.host_name => lookup.clone(),
                lookup => format!("{} ({lookup})", host.host_name),
            };
            let answer = if host.auth.batch {
                FirstUse::Refuse
            } else {
                let asker = &context.asker;
                asker.first_use(shown, kind.clone(), print.clone()).await
            };
            if answer == FirstUse::Refuse {
                return Err(format!(
                    "{unknown}, and it was not confirmed. Its fingerprint is {print}. If that is right, \
                     answer yes on a terminal, or give -o StrictHostKeyChecking=accept-new"
                ));
            }
        }
        StrictHostKeyChecking::AcceptNew | StrictHostKeyChecking::Off => {}
    }
    let Some(file) = options.user_files.first() else {
        return Ok(Trust::Full);
    };
    let remembered = remember(
        &*context.environment,
        file,
        &name.lookup,
        blob,
        options.hash,
    );
    let (trust, text) = match remembered {
        Ok(()) => {
            let text = format!(
                "Permanently added '{}' ({kind}) to the list of known hosts.",
                name.lookup
            );
            (Trust::Known, text)
        }
        Err(error) => (
            Trust::Full,
            format!(
                "Could not add '{}' to the list of known hosts ({}): {}",
                name.lookup,
                file.display(),
                text::reason(&error)
            ),
        ),
    };
    if host.session.log_level >= LogLevel::Info {
        context.asker.tell(text).await;
    }
    Ok(trust)
}

fn changed(
    host: &HostConfig,
    name: &HostName,
    offer: &HostKeyOffer,
    conflicts: &[Conflict],
) -> String {
    let blob = plain_blob(offer);
    let (kind, print) = (kind_of(&blob), fingerprint(&blob));
    let mut text = format!(
        "WARNING: THE HOST KEY OF {} HAS CHANGED!\n\
         Somebody may be listening in right now (a man in the middle), or the server was set up \
         anew.\n\
         It shows the {kind} key {print}.\n",
        name.lookup
    );
    for conflict in conflicts {
        text.push_str(&format!(
            "Known is the {} key {} ({} line {}).\n",
            conflict.algorithm,
            conflict.fingerprint,
            conflict.file.display(),
            conflict.line
        ));
    }
    text.push_str("Ask the server's administrator. If the new key is right, remove the old one:\n");
    let file = conflicts.first().map(|conflict| conflict.file.display());
    text.push_str(&match file {
        Some(file) => format!("  ssh-keygen -f '{file}' -R '{}'", name.lookup),
        None => format!("  ssh-keygen -R '{}'", name.lookup),
    });
    if host.host_keys.strict == StrictHostKeyChecking::Off {
        text.push_str(
            "\nGoing on, because StrictHostKeyChecking is off; no password will be sent.",
        );
    }
    text
}

/// A key type as OpenSSH's messages name it: `ssh-ed25519` is ED25519.
pub(super) fn kind_of(blob: &[u8]) -> String {
    let name = PublicKey::from_blob(blob).map_or("unknown", |key| key.key_type().name());
    match name {
        "ssh-ed25519" => "ED25519".to_owned(),
        "ssh-rsa" => "RSA".to_owned(),
        other if other.starts_with("ecdsa-") => "ECDSA".to_owned(),
        other => other.to_owned(),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
