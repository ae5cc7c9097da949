//! Watches what a connection's task waits for, and takes the samples that `path` judges.
//!
//! An interval ends by a timer of the task, which runs only while something is to be moved. Each
//! costs two system calls and a look at every lane.

use std::cell::Cell;
use std::rc::Rc;
use std::task::Waker;

use fullbore_base::Instant;

use super::core::State;
use super::milestones::Milestones;
use crate::driver::clock::Clock;
use crate::driver::pump::Pump;
use crate::driver::stream::Stream;
use crate::driver::thread_clock::ThreadClock;
use crate::path::{self, DiskTimes, LaneCounts, Meter, Sample, Wait, Waits};

/// The watch of one connection.
#[derive(Debug)]
pub(super) struct Watch {
    meter: Meter,
    waits: Waits,
    /// What the task sleeps for now.
    wait: Wait,
    /// Since when something has been awaited without a break.
    awaited_since: Instant,
    /// None where time is not this machine's.
    thread: Option<ThreadClock>,
    disk: Rc<Cell<DiskTimes>>,
    pub(super) milestones: Milestones,
    /// Who waits for the answer to a ping.
    pub(super) pinging: Vec<Waker>,
    pongs: u64,
    lanes: LaneCounts,
}

impl Watch {
    /// On the thread that the connection's task runs on.
    pub(super) fn new(clock: Clock, disk: Rc<Cell<DiskTimes>>) -> Self {
        Self {
            meter: Meter::default(),
            waits: Waits::default(),
            wait: Wait::Idle,
            awaited_since: Instant::ZERO,
            thread: (!clock.is_virtual()).then(ThreadClock::here),
            disk,
            milestones: Milestones::default(),
            pinging: Vec::new(),
            pongs: 0,
            lanes: LaneCounts::default(),
        }
    }

    pub(super) const fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(super) const fn meter_mut(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// When a sample is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.meter.poll_timeout()
    }

    fn is_due(&self, now: Instant) -> bool {
        self.meter.poll_timeout().is_some_and(|at| at <= now)
    }
}

impl State {
    /// The task goes to work. Downloads are watched with a ping per interval: what its answer stands
    /// behind tells where their bytes queue. Once it is measured anyway: TCP may know the way to a relay
    /// only.
    pub(super) fn on_wake(&mut self, now: Instant) {
        self.watch.waits.on_wake(now);
        let is_unmeasured = self.session.conn().pong_min().is_none();
        if self.watch.is_due(now) && (is_unmeasured || path::is_receiving(&self.session)) {
            self.session.conn_mut().ping(now);
        }
    }

    /// The task has done what could be done.
    pub(super) fn on_rest(&mut self, now: Instant, pump: &Pump) {
        let watch = &mut self.watch;
        watch.milestones.look(now, &self.session);
        let pongs = self.session.conn().stats().rtt_count;
        if pongs != watch.pongs {
            watch.pongs = pongs;
            watch.pinging.drain(..).for_each(Waker::wake);
        }
        let wait = self.wait(now);
        let outstanding = path::outstanding_count(&self.session);
        self.watch.waits.on_outstanding(now, outstanding);
        if pump.is_asleep() {
            self.watch.waits.on_sleep(now, wait);
        }
        if self.watch.wait == Wait::Idle {
            self.watch.awaited_since = now;
        }
        self.watch.wait = wait;
        if self.watch.is_due(now) {
            let sample = self.sample(now, pump.stream());
            match wait {
                Wait::Idle => self.watch.meter.pause(sample),
                Wait::RateLimit
                | Wait::Socket
                | Wait::PeerWindow
                | Wait::Requests
                | Wait::Replies => self.watch.meter.on_sample(sample),
            }
        } else if wait != Wait::Idle && !self.watch.meter.is_running() {
            let sample = self.sample(now, pump.stream());
            self.watch.meter.on_sample(sample);
        }
    }

    /// Ends the last interval: the connection is over.
    pub(super) fn on_end(&mut self, now: Instant, pump: &Pump) {
        self.watch.pinging.drain(..).for_each(Waker::wake);
        if self.watch.meter.is_running() {
            let sample = self.sample(now, pump.stream());
            self.watch.meter.pause(sample);
        }
    }

    /// What the task would sleep for now. O(lanes).
    fn wait(&self, now: Instant) -> Wait {
        if !self.session.conn().is_authenticated() {
            return Wait::Idle;
        }
        let of_lanes = path::lanes_wait(&self.session);
        let has_output = !self.session.pending().is_empty();
        if of_lanes == Wait::Idle && !has_output {
            return Wait::Idle;
        }
        let refilled = self.limit.as_ref().and_then(|limit| limit.wait());
        if refilled.is_some_and(|at| at > now) {
            return Wait::RateLimit;
        }
        if has_output { Wait::Socket } else { of_lanes }
    }

    fn sample(&mut self, now: Instant, stream: &Stream) -> Sample {
        let thread = self.watch.thread.as_ref().map(ThreadClock::read);
        let lanes = self.watch.lanes.facts(now, &self.session);
        let conn = self.session.conn();
        let stats = conn.stats();
        let heard = conn.last_input().max(self.watch.awaited_since);
        Sample {
            at: now,
            waits: self.watch.waits.times(now),
            requests_waited: self.watch.waits.requests_waited(now),
            thread: thread.unwrap_or_default(),
            disk: self.watch.disk.get(),
            budget_limited: conn.budget_limited_total(now),
            sent: stats.channel_bytes_sent,
            received: stats.channel_bytes_received,
            rtt: conn.rtt(),
            pong: conn.pong(),
            pong_min: conn.pong_min(),
            quiet: match lanes.outstanding_count {
                0 => std::time::Duration::ZERO,
                _ => now.saturating_duration_since(heard),
            },
            lanes,
            rate_limit: self.limit.as_ref().map(|limit| limit.rate()),
            send_buffer: stream.send_buffer(),
            is_tcp_local: stream.is_local(),
            tcp: stream.tcp_info(),
        }
    }
}
