//! How fast this machine's processor encrypts.

use std::time::{Duration, Instant};

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use fullbore_ssh::cipher::Cipher;

/// One packet of file data.
const BLOCK_BYTES: usize = 32 * 1024;

/// How long is measured: some thousand blocks, and not felt.
const TIME: Duration = Duration::from_millis(30);

/// Bytes per second that one thread seals with `cipher`; `None` for those that are not
/// authenticated by themselves.
#[must_use]
pub fn measure(cipher: Cipher) -> Option<u64> {
    let algorithm = match cipher {
        Cipher::Aes128Gcm => &aead::AES_128_GCM,
        Cipher::Aes256Gcm => &aead::AES_256_GCM,
        Cipher::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
        Cipher::Aes128Ctr | Cipher::Aes192Ctr | Cipher::Aes256Ctr => return None,
    };
    let key = vec![7; algorithm.key_len()];
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &key).ok()?);
    let mut block = vec![0; BLOCK_BYTES];
    let started = Instant::now();
    let mut bytes = 0u64;
    loop {
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        // The same nonce again and again: nothing of it leaves this function.
        let sealed = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut block);
        let _tag = sealed.ok()?;
        bytes += BLOCK_BYTES as u64;
        let elapsed = started.elapsed();
        if elapsed >= TIME {
            return Some((bytes as f64 / elapsed.as_secs_f64()) as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_have_a_speed() {
        assert!(measure(Cipher::Aes128Gcm).expect("measured") > 0);
        assert!(measure(Cipher::Chacha20Poly1305).expect("measured") > 0);
        assert_eq!(measure(Cipher::Aes128Ctr), None);
    }
}
