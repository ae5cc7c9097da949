//! One connection of the server: the task that drives it, and what it knows of files and rights.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use fullbore_base::Instant;
use fullbore_sftp::proto::SymlinkOrder;
use fullbore_sftp::server::{Completion, Config, Store, Token};
use fullbore_ssh::auth::AuthAnswer;
use fullbore_ssh::channel::ChannelRequest;
use fullbore_ssh::config::ServerConfig;
use fullbore_ssh::msg::DisconnectReason;
use fullbore_ssh::provider::AwsLc;
use fullbore_ssh::{ChannelId, Connection};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;

use super::auth::{Policy, Rights, Verdict};
use super::gate::Place;
use super::log::Log;
use super::udp::{Doors, Grant};
use crate::config::authorized_keys::SftpCommand;
use crate::config::quirks::Quirks;
use crate::config::text::escape_for_display;
use crate::driver::budget::WindowBudget;
use crate::driver::clock::Clock;
use crate::driver::pool::Pool;
use crate::driver::pump::{Driven, Pump};
use crate::driver::random::SystemRandom;
use crate::driver::stream::Stream;
use crate::server::store::{FileStore, Job, Offload, Options, Progress, RootPolicy};
use crate::session::{ServerApp, ServerEvent, ServerSession, SessionEnd, Start};
use crate::udp::offer;

/// Handles that the sessions of a connection share, and the fewest of a session: each is a descriptor.
const HANDLES_MAX: u32 = 2048;
const HANDLES_MIN: u32 = 64;

/// The fewest folders that a session may have open.
const DIRS_MIN: u32 = 8;

/// Times that one connection may ask to go on over UDP.
const OFFERS_MAX: usize = 16;

/// Bytes of a session that file threads may hold.
const PENDING_BYTES_MAX: usize = 1024 * 1024;

/// What the connections of one thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Arc<ServerConfig>,
    pub(super) policy: RefCell<Policy>,
    pub(super) root: RootPolicy,
    pub(super) read_only: bool,
    pub(super) sessions_max: usize,
    pub(super) clock: Clock,
    pub(super) pool: Pool,
    pub(super) password_pool: Pool,
    pub(super) log: Log,
    /// Where clients may go on over UDP.
    pub(super) udp: Option<Doors>,
}

/// A client at the door.
pub(super) struct Visitor {
    pub(super) stream: Stream,
    pub(super) peer: SocketAddr,
    pub(super) place: Place,
    /// It was logged in elsewhere, and comes with a token of ours: that alone lets it in.
    pub(super) grant: Option<Grant>,
}

/// What other threads have done for the connection. As many come as operations may be pending,
/// and one for a password.
enum Note {
    Done(ChannelId, Token, Completion),
    Password(bool),
}

/// Where file operations of one channel go that may block.
struct ChannelOffload {
    pool: Pool,
    notes: UnboundedSender<Note>,
    ch: ChannelId,
    /// The session is over: nobody waits for what it started.
    is_over: Arc<AtomicBool>,
}

impl Offload for ChannelOffload {
    fn submit(&mut self, token: Token, job: Job) -> bool {
        let call = Offloaded {
            pool: self.pool.clone(),
            notes: self.notes.clone(),
            ch: self.ch,
            is_over: self.is_over.clone(),
            token,
        };
        self.pool.run(move || call.run(job))
    }
}

