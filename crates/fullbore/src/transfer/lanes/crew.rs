//! A file of a server with its handles: one for everything, and one on each further session that
//! moves parts of it.
//!
//! A name may be given to another file at any time, so a second handle is used only if it is known to
//! be of the same file. One that is read must have the same size, times, owner and mode. One that is
//! written to gets a mark, an access time within the day before it was made that nobody else would
//! give it, and what is opened next must carry it. The mark also tells, in the end, whether the name
//! is still that of the file that was written; it goes with the last attributes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use fullbore_base::Instant;
use fullbore_sftp::client::Handle;
use fullbore_sftp::proto::{Attrs, FileType, OpenFlags};
use fullbore_ssh::provider::SecureRandom;

use super::STRIPED_MODE;
use super::fleet::{Direction, Fleet, Session, stood_text};
use super::schedule::DEPTH_BYTES_ALONE;
use super::stripe::{Change, Crew, UnitMoving};
use crate::client::Error;
use crate::driver::random::SystemRandom;
use crate::transfer::pool::Pool;
use crate::transfer::remote::moved;
use crate::transfer::side::{Fault, FaultKind, FileIo, Moved, Span};

/// Lanes are looked at for whether they move after this long at least.
const LOOK_MIN: Duration = Duration::from_millis(250);

/// How long a lane that stood still has to say that its handle is closed. Chosen: one that goes on has
/// little to do by then, and nobody should wait long for one that does not.
const LATE_CLOSE_MAX: Duration = Duration::from_secs(2);

/// How long a new session may take to answer, and that in round trips. Chosen: a loaded server may need a
/// second to start its program.
const OPEN_MAX: Duration = Duration::from_secs(10);
const OPEN_ROUNDS: u32 = 20;

/// Shorter paths are filled by what may be handed out without a mark: 6 Gbit/s, and what is left of a copy
/// that breaks need not be doubted further back.
const DEEP_RTT_MIN: Duration = Duration::from_millis(20);

/// Marks are at most so many seconds old.
const MARK_SECONDS: u32 = 24 * 60 * 60;

/// An open file of a server.
#[derive(Clone, Debug)]
pub struct RemoteFile(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Handle,
    path: Vec<u8>,
    direction: Direction,
    lanes: RefCell<Vec<Rc<FileLane>>>,
    /// What further handles are compared with.
    known: RefCell<Option<Attrs>>,
}

/// A further handle.
#[derive(Debug)]
pub(crate) struct FileLane {
    session: Rc<Session>,
    handle: Handle,
    state: Cell<LaneState>,
    /// It gets no further units, because its session is leaving.
    is_dismissed: Cell<bool>,
}

/// What is known of a further handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneState {
    Used,
    /// It, or its session, failed: others have moved what it had not confirmed.
    Failed,
    /// It stood still, and others moved its part. The server may still do what it was asked.
    Stalled,
}

/// Why a further handle cannot be used.
enum Refusal {
    /// The session cannot be.
    Session(Error),
    /// No further handle of this file can be.
    File(String),
    /// This file cannot have any, which says nothing about others.
    Once,
}

impl RemoteFile {
    pub(crate) fn new(handle: Handle, path: &[u8], direction: Direction) -> Self {
        Self(Rc::new(Inner {
            handle,
            path: path.to_vec(),
            direction,
            lanes: RefCell::default(),
            known: RefCell::default(),
        }))
    }

    /// The handle for everything.
    pub(crate) fn handle(&self) -> &Handle {
        &self.0.handle
    }

    pub(crate) fn direction(&self) -> Direction {
        self.0.direction
    }

    /// Closes all handles but the first. What a server says about bytes that were written counts.
    pub(crate) async fn close_lanes(&self) -> Result<(), Fault> {
        let lanes = self.0.lanes.take();
        let mut pool = Pool::new();
        for lane in &lanes {
            pool.push(lane.close());
        }
        let mut result = Ok(());
        while let Some(closed) = pool.next().await {
            result = result.and(closed);
        }
        result
    }

    /// Whether WRITEs may still be served that nobody waits for: a lane that stood still was left.
    pub(crate) fn has_late_writes(&self) -> bool {
        let lanes = self.0.lanes.borrow();
        let is_late = |lane: &Rc<FileLane>| lane.state.get() != LaneState::Used;
        self.0.direction == Direction::Up && lanes.iter().any(is_late)
    }

