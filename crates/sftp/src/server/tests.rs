//! The engine over the memory store: each request, each refusal, and what a flood may cost.

use fullbore_base::{ByteQueue, Outlet, Rng};

use super::memory::MemoryStore;
use super::*;
use crate::proto::{
    Attrs, CheckFile, CheckFileReply, HashAlgorithm, Ids, Limits, NamesById, OpenFlags,
    PACKET_BYTES_MAX, StatVfs, SymlinkOrder, Version, encode_init,
};

mod pending;

const LIMIT: usize = 4 * 1024 * 1024;

/// A client without a network.
struct Peer {
    server: Server,
    store: MemoryStore,
    out: ByteQueue,
    next_id: u32,
}

/// A reply with bytes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    fn id(&self) -> u32 {
        u32::from_be_bytes(self.body[..4].try_into().expect("an id"))
    }

    fn code(&self) -> u32 {
        match self.reply() {
            Reply::Status { code, .. } => code.to_u32(),
            other => panic!("not a status: {other:?}"),
        }
    }

    fn handle(&self) -> Vec<u8> {
        match self.reply() {
            Reply::Handle(handle) => handle.to_vec(),
            other => panic!("not a handle: {other:?}"),
        }
    }

    fn data(&self) -> Vec<u8> {
        match self.reply() {
            Reply::Data(data) => data.to_vec(),
            other => panic!("not data: {other:?}"),
        }
    }

    fn names(&self) -> Vec<Vec<u8>> {
        match self.reply() {
            Reply::Name(names) => names.iter().map(|name| name.filename.to_vec()).collect(),
            other => panic!("not names: {other:?}"),
        }
    }

    fn attrs(&self) -> Attrs {
        match self.reply() {
            Reply::Attrs(attrs) => attrs,
            other => panic!("not attributes: {other:?}"),
        }
    }

    fn payload(&self) -> Vec<u8> {
        match self.reply() {
            Reply::Extended(payload) => payload.to_vec(),
            other => panic!("not an extended reply: {other:?}"),
        }
    }
}

impl Peer {
    fn new(config: Config) -> Self {
        let mut peer = Self::before_init(config);
        assert_eq!(peer.feed(&init(3)), Ok(9));
        peer.answers();
        peer
    }

    fn before_init(config: Config) -> Self {
        Self {
            server: Server::new(config),
            store: MemoryStore::new(64 * 1024 * 1024),
            out: ByteQueue::new(LIMIT),
            next_id: 0,
        }
    }

    fn feed(&mut self, view: &[u8]) -> Result<usize, Error> {
        self.server
            .handle_input(view, &mut self.out, &mut self.store)
    }

    fn answers(&mut self) -> Vec<Answer> {
        let answers = split(self.out.as_slice());
        let len = self.out.len();
        self.out.consume(len);
        answers
    }

    fn ask(&mut self, request: Request<'_>) -> Answer {
        self.next_id += 1;
        let mut bytes = Vec::new();
        request.encode(self.next_id, &mut bytes);
        assert_eq!(self.feed(&bytes), Ok(bytes.len()));
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "one reply each: {request:?}");
        let answer = answers.remove(0);
        assert_eq!(answer.id(), self.next_id);
        answer
    }

    fn open(&mut self, path: &[u8], flags: OpenFlags) -> Vec<u8> {
        self.ask(open(path, flags)).handle()
    }

    fn make(&mut self, path: &[u8], data: &[u8]) {
        let handle = self.open(path, NEW);
        for (i, chunk) in data.chunks(200_000).enumerate() {
            let write = Request::Write {
                handle: &handle,
                offset: i as u64 * 200_000,
                data: chunk,
            };
            assert_eq!(self.ask(write).code(), 0);
        }
        assert_eq!(self.ask(Request::Close { handle: &handle }).code(), 0);
    }

    fn finish(&mut self, done: Option<(Token, Completion)>) {
        let (token, completion) = done.expect("something is pending");
        self.server
            .complete(token, completion, &mut self.out, &mut self.store);
    }
}

const NEW: OpenFlags = OpenFlags::WRITE
    .with(OpenFlags::CREAT)
    .with(OpenFlags::TRUNC);

