//! Requests, client to server.

use super::extension::{CheckFile, Ids, ext};
use super::{Attrs, Packet, RequestKind, fxp, write_header};
use crate::wire::{Count, InvalidMessage, Put, Reader, len_u32};

/// Flags of OPEN (draft-ietf-secsh-filexfer-02 section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// SSH_FXF_READ
    pub const READ: Self = Self(0x01);
    /// SSH_FXF_WRITE
    pub const WRITE: Self = Self(0x02);
    /// SSH_FXF_APPEND
    pub const APPEND: Self = Self(0x04);
    /// SSH_FXF_CREAT
    pub const CREAT: Self = Self(0x08);
    /// SSH_FXF_TRUNC
    pub const TRUNC: Self = Self(0x10);
    /// SSH_FXF_EXCL
    pub const EXCL: Self = Self(0x20);

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags and those.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// The order of the two paths in SYMLINK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SymlinkOrder {
    /// Target, then link: what OpenSSH made of the draft, and nearly everybody after it.
    #[default]
    OpenSsh,
    /// Link, then target: the draft's, and that of some clients when the server's banner does
    /// not say OpenSSH.
    Draft,
}

/// The fields of a WRITE in front of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHead<'a> {
    /// The file.
    pub handle: &'a [u8],
    /// Where the payload goes.
    pub offset: u64,
}

/// A request; all bytes are borrowed from the packet.
#[allow(missing_docs)] // The fields are the drafts' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Open {
        path: &'a [u8],
        flags: OpenFlags,
        attrs: Attrs,
    },
    Close {
        handle: &'a [u8],
    },
    Read {
        handle: &'a [u8],
        offset: u64,
        len: u32,
    },
    Write {
        handle: &'a [u8],
        offset: u64,
        data: &'a [u8],
    },
    Lstat {
        path: &'a [u8],
    },
    Fstat {
        handle: &'a [u8],
    },
    Setstat {
        path: &'a [u8],
        attrs: Attrs,
    },
    Fsetstat {
        handle: &'a [u8],
        attrs: Attrs,
    },
    Opendir {
        path: &'a [u8],
    },
    Readdir {
        handle: &'a [u8],
    },
    Remove {
        path: &'a [u8],
    },
    Mkdir {
        path: &'a [u8],
        attrs: Attrs,
    },
    Rmdir {
        path: &'a [u8],
    },
    Realpath {
        path: &'a [u8],
    },
    Stat {
        path: &'a [u8],
    },
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    Readlink {
        path: &'a [u8],
    },
    /// Parsed and encoded in OpenSSH's order; see [`Request::in_order`].
    Symlink {
        target: &'a [u8],
        link: &'a [u8],
    },
    PosixRename {
        from: &'a [u8],
        to: &'a [u8],
    },
    Statvfs {
        path: &'a [u8],
    },
    Fstatvfs {
        handle: &'a [u8],
    },
    Hardlink {
        from: &'a [u8],
        to: &'a [u8],
    },
    Fsync {
        handle: &'a [u8],
    },
    Lsetstat {
        path: &'a [u8],
        attrs: Attrs,
    },
    Limits,
    ExpandPath {
        path: &'a [u8],
    },
    /// A `len` of 0 copies to the end of the file.
    CopyData {
        from: &'a [u8],
        from_offset: u64,
        len: u64,
        to: &'a [u8],
        to_offset: u64,
    },
    /// An empty name asks for the user's own home.
    HomeDirectory {
        user: &'a [u8],
    },
    UsersGroupsById {
        uids: Ids<'a>,
        gids: Ids<'a>,
    },
    CheckFileName {
        path: &'a [u8],
        check: CheckFile<'a>,
    },
    /// `echo`: the request was named "check-file", and its sender expects that name in front
    /// of the reply.
    CheckFileHandle {
        handle: &'a [u8],
        check: CheckFile<'a>,
        echo: bool,
    },
    /// An extension that we do not know.
    UnknownExtended {
        name: &'a [u8],
    },
    /// A packet type that we do not know.
    Unknown {
        packet_type: u8,
    },
}

