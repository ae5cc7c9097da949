//! What the handles of one connection and the task that drives it share. Single-threaded.

use fullbore_base::escape_for_display;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use fullbore_base::Instant;
use fullbore_sftp::client as sftp;
use fullbore_ssh::error::Closed;
use fullbore_ssh::{ChannelId, Error as SshError, Event as SshEvent};

use super::error::Error;
use super::waiting::{Lanes, Plain};
use super::watch::Watch;
use crate::config::text::reason;
use crate::driver::clock::Clock;
use crate::driver::pump::{Driven, Pump};
use crate::driver::udp::Udp;
use crate::session::{ClientSession, Event};
use crate::transfer::TokenBucket;

/// One connection. Handles change its state directly and wake the task; the task is the only one
/// that moves bytes.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) clock: Clock,
    /// Who is at the other end, as the user named it: in front of every error.
    pub(super) peer: String,
    /// Somebody had to type something for the login.
    pub(super) was_asked: Cell<bool>,
    /// It runs over one that another process has.
    pub(super) is_shared: Cell<bool>,
    /// Where the server is, where the stream is a socket.
    pub(super) peer_address: Cell<Option<SocketAddr>>,
    /// The socket of our own TCP that the connection runs over.
    pub(super) udp: RefCell<Option<Udp>>,
    state: RefCell<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) session: ClientSession,
    pub(super) lanes: Lanes,
    pub(super) plain: BTreeMap<ChannelId, Plain>,
    /// The limit on bytes of the stream, both ways together.
    pub(super) limit: Option<TokenBucket>,
    pub(super) watch: Watch,
    /// Events of the connection, while somebody logs in. Bounded: the connection waits for an
    /// answer to nearly each.
    news: VecDeque<SshEvent>,
    news_waker: Option<Waker>,
    task: Option<Waker>,
    closed: Option<Error>,
    /// The stream broke, in the operating system's words.
    broken: Option<io::Error>,
    /// The task has ended: everything that could be sent was.
    is_finished: bool,
    finish_wakers: Vec<Waker>,
}

/// Events of the connection that wait for whoever logs in; more are dropped.
const NEWS_MAX: usize = 64;

impl Core {
    pub(super) fn new(clock: Clock, peer: String, session: ClientSession) -> Rc<Self> {
        let lanes = Lanes::new(clock);
        Rc::new(Self {
            clock,
            peer,
            was_asked: Cell::new(false),
            is_shared: Cell::new(false),
            peer_address: Cell::new(None),
            udp: RefCell::new(None),
            state: RefCell::new(State {
                session,
                watch: Watch::new(clock, lanes.disk()),
                lanes,
                plain: BTreeMap::new(),
                limit: None,
                news: VecDeque::new(),
                news_waker: None,
                task: None,
                closed: None,
                broken: None,
                is_finished: false,
                finish_wakers: Vec::new(),
            }),
        })
    }

    /// Looks at the state.
    pub(super) fn look<R>(&self, body: impl FnOnce(&State) -> R) -> R {
        body(&self.state.borrow())
    }

    /// Changes the state, and has the task see to what follows from it.
    pub(super) fn change<R>(&self, body: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.state.borrow_mut();
        let result = body(&mut state, self.clock.now());
        if let Some(task) = state.task.take() {
            task.wake();
        }
        result
    }

    /// Changes what only the handles care about: the task has nothing to do for it.
    pub(super) fn note<R>(&self, body: impl FnOnce(&mut State) -> R) -> R {
        body(&mut self.state.borrow_mut())
    }

    /// Has the task look whether there is something to do.
    pub(super) fn wake_task(&self) {
        if let Some(task) = self.state.borrow_mut().task.take() {
            task.wake();
        }
    }

