//! An SFTP server program at the other end of a socketpair, and a client that sends as much as it is
//! allowed to before it reads.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fullbore_sftp::proto::{Attrs, Code, OpenFlags, Reply, Request, encode_init, next_packet};
use rustix::event::{PollFd, PollFlags, poll};

/// Longest reply that is taken: OpenSSH's own limit.
const REPLY_LEN_MAX: u32 = 256 * 1024;

/// Bytes that are encoded at a time; a sender that looks only at its own buffer makes such bursts.
const BURST_BYTES: usize = 64 * 1024;

/// How long a server may say nothing while it owes replies.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// What one server process cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Wall time from the first request to the last reply.
    pub wall: Duration,
    /// Its processor time in between.
    pub cpu: Duration,
    /// Most memory it had resident, in bytes.
    pub peak_bytes: u64,
}

/// A server process; killed when dropped.
#[derive(Debug)]
pub struct SftpPeer {
    child: Child,
    stream: UnixStream,
    input: Vec<u8>,
    start: usize,
    end: usize,
    handle: Vec<u8>,
}

fn broken(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl SftpPeer {
    /// Starts `command` and opens `path` there.
    ///
    /// # Errors
    /// When it does not start, is no SFTP server, or does not open the file.
    pub fn open(command: &[OsString], path: &Path, flags: OpenFlags) -> io::Result<Self> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| broken("no server program was named"))?;
        let (stream, theirs) = UnixStream::pair()?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::null())
            .spawn()?;
        let mut peer = Self {
            child,
            stream,
            input: vec![0; 2 * REPLY_LEN_MAX as usize],
            start: 0,
            end: 0,
            handle: Vec::new(),
        };
        peer.greet(path, flags)?;
        Ok(peer)
    }

    fn greet(&mut self, path: &Path, flags: OpenFlags) -> io::Result<()> {
        let mut hello = Vec::new();
        encode_init(&mut hello, 3);
        self.stream.write_all(&hello)?;
        self.stream.set_read_timeout(Some(SILENCE_MAX))?;
        self.wait_for(1, &mut |_, _| Ok(()))?;
        let open = Request::Open {
            path: path.as_os_str().as_bytes(),
            flags,
            attrs: Attrs::EMPTY,
        };
        hello.clear();
        open.encode(0, &mut hello);
        self.stream.write_all(&hello)?;
        let mut opened = Err(broken("the server did not open the file"));
        self.wait_for(1, &mut |_, reply| {
            if let Reply::Handle(handle) = reply {
                opened = Ok(handle.to_vec());
            }
            Ok(())
        })?;
        self.handle = opened?;
        Ok(())
    }

    /// Blocks until `count` more replies were seen.
    fn wait_for(
        &mut self,
        count: u64,
        see: &mut dyn FnMut(u32, Reply<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut seen = 0;
        while seen < count {
            self.fill()?;
            seen += self.take_replies(see)?;
        }
        Ok(())
    }

    /// Reads once into the input buffer.
    fn fill(&mut self) -> io::Result<()> {
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        match self.stream.read(&mut self.input[self.end..]) {
            Ok(0) => Err(broken("the server ended before it had answered")),
            Ok(n) => {
                self.end += n;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Shows each whole reply that is there; returns how many there were.
    fn take_replies(
        &mut self,
        see: &mut dyn FnMut(u32, Reply<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut count = 0;
        loop {
            let view = &self.input[self.start..self.end];
            let packet = next_packet(view, REPLY_LEN_MAX).map_err(|e| broken(e.to_string()))?;
            let Some(packet) = packet else {
                return Ok(count);
            };
            // SSH_FXP_VERSION has no id.
            if packet.kind != 2 {
                let (id, reply) = Reply::parse(packet).map_err(|e| broken(e.to_string()))?;
                see(id, reply)?;
            }
            self.start += packet.total_len;
            count += 1;
        }
    }

    /// Writes `mib` MiB in WRITEs of `block` bytes, at most `cap` bytes unanswered.
    ///
    /// # Errors
    /// When the server refuses a WRITE, goes away or is silent.
    pub fn write(&mut self, mib: u64, block: u32, cap: Option<u64>) -> io::Result<Cost> {
        let count = (mib << 20) / u64::from(block);
        let requests_max = cap.map_or(u64::MAX, |cap| (cap / u64::from(block)).max(1));
        let mut data = vec![0; block as usize];
        let handle = self.handle.clone();
        let encode = |number: u64, out: &mut Vec<u8>| {
            let offset = number * u64::from(block);
            mark(&mut data, offset);
            let write = Request::Write {
                handle: &handle,
                offset,
                data: &data,
            };
            write.encode(id_of(number), out);
        };
        let see = |_: u32, reply: Reply<'_>| match reply {
            Reply::Status { code: Code::Ok, .. } => Ok(()),
            other => Err(broken(format!("a WRITE was refused: {other:?}"))),
        };
        self.exchange(count, requests_max, encode, see)
    }

    /// Sends READs of `block` bytes for the first `mib` MiB, all of them before the first reply is
    /// read, which waits for `hold`. That time is not counted.
    ///
    /// # Errors
    /// When the server refuses a READ, answers with other bytes, goes away or is silent.
    pub fn read_burst(&mut self, mib: u64, block: u32, hold: Duration) -> io::Result<Cost> {
        let count = (mib << 20) / u64::from(block);
        let mut burst = Vec::new();
        for number in 0..count {
            let read = Request::Read {
                handle: &self.handle,
                offset: number * u64::from(block),
                len: block,
            };
            read.encode(id_of(number), &mut burst);
        }
        let mut sender = self.stream.try_clone()?;
        let cpu = self.cpu();
        // The requests alone may be more than the socket holds.
        let sending = std::thread::spawn(move || sender.write_all(&burst));
        std::thread::sleep(hold);
        let begun = Instant::now();
        self.wait_for(count, &mut |id, reply| match reply {
            Reply::Data(data) if is_marked(data, u64::from(id) * u64::from(block), block) => Ok(()),
            _ => Err(broken("a READ was answered with something else")),
        })?;
        let cost = self.cost(begun, cpu);
        sending
            .join()
            .map_err(|_| broken("the sending thread ended"))??;
        Ok(cost)
    }

    /// Sends `count` requests, at most `requests_max` unanswered, and takes replies whenever there
    /// are some.
    fn exchange(
        &mut self,
        count: u64,
        requests_max: u64,
        mut encode: impl FnMut(u64, &mut Vec<u8>),
        mut see: impl FnMut(u32, Reply<'_>) -> io::Result<()>,
    ) -> io::Result<Cost> {
        self.stream.set_nonblocking(true)?;
        let (mut sent, mut answered) = (0, 0);
        let (mut out, mut out_start) = (Vec::with_capacity(2 * BURST_BYTES), 0);
        let cpu = self.cpu();
        let begun = Instant::now();
        while answered < count {
            if out_start == out.len() {
                out.clear();
                out_start = 0;
                while sent < count && sent - answered < requests_max && out.len() < BURST_BYTES {
                    encode(sent, &mut out);
                    sent += 1;
                }
            }
            let (can_read, can_write) = self.ready(out_start < out.len())?;
            if can_write {
                out_start += written(self.stream.write(&out[out_start..]))?;
            }
            if can_read {
                self.fill()?;
                answered += self.take_replies(&mut see)?;
            }
        }
        self.stream.set_nonblocking(false)?;
        Ok(self.cost(begun, cpu))
    }

    /// Waits until something can be read, or written where there is something to write.
    fn ready(&self, wants_write: bool) -> io::Result<(bool, bool)> {
        let mut wanted = PollFlags::IN;
        if wants_write {
            wanted |= PollFlags::OUT;
        }
        let mut fds = [PollFd::new(&self.stream, wanted)];
        let limit = rustix::event::Timespec {
            tv_sec: i64::try_from(SILENCE_MAX.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: 0,
        };
        if poll(&mut fds, Some(&limit))? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the server is silent",
            ));
        }
        let got = fds[0].revents();
        let can_read = got.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        Ok((can_read, got.contains(PollFlags::OUT)))
    }

    fn cost(&self, begun: Instant, cpu: Duration) -> Cost {
        Cost {
            wall: begun.elapsed(),
            cpu: self.cpu().saturating_sub(cpu),
            peak_bytes: self.peak_bytes(),
        }
    }

    fn proc_file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.child.id())).join(name)
    }

    /// Processor time of all its threads so far, to the nanosecond.
    fn cpu(&self) -> Duration {
        let Ok(tasks) = std::fs::read_dir(self.proc_file("task")) else {
            return Duration::ZERO;
        };
        let nanos = tasks.filter_map(|task| {
            let path = task.ok()?.path().join("schedstat");
            let text = std::fs::read_to_string(path).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanos.sum())
    }

    fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(self.proc_file("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|value| value.trim().split(' ').next()?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }
}

impl Drop for SftpPeer {
    fn drop(&mut self) {
        // It ends by itself at the end of its input; one that does not is killed.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A write that would block took nothing.
fn written(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

/// Ids go round; what is asked here at once is far fewer.
fn id_of(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
}

/// Bytes between two marks.
const MARK_EVERY: usize = 4096;

/// Each page begins with its offset in the file.
fn mark(data: &mut [u8], offset: u64) {
    for (page, chunk) in data.chunks_mut(MARK_EVERY).enumerate() {
        let at = offset + (page * MARK_EVERY) as u64;
        chunk[..8].copy_from_slice(&at.to_be_bytes());
    }
}

fn is_marked(data: &[u8], offset: u64, len: u32) -> bool {
    data.len() == len as usize
        && data.chunks(MARK_EVERY).enumerate().all(|(page, chunk)| {
            let at = offset + (page * MARK_EVERY) as u64;
            chunk.starts_with(&at.to_be_bytes())
        })
}

/// Makes a file as the WRITEs would have made it.
///
/// # Errors
/// When it cannot be written.
pub fn make_file(path: &Path, mib: u64) -> io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    let mut block = vec![0; 1 << 20];
    for number in 0..mib {
        mark(&mut block, number << 20);
        file.write_all(&block)?;
    }
    Ok(())
}

/// Whether a file is as the WRITEs should have made it.
///
/// # Errors
/// When it cannot be read.
pub fn is_right(path: &Path, mib: u64) -> io::Result<bool> {
    let mut file = std::fs::File::open(path)?;
    if file.metadata()?.len() != mib << 20 {
        return Ok(false);
    }
    let mut block = vec![0; 1 << 20];
    for number in 0..mib {
        file.read_exact(&mut block)?;
        if !is_marked(&block, number << 20, 1 << 20) {
            return Ok(false);
        }
    }
    Ok(true)
}
