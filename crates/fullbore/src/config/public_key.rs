//! A public key as the text files hold it: a type name and a blob in base64.

use fullbore_ssh::key::Fingerprint;

use super::text::{base64_decode, is_blank};

/// One key of a line: what known_hosts, authorized_keys and `.pub` files have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLine {
    /// The type's name, for instance `ssh-ed25519`; the same as the one inside the blob.
    pub algorithm: String,
    /// The key in the wire's form (RFC 4253 6.6).
    pub blob: Vec<u8>,
    /// What follows the blob, with blanks at its ends removed.
    pub comment: Vec<u8>,
}

impl KeyLine {
    /// Reads `TYPE BASE64 [COMMENT]`. None when the line is no key, or when the name in front and
    /// the name inside differ.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<KeyLine> {
        let (algorithm, rest) = split_word(line.trim_ascii());
        let (encoded, comment) = split_word(rest);
        let blob = base64_decode(encoded)?;
        if blob_algorithm(&blob)? != algorithm {
            return None;
        }
        Some(KeyLine {
            algorithm: String::from_utf8(algorithm.to_vec()).ok()?,
            blob,
            comment: comment.trim_ascii().to_vec(),
        })
    }

    /// `SHA256:...`, as OpenSSH prints it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.blob)
    }
}

/// A key's fingerprint as OpenSSH prints it: `SHA256:` and unpadded base64.
#[must_use]
pub fn fingerprint(blob: &[u8]) -> String {
    Fingerprint::of_blob(blob).to_string()
}

/// The type's name at the front of a blob.
pub(crate) fn blob_algorithm(blob: &[u8]) -> Option<&[u8]> {
    let (len, rest) = blob.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    rest.get(..len)
}

/// The first word of a line and what follows it, without the blanks between.
pub(crate) fn split_word(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(|b| is_blank(*b)).unwrap_or(line.len());
    (&line[..end], line[end..].trim_ascii_start())
}
