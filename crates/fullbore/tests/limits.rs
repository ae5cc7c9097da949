//! Situations built on purpose: what limits is named right, by what ships, over long paths in virtual
//! time and on slow disks. Those that need a kernel's TCP are in `interop/cases_limits.py`.

#![allow(clippy::unwrap_used)]

mod simulated;
mod support;

use std::io::{self, IoSliceMut};
use std::rc::Rc;
use std::time::Duration;

use fullbore::client::{Connection, Sftp, connect, connect_over};
use fullbore::driver::budget::WindowBudget;
use fullbore::driver::clock::Clock;
use fullbore::driver::stream::Stream;
use fullbore::path::{Limit, LimitKind};
use fullbore::transfer::{FileIo, Span};
use fullbore_base::{Instant, Rate};
use fullbore_sftp::proto::{Attrs, OpenFlags};
use fullbore_sim::Endpoint;
use fullbore_ssh::config::ServerConfig;
use fullbore_testkit::device;

use simulated::stream::SimulatedStream;
use simulated::{Files, ServerEnd, in_virtual_time};
use support::{Folder, OurServer, Script, bytes, context, host, make_key, run};

const MS: Duration = Duration::from_millis(1);
const MIB: usize = 1 << 20;

fn place(name: &str) -> Folder {
    let folder = Folder::new(name);
    std::fs::create_dir(folder.file("root")).unwrap();
    folder
}

/// The path of one situation.
struct Far {
    rtt: Duration,
    rate: Rate,
    config: ServerConfig,
    /// When the far end stops doing anything at all.
    dies_at: Instant,
}

impl Default for Far {
    fn default() -> Self {
        Self {
            rtt: MS * 200,
            rate: Rate::from_bits_per_sec(320_000_000),
            config: ServerConfig::default(),
            dies_at: Instant::from_nanos(u64::MAX),
        }
    }
}

impl Far {
    /// A client that is logged in at a server at this path's end.
    async fn connected(self, folder: &Folder) -> Connection {
        make_key(folder, "user");
        let mut context = context(&Script::default());
        context.clock = Clock::start_virtual();
        let server = ServerEnd::new(self.config, 1, Files::new(&folder.file("root")));
        let server = Mortal {
            end: server,
            dies_at: self.dies_at,
        };
        let stream = SimulatedStream::new(context.clock, self.rtt, self.rate, server);
        let stream = Stream::Tunnel(Box::new(stream));
        let host = host(folder, 22, &[]);
        connect_over(&host, &context, stream).await.unwrap()
    }
}

/// A far end that stops: what arrives stays where it is, and nothing comes back.
struct Mortal<E> {
    end: E,
    dies_at: Instant,
}

impl<E: Endpoint> Endpoint for Mortal<E> {
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize {
        match now < self.dies_at {
            true => self.end.handle_input(now, bytes),
            false => 0,
        }
    }

