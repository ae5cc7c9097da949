//! Names, requests and replies of the extensions.

use crate::wire::{InvalidMessage, Put, Reader};

/// Extension names as the wire carries them.
#[allow(missing_docs)] // The names say what they are.
pub mod ext {
    pub const POSIX_RENAME: &str = "posix-rename@openssh.com";
    pub const STATVFS: &str = "statvfs@openssh.com";
    pub const FSTATVFS: &str = "fstatvfs@openssh.com";
    pub const HARDLINK: &str = "hardlink@openssh.com";
    pub const FSYNC: &str = "fsync@openssh.com";
    pub const LSETSTAT: &str = "lsetstat@openssh.com";
    pub const LIMITS: &str = "limits@openssh.com";
    pub const EXPAND_PATH: &str = "expand-path@openssh.com";
    pub const COPY_DATA: &str = "copy-data";
    pub const HOME_DIRECTORY: &str = "home-directory";
    pub const USERS_GROUPS_BY_ID: &str = "users-groups-by-id@openssh.com";
    /// How VERSION announces check-file, and how paramiko names its request (by handle).
    pub const CHECK_FILE: &str = "check-file";
    pub const CHECK_FILE_NAME: &str = "check-file-name";
    pub const CHECK_FILE_HANDLE: &str = "check-file-handle";
}

/// Appends one extension pair of INIT or VERSION.
pub fn put_extension(sink: &mut impl Put, name: &str, data: &[u8]) {
    sink.put_string(name.as_bytes());
    sink.put_string(data);
}

/// The extension pairs of a VERSION packet, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions<'a>(&'a [u8]);

impl<'a> Extensions<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, InvalidMessage> {
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            reader.string("extension name")?;
            reader.string("extension data")?;
        }
        Ok(Self(bytes))
    }

    /// The encoded pairs.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Name and data of each pair.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut reader = Reader::new(self.0);
        std::iter::from_fn(move || {
            let name = reader.string("extension name").ok()?;
            let data = reader.string("extension data").ok()?;
            Some((name, data))
        })
    }
}

/// What `limits@openssh.com` answers; 0 means that the server does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest packet in bytes.
    pub packet_bytes_max: u64,
    /// Longest READ in bytes.
    pub read_bytes_max: u64,
    /// Longest WRITE in bytes.
    pub write_bytes_max: u64,
    /// Most handles open at once.
    pub handles_max: u64,
}

impl Limits {
    /// Bytes of the encoding.
    pub const ENCODED_LEN: usize = 32;

    /// Parses the payload of the EXTENDED_REPLY.
    ///
    /// # Errors
    /// When it is too short.
    pub fn parse(payload: &[u8]) -> Result<Self, InvalidMessage> {
        let mut reader = Reader::new(payload);
        Ok(Self {
            packet_bytes_max: reader.u64("packet limit")?,
            read_bytes_max: reader.u64("read limit")?,
            write_bytes_max: reader.u64("write limit")?,
            handles_max: reader.u64("handle limit")?,
        })
    }

    /// Appends the payload of the EXTENDED_REPLY.
    pub fn encode(&self, sink: &mut impl Put) {
        sink.put_u64(self.packet_bytes_max);
        sink.put_u64(self.read_bytes_max);
        sink.put_u64(self.write_bytes_max);
        sink.put_u64(self.handles_max);
    }
}

/// What `statvfs@openssh.com` and `fstatvfs@openssh.com` answer; the fields of statvfs(3).
#[allow(missing_docs)] // The names are POSIX's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatVfs {
    pub bsize: u64,
    pub frsize: u64,
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub favail: u64,
    pub fsid: u64,
    /// 1 = read-only, 2 = no set-uid.
    pub flag: u64,
    pub namemax: u64,
}

impl StatVfs {
    /// Bytes of the encoding.
    pub const ENCODED_LEN: usize = 88;

    /// Parses the payload of the EXTENDED_REPLY.
    ///
    /// # Errors
    /// When it is too short.
    pub fn parse(payload: &[u8]) -> Result<Self, InvalidMessage> {
        let mut reader = Reader::new(payload);
        let mut vfs = Self::default();
        for field in vfs.fields_mut() {
            *field = reader.u64("file system figures")?;
        }
        Ok(vfs)
    }

    /// Appends the payload of the EXTENDED_REPLY.
    pub fn encode(&self, sink: &mut impl Put) {
        let mut copy = *self;
        for field in copy.fields_mut() {
            sink.put_u64(*field);
        }
    }

    /// The fields in the wire's order.
    fn fields_mut(&mut self) -> [&mut u64; 11] {
        [
            &mut self.bsize,
            &mut self.frsize,
            &mut self.blocks,
            &mut self.bfree,
            &mut self.bavail,
            &mut self.files,
            &mut self.ffree,
            &mut self.favail,
            &mut self.fsid,
            &mut self.flag,
            &mut self.namemax,
        ]
    }
}

/// A packed list of user or group ids, checked to hold whole ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids<'a>(&'a [u8]);

