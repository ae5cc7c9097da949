//! Trees copied to and from servers that behave as the table of quirks says of some: a server in
//! memory with switches, over a socket, under the names that the table knows.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use fullbore::client::{self, Sftp};
use fullbore::driver::clock::Clock;
use fullbore::driver::local::LocalSide;
use fullbore::driver::pump::{Driven, Pump};
use fullbore::driver::random::SystemRandom;
use fullbore::driver::stream::Stream;
use fullbore::server::serve::host_key;
use fullbore::session::{ServerApp, ServerEvent, ServerSession, SessionEnd, Start};
use fullbore::transfer::{Event, Observer, Options, Run, SftpSide, Side, Summary};
use fullbore_base::Instant;
use fullbore_sftp::proto::{Attrs, RequestKind, RequestSet, SymlinkOrder};
use fullbore_sftp::server::memory::{Habits, MemoryStore};
use fullbore_sftp::server::{Config, Store};
use fullbore_ssh::auth::{AuthAnswer, ServerAuth};
use fullbore_ssh::channel::ChannelRequest;
use fullbore_ssh::config::{HostKey, ServerConfig, TransportConfig};
use fullbore_ssh::key::{Algorithm, PrivateKey};
use fullbore_ssh::provider::AwsLc;
use fullbore_ssh::{ChannelId, Connection};
use support::{Folder, Script, context, host, run};

/// What one kind of server is like.
struct Kind {
    name: &'static str,
    habits: Habits,
    config: Config,
    sessions_max: usize,
}

fn without(kinds: &[RequestKind]) -> Config {
    let mut requests = RequestSet::ALL;
    kinds.iter().for_each(|&kind| requests.remove(kind));
    Config {
        requests,
        ..Config::default()
    }
}

const EXTENSIONS: [RequestKind; 3] = [
    RequestKind::Limits,
    RequestKind::PosixRename,
    RequestKind::Fsync,
];

/// READs and WRITEs of 32 KiB, nothing said about it.
fn short_packets() -> Config {
    Config {
        packet_bytes_max: Config::PACKET_BYTES_MIN,
        ..without(&EXTENSIONS)
    }
}

fn kinds() -> Vec<Kind> {
    let kind = |name, habits, config| Kind {
        name,
        habits,
        config,
        sessions_max: 10,
    };
    let object_store = Habits {
        refuses_attributes: true,
        refuses_both: true,
        writes_once: true,
        keeps_names: true,
        open_max: 0,
    };
    let mailbox = Habits {
        open_max: 1,
        ..object_store
    };
    let plain = Habits::default();
    let few = |open_max| Habits { open_max, ..plain };
    let link_first = Config {
        symlink_order: SymlinkOrder::Draft,
        ..Config::default()
    };
    vec![
        kind("OpenSSH_9.9", plain, Config::default()),
        kind("OpenSSH_7.4", plain, without(&[RequestKind::Limits])),
        kind(
            "OpenSSH_for_Windows_8.1",
            few(220),
            without(&[RequestKind::Limits]),
        ),
        kind("Go", plain, short_packets()),
        kind("mod_sftp", plain, short_packets()),
        kind("AWS_SFTP_1.1", object_store, without(&EXTENSIONS)),
        kind("AzureSSH_1.0.0", object_store, without(&EXTENSIONS)),
        kind("GXSSSHD_Comments", mailbox, short_packets()),
        kind("AsyncSSH_2.24.0", plain, link_first),
        kind("wolfSSHv1.4.17", few(64), short_packets()),
        // Nobody knows these: what they refuse is learned.
        kind("Unknown_1", plain, short_packets()),
        kind("Unknown_2", few(3), without(&EXTENSIONS)),
        kind("Unknown_3", few(1), short_packets()),
        kind(
            "Unknown_4",
            Habits {
                refuses_attributes: true,
                keeps_names: true,
                ..plain
            },
            without(&[RequestKind::PosixRename]),
        ),
    ]
}

struct App {
    store: Rc<RefCell<MemoryStore>>,
    lent: MemoryStore,
    config: Config,
}

impl ServerApp for App {
    fn judge(&mut self, _: ChannelId, request: &ChannelRequest<'_>) -> Start {
        match request {
            ChannelRequest::Subsystem { .. } => Start::Sftp(self.config.clone()),
            _ => Start::Refuse,
        }
    }

    fn store(&mut self, _: ChannelId) -> &mut dyn Store {
        &mut self.lent
    }

    fn ended(&mut self, _: ChannelId, _: SessionEnd) {}
}

struct Task {
    session: ServerSession,
    app: App,
    is_closed: bool,
}

