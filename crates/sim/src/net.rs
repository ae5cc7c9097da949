//! Nodes and links: packets find their way over the fewest links, everything happens on one
//! virtual clock.
//!
//! ```text
//! sender 0 ──┐                        ┌── receiver 4
//!            router 2 ══ narrow ══ router 3
//! sender 1 ──┘                        └── receiver 5
//! ```

use std::collections::VecDeque;

use fullbore_base::{Instant, Rng};

use crate::link::{Link, LinkConfig, Payload};
use crate::pair::Stop;

/// A node, in the order in which nodes were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

/// Something that sends and receives. The verbs are the engines' own.
pub trait Node<P> {
    /// An item arrived from `from`.
    fn handle_packet(&mut self, now: Instant, from: NodeId, item: P);

    /// A deadline may have passed.
    fn handle_timeout(&mut self, now: Instant);

    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next item to send now, and to whom.
    fn poll_transmit(&mut self, now: Instant) -> Option<(NodeId, P)>;
}

/// An item with its ends.
#[derive(Clone, Debug)]
struct Routed<P> {
    from: NodeId,
    to: NodeId,
    item: P,
}

impl<P: Payload> Payload for Routed<P> {
    fn wire_len(&self) -> usize {
        self.item.wire_len()
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        self.item.corrupt(rng);
    }
}

/// One direction between two neighbours.
#[derive(Debug)]
struct Way<P> {
    from: usize,
    to: usize,
    link: Link<Routed<P>>,
}

/// Calls at one instant after which a run counts as a livelock.
const CALLS_PER_INSTANT_MAX: u32 = 10_000_000;

/// A network of nodes.
#[derive(Debug)]
pub struct Net<P, N> {
    /// `None` forwards only.
    nodes: Vec<Option<N>>,
    ways: Vec<Way<P>>,
    /// For each node and destination the way to take; made when the first packet needs it.
    routes: Vec<Vec<Option<usize>>>,
    seed: u64,
    now: Instant,
    calls_at_instant: u32,
}

