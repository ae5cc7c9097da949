//! Options and flags of sockets, by the numbers that programs use.

use core::time::Duration;

use fullbore_tcp::congestion::Algorithm;

use super::options::SocketOptions;
use super::{Fd, Outcome, Role, Sockets, fail, info};
use crate::ip;

/// `SO_MEMINFO`, which the C library has no name for everywhere.
const SO_MEMINFO: i32 = 55;
/// `SIOCOUTQNSD`: bytes never sent.
const SIOCOUTQNSD: u64 = 0x894b;
/// Numbers that `SO_MEMINFO` tells.
const MEMINFO_COUNT: usize = 9;
/// The least and the largest `TCP_MAXSEG` (Linux: 88 bytes and what a window without scale holds).
const MAXSEG: core::ops::RangeInclusive<i32> = 88..=32_767;

fn int(bytes: &[u8]) -> Outcome<i32> {
    match bytes.first_chunk() {
        Some(int) => Ok(i32::from_ne_bytes(*int)),
        None => fail(libc::EINVAL),
    }
}

fn seconds(value: i32) -> Outcome<Duration> {
    match u64::try_from(value) {
        Ok(secs) if (1..=32_767).contains(&secs) => Ok(Duration::from_secs(secs)),
        Ok(_) | Err(_) => fail(libc::EINVAL),
    }
}

fn whole_seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

/// A buffer's size, within what Linux takes.
fn buffer(value: i32) -> Option<u32> {
    const LEAST: u32 = 2304;
    u32::try_from(value).ok().map(|bytes| bytes.max(LEAST))
}

fn doubled(bytes: u64) -> i32 {
    i32::try_from(2 * bytes).unwrap_or(i32::MAX)
}

impl Sockets {
    /// Sets an option. What has no effect here is taken, as long as Linux has it.
    ///
    /// # Errors
    /// `EINVAL` for a value that cannot be, `ENOPROTOOPT` for an option that is not known.
    pub fn set_option(&mut self, fd: Fd, level: i32, name: i32, value: &[u8]) -> Outcome<()> {
        let mut options = self.get(fd)?.options;
        match level {
            libc::SOL_SOCKET => set_socket(&mut options, name, value)?,
            libc::IPPROTO_TCP => set_tcp(&mut options, name, value)?,
            libc::IPPROTO_IP => set_ip(&mut options, name, value)?,
            libc::IPPROTO_IPV6 => set_ipv6(&mut options, name, value)?,
            _ => return fail(libc::ENOPROTOOPT),
        }
        let socket = self.get_mut(fd)?;
        let was_corked = socket.options.is_corked;
        socket.options = options;
        let role = socket.role;
        if was_corked && !options.is_corked {
            self.flush_tail(fd)?;
        }
        if let Role::Connected(id) = role {
            self.host.with(id, |now, flow| options.apply(now, flow));
        }
        Ok(())
    }

