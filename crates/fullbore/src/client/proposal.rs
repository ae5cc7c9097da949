//! What a client offers a server: the configuration's algorithms, those in front that let a guess at
//! the key exchange be right.
//!
//! A guess (RFC 4253 7) saves a round trip when both sides' first key exchange methods and first host
//! key algorithms are the same. So where the server's lists are remembered, its first choices may be
//! moved to the front of ours, within these bounds:
//!
//! - Key exchange method: only when it is what our own order would have agreed on. A weaker method
//!   would weaken the connection against everybody who records it, so nothing is traded for speed.
//! - Host key algorithm: only one that our order would have agreed on, or one whose key is known for
//!   this host while the user has said nothing about the order. That is no weakening: it decides only
//!   by which of the server's known keys it proves who it is, and who could forge one of these proofs
//!   would offer that algorithm alone. The order among them is taste, and the server's is as good.
//!
//! A guess is sent only when both first choices agree with the remembered lists, never on a hunch: some
//! servers (asyncssh) look at the method alone, and end the connection over a half right guess.

use std::time::Duration;

use fullbore_ssh::auth::ClientAuth;
use fullbore_ssh::cipher::{Cipher, Mac};
use fullbore_ssh::config::{ClientConfig, RekeyLimits, TransportConfig};
use fullbore_ssh::connection::ConnectionConfig;
use fullbore_ssh::kex::Method as Kex;
use fullbore_ssh::key::PublicKey;
use fullbore_ssh::packet::Compression;

use super::connect::Context;
use super::error::Error;
use super::host_key::is_short_rsa;
use super::patience::connect_timeout;
use super::remembered::Seen;
use crate::config::known_hosts::{
    HostName, KnownHosts, KnownTypes, Marker, order_host_key_algorithms,
};
use crate::config::quirks::{self, OwnProfile, Quirks};
use crate::config::ssh_config::HostConfig;

/// Seconds after which a server is asked whether it lives, where the connection stays for others and
/// ServerAliveInterval says nothing. Ours: three times that is how long a dead one can be come upon.
const ALIVE_WHILE_SHARED: u64 = 15;

/// How much is sent ahead of the server's answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Haste<'a> {
    /// Nothing: it was in vain before.
    None,
    /// What the server's name permits.
    ByName,
    /// What an earlier connection permits, besides.
    AsSeen(&'a Seen),
}

/// What the engine is told for a connection to `host`.
pub(super) fn client_config(
    host: &HostConfig,
    context: &Context,
    haste: Haste<'_>,
) -> Result<ClientConfig, Error> {
    let known = Known::of(host, context);
    let mut kex = chosen("KexAlgorithms", &host.algorithms.kex, Kex::from_name)?;
    let mut host_keys = known.ordered(host);
    let guess_kex = match haste {
        Haste::None | Haste::ByName => false,
        Haste::AsSeen(seen) if !is_guess_understood(seen, context)? => false,
        Haste::AsSeen(seen) => prepare_guess(&mut kex, &mut host_keys, seen, |name| {
            known.may_prove_by(host, name)
        }),
    };
    let transport = transport_config(host, kex, host_keys, guess_kex)?;
    let will_stay = (host.connection.sharing.as_ref()).is_some_and(|s| s.persist.is_some());
    let alive = match host.connection.server_alive_interval {
        // A connection that others come back to must not be dead when they do.
        0 if will_stay => ALIVE_WHILE_SHARED,
        seconds => seconds,
    };
    let connection = ConnectionConfig {
        local_window: context.local_window,
        // A person may take time to find a password; the server has its own limit.
        login_timeout: None,
        keepalive_interval: (alive > 0).then(|| Duration::from_secs(alive)),
        keepalive_count_max: host.connection.server_alive_count_max,
        eager: !matches!(haste, Haste::None),
        ..ConnectionConfig::default()
    };
    Ok(ClientConfig {
        transport,
        connection,
        auth: ClientAuth {
            user: host.user.clone().into_bytes(),
        },
        patient_version: match haste {
            Haste::None | Haste::ByName => None,
            Haste::AsSeen(seen) => Some(seen.version.clone()),
        },
    })
}

