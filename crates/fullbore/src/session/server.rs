//! The server's side: one SSH connection, and an SFTP server on each of its session channels.

use fullbore_base::{Instant, Outlet, TxBuf, scatter};
use fullbore_sftp::server::{Completion, Config, Server, Stop, Store, Token};
use fullbore_ssh::channel::{ChannelRequest, OpenFailure};
use fullbore_ssh::{ChannelId, Connection, Event as SshEvent};
use zeroize::Zeroizing;

use super::ledger::Credit;
use super::share::Share;
use super::{TRANSMIT_BYTES, TRANSMIT_BYTES_BEFORE_AUTH};

/// What the application should know or decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// The client wants to log in: `auth_request`, `answer_auth` of the connection.
    AuthRequest,
    /// The client is logged in.
    Authenticated,
    /// The connection is over.
    Closed,
}

/// What becomes of a channel request.
#[derive(Debug)]
pub enum Start {
    /// The SFTP server starts on the channel.
    Sftp(Config),
    /// Granted; nothing else happens (a variable that is ignored).
    Nothing,
    /// Refused.
    Refuse,
    /// Granted, but all that happens is that the client is told this on its error stream; the
    /// status is 1.
    Say(&'static str),
    /// Granted: the client is told this, which may be secret, on its output; the status is 0, or 1
    /// where its window has no room for it.
    Answer(Zeroizing<String>),
}

/// How an SFTP session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The client was done.
    Done,
    /// The client broke the protocol.
    Failed(fullbore_sftp::server::Error),
    /// The channel or the connection went away.
    Gone,
}

/// The part of the application that knows files and policy.
pub trait ServerApp {
    /// Judges a channel request.
    fn judge(&mut self, ch: ChannelId, request: &ChannelRequest<'_>) -> Start;
    /// The files of a session that [`ServerApp::judge`] started.
    fn store(&mut self, ch: ChannelId) -> &mut dyn Store;
    /// A session that was started is over; its store is not asked for again.
    fn ended(&mut self, ch: ChannelId, how: SessionEnd);
}

#[derive(Debug)]
struct Session {
    ch: ChannelId,
    server: Server,
    /// Input or completions wait for room or work done elsewhere.
    is_waiting: bool,
    is_eof: bool,
}

/// A server's connection with its SFTP sessions.
#[derive(Debug)]
pub struct ServerSession {
    conn: Connection,
    share: Share,
    tx: TxBuf,
    sessions: Vec<Session>,
    sessions_max: usize,
    /// The session that is served first next time.
    turn: usize,
    /// Turns that sessions may still have before others have theirs.
    turns_left: u32,
}

/// Turns of sessions for what arrived before the connection lets others have theirs: a receive buffer
/// full of tiny messages would be thousands.
const TURNS_MAX: u32 = 64;

impl ServerSession {
    /// A session over a connection at its start that serves at most `sessions_max` channels.
    #[must_use]
    pub fn new(conn: Connection, sessions_max: usize) -> Self {
        Self {
            conn,
            share: Share::default(),
            tx: TxBuf::new(TRANSMIT_BYTES_BEFORE_AUTH),
            sessions: Vec::new(),
            sessions_max,
            turn: 0,
            turns_left: TURNS_MAX,
        }
    }

    /// Has a ledger say how much window the connection may grant: nothing before the login. Without one
    /// it is the configuration's `windows_max`.
    pub fn set_credit(&mut self, now: Instant, credit: Box<dyn Credit>) {
        self.share.set(credit);
        self.share.balance(now, &mut self.conn);
    }

    /// The connection.
    #[must_use]
    pub const fn conn(&self) -> &Connection {
        &self.conn
    }

    /// The connection, to answer what it asks.
    pub const fn conn_mut(&mut self) -> &mut Connection {
        &mut self.conn
    }

    /// Memory for what the stream brings.
    pub fn input_space(&mut self) -> &mut [u8] {
        self.conn.input_space()
    }

    /// `n` bytes of that memory were filled. Errors are kept by the connection.
    pub fn handle_input(&mut self, now: Instant, n: usize) {
        let _ = self.conn.handle_input(now, n);
    }

    /// The stream ended. Errors are kept by the connection.
    pub fn handle_eof(&mut self, now: Instant) {
        let _ = self.conn.handle_eof(now);
    }

    /// The stream broke both ways. Errors are kept by the connection.
    pub fn handle_reset(&mut self, now: Instant) {
        let _ = self.conn.handle_reset(now);
    }

