//! The server's host keys: read from files, the first one made when there is none.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fullbore_ssh::cert::{Certificate, CertificateError, HostIdentity};
use fullbore_ssh::key::{KeyError, PrivateKey};
use fullbore_ssh::provider::SecureRandom;
use zeroize::Zeroizing;

use crate::config::text::reason;

/// The longest key file that is read: an RSA-16384 key takes 13 KiB.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Why there is no host key.
#[derive(Debug)]
pub struct HostKeyError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Io(io::Error),
    Key(KeyError),
    Certificate(CertificateError),
    Mode(u32),
    TooLong,
}

impl fmt::Display for HostKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Io(error) => write!(f, "host key {path}: {}", reason(error)),
            Why::Key(error) => write!(f, "host key {path}: {error}"),
            Why::Certificate(error) => write!(f, "host certificate {path}: {error}"),
            Why::Mode(mode) => write!(
                f,
                "host key {path}: its mode {mode:04o} lets others read it; \
                 say: chmod 600 {path}"
            ),
            Why::TooLong => write!(f, "host key {path}: longer than any key file"),
        }
    }
}

impl std::error::Error for HostKeyError {}

/// Reads the host key in `path`, and its certificate from the file beside it whose name ends in `-cert.pub`, if
/// there is one.
///
/// # Errors
/// When one cannot be read, is no key without passphrase or no certificate for it, or others may read the key.
pub fn read(path: &Path) -> Result<HostIdentity, HostKeyError> {
    let fail = |why| HostKeyError {
        path: path.to_owned(),
        why,
    };
    let file = File::open(path).map_err(|error| fail(Why::Io(error)))?;
    let facts = file.metadata().map_err(|error| fail(Why::Io(error)))?;
    if facts.mode() & 0o077 != 0 {
        return Err(fail(Why::Mode(facts.mode() & 0o7777)));
    }
    let text = whole(file).map_err(fail)?;
    let key = PrivateKey::from_file(&text, None).map_err(|error| fail(Why::Key(error)))?;
    match certificate(path)? {
        None => Ok(HostIdentity::plain(key)),
        Some((of, certificate)) => {
            HostIdentity::new(key, Some(certificate)).map_err(|error| HostKeyError {
                path: of,
                why: Why::Certificate(error),
            })
        }
    }
}

/// The certificate for the key in `key_path`, and where it was found.
fn certificate(key_path: &Path) -> Result<Option<(PathBuf, Certificate)>, HostKeyError> {
    let mut path = key_path.as_os_str().to_owned();
    path.push("-cert.pub");
    let path = PathBuf::from(path);
    let fail = |why| HostKeyError {
        path: path.clone(),
        why,
    };
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| fail(Why::Io(error)))?,
    };
    let line = whole(file).map_err(fail)?;
    let found = Certificate::from_line(&line).map_err(|error| fail(Why::Certificate(error)))?;
    Ok(Some((path, found)))
}

fn whole(file: File) -> Result<Zeroizing<Vec<u8>>, Why> {
    // Once as long as it gets: a key leaves no copy behind.
    let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX as usize + 1));
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(Why::Io)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Why::TooLong);
    }
    Ok(text)
}

/// Reads the host key in `path`, or makes an Ed25519 key there. Two servers that start at once end
/// up with the same key. Returns whether it was made.
///
/// # Errors
/// As [`read`], or when it cannot be written.
pub fn read_or_make(
    path: &Path,
    random: &mut dyn SecureRandom,
) -> Result<(HostIdentity, bool), HostKeyError> {
    match read(path) {
        Err(HostKeyError {
            why: Why::Io(error),
            ..
        }) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result.map(|key| (key, false)),
    }
    let fail = |why| HostKeyError {
        path: path.to_owned(),
        why,
    };
    let key = make(random).map_err(|error| fail(Why::Key(error)))?;
    let text = key
        .to_openssh("fullbore host key")
        .map_err(|error| fail(Why::Key(error)))?;
    match place(path, text.expose()) {
        Ok(()) => Ok((HostIdentity::plain(key), true)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(path).map(|key| (key, false))
        }
        Err(error) => Err(fail(Why::Io(error))),
    }
}

/// A new Ed25519 key.
///
/// # Errors
/// When the library refuses the seed.
pub fn make(random: &mut dyn SecureRandom) -> Result<PrivateKey, KeyError> {
    let mut seed = Zeroizing::new([0; 32]);
    random.fill(&mut *seed);
    PrivateKey::from_ed25519_seed(&seed)
}

/// Puts a whole file at `path` at once, or fails if there is one already.
fn place(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let draft = folder.join(name);
    let result = write_new(&draft, text).and_then(|()| fs::hard_link(&draft, path));
    // Either the name at `path` keeps the file, or it was not wanted.
    let _ = fs::remove_file(&draft);
    result
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text)?;
    file.sync_all()
}
