//! Scripts of segments: what the peer sends, what we answer, when.
//!
//! A segment is written `FLAGS START:END ack N win N ...` with positions in place of numbers: 0 is the
//! SYN, 1 the first byte. Flags are `S F R P . E W U`. Further fields: `mss N`, `ws N`, `sackok`,
//! `ts VALUE ECHO`, `sack A:B,C:D`, `uto N`. In an expectation, only the fields that are written count.

#![allow(dead_code, reason = "each test file uses a part")]

use std::time::Duration;

use fullbore_base::Instant;
use fullbore_tcp::Seq;
use fullbore_tcp::congestion::{Algorithm, Settings};
use fullbore_tcp::connection::{Config, Connection, Event, State};
use fullbore_tcp::segment::{Flags, Header, Options, Pseudo, SackBlock, Segment, Timestamps};

/// The numbers of position 0: both wrap early.
pub const OURS: Seq = Seq::new(0xffff_fc00);
pub const THEIRS: Seq = Seq::new(0xffff_ff00);

const MS: Duration = Duration::from_millis(1);

/// A segment as scripts write it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    pub flags: Flags,
    pub start: u64,
    pub end: u64,
    pub ack: Option<u64>,
    pub win: Option<u16>,
    pub mss: Option<u16>,
    pub ws: Option<u8>,
    pub is_sack_permitted: bool,
    pub ts: Option<(u32, u32)>,
    pub sack: Option<Vec<(u64, u64)>>,
    pub uto: Option<u16>,
}

fn number<T: std::str::FromStr>(text: Option<&str>) -> T {
    let text = text.expect("a number follows");
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}

fn range(text: &str) -> (u64, u64) {
    let (start, end) = text.split_once(':').expect("START:END");
    (number(Some(start)), number(Some(end)))
}

impl Line {
    pub fn parse(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let mut flags = Flags::NONE;
        for letter in words.next().expect("flags").chars() {
            flags = flags
                | match letter {
                    'S' => Flags::SYN,
                    'F' => Flags::FIN,
                    'R' => Flags::RST,
                    'P' => Flags::PSH,
                    '.' => Flags::ACK,
                    'E' => Flags::ECE,
                    'W' => Flags::CWR,
                    'U' => Flags::URG,
                    other => panic!("no flag {other}"),
                };
        }
        let (start, end) = range(words.next().expect("START:END"));
        let mut line = Self {
            flags,
            start,
            end,
            ..Self::default()
        };
        while let Some(word) = words.next() {
            match word {
                "ack" => line.ack = Some(number(words.next())),
                "win" => line.win = Some(number(words.next())),
                "mss" => line.mss = Some(number(words.next())),
                "ws" => line.ws = Some(number(words.next())),
                "uto" => line.uto = Some(number(words.next())),
                "sackok" => line.is_sack_permitted = true,
                "ts" => line.ts = Some((number(words.next()), number(words.next()))),
                "sack" => {
                    let blocks = words.next().expect("blocks");
                    line.sack = Some(blocks.split(',').map(range).collect());
                }
                other => panic!("no field {other}"),
            }
        }
        line
    }

    /// Whether what `expected` says holds of this one.
    fn fits(&self, expected: &Self) -> bool {
        let is = |ours: bool, wanted: bool| !wanted || ours;
        self.flags == expected.flags
            && (self.start, self.end) == (expected.start, expected.end)
            && (expected.ack.is_none() || self.ack == expected.ack)
            && (expected.win.is_none() || self.win == expected.win)
            && (expected.mss.is_none() || self.mss == expected.mss)
            && (expected.ws.is_none() || self.ws == expected.ws)
            && is(self.is_sack_permitted, expected.is_sack_permitted)
            && (expected.ts.is_none() || self.ts == expected.ts)
            && (expected.sack.is_none() || self.sack == expected.sack)
            && (expected.uto.is_none() || self.uto == expected.uto)
    }
}

/// A connection that a script plays with.
pub struct Script {
    pub connection: Connection,
    pub now: Instant,
    /// Whether the path may mark the segment that left last.
    pub is_ect: bool,
    out: Vec<u8>,
}

/// What scripts use unless they say otherwise: segments of 1000 bytes, no pacing, no jitter.
pub fn config() -> Config {
    Config {
        local_port: 1000,
        remote_port: 2000,
        mss: 1000,
        mss_max: 1000,
        mss_base: 600,
        is_timestamps: false,
        is_paced: false,
        receive_buffer: 20_000,
        receive_buffer_max: 20_000,
        congestion: Settings {
            algorithm: Algorithm::Reno,
            ..Settings::default()
        },
        ..Config::default()
    }
}

impl Script {
    /// A client whose SYN waits to be polled.
    pub fn connecting(config: Config) -> Self {
        Self {
            connection: Connection::connect(Instant::ZERO, config, OURS),
            now: Instant::ZERO,
            is_ect: false,
            out: vec![0; 20_000],
        }
    }

    /// A client whose handshake took 100 ms; the peer takes 1000 bytes in a segment and gives a
    /// window of 50,000.
    pub fn established(config: Config) -> Self {
        let mut script = Self::connecting(config);
        let syn = script.poll().expect("a SYN");
        script.wait(100);
        let mut answer = String::from("S. 0:1 ack 1 win 50000 mss 1000");
        if config.is_sack {
            answer += " sackok";
        }
        if let Some((value, _)) = syn.ts {
            answer += &format!(" ts 5000 {value}");
        }
        if config.is_ecn {
            answer = answer.replacen("S.", "S.E", 1);
        }
        script.gets(&answer);
        let ack = script.poll().expect("an ACK");
        assert_eq!((ack.flags, ack.ack), (Flags::ACK, Some(1)));
        assert_eq!(script.connection.state(), State::Established);
        while script.connection.poll_event().is_some() {}
        script
    }

