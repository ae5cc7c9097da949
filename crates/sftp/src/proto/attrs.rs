//! File attributes (draft-ietf-secsh-filexfer-02 section 5).

use crate::wire::{InvalidMessage, Put, Reader};

const SSH_FILEXFER_ATTR_SIZE: u32 = 0x1;
const SSH_FILEXFER_ATTR_UIDGID: u32 = 0x2;
const SSH_FILEXFER_ATTR_PERMISSIONS: u32 = 0x4;
const SSH_FILEXFER_ATTR_ACMODTIME: u32 = 0x8;
const SSH_FILEXFER_ATTR_EXTENDED: u32 = 0x8000_0000;

/// Attributes of a file; each group may be absent.
///
/// Extended pairs are checked when parsed and then dropped: nobody defines any for version 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Size in bytes.
    pub size: Option<u64>,
    /// Owner and group id.
    pub uid_gid: Option<(u32, u32)>,
    /// POSIX mode, type bits included.
    pub permissions: Option<u32>,
    /// Access and modification time, in seconds since 1970, modulo 2^32.
    pub times: Option<(u32, u32)>,
}

/// What kind of file the type bits of a mode name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Anything else: a device, a socket, a pipe.
    Special,
}

impl Attrs {
    /// The longest encoding, in bytes: every group that we ever write.
    pub const ENCODED_LEN_MAX: usize = 4 + 8 + 8 + 4 + 8;

    /// No attribute at all.
    pub const EMPTY: Self = Self {
        size: None,
        uid_gid: None,
        permissions: None,
        times: None,
    };

    /// What the type bits say, when permissions are there and carry any.
    #[must_use]
    pub const fn file_type(&self) -> Option<FileType> {
        match self.permissions {
            Some(mode) => match mode & 0o170_000 {
                0o100_000 => Some(FileType::Regular),
                0o040_000 => Some(FileType::Directory),
                0o120_000 => Some(FileType::Symlink),
                0 => None,
                _ => Some(FileType::Special),
            },
            None => None,
        }
    }

    /// Whether this is a folder, as far as the attributes tell.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
    }

    /// Appends the encoding.
    pub fn encode(&self, sink: &mut impl Put) {
        let mut flags = 0;
        for (is_there, flag) in [
            (self.size.is_some(), SSH_FILEXFER_ATTR_SIZE),
            (self.uid_gid.is_some(), SSH_FILEXFER_ATTR_UIDGID),
            (self.permissions.is_some(), SSH_FILEXFER_ATTR_PERMISSIONS),
            (self.times.is_some(), SSH_FILEXFER_ATTR_ACMODTIME),
        ] {
            if is_there {
                flags |= flag;
            }
        }
        sink.put_u32(flags);
        if let Some(size) = self.size {
            sink.put_u64(size);
        }
        if let Some((uid, gid)) = self.uid_gid {
            sink.put_u32(uid);
            sink.put_u32(gid);
        }
        if let Some(mode) = self.permissions {
            sink.put_u32(mode);
        }
        if let Some((atime, mtime)) = self.times {
            sink.put_u32(atime);
            sink.put_u32(mtime);
        }
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Self, InvalidMessage> {
        let flags = reader.u32("attribute flags")?;
        let mut attrs = Self::EMPTY;
        if flags & SSH_FILEXFER_ATTR_SIZE != 0 {
            attrs.size = Some(reader.u64("size")?);
        }
        if flags & SSH_FILEXFER_ATTR_UIDGID != 0 {
            attrs.uid_gid = Some((reader.u32("uid")?, reader.u32("gid")?));
        }
        if flags & SSH_FILEXFER_ATTR_PERMISSIONS != 0 {
            attrs.permissions = Some(reader.u32("permissions")?);
        }
        if flags & SSH_FILEXFER_ATTR_ACMODTIME != 0 {
            attrs.times = Some((reader.u32("access time")?, reader.u32("modification time")?));
        }
        if flags & SSH_FILEXFER_ATTR_EXTENDED != 0 {
            // Each pair takes at least 8 bytes, so a false count ends at the packet's end.
            for _ in 0..reader.u32("attribute count")? {
                reader.string("attribute name")?;
                reader.string("attribute value")?;
            }
        }
        Ok(attrs)
    }
}
