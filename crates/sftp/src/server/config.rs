//! The server's limits and policy, constant for a session.

use crate::proto::{
    DATA_BYTES_MAX, DATA_HEADER_LEN, LEN_WORD, PACKET_BYTES_MAX, RequestKind, RequestSet,
    SymlinkOrder,
};

/// Limits and policy of one session.
#[derive(Clone, Debug)]
pub struct Config {
    /// Longest packet taken and made, in bytes without the length word. Clamped to
    /// [`Config::PACKET_BYTES_MIN`] and [`PACKET_BYTES_MAX`].
    pub packet_bytes_max: u32,
    /// Bytes to which a READDIR reply is filled.
    pub readdir_bytes_max: usize,
    /// Handles open at once, at most [`Config::HANDLES_MAX`].
    pub handles_max: u32,
    /// Folders among them: a folder that is being listed has a buffer.
    pub dirs_max: u32,
    /// Handle limit that `limits@openssh.com` tells; 0 = it does not say.
    pub handles_told: u64,
    /// Requests served; the others get "permission denied" and are not announced.
    pub requests: RequestSet,
    /// Refuse whatever changes something.
    pub read_only: bool,
    /// Order of the paths in SYMLINK.
    pub symlink_order: SymlinkOrder,
    /// Requests served by one call of `handle_input`, so that sessions share a thread fairly.
    pub work_count_max: u32,
    /// Bytes of requests and replies moved by one call of `handle_input`, give or take one
    /// message.
    pub work_bytes_max: usize,
    /// Operations that may be pending at once, at most [`Config::PENDING_COUNT_MAX`].
    pub pending_count_max: u16,
    /// READ bytes and digests that may be pending at once, give or take one reply: what their
    /// buffers hold.
    pub pending_bytes_max: usize,
    /// Requests that may wait for a pending operation on their file while those of other files go on.
    pub waiting_count_max: usize,
    /// Bytes that these may have together; with fewer than the longest packet has, one of that length
    /// holds the session up.
    pub waiting_bytes_max: usize,
}

impl Config {
    /// What every peer must take (draft section 3).
    pub const PACKET_BYTES_MIN: u32 = 34_000;

    /// The most handles that their 4 bytes can tell apart: half of the bits are an index, half
    /// a generation.
    pub const HANDLES_MAX: u32 = 1 << 16;

    /// The most operations pending at once. Chosen: more than a disk's queue gains from.
    pub const PENDING_COUNT_MAX: u16 = 64;

    /// The most bytes, length word included, that an outlet must be able to take in one message
    /// when it is empty; otherwise long READs would wait forever.
    #[must_use]
    pub const fn reply_len_max(&self) -> usize {
        LEN_WORD + self.packet_bytes_max as usize
    }

    /// To which READs are cut: OpenSSH's 261,120, or what the packet limit leaves.
    pub(super) fn read_bytes_max(&self) -> u32 {
        let header = u32::try_from(DATA_HEADER_LEN).unwrap_or(u32::MAX);
        DATA_BYTES_MAX.min(self.packet_bytes_max.saturating_sub(header))
    }

    /// The requests served once read-only is taken into account. OPEN stays: it is judged by
    /// its flags.
    pub(super) fn served(&self) -> RequestSet {
        let mut served = self.requests;
        if self.read_only {
            for kind in RequestKind::ALL {
                if kind.is_writing() {
                    served.remove(kind);
                }
            }
        }
        served
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            packet_bytes_max: PACKET_BYTES_MAX,
            // Below the 34,000 bytes that every peer must take; OpenSSH's 100 names come to 17,000.
            readdir_bytes_max: 32 * 1024,
            handles_max: 1024,
            dirs_max: 64,
            handles_told: 0,
            requests: RequestSet::ALL,
            read_only: false,
            symlink_order: SymlinkOrder::OpenSsh,
            work_count_max: 256,
            work_bytes_max: 1024 * 1024,
            pending_count_max: 16,
            pending_bytes_max: 2 * 1024 * 1024,
            // As many requests as OpenSSH's client has on their way. Looked through for each request
            // meanwhile, so not many more.
            waiting_count_max: 64,
            // Two of the longest packets.
            waiting_bytes_max: 2 * PACKET_BYTES_MAX as usize,
        }
    }
}
