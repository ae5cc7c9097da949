use super::*;
use std::collections::VecDeque;

const MS: Duration = Duration::from_millis(1);
const START: u64 = 1 << 20;

/// A sender that uses its window whole, a link and a consumer: what the target becomes.
struct Model {
    tune: Autotune,
    rtt: PathRtt,
    now: Instant,
    /// Bytes per millisecond.
    rate: u64,
    delay: Duration,
    /// Most that the sender ever has on its way: its TCP's limit.
    cwnd: u64,
    /// Arrival time and length.
    flight: VecDeque<(Instant, Instant, u64)>,
    in_flight: u64,
    busy_until: Instant,
    /// Grants on their way to the sender.
    grants: VecDeque<(Instant, u64)>,
    granted: u64,
    known: u64,
    sent: u64,
    consumed: u64,
}

impl Model {
    fn new(rate_mbit: u64, rtt: Duration) -> Self {
        Self {
            tune: Autotune::new(START, i32::MAX as u64),
            rtt: PathRtt::default(),
            now: Instant::ZERO,
            rate: rate_mbit * 125,
            delay: rtt / 2,
            cwnd: u64::MAX,
            flight: VecDeque::new(),
            in_flight: 0,
            busy_until: Instant::ZERO,
            grants: VecDeque::new(),
            granted: START,
            known: START,
            sent: 0,
            consumed: 0,
        }
    }

    fn bdp(&self) -> u64 {
        self.rate * (self.delay.as_micros() as u64 * 2) / 1000
    }

    /// Half a millisecond of everything.
    fn step(&mut self) {
        self.now += MS / 2;
        while let Some(&(at, total)) = self.grants.front()
            && at <= self.now
        {
            self.known = total;
            self.grants.pop_front();
        }
        let slice = (self.rate / 2).max(1);
        loop {
            let room = (self.known - self.sent).min(self.cwnd - self.in_flight.min(self.cwnd));
            let len = room.min(slice);
            if len == 0 || self.flight.len() > 100_000 {
                break;
            }
            let start = self.busy_until.max(self.now);
            self.busy_until = start + Duration::from_nanos(len * 1_000_000 / self.rate);
            self.flight
                .push_back((self.busy_until + self.delay, self.now, len));
            self.in_flight += len;
            self.sent += len;
        }
        let mut took = 0;
        while let Some(&(at, _, len)) = self.flight.front()
            && at <= self.now
        {
            took += len;
            self.flight.pop_front();
            self.in_flight -= len;
        }
        if took > 0 {
            // A ping comes back behind what is queued.
            let queue = self.busy_until - self.now;
            self.rtt.on_sample(self.now, self.delay * 2 + queue);
            self.consumed += took;
            let credit = self.granted - self.consumed;
            self.tune
                .on_delivered(self.now, took, credit, &mut self.rtt);
        }
        let target = self.consumed + self.tune.target();
        if target > self.granted {
            self.granted = target;
            self.grants.push_back((self.now + self.delay, target));
        }
    }

    fn run(&mut self, time: Duration) -> u64 {
        let (until, before) = (self.now + time, self.consumed);
        while self.now < until {
            self.step();
        }
        self.consumed - before
    }
}

#[test]
fn a_window_limited_sender_gets_twice_the_window_every_round_trip() {
    let mut model = Model::new(100_000, MS * 100);
    // The first credit is used whole one round trip after the start, at the earliest.
    model.run(MS * 150);
    for doublings in 1..8 {
        let target = model.tune.target();
        assert!(target >= START << doublings, "{target} after {doublings}");
        model.run(MS * 100);
    }
}

