//! The copy planner: turns sources and a target into files, and files into transfers that never
//! leave a wrong or half file under a final name.

mod observer;
mod side;

pub use observer::{Event, Observer, Silent, Summary};
pub use side::{Digest, Entry, Fault, FaultKind, FileIo, Moved, Moving, OpenHow, Side, Span};
