//! A network namespace with one end of the link in it, and its settings.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::Ipv4Addr;
use std::thread;

use rustix::thread::UnshareFlags;

use super::LabError;
use super::tun;
use crate::link::LinkOptions;

/// One end. The namespace and the device in it go away with this and the last process inside.
#[derive(Debug)]
pub(super) struct Namespace {
    /// The namespace itself, for `setns`.
    pub(super) net: File,
    /// The link's device.
    pub(super) tun: File,
    /// `/proc/net/dev` as seen inside.
    devices: File,
    /// What the kernel was told about TCP, in words.
    pub(super) stack: String,
}

impl Namespace {
    /// Makes a namespace with the link's device at `address`.
    pub(super) fn new(address: Ipv4Addr, options: &LinkOptions) -> Result<Self, LabError> {
        let (mtu, settings) = (options.mtu, settings(options));
        // A thread of its own: what it unshares, it cannot take back.
        let made = thread::spawn(move || make(address, mtu, &settings)).join();
        made.unwrap_or_else(|_| {
            Err(LabError(
                "the thread that makes a namespace panicked".into(),
            ))
        })
    }

    /// Packets from the stack that the device dropped before they could be read.
    pub(super) fn dropped(&mut self) -> io::Result<u64> {
        let mut text = String::new();
        self.devices.seek(SeekFrom::Start(0))?;
        self.devices.read_to_string(&mut text)?;
        let is_missing = || io::Error::other("the device is not in /proc/net/dev");
        let line = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(tun::NAME)?.strip_prefix(':'))
            .ok_or_else(is_missing)?;
        // Eight columns received, then: bytes packets errs drop.
        let column = line.split_whitespace().nth(11).ok_or_else(is_missing)?;
        column.parse().map_err(io::Error::other)
    }
}

/// Settings of the stack, below `/proc/sys/net/ipv4/`.
fn settings(options: &LinkOptions) -> Vec<(&'static str, String)> {
    // Every connection begins as if it were the first: the kernel would else remember the path.
    let mut settings = vec![("tcp_no_metrics_save", "1".to_owned())];
    if let Some(name) = &options.congestion {
        settings.push(("tcp_congestion_control", name.clone()));
    }
    if let Some(bytes) = options.tcp_buffers {
        settings.push(("tcp_rmem", format!("4096 131072 {bytes}")));
        settings.push(("tcp_wmem", format!("4096 16384 {bytes}")));
    }
    settings
}

fn setting_file(name: &str) -> String {
    format!("/proc/sys/net/ipv4/{name}")
}

fn make(
    address: Ipv4Addr,
    mtu: u16,
    settings: &[(&'static str, String)],
) -> Result<Namespace, LabError> {
    enter_new()?;
    let tun = tun::create().map_err(|e| LabError::new("cannot make a TUN device", &e))?;
    // No neighbours to discover and no routers to ask: the link carries what its user sends. Where
    // there is no IPv6, there is nothing to turn off.
    let _ = fs::write(
        format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", tun::NAME),
        "1",
    );
    tun::configure(address, mtu)
        .map_err(|e| LabError::new("cannot configure the TUN device", &e))?;
    for (name, value) in settings {
        fs::write(setting_file(name), value).map_err(|e| {
            LabError::new(&format!("cannot set net.ipv4.{name} to \"{value}\""), &e)
        })?;
    }
    let open = |path| File::open(path).map_err(|e| LabError::new(path, &e));
    Ok(Namespace {
        net: open("/proc/thread-self/ns/net")?,
        tun,
        devices: open("/proc/thread-self/net/dev")?,
        stack: describe().map_err(|e| LabError::new("cannot read the stack's settings", &e))?,
    })
}

#[allow(unsafe_code)]
fn enter_new() -> Result<(), LabError> {
    // SAFETY: of what can be unshared, only the file table could invalidate something; the network
    // namespace is no such thing.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|e| {
        let what = "cannot make a network namespace (root may, and `unshare -Ur` where users may be root in their own)";
        LabError::new(what, &e)
    })
}

/// What the kernel now does, in words.
fn describe() -> io::Result<String> {
    let read = |name| fs::read_to_string(setting_file(name)).map(|text| text.trim().to_owned());
    let maximum = |text: String| {
        text.split_whitespace()
            .next_back()
            .unwrap_or("?")
            .to_owned()
    };
    Ok(format!(
        "{}, tcp_rmem to {}, tcp_wmem to {}",
        read("tcp_congestion_control")?,
        maximum(read("tcp_rmem")?),
        maximum(read("tcp_wmem")?),
    ))
}
