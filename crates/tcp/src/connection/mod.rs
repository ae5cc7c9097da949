//! One connection: the state machine of RFC 9293 and what its parts tell each other.
//!
//! `input` takes segments, `output` makes them, `timers` is what happens when nothing comes;
//! `handshake` is the beginning. Sequence numbers are positions here (see [`crate::Seq`]).

mod acks;
mod clock;
pub mod config;
mod event;
mod handshake;
mod info;
mod input;
mod mtu;
mod output;
mod state;
mod timers;
mod tuning;

pub use clock::Clock;
pub use config::{Config, Keepalive};
pub use event::{Error, Event};
pub(crate) use handshake::answer as handshake_answer;
pub use handshake::{Accepted, Agreed};
pub use info::{Info, Stats};
pub use output::Transmit;
pub use state::State;

use core::ops::Range;
use core::time::Duration;
use fullbore_base::{Instant, Timers};

use self::acks::Acks;
use self::event::Events;
use self::mtu::Mtu;
use self::timers::Timer;
use crate::receive::Receiver;
use crate::ring::Ring;
use crate::scoreboard::Scoreboard;
use crate::segment::Header;
use crate::sender::Sender;
use crate::seq::Seq;
use crate::time_wait::TimeWait;

/// What the peer told of its window.
#[derive(Clone, Copy, Debug, Default)]
struct SendWindow {
    /// SND.WND.
    size: u64,
    /// The largest ever.
    size_max: u64,
    /// SND.WL1 and SND.WL2.
    last_seq: u64,
    last_ack: u64,
}

/// What has to leave without being data.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// A SYN, for the first time or with an ACK.
    is_syn: bool,
    /// A tail loss probe.
    is_probe: bool,
    /// A question about the window, or whether the peer lives.
    is_question: bool,
    /// Data that is smaller than one would like, since the window stays small.
    is_override: bool,
    /// A goodbye: RST at this number, with ACK.
    reset: Option<Seq>,
}

/// The state of explicit congestion notification.
#[derive(Clone, Copy, Debug, Default)]
struct Ecn {
    /// Echo a mark until the peer says that it slowed down.
    is_echoing: bool,
    /// Say so with the next new data.
    is_cwr_due: bool,
}

/// When the peer was heard of, and how often it was asked.
#[derive(Clone, Copy, Debug, Default)]
struct Liveness {
    heard_at: Instant,
    /// When an acknowledgement last moved, or the first data after that was sent.
    progress_at: Instant,
    questions: u32,
    persist_backoff: u32,
    /// Questions about the window that nothing answered.
    persist_questions: u32,
    /// How long data may go without acknowledgement.
    user_timeout: Option<Duration>,
}

/// Answers to segments that ought not to be there.
#[derive(Clone, Copy, Debug, Default)]
struct Challenges {
    since: Instant,
    count: u32,
}

/// What held data back when there last was nothing to send, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    since: Instant,
    is_busy: bool,
    is_by_window: bool,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: State,
    error: Option<Error>,
    events: Events,
    local_initial: Seq,
    remote_initial: Seq,
    agreed: Agreed,
    sender: Sender,
    outbox: Ring,
    is_shut: bool,
    /// A write found no room: tell when there is some.
    is_write_blocked: bool,
    window: SendWindow,
    receiver: Receiver,
    acks: Acks,
    clock: Option<Clock>,
    /// Last.ACK.sent of RFC 7323.
    last_ack_sent: u64,
    ecn: Ecn,
    mtu: Mtu,
    liveness: Liveness,
    /// Our user timeout, until it was told (RFC 5482 section 3).
    untold_timeout: Option<Duration>,
    challenges: Challenges,
    pending: Pending,
    /// What is left of a segment that is sent again in several.
    repeating: Range<u64>,
    timers: Timers<{ Timer::COUNT }>,
    pace_at: Option<Instant>,
    held: Held,
    stats: Stats,
}

impl Connection {
    fn new(now: Instant, config: Config, state: State, local_initial: Seq) -> Self {
        let board = Scoreboard::new(config.records_max);
        let mss = u32::from(config.mss);
        let mut sender = Sender::new(board, &config.congestion, mss, config.is_paced);
        sender.set_restarted_after_idle(config.is_restarted_after_idle);
        let recovery = sender.recovery_mut();
        recovery.set_tail_probed(config.is_tail_probed);
        Self {
            state,
            error: None,
            events: Events::default(),
            local_initial,
            remote_initial: Seq::default(),
            agreed: Agreed::default(),
            sender,
            outbox: Ring::new(1),
            is_shut: false,
            is_write_blocked: false,
            window: SendWindow::default(),
            receiver: Receiver::new(config.receive_buffer, config.receive_buffer_max),
            acks: Acks::default(),
            clock: None,
            last_ack_sent: 0,
            ecn: Ecn::default(),
            mtu: Mtu::new(config.mss, config.mss_base, config.mss_max),
            liveness: Liveness {
                heard_at: now,
                progress_at: now,
                user_timeout: config.user_timeout,
                ..Liveness::default()
            },
            untold_timeout: config.user_timeout,
            challenges: Challenges::default(),
            pending: Pending::default(),
            repeating: 0..0,
            timers: Timers::default(),
            pace_at: None,
            held: Held::default(),
            stats: Stats::default(),
            config,
        }
    }

