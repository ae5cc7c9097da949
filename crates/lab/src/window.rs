//! The channel window against the path: a stream over a session channel by round-trip time, with every
//! way to size the receiver's window that was tried.
//!
//! A window that returns exactly what was consumed is a constant, and a constant divided by the round
//! trip is a rate: 2 MiB / 200 ms = 10.5 MB/s, whatever the link.

use fullbore_base::Rate;

use crate::report::{Axis, Plot, Section, Series, Table};
use crate::simulated::{Consumer, Flow, Path, Policy, Run};

/// OpenSSH's window: 64 packets of 32 KiB.
const OPENSSH_WINDOW: u32 = 2 << 20;

/// The link of the report: HTTPS brings 40 MB/s over it.
const MBIT: u64 = 320;

/// Round-trip times, in ms.
pub const RTTS_MS: [u64; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 400];

/// The round-trip time of the plots over time.
const SHOWN_RTT_MS: u64 = 200;

/// A consumer slower than the link: a disk, or the next hop.
const SLOW_CONSUMER: Rate = Rate::from_bytes_per_sec(10_000_000);

/// What the receiver's buffer holds: the `SO_RCVBUF` of the trial.
const BUFFER_BYTES: u64 = 8_388_608;

/// The ways to size a window, in the order in which they were tried.
pub const POLICIES: [Policy; 5] = [
    Policy::Fixed(OPENSSH_WINDOW),
    Policy::Excess {
        start: OPENSSH_WINDOW,
        excess: 65_536,
    },
    Policy::Growth {
        start: OPENSSH_WINDOW,
        step: 200_000,
        limit: 8_000_000,
    },
    Policy::ReceiveBuffer {
        start: 131_072,
        limit: 33_554_432,
    },
    Policy::Adaptive,
];

/// Its name in the tables.
#[must_use]
pub fn name(policy: Policy) -> String {
    match policy {
        Policy::Fixed(window) => format!("fixed {} MiB (OpenSSH)", window >> 20),
        Policy::Excess { excess, .. } => format!("{excess} more with each adjust"),
        Policy::Growth { step, limit, .. } => format!("{step} more, up to {limit}"),
        Policy::ReceiveBuffer { .. } => "as the kernel's receive buffer".to_owned(),
        Policy::Adaptive => "adaptive".to_owned(),
    }
}

/// One policy at one round-trip time, with a consumer that keeps up.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The policy.
    pub policy: Policy,
    /// The path.
    pub path: Path,
    /// What came of it.
    pub run: Run,
}

/// All figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The sweep.
    pub points: Vec<Point>,
    /// Each policy with a slow consumer.
    pub slow: Vec<Point>,
}

/// Runs the sweep and the slow consumer; `tell` hears of each step.
pub fn run(seed: u64, tell: &mut dyn FnMut(&str)) -> Outcome {
    let mut points = Vec::new();
    for rtt_ms in RTTS_MS {
        let path = Path::new(MBIT, rtt_ms);
        tell(&path.label());
        for policy in POLICIES {
            points.push(point(policy, path, eager(), seed));
        }
    }
    let path = Path::new(MBIT, SHOWN_RTT_MS);
    tell("a slow consumer");
    let slow = POLICIES.map(|policy| point(policy, path, slow(), seed));
    Outcome {
        points,
        slow: slow.to_vec(),
    }
}

const fn eager() -> Consumer {
    Consumer {
        rate: None,
        buffer_bytes_max: u64::MAX,
    }
}

const fn slow() -> Consumer {
    Consumer {
        rate: Some(SLOW_CONSUMER),
        buffer_bytes_max: BUFFER_BYTES,
    }
}

fn point(policy: Policy, path: Path, consumer: Consumer, seed: u64) -> Point {
    // Long enough that the second half is steady: two seconds and twenty round trips.
    let seconds = 2.0 + 20.0 * path.rtt.as_secs_f64();
    let bytes = path.rate.bytes_per_sec() as f64 * seconds;
    let flow = Flow {
        path,
        bytes: bytes as u64,
        policy,
        consumer,
        seed,
    };
    let run = flow.run();
    Point { policy, path, run }
}

impl Outcome {
    /// The figures as a part of a report.
    #[must_use]
    pub fn section(&self) -> Section {
        let mut section = Section::new("Window: the channel window and the path");
        section.text = vec![
            format!(
                "A stream over one session channel of a simulated {MBIT} Mbit/s link, by round-trip \
                 time. Only the receiver's window differs. A constant window divides by the round trip; one \
                 that adds to each adjust fills the link, and then the memory of a receiver whose \
                 consumer is slower; one with a limit is right until the path is longer than the limit."
            ),
            format!(
                "The slow consumer takes {} MB/s and has a buffer of {BUFFER_BYTES} bytes in front of it.",
                SLOW_CONSUMER.bytes_per_sec() / 1_000_000
            ),
        ];
        section.tables = vec![self.sweep_table(), self.slow_table()];
        section.plots = vec![
            self.sweep_plot(),
            self.time_plot("rate", "MB/s", Run::rates),
            self.time_plot("window", "MB", Run::windows),
        ];
        section
    }

