//! An endpoint of our own TCP on a TUN device, with an address of its own: it talks to any TCP that the
//! kernel can reach, and to the kernel's own. Needs root, or CAP_NET_ADMIN.
//!
//! `device` makes the device, `frame` reads what comes from it, `train` writes what goes to it. Both ways
//! a packet may hold 64 KiB of segments (TSO), and nobody computes checksums that never see a wire.

pub mod device;
mod frame;
mod train;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use self::frame::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, VNET_LEN, open};

use self::train::Train;
use super::net::{Received, Wire};
use super::stream::{Descriptor, register};
use crate::stack::Batch;

/// Packets read before what they lead to is sent.
const READS_MAX: usize = 16;

/// The longest IP packet, and what stands before it.
const READ_BYTES: usize = VNET_LEN + 0x1_0000;

/// Bytes of IPv4's header.
pub const IPV4_BYTES: u16 = 20;

/// Bytes of IPv6's.
pub const IPV6_BYTES: u16 = 40;

/// A TUN device as a wire: what comes to `addresses` is ours.
#[derive(Debug)]
pub struct Tun {
    device: AsyncFd<Descriptor>,
    addresses: Vec<IpAddr>,
    buf: Vec<u8>,
    /// Of the next IPv4 packet.
    next_ip_id: u16,
}

impl Tun {
    /// Takes over a device made by [`device::create`].
    ///
    /// # Errors
    /// When the descriptor cannot be registered.
    pub fn new(device: OwnedFd, addresses: Vec<IpAddr>) -> io::Result<Self> {
        let both = Interest::READABLE | Interest::WRITABLE;
        Ok(Self {
            device: register(device, both)?,
            addresses,
            buf: vec![0; READ_BYTES],
            next_ip_id: 1,
        })
    }
}

/// Reads one packet, if there is one.
fn read(device: &Descriptor, buf: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::read(device, &mut *buf) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Whom it is for.
const fn local(received: &Received<'_>) -> IpAddr {
    match received {
        Received::Segment(arrival) => arrival.local,
        Received::TooBig { tuple, .. } => tuple.local.0,
    }
}

impl Wire for Tun {
    fn headroom(&self) -> usize {
        0
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Poll<io::Result<()>> {
        let mut ready = ready!(self.device.poll_read_ready(cx))?;
        for _ in 0..READS_MAX {
            match read(ready.get_inner(), &mut self.buf) {
                Ok(len) => {
                    let received = frame::open(&self.buf[..len]);
                    let ours = received.filter(|r| self.addresses.contains(&local(r)));
                    ours.into_iter().for_each(&mut *sink);
                }
                Err(Errno::AGAIN) => {
                    ready.clear_ready();
                    break;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, batch: &mut Batch) -> Poll<io::Result<()>> {
        while !batch.is_empty() {
            let train = Train::new(batch, self.next_ip_id);
            let count = train.segment_count();
            match train.write(self.device.get_ref(), batch) {
                // What the device does not take for a reason of its own is lost, as on any wire.
                Ok(_) | Err(Errno::INVAL | Errno::NOBUFS) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    ready!(self.device.poll_write_ready(cx))?.clear_ready();
                    continue;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
            let count16 = u16::try_from(count).expect("a train is at most 64 KiB");
            self.next_ip_id = self.next_ip_id.wrapping_add(count16);
            batch.take(count);
        }
        Poll::Ready(Ok(()))
    }
}
