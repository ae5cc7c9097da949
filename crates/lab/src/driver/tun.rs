//! The link's TUN devices: made in the calling thread's network namespace, with an address, up.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use fullbore::driver::tun::device;

/// The device's name in either namespace.
pub(super) const NAME: &str = "link0";

/// Length of the prefix of the devices' network.
const PREFIX_LEN: u8 = 24;

/// Makes the device in this thread's namespace; it lives as long as what is returned, and reads and writes
/// of that do not block. Packets come with a `virtio_net_hdr` and as TSO left them.
pub(super) fn create() -> io::Result<File> {
    device::create(NAME, false).map(File::from)
}

/// Gives the device `address`, and brings it and the loopback device up.
pub(super) fn configure(address: Ipv4Addr, mtu: u16) -> io::Result<()> {
    device::configure(NAME, &[(IpAddr::V4(address), PREFIX_LEN)], mtu)?;
    device::bring_up("lo")
}
