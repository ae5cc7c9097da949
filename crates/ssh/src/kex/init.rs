//! KEXINIT: what is offered, and what is chosen. RFC 4253 section 7.1.

use super::{HostKeyAlgorithm, Method};
use crate::cipher::{Cipher, Mac, Suite};
use crate::config::TransportConfig;
use crate::error::{Category, PeerIncompatible};
use crate::msg::SSH_MSG_KEXINIT;
use crate::packet::Compression;
use crate::transport::Algorithms;
use crate::wire::{FieldError, NameList, Put, Reader};

pub(crate) const EXT_INFO_CLIENT: &str = "ext-info-c";
pub(crate) const EXT_INFO_SERVER: &str = "ext-info-s";
pub(crate) const STRICT_CLIENT: &str = "kex-strict-c-v00@openssh.com";
pub(crate) const STRICT_SERVER: &str = "kex-strict-s-v00@openssh.com";

/// What this side offers.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) is_client: bool,
    pub(crate) kex: Vec<Method>,
    pub(crate) host_keys: Vec<HostKeyAlgorithm>,
    pub(crate) ciphers: Vec<Cipher>,
    pub(crate) macs: Vec<Mac>,
    pub(crate) compression: Vec<Compression>,
    pub(crate) strict: bool,
}

impl Offer {
    pub(crate) fn new(
        config: &TransportConfig,
        is_client: bool,
        host_keys: Vec<HostKeyAlgorithm>,
    ) -> Self {
        Self {
            is_client,
            kex: config.kex.clone(),
            host_keys,
            ciphers: config.ciphers.clone(),
            macs: config.macs.clone(),
            compression: config.compression.clone(),
            strict: config.strict_kex,
        }
    }

    /// The payload of a KEXINIT. The markers of strict kex and EXT_INFO count in the first
    /// exchange of a connection only.
    pub(crate) fn encode(&self, cookie: [u8; 16], is_first: bool, guess_follows: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(1536);
        out.put_u8(SSH_MSG_KEXINIT);
        out.put_raw(&cookie);
        let markers: &[&str] = match (is_first, self.is_client) {
            (false, _) => &[],
            (true, true) => &[EXT_INFO_CLIENT, STRICT_CLIENT],
            (true, false) => &[EXT_INFO_SERVER, STRICT_SERVER],
        };
        let markers = &markers[..markers.len().min(if self.strict { 2 } else { 1 })];
        let kex = self.kex.iter().map(|m| m.name());
        out.put_name_list(kex.chain(markers.iter().copied()));
        out.put_name_list(self.host_keys.iter().map(|a| a.name()));
        for _ in 0..2 {
            out.put_name_list(self.ciphers.iter().map(|c| c.name()));
        }
        for _ in 0..2 {
            out.put_name_list(self.macs.iter().map(|m| m.name()));
        }
        for _ in 0..2 {
            out.put_name_list(self.compression.iter().map(|c| c.name()));
        }
        out.put_name_list([]);
        out.put_name_list([]);
        out.put_bool(guess_follows);
        out.put_u32(0);
        out
    }

    /// Chooses: of each category the client's first name that the server has too.
    ///
    /// RFC 4253 7.1 also asks that a host key algorithm can do what the method needs (sign or
    /// encrypt); every method here needs a signature, and every algorithm gives one.
    pub(crate) fn negotiate(&self, remote: &KexInit<'_>) -> Result<Algorithms, PeerIncompatible> {
        let suite = |cipher, cipher_list, mac, mac_list| -> Result<Suite, PeerIncompatible> {
            let cipher = self.choose(cipher, &self.ciphers, |c| c.name(), cipher_list)?;
            let mac = if cipher.is_aead() {
                None
            } else {
                Some(self.choose(mac, &self.macs, |m| m.name(), mac_list)?)
            };
            Ok(Suite { cipher, mac })
        };
        let compression =
            |category, list| self.choose(category, &self.compression, |c| c.name(), list);
        Ok(Algorithms {
            kex: self.choose(Category::Kex, &self.kex, |m| m.name(), remote.kex)?,
            host_key: self.choose(
                Category::HostKey,
                &self.host_keys,
                |a| a.name(),
                remote.host_keys,
            )?,
            client_to_server: suite(
                Category::CipherClientToServer,
                remote.ciphers[0],
                Category::MacClientToServer,
                remote.macs[0],
            )?,
            server_to_client: suite(
                Category::CipherServerToClient,
                remote.ciphers[1],
                Category::MacServerToClient,
                remote.macs[1],
            )?,
            compression_client_to_server: compression(
                Category::CompressionClientToServer,
                remote.compression[0],
            )?,
            compression_server_to_client: compression(
                Category::CompressionServerToClient,
                remote.compression[1],
            )?,
            strict: false,
        })
    }

