//! The client's side: one SSH connection, and SFTP clients on some of its channels.

use fullbore_base::escape_for_display;
use std::fmt;
use std::time::Duration;

use fullbore_base::{Instant, TxBuf};
use fullbore_sftp::client::{self as sftp, Blocks, Client};
use fullbore_ssh::{ChannelId, Connection, Event as SshEvent};

use super::ledger::Credit;
use super::share::Share;
use super::{TRANSMIT_BYTES, TRANSMIT_BYTES_BEFORE_AUTH};
use crate::config::quirks::{OwnProfile, Quirks};

/// What the application should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Of the connection, or of a channel that is no lane.
    Ssh(SshEvent),
    /// Of the SFTP client on a lane.
    Lane(ChannelId, sftp::Event),
    /// A lane is over: [`ClientSession::lane_error`].
    LaneFailed(ChannelId),
}

/// Where the files of transfers are: each lane has its own transfers.
pub trait LaneFiles {
    /// The blocks of the transfers on one lane.
    fn of_lane(&mut self, lane: ChannelId) -> &mut dyn Blocks;
}

/// Why a lane is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneError {
    /// The server opens no further channel; its reason code and words.
    NotOpened(u32, String),
    /// The server runs no SFTP server.
    NoSubsystem,
    /// The SFTP server ended, with what it said on its error stream.
    Ended(Option<u32>, Vec<u8>),
    /// The SFTP session failed.
    Sftp(sftp::Error),
    /// The server did not answer, and its channel window was used up: the most it ever had, in bytes,
    /// and for how long it was waited for.
    WindowShut(u32, Duration),
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpened(code, text) => {
                let text = escape_for_display(text.as_bytes());
                write!(f, "the server opens no channel: {text} (reason {code})")
            }
            Self::NoSubsystem => f.write_str(
                "the server refused to start the \"sftp\" subsystem: it is switched off there, or \
                 not installed",
            ),
            Self::Ended(status, said) => {
                f.write_str("the SFTP server ended")?;
                if let Some(status) = status {
                    write!(f, " with status {status}")?;
                }
                let said = said.trim_ascii();
                if said.is_empty() {
                    return Ok(());
                }
                write!(f, ", saying: {}", escape_for_display(said))
            }
            Self::Sftp(error) => error.fmt(f),
            Self::WindowShut(bytes, patience) => write!(
                f,
                "the SFTP server takes no more: its channel window of {bytes} bytes is used up, and for {} s \
                 it has neither opened it again nor answered",
                patience.as_secs()
            ),
        }
    }
}

impl std::error::Error for LaneError {}

/// Bytes kept of what an SFTP server writes to its error stream: the reason why it ended.
const SAID_BYTES_MAX: usize = 1024;

#[derive(Debug)]
struct Lane {
    ch: ChannelId,
    client: Client,
    /// Its client may have events that were not told, or take input that it left before.
    is_touched: bool,
    /// The server sends nothing more on its channel.
    is_ended: bool,
    /// The user is in: the server's silence counts from then on. Before, a person may be looking
    /// for a password.
    is_awaited: bool,
    status: Option<u32>,
    said: Vec<u8>,
    error: Option<LaneError>,
}

/// A client's connection with its lanes.
#[derive(Debug)]
pub struct ClientSession {
    conn: Connection,
    share: Share,
    tx: TxBuf,
    lanes: Vec<Lane>,
    /// Whether any lane is touched.
    is_touched: bool,
    /// The lane that writes first next time.
    turn: usize,
    /// What is known of the server; the defaults until it has said its name.
    quirks: Quirks,
    own_profiles: Vec<OwnProfile>,
}

impl ClientSession {
    /// A session over a connection at its start.
    #[must_use]
    pub fn new(conn: Connection) -> Self {
        Self {
            conn,
            share: Share::default(),
            tx: TxBuf::new(TRANSMIT_BYTES_BEFORE_AUTH),
            lanes: Vec::new(),
            is_touched: false,
            turn: 0,
            quirks: Quirks::default(),
            own_profiles: Vec::new(),
        }
    }

    /// Sets what the user says of servers; before the server has said its name.
    pub fn set_own_profiles(&mut self, profiles: Vec<OwnProfile>) {
        self.own_profiles = profiles;
    }

    /// What is known of the server, as far as its name tells: the defaults until it has said it.
    #[must_use]
    pub const fn quirks(&self) -> &Quirks {
        &self.quirks
    }

