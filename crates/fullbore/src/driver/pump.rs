//! Moves bytes between a stream and a session, and keeps the session's one timer.
//!
//! Reading, timers and the session's own work go on while a write is blocked, so two ends that
//! both send never wait for each other.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fullbore_base::Instant;

use super::clock::Clock;
use super::stream::Stream;
use crate::transfer::TokenBucket;

/// What a pump can drive: a session of either role.
pub trait Driven {
    /// Memory for what the stream brings; empty is back-pressure.
    fn input_space(&mut self) -> &mut [u8];
    /// `n` bytes of that memory were filled.
    fn handle_input(&mut self, now: Instant, n: usize);
    /// The stream ended, or broke for the reason given.
    fn handle_end(&mut self, now: Instant, why: Option<io::Error>);
    /// The deadline passed.
    fn handle_timeout(&mut self, now: Instant);
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Does a bounded share of the work at hand: events, requests, output. Returns whether more
    /// could be done at once.
    fn turn(&mut self, now: Instant) -> bool;
    /// What waits for the stream.
    fn pending(&self) -> &[u8];
    /// The stream took `n` bytes.
    fn sent(&mut self, now: Instant, n: usize);
    /// TCP's measure of the round trip: about once in one, while bytes come.
    fn on_rtt(&mut self, _now: Instant, _rtt: Duration) {}
    /// Nothing will happen on this session any more, once `pending` has gone.
    fn is_finished(&self) -> bool;
    /// The peer may have more to say once it knows that what it said has arrived.
    fn is_greeting(&self) -> bool {
        false
    }
    /// The limit on bytes that the stream takes and brings, if there is one.
    fn limit(&mut self) -> Option<&mut TokenBucket> {
        None
    }
}

/// How many of `len` bytes may pass now.
fn allowed(session: &mut dyn Driven, now: Instant, len: usize) -> usize {
    match session.limit() {
        Some(limit) => len.min(usize::try_from(limit.room(now)).unwrap_or(usize::MAX)),
        None => len,
    }
}

fn count(session: &mut dyn Driven, n: usize) {
    if let Some(limit) = session.limit() {
        limit.take(n as u64);
    }
}

/// Rounds of read, work and write before other tasks of the thread get their share: about 4 MiB.
const ROUNDS_MAX: usize = 8;

/// How long a finished session's last words may wait for the peer to read them, and a session that can
/// send nothing more for the peer's last words.
const LINGER: Duration = Duration::from_secs(2);

/// How often TCP is asked for its round-trip time at most, while bytes come: a system call of a
/// microsecond.
const RTT_INTERVAL: Duration = Duration::from_millis(100);

/// The stream, the clock and the timer of one connection.
#[derive(Debug)]
pub struct Pump {
    stream: Stream,
    clock: Clock,
    timer: Pin<Box<tokio::time::Sleep>>,
    timer_at: Option<Instant>,
    /// When TCP may be asked for its round-trip time again.
    rtt_at: Instant,
    reading: bool,
    writing: bool,
    /// Whether the last [`Pump::poll`] ended because nothing could be done.
    is_asleep: bool,
    /// Why nothing can be written any more, until the session is told.
    broken: Option<io::Error>,
    /// When a finished session is given up, and when one on a broken stream is told.
    linger_until: Option<Instant>,
}

impl Pump {
    /// A pump over `stream`.
    #[must_use]
    pub fn new(stream: Stream, clock: Clock) -> Self {
        Self {
            stream,
            clock,
            timer: Box::pin(tokio::time::sleep(std::time::Duration::ZERO)),
            timer_at: None,
            rtt_at: Instant::ZERO,
            reading: true,
            writing: true,
            is_asleep: false,
            broken: None,
            linger_until: None,
        }
    }

