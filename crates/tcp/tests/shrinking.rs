//! A stream over a path whose MTU shrinks again and again, of which a router sometimes tells, and that
//! loses segments besides.

use std::collections::BTreeMap;
use std::time::Duration;

use fullbore_base::{Instant, Rng};
use fullbore_tcp::Seq;
use fullbore_tcp::congestion::{Algorithm, Settings};
use fullbore_tcp::connection::{Config, Connection};
use fullbore_tcp::segment::{Pseudo, Segment};
use fullbore_testkit::seeds;

const DELAY: Duration = Duration::from_millis(20);
const LEN: usize = 1_500_000;

/// The sender is number 0.
struct Path {
    ends: [Connection; 2],
    now: Instant,
    /// By time of arrival: for whom, and what.
    under_way: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    sent: u64,
    rng: Rng,
    /// The longest segment with its header that passes from the sender.
    limit: usize,
    out: Vec<u8>,
}

impl Path {
    fn new(seed: u64, config: Config) -> Self {
        let client = Connection::connect(Instant::ZERO, config, Seq::new(0xffff_f000));
        // Both open: the handshake is not what is tried here.
        let server = Connection::connect(Instant::ZERO, config, Seq::new(77));
        Self {
            ends: [client, server],
            now: Instant::ZERO,
            under_way: BTreeMap::new(),
            sent: 0,
            rng: Rng::seeded(seed),
            limit: 9000,
            out: vec![0; 10_000],
        }
    }

    /// Everything that leaves now is lost, too long, or on its way.
    fn carry(&mut self) {
        for from in [0, 1] {
            while let Some(transmit) = self.ends[from].poll_transmit(self.now, &mut self.out) {
                let bytes = self.out[..transmit.len].to_vec();
                self.sent += 1;
                if from == 0 && bytes.len() > self.limit {
                    self.drop_long(&bytes);
                } else if !self.rng.one_in(60) {
                    let at = (self.now + DELAY, self.sent);
                    self.under_way.insert(at, (1 - from, bytes));
                }
            }
            self.check(from);
        }
    }

    fn drop_long(&mut self, bytes: &[u8]) {
        if self.rng.one_in(3) {
            let segment = Segment::parse(bytes, Pseudo::Unchecked).expect("it is ours");
            let mss = u16::try_from(self.limit - 20).expect("short");
            self.ends[0].handle_too_big(self.now, segment.header.seq, mss);
        }
    }

    fn check(&self, end: usize) {
        let info = self.ends[end].info();
        let parts = info.pipe_bytes + info.sacked_bytes + info.lost_bytes;
        assert_eq!(parts, info.outstanding_bytes, "pipe is a sum");
        assert!(info.retransmitted_bytes <= info.pipe_bytes);
    }

    fn step(&mut self) {
        self.carry();
        let timers = self.ends.iter().filter_map(Connection::poll_timeout);
        let arrival = self.under_way.keys().next().map(|&(at, _)| at);
        let at = timers.chain(arrival).min();
        self.now = self
            .now
            .max(at.expect("something is due until all is there"));
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
        while let Some(entry) = self
            .under_way
            .first_entry()
            .filter(|e| e.key().0 <= self.now)
        {
            let (end, bytes) = entry.remove();
            let segment = Segment::parse(&bytes, Pseudo::Unchecked).expect("it is ours");
            self.ends[end].handle_segment(self.now, &segment, false);
        }
        self.carry();
    }

    fn read(&mut self) -> Vec<u8> {
        let (first, second) = self.ends[1].peek();
        let bytes = [first, second].concat();
        self.ends[1].consume(self.now, bytes.len());
        bytes
    }
}

/// Returns the largest segment that is left at the end.
fn transfer(seed: u64, config: Config) -> u32 {
    let mut path = Path::new(seed, config);
    let mut stream = vec![0; LEN];
    path.rng.fill(&mut stream);
    let (mut written, mut read) = (0, Vec::new());
    let end = Instant::ZERO + Duration::from_secs(1000);
    while read.len() < LEN {
        written += path.ends[0].write(&stream[written..]).expect("it is open");
        path.step();
        read.extend(path.read());
        assert!(
            path.now < end,
            "{} of {LEN}: {:?}",
            read.len(),
            path.ends[0].info()
        );
        if path.rng.one_in(200) {
            let less = path.limit * 9 / 10;
            // What the connection falls back to has to pass.
            path.limit = less.max(1024 + 20);
        }
    }
    assert!(read == stream, "every byte in its place");
    path.ends[0].info().snd_mss
}

#[test]
fn a_stream_survives_every_cut() {
    let mut smallest = u32::MAX;
    for seed in seeds(0..40) {
        for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr] {
            for is_sack in [true, false] {
                let config = Config {
                    mss: 8960,
                    mss_max: 8960,
                    is_sack,
                    is_paced: algorithm == Algorithm::Bbr,
                    records_max: 64,
                    congestion: Settings {
                        algorithm,
                        ..Settings::default()
                    },
                    ..Config::default()
                };
                smallest = smallest.min(transfer(seed, config));
            }
        }
    }
    assert!(smallest < 1100, "{smallest}: it shrank as far as it may");
}
