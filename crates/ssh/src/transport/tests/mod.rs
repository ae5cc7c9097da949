//! Two transports against each other in memory, and one against handmade bytes.

mod exchange;
mod limits;
mod matrix;
mod random;
mod rekey;
mod strict;

use super::*;
use crate::config::{HostKey, RekeyLimits};
use crate::key::{Algorithm, PrivateKey};
use crate::msg::{SSH_MSG_CHANNEL_DATA, SSH_MSG_IGNORE};
use crate::provider::{AwsLc, SecureRandom};
use fullbore_base::TxBuf;

/// Randomness that replays.
#[derive(Debug)]
pub(super) struct Seeded(u64);

impl SecureRandom for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *byte = (z >> 56) as u8;
        }
    }
}

/// An Ed25519 host key.
#[derive(Debug)]
pub(super) struct TestKey(PrivateKey);

pub(super) fn test_key(seed: u8) -> Arc<dyn HostKey> {
    let key = PrivateKey::from_ed25519_seed(&[seed; 32]);
    Arc::new(TestKey(key.expect("any seed is a key")))
}

impl HostKey for TestKey {
    fn blob(&self, algorithm: &str) -> Option<Vec<u8>> {
        (algorithm == "ssh-ed25519").then(|| self.0.public_key().to_blob())
    }

    fn sign(&self, algorithm: &str, data: &[u8]) -> Option<Vec<u8>> {
        let algorithm = Algorithm::from_name(algorithm.as_bytes())?;
        self.0.sign(algorithm, data).ok()
    }
}

pub(super) const NOW: Instant = Instant::from_nanos(1_000_000_000);

pub(super) fn provider(seed: u64) -> Box<dyn Provider> {
    Box::new(AwsLc::new(Box::new(Seeded(seed))))
}

pub(super) fn client_with(transport: TransportConfig) -> Transport {
    let config = ClientConfig {
        transport,
        ..ClientConfig::default()
    };
    Transport::client(Arc::new(config), provider(1), NOW)
}

pub(super) fn server_with(transport: TransportConfig) -> Transport {
    let config = ServerConfig {
        transport,
        host_keys: vec![test_key(7)],
        ..ServerConfig::default()
    };
    Transport::server(Arc::new(config), provider(2), NOW)
}

/// Cheap algorithms, for tests that are not about them.
pub(super) fn quick() -> TransportConfig {
    TransportConfig {
        kex: vec![Method::Curve25519Sha256],
        ..TransportConfig::default()
    }
}

/// One end with its transmit buffer and what it received for the layers above.
pub(super) struct End {
    pub(super) transport: Transport,
    pub(super) tx: TxBuf,
    pub(super) received: Vec<Vec<u8>>,
}

impl End {
    pub(super) fn new(transport: Transport) -> Self {
        Self {
            transport,
            tx: TxBuf::new(1 << 20),
            received: Vec::new(),
        }
    }

    /// Opens all there is, accepting any host key.
    pub(super) fn pump(&mut self) -> Result<(), Error> {
        loop {
            while self.transport.next_packet(NOW)? {
                self.received.push(self.transport.payload().to_vec());
            }
            let Some(offer) = self.transport.host_key() else {
                return Ok(());
            };
            let proof = HostKeyVerified::by_application(offer);
            self.transport.accept_host_key(NOW, proof)?;
        }
    }

    /// Seals a message of the layers above.
    pub(super) fn send(&mut self, message: &[u8]) {
        assert_eq!(self.transport.seal(&mut self.tx, message), Ok(true));
    }

    /// What waits for the socket, as far as the transport has it.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        self.transport.poll_transmit(NOW, &mut self.tx);
        let bytes = self.tx.pending().to_vec();
        self.tx.consume(bytes.len());
        bytes
    }

    /// Gives bytes from the peer and opens all there is.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let space = self.transport.input_space();
            let n = space.len().min(rest.len());
            if n == 0 {
                return Ok(());
            }
            space[..n].copy_from_slice(&rest[..n]);
            self.transport.handle_input(NOW, n)?;
            self.pump()?;
            rest = &rest[n..];
        }
        Ok(())
    }
}

/// Both ends.
pub(super) struct Pair {
    pub(super) client: End,
    pub(super) server: End,
}

impl Pair {
    pub(super) fn new(client: TransportConfig, server: TransportConfig) -> Self {
        Self {
            client: End::new(client_with(client)),
            server: End::new(server_with(server)),
        }
    }

    /// Encrypted both ways, and authenticated as far as the transport is concerned.
    pub(super) fn established(config: &TransportConfig) -> Self {
        let mut pair = Self::new(config.clone(), config.clone());
        pair.run().expect("both agree");
        for end in [&mut pair.client, &mut pair.server] {
            assert!(end.transport.is_encrypted() && end.transport.may_send());
            end.transport.on_authenticated(NOW);
        }
        pair
    }

    /// Moves bytes until none are left; the first error, the client's before the server's.
    pub(super) fn run(&mut self) -> Result<(), Error> {
        loop {
            let to_server = self.client.take_output();
            let to_client = self.server.take_output();
            if to_server.is_empty() && to_client.is_empty() {
                return Ok(());
            }
            let from_server = self.client.feed(&to_client);
            let from_client = self.server.feed(&to_server);
            from_server.and(from_client)?;
        }
    }
}

/// A message of the connection layer with `len` bytes behind its number.
pub(super) fn data(len: usize, fill: u8) -> Vec<u8> {
    let mut message = vec![SSH_MSG_CHANNEL_DATA];
    message.resize(1 + len, fill);
    message
}

/// A packet without a cipher.
pub(super) fn plain_packet(payload: &[u8]) -> Vec<u8> {
    let mut sealer = Sealer::new();
    let mut packet = vec![0; sealer.sealed_len(payload.len())];
    packet[5..5 + payload.len()].copy_from_slice(payload);
    sealer.seal_at(&mut packet, payload.len());
    packet
}

pub(super) fn ignore() -> Vec<u8> {
    vec![SSH_MSG_IGNORE, 0, 0, 0, 0]
}

/// Rekeys often.
pub(super) fn rekeying(bytes: u64) -> TransportConfig {
    TransportConfig {
        rekey: RekeyLimits {
            bytes,
            ..RekeyLimits::default()
        },
        ..quick()
    }
}
