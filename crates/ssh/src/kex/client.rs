//! The client's steps of an exchange, each consumed to make the next.

use super::hash::{Agreed, GexRecord, Transcript, Values, put_public};
use super::{GexBounds, HostKeyAlgorithm, Method};
use crate::config::{GEX_BITS_MAX, GEX_BITS_MIN, GEX_BITS_PREFERRED, HOST_KEY_BYTES_MAX};
use crate::error::{Closed, Error, PeerMisbehaved};
use crate::msg::{
    SSH_MSG_KEX_DH_GEX_INIT, SSH_MSG_KEX_DH_GEX_REPLY, SSH_MSG_KEX_DH_GEX_REQUEST,
    SSH_MSG_KEXDH_INIT, SSH_MSG_KEXDH_REPLY,
};
use crate::provider::{ClientKex, Group, HostKeyError, KexError, Provider};
use crate::wire::{Put, Reader};

/// What the client waits for.
pub(crate) enum ClientStep {
    /// A group from the server (group exchange only).
    Group(AwaitGroup),
    /// The server's value, host key and signature.
    Reply(AwaitReply),
}

/// The group request is out.
pub(crate) struct AwaitGroup {
    method: Method,
    bounds: GexBounds,
}

/// The client's value is out.
pub(crate) struct AwaitReply {
    method: Method,
    secret: Box<dyn ClientKex>,
    gex: Option<GexRecord>,
}

/// The exchange's end, as the client sees it: the signature is verified, the key not yet accepted.
pub(crate) struct Reply {
    pub(crate) agreed: Agreed,
    pub(crate) host_key: Vec<u8>,
}

pub(crate) fn kex_error(error: KexError) -> Error {
    match error {
        KexError::PublicValue => PeerMisbehaved::KexPublicValue.into(),
        KexError::Group => PeerMisbehaved::KexGroup.into(),
        KexError::Internal => Closed::Crypto {
            what: "key agreement",
        }
        .into(),
    }
}

impl ClientStep {
    /// Starts a method: what to wait for, and the message to send.
    pub(crate) fn start(
        method: Method,
        provider: &mut dyn Provider,
    ) -> Result<(Self, Vec<u8>), Error> {
        if method == Method::DhGroupExchangeSha256 {
            let bounds = GexBounds {
                min: GEX_BITS_MIN,
                preferred: GEX_BITS_PREFERRED,
                max: GEX_BITS_MAX,
            };
            let mut message = Vec::new();
            message.put_u8(SSH_MSG_KEX_DH_GEX_REQUEST);
            message.put_u32(bounds.min);
            message.put_u32(bounds.preferred);
            message.put_u32(bounds.max);
            return Ok((Self::Group(AwaitGroup { method, bounds }), message));
        }
        let secret = provider.kex_client(method, None).map_err(kex_error)?;
        let mut message = vec![SSH_MSG_KEXDH_INIT];
        put_public(&mut message, method, secret.public());
        let step = AwaitReply {
            method,
            secret,
            gex: None,
        };
        Ok((Self::Reply(step), message))
    }
}

impl AwaitGroup {
    /// The message that this step takes.
    pub(crate) const MESSAGE: u8 = SSH_MSG_KEXDH_REPLY;

    /// RFC 4419 3: SSH_MSG_KEX_DH_GEX_GROUP.
    pub(crate) fn on_group(
        self,
        payload: &[u8],
        provider: &mut dyn Provider,
    ) -> Result<(AwaitReply, Vec<u8>), Error> {
        let mut fields = Reader::new(&payload[1..]);
        let group = Group {
            p: fields.mpint()?.to_vec(),
            g: fields.mpint()?.to_vec(),
        };
        fields.finish()?;
        let lead = group.p.first().map_or(0, |byte| byte.leading_zeros());
        let bits =
            u32::try_from(group.p.len()).map_or(u32::MAX, |len| len.saturating_mul(8) - lead);
        if !(self.bounds.min..=self.bounds.max).contains(&bits) {
            return Err(PeerMisbehaved::KexGroup.into());
        }
        let secret = provider
            .kex_client(self.method, Some(&group))
            .map_err(kex_error)?;
        let mut message = vec![SSH_MSG_KEX_DH_GEX_INIT];
        put_public(&mut message, self.method, secret.public());
        let step = AwaitReply {
            method: self.method,
            secret,
            gex: Some(GexRecord {
                bounds: self.bounds,
                group,
            }),
        };
        Ok((step, message))
    }
}

impl AwaitReply {
    /// The message that this step takes.
    pub(crate) const fn message(&self) -> u8 {
        match self.gex {
            None => SSH_MSG_KEXDH_REPLY,
            Some(_) => SSH_MSG_KEX_DH_GEX_REPLY,
        }
    }

    /// RFC 4253 8: the server's value, key and signature.
    pub(crate) fn on_reply(
        self,
        payload: &[u8],
        transcript: &Transcript,
        algorithm: HostKeyAlgorithm,
        provider: &mut dyn Provider,
    ) -> Result<Reply, Error> {
        let mut fields = Reader::new(&payload[1..]);
        let host_key = fields.string_max(HOST_KEY_BYTES_MAX)?;
        let server_public = if self.method.public_is_mpint() {
            fields.mpint()?
        } else {
            fields.string()?
        };
        let signature = fields.string()?;
        fields.finish()?;
        let client_public = self.secret.public().to_vec();
        let secret = self.secret.finish(server_public).map_err(kex_error)?;
        let exchange_hash = transcript.hash(&Values {
            method: self.method,
            host_key,
            gex: self.gex.as_ref(),
            client_public: &client_public,
            server_public,
            secret: &secret,
        });
        provider
            .verify_host_key(host_key, algorithm, &exchange_hash, signature)
            .map_err(host_key_error)?;
        Ok(Reply {
            agreed: Agreed {
                hash: self.method.hash(),
                secret,
                exchange_hash,
            },
            host_key: host_key.to_vec(),
        })
    }
}

fn host_key_error(error: HostKeyError) -> Error {
    match error {
        HostKeyError::Malformed => crate::error::InvalidMessage::KeyBlob.into(),
        HostKeyError::Type => PeerMisbehaved::HostKeyType.into(),
        HostKeyError::Signature => PeerMisbehaved::HostKeySignature.into(),
    }
}
