//! The lab: emulated links that run anything, and what is measured on them.
//!
//! [`link`] emulates a link between two network namespaces, packet by packet and in real time. What
//! happens to a packet is decided without I/O ([`link::Shaper`]); `driver/` alone has devices, namespaces,
//! processes and clocks.

pub mod driver;
pub mod link;
pub mod units;
