//! What the figures were made on.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One line: the date, the processor, the kernel.
#[must_use]
pub fn describe() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = processor().unwrap_or_else(|| "an unknown processor".to_owned());
    let system = rustix::system::uname();
    format!(
        "{}, {count} cores of {cpu}, {} {}",
        date(now),
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy()
    )
}

fn processor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The day in UTC, `2026-11-30`, of a time since 1970.
///
/// Days are counted from 1 March of year 0, so that the leap day is the last of its year: day 719,468 is
/// 1970-01-01, and 400 years have 146,097 days.
fn date(since_1970: Duration) -> String {
    let days = since_1970.as_secs() / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (1_796_083_199, "2026-11-30"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(Duration::from_secs(seconds)), day);
        }
    }

    #[test]
    fn the_machine_has_a_name() {
        assert!(describe().contains(" cores of "));
    }
}
