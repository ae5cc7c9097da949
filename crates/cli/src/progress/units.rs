//! Sizes, rates and times in few characters. Decimal units: 1 MB is 10^6 bytes, as for links and disks.

use std::time::Duration;

use fullbore::path::Totals;
use fullbore::transfer::Summary;

/// `999 B`, `1.23 kB`, `45.6 MB`, `789 GB`.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = 0;
    // 999.5 would be printed as 1000.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Bytes per second.
pub(super) fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", bytes(bytes_per_second.max(0.0) as u64))
}

/// `0:07`, `12:34`, `1:02:03`, `4 d`.
pub(super) fn duration(seconds: f64) -> String {
    let seconds = seconds.clamp(0.0, 1e12) as u64;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match hours {
        0 => format!("{minutes}:{:02}", seconds % 60),
        1..=99 => format!("{hours}:{minutes:02}:{:02}", seconds % 60),
        _ => format!("{} d", hours / 24),
    }
}

fn things(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Whether a limit with `share` thousandths of the `busy` time is why a copy took so long: one that held
/// for less than half of that is not, and what is known of less than half of the copy says nothing
/// about all of it.
fn is_reason(busy: Duration, share: u16, seconds: f64) -> bool {
    share >= 500 && busy.as_secs_f64() * 2.0 >= seconds
}

/// The last line for a person.
pub(super) fn summary(summary: &Summary, seconds: f64, totals: &Totals) -> String {
    let mut line = format!(
        "{}, {} in {seconds:.2} s ({})",
        things(summary.files, "file"),
        bytes(summary.bytes),
        rate(summary.bytes as f64 / seconds.max(1e-3)),
    );
    if summary.failed > 0 {
        line.push_str(&format!(", {} failed", summary.failed));
    }
    if summary.warnings > 0 {
        line.push_str(&format!(", {}", things(summary.warnings, "warning")));
    }
    if let Some((limit, share)) = totals.first()
        && is_reason(totals.busy(), share, seconds)
    {
        line.push_str(&format!("; limited by {limit}"));
        if share < 900 {
            line.push_str(&format!(", {}% of the time", share / 10));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        let cases: &[(u64, &str)] = &[
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_994, "9.99 kB"),
            (9_996, "10.0 kB"),
            (99_960, "100 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (1_234_567_890, "1.23 GB"),
            (u64::MAX, "18.4 EB"),
        ];
        for (count, text) in cases {
            assert_eq!(bytes(*count), *text);
        }
    }

    #[test]
    fn times() {
        assert_eq!(duration(7.9), "0:07");
        assert_eq!(duration(754.0), "12:34");
        assert_eq!(duration(3723.0), "1:02:03");
        assert_eq!(duration(360_000.0), "4 d");
        assert_eq!(duration(f64::INFINITY), duration(1e12));
        assert_eq!(duration(-1.0), "0:00");
    }

    #[test]
    fn a_limit_is_told_only_if_it_held_for_long_in_what_took_long() {
        let second = Duration::from_secs(1);
        assert!(is_reason(second, 500, 2.0));
        assert!(!is_reason(second, 499, 2.0));
        assert!(!is_reason(second, 1000, 2.01));
    }

    #[test]
    fn the_summary_names_what_went_wrong_only_if_something_did() {
        let mut total = Summary {
            files: 1,
            bytes: 5_000_000,
            ..Summary::default()
        };
        assert_eq!(
            summary(&total, 2.0, &Totals::default()),
            "1 file, 5.00 MB in 2.00 s (2.50 MB/s)"
        );
        total.failed = 2;
        total.warnings = 1;
        assert!(summary(&total, 2.0, &Totals::default()).ends_with(", 2 failed, 1 warning"));
    }
}
