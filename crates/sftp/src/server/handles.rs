//! The table of open handles: bounded, constant-time, and able to tell a stale handle from a
//! live one.

use super::store::FileId;

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Dir,
}

/// How an operation uses a file while it is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Beside others that only read.
    Shared,
    /// Alone.
    Exclusive,
}

#[derive(Debug)]
struct Entry {
    /// Counts the uses of the index, so that a handle of an earlier one is recognised.
    generation: u16,
    state: Option<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    kind: Kind,
    shared_count: u16,
    is_exclusive: bool,
}

/// The handles of one session. On the wire a handle is 4 bytes: generation, then index, so the
/// first use of each index looks as OpenSSH's handles do.
#[derive(Debug)]
pub(super) struct Handles {
    entries: Vec<Entry>,
    /// Indices to be reused, the last closed first, as OpenSSH does.
    free: Vec<u16>,
    count_max: usize,
    dir_count: usize,
    dir_count_max: usize,
}

impl Handles {
    pub(super) fn new(count_max: u32, dir_count_max: u32) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            count_max: count_max.min(super::Config::HANDLES_MAX) as usize,
            dir_count: 0,
            dir_count_max: dir_count_max as usize,
        }
    }

    /// The id that the next [`Handles::insert`] gives, or `None` when the table is full.
    pub(super) fn next(&self, kind: Kind) -> Option<FileId> {
        if kind == Kind::Dir && self.dir_count >= self.dir_count_max {
            return None;
        }
        if let Some(&index) = self.free.last() {
            return Some(FileId(u32::from(index)));
        }
        if self.entries.len() == self.count_max {
            return None;
        }
        u32::try_from(self.entries.len()).ok().map(FileId)
    }

    /// Enters what [`Handles::next`] promised and returns its wire form.
    pub(super) fn insert(&mut self, id: FileId, kind: Kind) -> [u8; 4] {
        if self.free.last().is_some_and(|&i| u32::from(i) == id.0) {
            self.free.pop();
        } else {
            debug_assert_eq!(id.0 as usize, self.entries.len(), "ids come from next()");
            self.entries.push(Entry {
                generation: 0,
                state: None,
            });
        }
        self.dir_count += usize::from(kind == Kind::Dir);
        let entry = &mut self.entries[id.0 as usize];
        entry.state = Some(State {
            kind,
            shared_count: 0,
            is_exclusive: false,
        });
        ((u32::from(entry.generation) << 16) | id.0).to_be_bytes()
    }

    /// The live handle that `wire` names.
    pub(super) fn find(&self, wire: &[u8]) -> Option<(FileId, Kind)> {
        let value = u32::from_be_bytes(wire.try_into().ok()?);
        let (generation, index) = (value >> 16, value & 0xffff);
        let entry = self.entries.get(index as usize)?;
        let state = entry.state.as_ref()?;
        (u32::from(entry.generation) == generation).then_some((FileId(index), state.kind))
    }

    pub(super) fn remove(&mut self, id: FileId) {
        let entry = &mut self.entries[id.0 as usize];
        if let Some(state) = entry.state.take() {
            self.dir_count -= usize::from(state.kind == Kind::Dir);
            entry.generation = entry.generation.wrapping_add(1);
            let index = u16::try_from(id.0).expect("the table holds at most 2^16 entries");
            self.free.push(index);
        }
    }

    /// Whether an operation may start now, given what is pending on the same file.
    pub(super) fn is_free_for(&self, id: FileId, how: Use) -> bool {
        self.entries[id.0 as usize]
            .state
            .is_none_or(|state| match how {
                Use::Shared => !state.is_exclusive,
                Use::Exclusive => !state.is_exclusive && state.shared_count == 0,
            })
    }

    /// Takes note that an operation on the file is pending.
    pub(super) fn begin(&mut self, id: FileId, how: Use) {
        if let Some(state) = &mut self.entries[id.0 as usize].state {
            match how {
                Use::Shared => state.shared_count += 1,
                Use::Exclusive => state.is_exclusive = true,
            }
        }
    }

    /// Takes note that a pending operation ended.
    pub(super) fn end(&mut self, id: FileId, how: Use) {
        if let Some(state) = &mut self.entries[id.0 as usize].state {
            match how {
                Use::Shared => state.shared_count -= 1,
                Use::Exclusive => state.is_exclusive = false,
            }
        }
    }

    /// Handles open now.
    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_handles_look_as_openssh_makes_them() {
        let mut handles = Handles::new(2, 2);
        let a = handles.next(Kind::File).expect("room");
        assert_eq!(handles.insert(a, Kind::File), [0, 0, 0, 0]);
        let b = handles.next(Kind::Dir).expect("room");
        assert_eq!(handles.insert(b, Kind::Dir), [0, 0, 0, 1]);
        assert_eq!(handles.next(Kind::File), None);
        assert_eq!(handles.find(&[0, 0, 0, 1]), Some((b, Kind::Dir)));
        assert_eq!(handles.find(&[0, 0, 0, 2]), None);
        assert_eq!(handles.find(&[0, 0, 1]), None);
    }

    #[test]
    fn a_stale_handle_does_not_reach_the_file_that_took_its_index() {
        let mut handles = Handles::new(1, 1);
        let a = handles.next(Kind::File).expect("room");
        let old = handles.insert(a, Kind::File);
        handles.remove(a);
        let b = handles.next(Kind::File).expect("room");
        let new = handles.insert(b, Kind::File);
        assert_eq!(a, b);
        assert_eq!(handles.find(&old), None);
        assert_eq!(handles.find(&new), Some((b, Kind::File)));
        assert_eq!(handles.count(), 1);
    }

    #[test]
    fn folders_are_taken_to_their_own_limit() {
        let mut handles = Handles::new(3, 1);
        let a = handles.next(Kind::Dir).expect("room");
        handles.insert(a, Kind::Dir);
        assert_eq!(handles.next(Kind::Dir), None);
        let b = handles.next(Kind::File).expect("files have room");
        handles.insert(b, Kind::File);
        handles.remove(b);
        assert_eq!(handles.next(Kind::Dir), None);
        handles.remove(a);
        assert!(handles.next(Kind::Dir).is_some());
    }

    #[test]
    fn readers_go_on_beside_readers_only() {
        let mut handles = Handles::new(1, 1);
        let id = handles.next(Kind::File).expect("room");
        handles.insert(id, Kind::File);
        handles.begin(id, Use::Shared);
        assert!(handles.is_free_for(id, Use::Shared));
        assert!(!handles.is_free_for(id, Use::Exclusive));
        handles.end(id, Use::Shared);
        handles.begin(id, Use::Exclusive);
        assert!(!handles.is_free_for(id, Use::Shared));
        handles.end(id, Use::Exclusive);
        assert!(handles.is_free_for(id, Use::Exclusive));
    }
}
