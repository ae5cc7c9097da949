//! How fast the path delivers, from the times at which segments were sent and delivered.
//!
//! draft-ietf-ccwg-bbr section 4.1 (delivery rate sampling): a sample spans from the delivery that
//! was newest when a segment was sent to the delivery of that segment. The rate is what arrived in
//! between over the longer of the time that took to send and the time that took to be acknowledged.

use core::time::Duration;
use fullbore_base::{Instant, Rate};

use crate::scoreboard::{Record, Snapshot};

/// What one acknowledgement says of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes per second; none when the sample spans less than the least round trip.
    pub rate: Option<Rate>,
    /// Bytes delivered between the two ends of the sample.
    pub delivered: u64,
    /// All bytes delivered when the newest segment delivered now was sent.
    pub prior_delivered: u64,
    /// Bytes deemed lost between the two ends.
    pub lost: u64,
    /// Bytes in flight when that segment was sent.
    pub tx_in_flight: u64,
    /// Whether the application, not the path, limited the rate.
    pub is_app_limited: bool,
    /// The round trip of that segment, if it was sent once.
    pub rtt: Option<Duration>,
}

/// Delivery counters of one connection.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    lost: u64,
    /// The count of bytes delivered from which on samples are the path's own again.
    app_limited_until: u64,
    /// The segment last sent of those that the acknowledgement at hand delivers.
    newest: Option<Record>,
}

impl Delivery {
    /// Bytes delivered so far.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Bytes deemed lost so far.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether what is in flight is less than the path could carry, for want of data.
    #[must_use]
    pub const fn is_app_limited(&self) -> bool {
        self.app_limited_until > self.delivered
    }

    /// The counters for a segment of `len` bytes about to be sent behind `pipe` bytes in flight.
    #[must_use]
    pub fn on_sending(&mut self, now: Instant, len: u32, pipe: u64) -> Snapshot {
        if pipe == 0 {
            // A new flight: the time in which nothing was sent is no part of a sample.
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            lost: self.lost,
            in_flight: pipe + u64::from(len),
            is_app_limited: self.is_app_limited(),
        }
    }

    /// The application has nothing to send although the window would take it.
    pub const fn on_app_limited(&mut self, pipe: u64) {
        let until = self.delivered + pipe;
        self.app_limited_until = if until == 0 { 1 } else { until };
    }

    /// A segment was delivered by the acknowledgement at hand. O(1).
    pub fn on_delivered(&mut self, record: &Record) {
        if self.newest.is_none_or(|n| n.order() < record.order()) {
            self.newest = Some(*record);
        }
    }

    /// A segment is deemed lost.
    pub fn on_lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    /// The acknowledgement at hand, which delivered `bytes`, is read to its end.
    #[must_use]
    pub fn take_sample(&mut self, now: Instant, bytes: u64, min_rtt: Duration) -> RateSample {
        self.delivered += bytes;
        if bytes > 0 {
            self.delivered_at = now;
        }
        let Some(newest) = self.newest.take() else {
            return RateSample::default();
        };
        self.first_sent_at = newest.sent_at();
        let from = newest.snapshot();
        let delivered = self.delivered - from.delivered;
        let sending = newest.sent_at() - from.first_sent_at;
        let interval = sending.max(now - from.delivered_at);
        let is_sane = interval >= min_rtt && !interval.is_zero();
        RateSample {
            rate: is_sane.then(|| rate_of(delivered, interval)),
            delivered,
            prior_delivered: from.delivered,
            lost: self.lost - from.lost,
            tx_in_flight: from.in_flight,
            is_app_limited: from.is_app_limited,
            rtt: (!newest.is_retransmitted()).then(|| now - newest.sent_at()),
        }
    }
}

fn rate_of(bytes: u64, interval: Duration) -> Rate {
    let per_sec = u128::from(bytes) * 1_000_000_000 / interval.as_nanos().max(1);
    Rate::from_bytes_per_sec(u64::try_from(per_sec).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoreboard::Scoreboard;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Instant {
        Instant::ZERO + MS * ms
    }

    fn send(board: &mut Scoreboard, delivery: &mut Delivery, now: Instant) {
        let snapshot = delivery.on_sending(now, 1000, board.pipe().bytes);
        board.on_sent(now, 1000, snapshot);
    }

    fn ack(board: &mut Scoreboard, delivery: &mut Delivery, now: Instant, to: u64) -> RateSample {
        let applied = board.apply(to, &[], |record| delivery.on_delivered(record));
        delivery.take_sample(now, applied.delivered_bytes, MS * 50)
    }

    /// One segment every 10 ms over a path of 100 ms: 100 kB/s, whatever the window.
    #[test]
    fn a_paced_flight_measures_its_pace() {
        let (mut board, mut delivery) = (Scoreboard::default(), Delivery::default());
        let mut last = RateSample::default();
        for i in 0..40 {
            send(&mut board, &mut delivery, at(i * 10));
            if let Some(acked) = (i + 1).checked_sub(10) {
                let to = u64::from(acked) * 1000;
                last = ack(&mut board, &mut delivery, at(i * 10), to);
            }
        }
        let rate = last.rate.expect("a sample of a whole round trip");
        assert!(
            (90_000..=101_000).contains(&rate.bytes_per_sec()),
            "{rate:?}"
        );
        assert_eq!(last.rtt, Some(MS * 100));
    }

    /// Acknowledgements held back and released at once do not make the path look faster.
    #[test]
    fn a_burst_of_acknowledgements_measures_no_more_than_was_sent() {
        let (mut board, mut delivery) = (Scoreboard::default(), Delivery::default());
        for i in 0..10 {
            send(&mut board, &mut delivery, at(i * 10));
        }
        for i in 0..10u64 {
            let sample = ack(&mut board, &mut delivery, at(190), (i + 1) * 1000);
            let rate = sample.rate.map_or(0, Rate::bytes_per_sec);
            assert!(rate <= 100_000, "{rate}");
        }
    }

    #[test]
    fn samples_of_a_starved_flight_are_marked_until_it_is_delivered() {
        let (mut board, mut delivery) = (Scoreboard::default(), Delivery::default());
        send(&mut board, &mut delivery, at(0));
        delivery.on_app_limited(board.pipe().bytes);
        send(&mut board, &mut delivery, at(1));
        assert!(!ack(&mut board, &mut delivery, at(100), 1000).is_app_limited);
        assert!(
            !delivery.is_app_limited(),
            "what was in flight is delivered"
        );
        assert!(ack(&mut board, &mut delivery, at(101), 2000).is_app_limited);
        send(&mut board, &mut delivery, at(102));
        assert!(!ack(&mut board, &mut delivery, at(203), 3000).is_app_limited);
    }

    #[test]
    fn a_sample_shorter_than_the_least_round_trip_is_none() {
        let (mut board, mut delivery) = (Scoreboard::default(), Delivery::default());
        send(&mut board, &mut delivery, at(0));
        let sample = ack(&mut board, &mut delivery, at(49), 1000);
        assert_eq!((sample.rate, sample.delivered), (None, 1000));
    }
}
