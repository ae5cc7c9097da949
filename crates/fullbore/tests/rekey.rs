//! Keys that are replaced every MiB while 64 MiB flow, and every second while nothing does: with a real
//! sshd and with our own server, at the wish of either side and of both. Each test counts the exchanges.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use fullbore::client::{Connection, Sftp, connect};
use fullbore_sftp::proto::{Attrs, OpenFlags};
use fullbore_ssh::config::RekeyLimits;
use support::{Folder, OurServer, Script, Sshd, WHOLE, bytes, context, host, run, start_sshd_with};

const MIB: usize = 1 << 20;
const SIZE: usize = 64 * MIB;

/// Exchanges that 64 MiB take at least where each MiB asks for one. The old keys serve until the other
/// side has answered, so what the sockets' buffers hold goes under them too: several MiB.
const EXCHANGES_MIN: u64 = 4;

/// Who asks for new keys after each MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Client,
    Server,
    Both,
}

impl Asks {
    const ALL: [Self; 3] = [Self::Client, Self::Server, Self::Both];

    /// The client's options.
    const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Client | Self::Both => &["RekeyLimit=1M"],
            Self::Server => &[],
        }
    }

    /// Whether the server's own limit is a MiB.
    const fn is_server(self) -> bool {
        matches!(self, Self::Server | Self::Both)
    }
}

/// A server of either kind.
enum Peer {
    Sshd(Sshd),
    Ours(OurServer),
}

impl Peer {
    /// OpenSSH's server, if there is one here.
    fn sshd(asks: Asks) -> Option<Self> {
        let limit = if asks.is_server() {
            "\nRekeyLimit 1M"
        } else {
            ""
        };
        start_sshd_with(&format!("Subsystem sftp internal-sftp{limit}")).map(Self::Sshd)
    }

    fn ours(asks: Asks) -> Self {
        Self::Ours(OurServer::start(|options| {
            if asks.is_server() {
                options.rekey.bytes = MIB as u64;
            }
        }))
    }

    fn folder(&self) -> &Folder {
        match self {
            Self::Sshd(server) => &server.folder,
            Self::Ours(server) => &server.folder,
        }
    }

    /// A file of the server: what a client calls it, and where this test sees it.
    fn file(&self, name: &str) -> (Vec<u8>, PathBuf) {
        match self {
            Self::Sshd(server) => {
                let path = server.folder.file(name);
                (path.as_os_str().as_encoded_bytes().to_vec(), path)
            }
            Self::Ours(server) => (
                name.as_bytes().to_vec(),
                server.folder.file(&format!("root/{name}")),
            ),
        }
    }

    async fn connect(&self, options: &[&str]) -> Sftp {
        let port = match self {
            Self::Sshd(server) => server.port,
            Self::Ours(server) => server.port,
        };
        let host = host(self.folder(), port, options);
        connect(&host, &context(&Script::default())).await.unwrap()
    }
}

async fn put(sftp: &Sftp, there: &[u8], source: &Path) {
    let flags = OpenFlags::WRITE.with(OpenFlags::CREAT);
    let handle = sftp.open(there, flags, &Attrs::EMPTY).await.unwrap();
    let file = Rc::new(File::open(source).unwrap());
    let done = sftp.put(&handle, file, WHOLE, |_| {}).await.unwrap();
    assert!(done.error.is_none(), "{:?}", done.error);
    sftp.close(&handle).await.unwrap();
}

async fn get(sftp: &Sftp, there: &[u8], target: &Path) {
    let open = sftp.open(there, OpenFlags::READ, &Attrs::EMPTY);
    let handle = open.await.unwrap();
    let file = Rc::new(File::create(target).unwrap());
    let done = sftp.get(&handle, file, WHOLE, |_| {}).await.unwrap();
    assert!(done.error.is_none(), "{:?}", done.error);
    sftp.close(&handle).await.unwrap();
}

/// The exchanges since the last look.
struct Exchanges(Connection, u64);

impl Exchanges {
    fn check(&mut self, what: &str) {
        let count = self.0.key_exchange_count();
        let new = count - self.1;
        println!("{what}: {new} exchanges");
        // A limit that is met twice for one MiB would be no limit.
        let range = EXCHANGES_MIN..=4 * (SIZE / MIB) as u64;
        assert!(range.contains(&new), "{what}: {new} exchanges");
        self.1 = count;
    }
}

/// 64 MiB up, 64 MiB down, and both at once on two channels of the same connection.
fn flow(peer: &Peer, asks: Asks) {
    let content = bytes(SIZE);
    let source = peer.folder().write("source", &content);
    let (up, seen) = peer.file("up");
    let (second_up, second_seen) = peer.file("second");
    let [down, second_down] = ["down", "second-down"].map(|name| peer.folder().file(name));
    run(async {
        let first = peer.connect(asks.options()).await;
        let connection = first.connection().clone();
        let mut exchanges = Exchanges(connection, first.connection().key_exchange_count());
        put(&first, &up, &source).await;
        exchanges.check("put");
        get(&first, &up, &down).await;
        exchanges.check("get");
        let second = first.connection().open_sftp().await.unwrap();
        tokio::join!(
            put(&first, &second_up, &source),
            get(&second, &up, &second_down)
        );
        exchanges.check("both at once");
    });
    for copy in [seen, down, second_seen, second_down] {
        assert!(fs::read(&copy).unwrap() == content, "{}", copy.display());
    }
}

#[test]
fn sshd_and_either_side_replace_keys_each_mib() {
    for asks in Asks::ALL {
        let Some(peer) = Peer::sshd(asks) else { return };
        println!("{asks:?}");
        flow(&peer, asks);
    }
}

#[test]
fn our_server_and_either_side_replace_keys_each_mib() {
    for asks in Asks::ALL {
        println!("{asks:?}");
        flow(&Peer::ours(asks), asks);
    }
}

/// An idle session whose keys age: waits for three exchanges, and is then as good as new. Nothing tells an
/// application of new keys, so it looks now and then.
fn idle(peer: &Peer, options: &[&str]) {
    run(async {
        let sftp = peer.connect(options).await;
        let before = sftp.connection().key_exchange_count();
        let aged = async {
            let mut looks = tokio::time::interval(Duration::from_millis(20));
            while sftp.connection().key_exchange_count() < before + 3 {
                looks.tick().await;
            }
        };
        let patience = Duration::from_secs(60);
        assert!(
            tokio::time::timeout(patience, aged).await.is_ok(),
            "{} exchanges",
            sftp.connection().key_exchange_count() - before
        );
        assert!(sftp.stat(b".").await.is_ok());
    });
}

#[test]
fn an_idle_session_with_sshd_gets_new_keys_each_second() {
    let Some(peer) = Peer::sshd(Asks::Client) else {
        return;
    };
    idle(&peer, &["RekeyLimit=default 1s"]);
}

#[test]
fn an_idle_session_with_our_server_gets_new_keys_each_second() {
    idle(&Peer::ours(Asks::Client), &["RekeyLimit=default 1s"]);
}

#[test]
fn our_server_replaces_the_keys_of_an_idle_session_each_second() {
    let peer = Peer::Ours(OurServer::start(|options| {
        options.rekey = RekeyLimits {
            time: Some(Duration::from_secs(1)),
            ..RekeyLimits::default()
        };
    }));
    idle(&peer, &[]);
}
