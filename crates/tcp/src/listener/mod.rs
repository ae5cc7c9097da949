//! A port that waits for connections: half-open ones in a bounded backlog, and cookies beyond it.
//!
//! RFC 9293 section 3.10.7.2 (LISTEN) and the SYN-RECEIVED of a passive opening; RFC 4987 (SYN floods).
//! A handshake costs one small record, and past the backlog none at all. A connection is made when
//! it is complete.

mod cookie;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;
use fullbore_base::Instant;

use self::cookie::Cookies;
use crate::congestion::Settings;
use crate::connection::handshake_answer;
use crate::connection::{Accepted, Agreed, Clock, Config, Connection};
use crate::isn::{Generator, Randomness, Tuple};
use crate::rtt::RTO_INITIAL;
use crate::segment::{Flags, Header, Pseudo, Segment};
use crate::seq::Seq;

/// How often a SYN+ACK is sent again: 1, 2, 4, 8, 16 s.
pub const SYN_ACKS_MAX: u32 = 5;

/// What a listener is told.
#[derive(Clone, Copy, Debug)]
pub struct ListenConfig {
    /// For each connection; ports, checksum, timestamps and seed are set for each.
    pub connection: Config,
    /// Handshakes that are remembered at once; cookies beyond.
    pub backlog_max: usize,
}

/// What a segment led to.
#[derive(Debug)]
pub enum Heard {
    /// Nothing.
    Nothing,
    /// A header without payload is to be sent back.
    Reply(Header),
    /// A connection, with the segment that completed it taken.
    Accepted(Box<Connection>),
}

/// A handshake under way.
#[derive(Clone, Copy, Debug)]
struct HalfOpen {
    local_initial: Seq,
    remote_initial: Seq,
    agreed: Agreed,
    timestamp: u32,
    began_at: Instant,
    sent_count: u32,
    due: Instant,
}

impl HalfOpen {
    /// How long our SYN took to be answered. Karn: of one that was sent more than once, only a
    /// timestamp tells.
    fn rtt(&self, now: Instant, config: &Config, answer: &Header) -> Option<Duration> {
        if self.sent_count == 1 {
            return Some(now - self.began_at);
        }
        let timestamps = answer.options.timestamps;
        let echo = timestamps.filter(|_| self.agreed.is_timestamps)?.echo;
        let clock = Clock::new(config.timestamp_offset, self.timestamp, now);
        clock.sent_at(now, echo).map(|at| now - at)
    }
}

/// What a listener did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenStats {
    /// Handshakes remembered.
    pub half_opened: u64,
    /// SYNs answered with a cookie.
    pub cookies_sent: u64,
    /// Connections made of cookies.
    pub cookies_taken: u64,
    /// Acknowledgements that were no cookie of ours.
    pub cookies_refused: u64,
    /// Handshakes given up.
    pub expired: u64,
}

/// One listening port.
#[derive(Debug)]
pub struct Listener {
    config: ListenConfig,
    generator: Generator,
    cookies: Cookies,
    half_open: BTreeMap<Tuple, HalfOpen>,
    /// By deadline.
    due: BTreeSet<(Instant, Tuple)>,
    stats: ListenStats,
}

