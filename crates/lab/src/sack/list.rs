//! Senders of old, whose retransmission queue is a list: what a SACK block names is found by walking
//! it, as in Linux 2.6.22 from its head, as in 2.6.25 from where the last walk ended if that helps.
//!
//! Only what the cost depends on is like theirs: the queue, the walk for each block, loss by the highest SACK
//! (FACK), recovery that sends again what is lost, undo by timestamps, one segment after a time-out. Congestion
//! control and the estimate of the round trip are [`fullbore_tcp`]'s.

use std::time::Duration;

use fullbore_base::Instant;
use fullbore_tcp::Seq;
use fullbore_tcp::congestion::{Acked, Cause, Control, Controller, Settings};
use fullbore_tcp::rate::RateSample;
use fullbore_tcp::rtt::Rtt;
use fullbore_tcp::segment::{Flags, Header, Options, Segment, Timestamps};

use super::sender::{Counters, Sender, Wire, Zeros};

/// Segments between one that is missing and the highest SACKed that show it to be lost.
const DUP_THRESH: u64 = 3;

/// Where the search for a block begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// At the head of the queue.
    Head,
    /// Where the last walk ended, unless the block lies before that.
    Cached,
}

/// A segment as the kernel of that time kept it: a `struct sk_buff` of some 230 bytes, each in a place
/// of its own.
#[derive(Clone, Debug)]
struct Node {
    start: u64,
    len: u32,
    next: u32,
    sent_at: Instant,
    is_sacked: bool,
    is_lost: bool,
    is_retransmitted: bool,
    _rest: [u64; 24],
}

const NONE: u32 = u32::MAX;

impl Node {
    const fn end(&self) -> u64 {
        self.start + self.len as u64
    }
}

/// Nodes that are linked, and those that are free.
#[derive(Debug, Default)]
struct Queue {
    nodes: Vec<Node>,
    free: Vec<u32>,
    head: Option<u32>,
    tail: Option<u32>,
    count: u64,
}

impl Queue {
    fn at(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    fn at_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    fn next(&self, index: u32) -> Option<u32> {
        let next = self.at(index).next;
        (next != NONE).then_some(next)
    }

    fn push(&mut self, node: Node) {
        let index = if let Some(index) = self.free.pop() {
            self.nodes[index as usize] = node;
            index
        } else {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).expect("a window has fewer segments")
        };
        match self.tail {
            Some(tail) => self.at_mut(tail).next = index,
            None => self.head = Some(index),
        }
        self.tail = Some(index);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<Node> {
        let head = self.head?;
        self.head = self.next(head);
        if self.head.is_none() {
            self.tail = None;
        }
        self.free.push(head);
        self.count -= 1;
        Some(self.at(head).clone())
    }
}

/// What is where, in segments.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    sacked: u64,
    lost: u64,
    retransmitted: u64,
}

/// See the module.
#[derive(Debug)]
pub struct ListSender {
    wire: Wire,
    search: Search,
    controller: Controller,
    rtt: Rtt,
    queue: Queue,
    tally: Tally,
    snd_una: u64,
    snd_nxt: u64,
    window: u64,
    mss: u64,
    /// Behind the highest SACKed byte.
    fack: u64,
    /// Where the last walk for a block ended.
    hint: Option<u32>,
    /// Nothing before these is to be marked, or to be sent again.
    lost_hint: Option<u32>,
    again_hint: Option<u32>,
    recover: Option<u64>,
    is_timeout: bool,
    retransmitted_at: Option<Instant>,
    rto_from: Option<Instant>,
    zeros: Zeros,
    counters: Counters,
}

impl ListSender {
    /// Waits for the receiver to connect.
    #[must_use]
    pub fn new(search: Search, settings: &Settings, wire: Wire) -> Self {
        Self {
            wire,
            search,
            controller: Controller::new(settings, 1460),
            rtt: Rtt::default(),
            queue: Queue::default(),
            tally: Tally::default(),
            snd_una: 0,
            snd_nxt: 0,
            window: 0,
            mss: 0,
            fack: 0,
            hint: None,
            lost_hint: None,
            again_hint: None,
            recover: None,
            is_timeout: false,
            retransmitted_at: None,
            rto_from: None,
            zeros: Zeros::default(),
            counters: Counters::default(),
        }
    }

