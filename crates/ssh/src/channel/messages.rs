//! A bounded queue of whole messages in flat memory.

use fullbore_base::ByteQueue;

/// Messages in order, each behind its length. Costs O(bytes) to push and O(1) to pop.
#[derive(Debug)]
pub(crate) struct MessageQueue {
    bytes: ByteQueue,
    count: usize,
}

/// The length word in front of each message.
const LEN_BYTES: usize = 4;

impl MessageQueue {
    /// An empty queue of at most `limit` bytes, length words included.
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            bytes: ByteQueue::new(limit),
            count: 0,
        }
    }

    /// Appends `message`, or nothing and returns false when it does not fit.
    #[must_use]
    pub(crate) fn push(&mut self, message: &[u8]) -> bool {
        if LEN_BYTES + message.len() > self.bytes.limit() - self.bytes.len() {
            return false;
        }
        let len = u32::try_from(message.len()).expect("the limit is far below 4 GiB");
        let taken = self.bytes.push(&len.to_be_bytes()) + self.bytes.push(message);
        debug_assert_eq!(taken, LEN_BYTES + message.len());
        self.count += 1;
        true
    }

    /// The oldest message.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        let (len, rest) = self.bytes.as_slice().split_first_chunk::<LEN_BYTES>()?;
        Some(&rest[..u32::from_be_bytes(*len) as usize])
    }

    /// Drops the oldest message.
    pub(crate) fn pop(&mut self) {
        if let Some(len) = self.front().map(<[u8]>::len) {
            self.bytes.consume(LEN_BYTES + len);
            self.count -= 1;
        }
    }

    /// Bytes held, length words included.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Messages held.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Whether none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_and_stop_at_the_limit() {
        let mut queue = MessageQueue::new(12);
        assert!(queue.push(b"ab"));
        assert!(queue.push(b""));
        assert!(!queue.push(b""), "length words count");
        assert_eq!((queue.count(), queue.front()), (2, Some(&b"ab"[..])));
        queue.pop();
        assert_eq!(queue.front(), Some(&b""[..]));
        queue.pop();
        queue.pop();
        assert!(queue.is_empty());
        assert_eq!((queue.count(), queue.front()), (0, None));
    }
}
