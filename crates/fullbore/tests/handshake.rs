//! Round trips of a whole copy, counted: the client that ships, from its socket to the planner, and a
//! session of our server behind a path on which each way takes a tenth of a second of virtual time.
//! The clock moves only when nobody has anything to do, so every count is exact.

#![allow(clippy::unwrap_used)]

mod simulated;
mod support;

use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::time::Duration;

use fullbore::client::{self, Context, Master, SftpConfig, connect_ahead};
use fullbore::config::ssh_config::{HostConfig, Persist};
use fullbore::driver::local::LocalSide;
use fullbore::driver::local_socket::{self, LocalListener};
use fullbore::transfer::{Event, Observer, Options, Run, SftpSide, glob, questions};
use fullbore_base::Instant;
use fullbore_sim::Endpoint;
use fullbore_ssh::config::ServerConfig;
use fullbore_ssh::key::PrivateKey;
use simulated::{Files, ServerEnd};
use support::{Folder, Script, context, host, make_key};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant as Virtual, sleep_until};

/// One way.
const LEG: Duration = Duration::from_millis(100);

/// What a server calls itself and how it goes about it.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    withholds_window: bool,
}

const OURS: Kind = Kind {
    name: "fullbore_0.1.0",
    withholds_window: false,
};
const OPENSSH: Kind = Kind {
    name: "OpenSSH_10.0p2",
    withholds_window: true,
};
const OTHER: Kind = Kind {
    name: "Other_1",
    withholds_window: false,
};

impl Kind {
    fn config(self) -> ServerConfig {
        let mut config = ServerConfig::default();
        config.transport.software_version = self.name.to_owned();
        config.connection.withholds_window = self.withholds_window;
        config
    }
}

type Chunks = mpsc::UnboundedReceiver<(Virtual, Vec<u8>)>;

