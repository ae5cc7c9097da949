//! What the two ends do in the tests: byte flows with a known pattern, echo, and refusals.

use super::App;
use fullbore_base::{Instant, Outlet, Rng, TxBuf, scatter};
use fullbore_ssh::auth::{Attempt, AuthAnswer, AuthRequest, Secret};
use fullbore_ssh::channel::{ChannelRequest, OpenFailure};
use fullbore_ssh::transport::HostKeyVerified;
use fullbore_ssh::{ChannelId, Connection, Event};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A prime, so that no packet or window size hides a shift by its multiple.
const PATTERN_LEN: usize = 65_521;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = vec![0; 2 * PATTERN_LEN];
    Rng::seeded(4711).fill(&mut bytes[..PATTERN_LEN]);
    let (first, second) = bytes.split_at_mut(PATTERN_LEN);
    second.copy_from_slice(first);
    bytes
});

/// `len` bytes of the pattern at `offset`, as slices.
fn pattern(offset: u64, len: usize) -> &'static [u8] {
    let at = (offset % PATTERN_LEN as u64) as usize;
    &PATTERN[at..at + len.min(PATTERN_LEN)]
}

/// Bytes both ways on one channel, all of the known pattern.
#[derive(Clone, Debug)]
pub struct Flow {
    pub to_send: u64,
    pub sent: u64,
    pub received: u64,
    pub received_stderr: u64,
    /// Longest message.
    pub chunk: usize,
    pub is_reading: bool,
    /// Sends back what comes instead.
    pub is_echo: bool,
    pub ends: bool,
    pub is_eof_sent: bool,
    pub is_eof_seen: bool,
    pub opened: bool,
    pub done: Vec<bool>,
    pub exit_status: Option<u32>,
    pub signal: Option<Vec<u8>>,
    pub closed: bool,
    pub failure: Option<OpenFailure>,
    pub first_byte: Option<Instant>,
}

impl Flow {
    pub fn new(to_send: u64) -> Self {
        Self {
            to_send,
            sent: 0,
            received: 0,
            received_stderr: 0,
            chunk: 256 * 1024,
            is_reading: true,
            is_echo: false,
            ends: true,
            is_eof_sent: false,
            is_eof_seen: false,
            opened: false,
            done: Vec::new(),
            exit_status: None,
            signal: None,
            closed: false,
            failure: None,
            first_byte: None,
        }
    }

    pub fn echo() -> Self {
        Self {
            is_echo: true,
            ..Self::new(0)
        }
    }

    /// Takes what is readable, and checks it.
    pub fn read(&mut self, now: Instant, conn: &mut Connection, ch: ChannelId) {
        if !self.is_reading || self.is_echo {
            return;
        }
        let view = conn.readable(ch);
        let len = view.len();
        let mut at = 0;
        while at < len {
            let n = (len - at).min(PATTERN_LEN);
            assert!(
                view[at..at + n] == *pattern(self.received + at as u64, n),
                "wrong bytes behind {}",
                self.received
            );
            at += n;
        }
        if len > 0 {
            self.first_byte.get_or_insert(now);
        }
        self.received += len as u64;
        conn.consume(now, ch, len);
        let len = conn.readable_stderr(ch).len();
        self.received_stderr += len as u64;
        conn.consume_stderr(now, ch, len);
    }

    /// Writes what can be written; true when something was.
    pub fn write(
        &mut self,
        now: Instant,
        conn: &mut Connection,
        ch: ChannelId,
        tx: &mut TxBuf,
    ) -> bool {
        if self.is_echo {
            return self.write_back(now, conn, ch, tx);
        }
        let mut moved = false;
        while self.sent < self.to_send {
            let left = usize::try_from(self.to_send - self.sent).expect("tests are small");
            let mut outlet = conn.outlet(now, ch, tx);
            let len = left.min(self.chunk);
            if len > outlet.room() {
                return moved;
            }
            let sent = self.sent;
            let taken = outlet.emit(len, &mut |slices| {
                let mut at = 0;
                while at < len {
                    let n = (len - at).min(PATTERN_LEN);
                    scatter(slices, at, pattern(sent + at as u64, n));
                    at += n;
                }
                len
            });
            assert!(taken, "a message of room() bytes is taken");
            self.sent += len as u64;
            moved = true;
        }
        if self.ends && !self.is_eof_sent {
            self.is_eof_sent = true;
            conn.send_eof(ch).expect("the channel lives");
            moved = true;
        }
        moved
    }

    fn write_back(
        &mut self,
        now: Instant,
        conn: &mut Connection,
        ch: ChannelId,
        tx: &mut TxBuf,
    ) -> bool {
        let bytes = conn.readable(ch).to_vec();
        if bytes.is_empty() {
            if self.is_eof_seen && !self.is_eof_sent {
                self.is_eof_sent = true;
                conn.send_eof(ch).expect("the channel lives");
                return true;
            }
            return false;
        }
        let mut outlet = conn.outlet(now, ch, tx);
        let len = bytes.len().min(outlet.room());
        if len == 0 {
            return false;
        }
        let taken = outlet.emit(len, &mut |slices| {
            scatter(slices, 0, &bytes[..len]);
            len
        });
        assert!(taken, "a message of room() bytes is taken");
        self.sent += len as u64;
        conn.consume(now, ch, len);
        true
    }
}

