//! The sessions that a run has with one server, how many they should be, and what was refused.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use fullbore_base::Instant;

use super::policy::{
    CHANNELS_MAX, CONNECTIONS_MAX_DEFAULT, Caps, Limit, Observation, Policy, Step,
};
use crate::client::{Connection, Reconnect, Sftp};
use crate::transfer::pool::Pool;

mod observe;
mod refusals;

pub(crate) use refusals::stood_text;

/// Intervals are one round trip, and at least this long.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// What limited longer ago than this says nothing about now; intervals last up to a second.
const STALE_AFTER: Duration = Duration::from_secs(3);

/// Which way a file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// One SFTP session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) sftp: Sftp,
    /// It is to be closed: files give up their handles.
    is_leaving: Cell<bool>,
    /// What was waited for its window, at the last interval.
    limited: Cell<Duration>,
}

impl Session {
    fn new(sftp: Sftp) -> Rc<Self> {
        Rc::new(Self {
            sftp,
            is_leaving: Cell::new(false),
            limited: Cell::new(Duration::ZERO),
        })
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.get()
    }
}

/// The sessions with one server. The first is the run's own; the others come and go.
#[derive(Debug)]
pub(crate) struct Fleet {
    main: Rc<Session>,
    caps: Cell<Caps>,
    /// Whether the server lets a file be opened more than once, as far as known.
    is_closed: Cell<bool>,
    reconnect: Option<Reconnect>,
    extra: RefCell<Vec<Rc<Session>>>,
    policy: RefCell<Policy>,
    seen: Cell<Seen>,
    is_ticking: Cell<bool>,
    /// Most sessions that there were at once.
    sessions_most: Cell<usize>,
    /// Bytes of large files that are at their place.
    moved_bytes: Cell<u64>,
    /// Bytes a second in the interval before.
    rate_before: Cell<u64>,
    /// An interval is not over.
    is_begun: Cell<bool>,
    /// When segments were lost last that no full queue explains, when such that one does, and when there
    /// was a queue.
    lost_at: Cell<Option<Instant>>,
    overrun_at: Cell<Option<Instant>>,
    queued_at: Cell<Option<Instant>>,
}

/// Counters at the last interval, and what was learned from all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    at: Option<Instant>,
    bytes: u64,
    /// Least round-trip time.
    rtt: Option<Duration>,
    /// Largest window that the server gave.
    window: u32,
}

