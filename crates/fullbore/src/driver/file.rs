//! Positioned reads and writes of open files, straight from and into the packets.

use std::fs::{File, Permissions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, PermissionsExt};

use crate::transfer::FileIo;
use crate::transfer::lanes::STRIPED_MODE;

impl FileIo for File {
    fn read_at(&self, offset: u64, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            match rustix::io::preadv(self, slices, offset) {
                Err(rustix::io::Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn begin_stripes(&self) -> io::Result<()> {
        let metadata = self.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mode = metadata.permissions().mode() | STRIPED_MODE;
        self.set_permissions(Permissions::from_mode(mode & 0o7777))
    }
}
