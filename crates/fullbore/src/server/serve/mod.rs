//! `fullbore serve`: a whole SSH file server in one process.

pub mod gate;
pub mod host_key;
pub mod password;
