//! The receiver, without I/O: opens a connection, lets the sender's window grow, and then acknowledges
//! as its [`Mode`] says.
//!
//! ```text
//!   SYN ► grow: honest, until a round trip brings a window ► hold: lies for each segment ► release ► hold ...
//! ```
//!
//! A hold lasts until the window has arrived, at most [`Config::hold`]. It ends with a cumulative
//! acknowledgement of everything. So that the sender's window stays open, that echoes the timestamp of
//! the first segment held, as if nothing sent again had been needed, and what arrives twice is told by D-SACK;
//! [`Config::is_kept_open`] turns both off.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use fullbore_base::{Instant, RangeSet, Rng};
use fullbore_tcp::Seq;
use fullbore_tcp::segment::options::{SACK_BLOCKS_MAX, SACK_BLOCKS_WITH_TIMESTAMPS_MAX};
use fullbore_tcp::segment::{Flags, Header, Options, Pseudo, SackBlock, Timestamps};

use super::lies::{self, Scene};
use super::mode::Mode;

/// Windows that are received honestly before an attack begins, however little of it a round trip brings.
const GROWTH_WINDOWS_MAX: u64 = 12;

/// How long a SYN or a request goes without an answer before it is sent again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often that is tried.
const TRIES_MAX: u32 = 6;

/// How long an acknowledgement waits for a second segment.
const DELAYED_ACK: Duration = Duration::from_millis(40);

/// The longest request: it goes in one segment.
pub const REQUEST_BYTES_MAX: usize = 1300;

/// Each so many releases, a reneging receiver throws away what it holds.
const RENEGE_EACH: u64 = 4;

/// Windows are told in units of 16 KiB: the largest shift there is.
const WINDOW_SCALE: u8 = 14;

/// What the receiver is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// How it acknowledges.
    pub mode: Mode,
    /// Bytes of the window that it offers.
    pub window: u64,
    /// The path's round trip, which it knows: its delay is its own doing.
    pub rtt: Duration,
    /// How long the cumulative acknowledgement is held at most.
    pub hold: Duration,
    /// Its claims of loss are taken back, so that the sender keeps its window.
    pub is_kept_open: bool,
    /// What is random.
    pub seed: u64,
    /// Ours and the peer's.
    pub ports: (u16, u16),
    /// What the checksum covers.
    pub pseudo: Pseudo,
    /// Sent once the connection is there: what makes the peer send.
    pub request: Vec<u8>,
}

/// Where the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The SYN is out.
    Opening,
    /// The window grows.
    Growing,
    /// Each segment is answered as the mode says.
    Attacking,
    /// The peer ended it and everything is acknowledged, or it never answered.
    Over,
}

/// What was received and how it was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes acknowledged.
    pub acked: u64,
    /// The same when the attack began.
    pub acked_before: u64,
    /// When it began.
    pub attacked_at: Option<Instant>,
    /// Acknowledgements sent since then.
    pub acks: u64,
    /// SACK blocks in them.
    pub blocks: u64,
    /// Segments that had arrived before.
    pub duplicates: u64,
    /// Holds that ended.
    pub releases: u64,
    /// Times that data was thrown away.
    pub reneges: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Receiver {
    config: Config,
    rng: Rng,
    state: State,
    local_initial: Seq,
    /// The number of the stream's first byte.
    base: Seq,
    held: RangeSet,
    /// End of the highest segment.
    end: u64,
    segment: u64,
    fin: Option<u64>,
    /// Bytes of the current round trip, and when it began.
    round: (Instant, u64),
    hold_ends: Option<Instant>,
    /// One segment was received honestly and waits for its acknowledgement.
    delayed_until: Option<Instant>,
    /// A reneging receiver: honest until this is there again.
    honest_until: u64,
    /// What arrived last, if it had before.
    duplicate: Option<Range<u64>>,
    /// TSval of the first segment that is held.
    echo: u32,
    is_echo_due: bool,
    is_timestamps: bool,
    retry: (Instant, u32),
    is_request_out: bool,
    replies: VecDeque<(Header, usize)>,
    received: Received,
}

