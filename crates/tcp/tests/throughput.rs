//! How much of a link each algorithm fills: a table of rounded percentages that is kept.
//!
//! A change of the table is a change of behaviour. After one that is meant, the new table is what
//! the failing test prints.

mod support;

use fullbore_base::Rate;
use fullbore_sim::{Chance, LinkConfig, QueueConfig, Stop};
use fullbore_tcp::congestion::{Algorithm, Settings};
use fullbore_tcp::connection::Config;
use std::fmt::Write;
use support::{Host, Job, MS, World, link};

/// A path: name, round trip, rate in Mbit/s, loss per million, queue in products of both.
const PATHS: &[(&str, u32, u64, u32, f64)] = &[
    ("clean, deep queue", 50, 10, 0, 2.0),
    ("clean, short queue", 50, 10, 0, 0.25),
    ("long", 200, 10, 0, 1.0),
    ("0.1% loss", 50, 10, 1000, 1.0),
    ("1% loss", 100, 10, 10_000, 1.0),
    ("2% loss", 200, 10, 20_000, 1.0),
    ("5% loss", 50, 10, 50_000, 1.0),
];

/// The last one is told that its path loses at random.
const SETTINGS: [(Algorithm, u8); 4] = [
    (Algorithm::Reno, 2),
    (Algorithm::Cubic, 2),
    (Algorithm::Bbr, 2),
    (Algorithm::Bbr, 5),
];

/// How long each transfer runs, in round trips.
const ROUND_TRIPS: u32 = 150;

struct Measured {
    percent: u64,
    retransmitted_percent: u64,
    timeouts: u64,
}

fn measure(congestion: Settings, path: &(&str, u32, u64, u32, f64)) -> Measured {
    let &(_, rtt_ms, mbit, loss, queue) = path;
    let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
    let bdp = rate.bytes_per_sec() as f64 * f64::from(rtt_ms) / 1000.0;
    let mut there = link(MS * rtt_ms / 2, mbit);
    there.queue = QueueConfig::TailDrop {
        bytes_max: (bdp * queue) as usize + 3000,
    };
    there.faults.loss = Chance::per_million(loss);
    let back = LinkConfig {
        queue: QueueConfig::default(),
        ..link(MS * rtt_ms / 2, mbit)
    };
    let config = Config {
        congestion,
        ..Config::default()
    };
    let job = Job {
        send: u64::MAX / 2,
        ..Job::default()
    };
    let client = Host::client(config, job);
    let server = Host::server(config, Job::default(), 16, 1);
    let mut world = World::new(7, client, server, there, back);
    let time = MS * rtt_ms * ROUND_TRIPS;
    assert_eq!(world.run(time, |_, _| false), Stop::Deadline);
    let carried = rate.bytes_per_sec() * u64::from(ROUND_TRIPS * rtt_ms) / 1000;
    let info = world.client().info();
    let sent = info.stats.bytes_sent.max(1);
    Measured {
        percent: world.server().read * 100 / carried,
        retransmitted_percent: info.recovery.bytes_retransmitted * 100 / sent,
        timeouts: info.recovery.timeouts,
    }
}

fn table(cells: &[[Measured; 4]]) -> String {
    let mut table = String::from(
        "goodput in percent of the link, in brackets: retransmitted bytes in percent, time-outs\n",
    );
    let _ = writeln!(
        table,
        "{:<20}{:>16}{:>16}{:>16}{:>16}",
        "", "Reno", "Cubic", "BBR, 2%", "BBR, 5%"
    );
    for (path, row) in PATHS.iter().zip(cells) {
        let _ = write!(table, "{:<20}", path.0);
        for measured in row {
            let cell = format!(
                "{} ({}, {})",
                measured.percent, measured.retransmitted_percent, measured.timeouts
            );
            let _ = write!(table, "{cell:>16}");
        }
        table.push('\n');
    }
    table
}

#[test]
fn each_algorithm_fills_what_it_did() {
    let row = |path| {
        SETTINGS.map(|(algorithm, loss_percent)| {
            let settings = Settings {
                algorithm,
                loss_percent,
                seed: 0,
            };
            measure(settings, path)
        })
    };
    let cells: Vec<[Measured; 4]> = PATHS.iter().map(row).collect();
    let now = table(&cells);
    // What matters of the table, said as floors.
    for clean in &cells[0] {
        assert!(clean.percent >= 85 && clean.timeouts == 0, "\n{now}");
    }
    let [reno, _, bbr, _] = &cells[4];
    assert!(
        bbr.percent >= 70 && bbr.percent >= 4 * reno.percent,
        "\n{now}"
    );
    assert!(cells[5][3].percent >= 75, "\n{now}");
    let snapshot = include_str!("snapshots/throughput.txt");
    assert!(now == snapshot, "the table is now:\n{now}");
}
