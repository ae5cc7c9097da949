//! A provider without cryptography, for fuzzers and simulators: packets have their real layout and
//! a checksum that anybody can make, exchanges are instant, every signature is good.
//!
//! Never in a program: it protects nothing.

use super::{
    BadTag, ClientKex, Group, HostKeyError, KexError, KeyMaterial, OpeningKey, Provider,
    SealingKey, SharedSecret,
};
use crate::cipher::Suite;
use crate::kex::{HostKeyAlgorithm, Method};
use crate::wire::Put;
use zeroize::Zeroizing;

/// Fake cryptography; `seed` makes what it draws.
#[derive(Debug)]
pub struct Fake {
    state: u64,
}

impl Fake {
    /// A provider whose draws follow from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }
}

/// Both sides arrive at the same secret: it is public.
fn secret() -> SharedSecret {
    let mut encoded = Zeroizing::new(Vec::new());
    encoded.put_mpint(b"fake");
    SharedSecret(encoded)
}

/// A public value that an mpint can carry.
const PUBLIC: [u8; 32] = [1; 32];

impl Provider for Fake {
    fn fill_random(&mut self, out: &mut [u8]) {
        for byte in out {
            // Steele and others' SplitMix64.
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (mixed >> 56) as u8;
        }
    }

    fn kex_client(
        &mut self,
        _method: Method,
        _group: Option<&Group>,
    ) -> Result<Box<dyn ClientKex>, KexError> {
        Ok(Box::new(FakeKex))
    }

    fn kex_server(
        &mut self,
        _method: Method,
        _group: Option<&Group>,
        _remote_public: &[u8],
    ) -> Result<(Vec<u8>, SharedSecret), KexError> {
        Ok((PUBLIC.to_vec(), secret()))
    }

    fn sealing_key(&mut self, suite: Suite, _material: &KeyMaterial) -> Box<dyn SealingKey> {
        Box::new(FakeKey(suite))
    }

    fn opening_key(&mut self, suite: Suite, _material: &KeyMaterial) -> Box<dyn OpeningKey> {
        Box::new(FakeKey(suite))
    }

    fn verify_host_key(
        &mut self,
        _blob: &[u8],
        _algorithm: HostKeyAlgorithm,
        _data: &[u8],
        _signature: &[u8],
    ) -> Result<(), HostKeyError> {
        Ok(())
    }
}

struct FakeKex;

impl ClientKex for FakeKex {
    fn public(&self) -> &[u8] {
        &PUBLIC
    }

    fn finish(self: Box<Self>, _remote_public: &[u8]) -> Result<SharedSecret, KexError> {
        Ok(secret())
    }
}

struct FakeKey(Suite);

/// Cheap on purpose: the length and the sequence number, so that lost or repeated packets show.
fn fill_tag(sequence: u32, packet: &[u8], tag: &mut [u8]) {
    tag.fill(0xfa);
    let word = sequence ^ u32::try_from(packet.len()).unwrap_or(u32::MAX);
    tag[..4].copy_from_slice(&word.to_be_bytes());
}

impl SealingKey for FakeKey {
    fn seal(&mut self, sequence: u32, packet: &mut [u8], tag: &mut [u8]) {
        fill_tag(sequence, packet, tag);
    }
}

impl OpeningKey for FakeKey {
    fn head_len(&self) -> usize {
        if self.0.layout().len_is_padded { 16 } else { 4 }
    }

    fn packet_len(&mut self, _sequence: u32, head: &mut [u8]) -> u32 {
        u32::from_be_bytes([head[0], head[1], head[2], head[3]])
    }

    fn open(&mut self, sequence: u32, packet: &mut [u8], tag: &[u8]) -> Result<(), BadTag> {
        let mut expected = [0; 64];
        let expected = &mut expected[..tag.len()];
        fill_tag(sequence, packet, expected);
        if expected == tag { Ok(()) } else { Err(BadTag) }
    }
}