impl<'a> Ids<'a> {
    /// A list in its packed form: 4 bytes each, big-endian.
    ///
    /// # Errors
    /// When the last one is cut.
    pub fn from_packed(bytes: &'a [u8]) -> Result<Self, InvalidMessage> {
        if bytes.len().is_multiple_of(4) {
            Ok(Self(bytes))
        } else {
            Err(InvalidMessage::BadValue("list of ids"))
        }
    }

    /// The packed form.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len() / 4
    }

    /// The ids in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let (chunks, _) = self.0.as_chunks::<4>();
        chunks.iter().map(|id| u32::from_be_bytes(*id))
    }
}

/// What `users-groups-by-id@openssh.com` answers: a name for each id asked, empty where the
/// server knows none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamesById<'a> {
    users: &'a [u8],
    groups: &'a [u8],
}

impl<'a> NamesById<'a> {
    /// Parses the payload of the EXTENDED_REPLY.
    ///
    /// # Errors
    /// When it is cut.
    pub fn parse(payload: &'a [u8]) -> Result<Self, InvalidMessage> {
        let mut reader = Reader::new(payload);
        let users = reader.string("user names")?;
        let groups = reader.string("group names")?;
        for list in [users, groups] {
            let mut names = Reader::new(list);
            while !names.is_empty() {
                names.string("name")?;
            }
        }
        Ok(Self { users, groups })
    }

    /// The user names in the order in which ids were asked.
    pub fn users(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        strings(self.users)
    }

    /// The group names in the order in which ids were asked.
    pub fn groups(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        strings(self.groups)
    }
}

fn strings<'a>(list: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let mut reader = Reader::new(list);
    std::iter::from_fn(move || reader.string("name").ok())
}

/// A hash that check-file can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// SHA-256.
    Sha256,
    /// BLAKE3 with its default output of 32 bytes.
    Blake3,
}

impl HashAlgorithm {
    /// All of them as VERSION announces them.
    pub const LIST: &'static str = "sha256,blake3";

    /// Bytes of one digest.
    #[must_use]
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Sha256 | Self::Blake3 => 32,
        }
    }

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Blake3 => "blake3",
        }
    }

    /// The algorithm of that name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Sha256, Self::Blake3]
            .into_iter()
            .find(|algorithm| algorithm.name().as_bytes() == name)
    }

    /// The first known algorithm of a comma-separated list in order of preference.
    #[must_use]
    pub fn choose(list: &[u8]) -> Option<Self> {
        list.split(|&b| b == b',').find_map(Self::from_name)
    }
}

/// What a check-file request asks, but for the file
/// (draft-ietf-secsh-filexfer-extensions-00 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckFile<'a> {
    /// Comma-separated hash algorithms in order of preference.
    pub algorithms: &'a [u8],
    /// Where hashing starts.
    pub offset: u64,
    /// Bytes to hash; 0 = to the end of the file.
    pub len: u64,
    /// Bytes per digest; 0 = one digest for all, otherwise at least
    /// [`CheckFile::BLOCK_BYTES_MIN`].
    pub block_bytes: u32,
}

impl<'a> CheckFile<'a> {
    /// The smallest block (draft-ietf-secsh-filexfer-extensions-00 section 3).
    pub const BLOCK_BYTES_MIN: u32 = 256;

    pub(crate) fn parse(reader: &mut Reader<'a>) -> Result<Self, InvalidMessage> {
        Ok(Self {
            algorithms: reader.string("hash algorithms")?,
            offset: reader.u64("offset")?,
            len: reader.u64("length")?,
            block_bytes: reader.u32("block size")?,
        })
    }

    pub(crate) fn encode(&self, sink: &mut impl Put) {
        sink.put_string(self.algorithms);
        sink.put_u64(self.offset);
        sink.put_u64(self.len);
        sink.put_u32(self.block_bytes);
    }
}

/// What check-file answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckFileReply<'a> {
    /// The algorithm used.
    pub algorithm: HashAlgorithm,
    /// The digests, one behind the other.
    pub digests: &'a [u8],
}

impl<'a> CheckFileReply<'a> {
    /// Parses the payload of the EXTENDED_REPLY: the draft's form, or the one of paramiko, MINA
    /// and ProFTPD, which puts "check-file" in front.
    ///
    /// # Errors
    /// When it is cut, names an algorithm nobody asked for, or holds part of a digest.
    pub fn parse(payload: &'a [u8]) -> Result<Self, InvalidMessage> {
        let mut reader = Reader::new(payload);
        let mut name = reader.string("hash algorithm")?;
        if name == ext::CHECK_FILE.as_bytes() {
            name = reader.string("hash algorithm")?;
        }
        let algorithm =
            HashAlgorithm::from_name(name).ok_or(InvalidMessage::BadValue("hash algorithm"))?;
        let digests = reader.rest();
        if !digests.len().is_multiple_of(algorithm.digest_len()) {
            return Err(InvalidMessage::Truncated("digest"));
        }
        Ok(Self { algorithm, digests })
    }
}
