//! Transport messages that wait to be sealed, in order, bounded by the caller's back-pressure.

use crate::config::CONTROL_BYTES_MAX;
use std::collections::VecDeque;

/// A queue of whole messages, number first.
#[derive(Debug, Default)]
pub(super) struct ControlQueue {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl ControlQueue {
    pub(super) fn push(&mut self, message: Vec<u8>) {
        self.bytes += message.len();
        self.messages.push_back(message);
    }

    pub(super) fn front(&self) -> Option<&[u8]> {
        self.messages.front().map(Vec::as_slice)
    }

    pub(super) fn pop(&mut self) {
        if let Some(message) = self.messages.pop_front() {
            self.bytes -= message.len();
        }
    }

    /// Whether no more input may be taken until some of it is sent.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes >= CONTROL_BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
