//! The main job with nothing else installed: a private server on the loopback address with
//! throwaway keys, a file copied up and down through it, hashes compared.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_sftp::client::Handle;
use fullbore_sftp::proto::{Attrs, OpenFlags};
use fullbore_ssh::provider::SecureRandom;
use tokio::task::LocalSet;

use crate::client::{self, Asker, Context, Sftp, Transferred};
use crate::config::ssh_config::{self, ConfigFile, HostConfig, Request};
use crate::driver::clock::Clock;
use crate::driver::environment::Machine;
use crate::driver::random::SystemRandom;
use crate::server::serve::log::{Log, NoLog};
use crate::server::serve::{ServeOptions, Server, host_key};
use crate::transfer::Span;

/// Bytes copied each way.
pub const BYTES: u64 = 64 << 20;

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `up` or `down`.
    pub direction: &'static str,
    /// File bytes.
    pub bytes: u64,
    /// How long it took, the opening and closing of the file included.
    pub time: Duration,
    /// BLAKE3 of what arrived.
    pub hash: String,
    /// It is the same as of what was sent.
    pub is_same: bool,
}

/// What the demonstration did; shown as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Cipher and key exchange that were agreed on.
    pub algorithms: String,
    /// The copies.
    pub rows: Vec<Row>,
}

impl Report {
    /// Whether everything arrived as it went.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.rows.iter().all(|row| row.is_same)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "private server on the loopback address, {}",
            self.algorithms
        )?;
        writeln!(
            f,
            "copy      bytes  seconds    MB/s  BLAKE3            same"
        )?;
        for row in &self.rows {
            let seconds = row.time.as_secs_f64();
            // Precise to far more than the three digits shown.
            #[allow(clippy::cast_precision_loss)]
            let rate = row.bytes as f64 / 1e6 / seconds.max(1e-9);
            writeln!(
                f,
                "{:<4} {:>10}  {seconds:>7.3}  {rate:>6.0}  {:.16}  {}",
                row.direction,
                row.bytes,
                row.hash,
                if row.is_same { "yes" } else { "NO" }
            )?;
        }
        Ok(())
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

/// Runs the demonstration.
///
/// # Errors
/// What could not be done, in words for a person.
pub fn run() -> Result<Report, DemoError> {
    let folder = Folder::new().map_err(|e| failed("cannot make a temporary folder")(&e))?;
    prepare(&folder).map_err(|e| failed("cannot write to the temporary folder")(&e))?;
    let mut options = ServeOptions::new(&folder.0, &folder.0);
    options.listen = vec![([127, 0, 0, 1], 0).into()];
    options.authorized_keys = vec![folder.file("user.pub")];
    options.root = folder.file("root");
    options.workers = 1;
    let server = Server::start(&options, Log::new(Arc::new(NoLog)))
        .map_err(|e| failed("cannot start the server")(&e))?;
    let host = host(&folder, &server)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| failed("cannot start the client")(&e))?;
    let report = LocalSet::new().block_on(&runtime, copy(&folder, &host));
    runtime.shutdown_background();
    server.stop();
    report
}

/// Keys, the served folder, and the file to copy.
fn prepare(folder: &Folder) -> io::Result<()> {
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
    for _ in 0..BYTES / block.len() as u64 {
        random.fill(&mut block);
        file.write_all(&block)?;
    }
    Ok(())
}

/// How the client is configured: the throwaway key, and the server's host key as the known one.
fn host(folder: &Folder, server: &Server) -> Result<HostConfig, DemoError> {
    let port = server.addresses()[0].port();
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

async fn copy(folder: &Folder, host: &HostConfig) -> Result<Report, DemoError> {
    let context = Context {
        environment: Rc::new(Machine),
        asker: Asker::nobody(),
        config_file: ConfigFile::None,
        clock: Clock::start(),
    };
    let sftp = client::connect(host, &context)
        .await
        .map_err(|e| failed("cannot connect")(&e))?;
    let algorithms = sftp.connection().algorithms();
    let algorithms = algorithms.map_or_else(String::new, |agreed| {
        let cipher = agreed.client_to_server.cipher.name();
        format!("{cipher}, {}", agreed.kex.name())
    });
    let wanted = hash(&folder.file("source"))?;
    let mut rows = Vec::new();
    for direction in ["up", "down"] {
        let started = Instant::now();
        let done = match direction {
            "up" => up(&sftp, &folder.file("source")).await,
            _ => down(&sftp, &folder.file("back")).await,
        };
        let done = done.map_err(|e| failed("the copy failed")(&e))?;
        if let Some(error) = done.error {
            return Err(failed("the copy failed")(&error));
        }
        let time = started.elapsed();
        let arrived = match direction {
            "up" => folder.file("root/copy"),
            _ => folder.file("back"),
        };
        let hash = hash(&arrived)?;
        rows.push(Row {
            direction,
            bytes: done.bytes,
            time,
            is_same: hash == wanted,
            hash,
        });
    }
    sftp.connection().close().await;
    Ok(Report { algorithms, rows })
}

const WHOLE: Span = Span {
    offset: 0,
    size_hint: BYTES,
    end_max: None,
};

async fn up(sftp: &Sftp, from: &Path) -> Result<Transferred, client::Error> {
    let file = open(File::open(from))?;
    let flags = OpenFlags::WRITE.with(OpenFlags::CREAT);
    let handle: Handle = sftp.open(b"copy", flags, &Attrs::EMPTY).await?;
    let done = sftp.put(&handle, Rc::new(file), WHOLE, |_| {}).await?;
    sftp.close(&handle).await?;
    Ok(done)
}

async fn down(sftp: &Sftp, to: &Path) -> Result<Transferred, client::Error> {
    let file = open(File::create(to))?;
    let handle = sftp.open(b"copy", OpenFlags::READ, &Attrs::EMPTY).await?;
    let done = sftp.get(&handle, Rc::new(file), WHOLE, |_| {}).await?;
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
    fn both_copies_arrive_as_they_went() {
        let report = run().expect("it runs");
        assert!(report.is_right(), "{report}");
        assert_eq!(report.rows.len(), 2);
        assert!(report.rows.iter().all(|row| row.bytes == BYTES));
    }
}
