//! The main job with nothing else installed: a private server with throwaway keys, and a file copied up and
//! down through it, hashes compared: over the loopback address, and over an emulated long link with fixed
//! windows and with windows that follow the path.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore::client::{self, Asker, Context, Sftp, Transferred};
use fullbore::config::ssh_config::{self, ConfigFile, HostConfig, Request};
use fullbore::driver::clock::Clock;
use fullbore::driver::environment::Machine;
use fullbore::driver::random::SystemRandom;
use fullbore::server::serve::log::{Log, NoLog};
use fullbore::server::serve::{ServeOptions, Server, host_key};
use fullbore::transfer::Span;
use fullbore_base::Rate;
use fullbore_sftp::client::Handle;
use fullbore_sftp::proto::{Attrs, OpenFlags};
use fullbore_ssh::provider::SecureRandom;
use tokio::task::LocalSet;

use crate::driver::stream::Emulator;
use crate::stream::StreamOptions;

/// Bytes copied each way: at 2 MiB a round trip, 6.4 s of the long link.
pub const BYTES: u64 = 64 << 20;

/// The long link: a continent away, and what a good line there carries.
const LONG_LINK: StreamOptions = StreamOptions {
    rtt: Duration::from_millis(200),
    rate: Rate::from_bits_per_sec(320_000_000),
};

/// OpenSSH's window of each channel.
const FIXED_WINDOW: u32 = 2 << 20;

/// How both ends are set up for one pair of copies.
#[derive(Clone, Copy, Debug)]
struct Setup {
    path: &'static str,
    link: Option<StreamOptions>,
    windows: &'static str,
    local_window: Option<u32>,
}

const SETUPS: [Setup; 3] = [
    Setup {
        path: "this machine",
        link: None,
        windows: "adaptive",
        local_window: None,
    },
    Setup {
        path: "320 Mbit/s x 200 ms",
        link: Some(LONG_LINK),
        windows: "fixed 2 MiB",
        local_window: Some(FIXED_WINDOW),
    },
    Setup {
        path: "320 Mbit/s x 200 ms",
        link: Some(LONG_LINK),
        windows: "adaptive",
        local_window: None,
    },
];

/// One copy; shown as a line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What lies between the two ends.
    pub path: &'static str,
    /// How large the channel's windows are.
    pub windows: &'static str,
    /// `up` or `down`.
    pub direction: &'static str,
    /// File bytes.
    pub bytes: u64,
    /// How long it took, the opening and closing of the file included; not the login.
    pub time: Duration,
    /// What limited it most, with the evidence.
    pub limit: String,
    /// BLAKE3 of what arrived.
    pub hash: String,
    /// It is the same as of what was sent.
    pub is_same: bool,
}

/// The line above all [`Row`]s.
pub const HEAD: &str = "path                 windows      copy  seconds   MB/s  same  limited by";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        // Precise to far more than the three digits shown.
        #[allow(clippy::cast_precision_loss)]
        let rate = self.bytes as f64 / 1e6 / seconds.max(1e-9);
        write!(
            f,
            "{:<20} {:<12} {:<4}  {seconds:>7.3} {rate:>6.1}  {:<4}  {}",
            self.path,
            self.windows,
            self.direction,
            if self.is_same { "yes" } else { "NO" },
            self.limit
        )
    }
}

/// Why there is nothing to show.
#[derive(Debug)]
pub struct DemoError(String);

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DemoError {}

fn failed(what: &str) -> impl FnOnce(&dyn fmt::Display) -> DemoError + '_ {
    move |error| DemoError(format!("{what}: {error}"))
}

/// A folder of our own that goes away whatever happens.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let mut tail = [0; 8];
        SystemRandom::new().fill(&mut tail);
        let name = format!("fullbore-demo-{:016x}", u64::from_ne_bytes(tail));
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed lies in the folder for temporary files, which is emptied.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the demonstration; `show` is given each copy when it is done. Returns all of them.
///
/// # Errors
/// What could not be done, in words for a person.
pub fn run(show: impl FnMut(&Row)) -> Result<Vec<Row>, DemoError> {
    run_with(BYTES, show)
}

fn run_with(bytes: u64, mut show: impl FnMut(&Row)) -> Result<Vec<Row>, DemoError> {
    let folder = Folder::new().map_err(|e| failed("cannot make a temporary folder")(&e))?;
    prepare(&folder, bytes).map_err(|e| failed("cannot write to the temporary folder")(&e))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| failed("cannot start the client")(&e))?;
    let mut rows = Vec::new();
    for setup in SETUPS {
        let server = serve(&folder, setup.local_window)?;
        let link = setup
            .link
            .map(|link| Emulator::start(&link, server.addresses()[0]));
        let link = link
            .transpose()
            .map_err(|e| failed("cannot emulate a link")(&e))?;
        let address = link
            .as_ref()
            .map_or(server.addresses()[0], Emulator::address);
        let host = host(&folder, &server, address)?;
        for direction in ["up", "down"] {
            let copying = copy(&folder, &host, &setup, direction);
            let row = LocalSet::new().block_on(&runtime, copying)?;
            show(&row);
            rows.push(row);
        }
        server.stop();
    }
    runtime.shutdown_background();
    Ok(rows)
}

fn serve(folder: &Folder, local_window: Option<u32>) -> Result<Server, DemoError> {
    let mut options = ServeOptions::new(&folder.0, &folder.0);
    options.listen = vec![([127, 0, 0, 1], 0).into()];
    options.authorized_keys = vec![folder.file("user.pub")];
    options.root = folder.file("root");
    options.workers = 1;
    options.local_window = local_window;
    Server::start(&options, Log::new(Arc::new(NoLog)))
        .map_err(|e| failed("cannot start the server")(&e))
}

