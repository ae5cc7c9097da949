//! How large a window must be for the path to be the limit, found while bytes are delivered.
//!
//! One rule for every window of the stack (channel credit, unanswered SFTP requests): keep about
//! twice as much outstanding as is delivered in a round trip, and less where a queue shows. Owns the measurement and the target;
//! does not own the window, nor the budget that bounds it. After TCP's receive autotuning (W. Feng et
//! al., "Dynamic Right-Sizing", LACSI 2001; Linux `tcp_rcv_space_adjust`), with three differences: the
//! round trip that counts is the shortest one seen, so that a queue of our own making does not make
//! the window grow; while the rate still grows the factor is four, so that the window doubles each
//! round trip although new credit takes one to show; and the target goes down again, to twice, or to one
//! and a half times as much where the round trip shows a queue in the path: that is enough to keep the
//! path full, and leaves most of the queue to others. A sender that measures the path (BBR) and never
//! has credit to spare does not find out that the path is full, and would go on to fill the queue with
//! all that it gets, until that overflows.
//!
//! Worked example, 320 Mbit/s x 200 ms (BDP 8 MB), start 1 MiB, the sender as fast as its credit: a
//! first round brings 1 MiB, target 4 MiB; the next shows 4 MiB, target 16 MiB; the next shows 8 MB,
//! target 32 MB. The next takes 300 ms: 12 MB from then on, of which 4 stand in the queue; where the sender
//! keeps that empty, 16 MB after eight rounds.

mod path_rtt;

pub use path_rtt::PathRtt;

use crate::Instant;
use std::time::Duration;

/// Shorter round trips count as this: what a busy machine takes to give a process its turn, a few times.
/// On a path without delay it is what the window must cover, or each end waits for the other to be woken.
pub const ROUND_MIN: Duration = Duration::from_millis(16);

/// A window on which nothing was delivered for so long starts anew. Longer than a disk's flush or a
/// pause between files; ten round trips of the longest paths.
pub const IDLE_AFTER: Duration = Duration::from_secs(5);

/// How long a trial that cost throughput is not made again.
const TRIAL_INTERVAL: Duration = Duration::from_secs(10);

/// Rounds until the effect of a trial can be told from what went before it.
const TRIAL_ROUNDS: u8 = 3;

/// A round trip that is longer than the shortest by this part of it, its inverse, is that of a queue.
const QUEUE_FRACTION: u32 = 4;

/// What comes in one piece at most: windows are refilled by requests of up to a quarter of a MiB.
const PIECE_BYTES: u64 = 256 * 1024;

/// Rounds that a retransmission may hold everything up.
const BEHIND_ROUNDS: u32 = 3;

/// Rounds whose largest demand counts: one bad round does not shrink a window.
const ROUNDS: usize = 8;

/// Rounds without growth after which the path counts as filled (as BBR's startup: draft-ietf-ccwg-bbr,
/// 5.3.1.2).
const PLATEAU_ROUNDS: u8 = 3;

/// A smaller window, tried because the present one is used whole although twice the delivery of a
/// shortest round trip is less: either a queue of our own making stands in the path, or the path has
/// become longer.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The target before.
    target: u64,
    /// Bytes per shortest round trip before.
    delivered: u64,
    /// The most since.
    most: u64,
    rounds_left: u8,
}

/// One round: about a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    since: Instant,
    bytes: u64,
    /// What the sender could have on its way at the start.
    credit: u64,
}

/// The target of one window. Every event is O(1).
#[derive(Debug)]
pub struct Autotune {
    start: u64,
    max: u64,
    target: u64,
    round: Round,
    /// What the last rounds asked for, and what they delivered per shortest round trip.
    wants: [u64; ROUNDS],
    delivered: [u64; ROUNDS],
    at: usize,
    /// What the rounds before brought, and how long they took, while that is less than half of what was
    /// brought before: it stands behind something that is sent again, and comes at once then.
    behind: (u64, Duration),
    /// Rounds in a row in which delivery did not grow.
    plateau: u8,
    trial: Option<Trial>,
    no_trial_before: Instant,
    last: Instant,
}

impl Autotune {
    /// A target that starts, and starts anew, at `start` bytes and never exceeds `max`.
    #[must_use]
    pub const fn new(start: u64, max: u64) -> Self {
        Self {
            start,
            max,
            target: start,
            round: Round {
                since: Instant::ZERO,
                bytes: 0,
                credit: start,
            },
            wants: [0; ROUNDS],
            delivered: [0; ROUNDS],
            at: 0,
            behind: (0, Duration::ZERO),
            plateau: 0,
            trial: None,
            no_trial_before: Instant::ZERO,
            last: Instant::ZERO,
        }
    }

    /// Bytes that should be outstanding and not yet consumed together.
    #[must_use]
    pub const fn target(&self) -> u64 {
        self.target
    }

    /// Bytes delivered in a shortest round trip, the most of the last rounds: the path's capacity as
    /// far as it was used.
    #[must_use]
    pub fn delivered_per_rtt(&self) -> u64 {
        self.best()
    }

    /// When the target falls back to the start unless something is delivered; `None` when it is there.
    #[must_use]
    pub fn idle_at(&self) -> Option<Instant> {
        (self.target > self.start).then(|| self.last + IDLE_AFTER)
    }

    /// Falls back to the start if nothing was delivered for [`IDLE_AFTER`]. Returns whether it did.
    pub fn on_idle(&mut self, now: Instant) -> bool {
        let is_idle = self.idle_at().is_some_and(|at| at <= now);
        if is_idle {
            *self = Self {
                last: self.last,
                ..Self::new(self.start, self.max)
            };
        }
        is_idle
    }

