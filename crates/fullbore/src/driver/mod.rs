//! Where the engines meet the machine: sockets, clocks, randomness, threads.
//!
//! Nothing in here knows SSH or SFTP messages. [`pump::Pump`] moves bytes between a
//! [`stream::Stream`] and anything that is [`pump::Driven`], and keeps its timer.

pub mod budget;
pub mod cipher_speed;
pub mod clock;
pub mod close;
pub mod detach;
pub mod dial;
pub mod environment;
mod file;
pub mod local;
pub mod local_socket;
pub mod local_time;
pub mod net;
pub mod pool;
pub mod pump;
pub mod random;
pub mod signals;
pub mod stream;
pub mod sysctl;
pub mod tcp_info;
pub mod terminal;
pub mod thread_clock;
pub mod tun;
pub mod udp;
