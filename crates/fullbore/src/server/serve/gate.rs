//! How many connections may be there at once, and how many of them that have not logged in.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// Connections that have not logged in at which some new ones are turned away: one in ten
    /// more for each tenth of the way to `unauthenticated_max` (OpenSSH's MaxStartups does so: a
    /// flood takes most, a user who tries again comes through).
    pub unauthenticated_start: usize,
    /// Connections that have not logged in at which all new ones are turned away.
    pub unauthenticated_max: usize,
    /// The same from one address; an IPv6 /64 counts as one.
    pub unauthenticated_per_source_max: usize,
    /// Connections in all.
    pub connections_max: usize,
}

impl Default for GateLimits {
    fn default() -> Self {
        Self {
            unauthenticated_start: 64,
            unauthenticated_max: 256,
            unauthenticated_per_source_max: 64,
            connections_max: 4096,
        }
    }
}

/// Why a connection is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many that have not logged in.
    Unauthenticated,
    /// Too many that have not logged in from this address.
    Source,
    /// Too many in all.
    Connections,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unauthenticated => "too many connections that have not logged in",
            Self::Source => "too many connections from this address that have not logged in",
            Self::Connections => "too many connections",
        })
    }
}

/// Counts connections against the limits. Shared by the threads of a server.
#[derive(Clone, Debug)]
pub struct Gate {
    limits: GateLimits,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: usize,
    unauthenticated: usize,
    /// Bounded by `unauthenticated_max`: sources leave with their last connection.
    sources: BTreeMap<IpAddr, usize>,
    /// Drives the early refusals; any sequence does, so it needs no secret.
    turn: usize,
}

/// A place that a connection takes; given back when dropped.
#[derive(Debug)]
pub struct Place {
    gate: Gate,
    /// Where it came from, until it has logged in.
    source: Option<IpAddr>,
}

impl Gate {
    /// A gate with nobody inside.
    #[must_use]
    pub fn new(limits: GateLimits) -> Self {
        Self {
            limits,
            counts: Arc::default(),
        }
    }

    /// Lets a connection in, or says why not.
    ///
    /// # Errors
    /// The limit that it would pass.
    pub fn enter(&self, from: IpAddr) -> Result<Place, Refusal> {
        let source = source_of(from);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.connections >= self.limits.connections_max {
            return Err(Refusal::Connections);
        }
        if self.is_early_refused(&mut counts) {
            return Err(Refusal::Unauthenticated);
        }
        let of_source = counts.sources.get(&source).copied().unwrap_or(0);
        if of_source >= self.limits.unauthenticated_per_source_max {
            return Err(Refusal::Source);
        }
        counts.connections += 1;
        counts.unauthenticated += 1;
        counts.sources.insert(source, of_source + 1);
        Ok(Place {
            gate: self.clone(),
            source: Some(source),
        })
    }

    fn is_early_refused(&self, counts: &mut Counts) -> bool {
        let (start, max) = (
            self.limits.unauthenticated_start,
            self.limits.unauthenticated_max,
        );
        let inside = counts.unauthenticated;
        if inside >= max {
            return true;
        }
        if inside < start {
            return false;
        }
        counts.turn = (counts.turn + 7) % 10;
        let refused_of_ten = 1 + 9 * (inside - start) / (max - start).max(1);
        counts.turn < refused_of_ten
    }
}

impl Place {
    /// The connection has logged in: it no longer counts among those that have not.
    pub fn authenticated(&mut self) {
        let Some(source) = self.source.take() else {
            return;
        };
        let mut counts = self
            .gate
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        counts.unauthenticated -= 1;
        if let Some(count) = counts.sources.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                counts.sources.remove(&source);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.authenticated();
        let mut counts = self
            .gate
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        counts.connections -= 1;
    }
}

/// One subscriber has one IPv4 address, or an IPv6 /64.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) >> 64 << 64;
            IpAddr::V6(network.into())
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: GateLimits = GateLimits {
        unauthenticated_start: 4,
        unauthenticated_max: 4,
        unauthenticated_per_source_max: 2,
        connections_max: 5,
    };

    fn from(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_source_is_stopped_at_its_limit_and_others_come_in() {
        let gate = Gate::new(LIMITS);
        let first = gate.enter(from("1.1.1.1")).expect("under the limit");
        let _second = gate.enter(from("1.1.1.1")).expect("under the limit");
        assert_eq!(gate.enter(from("1.1.1.1")).err(), Some(Refusal::Source));
        let _other = gate.enter(from("2.2.2.2")).expect("another source");
        drop(first);
        let _again = gate.enter(from("1.1.1.1")).expect("one has left");
    }

    #[test]
    fn neighbours_in_a_v6_network_are_one_source() {
        let gate = Gate::new(LIMITS);
        let _places = ["2001:db8::1", "2001:db8::2"].map(|a| gate.enter(from(a)).expect("in"));
        assert_eq!(gate.enter(from("2001:db8::3")).err(), Some(Refusal::Source));
        gate.enter(from("2001:db8:0:1::1"))
            .expect("another network");
    }

    #[test]
    fn logging_in_makes_room_but_counts_on() {
        let gate = Gate::new(LIMITS);
        let mut inside = Vec::new();
        for i in 0..5 {
            let mut place = gate.enter(from(&format!("1.1.1.{i}"))).expect("room");
            place.authenticated();
            inside.push(place);
        }
        assert_eq!(
            gate.enter(from("3.3.3.3")).err(),
            Some(Refusal::Connections)
        );
        inside.clear();
        gate.enter(from("3.3.3.3")).expect("all have left");
    }

    #[test]
    fn refusals_grow_between_start_and_max() {
        let gate = Gate::new(GateLimits {
            unauthenticated_start: 0,
            unauthenticated_max: 100,
            unauthenticated_per_source_max: 100,
            connections_max: 100,
        });
        let places: Vec<_> = (0..200)
            .filter_map(|_| gate.enter(from("1.1.1.1")).ok())
            .collect();
        assert!(places.len() > 60 && places.len() < 100, "{}", places.len());
    }
}