/// A server at the far end of the path: takes one connection after the other.
async fn serve(listener: TcpListener, kind: Kind, root: Rc<Folder>, is_hostile: Rc<Cell<bool>>) {
    for seed in 1.. {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        if is_hostile.take() {
            // Says its name, sees what the client sends, and ends it.
            socket.write_all(b"SSH-2.0-x\r\n").await.unwrap();
            let _seen = socket.read(&mut [0; 4096]).await.unwrap();
            continue;
        }
        let server = ServerEnd::new(kind.config(), seed, Files::new(&root.0));
        let (mut from, mut to) = socket.into_split();
        let (up, arriving) = mpsc::unbounded_channel();
        let (leaving, mut down): (_, Chunks) = mpsc::unbounded_channel();
        tokio::task::spawn_local(async move {
            let mut bytes = vec![0; 1 << 20];
            while let Ok(n @ 1..) = from.read(&mut bytes).await {
                let _ = up.send((Virtual::now() + LEG, bytes[..n].to_vec()));
            }
        });
        tokio::task::spawn_local(run_server(server, arriving, leaving));
        tokio::task::spawn_local(async move {
            while let Some((at, bytes)) = down.recv().await {
                sleep_until(at).await;
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn run_server(
    mut server: ServerEnd<Files>,
    mut arriving: Chunks,
    leaving: mpsc::UnboundedSender<(Virtual, Vec<u8>)>,
) {
    let started = Virtual::now();
    while let Some((at, bytes)) = arriving.recv().await {
        sleep_until(at).await;
        let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap();
        let now = Instant::from_nanos(nanos);
        let mut taken = 0;
        loop {
            taken += server.handle_input(now, &bytes[taken..]);
            let mut out = Vec::new();
            server.poll_transmit(now, 1 << 20, &mut out);
            if out.is_empty() && taken == bytes.len() {
                break;
            }
            let _ = leaving.send((Virtual::now() + LEG, out));
        }
    }
}

/// Tells when the first byte of each file was there.
#[derive(Default)]
struct FirstBytes(Cell<Option<Virtual>>);

impl Observer for FirstBytes {
    fn notice(&self, event: &Event<'_>) {
        if let Event::Moved { bytes: 1.., .. } = event
            && self.0.get().is_none()
        {
            self.0.set(Some(Virtual::now()));
        }
    }
}

/// A client's folder, with a key, beside a server of some kind.
struct Bench {
    here: Folder,
    there: Rc<Folder>,
    port: u16,
    context: Context,
    /// What was said.
    script: Script,
    /// The next connection is ended by the server.
    is_hostile: Rc<Cell<bool>>,
}

impl Bench {
    async fn new(kind: Kind) -> Self {
        let (here, there) = (Folder::new("near"), Rc::new(Folder::new("far")));
        make_key(&here, "user");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // The key that all simulated servers have.
        let key = PrivateKey::from_ed25519_seed(&[7; 32]).unwrap();
        let line = key.public_key().to_line("");
        here.write(
            "known_hosts",
            format!("[127.0.0.1]:{port} {line}\n").as_bytes(),
        );
        let is_hostile = Rc::default();
        let server = serve(listener, kind, Rc::clone(&there), Rc::clone(&is_hostile));
        tokio::task::spawn_local(server);
        let script = Script::default();
        Self {
            here,
            there,
            port,
            context: context(&script),
            script,
            is_hostile,
        }
    }

    /// An SFTP session, without anything asked ahead.
    async fn session(&self, host: &HostConfig) -> SftpSide {
        let config = SftpConfig::default();
        let sftp = connect_ahead(host, &self.context, config, &[]).await;
        SftpSide::new(sftp.unwrap(), "far:")
    }

    fn host(&self, options: &[&str]) -> HostConfig {
        let file = self.here.file("state/servers");
        let file = format!("RememberedServersFile={}", file.display());
        let options = [options, &[&file]].concat();
        host(&self.here, self.port, &options)
    }

    /// Copies `x` here as `cp` does. Round trips to its first byte, TCP's among them.
    async fn get(&self, host: &HostConfig) -> Legs {
        let started = Virtual::now();
        let sources = vec![b"/x".to_vec()];
        let ahead = questions::about_sources(&sources, false);
        let config = SftpConfig::default();
        let sftp = connect_ahead(host, &self.context, config, &ahead)
            .await
            .unwrap();
        let side = SftpSide::new(sftp, "far:");
        let at = self.copy_from(&side, &["/x"]).await;
        assert_eq!(fs::read(self.here.file("x")).unwrap(), b"far away");
        Legs(legs(at - started).0 + 2)
    }

    /// Copies files from a session that is there; when the first byte came.
    async fn copy_from(&self, side: &SftpSide, paths: &[&str]) -> Virtual {
        let observer = FirstBytes::default();
        let target = self.here.0.as_os_str().as_encoded_bytes();
        let mut sources = Vec::new();
        for path in paths {
            sources.extend(glob::expand(side, path.as_bytes()).await.unwrap());
        }
        let local = LocalSide::new();
        let run = Run::new(&local, target, true, Options::default(), &observer);
        let run = run.await.unwrap();
        run.copy_from(side, &sources).await;
        assert!(run.summary().is_success());
        observer.0.get().unwrap()
    }
}

/// Trips one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Legs(u128);

const fn round_trips(count: u128) -> Legs {
    Legs(2 * count)
}

/// The timer wheel's rounding is far under half a leg.
fn legs(time: Duration) -> Legs {
    Legs((time + LEG / 2).as_millis() / LEG.as_millis())
}

/// Runs on a clock that moves only when everybody waits.
fn simulate<R>(body: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, body)
}

/// From the SYN to the first byte: of a first contact, and of the next.
fn contacts(kind: Kind) -> (Legs, Legs) {
    contacts_with(kind, &[])
}

fn contacts_with(kind: Kind, options: &[&str]) -> (Legs, Legs) {
    simulate(async {
        let bench = Bench::new(kind).await;
        bench.there.write("x", b"far away");
        let host = bench.host(options);
        (bench.get(&host).await, bench.get(&host).await)
    })
}

#[test]
fn the_channel_waits_for_a_first_login_that_more_than_one_key_could_bring_about() {
    let folder = Folder::new("keys");
    make_key(&folder, "other");
    let other = format!("IdentityFile={}", folder.file("other").display());
    assert_eq!(
        contacts_with(OPENSSH, &[&other]),
        (round_trips(6), round_trips(4))
    );
}

#[test]
fn a_copy_from_a_server_takes_so_many_round_trips_to_its_first_byte() {
    // TCP, KEXINIT, key exchange, login with everything up to OPEN, READ.
    assert_eq!(contacts(OURS), (round_trips(5), round_trips(4)));
    assert_eq!(contacts(OPENSSH), (round_trips(5), round_trips(4)));
    // The channel, VERSION and OPEN are waited for.
    assert_eq!(contacts(OTHER), (round_trips(8), round_trips(7)));
}

#[test]
fn nothing_is_gained_where_nothing_may_be_remembered() {
    simulate(async {
        let bench = Bench::new(OPENSSH).await;
        bench.there.write("x", b"far away");
        let file = "RememberedServersFile=none";
        let host = host(&bench.here, bench.port, &[file]);
        assert_eq!(bench.get(&host).await, round_trips(5));
        assert_eq!(bench.get(&host).await, round_trips(5));
    });
}

#[test]
fn a_server_that_ends_a_connection_over_haste_is_asked_again_and_not_hurried_any_more() {
    simulate(async {
        let bench = Bench::new(OURS).await;
        bench.there.write("x", b"far away");
        let host = bench.host(&[]);
        assert_eq!(bench.get(&host).await, round_trips(5));
        bench.is_hostile.set(true);
        // The connection that is ended costs no time here. On the next, and from then on, every message
        // waits for the one that permits it.
        for _ in 0..2 {
            assert_eq!(bench.get(&host).await, round_trips(7));
        }
        // At a first contact there was no haste to blame.
        fs::remove_file(bench.here.file("state/servers")).unwrap();
        bench.is_hostile.set(true);
        let config = SftpConfig::default();
        let refused = connect_ahead(&host, &bench.context, config, &[]).await;
        assert!(refused.is_err());
    });
}

#[test]
fn a_further_file_alone_takes_two_round_trips_to_its_first_byte() {
    simulate(async {
        let bench = Bench::new(OPENSSH).await;
        for name in ["x", "y"] {
            bench.there.write(name, b"far away");
        }
        let side = bench.session(&bench.host(&[])).await;
        bench.copy_from(&side, &["/x"]).await;
        let started = Virtual::now();
        let at = bench.copy_from(&side, &["/y"]).await;
        assert_eq!(legs(at - started), round_trips(2));
    });
}

#[test]
fn many_files_together_take_no_longer_than_one() {
    simulate(async {
        let bench = Bench::new(OPENSSH).await;
        let names: Vec<String> = (0..8).map(|i| format!("/x{i}")).collect();
        for name in &names {
            bench.there.write(&name[1..], b"far away");
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let side = bench.session(&bench.host(&[])).await;
        let mut took = Vec::new();
        for count in [1, names.len()] {
            let started = Virtual::now();
            bench.copy_from(&side, &names[..count]).await;
            took.push(legs(started.elapsed()));
        }
        assert_eq!(took[0], took[1]);
    });
}

/// Options by which a connection is left for others.
fn sharing(bench: &Bench) -> [String; 3] {
    [
        "ControlMaster=auto".to_owned(),
        "ControlPersist=60".to_owned(),
        format!("ControlPath={}", bench.here.file("run/master").display()),
    ]
}

/// A first command's connection, shared with others from now on.
async fn share(bench: &Bench, host: &HostConfig) -> tokio::task::JoinHandle<()> {
    let side = bench.session(host).await;
    assert!(!side.sftp().connection().is_shared());
    let sharing = host.connection.sharing.as_ref().unwrap();
    let connection = side.sftp().connection().clone();
    let master = Master::new(connection, sharing, sharing.persist.unwrap()).unwrap();
    let task = tokio::task::spawn_local(master.run());
    // The session that is kept in advance.
    sleep_until(Virtual::now() + 6 * LEG).await;
    task
}

#[test]
fn a_command_over_a_shared_connection_takes_two_round_trips_to_its_first_byte() {
    for kind in [OURS, OPENSSH] {
        simulate(async {
            let bench = Bench::new(kind).await;
            bench.there.write("x", b"far away");
            let options = sharing(&bench);
            let host = bench.host(&options.each_ref().map(String::as_str));
            let master = share(&bench, &host).await;
            for _ in 0..3 {
                // No TCP, no login: the requests, and READ.
                assert_eq!(bench.get(&host).await, Legs(round_trips(2).0 + 2));
                sleep_until(Virtual::now() + 6 * LEG).await;
            }
            assert_eq!(
                client::master_of(&host),
                Some(std::process::id().cast_signed())
            );
            // Nobody has used it for a minute: it ends, and commands connect by themselves.
            let idle = Virtual::now();
            master.await.unwrap();
            let idle = idle.elapsed().as_secs();
            assert!((59..62).contains(&idle), "{idle} s");
            assert_eq!(client::master_of(&host), None);
            assert!(bench.get(&host).await.0 >= round_trips(4).0);
        });
    }
}

#[test]
fn several_commands_share_a_connection_at_once_both_ways() {
    simulate(async {
        let bench = Bench::new(OPENSSH).await;
        let options = sharing(&bench);
        let host = bench.host(&options.each_ref().map(String::as_str));
        let _master = share(&bench, &host).await;
        let copies = (0..4).map(|i| {
            let (bench, host) = (&bench, &host);
            async move {
                let side = bench.session(host).await;
                let sftp = side.sftp();
                assert!(sftp.connection().is_shared());
                let name = format!("copy{i}");
                // Not all of it fits into the windows on the way.
                let content = support::bytes(9_000_000 + i);
                let there = bench.there.file(&name);
                let path = format!("/{name}");
                let near = Folder::new(&name);
                support::round_trip(sftp, &near, &path, &there, &content).await;
            }
        });
        let mut copies: Vec<_> = copies.map(Box::pin).collect();
        std::future::poll_fn(|cx| {
            copies.retain_mut(|copy| copy.as_mut().poll(cx).is_pending());
            match copies.is_empty() {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
    });
}

#[test]
fn a_shared_connection_that_does_not_answer_is_done_without() {
    simulate(async {
        let bench = Bench::new(OURS).await;
        bench.there.write("x", b"far away");
        let options = sharing(&bench);
        let host = bench.host(&options.each_ref().map(String::as_str));
        let socket = &host.connection.sharing.as_ref().unwrap().socket;
        // Nobody at all, a socket that nobody listens on any more, and one that is not served.
        assert_eq!(bench.get(&host).await, round_trips(5));
        let listener = LocalListener::bind(socket).unwrap();
        fs::rename(socket, bench.here.file("aside")).unwrap();
        drop(listener);
        fs::rename(bench.here.file("aside"), socket).unwrap();
        assert_eq!(bench.get(&host).await, round_trips(4));
        let _listener = LocalListener::bind(socket).unwrap();
        let waited = Legs(10_000 / LEG.as_millis());
        assert_eq!(bench.get(&host).await, Legs(round_trips(4).0 + waited.0));
    });
}

#[test]
fn a_connection_that_dies_ends_its_clients_and_is_shared_no_more() {
    simulate(async {
        let bench = Bench::new(OURS).await;
        let options = sharing(&bench);
        let host = bench.host(&options.each_ref().map(String::as_str));
        let first = bench.session(&host).await;
        let sharing = host.connection.sharing.as_ref().unwrap();
        let connection = first.sftp().connection().clone();
        let master = Master::new(connection, sharing, Persist::Forever).unwrap();
        let master = tokio::task::spawn_local(master.run());
        let client = bench.session(&host).await;
        assert!(client.sftp().connection().is_shared());
        first.sftp().connection().close().await;
        master.await.unwrap();
        assert!(client.sftp().stat(b".").await.is_err());
        assert!(!bench.session(&host).await.sftp().connection().is_shared());
    });
}

#[test]
fn clients_that_do_nothing_keep_no_place_and_no_connection() {
    simulate(async {
        let bench = Bench::new(OURS).await;
        let options = sharing(&bench);
        let words = options.each_ref().map(String::as_str);
        let host = bench.host(&[&words[..], &["LogLevel=VERBOSE"]].concat());
        let master = share(&bench, &host).await;
        let begun = Virtual::now();
        let socket = &host.connection.sharing.as_ref().unwrap().socket;
        let idle: Vec<_> = (0..client::CLIENTS_MAX)
            .map(|_| local_socket::connect(socket).unwrap())
            .collect();
        sleep_until(Virtual::now() + LEG).await;
        // Whoever finds no place is told so, and connects by itself.
        assert!(!bench.session(&host).await.sftp().connection().is_shared());
        let said = bench.script.seen();
        assert!(said.contains("no place free"), "{said}");
        assert!(!said.contains("is the port right"), "{said}");
        // They give their places up after a minute, and looks at whether there is a master change nothing.
        while !master.is_finished() {
            let _ = client::master_of(&host);
            sleep_until(Virtual::now() + 50 * LEG).await;
        }
        drop(idle);
        let lasted = begun.elapsed().as_secs();
        assert!((59..80).contains(&lasted), "{lasted} s");
    });
}
