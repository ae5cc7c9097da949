//! What an application does with a connection: read, write, end it, let it go.

use fullbore_base::Instant;
use fullbore_tcp::connection::{Connection, Info, State};
use fullbore_tcp::isn::Tuple;

use super::slots::Orphan;
use super::{ConnectionId, Error, Stack};

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// So many bytes; at least one.
    Bytes(usize),
    /// Nothing now: wait for `Readable`, `Finished` or `Closed`.
    Later,
    /// The peer sends nothing more.
    End,
}

impl Stack {
    /// The connection; none once it was let go.
    #[must_use]
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        Some(&self.slots.get(id)?.connection)
    }

    /// Its addresses and ports.
    #[must_use]
    pub fn tuple(&self, id: ConnectionId) -> Option<Tuple> {
        Some(self.slots.get(id)?.tuple)
    }

    /// How it stands. O(1).
    #[must_use]
    pub fn info(&self, id: ConnectionId) -> Option<Info> {
        Some(self.slots.get(id)?.connection.info())
    }

    /// Copies what has arrived to `out`, which is not empty. Bytes that came before an error are read
    /// before it is told.
    ///
    /// # Errors
    /// The connection's own, or [`Error::Unknown`].
    pub fn read(&mut self, now: Instant, id: ConnectionId, out: &mut [u8]) -> Result<Read, Error> {
        let entry = self.slots.get_mut(id).ok_or(Error::Unknown)?;
        let connection = &mut entry.connection;
        let (first, second) = connection.peek();
        let front = first.len().min(out.len());
        let back = second.len().min(out.len() - front);
        out[..front].copy_from_slice(&first[..front]);
        out[front..front + back].copy_from_slice(&second[..back]);
        let count = front + back;
        if count > 0 {
            connection.consume(now, count);
            self.touch(id);
            return Ok(Read::Bytes(count));
        }
        if connection.is_at_end() {
            return Ok(Read::End);
        }
        match (connection.error(), connection.state()) {
            (Some(error), _) => Err(Error::Connection(error)),
            (None, State::Closed) => Ok(Read::End),
            (None, _) => Ok(Read::Later),
        }
    }

    /// Takes of `bytes` what there is room for: a connection keeps little that it has not sent. After
    /// fewer than all, `Writable` tells of room.
    ///
    /// # Errors
    /// The connection's own, or [`Error::Unknown`].
    pub fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<usize, Error> {
        let notsent_max = self.config.notsent_max;
        let entry = self.slots.get_mut(id).ok_or(Error::Unknown)?;
        let room = notsent_max.saturating_sub(entry.connection.notsent_bytes());
        let len = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
        let taken = entry.connection.write(&bytes[..len]);
        let taken = taken.map_err(Error::Connection)?;
        entry.is_write_blocked = taken < bytes.len();
        if taken > 0 {
            self.touch(id);
        }
        Ok(taken)
    }

    /// Sends nothing more after what was written. Reading goes on.
    pub fn shutdown(&mut self, id: ConnectionId) {
        if let Some(entry) = self.slots.get_mut(id) {
            entry.connection.close();
            self.touch(id);
        }
    }

    /// Ends it at once; the peer is told by a RST.
    pub fn abort(&mut self, id: ConnectionId) {
        if let Some(entry) = self.slots.get_mut(id) {
            entry.connection.abort();
            self.touch(id);
        }
    }

    /// The application lets it go: what was written is still delivered, as long as the peer takes it, and
    /// `id` names nothing any more for it. Where bytes are unread, the peer is told by a RST that
    /// nobody will (RFC 2525 2.17).
    pub fn release(&mut self, now: Instant, id: ConnectionId) {
        let Some(entry) = self.slots.get_mut(id) else {
            return;
        };
        if entry.connection.readable_bytes() > 0 {
            entry.connection.abort();
        } else {
            entry.connection.close();
        }
        entry.orphan = Some(Orphan {
            progress_at: now,
            acked: entry.connection.stats().bytes_acked,
        });
        self.touch(id);
    }
}
