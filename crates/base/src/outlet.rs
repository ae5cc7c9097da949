//! How one engine writes into another without a copy between them.
//!
//! An engine that makes messages (SFTP) does not own the packets they leave in (SSH). It asks an
//! [`Outlet`] for room and fills the slices it is lent: they are the payload areas of the packets
//! themselves, so a file block is read straight to where it is sealed and sent from.

use std::io::IoSliceMut;

/// Where an engine puts its outgoing bytes.
pub trait Outlet {
    /// The longest message, in bytes, that [`Outlet::emit`] takes right now. Zero is
    /// back-pressure: come back after the transport has moved. O(1).
    fn room(&self) -> usize;

    /// Appends one message of at most `len_max` bytes to the stream.
    ///
    /// `fill` gets slices that add up to `len_max` bytes, in stream order, with boundaries wherever
    /// the packets underneath have theirs (a field may straddle two). It returns how many bytes,
    /// counted from the front, are the message; the rest is given back. Returning 0 emits nothing.
    ///
    /// Returns false, without calling `fill`, when `len_max` exceeds [`Outlet::room`].
    /// O(`len_max`), nothing else.
    #[must_use]
    fn emit(
        &mut self,
        len_max: usize,
        fill: &mut dyn FnMut(&mut [IoSliceMut<'_>]) -> usize,
    ) -> bool;
}

/// Writes `bytes` at `offset` of the stream that `slices` make up, across their boundaries.
///
/// # Panics
/// When the bytes do not fit: the caller sized the slices itself.
pub fn scatter(slices: &mut [IoSliceMut<'_>], mut offset: usize, mut bytes: &[u8]) {
    for slice in slices {
        if offset >= slice.len() {
            offset -= slice.len();
            continue;
        }
        let here = bytes.len().min(slice.len() - offset);
        slice[offset..offset + here].copy_from_slice(&bytes[..here]);
        bytes = &bytes[here..];
        offset = 0;
        if bytes.is_empty() {
            return;
        }
    }
    assert!(
        bytes.is_empty(),
        "the slices hold what their requester asked for"
    );
}

/// Lends the part of `slices` that starts `skip` bytes in: where a block goes behind its header.
/// `body` gets it and returns what it wrote there.
pub fn gather<R>(
    slices: &mut [IoSliceMut<'_>],
    mut skip: usize,
    body: impl FnOnce(&mut [IoSliceMut<'_>]) -> R,
) -> R {
    let mut rest: smallvec::SmallVec<[IoSliceMut<'_>; 16]> = smallvec::SmallVec::new();
    for slice in slices.iter_mut() {
        if skip >= slice.len() {
            skip -= slice.len();
            continue;
        }
        rest.push(IoSliceMut::new(&mut slice[skip..]));
        skip = 0;
    }
    body(&mut rest)
}

/// An outlet over plain memory with a limit: for stdio, tests and models.
impl Outlet for crate::ByteQueue {
    fn room(&self) -> usize {
        self.limit() - self.len()
    }

    fn emit(
        &mut self,
        len_max: usize,
        fill: &mut dyn FnMut(&mut [IoSliceMut<'_>]) -> usize,
    ) -> bool {
        if len_max > self.room() {
            return false;
        }
        let tail = self.tail_mut(len_max);
        let filled = fill(&mut [IoSliceMut::new(tail)]);
        self.commit_tail(len_max, filled);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteQueue;

    #[test]
    fn scatter_crosses_boundaries() {
        let (mut a, mut b) = ([0u8; 3], [0u8; 4]);
        let mut slices = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        scatter(&mut slices, 2, &[1, 2, 3]);
        assert_eq!((a, b), ([0, 0, 1], [2, 3, 0, 0]));
    }

    #[test]
    fn gather_lends_what_lies_behind_the_header() {
        let (mut a, mut b) = ([0u8; 3], [0u8; 4]);
        let mut slices = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        let lens: Vec<usize> = gather(&mut slices, 4, |rest| {
            rest.iter().map(|s| s.len()).collect()
        });
        assert_eq!(lens, [3]);
    }

    #[test]
    fn a_queue_refuses_a_message_past_its_limit() {
        let mut queue = ByteQueue::new(4);
        assert!(!queue.emit(5, &mut |_| unreachable!("no room")));
        assert!(queue.emit(4, &mut |slices| {
            slices[0][..2].copy_from_slice(b"ok");
            2
        }));
        assert_eq!(queue.as_slice(), b"ok");
        assert_eq!(queue.room(), 2);
    }
}
