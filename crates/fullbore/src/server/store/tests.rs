//! The store against a real file system: what a confined session can reach, whether the store in
//! memory agrees with it, and calls made elsewhere.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use fullbore_base::{ByteQueue, Rng};
use fullbore_sftp::proto::{
    CheckFile, CheckFileReply, PACKET_BYTES_MAX, Packet, Reply, Request, encode_init, next_packet,
};
use fullbore_sftp::server::memory::MemoryStore;
use fullbore_sftp::server::{Completion, Config, Server};
use fullbore_testkit::Folder;

use super::*;

/// A folder with a root to serve.
struct Scratch(Folder);

impl Scratch {
    fn new() -> Self {
        let folder = Folder::new("store");
        std::fs::create_dir(folder.file("root")).expect("a root");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.file("root"), mode).expect("a mode");
        Self(folder)
    }

    fn root(&self) -> PathBuf {
        self.0.file("root")
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        std::fs::write(self.0.file(path), bytes).expect("a scratch file");
    }

    fn confined(&self) -> FileStore {
        let root = self.root();
        FileStore::new(Options::new(RootPolicy::Confined { root })).expect("a store")
    }
}

/// A client of one store.
struct Peer<S> {
    server: Server,
    store: S,
    out: ByteQueue,
}

struct Answer {
    kind: u8,
    body: Vec<u8>,
}

impl Answer {
    fn reply(&self) -> Reply<'_> {
        let packet = Packet {
            kind: self.kind,
            body: &self.body,
            total_len: 0,
        };
        Reply::parse(packet).expect("servers make whole replies").1
    }

    fn code(&self) -> u32 {
        match self.reply() {
            Reply::Status { code, .. } => code.to_u32(),
            _ => 0,
        }
    }

    fn data(&self) -> Vec<u8> {
        match self.reply() {
            Reply::Handle(bytes) | Reply::Data(bytes) | Reply::Extended(bytes) => bytes.to_vec(),
            other => panic!("not bytes: {other:?}"),
        }
    }

    fn names(&self) -> Vec<Vec<u8>> {
        match self.reply() {
            Reply::Name(names) => names.iter().map(|name| name.filename.to_vec()).collect(),
            other => panic!("not names: {other:?}"),
        }
    }
}

impl<S: Store> Peer<S> {
    fn new(store: S) -> Self {
        let mut peer = Self {
            server: Server::new(Config::default()),
            store,
            out: ByteQueue::new(1024 * 1024),
        };
        let mut init = Vec::new();
        encode_init(&mut init, 3);
        peer.feed(&init);
        let len = peer.out.len();
        peer.out.consume(len);
        peer
    }

    fn feed(&mut self, view: &[u8]) -> usize {
        self.server
            .handle_input(view, &mut self.out, &mut self.store)
            .expect("valid input")
    }

    fn answer(&mut self) -> Option<Answer> {
        let packet = next_packet(self.out.as_slice(), PACKET_BYTES_MAX).expect("framing")?;
        let answer = Answer {
            kind: packet.kind,
            body: packet.body.to_vec(),
        };
        let len = packet.total_len;
        self.out.consume(len);
        Some(answer)
    }

    fn ask(&mut self, request: Request<'_>) -> Answer {
        let mut bytes = Vec::new();
        request.encode(1, &mut bytes);
        assert_eq!(self.feed(&bytes), bytes.len());
        self.answer().expect("an answer at once")
    }

    fn open(&mut self, path: &[u8], flags: OpenFlags) -> Answer {
        let attrs = Attrs::EMPTY;
        self.ask(Request::Open { path, flags, attrs })
    }

    /// The content of a file, or the code of what refused it.
    fn content(&mut self, path: &[u8]) -> Result<Vec<u8>, u32> {
        let answer = self.open(path, OpenFlags::READ);
        if answer.code() != 0 {
            return Err(answer.code());
        }
        let handle = answer.data();
        let answer = self.ask(Request::Read {
            handle: &handle,
            offset: 0,
            len: 1000,
        });
        let result = match answer.code() {
            0 => Ok(answer.data()),
            code => Err(code),
        };
        self.ask(Request::Close { handle: &handle });
        result
    }
}

