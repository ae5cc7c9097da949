//! What to change, the most rewarding first.

use std::time::Duration;

use super::{Findings, Probe, Way};
use crate::path::limit::{Limit, LimitKind};
use crate::path::units::{binary_bytes, decimal_bytes, millis};

/// A fact that costs something, and what to do about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// What was found, with the number.
    pub finding: String,
    /// What to do.
    pub remedy: String,
    /// How many times as fast it may get, as far as can be told; 1 for what is only sooner.
    pub gain: f64,
}

/// A path is worth so much at most: advice that a faster path would need is not given. Chosen: what
/// most machines are connected with.
const PATH_BYTES_PER_SECOND: u64 = 125_000_000;

/// A connection begins in about so many round trips with the servers in use; a phase that takes
/// longer than three and this is held up by the server itself.
const PHASE_SLACK: Duration = Duration::from_millis(300);

/// Loss from which on cubic's window is held down on a long path. Chosen.
const LOSS_PPM_MIN: u32 = 100;

/// What several channels must bring for one channel's window to have been the limit.
const GAIN_MIN: f64 = 1.1;

/// Round trips under load that are so much longer than at rest tell of a full path, at least by this.
const QUEUE_FACTOR: u32 = 2;
const QUEUE_MIN: Duration = Duration::from_millis(10);

