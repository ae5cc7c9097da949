//! A UDP socket that takes and gives batches: many datagrams in one call (Linux's UDP_SEGMENT and
//! UDP_GRO), never cut on their way (DF), each with the address that the peer knows.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket as RawSocket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::udp::door::Route;
use crate::udp::endpoint::Transmit;

/// What the kernel is asked to hold for us, each way: 10 ms at 3 Gbit/s. It gives what its limits
/// allow.
const BUFFER_BYTES: usize = 4 << 20;

/// Room for the control messages of one call: a segment length and an address.
const CONTROL_BYTES: usize = 128;

/// A control buffer, aligned as its headers want it.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

#[derive(Debug)]
struct Descriptor(OwnedFd);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Datagrams that arrived together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// Between which addresses.
    pub(super) from: Route,
    /// Bytes of all.
    pub(super) len: usize,
    /// Bytes of each, but for the last.
    pub(super) segment_len: usize,
}

/// A socket that has an address and is not used yet.
#[derive(Debug)]
pub struct Bound {
    socket: RawSocket,
    local: SocketAddr,
}

impl Bound {
    /// Binds to `address`; port 0 is any. `[::]` is all addresses of both families.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn to(address: SocketAddr) -> io::Result<Self> {
        let socket = RawSocket::new(
            Domain::for_address(address),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        socket.set_nonblocking(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(address.ip() != Ipv6Addr::UNSPECIFIED)?;
        }
        // Whatever it gives will do.
        let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(BUFFER_BYTES);
        socket.bind(&address.into())?;
        let local = socket.local_addr()?.as_socket();
        let local = local.ok_or_else(|| io::Error::other("a socket without an address"))?;
        Ok(Self { socket, local })
    }

    /// Where it is bound.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }
}

/// The socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: AsyncFd<Descriptor>,
    local: SocketAddr,
    /// The kernel cuts batches for us. Some devices turn out not to bear it.
    has_segmentation: bool,
}

impl Socket {
    /// Puts a bound socket into the reactor of this thread.
    pub(super) fn new(bound: Bound) -> io::Result<Self> {
        let Bound { socket, local } = bound;
        let fd = register(socket.into())?;
        let mut socket = Self {
            fd,
            local,
            has_segmentation: true,
        };
        socket.tune();
        Ok(socket)
    }

    /// Where it is bound.
    pub(super) const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sets what is set once. What an older kernel refuses costs speed alone.
    fn tune(&mut self) {
        // Nothing is cut, and what the kernel believes of the path is no limit: the size is ours to find.
        self.set(
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        );
        if self.local.is_ipv6() {
            let probe = libc::IPV6_PMTUDISC_PROBE;
            self.set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe);
        }
        self.set(libc::SOL_UDP, libc::UDP_GRO, 1);
        if self.is_wildcard() {
            match self.local {
                SocketAddr::V4(_) => self.set(libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
                SocketAddr::V6(_) => self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
            };
        }
        // Refused where the kernel has none: then each datagram is a call.
        self.has_segmentation = self.set(libc::SOL_UDP, libc::UDP_SEGMENT, 0);
    }

    fn is_wildcard(&self) -> bool {
        self.local.ip().is_unspecified()
    }

    #[allow(unsafe_code)]
    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> bool {
        let len = socklen(size_of::<libc::c_int>());
        // SAFETY: the descriptor is open, and `value` is an int that is as long as it says.
        let result = unsafe {
            let value = (&raw const value).cast();
            libc::setsockopt(self.fd.as_raw_fd(), level, name, value, len)
        };
        result == 0
    }

