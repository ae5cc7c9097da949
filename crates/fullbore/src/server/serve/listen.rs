//! Listening, and handing connections to threads.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fullbore_ssh::auth::ServerAuth;
use fullbore_ssh::config::{HostKey, ServerConfig, TransportConfig};
use fullbore_ssh::connection::ConnectionConfig;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use super::auth::Policy;
use super::connection::{self, Shared, Visitor};
use super::door::{Door, HandedOver};
use super::gate::Gate;
use super::host_key::{self, HostKeyError};
use super::log::Log;
use super::options::ServeOptions;
use super::udp::{self, Doors};
use crate::config::fingerprint;
use crate::config::text::reason;
use crate::driver::budget::WindowBudget;
use crate::driver::clock::Clock;
use crate::driver::pool::Pool;
use crate::driver::random::SystemRandom;
use crate::driver::stream::Stream;
use crate::driver::udp::Bound;
use crate::server::store::RootPolicy;

/// Connections that wait in the kernel to be accepted. Linux caps it at its own limit.
const BACKLOG: u32 = 1024;

/// Connections on their way to a thread. More are turned away: the thread is stuck.
const HANDED_OVER_MAX: usize = 256;

/// Threads for file operations that may block, for the whole server, and what may wait for them.
pub(super) const FILE_THREADS_MAX: usize = 8;
pub(super) const FILE_QUEUE_MAX: usize = 1024;

/// Threads that check passwords, and what may wait for them: strangers cause the work, so it has no part
/// in the threads for files.
const PASSWORD_THREADS_MAX: usize = 2;
const PASSWORD_QUEUE_MAX: usize = 64;

/// How long a silent client is believed to be there.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(60);

/// Why a server does not start.
#[derive(Debug)]
pub enum ServeError {
    /// A host key is missing or wrong.
    HostKey(HostKeyError),
    /// The folder that is to be served is none.
    Root(PathBuf, io::Error),
    /// An address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// A UDP port cannot be had.
    Udp(SocketAddr, io::Error),
    /// No address is given.
    NoAddress,
    /// The machine gives no threads or the like.
    System(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostKey(error) => error.fmt(f),
            Self::Root(path, error) => {
                write!(f, "cannot serve {}: {}", path.display(), reason(error))
            }
            Self::Listen(address, error) if error.kind() == io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on {address}: another program does already; \
                 choose another port with --listen"
            ),
            Self::Listen(address, error) => {
                write!(f, "cannot listen on {address}: {}", reason(error))
            }
            Self::Udp(address, error) => {
                write!(f, "cannot have UDP port {address}: {}", reason(error))
            }
            Self::NoAddress => f.write_str("no address to listen on"),
            Self::System(error) => write!(f, "cannot start: {}", reason(error)),
        }
    }
}

impl std::error::Error for ServeError {}

/// A server that runs. It goes on until [`Server::stop`].
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    udp_addresses: Vec<SocketAddr>,
    host_keys: Vec<HostKeyLine>,
    root: PathBuf,
    key_count: usize,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    pool: Pool,
    password_pool: Pool,
}

/// A host key as people compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeyLine {
    /// Its type, `ssh-ed25519` for one.
    pub algorithm: String,
    /// `SHA256:...`
    pub fingerprint: String,
    /// The public key as known_hosts has it behind the host's name.
    pub line: String,
    /// The same as on the wire.
    pub blob: Vec<u8>,
    /// It was made just now.
    pub is_new: bool,
}

