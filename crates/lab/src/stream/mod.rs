//! A link for byte streams on this machine, without root: a proxy between a client and a server, whose two
//! directions have a rate, a delay and bounded room. What takes the time is decided without I/O ([`Way`]).
//!
//! A stream cannot lose or reorder, and the kernel's acknowledgements come from the proxy: the connection
//! itself is made at once, and TCP's own round-trip time stays that of this machine. For all of that there
//! is [`crate::link`].

mod way;

use std::time::Duration;

use fullbore_base::Rate;

pub use way::{Chunk, Way};

/// What to emulate.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Round-trip time; half of it each way.
    pub rtt: Duration,
    /// Of each direction, shared by all connections.
    pub rate: Rate,
}