    fn same_as(&self, attrs: &Attrs) -> bool {
        let known = self.0.known.borrow();
        let Some(known) = &*known else { return false };
        match self.0.direction {
            Direction::Down => unread(known) == unread(attrs),
            Direction::Up => mark_of(known) == mark_of(attrs),
        }
    }
}

/// What tells a file that several lanes write to: its access time and its mode.
fn mark_of(attrs: &Attrs) -> (Option<u32>, Option<u32>) {
    (attrs.times.map(|times| times.0), attrs.permissions)
}

/// The attributes that reading leaves as they are.
fn unread(attrs: &Attrs) -> Attrs {
    Attrs {
        times: attrs.times.map(|times| (0, times.1)),
        ..*attrs
    }
}

impl FileLane {
    fn new(session: &Rc<Session>, handle: Handle) -> Rc<Self> {
        Rc::new(Self {
            session: Rc::clone(session),
            handle,
            state: Cell::new(LaneState::Used),
            is_dismissed: Cell::new(false),
        })
    }

    fn is_used(&self) -> bool {
        self.state.get() == LaneState::Used
    }

    /// A session that is lost has closed it; what it had not confirmed was moved again.
    async fn close(&self) -> Result<(), Fault> {
        let sftp = &self.session.sftp;
        match self.state.get() {
            LaneState::Used => {}
            LaneState::Failed => {
                let _ = sftp.release(&self.handle).await;
                return Ok(());
            }
            LaneState::Stalled => {
                // What it may still write is there already: `stall` says why.
                let _ = tokio::time::timeout(LATE_CLOSE_MAX, sftp.close(&self.handle)).await;
                return Ok(());
            }
        }
        match sftp.close(&self.handle).await.map_err(Fault::from) {
            Err(fault) if fault.kind != FaultKind::Lost => Err(fault),
            Err(_) | Ok(()) => Ok(()),
        }
    }
}

/// The lanes of one file while it is moved.
pub(crate) struct FileCrew<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) file: &'a RemoteFile,
    pub(crate) io: Rc<dyn FileIo>,
    /// The first handle, as a lane.
    first: Rc<FileLane>,
    /// This file can have no further handle.
    is_alone: Cell<bool>,
    /// Whether what is left of the file may have large holes, once that has mattered.
    has_deep_holes: Cell<Option<bool>>,
}

impl<'a> FileCrew<'a> {
    pub(crate) fn new(fleet: &'a Fleet, file: &'a RemoteFile, io: Rc<dyn FileIo>) -> Self {
        Self {
            fleet,
            file,
            io,
            first: FileLane::new(fleet.main(), file.handle().clone()),
            is_alone: Cell::new(false),
            has_deep_holes: Cell::new(None),
        }
    }

    /// Whether a transfer that breaks may leave holes as far before the end as lanes do: what is left
    /// must be marked for it. A file here is marked when that matters first; one of the server only with
    /// its second handle, since that takes a round trip.
    fn may_leave_holes(&self) -> bool {
        if self.file.0.known.borrow().is_some() {
            return true;
        }
        let found = self.has_deep_holes.get().unwrap_or_else(|| {
            self.file.direction() == Direction::Down && self.io.begin_stripes().is_ok()
        });
        self.has_deep_holes.set(Some(found));
        found
    }

    /// Sessions on which the file has no handle.
    fn unused_sessions(&self) -> Vec<Rc<Session>> {
        let lanes = self.file.0.lanes.borrow();
        let is_used = |session: &Rc<Session>| lanes.iter().any(|l| Rc::ptr_eq(&l.session, session));
        let mut sessions = self.fleet.extra();
        sessions.retain(|session| !is_used(session));
        sessions
    }

    fn forget(&self, lane: &Rc<FileLane>) {
        let mut lanes = self.file.0.lanes.borrow_mut();
        lanes.retain(|known| !Rc::ptr_eq(known, lane));
    }

    /// A lane to dismiss; each is told once.
    fn leaving(&self) -> Option<Rc<FileLane>> {
        let lanes = self.file.0.lanes.borrow();
        let leaves = |lane: &&Rc<FileLane>| {
            lane.session.is_leaving() && lane.is_used() && !lane.is_dismissed.replace(true)
        };
        lanes.iter().find(leaves).cloned()
    }

