//! What every layer of fullbore shares and none owns: time, byte buffers, ranges, rates, seeded
//! randomness. Nothing here does I/O.

mod buf;
mod instant;
mod outlet;

pub use buf::{ByteQueue, RxBuf, TxBuf};
pub use instant::Instant;
pub use outlet::{Outlet, gather, scatter};
