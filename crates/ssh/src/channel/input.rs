//! What a channel received and nobody has consumed.

use super::autotune::Policy;
use super::window::LocalWindow;
use crate::error::PeerMisbehaved;
use fullbore_base::{ByteQueue, Stopwatch};

/// The two byte streams that arrive on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// CHANNEL_DATA.
    Data,
    /// CHANNEL_EXTENDED_DATA of type 1.
    Stderr,
}

/// Window, backlogs and end of the receiving side. Both streams draw on one window, so neither
/// backlog, nor their sum, exceeds it.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) window: LocalWindow,
    /// How large the window should be.
    pub(crate) policy: Policy,
    /// Time that the channel was due credit which the budget did not have.
    pub(crate) starved: Stopwatch,
    data: ByteQueue,
    stderr: ByteQueue,
    /// EOF came.
    pub(crate) is_eof: bool,
    /// CLOSE came.
    pub(crate) is_closed: bool,
}

impl Input {
    pub(crate) fn new(local_window: u32, policy: Policy) -> Self {
        // The window is what bounds the backlogs: it refuses an overrun before a byte is queued,
        // and may grow with its target.
        let limit = u32::MAX as usize;
        Self {
            window: LocalWindow::new(local_window),
            policy,
            starved: Stopwatch::default(),
            data: ByteQueue::new(limit),
            stderr: ByteQueue::new(limit),
            is_eof: false,
            is_closed: false,
        }
    }

    /// Admits `len` arriving bytes.
    pub(crate) fn on_received(&mut self, len: usize) -> Result<(), PeerMisbehaved> {
        if self.is_eof || self.is_closed {
            return Err(PeerMisbehaved::ChannelState);
        }
        self.window.on_received(len)
    }

    /// Keeps admitted bytes that were not consumed where they arrived.
    pub(crate) fn keep(&mut self, stream: Stream, bytes: &[u8]) {
        let taken = self.queue_mut(stream).push(bytes);
        assert_eq!(taken, bytes.len(), "the window bounds the backlog");
    }

    pub(crate) const fn backlog(&self, stream: Stream) -> &ByteQueue {
        match stream {
            Stream::Data => &self.data,
            Stream::Stderr => &self.stderr,
        }
    }

    /// Takes the backlog of data out, to be put back with [`Input::put_data`] before more arrives.
    pub(crate) const fn take_data(&mut self) -> ByteQueue {
        let limit = self.data.limit();
        std::mem::replace(&mut self.data, ByteQueue::new(limit))
    }

    /// Puts back what [`Input::take_data`] took.
    pub(crate) fn put_data(&mut self, queue: ByteQueue) {
        debug_assert!(self.data.is_empty(), "nothing arrives while it is out");
        self.data = queue;
    }

    /// Drops `len` bytes from the front of a backlog, as consumed.
    pub(crate) fn consume(&mut self, stream: Stream, len: usize) {
        self.queue_mut(stream).consume(len);
        self.window.on_consumed(len);
    }

    /// Drops both backlogs: nobody will read them.
    pub(crate) fn discard(&mut self) {
        for stream in [Stream::Data, Stream::Stderr] {
            let len = self.backlog(stream).len();
            self.consume(stream, len);
        }
    }

    /// Bytes of the backlogs that were moved so far.
    pub(crate) const fn moved_bytes(&self) -> u64 {
        self.data.moved_bytes() + self.stderr.moved_bytes()
    }

    /// Whether nothing unread is left.
    pub(crate) fn is_drained(&self) -> bool {
        self.data.is_empty() && self.stderr.is_empty()
    }

    const fn queue_mut(&mut self, stream: Stream) -> &mut ByteQueue {
        match stream {
            Stream::Data => &mut self.data,
            Stream::Stderr => &mut self.stderr,
        }
    }
}