fn open(path: &[u8], flags: OpenFlags) -> Request<'_> {
    Request::Open {
        path,
        flags,
        attrs: Attrs::EMPTY,
    }
}

fn init(version: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_init(&mut bytes, version);
    bytes
}

fn read(handle: &[u8], offset: u64, len: u32) -> Request<'_> {
    Request::Read {
        handle,
        offset,
        len,
    }
}

fn split(mut view: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some(packet) = next_packet(view, PACKET_BYTES_MAX).expect("replies within the limit")
    {
        answers.push(Answer {
            kind: packet.kind,
            body: packet.body.to_vec(),
        });
        view = &view[packet.total_len..];
    }
    assert!(view.is_empty(), "replies are whole");
    answers
}

fn burst(count: u32, request: Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for id in 0..count {
        request.encode(id, &mut bytes);
    }
    bytes
}

fn extensions(answer: &Answer) -> Vec<String> {
    let packet = Packet {
        kind: answer.kind,
        body: &answer.body,
        total_len: 0,
    };
    let version = Version::parse(packet).expect("a VERSION");
    assert_eq!(version.version, 3);
    let names = version.extensions.iter().map(|(name, data)| {
        let (name, data) = (String::from_utf8_lossy(name), String::from_utf8_lossy(data));
        format!("{name} {data}")
    });
    names.collect()
}

#[test]
fn version_is_3_whatever_is_offered_and_lists_what_is_served() {
    let mut peer = Peer::before_init(Config::default());
    assert_eq!(peer.feed(&init(77)), Ok(9));
    let all = extensions(&peer.answers()[0]);
    assert_eq!(
        all,
        [
            "posix-rename@openssh.com 1",
            "statvfs@openssh.com 2",
            "fstatvfs@openssh.com 2",
            "hardlink@openssh.com 1",
            "fsync@openssh.com 1",
            "lsetstat@openssh.com 1",
            "limits@openssh.com 1",
            "expand-path@openssh.com 1",
            "copy-data 1",
            "home-directory 1",
            "users-groups-by-id@openssh.com 1",
            "check-file sha256,blake3",
        ]
    );
    assert_eq!(
        peer.feed(&init(3)),
        Ok(9),
        "a second INIT is answered again"
    );
    assert_eq!(extensions(&peer.answers()[0]), all);

    let mut peer = Peer::before_init(Config {
        read_only: true,
        ..Config::default()
    });
    assert_eq!(peer.feed(&init(3)), Ok(9));
    let served = extensions(&peer.answers()[0]);
    assert_eq!(served.len(), 7);
    assert!(!served.iter().any(|name| name.starts_with("posix-rename")));
}

#[test]
fn clients_below_version_3_get_a_bare_status() {
    let mut peer = Peer::before_init(Config::default());
    assert_eq!(peer.feed(&init(2)), Ok(9));
    peer.answers();
    let answer = peer.ask(Request::Stat { path: b"nope" });
    assert_eq!(answer.body.len(), 8);
    assert_eq!(answer.code(), 2);
}

#[test]
fn broken_sessions_end_and_stay_ended() {
    let stat = burst(1, Request::Stat { path: b"/" });
    let mut cut = stat.clone();
    cut[12] = 9;
    let nul = burst(1, Request::Stat { path: b"a\0b" });
    let cases: [(bool, &[u8], Error); 5] = [
        (false, &stat, Error::RequestBeforeInit),
        (
            true,
            &cut,
            Error::InvalidMessage(InvalidMessage::Truncated("path")),
        ),
        (true, &nul, Error::InvalidMessage(InvalidMessage::NulInPath)),
        (
            true,
            &[0, 4, 0, 1],
            Error::InvalidMessage(InvalidMessage::TooLong {
                len: 262_145,
                len_max: 262_144,
            }),
        ),
        (true, &[0; 4], Error::InvalidMessage(InvalidMessage::Empty)),
    ];
    for (is_open, view, error) in cases {
        let mut peer = if is_open {
            Peer::new(Config::default())
        } else {
            Peer::before_init(Config::default())
        };
        assert_eq!(peer.feed(view), Err(error));
        assert_eq!(peer.feed(&init(3)), Err(error));
        assert_eq!(peer.server.error(), Some(error));
        assert!(peer.out.is_empty());
    }
}

