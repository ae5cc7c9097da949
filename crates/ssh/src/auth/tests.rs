//! What all tests of authentication use; the tests are beside, by topic.

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/testdata/auth/",
            $name
        ))
        .as_slice()
    };
}

mod mutations;
mod pairs;
mod rules;
mod security_keys;

use super::client::{Authenticator as Client, Event};
use super::server::Authenticator as Server;
use super::*;
use crate::cert::Certificate;
use crate::error::{ApiMisuse, Closed, Error, PeerMisbehaved};
use crate::key::{Algorithm, PrivateKey, PublicKey};
use crate::msg::*;
use crate::wire::FieldError;
use std::sync::Arc;

const SESSION_ID: &[u8] = &[0x5e; 32];
const HOST_KEY: &[u8] = b"the host key's blob";

fn key(file: &[u8]) -> Arc<PrivateKey> {
    Arc::new(PrivateKey::from_file(file, None).expect("a key of ssh-keygen"))
}

fn attempt(key: &Arc<PrivateKey>, known: bool) -> Attempt {
    Attempt::PublicKey(KeyAttempt {
        identity: Identity::Key(key.public_key().clone()),
        signer: Signer::Local(key.clone()),
        algorithm: None,
        known,
    })
}

fn certified(key: &Arc<PrivateKey>, line: &[u8], known: bool) -> Attempt {
    let certificate = Certificate::from_line(line).expect("a certificate of ssh-keygen");
    Attempt::PublicKey(KeyAttempt {
        identity: Identity::Certificate(Box::new(certificate)),
        signer: Signer::Local(key.clone()),
        algorithm: None,
        known,
    })
}

/// Both sides and what each knows of the transport.
struct Pair {
    client: Client,
    server: Server,
    extensions: PeerExtensions,
    client_session_id: Vec<u8>,
    client_host_key: Vec<u8>,
    /// Message numbers, in the order sent; the client's and the server's.
    sent: (Vec<u8>, Vec<u8>),
}

impl Pair {
    fn new(config: ServerAuth) -> Self {
        Self {
            client: Client::new(&ClientAuth {
                user: b"alice".to_vec(),
            }),
            extensions: PeerExtensions {
                server_sig_algs: Some(
                    config
                        .algorithms
                        .iter()
                        .map(|a| a.name().to_owned())
                        .collect(),
                ),
                publickey_hostbound: true,
                ..PeerExtensions::default()
            },
            server: Server::new(&config),
            client_session_id: SESSION_ID.to_vec(),
            client_host_key: HOST_KEY.to_vec(),
            sent: (Vec::new(), Vec::new()),
        }
    }

    /// Carries messages until both are silent or the server asks its application.
    fn run(&mut self) -> Result<(), Error> {
        let none = PeerExtensions::default();
        loop {
            let mut is_quiet = true;
            let session = Session {
                session_id: &self.client_session_id,
                host_key: &self.client_host_key,
                extensions: &self.extensions,
            };
            if !self.server.is_waiting()
                && let Some(message) = self.client.poll_message(&session)
            {
                is_quiet = false;
                self.sent.0.push(message[0]);
                let session = Session {
                    session_id: SESSION_ID,
                    host_key: HOST_KEY,
                    extensions: &none,
                };
                self.server.handle_message(&session, &message)?;
            }
            while let Some(message) = self.server.poll_message() {
                is_quiet = false;
                self.sent.1.push(message[0]);
                self.client.handle_message(&message)?;
            }
            if is_quiet {
                return Ok(());
            }
        }
    }

    fn answer(&mut self, answer: AuthAnswer) -> Result<(), Error> {
        self.server.answer(answer)?;
        self.run()
    }

    /// Starts an attempt and carries messages as far as they go.
    fn attempt(&mut self, attempt: Attempt) -> Result<(), Error> {
        self.client.authenticate(attempt)?;
        self.run()
    }

    fn outcome(&self) -> Option<Outcome> {
        self.client.methods().outcome
    }

    fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.client.poll_event()).collect()
    }
}

fn all_methods() -> ServerAuth {
    ServerAuth {
        methods: MethodSet::of(&Method::ALL),
        ..ServerAuth::default()
    }
}

/// A session as both sides see it, without extensions.
fn plain_session() -> Session<'static> {
    static NONE: PeerExtensions = PeerExtensions {
        server_sig_algs: None,
        ping: false,
        publickey_hostbound: false,
    };
    Session {
        session_id: SESSION_ID,
        host_key: HOST_KEY,
        extensions: &NONE,
    }
}

/// A client whose service was accepted and whose attempt is on its way.
fn started(attempt: Attempt) -> Client {
    let mut client = Client::new(&ClientAuth {
        user: b"u".to_vec(),
    });
    client.authenticate(attempt).expect("idle");
    while client.poll_message(&plain_session()).is_some() {}
    let mut accept = vec![SSH_MSG_SERVICE_ACCEPT];
    accept.put_string(b"ssh-userauth");
    client.handle_message(&accept).expect("asked for");
    client
}

/// A server whose service was asked for.
fn served(config: ServerAuth) -> Server {
    let mut server = Server::new(&config);
    let mut request = vec![SSH_MSG_SERVICE_REQUEST];
    request.put_string(b"ssh-userauth");
    server
        .handle_message(&plain_session(), &request)
        .expect("offered");
    while server.poll_message().is_some() {}
    server
}

fn sequence() -> Error {
    PeerMisbehaved::AuthSequence.into()
}