const NEW: OpenFlags = OpenFlags::WRITE
    .with(OpenFlags::CREAT)
    .with(OpenFlags::TRUNC);

/// Everything that could reach or change what lies at `path`.
fn attempts(path: &[u8]) -> Vec<Request<'_>> {
    let attrs = Attrs {
        permissions: Some(0o600),
        times: Some((1, 1)),
        size: Some(0),
        uid_gid: Some((1, 1)),
    };
    let check = CheckFile {
        algorithms: b"sha256",
        offset: 0,
        len: 0,
        block_bytes: 0,
    };
    vec![
        Request::Open {
            path,
            flags: OpenFlags::READ,
            attrs,
        },
        Request::Open {
            path,
            flags: NEW,
            attrs,
        },
        Request::Setstat { path, attrs },
        Request::Opendir { path },
        Request::Stat { path },
        Request::Remove { path },
        Request::Rmdir { path },
        Request::PosixRename {
            from: path,
            to: b"/stolen",
        },
        Request::Rename {
            from: path,
            to: b"/stolen",
        },
        Request::Hardlink {
            from: path,
            to: b"/stolen",
        },
        Request::CheckFileName { path, check },
    ]
}

#[test]
fn no_path_leads_out_of_a_confined_root() {
    let scratch = Scratch::new();
    scratch.write("secret", b"secret");
    std::fs::create_dir(scratch.0.file("outside")).expect("a folder");
    scratch.write("outside/secret", b"secret");
    let root = scratch.root();
    std::fs::create_dir(root.join("d")).expect("a folder");
    let outside = scratch.0.file("outside");
    for (target, link) in [
        (Path::new(".."), "up"),
        (Path::new("../.."), "d/upup"),
        (Path::new("../secret"), "relative"),
        (&scratch.0.file("secret"), "absolute"),
        (&outside, "dir"),
        (Path::new("dir"), "chain"),
        (Path::new("/proc/self/root"), "magic"),
        (Path::new("/proc/self/cwd"), "cwd"),
    ] {
        symlink(target, root.join(link)).expect("a link");
    }
    let absolute = outside.join("secret");
    let absolute = absolute.as_os_str().as_encoded_bytes();
    let mut peer = Peer::new(scratch.confined());
    let paths: [&[u8]; 13] = [
        b"../secret",
        b"/../secret",
        b"d/../../secret",
        b"up/secret",
        b"d/upup/secret",
        b"relative",
        b"absolute",
        b"dir/secret",
        b"chain/secret",
        b"dir/",
        b"magic/etc/passwd",
        b"cwd/Cargo.toml",
        absolute,
    ];
    for path in paths {
        for request in attempts(path) {
            // What the request makes, it makes inside the root; what is outside stays unread.
            let answer = peer.ask(request);
            if let Reply::Attrs(attrs) = answer.reply() {
                assert_ne!(attrs.size, Some(6), "{request:?}");
            }
        }
    }
    for path in ["secret", "outside/secret"] {
        let path = scratch.0.file(path);
        assert_eq!(std::fs::read(&path).expect("still there"), b"secret");
        let mtime = std::fs::metadata(&path).expect("still there").modified();
        let epoch = std::time::UNIX_EPOCH;
        let age = mtime.expect("a time").duration_since(epoch).expect("later");
        assert!(age.as_secs() > 1, "nobody set its times");
    }
    assert_eq!(
        peer.content(b"stolen").ok().filter(|c| c == b"secret"),
        None
    );
    let real = peer.ask(Request::Realpath { path: b"/../.." });
    assert_eq!(real.names(), [b"/"]);
}

#[test]
fn absolute_links_start_at_the_confined_root() {
    let scratch = Scratch::new();
    scratch.write("root/f", b"inside");
    let mut peer = Peer::new(scratch.confined());
    let made = peer.ask(Request::Symlink {
        target: b"/f",
        link: b"/l",
    });
    assert_eq!(made.code(), 0);
    assert_eq!(peer.content(b"l"), Ok(b"inside".to_vec()));
    let real = peer.ask(Request::Realpath { path: b"l" });
    assert_eq!(real.names(), [b"/f"]);
}

