//! A host in virtual time: connections, listening ports and packets under one clock.
//!
//! RFC 9293 section 3.10.7.1 (segments for nobody), RFC 6191 and 1337 (TIME-WAIT). The clock moves only
//! when told to, and stops at each deadline on the way. Does not know sockets. Connections are few and
//! are searched one by one for the next deadline.

mod flow;
mod join;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use fullbore_base::{Instant, Rng};
use fullbore_tcp::Seq;
use fullbore_tcp::connection::{Config, Connection, State};
use fullbore_tcp::isn::{Generator, Randomness, Tuple};
use fullbore_tcp::listener::{Heard, ListenConfig, Listener};
use fullbore_tcp::segment::{HEADER_BYTES, Header, Pseudo, Segment};
use fullbore_tcp::time_wait::{Late, TimeWait};

use crate::ip::{self, Packet, Verdict};
use crate::settings::Settings;
pub use flow::{Flow, FlowId};

/// Where the clock starts: late enough that "an hour ago" is a time.
const START: Instant = Instant::from_nanos(3600 * 1_000_000_000);
/// Handshakes that a port remembers at once.
const HALF_OPEN_MAX: usize = 1024;

/// A listening port, of one family: IPv4 or not.
type Port = (u16, bool);

/// A port that listens.
#[derive(Debug)]
struct Door {
    listener: Listener,
    queue: VecDeque<FlowId>,
    /// Connections that were ever in the queue.
    callers: u64,
    queue_max: usize,
    tos: u8,
}

/// Randomness from a seed: nothing here has to be secret.
struct Seeded(Rng);

impl Randomness for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

/// The host.
#[derive(Debug)]
pub struct Host {
    settings: Settings,
    now: Instant,
    flows: BTreeMap<FlowId, Flow>,
    by_tuple: BTreeMap<Tuple, FlowId>,
    doors: BTreeMap<Port, Door>,
    waits: BTreeMap<Tuple, TimeWait>,
    out: VecDeque<(Instant, Vec<u8>)>,
    generator: Generator,
    next_flow: FlowId,
    next_port: u16,
    identification: u16,
    scratch: Vec<u8>,
}

impl Host {
    /// One without connections.
    pub fn new(settings: Settings) -> Self {
        let mut randomness = Seeded(Rng::seeded(settings.seed));
        Self {
            generator: Generator::new(&mut randomness),
            scratch: vec![0; HEADER_BYTES + usize::from(u16::MAX)],
            settings,
            now: START,
            flows: BTreeMap::new(),
            by_tuple: BTreeMap::new(),
            doors: BTreeMap::new(),
            waits: BTreeMap::new(),
            out: VecDeque::new(),
            next_flow: 0,
            next_port: *flow::EPHEMERAL.start(),
            identification: 0,
        }
    }

    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Settings for connections that begin later.
    pub const fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The next deadline of anything here.
    pub fn next_timer(&self) -> Option<Instant> {
        let flows = self.flows.values().filter_map(Flow::next_timer);
        let doors = self.doors.values();
        let doors = doors.filter_map(|d| d.listener.poll_timeout());
        let waits = self.waits.values().map(|w| w.until);
        flows.chain(doors).chain(waits).min()
    }

    /// Moves the clock to `to`, and handles every deadline up to it at its time. A time in the past
    /// moves nothing.
    pub fn advance(&mut self, to: Instant) {
        while let Some(at) = self.next_timer().filter(|&at| at <= to) {
            self.now = self.now.max(at);
            self.fire();
        }
        self.now = self.now.max(to);
    }

