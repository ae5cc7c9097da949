//! `fullbore sftp-server` from outside: exit codes, and what a flood may cost.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};

use fullbore_testkit::Folder;

const INIT: &[u8] = b"\0\0\0\x05\x01\0\0\0\x03";

/// Peak memory at any backlog, in KiB.
const PEAK_KIB_MAX: u64 = 16 * 1024;

fn server() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullbore"));
    command.arg("sftp-server");
    command
}

/// Runs the server over pipes on one input, and returns its exit code and output.
fn run(args: &[&str], input: &[u8]) -> (Option<i32>, Vec<u8>) {
    let mut child = server()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("the server reads");
    drop(stdin);
    let mut output = Vec::new();
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_to_end(&mut output).expect("the server writes");
    (child.wait().expect("it ends").code(), output)
}

fn packet(kind: u8, id: u32, fields: &[u8]) -> Vec<u8> {
    let len = u32::try_from(5 + fields.len()).expect("short");
    let mut packet = len.to_be_bytes().to_vec();
    packet.push(kind);
    packet.extend_from_slice(&id.to_be_bytes());
    packet.extend_from_slice(fields);
    packet
}

fn string(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).expect("short");
    [&len.to_be_bytes(), bytes].concat()
}

#[test]
fn exit_codes_are_those_of_openssh() {
    let after_init = |rest: &[u8]| [INIT, rest].concat();
    let stat = packet(17, 1, &string(b"/"));
    let mut exact = packet(17, 1, &string(b"/"));
    exact.resize(4 + 262_144, 0);
    exact[..4].copy_from_slice(&262_144u32.to_be_bytes());
    for (what, input, code) in [
        ("nothing", Vec::new(), 0),
        ("init", INIT.to_vec(), 0),
        ("part of a packet", INIT[..6].to_vec(), 0),
        ("a packet of the limit", after_init(&exact), 0),
        ("one byte more", after_init(&[0, 4, 0, 1]), 11),
        ("a request before init", stat.clone(), 255),
        (
            "a cut field",
            after_init(&packet(17, 1, b"\0\0\0\x09/")),
            255,
        ),
        (
            "a zero byte",
            after_init(&packet(17, 1, &string(b"a\0b"))),
            255,
        ),
        ("an empty packet", after_init(&[0; 4]), 255),
    ] {
        assert_eq!(run(&[], &input).0, Some(code), "{what}");
    }
    for (args, code) in [
        (&["-h"][..], 1),
        (&["-z"], 1),
        (&["-u", "888"], 255),
        (&["-Q", "requests"], 0),
    ] {
        assert_eq!(run(args, b"").0, Some(code), "{args:?}");
    }
}

#[test]
fn what_was_asked_before_the_end_of_input_is_answered() {
    let input: Vec<u8> = [
        INIT.to_vec(),
        packet(17, 1, &string(b"/")),
        packet(99, 2, b""),
    ]
    .concat();
    let (code, output) = run(&["-R"], &input);
    assert_eq!(code, Some(0));
    let version_len = u32::from_be_bytes(output[..4].try_into().expect("four"));
    let replies = &output[4 + version_len as usize..];
    assert_eq!(replies[4], 105);
    let attrs_len = u32::from_be_bytes(replies[..4].try_into().expect("four"));
    let status = &replies[4 + attrs_len as usize..];
    assert_eq!((status[4], &status[9..13]), (101, &[0, 0, 0, 8][..]));
}