    /// Sends datagrams that lie one behind the other in `bytes`. Those that cannot leave for a reason of
    /// their own - they are too long for the first link, nobody is there - count as sent: they are lost.
    /// Pending: nothing was sent, and the waker is kept.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        transmit: &Transmit,
        bytes: &[u8],
    ) -> Poll<io::Result<()>> {
        if transmit.len > transmit.segment_len && !self.has_segmentation {
            return self.poll_send_each(cx, transmit, bytes);
        }
        loop {
            let mut ready = ready!(self.fd.poll_write_ready(cx))?;
            let error = match self.send(transmit, bytes) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => ready.clear_ready(),
                Some(libc::EINTR) => {}
                // The device cannot, or a VPN's does not say why not.
                Some(libc::EIO | libc::EOPNOTSUPP) if transmit.len > transmit.segment_len => {
                    self.has_segmentation = false;
                    return self.poll_send_each(cx, transmit, bytes);
                }
                _ => return Poll::Ready(Self::judge(error)),
            }
        }
    }

    /// Sends one by one. What the socket has no room for any more is lost: that is what it means.
    fn poll_send_each(
        &mut self,
        cx: &mut Context<'_>,
        transmit: &Transmit,
        bytes: &[u8],
    ) -> Poll<io::Result<()>> {
        let mut is_first = true;
        for datagram in bytes[..transmit.len].chunks(transmit.segment_len) {
            let one = Transmit {
                len: datagram.len(),
                segment_len: datagram.len(),
                ..*transmit
            };
            match self.poll_send(cx, &one, datagram) {
                Poll::Pending if is_first => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(sent) => sent?,
            }
            is_first = false;
        }
        Poll::Ready(Ok(()))
    }

    /// What ends the socket, and what only concerns what was sent, or an earlier datagram that somebody
    /// answered with an error. Anybody on the path can send those: they say nothing.
    fn judge(error: io::Error) -> io::Result<()> {
        match error.raw_os_error() {
            Some(libc::EBADF | libc::ENOTSOCK) => Err(error),
            _ => Ok(()),
        }
    }

    #[allow(unsafe_code)]
    fn send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let to = SockAddr::from(self.as_bound(transmit.to.remote));
        let mut part = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: transmit.len,
        };
        let mut control = Control([0; CONTROL_BYTES]);
        // SAFETY: a header of zeroes is a valid one: no name, no parts, no control messages.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        let mut writer = ControlWriter::new(&mut control);
        if transmit.len > transmit.segment_len {
            let len = u16::try_from(transmit.segment_len).expect("a datagram");
            writer.push(libc::SOL_UDP, libc::UDP_SEGMENT, len);
        }
        if let Some(local) = transmit.to.local {
            writer.push_source(local);
        }
        let control_len = writer.len;
        if control_len > 0 {
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = control_len;
        }
        // SAFETY: name, part and control live until the call is over and are as long as the header
        // says; the kernel only reads them.
        let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const header, 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// An IPv4 address as a socket of both families writes it.
    fn as_bound(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V4(v4) if self.local.is_ipv6() => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            other => other,
        }
    }

    /// Receives once into `buf`. Pending: the waker is kept.
    pub(super) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<Received>> {
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            let error = match self.recv(buf) {
                Ok(Some(received)) => return Poll::Ready(Ok(received)),
                Ok(None) => continue,
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => ready.clear_ready(),
                _ => Self::judge(error)?,
            }
        }
    }

    /// One call; `None` for what is of no known family.
    #[allow(unsafe_code)]
    fn recv(&self, buf: &mut [u8]) -> io::Result<Option<Received>> {
        let mut name = SockAddrStorage::zeroed();
        let name_len = name.size_of();
        let mut part = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len(),
        };
        let mut control = Control([0; CONTROL_BYTES]);
        // SAFETY: a header of zeroes is a valid one: no name, no parts, no control messages.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = name_len;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES;
        // SAFETY: name, part and control are ours to be written to, live until the call is over and are
        // as long as the header says.
        let received = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut header, 0) };
        let Ok(len) = usize::try_from(received) else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: the kernel has written an address of that length.
        let name = unsafe { SockAddr::new(name, header.msg_namelen) };
        let Some(remote) = name.as_socket() else {
            return Ok(None);
        };
        let (mut segment_len, mut local) = (len, None);
        for_each_control(&header, |level, kind, data| match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let size = data.first_chunk().map(|b| libc::c_int::from_ne_bytes(*b));
                segment_len = size.and_then(|s| usize::try_from(s).ok()).unwrap_or(len);
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => local = local_of_v4(data),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => local = local_of_v6(data),
            _ => {}
        });
        let from = Route { remote, local };
        Ok(Some(Received {
            from,
            len,
            segment_len: segment_len.max(1),
        }))
    }
}