    fn choose<T: Copy>(
        &self,
        category: Category,
        local: &[T],
        name: impl Fn(T) -> &'static str,
        remote: NameList<'_>,
    ) -> Result<T, PeerIncompatible> {
        let chosen = if self.is_client {
            local.iter().find(|l| remote.contains(name(**l)))
        } else {
            remote
                .iter()
                .find_map(|r| local.iter().find(|l| name(**l) == r))
        };
        chosen.copied().ok_or_else(|| PeerIncompatible {
            category,
            local: local.iter().map(|l| name(*l).to_owned()).collect(),
            remote: remote
                .iter()
                .filter(|r| !is_marker(r))
                .take(PeerIncompatible::NAMES_MAX)
                .map(str::to_owned)
                .collect(),
        })
    }

    /// Whether a guessed packet counts. RFC 4253 7: both sides must agree on the first kex method
    /// and the first host key algorithm, as OpenSSH takes it.
    pub(crate) fn guess_is_right(&self, remote: &KexInit<'_>) -> bool {
        self.kex.first().map(|m| m.name()) == remote.kex.iter().next()
            && self.host_keys.first().map(|a| a.name()) == remote.host_keys.iter().next()
    }
}

/// What a peer's first KEXINIT offered: what a guess at its next connection has to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Key exchange methods, best first, separated by commas; markers among them.
    pub kex: String,
    /// Host key algorithms likewise.
    pub host_keys: String,
    /// Whether a guess was right, or would have been: both first choices were ours too.
    pub is_guess_right: bool,
}

impl Proposal {
    /// The longest list that is kept. Three times OpenSSH's longest.
    pub const LIST_BYTES_MAX: usize = 1024;

    /// `None` where a list is longer than that.
    pub(crate) fn of(remote: &KexInit<'_>, local: &Offer) -> Option<Self> {
        let list = |list: NameList<'_>| {
            let names: Vec<&str> = list.iter().collect();
            Some(names.join(",")).filter(|text| text.len() <= Self::LIST_BYTES_MAX)
        };
        Some(Self {
            kex: list(remote.kex)?,
            host_keys: list(remote.host_keys)?,
            is_guess_right: local.guess_is_right(remote),
        })
    }
}

fn is_marker(name: &str) -> bool {
    [
        EXT_INFO_CLIENT,
        EXT_INFO_SERVER,
        STRICT_CLIENT,
        STRICT_SERVER,
    ]
    .contains(&name)
}

/// The peer's KEXINIT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KexInit<'a> {
    pub(crate) kex: NameList<'a>,
    pub(crate) host_keys: NameList<'a>,
    /// Client to server, server to client.
    pub(crate) ciphers: [NameList<'a>; 2],
    pub(crate) macs: [NameList<'a>; 2],
    pub(crate) compression: [NameList<'a>; 2],
    pub(crate) guess_follows: bool,
}

impl<'a> KexInit<'a> {
    /// Parses a payload, number included.
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, FieldError> {
        let mut fields = Reader::new(payload);
        fields.bytes(1 + 16)?;
        let mut list = || fields.name_list();
        let init = Self {
            kex: list()?,
            host_keys: list()?,
            ciphers: [list()?, list()?],
            macs: [list()?, list()?],
            compression: [list()?, list()?],
            guess_follows: false,
        };
        // Languages, which nobody negotiates.
        fields.string()?;
        fields.string()?;
        let guess_follows = fields.bool()?;
        fields.u32()?;
        fields.finish()?;
        Ok(Self {
            guess_follows,
            ..init
        })
    }
}
