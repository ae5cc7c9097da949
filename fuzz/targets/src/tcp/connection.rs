//! A connection and a listener whose peer, clock and application do anything.

use std::time::Duration;

use fullbore_base::Instant;
use fullbore_tcp::Seq;
use fullbore_tcp::congestion::{Algorithm, Settings};
use fullbore_tcp::connection::{Config, Connection, Keepalive};
use fullbore_tcp::isn::{Randomness, Tuple};
use fullbore_tcp::listener::{Heard, ListenConfig, Listener};
use fullbore_tcp::segment::{Flags, Header, Options, SackBlock, Segment, Timestamps};

const OURS: Seq = Seq::new(0xffff_ff00);
const THEIRS: Seq = Seq::new(0xffff_0000);
/// Segments that one input may provoke before it counts as a livelock.
const POLLS_MAX: u32 = 20_000;
/// Bytes of one step.
const STEP_BYTES: usize = 12;

/// Reads numbers from an input, zero behind its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn u8(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first
    }

    fn u16(&mut self) -> u16 {
        u16::from(self.u8()) << 8 | u16::from(self.u8())
    }

    /// Mostly near zero, either side; sometimes anywhere.
    fn offset(&mut self) -> u32 {
        let (scale, value) = (self.u8(), self.u8());
        let value = i32::from(value.cast_signed());
        let scaled = match scale % 8 {
            0..4 => value.min(4),
            4 | 5 => value * 100,
            6 => value * 1448,
            _ => value << 24,
        };
        scaled.cast_unsigned()
    }
}

fn config(bits: u8) -> Config {
    let has = |bit: u8| bits >> bit & 1 == 1;
    let algorithm = match bits >> 6 {
        0 => Algorithm::Reno,
        1 => Algorithm::Cubic,
        _ => Algorithm::Bbr,
    };
    Config {
        is_sack: !has(0),
        is_timestamps: has(1),
        is_ecn: has(2),
        is_nagle: has(3),
        is_window_scaling: !has(4),
        mss: 500,
        mss_max: if has(5) { 1400 } else { 500 },
        mss_base: 300,
        receive_buffer: 6000,
        receive_buffer_max: 20_000,
        send_buffer_max: 60_000,
        user_timeout: has(5).then(|| Duration::from_secs(200)),
        keepalive: has(3).then(|| Keepalive {
            idle: Duration::from_secs(10),
            interval: Duration::from_secs(2),
            count_max: 2,
        }),
        congestion: Settings {
            algorithm,
            ..Settings::default()
        },
        ..Config::default()
    }
}

/// What the peer last heard: where its numbers are worth guessing.
#[derive(Clone, Copy, Default)]
struct Known {
    next: Seq,
    acked: Seq,
    stamp: u32,
}

fn header(input: &mut Input<'_>, heard: &Known) -> (Header, usize) {
    let flags = match input.u8() % 16 {
        0 => Flags::SYN,
        1 => Flags::SYN | Flags::ACK,
        2 => Flags::RST,
        3 => Flags::RST | Flags::ACK,
        4 => Flags::FIN | Flags::ACK,
        5 => Flags::from_bits(input.u8()),
        6 => Flags::ACK | Flags::ECE,
        _ => Flags::ACK,
    };
    let mut options = Options::default();
    let bits = input.u8();
    if bits & 1 == 0 {
        options.timestamps = Some(Timestamps {
            value: input.offset(),
            echo: heard.stamp.wrapping_sub(input.offset() & 0xff),
        });
    }
    if flags.has(Flags::SYN) {
        options.mss = Some(input.u16());
        options.window_scale = Some(bits >> 3);
        options.is_sack_permitted = bits & 2 == 0;
    }
    for _ in 0..bits >> 6 {
        let start = heard.next.plus(input.offset());
        let end = start.plus(input.offset());
        let _ = options.sack.push(SackBlock { start, end });
    }
    let header = Header {
        seq: heard.acked.plus(input.offset()),
        ack: heard.next.plus(input.offset()),
        flags,
        window: input.u16(),
        options,
        ..Header::default()
    };
    (header, usize::from(input.u8()) * 8)
}

fn check(connection: &Connection) {
    let info = connection.info();
    let sum = info.pipe_bytes + info.sacked_bytes + info.lost_bytes;
    assert_eq!(sum, info.outstanding_bytes);
    assert!(info.retransmitted_bytes <= info.pipe_bytes);
    assert!(connection.unacked_bytes() <= 60_000);
    assert!(connection.buffer_capacity() <= 200_000);
    if connection.is_closed() {
        assert_eq!(connection.poll_timeout(), None);
    }
}

/// Everything that leaves; the last of it is what the peer goes by.
fn drain(connection: &mut Connection, now: Instant, heard: &mut Known, polls: &mut u32) {
    let mut out = [0; 2000];
    while let Some(transmit) = connection.poll_transmit(now, &mut out) {
        *polls += 1;
        assert!(*polls < POLLS_MAX, "a livelock");
        let bytes = &out[..transmit.len];
        let pseudo = fullbore_tcp::segment::Pseudo::Unchecked;
        let segment = Segment::parse(bytes, pseudo).expect("it is ours");
        let len = u32::try_from(segment.sequence_len()).expect("short");
        heard.next = segment.header.seq.plus(len);
        if segment.header.flags.has(Flags::ACK) {
            heard.acked = segment.header.ack;
        }
        heard.stamp = segment.header.options.timestamps.map_or(0, |t| t.value);
    }
}

