//! A TCP whose work per acknowledgement does not grow with its window.
//!
//! The engine touches nothing outside: segments, time and secret randomness come in through its
//! verbs, and segments go out.

#![cfg_attr(not(test), no_std)]

pub mod error;
pub mod segment;
mod seq;

pub use error::InvalidMessage;
pub use seq::Seq;
