//! Byte buffers of the data path: flat memory, two indices, bounded, never grown by copying what
//! is queued more than a constant number of times.

use std::fmt;

/// Receive buffer: the driver reads the socket into [`RxBuf::space`], the engine opens packets in
/// place and consumes from the front. Capacity changes only by `grow`.
pub struct RxBuf {
    data: Box<[u8]>,
    start: usize,
    end: usize,
    moved_bytes: u64,
}

impl RxBuf {
    /// A buffer of `capacity` bytes, allocated once.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            data: vec![0; capacity].into_boxed_slice(),
            start: 0,
            end: 0,
            moved_bytes: 0,
        }
    }

    /// Moves the bytes held into a buffer of `capacity` bytes, unless it has as many already.
    pub fn grow(&mut self, capacity: usize) {
        if capacity > self.data.len() {
            self.end = move_to_front(&mut self.data, self.start..self.end, capacity);
            self.start = 0;
        }
    }

    /// Free memory behind the bytes held; empty when the buffer is full (back-pressure).
    ///
    /// Moves the unconsumed bytes to the front once less than half of the capacity is free behind
    /// them, so each byte is moved at most once per half capacity read: amortised O(1) per byte
    /// while the consumer keeps less than half of the capacity waiting.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.start > 0 && self.data.len() - self.end < self.data.len() / 2 {
            self.data.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            self.moved_bytes += self.end as u64;
        }
        &mut self.data[self.end..]
    }

    /// Bytes that were moved to the front so far: what back-pressure costs.
    #[must_use]
    pub const fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Takes note that `n` bytes were written to the front of [`RxBuf::space`].
    ///
    /// # Panics
    /// When `n` exceeds that space.
    pub fn filled(&mut self, n: usize) {
        assert!(
            n <= self.data.len() - self.end,
            "filled past the space that was lent"
        );
        self.end += n;
    }

    /// The bytes held, oldest first.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// The bytes held, for opening in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data[self.start..self.end]
    }

    /// Drops `n` bytes from the front. O(1).
    ///
    /// # Panics
    /// When fewer are held.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len(), "consumed past what is held");
        self.start += n;
    }

    /// Bytes held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Transmit buffer: packets are laid out and sealed at the tail, the socket drains the front.
/// Capacity changes only by `grow`.
pub struct TxBuf {
    data: Box<[u8]>,
    start: usize,
    end: usize,
}

impl TxBuf {
    /// A buffer of `capacity` bytes, allocated once.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            data: vec![0; capacity].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    /// Moves what waits into a buffer of `capacity` bytes, unless it has as many already.
    pub fn grow(&mut self, capacity: usize) {
        if capacity > self.data.len() {
            self.end = move_to_front(&mut self.data, self.start..self.end, capacity);
            self.start = 0;
        }
    }

    /// Bytes that can be appended now. O(1): memory drained at the front counts only when all of
    /// it is drained, so nothing is ever moved.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.start == self.end {
            self.data.len()
        } else {
            self.data.len() - self.end
        }
    }

    /// The next `len` bytes of memory behind what is queued, to be written in place.
    ///
    /// # Panics
    /// When `len` exceeds [`TxBuf::room`].
    pub fn tail_mut(&mut self, len: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        &mut self.data[self.end..self.end + len]
    }

    /// Queues the first `n` bytes of the tail.
    ///
    /// # Panics
    /// When `n` exceeds the memory behind the queue.
    pub fn commit(&mut self, n: usize) {
        assert!(n <= self.data.len() - self.end, "committed past the tail");
        self.end += n;
    }

    /// What waits for the socket, oldest first.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// Drops `n` bytes from the front: the socket took them. O(1).
    ///
    /// # Panics
    /// When fewer are queued.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.end - self.start, "consumed past what is queued");
        self.start += n;
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Replaces `data` by memory of `capacity` bytes with `held` at its front; returns where they end.
fn move_to_front(data: &mut Box<[u8]>, held: std::ops::Range<usize>, capacity: usize) -> usize {
    let len = held.len();
    // Zeroed memory of this size comes untouched from the system.
    let mut grown = vec![0; capacity].into_boxed_slice();
    grown[..len].copy_from_slice(&data[held]);
    *data = grown;
    len
}

/// Contiguous FIFO with a hard limit that allocates as it is used: what a channel or a session
/// keeps for a consumer that is behind.
///
/// Appending and consuming cost amortised O(1) per byte whatever is queued: growth doubles, and
/// the front is reclaimed only when at least half of the memory in use is dead.
pub struct ByteQueue {
    data: Vec<u8>,
    start: usize,
    limit: usize,
    moved_bytes: u64,
}

