//! The running kernel's TCP as the sender of the SACK scenario: a thread that serves a stream without end in a
//! network namespace of its own, and the receiver behind that namespace's device.

use std::fs;
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fullbore::driver::clock::Clock;
use fullbore::driver::thread_clock;
use fullbore_base::Rate;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::congestion::Allowed;
use super::netns::Namespace;
use super::process;
use super::sack_tun::{Ends, Loop, Measured};
use crate::link::{FAR, LinkOptions, NEAR};
use crate::sack::mode::Mode;
use crate::sack::path::Outcome;
use crate::sack::receiver::Receiver;
use crate::sack::sender::Counters;
use crate::sack::{Algorithm, Options, receiver_config};
use crate::units::Queue;

/// The kernel counts a segment with all that belongs to it, and keeps some unsent.
const SEND_BUFFER_WINDOWS: u64 = 4;

/// Bytes of a write.
const CHUNK_BYTES: usize = 256 * 1024;

/// How long an attack lasts at most, and how long the window may take to grow.
const TIME_MAX: Duration = Duration::from_secs(30);

/// One run.
///
/// # Errors
/// When the namespace, the device or the server cannot be made.
pub fn run(options: &Options, mode: Mode, window: u64, rtt: Duration) -> Result<Outcome, String> {
    let link = link_options(options, window);
    let allowed = link.congestion.as_deref().map(Allowed::new).transpose();
    let allowed = allowed.map_err(|e| e.to_string())?;
    let namespace = Namespace::new(NEAR, &link).map_err(|e| e.to_string())?;
    drop(allowed);
    let inside = thread::scope(|scope| {
        let attack = || attack(&namespace, options, mode, window, rtt);
        scope.spawn(attack).join()
    });
    let outcome = inside.map_err(|_| "the thread panicked".to_owned())?;
    outcome.map_err(|e| e.to_string())
}

/// Only what concerns the stack counts: there is no link.
fn link_options(options: &Options, window: u64) -> LinkOptions {
    let rate = Rate::from_bytes_per_sec(1);
    let congestion = match options.congestion {
        Algorithm::Reno => "reno",
        Algorithm::Cubic => "cubic",
        Algorithm::Bbr => "bbr",
    };
    LinkOptions {
        rtt: Duration::ZERO,
        up_rate: rate,
        down_rate: rate,
        queue: Queue::Bytes(0),
        loss: 0.0,
        reorder: 0.0,
        jitter: Duration::ZERO,
        mtu: 1500,
        seed: options.seed,
        congestion: Some(congestion.to_owned()),
        tcp_buffers: Some((window * SEND_BUFFER_WINDOWS).min(1 << 30)),
        far: Vec::new(),
        far_ports: Vec::new(),
        command: Vec::new(),
        init: Vec::new(),
    }
}

/// What the server thread tells while it runs.
#[derive(Default)]
struct Served {
    cpu_nanos: AtomicU64,
    is_over: AtomicBool,
}

fn attack(
    namespace: &Namespace,
    options: &Options,
    mode: Mode,
    window: u64,
    rtt: Duration,
) -> io::Result<Outcome> {
    let net = namespace.net.as_fd();
    move_into_link_name_space(net, Some(LinkNameSpaceType::Network))?;
    let config = receiver_config(options, mode, window, rtt);
    let listener = TcpListener::bind((NEAR, config.ports.1))?;
    let clock = Clock::start();
    let mut receiver = Receiver::new(clock.now(), config);
    let ends = Ends {
        sender: NEAR,
        receiver: FAR,
        rtt,
        bytes: window * options.attack_windows,
        time_max: TIME_MAX,
        growth_max: TIME_MAX,
    };
    let served = Served::default();
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &served));
        // Where it may not be first, it may be late: the figures are of processor time.
        let _ = process::run_first();
        let mut before = (Stack::default(), 0);
        let measured = Loop::new(&namespace.tun, &ends, &mut receiver, clock).go(&mut || {
            before = (
                Stack::read().unwrap_or_default(),
                served.cpu_nanos.load(Ordering::Relaxed),
            );
        });
        let after = Stack::read();
        let cpu_nanos = served.cpu_nanos.load(Ordering::Relaxed) - before.1;
        served.is_over.store(true, Ordering::Relaxed);
        // A server that nobody came to waits for a connection.
        let _ = std::net::TcpStream::connect(listener.local_addr()?)
            .and_then(|stream| stream.shutdown(Shutdown::Both));
        let received = receiver.received();
        let bytes_acked = received.acked - received.acked_before;
        let stack = after?.since(&before.0);
        Ok(outcome(measured?, cpu_nanos, &stack, bytes_acked))
    })
}

fn outcome(measured: Measured, server_nanos: u64, stack: &Stack, bytes_acked: u64) -> Outcome {
    Outcome {
        wall: measured.wall,
        cpu: measured.cpu + Duration::from_nanos(server_nanos),
        counters: Counters {
            bytes_acked,
            acks: measured.acks,
            retransmissions: stack.retransmissions,
            timeouts: stack.timeouts,
            ..Counters::default()
        },
        acks: measured.acks,
        is_given_up: measured.is_given_up,
        stretches: measured.stretches,
    }
}

/// Sends to the first who comes, until it is over.
fn serve(listener: &TcpListener, served: &Served) {
    let Ok((mut stream, _)) = listener.accept() else {
        return;
    };
    let chunk = vec![0; CHUNK_BYTES];
    while !served.is_over.load(Ordering::Relaxed) && stream.write_all(&chunk).is_ok() {
        let cpu = u64::try_from(thread_clock::exact().as_nanos()).unwrap_or(u64::MAX);
        served.cpu_nanos.store(cpu, Ordering::Relaxed);
    }
}

/// Counters of the namespace's TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stack {
    retransmissions: u64,
    timeouts: u64,
}

impl Stack {
    fn read() -> io::Result<Self> {
        let snmp = fs::read_to_string("/proc/thread-self/net/snmp")?;
        let netstat = fs::read_to_string("/proc/thread-self/net/netstat")?;
        Ok(Self {
            retransmissions: counter(&snmp, "Tcp:", "RetransSegs").unwrap_or(0),
            timeouts: counter(&netstat, "TcpExt:", "TCPTimeouts").unwrap_or(0),
        })
    }

    const fn since(&self, before: &Self) -> Self {
        Self {
            retransmissions: self.retransmissions - before.retransmissions,
            timeouts: self.timeouts - before.timeouts,
        }
    }
}

/// Of two lines that begin with `group`, the first has the names and the second the figures.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let column = lines
        .next()?
        .split_whitespace()
        .position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_stands_under_its_name() {
        let text = "Ip: A B\nIp: 1 2\nTcp: X RetransSegs Y\nTcp: 5 77 9\n";
        assert_eq!(counter(text, "Tcp:", "RetransSegs"), Some(77));
        assert_eq!(counter(text, "Tcp:", "A"), None);
        assert_eq!(counter(text, "Udp:", "A"), None);
    }
}
