//! The figures as a section of a report, and as JSON.

use std::fmt::Write as _;

use super::mode::Mode;
use super::{Found, Row, Who};
use crate::report::{Axis, Plot, Section, Series, Table};

const COLUMNS: [&str; 12] = [
    "sender, receiver",
    "wall s",
    "MiB acked",
    "MB/s",
    "CPU ns/KiB",
    "CPU ns/ACK",
    "x floor",
    "looks/ACK",
    "SACKs",
    "sent again",
    "time-outs",
    "",
];

impl Found {
    /// The figures as a part of a report.
    #[must_use]
    pub fn section(&self) -> Section {
        let mut section = Section::new("SACK: what an acknowledgement costs the sender");
        section.text = vec![
            "A receiver opens a window, lets the sender fill it, and then holds the cumulative acknowledgement while \
             it answers each segment with SACK blocks that are made to cost: found only by walking the queue, \
             covering almost all of it, scattered, or such that everything older has to be judged. At the end of \
             each hold it acknowledges everything. Figures are of the time under attack."
                .to_owned(),
            "list and cached are queues as Linux 2.6.22 and 2.6.25 had them, ours is what this program ships; \
             they run on a virtual clock on which a look at a segment takes 10 ns, and their processor time is \
             the sender's alone. The kernel's is that of the core it runs on, in real time. \"x floor\" compares \
             with dupack: the same acknowledgements without SACK."
                .to_owned(),
        ];
        if self.rows.iter().any(|row| row.who == Who::Target) {
            section.text.push(
                "The target's CPU is what its kernel took for the acknowledgements, if it is on this machine, \
                 without its program; \"sent again\" is what arrived twice."
                    .to_owned(),
            );
        }
        section.text.extend(self.failures.iter().cloned());
        for (window, rtt) in self.settings() {
            let title = format!("Window of {} MiB, RTT {} ms", window >> 20, rtt.as_millis());
            let mut table = Table::new(title, &COLUMNS);
            for row in self.of(window, rtt) {
                table.push(self.cells(row));
            }
            section.tables.push(table);
        }
        section.plots.extend(self.growth_plot());
        section.plots.extend(self.time_plots());
        section
    }

    fn settings(&self) -> Vec<(u64, std::time::Duration)> {
        let mut settings: Vec<_> = self.rows.iter().map(|row| (row.window, row.rtt)).collect();
        settings.sort_unstable();
        settings.dedup();
        settings
    }

    fn of(&self, window: u64, rtt: std::time::Duration) -> impl Iterator<Item = &Row> {
        let is_there = move |row: &&Row| (row.window, row.rtt) == (window, rtt);
        self.rows.iter().filter(is_there)
    }

    /// The run of the same sender against `mode`.
    fn beside(&self, row: &Row, mode: Mode) -> Option<&Row> {
        let mut of = self.of(row.window, row.rtt);
        of.find(|other| other.who == row.who && other.mode == mode)
    }

    /// Processor time of an acknowledgement, in those of the floor.
    fn to_floor(&self, row: &Row) -> Option<f64> {
        let floor = self.beside(row, Mode::Dupack)?;
        let part = row.nanos_per_ack() / floor.nanos_per_ack();
        part.is_finite().then_some(part)
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let (outcome, counters) = (&row.outcome, &row.outcome.counters);
        // What the kernel does not tell.
        let known = |value: String| {
            if matches!(row.who, Who::Kernel | Who::Target) {
                "-".to_owned()
            } else {
                value
            }
        };
        let looks = counters.segments_examined as f64 / (counters.acks as f64).max(1.0);
        vec![
            format!("{}, {}", row.who.name(), row.mode.name()),
            format!("{:.2}", outcome.wall.as_secs_f64()),
            format!("{:.1}", counters.bytes_acked as f64 / f64::from(1 << 20)),
            format!("{:.1}", row.goodput() / 1e6),
            format!("{:.0}", row.nanos_per_kib()),
            format!("{:.0}", row.nanos_per_ack()),
            self.to_floor(row)
                .map_or_else(|| "-".to_owned(), |part| format!("{part:.2}")),
            known(format!("{looks:.1}")),
            known(counters.sack_blocks.to_string()),
            counters.retransmissions.to_string(),
            if row.who == Who::Target {
                "-".to_owned()
            } else {
                counters.timeouts.to_string()
            },
            if outcome.is_given_up {
                "ended early"
            } else {
                ""
            }
            .to_owned(),
        ]
    }

