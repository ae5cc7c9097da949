//! A TCP whose work per acknowledgement does not grow with its window.
//!
//! The engine touches nothing outside: segments, time and secret randomness come in through its
//! verbs, and segments go out.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod congestion;
pub mod error;
pub mod filter;
pub mod rate;
pub mod receive;
pub mod recovery;
pub mod ring;
pub mod rtt;
pub mod scoreboard;
pub mod segment;
mod seq;

pub use error::InvalidMessage;
pub use seq::Seq;
