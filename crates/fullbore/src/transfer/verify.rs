//! Comparing content from end to end, and proving that a part of a file is that of another.

use fullbore_sftp::client::config::SPAN_BYTES_MAX;
use fullbore_sftp::proto::HashAlgorithm;

use super::content::{RELAY_BYTES, read_range};
use super::hash::Hasher;
use super::side::{Digest, Fault, Side};
use super::temp::join;

/// Bytes at the end of the kept part that are read and compared where no side can hash: 1 MiB.
pub(crate) const TAIL_BYTES: u64 = 1024 * 1024;

const ALGORITHMS: [HashAlgorithm; 2] = [HashAlgorithm::Blake3, HashAlgorithm::Sha256];

/// An open file, where it is, and its path there.
pub(crate) struct At<'a, S: Side> {
    pub(crate) side: &'a S,
    pub(crate) file: &'a S::File,
    pub(crate) path: &'a [u8],
}

impl<S: Side> Clone for At<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Side> Copy for At<'_, S> {}

/// How a digest was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Local,
    CheckFile,
    Exec,
    ReadBack,
}

impl Method {
    const fn text(self) -> Option<&'static str> {
        match self {
            Self::Local => None,
            Self::CheckFile => Some("check-file"),
            Self::Exec => Some("sha256sum run on the server"),
            Self::ReadBack => Some("reading it back"),
        }
    }
}

impl<S: Side> At<'_, S> {
    fn is_direct(self) -> bool {
        self.side.direct(self.file).is_some()
    }

    /// Digest of the first `size` bytes, made as near to the file as possible.
    async fn digest(
        self,
        algorithms: &[HashAlgorithm],
        size: u64,
    ) -> Result<(Digest, Method), Fault> {
        if let Some(digest) = self.side.hash(self.file, algorithms, 0, size).await? {
            let method = if self.is_direct() {
                Method::Local
            } else {
                Method::CheckFile
            };
            return Ok((digest, method));
        }
        if algorithms.contains(&HashAlgorithm::Sha256)
            && let Some(digest) = self.digest_by_exec().await?
        {
            return Ok((digest, Method::Exec));
        }
        let algorithm = algorithms.first().copied().unwrap_or(HashAlgorithm::Sha256);
        Ok((
            self.digest_by_reading(algorithm, size).await?,
            Method::ReadBack,
        ))
    }

    async fn digest_by_exec(self) -> Result<Option<Digest>, Fault> {
        let path = if self.path.starts_with(b"/") {
            self.path.to_vec()
        } else {
            let start = self.side.realpath(b".").await?;
            join(&start, self.path)
        };
        let command = [b"sha256sum < ".as_slice(), &quote(&path)].concat();
        let output = self.side.exec(&command).await;
        Ok(output.and_then(|output| parse_sha256sum(&output)))
    }

    async fn digest_by_reading(self, algorithm: HashAlgorithm, size: u64) -> Result<Digest, Fault> {
        let mut hasher = Hasher::new(algorithm);
        let mut offset = 0;
        while offset < size {
            let len = RELAY_BYTES.min(size - offset);
            let bytes = read_range(self.side, self.file, offset, len).await?;
            if bytes.is_empty() {
                break;
            }
            hasher.update(&bytes);
            offset += bytes.len() as u64;
        }
        Ok(hasher.finish())
    }
}

/// Compares the first `size` bytes of both from end to end. `Ok(None)` when they differ, else how
/// they were compared.
pub(crate) async fn compare<S: Side, D: Side>(
    source: At<'_, S>,
    target: At<'_, D>,
    size: u64,
) -> Result<Option<String>, Fault> {
    // The side that is farther away chooses the algorithm.
    let (mut from, mut to);
    if target.is_direct() {
        from = source.digest(&ALGORITHMS, size).await?;
        to = target.digest(&[from.0.algorithm], size).await?;
    } else {
        to = target.digest(&ALGORITHMS, size).await?;
        from = source.digest(&[to.0.algorithm], size).await?;
    }
    // A shell may see another tree than SFTP does: it can prove that they are equal, not that
    // they differ.
    if from.0 != to.0 && from.1 == Method::Exec {
        let algorithm = from.0.algorithm;
        from = (
            source.digest_by_reading(algorithm, size).await?,
            Method::ReadBack,
        );
    }
    if from.0 != to.0 && to.1 == Method::Exec {
        let algorithm = to.0.algorithm;
        to = (
            target.digest_by_reading(algorithm, size).await?,
            Method::ReadBack,
        );
    }
    if from.0 != to.0 {
        return Ok(None);
    }
    let mut methods: Vec<&str> = [from.1, to.1]
        .into_iter()
        .filter_map(Method::text)
        .collect();
    methods.dedup();
    let methods = if methods.is_empty() {
        "both read".to_owned()
    } else {
        methods.join(", ")
    };
    Ok(Some(format!("{} ({methods})", from.0.algorithm.name())))
}