impl<'a> Request<'a> {
    /// Parses the body of any request but INIT into its id and itself. Bytes behind the last
    /// field are ignored, as OpenSSH does.
    ///
    /// # Errors
    /// When a field is cut or a path holds a zero byte.
    pub fn parse(packet: Packet<'a>) -> Result<(u32, Self), InvalidMessage> {
        let reader = &mut Reader::new(packet.body);
        let id = reader.u32("request id")?;
        let request = match packet.kind {
            fxp::SSH_FXP_READ => Self::Read {
                handle: reader.string("handle")?,
                offset: reader.u64("offset")?,
                len: reader.u32("length")?,
            },
            fxp::SSH_FXP_WRITE => Self::Write {
                handle: reader.string("handle")?,
                offset: reader.u64("offset")?,
                data: reader.string("data")?,
            },
            fxp::SSH_FXP_EXTENDED => Self::parse_extended(reader)?,
            packet_type => Self::parse_plain(packet_type, reader)?,
        };
        Ok((id, request))
    }

    fn parse_plain(packet_type: u8, r: &mut Reader<'a>) -> Result<Self, InvalidMessage> {
        let handle = |r: &mut Reader<'a>| r.string("handle");
        let path = |r: &mut Reader<'a>| r.path("path");
        Ok(match packet_type {
            fxp::SSH_FXP_OPEN => Self::Open {
                path: path(r)?,
                flags: OpenFlags(r.u32("open flags")?),
                attrs: Attrs::parse(r)?,
            },
            fxp::SSH_FXP_CLOSE => Self::Close { handle: handle(r)? },
            fxp::SSH_FXP_LSTAT => Self::Lstat { path: path(r)? },
            fxp::SSH_FXP_FSTAT => Self::Fstat { handle: handle(r)? },
            fxp::SSH_FXP_SETSTAT => Self::Setstat {
                path: path(r)?,
                attrs: Attrs::parse(r)?,
            },
            fxp::SSH_FXP_FSETSTAT => Self::Fsetstat {
                handle: handle(r)?,
                attrs: Attrs::parse(r)?,
            },
            fxp::SSH_FXP_OPENDIR => Self::Opendir { path: path(r)? },
            fxp::SSH_FXP_READDIR => Self::Readdir { handle: handle(r)? },
            fxp::SSH_FXP_REMOVE => Self::Remove { path: path(r)? },
            fxp::SSH_FXP_MKDIR => Self::Mkdir {
                path: path(r)?,
                attrs: Attrs::parse(r)?,
            },
            fxp::SSH_FXP_RMDIR => Self::Rmdir { path: path(r)? },
            fxp::SSH_FXP_REALPATH => Self::Realpath { path: path(r)? },
            fxp::SSH_FXP_STAT => Self::Stat { path: path(r)? },
            fxp::SSH_FXP_RENAME => Self::Rename {
                from: path(r)?,
                to: path(r)?,
            },
            fxp::SSH_FXP_READLINK => Self::Readlink { path: path(r)? },
            fxp::SSH_FXP_SYMLINK => Self::Symlink {
                target: path(r)?,
                link: path(r)?,
            },
            packet_type => Self::Unknown { packet_type },
        })
    }

    fn parse_extended(r: &mut Reader<'a>) -> Result<Self, InvalidMessage> {
        let name = r.string("extension name")?;
        let path = |r: &mut Reader<'a>| r.path("path");
        let handle = |r: &mut Reader<'a>| r.string("handle");
        Ok(match std::str::from_utf8(name).unwrap_or_default() {
            ext::POSIX_RENAME => Self::PosixRename {
                from: path(r)?,
                to: path(r)?,
            },
            ext::STATVFS => Self::Statvfs { path: path(r)? },
            ext::FSTATVFS => Self::Fstatvfs { handle: handle(r)? },
            ext::HARDLINK => Self::Hardlink {
                from: path(r)?,
                to: path(r)?,
            },
            ext::FSYNC => Self::Fsync { handle: handle(r)? },
            ext::LSETSTAT => Self::Lsetstat {
                path: path(r)?,
                attrs: Attrs::parse(r)?,
            },
            ext::LIMITS => Self::Limits,
            ext::EXPAND_PATH => Self::ExpandPath { path: path(r)? },
            ext::COPY_DATA => Self::CopyData {
                from: handle(r)?,
                from_offset: r.u64("offset")?,
                len: r.u64("length")?,
                to: handle(r)?,
                to_offset: r.u64("offset")?,
            },
            ext::HOME_DIRECTORY => Self::HomeDirectory {
                user: r.path("user name")?,
            },
            ext::USERS_GROUPS_BY_ID => Self::UsersGroupsById {
                uids: Ids::from_packed(r.string("user ids")?)?,
                gids: Ids::from_packed(r.string("group ids")?)?,
            },
            ext::CHECK_FILE_NAME => Self::CheckFileName {
                path: path(r)?,
                check: CheckFile::parse(r)?,
            },
            known @ (ext::CHECK_FILE_HANDLE | ext::CHECK_FILE) => Self::CheckFileHandle {
                handle: handle(r)?,
                check: CheckFile::parse(r)?,
                echo: known == ext::CHECK_FILE,
            },
            _ => Self::UnknownExtended { name },
        })
    }

