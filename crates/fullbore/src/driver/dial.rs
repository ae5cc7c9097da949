//! From a name and a port to a connected socket: every address gets its chance, the next one
//! starts before a silent one has timed out (RFC 8305), the first to answer wins.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::config::text::reason;

/// RFC 8305 5: the wait before the next address is tried too.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// The part of a socket's send queue that may wait unsent in the kernel: enough to keep a fast
/// path busy between two wake-ups, little enough that a rekey or an abort is not stuck behind it.
const NOTSENT_LOWAT_BYTES: u32 = 512 * 1024;

/// Which addresses of a name are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Both.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// Where to connect, and how long to try.
#[derive(Clone, Debug)]
pub struct Dial<'a> {
    /// Name or address.
    pub host: &'a str,
    /// TCP port.
    pub port: u16,
    /// Which addresses are wanted.
    pub family: Family,
    /// The most that all attempts together may take.
    pub timeout: Option<Duration>,
    /// What the socket is to be like.
    pub socket: SocketOptions,
}

/// What a socket is to be like before it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Local address to connect from.
    pub bind: Option<IpAddr>,
    /// Network interface to go out through.
    pub interface: Option<String>,
    /// The type-of-service byte of its packets; the system's choice if not given.
    pub tos: Option<u32>,
    /// Whether to leave out the kernel's keepalive.
    pub no_keepalive: bool,
}

/// Why no connection came about: every address with its own reason.
#[derive(Debug)]
pub struct DialError {
    host: String,
    port: u16,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Resolve(io::Error),
    NoAddress,
    Refused(Vec<(SocketAddr, io::Error)>),
    TimedOut(Duration, Vec<(SocketAddr, io::Error)>),
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (&self.host, self.port);
        match &self.why {
            Why::Resolve(error) => {
                let why = reason(error);
                // The standard library's words for which call it was.
                let why = why
                    .rsplit_once("information: ")
                    .map_or(&*why, |(_, why)| why);
                write!(
                    f,
                    "cannot find the address of {host}: {why}; is the name right, or is its HostName \
                     missing in ssh_config?"
                )
            }
            Why::NoAddress => write!(f, "{host} has no address of the family asked for"),
            Why::Refused(tried) => {
                write!(f, "cannot connect to {host} port {port}")?;
                list(f, tried)
            }
            Why::TimedOut(limit, tried) => {
                let seconds = limit.as_secs();
                write!(f, "{host} port {port} did not answer within {seconds} s")?;
                list(f, tried)
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, tried: &[(SocketAddr, io::Error)]) -> fmt::Result {
    for (i, (address, error)) in tried.iter().enumerate() {
        let separator = if i == 0 { ": " } else { "; " };
        write!(f, "{separator}{}: {}", address.ip(), reason(error))?;
    }
    Ok(())
}

impl std::error::Error for DialError {}

/// A socket, and how it came about.
#[derive(Debug)]
pub struct Connected {
    /// The socket.
    pub socket: OwnedFd,
    /// Where it leads.
    pub address: SocketAddr,
    /// How long each step took.
    pub times: DialTimes,
}

/// How long it took to reach a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DialTimes {
    /// To find its addresses.
    pub lookup: Duration,
    /// To connect to one of them.
    pub connect: Duration,
}

/// Connects to `dial`.
///
/// # Errors
/// When the name has no address, or no address answers in time; says what each one said.
pub async fn dial(dial: &Dial<'_>) -> Result<Connected, DialError> {
    let fail = |why| DialError {
        host: dial.host.to_owned(),
        port: dial.port,
        why,
    };
    let mut tried = Vec::new();
    let mut times = DialTimes::default();
    let attempt = async {
        let started = std::time::Instant::now();
        let found = tokio::net::lookup_host((dial.host, dial.port)).await;
        let addresses = interleave(found.map_err(Why::Resolve)?, dial.family);
        if addresses.is_empty() {
            return Err(Why::NoAddress);
        }
        times.lookup = started.elapsed();
        let connected = race(&addresses, &dial.socket, &mut tried).await;
        times.connect = started.elapsed() - times.lookup;
        Ok(connected)
    };
    let result = match dial.timeout {
        None => Ok(attempt.await),
        Some(limit) => tokio::time::timeout(limit, attempt)
            .await
            .map_err(|_| limit),
    };
    match result {
        Ok(Ok(Some((socket, address)))) => Ok(Connected {
            socket,
            address,
            times,
        }),
        Ok(Ok(None)) => Err(fail(Why::Refused(tried))),
        Ok(Err(why)) => Err(fail(why)),
        Err(limit) => Err(fail(Why::TimedOut(limit, tried))),
    }
}

/// RFC 8305 4: the families take turns, in the resolver's order otherwise.
fn interleave(found: impl Iterator<Item = SocketAddr>, family: Family) -> Vec<SocketAddr> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut leader = None;
    for address in found {
        let wanted = match family {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        };
        if !wanted {
            continue;
        }
        let is_first = *leader.get_or_insert(address.is_ipv6()) == address.is_ipv6();
        if is_first {
            first.push(address);
        } else {
            second.push(address);
        }
    }
    let mut out = Vec::new();
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            out.truncate(ADDRESSES_MAX);
            return out;
        }
        out.extend(pair.into_iter().flatten());
    }
}

