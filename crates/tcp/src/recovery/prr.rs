//! How much may be sent for each acknowledgement during fast recovery.
//!
//! RFC 9937 (proportional rate reduction). The flight shrinks to `ssthresh` in proportion to what is
//! delivered; when losses took it below, it grows back by what is delivered and, while the recovery
//! makes progress, one segment more.

/// The state of one recovery.
#[derive(Clone, Copy, Debug)]
pub struct Prr {
    /// RecoverFS: bytes in flight when it began.
    flight: u64,
    ssthresh: u64,
    delivered: u64,
    out: u64,
}

/// What one acknowledgement in recovery did.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes it delivered.
    pub delivered: u64,
    /// Bytes in flight behind it.
    pub pipe: u64,
    /// The cumulative acknowledgement advanced and nothing more was deemed lost.
    pub is_safe: bool,
}

impl Prr {
    /// A recovery that begins with `flight` bytes in flight and is to end with `ssthresh`.
    #[must_use]
    pub const fn new(flight: u64, ssthresh: u64) -> Self {
        Self {
            flight: if flight == 0 { 1 } else { flight },
            ssthresh,
            delivered: 0,
            out: 0,
        }
    }

    /// The congestion window after an acknowledgement.
    ///
    /// With 100 segments in flight and `ssthresh` 50, each two delivered let one out.
    #[must_use]
    pub fn on_ack(&mut self, progress: &Progress, mss: u64) -> u64 {
        self.delivered += progress.delivered;
        let pipe = progress.pipe;
        let mut room = if pipe > self.ssthresh {
            let share = u128::from(self.delivered) * u128::from(self.ssthresh);
            let share = share.div_ceil(u128::from(self.flight));
            u64::try_from(share)
                .unwrap_or(u64::MAX)
                .saturating_sub(self.out)
        } else {
            let mut room = self
                .delivered
                .saturating_sub(self.out)
                .max(progress.delivered);
            if progress.is_safe {
                room += mss;
            }
            room.min(self.ssthresh - pipe)
        };
        // The first retransmission leaves at once.
        if self.out == 0 {
            room = room.max(mss);
        }
        pipe + room
    }

    /// Bytes were sent, new or again.
    pub const fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    fn progress(delivered: u64, pipe: u64, is_safe: bool) -> Progress {
        Progress {
            delivered,
            pipe,
            is_safe,
        }
    }

    /// One segment of 100 is lost, `ssthresh` is half: 50 leave while 99 are delivered.
    #[test]
    fn a_flight_is_halved_evenly() {
        let mut prr = Prr::new(100 * MSS, 50 * MSS);
        let (mut pipe, mut sent) = (99 * MSS, 0);
        for _ in 0..99 {
            pipe -= MSS;
            let cwnd = prr.on_ack(&progress(MSS, pipe, false), MSS);
            while pipe + MSS <= cwnd {
                pipe += MSS;
                sent += 1;
                prr.on_sent(MSS);
            }
        }
        assert!((49..=50).contains(&sent), "{sent}");
        assert!((49 * MSS..=51 * MSS).contains(&pipe), "{pipe}");
    }

    #[test]
    fn the_first_retransmission_leaves_at_once() {
        let mut prr = Prr::new(100 * MSS, 1);
        assert_eq!(prr.on_ack(&progress(MSS, 98 * MSS, false), MSS), 99 * MSS);
        prr.on_sent(MSS);
        assert_eq!(prr.on_ack(&progress(MSS, 98 * MSS, false), MSS), 98 * MSS);
    }

    /// After heavy losses: back by what is delivered, and one segment more when it is safe.
    #[test]
    fn a_flight_that_fell_too_low_grows_back_up_to_ssthresh() {
        let mut prr = Prr::new(20 * MSS, 10 * MSS);
        prr.on_sent(MSS);
        let conservative = prr.on_ack(&progress(MSS, 4 * MSS, false), MSS);
        assert_eq!(conservative, 5 * MSS);
        let safe = prr.on_ack(&progress(MSS, 4 * MSS, true), MSS);
        assert_eq!(safe, 6 * MSS);
        let bounded = prr.on_ack(&progress(50 * MSS, 4 * MSS, true), MSS);
        assert_eq!(bounded, 10 * MSS);
    }
}
