//! TUN devices: made in the calling thread's network namespace, given addresses, brought up. Read first:
//! the kernel's `Documentation/networking/tuntap.rst`, netdevice(7).

#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::net::{AddressFamily, SocketType, socket};

/// Packets that the kernel holds for a reader that is late; TUN's own 500 are 6 ms of short packets at
/// 1 Gbit/s.
const QUEUE_PACKETS: libc::c_int = 10_000;

/// Of netdevice(7); the same number on every architecture.
const SIOCSIFTXQLEN: libc::Ioctl = 0x8943;

/// `struct in6_ifreq` of `linux/ipv6.h`.
#[repr(C)]
struct In6Request {
    address: libc::in6_addr,
    prefix_len: u32,
    index: libc::c_int,
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: all zeroes is a valid value of this plain structure of the kernel's interface.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One less: the last stays zero and ends the name.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request
}

fn ioctl(fd: &OwnedFd, number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the calls made here take a pointer to an `ifreq`, which lives through the call.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), number, std::ptr::from_mut(request)) })
}

/// Makes the device `name` in this thread's namespace; it lives as long as what is returned, and reads and
/// writes of that do not block. Packets come with a `virtio_net_hdr`, as TSO left them; with
/// `is_ecn_whole` also those that are marked (else the kernel cuts them up first).
///
/// # Errors
/// When there is no TUN driver, or this process may not use it.
pub fn create(name: &str, is_ecn_whole: bool) -> io::Result<OwnedFd> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let mut request = request(name);
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
    let fd = OwnedFd::from(device);
    ioctl(&fd, libc::TUNSETIFF, &mut request)?;
    let ecn = if is_ecn_whole { libc::TUN_F_TSO_ECN } else { 0 };
    let offload = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | ecn;
    // SAFETY: this call takes its argument by value.
    checked(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(offload),
        )
    })?;
    Ok(fd)
}

/// Gives the device `name` the kernel's own addresses in its networks, each with the length of its prefix,
/// and its MTU, and brings it up.
///
/// # Errors
/// The kernel's.
pub fn configure(name: &str, addresses: &[(IpAddr, u8)], mtu: u16) -> io::Result<()> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut link = request(name);
    link.ifr_ifru.ifru_mtu = mtu.into();
    ioctl(&control, libc::SIOCSIFMTU, &mut link)?;
    link.ifr_ifru.ifru_metric = QUEUE_PACKETS;
    // Root of a user namespace may not; the default is only shorter.
    let _ = ioctl(&control, SIOCSIFTXQLEN, &mut link);
    for &(address, prefix_len) in addresses {
        match address {
            IpAddr::V4(v4) => add_v4(&control, name, v4, prefix_len)?,
            IpAddr::V6(v6) => add_v6(name, v6, prefix_len)?,
        }
    }
    bring_up(name)
}

/// Brings the device `name` up.
///
/// # Errors
/// The kernel's.
pub fn bring_up(name: &str) -> io::Result<()> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut link = request(name);
    ioctl(&control, libc::SIOCGIFFLAGS, &mut link)?;
    let up = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    // SAFETY: the call above filled this member in. What else is set stays: without neighbours to ask
    // (NOARP) an IPv6 address can be used at once.
    unsafe { link.ifr_ifru.ifru_flags |= up };
    ioctl(&control, libc::SIOCSIFFLAGS, &mut link)
}

fn add_v4(control: &OwnedFd, name: &str, address: Ipv4Addr, prefix_len: u8) -> io::Result<()> {
    let mut link = request(name);
    link.ifr_ifru.ifru_addr = ipv4(address);
    ioctl(control, libc::SIOCSIFADDR, &mut link)?;
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len.min(32)));
    link.ifr_ifru.ifru_netmask = ipv4(Ipv4Addr::from_bits(mask.unwrap_or(0)));
    ioctl(control, libc::SIOCSIFNETMASK, &mut link)
}

fn add_v6(name: &str, address: Ipv6Addr, prefix_len: u8) -> io::Result<()> {
    let control = socket(AddressFamily::INET6, SocketType::DGRAM, None)?;
    let mut link = request(name);
    ioctl(&control, libc::SIOCGIFINDEX, &mut link)?;
    // SAFETY: the call above filled this member in.
    let index = unsafe { link.ifr_ifru.ifru_ifindex };
    let mut request = In6Request {
        address: libc::in6_addr {
            s6_addr: address.octets(),
        },
        prefix_len: prefix_len.into(),
        index,
    };
    // SAFETY: on a socket of this family the call takes a pointer to an `in6_ifreq`, which lives through
    // it.
    checked(unsafe {
        libc::ioctl(
            control.as_raw_fd(),
            libc::SIOCSIFADDR,
            std::ptr::from_mut(&mut request),
        )
    })
}

fn ipv4(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    // Two bytes of port stand before the address.
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    libc::sockaddr {
        sa_family: libc::sa_family_t::try_from(libc::AF_INET).expect("2"),
        sa_data: data,
    }
}