#[test]
fn a_packet_of_exactly_the_limit_is_served() {
    let mut peer = Peer::new(Config::default());
    let handle = peer.open(b"f", NEW);
    let header_len = crate::proto::write_header_len(4) - LEN_WORD;
    let data = vec![7; PACKET_BYTES_MAX as usize - header_len];
    let write = Request::Write {
        handle: &handle,
        offset: 0,
        data: &data,
    };
    assert_eq!(write.encoded_len(), LEN_WORD + PACKET_BYTES_MAX as usize);
    assert_eq!(peer.ask(write).code(), 0);
}

#[test]
fn input_may_come_in_any_pieces() {
    let mut peer = Peer::before_init(Config::default());
    let mut stream = init(3);
    stream.extend(burst(3, Request::Stat { path: b"/" }));
    let mut view = Vec::new();
    for byte in stream {
        view.push(byte);
        let taken = peer.feed(&view).expect("valid input");
        assert_eq!(peer.server.stop(), Stop::Input);
        view.drain(..taken);
    }
    assert!(view.is_empty());
    assert_eq!(peer.answers().len(), 4);
}

#[test]
fn files_are_written_and_read_back() {
    let mut peer = Peer::new(Config::default());
    let data: Vec<u8> = (0..600_000u32).map(|i| (i % 251) as u8).collect();
    peer.make(b"f", &data);
    let handle = peer.open(b"f", OpenFlags::READ);
    assert_eq!(peer.ask(read(&handle, 0, 10)).data(), data[..10]);
    let long = peer.ask(read(&handle, 5, u32::MAX)).data();
    assert_eq!(long, data[5..5 + 261_120]);
    assert_eq!(peer.ask(read(&handle, 599_999, 10)).data(), data[599_999..]);
    assert_eq!(peer.ask(read(&handle, 600_000, 10)).code(), 1);
    assert_eq!(peer.ask(read(&handle, 600_000, 0)).data(), b"");
    assert_eq!(peer.ask(read(&handle, 1 << 63, 1)).code(), 5);
    let attrs = peer.ask(Request::Fstat { handle: &handle }).attrs();
    assert_eq!(attrs.size, Some(600_000));
    assert_eq!(peer.ask(Request::Fsync { handle: &handle }).code(), 0);
    let figures = peer.ask(Request::Fstatvfs { handle: &handle }).payload();
    assert_eq!(StatVfs::parse(&figures).expect("figures").namemax, 255);
}

#[test]
fn appending_ignores_the_offset() {
    let mut peer = Peer::new(Config::default());
    let handle = peer.open(b"f", NEW.with(OpenFlags::APPEND));
    for _ in 0..2 {
        let write = Request::Write {
            handle: &handle,
            offset: 99,
            data: b"ab",
        };
        assert_eq!(peer.ask(write).code(), 0);
    }
    assert_eq!(peer.ask(Request::Stat { path: b"f" }).attrs().size, Some(4));
}

#[test]
fn a_full_disk_says_so() {
    let mut peer = Peer::new(Config::default());
    peer.store = MemoryStore::new(10);
    let handle = peer.open(b"f", NEW);
    let answer = peer.ask(Request::Write {
        handle: &handle,
        offset: 0,
        data: &[0; 11],
    });
    let Reply::Status { code, message } = answer.reply() else {
        panic!("a status");
    };
    assert_eq!(code, Code::Failure);
    assert_eq!(message, b"no space left on device");
}