    fn control(&mut self) -> &mut dyn Control {
        self.controller.get_mut()
    }

    fn accept(&mut self, settings: &Settings, header: &Header) {
        let mss = header.options.mss.unwrap_or(536);
        self.wire.accept(header);
        let options = if self.wire.is_timestamps { 12 } else { 0 };
        self.mss = u64::from(mss) - options;
        self.controller = Controller::new(settings, u32::try_from(self.mss).expect("16 bits"));
    }

    fn take_ack(&mut self, now: Instant, header: &Header) {
        let Some(ack) = self.wire.first.position(header.ack, self.snd_una) else {
            return;
        };
        if ack < self.snd_una || ack > self.snd_nxt {
            return;
        }
        self.counters.acks += 1;
        self.window = u64::from(header.window) << self.wire.scale;
        let before = self.pipe() * self.mss;
        let flight = self.snd_nxt - self.snd_una;
        let echoed_at = self.wire.echoed_at(now, header);
        self.take_blocks(now, ack, header);
        let advanced = self.advance(now, ack, echoed_at);
        self.follow_recovery(now, ack, flight, echoed_at, advanced > 0);
        if self.recover.is_none() || self.is_timeout {
            self.tell(now, advanced, before);
        }
        if advanced > 0 {
            self.rto_from = Some(now);
        }
        if self.queue.head.is_none() {
            self.rto_from = None;
        }
    }

    /// A walk for each block.
    fn take_blocks(&mut self, now: Instant, ack: u64, header: &Header) {
        let position = |seq: Seq| self.wire.first.position(seq, ack);
        let blocks = header.options.sack.as_slice();
        let mut ranges: Vec<(u64, u64)> = blocks
            .iter()
            .filter_map(|b| Some((position(b.start)?, position(b.end)?)))
            .filter(|&(start, end)| ack <= start && start < end && end <= self.snd_nxt)
            .collect();
        ranges.sort_unstable();
        self.counters.sack_blocks += ranges.len() as u64;
        for (start, end) in ranges {
            self.walk(now, start, end);
        }
    }

    fn walk(&mut self, now: Instant, start: u64, end: u64) {
        let cached = self.hint.filter(|_| self.search == Search::Cached);
        let cached = cached.filter(|&index| self.queue.at(index).start <= start);
        let mut at = cached.or(self.queue.head);
        while let Some(index) = at {
            self.counters.segments_examined += 1;
            let node = self.queue.at_mut(index);
            if node.start >= end {
                break;
            }
            if start <= node.start && node.end() <= end && !node.is_sacked {
                node.is_sacked = true;
                let (is_lost, is_again) = (node.is_lost, node.is_retransmitted);
                (node.is_lost, node.is_retransmitted) = (false, false);
                let (sent_at, node_end) = (node.sent_at, node.end());
                self.tally.sacked += 1;
                self.tally.lost -= u64::from(is_lost);
                self.tally.retransmitted -= u64::from(is_again);
                self.fack = self.fack.max(node_end);
                if !is_again {
                    self.rtt.on_sample(now, now - sent_at, self.per_rtt());
                }
            }
            self.hint = Some(index);
            at = self.queue.next(index);
        }
    }

    fn per_rtt(&self) -> u32 {
        u32::try_from(self.queue.count.max(1)).unwrap_or(1)
    }

