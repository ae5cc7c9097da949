//! Requests that wait for a reply, matched exactly and in O(1): an id is a slot number and the
//! count of the slot's uses, so that a reply to an older use of the slot is told apart.

use super::bulk::BulkId;
use super::config::{OUTSTANDING_REQUESTS_MAX, SLOT_BITS};
use crate::proto::Request;
use fullbore_base::Instant;

/// Replies that may answer a request, besides STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    Status,
    Handle,
    /// At most `len` bytes of it.
    Data {
        len: u32,
    },
    Name,
    Attrs,
    Extended,
    /// Whatever an extension unknown to us answers.
    ExtendedOrOk,
}

impl Expect {
    /// Whether a STATUS that says OK is an answer: where a result is due it is not.
    pub(super) const fn is_ok_enough(self) -> bool {
        matches!(self, Self::Status | Self::ExtendedOrOk)
    }

    /// What answers `request`.
    pub(super) const fn of(request: &Request<'_>) -> Self {
        match request {
            Request::Open { .. } | Request::Opendir { .. } => Self::Handle,
            Request::Read { len, .. } => Self::Data { len: *len },
            Request::Stat { .. } | Request::Lstat { .. } | Request::Fstat { .. } => Self::Attrs,
            Request::Readdir { .. }
            | Request::Realpath { .. }
            | Request::Readlink { .. }
            | Request::ExpandPath { .. }
            | Request::HomeDirectory { .. } => Self::Name,
            Request::Statvfs { .. }
            | Request::Fstatvfs { .. }
            | Request::Limits
            | Request::UsersGroupsById { .. }
            | Request::CheckFileName { .. }
            | Request::CheckFileHandle { .. } => Self::Extended,
            Request::UnknownExtended { .. } | Request::Unknown { .. } => Self::ExtendedOrOk,
            Request::Close { .. }
            | Request::Write { .. }
            | Request::Setstat { .. }
            | Request::Fsetstat { .. }
            | Request::Remove { .. }
            | Request::Mkdir { .. }
            | Request::Rmdir { .. }
            | Request::Rename { .. }
            | Request::Symlink { .. }
            | Request::PosixRename { .. }
            | Request::Hardlink { .. }
            | Request::Fsync { .. }
            | Request::Lsetstat { .. }
            | Request::CopyData { .. } => Self::Status,
        }
    }
}

/// Whether the server may rightly take long over `request`: the work grows with a file.
pub(super) const fn is_slow(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Fsync { .. }
            | Request::CopyData { .. }
            | Request::CheckFileName { .. }
            | Request::CheckFileHandle { .. }
    )
}

/// What an outstanding request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The caller's; the reply is kept for it.
    Call { expect: Expect, slow: bool },
    /// The caller's, but it no longer wants the reply.
    Forgotten { expect: Expect, slow: bool },
    /// The engine's own question for the server's limits.
    Limits,
    /// A READ of a transfer.
    Read { bulk: BulkId, offset: u64, len: u32 },
    /// A WRITE of a transfer.
    Write { bulk: BulkId, offset: u64, len: u32 },
}

impl Purpose {
    const fn is_slow(self) -> bool {
        matches!(
            self,
            Self::Call { slow: true, .. } | Self::Forgotten { slow: true, .. }
        )
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    uses: u32,
    purpose: Option<Purpose>,
    /// When the request was made.
    sent: Instant,
}

/// The table of outstanding requests.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Grows to the most requests ever outstanding, never past [`OUTSTANDING_REQUESTS_MAX`].
    slots: Vec<Slot>,
    free: Vec<u32>,
    slow_count: usize,
}

impl Table {
    /// Requests outstanding.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Slots still free.
    pub(super) fn room(&self) -> usize {
        OUTSTANDING_REQUESTS_MAX - self.len()
    }

    /// Whether a request that may rightly take long is outstanding.
    pub(super) fn has_slow(&self) -> bool {
        self.slow_count > 0
    }

