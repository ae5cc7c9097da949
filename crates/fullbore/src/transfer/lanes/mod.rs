//! Lanes: one file moved over several channels, and over several connections, at once.
//!
//! - [`policy`] decides how many, from what limits the transfer; `schedule` which lane moves which
//!   part, `stall` which one is stuck; `stripe` runs them. `fleet` and `crew` are the sessions and handles behind it.
//! - Every lane has a handle of its own to the same file. Bytes are at their place in any order, and
//!   never farther apart than [`SPAN_BYTES_MAX`]; a file for which that holds carries
//!   [`STRIPED_MODE`].

mod crew;
mod fleet;
pub mod policy;
mod schedule;
mod stall;
mod stripe;

#[cfg(test)]
mod kill_tests;
#[cfg(test)]
mod tests;

pub(crate) use crew::FileCrew;
pub use crew::RemoteFile;
pub use fleet::default_caps;
pub(crate) use fleet::{Direction, Fleet};
pub use policy::{Caps, Policy};
pub use schedule::SPAN_BYTES_MAX;
pub(crate) use stripe::stripe;
#[cfg(test)]
pub(crate) use stripe::{Change, Crew, UnitMoving};

/// Mode bit of a file that several lanes write to (`S_ISVTX`, which means nothing on files): a run
/// that finds it knows that holes may be [`SPAN_BYTES_MAX`] before the end. Taken away with the last
/// attributes that the file gets.
pub const STRIPED_MODE: u32 = 0o1000;

/// Files with less than this to move have one lane: they are over before another has started.
pub(crate) const STRIPED_BYTES_MIN: u64 = 8 * 1024 * 1024;