fn step(connection: &mut Connection, now: &mut Instant, input: &mut Input<'_>, heard: &Known) {
    match input.u8() % 16 {
        0 | 1 => {
            let _ = connection.write(&vec![7; usize::from(input.u16())]);
        }
        2 => {
            let readable = usize::try_from(connection.readable_bytes()).expect("small");
            let count = readable.min(usize::from(input.u16()));
            connection.consume(*now, count);
        }
        3 => *now += Duration::from_millis(u64::from(input.u8())),
        4 => {
            if let Some(at) = connection.poll_timeout() {
                *now = at.max(*now);
            }
            connection.handle_timeout(*now);
        }
        5 => *now += Duration::from_secs(u64::from(input.u8())),
        6 if input.u8().is_multiple_of(8) => connection.close(),
        6 if input.u8().is_multiple_of(16) => connection.abort(),
        7 => {
            let seq = heard.next.plus(input.offset());
            connection.handle_too_big(*now, seq, input.u16());
        }
        _ => {
            let (header, len) = header(input, heard);
            let payload = vec![9; len];
            let segment = Segment {
                header,
                payload: &payload,
            };
            connection.handle_segment(*now, &segment, input.u8().is_multiple_of(8));
        }
    }
    while connection.poll_event().is_some() {}
}

fn play(mut connection: Connection, input: &mut Input<'_>, mut now: Instant, mut heard: Known) {
    let mut polls = 0;
    drain(&mut connection, now, &mut heard, &mut polls);
    while !input.0.is_empty() {
        step(&mut connection, &mut now, input, &heard);
        check(&connection);
        drain(&mut connection, now, &mut heard, &mut polls);
        check(&connection);
    }
    // Left alone, it comes to rest or to its end.
    for _ in 0..2000 {
        let Some(at) = connection.poll_timeout() else {
            return;
        };
        now = at.max(now);
        connection.handle_timeout(now);
        polls = 0;
        drain(&mut connection, now, &mut heard, &mut polls);
        check(&connection);
    }
}

/// A client, from its SYN on or with the handshake done.
pub fn connection(data: &[u8]) {
    let mut input = Input(data);
    let config = config(input.u8());
    let is_connected = input.u8() % 4 != 0;
    let now = Instant::from_nanos(1_000_000_000);
    let mut connection = Connection::connect(now, config, OURS);
    let mut heard = Known::default();
    drain(&mut connection, now, &mut heard, &mut 0);
    heard.acked = THEIRS;
    if is_connected {
        let options = Options {
            mss: Some(1400),
            window_scale: Some(2),
            is_sack_permitted: true,
            timestamps: Some(Timestamps {
                value: 0,
                echo: heard.stamp,
            }),
            ..Options::default()
        };
        let header = Header {
            seq: THEIRS,
            ack: OURS.plus(1),
            flags: Flags::SYN | Flags::ACK | Flags::ECE,
            window: 30_000,
            options,
            ..Header::default()
        };
        let payload = &[];
        connection.handle_segment(now, &Segment { header, payload }, false);
    }
    play(connection, &mut input, now, heard);
}

/// Steps of each kind, with the numbers that fit.
#[must_use]
pub fn connection_seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for bits in [0u8, 2, 4, 8, 32, 64, 128, 255] {
        let mut input = vec![bits, 1];
        for kind in [0, 8, 9, 3, 8, 4, 2, 10, 0, 12, 4, 4, 7, 6, 14] {
            input.push(kind);
            input.extend([7, 1, 0, 0, 0, 0, 0, 0, 100, 0, 20][..STEP_BYTES - 1].iter());
        }
        all.push(input);
    }
    all
}

struct Secrets;

impl Randomness for Secrets {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(3);
    }
}

/// A listener with a backlog of two and peers that say anything; what it accepts is played on.
pub fn listener(data: &[u8]) {
    let mut input = Input(data);
    let listen = ListenConfig {
        connection: config(input.u8()),
        backlog_max: 2,
    };
    let mut listener = Listener::new(listen, &mut Secrets);
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut heard = [Known {
        acked: THEIRS,
        ..Known::default()
    }; 4];
    while !input.0.is_empty() {
        let port = input.u8() % 4;
        let peer = usize::from(port);
        let tuple = Tuple {
            local: ([10, 0, 0, 2].into(), 22),
            remote: ([10, 0, 0, 1].into(), u16::from(port)),
        };
        if input.u8().is_multiple_of(8) {
            now += Duration::from_millis(u64::from(input.u16()));
            while listener.poll_transmit(now).is_some() {}
        }
        let (header, _) = header(&mut input, &heard[peer]);
        let payload = &[];
        let segment = Segment { header, payload };
        match listener.handle_segment(now, &tuple, &segment, false) {
            Heard::Nothing => {}
            Heard::Reply(reply) => {
                heard[peer] = Known {
                    next: reply.seq.plus(1),
                    acked: reply.ack,
                    stamp: reply.options.timestamps.map_or(0, |t| t.value),
                };
            }
            Heard::Accepted(connection) => {
                play(*connection, &mut input, now, heard[peer]);
                return;
            }
        }
        assert!(listener.half_open_count() <= 2);
    }
}

/// A SYN and its acknowledgement.
#[must_use]
pub fn listener_seeds() -> Vec<Vec<u8>> {
    let syn = [1, 1, 0, 2, 0, 0, 5, 180, 0, 0, 0, 0, 100, 0, 0];
    let ack = [1, 1, 7, 1, 0, 0, 0, 0, 100, 0, 0];
    let mut input = vec![0];
    input.extend(syn);
    input.extend(ack);
    input.extend([8; 40]);
    vec![input]
}