    /// A deadline passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.conn.poll_timeout()
    }

    /// What the application should know next. Requests that arrived are served on the way, a
    /// bounded number before [`ServerSession::poll_transmit`] is called.
    #[must_use]
    pub fn poll_event(&mut self, now: Instant, app: &mut dyn ServerApp) -> Option<ServerEvent> {
        loop {
            if self.turns_left == 0 {
                return None;
            }
            match self.conn.poll_event(now)? {
                SshEvent::AuthRequest => return Some(ServerEvent::AuthRequest),
                SshEvent::Authenticated => {
                    self.tx.grow(TRANSMIT_BYTES);
                    self.share.balance(now, &mut self.conn);
                    return Some(ServerEvent::Authenticated);
                }
                SshEvent::Closed => {
                    self.end_all(app);
                    return Some(ServerEvent::Closed);
                }
                SshEvent::ChannelOpen(ch) => {
                    // It wants its window.
                    self.share.balance(now, &mut self.conn);
                    self.on_open(ch);
                }
                SshEvent::Request(ch) => self.on_request(now, ch, app),
                SshEvent::Readable(ch) => match self.session_at(ch) {
                    Some(i) => self.arrived(now, i, app),
                    None => self.discard(now, ch),
                },
                SshEvent::Eof(ch) => {
                    if let Some(i) = self.session_at(ch) {
                        self.sessions[i].is_eof = true;
                        self.arrived(now, i, app);
                    }
                }
                SshEvent::ChannelClosed(ch) => {
                    if let Some(i) = self.session_at(ch) {
                        self.end(i, SessionEnd::Gone, app);
                    }
                }
                SshEvent::Writable(_)
                | SshEvent::ReadableStderr(_)
                | SshEvent::Opened(_)
                | SshEvent::OpenFailed(_)
                | SshEvent::RequestDone { .. }
                | SshEvent::ExitStatus(..)
                | SshEvent::ExitSignal(_)
                | SshEvent::HostKey
                | SshEvent::HostKeysAnnounced
                | SshEvent::HostKeysProved
                | SshEvent::Banner
                | SshEvent::AuthNeeded
                | SshEvent::SignatureNeeded
                | SshEvent::Prompt => {}
            }
        }
    }

    /// Serves what waited, session by session in turn, and lets everyone write. Returns whether
    /// anything was added to [`ServerSession::pending`], or more can be done at once.
    pub fn poll_transmit(&mut self, now: Instant, app: &mut dyn ServerApp) -> bool {
        // Turns used up: there may be more to read from what arrived.
        let mut has_worked = std::mem::replace(&mut self.turns_left, TURNS_MAX) == 0;
        has_worked |= self.flush(now);
        let first = self.turn;
        let mut left = self.sessions.len();
        while left > 0 && !self.sessions.is_empty() {
            left -= 1;
            let i = (first + left) % self.sessions.len();
            if self.sessions[i].is_waiting {
                let before = self.tx.pending().len();
                has_worked |= self.serve(now, i, app);
                if self.tx.pending().len() > before {
                    has_worked = true;
                    // Who wrote last is last to write: the buffer may have room for one only.
                    self.turn = i;
                }
            }
        }
        self.share.balance(now, &mut self.conn);
        has_worked | self.flush(now)
    }

    /// Takes the result of an operation that a store left pending.
    pub fn complete(
        &mut self,
        now: Instant,
        ch: ChannelId,
        (token, completion): (Token, Completion),
        app: &mut dyn ServerApp,
    ) {
        let Some(i) = self.session_at(ch) else { return };
        let session = &mut self.sessions[i];
        let mut outlet = self.conn.outlet(now, ch, &mut self.tx);
        session
            .server
            .complete(token, completion, &mut outlet, app.store(ch));
        // What waited for it can go on.
        session.is_waiting = true;
    }

