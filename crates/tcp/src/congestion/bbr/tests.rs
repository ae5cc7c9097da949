//! BBR on a path without packets: a rate, a round trip, a queue.

use super::*;
use crate::rate::RateSample;
use crate::scoreboard::Snapshot;
use std::collections::BTreeSet;

const MSS: u64 = 1000;
const MS: Duration = Duration::from_millis(1);
/// Acknowledgements come this often.
const TICK: Duration = Duration::from_millis(2);

/// 2 MB/s over 50 ms: 100 segments fit.
struct Path {
    bbr: Bbr,
    now: Instant,
    bandwidth: u64,
    rtt: Duration,
    /// Behind the bottleneck's share of a round trip.
    queue: u64,
    in_flight: u64,
    delivered: u64,
    lost: u64,
    round_end: u64,
    prior: u64,
    loss_percent: u64,
    states: BTreeSet<&'static str>,
    queue_max: u64,
}

impl Path {
    fn new() -> Self {
        Self {
            bbr: Bbr::new(&Settings::default(), 1000),
            now: Instant::ZERO + MS * 1000,
            bandwidth: 2_000_000,
            rtt: MS * 50,
            queue: 0,
            in_flight: 0,
            delivered: 0,
            lost: 0,
            round_end: 0,
            prior: 0,
            loss_percent: 0,
            states: BTreeSet::new(),
            queue_max: 0,
        }
    }

    fn bytes_in(&self, rate: u64, time: Duration) -> u64 {
        let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
        u64::try_from(bytes).expect("small")
    }

    /// One tick: what may be sent is sent, what the bottleneck passes is acknowledged.
    fn tick(&mut self, is_app_limited: bool) {
        self.now += TICK;
        let allowed = self.bbr.cwnd().saturating_sub(self.in_flight);
        let paced = self.bytes_in(self.bbr.pacing_rate, TICK).max(MSS);
        let sent = if is_app_limited { MSS } else { paced }.min(allowed);
        if sent > 0 {
            let now = self.now;
            self.bbr.on_sending(now, self.in_flight, is_app_limited);
        }
        self.in_flight += sent;
        let on_path = self.bytes_in(self.bandwidth, self.rtt);
        let passed = self.bytes_in(self.bandwidth, TICK);
        let share = u64::try_from(TICK.as_nanos() * 1000 / self.rtt.as_nanos()).expect("small");
        let delivered = (self.in_flight * share / 1000)
            .clamp(1, passed.max(1))
            .min(self.in_flight);
        let lost = delivered * self.loss_percent / 100;
        self.in_flight -= delivered;
        self.queue = self.in_flight.saturating_sub(on_path);
        self.queue_max = self.queue_max.max(self.queue);
        self.acknowledge(delivered - lost, lost, is_app_limited);
        let name = match self.bbr.state() {
            State::Startup => "Startup",
            State::Drain => "Drain",
            State::ProbeBwDown => "Down",
            State::ProbeBwCruise => "Cruise",
            State::ProbeBwRefill => "Refill",
            State::ProbeBwUp => "Up",
            State::ProbeRtt => "ProbeRtt",
        };
        self.states.insert(name);
    }

    fn acknowledge(&mut self, delivered: u64, lost: u64, is_app_limited: bool) {
        if lost > 0 {
            self.lost += lost;
            let snapshot = Snapshot {
                lost: self.lost - lost,
                in_flight: lost * 100 / self.loss_percent,
                ..Snapshot::default()
            };
            let event = Lost {
                bytes: lost,
                snapshot,
                lost_total: self.lost,
            };
            self.bbr.on_lost(self.now, &event, self.delivered);
        }
        self.delivered += delivered;
        if self.prior >= self.round_end {
            self.round_end = self.delivered;
        }
        self.prior = self.delivered.saturating_sub(self.in_flight);
        let waited = Duration::from_nanos(self.queue * 1_000_000_000 / self.bandwidth);
        let rate = delivered * 1_000_000_000 / u64::try_from(TICK.as_nanos()).expect("small");
        let sample = RateSample {
            rate: Some(Rate::from_bytes_per_sec(rate.min(self.bandwidth))),
            delivered: self.in_flight,
            prior_delivered: self.prior,
            lost: 0,
            tx_in_flight: self.in_flight,
            is_app_limited,
            rtt: Some(self.rtt + waited),
        };
        self.bbr.on_acked(&Acked {
            now: self.now,
            delivered_bytes: delivered,
            lost_bytes: lost,
            delivered_total: self.delivered,
            pipe: self.in_flight,
            snd_una: self.delivered,
            snd_nxt: self.delivered + self.in_flight,
            srtt: Some(self.rtt),
            sample: &sample,
            is_cwnd_limited: self.in_flight + MSS > self.bbr.cwnd(),
            is_recovering: false,
        });
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.tick(false);
        }
    }
}

