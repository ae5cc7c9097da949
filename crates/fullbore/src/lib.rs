//! fullbore as a library: moves files over SSH as fast as the path allows.
//!
//! The engines (`fullbore-ssh`, `fullbore-sftp`) do no I/O; this crate joins them and drives them:
//!
//! - [`transfer`]: the copy planner.
//! - [`driver`]: sockets, clocks, randomness, threads: the only place that has them.
//! - [`config`]: ssh_config, known_hosts, authorized_keys, key files, destinations.

pub mod config;
pub mod driver;
pub mod transfer;
