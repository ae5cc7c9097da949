//! An SFTP server whose input queue costs more the longer it is: uploads of small WRITEs with and
//! without a cap on what is unanswered, and a burst of READs whose replies are held back.
//!
//! OpenSSH bug 4052: the whole queue is copied at each growth, so that an upload without a cap takes time
//! with the square of its size.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_sftp::proto::OpenFlags;

use crate::driver::sftp_peer::{self, Cost, SftpPeer};
use crate::report::{Axis, Plot, Section, Series, Table};

/// Bytes of a WRITE: PuTTY's.
const WRITE_BYTES: u32 = 4096;

/// What a client with a cap leaves unanswered.
const CAP_BYTES: u64 = 1 << 20;

/// Bytes of a READ: everybody's.
const READ_BYTES: u32 = 32 * 1024;

/// How long the replies to the burst are left unread.
const HOLD: Duration = Duration::from_secs(2);

/// A server that takes longer for one size is not asked for a larger one.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server program to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// How it is called in the tables.
    pub name: String,
    /// The program and its arguments; it speaks SFTP on standard input and output.
    pub command: Vec<OsString>,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers, one after the other for each size.
    pub servers: Vec<Server>,
    /// MiB of the uploads, ascending.
    pub sizes_mib: Vec<u64>,
    /// MiB of the READ burst.
    pub burst_mib: u64,
    /// Runs of each; the median counts.
    pub rounds: usize,
    /// Where the files go, and are removed from.
    pub folder: PathBuf,
}

/// One server and size.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The server's name.
    pub server: String,
    /// MiB of the upload.
    pub mib: u64,
    /// With 1 MiB unanswered at most.
    pub capped: Cost,
    /// Without a cap.
    pub free: Cost,
}

/// One server's READ burst.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    /// The server's name.
    pub server: String,
    /// MiB asked for.
    pub mib: u64,
    /// What it cost, the time of holding back not counted.
    pub cost: Cost,
}

/// All figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Uploads.
    pub rows: Vec<Row>,
    /// Bursts.
    pub bursts: Vec<Burst>,
    /// Servers that failed, and why.
    pub failures: Vec<String>,
}

/// Runs everything; `tell` hears of each step.
///
/// # Errors
/// When the folder cannot be used.
pub fn run(options: &Options, tell: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let target = options.folder.join("backlog-target");
    for server in &options.servers {
        for &mib in &options.sizes_mib {
            tell(&format!("{}: {mib} MiB", server.name));
            let pair = pair(options, server, &target, mib);
            remove(&target)?;
            match pair {
                Ok((capped, free)) => outcome.rows.push(Row {
                    server: server.name.clone(),
                    mib,
                    capped,
                    free,
                }),
                Err(error) => {
                    outcome.failures.push(format!("{}: {error}", server.name));
                    break;
                }
            }
            if outcome
                .rows
                .last()
                .is_some_and(|row| row.free.wall > PATIENCE)
            {
                break;
            }
        }
    }
    bursts(options, &mut outcome, tell)?;
    Ok(outcome)
}

fn bursts(options: &Options, outcome: &mut Outcome, tell: &mut dyn FnMut(&str)) -> io::Result<()> {
    let source = options.folder.join("backlog-source");
    sftp_peer::make_file(&source, options.burst_mib)?;
    for server in &options.servers {
        tell(&format!("{}: burst of READs", server.name));
        let cost = SftpPeer::open(&server.command, &source, OpenFlags::READ)
            .and_then(|mut peer| peer.read_burst(options.burst_mib, READ_BYTES, HOLD));
        match cost {
            Ok(cost) => outcome.bursts.push(Burst {
                server: server.name.clone(),
                mib: options.burst_mib,
                cost,
            }),
            Err(error) => outcome.failures.push(format!("{}: {error}", server.name)),
        }
    }
    remove(&source)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Medians with and without a cap, the two in turn.
fn pair(options: &Options, server: &Server, target: &Path, mib: u64) -> io::Result<(Cost, Cost)> {
    let (mut capped, mut free) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds.max(1) {
        capped.push(upload(server, target, mib, Some(CAP_BYTES))?);
        free.push(upload(server, target, mib, None)?);
        if free.last().is_some_and(|cost| cost.wall > PATIENCE) {
            break;
        }
    }
    Ok((median(capped), median(free)))
}

fn upload(server: &Server, target: &Path, mib: u64, cap: Option<u64>) -> io::Result<Cost> {
    let flags = OpenFlags::WRITE
        .with(OpenFlags::CREAT)
        .with(OpenFlags::TRUNC);
    let mut peer = SftpPeer::open(&server.command, target, flags)?;
    let cost = peer.write(mib, WRITE_BYTES, cap)?;
    if sftp_peer::is_right(target, mib)? {
        Ok(cost)
    } else {
        Err(io::Error::other("what was written is not what is there"))
    }
}

/// The run of median wall time, with the highest peak of all.
fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by_key(|cost| cost.wall);
    let peak_bytes = costs.iter().map(|cost| cost.peak_bytes).max();
    Cost {
        peak_bytes: peak_bytes.unwrap_or(0),
        ..costs[costs.len() / 2]
    }
}

