//! The wire format of SFTP version 3 and its extensions, both directions. Names are bytes.
//! Parsing borrows, checks every bound and allocates nothing; counts that a peer claims are
//! checked against the bytes that are there.
//!
//! Read first: draft-ietf-secsh-filexfer-02; OpenSSH's PROTOCOL section 4;
//! draft-ietf-secsh-filexfer-extensions-00 (check-file, copy-data, home-directory).

mod attrs;
mod extension;
mod packet;
mod reply;
mod request;
mod status;
mod table;

pub use attrs::{Attrs, FileType};
pub use extension::{
    CheckFile, CheckFileReply, Extensions, HashAlgorithm, Ids, Limits, NamesById, StatVfs, ext,
    put_extension,
};
pub use packet::{
    LEN_WORD, Packet, data_header, encode_init, next_packet, parse_init, write_header,
    write_header_len,
};
pub use reply::{Name, NameList, Reply, Version};
pub use request::{OpenFlags, Request, SymlinkOrder, WriteHead};
pub use status::Code;
pub use table::{RequestKind, RequestSet};

/// Packet types (draft-ietf-secsh-filexfer-02 section 3).
#[allow(missing_docs)] // The names are the draft's own.
pub mod fxp {
    pub const SSH_FXP_INIT: u8 = 1;
    pub const SSH_FXP_VERSION: u8 = 2;
    pub const SSH_FXP_OPEN: u8 = 3;
    pub const SSH_FXP_CLOSE: u8 = 4;
    pub const SSH_FXP_READ: u8 = 5;
    pub const SSH_FXP_WRITE: u8 = 6;
    pub const SSH_FXP_LSTAT: u8 = 7;
    pub const SSH_FXP_FSTAT: u8 = 8;
    pub const SSH_FXP_SETSTAT: u8 = 9;
    pub const SSH_FXP_FSETSTAT: u8 = 10;
    pub const SSH_FXP_OPENDIR: u8 = 11;
    pub const SSH_FXP_READDIR: u8 = 12;
    pub const SSH_FXP_REMOVE: u8 = 13;
    pub const SSH_FXP_MKDIR: u8 = 14;
    pub const SSH_FXP_RMDIR: u8 = 15;
    pub const SSH_FXP_REALPATH: u8 = 16;
    pub const SSH_FXP_STAT: u8 = 17;
    pub const SSH_FXP_RENAME: u8 = 18;
    pub const SSH_FXP_READLINK: u8 = 19;
    pub const SSH_FXP_SYMLINK: u8 = 20;
    pub const SSH_FXP_STATUS: u8 = 101;
    pub const SSH_FXP_HANDLE: u8 = 102;
    pub const SSH_FXP_DATA: u8 = 103;
    pub const SSH_FXP_NAME: u8 = 104;
    pub const SSH_FXP_ATTRS: u8 = 105;
    pub const SSH_FXP_EXTENDED: u8 = 200;
    pub const SSH_FXP_EXTENDED_REPLY: u8 = 201;
}

/// The protocol version spoken here.
pub const VERSION: u32 = 3;

/// The longest packet that OpenSSH takes, without its length word (`SFTP_MAX_MSG_LENGTH`).
pub const PACKET_BYTES_MAX: u32 = 256 * 1024;

/// The longest READ or WRITE payload: a packet less 1 KiB for its header, as OpenSSH has it.
pub const DATA_BYTES_MAX: u32 = PACKET_BYTES_MAX - 1024;

/// Bytes in front of the payload of a DATA reply: length, type, id, payload length.
pub const DATA_HEADER_LEN: usize = 4 + 1 + 4 + 4;

/// The longest handle a server may give out (draft section 6.2).
pub const HANDLE_BYTES_MAX: usize = 256;

#[cfg(test)]
pub(crate) mod tests;
