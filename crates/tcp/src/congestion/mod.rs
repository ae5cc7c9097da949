//! How much may be in flight, and how fast it may leave.
//!
//! Reno (RFC 5681), CUBIC (RFC 9438) with HyStart++ (RFC 9406), BBRv3 (draft-ietf-ccwg-bbr). Each
//! owns its window; none knows segments. During fast recovery the window of Reno and CUBIC is
//! [`crate::recovery::prr`]'s.

mod bbr;
mod cubic;
mod hystart;
mod reno;

pub use bbr::Bbr;
pub use cubic::Cubic;
pub use reno::Reno;

use core::time::Duration;

use alloc::boxed::Box;
use fullbore_base::{Instant, Rate};

use crate::rate::RateSample;
use crate::recovery::Lost;

/// Segments of the initial window (RFC 6928).
const INITIAL_WINDOW_SEGMENTS: u64 = 10;

/// Which one a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// The reference: halves on loss, one segment per round trip.
    Reno,
    /// What most of the Internet uses: fills long paths, halves little, but every loss counts.
    Cubic,
    /// Models the path: a loss is a signal only above two percent.
    #[default]
    Bbr,
}

/// How a controller is to behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which algorithm.
    pub algorithm: Algorithm,
    /// BBR: losses in a round trip, in percent, that are no sign of congestion; up to 20. The
    /// draft's value is 2, and a path that loses as much at random is then not filled. A larger one
    /// is for paths that are known to be of this kind: others of the path pay for it.
    pub loss_percent: u8,
    /// BBR: decides when it probes. Not secret.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            loss_percent: 2,
            seed: 0,
        }
    }
}

/// What a controller is told of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Acked<'a> {
    /// When.
    pub now: Instant,
    /// Bytes that it delivered.
    pub delivered_bytes: u64,
    /// Bytes that it showed to be lost.
    pub lost_bytes: u64,
    /// All bytes delivered so far.
    pub delivered_total: u64,
    /// Bytes in flight behind it.
    pub pipe: u64,
    /// SND.UNA behind it.
    pub snd_una: u64,
    /// SND.NXT.
    pub snd_nxt: u64,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// What it says of the rate.
    pub sample: &'a RateSample,
    /// The window, not the application or the peer, limits what is in flight.
    pub is_cwnd_limited: bool,
    /// A recovery is going on.
    pub is_recovering: bool,
}

/// Why a window is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A segment was lost.
    Loss,
    /// The path said so (RFC 3168).
    Ecn,
}

/// What every algorithm does.
pub trait Control {
    /// Bytes that may be in flight.
    fn cwnd(&self) -> u64;

    /// The window that a recovery aims at; `u64::MAX` while nothing limits slow start.
    fn ssthresh(&self) -> u64;

    /// How fast segments may leave, when the algorithm has a say in it.
    fn pacing_rate(&self) -> Option<Rate>;

    /// A segment is about to leave behind `pipe` bytes in flight.
    fn on_sending(&mut self, now: Instant, pipe: u64, is_app_limited: bool);

    /// An acknowledgement was read.
    fn on_acked(&mut self, acked: &Acked<'_>);

    /// A segment is deemed lost.
    fn on_lost(&mut self, now: Instant, lost: &Lost, delivered_total: u64);

    /// A recovery begins, or the path asks for less: once per round trip. `flight`: outstanding.
    fn on_congestion(&mut self, now: Instant, flight: u64, cause: Cause);

    /// A recovery is over.
    fn on_recovered(&mut self);

    /// The retransmission timer expired with `pipe` bytes still deemed in flight.
    fn on_timeout(&mut self, flight: u64, pipe: u64, is_first: bool);

    /// The last reduction was needless.
    fn on_undone(&mut self);

    /// Nothing was sent for longer than the retransmission timer runs (RFC 5681 4.1).
    fn on_idle(&mut self);

    /// The largest segment changed.
    fn on_mss(&mut self, mss: u32);

    /// Whether PRR rules during fast recovery.
    fn uses_prr(&self) -> bool;
}

/// A controller of one of the algorithms.
#[derive(Clone, Debug)]
pub enum Controller {
    /// RFC 5681.
    Reno(Reno),
    /// RFC 9438.
    Cubic(Cubic),
    /// BBRv3.
    Bbr(Box<Bbr>),
}

impl Controller {
    /// One that starts with segments of `mss` bytes.
    #[must_use]
    pub fn new(settings: &Settings, mss: u32) -> Self {
        match settings.algorithm {
            Algorithm::Reno => Self::Reno(Reno::new(mss)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(mss)),
            Algorithm::Bbr => Self::Bbr(Box::new(Bbr::new(settings, mss))),
        }
    }

    /// Which algorithm it is.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Reno(_) => Algorithm::Reno,
            Self::Cubic(_) => Algorithm::Cubic,
            Self::Bbr(_) => Algorithm::Bbr,
        }
    }

    /// The algorithm behind its trait.
    #[must_use]
    pub fn get(&self) -> &dyn Control {
        match self {
            Self::Reno(reno) => reno,
            Self::Cubic(cubic) => cubic,
            Self::Bbr(bbr) => bbr.as_ref(),
        }
    }

    /// The same, to be told things.
    pub fn get_mut(&mut self) -> &mut dyn Control {
        match self {
            Self::Reno(reno) => reno,
            Self::Cubic(cubic) => cubic,
            Self::Bbr(bbr) => bbr.as_mut(),
        }
    }
}

/// RFC 6928: ten segments, and no more than 14,600 bytes unless two segments are more.
#[must_use]
pub const fn initial_window(mss: u64) -> u64 {
    let ten = INITIAL_WINDOW_SEGMENTS * mss;
    let cap = if 2 * mss > 14_600 { 2 * mss } else { 14_600 };
    if ten < cap { ten } else { cap }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_window_is_that_of_the_rfc() {
        assert_eq!(initial_window(1460), 14_600);
        assert_eq!(initial_window(536), 5360);
        assert_eq!(initial_window(8960), 17_920);
    }
}
