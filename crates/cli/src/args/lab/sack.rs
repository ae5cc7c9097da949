//! `fullbore lab sack`.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use fullbore_lab::sack::Algorithm;
use fullbore_lab::sack::mode::{MODES, Mode};
use fullbore_lab::sack::receiver::REQUEST_BYTES_MAX;
use fullbore_lab::sack::{Options, SENDERS, Target, Who};
use fullbore_lab::units;

use super::scenarios::seed;

const EXAMPLES: &str = "\
Senders: list (Linux 2.6.22), cached (2.6.25), ours, and kernel: the running one's TCP, over a TUN device, for
which it takes root. Receivers: honest, no-sack, dupack (the floor of those that follow), dsack-storm, find-first,
cover-all, random, rack, renege, split, garbage. Each run has a window, a round trip and a seed.

With --target the receiver connects to a server instead, from 10.78.0.2 behind the device fullbore-sack0, on which the
kernel is 10.78.0.1. A server of this machine is reached at any address that it listens on, 127.0.0.1 too. For one of
another machine, forward and translate first, as root:
  sysctl net.ipv4.ip_forward=1
  iptables -t nat -A POSTROUTING -s 10.78.0.2 -j MASQUERADE
Point it at your own servers only: it makes them work. The stream has to be long enough for windows to grow.

Examples:
  fullbore lab sack
  fullbore lab sack --senders ours,kernel --windows 32m,128m --receivers honest,dupack,rack
  fullbore lab sack --senders ours --windows 4m,256m --plain --congestion cubic
  fullbore lab sack --target 127.0.0.1:80 --request 'GET /big HTTP/1.0\\r\\n\\r\\n' --receivers honest,rack";

/// What a quick run takes.
const QUICK_WINDOW: u64 = 2 << 20;

/// Windows under attack, of a quick run and of another.
const ATTACK_WINDOWS: [u64; 2] = [2, 8];

/// The largest window: what RFC 7323 can tell, less than which 1 GiB is.
const WINDOW_MAX: u64 = 1 << 29;

/// The definition, without where the report goes.
pub(super) fn command() -> Command {
    let list = |name, value, default, help| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .value_delimiter(',')
            .default_value(default)
            .help(help)
    };
    Command::new("sack")
        .about("Shows what an acknowledgement costs a TCP sender whose receiver lies")
        .after_help(EXAMPLES)
        .args([
            list("senders", "NAME,...", "list,cached,ours", "Whose TCP sends"),
            list("receivers", "NAME,...", "all", "How it is acknowledged"),
            list("windows", "BYTES,...", "4m,32m", "Bytes of the window"),
            list("rtts", "TIME,...", "100ms", "Round-trip times"),
            Arg::new("congestion")
                .long("congestion")
                .value_name("NAME")
                .value_parser(["cubic", "bbr", "reno"])
                .default_value("cubic")
                .help("The senders' congestion control"),
            Arg::new("hold")
                .long("hold")
                .value_name("PERCENT")
                .value_parser(value_parser!(u32).range(1..=1000))
                .default_value("100")
                .help("Of the round trip: how long the cumulative acknowledgement is held"),
            Arg::new("plain")
                .long("plain")
                .action(ArgAction::SetTrue)
                .help("Claims of loss are never taken back (no timestamps, no D-SACK for what comes twice)"),
            Arg::new("quick")
                .long("quick")
                .action(ArgAction::SetTrue)
                .help("Small windows, for a moment: shows that it works"),
            Arg::new("target")
                .long("target")
                .value_name("ADDR:PORT")
                .value_parser(value_parser!(SocketAddrV4))
                .conflicts_with("senders")
                .help("A TCP server that sends, instead of the senders"),
            Arg::new("request")
                .long("request")
                .value_name("TEXT")
                .requires("target")
                .help("What makes it send; \\r and \\n are understood"),
            Arg::new("json")
                .long("json")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Write the figures as JSON"),
            seed(),
        ])
}

/// What was asked; the defaults where the scenario is one of several.
pub(super) fn options(matches: &ArgMatches, seed: u64) -> Result<Options, String> {
    let words = |name: &str, default: &str| -> Vec<String> {
        let given = matches.try_get_many::<String>(name).ok().flatten();
        given.map_or_else(
            || default.split(',').map(str::to_owned).collect(),
            |words| words.cloned().collect(),
        )
    };
    let flag = |name| matches!(matches.try_get_one::<bool>(name), Ok(Some(true)));
    let is_quick = flag("quick");
    let senders = words("senders", "list,cached,ours");
    let receivers = words("receivers", "all");
    let windows: Vec<u64> = if is_quick {
        vec![QUICK_WINDOW]
    } else {
        let windows = words("windows", "4m,32m");
        windows
            .iter()
            .map(|text| window(text))
            .collect::<Result<_, _>>()?
    };
    let target = target(matches)?;
    let rtts = words("rtts", "100ms");
    let congestion = matches.try_get_one::<String>("congestion").ok().flatten();
    Ok(Options {
        senders: if target.is_some() {
            vec![Who::Target]
        } else if senders == ["all"] {
            SENDERS.to_vec()
        } else {
            senders
                .iter()
                .map(|name| Who::parse(name))
                .collect::<Result<_, _>>()?
        },
        modes: if receivers == ["all"] {
            MODES.to_vec()
        } else {
            receivers
                .iter()
                .map(|name| Mode::parse(name))
                .collect::<Result<_, _>>()?
        },
        windows,
        rtts: rtts
            .iter()
            .map(|text| rtt(text))
            .collect::<Result<_, _>>()?,
        attack_windows: ATTACK_WINDOWS[usize::from(!is_quick)],
        congestion: match congestion.map(String::as_str) {
            Some("bbr") => Algorithm::Bbr,
            Some("reno") => Algorithm::Reno,
            Some(_) | None => Algorithm::Cubic,
        },
        hold_percent: matches
            .try_get_one("hold")
            .ok()
            .flatten()
            .copied()
            .unwrap_or(100),
        is_kept_open: !flag("plain"),
        seed,
        target,
    })
}

fn target(matches: &ArgMatches) -> Result<Option<Target>, String> {
    let Some(&address) = matches.try_get_one::<SocketAddrV4>("target").ok().flatten() else {
        return Ok(None);
    };
    let request = matches.get_one::<String>("request");
    let request = request.map_or_else(Vec::new, |text| {
        text.replace("\\r", "\r").replace("\\n", "\n").into_bytes()
    });
    if request.len() > REQUEST_BYTES_MAX {
        return Err(format!("--request has at most {REQUEST_BYTES_MAX} bytes"));
    }
    Ok(Some(Target { address, request }))
}

fn window(text: &str) -> Result<u64, String> {
    let bytes = units::bytes(text)?;
    if (1 << 18..=WINDOW_MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("\"{text}\": a window is 256k to 512m"))
    }
}

fn rtt(text: &str) -> Result<Duration, String> {
    let time = units::time(text)?;
    if (Duration::from_millis(1)..=Duration::from_secs(10)).contains(&time) {
        Ok(time)
    } else {
        Err(format!("\"{text}\": a round trip is 1ms to 10s"))
    }
}
