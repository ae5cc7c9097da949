//! Two hosts with sockets, and a path between them that loses packets.

use super::*;
use crate::settings::Settings;
use fullbore_base::Rng;
use fullbore_testkit::seeds;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(20);
const LISTENER: Fd = 100;

/// The client is number 0; the server's port 80 listens.
struct Pair {
    ends: [Sockets; 2],
    /// By time of arrival: for whom, and what.
    path: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    sent: u64,
    rng: Rng,
    /// One packet of so many is lost; none for zero.
    loses_one_in: u64,
}

fn address(end: usize) -> SocketAddr {
    let last = u8::try_from(end + 1).expect("two ends");
    SocketAddr::from(([10, 0, 0, last], 80))
}

impl Pair {
    fn new(seed: u64, loses_one_in: u64, flags: &str) -> Self {
        let ends = [0, 1].map(|end| {
            let mut settings = Settings {
                local_v4: address(end).ip(),
                ..Settings::default()
            };
            settings.apply_flags(flags).expect("good flags");
            Sockets::new(Host::new(settings))
        });
        let mut pair = Self {
            ends,
            path: BTreeMap::new(),
            sent: 0,
            rng: Rng::seeded(seed),
            loses_one_in,
        };
        let server = &mut pair.ends[1];
        assert_eq!(
            server.socket(LISTENER, libc::AF_INET, libc::SOCK_STREAM, 0),
            Ok(())
        );
        assert_eq!(server.bind(LISTENER, unspecified_at(80)), Ok(()));
        assert_eq!(server.listen(LISTENER, 8), Ok(()));
        pair
    }

    fn now(&self) -> Instant {
        self.ends[0].host().now()
    }

    /// What left goes on its way.
    fn carry(&mut self) {
        for end in [0, 1] {
            while let Some((at, packet)) = self.ends[end].host_mut().pop_packet() {
                self.sent += 1;
                let is_lost = self.loses_one_in > 0 && self.rng.one_in(self.loses_one_in);
                if !is_lost {
                    self.path.insert((at + DELAY, self.sent), (1 - end, packet));
                }
            }
        }
    }

    /// The next thing happens; false when there is none before `until`.
    fn step(&mut self, until: Instant) -> bool {
        self.carry();
        let timers = self.ends.iter().filter_map(|end| end.host().next_timer());
        let arrival = self.path.keys().next().map(|&(at, _)| at);
        let Some(at) = timers.chain(arrival).min().filter(|&at| at <= until) else {
            return false;
        };
        for end in &mut self.ends {
            end.host_mut().advance(at);
        }
        while let Some(entry) = self.path.first_entry().filter(|e| e.key().0 <= at) {
            let (end, packet) = entry.remove();
            self.ends[end].host_mut().handle_packet(&packet);
        }
        self.carry();
        true
    }

    fn run(&mut self, time: Duration) {
        let until = self.now() + time;
        while self.step(until) {}
        for end in &mut self.ends {
            end.host_mut().advance(until);
        }
    }

    /// Makes a call of one end until it is possible.
    fn call<T>(
        &mut self,
        end: usize,
        mut call: impl FnMut(&mut Sockets) -> Outcome<T>,
    ) -> Result<T, i32> {
        let limit = self.now() + Duration::from_secs(1000);
        loop {
            match call(&mut self.ends[end]) {
                Ok(done) => return Ok(done),
                Err(Stop::Errno(errno)) => return Err(errno),
                Err(Stop::Wait(_)) => assert!(self.step(limit), "it waits for ever"),
            }
        }
    }

    /// A connection: the client's descriptor is 1, the server's 2.
    fn connected(&mut self) {
        let client = &mut self.ends[0];
        assert_eq!(
            client.socket(1, libc::AF_INET, libc::SOCK_STREAM, 0),
            Ok(())
        );
        let mut opening = Opening::default();
        let connected = self.call(0, |client| client.connect(1, address(1), &mut opening));
        assert_eq!(connected, Ok(()));
        let accepted = self.call(1, |server| server.accept(LISTENER, 0, || Ok(2)));
        assert_eq!(
            accepted.map(|(fd, from)| (fd, from.ip())),
            Ok((2, address(0).ip()))
        );
    }
}

fn unspecified_at(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], port))
}

fn pattern(from: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from(at * 7 % 251).expect("below 251");
    (from..from + len).map(byte).collect()
}

