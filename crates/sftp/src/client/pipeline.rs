//! How many bytes of a session's READs and WRITEs may be unanswered: what the path holds.
//!
//! Owns the round trip that the session's own requests show, the limit that follows from it, and the
//! time that the limit held. Does not own the requests.

use fullbore_base::{Autotune, Instant, PathRtt, Stopwatch};
use std::time::Duration;

use super::config::OUTSTANDING_BYTES_START;

/// The limit on unanswered bytes. Every event is O(1).
#[derive(Debug)]
pub(super) struct Pipeline {
    tune: Autotune,
    rtt: PathRtt,
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

    /// A request of any kind that was sent at `sent` is answered, and may say how long the path is.
    pub(super) fn on_reply(&mut self, now: Instant, sent: Instant) {
        self.rtt.on_sample(now, now - sent);
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
