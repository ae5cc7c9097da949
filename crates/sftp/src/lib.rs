//! SFTP version 3 (draft-ietf-secsh-filexfer-02) with OpenSSH's extensions: the codec and two
//! engines, a server and a client. Nothing here does I/O: bytes come in as a contiguous view,
//! leave through a [`fullbore_base::Outlet`], and files are reached through traits.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod client;
pub mod proto;
pub mod server;
mod wire;

pub use wire::{InvalidMessage, Put, SliceSink};
