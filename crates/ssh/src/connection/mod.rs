//! The front door: joins transport, authentication and channels for either role.

mod event;

pub use event::{Event, Transmit};