    /// The value of an option, as bytes of the machine's order.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that is not known.
    pub fn option(&mut self, fd: Fd, level: i32, name: i32) -> Outcome<Vec<u8>> {
        let value = match (level, name) {
            (libc::IPPROTO_TCP, libc::TCP_INFO) => return self.tcp_info(fd),
            (libc::IPPROTO_TCP, libc::TCP_CC_INFO) => return Ok(Vec::new()),
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let name = match self.host.settings().algorithm {
                    Algorithm::Reno => "reno",
                    Algorithm::Cubic => "cubic",
                    Algorithm::Bbr => "bbr",
                };
                return Ok([name.as_bytes(), &[0; 16][name.len()..]].concat());
            }
            (libc::SOL_SOCKET, SO_MEMINFO) => return Ok(vec![0; MEMINFO_COUNT * 4]),
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let linger = self.get(fd)?.options.linger;
                let (is_on, secs) = (i32::from(linger.is_some()), linger.unwrap_or(0));
                return Ok([is_on.to_ne_bytes(), secs.to_ne_bytes()].concat());
            }
            (libc::SOL_SOCKET, libc::SO_ERROR) => self.take_error(fd)?.unwrap_or(0),
            (libc::SOL_SOCKET, _) => self.socket_option(fd, name)?,
            (libc::IPPROTO_TCP, _) => self.tcp_option(fd, name)?,
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                i32::from(self.get(fd)?.options.tos)
            }
            _ => return fail(libc::ENOPROTOOPT),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    fn socket_option(&self, fd: Fd, name: i32) -> Outcome<i32> {
        let socket = self.get(fd)?;
        let (options, settings) = (&socket.options, self.host.settings());
        let or = |own: Option<u32>, default: u64| doubled(own.map_or(default, u64::from));
        Ok(match name {
            libc::SO_TYPE => libc::SOCK_STREAM,
            libc::SO_PROTOCOL => libc::IPPROTO_TCP,
            libc::SO_DOMAIN if socket.is_v4 => libc::AF_INET,
            libc::SO_DOMAIN => libc::AF_INET6,
            libc::SO_ACCEPTCONN => i32::from(matches!(socket.role, Role::Listening(_))),
            libc::SO_KEEPALIVE => i32::from(options.is_keepalive),
            libc::SO_REUSEADDR => i32::from(options.is_address_reused),
            libc::SO_SNDBUF => or(options.send_buffer, settings.send_buffer),
            libc::SO_RCVBUF => or(options.receive_buffer, settings.receive_buffer),
            _ => return fail(libc::ENOPROTOOPT),
        })
    }

    fn tcp_option(&self, fd: Fd, name: i32) -> Outcome<i32> {
        let socket = self.get(fd)?;
        let options = &socket.options;
        Ok(match name {
            libc::TCP_NODELAY => i32::from(options.is_nodelay),
            libc::TCP_CORK => i32::from(options.is_corked),
            libc::TCP_KEEPIDLE => whole_seconds(options.keepalive.idle),
            libc::TCP_KEEPINTVL => whole_seconds(options.keepalive.interval),
            libc::TCP_KEEPCNT => i32::try_from(options.keepalive.count_max).unwrap_or(i32::MAX),
            libc::TCP_USER_TIMEOUT => options.user_timeout.map_or(0, |timeout| {
                i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
            }),
            libc::TCP_MAXSEG => match socket.role {
                Role::Connected(id) => {
                    let mss = self.host.flow(id).connection.info().snd_mss;
                    i32::try_from(mss).unwrap_or(i32::MAX)
                }
                Role::Fresh | Role::Listening(_) => i32::from(options.mss.unwrap_or(536)),
            },
            _ => return fail(libc::ENOPROTOOPT),
        })
    }

    fn tcp_info(&self, fd: Fd) -> Outcome<Vec<u8>> {
        Ok(match self.get(fd)?.role {
            Role::Connected(id) => info::of_connection(self.host.flow(id)),
            Role::Listening(_) => info::of_state(info::TCP_LISTEN),
            Role::Fresh => info::of_state(info::TCP_CLOSE),
        })
    }

    /// `F_GETFL`, `F_SETFL`, `F_GETFD`, `F_SETFD`.
    ///
    /// # Errors
    /// `EINVAL` for any other.
    pub fn control(&mut self, fd: Fd, command: i32, argument: i32) -> Outcome<i32> {
        let socket = self.get_mut(fd)?;
        match command {
            libc::F_GETFL if socket.is_nonblocking => Ok(libc::O_RDWR | libc::O_NONBLOCK),
            libc::F_GETFL => Ok(libc::O_RDWR),
            libc::F_SETFL => {
                socket.is_nonblocking = argument & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => Ok(0),
            _ => fail(libc::EINVAL),
        }
    }

    /// `FIONREAD`, `TIOCOUTQ` and `SIOCOUTQNSD`: bytes to be read, not acknowledged, not sent.
    ///
    /// # Errors
    /// `EINVAL` for any other, and for a port that listens.
    pub fn queued(&self, fd: Fd, request: u64) -> Outcome<i32> {
        let Role::Connected(id) = self.get(fd)?.role else {
            return fail(libc::EINVAL);
        };
        let connection = &self.host.flow(id).connection;
        let bytes = match request {
            libc::FIONREAD => connection.readable_bytes(),
            libc::TIOCOUTQ => connection.unacked_bytes(),
            SIOCOUTQNSD => connection.info().notsent_bytes,
            _ => return fail(libc::EINVAL),
        };
        Ok(i32::try_from(bytes).unwrap_or(i32::MAX))
    }
}