/// Both sides write and read in turns, whatever is possible, and then close.
#[test]
fn both_streams_arrive_whole_over_a_path_that_loses() {
    const LEN: usize = 150_000;
    for seed in seeds(0..6) {
        for flags in ["cc=cubic", "cc=reno,ts=off,sack=off", "cc=bbr,gso=off"] {
            let mut pair = Pair::new(seed, 30, flags);
            pair.connected();
            let (mut written, mut read) = ([0; 2], [0; 2]);
            let limit = pair.now() + Duration::from_secs(600);
            while read != [LEN; 2] {
                for end in [0, 1] {
                    let fd = [1, 2][end];
                    let bytes = pattern(written[end], (LEN - written[end]).min(9000));
                    let no_wait = Send {
                        is_nonblocking: true,
                        is_more: false,
                    };
                    match pair.ends[end].send(fd, &bytes, no_wait, &mut 0) {
                        Ok(count) => written[end] += count,
                        Err(stop) => assert_eq!(stop, Stop::Errno(libc::EAGAIN)),
                    }
                    let mut room = vec![0; 7000];
                    let no_wait = Receive {
                        is_nonblocking: true,
                        ..Receive::default()
                    };
                    match pair.ends[end].receive(fd, &mut room, no_wait, &mut 0) {
                        Ok(count) => {
                            assert!(room[..count] == pattern(read[end], count)[..]);
                            read[end] += count;
                        }
                        Err(stop) => assert_eq!(stop, Stop::Errno(libc::EAGAIN)),
                    }
                }
                assert!(
                    pair.step(limit),
                    "seed {seed}, {flags}: {read:?} at the end"
                );
            }
            for (end, fd) in [(0, 1), (1, 2)] {
                assert_eq!(pair.ends[end].shutdown(fd, libc::SHUT_WR), Ok(()));
            }
            for (end, fd) in [(0, 1), (1, 2)] {
                let mut room = [0];
                let wanted = Receive::default();
                let ended = pair.call(end, |e| e.receive(fd, &mut room, wanted, &mut 0));
                assert_eq!(ended, Ok(0));
                assert_eq!(pair.ends[end].close(fd), Ok(()));
            }
            pair.run(Duration::from_secs(300));
            for end in &pair.ends {
                assert_eq!(end.host().counts(), (0, 0), "nothing is left");
            }
        }
    }
}

#[test]
fn of_a_closed_connection_numbers_are_kept_where_it_was_closed_first() {
    let mut pair = Pair::new(1, 0, "");
    pair.connected();
    assert_eq!(pair.ends[0].close(1), Ok(()));
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.ends[1].close(2), Ok(()));
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.ends[0].host().counts(), (0, 1));
    assert_eq!(pair.ends[1].host().counts(), (0, 0));
    pair.run(Duration::from_secs(60));
    assert_eq!(pair.ends[0].host().counts(), (0, 0));
}

#[test]
fn a_bound_port_is_used_and_a_pair_of_ends_only_once() {
    let mut pair = Pair::new(1, 0, "");
    let client = &mut pair.ends[0];
    for fd in [1, 2] {
        assert_eq!(
            client.socket(fd, libc::AF_INET, libc::SOCK_STREAM, 0),
            Ok(())
        );
        assert_eq!(client.bind(fd, unspecified_at(777)), Ok(()));
    }
    assert_eq!(client.bind(1, unspecified_at(778)), fail(libc::EINVAL));
    let begun = client.connect(1, address(1), &mut Opening::default());
    assert_eq!(begun, Err(Stop::Wait(None)));
    let local = SocketAddr::new(address(0).ip(), 777);
    assert_eq!(client.local_address(1), Ok(local));
    let again = client.connect(2, address(1), &mut Opening::default());
    assert_eq!(again, fail(libc::EADDRNOTAVAIL));
}

#[test]
fn a_mapped_address_is_ipv4_on_the_wire_and_mapped_to_the_program() {
    let mut pair = Pair::new(1, 0, "");
    let mapped: SocketAddr = "[::ffff:10.0.0.2]:80".parse().expect("an address");
    let client = &mut pair.ends[0];
    assert_eq!(
        client.socket(1, libc::AF_INET6, libc::SOCK_STREAM, 0),
        Ok(())
    );
    let wrong = client.connect(1, address(1), &mut Opening::default());
    assert_eq!(wrong, fail(libc::EAFNOSUPPORT));
    let mut opening = Opening::default();
    assert_eq!(pair.call(0, |c| c.connect(1, mapped, &mut opening)), Ok(()));
    let local = pair.ends[0].local_address(1).expect("it has one");
    assert!(local.is_ipv6(), "{local}");
}

