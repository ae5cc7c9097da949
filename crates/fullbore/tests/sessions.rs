//! The sans-IO sessions that ship, joined by a simulated path: SFTP over SSH over bytes, with real
//! cryptography, a real folder, and no network. `FULLBORE_SEED` replays a run.

#![allow(clippy::unwrap_used)]

mod simulated;

use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::Duration;

use fullbore::session::{ClientSession, Event as ClientEvent, LaneFiles};
use fullbore_base::{Instant, Rate, Rng};
use fullbore_sftp::client::{self as sftp, BlockError, Blocks, BulkId, Handle, RequestId};
use fullbore_sftp::proto::{Attrs, OpenFlags, Reply, Request};
use fullbore_sim::{Endpoint, Pair, PairConfig, Stop};
use fullbore_ssh::auth::{Attempt, ClientAuth, Identity, KeyAttempt, Signer};
use fullbore_ssh::config::{ClientConfig, ServerConfig, TransportConfig};
use fullbore_ssh::key::PrivateKey;
use fullbore_ssh::transport::HostKeyVerified;
use fullbore_ssh::{ChannelId, Connection, Event as SshEvent};
use fullbore_testkit::{Folder, seed};
use simulated::{Files, ServerEnd, provider};

const MIB: u64 = 1 << 20;
/// No simulated run here takes longer.
const DEADLINE: Instant = Instant::from_nanos(600_000_000_000);

// The client's end: one lane a job, all at once.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Get,
    Put,
}

struct Job {
    way: Way,
    path: Vec<u8>,
    lane: ChannelId,
    open: Option<RequestId>,
    is_done: bool,
}

/// What a download brought, or what an upload sends, by lane.
struct Contents {
    lanes: Vec<(ChannelId, OneContent)>,
}

struct OneContent {
    bytes: Vec<u8>,
    first_byte_at: Option<Instant>,
    now: Instant,
}

