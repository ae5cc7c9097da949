//! What the tests share: folders that go away, a real sshd with its own configuration, a client
//! without the user's own.

#![allow(dead_code, missing_docs, clippy::unwrap_used)] // Each test file uses a part of it.

use std::cell::RefCell;
use std::fs::{self, File};
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use fullbore::client::{Asker, Context, Sftp};
use fullbore::config::prompt::{Prompter, SecretText};
use fullbore::config::ssh_config::{self, ConfigFile, HostConfig, Request};
use fullbore::driver::clock::Clock;
use fullbore::driver::environment::Machine;
use fullbore::driver::random::SystemRandom;
use fullbore::server::serve::log::{Log, LogSink};
use fullbore::server::serve::{ServeOptions, Server, host_key};
use fullbore::transfer::Span;
use fullbore_sftp::proto::{Attrs, OpenFlags};
pub use fullbore_testkit::{Folder, Sshd};

pub const WHOLE: Span = Span {
    offset: 0,
    size_hint: 0,
    end_max: None,
};

/// Makes a key pair `NAME` and `NAME.pub` in `folder`; returns the public line.
pub fn make_key(folder: &Folder, name: &str) -> String {
    let key = host_key::make(&mut SystemRandom::new()).unwrap();
    folder.write(name, key.to_openssh("test").unwrap().expose());
    let line = key.public_key().to_line("test");
    folder.write(&format!("{name}.pub"), line.as_bytes());
    line
}

/// A real sshd with its own SFTP server that lets the key `user` of its folder in. `None` where
/// none is installed.
pub fn start_sshd() -> Option<Sshd> {
    start_sshd_with("Subsystem sftp internal-sftp")
}

/// The same with other lines in its configuration.
pub fn start_sshd_with(extra: &str) -> Option<Sshd> {
    let folder = Folder::new("sshd");
    make_key(&folder, "host");
    let user = make_key(&folder, "user");
    folder.write("authorized_keys", format!("{user}\n").as_bytes());
    Sshd::start(folder, extra)
}

impl Drop for OurServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log.0.lock().unwrap().join("\n"));
        }
    }
}

/// Answers questions from a list, and keeps what was shown and asked.
#[derive(Clone, Default)]
pub struct Script {
    pub answers: Arc<Mutex<Vec<&'static str>>>,
    pub seen: Arc<Mutex<Vec<String>>>,
}

impl Script {
    pub fn new(answers: &[&'static str]) -> Self {
        let script = Self::default();
        *script.answers.lock().unwrap() = answers.to_vec();
        script
    }

    pub fn seen(&self) -> String {
        self.seen.lock().unwrap().join("\n")
    }
}

impl Prompter for Script {
    fn secret(&mut self, question: &str) -> Option<SecretText> {
        self.text(question)
    }

    fn text(&mut self, question: &str) -> Option<SecretText> {
        self.tell(question);
        let mut answers = self.answers.lock().unwrap();
        if answers.is_empty() {
            return None;
        }
        Some(SecretText::new(answers.remove(0).to_owned()))
    }

