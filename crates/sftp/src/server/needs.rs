//! What a request needs before it is served, and what it costs: room for its reply, files, a share of the turn.

use super::handles::Use;
use super::pending::Uses;
use super::reply::{PATH_REPLY_LEN_MAX, SMALL_REPLY_LEN_MAX};
use super::{Config, Server};
use crate::proto::{DATA_HEADER_LEN, Request};

/// How many short requests a walk along a path counts for: it looks at each component by itself.
const WALK_WORK: u32 = 32;

/// What one call of [`Server::handle_input`] has done so far.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) count: u32,
    pub(super) bytes: usize,
}

impl Turn {
    pub(super) const fn is_over(&self, config: &Config) -> bool {
        self.count >= config.work_count_max || self.bytes >= config.work_bytes_max
    }
}

/// What serving a request may cost.
pub(super) struct Cost {
    /// The longest reply, its length word included.
    pub(super) reply_len_max: usize,
    /// What counts of it for the turn: only replies that carry data.
    pub(super) reply_bytes: usize,
    /// In short requests.
    pub(super) work: u32,
}

impl Cost {
    const fn of(reply_len_max: usize) -> Self {
        Self {
            reply_len_max,
            reply_bytes: 0,
            work: 1,
        }
    }

    const fn of_data(reply_len_max: usize) -> Self {
        Self {
            reply_bytes: reply_len_max,
            ..Self::of(reply_len_max)
        }
    }
}

impl Server {
    /// What serving a request may cost.
    pub(super) fn cost(&self, request: &Request<'_>) -> Cost {
        match request {
            Request::Read { len, .. } => {
                let len = (*len).min(self.config.read_bytes_max());
                Cost::of_data(SMALL_REPLY_LEN_MAX.max(DATA_HEADER_LEN + len as usize))
            }
            Request::Readdir { .. } => Cost::of_data(self.readdir_len()),
            Request::UsersGroupsById { .. } => Cost::of_data(self.config.reply_len_max()),
            Request::Realpath { .. } | Request::ExpandPath { .. } => Cost {
                work: WALK_WORK,
                ..Cost::of(PATH_REPLY_LEN_MAX)
            },
            Request::Readlink { .. } | Request::HomeDirectory { .. } => {
                Cost::of(PATH_REPLY_LEN_MAX)
            }
            Request::CheckFileName { .. } | Request::CheckFileHandle { .. } => {
                Cost::of(self.config.reply_len_max())
            }
            Request::Open { .. }
            | Request::Close { .. }
            | Request::Write { .. }
            | Request::Lstat { .. }
            | Request::Fstat { .. }
            | Request::Setstat { .. }
            | Request::Fsetstat { .. }
            | Request::Opendir { .. }
            | Request::Remove { .. }
            | Request::Mkdir { .. }
            | Request::Rmdir { .. }
            | Request::Stat { .. }
            | Request::Rename { .. }
            | Request::Symlink { .. }
            | Request::PosixRename { .. }
            | Request::Statvfs { .. }
            | Request::Fstatvfs { .. }
            | Request::Hardlink { .. }
            | Request::Fsync { .. }
            | Request::Lsetstat { .. }
            | Request::Limits
            | Request::CopyData { .. }
            | Request::UnknownExtended { .. }
            | Request::Unknown { .. } => Cost::of(SMALL_REPLY_LEN_MAX),
        }
    }

    pub(super) fn readdir_len(&self) -> usize {
        self.config
            .readdir_bytes_max
            .clamp(SMALL_REPLY_LEN_MAX, self.config.reply_len_max())
    }

    /// The open files that a request uses, and how. Unknown handles are left to its execution.
    pub(super) fn uses(&self, request: &Request<'_>) -> Uses {
        let find = |handle: &[u8], how| self.handles.find(handle).map(|(file, _)| (file, how));
        match request {
            Request::Read { handle, .. }
            | Request::Fstat { handle }
            | Request::Fstatvfs { handle }
            | Request::CheckFileHandle { handle, .. } => [find(handle, Use::Shared), None],
            Request::Close { handle }
            | Request::Write { handle, .. }
            | Request::Fsetstat { handle, .. }
            | Request::Readdir { handle }
            | Request::Fsync { handle } => [find(handle, Use::Exclusive), None],
            Request::CopyData { from, to, .. } => {
                [find(from, Use::Shared), find(to, Use::Exclusive)]
            }
            Request::Open { .. }
            | Request::Lstat { .. }
            | Request::Setstat { .. }
            | Request::Opendir { .. }
            | Request::Remove { .. }
            | Request::Mkdir { .. }
            | Request::Rmdir { .. }
            | Request::Realpath { .. }
            | Request::Stat { .. }
            | Request::Rename { .. }
            | Request::Readlink { .. }
            | Request::Symlink { .. }
            | Request::PosixRename { .. }
            | Request::Statvfs { .. }
            | Request::Hardlink { .. }
            | Request::Lsetstat { .. }
            | Request::Limits
            | Request::ExpandPath { .. }
            | Request::HomeDirectory { .. }
            | Request::UsersGroupsById { .. }
            | Request::CheckFileName { .. }
            | Request::UnknownExtended { .. }
            | Request::Unknown { .. } => [None, None],
        }
    }
}
