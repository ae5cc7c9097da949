//! Local wall-clock time from seconds since 1970, by the C library's time zone data.

/// A point in time as a calendar and clock show it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Year of the Gregorian calendar.
    pub year: i64,
    /// Month, 0 to 11.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 60.
    pub second: u8,
}

/// The local time of `seconds` since 1970; `None` when its year is out of the C library's range.
#[must_use]
#[allow(unsafe_code)]
pub fn local_time(seconds: i64) -> Option<LocalTime> {
    let time: libc::time_t = seconds;
    let mut tm = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, and all zeroes is a valid `tm`.
    let tm = unsafe {
        if libc::localtime_r(&raw const time, tm.as_mut_ptr()).is_null() {
            return None;
        }
        tm.assume_init()
    };
    let small = |value: libc::c_int| u8::try_from(value).ok();
    Some(LocalTime {
        year: i64::from(tm.tm_year) + 1900,
        month: small(tm.tm_mon)?,
        day: small(tm.tm_mday)?,
        hour: small(tm.tm_hour)?,
        minute: small(tm.tm_min)?,
        second: small(tm.tm_sec)?,
    })
}

/// What local time is ahead of UTC at `seconds` since 1970; 0 where that is not known.
#[must_use]
pub fn utc_offset_seconds(seconds: i64) -> i64 {
    let Some(local) = local_time(seconds) else {
        return 0;
    };
    let of_day = i64::from(local.hour) * 3600 + i64::from(local.minute) * 60;
    let apart = of_day + i64::from(local.second) - seconds.rem_euclid(DAY);
    // The day there may be the one before or after: offsets lie within -12 and +14 hours.
    match apart {
        early if early < -12 * 3600 => early + DAY,
        late if late > 14 * 3600 => late - DAY,
        same_day => same_day,
    }
}

const DAY: i64 = 24 * 60 * 60;

/// Names of the months as syslog and `ls` write them.
pub const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_leads_from_utc_to_local_time() {
        for hour in 0..24 {
            let seconds = 946_684_800 + hour * 3600;
            let local = local_time(seconds).expect("in range");
            let shifted = (seconds + utc_offset_seconds(seconds)).rem_euclid(DAY);
            assert_eq!(i64::from(local.hour), shifted / 3600);
            assert_eq!(i64::from(local.minute), shifted / 60 % 60);
        }
    }

    #[test]
    fn months_count_from_zero_and_days_from_one() {
        // Noon of 2 January 2000 UTC: the same day in every time zone but the outermost.
        let time = local_time(946_814_400).expect("in range");
        assert_eq!((time.year, time.month), (2000, 0));
        assert!((1..=3).contains(&time.day));
    }
}