    /// The stream, for its socket's options and counters.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Whether the last [`Pump::poll`] did all there was to do, rather than let others have a turn.
    #[must_use]
    pub const fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    /// Runs the session until it has nothing to do but wait. Ready once it is finished and
    /// everything it had to say was sent or cannot be.
    pub fn poll(&mut self, cx: &mut Context<'_>, session: &mut dyn Driven) -> Poll<()> {
        self.is_asleep = false;
        // Also while bytes never stop coming.
        let now = self.clock.now();
        if session.poll_timeout().is_some_and(|at| at <= now) {
            session.handle_timeout(now);
        }
        for _ in 0..ROUNDS_MAX {
            let now = self.clock.now();
            let worked = session.turn(now);
            let wrote = self.write(cx, session, now);
            if session.is_finished() {
                return self.linger(cx, session, now);
            }
            if self.broken.is_some() {
                self.listen(session, now);
            }
            let read = self.read(cx, session, now);
            if !worked && !wrote && !read && !self.time_out(cx, session) {
                self.is_asleep = true;
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends the last words of a finished session, as long as that may take.
    fn linger(&mut self, cx: &mut Context<'_>, session: &mut dyn Driven, now: Instant) -> Poll<()> {
        let until = *self.linger_until.get_or_insert(now + LINGER);
        while self.writing && !session.pending().is_empty() {
            if !self.write(cx, session, now) {
                self.set_timer(until);
                return self.timer.as_mut().poll(cx);
            }
        }
        Poll::Ready(())
    }

    /// What the peer sent before it went may still be there, with its reason. Where nothing more is
    /// read before something was written, it will not be seen: the session is told at once.
    fn listen(&mut self, session: &mut dyn Driven, now: Instant) {
        let until = *self.linger_until.get_or_insert(now + LINGER);
        if until <= now || session.input_space().is_empty() {
            self.end(session, now);
        }
    }

    /// Tells the session that the stream is broken.
    fn end(&mut self, session: &mut dyn Driven, now: Instant) {
        self.reading = false;
        self.writing = false;
        self.linger_until = None;
        let why = self.broken.take();
        session.handle_end(now, why);
    }

    /// Returns whether anything was written, or can no longer be.
    fn write(&mut self, cx: &mut Context<'_>, session: &mut dyn Driven, now: Instant) -> bool {
        if session.pending().is_empty() || !self.writing {
            return false;
        }
        let len = session.pending().len();
        let len = allowed(session, now, len);
        if len == 0 {
            return false;
        }
        match self.stream.poll_write(cx, &session.pending()[..len]) {
            Poll::Pending => false,
            Poll::Ready(Ok(n)) => {
                session.sent(now, n);
                count(session, n);
                n > 0
            }
            Poll::Ready(Err(error)) => {
                self.writing = false;
                self.broken = Some(error);
                if !self.reading {
                    self.end(session, now);
                }
                true
            }
        }
    }

    fn read(&mut self, cx: &mut Context<'_>, session: &mut dyn Driven, now: Instant) -> bool {
        if !self.reading {
            return false;
        }
        let len = session.input_space().len();
        let len = allowed(session, now, len);
        if len == 0 {
            return false;
        }
        match self.stream.poll_read(cx, &mut session.input_space()[..len]) {
            Poll::Pending => false,
            Poll::Ready(Ok(n)) if n > 0 => {
                if session.is_greeting() {
                    self.stream.acknowledge();
                }
                self.tell_rtt(session, now);
                session.handle_input(now, n);
                count(session, n);
                true
            }
            Poll::Ready(Ok(_)) if self.broken.is_none() => {
                self.reading = false;
                session.handle_end(now, None);
                true
            }
            Poll::Ready(end) => {
                self.broken = end.err().or(self.broken.take());
                self.end(session, now);
                true
            }
        }
    }

    /// Asks TCP for its round-trip time, if it is time and the stream is one of TCP's. Not where that ends
    /// on this machine: behind it may stand a relay (a forwarded port, an emulated link) whose path is
    /// longer than TCP knows, and only pings tell.
    fn tell_rtt(&mut self, session: &mut dyn Driven, now: Instant) {
        if now < self.rtt_at {
            return;
        }
        self.rtt_at = now + RTT_INTERVAL;
        if let Some(info) = self.stream.tcp_info()
            && !info.rtt.is_zero()
            && !self.stream.is_local()
        {
            session.on_rtt(now, info.rtt);
            self.rtt_at = now + info.rtt.max(RTT_INTERVAL);
        }
    }

    /// Calls the session when its deadline has passed; otherwise sees that it will be. The timer
    /// is moved only when the deadline is earlier than what is set, not each time it moves on.
    fn time_out(&mut self, cx: &mut Context<'_>, session: &mut dyn Driven) -> bool {
        let refilled = session.limit().and_then(|limit| limit.wait());
        let deadlines = session.poll_timeout().into_iter().chain(refilled);
        let deadlines = deadlines.chain(self.linger_until);
        let Some(at) = deadlines.min() else {
            return false;
        };
        let now = self.clock.now();
        if at <= now {
            self.timer_at = None;
            session.handle_timeout(now);
            return true;
        }
        if self.timer_at.is_none_or(|set| at < set) {
            self.set_timer(at);
        }
        let fired = self.timer.as_mut().poll(cx).is_ready();
        if fired {
            self.timer_at = None;
        }
        fired
    }

    fn set_timer(&mut self, at: Instant) {
        self.timer.as_mut().reset(self.clock.timer(at));
        self.timer_at = Some(at);
    }
}
