//! Why a key, a certificate's key or a signature was not taken.

use core::fmt;

/// Why a key or a signature could not be read, used or believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyError {
    /// The bytes are not what the format says; names the part that did not parse.
    Malformed(&'static str),
    /// Bytes were left over behind a complete value.
    TrailingBytes(&'static str),
    /// A key type that is not implemented (for example DSA); the name is cut and escaped for display.
    UnknownType(String),
    /// An RSA modulus outside of `RSA_BITS_MIN..=RSA_BITS_MAX`; the number of bits found.
    RsaBits(usize),
    /// An RSA public exponent that is even, below 3 or longer than `RSA_EXPONENT_BITS_MAX`.
    RsaExponent,
    /// A point that is not on its curve.
    InvalidPoint,
    /// The algorithm asked for or named in the signature does not belong to this key.
    WrongAlgorithm(String),
    /// The signature does not verify.
    BadSignature,
    /// A security key's signature that was made without a touch, where one is required.
    TouchMissing,
    /// A security key's signature without user verification, where it is required.
    UserVerificationMissing,
    /// The private key is encrypted and no passphrase was given.
    PassphraseNeeded,
    /// The passphrase does not open the private key.
    WrongPassphrase,
    /// The private key is encrypted with a cipher that is not implemented.
    UnknownCipher(String),
    /// The private key's passphrase goes through a key derivation that is not implemented.
    UnknownKdf(String),
    /// The key derivation asks for more rounds than `KDF_ROUNDS_MAX`, or for none.
    KdfRounds(u32),
    /// Not a PEM file, or one whose label is not a private key that is understood.
    UnknownFormat(String),
    /// Private and public half do not belong together, or the private numbers are inconsistent.
    Inconsistent,
    /// The file holds more than one key.
    SeveralKeys(u32),
    /// The key lives in a device; only an agent can sign with it.
    NeedsDevice,
    /// The cryptographic library cannot do this (RSA above 8192 bits, writing this key type).
    Unsupported(&'static str),
    /// Longer than the named limit for such a thing.
    TooLong(&'static str),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "malformed {what}"),
            Self::TrailingBytes(what) => write!(f, "extra bytes after {what}"),
            Self::UnknownType(name) => write!(f, "key type \"{name}\" is not supported"),
            Self::RsaBits(bits) => write!(
                f,
                "RSA key of {bits} bits; supported are {} to {}",
                super::RSA_BITS_MIN,
                super::RSA_BITS_MAX
            ),
            Self::RsaExponent => write!(f, "RSA public exponent out of range"),
            Self::InvalidPoint => write!(f, "public key is not a point of its curve"),
            Self::WrongAlgorithm(name) => {
                write!(
                    f,
                    "signature algorithm \"{name}\" does not belong to this key"
                )
            }
            Self::BadSignature => write!(f, "signature does not verify"),
            Self::TouchMissing => write!(f, "security key was not touched"),
            Self::UserVerificationMissing => write!(f, "security key did not verify its user"),
            Self::PassphraseNeeded => write!(f, "private key is encrypted; a passphrase is needed"),
            Self::WrongPassphrase => write!(f, "wrong passphrase"),
            Self::UnknownCipher(name) => write!(
                f,
                "private key is encrypted with \"{name}\", which is not supported; \
                 ssh-keygen -p -Z aes256-ctr re-encrypts it"
            ),
            Self::UnknownKdf(name) => {
                write!(
                    f,
                    "private key uses key derivation \"{name}\", which is not supported"
                )
            }
            Self::KdfRounds(rounds) => write!(
                f,
                "private key asks for {rounds} key derivation rounds; at most {} are done",
                super::KDF_ROUNDS_MAX
            ),
            Self::UnknownFormat(label) if label.is_empty() => write!(f, "not a private key file"),
            Self::UnknownFormat(label) => write!(
                f,
                "private key format \"{label}\" is not supported; ssh-keygen -p converts it"
            ),
            Self::Inconsistent => write!(f, "private key is inconsistent"),
            Self::SeveralKeys(count) => write!(f, "file holds {count} keys instead of one"),
            Self::NeedsDevice => {
                write!(
                    f,
                    "security key: load it into an agent (ssh-add) to sign with it"
                )
            }
            Self::Unsupported(what) => write!(f, "{what} is not supported"),
            Self::TooLong(what) => write!(f, "{what} is too long"),
        }
    }
}

impl core::error::Error for KeyError {}

/// Peer-chosen names are cut to this many bytes before they go into an error.
const NAME_SHOWN_BYTES_MAX: usize = 64;

/// A peer-chosen name as it may be shown: cut and made harmless.
pub(crate) fn shown(name: &[u8]) -> String {
    fullbore_base::escape_for_display(&name[..name.len().min(NAME_SHOWN_BYTES_MAX)])
}
