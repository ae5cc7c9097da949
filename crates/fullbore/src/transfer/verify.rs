//! Comparing content from end to end, and proving that a part of a file is that of another.

use std::ops::Range;

use fullbore_sftp::proto::HashAlgorithm;

use super::content::{RELAY_BYTES, read_range};
use super::hash::Hasher;
use super::pool::Pool;
use super::side::{Digest, Fault, Side};
use super::temp::join;

/// Bytes at the end of the kept part that are read and compared where no side can hash: 1 MiB.
pub(crate) const TAIL_BYTES: u64 = 1024 * 1024;

/// Pieces in front of them that are compared too, spread over the kept part, and the bytes of each.
/// Chosen: what was overwritten or edited elsewhere shows, in one round trip and 1 MiB.
const SAMPLES: u64 = 16;
const SAMPLE_BYTES: u64 = 64 * 1024;

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
        if let Some(digest) = self
            .side
            .hash((self.file, self.path), algorithms, 0, size)
            .await?
        {
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
/// how; or why it is not.
///
/// A transfer that was cut off may have left holes in its last `span` bytes. A digest
/// finds them; where no digest is to be had these bytes are sent again, and what is before them is
/// compared: the last [`TAIL_BYTES`] and [`SAMPLES`] short pieces (all of it with `thorough`).
pub(crate) async fn prove<S: Side, D: Side>(
    source: At<'_, S>,
    target: At<'_, D>,
    (kept_len, span): (u64, u64),
    thorough: bool,
) -> Result<Result<(u64, String), &'static str>, Fault> {
    let whole = kept_len.saturating_sub(span);
    for len in [kept_len, whole] {
        if len == 0 {
            continue;
        }
        match same_by_hash(source, target, len).await? {
            Some((true, name)) => return Ok(Ok((len, format!("{name} of its {len} bytes")))),
            Some((false, _)) => {}
            None => return by_reading(source, target, whole, thorough).await,
        }
    }
    Ok(Err(DIFFERS))
}

/// What is said about a part that cannot be used.
const DIFFERS: &str = "what an interrupted copy left is not the beginning of the source; sent anew";
const TOO_SHORT: &str =
    "what an interrupted copy left is too short to be compared on this server; sent anew";
const TOO_OLD: &str = "the source was written to after the copy that was interrupted; sent anew";

/// Whether the first `len` bytes are the same, if the far side can hash.
async fn same_by_hash<S: Side, D: Side>(
    source: At<'_, S>,
    target: At<'_, D>,
    len: u64,
) -> Result<Option<(bool, &'static str)>, Fault> {
    let (from, to);
    if target.is_direct() {
        from = source
            .side
            .hash((source.file, source.path), &ALGORITHMS, 0, len)
            .await?;
        let Some(digest) = from else { return Ok(None) };
        let algorithms = [digest.algorithm];
        to = target
            .side
            .hash((target.file, target.path), &algorithms, 0, len)
            .await?;
    } else {
        to = target
            .side
            .hash((target.file, target.path), &ALGORITHMS, 0, len)
            .await?;
        let Some(digest) = to else { return Ok(None) };
        let algorithms = [digest.algorithm];
        from = source
            .side
            .hash((source.file, source.path), &algorithms, 0, len)
            .await?;
    }
    Ok(match (from, to) {
        (Some(from), Some(to)) => Some((from == to, from.algorithm.name())),
        _ => None,
    })
}

async fn by_reading<S: Side, D: Side>(
    source: At<'_, S>,
    target: At<'_, D>,
    len: u64,
    thorough: bool,
) -> Result<Result<(u64, String), &'static str>, Fault> {
    if len == 0 {
        return Ok(Err(TOO_SHORT));
    }
    let tail_at = if thorough {
        0
    } else {
        len.saturating_sub(TAIL_BYTES)
    };
    if tail_at > 0 && is_younger(source, target).await? {
        return Ok(Err(TOO_OLD));
    }
    let mut pool = Pool::new();
    for range in samples(tail_at) {
        pool.push(is_same(source, target, range));
    }
    while let Some(same) = pool.next().await {
        if !same? {
            return Ok(Err(DIFFERS));
        }
    }
    let mut offset = tail_at;
    while offset < len {
        let end = len.min(offset + RELAY_BYTES);
        if !is_same(source, target, offset..end).await? {
            return Ok(Err(DIFFERS));
        }
        offset = end;
    }
    let read = len - tail_at;
    let text = match tail_at {
        0 => format!("reading the {read} bytes before it"),
        _ => format!("reading {read} bytes before it and {SAMPLES} samples"),
    };
    Ok(Ok((len, text)))
}

/// Where samples are taken from the first `len` bytes: of 16 MiB, 64 KiB at 0, 1 MiB, ... 15 MiB.
fn samples(len: u64) -> impl Iterator<Item = Range<u64>> {
    (0..SAMPLES)
        .map(move |i| len / SAMPLES * i)
        .map(move |at| at..len.min(at + SAMPLE_BYTES))
        .filter(|range| !range.is_empty())
}

/// Whether the source was written to after the target, as far as both clocks can be compared.
async fn is_younger<S: Side, D: Side>(source: At<'_, S>, target: At<'_, D>) -> Result<bool, Fault> {
    let (from, to) = tokio::join!(
        source.side.fstat(source.file),
        target.side.fstat(target.file)
    );
    let (from, to) = (from?.times, to?.times);
    Ok(matches!((from, to), (Some((_, from)), Some((_, to))) if from > to))
}

async fn is_same<S: Side, D: Side>(
    source: At<'_, S>,
    target: At<'_, D>,
    range: Range<u64>,
) -> Result<bool, Fault> {
    let len = range.end - range.start;
    let (from, to) = tokio::join!(
        read_range(source.side, source.file, range.start, len),
        read_range(target.side, target.file, range.start, len),
    );
    Ok(from? == to?)
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
    fn samples_are_spread_over_the_part_and_stay_inside_it() {
        assert_eq!(samples(0).count(), 0);
        assert!(samples(1000).all(|range| range.end <= 1000));
        let of_16_mib: Vec<_> = samples(16 << 20).collect();
        assert_eq!(of_16_mib.len(), 16);
        assert_eq!(of_16_mib[0], 0..65_536);
        assert_eq!(of_16_mib[15], 15 << 20..(15 << 20) + 65_536);
    }

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
