//! A connection to a server: opens SFTP sessions, runs commands, leads to other hosts.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use fullbore_ssh::ChannelId;
use fullbore_ssh::msg::DisconnectReason;

use super::core::Core;
use super::error::Error;
use super::lane::Lane;
use super::sftp::Sftp;
use super::tunnel::ChannelTunnel;
use super::waiting::{Plain, wait};
use crate::config::quirks::Quirks;
use crate::transfer::TokenBucket;

/// A connection that is logged in. Clones share it; it is closed when the last clone and
/// everything that was opened on it are gone.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) core: Rc<Core>,
    _life: Rc<Life>,
}

/// Ends the connection when the last handle goes.
#[derive(Debug)]
struct Life {
    core: Rc<Core>,
    /// The connection that carries this one, if it goes through another host.
    _carrier: Option<Connection>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.core.change(|state, now| {
            let conn = state.session.conn_mut();
            conn.disconnect(now, DisconnectReason::ByApplication, "done");
        });
    }
}

/// What a command on the server did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its exit status; `None` if a signal ended it or the server did not say.
    pub status: Option<u32>,
    /// What it wrote to its standard output, cut at [`ExecOutput::BYTES_MAX`].
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error, cut likewise.
    pub stderr: Vec<u8>,
}

impl ExecOutput {
    /// Bytes kept of each stream; the command is not stopped by it.
    pub const BYTES_MAX: usize = 1 << 20;
}

impl Connection {
    pub(super) fn new(core: Rc<Core>, carrier: Option<Self>) -> Self {
        let _life = Rc::new(Life {
            core: core.clone(),
            _carrier: carrier,
        });
        Self { core, _life }
    }

    /// Lets at most so many Kbit a second pass, both ways together, from now on (scp's `-l`).
    pub fn limit_rate(&self, kbit_per_second: u64) {
        self.core.change(|state, now| {
            state.limit = Some(TokenBucket::new(kbit_per_second, now));
        });
    }

    /// Opens an SFTP session on a channel of its own. Servers allow several (OpenSSH: ten).
    ///
    /// # Errors
    /// When the connection is over, or the server opens no channel or has no SFTP server.
    pub async fn open_sftp(&self) -> Result<Sftp, Error> {
        let (open, most) = self.core.look(|state| {
            let most = state.session.quirks().sessions_max;
            (state.session.lanes_count(), most)
        });
        if let Some(most) = most
            && open >= most as usize
        {
            let why = format!("the server serves {most} sessions on a connection");
            return Err(Error::Closed(why.into()));
        }
        let lane = Lane::open(self, fullbore_sftp::client::Config::default())?;
        lane.ready().await?;
        Ok(Sftp {
            lane: Rc::new(lane),
        })
    }

    /// As [`Connection::open_sftp`], but requests can follow at once: to servers known to serve in
    /// order they leave in the same flight. What is refused shows in the first request.
    ///
    /// # Errors
    /// When the connection is over.
    pub fn start_sftp(&self) -> Result<Sftp, Error> {
        let lane = Lane::open(self, fullbore_sftp::client::Config::default())?;
        Ok(Sftp {
            lane: Rc::new(lane),
        })
    }

    /// The time on the connection's clock.
    #[must_use]
    pub fn now(&self) -> fullbore_base::Instant {
        self.core.clock.now()
    }

    /// Measures the round-trip time once more: [`Connection::rtt`] changes when the answer is here.
    pub fn ping(&self) {
        self.core
            .change(|state, now| state.session.conn_mut().ping(now));
    }

    /// Whether the rate is limited, by [`Connection::limit_rate`].
    #[must_use]
    pub fn has_rate_limit(&self) -> bool {
        self.core.look(|state| state.limit.is_some())
    }

