//! One direction of a path: a queue, a rate, a delay and what may go wrong. What goes in comes out
//! later, in order unless the link is told to reorder.

use std::collections::BTreeMap;
use std::time::Duration;

use fullbore_base::{Instant, Rate, Rng};

use crate::faults::Faults;
use crate::queue::{Queue, QueueConfig};

/// Something that takes up room on a link.
pub trait Payload {
    /// Bytes it occupies on the wire.
    fn wire_len(&self) -> usize;

    /// Changes it as a faulty wire does.
    fn corrupt(&mut self, rng: &mut Rng);
}

impl Payload for Vec<u8> {
    fn wire_len(&self) -> usize {
        self.len()
    }

    /// Turns one bit over.
    fn corrupt(&mut self, rng: &mut Rng) {
        if !self.is_empty() {
            let at = rng.index(self.len());
            self[at] ^= 1 << rng.below(8);
        }
    }
}

/// How a link behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkConfig {
    /// Time from the end of sending to arrival: half the round-trip time.
    pub delay: Duration,
    /// How fast bytes leave the sender; `None` is at once.
    pub rate: Option<Rate>,
    /// What waits while the link sends.
    pub queue: QueueConfig,
    /// Longer items vanish without a word; `None` takes any length.
    pub mtu: Option<usize>,
    /// What goes wrong behind the queue.
    pub faults: Faults,
}

/// What a link has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Items that left the queue for the wire.
    pub sent: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// Items that the queue refused or dropped.
    pub queue_drops: u64,
    /// Items that were too long.
    pub mtu_drops: u64,
    /// Items lost on the wire.
    pub lost: u64,
    /// Second copies.
    pub duplicated: u64,
    /// Items changed on the wire.
    pub corrupted: u64,
    /// Items that took a detour.
    pub reordered: u64,
    /// Most bytes that waited at once.
    pub queue_bytes_peak: usize,
}

/// A link with items in its queue and in flight.
#[derive(Debug)]
pub struct Link<P> {
    config: LinkConfig,
    rng: Rng,
    queue: Queue<P>,
    /// By time of arrival, then in the order of sending.
    in_flight: BTreeMap<(Instant, u64), P>,
    bytes_in_flight: usize,
    /// When the wire is done with what was sent so far.
    idle_at: Instant,
    next_number: u64,
    stats: LinkStats,
}

impl<P: Payload + Clone> Link<P> {
    /// An empty link without chance.
    #[must_use]
    pub fn new(config: LinkConfig) -> Self {
        Self::seeded(config, 0)
    }

    /// An empty link whose faults follow `seed`.
    #[must_use]
    pub fn seeded(config: LinkConfig, seed: u64) -> Self {
        Self {
            config,
            rng: Rng::seeded(seed),
            queue: Queue::new(config.queue),
            in_flight: BTreeMap::new(),
            bytes_in_flight: 0,
            idle_at: Instant::ZERO,
            next_number: 0,
            stats: LinkStats::default(),
        }
    }

    /// The link changes: a route of another delay, a smaller MTU, a black hole. What is in flight
    /// arrives as it would have; what waits leaves under the new rules.
    pub fn set_config(&mut self, now: Instant, config: LinkConfig) {
        self.advance(now);
        self.config = config;
        self.queue.set_config(config.queue);
    }

    /// How it behaves now.
    #[must_use]
    pub const fn config(&self) -> LinkConfig {
        self.config
    }

    /// Puts `item` on the link behind what is there. O(log n) in the items in flight.
    pub fn send(&mut self, now: Instant, item: P) {
        self.advance(now);
        if self.config.mtu.is_some_and(|mtu| item.wire_len() > mtu) {
            self.stats.mtu_drops += 1;
            return;
        }
        if !self.queue.push(now, item) {
            self.stats.queue_drops += 1;
        }
        self.stats.queue_bytes_peak = self.stats.queue_bytes_peak.max(self.queue.bytes());
        self.advance(now);
    }

