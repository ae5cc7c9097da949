//! The exchange hash and the keys derived from it. RFC 4253 sections 7.2 and 8, RFC 4419 3.

use super::{HashAlgorithm, Method};
use crate::cipher::Suite;
use crate::provider::{Group, KeyMaterial, SharedSecret};
use crate::wire::Put;
use aws_lc_rs::digest;
use zeroize::Zeroizing;

impl HashAlgorithm {
    const fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        digest::digest(self.algorithm(), bytes).as_ref().to_vec()
    }
}

/// What both sides said before the method's own messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transcript {
    /// V_C, without CR LF.
    pub(crate) client_version: Vec<u8>,
    /// V_S, without CR LF.
    pub(crate) server_version: Vec<u8>,
    /// I_C, the payload of the client's KEXINIT.
    pub(crate) client_kexinit: Vec<u8>,
    /// I_S, the payload of the server's KEXINIT.
    pub(crate) server_kexinit: Vec<u8>,
}

/// What a group exchange adds to the hash.
#[derive(Clone, Debug)]
pub(crate) struct GexRecord {
    pub(crate) bounds: super::GexBounds,
    pub(crate) group: Group,
}

/// The method's own values.
pub(crate) struct Values<'a> {
    pub(crate) method: Method,
    pub(crate) host_key: &'a [u8],
    pub(crate) gex: Option<&'a GexRecord>,
    pub(crate) client_public: &'a [u8],
    pub(crate) server_public: &'a [u8],
    pub(crate) secret: &'a SharedSecret,
}

impl Transcript {
    /// H.
    pub(crate) fn hash(&self, values: &Values<'_>) -> Vec<u8> {
        let mut input = Zeroizing::new(Vec::with_capacity(8 * 1024));
        input.put_string(&self.client_version);
        input.put_string(&self.server_version);
        input.put_string(&self.client_kexinit);
        input.put_string(&self.server_kexinit);
        input.put_string(values.host_key);
        if let Some(gex) = values.gex {
            input.put_u32(gex.bounds.min);
            input.put_u32(gex.bounds.preferred);
            input.put_u32(gex.bounds.max);
            input.put_mpint(&gex.group.p);
            input.put_mpint(&gex.group.g);
        }
        for public in [values.client_public, values.server_public] {
            put_public(&mut input, values.method, public);
        }
        // Nothing grows behind the secret, so that no copy of it is left in freed memory.
        input.reserve(values.secret.0.len());
        input.put_raw(&values.secret.0);
        values.method.hash().digest(&input)
    }
}

/// A public value as the method's messages and the hash have it.
pub(super) fn put_public(out: &mut Vec<u8>, method: Method, public: &[u8]) {
    if method.public_is_mpint() {
        out.put_mpint(public);
    } else {
        out.put_string(public);
    }
}

/// What an exchange ends with, before keys are made of it.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) hash: HashAlgorithm,
    pub(crate) secret: SharedSecret,
    /// H; the first of a connection is its session identifier.
    pub(crate) exchange_hash: Vec<u8>,
}

/// Which way packets go, for the letters of RFC 4253 7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ClientToServer,
    ServerToClient,
}

/// The keys of one direction.
pub(crate) fn derive(
    agreed: &Agreed,
    session_id: &[u8],
    suite: Suite,
    direction: Direction,
) -> KeyMaterial {
    let [iv, key, mac] = match direction {
        Direction::ClientToServer => *b"ACE",
        Direction::ServerToClient => *b"BDF",
    };
    let material = |letter, len| expand(agreed, session_id, letter, len);
    KeyMaterial {
        iv: material(iv, suite.cipher.iv_len()),
        key: material(key, suite.cipher.key_len()),
        mac_key: material(mac, suite.mac.map_or(0, crate::cipher::Mac::tag_len)),
    }
}

/// RFC 4253 7.2: K1 = HASH(K || H || letter || session_id), Kn = HASH(K || H || K1 || .. || Kn-1).
fn expand(agreed: &Agreed, session_id: &[u8], letter: u8, len: usize) -> Zeroizing<Vec<u8>> {
    let algorithm = agreed.hash.algorithm();
    let mut out = Zeroizing::new(Vec::with_capacity(len + digest::MAX_OUTPUT_LEN));
    while out.len() < len {
        let mut context = digest::Context::new(algorithm);
        context.update(&agreed.secret.0);
        context.update(&agreed.exchange_hash);
        if out.is_empty() {
            context.update(&[letter]);
            context.update(session_id);
        } else {
            context.update(&out);
        }
        out.extend_from_slice(context.finish().as_ref());
    }
    out.truncate(len);
    out
}
