//! Packet protection: AES-GCM, chacha20-poly1305@openssh.com, AES-CTR with HMAC. All in place, no
//! allocation for a packet.

use crate::cipher::{Cipher, Mac, Suite};
use crate::provider::{BadTag, KeyMaterial, OpeningKey, SealingKey};
use aws_lc_rs::aead::chacha20_poly1305_openssh as chacha;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{constant_time, hmac};

const SIZED: &str = "key material is sized by the suite";
const CANNOT_FAIL: &str = "fails only on lengths, which the packet layer bounds";

pub(super) fn sealing_key(suite: Suite, material: &KeyMaterial) -> Box<dyn SealingKey> {
    match suite.cipher {
        Cipher::Aes128Gcm | Cipher::Aes256Gcm => Box::new(Gcm::new(suite.cipher, material)),
        Cipher::Chacha20Poly1305 => {
            let key: &[u8; chacha::KEY_LEN] = material.key.as_slice().try_into().expect(SIZED);
            Box::new(ChachaSealing(chacha::SealingKey::new(key)))
        }
        Cipher::Aes128Ctr | Cipher::Aes192Ctr | Cipher::Aes256Ctr => ctr(suite, material),
    }
}

pub(super) fn opening_key(suite: Suite, material: &KeyMaterial) -> Box<dyn OpeningKey> {
    match suite.cipher {
        Cipher::Aes128Gcm | Cipher::Aes256Gcm => Box::new(Gcm::new(suite.cipher, material)),
        Cipher::Chacha20Poly1305 => {
            let key: &[u8; chacha::KEY_LEN] = material.key.as_slice().try_into().expect(SIZED);
            Box::new(ChachaOpening(chacha::OpeningKey::new(key)))
        }
        Cipher::Aes128Ctr | Cipher::Aes192Ctr | Cipher::Aes256Ctr => ctr(suite, material),
    }
}

fn clear_len(head: &[u8]) -> u32 {
    u32::from_be_bytes([head[0], head[1], head[2], head[3]])
}

/// RFC 5647 7.1: a nonce of a fixed part of 4 bytes and an invocation counter of 8 that goes up
/// by one for each packet; the length word is authenticated and goes in the clear.
struct Gcm {
    key: LessSafeKey,
    fixed: [u8; 4],
    counter: u64,
}

impl Gcm {
    fn new(cipher: Cipher, material: &KeyMaterial) -> Self {
        let algorithm = if cipher == Cipher::Aes128Gcm {
            &AES_128_GCM
        } else {
            &AES_256_GCM
        };
        let (fixed, counter) = material.iv.split_at(4);
        Self {
            key: LessSafeKey::new(UnboundKey::new(algorithm, &material.key).expect(SIZED)),
            fixed: fixed.try_into().expect(SIZED),
            counter: u64::from_be_bytes(counter.try_into().expect(SIZED)),
        }
    }

    /// Wraps, as RFC 5647 has it; a key does not see 2^64 packets.
    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.fixed);
        nonce[4..].copy_from_slice(&self.counter.to_be_bytes());
        self.counter = self.counter.wrapping_add(1);
        Nonce::assume_unique_for_key(nonce)
    }
}

impl SealingKey for Gcm {
    fn seal(&mut self, _sequence: u32, packet: &mut [u8], tag: &mut [u8]) {
        let nonce = self.next_nonce();
        let (len_word, body) = packet.split_at_mut(4);
        let made = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&*len_word), body)
            .expect(CANNOT_FAIL);
        tag.copy_from_slice(made.as_ref());
    }
}

impl OpeningKey for Gcm {
    fn head_len(&self) -> usize {
        4
    }

    fn packet_len(&mut self, _sequence: u32, head: &mut [u8]) -> u32 {
        clear_len(head)
    }

    fn open(&mut self, _sequence: u32, packet: &mut [u8], tag: &[u8]) -> Result<(), BadTag> {
        let nonce = self.next_nonce();
        let (len_word, body) = packet.split_at_mut(4);
        self.key
            .open_in_place_separate_tag(nonce, Aad::from(&*len_word), tag, body)
            .map(|_| ())
            .map_err(|_| BadTag)
    }
}

struct ChachaSealing(chacha::SealingKey);

impl SealingKey for ChachaSealing {
    fn seal(&mut self, sequence: u32, packet: &mut [u8], tag: &mut [u8]) {
        let tag: &mut [u8; chacha::TAG_LEN] = tag.try_into().expect("the layout's tag length");
        self.0.seal_in_place(sequence, packet, tag);
    }
}

struct ChachaOpening(chacha::OpeningKey);

impl OpeningKey for ChachaOpening {
    fn head_len(&self) -> usize {
        4
    }

    fn packet_len(&mut self, sequence: u32, head: &mut [u8]) -> u32 {
        let word = [head[0], head[1], head[2], head[3]];
        u32::from_be_bytes(self.0.decrypt_packet_length(sequence, word))
    }

