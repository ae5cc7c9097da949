//! One direction of an emulated link, without I/O: what goes in comes out later, or not at all.
//!
//! A packet meets, in this order, a queue with tail drop, the link's rate, random loss, and the way's
//! delay. All of it is accounted per segment; segments that travelled together come out together, when
//! the last of them has arrived.

use std::collections::BTreeMap;
use std::time::Duration;

use fullbore_base::{Instant, Rate, Rng};

use super::packet::Packet;

/// How long segments of one packet may be on the wire and still arrive as one packet: arrivals are as
/// exact as this. A receiver's network card joins about as much (GRO).
pub const BURST: Duration = Duration::from_millis(1);

/// How far a reordered segment falls behind.
pub const REORDER_DELAY: Duration = Duration::from_millis(3);

/// How one direction behaves.
#[derive(Clone, Copy, Debug)]
pub struct ShaperConfig {
    /// Bytes of IP per second.
    pub rate: Rate,
    /// From the end of sending to arrival.
    pub delay: Duration,
    /// At most so much is added to the delay of each burst, at random; nothing is overtaken.
    pub jitter: Duration,
    /// Bytes that wait to be sent at most, the segment that is being sent among them.
    pub queue_bytes_max: u64,
    /// Share of the segments that are lost on the way, 0 to 1.
    pub loss: f64,
    /// Share of the segments that arrive [`REORDER_DELAY`] late, overtaken by those behind; 0 to 1.
    pub reorder: f64,
    /// Decides every loss, delay and overtaking.
    pub seed: u64,
}

/// What became of the segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments that were sent into the link.
    pub segments_in: u64,
    /// Bytes of IP in them.
    pub bytes_in: u64,
    /// Segments that came out.
    pub segments_out: u64,
    /// Bytes of IP in them.
    pub bytes_out: u64,
    /// Packets that they came out in.
    pub packets_out: u64,
    /// Segments that found the queue full.
    pub dropped_queue: u64,
    /// Segments lost at random.
    pub dropped_loss: u64,
    /// Bytes that waited at most.
    pub queue_bytes_peak: u64,
}

/// One direction.
#[derive(Debug)]
pub struct Shaper {
    config: ShaperConfig,
    rng: Rng,
    /// When the link has sent all that was let into its queue.
    idle_at: Instant,
    /// The latest arrival that is planned, reordered ones aside.
    last_arrival: Instant,
    /// By arrival, then by order of sending.
    in_flight: BTreeMap<(Instant, u64), Burst>,
    burst_count: u64,
    counters: Counters,
}

#[derive(Debug)]
struct Burst {
    packet: Packet,
    segment_count: u64,
    bytes: u64,
}

/// What happens to one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    Late,
    Lost,
    Dropped,
}

impl Shaper {
    /// An idle link.
    #[must_use]
    pub fn new(config: ShaperConfig) -> Self {
        Self {
            rng: Rng::seeded(config.seed),
            config,
            idle_at: Instant::ZERO,
            last_arrival: Instant::ZERO,
            in_flight: BTreeMap::new(),
            burst_count: 0,
            counters: Counters::default(),
        }
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sends `packet` at `now`. Costs O(segments), and copies only a packet that does not stay whole.
    pub fn send(&mut self, now: Instant, packet: Packet) {
        let layout = packet.layout();
        self.idle_at = self.idle_at.max(now);
        // The segments that travel together: the first of them, and when it began to be sent.
        let mut run: Option<(usize, Instant)> = None;
        for index in 0..layout.segment_count {
            let before = self.idle_at;
            let fate = self.enqueue(now, layout.wire_len(index) as u64);
            let goes_on = |began| fate == Fate::Arrives && self.idle_at - began <= BURST;
            if let Some((first, began)) = run
                && !goes_on(began)
            {
                self.depart(before, Duration::ZERO, packet.slice(&layout, first, index));
                run = None;
            }
            match fate {
                Fate::Arrives => run = run.or(Some((index, before))),
                Fate::Late => {
                    let slice = packet.slice(&layout, index, index + 1);
                    self.depart(self.idle_at, REORDER_DELAY, slice);
                }
                Fate::Lost | Fate::Dropped => {}
            }
        }
        match run {
            Some((0, _)) => self.depart(self.idle_at, Duration::ZERO, packet),
            Some((first, _)) => {
                let slice = packet.slice(&layout, first, layout.segment_count);
                self.depart(self.idle_at, Duration::ZERO, slice);
            }
            None => {}
        }
    }

    /// Lets one segment into the queue, or not, and rolls its dice.
    fn enqueue(&mut self, now: Instant, bytes: u64) -> Fate {
        self.counters.segments_in += 1;
        self.counters.bytes_in += bytes;
        let waiting = self.idle_at - now + self.config.rate.time_for(bytes);
        if waiting > self.config.rate.time_for(self.config.queue_bytes_max) {
            self.counters.dropped_queue += 1;
            return Fate::Dropped;
        }
        self.idle_at = now + waiting;
        let queued = bytes_in(waiting, self.config.rate);
        self.counters.queue_bytes_peak = self.counters.queue_bytes_peak.max(queued);
        if self.is_hit(self.config.loss) {
            self.counters.dropped_loss += 1;
            Fate::Lost
        } else if self.is_hit(self.config.reorder) {
            Fate::Late
        } else {
            Fate::Arrives
        }
    }

    fn is_hit(&mut self, share: f64) -> bool {
        // 53 random bits are a fraction below 1 that a double holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let fraction = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        fraction < share
    }

    /// Puts what was sent by `sent_at` on its way.
    fn depart(&mut self, sent_at: Instant, extra: Duration, packet: Packet) {
        let jitter_nanos = u64::try_from(self.config.jitter.as_nanos()).unwrap_or(u64::MAX);
        let jitter = match jitter_nanos {
            0 => Duration::ZERO,
            nanos => Duration::from_nanos(self.rng.below(nanos)),
        };
        let mut at = (sent_at + self.config.delay + jitter).max(self.last_arrival);
        if extra.is_zero() {
            self.last_arrival = at;
        } else {
            at += extra;
        }
        let layout = packet.layout();
        let bytes = (0..layout.segment_count).map(|i| layout.wire_len(i) as u64);
        let burst = Burst {
            segment_count: layout.segment_count as u64,
            bytes: bytes.sum(),
            packet,
        };
        self.in_flight.insert((at, self.burst_count), burst);
        self.burst_count += 1;
    }

    /// When the next packet arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes the next packet that has arrived by `now`, and when it did.
    #[must_use]
    pub fn receive(&mut self, now: Instant) -> Option<(Instant, Packet)> {
        if self.next_arrival()? > now {
            return None;
        }
        let ((at, _), burst) = self.in_flight.pop_first()?;
        self.counters.packets_out += 1;
        self.counters.segments_out += burst.segment_count;
        self.counters.bytes_out += burst.bytes;
        Some((at, burst.packet))
    }
}

/// Bytes that `rate` sends in `time`.
fn bytes_in(time: Duration, rate: Rate) -> u64 {
    let bytes = time.as_nanos() * u128::from(rate.bytes_per_sec()) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
