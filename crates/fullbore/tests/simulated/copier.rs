//! A client that copies one endless or bounded file over SFTP, either way, as `cp` does it: the session
//! that ships, as the simulator's endpoint.

use std::io::IoSliceMut;

use fullbore::session::{ClientSession, Event, LaneFiles};
use fullbore_base::Instant;
use fullbore_sftp::client::{self as sftp, BlockError, Blocks, BulkId, Handle, RequestId};
use fullbore_sftp::proto::{Attrs, OpenFlags, Reply, Request};
use fullbore_sim::Endpoint;
use fullbore_ssh::auth::{Attempt, ClientAuth};
use fullbore_ssh::config::ClientConfig;
use fullbore_ssh::transport::HostKeyVerified;
use fullbore_ssh::{ChannelId, Connection, Event as SshEvent};

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Get,
    Put,
}

/// The client's file: zeros to read, and a count of what is written.
#[derive(Debug, Default)]
pub struct LocalFile {
    /// Its length, for an upload.
    pub len: u64,
    /// Bytes read from it, and written to it.
    pub read: u64,
    pub written: u64,
}

impl Blocks for LocalFile {
    fn read_at(
        &mut self,
        _: BulkId,
        offset: u64,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<usize, BlockError> {
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let n = room.min(left);
        self.read += n as u64;
        Ok(n)
    }

    fn write_at(&mut self, _: BulkId, _: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.written += bytes.len() as u64;
        Ok(())
    }
}

impl LaneFiles for LocalFile {
    fn of_lane(&mut self, _: ChannelId) -> &mut dyn Blocks {
        self
    }
}

/// The client.
pub struct Copier {
    pub session: ClientSession,
    pub lane: ChannelId,
    pub file: LocalFile,
    pub way: Way,
    /// Length of the file.
    len: u64,
    open: RequestId,
    /// When the first request for bytes could go.
    pub begun: Option<Instant>,
    pub is_done: bool,
    pub error: Option<String>,
}

impl Copier {
    /// A client that starts at once.
    pub fn new(
        mut config: ClientConfig,
        sftp: sftp::Config,
        seed: u64,
        (way, len): (Way, u64),
    ) -> Self {
        config.auth = ClientAuth {
            user: b"tester".to_vec(),
        };
        let mut conn = Connection::client(config.into(), super::provider(seed), Instant::ZERO);
        conn.authenticate(Attempt::None).unwrap();
        let mut session = ClientSession::new(conn);
        let lane = session.open_lane(Instant::ZERO, sftp).unwrap();
        let client = session.lane_mut(lane).unwrap();
        let open = Request::Open {
            path: b"/source",
            flags: match way {
                Way::Get => OpenFlags::READ,
                Way::Put => OpenFlags::WRITE,
            },
            attrs: Attrs::EMPTY,
        };
        let open = client.request(Instant::ZERO, &open).unwrap();
        Self {
            session,
            lane,
            file: LocalFile {
                len,
                ..LocalFile::default()
            },
            way,
            len,
            open,
            begun: None,
            is_done: false,
            error: None,
        }
    }

    fn turn(&mut self, now: Instant) {
        while let Some(event) = self.session.poll_event(now, &mut self.file) {
            match event {
                Event::Ssh(SshEvent::HostKey) => {
                    let conn = self.session.conn_mut();
                    let proof = HostKeyVerified::by_application(conn.host_key().unwrap());
                    conn.accept_host_key(now, proof).unwrap();
                }
                Event::Ssh(SshEvent::Closed) => {
                    let error = self.session.conn().error().map(ToString::to_string);
                    self.error = error.or(self.error.take());
                }
                Event::Lane(_, event) => self.on_lane(now, event),
                Event::LaneFailed(lane) => {
                    self.error = self.session.lane_error(lane).map(ToString::to_string);
                }
                Event::Ssh(_) => {}
            }
        }
    }

    fn on_lane(&mut self, now: Instant, event: sftp::Event) {
        let client = self.session.lane_mut(self.lane).unwrap();
        match event {
            sftp::Event::Reply(id) if self.open == id => {
                let message = client.take_reply(id).unwrap();
                let Reply::Handle(handle) = message.reply() else {
                    panic!("the file did not open");
                };
                let handle = Handle::new(handle).unwrap();
                match self.way {
                    Way::Get => client.start_get(now, handle, 0, self.len).unwrap(),
                    Way::Put => client.start_put(now, handle, 0).unwrap(),
                };
                self.begun = Some(now);
            }
            sftp::Event::BulkDone(id) => {
                let error = client.take_bulk(id).unwrap().error;
                self.is_done = true;
                self.error = error.map(|error| error.to_string());
            }
            sftp::Event::Failed => {
                self.error = client.error().map(ToString::to_string);
            }
            sftp::Event::Ready | sftp::Event::Reply(_) | sftp::Event::Progress(_) => {}
        }
    }
}

impl Endpoint for Copier {
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
        while self.session.pending().len() < room && self.session.poll_transmit(now, &mut self.file)
        {
            self.turn(now);
        }
        let n = self.session.pending().len().min(room);
        out.extend_from_slice(&self.session.pending()[..n]);
        self.session.sent(now, n);
    }

    fn is_closed(&self) -> bool {
        self.session.conn().error().is_some() && self.session.pending().is_empty()
    }
}
