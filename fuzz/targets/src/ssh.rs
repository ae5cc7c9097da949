//! The SSH engine, both roles, against any peer: recorded sessions are changed and played to a new
//! engine whose cryptography is fake, so that what was changed reaches every layer.

use std::sync::Arc;

use fullbore_base::{Instant, Outlet, TxBuf};
use fullbore_ssh::auth::{Attempt, AuthAnswer, ServerAuth};
use fullbore_ssh::cipher::Suite;
use fullbore_ssh::config::{ClientConfig, HostKey, ServerConfig};
use fullbore_ssh::kex::{HostKeyAlgorithm, Method};
use fullbore_ssh::key::PrivateKey;
use fullbore_ssh::provider::fake::Fake;
use fullbore_ssh::provider::{
    BadTag, ClientKex, Group, HostKeyError, KexError, KeyMaterial, OpeningKey, Provider,
    SealingKey, SharedSecret,
};
use fullbore_ssh::transport::HostKeyVerified;
use fullbore_ssh::{ChannelId, Connection, Event};

use crate::sftp::cuts;

/// Events that one piece of input may cause, at most: more is a livelock.
const EVENTS_MAX: usize = 100_000;
/// Bytes of channel data that each end of the recorded session sends.
const DATA_BYTES: usize = 3000;

/// Fake cryptography that opens every packet, whatever its tag.
struct Open(Fake);

impl Provider for Open {
    fn fill_random(&mut self, out: &mut [u8]) {
        self.0.fill_random(out);
    }

    fn kex_client(
        &mut self,
        method: Method,
        group: Option<&Group>,
    ) -> Result<Box<dyn ClientKex>, KexError> {
        self.0.kex_client(method, group)
    }

    fn kex_server(
        &mut self,
        method: Method,
        group: Option<&Group>,
        remote_public: &[u8],
    ) -> Result<(Vec<u8>, SharedSecret), KexError> {
        self.0.kex_server(method, group, remote_public)
    }

    fn sealing_key(&mut self, suite: Suite, material: &KeyMaterial) -> Box<dyn SealingKey> {
        self.0.sealing_key(suite, material)
    }

    fn opening_key(&mut self, suite: Suite, _material: &KeyMaterial) -> Box<dyn OpeningKey> {
        let head_len = if suite.layout().len_is_padded { 16 } else { 4 };
        Box::new(OpenKey { head_len })
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

struct OpenKey {
    head_len: usize,
}

impl OpeningKey for OpenKey {
    fn head_len(&self) -> usize {
        self.head_len
    }

    fn packet_len(&mut self, _sequence: u32, head: &mut [u8]) -> u32 {
        u32::from_be_bytes([head[0], head[1], head[2], head[3]])
    }

    fn open(&mut self, _sequence: u32, _packet: &mut [u8], _tag: &[u8]) -> Result<(), BadTag> {
        Ok(())
    }
}

/// A host key that signs nothing in particular.
#[derive(Debug)]
struct AnyKey(Vec<u8>);

impl HostKey for AnyKey {
    fn blob(&self, algorithm: &str) -> Option<Vec<u8>> {
        (algorithm == "ssh-ed25519").then(|| self.0.clone())
    }

    fn sign(&self, _algorithm: &str, _data: &[u8]) -> Option<Vec<u8>> {
        let mut signature = Vec::new();
        for part in [&b"ssh-ed25519"[..], &[3; 64]] {
            signature.extend(u32::try_from(part.len()).ok()?.to_be_bytes());
            signature.extend(part);
        }
        Some(signature)
    }
}

/// An engine with an application that says yes to everything.
struct End {
    connection: Connection,
    tx: TxBuf,
    now: Instant,
    channel: Option<ChannelId>,
    to_send: usize,
    received: usize,
    is_closed: bool,
}

impl End {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            tx: TxBuf::new(1 << 20),
            now: Instant::ZERO,
            channel: None,
            to_send: DATA_BYTES,
            received: 0,
            is_closed: false,
        }
    }

    fn server() -> Self {
        let key = PrivateKey::from_ed25519_seed(&[7; 32]).expect("any 32 bytes are a seed");
        let config = ServerConfig {
            host_keys: vec![Arc::new(AnyKey(key.public_key().to_blob()))],
            auth: ServerAuth {
                is_none_asked: true,
                ..ServerAuth::default()
            },
            ..ServerConfig::default()
        };
        let provider = Box::new(Open(Fake::new(1)));
        Self::new(Connection::server(config.into(), provider, Instant::ZERO))
    }

    fn client() -> Self {
        let provider = Box::new(Open(Fake::new(2)));
        let config = Arc::new(ClientConfig::default());
        let mut end = Self::new(Connection::client(config, provider, Instant::ZERO));
        if let Ok(channel) = end.connection.open_session(Instant::ZERO) {
            let _ = end.connection.env(channel, b"LANG", b"C");
            let _ = end.connection.subsystem(channel, "sftp");
            end.channel = Some(channel);
        }
        end
    }

    /// Gives `bytes` to the engine, as much as it takes; returns how many.
    fn input(&mut self, bytes: &[u8]) -> usize {
        let space = self.connection.input_space();
        let taken = bytes.len().min(space.len());
        space[..taken].copy_from_slice(&bytes[..taken]);
        let _ = self.connection.handle_input(self.now, taken);
        taken
    }

