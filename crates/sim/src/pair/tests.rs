use super::*;

const MS: Duration = Duration::from_millis(1);
const FOREVER: Instant = Instant::from_nanos(u64::MAX);

/// Sends `to_send` bytes, counts what comes, answers each `echo_every` bytes with one byte, and
/// closes once it has sent and received what it wants.
#[derive(Debug, Default)]
struct Counter {
    to_send: usize,
    wanted: usize,
    received: Vec<u8>,
    /// Most bytes taken per call; 0 takes all.
    appetite: usize,
    next_byte: u8,
    timer: Option<Instant>,
    timeouts: u32,
    saw_eof: bool,
}

impl Endpoint for Counter {
    fn handle_input(&mut self, _now: Instant, bytes: &[u8]) -> usize {
        let taken = if self.appetite == 0 {
            bytes.len()
        } else {
            bytes.len().min(self.appetite)
        };
        self.received.extend(&bytes[..taken]);
        taken
    }

    fn handle_eof(&mut self, _now: Instant) {
        self.saw_eof = true;
    }

    fn handle_timeout(&mut self, _now: Instant) {
        self.timer = None;
        self.timeouts += 1;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    fn poll_transmit(&mut self, _now: Instant, room: usize, out: &mut Vec<u8>) {
        let n = self.to_send.min(room);
        for _ in 0..n {
            out.push(self.next_byte);
            self.next_byte = self.next_byte.wrapping_add(1);
        }
        self.to_send -= n;
    }

    fn is_closed(&self) -> bool {
        self.to_send == 0 && self.received.len() >= self.wanted
    }
}

fn sender(to_send: usize) -> Counter {
    Counter {
        to_send,
        ..Counter::default()
    }
}

fn receiver(wanted: usize) -> Counter {
    Counter {
        wanted,
        ..Counter::default()
    }
}

#[test]
fn a_byte_takes_one_leg() {
    let config = PairConfig {
        delay: MS * 50,
        ..PairConfig::default()
    };
    let mut pair = Pair::new(config, sender(1), receiver(1));
    let stop = pair.run(FOREVER, |p| p.b.received.len() == 1, |_| ());
    assert_eq!((stop, pair.legs()), (Stop::Done, 1));
}

#[test]
fn the_rate_sets_the_pace() {
    let config = PairConfig {
        delay: MS * 50,
        rate: Some(Rate::from_bytes_per_sec(1_000_000)),
        ..PairConfig::default()
    };
    let mut pair = Pair::new(config, sender(1_000_000), receiver(1_000_000));
    assert_eq!(
        pair.run(FOREVER, |p| p.b.received.len() == 1_000_000, |_| ()),
        Stop::Done
    );
    assert_eq!(pair.now(), Instant::ZERO + MS * 1_050);
}

#[test]
fn cuts_keep_every_byte_in_order_and_replay_from_the_seed() {
    let run = |seed| {
        let config = PairConfig {
            seed,
            delay: MS,
            cuts: true,
            buffer_bytes_max: 1000,
            ..PairConfig::default()
        };
        let mut pair = Pair::new(config, sender(20_000), receiver(20_000));
        let stop = pair.run(
            FOREVER,
            |p| p.b.saw_eof,
            |p| assert!(p.a_to_b.held() <= 1000, "seed {seed}"),
        );
        assert_eq!(stop, Stop::Done, "seed {seed}");
        let in_order = pair.b.received.iter().zip((0..=255u8).cycle());
        assert!(in_order.into_iter().all(|(a, b)| *a == b), "seed {seed}");
        assert_eq!(pair.b.received.len(), 20_000, "seed {seed}");
        pair.trace()
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1), run(2));
}

#[test]
fn an_endpoint_that_takes_little_is_offered_the_rest() {
    let b = Counter {
        appetite: 7,
        ..receiver(100)
    };
    let mut pair = Pair::new(PairConfig::default(), sender(100), b);
    let stop = pair.run(FOREVER, |_| false, |_| ());
    assert_eq!((stop, pair.b.received.len()), (Stop::Quiet, 100));
    assert!(pair.a.saw_eof && pair.b.saw_eof);
}

#[test]
fn timers_fire_at_their_instant_and_the_deadline_holds() {
    let mut a = sender(0);
    a.wanted = 1;
    a.timer = Some(Instant::ZERO + MS * 30);
    let mut pair = Pair::new(PairConfig::default(), a, receiver(1));
    assert_eq!(
        pair.run(Instant::ZERO + MS * 29, |_| false, |_| ()),
        Stop::Deadline
    );
    assert_eq!(pair.a.timeouts, 0);
    assert_eq!(pair.run(FOREVER, |_| false, |_| ()), Stop::Quiet);
    assert_eq!((pair.a.timeouts, pair.now()), (1, Instant::ZERO + MS * 30));
}

#[test]
fn a_write_arrives_segment_by_segment_as_each_is_sent() {
    let first_at = |segment_bytes_max| {
        let config = PairConfig {
            delay: MS * 50,
            rate: Some(Rate::from_bytes_per_sec(1_000_000)),
            segment_bytes_max,
            ..PairConfig::default()
        };
        let mut pair = Pair::new(config, sender(100_000), receiver(100_000));
        pair.run(FOREVER, |p| !p.b.received.is_empty(), |_| ());
        let first_at = pair.now();
        pair.run(FOREVER, |p| p.b.received.len() == 100_000, |_| ());
        assert_eq!(pair.now(), Instant::ZERO + MS * 150);
        first_at
    };
    assert_eq!(first_at(usize::MAX), Instant::ZERO + MS * 150);
    assert_eq!(first_at(1000), Instant::ZERO + MS * 51);
}
