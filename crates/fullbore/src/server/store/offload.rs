//! Calls that may block for long, made ready to run on another thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest;
use fullbore_sftp::proto::{Code, HashAlgorithm};
use fullbore_sftp::server::{CheckRange, Completion, StoreError, Token};
use rustix::io::{self, Errno};

use super::errno::store_error;
use super::root::retry;

/// A call to run on another thread, or the next slice of one: no thread is kept by a file without end.
pub type Job = Box<dyn FnOnce() -> Progress + Send>;

/// How far a call has come.
pub enum Progress {
    /// To its end: the result goes to `Server::complete` on the session's own thread.
    Done(Completion),
    /// This is what is left, to be run when others had their turn.
    More(Job),
}

/// Runs calls elsewhere: the driver's thread pool.
pub trait Offload {
    /// Starts `job` and returns true, or drops it and returns false when it cannot: a call that may
    /// take long is then refused, others are made at once, in line. When the offload is dropped, what
    /// it started need not be finished.
    fn submit(&mut self, token: Token, job: Job) -> bool;
}

/// Bytes hashed or copied before other calls have their turn: a few milliseconds.
const SLICE_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes hashed or copied per system call.
const CHUNK_BYTES: usize = 128 * 1024;

/// A call with everything it needs.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Read {
        file: Arc<OwnedFd>,
        offset: u64,
        len: usize,
        read_bytes: Arc<AtomicU64>,
    },
    Fsync {
        file: Arc<OwnedFd>,
    },
    Copy(Copy),
    Check {
        file: Arc<OwnedFd>,
        range: CheckRange,
    },
}

/// A copy between two files.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) from: Arc<OwnedFd>,
    pub(super) from_offset: u64,
    /// 0 = to the end.
    pub(super) len: u64,
    pub(super) to: Arc<OwnedFd>,
    pub(super) to_offset: u64,
}

impl Call {
    /// Whether it takes as long as the peer likes.
    pub(super) const fn is_long(&self) -> bool {
        match self {
            Self::Read { .. } => false,
            Self::Fsync { .. } | Self::Copy(_) | Self::Check { .. } => true,
        }
    }

    /// The call as a job. `buffer` takes the bytes of a read.
    pub(super) fn job(self, buffer: Vec<u8>) -> Job {
        Box::new(move || self.run(buffer))
    }

    /// Makes the call to its end.
    pub(super) fn finish(self) -> Completion {
        let mut progress = self.run(Vec::new());
        loop {
            match progress {
                Progress::Done(completion) => return completion,
                Progress::More(job) => progress = job(),
            }
        }
    }

    /// Makes the call, or its first slice.
    fn run(self, mut buffer: Vec<u8>) -> Progress {
        match self {
            Self::Read {
                file,
                offset,
                len,
                read_bytes,
            } => {
                // Zeroes only what a reused buffer does not have yet.
                buffer.resize(len, 0);
                let result = match read_full(&file, offset, &mut buffer) {
                    Ok(0) => Err(StoreError::EOF),
                    Ok(n) => {
                        buffer.truncate(n);
                        read_bytes.fetch_add(n as u64, Ordering::Relaxed);
                        Ok(buffer)
                    }
                    Err(errno) => Err(store_error(errno)),
                };
                Progress::Done(Completion::Data(result))
            }
            Self::Fsync { file } => {
                let result = retry(|| rustix::fs::fsync(&file));
                Progress::Done(Completion::Done(result.map_err(store_error)))
            }
            Self::Copy(copy) => copy.run(0),
            Self::Check { file, range } => Check::new(file, range).run(),
        }
    }
}

/// Reads until `into` is full or the file ends.
fn read_full(file: &OwnedFd, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        let at = offset.checked_add(done as u64).ok_or(Errno::INVAL)?;
        match retry(|| rustix::io::pread(file, &mut into[done..], at)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

impl Copy {
    /// Copies the slice behind the first `done` bytes.
    fn run(self, mut done: u64) -> Progress {
        let end = done.saturating_add(SLICE_BYTES);
        let all = if self.len == 0 { u64::MAX } else { self.len };
        while done < all.min(end) {
            let result = match self.step(done, all.min(end) - done) {
                Ok(0) if self.len == 0 => Ok(()),
                Ok(0) => Err(StoreError::EOF),
                Ok(n) => {
                    done += n;
                    continue;
                }
                Err(errno) => Err(store_error(errno)),
            };
            return Progress::Done(Completion::Done(result));
        }
        if done < all {
            return Progress::More(Box::new(move || self.run(done)));
        }
        Progress::Done(Completion::Done(Ok(())))
    }

    /// Copies some of the next `left` bytes; 0 at the end of the source.
    fn step(&self, done: u64, left: u64) -> io::Result<u64> {
        let overflow = || Errno::INVAL;
        let mut from_at = self.from_offset.checked_add(done).ok_or_else(overflow)?;
        let mut to_at = self.to_offset.checked_add(done).ok_or_else(overflow)?;
        let len = usize::try_from(left).unwrap_or(usize::MAX);
        let result = retry(|| {
            rustix::fs::copy_file_range(
                &self.from,
                Some(&mut from_at),
                &self.to,
                Some(&mut to_at),
                len,
            )
        });
        match result {
            Ok(n) if n > 0 => Ok(n as u64),
            // No bytes: the end, or a file such as those of /proc whose size says nothing. And
            // some pairs of file systems, and targets opened for appending, need plain copying.
            Ok(_)
            | Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF) => {
                self.step_plain(from_at, to_at, len)
            }
            Err(errno) => Err(errno),
        }
    }

    fn step_plain(&self, from_at: u64, to_at: u64, len: usize) -> io::Result<u64> {
        let mut chunk = vec![0; len.min(CHUNK_BYTES)];
        let n = read_full(&self.from, from_at, &mut chunk)?;
        write_all(&self.to, to_at, &chunk[..n])?;
        Ok(n as u64)
    }
}

/// Writes all of `data` at `offset`.
pub(super) fn write_all(file: &OwnedFd, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        let n = retry(|| rustix::io::pwrite(file, data, offset))?;
        if n == 0 {
            return Err(Errno::IO);
        }
        data = &data[n..];
        offset += n as u64;
    }
    Ok(())
}

