//! Log lines: one for each thing that an administrator looks for. Nothing secret gets into one.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where lines go. Called from every thread of the server.
pub trait LogSink: Send + Sync {
    /// Takes one line without its end.
    fn line(&self, line: &str);
}

/// Writes lines to the standard error, each with its time (UTC).
#[derive(Clone, Copy, Debug, Default)]
pub struct StderrLog;

impl LogSink for StderrLog {
    fn line(&self, line: &str) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = utc(since.map_or(0, |since| since.as_secs()));
        eprintln!("{time} {line}");
    }
}

/// Throws lines away.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLog;

impl LogSink for NoLog {
    fn line(&self, _line: &str) {}
}

/// A log with what stands in front of each line.
#[derive(Clone)]
pub struct Log {
    sink: Arc<dyn LogSink>,
    prefix: Arc<str>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Log").field(&self.prefix).finish()
    }
}

impl Log {
    /// A log without a prefix.
    #[must_use]
    pub fn new(sink: Arc<dyn LogSink>) -> Self {
        let prefix = "".into();
        Self { sink, prefix }
    }

    /// The same log with `prefix` in front of its lines.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> Self {
        Self {
            sink: self.sink.clone(),
            prefix: format!("{}{prefix}: ", self.prefix).into(),
        }
    }

    /// Writes a line.
    pub fn line(&self, text: fmt::Arguments<'_>) {
        self.sink.line(&format!("{}{text}", self.prefix));
    }
}

/// `2026-01-02T03:04:05Z`, from seconds since 1970. Howard Hinnant's days-to-civil algorithm.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, so that leap days end their year.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_civil() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_826_154), "2000-02-29T12:09:14Z");
        assert_eq!(utc(1_767_323_045), "2026-01-02T03:04:05Z");
        assert_eq!(utc(4_107_542_399), "2100-02-28T23:59:59Z");
    }
}
