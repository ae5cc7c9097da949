//! Whole copies, planner and client and server, over long paths in virtual time: minutes on the link
//! are milliseconds here. What ships runs unchanged; only the socket and the clock are simulated.

#![allow(clippy::unwrap_used)]

mod simulated;
mod support;

use std::fs;
use std::time::Duration;

use fullbore::client::{Connection, connect_over};
use fullbore::driver::clock::Clock;
use fullbore::driver::local::LocalSide;
use fullbore::driver::stream::Stream;
use fullbore::transfer::{Options, Run, SftpSide, Silent, Summary};
use fullbore_base::Rate;
use fullbore_ssh::config::ServerConfig;

use simulated::stream::SimulatedStream;
use simulated::{Files, ServerEnd, in_virtual_time};
use support::{Folder, Script, bytes, context, host, make_key};

/// A server that serves `root` of the folder behind a path, and a client that is logged in there.
async fn connected(folder: &Folder, rtt: Duration, rate: Rate) -> (Connection, Clock) {
    make_key(folder, "user");
    let context = context(&Script::default());
    let clock = context.clock;
    let server = ServerEnd::new(ServerConfig::default(), 1, Files::new(&folder.file("root")));
    let stream = SimulatedStream::new(clock, rtt, rate, server);
    let stream = Stream::Tunnel(Box::new(stream));
    let host = host(folder, 22, &[]);
    let connection = connect_over(&host, &context, stream).await.unwrap();
    (connection, clock)
}

/// Copies `source` of the folder into or out of what is served; how long that took, login not counted.
async fn copy(
    folder: &Folder,
    (connection, clock): &(Connection, Clock),
    is_up: bool,
    options: Options,
) -> (Summary, Duration) {
    let begun = clock.now();
    let sftp = connection.open_sftp().await.unwrap();
    let local = LocalSide::new();
    let remote = SftpSide::new(sftp, "far:");
    let here = |name: &str| folder.at(name).into_bytes();
    let summary = if is_up {
        let run = Run::new(&remote, b"/", true, options, &Silent).await;
        let run = run.unwrap();
        run.copy_from(&local, &[here("source")]).await;
        run.summary()
    } else {
        let run = Run::new(&local, &here("back"), true, options, &Silent).await;
        let run = run.unwrap();
        run.copy_from(&remote, &[b"/source".to_vec()]).await;
        run.summary()
    };
    (summary, clock.now() - begun)
}

fn place(name: &str) -> Folder {
    let folder = Folder::new(name);
    fs::create_dir(folder.file("root")).unwrap();
    fs::create_dir(folder.file("back")).unwrap();
    folder
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_large_file_fills_a_long_path_both_ways() {
    const BYTES: usize = 96 << 20;
    let folder = place("virtual-large");
    let content = bytes(BYTES);
    folder.write("source", &content);
    let rate = Rate::from_bits_per_sec(320_000_000);
    in_virtual_time(async {
        let far = connected(&folder, MS * 200, rate).await;
        for is_up in [true, false] {
            let (summary, time) = copy(&folder, &far, is_up, Options::default()).await;
            assert!(summary.is_success());
            assert_eq!(summary.bytes, BYTES as u64);
            // The link alone needs 2.5 s; a window of 2 MiB would take 9.6 s.
            let link = rate.time_for(BYTES as u64);
            let limit = link + MS * 200 * ROUND_TRIPS_TO_START;
            assert!(time < limit, "up {is_up}: {time:?} of at most {limit:?}");
        }
    });
    assert!(fs::read(folder.file("root/source")).unwrap() == content);
    assert!(fs::read(folder.file("back/source")).unwrap() == content);
}

/// Round trips that a copy may take beside the time that its bytes need: to open and look, to find out
/// how much the path carries, to close and rename.
const ROUND_TRIPS_TO_START: u32 = 12;

#[test]
fn small_files_cost_bandwidth_and_not_round_trips() {
    const FILES: usize = 2_000;
    let folder = place("virtual-small");
    fs::create_dir(folder.file("source")).unwrap();
    for number in 0..FILES {
        let name = format!("source/{number}");
        folder.write(&name, &bytes(4096 + number % 7));
    }
    let rate = Rate::from_bits_per_sec(320_000_000);
    let options = Options {
        recursive: true,
        ..Options::default()
    };
    in_virtual_time(async {
        let far = connected(&folder, MS * 100, rate).await;
        for is_up in [true, false] {
            let (summary, time) = copy(&folder, &far, is_up, options.clone()).await;
            assert_eq!(summary.files, FILES as u64);
            assert!(summary.is_success());
            // One file after the other would be 2,000 times several round trips.
            let limit = MS * 100 * ROUND_TRIPS_FOR_2000_FILES;
            assert!(time < limit, "up {is_up}: {time:?} of at most {limit:?}");
        }
    });
    for number in 0..FILES {
        let (source, back) = (format!("source/{number}"), format!("back/source/{number}"));
        let source = fs::read(folder.file(&source)).unwrap();
        assert!(fs::read(folder.file(&back)).unwrap() == source, "{number}");
    }
}

/// 0.8 ms a file; tar over ssh takes 1.5.
const ROUND_TRIPS_FOR_2000_FILES: u32 = 16;