    /// Where it is.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Why it is over, unless both sides closed it.
    #[must_use]
    pub const fn error(&self) -> Option<Error> {
        self.error
    }

    /// What it was told at its start.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What the handshake agreed.
    #[must_use]
    pub const fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Whether nothing more happens on it.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed) && self.pending.reset.is_none()
    }

    /// The next thing that the application should know.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Takes bytes to be sent, as far as there is room; returns how many. O(bytes).
    ///
    /// # Errors
    /// The connection's own error, or `ApiMisuse` after [`Connection::close`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.is_shut || self.state == State::Closed {
            return Err(Error::ApiMisuse("written to after it was closed"));
        }
        let room = self.writable_bytes();
        let taken = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
        self.outbox.append(&bytes[..taken]);
        self.is_write_blocked = taken < bytes.len();
        Ok(taken)
    }

    /// How many bytes may be written now.
    #[must_use]
    pub fn writable_bytes(&self) -> u64 {
        let held = self.outbox.end() - self.outbox.start();
        self.config.send_buffer_max.saturating_sub(held)
    }

    /// Bytes that were written and are not acknowledged.
    #[must_use]
    pub fn unacked_bytes(&self) -> u64 {
        self.outbox.end() - self.outbox.start()
    }

    /// Bytes that were written and never sent.
    #[must_use]
    pub fn notsent_bytes(&self) -> u64 {
        self.outbox.end().saturating_sub(self.snd_nxt().max(1))
    }

    /// Bytes in order that may be read, in two pieces where the buffer's circle closes.
    #[must_use]
    pub fn peek(&self) -> (&[u8], &[u8]) {
        self.receiver.peek()
    }

    /// How many bytes may be read.
    #[must_use]
    pub fn readable_bytes(&self) -> u64 {
        self.receiver.readable_bytes()
    }

    /// Takes note that `count` bytes were read. The window is told when it opens by enough.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn consume(&mut self, now: Instant, count: usize) {
        let mss = self.receive_mss();
        self.receiver.consume(now, count as u64, mss);
        let edge = self.receiver.next_edge(mss, self.agreed.receive_scale);
        let opened = edge - self.receiver.edge();
        let is_worth = opened >= 2 * mss || opened >= self.receiver.autotune().target() / 2;
        if is_worth && self.state.takes_data() {
            self.acks.demand();
        }
    }

    /// Whether the peer has sent all it will, and all of it was read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.receiver.is_finished() && self.receiver.readable_bytes() == 0
    }

    /// Sends nothing more after what was written: half-close. Reading goes on.
    pub fn close(&mut self) {
        if self.is_shut {
            return;
        }
        self.is_shut = true;
        match self.state {
            // RFC 9293 3.10.4: nobody heard of it yet, and nothing waits to be said.
            State::SynSent if self.outbox.is_empty() => self.finish(None),
            State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => self.state = self.state.after_close(),
        }
    }

    /// Ends it at once; the peer is told by a RST (RFC 9293 3.10.5).
    pub fn abort(&mut self) {
        let is_told = matches!(
            self.state,
            State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
        );
        if is_told {
            self.pending.reset = Some(self.local_initial.at(self.snd_nxt()));
        }
        if self.state != State::Closed {
            self.finish(Some(Error::Aborted));
        }
    }

    /// Over. What waits to be read may still be.
    fn finish(&mut self, error: Option<Error>) {
        self.state = State::Closed;
        self.error = error;
        self.timers = Timers::default();
        self.pace_at = None;
        self.outbox.forget_before(self.outbox.end());
        self.outbox.release();
        self.events.push(Event::Closed);
    }

    fn snd_una(&self) -> u64 {
        self.sender.recovery().board().snd_una()
    }

    fn snd_nxt(&self) -> u64 {
        self.sender.recovery().board().snd_nxt()
    }

    /// The position of our FIN.
    fn fin_position(&self) -> Option<u64> {
        self.is_shut.then(|| self.outbox.end())
    }

    /// What one of our segments can carry beside the options that all have.
    fn send_mss(&self) -> u32 {
        self.payload_of(self.mtu.current())
    }

    fn payload_of(&self, mss: u16) -> u32 {
        let options = if self.clock.is_some() { 12 } else { 0 };
        u32::from(mss).saturating_sub(options).max(1)
    }

    /// What one of the peer's carries at most.
    fn receive_mss(&self) -> u64 {
        u64::from(self.payload_of(self.config.mss))
    }

    /// What to keep in TIME-WAIT in place of the connection; none in any other state.
    #[must_use]
    pub fn time_wait(&self) -> Option<TimeWait> {
        let until = self.timers.deadline(Timer::TimeWait as usize)?;
        let window = self.receiver.window() >> self.agreed.receive_scale;
        Some(TimeWait {
            ports: (self.config.local_port, self.config.remote_port),
            snd_nxt: self.local_initial.at(self.snd_nxt()),
            rcv_nxt: self.remote_initial.at(self.receiver.rcv_nxt()),
            window: u16::try_from(window).unwrap_or(u16::MAX),
            clock: self.clock,
            until,
            time_wait: self.config.time_wait,
        })
    }

    /// Answers a stray segment of a connection that does not exist, as RFC 9293 3.10.7.1 says. `None`
    /// for a RST.
    #[must_use]
    pub fn refuse(segment: &crate::segment::Segment<'_>) -> Option<Header> {
        output::refusal(segment)
    }
}

#[cfg(test)]
mod tests;
