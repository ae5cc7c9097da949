//! The configuration a user already has: `ssh_config`, `known_hosts`, `authorized_keys`, key files,
//! and the destinations typed on a command line.
//!
//! Owns the formats and the decisions taken from them. Everything here is a pure function over text:
//! what it needs of the outside (files, variables, the resolver, a command's verdict) comes in through
//! [`Environment`], whose real implementation lives in `driver`. Names of files and paths are bytes.
//!
//! The formats are OpenSSH's: ssh_config(5), sshd(8) "AUTHORIZED_KEYS FILE FORMAT" and
//! "SSH_KNOWN_HOSTS FILE FORMAT". Where OpenSSH's manual and program differ, the program is followed.

pub mod authorized_keys;
pub mod destination;
mod environment;
mod error;
pub mod known_hosts;
pub mod pattern;
pub mod prompt;
mod public_key;
pub mod quirks;
pub mod settings;
pub mod ssh_config;
pub mod text;

pub use environment::{Environment, FileFacts, expand_tilde};
pub use error::ConfigError;
pub use public_key::{KeyLine, fingerprint};

#[cfg(test)]
pub(crate) mod fake;

/// The longest configuration file that is read, in bytes. Ours: known_hosts files of large sites
/// reach tens of MiB; beyond this it is not a configuration file.
pub const FILE_BYTES_MAX: usize = 64 << 20;

/// The longest line that is looked at, in bytes. Ours: an RSA-16384 certificate with many principals
/// takes some 20 KiB in base64.
pub const LINE_BYTES_MAX: usize = 64 << 10;
