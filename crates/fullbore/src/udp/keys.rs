//! What follows from the secret that both ends share: keys, salts, initial sequence numbers.
//!
//! RFC 5869 (HKDF) with SHA-256: one label for each.

use std::fmt;

use aws_lc_rs::aead::{AES_128_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use fullbore_ssh::provider::SecureRandom;
use fullbore_tcp::Seq;
use zeroize::Zeroizing;

use super::guard::{Opener, Sealer};

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// Tells these keys from those of any other use of the secret.
const SALT: &[u8] = b"fullbore udp 1";

/// What both ends of a connection know and nobody else does.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Which end this is: each seals with the key that the other opens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends first.
    Client,
    /// Waits for the client.
    Server,
}

/// What a connection is made of.
#[derive(Debug)]
pub struct Keys {
    /// For what is sent.
    pub sealer: Sealer,
    /// For what arrives.
    pub opener: Opener,
    /// Where our sequence numbers start.
    pub local_initial: Seq,
    /// Where the peer's do.
    pub remote_initial: Seq,
}

impl Secret {
    /// A fresh one.
    pub fn new(random: &mut dyn SecureRandom) -> Self {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        random.fill(&mut *bytes);
        Self(bytes)
    }

    /// From its bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its bytes, to be told to the other end.
    #[must_use]
    pub fn expose(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// What follows from it for one end.
    #[must_use]
    pub fn keys(&self, role: Role) -> Keys {
        let root = Salt::new(HKDF_SHA256, SALT).extract(&*self.0);
        let [
            (from_client, client_salt, client_initial),
            (from_server, server_salt, server_initial),
        ] = [Role::Client, Role::Server].map(|sender| one_way(&root, sender));
        match role {
            Role::Client => Keys {
                sealer: Sealer::new(from_client, client_salt),
                opener: Opener::new(from_server, server_salt),
                local_initial: client_initial,
                remote_initial: server_initial,
            },
            Role::Server => Keys {
                sealer: Sealer::new(from_server, server_salt),
                opener: Opener::new(from_client, client_salt),
                local_initial: server_initial,
                remote_initial: client_initial,
            },
        }
    }
}

/// Key, salt and first sequence number of what `sender` sends.
fn one_way(root: &Prk, sender: Role) -> (LessSafeKey, [u8; 4], Seq) {
    let [key_label, salt_label, initial_label]: [&[u8]; 3] = match sender {
        Role::Client => [b"client key", b"client salt", b"client initial"],
        Role::Server => [b"server key", b"server salt", b"server initial"],
    };
    let key: Zeroizing<[u8; 16]> = Zeroizing::new(expand(root, key_label));
    let key = UnboundKey::new(&AES_128_GCM, &*key).expect("sized for the algorithm");
    let initial = u32::from_be_bytes(expand(root, initial_label));
    (
        LessSafeKey::new(key),
        expand(root, salt_label),
        Seq::new(initial),
    )
}

struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(root: &Prk, label: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    root.expand(&[label], Len(N))
        .and_then(|okm| okm.fill(&mut out))
        .expect("far below the 255 blocks that RFC 5869 allows");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_starts_where_the_other_expects_it() {
        let secret = Secret::from_bytes([7; 32]);
        let (client, server) = (secret.keys(Role::Client), secret.keys(Role::Server));
        assert_eq!(client.local_initial, server.remote_initial);
        assert_eq!(client.remote_initial, server.local_initial);
        assert_ne!(client.local_initial, client.remote_initial);
        let other = Secret::from_bytes([8; 32]).keys(Role::Client);
        assert_ne!(client.local_initial, other.local_initial);
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::from_bytes([1; 32])), "Secret(..)");
    }
}
