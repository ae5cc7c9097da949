//! A stream on a session channel, as `scp -O` or `ssh host cat` have it: the server sends as much
//! as the window lets it, the client consumes at its own pace.

use fullbore_base::{Instant, Outlet, Rate, TxBuf};
use fullbore_sim::{Endpoint, Pair};
use fullbore_ssh::auth::AuthAnswer;
use fullbore_ssh::connection::ConnectionConfig;
use fullbore_ssh::transport::HostKeyVerified;
use fullbore_ssh::{ChannelId, Connection, Event};

use super::session::SAMPLE_MIN;
use super::{DEADLINE, Path, Run, Sampler};

/// How the receiver sizes its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Always the same: OpenSSH's 2 MiB.
    Fixed(u32),
    /// So many bytes more than were consumed, with each adjust, and no end to it.
    Excess {
        /// The window at the start.
        start: u32,
        /// What each adjust adds.
        excess: u32,
    },
    /// So many bytes more with each adjust, until a limit.
    Growth {
        /// The window at the start.
        start: u32,
        /// What each adjust adds.
        step: u32,
        /// Where it stops.
        limit: u32,
    },
    /// As large as the kernel's receive buffer, which doubles each round trip until its own limit,
    /// as TCP's receive autotuning does.
    ReceiveBuffer {
        /// The buffer at the start.
        start: u32,
        /// `tcp_rmem`'s largest.
        limit: u32,
    },
    /// The engine's own, which follows the path.
    Adaptive,
}

impl Policy {
    /// A connection whose channels start as this policy wants it.
    #[must_use]
    pub fn connection(self) -> ConnectionConfig {
        let default = ConnectionConfig::default();
        let window = match self {
            Self::Fixed(window) => window,
            Self::Excess { start, .. }
            | Self::Growth { start, .. }
            | Self::ReceiveBuffer { start, .. } => start,
            Self::Adaptive => return default,
        };
        ConnectionConfig {
            local_window: Some(window),
            windows_max: default.windows_max.max(u64::from(window)),
            ..default
        }
    }
}

/// How the receiver consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// At most so fast; `None` is at once.
    pub rate: Option<Rate>,
    /// Bytes that may wait for it: past that the connection breaks, as one whose buffer overflows.
    pub buffer_bytes_max: u64,
}

/// A stream from the server to the client.
#[derive(Clone, Debug)]
pub struct Flow {
    /// What it goes over.
    pub path: Path,
    /// Its length in bytes.
    pub bytes: u64,
    /// The receiver's window.
    pub policy: Policy,
    /// The receiver's pace.
    pub consumer: Consumer,
    /// Replays the run.
    pub seed: u64,
}

impl Flow {
    /// Runs it to its end, or until the receiver's buffer overflows.
    #[must_use]
    pub fn run(&self) -> Run {
        let client = Receiver {
            conn: super::client(self.policy.connection(), self.seed),
            tx: TxBuf::new(TX_BYTES),
            ch: None,
            policy: self.policy,
            consumer: self.consumer,
            path: self.path,
            received: 0,
            unread_peak: 0,
            adjusts: 0,
            next_growth: Instant::ZERO,
            first_at: None,
            paid_until: Instant::ZERO,
            error: None,
        };
        let server = Sender {
            conn: super::server(ConnectionConfig::default(), self.seed),
            tx: TxBuf::new(TX_BYTES),
            ch: None,
            left: self.bytes,
        };
        let mut pair = Pair::new(self.path.pair(self.seed), client, server);
        let every = self.path.rtt.max(SAMPLE_MIN);
        pair.run(
            DEADLINE,
            |pair| pair.a.first_at.is_some() || pair.a.error.is_some(),
            |_| {},
        );
        // The first byte left one way earlier.
        let begun = pair.now();
        let mut sampler = Sampler::new(begun, every);
        let goal = self.bytes;
        let done =
            |pair: &Pair<Receiver, Sender>| pair.a.received >= goal || pair.a.error.is_some();
        pair.run(DEADLINE, done, |pair| {
            sampler.note(pair.now(), pair.a.received, pair.a.window());
        });
        Run {
            elapsed: pair.now() - begun,
            bytes: pair.a.received,
            samples: sampler.samples,
            unread_peak: pair.a.unread_peak,
            error: pair.a.error.clone(),
        }
    }
}