    /// What waits for the stream.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        self.tx.pending()
    }

    /// The stream took `n` bytes.
    pub fn sent(&mut self, n: usize) {
        self.tx.consume(n);
    }

    /// Operations that stores have left pending.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.sessions.iter().map(|s| s.server.pending_count()).sum()
    }

    fn session_at(&self, ch: ChannelId) -> Option<usize> {
        self.sessions.iter().position(|session| session.ch == ch)
    }

    fn flush(&mut self, now: Instant) -> bool {
        let mut is_written = false;
        while self.conn.poll_transmit(now, &mut self.tx).is_some() {
            is_written = true;
        }
        is_written
    }

    fn on_open(&mut self, ch: ChannelId) {
        // The channel that asks is counted already. Misuse only: it has just been announced.
        let _ = if self.conn.channel_count() > self.sessions_max {
            let reason = OpenFailure::RESOURCE_SHORTAGE;
            self.conn
                .reject_channel(ch, reason, "too many sessions on this connection")
        } else {
            self.conn.accept_channel(ch).map(drop)
        };
    }

    fn on_request(&mut self, now: Instant, ch: ChannelId, app: &mut dyn ServerApp) {
        let Some(request) = self.conn.channel_request(ch) else {
            return;
        };
        let start = app.judge(ch, &request);
        // Misuse only: the request is there, and so is the channel.
        let _ = self
            .conn
            .answer_request(ch, !matches!(start, Start::Refuse));
        match start {
            Start::Sftp(config) => self.sessions.push(Session {
                ch,
                server: Server::new(config),
                is_waiting: true,
                is_eof: false,
            }),
            Start::Say(text) => {
                let _ = self.conn.send_stderr(ch, text.as_bytes());
                self.finish(ch, 1);
            }
            Start::Answer(text) => {
                let is_told = self.say(now, ch, text.as_bytes());
                self.finish(ch, u32::from(!is_told));
            }
            Start::Nothing | Start::Refuse => {}
        }
    }

    /// Writes a short text to a channel; false where it has no room for all of it.
    fn say(&mut self, now: Instant, ch: ChannelId, text: &[u8]) -> bool {
        let mut outlet = self.conn.outlet(now, ch, &mut self.tx);
        text.len() <= outlet.room()
            && outlet.emit(text.len(), &mut |slices| {
                scatter(slices, 0, text);
                text.len()
            })
    }

    /// Ends a channel from this side: status, EOF, CLOSE.
    fn finish(&mut self, ch: ChannelId, status: u32) {
        // Misuse only: a channel that is gone needs no end.
        let _ = self.conn.exit_status(ch, status);
        let _ = self.conn.send_eof(ch);
        let _ = self.conn.close_channel(ch);
    }

    /// Takes away what comes for a channel without a program.
    fn discard(&mut self, now: Instant, ch: ChannelId) {
        let n = self.conn.readable(ch).len();
        self.conn.consume(now, ch, n);
    }

    /// Gives a session a turn for what just arrived.
    fn arrived(&mut self, now: Instant, i: usize, app: &mut dyn ServerApp) {
        self.turns_left -= 1;
        let _ = self.serve(now, i, app);
    }

    /// Gives a session one turn: what its channel holds, within its bounds of work and output.
    /// Returns whether it took any of that, or can go on at once.
    fn serve(&mut self, now: Instant, i: usize, app: &mut dyn ServerApp) -> bool {
        let session = &mut self.sessions[i];
        let ch = session.ch;
        let loan = self.conn.lend(ch);
        let mut outlet = self.conn.outlet(now, ch, &mut self.tx);
        let result = session
            .server
            .handle_input(loan.bytes(), &mut outlet, app.store(ch));
        let taken = result.unwrap_or(loan.bytes().len());
        let is_drained = taken == loan.bytes().len();
        self.conn.give_back(now, loan, taken);
        if let Err(error) = result {
            // OpenSSH's server exits with 11 or 255; nobody looks.
            self.finish(ch, 255);
            self.end(i, SessionEnd::Failed(error), app);
            return true;
        }
        let stop = session.server.stop();
        session.is_waiting = stop != Stop::Input || session.server.pending_count() > 0;
        // What is left in front of the end is half a request: OpenSSH's server exits with 0 too.
        let is_over = session.is_eof
            && session.server.pending_count() == 0
            && (is_drained || stop == Stop::Input);
        if is_over {
            self.finish(ch, 0);
            self.end(i, SessionEnd::Done, app);
        }
        taken > 0 || stop == Stop::Work
    }

    fn end(&mut self, i: usize, how: SessionEnd, app: &mut dyn ServerApp) {
        let session = self.sessions.swap_remove(i);
        app.ended(session.ch, how);
    }

    fn end_all(&mut self, app: &mut dyn ServerApp) {
        while !self.sessions.is_empty() {
            self.end(0, SessionEnd::Gone, app);
        }
    }
}
