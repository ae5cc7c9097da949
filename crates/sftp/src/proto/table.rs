//! One table of the requests: number or extension name, the name that flags and logs use, and
//! whether a request changes anything.

use super::{ext, fxp};

/// The kind of a request, in the order in which OpenSSH lists them.
#[allow(missing_docs)] // The names are the drafts' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    Open,
    Close,
    Read,
    Write,
    Lstat,
    Fstat,
    Setstat,
    Fsetstat,
    Opendir,
    Readdir,
    Remove,
    Mkdir,
    Rmdir,
    Realpath,
    Stat,
    Rename,
    Readlink,
    Symlink,
    PosixRename,
    Statvfs,
    Fstatvfs,
    Hardlink,
    Fsync,
    Lsetstat,
    Limits,
    ExpandPath,
    CopyData,
    HomeDirectory,
    UsersGroupsById,
    CheckFile,
}

use RequestKind as K;

impl RequestKind {
    /// Every kind, in table order.
    pub const ALL: [Self; 30] = [
        K::Open,
        K::Close,
        K::Read,
        K::Write,
        K::Lstat,
        K::Fstat,
        K::Setstat,
        K::Fsetstat,
        K::Opendir,
        K::Readdir,
        K::Remove,
        K::Mkdir,
        K::Rmdir,
        K::Realpath,
        K::Stat,
        K::Rename,
        K::Readlink,
        K::Symlink,
        K::PosixRename,
        K::Statvfs,
        K::Fstatvfs,
        K::Hardlink,
        K::Fsync,
        K::Lsetstat,
        K::Limits,
        K::ExpandPath,
        K::CopyData,
        K::HomeDirectory,
        K::UsersGroupsById,
        K::CheckFile,
    ];

    /// The name that `-p`, `-P` and `-Q requests` use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            K::Open => "open",
            K::Close => "close",
            K::Read => "read",
            K::Write => "write",
            K::Lstat => "lstat",
            K::Fstat => "fstat",
            K::Setstat => "setstat",
            K::Fsetstat => "fsetstat",
            K::Opendir => "opendir",
            K::Readdir => "readdir",
            K::Remove => "remove",
            K::Mkdir => "mkdir",
            K::Rmdir => "rmdir",
            K::Realpath => "realpath",
            K::Stat => "stat",
            K::Rename => "rename",
            K::Readlink => "readlink",
            K::Symlink => "symlink",
            K::PosixRename => "posix-rename",
            K::Statvfs => "statvfs",
            K::Fstatvfs => "fstatvfs",
            K::Hardlink => "hardlink",
            K::Fsync => "fsync",
            K::Lsetstat => "lsetstat",
            K::Limits => "limits",
            K::ExpandPath => "expand-path",
            K::CopyData => "copy-data",
            K::HomeDirectory => "home-directory",
            K::UsersGroupsById => "users-groups-by-id",
            K::CheckFile => "check-file",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The packet type of the request; [`fxp::SSH_FXP_EXTENDED`] for extensions.
    #[must_use]
    pub const fn packet_type(self) -> u8 {
        match self {
            K::Open => fxp::SSH_FXP_OPEN,
            K::Close => fxp::SSH_FXP_CLOSE,
            K::Read => fxp::SSH_FXP_READ,
            K::Write => fxp::SSH_FXP_WRITE,
            K::Lstat => fxp::SSH_FXP_LSTAT,
            K::Fstat => fxp::SSH_FXP_FSTAT,
            K::Setstat => fxp::SSH_FXP_SETSTAT,
            K::Fsetstat => fxp::SSH_FXP_FSETSTAT,
            K::Opendir => fxp::SSH_FXP_OPENDIR,
            K::Readdir => fxp::SSH_FXP_READDIR,
            K::Remove => fxp::SSH_FXP_REMOVE,
            K::Mkdir => fxp::SSH_FXP_MKDIR,
            K::Rmdir => fxp::SSH_FXP_RMDIR,
            K::Realpath => fxp::SSH_FXP_REALPATH,
            K::Stat => fxp::SSH_FXP_STAT,
            K::Rename => fxp::SSH_FXP_RENAME,
            K::Readlink => fxp::SSH_FXP_READLINK,
            K::Symlink => fxp::SSH_FXP_SYMLINK,
            K::PosixRename
            | K::Statvfs
            | K::Fstatvfs
            | K::Hardlink
            | K::Fsync
            | K::Lsetstat
            | K::Limits
            | K::ExpandPath
            | K::CopyData
            | K::HomeDirectory
            | K::UsersGroupsById
            | K::CheckFile => fxp::SSH_FXP_EXTENDED,
        }
    }

    /// Name and data under which VERSION announces the request, for extensions.
    #[must_use]
    pub const fn extension(self) -> Option<(&'static str, &'static str)> {
        match self {
            K::PosixRename => Some((ext::POSIX_RENAME, "1")),
            K::Statvfs => Some((ext::STATVFS, "2")),
            K::Fstatvfs => Some((ext::FSTATVFS, "2")),
            K::Hardlink => Some((ext::HARDLINK, "1")),
            K::Fsync => Some((ext::FSYNC, "1")),
            K::Lsetstat => Some((ext::LSETSTAT, "1")),
            K::Limits => Some((ext::LIMITS, "1")),
            K::ExpandPath => Some((ext::EXPAND_PATH, "1")),
            K::CopyData => Some((ext::COPY_DATA, "1")),
            K::HomeDirectory => Some((ext::HOME_DIRECTORY, "1")),
            K::UsersGroupsById => Some((ext::USERS_GROUPS_BY_ID, "1")),
            K::CheckFile => Some((ext::CHECK_FILE, super::HashAlgorithm::LIST)),
            K::Open
            | K::Close
            | K::Read
            | K::Write
            | K::Lstat
            | K::Fstat
            | K::Setstat
            | K::Fsetstat
            | K::Opendir
            | K::Readdir
            | K::Remove
            | K::Mkdir
            | K::Rmdir
            | K::Realpath
            | K::Stat
            | K::Rename
            | K::Readlink
            | K::Symlink => None,
        }
    }

    /// Whether the request always changes something, so that a read-only server refuses it.
    /// OPEN is judged by its flags instead.
    #[must_use]
    pub const fn is_writing(self) -> bool {
        matches!(
            self,
            K::Write
                | K::Setstat
                | K::Fsetstat
                | K::Remove
                | K::Mkdir
                | K::Rmdir
                | K::Rename
                | K::Symlink
                | K::PosixRename
                | K::Hardlink
                | K::Fsync
                | K::Lsetstat
                | K::CopyData
        )
    }
}

/// A set of request kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSet(u32);

impl RequestSet {
    /// No request.
    pub const NONE: Self = Self(0);
    /// Every request.
    pub const ALL: Self = Self((1 << RequestKind::ALL.len()) - 1);

    /// Whether `kind` is in the set.
    #[must_use]
    pub const fn contains(self, kind: RequestKind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }

    /// Adds `kind`.
    pub const fn insert(&mut self, kind: RequestKind) {
        self.0 |= 1 << kind as u32;
    }

    /// Takes `kind` out.
    pub const fn remove(&mut self, kind: RequestKind) {
        self.0 &= !(1 << kind as u32);
    }
}
