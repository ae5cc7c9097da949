//! The SSH agent's protocol: bytes in, typed out, and back. No sockets.
//!
//! Owns the messages and their limits. Does not own the connection to the agent (the application).
//! Read first: draft-ietf-sshm-ssh-agent, OpenSSH PROTOCOL.agent (`session-bind@openssh.com`).

use crate::key::{Algorithm, Fields, KEY_BLOB_BYTES_MAX, KeyError, SIGNATURE_BYTES_MAX};
use crate::wire::Put;

/// A message of an agent is not longer than this, its length word not counted. OpenSSH's `MAX_AGENT_REPLY_LEN`.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// More identities than this are refused. OpenSSH's `MAX_AGENT_IDENTITIES` is 2,048; those that fit a message count.
pub const IDENTITIES_MAX: usize = 2048;
/// A comment is cut behind this. Ours.
pub const COMMENT_BYTES_MAX: usize = 1024;

const SSH_AGENT_FAILURE: u8 = 5;
const SSH_AGENT_SUCCESS: u8 = 6;
const SSH_AGENTC_REQUEST_IDENTITIES: u8 = 11;
const SSH_AGENT_IDENTITIES_ANSWER: u8 = 12;
const SSH_AGENTC_SIGN_REQUEST: u8 = 13;
const SSH_AGENT_SIGN_RESPONSE: u8 = 14;
const SSH_AGENTC_EXTENSION: u8 = 27;
const SSH_AGENT_EXTENSION_FAILURE: u8 = 28;
const SSH_AGENT_EXTENSION_RESPONSE: u8 = 29;

const SSH_AGENT_RSA_SHA2_256: u32 = 2;
const SSH_AGENT_RSA_SHA2_512: u32 = 4;

const WHAT: &str = "agent message";

/// The flags of a sign request that ask for this algorithm.
#[must_use]
pub const fn sign_flags(algorithm: Algorithm) -> u32 {
    match algorithm {
        Algorithm::RsaSha256 => SSH_AGENT_RSA_SHA2_256,
        Algorithm::RsaSha512 => SSH_AGENT_RSA_SHA2_512,
        Algorithm::Ed25519
        | Algorithm::EcdsaP256
        | Algorithm::EcdsaP384
        | Algorithm::EcdsaP521
        | Algorithm::SkEd25519
        | Algorithm::SkEcdsaP256 => 0,
    }
}

/// What a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Which keys there are.
    Identities,
    /// Sign `data` with the key or certificate of this blob.
    Sign {
        /// As in the list of identities.
        key_blob: &'a [u8],
        /// The bytes to sign.
        data: &'a [u8],
        /// See `sign_flags`.
        flags: u32,
    },
    /// `session-bind@openssh.com`: tells the agent which host the next signatures are for.
    SessionBind {
        /// The server's host key blob.
        host_key: &'a [u8],
        /// The first exchange hash.
        session_id: &'a [u8],
        /// The host key's signature over it.
        signature: &'a [u8],
        /// Whether the agent is forwarded over this connection.
        is_forwarding: bool,
    },
}

impl Request<'_> {
    /// The whole message with its length word in front.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        match self {
            Self::Identities => out.push(SSH_AGENTC_REQUEST_IDENTITIES),
            Self::Sign {
                key_blob,
                data,
                flags,
            } => {
                out.push(SSH_AGENTC_SIGN_REQUEST);
                out.put_string(key_blob);
                out.put_string(data);
                out.extend_from_slice(&flags.to_be_bytes());
            }
            Self::SessionBind {
                host_key,
                session_id,
                signature,
                is_forwarding,
            } => {
                out.push(SSH_AGENTC_EXTENSION);
                out.put_string(b"session-bind@openssh.com");
                out.put_string(host_key);
                out.put_string(session_id);
                out.put_string(signature);
                out.push(u8::from(*is_forwarding));
            }
        }
        let len = u32::try_from(out.len() - 4).expect("blobs and signed data are bounded");
        out[..4].copy_from_slice(&len.to_be_bytes());
        out
    }
}

