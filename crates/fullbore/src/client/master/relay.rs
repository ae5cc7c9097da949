//! One client of a shared connection: the server's side of its socket, each of its channels carried on
//! by one of the connection.
//!
//! Bytes are taken from one side only as the other takes them, so both sides' windows hold across it.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fullbore_base::{Instant, Outlet as _, TxBuf, scatter};
use fullbore_ssh::auth::{AuthAnswer, ServerAuth};
use fullbore_ssh::channel::ChannelRequest;
use fullbore_ssh::config::{HostKey, ServerConfig, TransportConfig};
use fullbore_ssh::key::{Algorithm, PrivateKey};
use fullbore_ssh::msg::DisconnectReason;
use fullbore_ssh::provider::AwsLc;
use fullbore_ssh::{ChannelId, Connection as Ssh, Event};

use super::Shared;
use crate::client::connection::PlainChannel;
use crate::client::shared::KEX;
use crate::client::tunnel::ChannelTunnel;
use crate::driver::pump::Driven;
use crate::driver::random::SystemRandom;
use crate::driver::stream::Tunnel as _;

/// Bytes moved at a time. Two of SFTP's longest messages.
const BLOCK_BYTES: usize = 512 * 1024;

/// Room for what goes to the client.
const TRANSMIT_BYTES: usize = 1024 * 1024;

/// A client without a channel for so long gives its place up. Ours: one that does anything opens the first
/// at once.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A client, as its task drives it.
pub(super) struct Relay {
    /// Since when it has had no channel, if it has none.
    idle_since: Option<Instant>,
    /// Something was carried for it.
    is_used: bool,
    conn: Ssh,
    tx: TxBuf,
    shared: Rc<Shared>,
    channels: BTreeMap<ChannelId, Carried>,
    block: Vec<u8>,
    waker: Waker,
}

/// A client's channel, and the one that carries it on.
struct Carried {
    far: ChannelTunnel,
    /// The client's request was answered.
    is_answered: bool,
    /// The client sends nothing more, and that was handed on.
    is_near_ended: bool,
    /// The server sends nothing more, and that was handed on.
    is_far_ended: bool,
    is_closed: bool,
    has_near_eof: bool,
}

/// The host key of the sockets: it means nothing, and every exchange needs one.
#[derive(Debug)]
pub(super) struct SocketKey(pub(super) PrivateKey);

impl HostKey for SocketKey {
    fn blob(&self, algorithm: &str) -> Option<Vec<u8>> {
        (algorithm == Algorithm::Ed25519.name()).then(|| self.0.public_key().to_blob())
    }

    fn sign(&self, _algorithm: &str, data: &[u8]) -> Option<Vec<u8>> {
        self.0.sign(Algorithm::Ed25519, data).ok()
    }
}

impl Relay {
    pub(super) fn new(shared: Rc<Shared>) -> Self {
        let connection = &shared.connection;
        let config = ServerConfig {
            auth: ServerAuth {
                // The kernel has said whose process it is.
                is_none_asked: true,
                ..ServerAuth::default()
            },
            transport: TransportConfig {
                // What the client does about a server follows from its name.
                software_version: software(&connection.remote_version()),
                kex: vec![KEX],
                ..TransportConfig::default()
            },
            host_keys: vec![shared.key.clone()],
            ..ServerConfig::default()
        };
        let provider = Box::new(AwsLc::new(Box::new(SystemRandom::new())));
        let now = connection.core.clock.now();
        Self {
            idle_since: Some(now),
            is_used: false,
            conn: Ssh::server(Arc::new(config), provider, now),
            tx: TxBuf::new(TRANSMIT_BYTES),
            shared,
            channels: BTreeMap::new(),
            block: vec![0; BLOCK_BYTES],
            waker: Waker::noop().clone(),
        }
    }

    pub(super) fn set_waker(&mut self, waker: &Waker) {
        self.waker.clone_from(waker);
    }

    /// Whether it was a command that used the connection, and no look at whether there is one.
    pub(super) const fn is_used(&self) -> bool {
        self.is_used
    }

    fn idle_until(&self) -> Option<Instant> {
        Some(self.idle_since? + IDLE_MAX)
    }

