//! The server's steps of an exchange, each consumed to make the next.

use super::client::kex_error;
use super::hash::{Agreed, GexRecord, Transcript, Values, put_public};
use super::{GexBounds, HostKeyAlgorithm, Method, server_group};
use crate::config::HostKey;
use crate::error::{Closed, Error, PeerMisbehaved};
use crate::msg::{
    SSH_MSG_KEX_DH_GEX_INIT, SSH_MSG_KEX_DH_GEX_REPLY, SSH_MSG_KEX_DH_GEX_REQUEST,
    SSH_MSG_KEXDH_INIT, SSH_MSG_KEXDH_REPLY,
};
use crate::provider::Provider;
use crate::wire::{Put, Reader};

/// What the server waits for.
pub(crate) enum ServerStep {
    /// The bounds of a group (group exchange only).
    GroupRequest(AwaitGroupRequest),
    /// The client's value.
    Init(AwaitInit),
}

/// A group exchange was agreed on.
pub(crate) struct AwaitGroupRequest {
    method: Method,
}

/// The method is known, and the group.
pub(crate) struct AwaitInit {
    method: Method,
    gex: Option<GexRecord>,
}

/// What the server signs with.
pub(crate) struct Signer<'a> {
    pub(crate) key: &'a dyn HostKey,
    pub(crate) algorithm: HostKeyAlgorithm,
}

impl ServerStep {
    pub(crate) const fn start(method: Method) -> Self {
        match method {
            Method::DhGroupExchangeSha256 => Self::GroupRequest(AwaitGroupRequest { method }),
            Method::Mlkem768X25519Sha256
            | Method::Sntrup761X25519Sha512
            | Method::Sntrup761X25519Sha512Openssh
            | Method::Curve25519Sha256
            | Method::Curve25519Sha256Libssh
            | Method::EcdhNistp256
            | Method::EcdhNistp384
            | Method::EcdhNistp521
            | Method::DhGroup14Sha256
            | Method::DhGroup16Sha512
            | Method::DhGroup18Sha512 => Self::Init(AwaitInit { method, gex: None }),
        }
    }
}

impl AwaitGroupRequest {
    /// The message that this step takes.
    pub(crate) const MESSAGE: u8 = SSH_MSG_KEX_DH_GEX_REQUEST;

    /// RFC 4419 3: SSH_MSG_KEX_DH_GEX_REQUEST.
    pub(crate) fn on_request(self, payload: &[u8]) -> Result<(AwaitInit, Vec<u8>), Error> {
        let mut fields = Reader::new(&payload[1..]);
        let bounds = GexBounds {
            min: fields.u32()?,
            preferred: fields.u32()?,
            max: fields.u32()?,
        };
        fields.finish()?;
        if bounds.min > bounds.max || bounds.preferred < bounds.min || bounds.preferred > bounds.max
        {
            return Err(PeerMisbehaved::KexGroupRequest.into());
        }
        let group = server_group(bounds).ok_or(PeerMisbehaved::KexGroup)?;
        let mut message = vec![SSH_MSG_KEXDH_REPLY];
        message.put_mpint(&group.p);
        message.put_mpint(&group.g);
        let step = AwaitInit {
            method: self.method,
            gex: Some(GexRecord {
                bounds,
                group: group.clone(),
            }),
        };
        Ok((step, message))
    }
}

impl AwaitInit {
    /// The message that this step takes.
    pub(crate) const fn message(&self) -> u8 {
        match self.gex {
            None => SSH_MSG_KEXDH_INIT,
            Some(_) => SSH_MSG_KEX_DH_GEX_INIT,
        }
    }

    /// RFC 4253 8: the client's value; the answer is the server's, with key and signature.
    pub(crate) fn on_init(
        self,
        payload: &[u8],
        transcript: &Transcript,
        signer: &Signer<'_>,
        provider: &mut dyn Provider,
    ) -> Result<(Agreed, Vec<u8>), Error> {
        let mut fields = Reader::new(&payload[1..]);
        let client_public = if self.method.public_is_mpint() {
            fields.mpint()?
        } else {
            fields.string()?
        };
        fields.finish()?;
        let group = self.gex.as_ref().map(|gex| &gex.group);
        let (server_public, secret) = provider
            .kex_server(self.method, group, client_public)
            .map_err(kex_error)?;
        let host_key = signer
            .key
            .blob(signer.algorithm.name())
            .expect("only algorithms that a key serves are offered");
        let exchange_hash = transcript.hash(&Values {
            method: self.method,
            host_key: &host_key,
            gex: self.gex.as_ref(),
            client_public,
            server_public: &server_public,
            secret: &secret,
        });
        let signature = signer
            .key
            .sign(signer.algorithm.name(), &exchange_hash)
            .ok_or(Closed::Crypto {
                what: "signing with the host key",
            })?;
        let mut message = vec![match self.gex {
            None => SSH_MSG_KEXDH_REPLY,
            Some(_) => SSH_MSG_KEX_DH_GEX_REPLY,
        }];
        message.put_string(&host_key);
        put_public(&mut message, self.method, &server_public);
        message.put_string(&signature);
        let agreed = Agreed {
            hash: self.method.hash(),
            secret,
            exchange_hash,
        };
        Ok((agreed, message))
    }
}