/// A key that the agent holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// A key's or a certificate's blob, perhaps of a type that is not implemented.
    pub blob: Vec<u8>,
    /// The agent's words, cut. Untrusted: escape before showing.
    pub comment: Vec<u8>,
}

/// What the agent answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It would not or could not, or it does not know the request.
    Failure,
    /// Done (to extensions).
    Success,
    /// The keys it holds.
    Identities(Vec<Identity>),
    /// A signature blob.
    Signature(Vec<u8>),
}

/// How long the message at the front of `received` is, length word included, once that can be told.
///
/// # Errors
/// `TooLong` past `MESSAGE_BYTES_MAX`, `Malformed` for an empty message: the agent is to be given up.
pub fn message_len(received: &[u8]) -> Result<Option<usize>, KeyError> {
    let Some(word) = received.first_chunk::<4>() else {
        return Ok(None);
    };
    let len = usize::try_from(u32::from_be_bytes(*word)).map_err(|_| KeyError::TooLong(WHAT))?;
    match len {
        0 => Err(KeyError::Malformed(WHAT)),
        1..=MESSAGE_BYTES_MAX => Ok(Some(len + 4)),
        _ => Err(KeyError::TooLong(WHAT)),
    }
}

impl Reply {
    /// Reads a whole message, its length word included: what `message_len` measured.
    ///
    /// # Errors
    /// `Malformed`, `TrailingBytes`, `TooLong`.
    pub fn from_bytes(message: &[u8]) -> Result<Self, KeyError> {
        if message_len(message)? != Some(message.len()) {
            return Err(KeyError::Malformed(WHAT));
        }
        let mut fields = Fields::new(&message[4..], WHAT);
        let reply = match fields.u8()? {
            // draft-ietf-sshm-ssh-agent 3.1: whatever else is in a refusal does not matter.
            SSH_AGENT_FAILURE | SSH_AGENT_EXTENSION_FAILURE => return Ok(Self::Failure),
            SSH_AGENT_SUCCESS | SSH_AGENT_EXTENSION_RESPONSE => return Ok(Self::Success),
            SSH_AGENT_IDENTITIES_ANSWER => Self::Identities(identities(&mut fields)?),
            SSH_AGENT_SIGN_RESPONSE => {
                let signature = fields.string()?;
                if signature.len() > SIGNATURE_BYTES_MAX {
                    return Err(KeyError::TooLong("signature"));
                }
                Self::Signature(signature.to_vec())
            }
            _ => return Err(KeyError::Malformed(WHAT)),
        };
        fields.finish()?;
        Ok(reply)
    }
}