/// Room for what waits for the socket.
const TX_BYTES: usize = 512 * 1024;

struct Receiver {
    conn: Connection,
    tx: TxBuf,
    ch: Option<ChannelId>,
    policy: Policy,
    consumer: Consumer,
    path: Path,
    received: u64,
    unread_peak: u64,
    /// Adjusts sent when the policy last looked.
    adjusts: u64,
    /// When the kernel's buffer may double again.
    next_growth: Instant,
    first_at: Option<Instant>,
    /// When the consumer is done with what it took.
    paid_until: Instant,
    error: Option<String>,
}

impl Receiver {
    fn window(&self) -> u64 {
        self.ch
            .map_or(0, |ch| u64::from(self.conn.local_window(ch)))
    }

    fn react(&mut self, now: Instant) {
        while let Some(event) = self.conn.poll_event(now) {
            match event {
                Event::HostKey => self.trust(now),
                Event::Authenticated => self.open(now),
                Event::Closed => {
                    let error = self.conn.error().map(ToString::to_string);
                    self.error = error.or(self.error.take());
                }
                _ => {}
            }
            self.consume(now);
        }
        self.consume(now);
    }

    fn trust(&mut self, now: Instant) {
        if let Some(offer) = self.conn.host_key() {
            let proof = HostKeyVerified::by_application(offer);
            // It was offered just now.
            let _ = self.conn.accept_host_key(now, proof);
        }
    }

    fn open(&mut self, now: Instant) {
        let opened = self.conn.open_session(now);
        if let Ok(ch) = opened {
            // It was opened just now.
            let _ = self.conn.exec(ch, b"cat");
            self.ch = Some(ch);
        }
    }

    /// Takes what the consumer has had time for, and lets the policy set the window.
    fn consume(&mut self, now: Instant) {
        let Some(ch) = self.ch else {
            return;
        };
        let unread = self.conn.readable(ch).len();
        if unread == 0 {
            return;
        }
        self.first_at.get_or_insert(now);
        let waiting = u64::try_from(unread).expect("a length fits in 64 bits");
        self.unread_peak = self.unread_peak.max(waiting);
        if waiting > self.consumer.buffer_bytes_max {
            let text = format!("the receiver's buffer overflowed with {waiting} bytes");
            self.error.get_or_insert(text);
            return;
        }
        let taken = match self.consumer.rate {
            None => unread,
            Some(_) if self.paid_until > now => 0,
            Some(_) => unread.min(BITE_BYTES),
        };
        if taken == 0 {
            return;
        }
        self.conn.consume(now, ch, taken);
        let taken = u64::try_from(taken).expect("a length fits in 64 bits");
        self.received += taken;
        if let Some(rate) = self.consumer.rate {
            self.paid_until = now + rate.time_for(taken);
        }
        self.size(now, ch);
    }

    /// The policies that are not the engine's own.
    fn size(&mut self, now: Instant, ch: ChannelId) {
        let adjusts = self.conn.stats().adjusts_sent;
        let count = u32::try_from(adjusts - self.adjusts).unwrap_or(u32::MAX);
        self.adjusts = adjusts;
        let window = self.conn.local_window(ch);
        let target = match self.policy {
            Policy::Fixed(_) | Policy::Adaptive => return,
            Policy::Excess { excess, .. } => window.saturating_add(excess.saturating_mul(count)),
            Policy::Growth { step, limit, .. } => {
                window.saturating_add(step.saturating_mul(count)).min(limit)
            }
            Policy::ReceiveBuffer { limit, .. } => {
                if now < self.next_growth {
                    return;
                }
                self.next_growth = now + self.path.rtt;
                window.saturating_mul(2).min(limit)
            }
        };
        // Nothing but a channel that is gone refuses.
        let _ = self.conn.set_local_window(ch, target);
    }
}