impl Receiver {
    /// One that opens a connection: its SYN is the first thing to be transmitted.
    #[must_use]
    pub fn new(now: Instant, config: Config) -> Self {
        let mut rng = Rng::seeded(config.seed);
        let [a, b, c, d, ..] = rng.next_u64().to_be_bytes();
        let mut receiver = Self {
            rng,
            state: State::Opening,
            local_initial: Seq::new(u32::from_be_bytes([a, b, c, d])),
            base: Seq::default(),
            held: RangeSet::new(),
            end: 0,
            segment: 1,
            fin: None,
            round: (now, 0),
            hold_ends: None,
            delayed_until: None,
            honest_until: 0,
            duplicate: None,
            echo: 0,
            is_echo_due: true,
            is_timestamps: false,
            retry: (now + RETRY_AFTER, 0),
            is_request_out: false,
            replies: VecDeque::new(),
            received: Received::default(),
            config,
        };
        receiver.open(now);
        receiver
    }

    /// Where it is.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Counters.
    #[must_use]
    pub const fn received(&self) -> &Received {
        &self.received
    }

    fn header(&self, now: Instant, flags: Flags) -> Header {
        let is_syn = flags.has(Flags::SYN);
        let sent = u32::from(!is_syn) + self.request_len();
        let units = self.config.window >> if is_syn { 0 } else { WINDOW_SCALE };
        let mut header = Header {
            source_port: self.config.ports.0,
            destination_port: self.config.ports.1,
            seq: self.local_initial.plus(sent),
            flags,
            window: u16::try_from(units).unwrap_or(u16::MAX),
            ..Header::default()
        };
        if flags.has(Flags::ACK) {
            header.ack = self
                .base
                .at(self.received.acked + u64::from(self.is_fin_acked()));
        }
        if self.is_timestamps || (is_syn && self.config.is_kept_open) {
            header.options.timestamps = Some(Timestamps {
                value: millis(now),
                echo: self.echo,
            });
        }
        header
    }

    /// Bytes of the request that are out.
    fn request_len(&self) -> u32 {
        let len = if self.is_request_out {
            self.config.request.len()
        } else {
            0
        };
        u32::try_from(len).expect("a request is short")
    }

    fn is_fin_acked(&self) -> bool {
        self.fin == Some(self.received.acked)
    }

    fn open(&mut self, now: Instant) {
        let mut header = self.header(now, Flags::SYN);
        header.options = Options {
            mss: Some(self.config.mode.mss()),
            window_scale: Some(WINDOW_SCALE),
            is_sack_permitted: self.config.mode.is_sack(),
            ..header.options
        };
        self.replies.push_back((header, 0));
    }

    fn ask(&mut self, now: Instant) {
        self.is_request_out = false;
        let header = self.header(now, Flags::ACK | Flags::PSH);
        self.replies.push_back((header, self.config.request.len()));
        self.is_request_out = true;
    }

    /// Takes the header of a segment with `len` bytes behind it. O(log n).
    pub fn handle_segment(&mut self, now: Instant, header: &Header, len: usize) {
        let is_ours = (header.destination_port, header.source_port) == self.config.ports;
        if !is_ours || self.state == State::Over {
            return;
        }
        if header.flags.has(Flags::RST) {
            self.state = State::Over;
        } else if header.flags.has(Flags::SYN) {
            self.take_syn(now, header);
        } else if self.state != State::Opening {
            self.take_data(now, header, len as u64);
        }
    }

    fn take_syn(&mut self, now: Instant, header: &Header) {
        if self.state != State::Opening {
            return;
        }
        self.base = header.seq.plus(1);
        self.state = State::Growing;
        self.round = (now, 0);
        let timestamps = header
            .options
            .timestamps
            .filter(|_| self.config.is_kept_open);
        self.is_timestamps = timestamps.is_some();
        self.echo = timestamps.map_or(0, |t| t.value);
        self.retry = (now + RETRY_AFTER, 0);
        if self.config.request.is_empty() {
            let header = self.header(now, Flags::ACK);
            self.replies.push_back((header, 0));
        } else {
            self.ask(now);
        }
    }

