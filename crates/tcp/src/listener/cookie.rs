//! A handshake that nobody remembers: what there is to know rides in the numbers that the peer sends
//! back.
//!
//! RFC 4987 section 3.6. The initial sequence number holds a time of 64 s (5 bits), an index of MSS
//! (3 bits) and a keyed hash (24 bits) over both, the addresses and the peer's number. With timestamps,
//! the lowest 6 bits of ours hold window scale, SACK and ECN.

use fullbore_base::Instant;

use super::{COOKIE_LIFETIME, told_window};
use crate::connection::{Accepted, Agreed, Clock, Config, handshake_answer};
use crate::isn::{Key, Randomness, Tuple};
use crate::segment::Header;
use crate::seq::Seq;

/// The MSS that a cookie can hold; the peer's is rounded down. Chosen for Ethernet, tunnels, DSL.
const MSS_TABLE: [u16; 8] = [216, 536, 1220, 1300, 1400, 1440, 1460, 8960];

/// Bits of our timestamp that hold options.
const OPTION_BITS: u32 = 6;
/// In the place of a window scale: none was offered.
const NO_SCALE: u32 = 15;

/// The cookies of one listener.
#[derive(Debug)]
pub struct Cookies {
    key: Key,
    /// Until when one that was sent may come back. Nobody may guess at other times.
    good_until: Instant,
}

impl Cookies {
    pub fn new(randomness: &mut dyn Randomness) -> Self {
        Self {
            key: Key::new(randomness),
            good_until: Instant::ZERO,
        }
    }

    /// Whether one that was sent may still come back.
    pub fn are_out(&self, now: Instant) -> bool {
        now <= self.good_until
    }

    fn hash(&self, tuple: &Tuple, remote_initial: Seq, minute: u64, index: u32) -> u32 {
        let [a, b, c, d, e] = tuple.words();
        let rest = u64::from(remote_initial.value()) << 32 | u64::from(index);
        let hash = self.key.hash(&[a, b, c, d, e, rest, minute]);
        u32::try_from(hash & 0x00ff_ffff).expect("24 bits")
    }

    fn number(&self, tuple: &Tuple, remote_initial: Seq, minute: u64, index: u32) -> Seq {
        let time = u32::try_from(minute % 32).expect("5 bits");
        let hash = self.hash(tuple, remote_initial, minute, index);
        Seq::new(time << 27 | index << 24 | hash)
    }

    /// The SYN+ACK with a cookie.
    pub fn answer(
        &mut self,
        now: Instant,
        config: &Config,
        tuple: &Tuple,
        syn: &Header,
        agreed: &Agreed,
        timestamp: u32,
    ) -> Header {
        self.good_until = now + COOKIE_LIFETIME;
        let fits = |&&mss: &&u16| mss <= agreed.mss;
        let index = MSS_TABLE.iter().filter(fits).count().max(1) - 1;
        let index = u32::try_from(index).expect("3 bits");
        let number = self.number(tuple, syn.seq, minute_of(now), index);
        // Without timestamps the options have no place, and are not agreed to.
        let agreed = if agreed.is_timestamps {
            *agreed
        } else {
            plain(agreed.mss)
        };
        let mut header = handshake_answer(now, config, &agreed, number, syn.seq, timestamp);
        if let Some(timestamps) = &mut header.options.timestamps {
            timestamps.value = with_options(timestamps.value, &agreed);
        }
        header
    }

    /// The handshake of an acknowledgement that brings a cookie back.
    pub fn take(
        &self,
        now: Instant,
        config: &Config,
        tuple: &Tuple,
        header: &Header,
    ) -> Option<Accepted> {
        if !self.are_out(now) {
            return None;
        }
        let (local_initial, remote_initial) = (before(header.ack), before(header.seq));
        let bits = local_initial.value();
        let index = bits >> 24 & 7;
        let age = (minute_of(now) % 32 + 32 - u64::from(bits >> 27)) % 32;
        let minute = minute_of(now).checked_sub(age).filter(|_| age <= 2)?;
        if self.number(tuple, remote_initial, minute, index) != local_initial {
            return None;
        }
        let mss = MSS_TABLE[usize::try_from(index).expect("3 bits")];
        let timestamps = header.options.timestamps;
        let timestamps = timestamps.filter(|_| config.is_timestamps);
        let agreed = timestamps.map_or(plain(mss), |t| options_of(t.echo, mss, config));
        Some(Accepted {
            local_initial,
            remote_initial,
            agreed,
            timestamp: timestamps.map_or(0, |t| t.value),
            told_window: told_window(config),
            rtt: timestamps.and_then(|t| {
                let clock = Clock::new(config.timestamp_offset, 0, now);
                clock.sent_at(now, t.echo).map(|at| now - at)
            }),
        })
    }
}

const fn before(seq: Seq) -> Seq {
    seq.plus(u32::MAX)
}

const fn minute_of(now: Instant) -> u64 {
    now.as_nanos() / 64_000_000_000
}

const fn plain(mss: u16) -> Agreed {
    Agreed {
        mss,
        is_scaled: false,
        send_scale: 0,
        receive_scale: 0,
        is_sack: false,
        is_timestamps: false,
        is_ecn: false,
    }
}

/// A timestamp not later than `value` with the options in its lowest bits: a clock must not go back.
fn with_options(value: u32, agreed: &Agreed) -> u32 {
    let scale = if agreed.is_scaled {
        u32::from(agreed.send_scale)
    } else {
        NO_SCALE
    };
    let bits = scale | u32::from(agreed.is_sack) << 4 | u32::from(agreed.is_ecn) << 5;
    let stamped = value & (u32::MAX << OPTION_BITS) | bits;
    if stamped.wrapping_sub(value).cast_signed() > 0 {
        stamped.wrapping_sub(1 << OPTION_BITS)
    } else {
        stamped
    }
}

fn options_of(echo: u32, mss: u16, config: &Config) -> Agreed {
    let scale = echo & 15;
    let is_scaled = scale != NO_SCALE;
    Agreed {
        mss,
        is_scaled,
        send_scale: if is_scaled {
            u8::try_from(scale).expect("4 bits")
        } else {
            0
        },
        receive_scale: if is_scaled { config.window_scale() } else { 0 },
        is_sack: echo >> 4 & 1 == 1,
        is_timestamps: true,
        is_ecn: echo >> 5 & 1 == 1,
    }
}