impl Listener {
    /// With fresh secrets.
    pub fn new(config: ListenConfig, randomness: &mut dyn Randomness) -> Self {
        Self {
            config,
            generator: Generator::new(randomness),
            cookies: Cookies::new(randomness),
            half_open: BTreeMap::new(),
            due: BTreeSet::new(),
            stats: ListenStats::default(),
        }
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> &ListenStats {
        &self.stats
    }

    /// Handshakes remembered now.
    #[must_use]
    pub fn half_open_count(&self) -> usize {
        self.half_open.len()
    }

    fn config_for(&self, tuple: &Tuple) -> Config {
        let offset = self.generator.timestamp_offset(tuple);
        Config {
            local_port: tuple.local.1,
            remote_port: tuple.remote.1,
            pseudo: match self.config.connection.pseudo {
                Pseudo::Unchecked => Pseudo::Unchecked,
                Pseudo::Addresses { .. } => Pseudo::between(tuple.local.0, tuple.remote.0),
            },
            timestamp_offset: offset,
            congestion: Settings {
                seed: u64::from(offset),
                ..self.config.connection.congestion
            },
            ..self.config.connection
        }
    }

    /// Takes a segment for the port that belongs to no connection. O(log backlog).
    pub fn handle_segment(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        is_marked: bool,
    ) -> Heard {
        let header = &segment.header;
        if header.flags.has(Flags::RST) {
            self.handle_reset(tuple, header);
            return Heard::Nothing;
        }
        if let Some(half) = self.half_open.get(tuple).copied() {
            return self.handle_half_open(now, tuple, &half, segment, is_marked);
        }
        if header.flags.has(Flags::ACK) {
            return self.handle_cookie(now, tuple, segment, is_marked);
        }
        if header.flags.has(Flags::SYN) {
            return Heard::Reply(self.handle_syn(now, tuple, header));
        }
        Heard::Nothing
    }

    fn handle_reset(&mut self, tuple: &Tuple, header: &Header) {
        let is_exact = |half: &HalfOpen| header.seq == half.remote_initial.at(1);
        if self.half_open.get(tuple).is_some_and(is_exact) {
            self.forget(tuple);
        }
    }

    fn forget(&mut self, tuple: &Tuple) {
        if let Some(half) = self.half_open.remove(tuple) {
            self.due.remove(&(half.due, *tuple));
        }
    }

    fn handle_syn(&mut self, now: Instant, tuple: &Tuple, header: &Header) -> Header {
        let config = self.config_for(tuple);
        let agreed = Agreed::new(&config, header);
        let timestamp = header.options.timestamps.map_or(0, |t| t.value);
        if self.half_open.len() >= self.config.backlog_max {
            self.stats.cookies_sent += 1;
            return self
                .cookies
                .answer(now, &config, tuple, header, &agreed, timestamp);
        }
        let half = HalfOpen {
            local_initial: self.generator.initial(now, tuple),
            remote_initial: header.seq,
            agreed,
            timestamp,
            began_at: now,
            sent_count: 1,
            due: now + RTO_INITIAL,
        };
        self.half_open.insert(*tuple, half);
        self.due.insert((half.due, *tuple));
        self.stats.half_opened += 1;
        self.answer(now, tuple, &half)
    }

    fn answer(&self, now: Instant, tuple: &Tuple, half: &HalfOpen) -> Header {
        let config = self.config_for(tuple);
        let (local, remote) = (half.local_initial, half.remote_initial);
        handshake_answer(now, &config, &half.agreed, local, remote, half.timestamp)
    }

    fn handle_half_open(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        half: &HalfOpen,
        segment: &Segment<'_>,
        is_marked: bool,
    ) -> Heard {
        let header = &segment.header;
        if header.flags.has(Flags::SYN) {
            // The same again is answered again; another one has to wait until this is over.
            let is_same = header.seq == half.remote_initial;
            let answer = is_same.then(|| self.answer(now, tuple, half));
            return answer.map_or(Heard::Nothing, Heard::Reply);
        }
        if !header.flags.has(Flags::ACK) {
            return Heard::Nothing;
        }
        if header.ack != half.local_initial.at(1) {
            return Connection::refuse(segment).map_or(Heard::Nothing, Heard::Reply);
        }
        self.forget(tuple);
        let config = self.config_for(tuple);
        let accepted = Accepted {
            local_initial: half.local_initial,
            remote_initial: half.remote_initial,
            agreed: half.agreed,
            timestamp: half.timestamp,
            told_window: told_window(&config),
            rtt: half.rtt(now, &config, header),
        };
        let mut connection = Box::new(Connection::accept(now, config, &accepted));
        if half.sent_count > 1 && accepted.rtt.is_none() {
            connection.on_syn_unmeasured();
        }
        connection.handle_segment(now, segment, is_marked);
        Heard::Accepted(connection)
    }

    fn handle_cookie(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        is_marked: bool,
    ) -> Heard {
        let config = self.config_for(tuple);
        let taken = self.cookies.take(now, &config, tuple, &segment.header);
        let Some(accepted) = taken else {
            self.stats.cookies_refused += 1;
            // What is sent later may overtake the acknowledgement that brings the cookie.
            if self.cookies.are_out(now) {
                return Heard::Nothing;
            }
            return Connection::refuse(segment).map_or(Heard::Nothing, Heard::Reply);
        };
        self.stats.cookies_taken += 1;
        let mut connection = Box::new(Connection::accept(now, config, &accepted));
        connection.handle_segment(now, segment, is_marked);
        Heard::Accepted(connection)
    }

    /// When a SYN+ACK is to be sent again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|&(at, _)| at)
    }

    /// The next SYN+ACK that is due again, and whose. Handshakes that had their number are
    /// forgotten. O(log backlog) each.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Tuple, Header)> {
        while let Some(&(at, tuple)) = self.due.first() {
            if at > now {
                return None;
            }
            self.due.remove(&(at, tuple));
            let half = self.half_open.get_mut(&tuple).expect("it has a deadline");
            if half.sent_count > SYN_ACKS_MAX {
                self.half_open.remove(&tuple);
                self.stats.expired += 1;
                continue;
            }
            half.due = now + RTO_INITIAL * (1 << half.sent_count);
            half.sent_count += 1;
            let half = *half;
            self.due.insert((half.due, tuple));
            return Some((tuple, self.answer(now, &tuple, &half)));
        }
        None
    }
}

/// The window that a SYN+ACK tells: unscaled.
fn told_window(config: &Config) -> u64 {
    config.receive_buffer.min(u64::from(u16::MAX))
}

/// How long a cookie is good.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(128);

#[cfg(test)]
mod tests;