    /// Whether it runs over one that another process has.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.core.is_shared.get()
    }

    /// Whether two handles are of one connection.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.core, &other.core)
    }

    /// Runs a command on the server and waits for its end.
    ///
    /// # Errors
    /// When the connection is over or the server runs no commands.
    pub async fn exec(&self, command: &[u8]) -> Result<ExecOutput, Error> {
        let channel = PlainChannel::open(self, |state, now| {
            let conn = state.session.conn_mut();
            let ch = conn.open_session(now)?;
            conn.exec(ch, command)?;
            // It gets no input.
            conn.send_eof(ch)?;
            Ok(ch)
        })?;
        let mut output = ExecOutput {
            status: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        poll_fn(|cx| {
            self.core.change(|state, now| {
                let conn = state.session.conn_mut();
                let n = keep(&mut output.stdout, conn.readable(channel.ch));
                conn.consume(now, channel.ch, n);
                let m = keep(&mut output.stderr, conn.readable_stderr(channel.ch));
                conn.consume_stderr(now, channel.ch, m);
                let plain = state.plain.entry(channel.ch).or_default();
                // All is said: who never closes the channel is not waited for.
                let is_said = plain.is_eof && plain.status.is_some() && n + m == 0;
                // Some servers refuse the command and leave the channel to us.
                if plain.is_closed || plain.is_refused() || is_said {
                    return Poll::Ready(());
                }
                wait(&mut plain.reader, cx);
                if n + m > 0 {
                    // There may be more.
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            })
        })
        .await;
        if let Some(error) = self.core.look(|state| state.closed().cloned()) {
            return Err(error);
        }
        let (status, failure) = self.core.note(|state| {
            let plain = state.plain.entry(channel.ch).or_default();
            (plain.status, plain.failure.take())
        });
        match failure {
            Some(why) if status.is_none() => Err(Error::Exec(why.into())),
            _ => Ok(ExecOutput { status, ..output }),
        }
    }

    /// Opens a channel through which the server connects to `host` for us (RFC 4254 7.2).
    pub(super) async fn tunnel(&self, host: &str, port: u16) -> Result<ChannelTunnel, Error> {
        let channel = PlainChannel::open(self, |state, now| {
            let conn = state.session.conn_mut();
            // Where the connection came from in the first place; servers only log it.
            conn.open_direct_tcpip(now, host, port, "127.0.0.1", 65535)
        })?;
        poll_fn(|cx| {
            self.core.note(|state| {
                let plain = state.plain.entry(channel.ch).or_default();
                if plain.is_open || plain.is_closed {
                    return Poll::Ready(());
                }
                wait(&mut plain.reader, cx);
                Poll::Pending
            })
        })
        .await;
        let failure = self.core.note(|state| {
            let plain = state.plain.entry(channel.ch).or_default();
            let why = plain.failure.take();
            plain.is_closed.then(|| why.unwrap_or_default())
        });
        if let Some(error) = self.core.look(|state| state.closed().cloned()) {
            return Err(error);
        }
        match failure {
            Some(why) => Err(Error::Connect(
                format!(
                    "{}: does not connect on to {host} port {port}: {why}",
                    self.core.peer
                )
                .into(),
            )),
            None => Ok(ChannelTunnel::new(channel)),
        }
    }

    /// The round-trip time, once it was measured.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.core.look(|state| state.session.conn().rtt())
    }

    /// Something of what is known of the server by its name.
    pub fn quirks<R>(&self, look: impl FnOnce(&Quirks) -> R) -> R {
        self.core.look(|state| look(state.session.quirks()))
    }

    /// The last sample of the round-trip time, not smoothed.
    #[must_use]
    pub fn rtt_last(&self) -> Option<Duration> {
        let pong = self.core.look(|state| state.session.conn().pong());
        pong.or_else(|| self.rtt())
    }

    /// Counters of the connection.
    #[must_use]
    pub fn stats(&self) -> fullbore_ssh::connection::Stats {
        self.core.look(|state| *state.session.conn().stats())
    }

    /// Key exchanges done so far, the first one counted.
    #[must_use]
    pub fn key_exchange_count(&self) -> u64 {
        self.core
            .look(|state| state.session.conn().key_exchange_count())
    }

    /// What limited during the last interval, of 250 ms to 1 s, in which something was to be moved.
    #[must_use]
    pub fn path(&self) -> Option<crate::path::Interval> {
        self.core
            .look(|state| state.watch.meter().latest().cloned())
    }

    /// The same, once.
    #[must_use]
    pub fn take_path(&self) -> Option<crate::path::Interval> {
        let take = |state: &mut super::core::State| state.watch.meter_mut().take_latest();
        self.core.note(take)
    }

    /// What limited since the connection was made, or since the sums were taken last.
    #[must_use]
    pub fn path_totals(&self) -> crate::path::Totals {
        self.core.look(|state| state.watch.meter().totals().clone())
    }

    /// Takes the sums, and starts new ones.
    #[must_use]
    pub fn take_path_totals(&self) -> crate::path::Totals {
        let take = |state: &mut super::core::State| state.watch.meter_mut().take_totals();
        self.core.note(take)
    }

    /// How long each phase of the connection's beginning took.
    #[must_use]
    pub fn milestones(&self) -> super::Milestones {
        self.core.look(|state| state.watch.milestones)
    }

    /// Asks the server for a sign of life, and waits for it: the round-trip time from end to end.
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn round_trip(&self) -> Result<Duration, Error> {
        sign_of_life(&self.core).await
    }

    /// What the server's version line says.
    #[must_use]
    pub fn remote_version(&self) -> Vec<u8> {
        self.core
            .look(|state| state.session.conn().remote_version().to_vec())
    }

    /// What was agreed on in the last key exchange.
    #[must_use]
    pub fn algorithms(&self) -> Option<fullbore_ssh::transport::Algorithms> {
        self.core
            .look(|state| state.session.conn().algorithms().cloned())
    }

    /// Ends the connection and waits until the goodbye has gone; everything that still waits on it
    /// fails.
    pub async fn close(&self) {
        self.core.change(|state, now| {
            let conn = state.session.conn_mut();
            conn.disconnect(now, DisconnectReason::ByApplication, "done");
        });
        self.core.finished().await;
        let udp = self.core.udp.borrow().clone();
        if let Some(udp) = udp {
            // The kernel would see to it; here it is us.
            udp.flushed().await;
        }
    }
}