    /// The cumulative acknowledgement. Returns the bytes it moved by.
    fn advance(&mut self, now: Instant, ack: u64, echoed_at: Option<Instant>) -> u64 {
        let before = self.snd_una;
        while let Some(head) = self.queue.head
            && self.queue.at(head).end() <= ack
        {
            self.counters.segments_examined += 1;
            for hint in [&mut self.hint, &mut self.lost_hint, &mut self.again_hint] {
                *hint = hint.filter(|&index| index != head);
            }
            let Some(node) = self.queue.pop() else {
                break;
            };
            self.tally.sacked -= u64::from(node.is_sacked);
            self.tally.lost -= u64::from(node.is_lost);
            self.tally.retransmitted -= u64::from(node.is_retransmitted);
            if !node.is_sacked && !node.is_retransmitted && echoed_at.is_none() {
                self.rtt.on_sample(now, now - node.sent_at, self.per_rtt());
            }
        }
        self.snd_una = self.snd_una.max(ack);
        self.counters.bytes_acked = self.snd_una;
        if let Some(at) = echoed_at.filter(|_| self.snd_una > before) {
            self.rtt.on_sample(now, now - at, self.per_rtt());
        }
        self.snd_una - before
    }

    fn follow_recovery(
        &mut self,
        now: Instant,
        ack: u64,
        flight: u64,
        echoed_at: Option<Instant>,
        has_advanced: bool,
    ) {
        if has_advanced {
            let is_original = self
                .retransmitted_at
                .is_some_and(|at| echoed_at.is_some_and(|echo| echo + MILLISECOND <= at));
            self.retransmitted_at = None;
            if is_original {
                // RFC 3522: what was sent again had arrived.
                self.control().on_undone();
                self.forget_losses();
                self.recover = None;
            }
        }
        if self.recover.is_some_and(|recover| ack >= recover) {
            self.recover = None;
            self.control().on_recovered();
        }
        let lost = self.mark_lost();
        if lost && self.recover.is_none() {
            self.recover = Some(self.snd_nxt);
            self.is_timeout = false;
            self.control().on_congestion(now, flight, Cause::Loss);
        }
    }

    /// FACK: what lies more than three segments under the highest SACK is lost.
    fn mark_lost(&mut self) -> bool {
        let edge = self.fack.saturating_sub(DUP_THRESH * self.mss);
        let mut at = self.lost_hint.or(self.queue.head);
        let mut is_any = false;
        while let Some(index) = at {
            self.counters.segments_examined += 1;
            let node = self.queue.at_mut(index);
            if node.end() > edge {
                break;
            }
            if !node.is_sacked && !node.is_lost {
                node.is_lost = true;
                self.tally.lost += 1;
                is_any = true;
            }
            self.lost_hint = Some(index);
            at = self.queue.next(index);
        }
        is_any
    }

    fn forget_losses(&mut self) {
        let mut at = self.queue.head;
        while let Some(index) = at {
            self.counters.segments_examined += 1;
            self.queue.at_mut(index).is_lost = false;
            at = self.queue.next(index);
        }
        self.tally.lost = 0;
        self.fack = self.snd_una;
        (self.lost_hint, self.again_hint) = (None, None);
    }

    fn tell(&mut self, now: Instant, advanced: u64, pipe: u64) {
        if advanced == 0 {
            return;
        }
        let is_cwnd_limited = 2 * pipe >= self.controller.get().cwnd();
        let acked = Acked {
            now,
            delivered_bytes: advanced,
            lost_bytes: 0,
            delivered_total: self.snd_una,
            pipe,
            snd_una: self.snd_una,
            snd_nxt: self.snd_nxt,
            srtt: self.rtt.srtt(),
            sample: &RateSample {
                rtt: self.rtt.latest(),
                ..RateSample::default()
            },
            is_cwnd_limited,
            is_recovering: self.recover.is_some(),
        };
        self.control().on_acked(&acked);
    }

    /// RFC 6675's pipe, in segments.
    const fn pipe(&self) -> u64 {
        let tally = &self.tally;
        (self.queue.count + tally.retransmitted).saturating_sub(tally.sacked + tally.lost)
    }