#[test]
fn names_are_made_moved_linked_and_removed() {
    let mut peer = Peer::new(Config::default());
    peer.make(b"f", b"x");
    peer.make(b"g", b"yy");
    let attrs = Attrs::EMPTY;
    let (f, g): (&[u8], &[u8]) = (b"f", b"g");
    for (request, code) in [
        (Request::Mkdir { path: b"d", attrs }, 0),
        (Request::Mkdir { path: b"d", attrs }, 4),
        (Request::Rename { from: f, to: g }, 4),
        (
            Request::Rename {
                from: f,
                to: b"d/f",
            },
            0,
        ),
        (Request::Rename { from: f, to: b"h" }, 2),
        (
            Request::PosixRename {
                from: b"d/f",
                to: g,
            },
            0,
        ),
        (Request::Hardlink { from: g, to: b"h" }, 0),
        (Request::Hardlink { from: g, to: b"h" }, 4),
        (
            Request::Symlink {
                target: b"g",
                link: b"l",
            },
            0,
        ),
        (Request::Rmdir { path: b"g" }, 2),
        (Request::Remove { path: b"d" }, 4),
        (Request::Rmdir { path: b"d" }, 0),
        (Request::Remove { path: b"g" }, 0),
        (Request::Remove { path: b"g" }, 2),
    ] {
        assert_eq!(peer.ask(request).code(), code, "{request:?}");
    }
    assert_eq!(peer.ask(Request::Readlink { path: b"l" }).names(), [b"g"]);
    assert_eq!(peer.ask(Request::Stat { path: b"l" }).code(), 2);
    assert_eq!(peer.ask(Request::Stat { path: b"h" }).attrs().size, Some(1));
    let link = peer.ask(Request::Lstat { path: b"l" }).attrs();
    assert_eq!(link.permissions, Some(0o120_777));
    assert_eq!(peer.ask(Request::Realpath { path: b"" }).names(), [b"/"]);
    let real = peer.ask(Request::Realpath { path: b"./x/../l" });
    assert_eq!(real.code(), 2, "only the last component may be missing");
    assert_eq!(peer.ask(Request::Realpath { path: b"l" }).names(), [b"/g"]);
    let home = Request::ExpandPath { path: b"~/new" };
    assert_eq!(peer.ask(home).names(), [b"/new"]);
    assert_eq!(peer.ask(Request::ExpandPath { path: b"~who" }).code(), 2);
    let home = Request::HomeDirectory { user: b"" };
    assert_eq!(peer.ask(home).names(), [b"/"]);
}

#[test]
fn attributes_are_set_by_path_link_and_handle() {
    let mut peer = Peer::new(Config::default());
    peer.make(b"f", b"12345");
    let attrs = Attrs {
        size: Some(2),
        uid_gid: Some((7, 8)),
        permissions: Some(0o104_711),
        times: Some((9, 10)),
    };
    assert_eq!(peer.ask(Request::Setstat { path: b"f", attrs }).code(), 0);
    let now = peer.ask(Request::Stat { path: b"f" }).attrs();
    assert_eq!(
        now,
        Attrs {
            permissions: Some(0o104_711),
            ..attrs
        }
    );
    assert_eq!(peer.ask(Request::Lsetstat { path: b"f", attrs }).code(), 5);
    let handle = peer.open(b"f", OpenFlags::WRITE);
    let handle = &handle;
    assert_eq!(peer.ask(Request::Fsetstat { handle, attrs }).code(), 0);
}

#[test]
fn the_draft_order_of_symlink_is_a_switch() {
    let mut peer = Peer::new(Config {
        symlink_order: SymlinkOrder::Draft,
        ..Config::default()
    });
    let sent = Request::Symlink {
        target: b"link",
        link: b"target",
    };
    assert_eq!(peer.ask(sent).code(), 0);
    let answer = peer.ask(Request::Readlink { path: b"link" });
    assert_eq!(answer.names(), [b"target"]);
}

#[test]
fn unknown_requests_are_unsupported() {
    let mut peer = Peer::new(Config::default());
    assert_eq!(peer.ask(Request::Unknown { packet_type: 99 }).code(), 8);
    assert_eq!(peer.ask(Request::UnknownExtended { name: b"x" }).code(), 8);
}

