//! Global requests, both ways (RFC 4254 section 4; OpenSSH PROTOCOL 2.2, 2.5).

use super::{ANNOUNCED_KEYS_MAX, Connection, Event, GLOBALS_AWAITED_MAX, HOST_KEY_PROOFS_MAX};
use crate::channel::request::KEEPALIVE;
use crate::config::{HOST_KEY_ALGORITHMS, HOST_KEY_BYTES_MAX, HostKey, PAYLOAD_BYTES_MAX};
use crate::error::{ApiMisuse, Error, PeerMisbehaved};
use crate::key::{Algorithm, PublicKey};
use crate::msg::{SSH_MSG_GLOBAL_REQUEST, SSH_MSG_REQUEST_FAILURE, SSH_MSG_REQUEST_SUCCESS};
use crate::wire::{Put, Reader};
use fullbore_base::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

const HOSTKEYS: &str = "hostkeys-00@openssh.com";
const PROVE: &str = "hostkeys-prove-00@openssh.com";
const NO_MORE_SESSIONS: &str = "no-more-sessions@openssh.com";

/// A global request of ours whose reply has not come; replies come in order.
#[derive(Debug)]
pub(super) enum Awaited {
    /// Any reply will do; with the time it was queued when it serves as a ping.
    Keepalive { sent: Option<Instant> },
    /// The keys whose proofs were asked for.
    Proofs(Vec<Vec<u8>>),
}

/// What global requests have left behind.
#[derive(Debug, Default)]
pub(super) struct Globals {
    /// Ours, oldest first.
    awaited: VecDeque<Awaited>,
    /// Server: what proofs are made with.
    pub(super) host_keys: Vec<Arc<dyn HostKey>>,
    /// Server: proofs made.
    proofs: u32,
    /// Server: the client opens no more sessions.
    pub(super) has_no_more_sessions: bool,
    /// Server: messages of the connection layer that came before authentication.
    pub(super) early: u32,
    /// Client: a session was opened before.
    pub(super) has_opened: bool,
    /// Client: key blobs that the server announced.
    announced: Vec<Vec<u8>>,
    /// Client: those of them that it proved to have.
    proved: Vec<Vec<u8>>,
}

impl Connection {
    /// Client: the plain host keys that the server says it has, as blobs; unproved. At most
    /// [`ANNOUNCED_KEYS_MAX`].
    #[must_use]
    pub fn announced_host_keys(&self) -> &[Vec<u8>] {
        &self.globals.announced
    }

    /// Client: the keys that the server proved to have when last asked.
    #[must_use]
    pub fn proved_host_keys(&self) -> &[Vec<u8>] {
        &self.globals.proved
    }

    /// Client: asks for proof of some announced keys; `HostKeysProved` tells the outcome.
    ///
    /// # Errors
    /// `ApiMisuse`: not authenticated, no keys, or too many requests wait.
    pub fn prove_host_keys(&mut self, blobs: Vec<Vec<u8>>) -> Result<(), Error> {
        self.alive()?;
        if !self.is_authenticated() || blobs.is_empty() || blobs.len() > ANNOUNCED_KEYS_MAX {
            return Err(Self::misuse(ApiMisuse::WrongState));
        }
        if self.ask(Awaited::Proofs(blobs)) {
            Ok(())
        } else {
            Err(Self::misuse(ApiMisuse::LimitReached))
        }
    }

    /// Client: tells the server that no further sessions will be opened, so that it may refuse them
    /// (OpenSSH PROTOCOL 2.2).
    ///
    /// # Errors
    /// `ApiMisuse::WrongState` before authentication.
    pub fn no_more_sessions(&mut self) -> Result<(), Error> {
        self.alive()?;
        if !self.is_authenticated() {
            return Err(Self::misuse(ApiMisuse::WrongState));
        }
        self.start_global(NO_MORE_SESSIONS, false);
        self.queue_scratch();
        Ok(())
    }

    /// Queues a request that wants a reply; false when too many wait already.
    pub(super) fn ask(&mut self, what: Awaited) -> bool {
        if self.globals.awaited.len() >= GLOBALS_AWAITED_MAX {
            return false;
        }
        match &what {
            Awaited::Keepalive { .. } => {
                let name = std::str::from_utf8(KEEPALIVE).expect("the name is ASCII");
                self.start_global(name, true);
            }
            Awaited::Proofs(blobs) => {
                self.start_global(PROVE, true);
                for blob in blobs {
                    self.scratch.put_string(blob);
                }
            }
        }
        if self.scratch.len() > PAYLOAD_BYTES_MAX {
            return false;
        }
        self.globals.awaited.push_back(what);
        self.queue_scratch();
        true
    }

    fn start_global(&mut self, name: &str, want_reply: bool) {
        self.scratch.clear();
        self.scratch.put_u8(SSH_MSG_GLOBAL_REQUEST);
        self.scratch.put_string(name.as_bytes());
        self.scratch.put_bool(want_reply);
    }

