//! UpdateHostKeys: a known host that announces further keys, and proves to have them, is remembered by
//! these too, so that it can change keys without anybody being asked (OpenSSH PROTOCOL 2.5).
//!
//! Only additions: keys that the host no longer has stay in the file, as `ssh-keygen -R` is for.

use std::rc::Rc;

use fullbore_ssh::Event;
use fullbore_ssh::key::PublicKey;

use super::connect::Context;
use super::core::Core;
use super::host_key::{is_short_rsa, kind_of};
use crate::config::fingerprint;
use crate::config::known_hosts::{HostName, KnownHosts, Marker, remember};
use crate::config::ssh_config::{HostConfig, LogLevel, UpdateHostKeys};

/// Waits for announcements until the connection is over.
pub(super) async fn learn(core: Rc<Core>, host: HostConfig, context: Context) {
    while let Ok(event) = core.news().await {
        match event {
            Event::HostKeysAnnounced => {
                let announced = core.look(|state| {
                    let conn = state.session.conn();
                    let used = conn.accepted_host_key().map(|offer| offer.blob().to_vec());
                    used.filter(|used| conn.announced_host_keys().contains(used))
                        .map(|_| conn.announced_host_keys().to_vec())
                });
                // A host that does not announce the key it uses is not to be understood.
                let new = unknown(&host, &context, announced.unwrap_or_default());
                if !new.is_empty() {
                    // Refused only when the connection has just ended, or too much is asked.
                    let _ = core.change(|state, _| state.session.conn_mut().prove_host_keys(new));
                }
            }
            Event::HostKeysProved => {
                let proved = core.look(|state| state.session.conn().proved_host_keys().to_vec());
                keep(&host, &context, &proved).await;
            }
            _ => {}
        }
    }
}

fn name_of(host: &HostConfig) -> HostName {
    HostName::new(&host.host_name, host.port, host.host_keys.alias.as_deref())
}

/// Those of `blobs` that may be used, and that no file says anything about for this host.
fn unknown(host: &HostConfig, context: &Context, mut blobs: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let files = host.host_keys.user_files.iter();
    let files = files.chain(&host.host_keys.global_files);
    let known = KnownHosts::load(&*context.environment, files);
    let name = name_of(host);
    let entries: Vec<_> = known.entries_for(&name.lookup).collect();
    blobs.retain(|blob| {
        let is_usable = PublicKey::from_blob(blob).is_ok_and(|key| {
            let mut algorithms = key.key_type().algorithms().iter();
            let allowed = &host.algorithms.host_keys;
            algorithms.any(|algorithm| allowed.iter().any(|a| a == algorithm.name()))
                && !is_short_rsa(&key, host.algorithms.rsa_bits_min)
        });
        let is_said = |entry: &&&crate::config::known_hosts::Entry| {
            entry.key.blob == *blob && entry.marker != Marker::Authority
        };
        is_usable && entries.iter().find(is_said).is_none()
    });
    blobs
}

async fn keep(host: &HostConfig, context: &Context, blobs: &[Vec<u8>]) {
    let options = &host.host_keys;
    let Some(file) = options.user_files.first().filter(|_| !blobs.is_empty()) else {
        return;
    };
    let name = name_of(host);
    let list = blobs
        .iter()
        .map(|blob| format!("{} key {}", kind_of(blob), fingerprint(blob)));
    let list = list.collect::<Vec<_>>().join("\n");
    if options.update == UpdateHostKeys::Ask {
        let question = format!(
            "The server has proved that it also has:\n{list}\nRemember {} by it too (yes/no)? ",
            name.lookup
        );
        let answer = context.asker.text(question).await;
        if answer.is_none_or(|answer| !answer.expose().eq_ignore_ascii_case(b"yes")) {
            return;
        }
    }
    let mut said = format!("Remembered {} by further keys:\n{list}", name.lookup);
    for blob in blobs {
        let environment = &*context.environment;
        if let Err(error) = remember(environment, file, &name.lookup, blob, options.hash) {
            let why = crate::config::text::reason(&error);
            said = format!("Could not add further keys to {}: {why}", file.display());
            break;
        }
    }
    if host.session.log_level >= LogLevel::Verbose {
        context.asker.tell(said).await;
    }
}