/// What the server does about authentication.
pub type Judge = fn(AuthRequest<'_>) -> AuthAnswer;

/// The server's application.
pub struct Server {
    pub judge: Judge,
    pub flows: BTreeMap<ChannelId, Flow>,
    pub requests: Vec<String>,
    /// Sessions beyond this are refused.
    pub sessions_max: usize,
    /// Requests are left unanswered.
    pub is_lazy: bool,
    pub closed: usize,
    turn: usize,
    /// How much of each complaint was taken.
    pub complaints: Vec<usize>,
    pub error: Option<String>,
}

impl Server {
    pub fn new(judge: Judge) -> Self {
        Self {
            judge,
            flows: BTreeMap::new(),
            requests: Vec::new(),
            sessions_max: usize::MAX,
            is_lazy: false,
            closed: 0,
            turn: 0,
            complaints: Vec::new(),
            error: None,
        }
    }

    /// `flow SEND READ [CHUNK]`: sends SEND bytes in messages of CHUNK, reads or does not. `cat`:
    /// echo. `complain LEN`: that many bytes of stderr, then echo. `die`: killed by a signal.
    /// Anything else is refused.
    fn start(&mut self, conn: &mut Connection, ch: ChannelId) -> bool {
        let Some(request) = conn.channel_request(ch) else {
            return false;
        };
        let (name, arg) = match request {
            ChannelRequest::Exec { command } => ("exec", command.to_vec()),
            ChannelRequest::Subsystem { name } => ("subsystem", name.to_vec()),
            ChannelRequest::Env { name, .. } => ("env", name.to_vec()),
            ChannelRequest::Shell => ("shell", Vec::new()),
            ChannelRequest::Pty { term, .. } => ("pty", term.to_vec()),
            ChannelRequest::WindowChange(_) => ("window-change", Vec::new()),
            ChannelRequest::Signal { name } => ("signal", name.to_vec()),
            ChannelRequest::Other { name, .. } => ("other", name.to_vec()),
        };
        let arg = String::from_utf8_lossy(&arg).into_owned();
        if self.requests.len() < 1000 {
            self.requests.push(format!("{name} {arg}"));
        }
        let words: Vec<&str> = arg.split(' ').collect();
        let flow = match (name, &words[..]) {
            ("env", _) => return true,
            ("exec" | "subsystem", ["cat" | "echo"]) => Flow::echo(),
            ("exec" | "subsystem", ["flow", send, read, rest @ ..]) => {
                let mut flow = Flow::new(send.parse().expect("a number"));
                flow.is_reading = *read == "1";
                if let [chunk] = rest {
                    flow.chunk = chunk.parse().expect("a number");
                }
                flow
            }
            ("exec", ["complain", len]) => {
                let text = vec![b'!'; len.parse().expect("a number")];
                self.complaints
                    .push(conn.send_stderr(ch, &text).expect("it is open"));
                Flow::echo()
            }
            ("exec", ["die"]) => {
                conn.exit_by_signal(ch, "KILL").expect("it is open");
                conn.close_channel(ch).expect("it is open");
                return true;
            }
            _ => return false,
        };
        self.flows.insert(ch, flow);
        true
    }
}

impl App for Server {
    fn on_event(&mut self, now: Instant, conn: &mut Connection, _tx: &mut TxBuf, event: Event) {
        match event {
            Event::AuthRequest => {
                let answer = (self.judge)(conn.auth_request().expect("announced"));
                conn.answer_auth(answer).expect("it was asked for");
            }
            Event::ChannelOpen(ch) => {
                if conn.channel_count() > self.sessions_max {
                    conn.reject_channel(ch, OpenFailure::RESOURCE_SHORTAGE, "full")
                        .expect("it was asked for");
                } else {
                    conn.accept_channel(ch).expect("it was asked for");
                }
            }
            Event::Request(ch) if !self.is_lazy => {
                let ok = self.start(conn, ch);
                conn.answer_request(ch, ok).expect("it was asked for");
            }
            Event::Readable(ch) => {
                if let Some(flow) = self.flows.get_mut(&ch) {
                    flow.read(now, conn, ch);
                }
            }
            Event::Eof(ch) => {
                if let Some(flow) = self.flows.get_mut(&ch) {
                    flow.is_eof_seen = true;
                }
            }
            Event::ChannelClosed(ch) => {
                self.closed += 1;
                self.flows.remove(&ch);
            }
            Event::Closed => {
                self.error = conn.error().map(ToString::to_string);
                self.flows.clear();
            }
            _ => {}
        }
    }

    fn pump(&mut self, now: Instant, conn: &mut Connection, tx: &mut TxBuf) -> bool {
        let mut moved = false;
        let mut ended = Vec::new();
        let mut channels: Vec<ChannelId> = self.flows.keys().copied().collect();
        let first = self.turn % channels.len().max(1);
        channels.rotate_left(first);
        for (i, ch) in channels.iter().enumerate() {
            let flow = self.flows.get_mut(ch).expect("its key was taken");
            if flow.write(now, conn, *ch, tx) {
                moved = true;
                // Who wrote last is last to write.
                self.turn = first + i + 1;
            }
            if flow.is_eof_sent && flow.is_eof_seen && conn.readable(*ch).is_empty() {
                ended.push(*ch);
            }
        }
        for ch in ended {
            self.flows.remove(&ch);
            conn.exit_status(ch, 7).expect("the channel lives");
            conn.close_channel(ch).expect("the channel lives");
            moved = true;
        }
        moved
    }
}

/// What a channel of the client asks for.
#[derive(Clone, Debug)]
pub enum Ask {
    Exec(String),
    Subsystem(String),
}

/// The client's application.
pub struct Client {
    /// Tried one after another; the last first.
    pub attempts: Vec<Attempt>,
    pub answers: Vec<Secret>,
    /// Opened at once, at the start.
    pub plans: Vec<(Ask, Flow)>,
    pub flows: BTreeMap<ChannelId, Flow>,
    pub order: Vec<ChannelId>,
    pub is_authenticated: bool,
    pub is_out_of_attempts: bool,
    pub error: Option<String>,
}

impl Client {
    pub fn new(attempts: Vec<Attempt>, plans: Vec<(Ask, Flow)>) -> Self {
        Self {
            attempts,
            answers: Vec::new(),
            plans,
            flows: BTreeMap::new(),
            order: Vec::new(),
            is_authenticated: false,
            is_out_of_attempts: false,
            error: None,
        }
    }

    pub fn flow(&self, index: usize) -> &Flow {
        &self.flows[&self.order[index]]
    }

    fn open(&mut self, now: Instant, conn: &mut Connection) -> bool {
        let plans = std::mem::take(&mut self.plans);
        let moved = !plans.is_empty();
        for (ask, flow) in plans {
            let ch = conn.open_session(now).expect("few channels");
            match ask {
                Ask::Exec(command) => conn.exec(ch, command.as_bytes()),
                Ask::Subsystem(name) => conn.subsystem(ch, &name),
            }
            .expect("a short request");
            self.order.push(ch);
            self.flows.insert(ch, flow);
        }
        moved
    }
}

impl App for Client {
    fn on_event(&mut self, now: Instant, conn: &mut Connection, _tx: &mut TxBuf, event: Event) {
        match event {
            Event::HostKey => {
                let offer = conn.host_key().expect("announced");
                let proof = HostKeyVerified::by_application(offer);
                conn.accept_host_key(now, proof).expect("it is this one");
            }
            Event::AuthNeeded => match self.attempts.pop() {
                Some(attempt) => conn.authenticate(attempt).expect("it was asked for"),
                None => self.is_out_of_attempts = true,
            },
            Event::Prompt => {
                let count = conn.prompts().expect("announced").prompts.len();
                let answers = self.answers.drain(..count).collect();
                conn.answer_prompts(answers).expect("as many as asked");
            }
            Event::Authenticated => self.is_authenticated = true,
            Event::Closed => {
                self.error = conn.error().map(ToString::to_string);
            }
            _ => self.on_channel_event(now, conn, event),
        }
    }

    fn pump(&mut self, now: Instant, conn: &mut Connection, tx: &mut TxBuf) -> bool {
        let mut moved = self.open(now, conn);
        for (ch, flow) in &mut self.flows {
            if !flow.closed && flow.failure.is_none() && conn.error().is_none() {
                moved |= flow.write(now, conn, *ch, tx);
            }
        }
        moved
    }
}

impl Client {
    fn on_channel_event(&mut self, now: Instant, conn: &mut Connection, event: Event) {
        let ch = match event {
            Event::Opened(ch)
            | Event::OpenFailed(ch)
            | Event::RequestDone { ch, .. }
            | Event::Readable(ch)
            | Event::ReadableStderr(ch)
            | Event::Writable(ch)
            | Event::Eof(ch)
            | Event::ExitStatus(ch, _)
            | Event::ExitSignal(ch)
            | Event::ChannelClosed(ch) => ch,
            _ => return,
        };
        let Some(flow) = self.flows.get_mut(&ch) else {
            return;
        };
        match event {
            Event::Opened(_) => flow.opened = true,
            Event::OpenFailed(_) => flow.failure = conn.open_failure(ch).cloned(),
            Event::RequestDone { ok, .. } => flow.done.push(ok),
            Event::Readable(_) | Event::ReadableStderr(_) => flow.read(now, conn, ch),
            Event::Eof(_) => flow.is_eof_seen = true,
            Event::ExitStatus(_, status) => flow.exit_status = Some(status),
            Event::ExitSignal(_) => flow.signal = conn.exit_signal(ch).map(|s| s.name.clone()),
            Event::ChannelClosed(_) => flow.closed = true,
            _ => {}
        }
    }
}
