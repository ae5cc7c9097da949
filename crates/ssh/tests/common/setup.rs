//! Configurations, keys and seeds.

use super::{Client, Node, Server};
use fullbore_base::{Instant, Rng};
use fullbore_sim::{Pair, PairConfig, Stop};
use fullbore_ssh::Connection;
use fullbore_ssh::auth::{
    Attempt, AuthAnswer, AuthRequest, ClientAuth, Identity, KeyAttempt, Method, MethodSet,
    ServerAuth, Signer,
};
use fullbore_ssh::cipher::Suite;
use fullbore_ssh::config::{ClientConfig, HostKey, ServerConfig};
use fullbore_ssh::key::{Algorithm, PrivateKey};
use fullbore_ssh::provider::{
    AwsLc, ClientKex, Group, HostKeyError, KexError, KeyMaterial, OpeningKey, Provider, SealingKey,
    SecureRandom, SharedSecret,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::time::Duration;

pub use fullbore_testkit::seed;

/// Not secret at all, and the same on every run.
pub struct TestRandom(pub Rng);

impl SecureRandom for TestRandom {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

pub fn provider(seed: u64) -> Box<dyn Provider> {
    Box::new(AwsLc::new(Box::new(TestRandom(Rng::seeded(seed)))))
}

/// Counts the key exchanges of a server.
pub struct Counting(pub Box<dyn Provider>, pub Arc<AtomicUsize>);

impl Provider for Counting {
    fn fill_random(&mut self, out: &mut [u8]) {
        self.0.fill_random(out);
    }

    fn kex_client(
        &mut self,
        method: fullbore_ssh::kex::Method,
        group: Option<&Group>,
    ) -> Result<Box<dyn ClientKex>, KexError> {
        self.0.kex_client(method, group)
    }

    fn kex_server(
        &mut self,
        method: fullbore_ssh::kex::Method,
        group: Option<&Group>,
        remote_public: &[u8],
    ) -> Result<(Vec<u8>, SharedSecret), KexError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.kex_server(method, group, remote_public)
    }

    fn sealing_key(&mut self, suite: Suite, material: &KeyMaterial) -> Box<dyn SealingKey> {
        self.0.sealing_key(suite, material)
    }

    fn opening_key(&mut self, suite: Suite, material: &KeyMaterial) -> Box<dyn OpeningKey> {
        self.0.opening_key(suite, material)
    }

    fn verify_host_key(
        &mut self,
        blob: &[u8],
        algorithm: fullbore_ssh::kex::HostKeyAlgorithm,
        data: &[u8],
        signature: &[u8],
    ) -> Result<(), HostKeyError> {
        self.0.verify_host_key(blob, algorithm, data, signature)
    }
}

/// An Ed25519 host key.
#[derive(Debug)]
pub struct TestHostKey(pub PrivateKey);

impl HostKey for TestHostKey {
    fn blob(&self, algorithm: &str) -> Option<Vec<u8>> {
        (algorithm == "ssh-ed25519").then(|| self.0.public_key().to_blob())
    }

    fn sign(&self, _algorithm: &str, data: &[u8]) -> Option<Vec<u8>> {
        self.0.sign(Algorithm::Ed25519, data).ok()
    }
}

pub fn host_key(seed: u8) -> Arc<dyn HostKey> {
    Arc::new(TestHostKey(private_key(seed)))
}

pub fn private_key(seed: u8) -> PrivateKey {
    PrivateKey::from_ed25519_seed(&[seed; 32]).expect("any seed is a key")
}

/// A signature at once with the key of `seed`.
pub fn key_attempt(seed: u8, known: bool) -> Attempt {
    let key = private_key(seed);
    Attempt::PublicKey(KeyAttempt {
        identity: Identity::Key(key.public_key().clone()),
        signer: Signer::Local(Arc::new(key)),
        algorithm: None,
        known,
    })
}

/// Lets everybody in.
pub fn welcome(_request: AuthRequest<'_>) -> AuthAnswer {
    AuthAnswer::Accept
}

pub fn client_config() -> ClientConfig {
    ClientConfig {
        auth: ClientAuth {
            user: b"tester".to_vec(),
        },
        ..ClientConfig::default()
    }
}

pub fn server_config() -> ServerConfig {
    ServerConfig {
        host_keys: vec![host_key(1)],
        auth: ServerAuth {
            methods: MethodSet::of(&Method::ALL),
            is_none_asked: true,
            ..ServerAuth::default()
        },
        ..ServerConfig::default()
    }
}

/// The server alone, for a raw client.
pub fn server_node(config: ServerConfig, app: Server, tx_bytes: usize) -> Node<Server> {
    let conn = Connection::server(Arc::new(config), provider(5), Instant::ZERO);
    Node::new(conn, app, tx_bytes)
}

/// The client alone, for a raw server.
pub fn client_node(config: ClientConfig, app: Client, tx_bytes: usize) -> Node<Client> {
    let conn = Connection::client(Arc::new(config), provider(6), Instant::ZERO);
    Node::new(conn, app, tx_bytes)
}

pub type TestPair = Pair<Node<Client>, Node<Server>>;

/// Both ends with a transmit buffer of `tx_bytes`.
pub fn pair(
    network: PairConfig,
    client: (ClientConfig, Client),
    server: (ServerConfig, Server),
    tx_bytes: usize,
) -> TestPair {
    let now = Instant::ZERO;
    let a = Connection::client(Arc::new(client.0), provider(network.seed ^ 0xa), now);
    let b = Connection::server(Arc::new(server.0), provider(network.seed ^ 0xb), now);
    Pair::new(
        network,
        Node::new(a, client.1, tx_bytes),
        Node::new(b, server.1, tx_bytes),
    )
}

pub fn network(seed: u64) -> PairConfig {
    PairConfig {
        seed,
        delay: Duration::from_millis(1),
        cuts: true,
        ..PairConfig::default()
    }
}

/// Runs until `done`, and panics with what is known when that does not come.
pub fn run(pair: &mut TestPair, done: impl FnMut(&TestPair) -> bool) {
    let stop = pair.run(Instant::ZERO + Duration::from_secs(3000), done, |_| {});
    assert_eq!(
        stop,
        Stop::Done,
        "client {:?} {:?}, server {:?}",
        pair.a.app.error,
        pair.a.events,
        pair.b.app.error
    );
}

/// Whether every flow of the client is over.
pub fn all_closed(pair: &TestPair) -> bool {
    pair.a.app.plans.is_empty() && pair.a.app.flows.values().all(|flow| flow.closed)
}
