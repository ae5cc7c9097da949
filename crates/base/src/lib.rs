//! What every layer of fullbore shares and none owns: time, byte buffers, ranges, rates, seeded
//! randomness. Nothing here does I/O.

mod buf;
mod instant;
mod outlet;
mod range_set;
mod rate;
mod rng;
mod timers;

pub use buf::{ByteQueue, RxBuf, TxBuf};
pub use instant::Instant;
pub use outlet::{Outlet, gather, scatter};
pub use range_set::RangeSet;
pub use rate::Rate;
pub use rng::Rng;
pub use timers::Timers;
