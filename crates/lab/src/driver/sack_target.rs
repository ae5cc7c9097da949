//! The receiver of the SACK scenario pointed at a TCP server: behind a TUN device of this machine, whose kernel sends
//! what comes from it on its way.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fullbore::driver::clock::Clock;
use fullbore::driver::tun::device;
use fullbore_tcp::segment::Pseudo;

use super::sack_tun::{Ends, Loop};
use crate::sack::mode::Mode;
use crate::sack::path::Outcome;
use crate::sack::receiver::Receiver;
use crate::sack::sender::Counters;
use crate::sack::{Options, Target, receiver_config};

/// The device, while a run lasts.
const DEVICE: &str = "fullbore-sack0";

/// The kernel's address on it.
pub const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

/// The receiver's.
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

const PREFIX_LEN: u8 = 24;
const MTU: u16 = 1500;

/// How long an attack lasts at most, and how long the window may take to grow.
const TIME_MAX: Duration = Duration::from_secs(60);

/// One run against `target`.
///
/// # Errors
/// When the device cannot be made, or nobody answers.
pub fn run(
    options: &Options,
    target: &Target,
    mode: Mode,
    window: u64,
    rtt: Duration,
) -> Result<Outcome, String> {
    let device = make(*target.address.ip())
        .map_err(|e| format!("cannot make the TUN device {DEVICE} (root may): {e}"))?;
    let server = *target.address.ip();
    let config = receiver_config(options, mode, window, rtt);
    // A port of its own for each way to acknowledge: the last connection may not be forgotten yet.
    let config = crate::sack::receiver::Config {
        ports: (config.ports.0 + mode as u16, target.address.port()),
        pseudo: Pseudo::between(server.into(), RECEIVER.into()),
        request: target.request.clone(),
        ..config
    };
    let clock = Clock::start();
    let mut receiver = Receiver::new(clock.now(), config);
    let ends = Ends {
        sender: server,
        receiver: RECEIVER,
        rtt,
        bytes: window * options.attack_windows,
        time_max: TIME_MAX,
        growth_max: TIME_MAX,
    };
    let measured = Loop::new(&device, &ends, &mut receiver, clock).go(&mut || {});
    let measured = measured.map_err(|e| e.to_string())?;
    let received = receiver.received();
    if received.acked == 0 {
        return Err(format!("{} sent nothing", target.address));
    }
    if received.attacked_at.is_none() {
        return Err(format!(
            "{} sent {} bytes, too few for a window of {window}",
            target.address, received.acked
        ));
    }
    Ok(Outcome {
        wall: measured.wall,
        cpu: measured.cpu,
        counters: Counters {
            bytes_acked: received.acked - received.acked_before,
            acks: measured.acks,
            retransmissions: received.duplicates,
            ..Counters::default()
        },
        acks: measured.acks,
        is_given_up: measured.is_given_up,
        stretches: measured.stretches,
    })
}

/// The device, up. What comes from it may go to servers that listen on the loopback address if `server` is one.
fn make(server: Ipv4Addr) -> io::Result<File> {
    let file = device::create(DEVICE, false).map(File::from)?;
    device::configure(DEVICE, &[(IpAddr::V4(KERNEL), PREFIX_LEN)], MTU)?;
    if server.is_loopback() {
        let setting = format!("/proc/sys/net/ipv4/conf/{DEVICE}/route_localnet");
        fs::write(setting, "1")?;
    }
    Ok(file)
}
