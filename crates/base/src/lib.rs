//! What every layer of fullbore shares and none owns: time, byte buffers, ranges, rates, seeded
//! randomness, patterns, networks, and the fields of
//! SSH's messages. Nothing here does I/O.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod autotune;
mod buf;
mod escape;
mod instant;
mod network;
mod outlet;
mod range_set;
mod rate;
mod rng;
mod stopwatch;
mod timers;
mod wildcard;
pub mod wire;

pub use autotune::{Autotune, PathRtt};
pub use buf::{ByteQueue, RxBuf, TxBuf};
pub use escape::escape_for_display;
pub use instant::Instant;
pub use network::Network;
pub use outlet::{Outlet, gather, scatter};
pub use range_set::RangeSet;
pub use rate::Rate;
pub use rng::Rng;
pub use stopwatch::Stopwatch;
pub use timers::Timers;
pub use wildcard::matches_wildcard;
