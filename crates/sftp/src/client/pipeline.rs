//! How many bytes of a session's READs and WRITEs may be unanswered: what the path holds.
//!
//! Owns the round trip that the session's own requests show, the limit that follows from it, and the
//! time that the limit held. Does not own the requests.

use fullbore_base::{Autotune, Instant, PathRtt, Stopwatch};
use std::time::Duration;

use super::config::OUTSTANDING_BYTES_START;

/// How long a round trip of the transport stands for the path's: some times the interval at which such
/// are told.
const TOLD_FOR: Duration = Duration::from_secs(1);

/// The limit on unanswered bytes. Every event is O(1).
#[derive(Debug)]
pub(super) struct Pipeline {
    tune: Autotune,
    rtt: PathRtt,
    /// Until then the transport's round trips count.
    told_until: Instant,
    outstanding: u64,
    outstanding_peak: u64,
    /// Requests waited for nothing but the limit.
    limited: Stopwatch,
    /// Nothing was outstanding.
    idle: Stopwatch,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self {
            tune: Autotune::new(OUTSTANDING_BYTES_START, u64::MAX),
            rtt: PathRtt::default(),
            told_until: Instant::ZERO,
            outstanding: 0,
            outstanding_peak: 0,
            limited: Stopwatch::new(),
            idle: Stopwatch::new(),
        }
    }
}

impl Pipeline {
    /// Bytes that may be outstanding now.
    pub(super) const fn target(&self) -> u64 {
        self.tune.target()
    }

    /// Bytes outstanding.
    pub(super) const fn outstanding(&self) -> u64 {
        self.outstanding
    }

    pub(super) const fn outstanding_peak(&self) -> u64 {
        self.outstanding_peak
    }

    pub(super) fn delivered_per_rtt(&self) -> u64 {
        self.tune.delivered_per_rtt()
    }

    pub(super) const fn rtt(&self) -> &PathRtt {
        &self.rtt
    }

    /// A request for `len` bytes, or with them, goes out.
    pub(super) fn on_sent(&mut self, now: Instant, len: u32) {
        self.outstanding += u64::from(len);
        self.outstanding_peak = self.outstanding_peak.max(self.outstanding);
        self.idle.stop(now);
    }

    /// Takes a round trip of the transport. Where it is that of the path (answers were never much faster,
    /// and a relay on the way would show as one that is), answers tell nothing for a while: behind many
    /// others, one takes as long as they do.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        if self.rtt.min(now).is_some_and(|min| rtt >= min / 2) {
            self.rtt.on_sample(now, rtt);
            self.told_until = now + TOLD_FOR;
        }
    }

    /// A request of any kind that was sent at `sent` is answered, and may say how long the path is.
    pub(super) fn on_reply(&mut self, now: Instant, sent: Instant) {
        let sample = now - sent;
        let is_shortest = self.rtt.min(now).is_none_or(|min| sample < min);
        if is_shortest || now >= self.told_until {
            self.rtt.on_sample(now, sample);
        }
    }

    /// A request of `len` bytes is answered.
    pub(super) fn on_answered(&mut self, now: Instant, len: u32) {
        let credit = self.outstanding;
        self.outstanding -= u64::from(len);
        self.tune
            .on_delivered(now, u64::from(len), credit, &mut self.rtt);
        if self.outstanding == 0 {
            self.idle.start(now);
        }
    }

    /// There is a request to send: whether a limit of `max` bytes, and the path's, let it go.
    pub(super) fn admits(&mut self, now: Instant, max: u64) -> bool {
        let is_free = self.outstanding == 0 || self.outstanding < max.min(self.target());
        if is_free {
            self.limited.stop(now);
        } else {
            self.limited.start(now);
        }
        is_free
    }

    /// Nothing is to be sent, or what is waits for something else.
    pub(super) fn on_content(&mut self, now: Instant) {
        self.limited.stop(now);
    }

    pub(super) fn limited(&self, now: Instant) -> Duration {
        self.limited.total(now)
    }

    pub(super) fn idle(&self, now: Instant) -> Duration {
        self.idle.total(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Instant {
        Instant::ZERO + MS * ms
    }

    #[test]
    fn what_waits_behind_others_does_not_make_the_path_longer() {
        let mut pipeline = Pipeline::default();
        pipeline.on_rtt(at(0), MS * 200);
        assert_eq!(pipeline.rtt().latest(), None, "nothing to compare it with");
        pipeline.on_reply(at(201), at(0));
        pipeline.on_rtt(at(300), MS * 200);
        pipeline.on_reply(at(1200), at(0));
        assert_eq!(pipeline.rtt().latest(), Some(MS * 200));
        // A shorter one is the path's all the same.
        pipeline.on_reply(at(1250), at(1100));
        assert_eq!(pipeline.rtt().min(at(1250)), Some(MS * 150));
        // Nobody told for long.
        pipeline.on_reply(at(1300), at(500));
        assert_eq!(pipeline.rtt().latest(), Some(MS * 800));
    }

    #[test]
    fn a_relay_s_round_trip_is_not_the_path_s() {
        let mut pipeline = Pipeline::default();
        pipeline.on_reply(at(200), at(0));
        pipeline.on_rtt(at(200), MS * 99);
        assert_eq!(pipeline.rtt().latest(), Some(MS * 200));
        pipeline.on_rtt(at(200), MS * 100);
        assert_eq!(pipeline.rtt().latest(), Some(MS * 100));
    }
}