    /// The time since the start, in milliseconds.
    pub fn ms(&self) -> u64 {
        self.now.as_nanos() / 1_000_000
    }

    /// Time passes; each deadline on the way is handled at its time. What that makes leave has to
    /// be asked for by then, so nothing may be due in between: see [`Script::sends_at`].
    pub fn wait(&mut self, ms: u32) {
        let end = self.now + MS * ms;
        while let Some(at) = self.connection.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.connection.handle_timeout(self.now);
            if let Some(line) = self.poll() {
                panic!("at {} ms it sent {line:?}", self.ms());
            }
        }
        self.now = end;
    }

    /// The next thing that leaves by itself does so after `ms` more.
    pub fn sends_after(&mut self, ms: u64, expected: &str) {
        let start = self.ms();
        let line = loop {
            if let Some(line) = self.poll() {
                break line;
            }
            let at = self.connection.poll_timeout();
            let at = at.unwrap_or_else(|| panic!("nothing is due; expected {expected}"));
            self.now = self.now.max(at);
            self.connection.handle_timeout(self.now);
        };
        assert_eq!(self.ms() - start, ms, "{line:?}");
        self.compare(&line, expected);
    }

    fn compare(&self, line: &Line, expected: &str) {
        let fits = line.fits(&Line::parse(expected));
        assert!(
            fits,
            "at {} ms\n it sent  {line:?}\n expected {expected}",
            self.ms()
        );
    }

    /// A segment of the peer arrives.
    pub fn gets(&mut self, text: &str) {
        self.gets_marked(text, false);
    }

    pub fn gets_marked(&mut self, text: &str, is_marked: bool) {
        let line = Line::parse(text);
        let controls =
            u64::from(line.flags.has(Flags::SYN)) + u64::from(line.flags.has(Flags::FIN));
        let payload_len = usize::try_from(line.end - line.start - controls).expect("short");
        let mut options = Options {
            mss: line.mss,
            window_scale: line.ws,
            is_sack_permitted: line.is_sack_permitted,
            timestamps: line.ts.map(|(value, echo)| Timestamps { value, echo }),
            user_timeout: line.uto,
            ..Options::default()
        };
        for (start, end) in line.sack.into_iter().flatten() {
            let _ = options.sack.push(SackBlock {
                start: OURS.at(start),
                end: OURS.at(end),
            });
        }
        let header = Header {
            source_port: 2000,
            destination_port: 1000,
            seq: THEIRS.at(line.start),
            ack: line.ack.map_or(Seq::new(0), |ack| OURS.at(ack)),
            flags: line.flags,
            window: line.win.unwrap_or(50_000),
            options,
        };
        let payload = vec![b'x'; payload_len];
        let segment = Segment {
            header,
            payload: &payload,
        };
        self.connection
            .handle_segment(self.now, &segment, is_marked);
    }

    /// The next segment that leaves now.
    pub fn poll(&mut self) -> Option<Line> {
        let transmit = self.connection.poll_transmit(self.now, &mut self.out)?;
        self.is_ect = transmit.is_ect;
        let segment = Segment::parse(&self.out[..transmit.len], Pseudo::Unchecked);
        let segment = segment.expect("it is ours");
        let header = &segment.header;
        let theirs = |seq| THEIRS.position(seq, 1 << 20);
        let start = OURS.position(header.seq, 1 << 20).expect("a position");
        let sack: Vec<(u64, u64)> = header
            .options
            .sack
            .as_slice()
            .iter()
            .map(|b| (theirs(b.start).unwrap_or(0), theirs(b.end).unwrap_or(0)))
            .collect();
        Some(Line {
            flags: header.flags,
            start,
            end: start + segment.sequence_len(),
            ack: theirs(header.ack).filter(|_| header.flags.has(Flags::ACK)),
            win: Some(header.window),
            mss: header.options.mss,
            ws: header.options.window_scale,
            is_sack_permitted: header.options.is_sack_permitted,
            ts: header.options.timestamps.map(|t| (t.value, t.echo)),
            sack: (!sack.is_empty()).then_some(sack),
            uto: header.options.user_timeout,
        })
    }

    /// What leaves now is this.
    pub fn sends(&mut self, expected: &str) {
        match self.poll() {
            Some(line) => self.compare(&line, expected),
            None => panic!("at {} ms it sent nothing, expected {expected}", self.ms()),
        }
    }

    /// Nothing leaves now.
    pub fn sends_nothing(&mut self) {
        if let Some(line) = self.poll() {
            panic!("at {} ms it sent {line:?}", self.ms());
        }
    }

    /// Everything that leaves now.
    pub fn drain(&mut self) -> Vec<Line> {
        std::iter::from_fn(|| self.poll()).collect()
    }

    pub fn write(&mut self, len: usize) {
        let taken = self.connection.write(&vec![b'o'; len]);
        assert_eq!(taken, Ok(len));
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.connection.poll_event()).collect()
    }

    pub fn read_all(&mut self) -> usize {
        let (first, second) = self.connection.peek();
        let len = first.len() + second.len();
        self.connection.consume(self.now, len);
        len
    }
}