#[test]
fn settles_at_one_and_a_half_times_the_path_to_twice_whatever_the_path() {
    for (mbit, rtt) in [(100, 10), (100, 200), (320, 200), (1000, 100), (1000, 400)] {
        let mut model = Model::new(mbit, MS * rtt);
        model.cwnd = model.bdp() * 3 / 2;
        model.run(MS * rtt * 25 + MS * 1000);
        // Shorter round trips count as ROUND_MIN.
        let bdp = model.bdp().max(model.rate * ROUND_MIN.as_millis() as u64);
        let (target, bdp) = (model.tune.target(), bdp.max(START / 2));
        assert!(
            target >= bdp * 23 / 16 && target <= bdp * 5 / 2,
            "{mbit} Mbit/s x {rtt} ms: {target} for {bdp}"
        );
        let second = model.run(MS * 1000);
        assert!(
            second >= model.rate * 970,
            "{second} of {}",
            model.rate * 1000
        );
    }
}

#[test]
fn a_queue_that_the_window_itself_makes_does_not_make_it_grow() {
    let mut model = Model::new(320, MS * 100);
    // The sender puts all of its credit on the link at once, whose queue is endless.
    model.run(MS * 60_000);
    let bdp = model.bdp();
    assert!(
        model.tune.target() <= bdp * 5 / 2,
        "{} for {bdp}",
        model.tune.target()
    );
    assert!(model.run(MS * 1000) >= model.rate * 970);
}

#[test]
fn a_queue_in_the_path_makes_the_window_smaller_at_once() {
    let mut model = Model::new(320, MS * 200);
    // Until the path is full, and five round trips of the queue's longest.
    model.run(MS * 200 * 8 + MS * 600 * 5);
    let (target, bdp) = (model.tune.target(), model.bdp());
    assert!(target <= bdp * 13 / 8, "{target} for {bdp}");
    assert!(model.run(MS * 1000) >= model.rate * 970);
}

#[test]
fn what_a_retransmission_held_up_is_no_faster_path() {
    let mut tune = Autotune::new(START, u64::MAX);
    let mut rtt = PathRtt::default();
    let mut now = Instant::ZERO;
    let mut round = |tune: &mut Autotune, bytes: u64| {
        now += MS * 200;
        rtt.on_sample(now, MS * 200);
        tune.on_delivered(now, bytes, u64::MAX, &mut rtt);
        tune.target()
    };
    for bytes in [1 << 20, 2 << 20, 4 << 20, 8 << 20] {
        round(&mut tune, bytes);
    }
    let full = tune.target();
    assert_eq!(full, 32 << 20);
    for bytes in [1 << 10, 1 << 10, 24 << 20, 8 << 20] {
        assert!(round(&mut tune, bytes) <= full);
    }
    // A path that is faster is.
    let most = (0..4).map(|_| round(&mut tune, 24 << 20)).max();
    assert!(most > Some(full), "{most:?}");
}

#[test]
fn a_path_that_becomes_longer_gets_a_larger_window() {
    let mut model = Model::new(100, MS * 20);
    model.run(MS * 3000);
    model.delay = MS * 100;
    model.run(MS * 30_000);
    let second = model.run(MS * 1000);
    assert!(
        second >= model.rate * 970,
        "{second} of {}",
        model.rate * 1000
    );
}

#[test]
fn an_idle_window_starts_anew_and_a_trickle_leaves_it_small() {
    let mut model = Model::new(320, MS * 200);
    model.run(MS * 3000);
    assert!(model.tune.target() > 8 * START);
    let at = model.tune.idle_at().expect("it is large");
    assert!(!model.tune.on_idle(model.now));
    assert!(model.tune.on_idle(at));
    assert_eq!((model.tune.target(), model.tune.idle_at()), (START, None));
    // A kilobyte now and then.
    for _ in 0..100 {
        model.now += MS * 100;
        model
            .tune
            .on_delivered(model.now, 1000, START, &mut model.rtt);
    }
    assert_eq!(model.tune.target(), START);
}

#[test]
fn a_consumer_that_does_not_keep_up_gets_no_larger_window() {
    let mut rtt = PathRtt::default();
    rtt.on_sample(Instant::ZERO, MS * 100);
    let mut tune = Autotune::new(START, u64::MAX);
    // 100 KiB in a round trip, however much waits to be consumed.
    for round in 1..50 {
        tune.on_delivered(
            Instant::ZERO + MS * 100 * round,
            100 << 10,
            START / 8,
            &mut rtt,
        );
    }
    assert_eq!(tune.target(), START);
}
