//! Algorithm lists: `a,b`, and `+a`, `-a*`, `^a` applied to the defaults.

use fullbore_base::matches_wildcard;

use super::AlgorithmOptions;
use crate::config::pattern::{self, ListMatch};

/// What this build speaks, best first: the lists that `+`, `-` and `^` change. `supported` lists
/// bound what may be named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlgorithmDefaults {
    /// Ciphers offered by default.
    pub ciphers: Vec<String>,
    /// MACs offered by default.
    pub macs: Vec<String>,
    /// Key exchanges offered by default.
    pub kex: Vec<String>,
    /// Host key algorithms offered by default.
    pub host_keys: Vec<String>,
    /// User key algorithms used by default.
    pub pubkey_accepted: Vec<String>,
    /// Algorithms that a certificate authority may have signed with.
    pub ca_signatures: Vec<String>,
}

impl AlgorithmDefaults {
    /// The defaults as final lists.
    #[must_use]
    pub fn options(&self) -> AlgorithmOptions {
        AlgorithmOptions {
            ciphers: self.ciphers.clone(),
            macs: self.macs.clone(),
            kex: self.kex.clone(),
            host_keys: self.host_keys.clone(),
            host_keys_given: false,
            pubkey_accepted: self.pubkey_accepted.clone(),
            ca_signatures: self.ca_signatures.clone(),
            rsa_bits_min: RSA_BITS_MIN_DEFAULT,
        }
    }
}

/// RequiredRSASize's default: OpenSSH's is 1024; ours is what RSA with SHA-2 needs today (NIST SP 800-131A).
pub(super) const RSA_BITS_MIN_DEFAULT: u32 = 2048;

/// Applies a list of the configuration to the defaults.
///
/// `-aes*` removes by wildcard; `+x` appends what is not there yet; `^x` moves or puts to the front;
/// a plain list replaces. Names that this build does not speak are left out, and returned second.
/// With defaults `a,b,c`: `^c,x` gives `c,x,a,b` if `x` is spoken.
#[must_use]
pub(super) fn apply(spec: &str, defaults: &[String]) -> (Vec<String>, Vec<String>) {
    let mut unknown = Vec::new();
    let list = match spec.as_bytes().first() {
        Some(b'-') => defaults
            .iter()
            .filter(|name| !is_listed(name, &spec[1..]))
            .cloned()
            .collect(),
        Some(b'+') => merge(
            defaults.to_vec(),
            expand(&spec[1..], defaults, &mut unknown),
        ),
        Some(b'^') => merge(
            expand(&spec[1..], defaults, &mut unknown),
            defaults.to_vec(),
        ),
        _ => merge(Vec::new(), expand(spec, defaults, &mut unknown)),
    };
    (list, unknown)
}

fn is_listed(name: &str, list: &str) -> bool {
    pattern::matches_list(name.as_bytes(), list.as_bytes()) == ListMatch::Yes
}

/// Names in the order written; a wildcard stands for every spoken name that it matches, in the
/// defaults' order.
fn expand(list: &str, spoken: &[String], unknown: &mut Vec<String>) -> Vec<String> {
    let mut names = Vec::new();
    for item in list.split(',').filter(|item| !item.is_empty()) {
        let before = names.len();
        let matching = spoken
            .iter()
            .filter(|name| matches_wildcard(name.as_bytes(), item.as_bytes()));
        names.extend(matching.cloned());
        if names.len() == before {
            unknown.push(item.to_owned());
        }
    }
    names
}

fn merge(mut first: Vec<String>, second: Vec<String>) -> Vec<String> {
    for name in second {
        if !first.contains(&name) {
            first.push(name);
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(spec: &str) -> (String, String) {
        let defaults = ["aes128-gcm", "aes256-gcm", "chacha20"].map(str::to_owned);
        let (list, unknown) = apply(spec, &defaults);
        (list.join(","), unknown.join(","))
    }

    #[test]
    fn prefixes_change_the_defaults() {
        let cases: &[(&str, &str, &str)] = &[
            ("chacha20,aes128-gcm", "chacha20,aes128-gcm", ""),
            ("-aes*", "chacha20", ""),
            ("-aes128-gcm,chacha20", "aes256-gcm", ""),
            ("+chacha20", "aes128-gcm,aes256-gcm,chacha20", ""),
            ("+3des", "aes128-gcm,aes256-gcm,chacha20", "3des"),
            ("^chacha20", "chacha20,aes128-gcm,aes256-gcm", ""),
            ("^cha*,aes256*", "chacha20,aes256-gcm,aes128-gcm", ""),
            ("aes*", "aes128-gcm,aes256-gcm", ""),
            ("3des,chacha20,chacha20", "chacha20", "3des"),
            ("3des", "", "3des"),
            ("-*", "", ""),
        ];
        for (spec, list, unknown) in cases {
            assert_eq!(
                applied(spec),
                ((*list).to_owned(), (*unknown).to_owned()),
                "{spec}"
            );
        }
    }
}
