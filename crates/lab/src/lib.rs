//! The lab: emulated links that run anything, scenarios that show a fault on any server or in the
//! simulator, and reports of both.
//!
//! [`link`] emulates a link between two network namespaces, packet by packet and in real time. What
//! happens to a packet is decided without I/O ([`link::Shaper`]); [`stream`] emulates one for byte streams,
//! without root; [`demo`] copies over that. [`handbrake`] and [`window`] run the
//! engines over simulated paths ([`simulated`]); [`sack`] sets a receiver that lies against TCP senders, of old, ours
//! and the kernel's; [`backlog`] runs server programs. Each gives a
//! [`report::Section`]. `driver/` alone has devices, namespaces, processes and clocks.

pub mod backlog;
pub mod demo;
pub mod driver;
pub mod endpoint;
pub mod handbrake;
pub mod link;
pub mod report;
pub mod sack;
pub mod simulated;
pub mod stream;
pub mod units;
pub mod window;
