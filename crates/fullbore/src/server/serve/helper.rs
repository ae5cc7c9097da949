//! `fullbore udp-server`: lets one client go on over UDP on a host whose SSH server is another one. That
//! server has logged the client in and runs this program as its user; what is served is what its own
//! SFTP server would serve.

use std::cell::RefCell;
use std::io::{Read as _, Write};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;

use fullbore_ssh::cert::HostIdentity;
use fullbore_ssh::config::{HostKey, ServerConfig};
use fullbore_ssh::connection::ConnectionConfig;
use tokio::sync::watch;
use tokio::task::LocalSet;

use super::auth::{Policy, Rights};
use super::connection::Shared;
use super::gate::{Gate, GateLimits};
use super::host_key;
use super::listen::{FILE_QUEUE_MAX, FILE_THREADS_MAX, KEEPALIVE, ServeError, runtime};
use super::log::{Log, LogSink};
use super::udp::{self, Hall};
use crate::driver::clock::Clock;
use crate::driver::pool::Pool;
use crate::driver::random::SystemRandom;
use crate::driver::signals::{hide_memory, raise_file_limit};
use crate::driver::udp::Bound;
use crate::server::store::RootPolicy;

/// What the program is told.
#[derive(Clone, Debug)]
pub struct HelperOptions {
    /// Where the client is, and where it has reached this machine.
    pub peer: IpAddr,
    /// See `peer`.
    pub local: IpAddr,
    /// Ports to choose from; 0 is any.
    pub ports: RangeInclusive<u16>,
    /// Refuse everything that changes something.
    pub read_only: bool,
}

impl HelperOptions {
    /// What SSH servers tell those whom they start in `SSH_CONNECTION`: both addresses and ports.
    #[must_use]
    pub fn from_ssh_connection(value: &str) -> Option<Self> {
        let mut words = value.split(' ');
        let peer = words.next()?.parse().ok()?;
        let local = words.nth(1)?.parse().ok()?;
        Some(Self {
            peer,
            local,
            ports: 0..=0,
            read_only: false,
        })
    }
}

/// Writes the offer to `out`, and serves the client that comes; returns when it has gone, does not come,
/// or has closed our standard input before it came.
///
/// # Errors
/// When no port can be had, or the machine gives no threads or the like.
pub fn run(
    options: &HelperOptions,
    sink: Arc<dyn LogSink>,
    out: &mut dyn Write,
) -> Result<(), ServeError> {
    hide_memory();
    raise_file_limit();
    let runtime = runtime().map_err(ServeError::System)?;
    let bound = bind(options)?;
    let key = host_key::make(&mut SystemRandom::new())
        .map_err(|error| ServeError::System(std::io::Error::other(error)))?;
    let (doors, mut waiting) = udp::doors(vec![bound], key.public_key().to_blob());
    let offer = doors.announce(None, options.peer, Rights::default());
    let offer = offer.expect("the first of them has room");
    let told = out.write_all(offer.to_line().as_bytes());
    told.and_then(|()| out.flush())
        .map_err(ServeError::System)?;
    let waiting = waiting.remove(0);
    LocalSet::new().block_on(&runtime, async {
        let shared = Rc::new(shared(options, HostIdentity::plain(key), Log::new(sink)));
        let (stop, stopped) = watch::channel(false);
        let gate = Gate::new(GateLimits::default());
        let hall = Hall::new(shared, waiting, gate, stopped).map_err(ServeError::System)?;
        hall.for_one(end_of_input()).open().await;
        drop(stop);
        Ok(())
    })
}

/// The address that the client has reached, or all where this machine does not know it: behind a
/// translator of addresses.
fn bind(options: &HelperOptions) -> Result<Bound, ServeError> {
    let mut last = None;
    for port in options.ports.clone() {
        let wanted = SocketAddr::new(options.local, port);
        let all: IpAddr = match options.local {
            IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let bound = match Bound::to(wanted) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
                Bound::to(SocketAddr::new(all, port))
            }
            bound => bound,
        };
        match bound {
            Ok(bound) => return Ok(bound),
            Err(error) => last = Some(ServeError::Udp(wanted, error)),
        }
    }
    Err(last.unwrap_or(ServeError::NoAddress))
}

fn shared(options: &HelperOptions, key: HostIdentity, log: Log) -> Shared {
    let connection = ConnectionConfig {
        keepalive_interval: Some(KEEPALIVE),
        // Until the process's ledger says more.
        windows_max: 0,
        ..ConnectionConfig::default()
    };
    let config = ServerConfig {
        host_keys: vec![Arc::new(key) as Arc<dyn HostKey>],
        connection,
        ..ServerConfig::default()
    };
    Shared {
        config: Arc::new(udp::server_config(&config)),
        // Nobody is let in by it: the token is all.
        policy: RefCell::new(Policy::new(&[], None, None, log.clone())),
        root: RootPolicy::Whole { start: ".".into() },
        read_only: options.read_only,
        sessions_max: SESSIONS_MAX,
        clock: Clock::start(),
        pool: Pool::new(FILE_THREADS_MAX, FILE_QUEUE_MAX),
        password_pool: Pool::new(1, 1),
        log,
        udp: None,
    }
}

/// Sessions of the one connection: OpenSSH's number.
const SESSIONS_MAX: usize = 10;

/// Tells when nobody is there any more to write to our standard input.
fn end_of_input() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        while stdin.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
        let _ = sender.send(true);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_read_from_what_the_ssh_server_tells() {
        let options = HelperOptions::from_ssh_connection("192.0.2.1 50000 2001:db8::2 22");
        let options = options.expect("it has both");
        assert_eq!(options.peer.to_string(), "192.0.2.1");
        assert_eq!(options.local.to_string(), "2001:db8::2");
        for text in ["", "192.0.2.1", "a b c d", "192.0.2.1 1"] {
            assert!(HelperOptions::from_ssh_connection(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_passed_over() {
        let taken = Bound::to(([127, 0, 0, 1], 0).into()).expect("any port");
        let first = taken.local().port();
        let mut options = HelperOptions::from_ssh_connection("127.0.0.1 1 127.0.0.1 22");
        let options = options.as_mut().expect("it has both");
        options.ports = first..=first;
        assert!(bind(options).is_err());
        options.ports = first..=first.saturating_add(50);
        assert!(bind(options).expect("another is free").local().port() > first);
        // An address of another machine: all of ours.
        options.local = [192, 0, 2, 77].into();
        options.ports = 0..=0;
        let bound = bind(options).expect("any port");
        assert!(bound.local().ip().is_unspecified());
    }
}