    fn handle_eof(&mut self, now: Instant) {
        self.end.handle_eof(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if now < self.dies_at {
            self.end.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.end.poll_timeout().filter(|at| *at < self.dies_at)
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        if now < self.dies_at {
            self.end.poll_transmit(now, room, out);
        }
    }

    fn is_closed(&self) -> bool {
        self.end.is_closed()
    }
}

/// Zeros without an end; each call may take its time.
#[derive(Default)]
struct Content {
    read: Duration,
    write: Duration,
}

impl FileIo for Content {
    fn read_at(&self, _: u64, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        device::seek(self.read);
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        device::seek(self.write);
        Ok(())
    }
}

fn span(len: usize) -> Span {
    Span {
        offset: 0,
        size_hint: len as u64,
        end_max: Some(len as u64),
    }
}

async fn upload(sftp: &Sftp, len: usize, content: Content) {
    let flags = OpenFlags::WRITE.with(OpenFlags::CREAT);
    let handle = sftp.open(b"/file", flags, &Attrs::EMPTY).await.unwrap();
    let done = sftp.put(&handle, Rc::new(content), span(len), |_| {}).await;
    assert!(done.unwrap().error.is_none());
}

async fn download(sftp: &Sftp, len: usize, content: Content) {
    let handle = sftp.open(b"/source", OpenFlags::READ, &Attrs::EMPTY).await;
    let done = sftp
        .get(&handle.unwrap(), Rc::new(content), span(len), |_| {})
        .await;
    assert!(done.unwrap().error.is_none());
}

/// What limited for at least `share` thousandths of the time.
fn named(connection: &Connection, share: u16) -> Limit {
    let totals = connection.path_totals();
    let first = totals.first();
    let (limit, held) = first.unwrap_or_else(|| panic!("nothing was measured"));
    assert!(held >= share, "{:?}", totals.ranking());
    limit
}

/// Within a fifth of what the arithmetic says: an interval holds some four windows, one more or less.
fn assert_rate(limit: &Limit, wanted: f64) {
    let evidence = limit.evidence();
    let found = evidence.iter().find(|(key, _)| *key == "bytes_per_second");
    let Some((_, fullbore::path::Evidence::Count(rate))) = found else {
        panic!("no rate in {evidence:?}");
    };
    let is_near = (*rate as f64 - wanted).abs() < wanted * 0.2;
    assert!(is_near, "{rate} B/s, not {wanted}");
}

#[test]
fn a_fixed_window_of_the_server_s_is_named_with_its_size() {
    let folder = place("limit-window");
    let mut far = Far::default();
    far.config.connection.local_window = Some(2 << 20);
    in_virtual_time(async {
        let connection = far.connected(&folder).await;
        let sftp = connection.open_sftp().await.unwrap();
        upload(&sftp, 40 * MIB, Content::default()).await;
        let limit = named(&connection, 700);
        let Limit::PeerWindow { window, lanes, .. } = limit else {
            panic!("{limit}");
        };
        assert_eq!((window, lanes), (2 << 20, 1));
        assert_rate(&limit, 2.0 * MIB as f64 / 0.2);
    });
}

#[test]
fn fixed_windows_on_four_channels_are_named_together() {
    let folder = place("limit-windows");
    let mut far = Far::default();
    far.config.connection.local_window = Some(1 << 20);
    in_virtual_time(async {
        let connection = far.connected(&folder).await;
        let mut lanes = Vec::new();
        for _ in 0..4 {
            lanes.push(connection.open_sftp().await.unwrap());
        }
        let put = |i: usize| upload(&lanes[i], 12 * MIB, Content::default());
        tokio::join!(put(0), put(1), put(2), put(3));
        let limit = named(&connection, 600);
        let Limit::PeerWindow { window, lanes, .. } = limit else {
            panic!("{limit}");
        };
        assert_eq!((window, lanes), (4 << 20, 4));
        assert_rate(&limit, 4.0 * MIB as f64 / 0.2);
    });
}

#[test]
fn no_window_limits_where_the_server_s_follows_the_path() {
    let folder = place("limit-path");
    in_virtual_time(async {
        let far = Far {
            rate: Rate::from_bits_per_sec(80_000_000),
            ..Far::default()
        };
        let connection = far.connected(&folder).await;
        let sftp = connection.open_sftp().await.unwrap();
        upload(&sftp, 60 * MIB, Content::default()).await;
        let limit = named(&connection, 600);
        assert_eq!(limit.kind(), LimitKind::TcpCongestion, "{limit}");
        assert_rate(&limit, 10e6);
    });
}

#[test]
fn our_own_share_of_credit_is_named() {
    let folder = place("limit-budget");
    folder.write("root/source", &bytes(16 * MIB));
    // Of the whole process: one connection gets the least that each can count on, which the path holds
    // several times.
    let budget = WindowBudget::of_process();
    let before = budget.bytes();
    budget.set_bytes(4 << 20);
    in_virtual_time(async {
        let far = Far {
            rate: Rate::from_bits_per_sec(1_000_000_000),
            ..Far::default()
        };
        let connection = far.connected(&folder).await;
        let sftp = connection.open_sftp().await.unwrap();
        download(&sftp, 16 * MIB, Content::default()).await;
        let limit = named(&connection, 600);
        let Limit::CreditBudget {
            window,
            is_budget_spent,
            ..
        } = limit
        else {
            panic!("{limit}");
        };
        assert!(window <= 4 << 20, "{window}");
        assert!(is_budget_spent);
    });
    budget.set_bytes(before);
}

#[test]
fn few_requests_in_flight_are_named_both_ways() {
    let folder = place("limit-requests");
    folder.write("root/source", &bytes(8 * MIB));
    for is_up in [true, false] {
        in_virtual_time(async {
            let connection = Far::default().connected(&folder).await;
            let sftp = connection.open_sftp().await.unwrap();
            sftp.set_outstanding_bytes_max(512 * 1024);
            match is_up {
                true => upload(&sftp, 8 * MIB, Content::default()).await,
                false => download(&sftp, 8 * MIB, Content::default()).await,
            }
            let limit = named(&connection, 700);
            assert_eq!(limit.kind(), LimitKind::RequestsOutstanding, "{limit}");
        });
    }
}

#[test]
fn one_question_after_the_other_is_limited_by_requests() {
    let folder = place("limit-trips");
    in_virtual_time(async {
        let connection = Far::default().connected(&folder).await;
        let sftp = connection.open_sftp().await.unwrap();
        for _ in 0..20 {
            sftp.stat(b"/").await.unwrap();
        }
        let limit = named(&connection, 900);
        assert_eq!(limit.kind(), LimitKind::RequestsOutstanding, "{limit}");
        assert!(limit.to_string().starts_with("round trips"), "{limit}");
    });
}

#[test]
fn the_rate_that_was_chosen_is_named() {
    let folder = place("limit-rate");
    folder.write("root/source", &bytes(4 * MIB));
    for is_up in [true, false] {
        in_virtual_time(async {
            let connection = Far::default().connected(&folder).await;
            connection.limit_rate(8_000);
            let sftp = connection.open_sftp().await.unwrap();
            match is_up {
                true => upload(&sftp, 4 * MIB, Content::default()).await,
                false => download(&sftp, 4 * MIB, Content::default()).await,
            }
            let limit = named(&connection, 800);
            assert_eq!(limit, Limit::RateLimit { rate: 1_000_000 });
        });
    }
}

#[test]
fn a_server_that_falls_silent_is_named() {
    let folder = place("limit-silent");
    for is_up in [true, false] {
        folder.write("root/source", &bytes(32 * MIB));
        in_virtual_time(async {
            let far = Far {
                dies_at: Instant::ZERO + Duration::from_secs(2),
                ..Far::default()
            };
            let connection = far.connected(&folder).await;
            let sftp = connection.open_sftp().await.unwrap();
            let work = async {
                match is_up {
                    true => upload(&sftp, 1024 * MIB, Content::default()).await,
                    false => download(&sftp, 32 * MIB, Content::default()).await,
                }
            };
            let ended = tokio::time::timeout(Duration::from_secs(20), work).await;
            assert!(ended.is_err(), "nothing can have ended");
            let limit = connection.path().unwrap().steady;
            let Limit::RemoteSilent { since, count } = limit else {
                panic!("{limit}");
            };
            assert!(since >= Duration::from_secs(10), "{since:?}");
            assert!(count > 0);
        });
    }
}

/// Real time and a real socket: a disk that takes 10 ms for each block.
fn on_a_slow_disk(is_up: bool) -> Limit {
    let server = OurServer::start(|_| {});
    server.folder.write("root/source", &bytes(4 * MIB));
    run(async {
        let sftp = connect(
            &host(&server.folder, server.port, &[]),
            &context(&Script::default()),
        )
        .await
        .unwrap();
        let slow = Content {
            read: MS * 20,
            write: MS * 20,
        };
        match is_up {
            true => upload(&sftp, 4 * MIB, slow).await,
            false => download(&sftp, 4 * MIB, slow).await,
        }
        sftp.connection().close().await;
        named(sftp.connection(), 400)
    })
}

#[test]
fn a_disk_that_reads_slowly_is_named() {
    let limit = on_a_slow_disk(true);
    assert_eq!(limit.kind(), LimitKind::DiskRead, "{limit}");
}

#[test]
fn a_disk_that_writes_slowly_is_named() {
    let limit = on_a_slow_disk(false);
    assert_eq!(limit.kind(), LimitKind::DiskWrite, "{limit}");
}