#[test]
fn a_call_that_must_not_block_returns_what_it_did() {
    let mut pair = Pair::new(1, 0, "sndbuf=5000");
    pair.connected();
    let no_wait = Send {
        is_nonblocking: true,
        is_more: false,
    };
    assert_eq!(pair.ends[0].send(1, &[7; 9000], no_wait, &mut 0), Ok(5000));
    let blocked = pair.ends[0].send(1, &[7; 10], no_wait, &mut 0);
    assert_eq!(blocked, fail(libc::EAGAIN));
    pair.run(Duration::from_secs(1));
    let mut room = [0; 9000];
    let all = Receive {
        is_all: true,
        is_nonblocking: true,
        ..Receive::default()
    };
    assert_eq!(pair.ends[1].receive(2, &mut room, all, &mut 0), Ok(5000));
}

/// Whatever a program calls, in whatever order, and whatever arrives: nothing panics, and the clock
/// never stands still.
#[test]
fn no_order_of_calls_and_packets_breaks_it() {
    for seed in seeds(0..60) {
        let mut pair = Pair::new(seed, 10, "mtu=600,sndbuf=3000,rcvbuf=3000");
        let mut rng = Rng::seeded(seed ^ 0x5eed);
        for _ in 0..400 {
            let (end, fd) = (rng.index(2), Fd::try_from(rng.below(6)).expect("small"));
            any_call(&mut rng, &mut pair.ends[end], end, fd);
            for _ in 0..rng.below(6) {
                let until = pair.now() + Duration::from_secs(rng.below(100));
                let _ = pair.step(until);
            }
            if rng.one_in(10)
                && let Some((_, (_, packet))) = pair.path.first_key_value()
            {
                let mut packet = packet.clone();
                let at = rng.index(packet.len());
                packet[at] ^= 1 << rng.below(8);
                pair.ends[rng.index(2)].host_mut().handle_packet(&packet);
            }
        }
        let before = pair.now();
        pair.run(Duration::from_secs(1000));
        assert_eq!(pair.now() - before, Duration::from_secs(1000));
    }
}

fn any_call(rng: &mut Rng, sockets: &mut Sockets, end: usize, fd: Fd) {
    let flags = [
        0,
        libc::MSG_DONTWAIT,
        libc::MSG_PEEK,
        libc::MSG_MORE,
        libc::MSG_WAITALL,
    ];
    let flags = flags[rng.index(flags.len())];
    let _ = match rng.below(14) {
        0 | 1 if !sockets.has(fd) => {
            let kind = libc::SOCK_STREAM
                | if rng.one_in(2) {
                    libc::SOCK_NONBLOCK
                } else {
                    0
                };
            sockets.socket(fd, libc::AF_INET, kind, 0)
        }
        2 => sockets.bind(
            fd,
            unspecified_at(u16::try_from(rng.below(100)).expect("small")),
        ),
        3 => sockets.listen(fd, 1),
        4 if !sockets.has(fd) => sockets.accept(LISTENER, 0, || Ok(fd)).map(drop),
        5 | 6 => sockets.connect(fd, address(1 - end), &mut Opening::default()),
        7 | 8 => {
            let bytes = vec![7; rng.index(3000)];
            Send::from_flags(flags).and_then(|how| sockets.send(fd, &bytes, how, &mut 0).map(drop))
        }
        9 | 10 => {
            let mut room = vec![0; rng.index(3000)];
            Receive::from_flags(flags)
                .and_then(|how| sockets.receive(fd, &mut room, how, &mut 0).map(drop))
        }
        11 => sockets.shutdown(fd, i32::try_from(rng.below(4)).expect("small")),
        12 if rng.one_in(3) => sockets.close(fd),
        _ => {
            let value = i32::try_from(rng.below(300)).expect("small").to_ne_bytes();
            let name = i32::try_from(rng.below(30)).expect("small");
            let levels = [libc::SOL_SOCKET, libc::IPPROTO_TCP, libc::IPPROTO_IP];
            let level = levels[rng.index(3)];
            let _ = sockets.option(fd, level, name);
            sockets.set_option(fd, level, name, &value)
        }
    };
    let interest = Interest {
        fd,
        events: libc::POLLIN | libc::POLLOUT,
    };
    let now = sockets.host().now();
    let polled = sockets.poll(&[interest], &mut [0], Some(now));
    assert!(polled.is_ok(), "a poll whose time is over has an answer");
}