    fn take_data(&mut self, now: Instant, header: &Header, len: u64) {
        let Some(start) = self.base.position(header.seq, self.received.acked) else {
            return;
        };
        let end = start + len;
        if header.flags.has(Flags::FIN) {
            self.fin = Some(end);
        } else if len == 0 {
            // An answer to the request, or a question.
            if start < self.received.acked {
                self.reply(now, Vec::new());
            }
            return;
        }
        self.segment = self.segment.max(len);
        self.note_arrival(header, start..end);
        if self.state == State::Growing {
            self.grow(now, len);
        }
        self.answer(now, start);
    }

    /// Takes note of what came: new, or for the second time.
    fn note_arrival(&mut self, header: &Header, range: Range<u64>) {
        self.duplicate = None;
        if self.held.contains(range.clone()) && !range.is_empty() {
            self.received.duplicates += 1;
            self.duplicate = Some(range);
            return;
        }
        if let Some(timestamps) = header.options.timestamps
            && core::mem::take(&mut self.is_echo_due)
        {
            self.echo = timestamps.value;
        }
        self.end = self.end.max(range.end);
        self.held.insert(range);
    }

    /// Whether the window has grown to what is offered.
    fn grow(&mut self, now: Instant, len: u64) {
        self.round.1 += len;
        let has_come = self.held.prefix_end();
        let mut is_grown = has_come >= GROWTH_WINDOWS_MAX * self.config.window;
        if now - self.round.0 >= self.config.rtt {
            is_grown |= self.round.1 >= self.config.window / 10 * 8;
            self.round = (now, 0);
        }
        if is_grown && has_come == self.end {
            self.state = State::Attacking;
            self.received.acked_before = self.received.acked;
            self.received.attacked_at = Some(now);
        }
    }

    fn answer(&mut self, now: Instant, start: u64) {
        let is_lying = self.state == State::Attacking && self.config.mode.is_hostile();
        if !is_lying || self.held.prefix_end() < self.honest_until {
            self.answer_honestly(now, start);
            return;
        }
        let hold_ends = *self.hold_ends.get_or_insert(now + self.config.hold);
        let room = self.received.acked + self.config.window - self.end;
        // What is told in units of 16 KiB leaves a segment's worth, or less, unused.
        let is_full = room < 2 * self.segment + (1 << WINDOW_SCALE);
        if is_full || now >= hold_ends || self.fin.is_some() {
            self.release(now);
            return;
        }
        let scene = Scene {
            acked: self.received.acked,
            end: self.end,
            segment: self.segment,
            window: self.config.window,
        };
        let blocks = lies::blocks(self.config.mode, &scene, &mut self.rng);
        self.reply(now, blocks);
    }

    /// RFC 9293 3.8.6.3: every second segment in order, and at once what is not.
    fn answer_honestly(&mut self, now: Instant, start: u64) {
        let is_first = self.delayed_until.is_none();
        let is_plain =
            self.duplicate.is_none() && self.held.prefix_end() == self.end && self.fin.is_none();
        if is_plain && is_first {
            self.delayed_until = Some(now + DELAYED_ACK);
            return;
        }
        self.acknowledge_all();
        let blocks = self.honest_blocks(start);
        self.reply(now, blocks);
    }

    fn acknowledge_all(&mut self) {
        let prefix = self.held.prefix_end();
        if prefix > self.received.acked {
            self.is_echo_due = true;
            self.received.acked = prefix;
        }
    }

