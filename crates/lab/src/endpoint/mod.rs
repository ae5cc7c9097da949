//! `fullbore lab tcp`: an endpoint of our own TCP on a TUN device, for people and for tests, against any
//! TCP that the kernel reaches.
//!
//! `job` is what it does with a connection, `forward` one of those, `report` what it says of one.

mod forward;
mod job;
mod report;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use fullbore::driver::clock::Clock;
use fullbore::driver::net::{Connection, Net};
use fullbore::driver::tun::{IPV4_BYTES, IPV6_BYTES, Tun, device};
use fullbore::stack::StackConfig;
use fullbore_tcp::congestion::{Algorithm, Settings};
use fullbore_tcp::connection::Config;
use tokio::task::JoinSet;

pub use job::Job;

/// Bytes of TCP's header without options.
const TCP_BYTES: u16 = 20;

/// How long the last bytes of the last connection may take to be acknowledged.
const DRAIN: Duration = Duration::from_secs(10);

/// Who begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The peer, at this port; so many connections, or for ever.
    Listen(u16, Option<u64>),
    /// We.
    Connect(SocketAddr),
}

/// What was asked for.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// The device's name; empty lets the kernel choose.
    pub device: String,
    /// The kernel's addresses on the device's network, with the length of the prefix.
    pub here: Vec<(IpAddr, u8)>,
    /// Ours, on the same networks.
    pub addresses: Vec<IpAddr>,
    /// Of the device.
    pub mtu: u16,
    /// Who begins.
    pub role: Role,
    /// What to do.
    pub job: Job,
    /// Hash what is sent and received.
    pub is_hashed: bool,
    /// Congestion control.
    pub congestion: Algorithm,
    /// Offer SACK, timestamps, window scaling, ECN.
    pub is_sack: bool,
    /// See `is_sack`.
    pub is_timestamps: bool,
    /// See `is_sack`.
    pub is_window_scaling: bool,
    /// See `is_sack`.
    pub is_ecn: bool,
    /// Bytes that either buffer of a connection may grow to; none is the engine's default.
    pub buffers: Option<u64>,
}

/// The network between the kernel and us when none is named: the kernel's address, ours, the prefix.
pub const NETWORK_V4: (Ipv4Addr, Ipv4Addr, u8) =
    (Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2), 24);

/// The same for IPv6: of the range for local use (RFC 4193).
pub const NETWORK_V6: (Ipv6Addr, Ipv6Addr, u8) = (
    Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, 2),
    64,
);

/// What did not work, in words for a person.
#[derive(Debug)]
pub struct EndpointError(String);

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EndpointError {}

fn failed(what: &str) -> impl Fn(io::Error) -> EndpointError {
    move |error| EndpointError(format!("{what}: {error}"))
}

impl EndpointOptions {
    fn stack_config(&self) -> StackConfig {
        let has_v4 = self.addresses.iter().any(IpAddr::is_ipv4);
        let ip_bytes = if has_v4 { IPV4_BYTES } else { IPV6_BYTES };
        let mss = self.mtu.saturating_sub(ip_bytes + TCP_BYTES);
        let default = Config::default();
        StackConfig {
            connection: Config {
                mss,
                mss_max: mss,
                mss_base: default.mss_base.min(mss),
                receive_buffer_max: self.buffers.unwrap_or(default.receive_buffer_max),
                send_buffer_max: self.buffers.unwrap_or(default.send_buffer_max),
                congestion: Settings {
                    algorithm: self.congestion,
                    ..default.congestion
                },
                is_sack: self.is_sack,
                is_timestamps: self.is_timestamps,
                is_window_scaling: self.is_window_scaling,
                is_ecn: self.is_ecn,
                ..default
            },
            // The device does them.
            is_checksummed: false,
            ..StackConfig::default()
        }
    }

    /// The configuration of connections of the family of `address`.
    fn config_for(&self, stack: &StackConfig, address: IpAddr) -> Config {
        let ip_bytes = if address.is_ipv4() {
            IPV4_BYTES
        } else {
            IPV6_BYTES
        };
        let mss = self.mtu.saturating_sub(ip_bytes + TCP_BYTES);
        Config {
            mss,
            mss_max: mss,
            ..stack.connection
        }
    }
}

