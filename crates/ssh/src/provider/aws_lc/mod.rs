//! The real provider: AWS-LC for everything but finite-field Diffie-Hellman (crypto-bigint,
//! constant time) and sntrup761.

mod dh;
mod kex;
mod packet;
#[cfg(test)]
mod tests;

use super::{
    ClientKex, Group, HostKeyError, KexError, KeyMaterial, OpeningKey, Provider, SealingKey,
    SecureRandom, SharedSecret,
};
use crate::cert::Certificate;
use crate::cipher::Suite;
use crate::kex::{HostKeyAlgorithm, Method};
use crate::key::PublicKey;

/// Cryptography by AWS-LC, randomness by the driver.
///
/// One departure: AWS-LC makes ML-KEM keys and encapsulations from its own generator, which has no
/// interface to seed it; the X25519 half of that exchange takes the driver's.
pub struct AwsLc {
    random: Box<dyn SecureRandom>,
}

impl AwsLc {
    /// A provider that takes its randomness from `random`.
    #[must_use]
    pub fn new(random: Box<dyn SecureRandom>) -> Self {
        Self { random }
    }
}

impl Provider for AwsLc {
    fn fill_random(&mut self, out: &mut [u8]) {
        self.random.fill(out);
    }

    fn kex_client(
        &mut self,
        method: Method,
        group: Option<&Group>,
    ) -> Result<Box<dyn ClientKex>, KexError> {
        kex::client(method, group, &mut *self.random)
    }

    fn kex_server(
        &mut self,
        method: Method,
        group: Option<&Group>,
        remote_public: &[u8],
    ) -> Result<(Vec<u8>, SharedSecret), KexError> {
        kex::server(method, group, remote_public, &mut *self.random)
    }

    fn sealing_key(&mut self, suite: Suite, material: &KeyMaterial) -> Box<dyn SealingKey> {
        packet::sealing_key(suite, material)
    }

    fn opening_key(&mut self, suite: Suite, material: &KeyMaterial) -> Box<dyn OpeningKey> {
        packet::opening_key(suite, material)
    }

    fn verify_host_key(
        &mut self,
        blob: &[u8],
        algorithm: HostKeyAlgorithm,
        data: &[u8],
        signature: &[u8],
    ) -> Result<(), HostKeyError> {
        let key = if algorithm.certificate {
            Certificate::from_blob(blob)
                .map_err(|_| HostKeyError::Malformed)?
                .key()
                .clone()
        } else {
            PublicKey::from_blob(blob).map_err(|_| HostKeyError::Malformed)?
        };
        if key.key_type() != algorithm.signature.key_type() {
            return Err(HostKeyError::Type);
        }
        key.verify(algorithm.signature, data, signature)
            .map_err(|_| HostKeyError::Signature)
    }
}
