//! Two connections in memory, their applications, and what the tests ask of them.

// Each test program uses its part.
#![allow(dead_code, unused_imports)]

pub mod apps;
pub mod node;
pub mod raw;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod real;
pub mod setup;

pub use apps::{Client, Server};
pub use node::{App, Node};
pub use raw::Raw;
pub use setup::*;
