//! Whole copies over simulated paths: windows and pipelines that follow the path, beside fixed ones, with
//! peers of every habit.

#![allow(clippy::unwrap_used)]

mod simulated;

use std::time::Duration;

use fullbore_base::{Instant, Rate};
use fullbore_sftp::client as sftp;
use fullbore_sim::{Pair, PairConfig, Stop};
use fullbore_ssh::config::{ClientConfig, ServerConfig};
use fullbore_ssh::msg::DisconnectReason;
use simulated::ServerEnd;
use simulated::copier::{Copier, Way};
use simulated::zeros::Zeros;

const MS: Duration = Duration::from_millis(1);
const MIB: u64 = 1 << 20;
const ENDLESS: u64 = 1 << 50;
/// What a socket holds unsent: TCP_NOTSENT_LOWAT, and what the receiver has not taken.
const SOCKET_BYTES: u64 = 512 << 10;
const DEADLINE: Instant = Instant::from_nanos(3_600_000_000_000);

type Copy = Pair<Copier, ServerEnd<Zeros>>;

#[derive(Clone, Copy, Debug)]
struct Path {
    mbit: u64,
    rtt_ms: u32,
}

impl Path {
    fn rtt(self) -> Duration {
        MS * self.rtt_ms
    }

    fn rate(self) -> Rate {
        Rate::from_bits_per_sec(self.mbit * 1_000_000)
    }

    fn bdp(self) -> u64 {
        self.mbit * 125 * u64::from(self.rtt_ms)
    }

    fn pair(self) -> PairConfig {
        PairConfig {
            seed: 1,
            delay: self.rtt() / 2,
            rate: Some(self.rate()),
            buffer_bytes_max: usize::try_from(self.bdp() + SOCKET_BYTES).unwrap(),
            // A millisecond's worth.
            segment_bytes_max: usize::try_from(self.mbit * 125).unwrap().max(1448),
            ..PairConfig::default()
        }
    }
}

fn copy(path: Path, way: Way, len: u64, fixed: Option<u32>) -> Copy {
    let (mut client, mut server) = (ClientConfig::default(), ServerConfig::default());
    client.connection.local_window = fixed;
    server.connection.local_window = fixed;
    copy_between(path, (way, len), client, server)
}

fn copy_between(path: Path, what: (Way, u64), client: ClientConfig, server: ServerConfig) -> Copy {
    let len_max = sftp::Config::default().request_len_max;
    copy_in(path, what, (client, server), len_max)
}

/// With requests of at most `len_max` bytes.
fn copy_in(
    path: Path,
    what: (Way, u64),
    (client, server): (ClientConfig, ServerConfig),
    request_len_max: u32,
) -> Copy {
    let requests = sftp::Config {
        request_len_max,
        ..sftp::Config::default()
    };
    let a = Copier::new(client, requests, 3, what);
    let zeros = Zeros {
        len: what.1,
        ..Zeros::default()
    };
    let mut pair = Pair::new(path.pair(), a, ServerEnd::new(server, 4, zeros));
    let stop = pair.run(DEADLINE, |pair| pair.a.begun.is_some(), |_| {});
    assert_eq!(stop, Stop::Done, "{:?}", pair.a.error);
    pair
}

/// Bytes of the file that have arrived.
fn arrived(pair: &Copy) -> u64 {
    match pair.a.way {
        Way::Get => pair.a.file.written,
        Way::Put => pair.b.app.written,
    }
}

/// Runs on for `time`; returns what arrived meanwhile.
fn run_for(pair: &mut Copy, time: Duration) -> u64 {
    let before = arrived(pair);
    let at = pair.now() + time;
    let stop = pair.run(at, |_| false, |_| {});
    assert_eq!(pair.a.error, None);
    assert_eq!(stop, Stop::Deadline);
    arrived(pair) - before
}

/// Of the link, in percent: what a copy gets once started.
fn utilisation(path: Path, way: Way, fixed: Option<u32>) -> u64 {
    let mut pair = copy(path, way, ENDLESS, fixed);
    run_for(&mut pair, path.rtt() * 12 + MS * 200);
    // Blocks of 252 KiB that arrive at its edges count whole.
    let time = (path.rtt() * 4).max(MS * (200_000 / u32::try_from(path.mbit).unwrap()));
    let bytes = run_for(&mut pair, time);
    let link = u128::from(path.rate().bytes_per_sec()) * time.as_nanos() / 1_000_000_000;
    (bytes * 100 / u64::try_from(link).unwrap()).min(100)
}

/// Round-trip time in ms, then percent of the link to the nearest five: fixed at 2 MiB get and put, adaptive get and put.
const GOLDEN_100_MBIT: &str = "\
1 100 100 100 100
10 100 100 100 100
50 100 100 100 100
100 100 100 100 100
200 70 65 100 100
400 40 40 100 100
";