#[test]
fn unknown_handles_are_answered_as_openssh_does() {
    let mut peer = Peer::new(Config::default());
    let dir = peer.ask(Request::Opendir { path: b"/" }).handle();
    let file = peer.open(b"f", NEW.with(OpenFlags::READ));
    peer.ask(Request::Close { handle: &file });
    let attrs = Attrs::EMPTY;
    for handle in [&b"\0\0\0\x09"[..], b"", b"long handle", &file] {
        let data = b"x";
        let offset = 0;
        for (request, code) in [
            (read(handle, 0, 1), 4),
            (
                Request::Write {
                    handle,
                    offset,
                    data,
                },
                4,
            ),
            (Request::Fstat { handle }, 4),
            (Request::Fsetstat { handle, attrs }, 4),
            (Request::Readdir { handle }, 4),
            (Request::Fstatvfs { handle }, 4),
            (Request::Close { handle }, 2),
            (Request::Fsync { handle }, 2),
            (
                Request::CopyData {
                    from: handle,
                    from_offset: 0,
                    len: 0,
                    to: &dir,
                    to_offset: 0,
                },
                2,
            ),
        ] {
            assert_eq!(peer.ask(request).code(), code, "{request:?}");
        }
    }
    assert_eq!(peer.ask(read(&dir, 0, 1)).code(), 4, "a folder is no file");
    assert_eq!(peer.ask(Request::Close { handle: &dir }).code(), 0);
}

#[test]
fn the_handle_table_is_bounded() {
    let mut peer = Peer::new(Config {
        handles_max: 2,
        ..Config::default()
    });
    let first = peer.open(b"a", NEW);
    peer.open(b"b", NEW);
    assert_eq!(peer.ask(open(b"c", NEW)).code(), 4);
    assert_eq!(peer.ask(Request::Stat { path: b"c" }).code(), 2);
    assert_eq!(peer.ask(Request::Close { handle: &first }).code(), 0);
    peer.open(b"c", NEW);
    assert_eq!(peer.server.handle_count(), 2);
}

#[test]
fn refused_requests_are_denied_and_read_only_refuses_changes() {
    let mut config = Config {
        read_only: true,
        ..Config::default()
    };
    config.requests.remove(RequestKind::Stat);
    let mut peer = Peer::new(config);
    let (path, attrs): (&[u8], _) = (b"f", Attrs::EMPTY);
    for request in [
        Request::Stat { path },
        Request::Mkdir { path, attrs },
        Request::Remove { path },
        Request::Setstat { path, attrs },
        Request::PosixRename {
            from: path,
            to: path,
        },
        open(path, NEW),
        open(path, OpenFlags::READ.with(OpenFlags::TRUNC)),
        open(path, OpenFlags::APPEND),
    ] {
        assert_eq!(peer.ask(request).code(), 3, "{request:?}");
    }
    assert_eq!(peer.ask(open(b"/", OpenFlags::READ)).kind, 102);
    assert_eq!(peer.ask(Request::Lstat { path: b"/" }).kind, 105);
}

#[test]
fn folders_are_listed_in_full_replies_each_name_once() {
    let mut peer = Peer::new(Config::default());
    let count = 5000;
    for i in 0..count {
        peer.make(format!("name-{i:05}").as_bytes(), b"");
    }
    let dir = peer.ask(Request::Opendir { path: b"." }).handle();
    let mut seen = Vec::new();
    let mut lens = Vec::new();
    loop {
        let answer = peer.ask(Request::Readdir { handle: &dir });
        if answer.kind == fxp::SSH_FXP_STATUS {
            assert_eq!(answer.code(), 1);
            break;
        }
        lens.push(answer.body.len() + 5);
        seen.extend(answer.names());
    }
    let limit = Config::default().readdir_bytes_max;
    let last = lens.pop().expect("names");
    assert!(last <= limit);
    assert!(lens.iter().all(|&len| len <= limit && len > limit - 100));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count + 2);
    assert_eq!(peer.ask(Request::Readdir { handle: &dir }).code(), 1);
}

#[test]
fn limits_and_names_of_ids_are_told() {
    let mut peer = Peer::new(Config {
        handles_told: 17,
        ..Config::default()
    });
    let limits = Limits::parse(&peer.ask(Request::Limits).payload()).expect("limits");
    assert_eq!(
        limits,
        Limits {
            packet_bytes_max: 262_144,
            read_bytes_max: 261_120,
            write_bytes_max: 261_120,
            handles_max: 17,
        }
    );
    let packed = [0, 0, 0, 0, 0, 0, 0, 1];
    let ids = Ids::from_packed(&packed).expect("whole");
    let answer = peer.ask(Request::UsersGroupsById {
        uids: ids,
        gids: ids,
    });
    let payload = answer.payload();
    let names = NamesById::parse(&payload).expect("names");
    assert_eq!(names.users().collect::<Vec<_>>(), [&b"root"[..], b""]);
    assert_eq!(names.groups().count(), 2);
}