#[test]
fn startup_finds_the_bandwidth_and_drain_empties_its_queue() {
    let mut path = Path::new();
    path.run(MS * 2000);
    assert!(path.bbr.model.is_full_bw_reached);
    let found = path.bbr.model.max_bw();
    assert!((1_900_000..=2_000_000).contains(&found), "{found}");
    assert!(path.states.contains("Drain") && path.bbr.is_probe_bw());
    assert_eq!(path.bbr.model.min_rtt(), Some(MS * 50));
    path.queue_max = 0;
    path.run(MS * 500);
    assert!(path.queue_max < 60_000, "{}", path.queue_max);
}

#[test]
fn the_cycle_goes_through_all_its_phases() {
    let mut path = Path::new();
    path.run(MS * 4500);
    for phase in ["Down", "Cruise", "Refill", "Up"] {
        assert!(path.states.contains(phase), "{phase}: {:?}", path.states);
    }
}

/// The pipe is emptied for a fifth of a second once in five, and the window comes back.
#[test]
fn the_round_trip_is_probed_when_it_has_not_been_low_for_five_seconds() {
    let mut path = Path::new();
    path.run(MS * 3000);
    // A longer route: the old least round trip does not come again.
    path.rtt = MS * 60;
    path.states.clear();
    path.run(MS * 1500);
    assert!(!path.states.contains("ProbeRtt"));
    let mut low = u64::MAX;
    let before = path.bbr.cwnd();
    let end = path.now + MS * 3000;
    while path.now < end {
        path.tick(false);
        low = low.min(path.bbr.cwnd());
    }
    assert!(path.states.contains("ProbeRtt"));
    assert!(low <= before / 2, "{low} of {before}");
    path.run(MS * 6000);
    assert_eq!(path.bbr.model.min_rtt(), Some(MS * 60));
    assert!(path.bbr.cwnd() > before / 2);
}

#[test]
fn more_bandwidth_is_found_while_probing() {
    let mut path = Path::new();
    path.run(MS * 3000);
    path.bandwidth = 4_000_000;
    path.run(MS * 20_000);
    let found = path.bbr.model.max_bw();
    assert!(found > 3_500_000, "{found}");
}

#[test]
fn a_starved_sender_does_not_forget_the_bandwidth() {
    let mut path = Path::new();
    path.run(MS * 3000);
    for _ in 0..2000 {
        path.tick(true);
    }
    assert!(path.bbr.model.max_bw() > 1_800_000);
}

#[test]
fn losses_over_the_threshold_bound_the_flight_and_smaller_ones_do_not() {
    for (loss_percent, is_bounded) in [(1, false), (10, true)] {
        let mut path = Path::new();
        path.run(MS * 2000);
        path.loss_percent = loss_percent;
        path.run(MS * 6000);
        let longterm = path.bbr.model.inflight_longterm;
        assert_eq!(longterm != UNLIMITED, is_bounded, "{loss_percent}%");
    }
}

#[test]
fn a_needless_recovery_leaves_no_bound_behind() {
    let mut path = Path::new();
    path.run(MS * 2000);
    let cwnd = path.bbr.cwnd();
    path.bbr.on_congestion(path.now, 100_000, Cause::Loss);
    path.bbr.on_timeout(100_000, 0, false);
    assert_eq!(path.bbr.cwnd(), MSS);
    path.bbr.on_undone();
    assert_eq!(path.bbr.cwnd(), cwnd);
    assert_eq!(path.bbr.model.bw_shortterm, UNLIMITED);
}
