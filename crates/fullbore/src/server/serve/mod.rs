//! `fullbore serve`: a whole SSH file server in one process.
//!
//! ```text
//! accept thread ── gate ──► worker threads, one for each core ── a task for each connection
//!                                      └──────► file threads, for calls that may block
//! ```

pub mod auth;
mod connection;
mod door;
pub mod gate;
pub mod helper;
pub mod host_key;
mod listen;
pub mod log;
pub mod options;
pub mod password;
mod run;
mod turned_away;
mod udp;

pub use listen::{HostKeyLine, ServeError, Server};
pub use options::ServeOptions;
pub use run::run;