    /// Notes whether it has channels.
    fn note_use(&mut self, now: Instant) {
        if self.channels.is_empty() {
            self.idle_since.get_or_insert(now);
        } else {
            self.idle_since = None;
            self.is_used = true;
        }
    }

    fn on_event(&mut self, now: Instant, event: Event) {
        // Misuse only, in all of these: what the event speaks of is there.
        match event {
            Event::AuthRequest => {
                let _ = self.conn.answer_auth(AuthAnswer::Accept);
            }
            Event::ChannelOpen(ch) => {
                let _ = self.conn.accept_channel(ch);
            }
            Event::Request(ch) => self.on_request(ch),
            Event::Eof(ch) => match self.channels.get_mut(&ch) {
                Some(carried) => carried.has_near_eof = true,
                None => {
                    let _ = self.conn.close_channel(ch);
                }
            },
            Event::Readable(ch) if !self.channels.contains_key(&ch) => {
                let n = self.conn.readable(ch).len();
                self.conn.consume(now, ch, n);
            }
            Event::ChannelClosed(ch) => {
                self.channels.remove(&ch);
            }
            // Of channels that are carried: each is looked at in every turn.
            Event::Readable(_) | Event::Writable(_) => {}
            // A client's only, or news of what was never asked.
            Event::HostKey
            | Event::HostKeysAnnounced
            | Event::HostKeysProved
            | Event::Banner
            | Event::AuthNeeded
            | Event::SignatureNeeded
            | Event::Prompt
            | Event::Opened(_)
            | Event::OpenFailed(_)
            | Event::RequestDone { .. }
            | Event::ReadableStderr(_)
            | Event::ExitStatus(..)
            | Event::ExitSignal(_)
            // The login is granted at once, and the end kept by the connection.
            | Event::Authenticated
            | Event::Closed => {}
        }
    }

    fn on_request(&mut self, ch: ChannelId) {
        let far = match self.conn.channel_request(ch) {
            _ if self.channels.contains_key(&ch) => None,
            Some(ChannelRequest::Subsystem { name: b"sftp", .. }) => self.shared.sftp(),
            Some(ChannelRequest::Exec { command, .. }) => {
                PlainChannel::command(&self.shared.connection, command).ok()
            }
            Some(
                ChannelRequest::Subsystem { .. }
                | ChannelRequest::Env { .. }
                | ChannelRequest::Shell
                | ChannelRequest::Pty { .. }
                | ChannelRequest::WindowChange(_)
                | ChannelRequest::Signal { .. }
                | ChannelRequest::Other { .. },
            )
            | None => None,
        };
        match far {
            Some(far) => {
                let carried = Carried {
                    far: ChannelTunnel::new(far),
                    is_answered: false,
                    is_near_ended: false,
                    is_far_ended: false,
                    is_closed: false,
                    has_near_eof: false,
                };
                self.channels.insert(ch, carried);
            }
            None => {
                let _ = self.conn.answer_request(ch, false);
            }
        }
    }

    /// Moves what can be moved on one channel; whether anything was.
    fn carry(&mut self, now: Instant, ch: ChannelId) -> bool {
        let waker = self.waker.clone();
        let cx = &mut Context::from_waker(&waker);
        let Some(carried) = self.channels.get_mut(&ch) else {
            return false;
        };
        if !carried.is_answered {
            let Some(is_started) = carried.far.channel().poll_started(cx) else {
                return false;
            };
            carried.is_answered = true;
            let _ = self.conn.answer_request(ch, is_started);
            if !is_started {
                self.channels.remove(&ch);
                let _ = self.conn.close_channel(ch);
                return true;
            }
        }
        let up = self.up(now, cx, ch);
        let down = self.down(now, cx, ch);
        up | down | self.end(cx, ch)
    }

