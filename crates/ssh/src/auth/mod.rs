//! User authentication, both roles: who the user is, proved by none, publickey, password or
//! keyboard-interactive.
//!
//! Owns the messages 50 to 61 and their order. Does not own packets (`transport`), when messages may
//! be sent (`connection`) nor who may log in (the application). Read first: RFC 4252, RFC 4256, RFC 8332,
//! OpenSSH PROTOCOL ("publickey-hostbound-v00@openssh.com").

pub mod client;
mod prompts;
pub mod server;

pub use crate::key::Secret;
pub use client::{
    Attempt, AuthMethods, ClientAuth, Identity, KeyAttempt, Outcome, SignatureRequest, Signer,
    SignerFailed,
};
pub use prompts::{Prompt, PromptKind, Prompts};
pub use server::{AuthAnswer, AuthRequest, Credential, ServerAuth};

use crate::transport::PeerExtensions;
use crate::wire::{NameList, Put};
use core::fmt;
use zeroize::Zeroizing;

/// A user name is not longer than this. Ours; Linux allows 32, Active Directory names are longer.
pub const USER_BYTES_MAX: usize = 1024;
/// A password or an answer to a prompt is not longer than this. Ours.
pub const PASSWORD_BYTES_MAX: usize = 4096;
/// A method's or service's name is not longer than this; RFC 4251 6 says 64.
pub const NAME_BYTES_MAX: usize = 64;
/// A banner is cut behind this. Ours; OpenSSH's servers send files that people read.
pub const BANNER_BYTES_MAX: usize = 64 * 1024;
/// More banners than this end the connection. Ours; servers send one.
pub const BANNERS_MAX: usize = 16;
/// More prompts at once than this end the connection. Ours; OpenSSH allows 100 and sends one or two.
pub const PROMPTS_MAX: usize = 32;
/// Name, instruction and each prompt are not longer than this. Ours.
pub const PROMPT_BYTES_MAX: usize = 16 * 1024;
/// More rounds of prompts in one attempt than this end the connection. Ours.
pub const ROUNDS_MAX: u32 = 16;
/// Failed attempts until the server disconnects, by default. OpenSSH's `MaxAuthTries`.
pub const ATTEMPTS_MAX: u32 = 6;
/// Requests of any kind that a server looks at in one connection, queries for keys that would do and
/// service requests included. Ours: paramiko sends a service request with each attempt.
pub const REQUESTS_MAX: u32 = 128;

/// The service that authentication is asked for as (RFC 4250 4.7).
pub(crate) const SERVICE_USERAUTH: &str = "ssh-userauth";
/// The service that authentication leads to.
pub(crate) const SERVICE_CONNECTION: &str = "ssh-connection";
const METHOD_HOSTBOUND: &str = "publickey-hostbound-v00@openssh.com";

/// A message to be sent: a whole payload, wiped when dropped.
pub type Message = Zeroizing<Vec<u8>>;

/// What authentication needs to know of the transport.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    /// The first exchange hash (RFC 4253 7.2).
    pub session_id: &'a [u8],
    /// The host key blob of the first key exchange, as it was sent.
    pub host_key: &'a [u8],
    /// What the peer said in EXT_INFO so far. A server does not look at it.
    pub extensions: &'a PeerExtensions,
}

/// A method that proves who the user is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// RFC 4252 7
    PublicKey,
    /// RFC 4252 8
    Password,
    /// RFC 4256
    KeyboardInteractive,
}

impl Method {
    /// Every method, in order of preference.
    pub const ALL: [Self; 3] = [Self::PublicKey, Self::KeyboardInteractive, Self::Password];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PublicKey => "publickey",
            Self::Password => "password",
            Self::KeyboardInteractive => "keyboard-interactive",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::PublicKey => 1,
            Self::Password => 2,
            Self::KeyboardInteractive => 4,
        }
    }
}

/// A set of methods.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct MethodSet(u8);

impl MethodSet {
    /// No method.
    pub const EMPTY: Self = Self(0);

    /// The set of these.
    #[must_use]
    pub fn of(methods: &[Method]) -> Self {
        methods.iter().fold(Self::EMPTY, |set, m| set.with(*m))
    }

    /// This set and one more.
    #[must_use]
    pub const fn with(self, method: Method) -> Self {
        Self(self.0 | method.bit())
    }

    /// This set and one less.
    #[must_use]
    pub const fn without(self, method: Method) -> Self {
        Self(self.0 & !method.bit())
    }

    /// Whether it is in.
    #[must_use]
    pub const fn contains(self, method: Method) -> bool {
        self.0 & method.bit() != 0
    }

    /// True if none is in.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are in, in order of preference.
    pub fn iter(self) -> impl Iterator<Item = Method> {
        Method::ALL.into_iter().filter(move |m| self.contains(*m))
    }

    fn from_names(names: NameList<'_>) -> Self {
        let mut set = Self::EMPTY;
        for name in names.iter() {
            if let Some(method) = Method::ALL.into_iter().find(|m| m.name() == name) {
                set = set.with(method);
            }
        }
        set
    }
}

impl fmt::Debug for MethodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// What a publickey request says; all but the signature is signed.
struct KeyFields<'a> {
    user: &'a [u8],
    /// `publickey`, or `publickey-hostbound-v00@openssh.com` with the host key.
    host_key: Option<&'a [u8]>,
    algorithm: &'a str,
    key_blob: &'a [u8],
}

impl KeyFields<'_> {
    /// RFC 4252 7: the request without its signature. A query has none at all.
    fn put(&self, out: &mut Vec<u8>, has_signature: bool) {
        let method = match self.host_key {
            Some(_) => METHOD_HOSTBOUND,
            None => Method::PublicKey.name(),
        };
        put_request(out, self.user, method);
        out.put_bool(has_signature);
        out.put_string(self.algorithm.as_bytes());
        out.put_string(self.key_blob);
        if let Some(host_key) = self.host_key {
            out.put_string(host_key);
        }
    }

    /// What is signed: the session's identifier and the request up to the signature.
    fn signed_data(&self, session_id: &[u8]) -> Vec<u8> {
        let mut data = Vec::with_capacity(session_id.len() + self.key_blob.len() + 256);
        data.put_string(session_id);
        self.put(&mut data, true);
        data
    }
}

/// The fields that every request begins with.
fn put_request(out: &mut Vec<u8>, user: &[u8], method: &str) {
    out.put_u8(crate::msg::SSH_MSG_USERAUTH_REQUEST);
    out.put_string(user);
    out.put_string(SERVICE_CONNECTION.as_bytes());
    out.put_string(method.as_bytes());
}

#[cfg(test)]
mod tests;
