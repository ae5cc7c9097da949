//! What the flags and the machine's sysctls say: how the engine is to behave.
//!
//! Flags are `NAME=VALUE`, separated by commas. The README has the list.

use core::net::IpAddr;
use core::time::Duration;

use fullbore_tcp::congestion::{self, Algorithm};
use fullbore_tcp::connection::Config;

use crate::ip::{V4_HEADER_BYTES, V6_HEADER_BYTES};
use fullbore_tcp::segment::HEADER_BYTES;

/// The largest shift of windows (RFC 7323 section 2.3).
const WINDOW_SCALE_MAX: u8 = 14;
/// Packets that packetdrill and Linux agree on by default.
const MTU_DEFAULT: u16 = 1500;
/// RFC 791: what every link takes.
const MTU_MIN: u16 = 576;

/// How every connection behaves unless its socket says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a packet.
    pub mtu: u16,
    /// By how many bits our windows are shifted; none: windows are not scaled.
    pub window_scale: Option<u8>,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Whether segments leave at a rate; none: as the congestion control asks for.
    pub is_paced: Option<bool>,
    /// Offer SACK.
    pub is_sack: bool,
    /// Offer timestamps.
    pub is_timestamps: bool,
    /// Ask for congestion notification when we open.
    pub is_ecn_asked: bool,
    /// Agree to it when the peer asks.
    pub is_ecn_taken: bool,
    /// A pause makes the window start anew.
    pub is_restarted_after_idle: bool,
    /// A silent tail is probed for.
    pub is_tail_probed: bool,
    /// Join segments that leave at one instant into one packet, as hardware offload does.
    pub is_joined: bool,
    /// Bytes that the receive buffer starts with.
    pub receive_buffer: u64,
    /// Bytes that may wait to be sent.
    pub send_buffer: u64,
    /// How long an acknowledgement may be held back.
    pub delayed_ack: Duration,
    /// How long the side that closed first answers late segments.
    pub time_wait: Duration,
    /// How long a connection that nobody holds waits for the peer's FIN.
    pub fin_timeout: Duration,
    /// Our address in connections that we open.
    pub local_v4: IpAddr,
    /// The same of the other family.
    pub local_v6: IpAddr,
    /// Decides what is random.
    pub seed: u64,
    /// Whether the machine's sysctls count.
    pub is_sysctl_read: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mtu: MTU_DEFAULT,
            window_scale: Some(8),
            algorithm: Algorithm::Cubic,
            is_paced: None,
            is_sack: true,
            is_timestamps: true,
            is_ecn_asked: false,
            is_ecn_taken: true,
            is_restarted_after_idle: true,
            is_tail_probed: true,
            is_joined: true,
            receive_buffer: 128 * 1024,
            send_buffer: 4 * 1024 * 1024,
            delayed_ack: Duration::from_millis(40),
            time_wait: Duration::from_secs(60),
            fin_timeout: Duration::from_secs(60),
            local_v4: [192, 168, 0, 1].into(),
            local_v6: [0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1].into(),
            seed: 1,
            is_sysctl_read: true,
        }
    }
}

/// A flag that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFlag(pub String);

fn number<T: core::str::FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

fn switch(text: &str) -> Option<bool> {
    match text.trim() {
        "0" | "off" | "no" => Some(false),
        "1" | "on" | "yes" => Some(true),
        _ => None,
    }
}

fn algorithm(name: &str) -> Option<Algorithm> {
    match name.trim() {
        "reno" => Some(Algorithm::Reno),
        "cubic" => Some(Algorithm::Cubic),
        "bbr" => Some(Algorithm::Bbr),
        _ => None,
    }
}

fn millis(text: &str) -> Option<Duration> {
    number(text).map(Duration::from_millis)
}

/// Sets `to` when there is a `value`; says whether there was.
fn set<T>(to: &mut T, value: Option<T>) -> bool {
    let is_there = value.is_some();
    if let Some(value) = value {
        *to = value;
    }
    is_there
}

impl Settings {
    /// Takes the flags in `text`.
    ///
    /// # Errors
    /// The first that is not known, or has a value that it cannot have.
    pub fn apply_flags(&mut self, text: &str) -> Result<(), BadFlag> {
        for flag in text.split(',').map(str::trim).filter(|f| !f.is_empty()) {
            let (name, value) = flag.split_once('=').unwrap_or((flag, "1"));
            if !self.apply_flag(name.trim(), value) {
                return Err(BadFlag(flag.to_owned()));
            }
        }
        Ok(())
    }