#[test]
fn names_of_ids_never_exceed_a_packet() {
    let mut peer = Peer::new(Config::default());
    let packed = vec![0; 260_000];
    let answer = peer.ask(Request::UsersGroupsById {
        uids: Ids::from_packed(&packed).expect("whole"),
        gids: Ids::from_packed(&[]).expect("whole"),
    });
    assert!(answer.body.len() < PACKET_BYTES_MAX as usize);
    let payload = answer.payload();
    let names = NamesById::parse(&payload).expect("names");
    assert_eq!(names.users().count(), 65_000);
}

#[test]
fn check_file_hashes_blocks_in_both_reply_forms() {
    let mut peer = Peer::new(Config::default());
    peer.store.set_digest(|algorithm, bytes| {
        let sum = bytes
            .iter()
            .fold(algorithm as u8, |sum, &b| sum.wrapping_add(b));
        vec![sum; 32]
    });
    peer.make(b"f", &[1; 600]);
    let handle = peer.open(b"f", OpenFlags::READ);
    let check = CheckFile {
        algorithms: b"md5,blake3,sha256",
        offset: 0,
        len: 0,
        block_bytes: 256,
    };
    for echo in [false, true] {
        let answer = peer.ask(Request::CheckFileHandle {
            handle: &handle,
            check,
            echo,
        });
        let payload = answer.payload();
        assert_eq!(payload.starts_with(b"\0\0\0\x0acheck-file"), echo);
        let reply = CheckFileReply::parse(&payload).expect("digests");
        assert_eq!(reply.algorithm, HashAlgorithm::Blake3);
        let sums: Vec<u8> = reply.digests.chunks(32).map(|digest| digest[0]).collect();
        assert_eq!(sums, [1, 1, 89]);
    }
    for (algorithms, block_bytes, len, code) in [
        (&b"md5"[..], 0, 0, 4),
        (b"sha256", 255, 0, 4),
        (b"sha256", 0, 601, 1),
    ] {
        let check = CheckFile {
            algorithms,
            offset: 0,
            len,
            block_bytes,
        };
        let request = Request::CheckFileName { path: b"f", check };
        assert_eq!(peer.ask(request).code(), code, "{request:?}");
    }
}

#[test]
fn copies_go_between_handles() {
    let mut peer = Peer::new(Config::default());
    peer.make(b"f", b"0123456789");
    let from = peer.open(b"f", OpenFlags::READ);
    let to = peer.open(b"g", NEW);
    let copy = |from_offset, len, to_offset| Request::CopyData {
        from: &from,
        from_offset,
        len,
        to: &to,
        to_offset,
    };
    assert_eq!(peer.ask(copy(2, 3, 0)).code(), 0);
    assert_eq!(peer.ask(copy(5, 0, 3)).code(), 0);
    assert_eq!(peer.ask(copy(5, 9, 3)).code(), 1);
    assert_eq!(peer.ask(Request::Stat { path: b"g" }).attrs().size, Some(8));
    let same = Request::CopyData {
        from: &from,
        from_offset: 0,
        len: 1,
        to: &from,
        to_offset: 0,
    };
    assert_eq!(peer.ask(same).code(), 4);
}

/// Lends slices of a few bytes, as a channel with tiny packets does, and never more room than
/// `room`.
struct Shards {
    bytes: Vec<u8>,
    room: usize,
}

impl Outlet for Shards {
    fn room(&self) -> usize {
        self.room
    }

