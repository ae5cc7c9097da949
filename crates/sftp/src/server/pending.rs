//! Operations that go on outside: a bounded set of slots, each with what its reply needs.

use super::handles::Use;
use super::store::{Completion, FileId, Token};
use crate::proto::{HashAlgorithm, PACKET_BYTES_MAX};

/// What a pending operation will answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Status,
    /// DATA, for a READ of that many bytes.
    Data {
        len: u32,
    },
    /// Digests of check-file, "check-file" echoed in front or not.
    Digests {
        algorithm: HashAlgorithm,
        echo: bool,
    },
}

/// The files that an operation uses.
pub(super) type Uses = [Option<(FileId, Use)>; 2];

/// One operation.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) request_id: u32,
    pub(super) answer: Answer,
    pub(super) uses: Uses,
    /// The result, once there, until the outlet has room for the reply.
    pub(super) completion: Option<Completion>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    op: Option<Op>,
}

/// The slots; those of finished operations are kept in order of completion.
#[derive(Debug)]
pub(super) struct Pending {
    slots: Vec<Slot>,
    /// Slots without an operation.
    free: Vec<u16>,
    /// Slots whose reply waits for the outlet, oldest first.
    finished: std::collections::VecDeque<u16>,
    /// Bytes that the replies of operations in slots may have.
    bytes: usize,
    bytes_max: usize,
}

impl Pending {
    pub(super) fn new(count_max: u16, bytes_max: usize) -> Self {
        let count = count_max.clamp(1, super::Config::PENDING_COUNT_MAX);
        Self {
            slots: (0..count)
                .map(|_| Slot {
                    generation: 0,
                    op: None,
                })
                .collect(),
            free: (0..count).rev().collect(),
            finished: std::collections::VecDeque::with_capacity(usize::from(count)),
            bytes: 0,
            bytes_max,
        }
    }

    /// The token for an operation that may become pending, or `None` at the limit.
    pub(super) fn next(&self) -> Option<Token> {
        if self.bytes >= self.bytes_max {
            return None;
        }
        let slot = *self.free.last()?;
        Some(Token {
            slot,
            generation: self.slots[usize::from(slot)].generation,
        })
    }

    /// Enters the operation that [`Pending::next`] gave a token for.
    pub(super) fn begin(&mut self, token: Token, op: Op) {
        let slot = self.free.pop();
        debug_assert_eq!(slot, Some(token.slot), "tokens come from next()");
        self.bytes += op.answer.bytes();
        self.slots[usize::from(token.slot)].op = Some(op);
    }

    /// Takes the result of an operation. False when the token names none: it was completed
    /// before.
    pub(super) fn finish(&mut self, token: Token, completion: Completion) -> bool {
        let Some(slot) = self.slots.get_mut(usize::from(token.slot)) else {
            return false;
        };
        match &mut slot.op {
            Some(op) if slot.generation == token.generation && op.completion.is_none() => {
                op.completion = Some(completion);
                self.finished.push_back(token.slot);
                true
            }
            Some(_) | None => false,
        }
    }

    /// The oldest operation whose reply can be made.
    pub(super) fn front(&self) -> Option<&Op> {
        let slot = *self.finished.front()?;
        self.slots[usize::from(slot)].op.as_ref()
    }

    /// Takes what [`Pending::front`] showed.
    pub(super) fn pop_front(&mut self) -> Option<Op> {
        let index = self.finished.pop_front()?;
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = slot.generation.wrapping_add(1);
        let op = slot.op.take()?;
        self.bytes -= op.answer.bytes();
        self.free.push(index);
        Some(op)
    }

    /// Operations that are not answered yet.
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Answer {
    fn bytes(self) -> usize {
        match self {
            Self::Data { len } => len as usize,
            // As many as fit a reply, whatever the file.
            Self::Digests { .. } => PACKET_BYTES_MAX as usize,
            Self::Status => 0,
        }
    }
}