    fn on_timeout(&mut self, now: Instant) {
        self.counters.timeouts += 1;
        self.rtt.on_timeout();
        let is_first = !self.is_timeout || self.recover.is_none();
        let flight = self.snd_nxt - self.snd_una;
        let mut at = self.queue.head;
        self.tally = Tally::default();
        while let Some(index) = at {
            self.counters.segments_examined += 1;
            // A head that is SACKed was thrown away.
            let is_head = self.queue.head == Some(index);
            let node = self.queue.at_mut(index);
            node.is_retransmitted = false;
            node.is_sacked &= !is_head;
            node.is_lost = !node.is_sacked;
            let is_sacked = node.is_sacked;
            self.tally.sacked += u64::from(is_sacked);
            self.tally.lost += u64::from(!is_sacked);
            at = self.queue.next(index);
        }
        (self.lost_hint, self.again_hint) = (None, None);
        self.control().on_timeout(flight, 0, is_first);
        self.recover = Some(self.snd_nxt);
        self.is_timeout = true;
        self.retransmitted_at = None;
        self.rto_from = Some(now);
    }

    fn next_again(&mut self) -> Option<u32> {
        if self.tally.lost <= self.tally.retransmitted {
            return None;
        }
        let mut at = self.again_hint.or(self.queue.head);
        while let Some(index) = at {
            self.counters.segments_examined += 1;
            self.again_hint = Some(index);
            let node = self.queue.at(index);
            if node.is_lost && !node.is_retransmitted {
                return Some(index);
            }
            at = self.queue.next(index);
        }
        None
    }

    fn emit(&self, now: Instant, start: u64, len: u64, out: &mut [u8]) -> usize {
        let mut header = self.wire.header(now, Flags::ACK);
        header.seq = self.wire.first.at(start);
        let len = usize::try_from(len).expect("a segment is short");
        let at = header.len();
        out[at..at + len].copy_from_slice(self.zeros.bytes(len));
        header.emit(out, len, self.wire.pseudo)
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

impl Sender for ListSender {
    fn handle_segment(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(segment) = Segment::parse(bytes, self.wire.pseudo) else {
            return;
        };
        if segment.header.flags.has(Flags::SYN) {
            let settings = Settings {
                algorithm: self.controller.algorithm(),
                ..Settings::default()
            };
            self.accept(&settings, &segment.header);
            return;
        }
        self.wire.take_timestamp(&segment.header);
        self.take_ack(now, &segment.header);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.on_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.rto_from.map(|from| from + self.rtt.rto())
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        if let Some(reply) = self.wire.reply.take() {
            let mut header = self.wire.header(now, Flags::SYN | Flags::ACK);
            header.options = Options {
                timestamps: header.options.timestamps.map(|t| Timestamps { ..t }),
                ..reply
            };
            return Some(header.emit(out, 0, self.wire.pseudo));
        }
        let room = self.controller.get().cwnd() / self.mss.max(1);
        if self.mss == 0 || self.pipe() >= room.max(1) {
            return None;
        }
        if self.recover.is_some()
            && let Some(index) = self.next_again()
        {
            let node = self.queue.at_mut(index);
            node.is_retransmitted = true;
            node.sent_at = now;
            let (start, len) = (node.start, u64::from(node.len));
            self.tally.retransmitted += 1;
            self.counters.retransmissions += 1;
            self.retransmitted_at.get_or_insert(now);
            self.rto_from.get_or_insert(now);
            return Some(self.emit(now, start, len, out));
        }
        if self.snd_nxt + self.mss > self.snd_una + self.window {
            return None;
        }
        let start = self.snd_nxt;
        self.queue.push(Node {
            start,
            len: u32::try_from(self.mss).expect("16 bits"),
            next: NONE,
            sent_at: now,
            is_sacked: false,
            is_lost: false,
            is_retransmitted: false,
            _rest: [0; 24],
        });
        self.snd_nxt += self.mss;
        self.rto_from.get_or_insert(now);
        Some(self.emit(now, start, self.mss, out))
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn examined(&self) -> u64 {
        self.counters.segments_examined
    }
}
