//! What the server says about itself: VERSION's extensions and the limits it announces.

use super::config::{EXTENSIONS_MAX, REQUEST_LEN_DEFAULT};
use super::error::Error;
use crate::proto::{Limits, VERSION, Version};

/// The server's extensions and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    extensions: Vec<(Vec<u8>, Vec<u8>)>,
    limits: Option<Limits>,
}

impl ServerInfo {
    pub(super) fn new(version: Version<'_>) -> Result<Self, Error> {
        if version.version != VERSION {
            let version = version.version;
            return Err(Error::PeerIncompatible { version });
        }
        let extensions = version
            .extensions
            .iter()
            .take(EXTENSIONS_MAX)
            .map(|(name, data)| (name.to_vec(), data.to_vec()))
            .collect();
        Ok(Self {
            extensions,
            limits: None,
        })
    }

    /// The version string that came with the extension `name`; `None` if it was not offered.
    #[must_use]
    pub fn extension(&self, name: &str) -> Option<&[u8]> {
        self.extensions
            .iter()
            .find(|(offered, _)| offered == name.as_bytes())
            .map(|(_, data)| data.as_slice())
    }

    /// Whether the extension `name` was offered, in any version.
    #[must_use]
    pub fn has_extension(&self, name: &str) -> bool {
        self.extension(name).is_some()
    }

    /// All extensions offered: name and data.
    pub fn extensions(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.extensions
            .iter()
            .map(|(name, data)| (name.as_slice(), data.as_slice()))
    }

    /// Handles that may be open at once, if the server said so.
    #[must_use]
    pub fn open_handles_max(&self) -> Option<u64> {
        self.limits
            .map(|limits| limits.handles_max)
            .filter(|&max| max > 0)
    }

    /// Whether it has said its limits.
    pub(super) const fn has_limits(&self) -> bool {
        self.limits.is_some()
    }

    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.limits = Some(limits);
    }

    /// The longest READ that the server answers in full; `None` if unknown.
    pub(super) fn read_len(&self) -> Option<u64> {
        let limits = self.limits?;
        within(limits.packet_bytes_max, limits.read_bytes_max)
    }

    /// The longest WRITE that the server takes; `None` if unknown.
    pub(super) fn write_len(&self) -> Option<u64> {
        let limits = self.limits?;
        within(limits.packet_bytes_max, limits.write_bytes_max)
    }
}

/// OpenSSH leaves 1 KiB of a packet for what is around the data.
fn within(packet_bytes_max: u64, data_bytes_max: u64) -> Option<u64> {
    let by_packet = (packet_bytes_max > 0).then(|| {
        let room = packet_bytes_max.saturating_sub(1024);
        room.max(u64::from(REQUEST_LEN_DEFAULT).min(packet_bytes_max / 2))
    });
    let by_data = (data_bytes_max > 0).then_some(data_bytes_max);
    match (by_packet, by_data) {
        (Some(packet), Some(data)) => Some(packet.min(data)),
        (None, Some(data)) => Some(data),
        (_, None) => None,
    }
}