impl Task {
    /// Lends the session the store, which the test looks at in between.
    fn with<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        let store = Rc::clone(&self.app.store);
        std::mem::swap(&mut *store.borrow_mut(), &mut self.app.lent);
        let result = body(self);
        std::mem::swap(&mut *store.borrow_mut(), &mut self.app.lent);
        result
    }

    fn work(&mut self, now: Instant) -> bool {
        for _ in 0..64 {
            match self.session.poll_event(now, &mut self.app) {
                Some(ServerEvent::AuthRequest) => {
                    let conn = self.session.conn_mut();
                    conn.answer_auth(AuthAnswer::Accept).unwrap();
                }
                Some(ServerEvent::Closed) => self.is_closed = true,
                Some(ServerEvent::Authenticated) => {}
                None => return self.session.poll_transmit(now, &mut self.app),
            }
        }
        let _ = self.session.poll_transmit(now, &mut self.app);
        true
    }
}

impl Driven for Task {
    fn input_space(&mut self) -> &mut [u8] {
        self.session.input_space()
    }
    fn handle_input(&mut self, now: Instant, n: usize) {
        self.session.handle_input(now, n);
    }
    fn handle_end(&mut self, now: Instant, _: Option<io::Error>) {
        self.session.handle_eof(now);
    }
    fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }
    fn turn(&mut self, now: Instant) -> bool {
        self.with(|task| task.work(now))
    }
    fn pending(&self) -> &[u8] {
        self.session.pending()
    }
    fn sent(&mut self, _: Instant, n: usize) {
        self.session.sent(n);
    }
    fn is_finished(&self) -> bool {
        self.is_closed
    }
}

#[derive(Debug)]
struct TestKey(PrivateKey);

impl HostKey for TestKey {
    fn blob(&self, algorithm: &str) -> Option<Vec<u8>> {
        (algorithm == "ssh-ed25519").then(|| self.0.public_key().to_blob())
    }
    fn sign(&self, _: &str, data: &[u8]) -> Option<Vec<u8>> {
        self.0.sign(Algorithm::Ed25519, data).ok()
    }
}

/// Starts a server of a kind on one end of a socket; the other end, and its files.
fn start(kind: &Kind) -> (Stream, Rc<RefCell<MemoryStore>>) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let key = host_key::make(&mut SystemRandom::new()).unwrap();
    let config = ServerConfig {
        auth: ServerAuth {
            is_none_asked: true,
            ..ServerAuth::default()
        },
        transport: TransportConfig {
            software_version: kind.name.to_owned(),
            ..TransportConfig::default()
        },
        host_keys: vec![Arc::new(TestKey(key))],
        ..ServerConfig::default()
    };
    let clock = Clock::start();
    let provider = Box::new(AwsLc::new(Box::new(SystemRandom::new())));
    let conn = Connection::server(config.into(), provider, clock.now());
    let mut store = MemoryStore::new(1 << 30);
    store.set_habits(kind.habits);
    let store = Rc::new(RefCell::new(store));
    let mut task = Task {
        session: ServerSession::new(conn, kind.sessions_max),
        app: App {
            store: Rc::clone(&store),
            lent: MemoryStore::new(0),
            config: kind.config.clone(),
        },
        is_closed: false,
    };
    let mut pump = Pump::new(Stream::socket(OwnedFd::from(theirs)).unwrap(), clock);
    tokio::task::spawn_local(async move {
        std::future::poll_fn(|cx| pump.poll(cx, &mut task)).await;
    });
    (Stream::socket(OwnedFd::from(ours)).unwrap(), store)
}

/// Remembers what it was told.
#[derive(Default)]
struct Told(RefCell<Vec<String>>);

impl Observer for Told {
    fn notice(&self, event: &Event<'_>) {
        match event {
            Event::Failed { .. } | Event::Warning { .. } => {
                self.0.borrow_mut().push(format!("{event:?}"));
            }
            _ => {}
        }
    }
}

impl Told {
    fn count(&self, part: &str) -> usize {
        let lines = self.0.borrow();
        lines.iter().filter(|line| line.contains(part)).count()
    }
}

async fn copy<S: Side, D: Side>(
    source: (&S, &[u8]),
    target: (&D, &[u8]),
    options: &Options,
    told: &Told,
) -> Summary {
    let run = Run::new(target.0, target.1, false, options.clone(), told).await;
    let run = run.unwrap();
    run.copy_from(source.0, &[source.1.to_vec()]).await;
    run.summary()
}

/// Connected to a server of a kind; with the client's folder, and the server's files.
async fn reach(kind: &Kind) -> (Folder, client::Connection, Rc<RefCell<MemoryStore>>) {
    let (stream, store) = start(kind);
    let folder = Folder::new("quirks");
    support::make_key(&folder, "user");
    let (host, context) = (host(&folder, 22, &[]), context(&Script::default()));
    let connection = client::connect_over(&host, &context, stream).await;
    (folder, connection.unwrap(), store)
}

/// Files of many sizes, more folders and files than any of the servers has handles.
fn make_tree(folder: &Folder) -> (Vec<u8>, u64) {
    let top = folder.file("tree");
    let mut count = 0;
    for outer in 0..3 {
        for inner in 0..2 {
            let path = top.join(format!("{outer}/{inner}"));
            std::fs::create_dir_all(&path).unwrap();
            for number in 0..12 {
                std::fs::write(path.join(format!("f{number}")), support::bytes(number * 97))
                    .unwrap();
                count += 1;
            }
        }
    }
    std::fs::write(top.join("long"), support::bytes(300_000)).unwrap();
    std::fs::write(top.join("empty"), b"").unwrap();
    (top.into_os_string().into_encoded_bytes(), count + 2)
}

