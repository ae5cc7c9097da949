//! Limits of the client engine: a named one for everything that the server or the caller can grow.

use std::time::Duration;

/// Requests that may wait for a reply at once. Chosen: 16 MiB in 4 KiB requests; a power of two
/// because a request id is a slot number and a generation.
pub const OUTSTANDING_REQUESTS_MAX: usize = 1 << SLOT_BITS;

/// Bits of a request id that name its slot; the others count how often the slot was used.
pub(super) const SLOT_BITS: u32 = 12;

/// Slots that bulk transfers leave for metadata requests.
pub(super) const REQUESTS_RESERVED: usize = 256;

/// Bulk transfers in progress at once: as many small files as a server has handles.
pub const BULKS_MAX: usize = 1024;

/// Handle strings are at most this long: draft-ietf-secsh-filexfer-02 section 6.2.
pub const HANDLE_LEN_MAX: usize = 256;

/// The longest reply, without its length word. OpenSSH's own limit (`SFTP_MAX_MSG_LENGTH`); the
/// channel must be able to hold one such message.
pub const REPLY_LEN_MAX: u32 = 256 * 1024;

/// Bytes of replies that wait for the caller before input is refused.
pub const REPLY_BYTES_MAX: usize = 4 * REPLY_LEN_MAX as usize;

/// Bytes of encoded requests that wait for the outlet before [`super::Client::request`] refuses.
pub const QUEUE_BYTES_MAX: usize = 512 * 1024;

/// READ requests are laid out in the queue up to this many bytes at a time: several leave in one
/// packet, and a metadata request never waits behind more than these.
pub(super) const READ_BATCH_BYTES: usize = 2 * 1024;

/// Pieces of a DATA payload shorter than this wait until more has arrived, unless they end it:
/// one positioned write for each 32 KiB packet, not for each fragment.
pub(super) const PIECE_LEN_MIN: usize = 16 * 1024;

/// Bytes of READs and WRITEs that may be unanswered before the path has shown what it holds: about a
/// hundred small files, and more than TCP sends in its first eight round trips.
pub const OUTSTANDING_BYTES_START: u64 = 4 * 1024 * 1024;

/// How far a transfer may always run ahead of its oldest unanswered request, in bytes: 1 Gbit/s x 100 ms,
/// and a third. Farther only as the file grows, see [`span_bytes_max`]: what breaks early should have
/// little to send again.
pub const SPAN_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// How far a transfer ever runs ahead of its oldest unanswered request, in bytes: twice what 10 Gbit/s x
/// 100 ms hold.
pub const SPAN_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How far a transfer may run ahead of `frontier`, the file offset of its oldest unanswered request: a
/// quarter of it, within [`SPAN_BYTES_MIN`] and [`SPAN_BYTES_MAX`]. So what a broken transfer may have to
/// send again is a small part of what it has sent: [`span_margin`].
#[must_use]
pub const fn span_bytes_max(frontier: u64) -> u64 {
    clamp_span(frontier / 4)
}

/// A transfer from the start of a file that left `len` bytes there has no hole but in the last so many,
/// whatever the order of replies was: `len <= frontier + span_bytes_max(frontier)`.
///
/// Worked example: 1000 MiB are there; the frontier was at 800 MiB or farther; the margin is 200 MiB.
#[must_use]
pub const fn span_margin(len: u64) -> u64 {
    clamp_span(len.div_ceil(5))
}

const fn clamp_span(span: u64) -> u64 {
    if span < SPAN_BYTES_MIN {
        SPAN_BYTES_MIN
    } else if span > SPAN_BYTES_MAX {
        SPAN_BYTES_MAX
    } else {
        span
    }
}

/// Whether a transfer may ask for more at `next`: the longest request stays within the span.
pub(super) const fn is_within_span(next: u64, frontier: u64) -> bool {
    next - frontier + REQUEST_LEN_MAX as u64 <= span_bytes_max(frontier)
}

/// Request size while the server's limits are unknown: the draft promises that packets of 34,000
/// bytes are taken, and every client in use asks for 32 KiB.
pub const REQUEST_LEN_DEFAULT: u32 = 32 * 1024;

/// Request size at most: OpenSSH's limit (261,120), rounded down to whole 4 KiB pages so that
/// positioned reads and writes stay aligned with the page cache.
pub const REQUEST_LEN_MAX: u32 = 63 * 4096;

/// Smaller request sizes are not believed: nobody serves them, and each costs a packet.
pub(super) const REQUEST_LEN_MIN: u32 = 1024;

/// Length of the read that looks for data past the expected end of file.
pub(super) const PROBE_LEN: u32 = 32 * 1024;

/// Empty DATA replies in a row that one transfer takes before it gives up.
pub(super) const EMPTY_REPLIES_MAX: u32 = 8;

/// How often a transfer asks again for a range that was said to lie past the end of file
/// although data behind it arrived.
pub(super) const EOF_ROUNDS_MAX: u32 = 4;

/// Text of a STATUS that is kept, in bytes.
pub(super) const STATUS_TEXT_MAX: usize = 1024;

/// Extensions remembered from VERSION; the rest of the list is ignored.
pub(super) const EXTENSIONS_MAX: usize = 64;

/// What a [`super::Client`] is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of READ and WRITE requests that may be unanswered at once at most; below that they
    /// follow the path from [`OUTSTANDING_BYTES_START`] on. See
    /// [`super::Client::set_outstanding_bytes_max`]. One request is always allowed.
    pub outstanding_bytes_max: u64,
    /// How long the server may be silent while requests wait for it.
    pub reply_timeout: Duration,
    /// The same while a request that may rightly take long (fsync, check-file, copy-data) waits.
    pub slow_reply_timeout: Duration,
    /// Request size at most, in bytes of file data.
    pub request_len_max: u32,
    /// Send requests behind INIT without waiting for VERSION. Saves a round trip; safe with peers
    /// known to serve in order from one input buffer (OpenSSH, fullbore).
    pub pipeline_init: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // The table's: all its requests at their longest. What is in flight is bounded by the
            // channel window besides.
            outstanding_bytes_max: OUTSTANDING_REQUESTS_MAX as u64 * REQUEST_LEN_MAX as u64,
            reply_timeout: Duration::from_secs(60),
            slow_reply_timeout: Duration::from_secs(3600),
            request_len_max: REQUEST_LEN_MAX,
            pipeline_init: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_lie_within_the_margin_of_whatever_length_is_left() {
        for shift in 0..50 {
            for frontier in [(1 << shift) - 1, 1 << shift, 3 << shift] {
                let farthest = frontier + span_bytes_max(frontier);
                assert!(farthest - frontier <= span_margin(farthest));
            }
        }
    }
}
