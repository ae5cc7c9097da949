//! The copy planner: turns sources and a target into files, and files into transfers that never
//! leave a wrong or half file under a final name.
//!
//! - Sources and target are [`Side`]s: this machine, SFTP sessions, memory in tests. One planner
//!   serves up, down, across two servers (through this machine, in memory) and within one.
//! - Each file goes to a temporary name in its target's folder, is checked by size (and by digest
//!   with [`Options::verify`]), given its mode and times, then renamed in one step. A server
//!   without posix-rename: plain rename; where that does not replace, the old file is removed
//!   first, with a warning.
//! - Interrupted means killed, or the session lost: the temporary file stays, and the next run goes
//!   on after proving that it is the beginning of the source: by check-file; else by comparing the
//!   last MiB before the [`span_margin`](fullbore_sftp::client::config::span_margin) that
//!   may have holes and are sent again ([`lanes::SPAN_BYTES_MAX`] if several lanes wrote it). Any
//!   other failure removes it.
//! - Two runs that copy the same file to the same place at once: the second is refused. On this
//!   machine the temporary file is locked. Servers offer no lock: it is made with EXCL, so that only
//!   one run can make it, and one that was found is used only if it does not change within a
//!   second; it is never emptied but made anew, and the name is given only to a file as long as
//!   what was sent.
//! - Sizes are hints: files are read to their end, and a change is told.
//! - Links are followed, as scp does under `-r`, but not into a folder that they are in.

mod content;
mod file;
mod flight;
pub mod glob;
mod handles;
mod hash;
pub mod lanes;
mod limit;
mod observer;
mod place;
mod pool;
pub mod questions;
mod remote;
mod run;
mod short;
mod side;
mod temp;
mod tree;
mod unfinished;
mod verify;
mod work;

#[cfg(test)]
mod memory;
#[cfg(test)]
mod tests;

pub(crate) use hash::Hasher;
pub use limit::TokenBucket;
pub use observer::{Event, Observer, Silent, Summary};
pub(crate) use pool::Pool;
pub use remote::{NAMES_MAX, SftpListing, SftpSide};
pub use run::{BYTES_IN_FLIGHT_MAX, DEPTH_MAX, FILES_IN_FLIGHT_MAX, Options, Run};
pub use side::{
    Batch, Digest, Entry, Fault, FaultKind, FileIo, Finished, Moved, Moving, OpenHow, Side, Span,
    Whole,
};
pub(crate) use temp::{join, split};