    /// The request for a peer with that order of SYMLINK paths. Its own inverse: a server uses
    /// it behind [`Request::parse`], a client before [`Request::encode`].
    #[must_use]
    pub const fn in_order(self, order: SymlinkOrder) -> Self {
        match (self, order) {
            (Self::Symlink { target, link }, SymlinkOrder::Draft) => Self::Symlink {
                target: link,
                link: target,
            },
            (request, SymlinkOrder::OpenSsh | SymlinkOrder::Draft) => request,
        }
    }

    /// The kind, but for requests that we do not know.
    #[must_use]
    pub const fn kind(&self) -> Option<RequestKind> {
        use RequestKind as K;
        Some(match self {
            Self::Open { .. } => K::Open,
            Self::Close { .. } => K::Close,
            Self::Read { .. } => K::Read,
            Self::Write { .. } => K::Write,
            Self::Lstat { .. } => K::Lstat,
            Self::Fstat { .. } => K::Fstat,
            Self::Setstat { .. } => K::Setstat,
            Self::Fsetstat { .. } => K::Fsetstat,
            Self::Opendir { .. } => K::Opendir,
            Self::Readdir { .. } => K::Readdir,
            Self::Remove { .. } => K::Remove,
            Self::Mkdir { .. } => K::Mkdir,
            Self::Rmdir { .. } => K::Rmdir,
            Self::Realpath { .. } => K::Realpath,
            Self::Stat { .. } => K::Stat,
            Self::Rename { .. } => K::Rename,
            Self::Readlink { .. } => K::Readlink,
            Self::Symlink { .. } => K::Symlink,
            Self::PosixRename { .. } => K::PosixRename,
            Self::Statvfs { .. } => K::Statvfs,
            Self::Fstatvfs { .. } => K::Fstatvfs,
            Self::Hardlink { .. } => K::Hardlink,
            Self::Fsync { .. } => K::Fsync,
            Self::Lsetstat { .. } => K::Lsetstat,
            Self::Limits => K::Limits,
            Self::ExpandPath { .. } => K::ExpandPath,
            Self::CopyData { .. } => K::CopyData,
            Self::HomeDirectory { .. } => K::HomeDirectory,
            Self::UsersGroupsById { .. } => K::UsersGroupsById,
            Self::CheckFileName { .. } | Self::CheckFileHandle { .. } => K::CheckFile,
            Self::UnknownExtended { .. } | Self::Unknown { .. } => return None,
        })
    }

