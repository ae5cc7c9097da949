//! From a host's configuration to a connection that is logged in: directly, through a command, or
//! through other hosts.

use fullbore_base::escape_for_display;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::pin::Pin;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fullbore_ssh::Connection as Ssh;
use fullbore_ssh::config::{ClientConfig, TransportConfig};
use fullbore_ssh::provider::AwsLc;

use super::ahead::Ahead;
use super::ask::Asker;
use super::connection::Connection;
use super::contact::{Contact, First, Route};
use super::core::Core;
use super::error::Error;
use super::host_key::Trust;
use super::host_keys;
use super::login::{LoggedIn, Login};
use super::patience::connect_timeout;
use super::proposal::{Haste, client_config, own_profiles};
use super::remembered::Seen;
use super::sftp::Sftp;
use crate::config::Environment;
use crate::config::ssh_config::{
    self, AddressFamily, AlgorithmDefaults, ConfigFile, HostConfig, JumpHost, LogLevel, Proxy,
    Request, UpdateHostKeys,
};
use crate::config::text::reason;
use crate::driver::budget::WindowBudget;
use crate::driver::clock::Clock;
use crate::driver::dial::{self, Dial, DialTimes, Family, SocketOptions};
use crate::driver::pump::Pump;
use crate::driver::random::SystemRandom;
use crate::driver::stream::Stream;
use crate::session::ClientSession;

/// Hosts passed through on the way to one host, those of their own configuration included.
pub const JUMPS_MAX: usize = 16;

/// What a login needs besides the host's configuration.
#[derive(Clone)]
pub struct Context {
    /// Files, variables and the like.
    pub environment: Rc<dyn Environment>,
    /// Who answers questions.
    pub asker: Asker,
    /// Which files configure the hosts passed through (`-F`).
    pub config_file: ConfigFile,
    /// The process's clock.
    pub clock: Clock,
    /// A fixed window for each channel instead of one that follows the path; for comparisons.
    pub local_window: Option<u32>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("config_file", &self.config_file)
            .finish_non_exhaustive()
    }
}

/// What is offered where the configuration says nothing.
#[must_use]
pub fn algorithm_defaults() -> AlgorithmDefaults {
    let transport = TransportConfig::default();
    let names = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let user_keys = fullbore_ssh::key::Algorithm::ALL;
    let mut pubkey_accepted = names(user_keys.iter().map(|a| a.certificate_name()).collect());
    pubkey_accepted.extend(names(user_keys.iter().map(|a| a.name()).collect()));
    AlgorithmDefaults {
        ciphers: names(transport.ciphers.iter().map(|c| c.name()).collect()),
        macs: names(transport.macs.iter().map(|m| m.name()).collect()),
        kex: names(transport.kex.iter().map(|k| k.name()).collect()),
        host_keys: transport.host_key_algorithms,
        pubkey_accepted,
        ca_signatures: names(user_keys.iter().map(|a| a.name()).collect()),
    }
}

/// Connects to a host, logs in, and opens an SFTP session, all pipelined: returns once the user is in,
/// so that first requests can follow the greeting at once; [`Sftp::ready`] waits for its answer.
///
/// # Errors
/// [`Error::Connect`], in words for a person: what was tried, on what, and why it failed.
pub async fn connect(host: &HostConfig, context: &Context) -> Result<Sftp, Error> {
    connect_with(host, context, fullbore_sftp::client::Config::default()).await
}

/// As [`connect`], with limits and time-outs of the session's own.
///
/// # Errors
/// As [`connect`].
pub async fn connect_with(
    host: &HostConfig,
    context: &Context,
    config: fullbore_sftp::client::Config,
) -> Result<Sftp, Error> {
    connect_ahead(host, context, config, &[]).await
}

/// As [`connect_with`], with requests that are sent before their answers are asked for, in the same
/// flight as the login where the server bears that: each answers the first call that asks the same.
/// Returns once the server has answered the greeting too, if there are any.
///
/// # Errors
/// As [`connect`].
pub async fn connect_ahead(
    host: &HostConfig,
    context: &Context,
    config: fullbore_sftp::client::Config,
    ahead: &[Ahead],
) -> Result<Sftp, Error> {
    let first = Some(First { config, ahead });
    let made = to_host(host, context, first).make().await?;
    Ok(Sftp {
        lane: Rc::new(made.lane.expect("a lane was asked for")),
    })
}

/// A contact as the host's configuration says.
pub(super) const fn to_host<'a>(
    host: &'a HostConfig,
    context: &'a Context,
    first: Option<First<'a>>,
) -> Contact<'a> {
    Contact {
        host,
        context,
        route: Route::AsConfigured {
            jumps_max: JUMPS_MAX,
        },
        first,
        command: None,
    }
}

