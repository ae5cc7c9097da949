//! Connections of the host: how they begin, what their packets look like, how they are forgotten.

use std::ops::RangeInclusive;

use fullbore_base::Instant;
use fullbore_tcp::connection::{Config, Connection, State};
use fullbore_tcp::isn::Tuple;
use fullbore_tcp::segment::{Pseudo, Segment};

use super::Host;
use super::join::Joined;
use crate::ip;

/// Ports of connections that we open (RFC 6335 section 6).
pub const EPHEMERAL: RangeInclusive<u16> = 49_152..=65_535;

/// Names a connection.
pub type FlowId = u64;

/// One connection, and what its packets look like.
#[derive(Debug)]
pub struct Flow {
    pub connection: Connection,
    pub tuple: Tuple,
    /// The type of service, without congestion bits.
    pub tos: u8,
    /// What ICMP said of our SYN: an `errno`.
    pub unreachable: Option<i32>,
    /// Nobody holds it any more: it ends by itself, and waits so long for the peer's FIN.
    orphan_until: Option<Instant>,
}

impl Flow {
    pub const fn new(connection: Connection, tuple: Tuple, tos: u8) -> Self {
        Self {
            connection,
            tuple,
            tos,
            unreachable: None,
            orphan_until: None,
        }
    }

    /// When it stops to wait for the peer's FIN.
    fn lingers_until(&self) -> Option<Instant> {
        let is_lingering = self.connection.state() == State::FinWait2;
        self.orphan_until.filter(|_| is_lingering)
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let timers = [self.connection.poll_timeout(), self.lingers_until()];
        timers.into_iter().flatten().min()
    }

    /// Whether it waited long enough for a FIN that nobody would notice.
    pub(super) fn has_lingered(&self, now: Instant) -> bool {
        self.lingers_until().is_some_and(|at| at <= now)
    }

    /// Takes a segment. False when it brings data that nobody will ever read (RFC 1122 4.2.2.13: the
    /// peer should know).
    pub(super) fn handle_segment(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        is_marked: bool,
    ) -> bool {
        self.connection.handle_segment(now, segment, is_marked);
        self.orphan_until.is_none() || self.connection.readable_bytes() == 0
    }
}

impl Host {
    /// A connection that somebody holds.
    pub fn flow(&self, id: FlowId) -> &Flow {
        self.flows.get(&id).expect("whoever names it holds it")
    }

    /// Does something with a connection, and sends what comes of it.
    pub fn with<T>(&mut self, id: FlowId, act: impl FnOnce(Instant, &mut Flow) -> T) -> T {
        let now = self.now;
        let flow = self.flows.get_mut(&id).expect("whoever names it holds it");
        let done = act(now, flow);
        self.transmit(id);
        done
    }

    pub(super) fn insert(&mut self, flow: Flow) -> FlowId {
        let id = self.next_flow;
        self.next_flow += 1;
        self.by_tuple.insert(flow.tuple, id);
        self.flows.insert(id, flow);
        id
    }

    /// A port that nobody was given lately.
    pub const fn free_port(&mut self) -> u16 {
        let port = self.next_port;
        let is_last = port == *EPHEMERAL.end();
        self.next_port = if is_last {
            *EPHEMERAL.start()
        } else {
            port + 1
        };
        port
    }

    /// Whether a connection of these ends is under way.
    pub fn is_taken(&self, tuple: &Tuple) -> bool {
        self.by_tuple.contains_key(tuple)
    }

    /// Opens a connection; its SYN leaves now. `config` still lacks ports and checksum. One of the
    /// same ends in TIME-WAIT makes room.
    pub fn connect(&mut self, tuple: Tuple, tos: u8, config: Config) -> FlowId {
        self.waits.remove(&tuple);
        let config = Config {
            local_port: tuple.local.1,
            remote_port: tuple.remote.1,
            pseudo: Pseudo::between(tuple.local.0, tuple.remote.0),
            timestamp_offset: self.generator.timestamp_offset(&tuple),
            ..config
        };
        let initial = self.generator.initial(self.now, &tuple);
        let connection = Connection::connect(self.now, config, initial);
        let id = self.insert(Flow::new(connection, tuple, tos));
        self.transmit(id);
        id
    }

    /// Nobody holds the connection any more: it ends by itself.
    pub fn release(&mut self, id: FlowId) {
        let until = self.now + self.settings.fin_timeout;
        self.with(id, |_, flow| flow.orphan_until = Some(until));
    }

    /// Everything that the connection has to say now becomes packets.
    pub(super) fn transmit(&mut self, id: FlowId) {
        let (now, is_joined) = (self.now, self.settings.is_joined);
        let flow = self.flows.get_mut(&id).expect("whoever names it holds it");
        let mut joined: Vec<Joined> = Vec::new();
        while let Some(transmit) = flow.connection.poll_transmit(now, &mut self.scratch) {
            let segment = &self.scratch[..transmit.len];
            let last = joined.last_mut().filter(|_| is_joined);
            if !last.is_some_and(|last| last.append(segment, transmit.is_ect)) {
                joined.push(Joined::new(segment, transmit.is_ect));
            }
        }
        let (tuple, tos) = (flow.tuple, flow.tos);
        for segment in joined {
            let ecn = if segment.is_ect() { ip::ECT_0 } else { 0 };
            let bytes = segment.finish(Pseudo::between(tuple.local.0, tuple.remote.0));
            self.send(&tuple, tos | ecn, &bytes);
        }
        self.settle(id);
    }

    /// An orphan that is over is forgotten; of one in TIME-WAIT only the numbers are kept.
    fn settle(&mut self, id: FlowId) {
        let flow = &self.flows[&id];
        let wait = flow.connection.time_wait();
        let is_over = wait.is_some() || flow.connection.is_closed();
        if flow.orphan_until.is_none() || !is_over {
            return;
        }
        let tuple = flow.tuple;
        if self.forget(id) {
            self.waits.extend(wait.map(|wait| (tuple, wait)));
        }
    }

    /// Forgets a connection. False when a newer one of the same ends has taken its place.
    pub(super) fn forget(&mut self, id: FlowId) -> bool {
        let flow = self.flows.remove(&id).expect("whoever names it holds it");
        let is_current = self.by_tuple.get(&flow.tuple) == Some(&id);
        if is_current {
            self.by_tuple.remove(&flow.tuple);
        }
        is_current
    }
}