impl Server {
    /// Listens and starts serving.
    ///
    /// # Errors
    /// What is wrong with the options, or with the machine.
    pub fn start(options: &ServeOptions, log: Log) -> Result<Self, ServeError> {
        let root = options
            .root
            .canonicalize()
            .and_then(|root| std::fs::read_dir(&root).map(|_| root))
            .map_err(|error| ServeError::Root(options.root.clone(), error))?;
        let (host_keys, lines) = host_keys(options).map_err(ServeError::HostKey)?;
        let runtime = runtime().map_err(ServeError::System)?;
        let listeners = listen(&runtime, &options.listen)?;
        let addresses: Vec<_> = listeners.iter().flat_map(TcpListener::local_addr).collect();
        let sockets = match options.udp {
            Some(port) => udp::bind(&addresses, port)?,
            None => Vec::new(),
        };
        if let Some(bytes) = options.window_budget {
            WindowBudget::of_process().set_bytes(bytes);
        }
        let (stop, stopped) = watch::channel(false);
        let pool = Pool::new(FILE_THREADS_MAX, FILE_QUEUE_MAX);
        let password_pool = Pool::new(PASSWORD_THREADS_MAX, PASSWORD_QUEUE_MAX);
        let mut server = Self {
            addresses,
            udp_addresses: sockets.iter().map(Bound::local).collect(),
            host_keys: lines,
            root: root.clone(),
            key_count: policy(options, &log).key_count(),
            stop,
            threads: Vec::new(),
            pool: pool.clone(),
            password_pool: password_pool.clone(),
        };
        let config = Arc::new(server_config(options, host_keys, &log));
        let gate = Gate::new(options.gate);
        let mut plan = WorkerPlan {
            options: options.clone(),
            config: config.clone(),
            root: root.clone(),
            pool: pool.clone(),
            password_pool: password_pool.clone(),
            log: log.clone(),
            stop: stopped.clone(),
            udp: None,
        };
        if !sockets.is_empty() {
            let (doors, waiting) = udp::doors(sockets, server.host_keys[0].blob.clone());
            let mut of_udp = plan.clone();
            of_udp.config = Arc::new(udp::server_config(&config));
            let gate = gate.clone();
            server.spawn("fullbore-udp", move || of_udp.run_udp(waiting, gate))?;
            plan.udp = Some(doors);
        }
        let mut workers = Vec::new();
        for _ in 0..worker_count(options) {
            let (sender, receiver) = mpsc::channel(HANDED_OVER_MAX);
            let plan = plan.clone();
            server.spawn("fullbore-serve", move || plan.run(receiver))?;
            workers.push(sender);
        }
        let door = Door::new(gate, workers, log);
        server.spawn("fullbore-accept", move || {
            runtime.block_on(door.open(listeners, stopped));
        })?;
        Ok(server)
    }

    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), ServeError> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        let thread = builder.spawn(body).map_err(ServeError::System)?;
        self.threads.push(thread);
        Ok(())
    }

    /// The addresses that are listened on, with the ports that were really given.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The UDP addresses over which clients may go on.
    #[must_use]
    pub fn udp_addresses(&self) -> &[SocketAddr] {
        &self.udp_addresses
    }

    /// The host keys.
    #[must_use]
    pub fn host_keys(&self) -> &[HostKeyLine] {
        &self.host_keys
    }

    /// The folder that is served.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Keys that could log in when the server started.
    #[must_use]
    pub const fn key_count(&self) -> usize {
        self.key_count
    }

    /// Ends every connection with a word to the client, and waits for that, at most a few seconds.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
        self.pool.close();
        self.password_pool.close();
    }
}

pub(super) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        // Sockets are looked at again after a few tasks: each moves megabytes in its turn.
        .event_interval(8)
        .build()
}

