//! Unread bytes of a channel, taken out of the connection for a while: a server answers into the
//! connection while it reads from it.

use super::Connection;
use crate::channel::{ChannelId, Stream};
use fullbore_base::{ByteQueue, Instant};

/// What [`Connection::lend`] took out. Give it back before anything else is read.
#[derive(Debug)]
pub struct Loan {
    ch: ChannelId,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A copy of the payload.
    Payload(Vec<u8>),
    /// What the channel kept.
    Backlog(ByteQueue),
}

impl Loan {
    /// The bytes, oldest first: what [`Connection::readable`] would show.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Payload(bytes) => bytes,
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
        let source = if self.lent_to(slot, Stream::Data).is_some() {
            Source::Payload(self.readable(ch).to_vec())
        } else {
            Source::Backlog(match self.table.by_id_mut(ch) {
                Some(channel) => channel.input.take_data(),
                None => ByteQueue::new(0),
            })
        };
        Loan { ch, source }
    }

    /// Puts the bytes back, less the first `n`, which are consumed.
    pub fn give_back(&mut self, now: Instant, loan: Loan, n: usize) {
        if let Source::Backlog(queue) = loan.source
            && let Some(channel) = self.table.by_id_mut(loan.ch)
        {
            channel.input.put_data(queue);
        }
        self.consume(now, loan.ch, n);
    }
}