/// What the user's file says of servers.
pub(super) fn own_profiles(context: &Context) -> Result<Vec<OwnProfile>, Error> {
    quirks::own(&*context.environment).map_err(|why| Error::Connect(why.into()))
}

fn is_guess_understood(seen: &Seen, context: &Context) -> Result<bool, Error> {
    let own = own_profiles(context)?;
    Ok(Quirks::of(&seen.version, &own).is_guess_understood)
}

fn transport_config(
    host: &HostConfig,
    kex: Vec<Kex>,
    host_key_algorithms: Vec<String>,
    guess_kex: bool,
) -> Result<TransportConfig, Error> {
    let defaults = TransportConfig::default();
    let options = &host.connection;
    let algorithms = &host.algorithms;
    let rekey = RekeyLimits {
        bytes: options.rekey_bytes.unwrap_or(defaults.rekey.bytes),
        time: options
            .rekey_seconds
            .map_or(defaults.rekey.time, |s| Some(Duration::from_secs(s))),
        ..defaults.rekey
    };
    let compression = if options.compression {
        vec![Compression::ZlibDelayed, Compression::None]
    } else {
        vec![Compression::None, Compression::ZlibDelayed]
    };
    Ok(TransportConfig {
        kex,
        host_key_algorithms,
        guess_kex,
        ciphers: chosen("Ciphers", &algorithms.ciphers, Cipher::from_name)?,
        macs: chosen("MACs", &algorithms.macs, Mac::from_name)?,
        compression,
        rekey,
        kex_timeout: connect_timeout(host),
        ..defaults
    })
}

/// The algorithms of a list, which must leave at least one.
fn chosen<T>(
    keyword: &str,
    names: &[String],
    from_name: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let list: Vec<T> = names.iter().filter_map(|name| from_name(name)).collect();
    if list.is_empty() {
        let names = names.join(",");
        let why = format!("{keyword} {names}: none of these is implemented");
        return Err(Error::Connect(why.into()));
    }
    Ok(list)
}

/// What known_hosts says about a host before it has shown a key.
struct Known {
    types: KnownTypes,
    /// RSA keys that are long enough, and no key that is revoked.
    is_plain: bool,
}

impl Known {
    fn of(host: &HostConfig, context: &Context) -> Self {
        let options = &host.host_keys;
        let files = options.user_files.iter().chain(&options.global_files);
        let known = KnownHosts::load(&*context.environment, files);
        let name = HostName::new(&host.host_name, host.port, options.alias.as_deref());
        let bits_min = host.algorithms.rsa_bits_min;
        let is_plain = known.entries_for(&name.lookup).all(|entry| {
            let key = PublicKey::from_blob(&entry.key.blob);
            entry.marker == Marker::HostKey && key.is_ok_and(|key| !is_short_rsa(&key, bits_min))
        });
        Self {
            types: known.known_types(&name),
            is_plain,
        }
    }

    /// Host key algorithms with those in front whose keys are known, so that the server shows a key
    /// that can be checked.
    fn ordered(&self, host: &HostConfig) -> Vec<String> {
        let list = &host.algorithms.host_keys;
        match host.algorithms.host_keys_given {
            true => list.clone(),
            false => order_host_key_algorithms(list, &self.types),
        }
    }