impl Drop for ChannelOffload {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// One operation that was handed over.
struct Offloaded {
    pool: Pool,
    notes: UnboundedSender<Note>,
    ch: ChannelId,
    is_over: Arc<AtomicBool>,
    token: Token,
}

impl Offloaded {
    /// Runs a slice; what is left goes behind the operations of others.
    fn run(self, job: Job) {
        if self.notes.is_closed() || self.is_over.load(Ordering::Relaxed) {
            return;
        }
        match job() {
            Progress::Done(completion) => {
                // Nobody listens any more when the connection has gone.
                let _ = self.notes.send(Note::Done(self.ch, self.token, completion));
            }
            Progress::More(rest) => {
                let pool = self.pool.clone();
                pool.requeue(move || self.run(rest));
            }
        }
    }
}

/// What the connection's session asks of the server.
struct App {
    shared: Rc<Shared>,
    peer: SocketAddr,
    /// The address that the client has reached, where the stream is a socket.
    local: Option<SocketAddr>,
    grant: Option<Grant>,
    /// Offers to go on over UDP that were made.
    offers_count: usize,
    rights: Rights,
    symlink_order: SymlinkOrder,
    stores: Vec<(ChannelId, FileStore)>,
    /// Handles that each session may open.
    handles: Vec<(ChannelId, u32)>,
    notes: UnboundedSender<Note>,
    log: Log,
}

impl App {
    /// Handles of the next session: half of what the others left, so that a client with a single
    /// session has many, and one with many sessions not many times as many.
    fn next_handles(&self) -> u32 {
        let given: u32 = self.handles.iter().map(|(_, handles)| handles).sum();
        (HANDLES_MAX.saturating_sub(given) / 2).max(HANDLES_MIN)
    }

    fn start_sftp(&mut self, ch: ChannelId) -> Start {
        let mut options = Options::new(self.shared.root.clone());
        options.offload = Some(Box::new(ChannelOffload {
            pool: self.shared.pool.clone(),
            notes: self.notes.clone(),
            ch,
            is_over: Arc::default(),
        }));
        match FileStore::new(options) {
            Ok(store) => {
                let handles_max = self.next_handles();
                self.stores.push((ch, store));
                self.handles.push((ch, handles_max));
                self.log.line(format_args!("session {ch}: sftp started"));
                Start::Sftp(Config {
                    read_only: self.shared.read_only || self.rights.read_only,
                    symlink_order: self.symlink_order,
                    handles_max,
                    dirs_max: (handles_max / 16).max(DIRS_MIN),
                    pending_bytes_max: PENDING_BYTES_MAX,
                    ..Config::default()
                })
            }
            Err(error) => {
                self.log
                    .line(format_args!("session {ch}: cannot open the root: {error}"));
                Start::Say("The folder that is served cannot be opened; see the server's log.\r\n")
            }
        }
    }
}

impl App {
    /// Tells a client how to go on over UDP. It has the rights there that it has here.
    fn offer_udp(&mut self, ch: ChannelId) -> Start {
        let Some(doors) = &self.shared.udp else {
            return Start::Say(
                "This server does not listen for UDP: it is started with --udp for that.\r\n",
            );
        };
        if self.offers_count >= OFFERS_MAX {
            return Start::Say("This connection was told often enough how to go on over UDP.\r\n");
        }
        self.offers_count += 1;
        let local = self.local.map(|address| address.ip());
        match doors.announce(local, self.peer.ip(), self.rights) {
            Some(offer) => {
                let id = offer.id;
                self.log.line(format_args!(
                    "session {ch}: offered to go on over UDP as {id}"
                ));
                Start::Answer(offer.to_line())
            }
            None => Start::Say("Too many connections wait to come over UDP.\r\n"),
        }
    }
}

impl ServerApp for App {
    fn judge(&mut self, ch: ChannelId, request: &ChannelRequest<'_>) -> Start {
        match *request {
            ChannelRequest::Subsystem { name: b"sftp" } => self.start_sftp(ch),
            ChannelRequest::Exec { command } if SftpCommand::parse(command).is_some() => {
                self.start_sftp(ch)
            }
            ChannelRequest::Exec { command } if command == offer::COMMAND.as_bytes() => {
                self.offer_udp(ch)
            }
            ChannelRequest::Exec { command } => {
                let shown = escape_for_display(command);
                self.log
                    .line(format_args!("session {ch}: refused to run: {shown}"));
                if command.starts_with(b"scp ") {
                    return Start::Say("This server speaks SFTP only: use scp without -O.\r\n");
                }
                Start::Say("This server only transfers files: no commands are run.\r\n")
            }
            ChannelRequest::Shell => {
                Start::Say("This server only transfers files: use sftp, scp or fullbore.\r\n")
            }
            // Nothing here looks at variables or signals; clients send them unasked.
            ChannelRequest::Env { .. } | ChannelRequest::Signal { .. } => Start::Nothing,
            ChannelRequest::Subsystem { .. }
            | ChannelRequest::Pty { .. }
            | ChannelRequest::WindowChange(_)
            | ChannelRequest::Other { .. } => Start::Refuse,
        }
    }

