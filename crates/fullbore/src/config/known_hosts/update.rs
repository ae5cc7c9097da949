//! Remembering a host key after its first use.

use std::io;
use std::path::Path;

use super::HashedName;
use super::entry::HASH_LEN;
use crate::config::public_key::blob_algorithm;
use crate::config::text::base64_encode;
use crate::config::{Environment, FILE_BYTES_MAX};

/// The line for a new host, without its newline. With a salt the name is hashed.
#[must_use]
pub fn new_line(name: &str, salt: Option<[u8; HASH_LEN]>, blob: &[u8]) -> String {
    let hosts = match salt {
        Some(salt) => HashedName::new(name, salt).to_text(),
        None => name.to_owned(),
    };
    let algorithm = String::from_utf8_lossy(blob_algorithm(blob).unwrap_or_default());
    format!("{hosts} {algorithm} {}", base64_encode(blob))
}

/// Appends a host's key to a known_hosts file, which is made (0600, its folder 0700) if it is not
/// there. `name` is [`super::HostName::lookup`]. The file is replaced in one step.
///
/// # Errors
/// When the file cannot be read or replaced.
pub fn remember(
    environment: &dyn Environment,
    file: &Path,
    name: &str,
    blob: &[u8],
    hash: bool,
) -> io::Result<()> {
    let mut content = match environment.read_file(file, FILE_BYTES_MAX) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    if content.last().is_some_and(|b| *b != b'\n') {
        content.push(b'\n');
    }
    let salt = hash.then(|| {
        let mut salt = [0; HASH_LEN];
        environment.fill_random(&mut salt);
        salt
    });
    content.extend_from_slice(new_line(name, salt, blob).as_bytes());
    content.push(b'\n');
    environment.replace_file(file, &content)
}
