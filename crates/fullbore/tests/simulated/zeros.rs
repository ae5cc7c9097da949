//! A server's files: one that is as long as asked and all zeros, and takes what is written. Everything
//! else is refused.

use std::io::IoSliceMut;

use fullbore::session::{ServerApp, SessionEnd, Start};

use fullbore_sftp::proto::{Attrs, OpenFlags, StatVfs};
use fullbore_sftp::server::{
    CheckRange, CheckTarget, CopyRange, DirSink, FileId, Outcome, Store, StoreError, Token,
};
use fullbore_ssh::ChannelId;
use fullbore_ssh::channel::ChannelRequest;

/// One file of zeros under every name.
#[derive(Clone, Debug, Default)]
pub struct Zeros {
    pub len: u64,
    /// Bytes that were written.
    pub written: u64,
    /// What is written never ends.
    pub is_stuck: bool,
}

impl ServerApp for Zeros {
    fn judge(&mut self, _: ChannelId, request: &ChannelRequest<'_>) -> Start {
        match request {
            ChannelRequest::Subsystem { .. } => {
                Start::Sftp(fullbore_sftp::server::Config::default())
            }
            _ => Start::Refuse,
        }
    }

    fn store(&mut self, _: ChannelId) -> &mut dyn Store {
        self
    }

    fn ended(&mut self, _: ChannelId, _: SessionEnd) {}
}

const NO: StoreError = StoreError::UNSUPPORTED;

impl Zeros {
    fn attrs(&self) -> Attrs {
        Attrs {
            size: Some(self.len),
            permissions: Some(0o100_644),
            ..Attrs::EMPTY
        }
    }
}

impl Store for Zeros {
    fn open(&mut self, _: FileId, _: &[u8], _: OpenFlags, _: &Attrs) -> Result<(), StoreError> {
        Ok(())
    }

    fn close(&mut self, _: FileId) -> Result<(), StoreError> {
        Ok(())
    }

    fn read(
        &mut self,
        _: Token,
        _: FileId,
        offset: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Outcome<usize> {
        let mut left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut n = 0;
        for slice in into {
            let here = left.min(slice.len());
            slice[..here].fill(0);
            left -= here;
            n += here;
        }
        Outcome::Ready(Ok(n))
    }

    fn stat(&mut self, _: &[u8]) -> Result<Attrs, StoreError> {
        Ok(self.attrs())
    }

    fn lstat(&mut self, _: &[u8]) -> Result<Attrs, StoreError> {
        Ok(self.attrs())
    }

    fn fstat(&mut self, _: FileId) -> Result<Attrs, StoreError> {
        Ok(self.attrs())
    }

    fn write(&mut self, _: Token, _: FileId, _: u64, bytes: &[u8]) -> Outcome<()> {
        if self.is_stuck {
            return Outcome::Pending;
        }
        self.written += bytes.len() as u64;
        Outcome::Ready(Ok(()))
    }

    fn fsync(&mut self, _: Token, _: FileId) -> Outcome<()> {
        Outcome::Ready(Err(NO))
    }

    fn copy_data(&mut self, _: Token, _: CopyRange) -> Outcome<()> {
        Outcome::Ready(Err(NO))
    }

    fn check_file(
        &mut self,
        _: Token,
        _: CheckTarget<'_>,
        _: CheckRange,
        _: &mut Vec<u8>,
    ) -> Outcome<()> {
        Outcome::Ready(Err(NO))
    }

    fn opendir(&mut self, _: FileId, _: &[u8]) -> Result<(), StoreError> {
        Err(NO)
    }

    fn readdir(&mut self, _: FileId, _: &mut DirSink<'_, '_>) -> Result<(), StoreError> {
        Err(NO)
    }

    fn setstat(&mut self, _: &[u8], _: &Attrs) -> Result<(), StoreError> {
        Err(NO)
    }

    fn lsetstat(&mut self, _: &[u8], _: &Attrs) -> Result<(), StoreError> {
        Err(NO)
    }

    fn fsetstat(&mut self, _: FileId, _: &Attrs) -> Result<(), StoreError> {
        Err(NO)
    }

    fn remove(&mut self, _: &[u8]) -> Result<(), StoreError> {
        Err(NO)
    }

    fn mkdir(&mut self, _: &[u8], _: &Attrs) -> Result<(), StoreError> {
        Err(NO)
    }

    fn rmdir(&mut self, _: &[u8]) -> Result<(), StoreError> {
        Err(NO)
    }

    fn rename(&mut self, _: &[u8], _: &[u8]) -> Result<(), StoreError> {
        Err(NO)
    }

    fn posix_rename(&mut self, _: &[u8], _: &[u8]) -> Result<(), StoreError> {
        Err(NO)
    }

    fn symlink(&mut self, _: &[u8], _: &[u8]) -> Result<(), StoreError> {
        Err(NO)
    }

    fn hardlink(&mut self, _: &[u8], _: &[u8]) -> Result<(), StoreError> {
        Err(NO)
    }

    fn readlink(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), StoreError> {
        Err(NO)
    }

    fn realpath(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), StoreError> {
        Err(NO)
    }

    fn expand_path(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), StoreError> {
        Err(NO)
    }

    fn home_directory(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), StoreError> {
        Err(NO)
    }

    fn user_name(&mut self, _: u32, _: &mut Vec<u8>) {}

    fn group_name(&mut self, _: u32, _: &mut Vec<u8>) {}

    fn statvfs(&mut self, _: &[u8]) -> Result<StatVfs, StoreError> {
        Err(NO)
    }

    fn fstatvfs(&mut self, _: FileId) -> Result<StatVfs, StoreError> {
        Err(NO)
    }
}
