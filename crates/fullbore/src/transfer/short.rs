//! Short files: what is to be written is read first and goes out with everything that ends the file in
//! one flight, where the target serves requests in order.
//!
//! ```text
//! OPEN ─► WRITE, FSETSTAT, (FSYNC), FSTAT, CLOSE ─► all right, and as long as it should be ─► RENAME
//! ```
//! The guarantee is the same as that of the long way: the name comes last, after every answer.

use std::io::IoSliceMut;

use fullbore_sftp::proto::Attrs;

use super::file::{Copier, FileJob};
use super::observer::Event;
use super::place::Place;
use super::side::{Fault, Side, Whole};

impl<S: Side, D: Side> Copier<'_, S, D> {
    /// The source's whole content, if the file is short and new, and can be read at once.
    pub(super) fn short_content(
        &self,
        attrs: Attrs,
        source: &S::File,
        kept: u64,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let (Some(max), Some(io)) = (self.target.finish_bytes_max(), self.source.direct(source))
        else {
            return Ok(None);
        };
        let size = attrs.size.unwrap_or(u64::MAX);
        if kept > 0 || size > max as u64 || self.options.verify {
            return Ok(None);
        }
        // One more than it should have: a file that has grown takes the long way.
        let mut bytes = vec![0; (size as usize + 1).min(max + 1)];
        let mut len = 0;
        loop {
            match io.read_at(len as u64, &mut [IoSliceMut::new(&mut bytes[len..])])? {
                0 => break,
                n => len += n,
            }
            if len == bytes.len() {
                return Ok(None);
            }
        }
        bytes.truncate(len);
        Ok(Some(bytes))
    }

    /// Writes and closes the temporary file; what fails removes it.
    pub(super) async fn short(
        &self,
        job: &FileJob<'_>,
        attrs: Attrs,
        source: &S::File,
        (file, temp): (D::File, &[u8]),
        place: &Place,
        bytes: &[u8],
    ) -> Result<u64, Fault> {
        let whole = Whole {
            bytes,
            attrs: self.wanted_attrs(attrs, place.mode),
            fsync: self.options.fsync,
        };
        let result = self.send_whole(job, file, &whole).await;
        let end = bytes.len() as u64;
        let result = match result {
            Ok(()) => self.note_changes(job, attrs, source, (end, false)).await,
            Err(fault) => Err(fault),
        };
        match result {
            Ok(_) => Ok(end),
            Err(fault) => {
                self.drop_temp(temp, &fault).await;
                Err(fault)
            }
        }
    }

    async fn send_whole(
        &self,
        job: &FileJob<'_>,
        file: D::File,
        whole: &Whole<'_>,
    ) -> Result<(), Fault> {
        let end = whole.bytes.len() as u64;
        let done = self.target.finish(file, whole).await?;
        done.written?;
        let number = job.number;
        self.tally.add_bytes(end);
        self.observer.notice(&Event::Moved {
            file: number,
            bytes: end,
        });
        self.attributes_set(job, done.attributes)?;
        self.synced(job, done.synced)?;
        if let Some(size) = done.size?.size.filter(|&size| size != end) {
            return Err(Fault::failure(format!(
                "the copy has {size} bytes where {end} were sent; it was removed"
            )));
        }
        done.closed
    }
}
