//! Sizes and times in few characters.

use std::time::Duration;

/// `64 KiB`, `2 MiB`, `1.5 GiB`: for what is sized in powers of two.
#[must_use]
pub fn binary_bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    scaled(count, 1024.0, &UNITS)
}

/// `999 B`, `10.5 MB`: decimal, for rates and what is counted.
#[must_use]
pub fn decimal_bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    scaled(count, 1000.0, &UNITS)
}

fn scaled(count: u64, step: f64, units: &[&str]) -> String {
    if (count as f64) < step {
        return format!("{count} B");
    }
    let mut value = count as f64 / step;
    let mut unit = 0;
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let text = match value {
        small if small < 99.95 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    };
    format!(
        "{} {}",
        text.strip_suffix(".0").unwrap_or(&text),
        units[unit]
    )
}

/// `80 µs`, `1.2 ms`, `199 ms`, `2.5 s`.
#[must_use]
pub fn millis(time: Duration) -> String {
    let value = time.as_secs_f64() * 1e3;
    match value {
        v if v < 0.999 => format!("{:.0} µs", v * 1e3),
        v if v < 9.95 => format!("{v:.1} ms"),
        v if v < 999.5 => format!("{v:.0} ms"),
        v => format!("{:.1} s", v / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!(binary_bytes(1023), "1023 B");
        assert_eq!(binary_bytes(2 << 20), "2 MiB");
        assert_eq!(binary_bytes((1 << 20) + (1 << 19)), "1.5 MiB");
        assert_eq!(binary_bytes((1 << 20) - 1), "1 MiB");
        assert_eq!(binary_bytes(u64::from(u32::MAX)), "4 GiB");
        assert_eq!(decimal_bytes(10_485_760), "10.5 MB");
        assert_eq!(decimal_bytes(117_000_000), "117 MB");
        assert_eq!(decimal_bytes(0), "0 B");
        assert_eq!(millis(Duration::from_micros(80)), "80 µs");
        assert_eq!(millis(Duration::from_nanos(998_600)), "999 µs");
        assert_eq!(millis(Duration::from_nanos(999_500)), "1.0 ms");
        assert_eq!(millis(Duration::from_micros(1200)), "1.2 ms");
        assert_eq!(millis(Duration::from_micros(199_100)), "199 ms");
        assert_eq!(millis(Duration::from_millis(2500)), "2.5 s");
    }
}