impl ByteQueue {
    /// An empty queue that never holds more than `limit` bytes. Allocates nothing yet.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            data: Vec::new(),
            start: 0,
            limit,
            moved_bytes: 0,
        }
    }

    /// The most bytes it holds at once.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Appends as much of `bytes` as the limit allows; returns how many were taken.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.limit - self.len());
        self.make_room(n);
        self.data.extend_from_slice(&bytes[..n]);
        n
    }

    /// Queued bytes that were moved so far, to the front or to larger memory.
    #[must_use]
    pub const fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Memory behind what is queued for `len` more bytes, zeroed or stale.
    ///
    /// # Panics
    /// When `len` exceeds what the limit leaves.
    pub fn tail_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.limit - self.len(), "asked past the limit");
        self.make_room(len);
        let end = self.data.len();
        self.data.resize(end + len, 0);
        &mut self.data[end..]
    }

    /// Keeps the first `n` bytes of the tail that [`ByteQueue::tail_mut`] just lent, and gives
    /// the rest back.
    pub(crate) fn commit_tail(&mut self, lent: usize, n: usize) {
        assert!(n <= lent, "committed past the tail");
        self.data.truncate(self.data.len() - lent + n);
    }

    /// What is queued, oldest first.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.data[self.start..]
    }

    /// Drops `n` bytes from the front. Memory is released when the queue runs empty.
    ///
    /// # Panics
    /// When fewer are queued.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len(), "consumed past what is queued");
        self.start += n;
        if self.start == self.data.len() {
            self.start = 0;
            self.data.clear();
            if self.data.capacity() > Self::KEPT_BYTES_MAX {
                self.data = Vec::new();
            }
        }
    }

    /// Memory an empty queue may keep: one SFTP message, so that a steady trickle does not
    /// allocate.
    const KEPT_BYTES_MAX: usize = 512 * 1024;

    /// Bytes queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len() - self.start
    }

    /// Whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for `n` more bytes: reclaims the front, then has the memory grow.
    fn make_room(&mut self, n: usize) {
        if self.start > 0 && self.start >= self.data.len() - self.start {
            self.data.copy_within(self.start.., 0);
            let len = self.data.len() - self.start;
            self.data.truncate(len);
            self.start = 0;
            self.moved_bytes += len as u64;
        }
        if n > self.data.capacity() - self.data.len() {
            self.moved_bytes += self.data.len() as u64;
            self.data.reserve(n);
        }
    }
}

/// How much is held, never what: passwords and keys pass through these buffers.
fn fmt_len(f: &mut fmt::Formatter<'_>, name: &str, len: usize) -> fmt::Result {
    f.debug_struct(name)
        .field("len", &len)
        .finish_non_exhaustive()
}

impl fmt::Debug for RxBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_len(f, "RxBuf", self.len())
    }
}

impl fmt::Debug for TxBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_len(f, "TxBuf", self.pending().len())
    }
}

impl fmt::Debug for ByteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_len(f, "ByteQueue", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rx_keeps_bytes_across_compaction() {
        let mut rx = RxBuf::new(8);
        rx.space()[..6].copy_from_slice(b"abcdef");
        rx.filled(6);
        rx.consume(4);
        assert_eq!(rx.space().len(), 6);
        assert_eq!(rx.bytes(), b"ef");
    }

    #[test]
    fn rx_lends_nothing_when_full() {
        let mut rx = RxBuf::new(4);
        rx.filled(4);
        assert!(rx.space().is_empty());
    }

    #[test]
    fn tx_room_returns_when_drained() {
        let mut tx = TxBuf::new(4);
        tx.tail_mut(4).copy_from_slice(b"abcd");
        tx.commit(4);
        assert_eq!(tx.room(), 0);
        tx.consume(3);
        assert_eq!((tx.room(), tx.pending()), (0, &b"d"[..]));
        tx.consume(1);
        assert_eq!(tx.room(), 4);
    }

    #[test]
    fn buffers_grow_with_what_they_hold() {
        let mut rx = RxBuf::new(4);
        rx.space().copy_from_slice(b"abcd");
        rx.filled(4);
        rx.consume(1);
        rx.grow(8);
        rx.grow(2);
        assert_eq!(rx.space().len(), 5);
        assert_eq!(rx.bytes(), b"bcd");
        let mut tx = TxBuf::new(4);
        tx.tail_mut(4).copy_from_slice(b"abcd");
        tx.commit(4);
        tx.consume(1);
        tx.grow(8);
        assert_eq!((tx.pending(), tx.room()), (&b"bcd"[..], 5));
    }

    #[test]
    fn what_is_queued_is_moved_a_constant_number_of_times() {
        for queued in [10, 1_000, 100_000] {
            let mut queue = ByteQueue::new(1 << 20);
            let count = 10 * queued;
            for i in 0..count {
                assert_eq!(queue.push(b"x"), 1);
                queue.consume(usize::from(i >= queued));
            }
            let moved = queue.moved_bytes();
            assert!(moved <= 4 * count as u64, "{moved} for {count}");
        }
    }

    #[test]
    fn queue_is_a_fifo_that_stops_at_its_limit() {
        let mut queue = ByteQueue::new(5);
        assert_eq!(queue.push(b"abcd"), 4);
        queue.consume(2);
        assert_eq!(queue.push(b"efgh"), 3);
        assert_eq!(queue.as_slice(), b"cdefg");
        assert_eq!(queue.push(b"x"), 0);
    }
}
