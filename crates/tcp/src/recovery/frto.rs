//! Whether a time-out was needed: F-RTO (RFC 5682), by which data is acknowledged after it, and the
//! undoing of any recovery whose retransmissions all turn out to have been needless (RFC 4015's
//! response; detection by D-SACK, RFC 3708, and by timestamps, RFC 3522).

use fullbore_base::Instant;

/// Granularity of our timestamps.
const TICK: core::time::Duration = core::time::Duration::from_millis(1);

/// What the acknowledgements behind a time-out have shown.
///
/// ```text
///   time-out ──► Retransmitted ──advances──► Advanced ──data sent once is delivered──► spurious
///                     │ otherwise               │ a duplicate
///                     └─────────► genuine ◄─────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Only the first segment was retransmitted.
    Retransmitted,
    /// The cumulative acknowledgement advanced: new data goes out in place of retransmissions.
    Advanced,
}

/// An F-RTO in progress.
#[derive(Clone, Copy, Debug)]
pub struct Frto {
    /// SND.NXT at the time-out.
    pub recover: u64,
    /// How far it is.
    pub step: Step,
}

/// What an acknowledgement says to F-RTO.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// SND.UNA behind it.
    pub snd_una: u64,
    /// The cumulative acknowledgement advanced.
    pub has_advanced: bool,
    /// A segment from before the time-out, sent once only, is now known to have arrived.
    pub is_original_delivered: bool,
}

/// Where an acknowledgement leads.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    /// On to the next acknowledgement.
    Wait(Frto),
    /// The time-out was needless.
    Spurious,
    /// It was needed, or nobody can tell.
    Genuine,
}

impl Frto {
    /// RFC 5682 section 3.1, steps 2 and 3.
    #[must_use]
    pub const fn on_ack(self, evidence: &Evidence) -> Next {
        match self.step {
            Step::Retransmitted if evidence.has_advanced && evidence.snd_una < self.recover => {
                Next::Wait(Self {
                    step: Step::Advanced,
                    ..self
                })
            }
            Step::Advanced if evidence.is_original_delivered => Next::Spurious,
            Step::Advanced if evidence.has_advanced => Next::Wait(self),
            Step::Retransmitted | Step::Advanced => Next::Genuine,
        }
    }
}

/// A recovery whose need is in doubt: from its start until the next one.
#[derive(Clone, Copy, Debug)]
pub struct Episode {
    /// SND.UNA when it began.
    pub start: u64,
    /// Retransmissions that no D-SACK has shown to be needless.
    unproven: u32,
    first_retransmission_at: Option<Instant>,
    has_advanced: bool,
}

impl Episode {
    /// A recovery that begins at `start`.
    #[must_use]
    pub const fn new(start: u64) -> Self {
        Self {
            start,
            unproven: 0,
            first_retransmission_at: None,
            has_advanced: false,
        }
    }

    /// Whether anything was sent again.
    #[must_use]
    pub const fn has_retransmitted(&self) -> bool {
        self.first_retransmission_at.is_some()
    }

    /// Something is sent again, in so many segments.
    pub fn on_retransmission(&mut self, now: Instant, segments: u32) {
        self.unproven += segments;
        self.first_retransmission_at.get_or_insert(now);
    }

    /// The receiver says that `duplicate_start` arrived twice; true when that leaves no
    /// retransmission that was needed.
    #[must_use]
    pub const fn on_duplicate(&mut self, duplicate_start: u64) -> bool {
        if self.unproven == 0 || duplicate_start < self.start {
            return false;
        }
        self.unproven -= 1;
        self.unproven == 0
    }

    /// The cumulative acknowledgement advanced, by a segment that answers one we sent at
    /// `echoed_at`; true when that was before anything was sent again, so that the original had
    /// arrived. Only the first advance can tell.
    #[must_use]
    pub fn on_advance(&mut self, echoed_at: Option<Instant>) -> bool {
        let Some(retransmitted_at) = self.first_retransmission_at else {
            return false;
        };
        let is_first = !self.has_advanced;
        self.has_advanced = true;
        is_first && echoed_at.is_some_and(|at| at + TICK <= retransmitted_at)
    }
}