impl<P: Payload + Clone, N: Node<P>> Net<P, N> {
    /// An empty network; `seed` decides the faults of all its links.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            nodes: Vec::new(),
            ways: Vec::new(),
            routes: Vec::new(),
            seed,
            now: Instant::ZERO,
            calls_at_instant: 0,
        }
    }

    /// Adds a node.
    pub fn add_node(&mut self, node: N) -> NodeId {
        self.add(Some(node))
    }

    /// Adds a node that only forwards.
    pub fn add_router(&mut self) -> NodeId {
        self.add(None)
    }

    fn add(&mut self, node: Option<N>) -> NodeId {
        self.nodes.push(node);
        self.routes.clear();
        NodeId(self.nodes.len() - 1)
    }

    /// Joins two nodes, each direction with its own link.
    pub fn connect(&mut self, a: NodeId, b: NodeId, a_to_b: LinkConfig, b_to_a: LinkConfig) {
        for (from, to, config) in [(a, b, a_to_b), (b, a, b_to_a)] {
            let number = u64::try_from(self.ways.len()).expect("a count fits in 64 bits");
            let seed = Rng::seeded(self.seed ^ (number << 32)).next_u64();
            let link = Link::seeded(config, seed);
            let (from, to) = (from.0, to.0);
            self.ways.push(Way { from, to, link });
        }
        self.routes.clear();
    }

    /// The link from one node to its neighbour.
    ///
    /// # Panics
    /// When they are not neighbours.
    pub fn link_stats(&self, from: NodeId, to: NodeId) -> crate::LinkStats {
        *self.ways[self.way(from, to)].link.stats()
    }

    /// Changes the link from one node to its neighbour.
    ///
    /// # Panics
    /// When they are not neighbours.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, config: LinkConfig) {
        let way = self.way(from, to);
        self.ways[way].link.set_config(self.now, config);
    }

    fn way(&self, from: NodeId, to: NodeId) -> usize {
        let found = |way: &Way<P>| (way.from, way.to) == (from.0, to.0);
        let way = self.ways.iter().position(found);
        way.expect("the nodes are neighbours")
    }

    /// A node.
    ///
    /// # Panics
    /// When it is a router.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &N {
        self.nodes[id.0].as_ref().expect("no router")
    }

    /// A node, to be changed between two runs.
    ///
    /// # Panics
    /// When it is a router.
    pub fn node_mut(&mut self, id: NodeId) -> &mut N {
        self.nodes[id.0].as_mut().expect("no router")
    }

    /// The virtual time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Runs until `done`, or until nothing more happens by `deadline`. `check` is called after
    /// every step and panics when an invariant is broken.
    ///
    /// # Panics
    /// On a livelock, or a packet to a node that no link leads to: the run names its seed.
    pub fn run(
        &mut self,
        deadline: Instant,
        mut done: impl FnMut(&Self) -> bool,
        mut check: impl FnMut(&Self),
    ) -> Stop {
        self.find_routes();
        loop {
            while self.settle() {
                check(self);
            }
            if done(self) {
                return Stop::Done;
            }
            let Some(at) = self.next_event() else {
                return Stop::Quiet;
            };
            if at > deadline {
                return Stop::Deadline;
            }
            self.advance(at);
            check(self);
        }
    }

    /// One round at the present instant; false when nothing moved.
    fn settle(&mut self) -> bool {
        self.count_call();
        self.deliver() | self.transmit()
    }

    fn deliver(&mut self) -> bool {
        let mut moved = false;
        for way in 0..self.ways.len() {
            while let Some(routed) = self.ways[way].link.receive(self.now) {
                moved = true;
                let at = self.ways[way].to;
                if routed.to.0 != at {
                    self.forward(at, routed);
                } else if let Some(node) = &mut self.nodes[at] {
                    node.handle_packet(self.now, routed.from, routed.item);
                }
            }
        }
        moved
    }

    fn transmit(&mut self) -> bool {
        let mut moved = false;
        for at in 0..self.nodes.len() {
            while let Some(node) = &mut self.nodes[at]
                && let Some((to, item)) = node.poll_transmit(self.now)
            {
                moved = true;
                self.count_call();
                let from = NodeId(at);
                self.forward(at, Routed { from, to, item });
            }
        }
        moved
    }

    fn forward(&mut self, at: usize, routed: Routed<P>) {
        let way = self.routes[at][routed.to.0];
        let way = way.unwrap_or_else(|| panic!("no way to {:?}, seed {}", routed.to, self.seed));
        self.ways[way].link.send(self.now, routed);
    }

    fn next_event(&self) -> Option<Instant> {
        let links = self.ways.iter().filter_map(|way| way.link.next_event());
        let nodes = self.nodes.iter().flatten();
        links.chain(nodes.filter_map(Node::poll_timeout)).min()
    }

    fn advance(&mut self, at: Instant) {
        if at > self.now {
            self.now = at;
            self.calls_at_instant = 0;
        }
        self.count_call();
        for node in self.nodes.iter_mut().flatten() {
            if node.poll_timeout().is_some_and(|t| t <= self.now) {
                node.handle_timeout(self.now);
            }
        }
    }

    fn count_call(&mut self) {
        self.calls_at_instant += 1;
        assert!(
            self.calls_at_instant <= CALLS_PER_INSTANT_MAX,
            "livelock at {:?}, seed {}",
            self.now,
            self.seed
        );
    }

    /// For each destination a breadth-first walk against the direction of the links.
    fn find_routes(&mut self) {
        let count = self.nodes.len();
        if self.routes.len() == count {
            return;
        }
        self.routes = vec![vec![None; count]; count];
        for to in 0..count {
            let mut next = VecDeque::from([to]);
            while let Some(at) = next.pop_front() {
                for (number, way) in self.ways.iter().enumerate() {
                    let route = &mut self.routes[way.from][to];
                    if way.to == at && way.from != to && route.is_none() {
                        *route = Some(number);
                        next.push_back(way.from);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
