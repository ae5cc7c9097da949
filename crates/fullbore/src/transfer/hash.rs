//! Digests of file content.

use aws_lc_rs::digest;
use fullbore_sftp::proto::HashAlgorithm;

use super::side::Digest;

/// A digest in the making.
pub(crate) enum Hasher {
    Sha256(digest::Context),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    pub(crate) fn new(algorithm: HashAlgorithm) -> Self {
        match algorithm {
            HashAlgorithm::Sha256 => Self::Sha256(digest::Context::new(&digest::SHA256)),
            HashAlgorithm::Blake3 => Self::Blake3(Box::default()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(context) => context.update(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    pub(crate) fn finish(self) -> Digest {
        match self {
            Self::Sha256(context) => {
                let output = context.finish();
                Digest {
                    algorithm: HashAlgorithm::Sha256,
                    bytes: output.as_ref().try_into().expect("SHA-256 has 32 bytes"),
                }
            }
            Self::Blake3(hasher) => Digest {
                algorithm: HashAlgorithm::Blake3,
                bytes: *hasher.finalize().as_bytes(),
            },
        }
    }
}
