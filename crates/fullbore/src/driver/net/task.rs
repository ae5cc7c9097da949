//! The task that runs a stack over a wire.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::MutexGuard;
use std::task::{Context, Poll};

use super::alarm::Alarm;
use super::{Net, Received, Shared, Wire};
use crate::stack::Batch;

/// Bytes of segments that leave together: four of the largest that GSO and TSO take, and little enough to
/// stay in the second-level cache.
const BATCH_BYTES: usize = 256 * 1024;

/// Rounds of receiving and sending before other tasks of the thread have their turn.
const ROUNDS_MAX: usize = 16;

/// Batches sent before the wire is looked at again.
const BATCHES_MAX: usize = 8;

/// Runs the stack. Ends only when the wire does, with the reason; dropping it stops everything.
#[derive(Debug)]
pub struct Driver {
    net: Net,
    wire: Box<dyn Wire>,
    batch: Batch,
    alarm: Option<Alarm>,
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    is_moved: bool,
}

impl Driver {
    pub(super) fn new(net: Net, wire: Box<dyn Wire>) -> Self {
        let batch = {
            let shared = net.lock();
            let longest = wire.headroom() + shared.stack.segment_len_max();
            Batch::new(BATCH_BYTES.max(longest), wire.headroom())
        };
        Self {
            net,
            wire,
            batch,
            alarm: None,
        }
    }

    /// Runs until there is nothing to do but wait.
    fn run(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.net.lock().driver = Some(cx.waker().clone());
        for _ in 0..ROUNDS_MAX {
            self.time_out();
            let received = self.receive(cx)?;
            let sent = self.send(cx)?;
            self.net.lock().tell();
            let is_moved = received.is_moved || sent.is_moved;
            if !is_moved && self.sleep(cx)? {
                return Ok(());
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn time_out(&self) {
        let mut shared = self.net.lock();
        let now = self.net.clock.now();
        if shared.stack.poll_timeout().is_some_and(|at| at <= now) {
            shared.stack.handle_timeout(now);
        }
    }

    /// Receives once. The stack is locked from the first segment on, not while the system is asked.
    fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<Step> {
        let net = &self.net;
        let now = net.clock.now();
        let mut locked: Option<MutexGuard<'_, Shared>> = None;
        let received = self.wire.poll_recv(cx, &mut |received| {
            let stack = &mut locked.get_or_insert_with(|| net.lock()).stack;
            match received {
                Received::Segment(arrival) => stack.handle_segment(now, &arrival),
                Received::TooBig { tuple, seq, mss } => stack.handle_too_big(now, &tuple, seq, mss),
            }
        });
        step(received)
    }

    /// Sends what is to leave, until the wire takes no more.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<Step> {
        let mut all = Step::default();
        for _ in 0..BATCHES_MAX {
            if self.batch.is_empty() {
                let mut shared = self.net.lock();
                let now = self.net.clock.now();
                shared.stack.poll_transmit(now, &mut self.batch);
            }
            if self.batch.is_empty() {
                break;
            }
            let sent = step(self.wire.poll_send(cx, &mut self.batch))?;
            if !sent.is_moved {
                break;
            }
            all = sent;
        }
        Ok(all)
    }

    /// Returns whether the next deadline is still to come, and sees that it will be kept.
    fn sleep(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let clock = self.net.clock;
        let (deadline, has_output) = {
            let shared = self.net.lock();
            (shared.stack.poll_timeout(), shared.stack.has_output())
        };
        if has_output && self.batch.is_empty() {
            return Ok(false);
        }
        let Some(at) = deadline else {
            return Ok(true);
        };
        let alarm = match &mut self.alarm {
            Some(alarm) => alarm,
            none => none.insert(Alarm::new(&clock)?),
        };
        Ok(alarm.poll(cx, &clock, at).is_pending())
    }
}

fn step(polled: Poll<io::Result<()>>) -> io::Result<Step> {
    match polled {
        Poll::Pending => Ok(Step { is_moved: false }),
        Poll::Ready(done) => done.map(|()| Step { is_moved: true }),
    }
}

impl Future for Driver {
    type Output = io::Error;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Error> {
        let driver = self.get_mut();
        match driver.run(cx) {
            Ok(()) => Poll::Pending,
            Err(error) => {
                driver.net.lock().fail(&error);
                Poll::Ready(error)
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let gone = io::Error::new(
            io::ErrorKind::NotConnected,
            "nothing carries segments any more",
        );
        let mut shared = self.net.lock();
        if shared.failure.is_none() {
            shared.fail(&gone);
        }
    }
}
