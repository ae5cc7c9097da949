//! A server's session as the simulator's endpoint, and what both ends of such a pair need: real
//! cryptography from seeded randomness, a host key, a login that lets everybody in.

#![allow(dead_code, missing_docs, clippy::unwrap_used)] // Each test file uses a part of it.

pub mod copier;
pub mod requester;
pub mod stream;
pub mod zeros;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore::server::store::{FileStore, Options, RootPolicy};
use fullbore::session::{ServerApp, ServerEvent, ServerSession, SessionEnd, Start};
use fullbore_base::{Instant, Rng};
use fullbore_sftp::server::Store;
use fullbore_sim::Endpoint;
use fullbore_ssh::auth::{AuthAnswer, MethodSet, ServerAuth};
use fullbore_ssh::channel::ChannelRequest;
use fullbore_ssh::config::{HostKey, ServerConfig};
use fullbore_ssh::key::{Algorithm, PrivateKey};
use fullbore_ssh::provider::{AwsLc, SecureRandom};
use fullbore_ssh::{ChannelId, Connection};

/// Runs `future` on a runtime whose clock only moves when nothing else does.
pub fn in_virtual_time<R>(future: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

struct TestRandom(Rng);

impl SecureRandom for TestRandom {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

pub fn provider(seed: u64) -> Box<AwsLc> {
    Box::new(AwsLc::new(Box::new(TestRandom(Rng::seeded(seed)))))
}

#[derive(Debug)]
struct TestKey(PrivateKey);

impl HostKey for TestKey {
    fn blob(&self, algorithm: &str) -> Option<Vec<u8>> {
        (algorithm == "ssh-ed25519").then(|| self.0.public_key().to_blob())
    }

    fn sign(&self, _algorithm: &str, data: &[u8]) -> Option<Vec<u8>> {
        self.0.sign(Algorithm::Ed25519, data).ok()
    }
}

/// The server's application: each channel gets the folder.
pub struct Files {
    root: PathBuf,
    stores: Vec<(ChannelId, FileStore)>,
    ends: Vec<SessionEnd>,
}

impl Files {
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            stores: Vec::new(),
            ends: Vec::new(),
        }
    }
}

impl ServerApp for Files {
    fn judge(&mut self, ch: ChannelId, request: &ChannelRequest<'_>) -> Start {
        match request {
            ChannelRequest::Subsystem { .. } => {
                let root = RootPolicy::Confined {
                    root: self.root.clone(),
                };
                self.stores
                    .push((ch, FileStore::new(Options::new(root)).unwrap()));
                Start::Sftp(fullbore_sftp::server::Config::default())
            }
            _ => Start::Refuse,
        }
    }

    fn store(&mut self, ch: ChannelId) -> &mut dyn Store {
        let found = self.stores.iter_mut().find(|(of, _)| *of == ch);
        &mut found.unwrap().1
    }

    fn ended(&mut self, ch: ChannelId, how: SessionEnd) {
        self.stores.retain(|(of, _)| *of != ch);
        self.ends.push(how);
    }
}

pub struct ServerEnd<A> {
    pub session: ServerSession,
    pub app: A,
    /// Nobody is let in before.
    pub opens_at: Instant,
    lets_in: bool,
    is_asked: bool,
    /// The client's first bytes are here: before, the server knows of no connection.
    is_reached: bool,
}

/// A server's connection with a host key of its own.
pub fn server_conn(mut config: ServerConfig, auth: ServerAuth, seed: u64) -> Connection {
    let key = PrivateKey::from_ed25519_seed(&[7; 32]).unwrap();
    config.host_keys = vec![Arc::new(TestKey(key))];
    config.auth = auth;
    Connection::server(config.into(), provider(seed), Instant::ZERO)
}

impl<A: ServerApp> ServerEnd<A> {
    /// A server with a host key of its own that lets everybody in.
    pub fn new(config: ServerConfig, seed: u64, app: A) -> Self {
        let auth = ServerAuth {
            is_none_asked: true,
            ..ServerAuth::default()
        };
        Self::with_auth(config, auth, seed, app)
    }

    /// A server that offers `methods`, and lets nobody in by any.
    pub fn refusing(config: ServerConfig, methods: MethodSet, seed: u64, app: A) -> Self {
        let auth = ServerAuth {
            methods,
            interactive_prompt: None,
            ..ServerAuth::default()
        };
        let mut server = Self::with_auth(config, auth, seed, app);
        server.lets_in = false;
        server
    }

    fn with_auth(config: ServerConfig, auth: ServerAuth, seed: u64, app: A) -> Self {
        let conn = server_conn(config, auth, seed);
        Self {
            session: ServerSession::new(conn, 16),
            app,
            opens_at: Instant::ZERO,
            lets_in: true,
            is_asked: false,
            is_reached: false,
        }
    }

    fn turn(&mut self, now: Instant) {
        while let Some(event) = self.session.poll_event(now, &mut self.app) {
            self.is_asked |= event == ServerEvent::AuthRequest;
        }
        if self.is_asked && now >= self.opens_at {
            self.is_asked = false;
            let conn = self.session.conn_mut();
            let answer = match self.lets_in {
                true => AuthAnswer::Accept,
                false => AuthAnswer::Reject,
            };
            conn.answer_auth(answer).unwrap();
        }
    }
}

impl<A: ServerApp> Endpoint for ServerEnd<A> {
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let space = self.session.input_space();
        let taken = bytes.len().min(space.len());
        space[..taken].copy_from_slice(&bytes[..taken]);
        self.session.handle_input(now, taken);
        self.is_reached = true;
        self.turn(now);
        taken
    }

    fn handle_eof(&mut self, now: Instant) {
        self.session.handle_eof(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
        self.turn(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let opens = self.is_asked.then_some(self.opens_at);
        self.session.poll_timeout().into_iter().chain(opens).min()
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        if !self.is_reached {
            return;
        }
        self.turn(now);
        while self.session.pending().len() < room && self.session.poll_transmit(now, &mut self.app)
        {
            // Its turns may have been used up: there may be more to read from what arrived.
            self.turn(now);
        }
        let n = self.session.pending().len().min(room);
        out.extend_from_slice(&self.session.pending()[..n]);
        self.session.sent(n);
    }

    fn is_closed(&self) -> bool {
        self.session.conn().error().is_some()
    }
}