    fn apply_flag(&mut self, name: &str, value: &str) -> bool {
        match name {
            "mtu" => set(&mut self.mtu, number(value).filter(|&n| n >= MTU_MIN)),
            "wscale" if switch(value) == Some(false) && value.trim() != "0" => {
                self.window_scale = None;
                true
            }
            "wscale" => {
                let scale = number(value).filter(|&n| n <= WINDOW_SCALE_MAX);
                set(&mut self.window_scale, scale.map(Some))
            }
            "cc" => set(&mut self.algorithm, algorithm(value)),
            "pacing" => set(&mut self.is_paced, switch(value).map(Some)),
            "sack" => set(&mut self.is_sack, switch(value)),
            "ts" => set(&mut self.is_timestamps, switch(value)),
            "ecn" => self.apply_ecn(value),
            "idle_restart" => set(&mut self.is_restarted_after_idle, switch(value)),
            "tlp" => set(&mut self.is_tail_probed, switch(value)),
            "gso" => set(&mut self.is_joined, switch(value)),
            "rcvbuf" => set(&mut self.receive_buffer, number(value)),
            "sndbuf" => set(&mut self.send_buffer, number(value)),
            "delack_ms" => set(&mut self.delayed_ack, millis(value)),
            "time_wait_ms" => set(&mut self.time_wait, millis(value)),
            "fin_timeout_ms" => set(&mut self.fin_timeout, millis(value)),
            "local" => {
                let address = number(value).filter(IpAddr::is_ipv4);
                set(&mut self.local_v4, address)
            }
            "local6" => {
                let address = number(value).filter(IpAddr::is_ipv6);
                set(&mut self.local_v6, address)
            }
            "seed" => set(&mut self.seed, number(value)),
            "sysctl" => set(&mut self.is_sysctl_read, switch(value)),
            _ => false,
        }
    }

    /// As Linux counts: 0 never, 1 always, 2 when the peer asks.
    fn apply_ecn(&mut self, value: &str) -> bool {
        let (asked, taken) = match value.trim() {
            "0" => (false, false),
            "1" => (true, true),
            "2" => (false, true),
            _ => return false,
        };
        (self.is_ecn_asked, self.is_ecn_taken) = (asked, taken);
        true
    }

    /// Names under `net.ipv4` that [`Settings::apply_sysctl`] knows.
    pub const SYSCTLS: &[&str] = &[
        "tcp_congestion_control",
        "tcp_early_retrans",
        "tcp_ecn",
        "tcp_fin_timeout",
        "tcp_rmem",
        "tcp_sack",
        "tcp_slow_start_after_idle",
        "tcp_timestamps",
        "tcp_window_scaling",
        "tcp_wmem",
    ];

    /// Takes one sysctl; what we have no such thing for is left as it is.
    pub fn apply_sysctl(&mut self, name: &str, value: &str) {
        let word = |n: usize| value.split_whitespace().nth(n).unwrap_or_default();
        let _ = match name {
            "tcp_congestion_control" => set(&mut self.algorithm, algorithm(value)),
            "tcp_early_retrans" => {
                // Since Linux 4.13 all that it says is whether there are probes.
                let is_on = number::<u8>(value).map(|n| n > 0);
                set(&mut self.is_tail_probed, is_on)
            }
            "tcp_ecn" => self.apply_ecn(value),
            "tcp_slow_start_after_idle" => set(&mut self.is_restarted_after_idle, switch(value)),
            "tcp_fin_timeout" => {
                let timeout = number(value).map(Duration::from_secs);
                set(&mut self.fin_timeout, timeout)
            }
            "tcp_rmem" => set(&mut self.receive_buffer, number(word(1))),
            "tcp_wmem" => set(&mut self.send_buffer, number(word(2))),
            "tcp_sack" => set(&mut self.is_sack, switch(value)),
            "tcp_timestamps" => {
                let is_on = number::<u8>(value).map(|n| n > 0);
                set(&mut self.is_timestamps, is_on)
            }
            "tcp_window_scaling" if switch(value) == Some(false) => {
                self.window_scale = None;
                true
            }
            _ => false,
        };
    }

    /// The largest segment of the family, as the MSS option counts it.
    pub fn mss(&self, is_v4: bool) -> u16 {
        let headers = HEADER_BYTES
            + if is_v4 {
                V4_HEADER_BYTES
            } else {
                V6_HEADER_BYTES
            };
        self.mtu - u16::try_from(headers).expect("headers are short")
    }

