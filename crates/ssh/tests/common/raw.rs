//! A peer without manners: a transport that says whatever the test tells it to.

use super::{App, Node, TestHostKey, private_key, provider};
use fullbore_base::{Instant, TxBuf};
use fullbore_sim::Endpoint;
use fullbore_ssh::config::{ClientConfig, ServerConfig};
use fullbore_ssh::msg::{
    SSH_MSG_CHANNEL_OPEN, SSH_MSG_CHANNEL_REQUEST, SSH_MSG_SERVICE_ACCEPT, SSH_MSG_SERVICE_REQUEST,
    SSH_MSG_USERAUTH_REQUEST, SSH_MSG_USERAUTH_SUCCESS,
};
use fullbore_ssh::transport::{HostKeyVerified, Transport};
use fullbore_ssh::wire::Put;
use std::sync::Arc;

pub struct Raw {
    pub transport: Transport,
    pub tx: TxBuf,
    /// What came, oldest first.
    pub inbox: Vec<Vec<u8>>,
    /// Nothing is taken from the other side.
    pub is_deaf: bool,
}

/// A message of these parts.
pub fn message(number: u8, build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![number];
    build(&mut out);
    out
}

/// CHANNEL_OPEN for a session.
pub fn open_session(id: u32, window: u32, maxpacket: u32) -> Vec<u8> {
    message(SSH_MSG_CHANNEL_OPEN, |m| {
        m.put_string(b"session");
        m.put_u32(id);
        m.put_u32(window);
        m.put_u32(maxpacket);
    })
}

/// CHANNEL_REQUEST with a string as its body.
pub fn request(id: u32, name: &str, want_reply: bool, body: &str) -> Vec<u8> {
    message(SSH_MSG_CHANNEL_REQUEST, |m| {
        m.put_u32(id);
        m.put_string(name.as_bytes());
        m.put_bool(want_reply);
        m.put_string(body.as_bytes());
    })
}

/// A message that is a number and a channel.
pub fn plain(number: u8, id: u32) -> Vec<u8> {
    message(number, |m| m.put_u32(id))
}

impl Raw {
    fn new(transport: Transport) -> Self {
        Self {
            transport,
            tx: TxBuf::new(8 << 20),
            inbox: Vec::new(),
            is_deaf: false,
        }
    }

    /// A client that does not name itself as one of us.
    pub fn client() -> Self {
        let mut config = ClientConfig::default();
        config.transport.software_version = "Raw_1".to_owned();
        Self::new(Transport::client(
            Arc::new(config),
            provider(77),
            Instant::ZERO,
        ))
    }

    /// A server likewise.
    pub fn server() -> Self {
        let mut config = ServerConfig {
            host_keys: vec![Arc::new(TestHostKey(private_key(1)))],
            ..ServerConfig::default()
        };
        config.transport.software_version = "Raw_1".to_owned();
        Self::new(Transport::server(
            Arc::new(config),
            provider(78),
            Instant::ZERO,
        ))
    }

    pub fn send(&mut self, payload: &[u8]) {
        assert!(
            self.transport
                .seal(&mut self.tx, payload)
                .expect("may send"),
            "the test fills its buffer"
        );
    }

    /// Moves bytes both ways until nothing moves.
    pub fn exchange<A: App>(&mut self, node: &mut Node<A>) {
        let now = Instant::ZERO;
        loop {
            self.open(now);
            self.transport.poll_transmit(now, &mut self.tx);
            let taken = node.handle_input(now, self.tx.pending());
            self.tx.consume(taken);
            let mut bytes = Vec::new();
            if !self.is_deaf {
                node.poll_transmit(now, 1 << 20, &mut bytes);
                self.take(now, &bytes);
            } else {
                node.react(now);
                // Its transmit buffer is all that a deaf peer's socket holds.
                let _appended = node.conn.poll_transmit(now, &mut node.tx);
                node.react(now);
            }
            if taken == 0 && bytes.is_empty() {
                return;
            }
        }
    }

    fn take(&mut self, now: Instant, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.transport.input_space();
            let n = space.len().min(bytes.len());
            space[..n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            // Errors are seen by the test through `transport.error()`.
            let _kept = self.transport.handle_input(now, n);
            self.open(now);
            if n == 0 {
                return;
            }
        }
    }

    fn open(&mut self, now: Instant) {
        loop {
            while let Ok(true) = self.transport.next_packet(now) {
                self.inbox.push(self.transport.payload().to_vec());
            }
            let Some(offer) = self.transport.host_key() else {
                return;
            };
            let proof = HostKeyVerified::by_application(offer);
            self.transport
                .accept_host_key(now, proof)
                .expect("it is this one");
        }
    }

    /// Takes the oldest message of that number; those before it are dropped.
    pub fn expect(&mut self, number: u8) -> Vec<u8> {
        while !self.inbox.is_empty() {
            let message = self.inbox.remove(0);
            if message[0] == number {
                return message;
            }
        }
        panic!("message {number} did not come");
    }

    /// How many messages of that number wait.
    pub fn count(&self, number: u8) -> usize {
        self.inbox.iter().filter(|m| m[0] == number).count()
    }

    /// Client: logs in with method none.
    pub fn log_in<A: App>(&mut self, node: &mut Node<A>) {
        self.exchange(node);
        self.send(&message(SSH_MSG_SERVICE_REQUEST, |m| {
            m.put_string(b"ssh-userauth");
        }));
        self.send(&auth_none());
        self.exchange(node);
        self.expect(SSH_MSG_USERAUTH_SUCCESS);
        self.transport.on_authenticated(Instant::ZERO);
    }

    /// Server: lets the client in.
    pub fn let_in<A: App>(&mut self, node: &mut Node<A>) {
        self.exchange(node);
        self.expect(SSH_MSG_USERAUTH_REQUEST);
        self.send(&message(SSH_MSG_SERVICE_ACCEPT, |m| {
            m.put_string(b"ssh-userauth");
        }));
        self.send(&[SSH_MSG_USERAUTH_SUCCESS]);
        self.transport.on_authenticated(Instant::ZERO);
        self.exchange(node);
    }
}

pub fn auth_none() -> Vec<u8> {
    message(SSH_MSG_USERAUTH_REQUEST, |m| {
        m.put_string(b"raw");
        m.put_string(b"ssh-connection");
        m.put_string(b"none");
    })
}