    fn up(&mut self, now: Instant, cx: &mut Context<'_>, ch: ChannelId) -> bool {
        let Some(carried) = self.channels.get_mut(&ch) else {
            return false;
        };
        let mut has_moved = false;
        loop {
            let view = self.conn.readable(ch);
            if view.is_empty() {
                if carried.has_near_eof && !carried.is_near_ended {
                    carried.is_near_ended = true;
                    carried.far.channel().send_eof();
                }
                return has_moved;
            }
            match carried.far.poll_write(cx, view) {
                Poll::Ready(Ok(n)) if n > 0 => self.conn.consume(now, ch, n),
                Poll::Ready(Ok(_)) | Poll::Pending => return has_moved,
                // Nobody takes it any more; the end is told below.
                Poll::Ready(Err(_)) => {
                    let n = view.len();
                    self.conn.consume(now, ch, n);
                }
            }
            has_moved = true;
        }
    }

    fn down(&mut self, now: Instant, cx: &mut Context<'_>, ch: ChannelId) -> bool {
        let Some(carried) = self.channels.get_mut(&ch) else {
            return false;
        };
        let said = carried.far.channel().read_stderr(&mut self.block);
        let mut has_moved = said > 0;
        // What does not fit is lost, as it is told to a person at the end of a command.
        let _ = self.conn.send_stderr(ch, &self.block[..said]);
        while !carried.is_far_ended {
            let mut outlet = self.conn.outlet(now, ch, &mut self.tx);
            let room = outlet.room().min(self.block.len());
            if room == 0 {
                break;
            }
            match carried.far.poll_read(cx, &mut self.block[..room]) {
                Poll::Ready(Ok(n)) if n > 0 => {
                    let bytes = &self.block[..n];
                    let is_taken = outlet.emit(n, &mut |slices| {
                        scatter(slices, 0, bytes);
                        n
                    });
                    debug_assert!(is_taken, "its room was asked for");
                }
                Poll::Ready(Ok(_) | Err(_)) => {
                    carried.is_far_ended = true;
                    let _ = self.conn.send_eof(ch);
                }
                Poll::Pending => break,
            }
            has_moved = true;
        }
        has_moved
    }

    /// Hands on the end of the server's program.
    fn end(&mut self, cx: &mut Context<'_>, ch: ChannelId) -> bool {
        let Some(carried) = self.channels.get_mut(&ch) else {
            return false;
        };
        if carried.is_closed || !carried.is_far_ended || !carried.far.channel().poll_over(cx) {
            return false;
        }
        carried.is_closed = true;
        if let Some(status) = carried.far.channel().status() {
            let _ = self.conn.exit_status(ch, status);
        }
        let _ = self.conn.close_channel(ch);
        true
    }

    fn flush(&mut self, now: Instant) -> bool {
        let mut has_written = false;
        while self.conn.poll_transmit(now, &mut self.tx).is_some() {
            has_written = true;
        }
        has_written
    }
}

/// Of a version line: what stands behind `SSH-2.0-`, without its comment.
fn software(version: &[u8]) -> String {
    let name = version.strip_prefix(b"SSH-2.0-").unwrap_or(version);
    let name = name.split(|&b| b == b' ').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

impl Driven for Relay {
    fn input_space(&mut self) -> &mut [u8] {
        self.conn.input_space()
    }

    fn handle_input(&mut self, now: Instant, n: usize) {
        // Errors are kept by the connection.
        let _ = self.conn.handle_input(now, n);
    }

    fn handle_end(&mut self, now: Instant, why: Option<io::Error>) {
        let _ = match why {
            Some(_) => self.conn.handle_reset(now),
            None => self.conn.handle_eof(now),
        };
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
        if self.idle_until().is_some_and(|at| at <= now) {
            let reason = DisconnectReason::ByApplication;
            self.conn.disconnect(now, reason, "nothing was asked for");
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = self.conn.poll_timeout().into_iter();
        timeouts.chain(self.idle_until()).min()
    }

    fn turn(&mut self, now: Instant) -> bool {
        while let Some(event) = self.conn.poll_event(now) {
            self.on_event(now, event);
        }
        let mut has_moved = self.flush(now);
        let channels: Vec<ChannelId> = self.channels.keys().copied().collect();
        for ch in channels {
            has_moved |= self.carry(now, ch);
        }
        self.note_use(now);
        has_moved | self.flush(now)
    }

    fn pending(&self) -> &[u8] {
        self.tx.pending()
    }

    fn sent(&mut self, _now: Instant, n: usize) {
        self.tx.consume(n);
    }

    fn is_finished(&self) -> bool {
        self.conn.error().is_some()
    }
}