    /// What a connection is told; ports and checksum are still missing. `is_opening`: it is ours to
    /// ask for congestion notification.
    pub fn config(&self, is_v4: bool, is_opening: bool) -> Config {
        let mss = self.mss(is_v4);
        let base = Config::default();
        // The largest buffer that leads to this scale and no larger one.
        let scaled = u64::from(u16::MAX) << self.window_scale.unwrap_or(0);
        Config {
            mss,
            mss_max: mss,
            mss_base: base.mss_base.min(mss),
            receive_buffer: self.receive_buffer.min(scaled),
            receive_buffer_max: scaled,
            send_buffer_max: self.send_buffer,
            congestion: congestion::Settings {
                algorithm: self.algorithm,
                seed: self.seed,
                ..congestion::Settings::default()
            },
            is_paced: self.is_paced.unwrap_or(self.algorithm == Algorithm::Bbr),
            is_restarted_after_idle: self.is_restarted_after_idle,
            is_tail_probed: self.is_tail_probed,
            is_nagle: true,
            is_sack: self.is_sack,
            is_timestamps: self.is_timestamps,
            is_window_scaling: self.window_scale.is_some(),
            is_ecn: if is_opening {
                self.is_ecn_asked
            } else {
                self.is_ecn_taken
            },
            delayed_ack: self.delayed_ack,
            time_wait: self.time_wait,
            ..base
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_flags(text: &str) -> Result<Settings, BadFlag> {
        let mut settings = Settings::default();
        settings.apply_flags(text).map(|()| settings)
    }

    #[test]
    fn flags_are_taken_and_what_is_unknown_is_named() {
        let settings = with_flags("wscale=7, cc=bbr,ts=off,,mtu=1280").expect("all known");
        assert_eq!(settings.window_scale, Some(7));
        assert_eq!(settings.algorithm, Algorithm::Bbr);
        assert!(!settings.is_timestamps && settings.is_sack);
        assert_eq!((settings.mss(true), settings.mss(false)), (1240, 1220));
        for bad in [
            "wscale=15",
            "cc=vegas",
            "speed=9",
            "mtu=575",
            "ecn=3",
            "local=::1",
        ] {
            assert_eq!(with_flags(bad), Err(BadFlag(bad.into())));
        }
        for good in [
            "wscale=14",
            "wscale=0",
            "mtu=576",
            "ecn=2",
            "local=10.0.0.1",
        ] {
            assert!(with_flags(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn every_scale_that_is_asked_for_is_the_scale_that_is_told() {
        for scale in 0..=WINDOW_SCALE_MAX {
            let settings = with_flags(&format!("wscale={scale}")).expect("a scale");
            assert_eq!(settings.config(true, true).window_scale(), scale);
        }
        let none = with_flags("wscale=off").expect("none");
        assert!(!none.config(true, true).is_window_scaling);
    }

    #[test]
    fn sysctls_mean_what_they_mean_to_linux() {
        let mut settings = Settings::default();
        settings.apply_sysctl("tcp_ecn", "2\n");
        assert!(!settings.config(true, true).is_ecn && settings.config(true, false).is_ecn);
        settings.apply_sysctl("tcp_ecn", "1\n");
        assert!(settings.config(true, true).is_ecn);
        settings.apply_sysctl("tcp_congestion_control", "reno\n");
        settings.apply_sysctl("tcp_rmem", "4096\t60000\t6291456\n");
        settings.apply_sysctl("tcp_wmem", "4096\t16384\t500000\n");
        settings.apply_sysctl("tcp_sack", "0\n");
        settings.apply_sysctl("tcp_unheard_of", "0\n");
        let config = settings.config(true, false);
        assert!(config.is_tail_probed && config.is_restarted_after_idle);
        settings.apply_sysctl("tcp_early_retrans", "0\n");
        settings.apply_sysctl("tcp_slow_start_after_idle", "0\n");
        let config = settings.config(true, false);
        assert!(!config.is_tail_probed && !config.is_restarted_after_idle);
        assert_eq!(config.congestion.algorithm, Algorithm::Reno);
        assert_eq!(
            (config.receive_buffer, config.send_buffer_max),
            (60_000, 500_000)
        );
        assert!(!config.is_sack && !config.is_paced);
    }
}