impl Blocks for OneContent {
    fn read_at(
        &mut self,
        _bulk: BulkId,
        offset: u64,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<usize, BlockError> {
        let start = usize::try_from(offset).unwrap().min(self.bytes.len());
        let mut rest = &self.bytes[start..];
        let mut total = 0;
        for slice in slices {
            let n = rest.len().min(slice.len());
            slice[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            total += n;
        }
        Ok(total)
    }

    fn write_at(&mut self, _bulk: BulkId, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let start = usize::try_from(offset).unwrap();
        if self.bytes.len() < start + bytes.len() {
            self.bytes.resize(start + bytes.len(), 0);
        }
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.first_byte_at.get_or_insert(self.now);
        Ok(())
    }
}

impl LaneFiles for Contents {
    fn of_lane(&mut self, lane: ChannelId) -> &mut dyn Blocks {
        let found = self.lanes.iter_mut().find(|(of, _)| *of == lane);
        &mut found.unwrap().1
    }
}

struct ClientEnd {
    session: ClientSession,
    contents: Contents,
    jobs: Vec<Job>,
}

impl ClientEnd {
    fn start(&mut self, way: Way, path: &str, bytes: Vec<u8>) {
        let lane = self
            .session
            .open_lane(Instant::ZERO, sftp::Config::default())
            .unwrap();
        let content = OneContent {
            bytes,
            first_byte_at: None,
            now: Instant::ZERO,
        };
        self.contents.lanes.push((lane, content));
        let flags = match way {
            Way::Get => OpenFlags::READ,
            Way::Put => OpenFlags(OpenFlags::WRITE.0 | OpenFlags::CREAT.0 | OpenFlags::TRUNC.0),
        };
        let path = path.as_bytes().to_vec();
        let open = Request::Open {
            path: &path,
            flags,
            attrs: Attrs::default(),
        };
        let client = self.session.lane_mut(lane).unwrap();
        let open = Some(client.request(Instant::ZERO, &open).unwrap());
        self.jobs.push(Job {
            way,
            path,
            lane,
            open,
            is_done: false,
        });
    }

    fn turn(&mut self, now: Instant) {
        for (_, content) in &mut self.contents.lanes {
            content.now = now;
        }
        while let Some(event) = self.session.poll_event(now, &mut self.contents) {
            match event {
                ClientEvent::Ssh(event) => self.on_ssh(now, event),
                ClientEvent::Lane(lane, event) => self.on_lane(now, lane, event),
                ClientEvent::LaneFailed(lane) => panic!("{:?}", self.session.lane_error(lane)),
            }
        }
    }

    fn on_ssh(&mut self, now: Instant, event: SshEvent) {
        let conn = self.session.conn_mut();
        match event {
            SshEvent::HostKey => {
                let proof = HostKeyVerified::by_application(conn.host_key().unwrap());
                conn.accept_host_key(now, proof).unwrap();
            }
            SshEvent::Closed => panic!("{:?}", conn.error()),
            _ => {}
        }
    }

    fn on_lane(&mut self, now: Instant, lane: ChannelId, event: sftp::Event) {
        let job = self.jobs.iter_mut().find(|job| job.lane == lane).unwrap();
        let client = self.session.lane_mut(lane).unwrap();
        match event {
            sftp::Event::Reply(id) if job.open == Some(id) => {
                job.open = None;
                let message = client.take_reply(id).unwrap();
                let Reply::Handle(handle) = message.reply() else {
                    panic!("opening {:?}: {:?}", job.path, message.reply());
                };
                let handle = Handle::new(handle).unwrap();
                match job.way {
                    Way::Get => client.start_get(now, handle, 0, 0).unwrap(),
                    Way::Put => client.start_put(now, handle, 0).unwrap(),
                };
            }
            sftp::Event::BulkDone(id) => {
                let report = client.take_bulk(id).unwrap();
                assert!(report.error.is_none(), "{:?}", report.error);
                job.is_done = true;
            }
            sftp::Event::Failed => panic!("{:?}", client.error()),
            sftp::Event::Ready | sftp::Event::Reply(_) | sftp::Event::Progress(_) => {}
        }
    }

    fn is_done(&self) -> bool {
        self.jobs.iter().all(|job| job.is_done)
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
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        self.turn(now);
        while self.session.pending().len() < room
            && self.session.poll_transmit(now, &mut self.contents)
        {}
        let n = self.session.pending().len().min(room);
        out.extend_from_slice(&self.session.pending()[..n]);
        self.session.sent(now, n);
    }

    fn is_closed(&self) -> bool {
        self.session.conn().error().is_some()
    }
}

/// The two ends over a path, keys replaced after every `rekey` bytes if given.
fn pair(
    config: PairConfig,
    folder: &Folder,
    rekey: Option<u64>,
) -> Pair<ClientEnd, ServerEnd<Files>> {
    let name = TransportConfig::default().software_version;
    pair_as(config, folder, &Ways::named(&name, rekey))
}

/// How the two ends go about it.
struct Ways {
    /// What the server calls itself.
    name: String,
    rekey: Option<u64>,
    /// As OpenSSH has it.
    withholds_window: bool,
    /// What the client remembers.
    guess: bool,
    patient_version: Option<Vec<u8>>,
    attempt: fn() -> Attempt,
}

impl Ways {
    fn named(name: &str, rekey: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            rekey,
            withholds_window: false,
            guess: false,
            patient_version: None,
            attempt: || Attempt::None,
        }
    }
}

/// A key that signs at once.
fn key_attempt() -> Attempt {
    let key = PrivateKey::from_ed25519_seed(&[9; 32]).unwrap();
    Attempt::PublicKey(KeyAttempt {
        identity: Identity::Key(key.public_key().clone()),
        signer: Signer::Local(Arc::new(key)),
        algorithm: None,
        known: true,
    })
}

fn pair_as(config: PairConfig, folder: &Folder, ways: &Ways) -> Pair<ClientEnd, ServerEnd<Files>> {
    let mut transport = TransportConfig::default();
    if let Some(bytes) = ways.rekey {
        transport.rekey.bytes = bytes;
    }
    let mut client_config = ClientConfig {
        auth: ClientAuth {
            user: b"tester".to_vec(),
        },
        transport: transport.clone(),
        patient_version: ways.patient_version.clone(),
        ..ClientConfig::default()
    };
    // The one that the server is known by goes first.
    let algorithms = &mut client_config.transport.host_key_algorithms;
    algorithms.insert(0, "ssh-ed25519".to_owned());
    client_config.transport.guess_kex = ways.guess;
    let mut server_config = ServerConfig {
        transport: TransportConfig {
            software_version: ways.name.clone(),
            ..transport
        },
        ..ServerConfig::default()
    };
    server_config.connection.withholds_window = ways.withholds_window;
    let mut conn = Connection::client(client_config.into(), provider(config.seed), Instant::ZERO);
    conn.authenticate((ways.attempt)()).unwrap();
    let client = ClientEnd {
        session: ClientSession::new(conn),
        contents: Contents { lanes: Vec::new() },
        jobs: Vec::new(),
    };
    let files = Files::new(&folder.0);
    let server = ServerEnd::new(server_config, !config.seed, files);
    Pair::new(config, client, server)
}

fn content(seed: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    Rng::seeded(seed).fill(&mut bytes);
    bytes
}

/// Round trips from the SYN to the first byte of a file, by what the server calls itself and whether
/// the client remembers it.
///
/// TCP (1), both KEXINITs (2), key exchange (3): a right guess joins the last two. Then to one of us, and
/// to a remembered OpenSSH: login, channel, subsystem, INIT and OPEN (4), READ (5). To OpenSSH at the first
/// contact the login (4) goes before the channel (5), and READ (6). To others login (4), channel (5),
/// subsystem and INIT (6), OPEN (7), READ (8).
const ROUND_TRIPS_TO_FIRST_BYTE: [(&str, bool, u64); 6] = [
    ("fullbore_0.1.0", false, 5),
    ("fullbore_0.1.0", true, 4),
    ("OpenSSH_10.0p2", false, 6),
    ("OpenSSH_10.0p2", true, 4),
    ("Anything_1", false, 8),
    ("Anything_1", true, 7),
];

#[test]
fn the_first_byte_of_a_file_comes_after_so_many_round_trips() {
    for (name, is_remembered, round_trips) in ROUND_TRIPS_TO_FIRST_BYTE {
        let folder = Folder::new("trips");
        std::fs::write(folder.0.join("x"), b"first").unwrap();
        let config = PairConfig {
            delay: Duration::from_millis(100),
            ..PairConfig::default()
        };
        let ways = Ways {
            withholds_window: name.starts_with("OpenSSH"),
            guess: is_remembered,
            patient_version: is_remembered.then(|| format!("SSH-2.0-{name}").into_bytes()),
            attempt: key_attempt,
            ..Ways::named(name, None)
        };
        let mut pair = pair_as(config, &folder, &ways);
        pair.a.start(Way::Get, "/x", Vec::new());
        assert_eq!(pair.run(DEADLINE, |p| p.a.is_done(), |_| ()), Stop::Done);
        let (_, content) = &pair.a.contents.lanes[0];
        assert_eq!(content.bytes, b"first");
        // The client starts when SYN and SYN-ACK have crossed.
        let legs = 2 + content.first_byte_at.unwrap().as_nanos() / 100_000_000;
        assert_eq!(legs, 2 * round_trips, "{name}, remembered: {is_remembered}");
    }
}

/// A person who looks for a password, or a server that asks an authority far away: the greeting
/// that waits behind the login is not overdue.
#[test]
fn a_login_may_take_longer_than_a_reply() {
    let folder = Folder::new("late");
    std::fs::write(folder.0.join("x"), b"first").unwrap();
    let mut pair = pair(PairConfig::default(), &folder, None);
    let late = sftp::Config::default().reply_timeout + Duration::from_secs(30);
    pair.b.opens_at = Instant::ZERO + late;
    pair.a.start(Way::Get, "/x", Vec::new());
    assert_eq!(pair.run(DEADLINE, |p| p.a.is_done(), |_| ()), Stop::Done);
    assert_eq!(pair.a.contents.lanes[0].1.bytes, b"first");
}

/// A rate at which not even one WRITE is through when a reply would be due.
#[test]
fn a_slow_path_is_not_taken_for_a_silent_server() {
    let folder = Folder::new("slow");
    let config = PairConfig {
        rate: Some(Rate::from_bytes_per_sec(400)),
        buffer_bytes_max: 4096,
        ..PairConfig::default()
    };
    let mut pair = pair(config, &folder, None);
    let up = content(3, 100_000);
    pair.a.start(Way::Put, "/up", up.clone());
    assert_eq!(pair.run(DEADLINE, |p| p.a.is_done(), |_| ()), Stop::Done);
    assert!(std::fs::read(folder.0.join("up")).unwrap() == up);
}

fn both_ways(config: PairConfig, rekey: Option<u64>, len: u64) {
    let seed = config.seed;
    let folder = Folder::new(&format!("both-{seed}-{len}"));
    let (down, up) = (content(seed, len), content(seed + 1, len + 1));
    std::fs::write(folder.0.join("down"), &down).unwrap();
    let mut pair = pair(config, &folder, rekey);
    pair.a.start(Way::Get, "/down", Vec::new());
    pair.a.start(Way::Put, "/up", up.clone());
    assert_eq!(
        pair.run(DEADLINE, |p| p.a.is_done(), |_| ()),
        Stop::Done,
        "seed {seed}"
    );
    assert!(
        pair.a.contents.lanes[0].1.bytes == down,
        "seed {seed}: the download differs"
    );
    assert!(
        std::fs::read(folder.0.join("up")).unwrap() == up,
        "seed {seed}: the upload differs"
    );
}

#[test]
fn both_directions_at_once_over_cut_streams() {
    for seed in seed(1)..seed(1) + 8 {
        let config = PairConfig {
            seed,
            delay: Duration::from_millis(20),
            cuts: true,
            buffer_bytes_max: 256 << 10,
            ..PairConfig::default()
        };
        both_ways(config, None, MIB + seed);
    }
}

#[test]
fn both_directions_at_once_with_keys_replaced_all_the_time() {
    for seed in seed(100)..seed(100) + 4 {
        let config = PairConfig {
            seed,
            delay: Duration::from_millis(5),
            rate: Some(Rate::from_bytes_per_sec(50_000_000)),
            cuts: seed % 2 == 0,
            ..PairConfig::default()
        };
        both_ways(config, Some(256 << 10), 4 * MIB);
    }
}

/// Windows that follow nothing but the path's own buffers: both ends push more than all of them hold.
#[test]
fn both_directions_at_once_through_a_narrow_pipe() {
    let config = PairConfig {
        seed: 1,
        delay: Duration::from_millis(1),
        buffer_bytes_max: 4096,
        ..PairConfig::default()
    };
    both_ways(config, None, 2 * MIB);
}
