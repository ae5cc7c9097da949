//! A download over SFTP over SSH: `fullbore`'s client and server sessions on a simulated path.

use std::io::IoSliceMut;
use std::time::Duration;

use fullbore::session::{
    ClientSession, Event as ClientEvent, LaneFiles, ServerApp, ServerEvent, ServerSession,
    SessionEnd, Start,
};
use fullbore_base::Instant;
use fullbore_sftp::client::{self as sftp, BlockError, Blocks, BulkId, Handle, RequestId};
use fullbore_sftp::proto::{Attrs, OpenFlags, Reply, Request};
use fullbore_sftp::server::Store;
use fullbore_sim::{Endpoint, Pair, Stop};
use fullbore_ssh::auth::AuthAnswer;
use fullbore_ssh::channel::ChannelRequest;
use fullbore_ssh::connection::ConnectionConfig;
use fullbore_ssh::transport::HostKeyVerified;
use fullbore_ssh::{ChannelId, Event as SshEvent};

use super::zeros::Zeros;
use super::{DEADLINE, Path, Run, Sampler};

/// A download of one file.
#[derive(Clone, Debug)]
pub struct Get {
    /// What it goes over.
    pub path: Path,
    /// Its length in bytes.
    pub bytes: u64,
    /// The client's connection: its channel window decides.
    pub connection: ConnectionConfig,
    /// The client's requests.
    pub sftp: sftp::Config,
    /// Replays the run.
    pub seed: u64,
}

impl Get {
    /// Runs it to its end.
    #[must_use]
    pub fn run(&self) -> Run {
        let conn = super::client(self.connection, self.seed);
        let client = ClientEnd::new(ClientSession::new(conn), self.sftp.clone());
        let conn = super::server(ConnectionConfig::default(), self.seed);
        let server = ServerEnd {
            session: ServerSession::new(conn, 1),
            files: OneFile {
                zeros: Zeros { len: self.bytes },
            },
        };
        let mut pair = Pair::new(self.path.pair(self.seed), client, server);
        let stop = pair.run(DEADLINE, |pair| pair.a.begun.is_some(), |_| {});
        let mut sampler = Sampler::new(pair.now(), self.path.rtt.max(SAMPLE_MIN));
        let begun = pair.now();
        if stop == Stop::Done {
            let note = |pair: &Pair<ClientEnd, ServerEnd>| {
                sampler.note(pair.now(), pair.a.sink.bytes, pair.a.window());
            };
            pair.run(DEADLINE, |pair| pair.a.is_done, note);
        }
        let error = pair.a.error.clone();
        Run {
            // Behind the last byte comes only the word that there is no more.
            elapsed: pair.a.sink.last_at - begun,
            bytes: pair.a.sink.bytes,
            samples: sampler.samples,
            unread_peak: 0,
            error: error.or_else(|| (!pair.a.is_done).then(|| "it came to a halt".to_owned())),
        }
    }
}

/// Samples closer than this say nothing.
pub(super) const SAMPLE_MIN: Duration = Duration::from_millis(20);

/// Counts what arrives.
#[derive(Debug, Default)]
struct Sink {
    bytes: u64,
    now: Instant,
    last_at: Instant,
}

impl Blocks for Sink {
    fn read_at(
        &mut self,
        _: BulkId,
        _: u64,
        _: &mut [IoSliceMut<'_>],
    ) -> Result<usize, BlockError> {
        Ok(0)
    }

    fn write_at(&mut self, _: BulkId, _: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.bytes += u64::try_from(bytes.len()).expect("a length fits in 64 bits");
        self.last_at = self.now;
        Ok(())
    }
}

impl LaneFiles for Sink {
    fn of_lane(&mut self, _: ChannelId) -> &mut dyn Blocks {
        self
    }
}

#[derive(Debug)]
struct ClientEnd {
    session: ClientSession,
    lane: ChannelId,
    open: Option<RequestId>,
    sink: Sink,
    /// When the first READ could go.
    begun: Option<Instant>,
    is_done: bool,
    error: Option<String>,
}

impl ClientEnd {
    fn new(mut session: ClientSession, config: sftp::Config) -> Self {
        let lane = session
            .open_lane(Instant::ZERO, config)
            .expect("a new connection has room for a channel");
        let client = session.lane_mut(lane).expect("it was just opened");
        let open = Request::Open {
            path: b"zeros",
            flags: OpenFlags::READ,
            attrs: Attrs::EMPTY,
        };
        let open = client.request(Instant::ZERO, &open);
        Self {
            session,
            lane,
            open: open.ok(),
            sink: Sink::default(),
            begun: None,
            is_done: false,
            error: None,
        }
    }

    fn window(&self) -> u64 {
        u64::from(self.session.conn().local_window(self.lane))
    }

