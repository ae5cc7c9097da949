//! Where cryptography comes from: one trait for all that a connection needs, so that a whole
//! engine runs under a fuzzer or a simulator with fake keys.

mod aws_lc;
#[cfg(any(test, feature = "fake-crypto"))]
pub mod fake;

pub use aws_lc::AwsLc;

use crate::cipher::Suite;
use crate::kex::{HostKeyAlgorithm, Method};
use zeroize::Zeroizing;

/// Secret randomness of the machine; the driver has the real one.
pub trait SecureRandom: Send {
    /// Fills `out` with bytes that nobody can guess.
    fn fill(&mut self, out: &mut [u8]);
}

/// The mathematics of a connection.
pub trait Provider: Send {
    /// Fills `out` with bytes that nobody can guess.
    fn fill_random(&mut self, out: &mut [u8]);

    /// A client's half of an exchange; `group` is given exactly for group exchange.
    ///
    /// # Errors
    /// `Group` when the group cannot be used, `Internal` when the library fails.
    fn kex_client(
        &mut self,
        method: Method,
        group: Option<&Group>,
    ) -> Result<Box<dyn ClientKex>, KexError>;

    /// A server's half, done at once: its public value and the shared secret.
    ///
    /// # Errors
    /// `PublicValue` when the client's is not acceptable, `Internal` when the library fails.
    fn kex_server(
        &mut self,
        method: Method,
        group: Option<&Group>,
        remote_public: &[u8],
    ) -> Result<(Vec<u8>, SharedSecret), KexError>;

    /// Keys for packets that leave.
    fn sealing_key(&mut self, suite: Suite, material: &KeyMaterial) -> Box<dyn SealingKey>;

    /// Keys for packets that arrive.
    fn opening_key(&mut self, suite: Suite, material: &KeyMaterial) -> Box<dyn OpeningKey>;

    /// Whether `signature` by the key or certificate in `blob` covers `data` under `algorithm`.
    ///
    /// # Errors
    /// What is wrong with the key or the signature.
    fn verify_host_key(
        &mut self,
        blob: &[u8],
        algorithm: HostKeyAlgorithm,
        data: &[u8],
        signature: &[u8],
    ) -> Result<(), HostKeyError>;
}

/// The client's secret of an exchange under way.
pub trait ClientKex: Send {
    /// The value to send: a magnitude for the mpint methods, else the string's bytes.
    fn public(&self) -> &[u8];

    /// The shared secret, from the server's value.
    ///
    /// # Errors
    /// `PublicValue` when the server's value is not acceptable.
    fn finish(self: Box<Self>, remote_public: &[u8]) -> Result<SharedSecret, KexError>;
}

/// A finite-field group, as magnitudes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The modulus.
    pub p: Vec<u8>,
    /// The generator.
    pub g: Vec<u8>,
}

/// The secret K, encoded as it enters the exchange hash and key derivation (an mpint, or a string
/// for the hybrid methods). Zeroized when dropped, and not to be printed.
pub struct SharedSecret(pub Zeroizing<Vec<u8>>);

impl std::fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedSecret(..)")
    }
}

/// Why an exchange cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KexError {
    /// The peer's public value is not acceptable.
    PublicValue,
    /// The group cannot be used.
    Group,
    /// The library failed.
    Internal,
}

/// Why a host key does not prove what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKeyError {
    /// The blob or the signature does not parse.
    Malformed,
    /// The key is not of the type that the algorithm needs.
    Type,
    /// The signature does not match.
    Signature,
}

/// Secrets of one direction, sized by the suite. Zeroized when dropped.
pub struct KeyMaterial {
    /// Initial counter or nonce.
    pub iv: Zeroizing<Vec<u8>>,
    /// Cipher key.
    pub key: Zeroizing<Vec<u8>>,
    /// MAC key; empty for an AEAD.
    pub mac_key: Zeroizing<Vec<u8>>,
}

/// Protects packets that leave, in place.
pub trait SealingKey: Send {
    /// `packet` is length word, padding length, payload and padding, in the clear; it becomes
    /// what goes on the wire, `tag` (of the suite's tag length) what follows it. Every call uses
    /// up one nonce or counter run; `sequence` must never repeat under one key.
    fn seal(&mut self, sequence: u32, packet: &mut [u8], tag: &mut [u8]);
}

/// Opens packets that arrive, in place. For each packet: `packet_len` once, then `open` once.
pub trait OpeningKey: Send {
    /// How many bytes of the packet `packet_len` needs: the length word, or the first block.
    fn head_len(&self) -> usize;

    /// The length word, from the first `head_len` bytes, which may be decrypted in place. Not
    /// authenticated yet.
    fn packet_len(&mut self, sequence: u32, head: &mut [u8]) -> u32;

    /// Checks `tag` and decrypts the rest of `packet` (length word included, as `packet_len` left
    /// it).
    ///
    /// # Errors
    /// [`BadTag`], and the packet's bytes are then worthless.
    fn open(&mut self, sequence: u32, packet: &mut [u8], tag: &[u8]) -> Result<(), BadTag>;
}

/// The packet was not made with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTag;