    fn store(&mut self, ch: ChannelId) -> &mut dyn Store {
        let found = self.stores.iter_mut().find(|(of, _)| *of == ch);
        &mut found.expect("sessions are started with a store").1
    }

    fn ended(&mut self, ch: ChannelId, how: SessionEnd) {
        self.handles.retain(|(of, _)| *of != ch);
        if let Some(i) = self.stores.iter().position(|(of, _)| *of == ch) {
            let (_, mut store) = self.stores.swap_remove(i);
            store.close_all();
        }
        match how {
            SessionEnd::Done => self.log.line(format_args!("session {ch}: sftp ended")),
            SessionEnd::Gone => self
                .log
                .line(format_args!("session {ch}: sftp ended with the connection")),
            SessionEnd::Failed(error) => {
                self.log
                    .line(format_args!("session {ch}: sftp failed: {error}"));
            }
        }
    }
}

/// A connection as the pump drives it.
struct Task {
    session: ServerSession,
    app: App,
    place: Place,
    notes: UnboundedReceiver<Note>,
    is_closed: bool,
}

impl Task {
    /// Takes what other threads have done. Polled each time, so that the next one wakes the task.
    fn take_notes(&mut self, cx: &mut Context<'_>, now: Instant) {
        while let Poll::Ready(Some(note)) = self.notes.poll_recv(cx) {
            match note {
                Note::Done(ch, token, completion) => {
                    self.session
                        .complete(now, ch, (token, completion), &mut self.app);
                }
                Note::Password(is_right) => self.on_password(is_right),
            }
        }
    }

    fn on_password(&mut self, is_right: bool) {
        let user = escape_for_display(self.session.conn().user().unwrap_or_default());
        let what = if is_right { "accepted" } else { "refused" };
        self.app
            .log
            .line(format_args!("{what} password for {user}"));
        let answer = if is_right {
            AuthAnswer::Accept
        } else {
            AuthAnswer::Reject
        };
        self.answer(answer);
    }

    fn answer(&mut self, answer: AuthAnswer) {
        // An error has ended the connection, which its next event tells; misuse cannot be: one
        // request is open at a time, and it is answered once.
        let _ = self.session.conn_mut().answer_auth(answer);
    }

    fn on_event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::AuthRequest => self.on_auth_request(),
            ServerEvent::Authenticated => {
                self.place.authenticated();
                let version = self.session.conn().remote_version();
                self.app.symlink_order = symlink_order(version);
                let version = escape_for_display(version);
                self.app.log.line(format_args!("logged in; {version}"));
            }
            ServerEvent::Closed => {
                self.is_closed = true;
                match self.session.conn().error() {
                    Some(error) => self.app.log.line(format_args!("closed: {error}")),
                    None => self.app.log.line(format_args!("closed")),
                }
            }
        }
    }

    fn on_auth_request(&mut self) {
        let Some(request) = self.session.conn().auth_request() else {
            return;
        };
        let app = &mut self.app;
        if let Some(grant) = &app.grant {
            let (answer, rights) = grant.judge(&request.credential);
            app.rights = rights;
            let verb = match matches!(answer, AuthAnswer::Accept) {
                true => "accepted",
                false => "refused",
            };
            app.log
                .line(format_args!("{verb} over UDP, offered as {}", grant.offer));
            self.answer(answer);
            return;
        }
        let mut policy = app.shared.policy.borrow_mut();
        let from = Some(app.peer.ip());
        let verdict = policy.judge(request.user, from, &request.credential, &app.log);
        drop(policy);
        match verdict {
            Verdict::Answer(answer, rights) => {
                app.rights = rights;
                self.answer(answer);
            }
            Verdict::Check(hash, password) => {
                app.rights = Rights::default();
                let notes = app.notes.clone();
                let is_started = app.shared.password_pool.run(move || {
                    let _ = notes.send(Note::Password(hash.is_of(&password)));
                });
                if !is_started {
                    // As many are being checked as there may be.
                    self.answer(AuthAnswer::Reject);
                }
            }
        }
    }

    fn stop(&mut self, now: Instant) {
        self.session.conn_mut().disconnect(
            now,
            DisconnectReason::ByApplication,
            "the server is shutting down",
        );
    }
}