impl Findings {
    /// What to change, the most rewarding first.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        let mut list = Vec::new();
        list.extend(self.on_peer_window());
        list.extend(self.on_buffers());
        list.extend(self.on_switches());
        list.extend(self.on_congestion());
        list.extend(self.on_queue());
        list.extend(self.on_processor());
        list.extend(self.on_far_end());
        list.extend(self.on_phases());
        // Equals stay in the order of the layers, from the top.
        list.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        list
    }

    /// The least that the other layers of that direction can carry, without those in `but`.
    fn next_cap(&self, way: Way, but: &[&str]) -> u64 {
        let caps = self.caps();
        let others = caps
            .iter()
            .filter(|cap| (cap.way == way || cap.way == Way::Both) && !but.contains(&cap.layer));
        let least = others.map(|cap| cap.rate).min();
        least
            .unwrap_or(PATH_BYTES_PER_SECOND)
            .min(PATH_BYTES_PER_SECOND)
    }

    fn on_peer_window(&self) -> Option<Advice> {
        let up = self.up.as_ref()?;
        let Limit::PeerWindow { window, lanes, .. } = up.limit() else {
            return None;
        };
        let window = window / lanes.max(1) as u64;
        let cap = self.per_rtt(window);
        let rtt = self.rtt();
        let wide = self.up_wide.as_ref();
        if wide.is_some_and(|wide| gain(wide.rate, up.rate) < GAIN_MIN) {
            // Measured: more windows bring nothing.
            return None;
        }
        let rate = wide.map_or_else(
            || self.next_cap(Way::Up, &["the server's channel window"]),
            |wide| wide.rate,
        );
        let measured = wide.map_or_else(String::new, |wide| {
            format!(
                "; {} channels carried {}/s",
                wide.lanes,
                decimal_bytes(wide.rate)
            )
        });
        Some(Advice {
            finding: format!(
                "the server's channel window is {}: one channel carries at most {}/s at {}{measured}",
                binary_bytes(window),
                decimal_bytes(cap),
                millis(rtt)
            ),
            remedy: "fullbore cp uploads large files over several channels by itself; scp and sftp have one. \
                     On a server of your own, `fullbore serve` grants what the path holds"
                .to_owned(),
            gain: gain(rate, up.rate),
        })
    }

    fn on_buffers(&self) -> Vec<Advice> {
        // One channel's window is no cap where several were measured.
        let narrow = self
            .up_wide
            .as_ref()
            .map_or("", |_| "the server's channel window");
        let of = |setting: &'static str,
                  probe: Option<&Probe>,
                  way,
                  layer: &str,
                  kinds: &[LimitKind]| {
            let maximum = self.maximum(setting)?;
            let cap = self.per_rtt(maximum);
            let rate = probe.map_or(0, |probe| probe.rate);
            let is_limit = probe.is_some_and(|probe| kinds.contains(&probe.limit().kind()));
            // The kernel counts its own overhead in: half of it may be all that is left for bytes.
            if cap >= PATH_BYTES_PER_SECOND || !(is_limit || rate.saturating_mul(2) > cap) {
                return None;
            }
            let wanted = (PATH_BYTES_PER_SECOND as f64 * self.rtt().as_secs_f64() * 2.0) as u64;
            let wanted = wanted.next_power_of_two().max(2 * maximum);
            let values = self.setting(setting)?;
            let first: Vec<&str> = values.split(' ').take(2).collect();
            Some(Advice {
                finding: format!(
                    "{setting} allows {}: a connection carries at most {}/s at {}",
                    binary_bytes(maximum),
                    decimal_bytes(cap),
                    millis(self.rtt())
                ),
                remedy: format!("sysctl -w {setting}=\"{} {wanted}\"", first.join(" ")),
                gain: match is_limit {
                    true => gain(self.next_cap(way, &[layer, narrow]), rate),
                    false => 1.0,
                },
            })
        };
        let up = of(
            "net.ipv4.tcp_wmem",
            self.up_wide.as_ref().or(self.up.as_ref()),
            Way::Up,
            "our TCP send buffer (net.ipv4.tcp_wmem)",
            &[LimitKind::SendBuffer],
        );
        let down = of(
            "net.ipv4.tcp_rmem",
            self.down.as_ref(),
            Way::Down,
            "our TCP receive buffer (net.ipv4.tcp_rmem)",
            &[LimitKind::TcpReceiveWindow],
        );
        up.into_iter()
            .chain(down)
            .chain(self.on_far_buffer())
            .collect()
    }

    /// The server's own limit on what it receives.
    fn on_far_buffer(&self) -> Option<Advice> {
        let up = self.up_wide.as_ref().or(self.up.as_ref())?;
        let Limit::TcpReceiveWindow { window, .. } = up.limit() else {
            return None;
        };
        let window = window.unwrap_or(0);
        Some(Advice {
            finding: format!(
                "the server's TCP receive window is {}: a connection carries at most {}/s at {}",
                binary_bytes(window),
                decimal_bytes(self.per_rtt(window)),
                millis(self.rtt())
            ),
            remedy: "raise net.ipv4.tcp_rmem on the server; fullbore cp uses several connections where it is \
                     let"
                .to_owned(),
            gain: gain(
                self.next_cap(Way::Up, &["the server's TCP receive window"]),
                up.rate,
            ),
        })
    }

    /// Switches of TCP that are off.
    fn on_switches(&self) -> Vec<Advice> {
        let is = |setting: &str, value: &str| self.setting(setting) == Some(value);
        let mut list = Vec::new();
        if is("net.ipv4.tcp_window_scaling", "0") {
            let cap = self.per_rtt(65_535);
            list.push(Advice {
                finding: format!(
                    "net.ipv4.tcp_window_scaling is off: no window is larger than 64 KiB, {}/s at {}",
                    decimal_bytes(cap),
                    millis(self.rtt())
                ),
                remedy: "sysctl -w net.ipv4.tcp_window_scaling=1".to_owned(),
                gain: gain(PATH_BYTES_PER_SECOND, cap),
            });
        }
        if is("net.ipv4.tcp_moderate_rcvbuf", "0") {
            list.push(Advice {
                finding:
                    "net.ipv4.tcp_moderate_rcvbuf is off: receive windows stay at their first size"
                        .to_owned(),
                remedy: "sysctl -w net.ipv4.tcp_moderate_rcvbuf=1".to_owned(),
                gain: 2.0,
            });
        }
        if is("net.ipv4.tcp_sack", "0") {
            list.push(Advice {
                finding: "net.ipv4.tcp_sack is off: each loss costs a round trip or more"
                    .to_owned(),
                remedy: "sysctl -w net.ipv4.tcp_sack=1".to_owned(),
                gain: 1.5,
            });
        }
        if is("net.ipv4.tcp_timestamps", "0") && self.rtt() > Duration::from_millis(20) {
            list.push(Advice {
                finding: "net.ipv4.tcp_timestamps is off: round trips are measured less often"
                    .to_owned(),
                remedy: "sysctl -w net.ipv4.tcp_timestamps=1".to_owned(),
                gain: 1.0,
            });
        }
        if is("net.ipv4.tcp_slow_start_after_idle", "1") && self.rtt() > Duration::from_millis(50) {
            list.push(Advice {
                finding: "net.ipv4.tcp_slow_start_after_idle is on: a connection that paused starts slowly \
                          again"
                    .to_owned(),
                remedy: "sysctl -w net.ipv4.tcp_slow_start_after_idle=0".to_owned(),
                gain: 1.0,
            });
        }
        list
    }

    fn on_congestion(&self) -> Option<Advice> {
        let up = self.up_wide.as_ref().or(self.up.as_ref())?;
        let Limit::TcpCongestion { lost_ppm, .. } = up.limit() else {
            return None;
        };
        let control = self.setting("net.ipv4.tcp_congestion_control")?;
        if lost_ppm < LOSS_PPM_MIN || control == "bbr" {
            return None;
        }
        let available = self.setting("net.ipv4.tcp_available_congestion_control");
        let has_bbr = available.is_some_and(|list| list.split(' ').any(|name| name == "bbr"));
        let remedy = match has_bbr {
            true => "sysctl -w net.ipv4.tcp_congestion_control=bbr",
            false => "modprobe tcp_bbr && sysctl -w net.ipv4.tcp_congestion_control=bbr",
        };
        Some(Advice {
            finding: format!(
                "{:.2}% of what is sent gets lost, and {control} takes each loss for a full path",
                f64::from(lost_ppm) / 1e4
            ),
            remedy: format!("{remedy} (here, for uploads; there, for downloads)"),
            gain: gain(self.next_cap(Way::Up, &[]), up.rate),
        })
    }

    /// A path that is full: no window, buffer or channel makes it wider.
    fn on_queue(&self) -> Vec<Advice> {
        let rest = self.rtt();
        let of = |probe: Option<&Probe>, way: &str| {
            let probe = probe?;
            let Limit::TcpCongestion { flow, .. } = probe.limit() else {
                return None;
            };
            let loaded = flow.rtt?;
            (loaded > (rest * QUEUE_FACTOR).max(rest + QUEUE_MIN)).then(|| Advice {
                finding: format!(
                    "the path is full at {}/s {way}: a round trip takes {} under load, {} at rest",
                    decimal_bytes(probe.rate),
                    millis(loaded),
                    millis(rest)
                ),
                remedy:
                    "nothing at either end makes it faster; -l keeps the queue short for others"
                        .to_owned(),
                gain: 1.0,
            })
        };
        let up = of(self.up_wide.as_ref().or(self.up.as_ref()), "up");
        let down = of(self.down.as_ref(), "down");
        up.into_iter().chain(down).collect()
    }

    fn on_processor(&self) -> Option<Advice> {
        let probes = [self.down.as_ref(), self.up.as_ref()].into_iter().flatten();
        let probe = probes
            .filter(|probe| probe.is_limited_by(LimitKind::Cpu))
            .min_by_key(|probe| probe.rate)?;
        let Limit::Cpu { running, waiting } = probe.limit() else {
            return None;
        };
        let cipher = self.cipher.map_or_else(String::new, |(name, rate)| {
            format!(", which encrypts {}/s with {name}", decimal_bytes(rate))
        });
        Some(Advice {
            finding: format!(
                "this machine's processor limits at {}/s: one thread ran {}% of the time and waited for its \
                 turn {}%{cipher}",
                decimal_bytes(probe.rate),
                running / 10,
                waiting / 10
            ),
            remedy: match waiting > running {
                true => "end or renice what else runs here",
                false => {
                    "choose an aes128-gcm cipher where both processors have AES, and no compression"
                }
            }
            .to_owned(),
            gain: f64::from(running + waiting) / f64::from(running.max(1)),
        })
    }

    fn on_far_end(&self) -> Vec<Advice> {
        let of = |probe: Option<&Probe>, verb: &str| {
            let probe = probe.filter(|probe| probe.is_limited_by(LimitKind::RemoteProcessing))?;
            Some(Advice {
                finding: format!(
                    "the server itself limits at {}/s when it {verb}: {}",
                    decimal_bytes(probe.rate),
                    probe.limit()
                ),
                remedy: "look there at the load of its processor (sshd, sftp-server) and, with a path, its \
                         disk"
                    .to_owned(),
                gain: 1.0,
            })
        };
        let down = of(self.down.as_ref(), "sends");
        let up = of(self.up.as_ref(), "receives");
        down.into_iter().chain(up).collect()
    }

    /// Phases of connecting that take longer than the path explains.
    fn on_phases(&self) -> Vec<Advice> {
        let explained = self.rtt() * 3 + PHASE_SLACK;
        let slow = self.phases.iter().filter(|phase| phase.time > explained);
        slow.map(|phase| Advice {
            finding: format!("{} took {}", phase.name, millis(phase.time)),
            remedy: match phase.name {
                "name lookup" => "a name server does not answer, or not first: look at /etc/resolv.conf",
                "login" => {
                    "the server looks names up (UseDNS, PAM), or several keys were tried: name the right one \
                     with -i"
                }
                _ => "the server took its time",
            }
            .to_owned(),
            gain: 1.0,
        })
        .collect()
    }
}