const GOLDEN_1_GBIT: &str = "\
1 100 100 100 100
10 100 100 100 100
50 30 25 100 100
100 15 15 100 100
200 10 5 100 100
400 5 5 100 100
";

fn golden(mbit: u64) -> String {
    let mut table = String::new();
    for rtt_ms in [1, 10, 50, 100, 200, 400] {
        let path = Path { mbit, rtt_ms };
        let mut row = rtt_ms.to_string();
        for fixed in [Some(2 << 20), None] {
            for way in [Way::Get, Way::Put] {
                let percent = utilisation(path, way, fixed);
                assert!(
                    fixed.is_some() || percent >= 97,
                    "{way:?} {path:?}: {percent}"
                );
                row += &format!(" {}", (percent + 2) / 5 * 5);
            }
        }
        table += &row;
        table.push('\n');
    }
    table
}

#[test]
fn a_copy_fills_100_mbit_whatever_the_round_trip() {
    assert_eq!(golden(100), GOLDEN_100_MBIT);
}

#[test]
fn a_copy_fills_1_gbit_whatever_the_round_trip() {
    assert_eq!(golden(1000), GOLDEN_1_GBIT);
}

#[test]
fn a_cold_copy_ramps_no_slower_than_slow_start() {
    let path = Path {
        mbit: 320,
        rtt_ms: 200,
    };
    let per_rtt = path.bdp();
    for way in [Way::Get, Way::Put] {
        let mut pair = copy(path, way, 256 * MIB, None);
        let start = pair.now();
        // RFC 6928: ten segments, doubled each round trip. The first round trip brings the reply.
        run_for(&mut pair, path.rtt());
        let (mut may, mut filled) = (0, None);
        for round in 0..12 {
            let bytes = run_for(&mut pair, path.rtt());
            may += (14_480u64 << round).min(per_rtt);
            assert!(arrived(&pair) >= may, "{way:?}, round trip {round}");
            if bytes >= per_rtt * 9 / 10 {
                filled.get_or_insert(round);
            }
        }
        assert!(
            filled.unwrap() <= 4,
            "{way:?} fills the path after {filled:?}"
        );
        let stop = pair.run(DEADLINE, |pair| pair.a.is_done, |_| {});
        assert_eq!(stop, Stop::Done, "{:?}", pair.a.error);
        // The link alone takes 6.71 s.
        let took = pair.now() - start;
        assert!(took <= MS * 7400, "{way:?} took {took:?}");
    }
}

/// A copy on a full link whose socket holds no more than it may unsent.
fn full_link(path: Path, way: Way) -> Copy {
    let mut client = ClientConfig::default();
    // As for a known host: its key's algorithm first.
    client.transport.host_key_algorithms = vec!["ssh-ed25519".to_owned()];
    let a = Copier::new(client, sftp::Config::default(), 3, (way, ENDLESS));
    let zeros = Zeros {
        len: ENDLESS,
        ..Zeros::default()
    };
    let server = ServerEnd::new(ServerConfig::default(), 4, zeros);
    let config = PairConfig {
        buffer_bytes_max: usize::try_from(path.bdp() / 2 + SOCKET_BYTES).unwrap(),
        ..path.pair()
    };
    let mut pair = Pair::new(config, a, server);
    run_for(&mut pair, path.rtt() * 20);
    // Blocks of 252 KiB at the edges count whole.
    assert!(run_for(&mut pair, path.rtt() * 8) >= path.bdp() / 10 * 9 * 8);
    pair
}

#[test]
fn a_rekey_on_a_full_link_takes_a_round_trip_and_little_more() {
    for path in [
        Path {
            mbit: 320,
            rtt_ms: 200,
        },
        Path {
            mbit: 100,
            rtt_ms: 100,
        },
    ] {
        for way in [Way::Get, Way::Put] {
            for by_client in [true, false] {
                let mut pair = full_link(path, way);
                let start = pair.now();
                let conn = if by_client {
                    pair.a.session.conn_mut()
                } else {
                    pair.b.session.conn_mut()
                };
                conn.rekey(start).unwrap();
                // Until both ends have them both ways; the bytes pause for less.
                let done = |pair: &Copy| {
                    let (a, b) = (pair.a.session.conn(), pair.b.session.conn());
                    a.key_exchange_count() == 2 && b.key_exchange_count() == 2
                };
                let (mut last, mut bytes, mut pause) = (start, 0, Duration::ZERO);
                let mut client_done = None;
                let check = |pair: &Copy| {
                    if arrived(pair) != bytes {
                        pause = pause.max(pair.now() - last);
                        (last, bytes) = (pair.now(), arrived(pair));
                    }
                    if pair.a.session.conn().key_exchange_count() == 2 {
                        client_done.get_or_insert(pair.now());
                    }
                };
                assert_eq!(pair.run(DEADLINE, done, check), Stop::Done);
                let limit = path.rtt() + MS * 100;
                let what = format!("{path:?} {way:?}, asked by the client: {by_client}");
                assert!(pause <= limit, "{what}: a pause of {pause:?}");
                let started = match by_client {
                    true => start,
                    // Its KEXINIT has to arrive first.
                    false => start + path.rtt() / 2,
                };
                let took = client_done.unwrap() - started;
                assert!(took <= limit, "{what}: {took:?}");
            }
        }
    }
}

