//! The copy planner: turns sources and a target into files, and files into transfers that never
//! leave a wrong or half file under a final name.

mod content;
mod file;
pub mod glob;
mod hash;
mod limit;
mod observer;
mod pool;
mod remote;
mod run;
mod side;
mod temp;
mod tree;
mod verify;

#[cfg(test)]
mod memory;
#[cfg(test)]
mod tests;

pub(crate) use hash::Hasher;
pub use limit::TokenBucket;
pub use observer::{Event, Observer, Silent, Summary};
pub use remote::{NAMES_MAX, SftpSide};
pub use run::{BYTES_IN_FLIGHT_MAX, DEPTH_MAX, FILES_IN_FLIGHT_MAX, Options, Run};
pub use side::{Digest, Entry, Fault, FaultKind, FileIo, Moved, Moving, OpenHow, Side, Span};
