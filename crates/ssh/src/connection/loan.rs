//! Unread bytes of a channel, taken out of the connection for a while: a server answers into the
//! connection while it reads from it.

use super::Connection;
use crate::channel::{ChannelId, Stream};
use crate::transport::PayloadLoan;
use fullbore_base::{ByteQueue, Instant};
use std::ops::Range;

/// What [`Connection::lend`] took out. Give it back before anything else is read.
#[derive(Debug)]
pub struct Loan {
    ch: ChannelId,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The payload that was opened last, and the unread part of it.
    Payload(PayloadLoan, Range<usize>),
    /// What the channel kept.
    Backlog(ByteQueue),
}

impl Loan {
    /// The bytes, oldest first: what [`Connection::readable`] would show.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Payload(payload, unread) => &payload.bytes()[unread.clone()],
            Source::Backlog(queue) => queue.as_slice(),
        }
    }
}

impl Connection {
    /// Takes the unread bytes of a channel out of the connection, so that the channel's outlet can
    /// be used while they are looked at. Moves memory, copies nothing.
    #[must_use = "what is not given back is lost"]
    pub fn lend(&mut self, ch: ChannelId) -> Loan {
        let slot = ch.slot as usize;
        let lent = self.lent_to(slot, Stream::Data);
        let source = match (self.table.by_id_mut(ch), lent) {
            (Some(_), Some(lent)) => {
                Source::Payload(self.transport.lend_payload(), lent.start..lent.end)
            }
            (Some(channel), None) => Source::Backlog(channel.input.take_data()),
            (None, _) => Source::Backlog(ByteQueue::new(0)),
        };
        Loan { ch, source }
    }

    /// Puts the bytes back, less the first `n`, which are consumed.
    pub fn give_back(&mut self, now: Instant, loan: Loan, n: usize) {
        match loan.source {
            Source::Payload(payload, _) => self.transport.return_payload(payload),
            Source::Backlog(queue) => {
                if let Some(channel) = self.table.by_id_mut(loan.ch) {
                    channel.input.put_data(queue);
                }
            }
        }
        self.consume(now, loan.ch, n);
    }
}