/// Ends an interval, whether it was waited for or given up.
struct Ticking<'a>(&'a Cell<bool>);

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Fleet {
    pub(crate) fn new(sftp: Sftp) -> Self {
        let caps = Caps {
            channels: CHANNELS_MAX,
            connections: 1,
        };
        Self {
            main: Session::new(sftp),
            caps: Cell::new(caps),
            is_closed: Cell::new(false),
            reconnect: None,
            extra: RefCell::default(),
            policy: RefCell::default(),
            seen: Cell::default(),
            is_ticking: Cell::new(false),
            sessions_most: Cell::new(1),
            moved_bytes: Cell::new(0),
            rate_before: Cell::new(u64::MAX / 3),
            is_begun: Cell::new(false),
            lost_at: Cell::new(None),
            overrun_at: Cell::new(None),
            queued_at: Cell::new(None),
        }
    }

    /// Allows further connections, made by `reconnect`.
    pub(crate) fn allow(&mut self, reconnect: Reconnect, caps: Caps) {
        self.reconnect = Some(reconnect);
        self.caps.set(caps);
    }

    pub(crate) const fn main(&self) -> &Rc<Session> {
        &self.main
    }

    /// Most sessions that there were at once.
    pub(crate) fn sessions_most(&self) -> usize {
        self.sessions_most.get()
    }

    pub(crate) fn rtt(&self) -> Duration {
        self.seen.get().rtt.unwrap_or_default()
    }

    /// Sessions besides the first that may be used.
    pub(crate) fn extra(&self) -> Vec<Rc<Session>> {
        self.extra.borrow().clone()
    }

    /// Looks at the round-trip time and the window.
    pub(crate) fn look(&self) {
        let connection = self.main.sftp.connection();
        let mut seen = self.seen.get();
        match connection.rtt_last() {
            Some(rtt) => seen.rtt = Some(seen.rtt.map_or(rtt, |least| least.min(rtt))),
            None => connection.ping(),
        }
        let windows = self.extra.borrow();
        let windows = windows.iter().chain([&self.main]);
        let window = windows.map(|session| session.sftp.remote_window_peak());
        seen.window = window.max().unwrap_or(0);
        self.seen.set(seen);
    }

    /// Waits an interval, then opens or closes what the policy says. One file at a time does.
    pub(crate) async fn tick(&self, direction: Direction) {
        let interval = self.rtt().max(INTERVAL_MIN);
        if self.is_ticking.replace(true) {
            tokio::time::sleep(interval).await;
            return;
        }
        let _ticking = Ticking(&self.is_ticking);
        self.mark();
        tokio::time::sleep(interval).await;
        self.main.sftp.connection().ping();
        self.look();
        self.drop_lost();
        let Some(observation) = self.observe(direction) else {
            return;
        };
        self.is_begun.set(false);
        let step = self
            .policy
            .borrow_mut()
            .on_interval(&observation, self.caps());
        match step {
            Step::Stay => {}
            Step::Lanes(count) => self.set_lanes(count, &observation).await,
            Step::Connections(count) => self.set_connections(count).await,
        }
    }

    /// What may be used by now: what is known of the server, and what it refused.
    fn caps(&self) -> Caps {
        let caps = self.caps.get();
        let (sessions, handles) = self
            .main
            .sftp
            .quirks(|quirks| (quirks.sessions_max, quirks.handles_max));
        let sessions = sessions.map_or(usize::MAX, |max| max.max(1) as usize);
        match handles {
            // No file is open twice.
            Some(0 | 1) => Caps {
                channels: 1,
                connections: 1,
            },
            Some(_) | None => Caps {
                channels: caps.channels.min(sessions),
                ..caps
            },
        }
    }

    /// The interval begins, unless it goes on.
    fn mark(&self) {
        let mut seen = self.seen.get();
        let is_stale = seen.at.is_none_or(|at| self.now() - at > STALE_AFTER);
        if self.is_begun.replace(true) && !is_stale {
            return;
        }
        seen.at = Some(self.now());
        seen.bytes = self.moved_bytes.get();
        self.seen.set(seen);
        for session in self.extra.borrow().iter().chain([&self.main]) {
            session.limited.set(session.sftp.window_limited());
        }
    }

    fn now(&self) -> Instant {
        self.main.sftp.connection().now()
    }

    /// So many more bytes are at their place. What was only sent does not count: it may stand in
    /// buffers.
    pub(crate) fn on_moved(&self, bytes: u64) {
        self.moved_bytes.set(self.moved_bytes.get() + bytes);
    }

    /// The connections in use, the first one first.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        let mut connections = vec![self.main.sftp.connection().clone()];
        for session in self.extra.borrow().iter() {
            let connection = session.sftp.connection();
            if !connections.iter().any(|known| known.is_same(connection)) {
                connections.push(connection.clone());
            }
        }
        connections
    }

    /// Opens or closes channels until there are `count` lanes.
    async fn set_lanes(&self, count: usize, seen: &Observation) {
        let before = 1 + self.extra.borrow().len();
        if count < before {
            self.close_from(count - 1);
            self.say(format!(
                "{count} lanes instead of {before}: more bring nothing now"
            ))
            .await;
            return;
        }
        for _ in before..count {
            let Some(connection) = self.least_used() else {
                break;
            };
            if let Ok(sftp) = connection.start_sftp() {
                self.extra.borrow_mut().push(Session::new(sftp));
            }
        }
        self.note_count();
        let why = match seen.limit {
            Limit::PeerWindow => format!(
                "the server's window of {} limits a lane to {}/s at {:.0} ms",
                bytes_text(seen.window.unwrap_or(0)),
                bytes_text(seen.rate / seen.lanes as u64),
                seen.rtt.as_secs_f64() * 1e3
            ),
            Limit::FarEnd => "the far end's work limits one".to_owned(),
            Limit::Tcp | Limit::Other => "the path has room".to_owned(),
        };
        self.say(format!("{count} lanes instead of {before}: {why}"))
            .await;
    }

    /// The connection with the fewest lanes.
    fn least_used(&self) -> Option<Connection> {
        let count = |connection: &Connection| {
            let extra = self.extra.borrow();
            let sessions = extra.iter().chain([&self.main]);
            sessions
                .filter(|session| session.sftp.connection().is_same(connection))
                .count()
        };
        let connections = self.connections().into_iter();
        connections
            .map(|connection| (count(&connection), connection))
            .filter(|(count, _)| *count < self.caps().channels)
            .min_by_key(|(count, _)| *count)
            .map(|(_, connection)| connection)
    }

    /// Makes or ends connections until there are `count`. One refusal is the last attempt of the run.
    async fn set_connections(&self, count: usize) {
        let connections = self.connections();
        let before = connections.len();
        if count < before {
            self.close_all_but(&connections[..count]);
            self.say(format!(
                "{count} connections instead of {before}: more bring nothing now"
            ))
            .await;
            return;
        }
        let Some(reconnect) = &self.reconnect else {
            return;
        };
        let mut pool = Pool::new();
        for _ in before..count {
            pool.push(reconnect.connect());
        }
        let mut refusal = None;
        while let Some(made) = pool.next().await {
            match made {
                Ok(sftp) => self.extra.borrow_mut().push(Session::new(sftp)),
                Err(error) => refusal = Some(error),
            }
        }
        if let Some(error) = refusal {
            let now = self.connections().len();
            self.refuse_connections(now, &error.to_string()).await;
        }
        self.note_count();
        let now = self.connections().len();
        if now > before {
            self.say(format!(
                "{now} connections instead of {before}: TCP limits one"
            ))
            .await;
        }
    }

    /// Closes the sessions of all connections but these.
    fn close_all_but(&self, kept: &[Connection]) {
        for session in self.extra.borrow().iter() {
            let connection = session.sftp.connection();
            if !kept.iter().any(|kept| kept.is_same(connection)) {
                session.is_leaving.set(true);
            }
        }
        self.forget_leaving();
    }

    /// Sessions of a connection that are not over.
    fn sessions_on(&self, connection: &Connection) -> usize {
        let extra = self.extra.borrow();
        let sessions = extra.iter().chain([&self.main]);
        sessions
            .filter(|s| s.sftp.connection().is_same(connection) && !s.sftp.is_over())
            .count()
    }

    fn note_count(&self) {
        let now = 1 + self.extra.borrow().len();
        self.sessions_most.set(self.sessions_most.get().max(now));
    }

    fn remove(&self, session: &Rc<Session>) {
        session.is_leaving.set(true);
        self.forget_leaving();
    }

    /// All but the first `kept` of those besides the main one.
    fn close_from(&self, kept: usize) {
        for session in self.extra.borrow().iter().skip(kept) {
            session.is_leaving.set(true);
        }
        self.forget_leaving();
    }

    fn drop_lost(&self) {
        for session in self.extra.borrow().iter() {
            if session.sftp.is_over() {
                session.is_leaving.set(true);
            }
        }
        self.forget_leaving();
    }

    /// Files that have handles on them keep them until they have given these up.
    fn forget_leaving(&self) {
        self.extra
            .borrow_mut()
            .retain(|session| !session.is_leaving());
    }

    async fn say(&self, text: String) {
        if let Some(reconnect) = &self.reconnect {
            reconnect.tell(text).await;
        }
    }
}

/// `2.0 MiB`.
fn bytes_text(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// What a run may use where nobody says otherwise.
#[must_use]
pub const fn default_caps() -> Caps {
    Caps {
        channels: CHANNELS_MAX,
        connections: CONNECTIONS_MAX_DEFAULT,
    }
}
