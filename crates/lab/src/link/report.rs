//! What a run of the link did, for a person and as JSON.

use std::fmt;
use std::time::Duration;

use super::shaper::Counters;

/// Buckets of [`Lateness`]: eight to each doubling of the nanoseconds.
const BUCKETS: usize = 64 * 8;

/// How late packets came out, compared with when they should have: counts in buckets that are an eighth
/// of their value wide.
#[derive(Clone, Debug)]
pub struct Lateness {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            total: 0,
            max: 0,
        }
    }
}

impl Lateness {
    /// Counts one packet.
    pub fn record(&mut self, late: Duration) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        self.counts[Self::bucket(nanos)] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    /// Example: 1,000 = 0b11_1110_1000 has its highest bit at 9 and 0b111 behind it: bucket 9 x 8 + 7.
    fn bucket(nanos: u64) -> usize {
        let top = nanos.max(8).ilog2();
        let behind = (nanos.max(8) >> (top - 3)) & 7;
        top as usize * 8 + usize::try_from(behind).expect("three bits")
    }

    /// The lateness that `share` of the packets do not exceed, rounded up by at most an eighth.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        // Counts stay far below what a double holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let wanted = self.total as f64 * share;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            #[allow(clippy::cast_precision_loss)]
            let is_reached = seen > 0 && seen as f64 >= wanted;
            if is_reached {
                let (top, behind) = (bucket / 8, bucket as u64 % 8);
                let upper = u128::from(8 + behind + 1) << top >> 3;
                let upper = u64::try_from(upper).unwrap_or(u64::MAX);
                return Duration::from_nanos(upper.min(self.max));
            }
        }
        Duration::ZERO
    }

    /// The latest packet's.
    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }
}

/// One direction of the link.
#[derive(Clone, Debug)]
pub struct Way {
    /// `up` (near to far) or `down`.
    pub name: &'static str,
    /// What became of the segments.
    pub counters: Counters,
    /// How exact the emulator was.
    pub lateness: Lateness,
    /// Packets that the receiving device refused.
    pub refused: u64,
    /// Packets that the sending device dropped before the emulator read them.
    pub dropped_device: u64,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was emulated, in words.
    pub link: String,
    /// Settings of the two network stacks, in words.
    pub stack: String,
    /// How the emulator's thread was scheduled.
    pub scheduling: &'static str,
    /// Length of the run.
    pub time: Duration,
    /// Up, then down.
    pub ways: [Way; 2],
    /// Exit code of the command.
    pub code: u8,
}

impl Report {
    /// One JSON object, without a line's end. Times in microseconds.
    #[must_use]
    pub fn to_json(&self) -> String {
        let ways: Vec<String> = self.ways.iter().map(Way::to_json).collect();
        format!(
            "{{\"link\":\"{}\",\"stack\":\"{}\",\"scheduling\":\"{}\",\"seconds\":{:.3},\"code\":{},{}}}",
            self.link,
            self.stack,
            self.scheduling,
            self.time.as_secs_f64(),
            self.code,
            ways.join(",")
        )
    }
}

impl Way {
    fn to_json(&self) -> String {
        let c = &self.counters;
        let fields: [(&str, u128); 13] = [
            ("segments_in", c.segments_in.into()),
            ("bytes_in", c.bytes_in.into()),
            ("segments_out", c.segments_out.into()),
            ("bytes_out", c.bytes_out.into()),
            ("packets_out", c.packets_out.into()),
            ("dropped_queue", c.dropped_queue.into()),
            ("dropped_loss", c.dropped_loss.into()),
            ("dropped_device", self.dropped_device.into()),
            ("refused", self.refused.into()),
            ("queue_bytes_peak", c.queue_bytes_peak.into()),
            ("late_p50_us", self.lateness.quantile(0.5).as_micros()),
            ("late_p99_us", self.lateness.quantile(0.99).as_micros()),
            ("late_max_us", self.lateness.max().as_micros()),
        ];
        let fields: Vec<String> = fields
            .iter()
            .map(|(key, value)| format!("\"{key}\":{value}"))
            .collect();
        format!("\"{}\":{{{}}}", self.name, fields.join(","))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "link   {}; {:.1} s", self.link, self.time.as_secs_f64())?;
        writeln!(f, "stack  {}", self.stack)?;
        for way in &self.ways {
            let c = &way.counters;
            writeln!(
                f,
                "{:<6} {} segments, {} bytes out; dropped: {} queue full, {} lost, {} by the device, {} refused; \
                 queue at most {} bytes",
                way.name,
                c.segments_out,
                c.bytes_out,
                c.dropped_queue,
                c.dropped_loss,
                way.dropped_device,
                way.refused,
                c.queue_bytes_peak,
            )?;
            writeln!(
                f,
                "       late: p50 {:?}, p99 {:?}, at most {:?} ({})",
                way.lateness.quantile(0.5),
                way.lateness.quantile(0.99),
                way.lateness.max(),
                self.scheduling
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_an_eighth() {
        let mut lateness = Lateness::default();
        for micros in 1..=1000 {
            lateness.record(Duration::from_micros(micros));
        }
        for (share, micros) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let found = lateness.quantile(share);
            let exact = Duration::from_micros(micros);
            assert!(
                found >= exact && found <= exact * 9 / 8,
                "{share}: {found:?}"
            );
        }
        assert_eq!(lateness.max(), Duration::from_millis(1));
    }

    #[test]
    fn nothing_recorded_is_no_lateness_and_extremes_have_a_bucket() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.99), Duration::ZERO);
        lateness.record(Duration::ZERO);
        assert_eq!(lateness.quantile(0.5), Duration::ZERO);
        lateness.record(Duration::MAX);
        assert_eq!(lateness.quantile(1.0), Duration::from_nanos(u64::MAX));
    }
}
