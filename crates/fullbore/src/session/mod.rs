//! The glue that runs SFTP over SSH channels, without I/O: what a simulator drives is what ships.
//!
//! A session owns the connection and its transmit buffer. Its verbs are the engines' own; the
//! bytes of files pass through a trait, so a block goes between file and packet in one step.

mod client;
pub mod ledger;
mod server;
mod share;

pub use client::{ClientSession, Event, LaneError, LaneFiles};
pub use server::{ServerApp, ServerEvent, ServerSession, SessionEnd, Start};

/// Bytes of the transmit buffer: two of the longest packets, so that one is sealed while the other
/// leaves, and little enough to stay in the second-level cache together with the receive buffer.
pub const TRANSMIT_BYTES: usize = 2 * (fullbore_ssh::config::PAYLOAD_BYTES_MAX + 512);

/// The same before the user is in: a stranger's messages are short, and there may be many strangers.
/// The longest is a host key with its signature.
pub const TRANSMIT_BYTES_BEFORE_AUTH: usize = 128 * 1024;