/// Makes the device and does what was asked, until it is done or this process is told to end. One line of
/// JSON for each connection goes to `tell` when it is over.
///
/// # Errors
/// When the device cannot be made, or nobody listens where we connect to.
pub fn run(options: &EndpointOptions, tell: &dyn Fn(&str)) -> Result<(), EndpointError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("cannot start"))?;
    runtime.block_on(async {
        let device = device::create(&options.device, true)
            .map_err(failed("cannot make a TUN device (root or CAP_NET_ADMIN)"))?;
        device::configure(&options.device, &options.here, options.mtu)
            .map_err(failed("cannot configure the TUN device"))?;
        let wire = Tun::new(device, options.addresses.clone())
            .map_err(failed("cannot wait for the TUN device"))?;
        let stack = options.stack_config();
        let (net, driver) = Net::new(stack, Box::new(wire), Clock::start());
        tokio::select! {
            // Whoever listens does so before the first packet is read.
            biased;
            done = serve(options, &net, &stack, tell) => done,
            broken = driver => Err(failed("the TUN device")(broken)),
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })
}

async fn serve(
    options: &EndpointOptions,
    net: &Net,
    stack: &StackConfig,
    tell: &dyn Fn(&str),
) -> Result<(), EndpointError> {
    match options.role {
        Role::Connect(remote) => {
            let local = options
                .addresses
                .iter()
                .find(|a| a.is_ipv4() == remote.is_ipv4());
            let local = *local.ok_or_else(|| {
                EndpointError(format!("no address of our own for a peer like {remote}"))
            })?;
            let config = options.config_for(stack, local);
            let connected = net
                .connect(SocketAddr::new(local, 0), remote, &config)
                .await;
            let connection = connected.map_err(failed(&format!("cannot connect to {remote}")))?;
            tell(&do_job(options.job.clone(), options.is_hashed, connection).await);
        }
        Role::Listen(port, count) => listen(options, net, stack, port, count, tell).await?,
    }
    // A peer that is gone does not keep us.
    let _ = tokio::time::timeout(DRAIN, net.drained()).await;
    Ok(())
}

async fn listen(
    options: &EndpointOptions,
    net: &Net,
    stack: &StackConfig,
    port: u16,
    count: Option<u64>,
    tell: &dyn Fn(&str),
) -> Result<(), EndpointError> {
    let mut listeners = Vec::new();
    for &address in &options.addresses {
        let config = options.config_for(stack, address);
        let listener = net.listen(SocketAddr::new(address, port), &config);
        listeners.push(listener.map_err(failed("cannot listen"))?);
    }
    let mut jobs = JoinSet::new();
    let (mut accepted, mut is_over) = (0, false);
    while !is_over || !jobs.is_empty() {
        let accept = std::future::poll_fn(|cx| {
            let found = listeners
                .iter()
                .map(|l| l.poll_accept(cx))
                .find(|p| p.is_ready());
            found.unwrap_or(std::task::Poll::Pending)
        });
        tokio::select! {
            connection = accept, if !is_over => {
                let connection = connection.map_err(failed("cannot accept"))?;
                jobs.spawn(do_job(options.job.clone(), options.is_hashed, connection));
                accepted += 1;
                is_over = count == Some(accepted);
            }
            Some(line) = jobs.join_next(), if !jobs.is_empty() => {
                tell(&line.map_err(|e| EndpointError(e.to_string()))?);
            }
        }
    }
    Ok(())
}

/// Returns the line of JSON.
async fn do_job(job: Job, is_hashed: bool, mut connection: Connection) -> String {
    let began = std::time::Instant::now();
    let done = job::run(&job, is_hashed, &mut connection).await;
    report::line(&connection, &done, began.elapsed())
}

/// A name of congestion control that people use.
#[must_use]
pub fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "reno" => Some(Algorithm::Reno),
        "cubic" => Some(Algorithm::Cubic),
        "bbr" => Some(Algorithm::Bbr),
        _ => None,
    }
}
