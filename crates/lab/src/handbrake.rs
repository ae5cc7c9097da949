//! The performance handbrake: flow control on top of TCP that waits, in the simulator.
//!
//! A sender that may have `W` bytes unacknowledged has at most `W` in the air for each round trip: it uses
//! `W / (rate x RTT)` of the link, whatever the link could carry. Each way of waiting that was ever
//! shipped is run here over the same links, and set beside that formula.

use std::time::Duration;

use fullbore_base::Rate;
use fullbore_sftp::client as sftp;
use fullbore_ssh::connection::ConnectionConfig;

use crate::report::{Axis, Plot, Section, Series, Table};
use crate::simulated::{Get, Path, Policy, Run, xmodem};

/// How much a sender may have on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Xmodem's block and acknowledgement.
    Xmodem,
    /// One SFTP request of so many bytes, then its reply.
    OneRequest(u32),
    /// A channel window of so many bytes, with as many requests as fit.
    Window(u32),
    /// A window that is as good as none, and the whole file asked for at once: cryptlib's way.
    WholeFile,
    /// What this project ships.
    Adaptive,
}

impl Way {
    /// Its name in the tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Xmodem => "128 B blocks (Xmodem)".to_owned(),
            Self::OneRequest(bytes) => format!("{} KiB, one at a time", bytes / 1024),
            Self::Window(bytes) => format!("{} MiB window", bytes >> 20),
            Self::WholeFile => "INT_MAX window, whole file".to_owned(),
            Self::Adaptive => "adaptive".to_owned(),
        }
    }

    /// Bytes that it lets be on their way; `None` is no limit.
    #[must_use]
    pub const fn window(self) -> Option<u64> {
        match self {
            Self::Xmodem => Some(xmodem::BLOCK_BYTES),
            Self::OneRequest(bytes) | Self::Window(bytes) => Some(bytes as u64),
            Self::WholeFile | Self::Adaptive => None,
        }
    }

    /// Sends `bytes` over `path` in this way.
    #[must_use]
    pub fn run(self, path: &Path, bytes: u64, seed: u64) -> Run {
        let (policy, outstanding) = match self {
            Self::Xmodem => return xmodem::run(path, bytes),
            Self::OneRequest(_) => (Policy::Fixed(INT_MAX), Some(1)),
            Self::Window(window) => (Policy::Fixed(window), Some(u64::MAX)),
            Self::WholeFile => (Policy::Fixed(INT_MAX), Some(u64::MAX)),
            Self::Adaptive => (Policy::Adaptive, None),
        };
        let mut sftp = sftp::Config::default();
        if let Self::OneRequest(len) = self {
            sftp.request_len_max = len;
        }
        if let Some(outstanding) = outstanding {
            sftp.outstanding_bytes_max = outstanding;
        }
        let connection: ConnectionConfig = policy.connection();
        let get = Get {
            path: *path,
            bytes,
            connection,
            sftp,
            seed,
        };
        get.run()
    }
}

/// The largest window that all peers take; one more breaks some.
const INT_MAX: u32 = 0x7fff_ffff;

/// The ways, the oldest first.
pub const WAYS: [Way; 7] = [
    Way::Xmodem,
    Way::OneRequest(4 * 1024),
    Way::OneRequest(16 * 1024),
    Way::OneRequest(32 * 1024),
    Way::Window(2 << 20),
    Way::WholeFile,
    Way::Adaptive,
];

/// A T1 line over a satellite, where it was first measured.
#[must_use]
pub const fn t1() -> Path {
    Path {
        rtt: Duration::from_millis(500),
        rate: Rate::from_bits_per_sec(1_544_000),
    }
}

/// The links: the T1, and those of today.
#[must_use]
pub const fn paths() -> [Path; 4] {
    [
        t1(),
        Path::new(320, 10),
        Path::new(320, 200),
        Path::new(1000, 100),
    ]
}

