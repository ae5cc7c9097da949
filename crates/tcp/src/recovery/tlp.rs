//! A probe when the tail of a flight is not acknowledged, ahead of a time-out.
//!
//! RFC 8985 section 7. Owns the probe's episode; when it may be sent is for the caller to know.

use core::time::Duration;
use fullbore_base::Instant;

/// The longest that a receiver holds back an acknowledgement (RFC 8985 7.2: WCDelAckT).
pub const WORST_DELAYED_ACK: Duration = Duration::from_millis(200);

/// What a probe's acknowledgement showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing that matters.
    Nothing,
    /// The probe repaired a loss, which nothing else will tell of.
    Repaired,
}

#[derive(Clone, Copy, Debug)]
struct Episode {
    /// TLP.end_seq.
    end: u64,
    is_retransmission: bool,
}

/// The probe of one connection.
#[derive(Clone, Debug, Default)]
pub struct Tlp {
    episode: Option<Episode>,
    due: Option<Instant>,
}

impl Tlp {
    /// When to probe.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a probe is out and not yet answered.
    #[must_use]
    pub const fn is_probing(&self) -> bool {
        self.episode.is_some()
    }

    /// Arms the probe for `now` and the time-out it stands in for, `rto_at`, whichever is first.
    pub fn arm(&mut self, now: Instant, srtt: Option<Duration>, is_single: bool, rto_at: Instant) {
        if self.is_probing() {
            self.due = None;
            return;
        }
        let pto = match srtt {
            None => Duration::from_secs(1),
            Some(srtt) if is_single => srtt * 2 + WORST_DELAYED_ACK,
            Some(srtt) => srtt * 2,
        };
        self.due = Some((now + pto).min(rto_at));
    }

    /// No probe is wanted.
    pub const fn disarm(&mut self) {
        self.due = None;
    }

    /// The probe leaves; `end` is SND.NXT behind it.
    pub const fn on_probe(&mut self, end: u64, is_retransmission: bool) {
        self.due = None;
        self.episode = Some(Episode {
            end,
            is_retransmission,
        });
    }

    /// Recovery begins: what the probe would show is known.
    pub const fn on_recovery(&mut self) {
        self.due = None;
        self.episode = None;
    }

    /// An acknowledgement of `ack` came. `is_bare_duplicate`: it moves nothing and has no SACK.
    ///
    /// RFC 8985 7.4.2.
    pub fn on_ack(
        &mut self,
        ack: u64,
        duplicate_end: Option<u64>,
        is_bare_duplicate: bool,
    ) -> Verdict {
        let Some(episode) = self.episode.filter(|e| ack >= e.end) else {
            return Verdict::Nothing;
        };
        if !episode.is_retransmission || duplicate_end == Some(episode.end) {
            self.episode = None;
            Verdict::Nothing
        } else if ack > episode.end {
            self.episode = None;
            Verdict::Repaired
        } else if is_bare_duplicate {
            self.episode = None;
            Verdict::Nothing
        } else {
            Verdict::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const FAR: Instant = Instant::from_nanos(u64::MAX);

    fn due(srtt: Option<Duration>, is_single: bool, rto_at: Instant) -> Option<Instant> {
        let mut tlp = Tlp::default();
        tlp.arm(Instant::ZERO, srtt, is_single, rto_at);
        tlp.due()
    }

    #[test]
    fn a_probe_waits_two_round_trips_and_for_a_single_segments_acknowledgement() {
        let srtt = Some(MS * 50);
        assert_eq!(due(srtt, false, FAR), Some(Instant::ZERO + MS * 100));
        assert_eq!(due(srtt, true, FAR), Some(Instant::ZERO + MS * 300));
        assert_eq!(due(None, false, FAR), Some(Instant::ZERO + MS * 1000));
        let rto_at = Instant::ZERO + MS * 99;
        assert_eq!(due(srtt, false, rto_at), Some(rto_at));
    }

    #[test]
    fn one_probe_is_out_at_a_time() {
        let mut tlp = Tlp::default();
        tlp.on_probe(1000, true);
        tlp.arm(Instant::ZERO, None, false, FAR);
        assert_eq!(tlp.due(), None);
    }

    #[test]
    fn a_retransmitted_probe_that_was_needed_shows_a_loss() {
        let mut tlp = Tlp::default();
        tlp.on_probe(1000, true);
        assert_eq!(tlp.on_ack(1000, None, false), Verdict::Nothing);
        assert!(tlp.is_probing(), "the original may still come");
        assert_eq!(tlp.on_ack(1001, None, false), Verdict::Repaired);
        assert!(!tlp.is_probing());
    }

    #[test]
    fn a_probe_that_arrived_twice_shows_none() {
        for (duplicate, is_bare) in [(Some(1000), false), (None, true)] {
            let mut tlp = Tlp::default();
            tlp.on_probe(1000, true);
            assert_eq!(tlp.on_ack(1000, duplicate, is_bare), Verdict::Nothing);
            assert!(!tlp.is_probing());
        }
    }

    #[test]
    fn a_probe_of_new_data_shows_none() {
        let mut tlp = Tlp::default();
        tlp.on_probe(1000, false);
        assert_eq!(tlp.on_ack(999, None, true), Verdict::Nothing);
        assert!(tlp.is_probing());
        assert_eq!(tlp.on_ack(2000, None, false), Verdict::Nothing);
        assert!(!tlp.is_probing());
    }
}