    /// Server: says which host keys there are (OpenSSH PROTOCOL 2.5), so that clients can learn
    /// new ones.
    pub(super) fn announce_host_keys(&mut self) {
        let mut blobs: Vec<Vec<u8>> = Vec::new();
        for algorithm in plain_algorithms() {
            for key in &self.globals.host_keys {
                if let Some(blob) = key.blob(algorithm)
                    && !blobs.contains(&blob)
                {
                    blobs.push(blob);
                }
            }
        }
        if blobs.is_empty() {
            return;
        }
        self.start_global(HOSTKEYS, false);
        for blob in &blobs {
            self.scratch.put_string(blob);
        }
        self.queue_scratch();
    }

    /// GLOBAL_REQUEST.
    pub(super) fn on_global_request(&mut self) -> Result<(), Error> {
        let mut reader = Reader::new(&self.transport.payload()[1..]);
        let name = reader.string()?;
        let want_reply = reader.bool()?;
        let is_server = self.login.is_server();
        let mut proofs = None;
        if name == HOSTKEYS.as_bytes() && !is_server {
            self.globals.announced = read_keys(reader)?;
            self.signs.tell(Event::HostKeysAnnounced);
        } else if name == NO_MORE_SESSIONS.as_bytes() && is_server {
            self.globals.has_no_more_sessions = true;
        } else if name == PROVE.as_bytes() && is_server {
            let keys = read_keys(reader)?;
            proofs = self.make_proofs(&keys);
        }
        if want_reply {
            self.scratch.clear();
            match proofs {
                Some(proofs) => {
                    self.scratch.put_u8(SSH_MSG_REQUEST_SUCCESS);
                    for proof in proofs {
                        self.scratch.put_string(&proof);
                    }
                }
                None => self.scratch.put_u8(SSH_MSG_REQUEST_FAILURE),
            }
            self.queue_scratch();
        }
        Ok(())
    }

    /// A signature for each key, or `None` when one is not ours or too much was asked.
    fn make_proofs(&mut self, blobs: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        if self.globals.proofs >= HOST_KEY_PROOFS_MAX || blobs.is_empty() {
            return None;
        }
        self.globals.proofs += 1;
        let session_id = self.transport.session_id()?;
        let mut proofs = Vec::with_capacity(blobs.len());
        for (at, blob) in blobs.iter().enumerate() {
            // Each key once: a request costs at most one signature per key.
            if blobs[..at].contains(blob) {
                return None;
            }
            let (key, algorithm) = self.globals.host_keys.iter().find_map(|key| {
                plain_algorithms()
                    .find(|a| key.blob(a).as_ref() == Some(blob))
                    .map(|a| (key, a))
            })?;
            proofs.push(key.sign(algorithm, &proof_data(session_id, blob))?);
        }
        Some(proofs)
    }

    /// REQUEST_SUCCESS or REQUEST_FAILURE.
    pub(super) fn on_global_reply(&mut self, now: Instant, ok: bool) -> Result<(), Error> {
        let Some(awaited) = self.globals.awaited.pop_front() else {
            return Err(Error::PeerMisbehaved(PeerMisbehaved::UnexpectedReply));
        };
        match awaited {
            Awaited::Keepalive { sent: Some(sent) } => self.on_rtt_sample(now, now - sent),
            Awaited::Keepalive { sent: None } => {}
            Awaited::Proofs(blobs) => {
                self.globals.proved = if ok {
                    self.check_proofs(blobs)?
                } else {
                    Vec::new()
                };
                self.signs.tell(Event::HostKeysProved);
            }
        }
        Ok(())
    }

    /// Those of `blobs` whose proof in the current message is right.
    fn check_proofs(&self, blobs: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Error> {
        let mut reader = Reader::new(&self.transport.payload()[1..]);
        let session_id = self.transport.session_id().unwrap_or_default();
        let mut proved = Vec::new();
        for blob in blobs {
            let signature = reader.string()?;
            let algorithm = Reader::new(signature)
                .string()
                .ok()
                .and_then(Algorithm::from_name);
            let is_right = algorithm.is_some_and(|algorithm| {
                PublicKey::from_blob(&blob).is_ok_and(|key| {
                    key.verify(algorithm, &proof_data(session_id, &blob), signature)
                        .is_ok()
                })
            });
            if is_right {
                proved.push(blob);
            }
        }
        reader.finish()?;
        Ok(proved)
    }
}

/// Host key algorithms that are not certificates: announcements and proofs are about plain keys.
fn plain_algorithms() -> impl Iterator<Item = &'static str> {
    HOST_KEY_ALGORITHMS
        .iter()
        .copied()
        .filter(|name| !name.contains("-cert-v01"))
}

/// Key blobs to the end of the message; those past the limits are left out.
fn read_keys(mut reader: Reader<'_>) -> Result<Vec<Vec<u8>>, Error> {
    let mut keys = Vec::new();
    while !reader.is_empty() {
        let blob = reader.string()?;
        if keys.len() < ANNOUNCED_KEYS_MAX && blob.len() <= HOST_KEY_BYTES_MAX {
            keys.push(blob.to_vec());
        }
    }
    Ok(keys)
}

/// OpenSSH PROTOCOL 2.5: what a host key signs to prove that it is there.
fn proof_data(session_id: &[u8], blob: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_string(PROVE.as_bytes());
    data.put_string(session_id);
    data.put_string(blob);
    data
}