/// Runs the server in `folder`, where what it makes is what the test makes; returns its replies to the two requests
/// behind INIT and what it said on standard error.
fn answers(folder: &Folder, args: &[&str], requests: [Vec<u8>; 2]) -> ([Vec<u8>; 2], String) {
    let mut child = server()
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let input = [INIT, &requests[0], &requests[1]].concat();
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&input).expect("the server reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    let mut rest = &output.stdout[..];
    let mut packets = std::iter::from_fn(|| {
        let (len, tail) = rest.split_first_chunk()?;
        let (packet, tail) = tail.split_at(u32::from_be_bytes(*len) as usize);
        rest = tail;
        Some(packet.to_vec())
    });
    packets.next().expect("VERSION");
    let replies = [packets.next(), packets.next()].map(|reply| reply.expect("an answer"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (replies, said)
}

/// A status reply's code.
fn code(reply: &[u8]) -> u32 {
    assert_eq!(reply[0], 101, "a status");
    u32::from_be_bytes(reply[5..9].try_into().expect("four"))
}

#[test]
fn flags_do_what_openssh_says_they_do() {
    let folder = Folder::new("sftp-server-flags");
    std::fs::create_dir(folder.file("start")).expect("a folder");
    let mkdir = |id, name: &[u8]| packet(14, id, &[&string(name)[..], &[0; 4]].concat());
    let rmdir = |id, name: &[u8]| packet(15, id, &string(name));
    let mode = |name: &str| {
        let made = std::fs::metadata(folder.file(name)).expect("it was made");
        std::os::unix::fs::PermissionsExt::mode(&made.permissions()) & 0o777
    };
    // -d, -u, -e, -l: where it starts, what it takes from modes, and what it tells whom.
    let start = folder.file("start");
    let start = start.to_str().expect("text");
    let flags = ["-d", start, "-u", "027", "-e", "-l", "INFO"];
    let (replies, said) = answers(&folder, &flags, [mkdir(1, b"a"), mkdir(2, b"a/b")]);
    assert_eq!(replies.map(|reply| code(&reply)), [0, 0]);
    assert_eq!((mode("start/a"), mode("start/a/b")), (0o750, 0o750));
    assert!(said.contains("session opened for local user"), "{said}");
    assert!(said.contains("mkdir") && said.contains("a/b"), "{said}");
    let (_, said) = answers(
        &folder,
        &["-e", "-l", "QUIET"],
        [mkdir(1, b"q"), rmdir(2, b"q")],
    );
    assert_eq!(said, "", "a quiet server says nothing");
    // -f: the lines go to the system's log, and none to standard error.
    let (_, said) = answers(
        &folder,
        &["-f", "LOCAL3", "-l", "DEBUG3"],
        [mkdir(1, b"f"), rmdir(2, b"f")],
    );
    assert_eq!(said, "", "-e alone makes it speak there");
    // -P, -p, -R: what it refuses.
    for (flags, codes) in [
        (&["-P", "rmdir"][..], [0, 3]),
        (&["-p", "rmdir"], [3, 0]),
        (&["-p", "mkdir,rmdir", "-P", "mkdir"], [3, 0]),
        (&["-R"], [3, 3]),
    ] {
        let dir = folder.file("gone");
        // It may be there from the round before.
        let _ = std::fs::remove_dir(&dir);
        if codes[0] != 0 {
            std::fs::create_dir(&dir).expect("a folder");
        }
        let (replies, _) = answers(&folder, flags, [mkdir(1, b"gone"), rmdir(2, b"gone")]);
        assert_eq!(replies.map(|reply| code(&reply)), codes, "{flags:?}");
        assert_eq!(dir.exists(), codes[1] != 0, "{flags:?}");
    }
}

/// A server over a socketpair, with a file of 1 MiB as its first handle.
struct Flooded {
    child: Child,
    stream: UnixStream,
    path: std::path::PathBuf,
}

impl Flooded {
    fn start(name: &str, flags: u8) -> Self {
        let path = std::env::temp_dir().join(format!("fullbore-{name}-{}", std::process::id()));
        std::fs::write(&path, vec![7; 1 << 20]).expect("a file");
        let (ours, theirs) = UnixStream::pair().expect("a socketpair");
        let child = server()
            .stdin(OwnedFd::from(theirs.try_clone().expect("a descriptor")))
            .stdout(OwnedFd::from(theirs))
            .spawn()
            .expect("the program starts");
        let mut open = string(path.as_os_str().as_encoded_bytes());
        open.extend_from_slice(&[0, 0, 0, flags, 0, 0, 0, 0]);
        let mut flooded = Self {
            child,
            stream: ours,
            path,
        };
        let hello = [INIT.to_vec(), packet(3, 0, &open)].concat();
        flooded.stream.write_all(&hello).expect("the server reads");
        flooded.skip(2);
        flooded
    }

    /// Reads `count` replies; returns the bytes of the last.
    fn skip(&mut self, count: u64) -> Vec<u8> {
        let mut body = Vec::new();
        for _ in 0..count {
            let mut len = [0; 4];
            self.stream.read_exact(&mut len).expect("a reply");
            body.resize(u32::from_be_bytes(len) as usize, 0);
            self.stream.read_exact(&mut body).expect("a whole reply");
        }
        body
    }

    /// Sends requests of one kind until the server takes no more, and returns how many of their
    /// bytes went.
    fn flood(&mut self, request: &[u8], bytes_max: usize) -> usize {
        self.stream.set_nonblocking(true).expect("a flag");
        let burst = request.repeat(1000);
        let mut sent = 0;
        let mut refused = 0;
        while sent < bytes_max && refused < 200 {
            match self.stream.write(&burst[sent % request.len()..]) {
                Ok(n) => {
                    sent += n;
                    refused = 0;
                }
                // The server may be about to take more: let it run.
                Err(_) => {
                    refused += 1;
                    std::thread::yield_now();
                }
            }
        }
        self.stream.set_nonblocking(false).expect("a flag");
        sent
    }

    fn peak_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("it lives");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|value| value.trim().split(' ').next()?.parse().ok());
        peak.expect("a figure")
    }

    fn end(mut self) -> ExitStatus {
        drop(self.stream);
        // The path may be gone already.
        let _ = std::fs::remove_file(&self.path);
        self.child.wait().expect("it ends")
    }
}

#[test]
fn reads_asked_and_never_read_cost_bounded_memory() {
    let mut server = Flooded::start("read-flood", 1);
    let read = packet(
        5,
        9,
        &[&string(&[0; 4])[..], &[0; 8], &[0, 4, 0, 0]].concat(),
    );
    let sent = server.flood(&read, 64 << 20);
    assert!(
        sent < 64 << 20,
        "the server stops taking what it cannot answer"
    );
    assert!(
        server.peak_kib() < PEAK_KIB_MAX,
        "{} KiB",
        server.peak_kib()
    );
    // Each whole request is answered in the end, and in full.
    let whole = (sent / read.len()) as u64;
    assert_eq!(server.skip(whole).len(), 9 + 261_120);
    assert!(
        server.peak_kib() < PEAK_KIB_MAX,
        "{} KiB",
        server.peak_kib()
    );
    server.end();
}

#[test]
fn writes_without_a_cap_cost_bounded_memory() {
    const COUNT: usize = 8192;
    let mut server = Flooded::start("write-flood", 2);
    let fields = [&string(&[0; 4])[..], &[0; 8], &string(&[3; 4096])].concat();
    let write = packet(6, 9, &fields);
    // None of the replies is read meanwhile: they fit the server's output.
    for _ in 0..COUNT {
        server.stream.write_all(&write).expect("the server reads");
    }
    let last = server.skip(COUNT as u64);
    assert_eq!(last[5..9], [0; 4], "success");
    assert!(
        server.peak_kib() < PEAK_KIB_MAX,
        "{} KiB",
        server.peak_kib()
    );
    assert_eq!(server.end().code(), Some(0));
}
