//! The server's side.

pub mod serve;
pub mod sftp_server;
pub mod store;