/// What is sent: for most ways so much that the start does not count, for the slow ones what they get
/// through in a while.
fn bytes_for(way: Way, path: &Path) -> u64 {
    let by_path = (path.rate.bytes_per_sec() * FULL_SECONDS).min(BYTES_MAX);
    match way.window() {
        None => by_path,
        Some(window) => {
            let rounds =
                FULL_SECONDS * 1_000_000_000 / u64::try_from(path.rtt.as_nanos()).unwrap_or(1);
            by_path.min(window * rounds.max(ROUNDS_MIN))
        }
    }
}

/// Seconds at the full rate that a transfer would take.
const FULL_SECONDS: u64 = 8;
/// Bytes of a transfer at most.
const BYTES_MAX: u64 = 256 << 20;
/// Round trips that a way with a window is run for at least.
const ROUNDS_MIN: u64 = 40;

/// One way over one link.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The way.
    pub way: Way,
    /// The link.
    pub path: Path,
    /// `W / (rate x RTT)`, at most 1.
    pub formula: f64,
    /// The same with the time that the bytes themselves take on the link.
    pub formula_with_sending: f64,
    /// What the engines did.
    pub run: Run,
}

impl Cell {
    fn new(way: Way, path: Path, run: Run) -> Self {
        let (formula, formula_with_sending) = match way.window() {
            None => (1.0, 1.0),
            Some(window) => formulas(window, &path, way),
        };
        Self {
            way,
            path,
            formula,
            formula_with_sending,
            run,
        }
    }

    /// The part of the link that was used, once started.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.run.utilisation(&self.path)
    }
}

/// 16 KiB on a T1 with 500 ms: 16,384 / 96,500 = 17%; a block that waits for its reply takes its own 85 ms
/// as well: 16,384 / (96,500 + 16,384) = 14.5%.
fn formulas(window: u64, path: &Path, way: Way) -> (f64, f64) {
    let (window, bdp) = (window as f64, path.bdp() as f64);
    let plain = (window / bdp).min(1.0);
    let with_sending = match way {
        Way::Xmodem | Way::OneRequest(_) => window / (bdp + window),
        // A window slides: its bytes are sent while others are under way.
        Way::Window(_) | Way::WholeFile | Way::Adaptive => plain,
    };
    (plain, with_sending)
}

/// Runs every way over every link; `tell` hears of each.
pub fn run(seed: u64, tell: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let mut cells = Vec::new();
    for path in paths() {
        for way in WAYS {
            tell(&format!("{}: {}", path.label(), way.name()));
            let run = way.run(&path, bytes_for(way, &path), seed);
            cells.push(Cell::new(way, path, run));
        }
    }
    cells
}

/// The figures as a part of a report.
#[must_use]
pub fn section(cells: &[Cell]) -> Section {
    let mut section = Section::new("Handbrake: waiting on top of TCP");
    section.text = vec![
        "One file over a simulated link, in each way of waiting that was ever shipped. What may be \
         unacknowledged at once, W, is all that a round trip carries: W / (rate x RTT) of the link. A request \
         that waits for its reply also waits for its own bytes to be sent, which the second figure counts."
            .to_owned(),
        "The engines are those that this program ships, on a virtual clock; only Xmodem is written for \
         the purpose."
            .to_owned(),
    ];
    for path in paths() {
        let of_path: Vec<&Cell> = cells.iter().filter(|cell| cell.path == path).collect();
        section.tables.push(table(&path, &of_path));
    }
    section.plots = vec![utilisation_plot(cells), rate_plot(cells)];
    section
}

fn table(path: &Path, cells: &[&Cell]) -> Table {
    let mut table = Table::new(
        path.label(),
        &["way", "W/(rate x RTT)", "with sending", "measured", "KB/s"],
    );
    for cell in cells {
        let limit = |value: f64| match cell.way.window() {
            None => "-".to_owned(),
            Some(_) => percent(value),
        };
        table.push(vec![
            cell.way.name(),
            limit(cell.formula),
            limit(cell.formula_with_sending),
            match &cell.run.error {
                Some(error) => error.clone(),
                None => percent(cell.utilisation()),
            },
            digits(cell.run.steady_rate() / 1e3),
        ]);
    }
    table
}

