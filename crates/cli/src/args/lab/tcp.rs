//! `fullbore lab tcp`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use fullbore_lab::endpoint::{EndpointOptions, Job, NETWORK_V4, NETWORK_V6, Role, algorithm};
use fullbore_lab::units;

/// No link that we know carries less.
const MTU_MIN: u16 = 576;

/// RFC 8200 section 5: there is no IPv6 on links that carry less.
const MTU_MIN_V6: u16 = 1280;

const EXAMPLES: &str = "\
The endpoint has its own addresses, 10.79.0.2 and fd79::2, on a TUN device where the kernel has 10.79.0.1 and
fd79::1; the kernel's own TCP, and with forwarding any other, reaches it there. The kernel reaches a program that
listens on this machine by the kernel's address. When a connection is over, one line of JSON with its counters
goes to the standard error. Needs root or CAP_NET_ADMIN.

Examples:
  fullbore lab tcp --listen 7000                   # then: nc 10.79.0.2 7000
  fullbore lab tcp --listen 80 --http big.iso      # then: curl -O http://10.79.0.2/
  fullbore lab tcp --listen 22 --forward 127.0.0.1:22   # then: fullbore cp big.iso 10.79.0.2:
  fullbore lab tcp --connect 10.79.0.1:5201 --congestion cubic < request
  fullbore lab tcp --listen 7000 --send 1g --hash --count 1";

/// Flags without a value: name, help.
const SWITCHES: &[(&str, &str)] = &[
    ("hash", "SHA-256 of what is sent and received, in the JSON"),
    ("no-sack", "Offer no selective acknowledgements"),
    ("no-timestamps", "Offer no timestamps"),
    ("no-window-scaling", "Offer windows of 64 KiB at most"),
    ("ecn", "Offer explicit congestion notification"),
];

/// Flags with one value: name, the value's name, help, default.
const FLAGS: &[(&str, &str, &str, Option<&str>)] = &[
    ("device", "NAME", "The TUN device", Some("fullbore0")),
    (
        "here",
        "ADDR/LEN",
        "The kernel's address on the device, instead of 10.79.0.1/24 and fd79::1/64",
        None,
    ),
    (
        "address",
        "ADDR",
        "Ours, instead of 10.79.0.2 and fd79::2",
        None,
    ),
    ("mtu", "BYTES", "Of the device", Some("1500")),
    ("congestion", "NAME", "bbr, cubic or reno", Some("bbr")),
    (
        "buffers",
        "BYTES",
        "What either buffer of a connection may grow to: 64m",
        None,
    ),
    ("count", "N", "End after this many connections", None),
];

pub(super) fn command() -> Command {
    let flags = FLAGS.iter().map(|&(name, value, help, default)| {
        let arg = Arg::new(name).long(name).value_name(value).help(help);
        match default {
            Some(default) => arg.default_value(default),
            None => arg,
        }
    });
    let switches = SWITCHES.iter().map(|&(name, help)| {
        let arg = Arg::new(name).long(name).help(help);
        arg.action(ArgAction::SetTrue)
    });
    let listen = Arg::new("listen")
        .long("listen")
        .value_name("PORT")
        .value_parser(value_parser!(u16).range(1..))
        .help("Wait for connections");
    let connect = Arg::new("connect")
        .long("connect")
        .value_name("ADDR:PORT")
        .value_parser(value_parser!(SocketAddr))
        .conflicts_with("count")
        .help("Make one");
    let echo = Arg::new("echo")
        .long("echo")
        .action(ArgAction::SetTrue)
        .help("Send back what comes");
    let send = Arg::new("send")
        .long("send")
        .value_name("BYTES")
        .help("Send so much of a pattern (1g, or 0), and count what comes");
    let http = Arg::new("http")
        .long("http")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Answer every request with this file");
    let forward = Arg::new("forward")
        .long("forward")
        .value_name("ADDR:PORT")
        .value_parser(value_parser!(SocketAddr))
        .help("Join each connection with one of the kernel's TCP to there");
    Command::new("tcp")
        .about("Runs an endpoint of our own TCP on a TUN device, like nc")
        .long_about(
            "Runs an endpoint of our own TCP on a TUN device. Like nc it joins a connection with standard \
             input and output, unless told otherwise.",
        )
        .after_help(EXAMPLES)
        .disable_version_flag(true)
        .args([listen, connect, echo, send, http, forward])
        .args(flags)
        .args(switches)
        .group(ArgGroup::new("role").args(["listen", "connect"]).required(true))
        .group(ArgGroup::new("job").args(["echo", "send", "http", "forward"]))
}

