//! fullbore as a library: moves files over SSH as fast as the path allows.
//!
//! The engines (`fullbore-ssh`, `fullbore-sftp`, `fullbore-tcp`) do no I/O; this crate joins them and drives them:
//!
//! - [`session`]: the glue that runs SFTP over SSH channels, still without I/O.
//! - [`client`]: a connection to a server as async handles.
//! - [`server`]: `fullbore serve`, a whole SSH file server in one process.
//! - [`stack`]: many TCP connections of our own behind one object, without I/O.
//! - [`transfer`]: the copy planner.
//! - [`path`]: what limits a transfer.
//! - [`driver`]: sockets, clocks, randomness, threads: the only place that has them.
//! - [`udp`]: TCP segments in UDP datagrams, still without I/O.
//! - [`config`]: ssh_config, known_hosts, authorized_keys, key files, destinations.

pub mod client;
pub mod config;
pub mod driver;
pub mod path;
pub mod server;
pub mod session;
pub mod stack;
pub mod transfer;
pub mod udp;
