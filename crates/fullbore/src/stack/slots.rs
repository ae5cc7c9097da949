//! Connections by a name that is never used for two of them, and their deadlines.

use std::collections::BTreeSet;

use fullbore_base::Instant;
use fullbore_tcp::connection::{self, Connection};
use fullbore_tcp::isn::Tuple;

use super::config::ORPHAN_PATIENCE;

/// Names a connection of a stack. One that is over and let go is named by nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

impl ConnectionId {
    /// A number that no other connection has at the same time, and that is used again: an index for
    /// tables of the stack's owner.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// A connection and what the stack keeps of it.
#[derive(Debug)]
pub struct Entry {
    pub connection: Box<Connection>,
    pub tuple: Tuple,
    /// It stands in the queue of those that may have a segment to send.
    pub is_ready: bool,
    /// It stands in the queue of those that may have an event.
    pub is_noted: bool,
    /// Its writer waits for room.
    pub is_write_blocked: bool,
    /// There is room, and its writer was not told yet.
    pub is_writable: bool,
    /// The application has let it go: when that was, or when it last made progress.
    pub orphan: Option<Orphan>,
    /// Its deadline in [`Slots`].
    armed: Option<Instant>,
}

impl Entry {
    pub fn poll_event(&mut self) -> Option<connection::Event> {
        if std::mem::take(&mut self.is_writable) {
            return Some(connection::Event::Writable);
        }
        let event = self.connection.poll_event()?;
        Some(event).filter(|_| self.orphan.is_none())
    }

    /// Returns whether there is room again for a writer that waits.
    pub fn unblock_writer(&mut self, notsent_max: u64) -> bool {
        let has_room = self.connection.notsent_bytes() <= notsent_max / 2
            && self.connection.writable_bytes() > 0;
        if !self.is_write_blocked || !has_room {
            return false;
        }
        self.is_write_blocked = false;
        self.is_writable = true;
        true
    }

    /// Ends a connection that nobody holds when its peer does not let it come to its end.
    pub fn give_up_orphan(&mut self, now: Instant) {
        let Some(orphan) = &mut self.orphan else {
            return;
        };
        let acked = self.connection.stats().bytes_acked;
        if acked != orphan.acked {
            *orphan = Orphan {
                progress_at: now,
                acked,
            };
        } else if now - orphan.progress_at >= ORPHAN_PATIENCE {
            self.connection.abort();
        }
    }
}

/// A connection without an application.
#[derive(Clone, Copy, Debug)]
pub struct Orphan {
    pub progress_at: Instant,
    /// What was acknowledged then.
    pub acked: u64,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    entry: Option<Box<Entry>>,
}

/// All connections of a stack.
#[derive(Debug, Default)]
pub struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    deadlines: BTreeSet<(Instant, ConnectionId)>,
}

impl Slots {
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn insert(&mut self, connection: Box<Connection>, tuple: Tuple) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("bounded by connections_max")
        });
        let slot = &mut self.slots[index as usize];
        slot.entry = Some(Box::new(Entry {
            connection,
            tuple,
            is_ready: false,
            is_noted: false,
            is_write_blocked: false,
            is_writable: false,
            orphan: None,
            armed: None,
        }));
        ConnectionId {
            index,
            generation: slot.generation,
        }
    }

    pub fn get(&self, id: ConnectionId) -> Option<&Entry> {
        let slot = self.slots.get(id.index())?;
        let is_current = slot.generation == id.generation;
        slot.entry.as_deref().filter(|_| is_current)
    }

    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Entry> {
        let slot = self.slots.get_mut(id.index())?;
        let is_current = slot.generation == id.generation;
        slot.entry.as_deref_mut().filter(|_| is_current)
    }

    pub fn remove(&mut self, id: ConnectionId) -> Option<Box<Entry>> {
        self.get(id)?;
        let slot = &mut self.slots[id.index()];
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        if let Some(at) = entry.armed {
            self.deadlines.remove(&(at, id));
        }
        Some(entry)
    }

    /// The next deadline, or an earlier instant.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Sees that `id` is due at `at`, or earlier: a deadline that moves on is looked at again when the
    /// earlier one passes, so acknowledgements cost nothing here. O(log connections).
    pub fn arm(&mut self, id: ConnectionId, at: Option<Instant>) {
        let Some(at) = at else {
            return;
        };
        let Some(entry) = self.get_mut(id) else {
            return;
        };
        let before = entry.armed;
        if before.is_some_and(|before| before <= at) {
            return;
        }
        entry.armed = Some(at);
        if let Some(before) = before {
            self.deadlines.remove(&(before, id));
        }
        self.deadlines.insert((at, id));
    }

    /// The next that is due.
    pub fn take_due(&mut self, now: Instant) -> Option<ConnectionId> {
        let &(at, id) = self.deadlines.first().filter(|(at, _)| *at <= now)?;
        self.deadlines.remove(&(at, id));
        let entry = self.get_mut(id).expect("a removed one has no deadline");
        entry.armed = None;
        Some(id)
    }
}