    /// The next event of the connection.
    ///
    /// # Errors
    /// When the connection is over.
    pub(super) async fn news(&self) -> Result<SshEvent, Error> {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if let Some(event) = state.news.pop_front() {
                return Poll::Ready(Ok(event));
            }
            if let Some(error) = &state.closed {
                return Poll::Ready(Err(error.clone()));
            }
            state.news_waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Drives the connection until it is over.
    pub(super) async fn run(self: Rc<Self>, mut pump: Pump) {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            state.task = Some(cx.waker().clone());
            state.on_wake(self.clock.now());
            let mut driven = Task {
                state: &mut state,
                peer: &self.peer,
            };
            let result = pump.poll(cx, &mut driven);
            state.on_rest(self.clock.now(), &pump);
            result
        })
        .await;
        let mut state = self.state.borrow_mut();
        state.on_end(self.clock.now(), &pump);
        state.task = None;
        state.close(&self.peer);
        state.is_finished = true;
        for waker in state.finish_wakers.drain(..) {
            waker.wake();
        }
    }

    /// Waits until the task has ended.
    pub(super) async fn finished(&self) {
        poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if state.is_finished {
                return Poll::Ready(());
            }
            // Asked again and again by who waits for other things too.
            let is_known = |waker: &Waker| waker.will_wake(cx.waker());
            if !state.finish_wakers.iter().any(is_known) {
                state.finish_wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl State {
    /// Why nothing more can be done on the connection.
    pub(super) fn closed(&self) -> Option<&Error> {
        self.closed.as_ref()
    }

    /// Why nothing more can be done on the lane.
    pub(super) fn lane_error(&self, lane: ChannelId) -> Option<Error> {
        if let Some(error) = &self.closed {
            return Some(error.clone());
        }
        let error = self.session.lane_error(lane)?;
        Some(match error {
            crate::session::LaneError::Sftp(error) => Error::Sftp(error.clone()),
            other => Error::Closed(other.to_string().into()),
        })
    }

    /// Keeps why the connection is over and tells everyone who waits.
    fn close(&mut self, peer: &str) {
        if self.closed.is_none() {
            let conn = self.session.conn();
            let mut why = match (conn.error(), &self.broken) {
                (Some(error), None) => error.to_string(),
                (None, Some(broken)) => reason(broken),
                (Some(error), Some(broken)) => format!("{error} ({})", reason(broken)),
                (None, None) => "connection closed".to_owned(),
            };
            let is_silent = matches!(
                conn.error(),
                Some(SshError::Closed(Closed::Eof | Closed::KexTimeout { .. }))
            );
            if is_silent && conn.remote_version().is_empty() {
                why.push_str("; no SSH server has spoken there: is the port right?");
            }
            self.closed = Some(Error::Closed(format!("{peer}: {why}").into()));
        }
        if let Some(waker) = self.news_waker.take() {
            waker.wake();
        }
        for lane in self.lanes.all_mut() {
            lane.wake_all();
        }
        for plain in self.plain.values_mut() {
            plain.is_closed = true;
            plain.wake();
        }
    }

    fn on_event(&mut self, event: Event, peer: &str) {
        match event {
            Event::Lane(ch, event) => self.on_lane(ch, event),
            Event::LaneFailed(ch) => self.lanes.of(ch).wake_all(),
            Event::Ssh(SshEvent::Closed) => self.close(peer),
            Event::Ssh(event) => self.on_ssh(event),
        }
    }

    fn on_lane(&mut self, ch: ChannelId, event: sftp::Event) {
        let lane = self.lanes.of(ch);
        match event {
            sftp::Event::Ready => lane.wake_ready(),
            sftp::Event::Reply(id) => {
                if let Some(waker) = lane.calls.get_mut(&id).and_then(Option::take) {
                    waker.wake();
                }
            }
            sftp::Event::Progress(id) => {
                if let Some(waker) = lane.bulks.get_mut(&id).and_then(|b| b.waker.take()) {
                    waker.wake();
                }
            }
            sftp::Event::BulkDone(id) => {
                lane.files.0.remove(&id);
                let Some(bulk) = lane.bulks.get_mut(&id) else {
                    return;
                };
                if let Some(waker) = bulk.waker.take() {
                    waker.wake();
                }
                if bulk.is_forgotten {
                    lane.bulks.remove(&id);
                    if let Some(client) = self.session.lane_mut(ch) {
                        let _ = client.take_bulk(id);
                    }
                }
            }
            sftp::Event::Failed => lane.wake_all(),
        }
    }

    fn on_ssh(&mut self, event: SshEvent) {
        match event {
            SshEvent::Opened(ch) => self.plain_event(ch, |plain| plain.is_open = true),
            SshEvent::OpenFailed(ch) => {
                let why = self.why_not_open(ch);
                self.plain_event(ch, |plain| {
                    plain.failure = Some(why);
                    plain.is_closed = true;
                });
            }
            SshEvent::RequestDone { ch, ok } => self.plain_event(ch, |plain| {
                plain.is_started = ok;
                if !ok {
                    plain.failure = Some("the server refused the request".to_owned());
                }
            }),
            SshEvent::Readable(ch) | SshEvent::ReadableStderr(ch) | SshEvent::Writable(ch) => {
                self.plain_event(ch, |_| {});
            }
            SshEvent::Eof(ch) => self.plain_event(ch, |plain| plain.is_eof = true),
            SshEvent::ExitStatus(ch, status) => {
                self.plain_event(ch, |plain| plain.status = Some(status));
            }
            SshEvent::ExitSignal(ch) => {
                let name = match self.session.conn().exit_signal(ch) {
                    Some(signal) => escape_for_display(&signal.name),
                    None => String::new(),
                };
                self.plain_event(ch, |plain| {
                    plain.failure = Some(format!("killed by signal {name}"));
                });
            }
            SshEvent::ChannelClosed(ch) => self.plain_event(ch, |plain| plain.is_closed = true),
            // Servers may open channels to a client that asked for forwardings; we never do.
            SshEvent::ChannelOpen(ch) => {
                let _ = self.session.conn_mut().reject_channel(
                    ch,
                    fullbore_ssh::channel::OpenFailure::ADMINISTRATIVELY_PROHIBITED,
                    "not asked for",
                );
            }
            SshEvent::Request(ch) => {
                let _ = self.session.conn_mut().answer_request(ch, false);
            }
            SshEvent::HostKey
            | SshEvent::HostKeysAnnounced
            | SshEvent::HostKeysProved
            | SshEvent::Banner
            | SshEvent::AuthNeeded
            | SshEvent::SignatureNeeded
            | SshEvent::Prompt
            | SshEvent::Authenticated
            | SshEvent::AuthRequest
            | SshEvent::Closed => {
                if self.news.len() < NEWS_MAX {
                    self.news.push_back(event);
                }
                if let Some(waker) = self.news_waker.take() {
                    waker.wake();
                }
            }
        }
    }

    fn why_not_open(&self, ch: ChannelId) -> String {
        let Some(why) = self.session.conn().open_failure(ch) else {
            return String::new();
        };
        let text = escape_for_display(why.description.as_bytes());
        format!("{text} (reason {})", why.reason)
    }

    fn plain_event(&mut self, ch: ChannelId, change: impl FnOnce(&mut Plain)) {
        if let Some(plain) = self.plain.get_mut(&ch) {
            change(plain);
            plain.wake();
        }
    }
}

/// The state as the pump drives it.
struct Task<'a> {
    state: &'a mut State,
    peer: &'a str,
}

impl Task<'_> {
    /// Wakes who waits for room on a lane that has some.
    fn offer_room(&mut self) {
        let State { session, lanes, .. } = &mut *self.state;
        for (ch, lane) in lanes.by_id_mut() {
            if lane.room.is_empty() {
                continue;
            }
            if let Some(client) = session.lane(ch)
                && client.has_room()
            {
                // A reply leads to another turn.
                lane.wake_room(client.outstanding_count() == 0);
            }
        }
    }

    /// Tells waiting calls what happened. Returns whether anything did.
    fn take_events(&mut self, now: Instant) -> bool {
        for taken in 0..EVENTS_PER_TURN {
            let state = &mut *self.state;
            let Some(event) = state.session.poll_event(now, &mut state.lanes) else {
                return taken > 0;
            };
            state.on_event(event, self.peer);
        }
        true
    }
}

