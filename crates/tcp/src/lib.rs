//! A TCP whose work per acknowledgement does not grow with its window.
//!
//! The engine touches nothing outside: segments, time and secret randomness come in through its
//! verbs, and segments go out.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod congestion;
pub mod connection;
pub mod error;
pub mod filter;
pub mod isn;
pub mod listener;
pub mod rate;
pub mod receive;
pub mod recovery;
mod ring;
pub mod rtt;
pub mod scoreboard;
pub mod segment;
pub mod sender;
mod seq;
pub mod time_wait;

pub use error::InvalidMessage;
pub use seq::Seq;