    fn turn(&mut self, now: Instant) {
        self.sink.now = now;
        while let Some(event) = self.session.poll_event(now, &mut self.sink) {
            match event {
                ClientEvent::Ssh(SshEvent::HostKey) => self.trust(now),
                ClientEvent::Ssh(SshEvent::Closed) => {
                    let error = self.session.conn().error();
                    self.fail(error.map(ToString::to_string));
                }
                ClientEvent::Lane(_, event) => self.on_lane(now, event),
                ClientEvent::LaneFailed(lane) => {
                    let error = self.session.lane_error(lane).map(ToString::to_string);
                    self.fail(error);
                }
                ClientEvent::Ssh(_) => {}
            }
        }
    }

    fn trust(&mut self, now: Instant) {
        let conn = self.session.conn_mut();
        if let Some(offer) = conn.host_key() {
            let proof = HostKeyVerified::by_application(offer);
            // It was offered just now.
            let _ = conn.accept_host_key(now, proof);
        }
    }

    fn on_lane(&mut self, now: Instant, event: sftp::Event) {
        let Some(client) = self.session.lane_mut(self.lane) else {
            return;
        };
        match event {
            sftp::Event::Reply(id) if self.open == Some(id) => {
                let message = client.take_reply(id);
                let handle = message.as_ref().and_then(|message| match message.reply() {
                    Reply::Handle(handle) => Handle::new(handle).ok(),
                    _ => None,
                });
                let started = handle.map(|handle| client.start_get(now, handle, 0, 0));
                if matches!(started, Some(Ok(_))) {
                    self.begun = Some(now);
                } else {
                    self.fail(Some("the file did not open".to_owned()));
                }
            }
            sftp::Event::BulkDone(id) => {
                let error = client.take_bulk(id).and_then(|report| report.error);
                self.is_done = true;
                self.error = error.map(|error| error.to_string());
            }
            sftp::Event::Failed => {
                let error = client.error().map(ToString::to_string);
                self.fail(error);
            }
            sftp::Event::Ready | sftp::Event::Reply(_) | sftp::Event::Progress(_) => {}
        }
    }

    fn fail(&mut self, error: Option<String>) {
        self.is_done = true;
        self.begun.get_or_insert(Instant::ZERO);
        let error = error.unwrap_or_else(|| "it ended".to_owned());
        self.error.get_or_insert(error);
    }
}

impl Endpoint for ClientEnd {
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let space = self.session.input_space();
        let taken = bytes.len().min(space.len());
        space[..taken].copy_from_slice(&bytes[..taken]);
        self.session.handle_input(now, taken);
        self.turn(now);
        taken
    }

    fn handle_eof(&mut self, now: Instant) {
        self.session.handle_eof(now);
        self.turn(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
        self.turn(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        self.turn(now);
        while self.session.pending().len() < room && self.session.poll_transmit(now, &mut self.sink)
        {
        }
        let n = self.session.pending().len().min(room);
        out.extend_from_slice(&self.session.pending()[..n]);
        self.session.sent(now, n);
    }

    fn is_closed(&self) -> bool {
        self.session.conn().error().is_some()
    }
}

struct OneFile {
    zeros: Zeros,
}

impl ServerApp for OneFile {
    fn judge(&mut self, _: ChannelId, request: &ChannelRequest<'_>) -> Start {
        match request {
            ChannelRequest::Subsystem { .. } => {
                Start::Sftp(fullbore_sftp::server::Config::default())
            }
            _ => Start::Refuse,
        }
    }

    fn store(&mut self, _: ChannelId) -> &mut dyn Store {
        &mut self.zeros
    }

    fn ended(&mut self, _: ChannelId, _: SessionEnd) {}
}

struct ServerEnd {
    session: ServerSession,
    files: OneFile,
}

impl ServerEnd {
    fn turn(&mut self, now: Instant) {
        while let Some(event) = self.session.poll_event(now, &mut self.files) {
            if event == ServerEvent::AuthRequest {
                // It was asked for just now.
                let _ = self.session.conn_mut().answer_auth(AuthAnswer::Accept);
            }
        }
    }
}

impl Endpoint for ServerEnd {
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let space = self.session.input_space();
        let taken = bytes.len().min(space.len());
        space[..taken].copy_from_slice(&bytes[..taken]);
        self.session.handle_input(now, taken);
        self.turn(now);
        taken
    }

    fn handle_eof(&mut self, now: Instant) {
        self.session.handle_eof(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
        self.turn(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        self.turn(now);
        while self.session.pending().len() < room
            && self.session.poll_transmit(now, &mut self.files)
        {}
        let n = self.session.pending().len().min(room);
        out.extend_from_slice(&self.session.pending()[..n]);
        self.session.sent(n);
    }

    fn is_closed(&self) -> bool {
        self.session.conn().error().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_arrives_whole_and_a_seed_replays_it() {
        let get = Get {
            path: Path::new(100, 20),
            bytes: 3_000_001,
            connection: ConnectionConfig::default(),
            sftp: sftp::Config::default(),
            seed: 5,
        };
        let run = get.run();
        assert_eq!((run.bytes, run.error.as_deref()), (3_000_001, None));
        assert!(
            run.elapsed > Duration::from_millis(240),
            "{:?}",
            run.elapsed
        );
        assert_eq!(get.run(), run);
    }
}