    fn fire(&mut self) {
        let now = self.now;
        let is_due = |flow: &Flow| flow.next_timer().is_some_and(|at| at <= now);
        let due = self.flows.iter().filter(|(_, flow)| is_due(flow));
        let due: Vec<FlowId> = due.map(|(&id, _)| id).collect();
        for id in due {
            if self.flow(id).has_lingered(now) {
                let _ = self.forget(id);
            } else {
                self.with(id, |now, flow| flow.connection.handle_timeout(now));
            }
        }
        let mut replies = Vec::new();
        for door in self.doors.values_mut() {
            while let Some((tuple, header)) = door.listener.poll_transmit(now) {
                replies.push((tuple, door.tos, header));
            }
        }
        for (tuple, tos, header) in replies {
            self.send_header(&tuple, tos, &header);
        }
        self.waits.retain(|_, wait| wait.until > now);
    }

    /// The next packet that left, and when.
    pub fn pop_packet(&mut self) -> Option<(Instant, Vec<u8>)> {
        self.out.pop_front()
    }

    /// Connections, and numbers kept of closed ones.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.flows.len(), self.waits.len())
    }

    /// A packet arrives. What is none, or not for us, is dropped.
    pub fn handle_packet(&mut self, bytes: &[u8]) {
        match ip::parse(bytes) {
            Some(Packet::Tcp {
                source,
                destination,
                tos,
                segment,
            }) => {
                let pseudo = Pseudo::between(source, destination);
                if let Ok(segment) = Segment::parse(segment, pseudo) {
                    let tuple = Tuple {
                        local: (destination, segment.header.destination_port),
                        remote: (source, segment.header.source_port),
                    };
                    self.handle_segment(&tuple, &segment, tos & ip::ECN_MASK == ip::CE);
                }
            }
            Some(Packet::Icmp {
                tuple,
                seq,
                verdict,
            }) => self.handle_icmp(&tuple, seq, verdict),
            None => {}
        }
    }

    fn handle_segment(&mut self, tuple: &Tuple, segment: &Segment<'_>, is_marked: bool) {
        if let Some(&id) = self.by_tuple.get(tuple) {
            if !self.reopens(id, segment) {
                self.deliver(id, tuple, segment, is_marked);
                return;
            }
            // Whoever still holds the old connection finds it closed.
            self.by_tuple.remove(tuple);
        }
        if let Some(wait) = self.waits.get_mut(tuple) {
            match wait.handle_segment(self.now, segment) {
                Late::Drop => return,
                Late::Answer(header) => {
                    self.send_header(tuple, 0, &header);
                    return;
                }
                Late::Reopen => {
                    self.waits.remove(tuple);
                }
            }
        }
        self.knock(tuple, segment, is_marked);
    }

    fn deliver(&mut self, id: FlowId, tuple: &Tuple, segment: &Segment<'_>, is_marked: bool) {
        let now = self.now;
        let flow = self.flows.get_mut(&id).expect("it has a tuple");
        if flow.handle_segment(now, segment, is_marked) {
            self.transmit(id);
            return;
        }
        // As if the connection had never been: what Linux does.
        let _ = self.forget(id);
        if let Some(header) = Connection::refuse(segment) {
            self.send_header(tuple, 0, &header);
        }
    }

    /// Whether `segment` is a SYN that may take the place of a connection in TIME-WAIT.
    fn reopens(&self, id: FlowId, segment: &Segment<'_>) -> bool {
        let wait = self.flow(id).connection.time_wait();
        wait.is_some_and(|mut wait| wait.handle_segment(self.now, segment) == Late::Reopen)
    }

    /// A segment without a connection: for a listening port, or for nobody.
    fn knock(&mut self, tuple: &Tuple, segment: &Segment<'_>, is_marked: bool) {
        let port = (tuple.local.1, tuple.local.0.is_ipv4());
        let Some(door) = self.doors.get_mut(&port) else {
            if let Some(header) = Connection::refuse(segment) {
                self.send_header(tuple, 0, &header);
            }
            return;
        };
        // As Linux: while nobody accepts, the end of a handshake is not heard.
        if door.queue.len() > door.queue_max {
            return;
        }
        let tos = door.tos;
        let heard = door
            .listener
            .handle_segment(self.now, tuple, segment, is_marked);
        match heard {
            Heard::Nothing => {}
            Heard::Reply(header) => self.send_header(tuple, tos, &header),
            Heard::Accepted(connection) => {
                let id = self.insert(Flow::new(*connection, *tuple, tos));
                let door = self.doors.get_mut(&port).expect("it heard this");
                door.queue.push_back(id);
                door.callers += 1;
                self.transmit(id);
            }
        }
    }

    fn handle_icmp(&mut self, tuple: &Tuple, seq: Seq, verdict: Verdict) {
        let Some(&id) = self.by_tuple.get(tuple) else {
            return;
        };
        let headers = self.settings.mtu - self.settings.mss(tuple.local.0.is_ipv4());
        self.with(id, |now, flow| match verdict {
            Verdict::TooBig(mtu) => {
                let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
                let mss = mtu.saturating_sub(headers);
                flow.connection.handle_too_big(now, seq, mss);
            }
            // RFC 5461 4.1: what is established lives on; what is not yet fails fast.
            Verdict::Unreachable(errno) if flow.connection.state() == State::SynSent => {
                flow.unreachable = Some(errno);
                flow.connection.abort();
            }
            Verdict::Unreachable(_) => {}
        });
    }

    /// Listens at `port` for both families; `config` is asked for each (IPv4 or not). False when
    /// somebody does.
    pub fn listen(
        &mut self,
        port: u16,
        queue_max: usize,
        tos: u8,
        config: impl Fn(bool) -> Config,
    ) -> bool {
        if self.doors.contains_key(&(port, true)) {
            return false;
        }
        for is_v4 in [true, false] {
            // Any pseudo header will do: the listener puts in each connection's own.
            let any = IpAddr::from([0, 0, 0, 0]);
            let config = ListenConfig {
                connection: Config {
                    local_port: port,
                    pseudo: Pseudo::between(any, any),
                    ..config(is_v4)
                },
                backlog_max: HALF_OPEN_MAX,
            };
            let mut randomness = Seeded(Rng::seeded(self.settings.seed ^ u64::from(port)));
            let door = Door {
                listener: Listener::new(config, &mut randomness),
                queue: VecDeque::new(),
                callers: 0,
                queue_max,
                tos,
            };
            self.doors.insert((port, is_v4), door);
        }
        true
    }

    /// Listens no more; connections that nobody accepted are reset.
    pub fn unlisten(&mut self, port: u16) {
        for is_v4 in [true, false] {
            let queue = self.doors.remove(&(port, is_v4)).map(|door| door.queue);
            for id in queue.into_iter().flatten() {
                self.with(id, |_, flow| flow.connection.abort());
                self.release(id);
            }
        }
    }

    /// The next connection that `port` has for whoever accepts.
    pub fn accept(&mut self, port: u16) -> Option<FlowId> {
        [true, false]
            .into_iter()
            .find_map(|is_v4| self.doors.get_mut(&(port, is_v4))?.queue.pop_front())
    }

    /// Whether somebody waits to be accepted.
    pub fn has_caller(&self, port: u16) -> bool {
        [true, false]
            .into_iter()
            .filter_map(|is_v4| self.doors.get(&(port, is_v4)))
            .any(|door| !door.queue.is_empty())
    }

    /// How many connections ever waited at `port`.
    pub fn callers_ever(&self, port: u16) -> u64 {
        [true, false]
            .into_iter()
            .filter_map(|is_v4| self.doors.get(&(port, is_v4)))
            .map(|door| door.callers)
            .sum()
    }

    fn send_header(&mut self, tuple: &Tuple, tos: u8, header: &Header) {
        let mut bytes = vec![0; header.len()];
        let pseudo = Pseudo::between(tuple.local.0, tuple.remote.0);
        let _ = header.emit(&mut bytes, 0, pseudo);
        self.send(tuple, tos, &bytes);
    }

    fn send(&mut self, tuple: &Tuple, tos: u8, segment: &[u8]) {
        self.identification = self.identification.wrapping_add(1);
        let packet = ip::wrap(tuple, tos, self.identification, segment);
        self.out.push_back((self.now, packet));
    }
}
