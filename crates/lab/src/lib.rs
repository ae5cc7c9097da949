//! The lab: emulated links that run anything, and what is measured on them.
//!
//! [`link`] emulates a link between two network namespaces, packet by packet and in real time. What
//! happens to a packet is decided without I/O ([`link::Shaper`]); `driver/` alone has devices, namespaces,
//! processes and clocks. [`stream`] emulates one for byte streams, without root.

pub mod driver;
pub mod link;
pub mod stream;
pub mod units;
