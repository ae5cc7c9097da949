//! A server at the far end of a simulated path, as a stream that a client's connection can run over.
//! Time is that of the paused runtime: it jumps to whatever happens next.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fullbore::driver::clock::Clock;
use fullbore::driver::stream::Tunnel;
use fullbore_base::{Instant, Rate};
use fullbore_sim::{Endpoint, Link, LinkConfig};
use tokio::time::{Sleep, sleep_until};

/// Bytes of a burst on the path: what a network card cuts into segments.
const SEGMENT_BYTES: usize = 16 * 1024;

/// What a sender's socket holds besides what is on the path.
const SOCKET_BYTES: u64 = 256 * 1024;

/// The path and its far end.
pub struct SimulatedStream<E> {
    clock: Clock,
    far: E,
    up: Link<Vec<u8>>,
    down: Link<Vec<u8>>,
    /// Arrived and not taken.
    far_input: VecDeque<u8>,
    near_input: VecDeque<u8>,
    /// Bytes that one direction holds.
    held_max: usize,
    timer: Pin<Box<Sleep>>,
}

impl<E> std::fmt::Debug for SimulatedStream<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedStream").finish_non_exhaustive()
    }
}

impl<E: Endpoint> SimulatedStream<E> {
    pub fn new(clock: Clock, rtt: Duration, rate: Rate, far: E) -> Self {
        let config = LinkConfig {
            delay: rtt / 2,
            rate: Some(rate),
            ..LinkConfig::default()
        };
        let on_path = u128::from(rate.bytes_per_sec()) * rtt.as_nanos() / 1_000_000_000;
        let held_max = u64::try_from(on_path).unwrap() + SOCKET_BYTES;
        Self {
            clock,
            far,
            up: Link::new(config),
            down: Link::new(config),
            far_input: VecDeque::new(),
            near_input: VecDeque::new(),
            held_max: usize::try_from(held_max).unwrap(),
            timer: Box::pin(sleep_until(clock.timer(Instant::ZERO))),
        }
    }

    /// Has the path and the far end do all that is due.
    fn advance(&mut self, now: Instant) {
        loop {
            while let Some(bytes) = self.up.receive(now) {
                self.far_input.extend(bytes);
            }
            while let Some(bytes) = self.down.receive(now) {
                self.near_input.extend(bytes);
            }
            if self.far.poll_timeout().is_some_and(|at| at <= now) {
                self.far.handle_timeout(now);
            }
            let mut moved = false;
            if !self.far_input.is_empty() {
                let input = self.far_input.make_contiguous();
                let taken = self.far.handle_input(now, input);
                self.far_input.drain(..taken);
                moved = taken > 0;
            }
            let held = self.down.bytes_in_flight() + self.near_input.len();
            let mut out = Vec::new();
            self.far
                .poll_transmit(now, self.held_max.saturating_sub(held), &mut out);
            for segment in out.chunks(SEGMENT_BYTES) {
                self.down.send(now, segment.to_vec());
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    /// Waits until something happens; ready when it has.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let events = [self.up.next_event(), self.down.next_event()];
        let events = events.into_iter().chain([self.far.poll_timeout()]);
        let Some(at) = events.flatten().min() else {
            // Whatever the near end sends is the next thing to happen.
            return Poll::Pending;
        };
        self.timer.as_mut().reset(self.clock.timer(at));
        self.timer.as_mut().poll(cx)
    }
}

impl<E: Endpoint> Tunnel for SimulatedStream<E> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            self.advance(self.clock.now());
            if !self.near_input.is_empty() {
                let n = buf.len().min(self.near_input.len());
                for (to, from) in buf.iter_mut().zip(self.near_input.drain(..n)) {
                    *to = from;
                }
                return Poll::Ready(Ok(n));
            }
            if self.far.is_closed() && self.down.bytes_in_flight() == 0 {
                return Poll::Ready(Ok(0));
            }
            if self.poll_next(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            self.advance(self.clock.now());
            let held = self.up.bytes_in_flight() + self.far_input.len();
            let n = bytes.len().min(self.held_max.saturating_sub(held));
            if n > 0 {
                for segment in bytes[..n].chunks(SEGMENT_BYTES) {
                    self.up.send(self.clock.now(), segment.to_vec());
                }
                return Poll::Ready(Ok(n));
            }
            if self.poll_next(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