/// Reads what was written.
///
/// # Errors
/// What is wrong with it.
pub(super) fn options(matches: &ArgMatches) -> Result<EndpointOptions, String> {
    let text = |name| matches.get_one::<String>(name).map(String::as_str);
    let needed = |name| text(name).ok_or_else(|| format!("--{name} is missing"));
    let count = text("count").map(|n| n.parse().map_err(|e| format!("--count: {e}")));
    let role = match (matches.get_one("listen"), matches.get_one("connect")) {
        (Some(&port), _) => Role::Listen(port, count.transpose()?),
        (None, Some(&remote)) => Role::Connect(remote),
        (None, None) => return Err("--listen or --connect is missing".into()),
    };
    let job = job(matches)?;
    let name = needed("congestion")?;
    let congestion =
        algorithm(name).ok_or_else(|| format!("--congestion {name}: bbr, cubic or reno"))?;
    let mtu = mtu(needed("mtu")?)?;
    let (here, addresses) = network(text("here"), text("address"), mtu)?;
    Ok(EndpointOptions {
        device: needed("device")?.to_owned(),
        here,
        addresses,
        mtu,
        role,
        job,
        is_hashed: matches.get_flag("hash"),
        congestion,
        is_sack: !matches.get_flag("no-sack"),
        is_timestamps: !matches.get_flag("no-timestamps"),
        is_window_scaling: !matches.get_flag("no-window-scaling"),
        is_ecn: matches.get_flag("ecn"),
        buffers: text("buffers").map(units::bytes).transpose()?,
    })
}

fn job(matches: &ArgMatches) -> Result<Job, String> {
    if let Some(bytes) = matches.get_one::<String>("send") {
        return units::bytes(bytes).map(Job::Send);
    }
    let forward = matches.get_one("forward").copied().map(Job::Forward);
    let http = matches.get_one("http").cloned().map(Job::Http);
    let echo = matches.get_flag("echo").then_some(Job::Echo);
    Ok(forward.or(http).or(echo).unwrap_or(Job::Pipe))
}

type Network = (Vec<(IpAddr, u8)>, Vec<IpAddr>);

fn network(here: Option<&str>, address: Option<&str>, mtu: u16) -> Result<Network, String> {
    match (here, address) {
        (None, None) => {
            let ((here4, ours4, len4), (here6, ours6, len6)) = (NETWORK_V4, NETWORK_V6);
            let mut network = (vec![(here4.into(), len4)], vec![ours4.into()]);
            if mtu >= MTU_MIN_V6 {
                network.0.push((here6.into(), len6));
                network.1.push(ours6.into());
            }
            Ok(network)
        }
        (Some(here), Some(address)) => {
            let address: IpAddr = address.parse().map_err(|e| format!("--address: {e}"))?;
            let (ip, len) = here.split_once('/').ok_or("--here is an address/length")?;
            let ip: IpAddr = ip.parse().map_err(|e| format!("--here: {e}"))?;
            let len = len.parse().map_err(|e| format!("--here: {e}"))?;
            let len_max = if ip.is_ipv4() { 32 } else { 128 };
            if ip.is_ipv4() != address.is_ipv4() || len > len_max {
                return Err("--here and --address are not of one network".into());
            }
            Ok((vec![(ip, len)], vec![address]))
        }
        (Some(_), None) | (None, Some(_)) => {
            Err("--here and --address are only given together".into())
        }
    }
}

fn mtu(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(mtu) if mtu >= MTU_MIN => Ok(mtu),
        Ok(_) | Err(_) => Err(format!("--mtu is {MTU_MIN} to {}", u16::MAX)),
    }
}