/// See [`Connection::round_trip`].
pub(super) async fn sign_of_life(core: &Core) -> Result<Duration, Error> {
    let count = core.look(|state| state.session.conn().stats().rtt_count);
    core.change(|state, now| state.session.conn_mut().ping(now));
    poll_fn(|cx| {
        core.note(|state| {
            let conn = state.session.conn();
            if let Some(pong) = conn.pong().filter(|_| conn.stats().rtt_count > count) {
                return Poll::Ready(Ok(pong));
            }
            if let Some(error) = state.closed() {
                return Poll::Ready(Err(error.clone()));
            }
            state.watch.pinging.push(cx.waker().clone());
            Poll::Pending
        })
    })
    .await
}

/// Keeps `bytes` up to the limit; returns how many there were.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let room = ExecOutput::BYTES_MAX - kept.len();
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    bytes.len()
}

/// A channel that is no lane; closed when dropped.
#[derive(Debug)]
pub(super) struct PlainChannel {
    pub(super) connection: Connection,
    pub(super) ch: ChannelId,
}

impl PlainChannel {
    fn open(
        connection: &Connection,
        open: impl FnOnce(
            &mut super::core::State,
            fullbore_base::Instant,
        ) -> Result<ChannelId, fullbore_ssh::Error>,
    ) -> Result<Self, Error> {
        let ch = connection.core.change(|state, now| {
            if let Some(error) = state.closed() {
                return Err(error.clone());
            }
            let ch = open(state, now).map_err(|error| Error::Exec(error.to_string().into()))?;
            state.plain.insert(ch, Plain::default());
            Ok(ch)
        })?;
        Ok(Self {
            connection: connection.clone(),
            ch,
        })
    }
}

impl PlainChannel {
    /// A channel with a subsystem on it; whether it runs shows later.
    pub(super) fn subsystem(connection: &Connection, name: &str) -> Result<Self, Error> {
        Self::open(connection, |state, now| {
            let conn = state.session.conn_mut();
            let ch = conn.open_session(now)?;
            conn.subsystem(ch, name)?;
            Ok(ch)
        })
    }