    /// Enters a request and returns its id; `None` when the table is full.
    pub(super) fn insert(&mut self, now: Instant, purpose: Purpose) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < OUTSTANDING_REQUESTS_MAX => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        slot.uses = slot.uses.wrapping_add(1);
        slot.purpose = Some(purpose);
        slot.sent = now;
        self.slow_count += usize::from(purpose.is_slow());
        Some((slot.uses << SLOT_BITS) | index)
    }

    fn slot_mut(&mut self, id: u32) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(index_of(id))?;
        let uses_match = slot.uses << SLOT_BITS == id & !(OUTSTANDING_REQUESTS_MAX as u32 - 1);
        (uses_match && slot.purpose.is_some()).then_some(slot)
    }

    /// What the outstanding request `id` is for.
    pub(super) fn purpose(&self, id: u32) -> Option<Purpose> {
        let slot = self.slots.get(index_of(id))?;
        let uses_match = slot.uses << SLOT_BITS == id & !(OUTSTANDING_REQUESTS_MAX as u32 - 1);
        slot.purpose.filter(|_| uses_match)
    }

    /// When the outstanding request `id` was made, unless the server may rightly take long over it.
    pub(super) fn sent(&self, id: u32) -> Option<Instant> {
        let purpose = self.purpose(id)?;
        (!purpose.is_slow()).then(|| self.slots[index_of(id)].sent)
    }

    /// Whether a request made before `limit` is outstanding, but for those that may rightly take long
    /// and those that nobody waits for. O(requests).
    pub(super) fn is_any_made_before(&self, limit: Instant) -> bool {
        self.slots.iter().any(|slot| {
            slot.sent < limit
                && match slot.purpose {
                    Some(Purpose::Call { slow, .. }) => !slow,
                    Some(Purpose::Limits | Purpose::Read { .. } | Purpose::Write { .. }) => true,
                    Some(Purpose::Forgotten { .. }) | None => false,
                }
        })
    }

    /// Ends the request `id`.
    pub(super) fn remove(&mut self, id: u32) -> Option<Purpose> {
        let purpose = self.slot_mut(id)?.purpose.take()?;
        self.free.push(index_of(id) as u32);
        self.slow_count -= usize::from(purpose.is_slow());
        Some(purpose)
    }

    /// Replaces what the outstanding request `id` is for; both of transfers.
    pub(super) fn set_purpose(&mut self, id: u32, purpose: Purpose) {
        if let Some(slot) = self.slot_mut(id) {
            slot.purpose = Some(purpose);
        }
    }

    /// Marks the caller's request `id` as one whose reply nobody waits for. False when it is not
    /// outstanding.
    pub(super) fn forget(&mut self, id: u32) -> bool {
        let Some(slot) = self.slot_mut(id) else {
            return false;
        };
        if let Some(Purpose::Call { expect, slow }) = slot.purpose {
            slot.purpose = Some(Purpose::Forgotten { expect, slow });
        }
        true
    }
}

const fn index_of(id: u32) -> usize {
    id as usize & (OUTSTANDING_REQUESTS_MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Purpose = Purpose::Call {
        expect: Expect::Status,
        slow: true,
    };

    #[test]
    fn an_id_is_good_for_one_reply() {
        let mut table = Table::default();
        let id = table.insert(Instant::ZERO, CALL).expect("room");
        assert!(table.has_slow());
        assert_eq!(table.remove(id), Some(CALL));
        assert_eq!(table.remove(id), None);
        let again = table.insert(Instant::ZERO, CALL).expect("room");
        assert_ne!(again, id, "the slot is the same, its use is not");
        assert_eq!(table.purpose(id), None);
        assert_eq!(table.purpose(again), Some(CALL));
    }

    #[test]
    fn is_full_at_its_limit_and_not_before() {
        let mut table = Table::default();
        let ids: Vec<u32> = (0..OUTSTANDING_REQUESTS_MAX)
            .map(|_| table.insert(Instant::ZERO, CALL).expect("under the limit"))
            .collect();
        assert_eq!((table.insert(Instant::ZERO, CALL), table.room()), (None, 0));
        table.remove(ids[7]);
        assert!(table.insert(Instant::ZERO, CALL).is_some());
    }
}