    fn sweep_table(&self) -> Table {
        let rtts = RTTS_MS.map(|rtt| format!("{rtt} ms"));
        let columns: Vec<&str> = std::iter::once("window")
            .chain(rtts.iter().map(String::as_str))
            .collect();
        let mut table = Table::new("MB/s once started, by round-trip time", &columns);
        for policy in POLICIES {
            let of_policy = self.points.iter().filter(|point| point.policy == policy);
            let rates = of_policy.map(|point| format!("{:.1}", point.run.steady_rate() / 1e6));
            table.push(std::iter::once(name(policy)).chain(rates).collect());
        }
        table
    }

    fn slow_table(&self) -> Table {
        let caption = format!("A slow consumer at {SHOWN_RTT_MS} ms");
        let mut table = Table::new(caption, &["window", "most unread, KiB", "MB/s", "end"]);
        for point in &self.slow {
            let run = &point.run;
            table.push(vec![
                name(point.policy),
                format!("{}", run.unread_peak >> 10),
                format!("{:.1}", run.rate() / 1e6),
                run.error.clone().unwrap_or_else(|| "complete".to_owned()),
            ]);
        }
        table
    }

    fn sweep_plot(&self) -> Plot {
        let series = POLICIES.map(|policy| {
            let of_policy = self.points.iter().filter(|point| point.policy == policy);
            let points = of_policy.map(|point| {
                let rtt_ms = point.path.rtt.as_secs_f64() * 1e3;
                (rtt_ms, point.run.utilisation(&point.path) * 100.0)
            });
            Series {
                name: name(policy),
                points: points.collect(),
            }
        });
        Plot {
            title: format!("Part of {MBIT} Mbit/s that is used, by round-trip time"),
            x: Axis::log("RTT, ms"),
            y: Axis::linear("% of the link"),
            series: series.to_vec(),
        }
    }

    fn time_plot(&self, what: &str, unit: &str, of: fn(&Run) -> Vec<(f64, f64)>) -> Plot {
        let path = Path::new(MBIT, SHOWN_RTT_MS);
        let of_path = self.points.iter().filter(|point| point.path == path);
        let series = of_path.map(|point| Series {
            name: name(point.policy),
            points: of(&point.run)
                .into_iter()
                .map(|(x, y)| (x, y / 1e6))
                .collect(),
        });
        Plot {
            title: format!("{}: {what} over time", path.label()),
            x: Axis::linear("seconds"),
            y: Axis::linear(unit),
            series: series.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(policy: Policy, rtt_ms: u64) -> f64 {
        let path = Path::new(100, rtt_ms);
        point(policy, path, eager(), 1).run.utilisation(&path)
    }

    #[test]
    fn a_constant_window_divides_by_the_round_trip_and_an_adaptive_one_does_not() {
        let small = Policy::Fixed(512 << 10);
        let (near, far) = (steady(small, 5), steady(small, 200));
        assert!(near > 0.95, "{near}");
        // 512 KiB / 200 ms of 12.5 MB/s is 21%.
        assert!((0.17..0.22).contains(&far), "{far}");
        let (near, far) = (steady(Policy::Adaptive, 5), steady(Policy::Adaptive, 200));
        assert!(near > 0.97 && far > 0.97, "{near} {far}");
    }

    #[test]
    fn an_excess_overflows_a_slow_consumer_and_an_adaptive_window_spares_it() {
        let path = Path::new(MBIT, 20);
        let overflown = point(POLICIES[1], path, slow(), 1).run;
        assert!(
            overflown
                .error
                .is_some_and(|error| error.contains("overflowed"))
        );
        let adaptive = point(Policy::Adaptive, path, slow(), 1).run;
        assert_eq!(adaptive.error, None);
        assert!(
            adaptive.unread_peak < BUFFER_BYTES,
            "{}",
            adaptive.unread_peak
        );
    }

    #[test]
    fn a_section_has_every_policy() {
        let path = Path::new(MBIT, SHOWN_RTT_MS);
        let run = Run::default();
        let all = POLICIES.map(|policy| Point {
            policy,
            path,
            run: run.clone(),
        });
        let outcome = Outcome {
            points: RTTS_MS
                .iter()
                .flat_map(|&rtt_ms| {
                    let path = Path::new(MBIT, rtt_ms);
                    all.clone().map(|point| Point { path, ..point })
                })
                .collect(),
            slow: all.to_vec(),
        };
        let section = outcome.section();
        assert_eq!(section.tables[0].rows().len(), POLICIES.len());
        assert!(
            section
                .plots
                .iter()
                .all(|plot| plot.series.len() == POLICIES.len())
        );
    }
}
