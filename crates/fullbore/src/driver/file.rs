//! Positioned reads and writes of open files, straight from and into the packets.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;

use crate::transfer::FileIo;

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
}
