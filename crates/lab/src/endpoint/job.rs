//! What an endpoint does with a connection.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};

use aws_lc_rs::digest;
use fullbore::driver::net::Connection;
use fullbore_base::Rng;
use tokio::sync::mpsc;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Standard input goes to the peer, what it sends to standard output.
    Pipe,
    /// What the peer sends goes back to it.
    Echo,
    /// So many bytes go to the peer, and what it sends is counted.
    Send(u64),
    /// A connection of the kernel's TCP to this address takes up what comes, and answers.
    Forward(SocketAddr),
    /// Whoever asks by HTTP gets this file.
    Http(PathBuf),
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Done {
    pub sent: u64,
    pub received: u64,
    pub sent_sha256: Option<String>,
    pub received_sha256: Option<String>,
    pub error: Option<String>,
}

/// Bytes read at once, from wherever.
const BLOCK_BYTES: usize = 256 * 1024;

/// Blocks of standard input that are read ahead.
const BLOCKS_MAX: usize = 4;

/// Bytes of a request by HTTP.
const REQUEST_BYTES_MAX: usize = 8192;

/// A prime: no two segments of a stream are alike by chance.
const PATTERN_BYTES: usize = 65_521;

/// Where bytes for the peer come from.
enum Source {
    Pattern {
        table: Vec<u8>,
        at: usize,
        left: u64,
    },
    Reader {
        reader: Box<dyn Read + Send>,
        block: Block,
    },
    Channel {
        blocks: mpsc::Receiver<io::Result<Vec<u8>>>,
        block: Block,
    },
}

#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    at: usize,
}

impl Block {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }
}

impl Source {
    fn pattern(left: u64) -> Self {
        let mut table = vec![0; PATTERN_BYTES * 8];
        Rng::seeded(PATTERN_BYTES as u64).fill(&mut table[..PATTERN_BYTES]);
        let (first, rest) = table.split_at_mut(PATTERN_BYTES);
        for copy in rest.chunks_mut(PATTERN_BYTES) {
            copy.copy_from_slice(first);
        }
        Self::Pattern { table, at: 0, left }
    }

    fn file(path: &Path) -> io::Result<(Self, u64)> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let source = Self::Reader {
            reader: Box::new(file),
            block: Block::default(),
        };
        Ok((source, len))
    }

    /// Reads ahead on a thread of its own: standard input cannot be waited for otherwise.
    fn standard_input() -> Self {
        let (sender, blocks) = mpsc::channel(BLOCKS_MAX);
        std::thread::spawn(move || {
            loop {
                let mut bytes = vec![0; BLOCK_BYTES];
                let read = io::stdin().lock().read(&mut bytes).map(|n| {
                    bytes.truncate(n);
                    bytes
                });
                let is_last = read.as_ref().is_ok_and(Vec::is_empty) || read.is_err();
                if sender.blocking_send(read).is_err() || is_last {
                    return;
                }
            }
        });
        Self::Channel {
            blocks,
            block: Block::default(),
        }
    }

    /// The next bytes; none at the end.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        match self {
            Self::Pattern { table, at, left } => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX);
                let end = table.len().min(at.saturating_add(len));
                Poll::Ready(Ok(&table[*at..end]))
            }
            Self::Reader { reader, block } => {
                if block.rest().is_empty() {
                    block.bytes.resize(BLOCK_BYTES, 0);
                    block.at = 0;
                    let n = reader.read(&mut block.bytes)?;
                    block.bytes.truncate(n);
                }
                Poll::Ready(Ok(block.rest()))
            }
            Self::Channel { blocks, block } => {
                if block.rest().is_empty() {
                    let next = ready!(blocks.poll_recv(cx));
                    block.bytes = next.transpose()?.unwrap_or_default();
                    block.at = 0;
                }
                Poll::Ready(Ok(block.rest()))
            }
        }
    }

    fn consume(&mut self, count: usize) {
        match self {
            Self::Pattern { at, left, .. } => {
                *left -= count as u64;
                *at = (*at + count) % PATTERN_BYTES;
            }
            Self::Reader { block, .. } | Self::Channel { block, .. } => block.at += count,
        }
    }
}

/// Counts bytes, and hashes them if that is asked for.
struct Meter {
    count: u64,
    hash: Option<digest::Context>,
}

