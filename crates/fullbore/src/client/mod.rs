//! The client's side: connections to servers as async handles.
//!
//! Everything here lives on one thread, inside a [`tokio::task::LocalSet`]: each connection has a
//! task that moves its bytes, handles change its state directly. When a connection dies, every
//! call that waits on it ends with the reason.

mod agent;
mod ahead;
mod ask;
mod connect;
mod connection;
mod contact;
mod core;
mod describe;
mod doctor;
mod error;
mod finish;
mod host_key;
mod host_keys;
mod keys;
mod lane;
mod login;
mod master;
mod milestones;
mod over_udp;
mod patience;
mod proposal;
mod reconnect;
mod remembered;
mod sftp;
mod shared;
mod tunnel;
mod waiting;
mod watch;

pub use ahead::{AHEAD_MAX, Ahead};
pub use ask::Asker;
pub use connect::{
    Context, JUMPS_MAX, algorithm_defaults, connect, connect_ahead, connect_only, connect_over,
    connect_with,
};
pub use connection::{Connection, ExecOutput};
pub use doctor::Examination;
pub use error::Error;
pub use fullbore_sftp::client::Config as SftpConfig;
pub use lane::{Progress, Transferred};
pub use master::{CLIENTS_MAX, Master};
pub use milestones::Milestones;
pub use over_udp::{Moved, connect_udp};
pub use reconnect::Reconnect;
pub use sftp::{Digests, DirEntry, Sftp};
pub use shared::{master_of, stop_master};