fn assert_same(a: &std::path::Path, b: &std::path::Path, name: &str) {
    for entry in std::fs::read_dir(a).unwrap() {
        let entry = entry.unwrap();
        let (here, there) = (entry.path(), b.join(entry.file_name()));
        match here.is_dir() {
            true => assert_same(&here, &there, name),
            false => assert!(
                std::fs::read(&here).unwrap() == std::fs::read(&there).unwrap(),
                "{name}: {}",
                there.display()
            ),
        }
    }
}

async fn there_and_back(kind: &Kind) {
    let (folder, connection, store) = reach(kind).await;
    let sftp: Sftp = connection.open_sftp().await.unwrap();
    let side = SftpSide::new(sftp.clone(), "h:");
    let local = LocalSide::new();
    let options = Options {
        recursive: true,
        preserve: true,
        fsync: true,
        ..Options::default()
    };
    let (tree, count) = make_tree(&folder);
    let told = Told::default();
    sftp.mkdir(b"/up", &Attrs::EMPTY).await.unwrap();
    let inside = [&tree, b"/.".as_slice()].concat();
    // Twice: the second time every name exists.
    for _ in 0..2 {
        let done = copy((&local, &inside), (&side, b"/up"), &options, &told).await;
        assert_eq!(
            (done.files, done.failed),
            (count, 0),
            "{}: {:?}",
            kind.name,
            told.0
        );
    }
    let sets_no_attributes = kind.habits.refuses_attributes;
    assert_eq!(
        told.count("mode and times were not set"),
        if sets_no_attributes { 2 } else { 0 },
        "{}: once a run: {:?}",
        kind.name,
        told.0
    );
    let back = folder.file("back").into_os_string().into_encoded_bytes();
    // This machine's disk is not what is tested.
    let options = Options {
        fsync: false,
        ..options
    };
    let done = copy((&side, b"/up"), (&local, &back), &options, &told).await;
    assert_eq!(
        (done.files, done.failed),
        (count, 0),
        "{}: {:?}",
        kind.name,
        told.0
    );
    assert_same(&folder.file("tree"), &folder.file("back"), kind.name);
    sftp.symlink(b"goal", b"/link").await.unwrap();
    let link = sftp.readlink(b"/link").await.unwrap();
    assert_eq!(link, b"goal", "{}", kind.name);
    sftp.stat(b"/").await.unwrap();
    assert_eq!(
        store.borrow().open_count(),
        0,
        "{}: all is closed",
        kind.name
    );
    let mut listing = side.list(b"/up").await.unwrap();
    let names = side.next_entries(&mut listing).await.unwrap().entries;
    assert!(
        names.iter().all(|e| !e.name.ends_with(b".fullbore")),
        "{}",
        kind.name
    );
    connection.close().await;
}

#[test]
fn trees_go_to_every_kind_of_server_and_come_back() {
    run(async {
        for kind in kinds() {
            there_and_back(&kind).await;
        }
    });
}

/// What a server writes once cannot be gone on with: it is sent anew.
#[test]
fn a_server_that_writes_once_gets_what_was_interrupted_anew() {
    run(async {
        for name in ["AWS_SFTP_1.0", "AzureSSH_1.0.0"] {
            let mut kind = kinds().remove(5);
            kind.name = name;
            let (folder, connection, _store) = reach(&kind).await;
            let sftp = connection.open_sftp().await.unwrap();
            let side = SftpSide::new(sftp.clone(), "h:");
            let local = LocalSide::new();
            let content = support::bytes(300_000);
            let source = folder.write("f", &content);
            let source = source.into_os_string().into_encoded_bytes();
            let told = Told::default();
            // The name that an interrupted copy would have left is found out by interrupting one.
            let options = Options::default();
            let cut = copy((&local, &source), (&side, b"/f"), &options, &told);
            let cut = tokio::time::timeout(std::time::Duration::ZERO, cut).await;
            assert!(cut.is_err(), "given up at once");
            for _ in 0..2 {
                let done = copy((&local, &source), (&side, b"/f"), &options, &told).await;
                assert!(done.is_success(), "{:?}", told.0);
            }
            let attrs: Attrs = sftp.stat(b"/f").await.unwrap();
            assert_eq!(attrs.size, Some(300_000));
            connection.close().await;
        }
    });
}

/// As many sessions as the table says are asked for, and not one more.
#[test]
fn no_more_sessions_are_opened_than_the_server_is_known_to_serve() {
    run(async {
        let kind = kinds().remove(7);
        let (_folder, connection, _store) = reach(&kind).await;
        let first = connection.open_sftp().await.unwrap();
        let second = connection.open_sftp().await.unwrap_err();
        assert!(second.to_string().contains("1 sessions"), "{second}");
        first.stat(b"/").await.unwrap();
        drop(first);
        connection.open_sftp().await.unwrap();
        connection.close().await;
    });
}
