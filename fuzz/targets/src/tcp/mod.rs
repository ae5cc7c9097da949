//! TCP: the decoder, and whole connections with a peer that says anything.

mod connection;
mod packet;
mod segment;

pub use connection::{connection, connection_seeds, listener, listener_seeds};
pub use packet::{packet, packet_seeds};
pub use segment::{segment, segment_seeds};
