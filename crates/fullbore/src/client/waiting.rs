//! What waits for a connection: calls, transfers with their files, and users of plain channels.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use fullbore_sftp::client::{BlockError, Blocks, BulkId, RequestId};
use fullbore_ssh::ChannelId;

use crate::driver::clock::Clock;
use crate::path::DiskTimes;
use crate::session::LaneFiles;
use crate::transfer::FileIo;

/// Calls that are woken at a time when there is room: what they ask for, with the content of short
/// files, is about what the queue of requests holds.
const ROOM_WAKES_MAX: usize = 32;

/// The files and the waiting calls of all lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    states: BTreeMap<ChannelId, LaneState>,
    disk: DiskClock,
}

/// Counts the time that reads and writes of files take, for all lanes together.
#[derive(Clone, Debug)]
struct DiskClock {
    clock: Clock,
    times: Rc<Cell<DiskTimes>>,
}

impl DiskClock {
    /// Does `work`, and adds its time to what `time` picks.
    fn measure<R>(
        &self,
        time: impl FnOnce(&mut DiskTimes) -> &mut Duration,
        work: impl FnOnce() -> R,
    ) -> R {
        let started = self.clock.now();
        let result = work();
        let mut times = self.times.get();
        *time(&mut times) += self.clock.now() - started;
        self.times.set(times);
        result
    }
}

#[derive(Debug)]
pub(super) struct LaneState {
    pub(super) files: LaneBlocks,
    /// Calls that wait for their replies.
    pub(super) calls: BTreeMap<RequestId, Option<Waker>>,
    /// Calls that wait for room to ask, who waits longest first.
    pub(super) room: VecDeque<Waker>,
    pub(super) bulks: BTreeMap<BulkId, BulkState>,
    pub(super) ready: Vec<Waker>,
}

/// A transfer as the one who waits for it sees it.
#[derive(Debug, Default)]
pub(super) struct BulkState {
    pub(super) waker: Option<Waker>,
    /// Nobody waits: its report is thrown away.
    pub(super) is_forgotten: bool,
}

/// The files of one lane's transfers.
pub(super) struct LaneBlocks(pub(super) BTreeMap<BulkId, Rc<dyn FileIo>>, DiskClock);

impl std::fmt::Debug for LaneBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl LaneBlocks {
    fn file(&self, bulk: BulkId) -> Result<&dyn FileIo, BlockError> {
        let file = self.0.get(&bulk).map(|file| &**file);
        file.ok_or_else(|| io::Error::other("the transfer was given up"))
    }
}

impl Blocks for LaneBlocks {
    fn read_at(
        &mut self,
        bulk: BulkId,
        offset: u64,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<usize, BlockError> {
        let file = self.file(bulk)?;
        let read = || file.read_at(offset, slices);
        self.1.measure(|times| &mut times.reading, read)
    }

    fn write_at(&mut self, bulk: BulkId, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let file = self.file(bulk)?;
        let write = || file.write_at(offset, bytes);
        self.1.measure(|times| &mut times.writing, write)
    }
}

impl LaneFiles for Lanes {
    fn of_lane(&mut self, lane: ChannelId) -> &mut dyn Blocks {
        &mut self.of(lane).files
    }
}

impl Lanes {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            states: BTreeMap::new(),
            disk: DiskClock {
                clock,
                times: Rc::default(),
            },
        }
    }

    /// The time that files have taken so far.
    pub(super) fn disk(&self) -> Rc<Cell<DiskTimes>> {
        Rc::clone(&self.disk.times)
    }

    pub(super) fn of(&mut self, lane: ChannelId) -> &mut LaneState {
        let state = self.states.entry(lane);
        state.or_insert_with(|| LaneState {
            files: LaneBlocks(BTreeMap::new(), self.disk.clone()),
            calls: BTreeMap::new(),
            room: VecDeque::new(),
            bulks: BTreeMap::new(),
            ready: Vec::new(),
        })
    }

    pub(super) fn by_id_mut(&mut self) -> impl Iterator<Item = (ChannelId, &mut LaneState)> {
        self.states.iter_mut().map(|(ch, state)| (*ch, state))
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut LaneState> {
        self.states.values_mut()
    }

    pub(super) fn remove(&mut self, lane: ChannelId) {
        self.states.remove(&lane);
    }
}

/// A channel that is no lane, as the one who uses it sees it. Its bytes stay in the connection.
#[derive(Debug, Default)]
pub(super) struct Plain {
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    pub(super) is_open: bool,
    /// The peer accepted the request that starts the program.
    pub(super) is_started: bool,
    pub(super) is_eof: bool,
    pub(super) status: Option<u32>,
    /// Why it is over, if not by itself.
    pub(super) failure: Option<String>,
    pub(super) is_closed: bool,
}

impl Plain {
    /// Whether what was asked for was refused, so that nothing will come.
    pub(super) fn is_refused(&self) -> bool {
        !self.is_started && self.failure.is_some()
    }

    pub(super) fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }
}

impl LaneState {
    pub(super) fn wake_ready(&mut self) {
        for waker in self.ready.drain(..) {
            waker.wake();
        }
    }

    /// Wakes some who wait for room: each takes some, and the next are woken in the next turn. `all`
    /// where no turn is sure to follow.
    pub(super) fn wake_room(&mut self, all: bool) {
        let count = if all { self.room.len() } else { ROOM_WAKES_MAX };
        for _ in 0..count {
            let Some(waker) = self.room.pop_front() else {
                return;
            };
            waker.wake();
        }
    }

    pub(super) fn wake_all(&mut self) {
        self.wake_ready();
        self.wake_room(true);
        for waker in self.calls.values_mut().filter_map(Option::take) {
            waker.wake();
        }
        for waker in self.bulks.values_mut().filter_map(|bulk| bulk.waker.take()) {
            waker.wake();
        }
    }
}

/// Keeps `cx`'s waker in `slot`.
pub(super) fn wait(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *slot = Some(cx.waker().clone()),
    }
}