    fn tell(&mut self, message: &str) {
        self.seen.lock().unwrap().push(message.to_owned());
    }
}

/// A client that answers from a script and reads no configuration of the user's.
pub fn context(script: &Script) -> Context {
    Context {
        environment: Rc::new(Machine),
        asker: Asker::new(Box::new(script.clone())),
        config_file: ConfigFile::None,
        clock: Clock::start(),
        local_window: None,
    }
}

/// The configuration for 127.0.0.1 at `port`, with the key in `folder` and its own known_hosts.
pub fn host(folder: &Folder, port: u16, options: &[&str]) -> HostConfig {
    let dir = folder.0.display();
    let mut all: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
    all.extend([
        format!("Port={port}"),
        format!("IdentityFile={dir}/user"),
        "IdentityAgent=none".to_owned(),
        format!("UserKnownHostsFile={dir}/known_hosts"),
        "GlobalKnownHostsFile=none".to_owned(),
        "StrictHostKeyChecking=accept-new".to_owned(),
        "RememberedServersFile=none".to_owned(),
    ]);
    let request = Request {
        host: "127.0.0.1",
        user: None,
        options: &all,
        config_file: ConfigFile::None,
    };
    let defaults = fullbore::client::algorithm_defaults();
    ssh_config::resolve(&Machine, &defaults, &request).unwrap()
}

/// Runs a client's future to its end.
pub fn run<R>(future: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    let result = local.block_on(&runtime, future);
    runtime.shutdown_background();
    result
}

/// `len` bytes that differ from place to place.
pub fn bytes(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ len as u64;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Puts `content` under `there`, which the test sees at `seen`, and gets it back.
pub async fn round_trip(sftp: &Sftp, folder: &Folder, there: &str, seen: &Path, content: &[u8]) {
    let source = Rc::new(File::open(folder.write("source", content)).unwrap());
    let flags = OpenFlags::WRITE
        .with(OpenFlags::CREAT)
        .with(OpenFlags::TRUNC);
    let there = there.as_bytes();
    let handle = sftp.open(there, flags, &Attrs::EMPTY).await.unwrap();
    let done = sftp.put(&handle, source, WHOLE, |_| {}).await.unwrap();
    assert!(done.error.is_none(), "{:?}", done.error);
    assert_eq!(done.end, content.len() as u64);
    sftp.close(&handle).await.unwrap();
    assert!(fs::read(seen).unwrap() == content);

    let handle = sftp.open(there, OpenFlags::READ, &Attrs::EMPTY).await;
    let handle = handle.unwrap();
    let back = Rc::new(File::create(folder.file("back")).unwrap());
    let mut told = 0;
    let done = sftp.get(&handle, back, WHOLE, |p| told = p.bytes).await;
    let done = done.unwrap();
    assert!(done.error.is_none(), "{:?}", done.error);
    let len = content.len() as u64;
    assert_eq!((done.end, told), (len, len));
    sftp.close(&handle).await.unwrap();
    assert!(fs::read(folder.file("back")).unwrap() == content);
}

/// The sizes at which something may go wrong.
pub const SIZES: [usize; 8] = [0, 1, 32_767, 32_768, 32_769, 261_120, 262_145, 5 << 20];

/// A counter that a progress callback can change.
pub type Shared<T> = Rc<RefCell<T>>;

/// Our own server on a loopback port, with the key `user` of its folder let in, serving `root`.
pub struct OurServer {
    pub folder: Folder,
    pub port: u16,
    pub log: Lines,
    server: Option<Server>,
    stopping: Option<std::thread::JoinHandle<()>>,
}

/// Keeps the lines of a log.
#[derive(Clone, Default)]
pub struct Lines(pub Arc<Mutex<Vec<String>>>);

impl LogSink for Lines {
    fn line(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
}

impl OurServer {
    pub fn start(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let folder = Folder::new("serve");
        let user = make_key(&folder, "user");
        folder.write("authorized_keys", format!("{user}\n").as_bytes());
        fs::create_dir(folder.file("root")).unwrap();
        let mut options = ServeOptions::new(&folder.0, &folder.0);
        options.listen = vec![([127, 0, 0, 1], 0).into()];
        options.authorized_keys = vec![folder.file("authorized_keys")];
        options.root = folder.file("root");
        options.workers = 1;
        change(&mut options);
        let log = Lines::default();
        let server = Server::start(&options, Log::new(Arc::new(log.clone()))).unwrap();
        Self {
            port: server.addresses()[0].port(),
            folder,
            log,
            server: Some(server),
            stopping: None,
        }
    }

    /// Has the server end its connections, without waiting for that.
    pub fn begin_stop(&mut self) {
        let server = self.server.take().unwrap();
        self.stopping = Some(std::thread::spawn(move || server.stop()));
    }

    /// Waits until the server has ended.
    pub fn stop(&mut self) {
        drop(self.server.take());
        if let Some(stopping) = self.stopping.take() {
            stopping.join().unwrap();
        }
    }
}