/// What a consumer with a pace takes at once.
const BITE_BYTES: usize = 32 * 1024;

impl Endpoint for Receiver {
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let space = self.conn.input_space();
        let taken = bytes.len().min(space.len());
        space[..taken].copy_from_slice(&bytes[..taken]);
        // The connection keeps its error.
        let _ = self.conn.handle_input(now, taken);
        self.react(now);
        taken
    }

    fn handle_eof(&mut self, now: Instant) {
        let _ = self.conn.handle_eof(now);
        self.react(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
        self.react(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let bite = self.consumer.rate.map(|_| self.paid_until);
        let bite = bite.filter(|_| self.ch.is_some_and(|ch| !self.conn.readable(ch).is_empty()));
        self.conn.poll_timeout().into_iter().chain(bite).min()
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        self.react(now);
        flush(&mut self.conn, &mut self.tx, now, room, out);
    }

    fn is_closed(&self) -> bool {
        self.conn.error().is_some() && self.tx.is_empty()
    }
}

struct Sender {
    conn: Connection,
    tx: TxBuf,
    ch: Option<ChannelId>,
    left: u64,
}

impl Sender {
    fn react(&mut self, now: Instant) {
        while let Some(event) = self.conn.poll_event(now) {
            match event {
                Event::AuthRequest => {
                    let _ = self.conn.answer_auth(AuthAnswer::Accept);
                }
                Event::ChannelOpen(ch) => {
                    let _ = self.conn.accept_channel(ch);
                }
                Event::Request(ch) => {
                    let _ = self.conn.answer_request(ch, true);
                    self.ch = Some(ch);
                }
                _ => {}
            }
        }
    }

    /// Writes as much as the window and the buffer take.
    fn write(&mut self, now: Instant) {
        let Some(ch) = self.ch else {
            return;
        };
        while self.left > 0 {
            let mut outlet = self.conn.outlet(now, ch, &mut self.tx);
            let left = usize::try_from(self.left).unwrap_or(usize::MAX);
            let len = left.min(MESSAGE_BYTES).min(outlet.room());
            if len == 0 {
                return;
            }
            let is_sent = outlet.emit(len, &mut |slices| {
                for slice in slices {
                    slice.fill(0);
                }
                len
            });
            if !is_sent {
                return;
            }
            self.left -= u64::try_from(len).expect("a length fits in 64 bits");
        }
    }
}

/// What the sender writes at once: OpenSSH's packet.
const MESSAGE_BYTES: usize = 32 * 1024;

impl Endpoint for Sender {
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let space = self.conn.input_space();
        let taken = bytes.len().min(space.len());
        space[..taken].copy_from_slice(&bytes[..taken]);
        // The connection keeps its error.
        let _ = self.conn.handle_input(now, taken);
        self.react(now);
        taken
    }

    fn handle_eof(&mut self, now: Instant) {
        let _ = self.conn.handle_eof(now);
        self.react(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
        self.react(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.conn.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        self.react(now);
        self.write(now);
        flush(&mut self.conn, &mut self.tx, now, room, out);
    }

    fn is_closed(&self) -> bool {
        self.conn.error().is_some() && self.tx.is_empty()
    }
}

/// Moves what waits to the socket, as far as it has room.
fn flush(conn: &mut Connection, tx: &mut TxBuf, now: Instant, room: usize, out: &mut Vec<u8>) {
    while out.len() < room {
        let _ = conn.poll_transmit(now, tx);
        let n = tx.pending().len().min(room - out.len());
        if n == 0 {
            return;
        }
        out.extend_from_slice(&tx.pending()[..n]);
        tx.consume(n);
    }
}
