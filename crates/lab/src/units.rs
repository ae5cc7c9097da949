//! Quantities as they are written on a command line: `320mbit`, `200ms`, `0.1%`, `1bdp`.

use std::time::Duration;

use fullbore_base::Rate;

/// A number in front of its unit.
fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number
        .parse()
        .map_err(|_| format!("\"{text}\" does not begin with a number"))?;
    Ok((number, unit))
}

/// The nearest whole number; what does not fit is the largest.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(number: f64) -> u64 {
    // A cast from a float saturates.
    number.round() as u64
}

/// A rate in bits per second: `56kbit`, `1.536mbit`, `1gbit`.
///
/// # Errors
/// What is wrong with `text`.
pub fn rate(text: &str) -> Result<Rate, String> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "bit" => 1e0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => {
            return Err(format!(
                "\"{text}\": a rate ends in bit, kbit, mbit or gbit"
            ));
        }
    };
    let bits = whole(number * factor);
    if bits < 8 {
        return Err(format!("\"{text}\": a rate is at least 8 bits per second"));
    }
    Ok(Rate::from_bits_per_sec(bits))
}

/// A time: `200ms`, `1.5s`, `50us`.
///
/// # Errors
/// What is wrong with `text`.
pub fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(format!("\"{text}\": a time ends in us, ms or s")),
    };
    Ok(Duration::from_nanos(whole(number * nanos)))
}

/// A share of all packets: `0.1%` or `0.001`.
///
/// # Errors
/// What is wrong with `text`.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text)?;
    let share = match unit {
        "" => number,
        "%" => number / 100.0,
        _ => return Err(format!("\"{text}\": a share is a number, or ends in %")),
    };
    if share > 1.0 {
        return Err(format!("\"{text}\": a share is at most 100%"));
    }
    Ok(share)
}

/// Bytes: `4096`, `64k`, `8mb`, `1g`; powers of 1024.
///
/// # Errors
/// What is wrong with `text`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1u32,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => {
            return Err(format!(
                "\"{text}\": a size ends in k, m or g, or is in bytes"
            ));
        }
    };
    Ok(whole(number * f64::from(factor)))
}

/// The least that a queue in terms of the path's length holds: two packets as TSO makes them, which a
/// network card sends at once and any switch takes.
pub const BDP_QUEUE_BYTES_MIN: u64 = 128 * 1024;

/// How much waits in front of a link, in the unit it was given in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// So many times rate x round-trip time, and at least [`BDP_QUEUE_BYTES_MIN`].
    Bdp(f64),
    /// So many bytes.
    Bytes(u64),
    /// What the link sends in so long.
    Time(Duration),
}

impl Queue {
    /// Reads `1bdp`, `50ms` or `256k`.
    ///
    /// # Errors
    /// What is wrong with `text`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match split(text)? {
            (number, "bdp") => Ok(Self::Bdp(number)),
            (_, "us" | "ms" | "s") => time(text).map(Self::Time),
            _ => bytes(text).map(Self::Bytes),
        }
    }

    /// In bytes, for a link of `rate` on a path of `rtt`.
    #[must_use]
    pub fn to_bytes(self, rate: Rate, rtt: Duration) -> u64 {
        // Far more digits than a queue's size needs.
        #[allow(clippy::cast_precision_loss)]
        let per_sec = rate.bytes_per_sec() as f64;
        match self {
            Self::Bdp(factor) => {
                whole(per_sec * rtt.as_secs_f64() * factor).max(BDP_QUEUE_BYTES_MIN)
            }
            Self::Bytes(bytes) => bytes,
            Self::Time(time) => whole(per_sec * time.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_their_units() {
        assert_eq!(rate("1.536mbit").map(Rate::bytes_per_sec), Ok(192_000));
        assert_eq!(rate("1Gbit").map(Rate::bytes_per_sec), Ok(125_000_000));
        assert_eq!(time("0.5ms"), Ok(Duration::from_micros(500)));
        assert_eq!(share("0.1%"), Ok(0.001));
        assert_eq!(share("0.25"), Ok(0.25));
        assert_eq!(bytes("64k"), Ok(65_536));
        assert_eq!(bytes("1.5MB"), Ok(3 << 19));
    }

    #[test]
    fn what_has_no_unit_or_the_wrong_one_is_refused() {
        for text in ["320", "320ms", "mbit", "7bit", "1.2.3mbit"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert!(time("200").is_err());
        assert!(share("101%").is_err());
        assert!(bytes("64q").is_err());
    }

    #[test]
    fn a_queue_is_bytes_a_time_or_a_share_of_the_path() {
        let link = Rate::from_bits_per_sec(320_000_000);
        let rtt = Duration::from_millis(200);
        let bytes = |text| Queue::parse(text).map(|queue| queue.to_bytes(link, rtt));
        assert_eq!(bytes("1bdp"), Ok(8_000_000));
        assert_eq!(bytes("0.001bdp"), Ok(BDP_QUEUE_BYTES_MIN));
        assert_eq!(bytes("10ms"), Ok(400_000));
        assert_eq!(bytes("256k"), Ok(262_144));
        assert!(bytes("1x").is_err());
    }
}