    fn open(&mut self, sequence: u32, packet: &mut [u8], tag: &[u8]) -> Result<(), BadTag> {
        let tag: &[u8; chacha::TAG_LEN] = tag.try_into().map_err(|_| BadTag)?;
        self.0
            .open_in_place(sequence, packet, tag)
            .map(|_| ())
            .map_err(|_| BadTag)
    }
}

/// RFC 4344 4: one counter that runs through all packets of a key, in blocks.
struct Ctr {
    key: EncryptingKey,
    counter: u128,
}

impl Ctr {
    fn new(cipher: Cipher, material: &KeyMaterial) -> Self {
        let algorithm = match cipher.key_len() {
            16 => &AES_128,
            24 => &AES_192,
            _ => &AES_256,
        };
        let key = UnboundCipherKey::new(algorithm, &material.key).expect(SIZED);
        Self {
            key: EncryptingKey::ctr(key).expect(SIZED),
            counter: u128::from_be_bytes(material.iv.as_slice().try_into().expect(SIZED)),
        }
    }

    /// Encrypts or decrypts whole blocks.
    fn apply(&mut self, blocks: &mut [u8]) {
        debug_assert!(blocks.len().is_multiple_of(16), "packets are whole blocks");
        let context = EncryptionContext::Iv128(FixedLength::from(self.counter.to_be_bytes()));
        self.key
            .less_safe_encrypt(blocks, context)
            .expect(CANNOT_FAIL);
        self.counter = self.counter.wrapping_add((blocks.len() / 16) as u128);
    }
}

fn tag(key: &hmac::Key, sequence: u32, packet: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(&sequence.to_be_bytes());
    context.update(packet);
    context.sign()
}

fn check(key: &hmac::Key, sequence: u32, packet: &[u8], remote: &[u8]) -> Result<(), BadTag> {
    constant_time::verify_slices_are_equal(tag(key, sequence, packet).as_ref(), remote)
        .map_err(|_| BadTag)
}

/// OpenSSH PROTOCOL 1.5: the length goes in the clear, the tag covers the ciphertext.
struct CtrEtm {
    ctr: Ctr,
    mac: hmac::Key,
}

/// RFC 4253 6.4: everything is encrypted, the tag covers the clear packet.
struct CtrAndMac {
    ctr: Ctr,
    mac: hmac::Key,
}

/// Either shape, for either direction.
trait CtrKey: SealingKey + OpeningKey {}
impl CtrKey for CtrEtm {}
impl CtrKey for CtrAndMac {}

fn ctr(suite: Suite, material: &KeyMaterial) -> Box<dyn CtrKey> {
    let mac = suite.mac.expect("a suite without an AEAD has a MAC");
    let algorithm = match mac {
        Mac::HmacSha256 | Mac::HmacSha256Etm => hmac::HMAC_SHA256,
        Mac::HmacSha512 | Mac::HmacSha512Etm => hmac::HMAC_SHA512,
    };
    let ctr = Ctr::new(suite.cipher, material);
    let key = hmac::Key::new(algorithm, &material.mac_key);
    if mac.is_etm() {
        Box::new(CtrEtm { ctr, mac: key })
    } else {
        Box::new(CtrAndMac { ctr, mac: key })
    }
}

impl SealingKey for CtrEtm {
    fn seal(&mut self, sequence: u32, packet: &mut [u8], out: &mut [u8]) {
        self.ctr.apply(&mut packet[4..]);
        out.copy_from_slice(tag(&self.mac, sequence, packet).as_ref());
    }
}

impl OpeningKey for CtrEtm {
    fn head_len(&self) -> usize {
        4
    }

    fn packet_len(&mut self, _sequence: u32, head: &mut [u8]) -> u32 {
        clear_len(head)
    }

    fn open(&mut self, sequence: u32, packet: &mut [u8], remote: &[u8]) -> Result<(), BadTag> {
        check(&self.mac, sequence, packet, remote)?;
        self.ctr.apply(&mut packet[4..]);
        Ok(())
    }
}

impl SealingKey for CtrAndMac {
    fn seal(&mut self, sequence: u32, packet: &mut [u8], out: &mut [u8]) {
        out.copy_from_slice(tag(&self.mac, sequence, packet).as_ref());
        self.ctr.apply(packet);
    }
}

impl OpeningKey for CtrAndMac {
    fn head_len(&self) -> usize {
        16
    }

    fn packet_len(&mut self, _sequence: u32, head: &mut [u8]) -> u32 {
        self.ctr.apply(head);
        clear_len(head)
    }

    fn open(&mut self, sequence: u32, packet: &mut [u8], remote: &[u8]) -> Result<(), BadTag> {
        self.ctr.apply(&mut packet[16..]);
        check(&self.mac, sequence, packet, remote)
    }
}