fn worker_count(options: &ServeOptions) -> usize {
    if options.workers > 0 {
        return options.workers;
    }
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The keys to serve with, and what is told about each.
type HostKeys = (Vec<Arc<dyn HostKey>>, Vec<HostKeyLine>);

fn host_keys(options: &ServeOptions) -> Result<HostKeys, HostKeyError> {
    let mut keys = Vec::new();
    if options.host_keys.is_empty() {
        let path = options.own_host_key();
        keys.push(host_key::read_or_make(&path, &mut SystemRandom::new())?);
    }
    for path in &options.host_keys {
        keys.push((host_key::read(path)?, false));
    }
    let lines = keys.iter().map(|(key, is_new)| HostKeyLine {
        algorithm: key.key().public_key().key_type().name().to_owned(),
        fingerprint: fingerprint(&key.key().public_key().to_blob()),
        line: key.key().public_key().to_line(""),
        blob: key.key().public_key().to_blob(),
        is_new: *is_new,
    });
    let lines = lines.collect();
    let keys = keys
        .into_iter()
        .map(|(key, _)| Arc::new(key) as Arc<dyn HostKey>);
    Ok((keys.collect(), lines))
}

fn policy(options: &ServeOptions, log: &Log) -> Policy {
    Policy::new(
        &options.authorized_keys,
        options.user.clone(),
        options.password.clone(),
        log.clone(),
    )
}

fn server_config(
    options: &ServeOptions,
    host_keys: Vec<Arc<dyn HostKey>>,
    log: &Log,
) -> ServerConfig {
    let has_password = options.password.is_some();
    ServerConfig {
        host_keys,
        connection: ConnectionConfig {
            login_timeout: Some(options.login_grace),
            keepalive_interval: Some(KEEPALIVE),
            // Until the process's ledger says more.
            windows_max: 0,
            local_window: options.local_window,
            ..ConnectionConfig::default()
        },
        transport: TransportConfig {
            rekey: options.rekey,
            ..TransportConfig::default()
        },
        auth: ServerAuth {
            methods: policy(options, log).methods(),
            interactive_prompt: has_password.then(|| "Password: ".to_owned()),
            ..ServerAuth::default()
        },
    }
}

fn listen(
    runtime: &tokio::runtime::Runtime,
    addresses: &[SocketAddr],
) -> Result<Vec<TcpListener>, ServeError> {
    if addresses.is_empty() {
        return Err(ServeError::NoAddress);
    }
    let _inside = runtime.enter();
    let listen_on = |address: &SocketAddr| {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind(*address)?;
        socket.listen(BACKLOG)
    };
    addresses
        .iter()
        .map(|address| listen_on(address).map_err(|error| ServeError::Listen(*address, error)))
        .collect()
}

/// What a thread needs to serve connections.
#[derive(Clone)]
struct WorkerPlan {
    options: ServeOptions,
    config: Arc<ServerConfig>,
    root: PathBuf,
    pool: Pool,
    password_pool: Pool,
    log: Log,
    stop: watch::Receiver<bool>,
    udp: Option<Doors>,
}

impl WorkerPlan {
    fn run_udp(self, waiting: Vec<udp::Waiting>, gate: Gate) {
        let stop = self.stop.clone();
        match runtime() {
            Ok(runtime) => {
                let shared = Rc::new(self.shared());
                LocalSet::new().block_on(&runtime, udp::serve_all(shared, waiting, gate, stop));
            }
            Err(error) => self
                .log
                .line(format_args!("the thread for UDP cannot start: {error}")),
        }
    }

    fn shared(self) -> Shared {
        Shared {
            policy: RefCell::new(policy(&self.options, &self.log)),
            config: self.config,
            root: RootPolicy::Confined { root: self.root },
            read_only: self.options.read_only,
            sessions_max: self.options.sessions_max,
            clock: Clock::start(),
            pool: self.pool,
            password_pool: self.password_pool,
            log: self.log,
            udp: self.udp,
        }
    }

    fn run(self, receiver: mpsc::Receiver<HandedOver>) {
        match runtime() {
            Ok(runtime) => LocalSet::new().block_on(&runtime, self.serve(receiver)),
            Err(error) => self
                .log
                .line(format_args!("a thread cannot start: {error}")),
        }
    }

    async fn serve(self, mut receiver: mpsc::Receiver<HandedOver>) {
        let stop = self.stop.clone();
        let shared = Rc::new(self.shared());
        let mut connections = tokio::task::JoinSet::new();
        // The sender goes when the door closes, which it does when the server stops.
        while let Some((socket, peer, place)) = receiver.recv().await {
            match Stream::socket(socket) {
                Ok(stream) => {
                    let visitor = Visitor {
                        stream,
                        peer,
                        place,
                        grant: None,
                    };
                    let task = connection::serve(shared.clone(), visitor, stop.clone());
                    connections.spawn_local(task);
                }
                Err(error) => shared.log.line(format_args!("{peer}: {error}")),
            }
            while connections.try_join_next().is_some() {}
        }
        while connections.join_next().await.is_some() {}
    }
}