fn gain(possible: u64, measured: u64) -> f64 {
    (possible as f64 / measured.max(1) as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::{Phase, RoundTrips};
    use super::*;
    use crate::driver::tcp_info::TcpInfo;
    use crate::path::{LaneFacts, Meter, Sample, Wait};

    /// A probe of one second asleep for `wait`, over a path of 200 ms.
    fn probe(rate: u64, wait: Wait, change: impl FnOnce(&mut Sample)) -> Probe {
        let tcp = TcpInfo {
            rtt: Duration::from_millis(200),
            min_rtt: Some(Duration::from_millis(200)),
            busy: Some(Duration::ZERO),
            ..TcpInfo::default()
        };
        let facts = LaneFacts {
            busy: 1,
            remote_window: 2 << 20,
            local_window: 64 << 20,
            outstanding_bytes_max: 64 << 20,
            outstanding_count: 8,
            ..LaneFacts::default()
        };
        let before = Sample {
            tcp: Some(tcp),
            lanes: facts,
            ..Sample::default()
        };
        let mut after = before;
        after.at = before.at + Duration::from_secs(1);
        after.sent = rate;
        after.waits.add(wait, Duration::from_secs(1));
        change(&mut after);
        let mut meter = Meter::default();
        meter.on_sample(before);
        meter.on_sample(after);
        Probe {
            file: "/dev/null".to_owned(),
            lanes: 1,
            bytes: rate,
            time: Duration::from_secs(1),
            rate,
            totals: meter.take_totals(),
            tcp: after.tcp,
            facts,
        }
    }

    fn findings(up: Probe) -> Findings {
        Findings {
            round_trips: RoundTrips::of(&[Duration::from_millis(200)]),
            up: Some(up),
            settings: vec![
                ("net.ipv4.tcp_wmem", "4096 16384 4194304".to_owned()),
                ("net.ipv4.tcp_rmem", "4096 131072 33554432".to_owned()),
                ("net.ipv4.tcp_congestion_control", "cubic".to_owned()),
                (
                    "net.ipv4.tcp_available_congestion_control",
                    "reno cubic bbr".to_owned(),
                ),
            ],
            ..Findings::default()
        }
    }

    #[test]
    fn a_server_s_window_comes_with_its_number_and_several_channels_as_the_remedy() {
        let found = findings(probe(10_400_000, Wait::PeerWindow, |_| {}));
        let advice = found.advice();
        assert_eq!(
            advice[0].finding,
            "the server's channel window is 2 MiB: one channel carries at most 10.5 MB/s at 200 ms"
        );
        assert!(advice[0].remedy.contains("several channels"));
        // The next cap is the send buffer's 21 MB/s.
        assert!((1.9..2.1).contains(&advice[0].gain), "{advice:?}");
    }

    /// 2 MiB of window in a queue that empties at 2.5 MB/s, on a path of 20 ms.
    #[test]
    fn a_full_path_is_no_window_s_limit_and_nothing_is_promised() {
        let saturated = || {
            probe(2_500_000, Wait::PeerWindow, |sample| {
                let tcp = sample.tcp.as_mut().expect("set");
                tcp.rtt = Duration::from_millis(840);
                tcp.min_rtt = Some(Duration::from_millis(20));
            })
        };
        let mut found = findings(saturated());
        found.round_trips = RoundTrips::of(&[Duration::from_millis(20)]);
        let limit = found.up.as_ref().expect("measured").limit();
        assert_eq!(limit.kind(), LimitKind::TcpCongestion, "{limit:?}");
        let advice = found.advice();
        assert_eq!(
            advice[0].finding,
            "the path is full at 2.5 MB/s up: a round trip takes 840 ms under load, 20 ms at rest"
        );
        assert!(advice.iter().all(|advice| advice.gain == 1.0), "{advice:?}");
        // A window of the same path that is too small for it still is one.
        let narrow = probe(2_500_000, Wait::PeerWindow, |sample| {
            let tcp = sample.tcp.as_mut().expect("set");
            tcp.rtt = Duration::from_millis(22);
            tcp.min_rtt = Some(Duration::from_millis(20));
            sample.lanes.remote_window = 55_000;
        });
        assert_eq!(narrow.limit().kind(), LimitKind::PeerWindow);
    }

    #[test]
    fn a_window_is_not_blamed_where_several_were_measured_and_brought_nothing() {
        let mut found = findings(probe(10_400_000, Wait::PeerWindow, |_| {}));
        let wide = |rate| Probe {
            lanes: 8,
            ..probe(rate, Wait::PeerWindow, |_| {})
        };
        found.up_wide = Some(wide(10_600_000));
        let blames = |found: &Findings| {
            let list = found.advice();
            list.iter().any(|a| a.finding.contains("channel window"))
        };
        assert!(!blames(&found));
        found.up_wide = Some(wide(40_000_000));
        assert!(blames(&found));
    }

    #[test]
    fn a_send_buffer_that_limits_comes_first_one_that_might_comes_last() {
        let limited = probe(15_000_000, Wait::Socket, |sample| {
            let tcp = sample.tcp.as_mut().expect("set");
            tcp.busy = Some(Duration::from_secs(1));
            tcp.sndbuf_limited = Some(Duration::from_secs(1));
        });
        let advice = findings(limited).advice();
        assert_eq!(
            advice[0].finding,
            "net.ipv4.tcp_wmem allows 4 MiB: a connection carries at most 21 MB/s at 200 ms"
        );
        // 125 MB/s x 200 ms twice, as a power of two.
        assert_eq!(
            advice[0].remedy,
            "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 67108864\""
        );
        let far = findings(probe(1_000_000, Wait::PeerWindow, |_| {}));
        assert!(!far.advice().iter().any(|a| a.finding.contains("wmem")));
    }

    #[test]
    fn loss_with_cubic_asks_for_bbr_and_bbr_is_not_asked_for_twice() {
        let lossy = || {
            probe(1_000_000, Wait::Socket, |sample| {
                let tcp = sample.tcp.as_mut().expect("set");
                tcp.busy = Some(Duration::from_secs(1));
                tcp.bytes_sent = Some(1_000_000);
                tcp.bytes_retrans = Some(10_000);
            })
        };
        let advice = findings(lossy()).advice();
        assert!(
            advice[0]
                .finding
                .starts_with("1.00% of what is sent gets lost"),
            "{advice:?}"
        );
        let mut with_bbr = findings(lossy());
        with_bbr.settings[2].1 = "bbr".to_owned();
        assert!(!with_bbr.advice().iter().any(|a| a.finding.contains("lost")));
    }

    #[test]
    fn switches_that_are_off_are_found() {
        let mut found = findings(probe(300_000, Wait::Socket, |_| {}));
        found
            .settings
            .push(("net.ipv4.tcp_window_scaling", "0".to_owned()));
        found.settings.push(("net.ipv4.tcp_sack", "0".to_owned()));
        let advice = found.advice();
        assert!(advice[0].finding.contains("window_scaling"), "{advice:?}");
        assert!(advice.iter().any(|a| a.finding.contains("tcp_sack")));
        let mut fine = findings(probe(300_000, Wait::Socket, |_| {}));
        fine.settings.push(("net.ipv4.tcp_sack", "1".to_owned()));
        assert!(!fine.advice().iter().any(|a| a.finding.contains("tcp_sack")));
    }

    #[test]
    fn a_phase_is_slow_when_the_path_does_not_explain_it() {
        let phases = |millis: u64| Findings {
            round_trips: RoundTrips::of(&[Duration::from_millis(200)]),
            phases: vec![Phase {
                name: "login",
                time: Duration::from_millis(millis),
            }],
            ..Findings::default()
        };
        assert_eq!(phases(900).advice(), []);
        assert!(phases(901).advice()[0].remedy.contains("UseDNS"));
    }

    #[test]
    fn caps_are_sorted_and_held_against_the_path() {
        let caps = findings(probe(1, Wait::PeerWindow, |_| {})).caps();
        assert_eq!(caps[0].layer, "the server's channel window");
        assert_eq!(caps[0].rate, 10_485_760);
        assert!(caps.is_sorted_by_key(|cap| cap.rate));
    }

    #[test]
    fn jitter_is_the_mean_step() {
        let ms = Duration::from_millis;
        let trips = RoundTrips::of(&[ms(10), ms(14), ms(12)]);
        assert_eq!(
            (trips.min, trips.mean, trips.jitter),
            (ms(10), ms(12), ms(3))
        );
        assert_eq!(RoundTrips::of(&[]), RoundTrips::default());
    }
}
