//! What limits a transfer: counters of the engines, of the kernel's TCP and of the thread in, a
//! [`Limit`] with its evidence out. Without I/O: the driver takes the samples.
//!
//! A connection's task is at each moment either at work or asleep, and when it falls asleep it is
//! known what for ([`Wait`]). [`Waits`] adds those times up; that is most of the answer. Some causes
//! look alike from there, and are told apart by figures of the same interval:
//!
//! ```text
//! asleep for                     and                                          limit
//! room in the socket             peer's TCP window closed, and it is small    TcpReceiveWindow
//!                                the same, and it is large                    RemoteProcessing
//!                                all of the send buffer is in flight          SendBuffer
//!                                neither                                      TcpCongestion
//! credit of the channel          credit comes back within 1.5 round trips     PeerWindow
//!                                later, and the socket is empty               RemoteProcessing
//! room for requests, replies     replies take 1.5 round trips                 RequestsOutstanding
//!                                a window's worth arrives per round trip      CreditBudget, TcpReceiveWindow
//!                                segments go missing, queues stand            TcpCongestion
//!                                none of these                                RemoteProcessing
//!                                nothing arrives at all                       RemoteSilent
//! the user's rate limit                                                       RateLimit
//! at work: running or waiting for a processor                                 Cpu
//! at work: in a read or write of a file, not running                          DiskRead, DiskWrite
//! ```
//!
//! The line between "the size is the limit" and "the far end is" is Little's law: `bytes outstanding =
//! rate x time until they come back`. Worked example: 2 MiB of credit, 10.5 MB/s: credit is back in
//! 200 ms. At a round trip of 199 ms the window is the limit; at 10 ms the far end takes its time.

mod classify;
pub mod doctor;
mod lanes;
mod limit;
mod meter;
mod sample;
mod units;
mod waits;

#[cfg(test)]
mod tests;

pub use classify::is_path_queueing;
pub use lanes::{LaneCounts, is_receiving, lanes_wait, outstanding_count};
pub use limit::{End, Evidence, Flow, Limit, LimitKind};
pub use meter::{Interval, Meter, Totals};
pub use sample::{DiskTimes, LaneFacts, Sample, ThreadTimes};
pub use units::{binary_bytes, decimal_bytes, millis};
pub use waits::{Wait, WaitTimes, Waits};