/// In which order a client sends the paths of SYMLINK, as far as its name tells.
fn symlink_order(remote_version: &[u8]) -> SymlinkOrder {
    match Quirks::of(remote_version, &[]).symlink_link_first {
        true => SymlinkOrder::Draft,
        false => SymlinkOrder::OpenSsh,
    }
}

impl Driven for Task {
    fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        self.session.conn_mut().on_rtt(now, rtt);
    }

    fn input_space(&mut self) -> &mut [u8] {
        self.session.input_space()
    }

    fn handle_input(&mut self, now: Instant, n: usize) {
        self.session.handle_input(now, n);
    }

    fn handle_end(&mut self, now: Instant, why: Option<std::io::Error>) {
        match why {
            Some(error) => {
                self.app.log.line(format_args!("the stream broke: {error}"));
                self.session.handle_reset(now);
            }
            None => self.session.handle_eof(now),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    fn turn(&mut self, now: Instant) -> bool {
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.session.poll_event(now, &mut self.app) else {
                return self.session.poll_transmit(now, &mut self.app);
            };
            self.on_event(event);
        }
        let _ = self.session.poll_transmit(now, &mut self.app);
        true
    }

    fn pending(&self) -> &[u8] {
        self.session.pending()
    }

    fn sent(&mut self, _now: Instant, n: usize) {
        self.session.sent(n);
    }

    fn is_finished(&self) -> bool {
        self.is_closed
    }
}

/// Events handled before bytes are moved again.
const EVENTS_PER_TURN: usize = 64;

/// How long a connection may take to go when the server stops.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves one connection until its end, or until `stop` says that the server ends.
pub(super) async fn serve(shared: Rc<Shared>, visitor: Visitor, mut stop: watch::Receiver<bool>) {
    let Visitor {
        stream,
        peer,
        place,
        grant,
    } = visitor;
    let clock = shared.clock;
    let provider = Box::new(AwsLc::new(Box::new(SystemRandom::new())));
    let conn = Connection::server(shared.config.clone(), provider, clock.now());
    let (sender, notes) = mpsc::unbounded_channel();
    let log = shared.log.with_prefix(&peer.to_string());
    let how = if grant.is_some() { " over UDP" } else { "" };
    log.line(format_args!("connected{how}"));
    let mut session = ServerSession::new(conn, shared.sessions_max);
    let account = WindowBudget::of_process().account();
    session.set_credit(shared.clock.now(), Box::new(account));
    let mut task = Task {
        session,
        app: App {
            shared,
            peer,
            local: stream.local_address(),
            grant,
            offers_count: 0,
            rights: Rights::default(),
            symlink_order: SymlinkOrder::default(),
            stores: Vec::new(),
            handles: Vec::new(),
            notes: sender,
            log,
        },
        place,
        notes,
        is_closed: false,
    };
    let mut pump = Pump::new(stream, clock);
    let mut run = async |task: &mut Task| {
        poll_fn(|cx| {
            task.take_notes(cx, clock.now());
            pump.poll(cx, task)
        })
        .await;
    };
    tokio::select! {
        () = run(&mut task) => return,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    task.stop(clock.now());
    // What is on its way to the client is given a moment.
    let _ = tokio::time::timeout(STOP_TIMEOUT, run(&mut task)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_symlink_follows_the_clients_banner() {
        let order = |text: &str| symlink_order(text.as_bytes());
        assert_eq!(order("SSH-2.0-AsyncSSH_2.24.0"), SymlinkOrder::Draft);
        assert_eq!(order("SSH-2.0-libssh_0.11.1"), SymlinkOrder::Draft);
        assert_eq!(order("SSH-2.0-libssh2_1.11.0"), SymlinkOrder::OpenSsh);
        assert_eq!(order("SSH-2.0-OpenSSH_9.2p1"), SymlinkOrder::OpenSsh);
        assert_eq!(order("SSH-2.0-fullbore_0.1.0"), SymlinkOrder::OpenSsh);
    }
}