    /// Has a ledger say how much window the connection may grant; without one it is the configuration's
    /// `windows_max`.
    pub fn set_credit(&mut self, now: Instant, credit: Box<dyn Credit>) {
        self.share.set(credit);
        self.share.balance(now, &mut self.conn);
    }

    /// The connection.
    #[must_use]
    pub const fn conn(&self) -> &Connection {
        &self.conn
    }

    /// The connection, for everything that is not a lane's.
    pub const fn conn_mut(&mut self) -> &mut Connection {
        &mut self.conn
    }

    /// The connection and the transmit buffer, for writing to a channel that is no lane.
    pub const fn conn_and_tx(&mut self) -> (&mut Connection, &mut TxBuf) {
        (&mut self.conn, &mut self.tx)
    }

    /// Opens a channel, starts the SFTP server on it and greets it, all in one flight.
    ///
    /// # Errors
    /// When the connection is over or has no room for a channel.
    pub fn open_lane(
        &mut self,
        now: Instant,
        config: sftp::Config,
    ) -> Result<ChannelId, fullbore_ssh::Error> {
        self.share.balance(now, &mut self.conn);
        let ch = self.conn.open_session(now)?;
        self.conn.subsystem(ch, "sftp")?;
        let mut client = Client::new(config);
        prepare(&mut client, &self.quirks);
        self.lanes.push(Lane {
            ch,
            client,
            is_touched: false,
            is_ended: false,
            is_awaited: self.conn.is_authenticated(),
            status: None,
            said: Vec::new(),
            error: None,
        });
        Ok(ch)
    }

    /// Lanes that are open.
    #[must_use]
    pub fn lanes_count(&self) -> usize {
        self.lanes
            .iter()
            .filter(|lane| lane.error.is_none())
            .count()
    }

    /// The SFTP client on a lane; it stays readable after the lane's end.
    #[must_use]
    pub fn lane(&self, ch: ChannelId) -> Option<&Client> {
        Some(&self.lanes[self.lane_at(ch)?].client)
    }

    /// As [`ClientSession::lane`], to make requests and take replies.
    pub fn lane_mut(&mut self, ch: ChannelId) -> Option<&mut Client> {
        let i = self.lane_at(ch)?;
        self.touch(i);
        Some(&mut self.lanes[i].client)
    }

    /// The SFTP clients of all lanes.
    pub fn lanes(&self) -> impl Iterator<Item = (ChannelId, &Client)> {
        self.lanes.iter().map(|lane| (lane.ch, &lane.client))
    }

    /// Why a lane is over.
    #[must_use]
    pub fn lane_error(&self, ch: ChannelId) -> Option<&LaneError> {
        self.lanes[self.lane_at(ch)?].error.as_ref()
    }

    /// Ends a lane and forgets it.
    pub fn close_lane(&mut self, ch: ChannelId) {
        if let Some(i) = self.lane_at(ch) {
            // Misuse only: the channel may be gone already, which is what is wanted.
            let _ = self.conn.close_channel(ch);
            self.lanes.swap_remove(i);
        }
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
        for i in 0..self.lanes.len() {
            if self.lanes[i].is_awaited {
                self.lanes[i].client.handle_timeout(now);
                self.touch(i);
            }
        }
    }

    fn restart_patience(&mut self, now: Instant) {
        for lane in &mut self.lanes {
            lane.client.restart_patience(now);
        }
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let lanes = self
            .lanes
            .iter()
            .filter(|lane| lane.is_awaited)
            .filter_map(|lane| lane.client.poll_timeout());
        self.conn.poll_timeout().into_iter().chain(lanes).min()
    }

    /// What the application should know next. File bytes that arrived are stored on the way.
    #[must_use]
    pub fn poll_event(&mut self, now: Instant, files: &mut dyn LaneFiles) -> Option<Event> {
        loop {
            if let Some(event) = self.tell(now, files) {
                return Some(event);
            }
            let event = self.conn.poll_event(now)?;
            if let Some(event) = self.on_event(now, event, files) {
                return Some(event);
            }
        }
    }

