//! What the sender remembers of a segment that is not yet cumulatively acknowledged.

use core::num::NonZeroU64;
use core::ops::Range;
use fullbore_base::Instant;

/// Names a record while it is held. Records have consecutive names in the order of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(NonZeroU64);

impl Id {
    /// # Panics
    /// When it is zero: [`super::records`] names nothing so.
    pub(super) const fn new(name: u64) -> Self {
        Self(NonZeroU64::new(name).expect("names start far above zero"))
    }

    pub(super) const fn get(self) -> u64 {
        self.0.get()
    }
}

/// Where a segment is, as far as its sender knows:
///
/// ```text
///   sent ──► InFlight ──SACKed──► Sacked ──► cumulatively acknowledged, forgotten
///               │ ▲                 │ ▲
///        deemed │ │ retransmitted   │ │ SACKed after all
///          lost ▼ │                 │ │
///               Lost ◄──reneged─────┘ │
///                 └────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// On its way: part of the pipe.
    InFlight,
    /// The receiver says that it holds it.
    Sacked,
    /// Deemed lost and not yet retransmitted.
    Lost,
}

/// The connection's delivery counters at the moment a segment was sent, for samples of the delivery
/// rate (draft-ietf-ccwg-bbr, "Delivery Rate Sampling").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Bytes delivered so far.
    pub delivered: u64,
    /// When that count last rose.
    pub delivered_at: Instant,
    /// When the first segment of the flight that this one belongs to was sent.
    pub first_sent_at: Instant,
    /// Bytes deemed lost so far.
    pub lost: u64,
    /// Bytes in flight, this segment included.
    pub in_flight: u64,
    /// Whether the application, not the network, limited what was in flight.
    pub is_app_limited: bool,
}

/// A segment in the scoreboard.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub(super) start: u64,
    pub(super) len: u32,
    pub(super) state: State,
    pub(super) transmissions: u8,
    /// Strictly rising with every transmission of the connection.
    pub(super) order: u64,
    pub(super) sent_at: Instant,
    pub(super) snapshot: Snapshot,
}

impl Record {
    /// The part of the stream that it carries.
    #[must_use]
    pub const fn range(&self) -> Range<u64> {
        self.start..self.end()
    }

    /// The position behind its last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    /// Where it is.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether it was sent more than once, so that an acknowledgement may be for either.
    #[must_use]
    pub const fn is_retransmitted(&self) -> bool {
        self.transmissions > 1
    }

    /// How often it was sent; 255 stands for more.
    #[must_use]
    pub const fn transmissions(&self) -> u8 {
        self.transmissions
    }

    /// When it was last sent.
    #[must_use]
    pub const fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// The place of its last transmission among all of the connection.
    #[must_use]
    pub const fn order(&self) -> u64 {
        self.order
    }

    /// The delivery counters when it was last sent.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}
