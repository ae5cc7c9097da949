//! The token of a datagram: proof that who sent it has the secret, and that nobody changed it.
//!
//! AES-128-GCM with nothing to encrypt (GMAC, NIST SP 800-38D section 3): the tag over the datagram in
//! front of it. The nonce is the direction's salt and the datagram's number, which is never used twice.

use std::fmt;

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};

use super::datagram::TOKEN_BYTES;

/// Datagrams that one key seals. Far from what a connection can send, and from where forging one in as
/// many tries would be likelier than 2^-80.
pub const NUMBERS_MAX: u64 = 1 << 48;

fn nonce(salt: [u8; 4], number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&salt);
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Makes the tokens of one direction.
pub struct Sealer {
    key: LessSafeKey,
    salt: [u8; 4],
    next: u64,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer({})", self.next)
    }
}

impl Sealer {
    /// One that has sealed nothing.
    #[must_use]
    pub const fn new(key: LessSafeKey, salt: [u8; 4]) -> Self {
        Self { key, salt, next: 0 }
    }

    /// Numbers a datagram; `None` when all numbers are used up.
    pub fn take_number(&mut self) -> Option<u64> {
        let number = self.next;
        if number >= NUMBERS_MAX {
            return None;
        }
        self.next += 1;
        Some(number)
    }

    /// Seals the datagram of a number that [`Sealer::take_number`] gave, once: the token goes to its
    /// last [`TOKEN_BYTES`]. O(bytes).
    ///
    /// # Panics
    /// When it is shorter.
    pub fn seal(&self, number: u64, datagram: &mut [u8]) {
        let (body, token) = datagram.split_at_mut(datagram.len() - TOKEN_BYTES);
        let made = self
            .key
            .seal_in_place_separate_tag(nonce(self.salt, number), Aad::from(&*body), &mut [])
            .expect("fails only on lengths, which datagrams do not have");
        token.copy_from_slice(made.as_ref());
    }
}

/// Checks the tokens of one direction.
pub struct Opener {
    key: LessSafeKey,
    salt: [u8; 4],
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener(..)")
    }
}

impl Opener {
    /// With the other end's key.
    #[must_use]
    pub const fn new(key: LessSafeKey, salt: [u8; 4]) -> Self {
        Self { key, salt }
    }

    /// Whether the datagram of that number is as its sender sealed it. O(bytes), in constant time.
    ///
    /// # Panics
    /// When it is shorter than a token.
    #[must_use]
    pub fn is_genuine(&self, number: u64, datagram: &[u8]) -> bool {
        let (body, token) = datagram.split_at(datagram.len() - TOKEN_BYTES);
        let nonce = nonce(self.salt, number);
        let opened = self
            .key
            .open_in_place_separate_tag(nonce, Aad::from(body), token, &mut []);
        opened.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::keys::{Role, Secret};

    #[test]
    fn only_what_was_sealed_for_this_end_is_genuine() {
        let secret = Secret::from_bytes([3; 32]);
        let (mut client, server) = (secret.keys(Role::Client), secret.keys(Role::Server));
        let mut datagram = [5; 60];
        let number = client.sealer.take_number().expect("the first");
        client.sealer.seal(number, &mut datagram);
        assert!(server.opener.is_genuine(number, &datagram));
        assert!(!server.opener.is_genuine(number + 1, &datagram));
        assert!(!client.opener.is_genuine(number, &datagram), "sent back");
        for i in 0..datagram.len() * 8 {
            let mut forged = datagram;
            forged[i / 8] ^= 1 << (i % 8);
            assert!(!server.opener.is_genuine(number, &forged), "bit {i}");
        }
    }

    #[test]
    fn no_number_is_used_twice_nor_past_the_last() {
        let mut keys = Secret::from_bytes([3; 32]).keys(Role::Client);
        assert_eq!(keys.sealer.take_number(), Some(0));
        assert_eq!(keys.sealer.take_number(), Some(1));
        keys.sealer.next = NUMBERS_MAX - 1;
        assert_eq!(keys.sealer.take_number(), Some(NUMBERS_MAX - 1));
        assert_eq!(keys.sealer.take_number(), None);
    }
}
