//! TCP: the decoder, and whole connections with a peer that says anything.

mod connection;
mod segment;

pub use connection::{connection, connection_seeds, listener, listener_seeds};
pub use segment::{segment, segment_seeds};