    /// Lets everyone write what may leave now; file bytes are read on the way, and their end may
    /// be an event. Returns whether anything was added to [`ClientSession::pending`].
    pub fn poll_transmit(&mut self, now: Instant, files: &mut dyn LaneFiles) -> bool {
        let mut is_written = self.flush(now);
        let count = self.lanes.len();
        let first = self.turn;
        for i in (first..first + count).map(|i| i % count) {
            // A source at its end makes an event, and nothing to send.
            self.touch(i);
            let lane = &mut self.lanes[i];
            if lane.error.is_some() {
                continue;
            }
            let mut outlet = self.conn.outlet(now, lane.ch, &mut self.tx);
            if lane
                .client
                .poll_transmit(now, &mut outlet, files.of_lane(lane.ch))
            {
                is_written = true;
                // Who wrote last is last to write: the buffer may have room for one only.
                self.turn = (i + 1) % count;
            }
        }
        self.share.balance(now, &mut self.conn);
        is_written | self.flush(now)
    }

    fn flush(&mut self, now: Instant) -> bool {
        let mut is_written = false;
        while self.conn.poll_transmit(now, &mut self.tx).is_some() {
            is_written = true;
        }
        is_written
    }

    /// What waits for the stream.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        self.tx.pending()
    }

    /// The stream took `n` bytes.
    pub fn sent(&mut self, now: Instant, n: usize) {
        self.tx.consume(n);
        if !self.tx.pending().is_empty() {
            // A slow path, or a limited rate: the server cannot answer what it does not have. One
            // that has stopped reads no more, which ends this.
            self.restart_patience(now);
        }
    }

    fn lane_at(&self, ch: ChannelId) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.ch == ch)
    }

    fn touch(&mut self, i: usize) {
        self.lanes[i].is_touched = true;
        self.is_touched = true;
    }

    /// The next event of the lanes that something happened to.
    fn tell(&mut self, now: Instant, files: &mut dyn LaneFiles) -> Option<Event> {
        if !self.is_touched {
            return None;
        }
        for i in 0..self.lanes.len() {
            if !self.lanes[i].is_touched {
                continue;
            }
            if let Some(event) = self.tell_of(i) {
                return Some(event);
            }
            // The application may have taken what kept input waiting.
            self.feed(now, i, files);
            if let Some(event) = self.tell_of(i) {
                return Some(event);
            }
            self.lanes[i].is_touched = false;
        }
        self.is_touched = false;
        None
    }

    /// Takes the transport's round trip. O(lanes).
    pub fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        self.conn.on_rtt(now, rtt);
        for lane in &mut self.lanes {
            lane.client.on_rtt(now, rtt);
        }
    }

    fn tell_of(&mut self, i: usize) -> Option<Event> {
        let lane = &mut self.lanes[i];
        while let Some(event) = lane.client.poll_event() {
            if event != sftp::Event::Failed {
                return Some(Event::Lane(lane.ch, event));
            }
        }
        let error = match *lane.client.error()? {
            sftp::Error::Silent(patience) if self.conn.is_window_shut(lane.ch) => {
                LaneError::WindowShut(self.conn.remote_window_peak(lane.ch), patience)
            }
            ref error => LaneError::Sftp(error.clone()),
        };
        self.fail(i, error)
    }

    /// Gives the lane what its channel holds, as long as it takes it. A lane that is over has
    /// everything taken away, so that the channel's end can be seen.
    fn feed(&mut self, now: Instant, i: usize, files: &mut dyn LaneFiles) {
        let lane = &mut self.lanes[i];
        if self.conn.rtt().is_none()
            && let Some(rtt) = lane.client.rtt_min(now)
        {
            // Until TCP or a ping tells.
            self.conn.on_rtt(now, rtt);
        }
        loop {
            let view = self.conn.readable(lane.ch);
            if view.is_empty() {
                return;
            }
            let taken = if lane.error.is_some() {
                Ok(view.len())
            } else {
                lane.client.handle_input(now, view, files.of_lane(lane.ch))
            };
            match taken {
                // What is left is the beginning of a message whose rest will never come: while it lay
                // there, the channel's end would not be told.
                Ok(0) if lane.is_ended && !lane.client.is_input_held() => {
                    let n = view.len();
                    self.conn.consume(now, lane.ch, n);
                }
                Ok(0) | Err(_) => return,
                Ok(n) => self.conn.consume(now, lane.ch, n),
            }
        }
    }

    /// Handles what concerns a lane; gives back everything else.
    fn on_event(
        &mut self,
        now: Instant,
        event: SshEvent,
        files: &mut dyn LaneFiles,
    ) -> Option<Event> {
        match event {
            SshEvent::HostKey => self.learn_peer(),
            SshEvent::Authenticated => {
                self.tx.grow(TRANSMIT_BYTES);
                for lane in &mut self.lanes {
                    lane.is_awaited = true;
                }
                self.restart_patience(now);
            }
            _ => {}
        }
        let Some(i) = channel_of(event).and_then(|ch| self.lane_at(ch)) else {
            return Some(Event::Ssh(event));
        };
        let ch = self.lanes[i].ch;
        match event {
            SshEvent::Readable(_) => {
                self.feed(now, i, files);
                self.touch(i);
                None
            }
            SshEvent::ReadableStderr(_) => {
                self.listen(now, i);
                None
            }
            SshEvent::Opened(_) => {
                self.lanes[i].client.restart_patience(now);
                None
            }
            SshEvent::OpenFailed(_) => {
                let error = match self.conn.open_failure(ch) {
                    Some(why) => LaneError::NotOpened(why.reason, why.description.clone()),
                    None => LaneError::NotOpened(0, String::new()),
                };
                self.fail(i, error)
            }
            SshEvent::RequestDone { ok: false, .. } => self.fail(i, LaneError::NoSubsystem),
            SshEvent::ExitStatus(_, status) => {
                self.lanes[i].status = Some(status);
                None
            }
            SshEvent::ChannelClosed(_) => {
                let lane = &mut self.lanes[i];
                let error = LaneError::Ended(lane.status, std::mem::take(&mut lane.said));
                self.fail(i, error)
            }
            SshEvent::Eof(_) => {
                // Its program ended; CLOSE, with its exit status in front, tells the rest.
                let _ = self.conn.send_eof(ch);
                self.lanes[i].is_ended = true;
                self.feed(now, i, files);
                self.touch(i);
                None
            }
            _ => None,
        }
    }

    /// The server has said its name.
    fn learn_peer(&mut self) {
        self.quirks = Quirks::of(self.conn.remote_version(), &self.own_profiles);
        for lane in &mut self.lanes {
            prepare(&mut lane.client, &self.quirks);
        }
    }

    fn fail(&mut self, i: usize, error: LaneError) -> Option<Event> {
        let lane = &mut self.lanes[i];
        if lane.error.is_some() {
            return None;
        }
        lane.client.handle_eof();
        lane.error = Some(error);
        let ch = lane.ch;
        self.touch(i);
        Some(Event::LaneFailed(ch))
    }

    /// Keeps the beginning of what the SFTP server says on its error stream.
    fn listen(&mut self, now: Instant, i: usize) {
        let lane = &mut self.lanes[i];
        let view = self.conn.readable_stderr(lane.ch);
        let n = view.len();
        let kept = n.min(SAID_BYTES_MAX - lane.said.len());
        lane.said.extend_from_slice(&view[..kept]);
        self.conn.consume_stderr(now, lane.ch, n);
    }
}

