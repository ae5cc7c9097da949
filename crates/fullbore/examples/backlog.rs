//! Measures what a backlog costs an SFTP server over a socketpair: 4 KiB WRITEs with a cap of
//! 1 MiB unanswered and with none, and a burst of READs sent before the first reply is read.
//!
//! `cargo run --release --example backlog -- target/release/fullbore sftp-server`

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fullbore_sftp::proto::{Attrs, OpenFlags, Reply, Request, encode_init, next_packet};

const WRITE_BYTES: usize = 4096;
const CAP_BYTES: u64 = 1024 * 1024;
const READ_BYTES: u32 = 32 * 1024;
const READ_COUNT: u32 = 2048;
const MIB: u64 = 1024 * 1024;
/// The first handle of a session, as our server and OpenSSH's number them.
const HANDLE: &[u8] = &[0; 4];

fn main() -> std::io::Result<()> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    if command.is_empty() {
        eprintln!("usage: backlog SERVER [ARGUMENT...]");
        std::process::exit(2);
    }
    let path = std::env::temp_dir().join(format!("fullbore-backlog-{}", std::process::id()));
    println!("MiB   capped s   uncapped s   ratio   ms/MiB   peak KiB");
    for mib in [8, 16, 32, 64, 128, 256] {
        let (capped, _) = writes(&command, &path, mib, Some(CAP_BYTES))?;
        let (uncapped, peak) = writes(&command, &path, mib, None)?;
        println!(
            "{mib:>3}   {:>8.3}   {:>10.3}   {:>5.2}   {:>6.2}   {peak:>8}",
            capped.as_secs_f64(),
            uncapped.as_secs_f64(),
            uncapped.as_secs_f64() / capped.as_secs_f64(),
            uncapped.as_secs_f64() * 1000.0 / mib as f64,
        );
    }
    for hold in [Duration::ZERO, Duration::from_secs(2)] {
        let (time, peak) = reads(&command, &path, hold)?;
        println!(
            "{READ_COUNT} READs of {READ_BYTES}, replies held back {:.0} s: {:.3} s, peak {peak} KiB",
            hold.as_secs_f64(),
            time.as_secs_f64(),
        );
    }
    std::fs::remove_file(&path)
}

struct Peer {
    child: Child,
    stream: UnixStream,
}

impl Peer {
    /// Starts the server and opens `path` as its first handle.
    fn start(
        command: &[String],
        path: &std::path::Path,
        flags: OpenFlags,
    ) -> std::io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        let mut hello = Vec::new();
        encode_init(&mut hello, 3);
        let open = Request::Open {
            path: path.as_os_str().as_encoded_bytes(),
            flags,
            attrs: Attrs::EMPTY,
        };
        open.encode(1, &mut hello);
        let mut peer = Self {
            child,
            stream: ours,
        };
        peer.stream.write_all(&hello)?;
        let mut replies = Replies::new(peer.stream.try_clone()?);
        replies.skip(2)?;
        Ok(peer)
    }

    fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        status
            .unwrap_or_default()
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .and_then(|value| value.trim().split(' ').next()?.parse().ok())
            .unwrap_or(0)
    }

    fn end(mut self) -> std::io::Result<u64> {
        let peak = self.peak_kib();
        self.stream.shutdown(std::net::Shutdown::Both)?;
        let status = self.child.wait()?;
        assert!(status.success(), "the server ended with {status}");
        Ok(peak)
    }
}

/// Counts replies and their data.
struct Replies {
    stream: UnixStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    data_bytes: u64,
}

impl Replies {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: vec![0; 1024 * 1024],
            start: 0,
            end: 0,
            data_bytes: 0,
        }
    }

    /// Waits for `count` more replies; none may fail.
    fn skip(&mut self, count: u64) -> std::io::Result<()> {
        for _ in 0..count {
            let total_len = loop {
                let view = &self.buffer[self.start..self.end];
                if let Some(packet) = next_packet(view, 256 * 1024).expect("framing") {
                    if packet.kind != 2 {
                        match Reply::parse(packet).expect("a reply").1 {
                            Reply::Status { code, .. } => assert_eq!(code.to_u32(), 0),
                            Reply::Data(data) => self.data_bytes += data.len() as u64,
                            _ => {}
                        }
                    }
                    break packet.total_len;
                }
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
                let n = self.stream.read(&mut self.buffer[self.end..])?;
                assert!(n > 0, "the server closed its side");
                self.end += n;
            };
            self.start += total_len;
        }
        Ok(())
    }
}

fn writes(
    command: &[String],
    path: &std::path::Path,
    mib: u64,
    cap: Option<u64>,
) -> std::io::Result<(Duration, u64)> {
    let flags = OpenFlags::WRITE
        .with(OpenFlags::CREAT)
        .with(OpenFlags::TRUNC);
    let mut peer = Peer::start(command, path, flags)?;
    let count = mib * MIB / WRITE_BYTES as u64;
    let answered = AtomicU64::new(0);
    let mut replies = Replies::new(peer.stream.try_clone()?);
    let begin = Instant::now();
    std::thread::scope(|scope| -> std::io::Result<()> {
        let reader = scope.spawn(|| -> std::io::Result<()> {
            for _ in 0..count {
                replies.skip(1)?;
                answered.fetch_add(1, Ordering::Release);
            }
            Ok(())
        });
        let data = [7; WRITE_BYTES];
        let mut batch = Vec::new();
        for i in 0..count {
            let write = Request::Write {
                handle: HANDLE,
                offset: i * WRITE_BYTES as u64,
                data: &data,
            };
            write.encode(u32::try_from(i).unwrap_or(0), &mut batch);
            // Whole bursts, as a sender that looks only at its own buffer makes them.
            if batch.len() >= 64 * 1024 || i + 1 == count {
                peer.stream.write_all(&batch)?;
                batch.clear();
                while let Some(cap) = cap
                    && (i + 1 - answered.load(Ordering::Acquire)) * WRITE_BYTES as u64 >= cap
                {
                    std::thread::yield_now();
                }
            }
        }
        reader.join().expect("the reader does not panic")
    })?;
    let time = begin.elapsed();
    Ok((time, peer.end()?))
}

fn reads(
    command: &[String],
    path: &std::path::Path,
    hold: Duration,
) -> std::io::Result<(Duration, u64)> {
    let mut peer = Peer::start(command, path, OpenFlags::READ)?;
    let mut burst = Vec::new();
    for i in 0..READ_COUNT {
        let read = Request::Read {
            handle: HANDLE,
            offset: u64::from(i) * u64::from(READ_BYTES),
            len: READ_BYTES,
        };
        read.encode(i, &mut burst);
    }
    let begin = Instant::now();
    peer.stream.write_all(&burst)?;
    std::thread::sleep(hold);
    let mut replies = Replies::new(peer.stream.try_clone()?);
    replies.skip(u64::from(READ_COUNT))?;
    let time = begin.elapsed();
    assert_eq!(
        replies.data_bytes,
        u64::from(READ_BYTES) * u64::from(READ_COUNT)
    );
    Ok((time, peer.end()?))
}