    fn release(&mut self, now: Instant) {
        self.hold_ends = None;
        self.received.releases += 1;
        let is_renege = self.config.mode == Mode::Renege
            && self.received.releases.is_multiple_of(RENEGE_EACH)
            && self.held.prefix_end() > self.received.acked + 2 * self.segment;
        if is_renege {
            self.received.reneges += 1;
            self.received.acked += 2 * self.segment;
            self.honest_until = self.end;
            self.held = RangeSet::new();
            self.held.insert(0..self.received.acked);
            self.is_echo_due = true;
        } else {
            self.acknowledge_all();
        }
        self.reply(now, Vec::new());
    }

    /// RFC 2018 section 4: the range of what came last first, then others.
    fn honest_blocks(&self, start: u64) -> Vec<Range<u64>> {
        let beyond = self.held.iter().filter(|r| r.start > self.received.acked);
        let mut blocks: Vec<Range<u64>> = beyond.take(SACK_BLOCKS_MAX).collect();
        if let Some(newest) = self.held.iter().find(|r| r.contains(&start))
            && newest.start > self.received.acked
        {
            blocks.retain(|r| *r != newest);
            blocks.insert(0, newest);
        }
        blocks
    }

    fn reply(&mut self, now: Instant, blocks: Vec<Range<u64>>) {
        self.delayed_until = None;
        let mut header = self.header(now, Flags::ACK);
        let duplicate = self.duplicate.take();
        let duplicate = duplicate.filter(|_| self.config.is_kept_open);
        let limit = if self.is_timestamps {
            SACK_BLOCKS_WITH_TIMESTAMPS_MAX
        } else {
            SACK_BLOCKS_MAX
        };
        if self.config.mode.is_sack() {
            for block in duplicate.into_iter().chain(blocks).take(limit) {
                let _ = header.options.sack.push(SackBlock {
                    start: self.base.at(block.start),
                    end: self.base.at(block.end),
                });
            }
        }
        if self.state == State::Attacking {
            self.received.acks += 1;
            self.received.blocks += header.options.sack.as_slice().len() as u64;
        }
        self.replies.push_back((header, 0));
        if self.is_fin_acked() {
            self.state = State::Over;
        }
    }

    /// The next deadline: the end of a hold, or the next try of what was not answered.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_waiting = self.state == State::Opening
            || (self.state == State::Growing && self.end == 0 && self.is_request_out);
        match self.state {
            State::Over => None,
            State::Opening | State::Growing | State::Attacking if is_waiting => Some(self.retry.0),
            State::Opening | State::Growing | State::Attacking => {
                self.hold_ends.or(self.delayed_until)
            }
        }
    }

    /// A deadline may have passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        if self.hold_ends.is_some() {
            self.release(now);
            return;
        }
        if self.delayed_until.is_some() {
            self.acknowledge_all();
            self.reply(now, Vec::new());
            return;
        }
        self.retry = (now + RETRY_AFTER, self.retry.1 + 1);
        if self.retry.1 > TRIES_MAX {
            self.state = State::Over;
        } else if self.state == State::Opening {
            self.open(now);
        } else {
            self.ask(now);
        }
    }

    /// Ends the connection: a RST is the last thing to be transmitted.
    pub fn abort(&mut self, now: Instant) {
        if !matches!(self.state, State::Over | State::Opening) {
            let header = self.header(now, Flags::RST | Flags::ACK);
            self.replies.push_back((header, 0));
        }
        self.state = State::Over;
    }

    /// Writes the next segment into `out`; `None` when there is none.
    ///
    /// # Panics
    /// When `out` cannot hold the longest header and the request.
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<usize> {
        let (header, payload_len) = self.replies.pop_front()?;
        let at = header.len();
        out[at..at + payload_len].copy_from_slice(&self.config.request[..payload_len]);
        Some(header.emit(out, payload_len, self.config.pseudo))
    }
}

/// Our clock for timestamps.
fn millis(now: Instant) -> u32 {
    let millis = now.as_nanos() / 1_000_000;
    u32::try_from(millis & u64::from(u32::MAX)).expect("masked")
}

#[cfg(test)]
mod tests;