fn identities(fields: &mut Fields<'_>) -> Result<Vec<Identity>, KeyError> {
    let count = fields.u32()?;
    if usize::try_from(count).map_or(true, |count| count > IDENTITIES_MAX) {
        return Err(KeyError::TooLong("list of identities"));
    }
    let mut identities = Vec::new();
    for _ in 0..count {
        let blob = fields.string()?;
        let comment = fields.string()?;
        if blob.len() > KEY_BLOB_BYTES_MAX {
            return Err(KeyError::TooLong("public key"));
        }
        identities.push(Identity {
            blob: blob.to_vec(),
            comment: comment[..comment.len().min(COMMENT_BYTES_MAX)].to_vec(),
        });
    }
    Ok(identities)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_string(body);
        out
    }

    #[test]
    fn requests_have_the_drafts_layout() {
        assert_eq!(Request::Identities.to_bytes(), [0, 0, 0, 1, 11]);
        let sign = Request::Sign {
            key_blob: b"k",
            data: b"dd",
            flags: sign_flags(Algorithm::RsaSha512),
        };
        assert_eq!(
            sign.to_bytes(),
            [
                0, 0, 0, 16, 13, 0, 0, 0, 1, b'k', 0, 0, 0, 2, b'd', b'd', 0, 0, 0, 4
            ]
        );
        assert_eq!(sign_flags(Algorithm::RsaSha256), 2);
        assert_eq!(sign_flags(Algorithm::Ed25519), 0);
        let bind = Request::SessionBind {
            host_key: b"h",
            session_id: b"s",
            signature: b"g",
            is_forwarding: false,
        };
        let mut body = vec![27];
        body.put_string(b"session-bind@openssh.com");
        body.extend_from_slice(b"\0\0\0\x01h\0\0\0\x01s\0\0\0\x01g\0");
        assert_eq!(bind.to_bytes(), framed(&body));
    }

    #[test]
    fn replies_are_read() {
        let read = |body: &[u8]| Reply::from_bytes(&framed(body));
        assert_eq!(read(&[5]), Ok(Reply::Failure));
        assert_eq!(read(&[28]), Ok(Reply::Failure));
        assert_eq!(read(&[6]), Ok(Reply::Success));
        assert_eq!(read(&[12, 0, 0, 0, 0]), Ok(Reply::Identities(vec![])));
        assert_eq!(
            read(b"\x0c\0\0\0\x02\0\0\0\x01a\0\0\0\x01A\0\0\0\x01b\0\0\0\0"),
            Ok(Reply::Identities(vec![
                Identity {
                    blob: b"a".to_vec(),
                    comment: b"A".to_vec()
                },
                Identity {
                    blob: b"b".to_vec(),
                    comment: vec![]
                },
            ]))
        );
        assert_eq!(
            read(b"\x0e\0\0\0\x01s"),
            Ok(Reply::Signature(b"s".to_vec()))
        );
    }

    #[test]
    fn malformed_replies_are_refused() {
        let read = |body: &[u8]| Reply::from_bytes(&framed(body));
        assert_eq!(read(&[99]), Err(KeyError::Malformed(WHAT)));
        assert_eq!(read(b"\x0e\0\0\0\x02s"), Err(KeyError::Malformed(WHAT)));
        assert_eq!(
            read(b"\x0e\0\0\0\x01sx"),
            Err(KeyError::TrailingBytes(WHAT))
        );
        assert_eq!(read(b"\x0c\0\0\0\x01"), Err(KeyError::Malformed(WHAT)));
        // 2^32 - 1 identities are not made room for.
        assert!(matches!(
            read(b"\x0c\xff\xff\xff\xff"),
            Err(KeyError::TooLong(_))
        ));
        assert_eq!(
            Reply::from_bytes(&[0, 0, 0, 2, 5]),
            Err(KeyError::Malformed(WHAT))
        );
    }

    #[test]
    fn a_message_is_taken_at_its_limit_and_refused_past_it() {
        let word = |len: usize| u32::try_from(len).expect("small").to_be_bytes();
        assert_eq!(message_len(&[0, 0, 0]), Ok(None));
        assert_eq!(message_len(&word(0)), Err(KeyError::Malformed(WHAT)));
        assert_eq!(
            message_len(&word(MESSAGE_BYTES_MAX)),
            Ok(Some(MESSAGE_BYTES_MAX + 4))
        );
        assert!(message_len(&word(MESSAGE_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn a_list_of_identities_is_taken_at_its_limit_and_refused_past_it() {
        let list = |count: usize| {
            let mut body = vec![12];
            body.extend_from_slice(&u32::try_from(count).expect("small").to_be_bytes());
            body.resize(5 + 8 * count, 0);
            Reply::from_bytes(&framed(&body))
        };
        assert!(
            matches!(list(IDENTITIES_MAX), Ok(Reply::Identities(all)) if all.len() == IDENTITIES_MAX)
        );
        assert!(list(IDENTITIES_MAX + 1).is_err());
    }
}