    /// A channel with a command on it; whether it runs shows later.
    pub(super) fn command(connection: &Connection, command: &[u8]) -> Result<Self, Error> {
        Self::open(connection, |state, now| {
            let conn = state.session.conn_mut();
            let ch = conn.open_session(now)?;
            conn.exec(ch, command)?;
            Ok(ch)
        })
    }

    fn plain<R>(&self, look: impl FnOnce(&mut Plain) -> R) -> R {
        let core = &self.connection.core;
        core.note(|state| look(state.plain.entry(self.ch).or_default()))
    }

    /// Takes what its program says on its error stream; appends it to `kept`, up to `len_max` bytes in all.
    pub(super) fn take_stderr(&self, kept: &mut Vec<u8>, len_max: usize) {
        let core = &self.connection.core;
        if core.look(|state| state.session.conn().readable_stderr(self.ch).is_empty()) {
            return;
        }
        core.change(|state, now| {
            let conn = state.session.conn_mut();
            let view = conn.readable_stderr(self.ch);
            let n = view.len();
            kept.extend_from_slice(&view[..n.min(len_max - kept.len())]);
            conn.consume_stderr(now, self.ch, n);
        });
    }

    /// Appends what its program says on its output to `kept`, at most `len_max` bytes in all. Returns
    /// whether more may come, and whoever waits is told of it.
    pub(super) fn poll_output(
        &self,
        cx: &mut std::task::Context<'_>,
        kept: &mut Vec<u8>,
        len_max: usize,
    ) -> bool {
        self.connection.core.change(|state, now| {
            let conn = state.session.conn_mut();
            let view = conn.readable(self.ch);
            let n = view.len().min(len_max - kept.len());
            kept.extend_from_slice(&view[..n]);
            conn.consume(now, self.ch, n);
            let plain = state.plain.entry(self.ch).or_default();
            wait(&mut plain.reader, cx);
            !(plain.is_closed || plain.is_refused()) && kept.len() < len_max
        })
    }

    /// Whether its program was started, once that is decided.
    pub(super) fn poll_started(&self, cx: &mut std::task::Context<'_>) -> Option<bool> {
        self.plain(|plain| {
            if plain.is_closed || plain.is_refused() {
                return Some(false);
            }
            wait(&mut plain.reader, cx);
            plain.is_started.then_some(true)
        })
    }

    /// Whether the server has closed it.
    pub(super) fn is_over(&self) -> bool {
        self.plain(|plain| plain.is_closed || plain.is_eof || plain.is_refused())
    }

    /// The same, and to be told.
    pub(super) fn poll_over(&self, cx: &mut std::task::Context<'_>) -> bool {
        self.plain(|plain| {
            wait(&mut plain.reader, cx);
            plain.is_closed
        })
    }

    /// How its program ended, if it has said so.
    pub(super) fn status(&self) -> Option<u32> {
        self.plain(|plain| plain.status)
    }

    /// Sends nothing more.
    pub(super) fn send_eof(&self) {
        self.connection.core.change(|state, _| {
            // Misuse only: the channel may be gone, which is what is wanted.
            let _ = state.session.conn_mut().send_eof(self.ch);
        });
    }

    /// Takes what its program says on its error stream.
    pub(super) fn read_stderr(&self, buf: &mut [u8]) -> usize {
        let core = &self.connection.core;
        if core.look(|state| state.session.conn().readable_stderr(self.ch).is_empty()) {
            return 0;
        }
        core.change(|state, now| {
            let conn = state.session.conn_mut();
            let view = conn.readable_stderr(self.ch);
            let n = view.len().min(buf.len());
            buf[..n].copy_from_slice(&view[..n]);
            conn.consume_stderr(now, self.ch, n);
            n
        })
    }
}

impl Drop for PlainChannel {
    fn drop(&mut self) {
        self.connection.core.change(|state, _| {
            state.plain.remove(&self.ch);
            // Misuse only: the channel may be gone already, which is what is wanted.
            let _ = state.session.conn_mut().close_channel(self.ch);
        });
    }
}
