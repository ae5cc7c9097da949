//! TUN devices: made in the calling thread's network namespace, with an address, up. Read first: the
//! kernel's `Documentation/networking/tuntap.rst`, netdevice(7).

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::net::{AddressFamily, SocketType, socket};

use super::checked;

/// The device's name in either namespace.
pub(super) const NAME: &str = "link0";

/// Packets that the kernel holds for a reader that is late; TUN's own 500 are 6 ms of short packets at
/// 1 Gbit/s.
const DEVICE_QUEUE_PACKETS: libc::c_int = 10_000;

/// Of netdevice(7); the same number on every architecture.
const SIOCSIFTXQLEN: libc::Ioctl = 0x8943;

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
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), number, std::ptr::from_mut(request)) }).map(|_| ())
}

/// Makes the device in this thread's namespace; it lives as long as what is returned, and reads and writes
/// of that do not block. Packets come with a `virtio_net_hdr` and as TSO left them.
pub(super) fn create() -> io::Result<File> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let mut request = request(NAME);
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
    let fd = OwnedFd::from(device);
    ioctl(&fd, libc::TUNSETIFF, &mut request)?;
    let offload = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // SAFETY: this call takes its argument by value.
    checked(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(offload),
        )
    })?;
    Ok(File::from(fd))
}

/// Gives the device `address` in a network of 256, and brings it and the loopback device up.
pub(super) fn configure(address: Ipv4Addr, mtu: u16) -> io::Result<()> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut link = request(NAME);
    link.ifr_ifru.ifru_mtu = mtu.into();
    ioctl(&control, libc::SIOCSIFMTU, &mut link)?;
    link.ifr_ifru.ifru_metric = DEVICE_QUEUE_PACKETS;
    // Root of a user namespace may not; what is dropped then, the report counts.
    let _ = ioctl(&control, SIOCSIFTXQLEN, &mut link);
    link.ifr_ifru.ifru_addr = ipv4(address);
    ioctl(&control, libc::SIOCSIFADDR, &mut link)?;
    link.ifr_ifru.ifru_netmask = ipv4(Ipv4Addr::new(255, 255, 255, 0));
    ioctl(&control, libc::SIOCSIFNETMASK, &mut link)?;
    let up = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(io::Error::other)?;
    for mut device in [request("lo"), link] {
        device.ifr_ifru.ifru_flags = up;
        ioctl(&control, libc::SIOCSIFFLAGS, &mut device)?;
    }
    Ok(())
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
