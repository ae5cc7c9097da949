//! Transfers of file content: the parts that a download and an upload share, and the set of them.

use smallvec::SmallVec;

use super::config::{BULKS_MAX, HANDLE_LEN_MAX};
use super::error::{BlockError, BulkError, Error, Misbehaviour};
use super::get::Get;
use super::put::Put;
use std::io::IoSliceMut;

/// Names one transfer of a [`super::Client`]; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BulkId(u32);

/// Handles are opaque strings of 1 to 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handle(SmallVec<[u8; 24]>);

impl Handle {
    /// A handle as the server sent it.
    ///
    /// # Errors
    /// When it is empty or longer than the draft's 256 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.is_empty() || bytes.len() > HANDLE_LEN_MAX {
            return Err(Error::PeerMisbehaved(Misbehaviour::HandleLength(
                bytes.len(),
            )));
        }
        Ok(Self(SmallVec::from_slice(bytes)))
    }

    /// The bytes to send.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Where the file bytes of transfers come from and go to, block by block, in place.
///
/// Called from inside the engine, so it must not block for long: cached file I/O is meant.
pub trait Blocks {
    /// Fills `slices` from `offset` of the source of `bulk`; returns how many bytes. 0 is the end
    /// of the source; fewer than asked is not.
    ///
    /// # Errors
    /// Ends the transfer, not the session.
    fn read_at(
        &mut self,
        bulk: BulkId,
        offset: u64,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<usize, BlockError>;

    /// Stores all of `bytes` at `offset` of the destination of `bulk`. Blocks arrive in any order
    /// and never overlap.
    ///
    /// # Errors
    /// Ends the transfer, not the session.
    fn write_at(&mut self, bulk: BulkId, offset: u64, bytes: &[u8]) -> Result<(), BlockError>;
}

/// How a transfer ended.
#[derive(Debug)]
pub struct BulkReport {
    /// File bytes that arrived, or were confirmed with `SSH_FX_OK`.
    pub bytes: u64,
    /// Everything from the start offset to here was transferred, without a hole: the end of the
    /// file if there was no error, else where a resumed transfer may start.
    pub end: u64,
    /// Why it ended early.
    pub error: Option<BulkError>,
}

/// How far a running transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// File bytes that arrived, or were confirmed.
    pub bytes: u64,
    /// Everything before this offset was transferred, without a hole.
    pub frontier: u64,
}

#[derive(Debug)]
pub(super) enum Direction {
    Get(Get),
    Put(Put),
}

#[derive(Debug)]
pub(super) struct Bulk {
    pub(super) handle: Handle,
    pub(super) direction: Direction,
    /// Its requests without a reply.
    pub(super) outstanding: u32,
    pub(super) bytes: u64,
    pub(super) error: Option<BulkError>,
    /// Nothing more is to be done, and the caller was told.
    pub(super) done: bool,
    /// A progress event waits to be polled.
    pub(super) progress_queued: bool,
    /// Listed among those that may send.
    pub(super) in_ready: bool,
    /// Request size at most; shrinks on short replies.
    pub(super) request_len: u32,
    /// Stays first among those that may send until it has sent all.
    pub(super) holds_turn: bool,
}

impl Bulk {
    pub(super) const fn new(handle: Handle, direction: Direction, request_len: u32) -> Self {
        Self {
            handle,
            direction,
            outstanding: 0,
            bytes: 0,
            error: None,
            done: false,
            progress_queued: false,
            in_ready: false,
            request_len,
            holds_turn: false,
        }
    }

    /// Whether a request should be sent now.
    pub(super) fn wants(&self) -> bool {
        self.error.is_none()
            && !self.done
            && match &self.direction {
                Direction::Get(get) => get.wants(),
                Direction::Put(put) => put.wants(),
            }
    }

    pub(super) fn frontier(&self) -> u64 {
        match &self.direction {
            Direction::Get(get) => get.frontier(),
            Direction::Put(put) => put.frontier(),
        }
    }

    /// Keeps the first failure; later ones follow from it.
    pub(super) fn fail(&mut self, error: BulkError) {
        self.error.get_or_insert(error);
    }

    /// Whether nothing is left to be done, once its last reply is here.
    pub(super) fn is_settled(&mut self) -> bool {
        if self.done || self.outstanding > 0 {
            return false;
        }
        if self.error.is_some() {
            return true;
        }
        match &mut self.direction {
            Direction::Put(put) => put.is_ended(),
            Direction::Get(get) => match get.settle() {
                Ok(end) => end.is_some(),
                Err(error) => {
                    self.fail(error);
                    true
                }
            },
        }
    }
}

/// The transfers in progress. Ids name a place and its use, so that a stale one finds nothing.
#[derive(Debug, Default)]
pub(super) struct Bulks {
    places: Vec<(u32, Option<Bulk>)>,
    free: Vec<usize>,
}

const PLACE_MASK: u32 = BULKS_MAX as u32 - 1;

impl Bulks {
    /// Adds a transfer; `None` when there are [`BULKS_MAX`] already.
    pub(super) fn insert(&mut self, bulk: Bulk) -> Option<BulkId> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < BULKS_MAX => {
                self.places.push((0, None));
                self.places.len() - 1
            }
            None => return None,
        };
        let (uses, slot) = &mut self.places[place];
        *uses = uses.wrapping_add(1);
        *slot = Some(bulk);
        Some(BulkId(uses.wrapping_mul(BULKS_MAX as u32) | place as u32))
    }

    fn place(&self, id: BulkId) -> Option<usize> {
        let place = (id.0 & PLACE_MASK) as usize;
        let (uses, _) = self.places.get(place)?;
        (uses.wrapping_mul(BULKS_MAX as u32) == id.0 & !PLACE_MASK).then_some(place)
    }

    pub(super) fn get(&self, id: BulkId) -> Option<&Bulk> {
        self.places[self.place(id)?].1.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: BulkId) -> Option<&mut Bulk> {
        let place = self.place(id)?;
        self.places[place].1.as_mut()
    }

    pub(super) fn remove(&mut self, id: BulkId) -> Option<Bulk> {
        let place = self.place(id)?;
        let bulk = self.places[place].1.take()?;
        self.free.push(place);
        Some(bulk)
    }

    /// Whether a download is under way.
    pub(super) fn is_any_reading(&self) -> bool {
        let mut bulks = self.places.iter().filter_map(|(_, bulk)| bulk.as_ref());
        bulks.any(|bulk| !bulk.done && matches!(bulk.direction, Direction::Get(_)))
    }

    /// Transfers not yet taken by the caller.
    pub(super) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

const _: () = assert!(BULKS_MAX.is_power_of_two());