    /// `bytes` were delivered to their consumer; `credit` is what the sender may have on its way now.
    /// Returns whether the target changed.
    pub fn on_delivered(
        &mut self,
        now: Instant,
        bytes: u64,
        credit: u64,
        rtt: &mut PathRtt,
    ) -> bool {
        if self.last + IDLE_AFTER <= now {
            self.on_idle(now);
            self.start_round(now, credit);
        }
        self.last = now;
        self.round.bytes += bytes;
        let (Some(latest), Some(min)) = (rtt.latest(), rtt.min(now)) else {
            return false;
        };
        let (latest, min) = (latest.max(ROUND_MIN), min.max(ROUND_MIN));
        let elapsed = now - self.round.since;
        let (bytes, took) = self.behind;
        let delivered = per(self.round.bytes + bytes, min, (elapsed + took).max(min));
        let want = self.want(delivered);
        let before = self.target;
        if elapsed >= latest {
            self.end_round(now, delivered, want, latest, rtt);
            self.start_round(now, credit);
        } else if self.trial.is_none() {
            self.target = self.target.max(self.clamp(want));
        }
        self.target != before
    }

    const fn start_round(&mut self, now: Instant, credit: u64) {
        self.round = Round {
            since: now,
            bytes: 0,
            credit,
        };
    }

    fn end_round(
        &mut self,
        now: Instant,
        delivered: u64,
        want: u64,
        latest: Duration,
        rtt: &mut PathRtt,
    ) {
        let elapsed = now - self.round.since;
        let best = self.best().max(delivered);
        let has_queue = rtt.min(now).is_some_and(|min| {
            let min = min.max(ROUND_MIN);
            latest > min + min / QUEUE_FRACTION
        });
        let (bytes, took) = self.behind;
        self.behind = match delivered < self.best() / 2 && took < latest * BEHIND_ROUNDS {
            true => (bytes + self.round.bytes, took + elapsed),
            false => (0, Duration::ZERO),
        };
        let used = per(self.round.bytes, latest, elapsed.max(latest));
        let is_limited = used >= self.round.credit / 4 * 3;
        let has_grown = self.is_growth(delivered);
        if has_grown && (is_limited || self.plateau < PLATEAU_ROUNDS) {
            self.plateau = 0;
        } else if 2 * delivered > self.start {
            self.plateau = self.plateau.saturating_add(1);
        }
        let want = if has_queue && !has_grown && self.trial.is_none() && now >= self.no_trial_before
        {
            // More would only stand in that queue, until it overflows.
            let enough = best / 2 * 3 + PIECE_BYTES;
            if enough < self.target {
                self.trial = Some(Trial {
                    target: self.target,
                    delivered: best,
                    most: 0,
                    rounds_left: TRIAL_ROUNDS,
                });
                self.wants = [enough; ROUNDS];
            }
            self.plateau = PLATEAU_ROUNDS;
            enough
        } else if is_limited && want < self.target {
            self.hold(now, delivered, want, rtt)
        } else {
            self.trial = None;
            want
        };
        self.wants[self.at] = want;
        self.delivered[self.at] = delivered;
        self.at = (self.at + 1) % ROUNDS;
        let most = self.wants.iter().copied().max().unwrap_or(0);
        self.target = self.clamp(most);
    }

    /// The window is used whole, and is more than twice what a shortest round trip delivers. It is
    /// kept, but for a trial whether less would do.
    fn hold(&mut self, now: Instant, delivered: u64, want: u64, rtt: &mut PathRtt) -> u64 {
        match &mut self.trial {
            Some(trial) if trial.rounds_left > 0 => {
                trial.rounds_left -= 1;
                trial.most = trial.most.max(delivered);
                self.target
            }
            Some(trial) => {
                let trial = *trial;
                self.trial = None;
                if delivered.max(trial.most) < trial.delivered / 8 * 7 {
                    // Not a queue: the path is longer than it was.
                    rtt.forget_min();
                    self.no_trial_before = now + TRIAL_INTERVAL;
                    return trial.target;
                }
                self.target
            }
            None if now >= self.no_trial_before && self.plateau >= PLATEAU_ROUNDS => {
                self.trial = Some(Trial {
                    target: self.target,
                    delivered,
                    most: 0,
                    rounds_left: TRIAL_ROUNDS,
                });
                let cut = want.max(self.target / 4 * 3);
                self.wants = [cut; ROUNDS];
                cut
            }
            None => self.target,
        }
    }

    /// Four times what was delivered while that grows, else twice.
    fn want(&self, delivered: u64) -> u64 {
        let is_ramping = self.plateau < PLATEAU_ROUNDS && self.is_growth(delivered);
        delivered.saturating_mul(if is_ramping { 4 } else { 2 })
    }

    /// Whether `delivered` is a quarter more than any of the last rounds brought.
    fn is_growth(&self, delivered: u64) -> bool {
        delivered > self.best() + self.best() / 4
    }

    fn best(&self) -> u64 {
        self.delivered.iter().copied().max().unwrap_or(0)
    }

    fn clamp(&self, want: u64) -> u64 {
        want.max(self.start).min(self.max)
    }
}

/// `bytes` in `elapsed`, as bytes in `span`.
fn per(bytes: u64, span: Duration, elapsed: Duration) -> u64 {
    let scaled = u128::from(bytes) * span.as_nanos() / elapsed.as_nanos().max(1);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