    /// Lets the application react and the engine write; what is to be sent goes to `out`.
    fn turn(&mut self, out: &mut Vec<u8>) {
        for count in 0.. {
            assert!(count < EVENTS_MAX, "events without end");
            while let Some(event) = self.connection.poll_event(self.now) {
                self.on_event(event);
                self.send_some();
            }
            self.send_some();
            while self
                .connection
                .poll_transmit(self.now, &mut self.tx)
                .is_some()
            {}
            if self.tx.is_empty() {
                return;
            }
            out.extend_from_slice(self.tx.pending());
            self.tx.consume(self.tx.pending().len());
        }
    }

    fn send_some(&mut self) {
        let Some(channel) = self.channel else { return };
        let mut outlet = self.connection.outlet(self.now, channel, &mut self.tx);
        let len = self.to_send.min(outlet.room());
        let fill = &mut |slices: &mut [std::io::IoSliceMut<'_>]| {
            for slice in slices.iter_mut() {
                slice.fill(b'd');
            }
            len
        };
        if len > 0 && outlet.emit(len, fill) {
            self.to_send -= len;
        }
    }

    fn on_event(&mut self, event: Event) {
        let connection = &mut self.connection;
        match event {
            Event::HostKey => {
                let offer = connection.host_key().expect("the event says so");
                let proof = HostKeyVerified::by_application(offer);
                let _ = connection.accept_host_key(self.now, proof);
            }
            Event::AuthNeeded => drop(connection.authenticate(Attempt::None)),
            Event::AuthRequest => {
                assert!(connection.auth_request().is_some(), "the event says so");
                let _ = connection.answer_auth(AuthAnswer::Accept);
            }
            Event::SignatureNeeded => {
                let _ = connection.provide_signature(Ok(vec![0; 83]));
            }
            Event::Prompt => {
                let count = connection.prompts().map_or(0, |p| p.prompts.len());
                let answers = (0..count).map(|_| fullbore_ssh::key::Secret::new(vec![b'a']));
                let _ = connection.answer_prompts(answers.collect());
            }
            Event::ChannelOpen(channel) => {
                self.channel = Some(channel);
                let _ = connection.accept_channel(channel);
            }
            Event::Request(channel) => {
                assert!(
                    connection.channel_request(channel).is_some(),
                    "the event says so"
                );
                let _ = connection.answer_request(channel, true);
            }
            Event::Readable(channel) => {
                let len = connection.readable(channel).len();
                self.received += len;
                connection.consume(self.now, channel, len);
            }
            Event::ReadableStderr(channel) => {
                let len = connection.readable_stderr(channel).len();
                connection.consume_stderr(self.now, channel, len);
            }
            Event::Eof(channel) => {
                let _ = connection.send_eof(channel);
                let _ = connection.close_channel(channel);
            }
            Event::Closed => {
                assert!(connection.error().is_some(), "closed without a reason");
                self.is_closed = true;
            }
            Event::ChannelClosed(channel) | Event::OpenFailed(channel) => {
                if self.channel == Some(channel) {
                    self.channel = None;
                }
            }
            Event::HostKeysAnnounced
            | Event::HostKeysProved
            | Event::Banner
            | Event::Authenticated
            | Event::Opened(_)
            | Event::RequestDone { .. }
            | Event::Writable(_)
            | Event::ExitStatus(..)
            | Event::ExitSignal(_) => {}
        }
    }

    /// Plays `data` to the end.
    fn play(mut self, data: &[u8]) {
        let mut out = Vec::new();
        let mut start = 0;
        self.turn(&mut out);
        for end in cuts(data) {
            while start < end && !self.is_closed {
                let taken = self.input(&data[start..end]);
                self.turn(&mut out);
                if taken == 0 {
                    break;
                }
                start += taken;
            }
            out.clear();
        }
        let _ = self.connection.handle_eof(self.now);
        self.turn(&mut out);
        if let Some(at) = self.connection.poll_timeout() {
            self.now = at;
            self.connection.handle_timeout(at);
            self.turn(&mut out);
        }
    }
}

/// A server, and a client that sends `data`.
pub fn server(data: &[u8]) {
    End::server().play(data);
}

/// A client, and a server that sends `data`.
pub fn client(data: &[u8]) {
    End::client().play(data);
}

/// An honest session, as each end sent it: (client's bytes, server's bytes).
fn record() -> (Vec<u8>, Vec<u8>) {
    let (mut client, mut server) = (End::client(), End::server());
    let (mut sent, mut answered) = (Vec::new(), Vec::new());
    let (mut from_client, mut from_server) = (0, 0);
    for round in 0..100 {
        client.turn(&mut sent);
        from_client += server.input(&sent[from_client..]);
        server.turn(&mut answered);
        from_server += client.input(&answered[from_server..]);
        if round == 40 {
            let _ = client.connection.rekey(client.now);
        }
        if round == 60 {
            let _ = server.connection.rekey(server.now);
        }
        if round == 80
            && let Some(channel) = client.channel
        {
            let _ = client.connection.send_eof(channel);
        }
    }
    assert!(
        client.received == DATA_BYTES && server.received == DATA_BYTES,
        "the honest session failed: {:?} / {:?}, {} and {} bytes",
        client.connection.error(),
        server.connection.error(),
        client.received,
        server.received
    );
    (sent, answered)
}

/// What an honest server sends to a client.
#[must_use]
pub fn client_seeds() -> Vec<Vec<u8>> {
    vec![record().1]
}

/// What an honest client sends to a server.
#[must_use]
pub fn server_seeds() -> Vec<Vec<u8>> {
    vec![record().0]
}