    /// What an acknowledgement costs by the window, when more than one was measured.
    fn growth_plot(&self) -> Option<Plot> {
        let mut series: Vec<Series> = Vec::new();
        for row in &self.rows {
            let name = format!("{}, {}", row.who.name(), row.mode.name());
            let point = ((row.window >> 20) as f64, row.nanos_per_ack());
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => series.push(Series {
                    name,
                    points: vec![point],
                }),
            }
        }
        let is_worth = series.iter().any(|series| series.points.len() > 1);
        is_worth.then(|| Plot {
            title: "CPU for each acknowledgement, by the window".to_owned(),
            x: Axis::log("MiB"),
            y: Axis::log("ns"),
            series,
        })
    }

    /// The sender's processor time over the run: one plot for each sender, of the largest window.
    fn time_plots(&self) -> Vec<Plot> {
        let mut plots: Vec<Plot> = Vec::new();
        let Some((window, rtt)) = self.settings().last().copied() else {
            return plots;
        };
        for row in self.of(window, rtt) {
            let title = format!(
                "{}, {} MiB, {} ms: sender's CPU over time",
                row.who.name(),
                window >> 20,
                rtt.as_millis()
            );
            let points = row.outcome.stretches.iter().map(|stretch| {
                let share = stretch.cpu.as_secs_f64() / stretch.time.as_secs_f64().max(1e-9);
                (stretch.at.as_secs_f64(), share * 100.0)
            });
            let series = Series {
                name: row.mode.name().to_owned(),
                points: points.collect(),
            };
            match plots.iter_mut().find(|plot| plot.title == title) {
                Some(plot) => plot.series.push(series),
                None => plots.push(Plot {
                    title,
                    x: Axis::linear("seconds"),
                    y: Axis::linear("% of a core"),
                    series: vec![series],
                }),
            }
        }
        plots
    }

    /// Everything as JSON: `{"rows": [...], "failures": [...]}`; times in seconds or nanoseconds, as named.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\"rows\":[");
        for (i, row) in self.rows.iter().enumerate() {
            let (outcome, counters) = (&row.outcome, &row.outcome.counters);
            let comma = if i == 0 { "" } else { "," };
            let _ = write!(
                out,
                "{comma}\n{{\"sender\":\"{}\",\"receiver\":\"{}\",\"window\":{},\"rtt_ms\":{},\
                 \"wall_s\":{:.6},\"cpu_s\":{:.9},\"bytes_acked\":{},\"bytes_per_s\":{:.0},\
                 \"cpu_ns_per_kib\":{:.1},\"cpu_ns_per_ack\":{:.1},\"acks\":{},\"segments_examined\":{},\
                 \"sack_blocks\":{},\"retransmissions\":{},\"timeouts\":{},\"given_up\":{}}}",
                row.who.name(),
                row.mode.name(),
                row.window,
                row.rtt.as_millis(),
                outcome.wall.as_secs_f64(),
                outcome.cpu.as_secs_f64(),
                counters.bytes_acked,
                row.goodput(),
                row.nanos_per_kib(),
                row.nanos_per_ack(),
                outcome.acks,
                counters.segments_examined,
                counters.sack_blocks,
                counters.retransmissions,
                counters.timeouts,
                outcome.is_given_up,
            );
        }
        let failures: Vec<String> = self
            .failures
            .iter()
            .map(|text| format!("\"{}\"", text.replace(['"', '\\'], "'")))
            .collect();
        let _ = write!(out, "\n],\"failures\":[{}]}}", failures.join(","));
        out
    }
}
