//! `fullbore udp-server`: what a far end runs for `cp --transport udp`.

use std::ops::RangeInclusive;

use clap::{ArgMatches, Command};

use super::copy::{long_flag, long_option};

/// What was written on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UdpServerValues {
    pub(crate) ports: RangeInclusive<u16>,
    pub(crate) read_only: bool,
}

/// The definition.
pub(super) fn command() -> Command {
    Command::new("udp-server")
        .about("Runs at the far end of `cp --transport udp`, where sshd starts it")
        .disable_version_flag(true)
        .arg(
            long_option(
                "port",
                "PORT[-PORT]",
                "The UDP port, or ports to choose from, that a firewall lets through [default: any]",
            )
            .value_parser(ports),
        )
        .arg(long_flag(
            "read-only",
            "Refuse everything that changes something",
        ))
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse().map_err(|_| format!("{text}: no port"));
    let (first, last): (u16, u16) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("{text}: the first port is the smaller one"));
    }
    Ok(first..=last)
}

impl UdpServerValues {
    /// Takes the values out.
    pub(super) fn from_matches(matches: &ArgMatches) -> Self {
        let ports = matches.get_one("port").cloned();
        Self {
            ports: ports.unwrap_or(0..=0),
            read_only: matches.get_flag("read-only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_a_range() {
        assert_eq!(ports("7"), Ok(7..=7));
        assert_eq!(ports("60000-60010"), Ok(60000..=60010));
        for text in ["", "x", "1-", "2-1", "65536", "-3"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }
}
