//! Password hashes: how `fullbore serve` checks a password and makes a hash for its configuration.
//!
//! `$pbkdf2-sha256$ROUNDS$SALT$HASH`, as passlib writes it: base64 with `.` for `+` and no padding.

use std::fmt;
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use base64ct::{Base64Unpadded, Encoding};
use fullbore_ssh::key::Secret;
use fullbore_ssh::provider::SecureRandom;

/// OWASP's advice (2023) for PBKDF2-HMAC-SHA256: about 0.1 s of one core.
const ROUNDS: u32 = 600_000;

/// More rounds than this would let a mistyped hash stop a worker for seconds.
const ROUNDS_MAX: u32 = 10_000_000;

/// Fewer are not worth the name.
const ROUNDS_MIN: u32 = 1000;

const SALT_LEN: usize = 16;
const SALT_LEN_MAX: usize = 64;
const HASH_LEN: usize = 32;

const PREFIX: &str = "$pbkdf2-sha256$";

/// A password hash. Compared in constant time.
#[derive(Clone)]
pub struct PasswordHash {
    rounds: NonZeroU32,
    salt: Vec<u8>,
    hash: [u8; HASH_LEN],
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// Why a text is no password hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordHashError {
    /// Not of the form `$pbkdf2-sha256$ROUNDS$SALT$HASH`.
    Form,
    /// Rounds outside 1,000 to 10,000,000.
    Rounds,
    /// Salt or hash of a length that is not supported.
    Length,
}

impl fmt::Display for PasswordHashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => {
                "a password hash looks like $pbkdf2-sha256$ROUNDS$SALT$HASH; \
                 make one with: fullbore hash-password"
            }
            Self::Rounds => "the password hash must have 1000 to 10000000 rounds",
            Self::Length => "the password hash needs a salt of up to 64 bytes and a hash of 32",
        })
    }
}

impl std::error::Error for PasswordHashError {}

impl PasswordHash {
    /// Hashes a password with a new salt.
    #[must_use]
    pub fn make(password: &Secret, random: &mut dyn SecureRandom) -> Self {
        let mut salt = vec![0; SALT_LEN];
        random.fill(&mut salt);
        let rounds = NonZeroU32::new(ROUNDS).expect("not zero");
        let mut hash = [0; HASH_LEN];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            rounds,
            &salt,
            password.expose(),
            &mut hash,
        );
        Self { rounds, salt, hash }
    }

    /// Reads a hash.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, PasswordHashError> {
        let mut fields = text
            .trim()
            .strip_prefix(PREFIX)
            .ok_or(PasswordHashError::Form)?
            .split('$');
        let (Some(rounds), Some(salt), Some(hash), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(PasswordHashError::Form);
        };
        let rounds: u32 = rounds.parse().map_err(|_| PasswordHashError::Form)?;
        if !(ROUNDS_MIN..=ROUNDS_MAX).contains(&rounds) {
            return Err(PasswordHashError::Rounds);
        }
        let salt = decode(salt).ok_or(PasswordHashError::Form)?;
        if salt.len() > SALT_LEN_MAX {
            return Err(PasswordHashError::Length);
        }
        let hash = decode(hash).ok_or(PasswordHashError::Form)?;
        Ok(Self {
            rounds: NonZeroU32::new(rounds).ok_or(PasswordHashError::Rounds)?,
            salt,
            hash: hash.try_into().map_err(|_| PasswordHashError::Length)?,
        })
    }

    /// A hash that takes as long to check and is of no password.
    #[must_use]
    pub fn never(&self) -> Self {
        let mut never = self.clone();
        never.salt.push(0);
        never.hash = [0; HASH_LEN];
        never
    }

    /// Whether this is the hash of `password`. Takes as long as making one: a job for a pool.
    #[must_use]
    pub fn is_of(&self, password: &Secret) -> bool {
        pbkdf2::verify(
            pbkdf2::PBKDF2_HMAC_SHA256,
            self.rounds,
            &self.salt,
            password.expose(),
            &self.hash,
        )
        .is_ok()
    }
}

impl fmt::Display for PasswordHash {
    /// The text for the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (salt, hash) = (encode(&self.salt), encode(&self.hash));
        write!(f, "{PREFIX}{}${salt}${hash}", self.rounds)
    }
}

fn encode(bytes: &[u8]) -> String {
    Base64Unpadded::encode_string(bytes).replace('+', ".")
}

fn decode(text: &str) -> Option<Vec<u8>> {
    if text.contains('+') {
        return None;
    }
    Base64Unpadded::decode_vec(&text.replace('.', "+")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with Python: `hashlib.pbkdf2_hmac("sha256", b"password", b"saltsaltsaltsalt", 1000)`
    /// in passlib's form.
    const KNOWN: &str =
        "$pbkdf2-sha256$1000$c2FsdHNhbHRzYWx0c2FsdA$8nX7hwFEzIB8aPajJTYK8weHQc5Ngz0pFVAKvSu4jQA";

    #[test]
    fn a_known_hash_is_of_its_password_only() {
        let hash = PasswordHash::parse(KNOWN).expect("well formed");
        assert!(hash.is_of(&Secret::new(b"password".to_vec())));
        assert!(!hash.is_of(&Secret::new(b"Password".to_vec())));
        assert_eq!(hash.to_string(), KNOWN);
    }

    #[test]
    fn what_is_made_can_be_read() {
        let password = Secret::new(b"s".to_vec());
        let hash = PasswordHash::make(&password, &mut crate::driver::random::SystemRandom::new());
        let again = PasswordHash::parse(&hash.to_string()).expect("well formed");
        assert!(again.is_of(&password));
    }

    #[test]
    fn bad_hashes_are_refused() {
        use PasswordHashError as E;
        let of = |text: &str| PasswordHash::parse(text).map(|_| ()).expect_err(text);
        assert_eq!(of("password"), E::Form);
        assert_eq!(of("$pbkdf2-sha256$1000$c2FsdA"), E::Form);
        assert_eq!(of("$pbkdf2-sha256$999$c2FsdA$c2FsdA"), E::Rounds);
        assert_eq!(of("$pbkdf2-sha256$1000$c2FsdA$c2FsdA"), E::Length);
        assert_eq!(of("$pbkdf2-sha256$1000$c2F+dA$c2FsdA"), E::Form);
    }
}