/// At least two digits that say something.
fn percent(part: f64) -> String {
    format!("{}%", digits(part * 100.0))
}

/// 118, 17, 4.2, 0.13, 0.0016.
fn digits(value: f64) -> String {
    if value >= 9.95 {
        return format!("{value:.0}");
    }
    let leading_zeros = (-value.max(1e-9).log10()).ceil().max(0.0);
    // At most nine, by the bound above.
    let decimals = 1 + leading_zeros as usize;
    format!("{value:.decimals$}")
}

fn utilisation_plot(cells: &[Cell]) -> Plot {
    let series = WAYS.iter().map(|&way| {
        let of_way = cells.iter().filter(|cell| cell.way == way);
        let mut points: Vec<(f64, f64)> = of_way
            .map(|cell| (cell.path.bdp() as f64 / 1e6, cell.utilisation() * 100.0))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series {
            name: way.name(),
            points,
        }
    });
    Plot {
        title: "Part of the link that is used, by what fits on it".to_owned(),
        x: Axis::log("bandwidth x delay, MB"),
        y: Axis::linear("% of the link"),
        series: series.collect(),
    }
}

fn rate_plot(cells: &[Cell]) -> Plot {
    let path = Path::new(320, 200);
    let of_path = cells.iter().filter(|cell| cell.path == path);
    let series = of_path.map(|cell| Series {
        name: cell.way.name(),
        points: scaled(cell.run.rates()),
    });
    Plot {
        title: format!("{}: rate over time", path.label()),
        x: Axis::linear("seconds"),
        y: Axis::linear("MB/s"),
        series: series.collect(),
    }
}

fn scaled(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.into_iter().map(|(x, y)| (x, y / 1e6)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_gives_the_figures_of_the_report_of_2003() {
        let (sixteen, _) = formulas(16 * 1024, &t1(), Way::OneRequest(16 * 1024));
        let (four, _) = formulas(4 * 1024, &t1(), Way::OneRequest(4 * 1024));
        assert_eq!(
            (percent(sixteen), percent(four)),
            ("17%".into(), "4.2%".into())
        );
    }

    #[test]
    fn figures_keep_two_digits_that_say_something() {
        let shown = [1234.5, 17.2, 4.24, 0.133, 0.0016, 0.0].map(digits);
        assert_eq!(shown[..5], ["1234", "17", "4.2", "0.13", "0.0016"]);
        assert!(shown[5].starts_with("0.0"));
    }

    #[test]
    fn what_the_engines_do_is_what_the_formula_says() {
        for way in [
            Way::Xmodem,
            Way::OneRequest(4 * 1024),
            Way::OneRequest(16 * 1024),
        ] {
            let run = way.run(&t1(), way.window().expect("a limit") * 100, 1);
            let cell = Cell::new(way, t1(), run);
            let ratio = cell.utilisation() / cell.formula_with_sending;
            assert!((0.95..=1.04).contains(&ratio), "{}: {ratio}", way.name());
        }
        let path = Path::new(320, 200);
        let way = Way::Window(2 << 20);
        let cell = Cell::new(way, path, way.run(&path, 24 << 20, 1));
        let ratio = cell.utilisation() / cell.formula;
        assert!((0.9..=1.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn without_a_limit_the_link_is_full() {
        let path = Path::new(100, 100);
        for way in [Way::WholeFile, Way::Adaptive] {
            let cell = Cell::new(way, path, way.run(&path, 40 << 20, 1));
            assert!(
                cell.utilisation() > 0.97,
                "{}: {}",
                way.name(),
                cell.utilisation()
            );
        }
    }
}