    fn emit(
        &mut self,
        len_max: usize,
        fill: &mut dyn FnMut(&mut [std::io::IoSliceMut<'_>]) -> usize,
    ) -> bool {
        if len_max > self.room {
            return false;
        }
        let start = self.bytes.len();
        self.bytes.resize(start + len_max, 0xee);
        let mut slices: Vec<_> = self.bytes[start..]
            .chunks_mut(7)
            .map(std::io::IoSliceMut::new)
            .collect();
        let n = fill(&mut slices);
        self.bytes.truncate(start + n);
        self.room -= n;
        true
    }
}

#[test]
fn replies_are_the_same_over_any_slices() {
    let mut peer = Peer::new(Config::default());
    peer.make(b"f", b"some bytes that span several shards");
    let handle = peer.open(b"f", OpenFlags::READ);
    let dir = peer.ask(Request::Opendir { path: b"/" }).handle();
    for request in [
        read(&handle, 3, 100),
        Request::Stat { path: b"f" },
        Request::Realpath { path: b"f" },
        Request::Limits,
        Request::Readdir { handle: &dir },
    ] {
        let bytes = burst(1, request);
        let mut shards = Shards {
            bytes: Vec::new(),
            room: LIMIT,
        };
        let Peer { server, store, .. } = &mut peer;
        let taken = server.handle_input(&bytes, &mut shards, store);
        assert_eq!(taken, Ok(bytes.len()));
        assert_eq!(split(&shards.bytes).len(), 1, "{request:?}");
        assert_eq!(shards.bytes.len() + shards.room, LIMIT);
        if let Request::Read { .. } = request {
            assert_eq!(
                split(&shards.bytes)[0].data(),
                b"e bytes that span several shards"
            );
        }
    }
}

#[test]
fn a_read_burst_stops_at_the_outlets_bound_and_loses_nothing() {
    const COUNT: u32 = 2048;
    let mut peer = Peer::new(Config::default());
    peer.make(b"f", &[5; 32 * 1024]);
    let handle = peer.open(b"f", OpenFlags::READ);
    peer.out = ByteQueue::new(Config::default().reply_len_max());
    let view = burst(COUNT, read(&handle, 0, 32 * 1024));
    let calls = peer.store.call_count();
    let mut taken = 0;
    let mut replies = 0;
    while replies < COUNT as usize {
        taken += peer.feed(&view[taken..]).expect("valid input");
        // Held back, however often it is asked.
        for _ in 0..10 {
            assert_eq!(peer.feed(&view[taken..]), Ok(0));
        }
        assert!(peer.out.len() <= Config::default().reply_len_max());
        let answers = peer.answers();
        assert!(
            answers
                .iter()
                .all(|answer| answer.data().len() == 32 * 1024)
        );
        assert!(!answers.is_empty(), "progress whenever there is room");
        replies += answers.len();
    }
    assert_eq!(taken, view.len());
    let work = peer.store.call_count() - calls;
    assert_eq!(work, u64::from(COUNT), "each request is executed once");
}

#[test]
fn the_work_of_a_turn_is_bounded_and_independent_of_the_backlog() {
    let config = Config {
        work_count_max: 10,
        ..Config::default()
    };
    for count in [20, 20_000] {
        let mut peer = Peer::new(config.clone());
        let handle = peer.open(b"f", NEW);
        let write = Request::Write {
            handle: &handle,
            offset: 0,
            data: &[1; 16],
        };
        let view = burst(count, write);
        let calls = peer.store.call_count();
        let taken = peer.feed(&view).expect("valid input");
        assert_eq!(peer.server.stop(), Stop::Work);
        assert_eq!(taken, 10 * write.encoded_len());
        assert_eq!(peer.store.call_count() - calls, 10);
    }
}

#[test]
fn garbage_neither_panics_nor_grows_the_output() {
    let mut rng = Rng::seeded(fullbore_testkit::seed(0x5f7d));
    let samples = crate::proto::tests::every_request();
    for _ in 0..3000 {
        let mut peer = Peer::new(Config::default());
        peer.store = MemoryStore::new(1 << 16);
        peer.out = ByteQueue::new(Config::default().reply_len_max());
        let mut view = Vec::new();
        for id in 0..8 {
            samples[rng.index(samples.len())].encode(id, &mut view);
        }
        for _ in 0..rng.below(6) {
            let at = rng.index(view.len());
            view[at] = rng.next_u64().to_be_bytes()[0];
        }
        let mut at = 0;
        while let Ok(taken) = peer.feed(&view[at..]) {
            assert!(peer.out.len() <= peer.out.limit());
            split(peer.out.as_slice());
            at += taken;
            let len = peer.out.len();
            peer.out.consume(len);
            if taken == 0 {
                break;
            }
        }
    }
}
