//! Remembering a host key after its first use.

use std::io;
use std::path::Path;

use super::HashedName;
use super::entry::HASH_LEN;
use crate::config::Environment;
use crate::config::public_key::blob_algorithm;
use crate::config::text::base64_encode;

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
/// there. `name` is [`super::HostName::lookup`]. Other programs may append at the same time.
///
/// # Errors
/// When the file cannot be opened or written.
pub fn remember(
    environment: &dyn Environment,
    file: &Path,
    name: &str,
    blob: &[u8],
    hash: bool,
) -> io::Result<()> {
    let salt = hash.then(|| {
        let mut salt = [0; HASH_LEN];
        environment.fill_random(&mut salt);
        salt
    });
    environment.append_line(file, new_line(name, salt, blob).as_bytes())
}
