//! Ports that wait for connections, and what they wait for in turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fullbore_base::Instant;
use fullbore_tcp::isn::Tuple;
use fullbore_tcp::listener::{ListenStats, Listener};
use fullbore_tcp::segment::Header;

use super::ConnectionId;
use super::config::LISTENERS_MAX;

/// Names a listening port of a stack; never used for two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(u64);

/// A port.
#[derive(Debug)]
pub struct Listening {
    pub listener: Listener,
    address: SocketAddr,
    /// Made, and not accepted.
    pub accepted: VecDeque<ConnectionId>,
    armed: Option<Instant>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Listeners {
    by_id: BTreeMap<ListenerId, Listening>,
    by_address: BTreeMap<SocketAddr, ListenerId>,
    deadlines: BTreeSet<(Instant, ListenerId)>,
    last_id: u64,
}

impl Listeners {
    /// None where the address is taken, or there are too many.
    pub fn insert(&mut self, address: SocketAddr, listener: Listener) -> Option<ListenerId> {
        if self.by_address.contains_key(&address) || self.by_id.len() >= LISTENERS_MAX {
            return None;
        }
        self.last_id += 1;
        let id = ListenerId(self.last_id);
        self.by_address.insert(address, id);
        let listening = Listening {
            listener,
            address,
            accepted: VecDeque::new(),
            armed: None,
        };
        self.by_id.insert(id, listening);
        Some(id)
    }

    pub fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listening> {
        self.by_id.get_mut(&id)
    }

    pub fn stats(&self, id: ListenerId) -> Option<&ListenStats> {
        Some(self.by_id.get(&id)?.listener.stats())
    }

    pub fn remove(&mut self, id: ListenerId) -> Option<Listening> {
        let listening = self.by_id.remove(&id)?;
        self.by_address.remove(&listening.address);
        if let Some(at) = listening.armed {
            self.deadlines.remove(&(at, id));
        }
        Some(listening)
    }

    /// Who listens there: at the very address, else at all of its family.
    pub fn at(&self, (ip, port): (IpAddr, u16)) -> Option<ListenerId> {
        let any: IpAddr = match ip {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let found = |ip| self.by_address.get(&SocketAddr::new(ip, port)).copied();
        found(ip).or_else(|| found(any))
    }

    pub fn arm(&mut self, id: ListenerId) {
        let Some(listening) = self.by_id.get_mut(&id) else {
            return;
        };
        let at = listening.listener.poll_timeout();
        if at == listening.armed {
            return;
        }
        if let Some(before) = listening.armed {
            self.deadlines.remove(&(before, id));
        }
        listening.armed = at;
        if let Some(at) = at {
            self.deadlines.insert((at, id));
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// The next answer to a handshake that is due again.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Tuple, Header)> {
        while let Some(&(_, id)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            let listening = self.by_id.get_mut(&id).expect("it has a deadline");
            let again = listening.listener.poll_transmit(now);
            self.arm(id);
            if again.is_some() {
                return again;
            }
        }
        None
    }
}
