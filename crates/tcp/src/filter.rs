//! The least of what was measured within a sliding window of time.

use core::time::Duration;
use fullbore_base::Instant;

/// Windowed minimum in constant memory, by Kathleen Nichols' method: the best sample of the whole
/// window, the best since that one, and the best since that.
///
/// The estimate is exact when it falls, and at most a quarter of the window late when it rises.
#[derive(Clone, Copy, Debug)]
pub struct WindowedMin {
    window: Duration,
    /// Oldest and least first.
    samples: Option<[(Instant, Duration); 3]>,
}

impl WindowedMin {
    /// Nothing measured yet.
    #[must_use]
    pub const fn new(window: Duration) -> Self {
        Self {
            window,
            samples: None,
        }
    }

    /// The least of the window.
    #[must_use]
    pub fn value(&self) -> Option<Duration> {
        self.samples.map(|[(_, least), ..]| least)
    }

    /// Takes a measurement. O(1).
    pub fn add(&mut self, now: Instant, value: Duration) {
        let new = (now, value);
        let Some(samples) = &mut self.samples else {
            self.samples = Some([new; 3]);
            return;
        };
        if value <= samples[0].1 || now - samples[2].0 > self.window {
            *samples = [new; 3];
            return;
        }
        if value <= samples[1].1 {
            samples[1] = new;
            samples[2] = new;
        } else if value <= samples[2].1 {
            samples[2] = new;
        }
        let age = now - samples[0].0;
        if age > self.window {
            *samples = [samples[1], samples[2], new];
            if now - samples[0].0 > self.window {
                *samples = [samples[1], samples[2], new];
            }
        } else if samples[1].0 == samples[0].0 && age > self.window / 4 {
            samples[1] = new;
            samples[2] = new;
        } else if samples[2].0 == samples[1].0 && age > self.window / 2 {
            samples[2] = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_base::Rng;
    use fullbore_testkit::seeds;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_lower_value_counts_at_once_and_is_forgotten_after_the_window() {
        let mut filter = WindowedMin::new(MS * 1000);
        assert_eq!(filter.value(), None);
        for i in 0..200u32 {
            let now = Instant::ZERO + MS * (i * 10);
            let value = if i == 50 { MS * 5 } else { MS * 20 };
            filter.add(now, value);
            let is_low = (50..=150).contains(&i);
            let expected = if is_low { MS * 5 } else { MS * 20 };
            assert_eq!(filter.value(), Some(expected), "sample {i}");
        }
    }

    /// Never below the true minimum, and never above that of the last three quarters.
    #[test]
    fn stays_between_the_minima_of_the_window_and_of_its_late_part() {
        for seed in seeds(0..20) {
            let mut rng = Rng::seeded(seed);
            let mut filter = WindowedMin::new(MS * 400);
            let mut all = Vec::new();
            for i in 0..2000 {
                let now = Instant::ZERO + MS * i;
                let value = MS * u32::try_from(10 + rng.below(1000)).expect("small");
                filter.add(now, value);
                all.push((now, value));
                let least = |span| {
                    let recent = all.iter().rev().take_while(|(at, _)| now - *at <= span);
                    recent.map(|(_, v)| *v).min().expect("the newest is there")
                };
                let estimate = filter.value().expect("there are samples");
                assert!(estimate >= least(MS * 401) && estimate <= least(MS * 100));
            }
        }
    }
}
