//! Whether a time-out was needed: F-RTO (RFC 5682), by which data is acknowledged after it, and the
//! undoing of any recovery whose retransmissions all turn out to have been needless (RFC 4015's
//! response; detection by D-SACK, RFC 3708, by timestamps, RFC 3522, and by acknowledgements that come too soon).

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
    /// Those whose acknowledgement did not come too soon to be theirs. Counted apart: of one that did, a
    /// D-SACK may follow.
    untimely: u32,
    /// When the first segment that was deemed lost would have been acknowledged if it had not been late;
    /// none when a time-out began it.
    expected_at: Option<Instant>,
    first_retransmission_at: Option<Instant>,
    /// Its first retransmission was acknowledged.
    is_judged: bool,
}

impl Episode {
    /// A recovery that begins at `start`, since a segment whose acknowledgement was expected at
    /// `expected_at` is deemed lost; none when a time-out begins it.
    #[must_use]
    pub const fn new(start: u64, expected_at: Option<Instant>) -> Self {
        Self {
            start,
            unproven: 0,
            untimely: 0,
            expected_at,
            first_retransmission_at: None,
            is_judged: false,
        }
    }

    /// How late the first segment that was deemed lost is at `now`.
    #[must_use]
    pub fn lateness(&self, now: Instant) -> Option<core::time::Duration> {
        self.expected_at.map(|at| now - at)
    }

    /// Whether anything was sent again.
    #[must_use]
    pub const fn has_retransmitted(&self) -> bool {
        self.first_retransmission_at.is_some()
    }

    /// Something is sent again, in so many segments.
    pub fn on_retransmission(&mut self, now: Instant, segments: u32) {
        self.unproven += segments;
        self.untimely += 1;
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

    /// A segment that was last sent at `sent_at`, in this recovery if that is not before it, was
    /// delivered in less than the least round trip after that: it was the original that arrived (RFC
    /// 8985 6.2 step 2 draws the same conclusion). True when that leaves no retransmission that was needed. Of a
    /// time-out F-RTO is the judge.
    #[must_use]
    pub fn on_too_soon(&mut self, sent_at: Instant) -> bool {
        let is_ours = self.first_retransmission_at.is_some_and(|at| at <= sent_at);
        if self.untimely == 0 || !is_ours || self.expected_at.is_none() {
            return false;
        }
        self.untimely -= 1;
        self.untimely == 0
    }

    /// The first segment outstanding, sent again at `sent_at` and never before, was acknowledged by a
    /// segment that answers one we sent at `echoed_at`: before that, so the original had arrived (RFC
    /// 3522). Only the first of the recovery can tell.
    #[must_use]
    pub fn on_echo(&mut self, sent_at: Instant, echoed_at: Option<Instant>) -> bool {
        let is_first = self.first_retransmission_at == Some(sent_at) && !self.is_judged;
        self.is_judged |= is_first;
        is_first && echoed_at.is_some_and(|at| at + TICK <= sent_at)
    }
}
