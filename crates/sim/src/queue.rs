//! The queue in front of a link: what it takes, and what it drops to keep itself short.

use std::collections::VecDeque;
use std::time::Duration;

use fullbore_base::Instant;

use crate::link::Payload;

/// What a queue does when more comes than leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueConfig {
    /// Holds everything: a stream's own back-pressure bounds it.
    #[default]
    Unlimited,
    /// Refuses what does not fit.
    TailDrop {
        /// Bytes that wait at most.
        bytes_max: usize,
    },
    /// RFC 8289: drops from the front, more and more often while the wait stays too long.
    CoDel {
        /// Bytes that wait at most.
        bytes_max: usize,
        /// The wait that is good enough; the RFC's 5 ms.
        target: Duration,
        /// How long it may be worse; the RFC's 100 ms.
        interval: Duration,
    },
}

/// Items that wait for the link, oldest first.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    config: QueueConfig,
    items: VecDeque<(Instant, P)>,
    bytes: usize,
    codel: CoDel,
}

impl<P: Payload> Queue<P> {
    pub(crate) const fn new(config: QueueConfig) -> Self {
        Self {
            config,
            items: VecDeque::new(),
            bytes: 0,
            codel: CoDel::new(),
        }
    }

    /// Another discipline from now on; what waits stays.
    pub(crate) const fn set_config(&mut self, config: QueueConfig) {
        self.config = config;
    }

    /// Bytes that wait.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest item came.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.items.front().map(|&(at, _)| at)
    }

    /// Takes `item`, or refuses it. An empty queue takes anything.
    pub(crate) fn push(&mut self, now: Instant, item: P) -> bool {
        let len = item.wire_len();
        let bytes_max = match self.config {
            QueueConfig::Unlimited => usize::MAX,
            QueueConfig::TailDrop { bytes_max } | QueueConfig::CoDel { bytes_max, .. } => bytes_max,
        };
        if !self.items.is_empty() && len > bytes_max.saturating_sub(self.bytes) {
            return false;
        }
        self.bytes += len;
        self.items.push_back((now, item));
        true
    }

    /// The next item to send at `now`, and how many were dropped before it.
    pub(crate) fn pop(&mut self, now: Instant) -> (Option<P>, u64) {
        let QueueConfig::CoDel {
            target, interval, ..
        } = self.config
        else {
            return (self.pop_front(now).map(|(item, _)| item), 0);
        };
        let mut drops = 0;
        loop {
            let Some((item, wait)) = self.pop_front(now) else {
                self.codel.on_empty();
                return (None, drops);
            };
            // RFC 8289 5.3: a queue of less than one packet is no bad queue.
            let is_good = wait < target || self.items.is_empty();
            if !self.codel.drops(now, is_good, interval) {
                return (Some(item), drops);
            }
            drops += 1;
        }
    }

    fn pop_front(&mut self, now: Instant) -> Option<(P, Duration)> {
        let (at, item) = self.items.pop_front()?;
        self.bytes -= item.wire_len();
        Some((item, now - at))
    }
}

/// RFC 8289 section 5: state of the drop decision.
#[derive(Debug)]
struct CoDel {
    /// When a wait that is too long now has been too long for a whole interval.
    bad_at: Option<Instant>,
    /// While dropping: when the next drop is due.
    drop_at: Option<Instant>,
    /// Drops of this dropping state.
    count: u32,
    /// `count` when the last dropping state began.
    last_count: u32,
    /// When the last dropping state ended: a short rest goes on with its count.
    left_at: Option<Instant>,
}

impl CoDel {
    const fn new() -> Self {
        Self {
            bad_at: None,
            drop_at: None,
            count: 0,
            last_count: 0,
            left_at: None,
        }
    }

    fn on_empty(&mut self) {
        self.bad_at = None;
        self.drop_at = None;
    }

    /// Whether the item at the front is to be dropped.
    fn drops(&mut self, now: Instant, is_good: bool, interval: Duration) -> bool {
        let is_bad_for_long = self.is_bad_for_long(now, is_good, interval);
        let Some(drop_at) = self.drop_at else {
            if is_bad_for_long {
                self.enter(now, interval);
            }
            return is_bad_for_long;
        };
        if !is_bad_for_long {
            self.drop_at = None;
            self.left_at = Some(drop_at);
            return false;
        }
        if now < drop_at {
            return false;
        }
        self.count += 1;
        self.drop_at = Some(after(drop_at, interval, self.count));
        true
    }

    fn is_bad_for_long(&mut self, now: Instant, is_good: bool, interval: Duration) -> bool {
        if is_good {
            self.bad_at = None;
            return false;
        }
        now >= *self.bad_at.get_or_insert(now + interval)
    }

    /// RFC 8289 5.4: soon after the last dropping state, at the rate that helped then.
    fn enter(&mut self, now: Instant, interval: Duration) {
        let since = self.count.saturating_sub(self.last_count);
        let is_soon = self.left_at.is_some_and(|at| now - at < interval * 16);
        self.count = if since > 1 && is_soon { since } else { 1 };
        self.last_count = self.count;
        self.drop_at = Some(after(now, interval, self.count));
    }
}

/// RFC 8289 5.1: the control law, `interval / sqrt(count)` later.
fn after(at: Instant, interval: Duration, count: u32) -> Instant {
    at + interval.div_f64(f64::from(count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn packet() -> Vec<u8> {
        vec![0; 1500]
    }

    #[test]
    fn a_full_queue_refuses_and_takes_again_when_there_is_room() {
        let mut queue = Queue::new(QueueConfig::TailDrop { bytes_max: 3000 });
        let now = Instant::ZERO;
        assert!(queue.push(now, packet()));
        assert!(queue.push(now, packet()));
        assert!(!queue.push(now, vec![0]));
        assert!(queue.pop(now).0.is_some());
        assert!(queue.push(now, packet()));
        assert_eq!(queue.bytes(), 3000);
    }

    #[test]
    fn an_item_longer_than_the_queue_passes_when_nothing_waits() {
        let mut queue = Queue::new(QueueConfig::TailDrop { bytes_max: 10 });
        assert!(queue.push(Instant::ZERO, packet()));
    }

    /// Offers one packet a ms and takes one every `every`; returns drops in `span` ms and the
    /// last wait.
    fn overload(every: u32, span: u32) -> (u64, Duration) {
        let mut queue = Queue::new(QueueConfig::CoDel {
            bytes_max: usize::MAX,
            target: MS * 5,
            interval: MS * 100,
        });
        let (mut drops, mut wait) = (0, Duration::ZERO);
        for ms in 0..span {
            let now = Instant::ZERO + MS * ms;
            assert!(queue.push(now, packet()));
            if ms % every == 0 {
                wait = queue.oldest().map_or(Duration::ZERO, |at| now - at);
                drops += queue.pop(now).1;
            }
        }
        (drops, wait)
    }

    #[test]
    fn codel_leaves_a_link_alone_that_keeps_up() {
        assert_eq!(overload(1, 10_000).0, 0);
    }

    #[test]
    fn codel_tolerates_a_burst_of_less_than_an_interval() {
        assert_eq!(overload(2, 100).0, 0);
        assert!(overload(2, 300).0 > 0);
    }

    #[test]
    fn codel_drops_ever_more_often_while_the_wait_stays_long() {
        let first = overload(2, 1_000).0;
        let later = overload(2, 2_000).0;
        assert!(later > 2 * first, "{first} then {later}");
    }
}