#[test]
fn the_root_itself_is_no_entry_to_move_or_remove() {
    let scratch = Scratch::new();
    let mut peer = Peer::new(scratch.confined());
    let attrs = Attrs::EMPTY;
    for path in [&b"/"[..], b".", b"..", b"/..", b"//"] {
        for request in [
            Request::Rmdir { path },
            Request::Remove { path },
            Request::Mkdir { path, attrs },
            Request::PosixRename {
                from: path,
                to: b"x",
            },
            Request::PosixRename {
                from: b"x",
                to: path,
            },
            Request::Symlink {
                target: b"x",
                link: path,
            },
        ] {
            assert_ne!(peer.ask(request).code(), 0, "{request:?}");
        }
        assert_eq!(peer.ask(Request::Stat { path }).kind, 105);
    }
    assert!(scratch.root().is_dir());
}

#[test]
fn what_lies_above_the_root_is_not_shown_in_its_listing() {
    let scratch = Scratch::new();
    let mut peer = Peer::new(scratch.confined());
    let root = peer.ask(Request::Stat { path: b"/" });
    let Reply::Attrs(root) = root.reply() else {
        panic!("attributes");
    };
    std::fs::set_permissions(
        scratch.0.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o711),
    )
    .expect("mode");
    let handle = peer.ask(Request::Opendir { path: b"/" }).data();
    let listing = peer.ask(Request::Readdir { handle: &handle });
    let Reply::Name(names) = listing.reply() else {
        panic!("names");
    };
    let up = names.iter().find(|name| name.filename == b"..");
    assert_eq!(
        up.map(|name| name.attrs.permissions),
        Some(root.permissions)
    );
}

