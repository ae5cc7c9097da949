//! The text formats a user already has.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fullbore::config::destination::Location;
use fullbore::config::known_hosts::{HostName, KnownHosts};
use fullbore::config::{pattern, text};

/// A known_hosts file, looked up.
pub fn known_hosts(data: &[u8]) {
    let mut hosts = KnownHosts::default();
    hosts.add(Path::new("known_hosts"), data);
    let name = HostName::new("host.example", 22, None);
    let _ = hosts.known_types(&name);
}

/// Patterns, words, numbers and durations.
pub fn patterns(data: &[u8]) {
    let at = data.iter().position(|&b| b == b'\n').unwrap_or(data.len());
    let (name, list) = data.split_at(at);
    let _ = fullbore_base::matches_wildcard(name, list);
    let _ = pattern::matches_list(name, list);
    let _ = pattern::matches_host(name, list);
    let address = std::net::IpAddr::from([127, 0, 0, 1]);
    let _ = pattern::matches_address(address, Some(name), list);
    let _ = text::split_words(data);
    let _ = text::parse_duration(data);
    let _ = text::parse_size(data);
    if let Some(bytes) = text::base64_decode(data) {
        let printed = text::base64_encode(&bytes);
        assert_eq!(text::base64_decode(printed.as_bytes()), Some(bytes));
    }
    let shown = text::escape_for_display(data);
    assert!(!shown.contains(['\x1b', '\n']), "it would reach a terminal");
}

/// What is typed as a source or a target.
pub fn destination(data: &[u8]) {
    let _ = Location::parse(OsStr::from_bytes(data));
}

/// Lines of every kind.
#[must_use]
pub fn known_hosts_seeds() -> Vec<Vec<u8>> {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
    let text = format!(
        "host.example,10.0.0.1 {key} comment\n[host.example]:2222 {key}\n*.example,!no.example {key}\n\
         @cert-authority *.example {key}\n@revoked * {key}\n# comment\n\n\
         |1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= {key}\n"
    );
    vec![text.into_bytes()]
}

/// Names with their lists.
#[must_use]
pub fn patterns_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 5] = [
        b"host.example\n*.example,!no.*,h?st",
        b"127.0.0.1\n127.0.0.0/8,!10.0.0.0/8,::1",
        b"one \"two three\" 'four' fi\\ ve # six",
        b"1h30m",
        b"QUJD\n****************************************a",
    ];
    seeds.into_iter().map(<[u8]>::to_vec).collect()
}

/// Each form.
#[must_use]
pub fn destination_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 7] = [
        b"user@host:/path/to",
        b"[::1]:path",
        b"user@[fe80::1%eth0]:",
        b"sftp://user@host:2222/a%20path",
        b"./local:with:colons",
        b"host:",
        b"scp://host/x",
    ];
    seeds.into_iter().map(<[u8]>::to_vec).collect()
}