    /// When something happens next on the link: an item leaves the queue, or arrives.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        let arrival = self.in_flight.keys().next().map(|&(at, _)| at);
        [arrival, self.next_departure()].into_iter().flatten().min()
    }

    /// Takes the next item if it has arrived at `now`.
    #[must_use]
    pub fn receive(&mut self, now: Instant) -> Option<P> {
        self.advance(now);
        let entry = self.in_flight.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let item = entry.remove();
        self.bytes_in_flight -= item.wire_len();
        Some(item)
    }

    /// Bytes sent and not yet received, those in the queue included.
    #[must_use]
    pub const fn bytes_in_flight(&self) -> usize {
        self.bytes_in_flight + self.queue.bytes()
    }

    /// Bytes that wait for the wire.
    #[must_use]
    pub const fn bytes_queued(&self) -> usize {
        self.queue.bytes()
    }

    /// Counters so far.
    #[must_use]
    pub const fn stats(&self) -> &LinkStats {
        &self.stats
    }

    fn next_departure(&self) -> Option<Instant> {
        self.queue.oldest().map(|came| came.max(self.idle_at))
    }

    /// Moves what the wire has had time for from the queue into flight.
    fn advance(&mut self, now: Instant) {
        while let Some(start) = self.next_departure()
            && start <= now
        {
            let (item, drops) = self.queue.pop(start);
            self.stats.queue_drops += drops;
            let Some(item) = item else {
                return;
            };
            let bytes = u64::try_from(item.wire_len()).expect("a length fits in 64 bits");
            let sending = self.config.rate.map(|rate| rate.time_for(bytes));
            self.idle_at = start + sending.unwrap_or_default();
            self.stats.sent += 1;
            self.stats.bytes_sent += bytes;
            self.fly(item);
        }
    }

    /// What becomes of an item between the queue and the other end.
    fn fly(&mut self, mut item: P) {
        let faults = self.config.faults;
        if faults.loss.happens(&mut self.rng) {
            self.stats.lost += 1;
            return;
        }
        if faults.corrupt.happens(&mut self.rng) {
            item.corrupt(&mut self.rng);
            self.stats.corrupted += 1;
        }
        if faults.duplicate.happens(&mut self.rng) {
            self.stats.duplicated += 1;
            self.arrive(item.clone(), faults);
        }
        self.arrive(item, faults);
    }

    fn arrive(&mut self, item: P, faults: Faults) {
        let detour = faults.detour(&mut self.rng);
        if !detour.is_zero() {
            self.stats.reordered += 1;
        }
        let at = self.idle_at + self.config.delay + detour;
        self.bytes_in_flight += item.wire_len();
        self.in_flight.insert((at, self.next_number), item);
        self.next_number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Chance;

    const MS: Duration = Duration::from_millis(1);

    fn config() -> LinkConfig {
        LinkConfig {
            delay: MS * 50,
            rate: Some(Rate::from_bytes_per_sec(1_000_000)),
            ..LinkConfig::default()
        }
    }

    fn number(n: u32) -> Vec<u8> {
        n.to_be_bytes().to_vec()
    }

    /// Sends `count` numbered items, one a ms, and returns all that arrives, in order.
    fn carry(config: LinkConfig, seed: u64, count: u32) -> (Vec<Vec<u8>>, LinkStats) {
        let mut link = Link::seeded(config, seed);
        for n in 0..count {
            link.send(Instant::ZERO + MS * n, number(n));
        }
        let mut arrived = Vec::new();
        while let Some(at) = link.next_event() {
            arrived.extend(std::iter::from_fn(|| link.receive(at)));
        }
        assert_eq!(link.bytes_in_flight(), 0);
        (arrived, *link.stats())
    }

    #[test]
    fn an_item_arrives_after_its_sending_time_and_the_delay() {
        let mut link = Link::new(config());
        let at = |ms: u32| Instant::ZERO + MS * ms;
        link.send(Instant::ZERO, vec![0u8; 10_000]);
        link.send(Instant::ZERO, vec![1u8; 10_000]);
        assert_eq!(link.bytes_queued(), 10_000);
        assert_eq!(link.next_event(), Some(at(10)));
        assert!(link.receive(at(59)).is_none());
        assert_eq!(link.receive(at(60)), Some(vec![0; 10_000]));
        assert_eq!(link.next_event(), Some(at(70)));
        assert_eq!(link.bytes_in_flight(), 10_000);
    }

    #[test]
    fn faults_come_as_often_as_asked_and_a_seed_replays_them() {
        let mut config = config();
        config.faults = Faults {
            loss: Chance::per_million(100_000),
            duplicate: Chance::per_million(50_000),
            corrupt: Chance::per_million(20_000),
            reorder: Chance::per_million(200_000),
            reorder_delay: MS * 20,
        };
        let (arrived, stats) = carry(config, 7, 10_000);
        assert!((900..1100).contains(&stats.lost), "{stats:?}");
        assert!((400..500).contains(&stats.duplicated), "{stats:?}");
        assert!((140..220).contains(&stats.corrupted), "{stats:?}");
        assert!((1700..2100).contains(&stats.reordered), "{stats:?}");
        let count = u64::try_from(arrived.len()).expect("a count");
        assert_eq!(count, stats.sent - stats.lost + stats.duplicated);
        assert!(!arrived.is_sorted(), "nothing was passed");
        assert_eq!(carry(config, 7, 10_000), (arrived, stats));
        assert_ne!(carry(config, 8, 10_000).1, stats);
    }

    #[test]
    fn without_faults_all_arrives_in_order() {
        let (arrived, stats) = carry(config(), 1, 1_000);
        assert!(arrived.is_sorted());
        assert_eq!((arrived.len(), stats.sent), (1_000, 1_000));
    }

    #[test]
    fn a_tail_drop_queue_bounds_the_wait() {
        let mut config = config();
        config.queue = QueueConfig::TailDrop { bytes_max: 5_000 };
        let mut link = Link::new(config);
        for _ in 0..10 {
            link.send(Instant::ZERO, vec![0; 1_000]);
        }
        // One is being sent, five wait.
        assert_eq!(link.stats().queue_drops, 4);
        assert_eq!(link.stats().queue_bytes_peak, 5_000);
    }

    #[test]
    fn a_path_can_change_under_what_is_sent() {
        let mut link = Link::new(config());
        let at = |ms: u32| Instant::ZERO + MS * ms;
        link.send(at(0), vec![0; 1_500]);
        let mut narrow = config();
        narrow.mtu = Some(1_400);
        link.set_config(at(1), narrow);
        link.send(at(2), vec![1; 1_500]);
        link.send(at(2), vec![2; 1_400]);
        let mut hole = config();
        hole.faults.loss = Chance::ALWAYS;
        link.set_config(at(10), hole);
        link.send(at(10), vec![3; 10]);
        let arrived: Vec<_> = std::iter::from_fn(|| link.receive(at(1_000))).collect();
        assert_eq!(arrived, [vec![0; 1_500], vec![2; 1_400]]);
        assert_eq!((link.stats().mtu_drops, link.stats().lost), (1, 1));
    }
}
