//! Whole transfers to receivers that lie: no time-out is forced, the stream goes on, and no
//! acknowledgement costs more than its share. (One that claims losses slows its own stream: that is
//! what a loss asks of a sender.)

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use fullbore_base::{Instant, Rng};
use fullbore_sim::{Net, Node, NodeId};
use fullbore_tcp::Seq;
use fullbore_tcp::congestion::Algorithm;
use fullbore_tcp::segment::{Flags, Header, Options, Pseudo, SackBlock, Segment};
use support::{Host, Job, MS, Packet, config, link};

/// How long the cumulative acknowledgement is held back at a time.
const HOLD: Duration = Duration::from_millis(150);
const INITIAL: Seq = Seq::new(77);
const MSS: u32 = 1460;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Duplicate acknowledgements while the cumulative one is held: the floor.
    Dupack,
    DsackStorm,
    FindFirst,
    CoverAll,
    Random,
    Rack,
    Split,
    Garbage,
}

const MODES: [Mode; 8] = [
    Mode::Dupack,
    Mode::DsackStorm,
    Mode::FindFirst,
    Mode::CoverAll,
    Mode::Random,
    Mode::Rack,
    Mode::Split,
    Mode::Garbage,
];

/// A receiver that holds everything and says what it likes.
struct Attacker {
    mode: Mode,
    rng: Rng,
    peer: Option<NodeId>,
    /// First number of the stream.
    base: Option<Seq>,
    /// Offsets from there: what has arrived in one piece, and what is acknowledged.
    arrived: u64,
    beyond: BTreeMap<u64, u64>,
    acked: u64,
    newest: u64,
    released_at: Instant,
    replies: Vec<Header>,
}

impl Attacker {
    fn new(mode: Mode) -> Self {
        Self {
            mode,
            rng: Rng::seeded(9),
            peer: None,
            base: None,
            arrived: 0,
            beyond: BTreeMap::new(),
            acked: 0,
            newest: 0,
            released_at: Instant::ZERO,
            replies: Vec::new(),
        }
    }

    fn header(&self, ack: Seq, flags: Flags, options: Options) -> Header {
        Header {
            source_port: 22,
            destination_port: 40_000,
            seq: if flags.has(Flags::SYN) {
                INITIAL
            } else {
                INITIAL.plus(1)
            },
            ack,
            flags,
            window: 65_535,
            options,
        }
    }

    fn take(&mut self, now: Instant, segment: &Segment<'_>) {
        let header = &segment.header;
        if header.flags.has(Flags::SYN) {
            self.base = Some(header.seq.plus(1));
            let options = Options {
                mss: Some(1460),
                window_scale: Some(8),
                is_sack_permitted: true,
                ..Options::default()
            };
            let flags = Flags::SYN | Flags::ACK;
            self.replies
                .push(self.header(header.seq.plus(1), flags, options));
            return;
        }
        let base = self.base.expect("a SYN came first");
        let Some(start) = base.position(header.seq, self.arrived) else {
            return;
        };
        let end = start + segment.payload.len() as u64;
        self.newest = self.newest.max(start);
        self.beyond.insert(start, end);
        while let Some((&start, &end)) = self.beyond.first_key_value()
            && start <= self.arrived
        {
            self.arrived = self.arrived.max(end);
            self.beyond.remove(&start);
        }
        if now - self.released_at >= HOLD {
            self.released_at = now;
            self.acked = self.arrived;
        }
        let options = self.lie(base);
        let ack = base.at(self.acked);
        self.replies.push(self.header(ack, Flags::ACK, options));
    }

