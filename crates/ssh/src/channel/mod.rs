//! One channel: its windows, its queues, its way from open to closed (RFC 4254 section 5).

mod id;

pub use id::ChannelId;