/// Has a lane behave as the server wants it.
fn prepare(client: &mut Client, quirks: &Quirks) {
    if quirks.serves_in_order {
        client.pipeline_init();
    }
    if let Some(len) = quirks.request_len_max {
        client.set_request_len_unless_told(len);
    }
}

/// The channel an event is about.
pub(super) const fn channel_of(event: SshEvent) -> Option<ChannelId> {
    match event {
        SshEvent::ChannelOpen(ch)
        | SshEvent::Opened(ch)
        | SshEvent::OpenFailed(ch)
        | SshEvent::Request(ch)
        | SshEvent::RequestDone { ch, .. }
        | SshEvent::Readable(ch)
        | SshEvent::ReadableStderr(ch)
        | SshEvent::Writable(ch)
        | SshEvent::Eof(ch)
        | SshEvent::ExitStatus(ch, _)
        | SshEvent::ExitSignal(ch)
        | SshEvent::ChannelClosed(ch) => Some(ch),
        SshEvent::HostKey
        | SshEvent::HostKeysAnnounced
        | SshEvent::HostKeysProved
        | SshEvent::Banner
        | SshEvent::AuthNeeded
        | SshEvent::SignatureNeeded
        | SshEvent::Prompt
        | SshEvent::Authenticated
        | SshEvent::AuthRequest
        | SshEvent::Closed => None,
    }
}