    fn lie(&mut self, base: Seq) -> Options {
        let mss = u64::from(MSS);
        let (acked, newest) = (self.acked, self.newest.max(self.acked + mss));
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        let one = |start: u64| (start, start + mss);
        let segments = (newest - acked) / mss;
        match self.mode {
            Mode::Dupack => {}
            Mode::DsackStorm => blocks.extend([one(acked.saturating_sub(mss)), one(newest)]),
            Mode::FindFirst => {
                blocks.extend(
                    (0..4).map(|i| one(newest.saturating_sub(2 * i * mss).max(acked + mss))),
                );
            }
            Mode::CoverAll => blocks.push((acked + mss, newest + mss)),
            Mode::Random => {
                for _ in 0..4 {
                    blocks.push(one(acked + mss * (1 + self.rng.below(segments.max(1)))));
                }
            }
            Mode::Rack => {
                let number = ((newest - acked) / mss) & !1;
                blocks.push(one(acked + number.max(2) * mss));
            }
            Mode::Split => {
                let at = acked + 1 + self.rng.below(newest - acked);
                blocks.extend([(at, at + 1), (at + 7, at + 900)]);
            }
            Mode::Garbage => {
                blocks.extend([
                    (newest + mss, acked),
                    (newest + (9 << 20), newest + (10 << 20)),
                ]);
                blocks.extend([(acked, newest), (newest, newest)]);
            }
        }
        let mut options = Options::default();
        for (start, end) in blocks {
            let _ = options.sack.push(SackBlock {
                start: base.at(start),
                end: base.at(end),
            });
        }
        options
    }
}

enum End {
    Honest(Box<Host>),
    Attacker(Box<Attacker>),
}

impl Node<Packet> for End {
    fn handle_packet(&mut self, now: Instant, from: NodeId, item: Packet) {
        match self {
            Self::Honest(host) => host.handle_packet(now, from, item),
            Self::Attacker(attacker) => {
                attacker.peer = Some(from);
                let segment = Segment::parse(&item.bytes, Pseudo::Unchecked);
                attacker.take(now, &segment.expect("the path is clean"));
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Self::Honest(host) = self {
            host.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Honest(host) => host.poll_timeout(),
            Self::Attacker(_) => None,
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(NodeId, Packet)> {
        match self {
            Self::Honest(host) => host.poll_transmit(now),
            Self::Attacker(attacker) => {
                let header = attacker.replies.pop()?;
                let mut bytes = vec![0; header.len()];
                let pseudo = Pseudo::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
                header.emit(&mut bytes, 0, pseudo);
                let packet = Packet {
                    bytes,
                    is_ect: false,
                    is_marked: false,
                };
                Some((attacker.peer.expect("it came first"), packet))
            }
        }
    }
}

struct Outcome {
    acked: u64,
    timeouts: u64,
    examined_per_ack: u64,
    bytes_retransmitted: u64,
}

fn attack(mode: Mode, algorithm: Algorithm) -> Outcome {
    let job = Job {
        send: u64::MAX / 2,
        ..Job::default()
    };
    let config = fullbore_tcp::connection::Config {
        is_timestamps: false,
        ..config(algorithm)
    };
    let mut host = Host::client(config, job);
    let mut net = Net::new(1);
    let attacker = net.add_node(End::Attacker(Box::new(Attacker::new(mode))));
    host.set_peer(attacker);
    let sender = net.add_node(End::Honest(Box::new(host)));
    let path = link(MS * 50, 40);
    net.connect(sender, attacker, path, path);
    let _ = net.run(Instant::ZERO + MS * 3000, |_| false, |_| {});
    let End::Honest(host) = net.node(sender) else {
        unreachable!("it was added so");
    };
    let info = host.info();
    Outcome {
        acked: info.stats.bytes_acked,
        timeouts: info.recovery.timeouts,
        examined_per_ack: info.recovery.segments_examined / info.recovery.acks.max(1),
        bytes_retransmitted: info.recovery.bytes_retransmitted,
    }
}

#[test]
fn no_mode_forces_a_timeout_or_stops_the_stream() {
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        let floor = attack(Mode::Dupack, algorithm);
        for mode in MODES {
            let outcome = attack(mode, algorithm);
            println!(
                "{algorithm:?} {mode:?}: {} of {} bytes, {} again, {} time-outs, {} looked at",
                outcome.acked,
                floor.acked,
                outcome.bytes_retransmitted,
                outcome.timeouts,
                outcome.examined_per_ack
            );
            assert_eq!(outcome.timeouts, 0, "{algorithm:?} {mode:?}");
            assert!(outcome.acked > 50_000, "{algorithm:?} {mode:?}");
            assert!(outcome.examined_per_ack <= 80, "{algorithm:?} {mode:?}");
        }
    }
}