impl Driven for Task<'_> {
    fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        self.state.session.on_rtt(now, rtt);
    }

    fn input_space(&mut self) -> &mut [u8] {
        self.state.session.input_space()
    }

    fn handle_input(&mut self, now: Instant, n: usize) {
        self.state.session.handle_input(now, n);
    }

    fn handle_end(&mut self, now: Instant, why: Option<io::Error>) {
        if why.is_some() {
            self.state.session.handle_reset(now);
        } else {
            self.state.session.handle_eof(now);
        }
        self.state.broken = why;
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.state.session.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let of_session = self.state.session.poll_timeout();
        let deadlines = of_session
            .into_iter()
            .chain(self.state.watch.poll_timeout());
        deadlines.min()
    }

    fn turn(&mut self, now: Instant) -> bool {
        let _ = self.take_events(now);
        let state = &mut *self.state;
        let is_written = state.session.poll_transmit(now, &mut state.lanes);
        let has_events = self.take_events(now);
        self.offer_room();
        has_events | is_written
    }

    fn pending(&self) -> &[u8] {
        self.state.session.pending()
    }

    fn sent(&mut self, now: Instant, n: usize) {
        self.state.session.sent(now, n);
        if self.state.session.pending().is_empty() {
            // There is room again for those who write to channels themselves.
            for waker in self
                .state
                .plain
                .values_mut()
                .filter_map(|p| p.writer.take())
            {
                waker.wake();
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.state.closed.is_some()
    }

    fn is_greeting(&self) -> bool {
        !self.state.session.conn().is_authenticated()
    }

    fn limit(&mut self) -> Option<&mut TokenBucket> {
        self.state.limit.as_mut()
    }
}

/// Events told to waiting calls before bytes are moved again.
const EVENTS_PER_TURN: usize = 1024;