/// Keys, the served folder, and the file to copy.
fn prepare(folder: &Folder, bytes: u64) -> io::Result<()> {
    let mut random = SystemRandom::new();
    let key = host_key::make(&mut random).map_err(io::Error::other)?;
    let text = key.to_openssh("demo").map_err(io::Error::other)?;
    let path = folder.file("user");
    fs::write(&path, text.expose())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    fs::write(folder.file("user.pub"), key.public_key().to_line("demo"))?;
    fs::create_dir(folder.file("root"))?;
    let mut file = File::create(folder.file("source"))?;
    let mut block = vec![0; 1 << 20];
    for _ in 0..bytes / block.len() as u64 {
        random.fill(&mut block);
        file.write_all(&block)?;
    }
    Ok(())
}

/// How the client is configured: the throwaway key, and the server's host key as the known one.
fn host(folder: &Folder, server: &Server, address: SocketAddr) -> Result<HostConfig, DemoError> {
    let port = address.port();
    let lines: Vec<String> = server
        .host_keys()
        .iter()
        .map(|key| format!("[127.0.0.1]:{port} {}\n", key.line))
        .collect();
    let known_hosts = folder.file("known_hosts");
    fs::write(&known_hosts, lines.concat()).map_err(|e| failed("cannot write known_hosts")(&e))?;
    let options = [
        format!("Port={port}"),
        format!("IdentityFile=\"{}\"", folder.file("user").display()),
        "IdentityAgent=none".to_owned(),
        format!("UserKnownHostsFile=\"{}\"", known_hosts.display()),
        "GlobalKnownHostsFile=none".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
        "BatchMode=yes".to_owned(),
        "RememberedServersFile=none".to_owned(),
    ];
    let request = Request {
        host: "127.0.0.1",
        user: Some("demo"),
        options: &options,
        config_file: ConfigFile::None,
    };
    ssh_config::resolve(&Machine, &client::algorithm_defaults(), &request)
        .map_err(|e| failed("cannot configure the client")(&e))
}

/// One copy over a connection of its own.
async fn copy(
    folder: &Folder,
    host: &HostConfig,
    setup: &Setup,
    direction: &'static str,
) -> Result<Row, DemoError> {
    let context = Context {
        environment: Rc::new(Machine),
        asker: Asker::nobody(),
        config_file: ConfigFile::None,
        clock: Clock::start(),
        local_window: setup.local_window,
    };
    let sftp = client::connect(host, &context)
        .await
        .map_err(|e| failed("cannot connect")(&e))?;
    let bytes = fs::metadata(folder.file("source"));
    let bytes = bytes
        .map_err(|e| failed("cannot look at the file to copy")(&e))?
        .len();
    let started = Instant::now();
    let (done, arrived) = match direction {
        "up" => (
            up(&sftp, &folder.file("source"), bytes).await,
            folder.file("root/copy"),
        ),
        _ => (
            down(&sftp, &folder.file("back"), bytes).await,
            folder.file("back"),
        ),
    };
    let done = done.map_err(|e| failed("the copy failed")(&e))?;
    if let Some(error) = done.error {
        return Err(failed("the copy failed")(&error));
    }
    let time = started.elapsed();
    let limit = sftp.connection().path_totals().first();
    sftp.connection().close().await;
    let wanted = hash(&folder.file("source"))?;
    let hash = hash(&arrived)?;
    // The next copy is to write a new file.
    fs::remove_file(folder.file("back")).or_else(|e| match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(failed("cannot remove the copy")(&e)),
    })?;
    Ok(Row {
        path: setup.path,
        windows: setup.windows,
        direction,
        bytes: done.bytes,
        time,
        limit: limit.map_or_else(
            || "too short to tell".into(),
            |(limit, _)| limit.to_string(),
        ),
        is_same: hash == wanted,
        hash,
    })
}

const fn whole(bytes: u64) -> Span {
    Span {
        offset: 0,
        size_hint: bytes,
        end_max: None,
    }
}

async fn up(sftp: &Sftp, from: &Path, bytes: u64) -> Result<Transferred, client::Error> {
    let file = open(File::open(from))?;
    let flags = OpenFlags::WRITE
        .with(OpenFlags::CREAT)
        .with(OpenFlags::TRUNC);
    let handle: Handle = sftp.open(b"copy", flags, &Attrs::EMPTY).await?;
    let done = sftp
        .put(&handle, Rc::new(file), whole(bytes), |_| {})
        .await?;
    sftp.close(&handle).await?;
    Ok(done)
}

async fn down(sftp: &Sftp, to: &Path, bytes: u64) -> Result<Transferred, client::Error> {
    let file = open(File::create(to))?;
    let handle = sftp.open(b"copy", OpenFlags::READ, &Attrs::EMPTY).await?;
    let done = sftp
        .get(&handle, Rc::new(file), whole(bytes), |_| {})
        .await?;
    sftp.close(&handle).await?;
    Ok(done)
}

fn open(result: io::Result<File>) -> Result<File, client::Error> {
    result.map_err(|error| client::Error::Exec(error.to_string().into()))
}

fn hash(path: &Path) -> Result<String, DemoError> {
    let mut hasher = blake3::Hasher::new();
    let file = File::open(path).and_then(|file| hasher.update_reader(file).map(|_| ()));
    file.map_err(|e| failed("cannot read what was copied")(&e))?;
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_copies_arrive_as_they_went() {
        let mut shown = 0;
        let bytes = 2 << 20;
        let rows = run_with(bytes, |_| shown += 1).expect("it runs");
        assert_eq!((rows.len(), shown), (6, 6));
        for row in rows {
            assert!(row.is_same && row.bytes == bytes, "{row}");
        }
    }
}
