//! Requests that wait for a pending operation on their file while those of other files go on: a bounded list,
//! in the order in which they came.
//!
//! ```text
//! FSYNC(a) pending     WRITE(a) waits     READ(b) goes on     CLOSE(a) waits behind WRITE(a)
//! ```
//!
//! draft-ietf-secsh-filexfer-02 4.1: requests that relate to the same file keep their order. A request that
//! names its file by path relates to any, so nothing without a handle overtakes what waits.

use std::collections::VecDeque;

use super::handles::Use;
use super::pending::Uses;
use crate::proto::Packet;

/// A request on its own, out of the receive buffer.
#[derive(Debug)]
pub(super) struct Entry {
    kind: u8,
    body: Vec<u8>,
    pub(super) uses: Uses,
}

impl Entry {
    pub(super) fn packet(&self) -> Packet<'_> {
        Packet {
            kind: self.kind,
            body: &self.body,
            total_len: 0,
        }
    }
}

/// The list.
#[derive(Debug)]
pub(super) struct Waiting {
    list: VecDeque<Entry>,
    /// Bytes of the bodies.
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
    /// An operation has ended, so one of them may go on.
    pub(super) is_due: bool,
}

impl Waiting {
    pub(super) const fn new(count_max: usize, bytes_max: usize) -> Self {
        Self {
            list: VecDeque::new(),
            bytes: 0,
            count_max,
            bytes_max,
            is_due: false,
        }
    }

    /// Requests that wait.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// Copies a request to the end of the list. False when it is full.
    pub(super) fn push(&mut self, packet: Packet<'_>, uses: Uses) -> bool {
        let bytes = self.bytes + packet.body.len();
        if self.list.len() >= self.count_max || bytes > self.bytes_max {
            return false;
        }
        self.bytes = bytes;
        self.list.push_back(Entry {
            kind: packet.kind,
            body: packet.body.to_vec(),
            uses,
        });
        true
    }

    /// Whether a request that uses these files must stay behind one of the list. O(requests that wait).
    pub(super) fn holds_back(&self, uses: &Uses) -> bool {
        self.holds_back_before(self.list.len(), uses)
    }

    /// The files of the request at `index`, unless it must stay behind one before it.
    pub(super) fn candidate(&self, index: usize) -> Option<Uses> {
        let uses = self.list[index].uses;
        (!self.holds_back_before(index, &uses)).then_some(uses)
    }

    /// Takes the request at `index` out. O(requests that wait).
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn take(&mut self, index: usize) -> Entry {
        let entry = self.list.remove(index).expect("the caller counts");
        self.bytes -= entry.body.len();
        entry
    }

    /// Puts back what [`Waiting::take`] took.
    pub(super) fn put_back(&mut self, index: usize, entry: Entry) {
        self.bytes += entry.body.len();
        self.list.insert(index, entry);
    }

    fn holds_back_before(&self, end: usize, uses: &Uses) -> bool {
        let earlier = self.list.iter().take(end);
        let mut earlier = earlier.flat_map(|entry| entry.uses.iter().flatten());
        earlier.any(|&(file, how)| {
            uses.iter().flatten().any(|&(other, other_how)| {
                file == other && (how == Use::Exclusive || other_how == Use::Exclusive)
            })
        })
    }
}
