//! How often a peer may ask for new keys: each exchange costs a signature and a secret, whoever asks.
//!
//! A peer that asks more often is not refused, only answered later: until then nothing of it is read, and it may
//! send nothing that counts. So no limit of a well-meaning peer is too small, and none costs more than its share.

use std::time::Duration;

use super::Transport;
use crate::error::Error;
use fullbore_base::Instant;

/// Exchanges that a peer may ask for in a row. Chosen: more than any start or test of a peer does.
pub(super) const REKEYS_AT_ONCE: u32 = 64;

/// After this time it may ask for one more. Peers that count time count seconds; the dearest exchange
/// (diffie-hellman-group18 with a long RSA key) takes some 50 ms, half of a core at this rate.
pub(super) const REKEY_PERIOD: Duration = Duration::from_millis(100);

/// And after so many bytes, both ways together. A peer that asks after fewer is one that tries
/// its rekeying out: OpenSSH's own default is 1 GiB or more.
pub(super) const REKEY_BYTES: u64 = 256 * 1024;

/// What a peer may still ask for.
#[derive(Debug)]
pub(super) struct Pace {
    spare: u32,
    /// Up to when `spare` counts time.
    since: Instant,
    /// Bytes that are not in `spare` yet.
    bytes: u64,
}

impl Pace {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            spare: REKEYS_AT_ONCE,
            since: now,
            bytes: 0,
        }
    }

    /// The peer asks, `bytes` after the last exchange.
    ///
    /// # Errors
    /// It asks too early: when it is to ask again.
    pub(super) fn take(&mut self, now: Instant, bytes: u64) -> Result<(), Instant> {
        let periods = (now - self.since).as_nanos() / REKEY_PERIOD.as_nanos();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        self.since += REKEY_PERIOD.saturating_mul(periods);
        self.bytes = self.bytes.saturating_add(bytes);
        let by_bytes = u32::try_from(self.bytes / REKEY_BYTES).unwrap_or(u32::MAX);
        self.bytes %= REKEY_BYTES;
        let spare = self.spare.saturating_add(periods).saturating_add(by_bytes);
        self.spare = spare.min(REKEYS_AT_ONCE);
        match self.spare.checked_sub(1) {
            Some(spare) => {
                self.spare = spare;
                Ok(())
            }
            None => Err(self.since + REKEY_PERIOD),
        }
    }
}

/// A peer's KEXINIT that came too early.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) kexinit: Vec<u8>,
    pub(super) until: Instant,
}

impl Transport {
    /// Keeps a KEXINIT that comes too early. False: it is to be answered at once.
    pub(super) fn hold_kexinit(&mut self, now: Instant, kexinit: &[u8]) -> bool {
        let bytes = self.sealer.direction.bytes() + self.opener.direction.bytes();
        match self.exchange.pace.take(now, bytes) {
            Ok(()) => false,
            Err(until) => {
                let kexinit = kexinit.to_vec();
                self.exchange.held = Some(Held { kexinit, until });
                true
            }
        }
    }

    /// Answers the KEXINIT that is held, once its time has come or an own exchange needs it. True while it
    /// is held on: nothing else is read.
    pub(super) fn is_holding(&mut self, now: Instant) -> Result<bool, Error> {
        let is_wanted = !self.exchange.is_idle();
        let Some(held) = self
            .exchange
            .held
            .take_if(|held| is_wanted || held.until <= now)
        else {
            return Ok(self.exchange.held.is_some());
        };
        if self.exchange.is_idle() {
            // Its time has come, so there is one to take.
            let taken = self.exchange.pace.take(now, 0);
            debug_assert!(taken.is_ok(), "it said when");
            self.start_exchange(now)?;
        }
        self.answer_kexinit(held.kexinit)?;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(5_000_000_000);

    fn spent() -> Pace {
        let mut pace = Pace::new(START);
        for _ in 0..REKEYS_AT_ONCE {
            assert_eq!(pace.take(START, 0), Ok(()));
        }
        pace
    }

    #[test]
    fn so_many_at_once_and_one_more_a_period() {
        let mut pace = spent();
        let next = START + REKEY_PERIOD;
        assert_eq!(pace.take(START, 0), Err(next));
        let early = START + (REKEY_PERIOD - Duration::from_nanos(1));
        assert_eq!(pace.take(early, 0), Err(next));
        assert_eq!(pace.take(next, 0), Ok(()));
        assert_eq!(pace.take(next, 0), Err(next + REKEY_PERIOD));
    }

    #[test]
    fn traffic_pays_for_as_many_as_it_likes() {
        let mut pace = spent();
        assert!(pace.take(START, REKEY_BYTES - 1).is_err());
        assert_eq!(pace.take(START, 1), Ok(()));
        for _ in 0..1000 {
            assert_eq!(pace.take(START, REKEY_BYTES), Ok(()));
        }
        assert!(pace.take(START, 0).is_err());
    }

    #[test]
    fn quiet_years_save_up_no_more_than_a_row() {
        let mut pace = Pace::new(Instant::ZERO);
        let late = Instant::from_nanos(u64::MAX / 2);
        for _ in 0..REKEYS_AT_ONCE {
            assert_eq!(pace.take(late, u64::MAX / 4), Ok(()));
            pace.bytes = 0;
        }
    }
}
