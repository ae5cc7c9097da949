//! Requests that are sent before anybody asks for their answers, so that they travel with the login.

use fullbore_sftp::proto::{Attrs, OpenFlags, Request};

/// A question about a path. Nothing is changed by asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Attributes; symbolic links are followed.
    Stat(Vec<u8>),
    /// Attributes; symbolic links are not followed.
    Lstat(Vec<u8>),
    /// The absolute path without links.
    Realpath(Vec<u8>),
    /// The file, open to be read.
    Open(Vec<u8>),
    /// The folder, open to be listed.
    Opendir(Vec<u8>),
}

/// Requests that are asked ahead at most; further ones wait for somebody to ask. Ours.
pub const AHEAD_MAX: usize = 64;

impl Ahead {
    /// As the call that it answers makes it.
    pub(super) fn request(&self) -> Request<'_> {
        match self {
            Self::Stat(path) => Request::Stat { path },
            Self::Lstat(path) => Request::Lstat { path },
            Self::Realpath(path) => Request::Realpath { path },
            Self::Opendir(path) => Request::Opendir { path },
            Self::Open(path) => Request::Open {
                path,
                flags: OpenFlags::READ,
                attrs: Attrs::EMPTY,
            },
        }
    }
}

/// Whether answers that came ahead still hold behind `request`: it changes nothing.
pub(super) const fn changes_nothing(request: &Request<'_>) -> bool {
    match request {
        Request::Stat { .. }
        | Request::Lstat { .. }
        | Request::Fstat { .. }
        | Request::Realpath { .. }
        | Request::Readlink { .. }
        | Request::Opendir { .. }
        | Request::Readdir { .. }
        | Request::Read { .. }
        | Request::Close { .. }
        | Request::Limits
        | Request::Statvfs { .. }
        | Request::Fstatvfs { .. }
        | Request::ExpandPath { .. }
        | Request::HomeDirectory { .. }
        | Request::UsersGroupsById { .. }
        | Request::CheckFileHandle { .. }
        | Request::CheckFileName { .. } => true,
        Request::Open { flags, .. } => flags.0 == OpenFlags::READ.0,
        Request::Write { .. }
        | Request::Setstat { .. }
        | Request::Fsetstat { .. }
        | Request::Lsetstat { .. }
        | Request::Remove { .. }
        | Request::Mkdir { .. }
        | Request::Rmdir { .. }
        | Request::Rename { .. }
        | Request::PosixRename { .. }
        | Request::Symlink { .. }
        | Request::Hardlink { .. }
        | Request::Fsync { .. }
        | Request::CopyData { .. }
        | Request::UnknownExtended { .. }
        | Request::Unknown { .. } => false,
    }
}