#[test]
fn an_abort_on_a_full_link_is_known_at_the_other_end_within_a_round_trip() {
    for path in [
        Path {
            mbit: 320,
            rtt_ms: 200,
        },
        Path {
            mbit: 100,
            rtt_ms: 100,
        },
    ] {
        for way in [Way::Get, Way::Put] {
            let mut pair = full_link(path, way);
            let start = pair.now();
            let conn = pair.a.session.conn_mut();
            conn.disconnect(start, DisconnectReason::ByApplication, "interrupted");
            let done = |pair: &Copy| pair.b.session.conn().error().is_some();
            assert_eq!(pair.run(DEADLINE, done, |_| {}), Stop::Done);
            let took = pair.now() - start;
            assert!(took <= path.rtt() + MS * 100, "{path:?} {way:?}: {took:?}");
        }
    }
}

#[test]
fn windows_of_any_size_carry_an_upload_as_fast_as_they_allow() {
    let path = Path {
        mbit: 320,
        rtt_ms: 50,
    };
    for window in [32 << 10, 2 << 20, u32::MAX] {
        let mut server = ServerConfig::default();
        server.connection.local_window = Some(window);
        let client = ClientConfig::default();
        // Our server waits for whole requests.
        let len_max = (window / 8).min(sftp::Config::default().request_len_max);
        let what = (Way::Put, 8 * MIB);
        let mut pair = copy_in(path, what, (client, server), len_max);
        let start = pair.now();
        let stop = pair.run(DEADLINE, |pair| pair.a.is_done, |_| {});
        assert_eq!((stop, &pair.a.error), (Stop::Done, &None));
        assert_eq!(pair.b.app.written, 8 * MIB);
        // One window per round trip, of which an eighth may be on its way back.
        let took = pair.now() - start;
        let trips = 8 * MIB / u64::from(window) + 4;
        let trips = u32::try_from(trips).unwrap();
        assert!(
            took <= path.rtt() * trips * 4 / 3 + MS * 300,
            "{window}: {took:?}"
        );
    }
}

#[test]
fn a_window_that_is_clamped_on_the_way_slows_a_copy_and_does_not_stop_it() {
    let path = Path {
        mbit: 320,
        rtt_ms: 20,
    };
    let mut pair = copy(path, Way::Put, 32 * MIB, None);
    run_for(&mut pair, MS * 300);
    let now = pair.now();
    let conn = pair.b.session.conn_mut();
    let ch = conn.channels().next().unwrap();
    conn.set_local_window(ch, 300 << 10).unwrap();
    let stop = pair.run(DEADLINE, |pair| pair.a.is_done, |_| {});
    assert_eq!((stop, &pair.a.error), (Stop::Done, &None));
    assert_eq!(pair.b.app.written, 32 * MIB);
    assert!(pair.now() - now > MS * 1000, "it did hold back");
    let lane = pair.a.lane;
    let limited = pair.a.session.conn().window_limited(pair.now(), lane);
    assert!(limited > MS * 500, "and that was seen: {limited:?}");
}

#[test]
fn a_window_that_never_opens_again_ends_the_lane_with_its_size() {
    let path = Path {
        mbit: 320,
        rtt_ms: 20,
    };
    let mut server = ServerConfig::default();
    server.connection.local_window = Some(2 << 20);
    let client = ClientConfig::default();
    let mut pair = copy_between(path, (Way::Put, ENDLESS), client, server);
    pair.b.app.is_stuck = true;
    let start = pair.now();
    let stop = pair.run(DEADLINE, |pair| pair.a.error.is_some(), |_| {});
    assert_eq!(stop, Stop::Done);
    let said = pair.a.error.clone().unwrap();
    assert!(said.contains("channel window of 2097152 bytes"), "{said}");
    let patience = sftp::Config::default().reply_timeout;
    assert!(pair.now() - start <= patience + MS * 2000);
}
