//! A client without an SFTP engine: sends whatever requests a test has prepared, in messages of any
//! length, and leaves what arrives unread for as long as the test wants.

use std::time::Duration;

use fullbore_base::{Instant, Outlet, TxBuf, scatter};
use fullbore_sim::Endpoint;
use fullbore_ssh::auth::{Attempt, ClientAuth};
use fullbore_ssh::config::ClientConfig;
use fullbore_ssh::transport::HostKeyVerified;
use fullbore_ssh::{ChannelId, Connection, Event};

use super::provider;

/// What a test does with a reply.
pub type OnReply = Box<dyn FnMut(&[u8])>;

pub struct Requester {
    pub conn: Connection,
    ch: ChannelId,
    tx: TxBuf,
    /// Requests, of which the first `sent` bytes have left.
    requests: Vec<u8>,
    pub sent: usize,
    /// The longest message that requests leave in.
    pub message_bytes_max: usize,
    /// How long the first unread byte waits before everything that came is read at once.
    pub patience: Duration,
    read_at: Option<Instant>,
    /// The front of a reply whose end has not come.
    partial: Vec<u8>,
    pub reply_count: usize,
    /// What is done with each reply, its length word left off.
    pub on_reply: OnReply,
}

/// What is read at a time.
const READ_BYTES_MAX: usize = 64 << 10;

/// A request or a reply: length, type, body.
pub fn frame(kind: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let len = u32::try_from(body.len() + 1).unwrap();
    [&len.to_be_bytes()[..], &[kind], &body].concat()
}

/// A string field.
pub fn text(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap();
    [&len.to_be_bytes()[..], bytes].concat()
}

impl Requester {
    /// A client that logs in and starts an SFTP session with INIT.
    pub fn new(mut config: ClientConfig, seed: u64) -> Self {
        config.auth = ClientAuth {
            user: b"tester".to_vec(),
        };
        let mut conn = Connection::client(config.into(), provider(seed), Instant::ZERO);
        conn.authenticate(Attempt::None).unwrap();
        let ch = conn.open_session(Instant::ZERO).unwrap();
        conn.subsystem(ch, "sftp").unwrap();
        Self {
            conn,
            ch,
            tx: TxBuf::new(600 << 10),
            requests: frame(1, &[&3_u32.to_be_bytes()]),
            sent: 0,
            message_bytes_max: usize::MAX,
            patience: Duration::ZERO,
            read_at: None,
            partial: Vec::new(),
            reply_count: 0,
            on_reply: Box::new(|_| ()),
        }
    }

    /// Sends `requests` behind what was said before.
    pub fn say(&mut self, requests: &[u8]) {
        self.requests.extend_from_slice(requests);
    }

    /// Whether all that was said has left.
    pub fn is_silent(&self) -> bool {
        self.sent == self.requests.len()
    }

    fn turn(&mut self, now: Instant) {
        while let Some(event) = self.conn.poll_event(now) {
            match event {
                Event::HostKey => {
                    let proof = HostKeyVerified::by_application(self.conn.host_key().unwrap());
                    self.conn.accept_host_key(now, proof).unwrap();
                }
                Event::Readable(_) => {
                    self.read_at.get_or_insert(now + self.patience);
                    self.read_if_due(now);
                }
                Event::Closed => panic!("{:?}", self.conn.error()),
                _ => {}
            }
        }
        self.read_if_due(now);
    }

    fn read_if_due(&mut self, now: Instant) {
        if self.read_at.is_none_or(|at| at > now) {
            return;
        }
        self.read_at = None;
        loop {
            let n = self.conn.readable(self.ch).len();
            if n == 0 {
                return;
            }
            self.partial.extend_from_slice(self.conn.readable(self.ch));
            self.conn.consume(now, self.ch, n);
            self.take_replies();
        }
    }

    fn take_replies(&mut self) {
        let mut at = 0;
        while let Some(word) = self.partial[at..].first_chunk::<4>() {
            let end = at + 4 + u32::from_be_bytes(*word) as usize;
            if end > self.partial.len() {
                break;
            }
            (self.on_reply)(&self.partial[at + 4..end]);
            self.reply_count += 1;
            at = end;
        }
        self.partial.drain(..at);
    }

    fn write(&mut self, now: Instant) {
        while !self.is_silent() {
            let mut outlet = self.conn.outlet(now, self.ch, &mut self.tx);
            let left = &self.requests[self.sent..];
            let len = left.len().min(self.message_bytes_max).min(outlet.room());
            if len == 0 {
                return;
            }
            let is_taken = outlet.emit(len, &mut |slices| {
                scatter(slices, 0, &left[..len]);
                len
            });
            assert!(is_taken, "it fits the room");
            self.sent += len;
        }
    }
}

impl Endpoint for Requester {
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let space = self.conn.input_space();
        let taken = bytes.len().min(space.len());
        space[..taken].copy_from_slice(&bytes[..taken]);
        // Errors are events too.
        let _kept = self.conn.handle_input(now, taken);
        self.turn(now);
        taken
    }

    fn handle_eof(&mut self, now: Instant) {
        let _kept = self.conn.handle_eof(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
        self.turn(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.conn
            .poll_timeout()
            .into_iter()
            .chain(self.read_at)
            .min()
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        self.turn(now);
        loop {
            self.write(now);
            let _appended = self.conn.poll_transmit(now, &mut self.tx);
            let n = self.tx.pending().len().min(room - out.len());
            if n == 0 {
                return;
            }
            out.extend_from_slice(&self.tx.pending()[..n]);
            self.tx.consume(n);
        }
    }

    fn is_closed(&self) -> bool {
        self.conn.error().is_some()
    }
}