/// How much of the `kept_len` bytes in `target` is proved to be the beginning of `source`, and
/// how; `None` when it is not.
///
/// A transfer that was cut off may have left holes in its last [`SPAN_BYTES_MAX`] bytes. A digest
/// finds them; where no digest is to be had these bytes are sent again, and the last
/// [`TAIL_BYTES`] before them (all of them with `thorough`) are read and compared.
pub(crate) async fn prove<S: Side, D: Side>(
    source: At<'_, S>,
    target: At<'_, D>,
    kept_len: u64,
    thorough: bool,
) -> Result<Option<(u64, String)>, Fault> {
    let whole = kept_len.saturating_sub(SPAN_BYTES_MAX);
    for len in [kept_len, whole] {
        if len == 0 {
            continue;
        }
        match same_by_hash(source, target, len).await? {
            Some((true, name)) => return Ok(Some((len, format!("{name} of its {len} bytes")))),
            Some((false, _)) => {}
            None => return by_tail(source, target, whole, thorough).await,
        }
    }
    Ok(None)
}

/// Whether the first `len` bytes are the same, if the far side can hash.
async fn same_by_hash<S: Side, D: Side>(
    source: At<'_, S>,
    target: At<'_, D>,
    len: u64,
) -> Result<Option<(bool, &'static str)>, Fault> {
    let (from, to);
    if target.is_direct() {
        from = source.side.hash(source.file, &ALGORITHMS, 0, len).await?;
        let Some(digest) = from else { return Ok(None) };
        let algorithms = [digest.algorithm];
        to = target.side.hash(target.file, &algorithms, 0, len).await?;
    } else {
        to = target.side.hash(target.file, &ALGORITHMS, 0, len).await?;
        let Some(digest) = to else { return Ok(None) };
        let algorithms = [digest.algorithm];
        from = source.side.hash(source.file, &algorithms, 0, len).await?;
    }
    Ok(match (from, to) {
        (Some(from), Some(to)) => Some((from == to, from.algorithm.name())),
        _ => None,
    })
}

async fn by_tail<S: Side, D: Side>(
    source: At<'_, S>,
    target: At<'_, D>,
    len: u64,
    thorough: bool,
) -> Result<Option<(u64, String)>, Fault> {
    if len == 0 {
        return Ok(None);
    }
    let start = if thorough {
        0
    } else {
        len.saturating_sub(TAIL_BYTES)
    };
    let mut offset = start;
    while offset < len {
        let part = RELAY_BYTES.min(len - offset);
        let (from, to) = tokio::join!(
            read_range(source.side, source.file, offset, part),
            read_range(target.side, target.file, offset, part),
        );
        if from? != to? {
            return Ok(None);
        }
        offset += part;
    }
    Ok(Some((
        len,
        format!("reading {} bytes before it", len - start),
    )))
}

/// `path` as one word of a POSIX shell.
pub(crate) fn quote(path: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(path.len() + 2);
    quoted.push(b'\'');
    for &byte in path {
        if byte == b'\'' {
            quoted.extend_from_slice(b"'\\''");
        } else {
            quoted.push(byte);
        }
    }
    quoted.push(b'\'');
    quoted
}

fn parse_sha256sum(output: &[u8]) -> Option<Digest> {
    let hex = std::str::from_utf8(output.get(..64)?).ok()?;
    if output.get(64).is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?;
    }
    let algorithm = HashAlgorithm::Sha256;
    Some(Digest { algorithm, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_leaves_nothing_to_the_shell() {
        assert_eq!(quote(b"a b$(x)\n"), b"'a b$(x)\n'");
        assert_eq!(quote(b"it's"), br"'it'\''s'");
    }

    #[test]
    fn only_a_digest_is_taken_for_one() {
        let line = format!("{}  -\n", "0a".repeat(32));
        let digest = parse_sha256sum(line.as_bytes()).expect("fine");
        assert_eq!(digest.bytes, [10; 32]);
        assert_eq!(parse_sha256sum(b"sha256sum: not found\n"), None);
        assert_eq!(parse_sha256sum("0a".repeat(33).as_bytes()), None);
    }
}