    /// Bytes of the whole packet, its length word included.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let mut count = Count::default();
        self.encode_fields(&mut count);
        super::LEN_WORD + 1 + 4 + count.0
    }

    /// Appends the whole packet, its length word included.
    pub fn encode(&self, id: u32, sink: &mut impl Put) {
        if let Self::Write {
            handle,
            offset,
            data,
        } = *self
        {
            let head = WriteHead { handle, offset };
            write_header(sink, id, head, data.len());
            sink.put_raw(data);
            return;
        }
        let packet_type = if let Self::Unknown { packet_type } = self {
            *packet_type
        } else {
            self.kind()
                .map_or(fxp::SSH_FXP_EXTENDED, RequestKind::packet_type)
        };
        sink.put_u32(len_u32(self.encoded_len() - super::LEN_WORD));
        sink.put_raw(&[packet_type]);
        sink.put_u32(id);
        self.encode_fields(sink);
    }

    /// Everything behind the request id.
    fn encode_fields(&self, sink: &mut impl Put) {
        match *self {
            Self::Open { path, flags, attrs } => {
                sink.put_string(path);
                sink.put_u32(flags.0);
                attrs.encode(sink);
            }
            Self::Read {
                handle,
                offset,
                len,
            } => {
                sink.put_string(handle);
                sink.put_u64(offset);
                sink.put_u32(len);
            }
            Self::Write {
                handle,
                offset,
                data,
            } => {
                sink.put_string(handle);
                sink.put_u64(offset);
                sink.put_string(data);
            }
            Self::Close { handle } | Self::Fstat { handle } | Self::Readdir { handle } => {
                sink.put_string(handle);
            }
            Self::Lstat { path }
            | Self::Opendir { path }
            | Self::Remove { path }
            | Self::Rmdir { path }
            | Self::Realpath { path }
            | Self::Stat { path }
            | Self::Readlink { path } => sink.put_string(path),
            Self::Setstat { path, attrs } | Self::Mkdir { path, attrs } => {
                sink.put_string(path);
                attrs.encode(sink);
            }
            Self::Fsetstat { handle, attrs } => {
                sink.put_string(handle);
                attrs.encode(sink);
            }
            Self::Rename { from, to } => {
                sink.put_string(from);
                sink.put_string(to);
            }
            Self::Symlink { target, link } => {
                sink.put_string(target);
                sink.put_string(link);
            }
            Self::UnknownExtended { name } => sink.put_string(name),
            Self::Unknown { .. } => {}
            Self::PosixRename { .. }
            | Self::Hardlink { .. }
            | Self::Statvfs { .. }
            | Self::ExpandPath { .. }
            | Self::Fstatvfs { .. }
            | Self::Fsync { .. }
            | Self::Lsetstat { .. }
            | Self::Limits
            | Self::CopyData { .. }
            | Self::HomeDirectory { .. }
            | Self::UsersGroupsById { .. }
            | Self::CheckFileName { .. }
            | Self::CheckFileHandle { .. } => self.encode_extended(sink),
        }
    }

    /// Name and fields of an extension.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "`encode_fields` tells all requests apart"
    )]
    fn encode_extended(&self, sink: &mut impl Put) {
        sink.put_string(self.extension_name().as_bytes());
        match *self {
            Self::PosixRename { from, to } | Self::Hardlink { from, to } => {
                sink.put_string(from);
                sink.put_string(to);
            }
            Self::Statvfs { path } | Self::ExpandPath { path } => sink.put_string(path),
            Self::Fstatvfs { handle } | Self::Fsync { handle } => sink.put_string(handle),
            Self::Lsetstat { path, attrs } => {
                sink.put_string(path);
                attrs.encode(sink);
            }
            Self::CopyData {
                from,
                from_offset,
                len,
                to,
                to_offset,
            } => {
                sink.put_string(from);
                sink.put_u64(from_offset);
                sink.put_u64(len);
                sink.put_string(to);
                sink.put_u64(to_offset);
            }
            Self::HomeDirectory { user } => sink.put_string(user),
            Self::UsersGroupsById { uids, gids } => {
                sink.put_string(uids.as_bytes());
                sink.put_string(gids.as_bytes());
            }
            Self::CheckFileName { path, check } => {
                sink.put_string(path);
                check.encode(sink);
            }
            Self::CheckFileHandle { handle, check, .. } => {
                sink.put_string(handle);
                check.encode(sink);
            }
            // `Limits` has no fields; the rest are no extensions.
            _ => {}
        }
    }

    fn extension_name(&self) -> &'static str {
        if let Self::CheckFileHandle { echo: false, .. } = self {
            return ext::CHECK_FILE_HANDLE;
        }
        if let Self::CheckFileName { .. } = self {
            return ext::CHECK_FILE_NAME;
        }
        let extension = self.kind().and_then(RequestKind::extension);
        extension.map_or("", |(name, _)| name)
    }
}