/// The address in a `struct in_pktinfo`: behind the interface and the address of the route.
fn local_of_v4(data: &[u8]) -> Option<IpAddr> {
    let address: [u8; 4] = data.get(8..12)?.try_into().ok()?;
    Some(address.into())
}

/// The address in a `struct in6_pktinfo`: at its front.
fn local_of_v6(data: &[u8]) -> Option<IpAddr> {
    let address: [u8; 16] = data.get(..16)?.try_into().ok()?;
    Some(address.into())
}

/// The MTU of the link that leads to `peer`.
#[allow(unsafe_code)]
pub(super) fn mtu_towards(peer: SocketAddr) -> io::Result<usize> {
    let socket = RawSocket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
    // Nothing is sent by that: the kernel looks the route up.
    socket.connect(&peer.into())?;
    let (level, name) = match peer {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let (mut mtu, mut len) = (0 as libc::c_int, socklen(size_of::<libc::c_int>()));
    // SAFETY: the descriptor is open, and `mtu` is an int that is as long as `len` says.
    let result = unsafe {
        let value = (&raw mut mtu).cast();
        libc::getsockopt(socket.as_raw_fd(), level, name, value, &raw mut len)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    usize::try_from(mtu).map_err(|_| io::Error::other("an MTU below zero"))
}

/// Writes control messages one behind the other.
struct ControlWriter<'a> {
    control: &'a mut Control,
    len: usize,
}

impl<'a> ControlWriter<'a> {
    const fn new(control: &'a mut Control) -> Self {
        Self { control, len: 0 }
    }

    #[allow(unsafe_code)]
    fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        let payload = u32::try_from(size_of::<T>()).expect("a few bytes");
        // SAFETY: these only compute lengths.
        let (space, len) = unsafe { (libc::CMSG_SPACE(payload), libc::CMSG_LEN(payload)) };
        let room = &mut self.control.0[self.len..][..space as usize];
        let header = room.as_mut_ptr().cast::<libc::cmsghdr>();
        // SAFETY: there is room for header and value (the slice has just been cut); the buffer is
        // aligned to 8, and so is each message in it, since CMSG_SPACE is a multiple of 8.
        unsafe {
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = len as usize;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.len += space as usize;
    }

    fn push_source(&mut self, local: IpAddr) {
        match local {
            IpAddr::V4(v4) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.octets()),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            IpAddr::V6(v6) => {
                let info = libc::in6_pktinfo {
                    ipi6_ifindex: 0,
                    ipi6_addr: libc::in6_addr {
                        s6_addr: v6.octets(),
                    },
                };
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
        }
    }
}

/// Reads the control messages that a call brought.
#[allow(unsafe_code)]
fn for_each_control(header: &libc::msghdr, mut read: impl FnMut(libc::c_int, libc::c_int, &[u8])) {
    // SAFETY: the kernel has filled `header`'s control buffer, which still lives, up to the length in
    // it; the macros stay inside that length, and so does each message by what its own length says.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let payload = (*message).cmsg_len - libc::CMSG_LEN(0) as usize;
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(message), payload);
            read((*message).cmsg_level, (*message).cmsg_type, data);
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
}

fn socklen(len: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(len).expect("a few bytes")
}

#[allow(unsafe_code)]
fn register(fd: OwnedFd) -> io::Result<AsyncFd<Descriptor>> {
    let both = Interest::READABLE | Interest::WRITABLE;
    // SAFETY: `Descriptor` owns its descriptor, always names the same one and is never taken out of the
    // `AsyncFd`, so the descriptor outlives its registration.
    Ok(unsafe { AsyncFd::register_with_interest(Descriptor(fd), both) }?)
}

#[cfg(test)]
impl Socket {
    /// As where the kernel cannot cut batches.
    pub(super) const fn without_segmentation(&mut self) {
        self.has_segmentation = false;
    }
}
