//! `expiry-time`: a civil time, local or (with `Z`) UTC.

use crate::config::text::parse_number;

/// When a key stops to be good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry {
    /// The civil time read as if it were UTC, in Unix seconds.
    seconds: i64,
    is_utc: bool,
}

impl Expiry {
    /// Reads `YYYYMMDD[HHMM[SS]]`, with or without `Z`.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Expiry> {
        let (digits, is_utc) = match text.strip_suffix(b"Z") {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        if !matches!(digits.len(), 8 | 12 | 14) || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let field = |start: usize, len: usize| match digits.get(start..start + len) {
            Some(field) => parse_number(field).and_then(|n| i64::try_from(n).ok()),
            None => Some(0),
        };
        let (year, month, day) = (field(0, 4)?, field(4, 2)?, field(6, 2)?);
        let (hour, minute, second) = (field(8, 2)?, field(10, 2)?, field(12, 2)?);
        let is_date = year >= 1970 && (1..=12).contains(&month) && day >= 1;
        if !is_date || day > days_in_month(year, month) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_since_epoch(year, month, day);
        Some(Expiry {
            seconds: days * 86_400 + hour * 3600 + minute * 60 + second,
            is_utc,
        })
    }

    /// Whether it lies before now. Local times take today's offset: on the two days of the year when
    /// clocks change this may be an hour off.
    #[must_use]
    pub fn has_passed(self, now_unix: u64, utc_offset_seconds: i64) -> bool {
        let offset = if self.is_utc { 0 } else { utc_offset_seconds };
        i128::from(now_unix) >= i128::from(self.seconds) - i128::from(offset)
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01, for years from 1970 on.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let before = year - 1;
    let leap_days =
        (before / 4 - before / 100 + before / 400) - (1969 / 4 - 1969 / 100 + 1969 / 400);
    let months: i64 = (1..month).map(|m| days_in_month(year, m)).sum();
    (year - 1970) * 365 + leap_days + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn civil_times_become_seconds() {
        // date -ud ... +%s
        let cases: &[(&str, Option<i64>)] = &[
            ("19700101", Some(0)),
            ("20000229", Some(951_782_400)),
            ("20240301", Some(1_709_251_200)),
            ("203801190314", Some(2_147_483_640)),
            ("20380119031408", Some(2_147_483_648)),
            ("20230229", None),
            ("21000229", None),
            ("20241301", None),
            ("20240100", None),
            ("202401012400", None),
            ("20240101236", None),
            ("2024-01-01", None),
            ("19691231", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(
                Expiry::parse(text.as_bytes()).map(|e| e.seconds),
                *expected,
                "{text}"
            );
        }
    }

    #[test]
    fn local_times_are_shifted_and_utc_is_not() {
        let local = Expiry::parse(b"197001020000").expect("a time");
        let utc = Expiry::parse(b"197001020000Z").expect("a time");
        assert!(!utc.has_passed(86_399, 3600));
        assert!(utc.has_passed(86_400, 3600));
        assert!(!local.has_passed(82_799, 3600));
        assert!(local.has_passed(82_800, 3600));
    }
}
