//! When slow start has filled the path: HyStart++ (RFC 9406).
//!
//! A round trip whose least RTT rises over that of the one before leads to conservative slow start,
//! which grows a quarter as fast; five such rounds end slow start, a fall of the RTT resumes it.

use core::time::Duration;

const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;

/// What slow start should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Divide what is delivered by this, and grow by it.
    Divided(u64),
    /// Slow start is over.
    Over,
}

/// RFC 9406 4.2's variables.
#[derive(Clone, Debug, Default)]
pub struct HyStart {
    /// The round ends when this is acknowledged.
    window_end: u64,
    last_round_min: Option<Duration>,
    current_round_min: Option<Duration>,
    sample_count: u32,
    /// In conservative slow start: the least RTT when it began.
    css_baseline: Option<Duration>,
    css_rounds: u32,
}

impl HyStart {
    /// An acknowledgement of slow start. O(1).
    pub fn on_acked(&mut self, snd_una: u64, snd_nxt: u64, rtt: Option<Duration>) -> Growth {
        if snd_una >= self.window_end {
            self.window_end = snd_nxt;
            self.last_round_min = self.current_round_min.take();
            self.sample_count = 0;
            if self.css_baseline.is_some() {
                self.css_rounds += 1;
                if self.css_rounds > CSS_ROUNDS {
                    return Growth::Over;
                }
            }
        }
        if let Some(rtt) = rtt {
            let least = self.current_round_min.map_or(rtt, |min| min.min(rtt));
            self.current_round_min = Some(least);
            self.sample_count += 1;
        }
        if self.sample_count >= N_RTT_SAMPLE {
            self.judge();
        }
        match self.css_baseline {
            Some(_) => Growth::Divided(CSS_GROWTH_DIVISOR),
            None => Growth::Divided(1),
        }
    }

    fn judge(&mut self) {
        let (Some(current), Some(last)) = (self.current_round_min, self.last_round_min) else {
            return;
        };
        match self.css_baseline {
            Some(baseline) if current < baseline => {
                self.css_baseline = None;
                self.css_rounds = 0;
            }
            Some(_) => {}
            None => {
                let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if current >= last + threshold {
                    self.css_baseline = Some(current);
                    self.css_rounds = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One round of `samples` acknowledgements, all of `rtt`.
    fn round(hystart: &mut HyStart, number: u64, rtt: Duration, samples: u64) -> Growth {
        let mut growth = Growth::Divided(1);
        for i in 0..samples {
            growth = hystart.on_acked(number * 100 + i, (number + 1) * 100, Some(rtt));
            if growth == Growth::Over {
                return growth;
            }
        }
        growth
    }

    #[test]
    fn a_rising_round_trip_slows_growth_and_five_rounds_end_it() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 1, MS * 100, 20), Growth::Divided(1));
        assert_eq!(round(&mut hystart, 2, MS * 111, 20), Growth::Divided(1));
        assert_eq!(round(&mut hystart, 3, MS * 125, 20), Growth::Divided(4));
        for number in 4..9 {
            let growth = round(&mut hystart, number, MS * 130, 20);
            assert_eq!(growth, Growth::Divided(4), "round {number}");
        }
        assert_eq!(round(&mut hystart, 9, MS * 130, 20), Growth::Over);
    }

    #[test]
    fn a_fall_resumes_slow_start() {
        let mut hystart = HyStart::default();
        let _ = round(&mut hystart, 1, MS * 100, 20);
        assert_eq!(round(&mut hystart, 2, MS * 113, 20), Growth::Divided(4));
        assert_eq!(round(&mut hystart, 3, MS * 112, 20), Growth::Divided(1));
    }

    #[test]
    fn fewer_than_eight_samples_say_nothing() {
        let mut hystart = HyStart::default();
        let _ = round(&mut hystart, 1, MS * 100, 20);
        assert_eq!(round(&mut hystart, 2, MS * 150, 7), Growth::Divided(1));
        assert_eq!(round(&mut hystart, 3, MS * 180, 8), Growth::Divided(4));
    }

    #[test]
    fn the_threshold_is_an_eighth_between_4_and_16_ms() {
        let slows = |before: u32, after: u32| {
            let mut hystart = HyStart::default();
            let _ = round(&mut hystart, 1, MS * before, 8);
            round(&mut hystart, 2, MS * after, 8) == Growth::Divided(4)
        };
        assert!(!slows(10, 13) && slows(10, 14));
        assert!(!slows(80, 89) && slows(80, 90));
        assert!(!slows(400, 415) && slows(400, 416));
    }
}
