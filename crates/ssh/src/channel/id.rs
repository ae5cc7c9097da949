//! How the application names a channel.

/// One channel of one connection. Never reused: an id kept past the channel's end names nothing,
/// even when the wire number behind it lives again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    /// Our number for it on the wire.
    pub(crate) slot: u32,
    /// Which of the channels that had this number.
    pub(crate) generation: u32,
}

impl std::fmt::Display for ChannelId {
    /// Our wire number: what a trace of the connection shows.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.slot)
    }
}
