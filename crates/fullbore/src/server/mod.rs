//! The server's side.

pub mod serve;