/// The hashing of a range of a file: a digest for each block, one for an empty range.
struct Check {
    file: Arc<OwnedFd>,
    range: CheckRange,
    blocks: Blocks,
    digests: Vec<u8>,
    done: u64,
}

impl Check {
    fn new(file: Arc<OwnedFd>, range: CheckRange) -> Self {
        Self {
            file,
            range,
            blocks: Blocks::new(range),
            digests: Vec::new(),
            done: 0,
        }
    }

    /// Hashes the next slice.
    fn run(mut self) -> Progress {
        let end = self.done.saturating_add(SLICE_BYTES);
        match self.hash_to(end) {
            Ok(false) => Progress::More(Box::new(move || self.run())),
            Ok(true) => {
                self.blocks.finish(&mut self.digests);
                Progress::Done(Completion::Digests(Ok(self.digests)))
            }
            Err(error) => Progress::Done(Completion::Digests(Err(error))),
        }
    }

    /// Goes on to `end`. True when that was the end of the range or of the file.
    fn hash_to(&mut self, end: u64) -> Result<bool, StoreError> {
        let range = self.range;
        let asked = if range.len == 0 { u64::MAX } else { range.len };
        let mut chunk = vec![0; CHUNK_BYTES];
        while self.done < asked.min(end) {
            let want = usize::try_from(asked.min(end) - self.done)
                .unwrap_or(usize::MAX)
                .min(CHUNK_BYTES);
            let at = range.offset.saturating_add(self.done);
            let n = read_full(&self.file, at, &mut chunk[..want]).map_err(store_error)?;
            if n == 0 {
                return if range.len == 0 {
                    Ok(true)
                } else {
                    Err(StoreError::EOF)
                };
            }
            self.blocks.update(&chunk[..n], &mut self.digests)?;
            self.done += n as u64;
        }
        Ok(self.done >= asked)
    }
}

/// Cuts a stream into blocks and hashes each.
struct Blocks {
    range: CheckRange,
    /// Hash of the block under way, and the bytes it still wants.
    open: Option<(Hasher, u64)>,
    count: usize,
}

impl Blocks {
    fn new(range: CheckRange) -> Self {
        Self {
            range,
            open: None,
            count: 0,
        }
    }

    fn update(&mut self, mut bytes: &[u8], digests: &mut Vec<u8>) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let (mut hasher, left) = match self.open.take() {
                Some(open) => open,
                None => self.start()?,
            };
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            hasher.update(&bytes[..n]);
            bytes = &bytes[n..];
            match left - n as u64 {
                0 => hasher.finish(digests),
                left => self.open = Some((hasher, left)),
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(Hasher, u64), StoreError> {
        if self.count == self.range.digests_max {
            return Err(StoreError::new(
                Code::Failure,
                "more blocks than one reply can hold: ask for fewer or larger ones",
            ));
        }
        self.count += 1;
        let len = match self.range.block_bytes {
            0 => u64::MAX,
            bytes => u64::from(bytes),
        };
        Ok((Hasher::new(self.range.algorithm), len))
    }

    fn finish(self, digests: &mut Vec<u8>) {
        match self.open {
            Some((hasher, _)) => hasher.finish(digests),
            None if self.count == 0 => Hasher::new(self.range.algorithm).finish(digests),
            None => {}
        }
    }
}

/// One of the hashes of check-file.
enum Hasher {
    Sha256(digest::Context),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    fn new(algorithm: HashAlgorithm) -> Self {
        match algorithm {
            HashAlgorithm::Sha256 => Self::Sha256(digest::Context::new(&digest::SHA256)),
            HashAlgorithm::Blake3 => Self::Blake3(Box::default()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(context) => context.update(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    fn finish(self, digests: &mut Vec<u8>) {
        match self {
            Self::Sha256(context) => digests.extend_from_slice(context.finish().as_ref()),
            Self::Blake3(hasher) => digests.extend_from_slice(hasher.finalize().as_bytes()),
        }
    }
}
