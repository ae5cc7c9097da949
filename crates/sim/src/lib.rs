//! Deterministic simulation: a virtual clock, links with delay and rate, and two endpoints that
//! run against each other without a network. The same seed gives the same run.
//!
//! Nothing here knows what the bytes mean: endpoints come in through [`Endpoint`], and a
//! [`Link`] carries any [`Payload`], so a stream (SSH) and datagrams (TCP segments) share it.

mod link;
mod pair;

pub use link::{Link, LinkConfig, Payload};
pub use pair::{Endpoint, Pair, PairConfig, Stop};