async fn race(
    addresses: &[SocketAddr],
    options: &SocketOptions,
    tried: &mut Vec<(SocketAddr, io::Error)>,
) -> Option<(OwnedFd, SocketAddr)> {
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.iter();
    loop {
        if let Some(&address) = waiting.next() {
            let options = options.clone();
            attempts.spawn(async move { (address, connect(address, &options).await) });
        } else if attempts.is_empty() {
            return None;
        }
        let delay = async {
            if waiting.len() == 0 {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(ATTEMPT_DELAY).await;
        };
        tokio::select! {
            done = attempts.join_next() => match done {
                Some(Ok((address, Ok(fd)))) => return Some((fd, address)),
                Some(Ok((address, Err(error)))) => tried.push((address, error)),
                Some(Err(_)) | None => {}
            },
            () = delay => {}
        }
    }
}

async fn connect(address: SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    set_options(socket2::SockRef::from(&socket), address, options)?;
    if let Some(ip) = options.bind {
        socket.bind(SocketAddr::new(ip, 0))?;
    }
    let stream: TcpStream = socket.connect(address).await?;
    let fd = OwnedFd::from(stream.into_std()?);
    tune(fd.as_fd());
    if options.no_keepalive {
        socket2::SockRef::from(&fd).set_keepalive(false)?;
    }
    Ok(fd)
}

fn set_options(
    socket: socket2::SockRef<'_>,
    address: SocketAddr,
    options: &SocketOptions,
) -> io::Result<()> {
    if let Some(name) = &options.interface {
        socket.bind_device(Some(name.as_bytes()))?;
    }
    match options.tos {
        Some(tos) if address.is_ipv4() => socket.set_tos_v4(tos),
        Some(tos) => socket.set_tclass_v6(tos),
        None => Ok(()),
    }
}

/// Sets what every connection of ours wants. The kernel's own sizing of its buffers stays on:
/// asking for a size would switch it off.
pub fn tune(socket: std::os::fd::BorrowedFd<'_>) {
    let socket = socket2::SockRef::from(&socket);
    // Each of these makes things better and none is needed: a refusal changes nothing.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_keepalive(true);
    let _ = socket.set_tcp_notsent_lowat(NOTSENT_LOWAT_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|a| a.parse().expect("address")).collect()
    }

    #[test]
    fn families_take_turns_and_the_resolvers_first_choice_leads() {
        let found = addresses(&["[::1]:22", "[::2]:22", "1.1.1.1:22"]);
        let order = interleave(found.clone().into_iter(), Family::Any);
        assert_eq!(order, addresses(&["[::1]:22", "1.1.1.1:22", "[::2]:22"]));
        let order = interleave(found.into_iter(), Family::V4);
        assert_eq!(order, addresses(&["1.1.1.1:22"]));
    }

    #[tokio::test]
    async fn a_socket_is_as_it_was_asked_to_be() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let connect = async |socket: SocketOptions| {
            let target = Dial {
                host: "127.0.0.1",
                port: listener.local_addr().expect("address").port(),
                family: Family::Any,
                timeout: None,
                socket,
            };
            dial(&target).await
        };
        let asked = SocketOptions {
            bind: Some("127.0.0.7".parse().expect("address")),
            interface: None,
            tos: Some(0x20),
            no_keepalive: true,
        };
        let fd = connect(asked).await.expect("connected").socket;
        let socket = socket2::SockRef::from(&fd);
        let local = socket.local_addr().expect("bound").as_socket();
        assert_eq!(local.expect("internet").ip().to_string(), "127.0.0.7");
        assert_eq!(socket.tos_v4().expect("told"), 0x20);
        assert!(!socket.keepalive().expect("told"));
        let fd = connect(SocketOptions::default())
            .await
            .expect("connected")
            .socket;
        assert!(socket2::SockRef::from(&fd).keepalive().expect("told"));
        let nowhere = SocketOptions {
            interface: Some("none-such".to_owned()),
            ..SocketOptions::default()
        };
        assert!(connect(nowhere).await.is_err());
    }

    #[tokio::test]
    async fn a_refusal_names_the_address_and_the_reason() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = listener.local_addr().expect("address").port();
        drop(listener);
        let error = dial(&Dial {
            host: "127.0.0.1",
            port,
            family: Family::Any,
            timeout: None,
            socket: SocketOptions::default(),
        })
        .await
        .expect_err("nobody listens");
        let text = error.to_string();
        assert!(text.ends_with(": 127.0.0.1: Connection refused"), "{text}");
    }
}
