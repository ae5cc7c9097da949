//! Moving file content between two places, and reading parts of it into memory.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSliceMut};
use std::rc::Rc;

use super::side::{Fault, FileIo, Moved, Moving, Side, Span};

/// Bytes of a relayed file in memory at once, twice: one part is written while the next is read.
pub(crate) const RELAY_BYTES: u64 = 16 * 1024 * 1024;

/// Part of a file in memory, at its offset.
pub(crate) struct Memory {
    base: u64,
    bytes: RefCell<Vec<u8>>,
    len_max: usize,
}

impl Memory {
    fn new(base: u64, len_max: u64) -> Rc<Self> {
        Rc::new(Self {
            base,
            bytes: RefCell::default(),
            len_max: len_max as usize,
        })
    }
}

impl FileIo for Memory {
    fn read_at(&self, offset: u64, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let bytes = self.bytes.borrow();
        let at = offset
            .checked_sub(self.base)
            .ok_or_else(|| io::Error::other("in front of the part"))?;
        let mut rest = bytes.get(at as usize..).unwrap_or_default();
        let before = rest.len();
        for slice in slices {
            let n = slice.len().min(rest.len());
            slice[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        Ok(before - rest.len())
    }

    fn write_at(&self, offset: u64, new: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.borrow_mut();
        let at = offset
            .checked_sub(self.base)
            .filter(|at| at + new.len() as u64 <= self.len_max as u64)
            .ok_or_else(|| io::Error::other("outside the part"))? as usize;
        let end = at + new.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at..end].copy_from_slice(new);
        Ok(())
    }
}

/// Reads up to `len` bytes at `offset`; fewer only at the end of the file.
pub(crate) async fn read_range<S: Side>(
    side: &S,
    file: &S::File,
    offset: u64,
    len: u64,
) -> Result<Vec<u8>, Fault> {
    let memory = read_part(side, file, offset, len).await?;
    let bytes = memory.bytes.take();
    Ok(bytes)
}

async fn read_part<S: Side>(
    side: &S,
    file: &S::File,
    offset: u64,
    len: u64,
) -> Result<Rc<Memory>, Fault> {
    let memory = Memory::new(offset, len);
    if len == 0 {
        return Ok(memory);
    }
    let end_max = offset + len;
    let span = Span {
        offset,
        size_hint: end_max,
        end_max: Some(end_max),
    };
    let sink = Rc::clone(&memory);
    let moved = side.read_to(file, sink, span, &|_| {}).await;
    if let Some(fault) = moved.fault {
        return Err(fault);
    }
    memory
        .bytes
        .borrow_mut()
        .truncate((moved.end - offset) as usize);
    Ok(memory)
}

/// Moves a span of `source_file` into `target_file`: in place where one of them is on this
/// machine, else through memory.
pub(crate) async fn transfer<S: Side, D: Side>(
    (source, source_file): (&S, &S::File),
    (target, target_file): (&D, &D::File),
    span: Span,
    moving: Moving<'_>,
) -> Moved {
    if let Some(io) = source.direct(source_file) {
        return target.write_from(target_file, io, span, moving).await;
    }
    if let Some(io) = target.direct(target_file) {
        return source.read_to(source_file, io, span, moving).await;
    }
    relay((source, source_file), (target, target_file), span, moving).await
}

/// Reads a part while the one before it is written.
async fn relay<S: Side, D: Side>(
    (source, source_file): (&S, &S::File),
    (target, target_file): (&D, &D::File),
    span: Span,
    moving: Moving<'_>,
) -> Moved {
    let end_max = span.end_max.unwrap_or(i64::MAX as u64);
    let part_len = |offset: u64| RELAY_BYTES.min(end_max.saturating_sub(offset));
    let mut offset = span.offset;
    let mut part = read_part(source, source_file, offset, part_len(offset)).await;
    loop {
        let memory = match part {
            Ok(memory) => memory,
            Err(fault) => return ended(offset, Some(fault)),
        };
        let len = memory.bytes.borrow().len() as u64;
        if len == 0 {
            return ended(offset, None);
        }
        let end = offset + len;
        let write = Span {
            offset,
            size_hint: end,
            end_max: Some(end),
        };
        let before = Cell::new(offset - span.offset);
        let on_written = |bytes: u64| moving(before.get() + bytes);
        let next = part_len(end);
        let (moved, read) = tokio::join!(
            target.write_from(target_file, memory, write, &on_written),
            read_part(source, source_file, end, next),
        );
        if moved.fault.is_some() || moved.end < end {
            let fault = moved
                .fault
                .unwrap_or_else(|| Fault::failure("a part was not taken"));
            return ended(moved.end, Some(fault));
        }
        offset = end;
        part = read;
    }
}

const fn ended(end: u64, fault: Option<Fault>) -> Moved {
    Moved { end, fault }
}
