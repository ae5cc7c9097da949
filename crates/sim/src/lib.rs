//! Deterministic simulation: a virtual clock, links with delay, rate, queues and faults, two
//! endpoints or a whole network that run against each other without one. The same seed gives the
//! same run.
//!
//! Nothing here knows what the bytes mean: a [`Link`] carries any [`Payload`]. Streams (SSH) run as
//! a [`Pair`] of [`Endpoint`]s, packets (TCP segments, datagrams) between the [`Node`]s of a
//! [`Net`].

mod faults;
mod link;
mod net;
mod pair;
mod queue;

pub use faults::{Chance, Faults};
pub use link::{Link, LinkConfig, LinkStats, Payload};
pub use net::{Net, Node, NodeId};
pub use pair::{Endpoint, Pair, PairConfig, Stop};
pub use queue::QueueConfig;
