//! The UDP door and what is behind it, and the line that two ends agree by.

use std::net::SocketAddr;
use std::time::Duration;

use fullbore::udp::datagram::{HEADER_BYTES, Header, LEN_MAX, PathId, TOKEN_BYTES};
use fullbore::udp::door::Route;
use fullbore::udp::endpoint::{BUFFER_BYTES, Endpoint, Opening, Transmit};
use fullbore::udp::keys::{Role, Secret};
use fullbore::udp::offer::Offer;
use fullbore::udp::settings::PathLimits;
use fullbore_base::Instant;
use fullbore_tcp::Seq;
use fullbore_tcp::segment::{Flags, Header as TcpHeader, Options, Pseudo, Timestamps};

/// Batches that one input may provoke before it counts as a livelock.
const POLLS_MAX: u32 = 20_000;

const IDS: [PathId; 2] = [PathId::new(1), PathId::new(u64::MAX)];

fn secret() -> Secret {
    Secret::from_bytes([1; 32])
}

/// Splits `count` bytes off the input; fewer at its end.
fn take<'a>(data: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (front, rest) = data.split_at(count.min(data.len()));
    *data = rest;
    front
}

fn byte(data: &mut &[u8]) -> u8 {
    take(data, 1).first().copied().unwrap_or(0)
}

struct Bench {
    endpoint: Endpoint,
    now: Instant,
    out: Vec<u8>,
    polls: u32,
}

impl Bench {
    fn new() -> Self {
        let mut endpoint = Endpoint::new(IDS.len());
        for id in IDS {
            let opening = Opening {
                id,
                secret: secret(),
                role: Role::Server,
                remote: None,
                limits: PathLimits::new([127, 0, 0, 1].into(), 1500),
                rtt: None,
            };
            let opened = endpoint.open(Instant::ZERO, &opening);
            opened.expect("there is room");
        }
        Self {
            endpoint,
            now: Instant::ZERO,
            out: vec![0; BUFFER_BYTES],
            polls: 0,
        }
    }

    fn settle(&mut self) {
        while let Some(Transmit {
            len, segment_len, ..
        }) = self.endpoint.poll_transmit(self.now, &mut self.out)
        {
            assert!(segment_len <= LEN_MAX && segment_len <= len && len <= self.out.len());
            self.polls += 1;
            assert!(self.polls < POLLS_MAX, "livelock");
        }
        while self.endpoint.poll_event().is_some() {}
        assert!(self.endpoint.len() <= IDS.len());
        // What is not over has a deadline: silence at the latest.
        let is_over = IDS.iter().all(|&id| self.endpoint.end(id).is_some());
        assert!(is_over || self.endpoint.poll_timeout().is_some());
    }

    fn genuine(&mut self, from: Route, id: PathId, number: u64, segment: &[u8]) {
        let mut datagram = vec![0; HEADER_BYTES + segment.len() + TOKEN_BYTES];
        Header { id, number }.emit(&mut datagram);
        datagram[HEADER_BYTES..][..segment.len()].copy_from_slice(segment);
        let keys = secret().keys(Role::Client);
        keys.sealer.seal(number, &mut datagram);
        self.endpoint.handle_datagram(self.now, from, &datagram);
    }
}

/// Datagrams of a stranger and of a peer that does anything, with an application and a clock.
pub fn door(mut data: &[u8]) {
    let mut bench = Bench::new();
    let mut number = 0;
    while !data.is_empty() {
        let (op, argument, len) = (byte(&mut data), byte(&mut data), byte(&mut data));
        let from = SocketAddr::from(([192, 0, 2, argument >> 4], 7)).into();
        let id = IDS[usize::from(argument & 1)];
        match op % 8 {
            0 => {
                let datagram = take(&mut data, usize::from(len));
                bench.endpoint.handle_datagram(bench.now, from, datagram);
            }
            1..4 => {
                number += u64::from(argument >> 1 & 3);
                let segment = take(&mut data, usize::from(len));
                bench.genuine(from, id, number << (argument >> 3 & 1), segment);
            }
            4 => {
                let written = bench.endpoint.write(id, &vec![0; usize::from(len) * 100]);
                assert!(written.unwrap_or(0) <= usize::from(len) * 100);
            }
            5 => {
                let mut buf = vec![0; usize::from(len)];
                let _ = bench.endpoint.read(bench.now, id, &mut buf);
            }
            6 => match argument % 32 {
                0..4 => bench.endpoint.release(bench.now, id),
                4..6 => bench.endpoint.abort(id),
                _ => {}
            },
            _ => {
                let millis = u64::from(len) << (argument % 12);
                bench.now += Duration::from_millis(millis);
                bench.endpoint.handle_timeout(bench.now);
            }
        }
        bench.settle();
    }
}

/// Inputs with segments that are right, so that mutations get behind the parser.
pub fn door_seeds() -> Vec<Vec<u8>> {
    let keys = secret().keys(Role::Server);
    let (local, remote) = (keys.local_initial, keys.remote_initial);
    let segment = |seq: Seq, ack: Seq, flags: Flags, payload: &[u8]| {
        let header = TcpHeader {
            seq,
            ack,
            flags,
            window: 100,
            options: Options {
                timestamps: Some(Timestamps { value: 5, echo: 0 }),
                ..Options::default()
            },
            ..TcpHeader::default()
        };
        let mut bytes = vec![0; header.len() + payload.len()];
        bytes[header.len()..].copy_from_slice(payload);
        let len = header.emit(&mut bytes, payload.len(), Pseudo::Unchecked);
        bytes.truncate(len);
        bytes
    };
    let step = |op: u8, argument: u8, bytes: &[u8]| {
        let len = u8::try_from(bytes.len()).expect("short");
        [&[op, argument, len], bytes].concat()
    };
    let hello = segment(remote.at(1), local.at(1), Flags::ACK, b"hello");
    let fin = segment(remote.at(6), local.at(1), Flags::ACK | Flags::FIN, b"");
    let acked = segment(remote.at(7), local.at(2001), Flags::ACK, b"");
    let reset = segment(remote.at(6), local.at(1), Flags::RST, b"");
    vec![
        [
            step(1, 2, &hello),
            step(5, 0, &[]),
            step(7, 3, &[]),
            step(1, 2, &fin),
        ]
        .concat(),
        [
            step(1, 2, &hello),
            vec![4, 0, 20],
            step(1, 0x12, &acked),
            vec![6, 0, 0],
        ]
        .concat(),
        [
            step(1, 2, &hello),
            step(0, 0x30, &hello),
            step(1, 2, &reset),
        ]
        .concat(),
        vec![7, 11, 255, 7, 11, 255, 7, 11, 255],
    ]
}

/// The line that a far end answers with.
pub fn offer(data: &[u8]) {
    let line = String::from_utf8_lossy(data);
    if let Ok(offer) = Offer::parse(&line) {
        assert_eq!(Offer::parse(&offer.to_line()), Ok(offer));
    }
}

/// A right line, and one of another version.
pub fn offer_seeds() -> Vec<Vec<u8>> {
    let digits = "0123456789abcdef".repeat(4);
    let line = |version: u32| {
        format!(
            "fullbore-udp {version} port=40123 id=0123456789abcdef secret={digits} token={digits} key=AAAA\n"
        )
    };
    vec![line(1).into_bytes(), line(2).into_bytes()]
}