impl Meter {
    fn new(is_hashed: bool) -> Self {
        Self {
            count: 0,
            hash: is_hashed.then(|| digest::Context::new(&digest::SHA256)),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.count += bytes.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
    }

    fn finish(self) -> (u64, Option<String>) {
        let hash = self.hash.map(|hash| {
            let bytes = hash.finish();
            bytes.as_ref().iter().map(|b| format!("{b:02x}")).collect()
        });
        (self.count, hash)
    }
}

/// Both directions at once.
struct Exchange {
    source: Option<Source>,
    is_printed: bool,
    sent: Meter,
    received: Meter,
    buf: Vec<u8>,
}

impl Exchange {
    fn new(source: Source, is_printed: bool, is_hashed: bool) -> Self {
        Self {
            source: Some(source),
            is_printed,
            sent: Meter::new(is_hashed),
            received: Meter::new(is_hashed),
            buf: vec![0; BLOCK_BYTES],
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, to: &mut Connection) -> Poll<io::Result<()>> {
        while let Some(source) = &mut self.source {
            let bytes = ready!(source.poll_bytes(cx))?;
            if bytes.is_empty() {
                to.shutdown();
                self.source = None;
                break;
            }
            let count = ready!(to.poll_write(cx, bytes))?;
            self.sent.add(&bytes[..count]);
            source.consume(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Ready at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, from: &mut Connection) -> Poll<io::Result<()>> {
        loop {
            let count = ready!(from.poll_read(cx, &mut self.buf))?;
            if count == 0 {
                return Poll::Ready(Ok(()));
            }
            self.received.add(&self.buf[..count]);
            if self.is_printed {
                let mut out = io::stdout().lock();
                out.write_all(&self.buf[..count])?;
                out.flush()?;
            }
        }
    }

    async fn run(&mut self, connection: &mut Connection) -> io::Result<()> {
        let mut is_read = false;
        poll_fn(|cx| {
            let write = self.poll_write(cx, connection)?;
            if !is_read {
                is_read = self.poll_read(cx, connection)?.is_ready();
            }
            if is_read && write.is_ready() {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })
        .await
    }

    fn done(self, result: io::Result<()>) -> Done {
        let (sent, sent_sha256) = self.sent.finish();
        let (received, received_sha256) = self.received.finish();
        Done {
            sent,
            received,
            sent_sha256,
            received_sha256,
            error: result.err().map(|e| e.to_string()),
        }
    }
}

/// Does the job to its end.
pub async fn run(job: &Job, is_hashed: bool, connection: &mut Connection) -> Done {
    match job {
        Job::Pipe => exchange(Source::standard_input(), true, is_hashed, connection).await,
        Job::Send(len) => exchange(Source::pattern(*len), false, is_hashed, connection).await,
        Job::Echo => {
            let mut echo = Exchange::new(Source::pattern(0), false, is_hashed);
            let result = run_echo(&mut echo, connection).await;
            echo.done(result)
        }
        Job::Forward(to) => super::forward::run(*to, connection).await,
        Job::Http(path) => match answer(path, connection).await {
            Ok(source) => exchange(source, false, is_hashed, connection).await,
            Err(error) => Done {
                error: Some(error.to_string()),
                ..Done::default()
            },
        },
    }
}

async fn exchange(source: Source, printed: bool, hashed: bool, with: &mut Connection) -> Done {
    let mut exchange = Exchange::new(source, printed, hashed);
    let result = exchange.run(with).await;
    exchange.done(result)
}

async fn run_echo(echo: &mut Exchange, connection: &mut Connection) -> io::Result<()> {
    loop {
        let count = connection.read(&mut echo.buf).await?;
        if count == 0 {
            connection.shutdown();
            return Ok(());
        }
        echo.received.add(&echo.buf[..count]);
        connection.write_all(&echo.buf[..count]).await?;
        echo.sent.add(&echo.buf[..count]);
    }
}

/// Reads a request and begins the answer; the file itself is what is returned.
async fn answer(path: &Path, connection: &mut Connection) -> io::Result<Source> {
    let (mut request, mut buf) = (Vec::new(), [0; 2048]);
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        let count = connection.read(&mut buf).await?;
        if count == 0 || request.len() + count > REQUEST_BYTES_MAX {
            return Err(io::Error::other("not a request by HTTP"));
        }
        request.extend_from_slice(&buf[..count]);
    }
    let (source, len) = Source::file(path)?;
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await?;
    Ok(source)
}