    /// Opens the file on all of `sessions` at once.
    async fn open_on(&self, sessions: &[Rc<Session>]) -> Vec<Rc<FileLane>> {
        let (recognised, handles) = tokio::join!(self.recognise(), self.open_handles(sessions));
        if let Err(refusal) = recognised {
            for handle in handles {
                // Nothing was written through it.
                let _ = match handle {
                    (session, Ok(handle)) => session.sftp.release(&handle).await,
                    (_, Err(_)) => Ok(()),
                };
            }
            self.on_refusal(None, refusal).await;
            return Vec::new();
        }
        let mut pool = Pool::new();
        for (session, handle) in handles {
            pool.push(async move {
                let lane = match handle {
                    Ok(handle) => self.check(session, handle).await,
                    Err(refusal) => Err(refusal),
                };
                (session, lane)
            });
        }
        let mut opened = Vec::new();
        let mut refused = Vec::new();
        while let Some((session, result)) = pool.next().await {
            match result {
                Ok(lane) => opened.push(lane),
                Err(refusal) => refused.push((session, refusal)),
            }
        }
        drop(pool);
        for (session, refusal) in refused {
            self.on_refusal(Some(session), refusal).await;
        }
        self.fleet.look();
        opened
    }

    async fn on_refusal(&self, session: Option<&Rc<Session>>, refusal: Refusal) {
        match (refusal, session) {
            (Refusal::Session(error), Some(session)) => {
                self.fleet.on_refused(session, &error).await;
            }
            (Refusal::File(why), _) => self.fleet.close_all(&why).await,
            (Refusal::Once | Refusal::Session(_), _) => self.is_alone.set(true),
        }
    }

    /// Learns by what a further handle can be told to be of the same file.
    async fn recognise(&self) -> Result<(), Refusal> {
        if self.file.0.known.borrow().is_some() {
            return Ok(());
        }
        let sftp = &self.first.session.sftp;
        let handle = self.file.handle();
        let mut attrs = sftp.fstat(handle).await.map_err(Refusal::Session)?;
        if !matches!(attrs.file_type(), Some(FileType::Regular) | None) {
            return Err(Refusal::Once);
        }
        match self.file.direction() {
            Direction::Up => self.mark(&mut attrs).await?,
            Direction::Down => self.io.begin_stripes().map_err(|_| Refusal::Once)?,
        }
        *self.file.0.known.borrow_mut() = Some(attrs);
        Ok(())
    }

    /// Marks the file that is written to.
    async fn mark(&self, attrs: &mut Attrs) -> Result<(), Refusal> {
        let refused = |why: &str| Refusal::File(format!("the server {why}"));
        let (_, modified) = attrs.times.ok_or_else(|| refused("tells no times"))?;
        let mode = attrs.permissions.ok_or_else(|| refused("tells no modes"))?;
        let mode = mode | STRIPED_MODE;
        attrs.times = Some((mark_before(modified), modified));
        attrs.permissions = Some(mode);
        let marked = Attrs {
            times: attrs.times,
            permissions: Some(mode & 0o7777),
            ..Attrs::EMPTY
        };
        let sftp = &self.first.session.sftp;
        let set = sftp.fsetstat(self.file.handle(), &marked).await;
        set.map_err(|error| match error.is_fatal() {
            true => Refusal::Session(error),
            false => refused(&format!("sets no such mode and times ({error})")),
        })
    }

    /// Opens the file on all of `sessions` at once.
    async fn open_handles<'s>(
        &self,
        sessions: &'s [Rc<Session>],
    ) -> Vec<(&'s Rc<Session>, Result<Handle, Refusal>)> {
        let flags = match self.file.direction() {
            Direction::Up => OpenFlags::WRITE,
            Direction::Down => OpenFlags::READ,
        };
        let path = &self.file.0.path;
        let mut pool = Pool::new();
        for session in sessions {
            pool.push(async move {
                let open = session.sftp.open(path, flags, &Attrs::EMPTY);
                (session, self.answered(open).await.map_err(refused))
            });
        }
        let mut handles = Vec::new();
        while let Some(opened) = pool.next().await {
            handles.push(opened);
        }
        handles
    }

    /// What a new session answers: one that does not keeps no other waiting.
    async fn answered<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let most = OPEN_MAX.max(self.fleet.rtt() * OPEN_ROUNDS);
        match tokio::time::timeout(most, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Closed(
                format!("a new session has not answered for {} s", most.as_secs()).into(),
            )),
        }
    }

    /// Takes a further handle, if it is of the same file.
    async fn check(&self, session: &Rc<Session>, handle: Handle) -> Result<Rc<FileLane>, Refusal> {
        let fstat = self.answered(session.sftp.fstat(&handle)).await;
        let attrs = fstat.map_err(refused)?;
        if !self.file.same_as(&attrs) {
            let _ = session.sftp.release(&handle).await;
            return Err(match self.file.direction() {
                Direction::Down => Refusal::Once,
                Direction::Up => Refusal::File(
                    "a second handle is not of the same file, or the server keeps no times and modes"
                        .to_owned(),
                ),
            });
        }
        let lane = FileLane::new(session, handle);
        self.file.0.lanes.borrow_mut().push(Rc::clone(&lane));
        Ok(lane)
    }
}