fn set_socket(options: &mut SocketOptions, name: i32, value: &[u8]) -> Outcome<()> {
    match name {
        libc::SO_KEEPALIVE => options.is_keepalive = int(value)? != 0,
        libc::SO_REUSEADDR => options.is_address_reused = int(value)? != 0,
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => options.send_buffer = buffer(int(value)?),
        libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => options.receive_buffer = buffer(int(value)?),
        libc::SO_LINGER => {
            let secs = int(value.get(4..).unwrap_or_default())?;
            options.linger = (int(value)? != 0).then_some(secs);
        }
        libc::SO_REUSEPORT | libc::SO_PRIORITY | libc::SO_MARK | libc::SO_OOBINLINE => {
            let _ = int(value)?;
        }
        _ => return fail(libc::ENOPROTOOPT),
    }
    Ok(())
}

fn set_tcp(options: &mut SocketOptions, name: i32, value: &[u8]) -> Outcome<()> {
    match name {
        libc::TCP_NODELAY => options.is_nodelay = int(value)? != 0,
        libc::TCP_CORK => options.is_corked = int(value)? != 0,
        libc::TCP_KEEPIDLE => options.keepalive.idle = seconds(int(value)?)?,
        libc::TCP_KEEPINTVL => options.keepalive.interval = seconds(int(value)?)?,
        libc::TCP_KEEPCNT => match u32::try_from(int(value)?) {
            Ok(count) if (1..=127).contains(&count) => options.keepalive.count_max = count,
            Ok(_) | Err(_) => return fail(libc::EINVAL),
        },
        libc::TCP_USER_TIMEOUT => match u64::try_from(int(value)?) {
            Ok(0) => options.user_timeout = None,
            Ok(ms) => options.user_timeout = Some(Duration::from_millis(ms)),
            Err(_) => return fail(libc::EINVAL),
        },
        libc::TCP_MAXSEG => {
            let mss = int(value)?;
            if !MAXSEG.contains(&mss) {
                return fail(libc::EINVAL);
            }
            options.mss = u16::try_from(mss).ok();
        }
        libc::TCP_QUICKACK | libc::TCP_LINGER2 | libc::TCP_NOTSENT_LOWAT | libc::TCP_SYNCNT => {
            let _ = int(value)?;
        }
        _ => return fail(libc::ENOPROTOOPT),
    }
    Ok(())
}

fn tos(value: &[u8]) -> Outcome<u8> {
    match u8::try_from(int(value)?) {
        Ok(tos) => Ok(tos & !ip::ECN_MASK),
        Err(_) => fail(libc::EINVAL),
    }
}

fn set_ip(options: &mut SocketOptions, name: i32, value: &[u8]) -> Outcome<()> {
    match name {
        libc::IP_TOS => options.tos = tos(value)?,
        libc::IP_MTU_DISCOVER | libc::IP_RECVERR | libc::IP_TTL => {
            let _ = int(value)?;
        }
        _ => return fail(libc::ENOPROTOOPT),
    }
    Ok(())
}

fn set_ipv6(options: &mut SocketOptions, name: i32, value: &[u8]) -> Outcome<()> {
    match name {
        libc::IPV6_TCLASS => options.tos = tos(value)?,
        libc::IPV6_V6ONLY | libc::IPV6_MTU_DISCOVER | libc::IPV6_RECVERR => {
            let _ = int(value)?;
        }
        _ => return fail(libc::ENOPROTOOPT),
    }
    Ok(())
}