/// Connects to a host and logs in.
///
/// # Errors
/// As [`connect`].
pub async fn connect_only(host: &HostConfig, context: &Context) -> Result<Connection, Error> {
    Ok(to_host(host, context, None).make().await?.connection)
}

/// Logs in to a host over a stream that leads there.
///
/// # Errors
/// As [`connect`].
pub async fn connect_over(
    host: &HostConfig,
    context: &Context,
    stream: Stream,
) -> Result<Connection, Error> {
    let way = Way::over(stream);
    let connection = start(host, context, way, Haste::ByName)?;
    log_in(&connection, host, context, None).await?;
    Ok(connection)
}

/// Logs in; tells with `-v` how that came about.
pub(super) async fn log_in(
    connection: &Connection,
    host: &HostConfig,
    context: &Context,
    seen: Option<&Seen>,
) -> Result<LoggedIn, Error> {
    let started = context.clock.now();
    let asked_before = context.asker.asked_count();
    let key = seen.and_then(|seen| seen.user_key.as_deref());
    let login = Login::new(&connection.core, host, context, key).await;
    let done = login.run().await?;
    let was_asked = context.asker.asked_count() > asked_before;
    connection.core.was_asked.set(was_asked);
    if host.session.log_level >= LogLevel::Verbose {
        let text = connection.describe(host, &done.method, context.clock.now() - started);
        context.asker.tell(text).await;
    }
    if done.trust == Trust::Known && host.host_keys.update != UpdateHostKeys::No {
        let core = Rc::clone(&connection.core);
        tokio::task::spawn_local(host_keys::learn(core, host.clone(), context.clone()));
    }
    Ok(done)
}

/// A stream to a host, and the connection it leads through.
pub(super) struct Way {
    stream: Stream,
    carrier: Option<Connection>,
    /// How long the host took to reach, where it was reached from here.
    dialed: Option<DialTimes>,
}

impl Way {
    /// A stream that is there.
    pub(super) const fn over(stream: Stream) -> Self {
        Self {
            stream,
            carrier: None,
            dialed: None,
        }
    }

    /// A stream that is there only as long as `carrier` is.
    pub(super) const fn carried(stream: Stream, carrier: Connection) -> Self {
        Self {
            stream,
            carrier: Some(carrier),
            dialed: None,
        }
    }
}

/// A way to the host as its configuration says. `jumps_left` bounds configurations that lead
/// through each other.
pub(super) fn reach<'a>(
    host: &'a HostConfig,
    context: &'a Context,
    jumps_left: usize,
) -> Pin<Box<dyn Future<Output = Result<Way, Error>> + 'a>> {
    Box::pin(async move {
        match &host.connection.proxy {
            None => dial_host(host, context).await,
            Some(Proxy::Command(command)) => Ok(Way {
                stream: run_proxy(command, context)?,
                carrier: None,
                dialed: None,
            }),
            Some(Proxy::Jump(hops)) => jump(host, hops, context, jumps_left).await,
        }
    })
}

async fn jump(
    host: &HostConfig,
    hops: &[JumpHost],
    context: &Context,
    jumps_left: usize,
) -> Result<Way, Error> {
    if hops.len() > jumps_left {
        let why = format!(
            "{}: the way leads through more than {JUMPS_MAX} hosts",
            host.original_host
        );
        return Err(Error::Connect(why.into()));
    }
    let mut carrier: Option<Connection> = None;
    for hop in hops {
        let mut config = hop_config(hop, context)?;
        if host.session.log_level != LogLevel::Info {
            // Who wants to know more, or nothing, means the whole way.
            config.session.log_level = host.session.log_level;
        }
        let route = match carrier {
            // Only the first hop is reached from here, by its own configuration.
            None => Route::AsConfigured {
                jumps_max: jumps_left - hops.len(),
            },
            Some(carrier) => Route::Through(carrier),
        };
        let contact = Contact {
            host: &config,
            context,
            route,
            first: None,
            command: None,
        };
        let made = contact.make().await;
        let connection = made
            .map_err(|error| at_hop(host, &config, &error))?
            .connection;
        carrier = Some(connection);
    }
    match carrier {
        Some(carrier) => through(carrier, host).await,
        None => dial_host(host, context).await,
    }
}

/// A failed login on the way, and the reason that people run into most often.
fn at_hop(host: &HostConfig, hop: &HostConfig, error: &Error) -> Error {
    let why = format!(
        "on the way to {}, at {}: {error}\nFlags such as -i and -o are for the last host alone: what \
         {} needs goes into ssh_config, under \"Host {}\".",
        host.original_host, hop.original_host, hop.original_host, hop.original_host
    );
    Error::Connect(why.into())
}