fn refused(error: Error) -> Refusal {
    match error.is_fatal() {
        true => Refusal::Session(error),
        false => Refusal::File(format!("the server does not open a file twice ({error})")),
    }
}

/// A time that tells a file from others, as good as certainly: up to a day before `modified`.
fn mark_before(modified: u32) -> u32 {
    let mut bytes = [0; 4];
    SystemRandom::new().fill(&mut bytes);
    let seconds = 1 + u32::from_be_bytes(bytes) % MARK_SECONDS;
    modified.saturating_sub(seconds)
}

impl Crew for FileCrew<'_> {
    type Lane = FileLane;

    fn now(&self) -> Instant {
        self.first.session.sftp.connection().now()
    }

    fn rtt(&self) -> Duration {
        self.fleet.rtt()
    }

    fn lanes(&self) -> Vec<Rc<FileLane>> {
        let lanes = self.file.0.lanes.borrow();
        let usable = |lane: &&Rc<FileLane>| lane.is_used() && !lane.session.is_leaving();
        let extra = lanes.iter().filter(usable);
        [&self.first].into_iter().chain(extra).cloned().collect()
    }

    /// One of several that write has what fills its window: it is that which limits, and with more the
    /// others would have to wait for it in the end.
    fn depth_min(&self, lane: &FileLane) -> u64 {
        let is_alone = self.file.0.lanes.borrow().is_empty();
        if self.file.direction() == Direction::Up && !is_alone {
            return 0;
        }
        let wanted = lane.session.sftp.outstanding_bytes_max();
        let is_long = self.rtt() >= DEEP_RTT_MIN;
        match is_long && wanted > DEPTH_BYTES_ALONE && self.may_leave_holes() {
            true => wanted,
            false => wanted.min(DEPTH_BYTES_ALONE),
        }
    }

    async fn change(&self) -> Change<FileLane> {
        loop {
            if let Some(lane) = self.leaving() {
                return Change::Leave(lane);
            }
            let sessions = self.unused_sessions();
            if !self.is_alone.get() && !sessions.is_empty() {
                let lanes = self.open_on(&sessions).await;
                if !lanes.is_empty() {
                    return Change::Join(lanes);
                }
            } else {
                self.fleet.tick(self.file.direction()).await;
            }
        }
    }

    async fn run(&self, lane: &FileLane, span: Span, moving: UnitMoving<'_>) -> Moved {
        let told = Cell::new(0);
        let progress = |at: crate::client::Progress| {
            self.fleet.on_moved(at.bytes - told.replace(at.bytes));
            moving(at.bytes, at.frontier);
        };
        let (sftp, handle, io) = (&lane.session.sftp, &lane.handle, Rc::clone(&self.io));
        let result = match self.file.direction() {
            Direction::Up => sftp.put_unit(handle, io, span, progress).await,
            Direction::Down => sftp.get_unit(handle, io, span, progress).await,
        };
        moved(result, span)
    }

    async fn until_look(&self) {
        tokio::time::sleep(self.fleet.rtt().max(LOOK_MIN)).await;
    }

    fn answers_count(&self) -> u64 {
        self.first
            .session
            .sftp
            .connection()
            .stats()
            .wire_bytes_received
    }

    async fn leave(&self, lane: Rc<FileLane>) -> Result<(), Fault> {
        self.forget(&lane);
        lane.close().await
    }

    async fn on_failed(&self, lane: &FileLane, fault: &Fault) {
        lane.state.set(LaneState::Failed);
        let why = format!("a session failed ({fault})");
        self.fleet.on_failed(&lane.session, &why).await;
    }

    async fn on_stalled(&self, lane: &FileLane, stood: Duration) {
        if Rc::ptr_eq(&lane.session, self.fleet.main()) {
            self.fleet.on_main_stalled(stood).await;
            return;
        }
        lane.state.set(LaneState::Stalled);
        let why = format!("a session {}", stood_text(stood));
        self.fleet.on_failed(&lane.session, &why).await;
    }
}