/// A folder and a link out of the root take turns under one name while requests run through it.
#[test]
fn a_rename_race_does_not_open_the_root() {
    const ROUNDS: usize = 3000;
    let scratch = Scratch::new();
    let root = scratch.root();
    std::fs::create_dir(scratch.0.file("outside")).expect("a folder");
    scratch.write("outside/f", b"secret");
    std::fs::create_dir(root.join("real")).expect("a folder");
    scratch.write("root/real/f", b"public");
    symlink(scratch.0.file("outside"), root.join("evil")).expect("a link");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = |name: &str| root.join(name);
            while !stop.load(Ordering::Relaxed) {
                for name in ["real", "evil"] {
                    // Lost turns do no harm.
                    let _ = std::fs::rename(at(name), at("d"));
                    let _ = std::fs::rename(at("d"), at(name));
                }
            }
        });
        let mut peer = Peer::new(scratch.confined());
        let mut public = 0;
        for round in 0..ROUNDS {
            match peer.content(b"d/f") {
                Ok(content) => {
                    assert_eq!(content, b"public");
                    public += 1;
                }
                Err(code) => assert!(matches!(code, 2 | 4), "code {code}"),
            }
            let name = format!("d/new{}", round % 7);
            peer.ask(Request::Mkdir {
                path: name.as_bytes(),
                attrs: Attrs::EMPTY,
            });
            peer.ask(Request::Rename {
                from: b"d/f",
                to: b"d/g",
            });
            peer.ask(Request::Rename {
                from: b"d/g",
                to: b"d/f",
            });
            peer.ask(Request::Setstat {
                path: b"d/f",
                attrs: Attrs {
                    times: Some((1, 1)),
                    ..Attrs::EMPTY
                },
            });
        }
        stop.store(true, Ordering::Relaxed);
        println!("{public} of {ROUNDS} reads found the folder");
    });
    let outside: Vec<_> = std::fs::read_dir(scratch.0.file("outside"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(outside, ["f"]);
    let secret = scratch.0.file("outside/f");
    assert_eq!(std::fs::read(secret).expect("still there"), b"secret");
}

#[test]
fn hard_names_and_new_modes_pass_unchanged() {
    let scratch = Scratch::new();
    let options = Options {
        umask: 0o027,
        ..Options::new(RootPolicy::Confined {
            root: scratch.root(),
        })
    };
    let mut peer = Peer::new(FileStore::new(options).expect("a store"));
    for name in [
        &b"\xff\xfe"[..],
        b"new\nline",
        b"-rf",
        b"* [?]",
        b"e\xcc\x81",
        b"\xc3\xa9",
    ] {
        assert_eq!(peer.open(name, NEW).code(), 0);
        let stat = peer.ask(Request::Stat { path: name });
        let Reply::Attrs(attrs) = stat.reply() else {
            panic!("attributes");
        };
        assert_eq!(attrs.permissions.map(|mode| mode & 0o7027), Some(0));
    }
    let handle = peer.ask(Request::Opendir { path: b"." }).data();
    let names = peer.ask(Request::Readdir { handle: &handle }).names();
    assert_eq!(names.len(), 8);
    assert!(names.contains(&b"\xff\xfe".to_vec()));
}

#[test]
fn a_pipe_does_not_hang_the_session() {
    let scratch = Scratch::new();
    let path = scratch.root().join("p");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a pipe");
    let mut peer = Peer::new(scratch.confined());
    assert_eq!(peer.open(b"p", OpenFlags::WRITE).code(), 4);
    assert_eq!(peer.content(b"p"), Err(4));
}

#[test]
fn files_of_proc_are_read_to_their_end() {
    let start = PathBuf::from("/proc/self");
    let store = FileStore::new(Options::new(RootPolicy::Whole { start })).expect("a store");
    let mut peer = Peer::new(store);
    let status = peer.content(b"status").expect("readable");
    assert!(status.starts_with(b"Name:"));
}

/// Runs calls when the test says so.
struct Later(mpsc::Sender<(Token, Job)>);

impl Offload for Later {
    fn submit(&mut self, token: Token, job: Job) -> bool {
        self.0.send((token, job)).is_ok()
    }
}

#[test]
fn long_calls_go_elsewhere_and_cached_reads_do_not() {
    let scratch = Scratch::new();
    scratch.write("root/f", &[7; 300_000]);
    let (sender, jobs) = mpsc::channel();
    let options = Options {
        offload: Some(Box::new(Later(sender))),
        ..Options::new(RootPolicy::Confined {
            root: scratch.root(),
        })
    };
    let mut peer = Peer::new(FileStore::new(options).expect("a store"));
    assert_eq!(peer.content(b"f"), Ok(vec![7; 1000]), "it is in the cache");
    let handle = peer.open(b"f", OpenFlags::READ).data();
    let mut bytes = Vec::new();
    Request::CheckFileHandle {
        handle: &handle,
        check: CheckFile {
            algorithms: b"blake3",
            offset: 100_000,
            len: 0,
            block_bytes: 100_000,
        },
        echo: false,
    }
    .encode(1, &mut bytes);
    Request::Close { handle: &handle }.encode(2, &mut bytes);
    assert_eq!(peer.feed(&bytes), bytes.len());
    assert!(peer.answer().is_none(), "the close waits for the hash");
    assert_eq!(peer.server.pending_count(), 2);
    let (token, job) = jobs.try_recv().expect("a call");
    let progress = std::thread::spawn(job).join().expect("no panic");
    let Progress::Done(completion) = progress else {
        panic!("a short file takes one slice");
    };
    assert!(matches!(completion, Completion::Digests(Ok(_))));
    peer.server
        .complete(token, completion, &mut peer.out, &mut peer.store);
    let payload = peer.answer().expect("digests").data();
    let reply = CheckFileReply::parse(&payload).expect("digests");
    let digest = blake3::hash(&[7; 100_000]);
    assert_eq!(
        reply.digests,
        [*digest.as_bytes(), *digest.as_bytes()].concat()
    );
    peer.feed(&[]);
    assert_eq!(peer.answer().expect("closed").code(), 0);
}

#[test]
fn calls_without_end_go_in_slices_so_that_others_have_their_turn() {
    let scratch = Scratch::new();
    let sparse = std::fs::File::create(scratch.root().join("sparse")).expect("a file");
    sparse.set_len(1 << 40).expect("a sparse file");
    let (sender, jobs) = mpsc::channel();
    let options = Options {
        offload: Some(Box::new(Later(sender))),
        ..Options::new(RootPolicy::Confined {
            root: scratch.root(),
        })
    };
    let mut peer = Peer::new(FileStore::new(options).expect("a store"));
    let mut bytes = Vec::new();
    let check = CheckFile {
        algorithms: b"sha256",
        offset: 0,
        len: 0,
        block_bytes: 0,
    };
    let path = b"sparse";
    Request::CheckFileName { path, check }.encode(1, &mut bytes);
    assert_eq!(peer.feed(&bytes), bytes.len());
    let (_, mut job) = jobs.try_recv().expect("a call");
    for _ in 0..3 {
        let Progress::More(rest) = job() else {
            panic!("a slice is not the whole");
        };
        job = rest;
    }
    assert!(peer.answer().is_none());
}

#[test]
fn long_calls_are_refused_where_they_would_hold_up_others() {
    let scratch = Scratch::new();
    scratch.write("root/f", b"x");
    let (sender, jobs) = mpsc::channel();
    drop(jobs);
    let options = Options {
        offload: Some(Box::new(Later(sender))),
        ..Options::new(RootPolicy::Confined {
            root: scratch.root(),
        })
    };
    let mut peer = Peer::new(FileStore::new(options).expect("a store"));
    assert_eq!(peer.content(b"f"), Ok(b"x".to_vec()), "a read is short");
    let handle = peer.open(b"f", OpenFlags::READ).data();
    let refused = peer.ask(Request::Fsync { handle: &handle });
    let Reply::Status { code, message } = refused.reply() else {
        panic!("not a status");
    };
    assert_eq!(code, Code::Failure);
    assert!(message.ends_with(b"try again later"));
}

#[test]
fn paths_through_many_deep_links_are_not_walked_for_ever() {
    let scratch = Scratch::new();
    let mut peer = Peer::new(scratch.confined());
    let mut path = Vec::new();
    let attrs = Attrs::EMPTY;
    for _ in 0..1900 {
        path.extend_from_slice(b"/d");
        assert_eq!(peer.ask(Request::Mkdir { path: &path, attrs }).code(), 0);
    }
    let in_it = |n: usize| [&path[..], format!("/{n}").as_bytes()].concat();
    for n in 0..30 {
        let (target, link) = (in_it(n + 1), in_it(n));
        let request = Request::Symlink {
            target: &target,
            link: &link,
        };
        assert_eq!(peer.ask(request).code(), 0);
    }
    let deep = peer.ask(Request::Realpath { path: &path });
    assert_eq!(deep.names(), [path.clone()], "a deep path is one thing");
    let endless = peer.ask(Request::Realpath { path: &in_it(0) });
    // As for a loop of links.
    assert_eq!(endless.code(), Code::NoSuchFile.to_u32());
}

#[test]
fn copies_reach_the_end_and_say_when_it_comes_early() {
    let scratch = Scratch::new();
    scratch.write("root/f", &[3; 200_000]);
    let mut peer = Peer::new(scratch.confined());
    let from = peer.open(b"f", OpenFlags::READ).data();
    for flags in [NEW, NEW.with(OpenFlags::APPEND)] {
        let to = peer.open(b"g", flags).data();
        let mut copy = |len| {
            peer.ask(Request::CopyData {
                from: &from,
                from_offset: 50_000,
                len,
                to: &to,
                to_offset: 0,
            })
            .code()
        };
        assert_eq!(copy(0), 0);
        let got = std::fs::read(scratch.root().join("g")).expect("the copy");
        assert_eq!(got, [3; 150_000]);
        assert_eq!(copy(200_000), 1);
    }
}

/// What a model comparison looks at: everything but times, sizes of folders, inode data.
fn essence(answer: &Answer) -> String {
    match answer.reply() {
        Reply::Status { code, .. } => format!("status {}", code.to_u32()),
        Reply::Handle(handle) => format!("handle {handle:?}"),
        Reply::Data(data) => format!("data {data:?}"),
        Reply::Name(names) => {
            let mut names: Vec<_> = names
                .iter()
                .map(|name| (name.filename.to_vec(), name.attrs.permissions))
                .filter(|(name, _)| name != b"..")
                .collect();
            names.sort();
            format!("names {names:?}")
        }
        Reply::Attrs(attrs) => {
            let size = attrs.size.filter(|_| !attrs.is_dir());
            format!("attrs {size:?} {:?}", attrs.permissions)
        }
        Reply::Extended(_) => "extended".to_owned(),
    }
}

/// One random request over few names, so that they meet.
fn random_request<'a>(rng: &mut Rng, paths: &'a [Vec<u8>], handles: &'a [Vec<u8>]) -> Request<'a> {
    let path = &paths[rng.index(paths.len())][..];
    let to = &paths[rng.index(paths.len())][..];
    let handle = &handles[rng.index(handles.len())][..];
    let offset = rng.below(40);
    let permissions = Some(0o700 | u32::try_from(rng.below(0o100)).unwrap_or(0));
    let attrs = Attrs {
        permissions,
        ..Attrs::EMPTY
    };
    let flags = OpenFlags(u32::try_from(rng.below(0x40)).unwrap_or(0));
    match rng.below(22) {
        0..=3 => Request::Open { path, flags, attrs },
        4 => Request::Close { handle },
        5 => Request::Read {
            handle,
            offset,
            len: 20,
        },
        6 | 7 => Request::Write {
            handle,
            offset,
            data: b"0123456789",
        },
        8 => Request::Lstat { path },
        9 => Request::Stat { path },
        10 => Request::Fstat { handle },
        11 => Request::Setstat {
            path,
            attrs: Attrs {
                size: Some(offset),
                ..attrs
            },
        },
        12 => Request::Opendir { path },
        13 => Request::Readdir { handle },
        14 => Request::Remove { path },
        15 => Request::Mkdir { path, attrs },
        16 => Request::Rmdir { path },
        17 => Request::Rename { from: path, to },
        18 => Request::PosixRename { from: path, to },
        19 => Request::Symlink {
            target: path,
            link: to,
        },
        20 => Request::Hardlink { from: path, to },
        _ => Request::Readlink { path },
    }
}

/// A request with its paths as text.
fn shown(request: &Request<'_>) -> String {
    let mut bytes = Vec::new();
    request.encode(0, &mut bytes);
    let kind = request.kind().map_or("", |kind| kind.name());
    format!("{kind} {}", bytes[9..].escape_ascii())
}

#[test]
fn the_store_in_memory_agrees_with_the_real_one() {
    let seed = fullbore_testkit::seed(0x57_0e);
    let mut rng = Rng::seeded(seed);
    let names = [
        "a", "b", "c", "a/b", "a/c", "b/a", "a/b/c", "a/..", "/b/.", "c/", "..", "/a/./b",
    ];
    let paths: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    // Modes must come out the same, so the process's own mask must not be in the way.
    let umask = rustix::process::umask(Mode::empty());
    for round in 0..60 {
        let scratch = Scratch::new();
        let mut real = Peer::new(scratch.confined());
        let mut model = Peer::new(MemoryStore::new(1 << 20));
        let mut handles = vec![vec![0, 0, 0, 99]];
        let mut history = Vec::new();
        for _ in 0..200 {
            let request = random_request(&mut rng, &paths, &handles);
            let (got, expected) = (real.ask(request), model.ask(request));
            let (mut got_text, mut expected_text) = (essence(&got), essence(&expected));
            if let Request::Rename { .. } | Request::PosixRename { .. } | Request::Hardlink { .. } =
                request
            {
                // Which of two wrong paths is complained about is nobody's business.
                got_text = format!("succeeds: {}", got.code() == 0);
                expected_text = format!("succeeds: {}", expected.code() == 0);
            }
            history.push(format!("{} -> {got_text}", shown(&request)));
            assert_eq!(
                got_text,
                expected_text,
                "seed {seed} round {round}:\n{}",
                history.join("\n")
            );
            if let Reply::Handle(handle) = got.reply() {
                handles.push(handle.to_vec());
            }
        }
    }
    rustix::process::umask(umask);
}