    /// Whether a host may prove who it is by this algorithm, although we would prefer another.
    fn may_prove_by(&self, host: &HostConfig, algorithm: &str) -> bool {
        !host.algorithms.host_keys_given && self.is_plain && self.types.knows(algorithm)
    }
}
/// Moves the server's remembered first choices to the front of ours where the top of this file
/// permits it. Returns whether both sides' then agree, so that a guess can be sent.
fn prepare_guess(
    kex: &mut [Kex],
    host_keys: &mut [String],
    seen: &Seen,
    may_prove_by: impl Fn(&str) -> bool,
) -> bool {
    let (Some(first_kex), Some(first_host_key)) = (first_of(&seen.kex), first_of(&seen.host_keys))
    else {
        return false;
    };
    let is_in = |list: &str, name: &str| list.split(',').any(|n| n == name);
    let Some(agreed) = kex.iter().position(|m| is_in(&seen.kex, m.name())) else {
        return false;
    };
    if kex[agreed].name() != first_kex {
        return false;
    }
    let agreed_host_key = host_keys.iter().find(|name| is_in(&seen.host_keys, name));
    let is_agreed = agreed_host_key.is_some_and(|name| name == first_host_key);
    if !is_agreed && !may_prove_by(first_host_key) {
        return false;
    }
    let Some(at) = host_keys.iter().position(|name| name == first_host_key) else {
        return false;
    };
    kex[..=agreed].rotate_right(1);
    host_keys[..=at].rotate_right(1);
    true
}

fn first_of(list: &str) -> Option<&str> {
    list.split(',').next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kex: &str, host_keys: &str) -> Seen {
        Seen {
            host_key: "SHA256:x".to_owned(),
            user_key: None,
            bears_haste: true,
            kex: kex.to_owned(),
            host_keys: host_keys.to_owned(),
            version: b"SSH-2.0-x".to_vec(),
        }
    }

    /// What is offered first after preparing, if a guess may be sent.
    fn first(seen: &Seen, known: &[&str]) -> Option<(&'static str, String)> {
        let mut kex = [
            Kex::Mlkem768X25519Sha256,
            Kex::Curve25519Sha256,
            Kex::EcdhNistp256,
        ];
        let mut host_keys = ["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512"]
            .map(str::to_owned)
            .to_vec();
        let before = host_keys.clone();
        let may = prepare_guess(&mut kex, &mut host_keys, seen, |name| known.contains(&name));
        let mut sorted = host_keys.clone();
        sorted.sort_by_key(|name| before.iter().position(|b| b == name));
        assert_eq!(sorted, before, "nothing is lost or added");
        may.then(|| (kex[0].name(), host_keys[0].clone()))
    }

    #[test]
    fn the_method_that_would_be_agreed_on_goes_to_the_front() {
        let server = seen("curve25519-sha256,ecdh-sha2-nistp256", "ssh-ed25519");
        let expected = ("curve25519-sha256", "ssh-ed25519".to_owned());
        assert_eq!(first(&server, &[]), Some(expected));
    }

    #[test]
    fn a_method_that_would_not_be_agreed_on_is_not_guessed() {
        let server = seen("ecdh-sha2-nistp256,curve25519-sha256", "ssh-ed25519");
        assert_eq!(first(&server, &[]), None);
        assert_eq!(first(&seen("other", "ssh-ed25519"), &[]), None);
    }

    #[test]
    fn a_host_key_goes_to_the_front_if_it_would_be_agreed_on_or_is_known() {
        let lists = "rsa-sha2-512,ecdsa-sha2-nistp256,ssh-ed25519";
        let server = seen("mlkem768x25519-sha256", lists);
        assert_eq!(first(&server, &[]), None);
        let by_rsa = ("mlkem768x25519-sha256", "rsa-sha2-512".to_owned());
        assert_eq!(first(&server, &["rsa-sha2-512"]), Some(by_rsa.clone()));
        assert_eq!(first(&server, &["ssh-ed25519"]), None);
        let only = seen("mlkem768x25519-sha256", "rsa-sha2-512");
        assert_eq!(first(&only, &[]), Some(by_rsa));
    }

    #[test]
    fn algorithms_that_are_not_offered_are_not_guessed() {
        let server = seen("mlkem768x25519-sha256", "ssh-dss,ssh-ed25519");
        assert_eq!(first(&server, &["ssh-dss"]), None);
        assert_eq!(first(&seen("", ""), &[]), None);
    }
}
