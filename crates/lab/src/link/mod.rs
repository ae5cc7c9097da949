//! An emulated link between two network namespaces, for any program.
//!
//! ```text
//!   namespace "near"                    this process                     namespace "far"
//!   CMD ... link0 (TUN) ──► queue ► rate ► loss ► delay ──► link0 (TUN) ... servers
//!           10.77.0.1   ◄── delay ◄ loss ◄ rate ◄ queue ◄──   10.77.0.2
//! ```
//!
//! The namespaces have no names and the processes in them live in a PID namespace of their own: when the
//! emulator ends, by whatever signal, the kernel ends them all and nothing stays behind.

mod packet;
mod report;
mod shaper;

use std::ffi::OsString;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use fullbore_base::Rate;

pub use packet::{Layout, Packet, VNET_LEN};
pub use report::{Lateness, Report, Way};
pub use shaper::{BURST, Counters, REORDER_DELAY, Shaper, ShaperConfig};

use crate::units::Queue;

/// The near end's address. Nothing outside the two namespaces sees it, so that it cannot collide.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The far end's address.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// IPv4's smallest that TCP works with comfortably, and what a TUN device takes.
pub const MTU_MIN: u16 = 576;

/// What to emulate, and what to run on it.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Round-trip time of the empty path; half of it each way.
    pub rtt: Duration,
    /// Near to far.
    pub up_rate: Rate,
    /// Far to near.
    pub down_rate: Rate,
    /// In front of each direction.
    pub queue: Queue,
    /// Share of segments lost in each direction.
    pub loss: f64,
    /// Share of segments that are overtaken.
    pub reorder: f64,
    /// At most so much is added to each delay.
    pub jitter: Duration,
    /// Of both devices.
    pub mtu: u16,
    /// Decides what is random.
    pub seed: u64,
    /// TCP's congestion control in both namespaces; the kernel's default if not given.
    pub congestion: Option<String>,
    /// Maximum of TCP's send and receive buffers in both namespaces; the kernel's if not given.
    pub tcp_buffers: Option<u64>,
    /// Shell commands that run in the far namespace, and are ended with the command.
    pub far: Vec<OsString>,
    /// Ports at the far end that must take connections before the command starts.
    pub far_ports: Vec<u16>,
    /// What to run in the near namespace: a program and its arguments.
    pub command: Vec<OsString>,
    /// How this program starts itself as the first process of the PID namespace: a program and its
    /// first arguments, behind which those of [`crate::driver::init::main`] follow.
    pub init: Vec<OsString>,
}

impl LinkOptions {
    /// How one direction behaves. The seeds of the two differ.
    #[must_use]
    pub fn shaper(&self, rate: Rate, direction: u64) -> ShaperConfig {
        ShaperConfig {
            rate,
            delay: self.rtt / 2,
            jitter: self.jitter,
            queue_bytes_max: self
                .queue
                .to_bytes(rate, self.rtt)
                .max(u64::from(self.mtu) * 2),
            loss: self.loss,
            reorder: self.reorder,
            seed: self.seed.wrapping_mul(2).wrapping_add(direction),
        }
    }
}

impl fmt::Display for LinkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rates are far below what a double holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let mbit = |rate: Rate| rate.bytes_per_sec() as f64 * 8.0 / 1e6;
        write!(f, "{} Mbit/s up, ", mbit(self.up_rate))?;
        write!(
            f,
            "{} Mbit/s down, RTT {:?}, ",
            mbit(self.down_rate),
            self.rtt
        )?;
        let queue = |rate| self.shaper(rate, 0).queue_bytes_max;
        write!(f, "queues {} and ", queue(self.up_rate))?;
        write!(
            f,
            "{} bytes, loss {} %, ",
            queue(self.down_rate),
            self.loss * 100.0
        )?;
        if !self.jitter.is_zero() {
            write!(f, "jitter {:?}, ", self.jitter)?;
        }
        if self.reorder > 0.0 {
            write!(f, "reordered {} %, ", self.reorder * 100.0)?;
        }
        write!(f, "MTU {}, seed {}", self.mtu, self.seed)
    }
}