impl Outcome {
    /// The figures as a part of a report.
    #[must_use]
    pub fn section(&self) -> Section {
        let mut section = Section::new("Backlog: a queue whose cost grows with what is queued");
        section.text = vec![
            format!(
                "An SFTP server over a socketpair, no network and no SSH. Uploads in WRITEs of \
                 {WRITE_BYTES} bytes, once with at most 1 MiB unanswered and once without a cap, as \
                 PuTTY's pscp sends them. A server that copies its queue when it grows needs time with the \
                 square of the size; one with a bounded queue does not notice."
            ),
            "All content was compared with what was sent.".to_owned(),
        ];
        section.text.extend(self.failures.iter().cloned());
        section.tables = vec![self.uploads(), self.burst_table()];
        section.plots = vec![self.plot()];
        section
    }

    fn uploads(&self) -> Table {
        let mut table = Table::new(
            "Uploads: seconds with a cap of 1 MiB and without, server CPU, peak memory",
            &[
                "server",
                "MiB",
                "cap s",
                "no cap s",
                "ratio",
                "ms/MiB",
                "CPU ms/MiB",
                "peak MiB",
            ],
        );
        for row in &self.rows {
            let (capped, free) = (row.capped.wall.as_secs_f64(), row.free.wall.as_secs_f64());
            table.push(vec![
                row.server.clone(),
                row.mib.to_string(),
                format!("{capped:.3}"),
                format!("{free:.3}"),
                format!("{:.2}", free / capped.max(1e-9)),
                format!("{:.2}", free * 1e3 / row.mib as f64),
                format!("{:.2}", row.free.cpu.as_secs_f64() * 1e3 / row.mib as f64),
                format!("{:.1}", mib(row.free.peak_bytes)),
            ]);
        }
        table
    }

    fn burst_table(&self) -> Table {
        let mut table = Table::new(
            "A burst of READs of 32 KiB, all sent before a reply is read, which waits 2 s: seconds \
             after that",
            &["server", "MiB", "s", "CPU s", "peak MiB"],
        );
        for burst in &self.bursts {
            table.push(vec![
                burst.server.clone(),
                burst.mib.to_string(),
                format!("{:.3}", burst.cost.wall.as_secs_f64()),
                format!("{:.3}", burst.cost.cpu.as_secs_f64()),
                format!("{:.1}", mib(burst.cost.peak_bytes)),
            ]);
        }
        table
    }

    fn plot(&self) -> Plot {
        let mut series: Vec<Series> = Vec::new();
        for (label, of) in [
            ("cap", (|row: &Row| row.capped.wall) as fn(&Row) -> Duration),
            ("no cap", |row: &Row| row.free.wall),
        ] {
            for row in &self.rows {
                let name = format!("{}, {label}", row.server);
                let point = (row.mib as f64, of(row).as_secs_f64());
                match series.iter_mut().find(|series| series.name == name) {
                    Some(series) => series.points.push(point),
                    None => series.push(Series {
                        name,
                        points: vec![point],
                    }),
                }
            }
        }
        Plot {
            title: "Upload of 4 KiB writes: time by size".to_owned(),
            x: Axis::log("MiB"),
            y: Axis::log("seconds"),
            series,
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(ms: u64, peak_bytes: u64) -> Cost {
        Cost {
            wall: Duration::from_millis(ms),
            cpu: Duration::from_millis(ms / 2),
            peak_bytes,
        }
    }

    #[test]
    fn the_median_run_counts_with_the_highest_peak() {
        let costs = vec![cost(30, 1), cost(10, 9), cost(20, 2)];
        assert_eq!(
            median(costs),
            Cost {
                peak_bytes: 9,
                ..cost(20, 2)
            }
        );
    }

    #[test]
    fn a_section_has_a_line_for_each_server_with_and_without_a_cap() {
        let row = |server: &str, mib, free| Row {
            server: server.to_owned(),
            mib,
            capped: cost(100, 1 << 20),
            free: cost(free, 2 << 20),
        };
        let outcome = Outcome {
            rows: vec![row("a", 8, 100), row("a", 16, 200), row("b", 8, 900)],
            ..Outcome::default()
        };
        let section = outcome.section();
        assert_eq!(section.plots[0].series.len(), 4);
        assert_eq!(section.tables[0].rows().len(), 3);
        let text = section.to_text();
        assert!(text.contains("9.00") && text.contains("12.50"), "{text}");
    }

    #[test]
    fn a_program_that_is_no_server_is_a_failure_and_not_the_end() {
        let folder = fullbore_testkit::Folder::new("backlog");
        let options = Options {
            servers: vec![Server {
                name: "none".to_owned(),
                command: vec!["/bin/true".into()],
            }],
            sizes_mib: vec![1, 2],
            burst_mib: 1,
            rounds: 1,
            folder: folder.0.clone(),
        };
        let outcome = run(&options, &mut |_| {}).expect("the folder is there");
        assert!(outcome.rows.is_empty());
        assert_eq!(outcome.failures.len(), 2, "{:?}", outcome.failures);
        assert!(!folder.file("backlog-source").exists());
    }
}