pub(super) async fn through(carrier: Connection, host: &HostConfig) -> Result<Way, Error> {
    let tunnel = carrier.tunnel(&host.host_name, host.port).await?;
    Ok(Way::carried(Stream::Tunnel(Box::new(tunnel)), carrier))
}

fn hop_config(hop: &JumpHost, context: &Context) -> Result<HostConfig, Error> {
    let options: Vec<String> = hop.port.map(|p| format!("Port={p}")).into_iter().collect();
    let request = Request {
        host: &hop.host,
        user: hop.user.as_deref(),
        options: &options,
        config_file: context.config_file.clone(),
    };
    ssh_config::resolve(&*context.environment, &algorithm_defaults(), &request)
        .map_err(|error| Error::Connect(error.to_string().into()))
}

async fn dial_host(host: &HostConfig, context: &Context) -> Result<Way, Error> {
    let options = &host.connection;
    let failed = |why: String| Error::Connect(why.into());
    let bind = match &options.bind_address {
        None => None,
        Some(address) => Some(address.parse().map_err(|_| {
            failed(format!(
                "BindAddress {address}: not an address of this machine"
            ))
        })?),
    };
    let target = Dial {
        host: &host.host_name,
        port: host.port,
        family: match options.address_family {
            AddressFamily::Any => Family::Any,
            AddressFamily::Inet => Family::V4,
            AddressFamily::Inet6 => Family::V6,
        },
        timeout: Some(connect_timeout(host)),
        socket: SocketOptions {
            bind,
            interface: options.bind_interface.clone(),
            tos: host.session.tos,
            no_keepalive: !options.tcp_keep_alive,
        },
    };
    let mut attempts = options.connection_attempts.max(1);
    loop {
        attempts -= 1;
        let started = context.clock.now();
        match dial::dial(&target).await {
            Ok(dialed) => {
                let address = dialed.address;
                if host.session.log_level >= LogLevel::Verbose {
                    let millis = (context.clock.now() - started).as_secs_f64() * 1e3;
                    let text = format!(
                        "{}: connected to {address} in {millis:.1} ms",
                        host.host_name
                    );
                    context.asker.tell(text).await;
                }
                let stream = Stream::socket(dialed.socket);
                return Ok(Way {
                    stream: stream.map_err(|error| failed(reason(&error)))?,
                    carrier: None,
                    dialed: Some(dialed.times),
                });
            }
            Err(error) if attempts == 0 => return Err(failed(error.to_string())),
            // ConnectionAttempts: "one per second".
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

/// Starts a ProxyCommand in the user's shell, as OpenSSH does.
fn run_proxy(command: &[u8], context: &Context) -> Result<Stream, Error> {
    let shell = context.environment.variable("SHELL");
    let shell = shell.filter(|shell| !shell.is_empty());
    let line = [b"exec ".as_slice(), command].concat();
    let spawned = tokio::process::Command::new(shell.unwrap_or_else(|| "/bin/sh".into()))
        .arg("-c")
        .arg(std::ffi::OsStr::from_bytes(&line))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    spawned.and_then(Stream::child).map_err(|error| {
        let (command, why) = (escape_for_display(command), reason(&error));
        Error::Connect(format!("cannot run the ProxyCommand {command}: {why}").into())
    })
}

/// Starts the connection's task over `way`.
pub(super) fn start(
    host: &HostConfig,
    context: &Context,
    way: Way,
    haste: Haste<'_>,
) -> Result<Connection, Error> {
    start_with(client_config(host, context, haste)?, host, context, way)
}

/// The same with another configuration than the host's.
pub(super) fn start_with(
    config: ClientConfig,
    host: &HostConfig,
    context: &Context,
    way: Way,
) -> Result<Connection, Error> {
    let provider = Box::new(AwsLc::new(Box::new(SystemRandom::new())));
    let clock = context.clock;
    let mut session = ClientSession::new(Ssh::client(Arc::new(config), provider, clock.now()));
    session.set_own_profiles(own_profiles(context)?);
    let account = WindowBudget::of_process().account();
    session.set_credit(clock.now(), Box::new(account));
    let core = Core::new(clock, peer_name(host), session);
    core.note(|state| state.watch.milestones.dialed = way.dialed);
    core.peer_address.set(way.stream.peer_address());
    tokio::task::spawn_local(core.clone().run(Pump::new(way.stream, clock)));
    Ok(Connection::new(core, way.carrier))
}

fn peer_name(host: &HostConfig) -> String {
    let mut name = host.host_name.clone();
    if host.port != 22 {
        name.push_str(&format!(" port {}", host.port));
    }
    if let Some(Proxy::Command(_)) = host.connection.proxy {
        name.push_str(" through its ProxyCommand");
    }
    name
}
