//! SFTP packets, and the client engine against any server.

use std::io::IoSliceMut;

use fullbore_base::{ByteQueue, Instant};
use fullbore_sftp::client::{BlockError, Blocks, BulkId, Client, Config};
use fullbore_sftp::proto::{
    self, Attrs, CheckFileReply, Limits, NamesById, OpenFlags, Reply, Request, StatVfs, Version,
};
use fullbore_sftp::server::{self, Server, Stop};

use crate::store::Chance;

/// Bytes that a session's outlet holds; more than one longest message.
const OUTLET_BYTES: usize = 1 << 20;

/// What parses as a request prints back as something that parses to the same.
pub fn request(data: &[u8]) {
    let Ok(Some(packet)) = proto::next_packet(data, proto::PACKET_BYTES_MAX) else {
        return;
    };
    let _ = proto::parse_init(packet);
    let Ok((id, request)) = Request::parse(packet) else {
        return;
    };
    let mut printed = Vec::new();
    request.encode(id, &mut printed);
    assert_eq!(printed.len(), request.encoded_len());
    let again = proto::next_packet(&printed, u32::MAX)
        .expect("its length is right")
        .expect("it is whole");
    assert_eq!(Request::parse(again), Ok((id, request)));
}

/// As [`request`], for replies.
pub fn reply(data: &[u8]) {
    let Ok(Some(packet)) = proto::next_packet(data, proto::PACKET_BYTES_MAX) else {
        return;
    };
    let Ok((id, reply)) = Reply::parse(packet) else {
        return;
    };
    let mut printed = Vec::new();
    reply.encode(id, &mut printed);
    assert_eq!(printed.len(), reply.encoded_len());
    if let Reply::Extended(payload) = reply {
        extended_reply(payload);
    }
}

/// The payload of an EXTENDED_REPLY, by each request that it may answer.
fn extended_reply(payload: &[u8]) {
    let mut printed = Vec::new();
    if let Ok(limits) = Limits::parse(payload) {
        limits.encode(&mut printed);
        assert_eq!(Limits::parse(&printed), Ok(limits));
    }
    printed.clear();
    if let Ok(figures) = StatVfs::parse(payload) {
        figures.encode(&mut printed);
        assert_eq!(StatVfs::parse(&printed), Ok(figures));
    }
    if let Ok(names) = NamesById::parse(payload) {
        assert!(names.users().chain(names.groups()).count() <= payload.len() / 4);
    }
    if let Ok(reply) = CheckFileReply::parse(payload) {
        assert!(reply.digests.len() <= payload.len());
    }
    // VERSION's list, which stands behind its number.
    let version = [&3u32.to_be_bytes(), payload].concat();
    let packet = proto::Packet {
        kind: 2,
        body: &version,
        total_len: 0,
    };
    if let Ok(version) = Version::parse(packet) {
        assert!(version.extensions.iter().count() <= payload.len() / 8);
    }
}

/// A client in the middle of a download, an upload and a call, and a server that sends `data`.
pub fn client(data: &[u8]) {
    let (now, mut out) = (Instant::ZERO, ByteQueue::new(OUTLET_BYTES));
    let mut client = Client::new(Config::default());
    let mut blocks = Memory;
    let stat = Request::Stat { path: b"/x" };
    let handle = |bytes: &[u8]| fullbore_sftp::client::Handle::new(bytes).expect("it is short");
    let _ = client.request(now, &stat);
    let _ = client.start_get(now, handle(b"get"), 0, 1 << 20);
    let _ = client.start_put(now, handle(b"put"), 0);
    let mut input = b"\0\0\0\x05\x02\0\0\0\x03".to_vec();
    input.extend(data);
    let mut start = 0;
    for end in cuts(&input) {
        while client.poll_transmit(now, &mut out, &mut blocks) && out.len() < OUTLET_BYTES / 2 {}
        out.consume(out.len());
        let view = &input[start..end];
        match client.handle_input(now, view, &mut blocks) {
            Ok(taken) => {
                assert!(taken <= view.len());
                start += taken;
            }
            Err(_) => break,
        }
        while let Some(event) = client.poll_event() {
            if let fullbore_sftp::client::Event::Reply(id) = event {
                let _ = client.take_reply(id);
            }
        }
    }
    client.handle_eof();
}

/// A server that gets `data` behind INIT, with an outlet that is sometimes full and operations that
/// end when they like. Every reply that leaves parses, and answers a request that came.
pub fn server(data: &[u8]) {
    let mut input = b"\0\0\0\x05\x01\0\0\0\x03".to_vec();
    input.extend(data);
    let seed = data
        .iter()
        .fold(0u64, |s, &b| s.rotate_left(5) ^ u64::from(b));
    let config = server::Config::default();
    let mut out = ByteQueue::new(config.reply_len_max() + 4096);
    let mut engine = Server::new(config);
    let mut store = Chance::new(seed);
    let (mut start, mut replies) = (0, 0usize);
    for end in cuts(&input) {
        match engine.handle_input(&input[start..end], &mut out, &mut store) {
            Ok(taken) => {
                assert!(taken <= end - start);
                start += taken;
            }
            Err(_) => return,
        }
        if end % 3 == 0
            && let Some((token, completion)) = store.take_pending()
        {
            engine.complete(token, completion, &mut out, &mut store);
        }
        if end % 5 != 0 {
            replies += check_replies(&mut out);
        }
    }
    // Whatever is under way ends, and then everything whole is answered.
    for _ in 0..=input.len() {
        while let Some((token, completion)) = store.take_pending() {
            engine.complete(token, completion, &mut out, &mut store);
        }
        replies += check_replies(&mut out);
        let Ok(taken) = engine.handle_input(&input[start..], &mut out, &mut store) else {
            return;
        };
        start += taken;
        let is_over = taken == 0 && out.is_empty() && store.pending.is_empty();
        if is_over && engine.stop() == Stop::Input {
            break;
        }
    }
    assert_eq!(engine.pending_count(), 0);
    let whole = packet_count(&input[..start]);
    assert_eq!(replies, whole, "one reply for each request");
}

fn packet_count(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some(packet)) = proto::next_packet(bytes, proto::PACKET_BYTES_MAX) {
        bytes = &bytes[packet.total_len..];
        count += 1;
    }
    count
}

/// Parses and drops every reply in `out`; returns how many.
fn check_replies(out: &mut ByteQueue) -> usize {
    let mut bytes = out.as_slice();
    let mut count = 0;
    while !bytes.is_empty() {
        let packet = proto::next_packet(bytes, proto::PACKET_BYTES_MAX)
            .expect("a reply is well framed")
            .expect("a reply is whole");
        let is_version = packet.kind == proto::fxp::SSH_FXP_VERSION;
        assert!(is_version || Reply::parse(packet).is_ok(), "{packet:?}");
        bytes = &bytes[packet.total_len..];
        count += 1;
    }
    out.consume(out.len());
    count
}

/// Where a stream is cut: at places that its own bytes decide.
pub(crate) fn cuts(data: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while at < data.len() {
        at += 1 + usize::from(data[at]) % 97;
        ends.push(at.min(data.len()));
    }
    ends.push(data.len());
    ends
}

/// A source of zeroes that never ends, and a destination that forgets.
struct Memory;

impl Blocks for Memory {
    fn read_at(
        &mut self,
        _bulk: BulkId,
        offset: u64,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<usize, BlockError> {
        let len: usize = slices.iter().map(|s| s.len()).sum();
        Ok(if offset > 1 << 20 { 0 } else { len })
    }

    fn write_at(&mut self, _bulk: BulkId, _offset: u64, _bytes: &[u8]) -> Result<(), BlockError> {
        Ok(())
    }
}

/// One request of each common kind.
#[must_use]
pub fn request_seeds() -> Vec<Vec<u8>> {
    let attrs = Attrs {
        size: Some(5),
        permissions: Some(0o644),
        times: Some((1, 2)),
        uid_gid: Some((3, 4)),
    };
    let (path, handle) = (&b"/a/path"[..], &b"\0\0\0\x01"[..]);
    let requests = [
        Request::Open {
            path,
            flags: OpenFlags(0x1a),
            attrs,
        },
        Request::Read {
            handle,
            offset: 1 << 40,
            len: 32768,
        },
        Request::Write {
            handle,
            offset: 7,
            data: &[9; 100],
        },
        Request::Close { handle },
        Request::Stat { path },
    ];
    let mut seeds: Vec<Vec<u8>> = requests
        .iter()
        .zip(1..)
        .map(|(request, id)| {
            let mut out = Vec::new();
            request.encode(id, &mut out);
            out
        })
        .collect();
    for name in [
        "posix-rename@openssh.com",
        "statvfs@openssh.com",
        "limits@openssh.com",
        "copy-data",
        "check-file-name",
        "check-file-handle",
        "expand-path@openssh.com",
        "users-groups-by-id@openssh.com",
    ] {
        seeds.push(extended(name));
    }
    seeds
}

/// A session: files opened, used in every way and closed, by the handles a new server gives.
#[must_use]
pub fn session_seeds() -> Vec<Vec<u8>> {
    let mut seeds = request_seeds();
    let all: Vec<u8> = seeds.concat();
    let mut session = Vec::new();
    for round in 0..4u8 {
        session.extend(&seeds[0]);
        for kind in [5u8, 6, 8, 10, 12, 4] {
            let mut body = vec![kind, 0, 0, 0, round, 0, 0, 0, 4, 0, 0, 0, round];
            body.extend([0; 16]);
            session.extend(u32::try_from(body.len()).unwrap_or(0).to_be_bytes());
            session.extend(body);
        }
    }
    for kind in 7..=20u8 {
        let mut body = vec![kind, 0, 0, 1, kind];
        for path in [b"/one", b"/two"] {
            body.extend([0, 0, 0, 4]);
            body.extend(path);
        }
        session.extend(u32::try_from(body.len()).unwrap_or(0).to_be_bytes());
        session.extend(body);
    }
    seeds.extend([all, session]);
    seeds
}

fn extended(name: &str) -> Vec<u8> {
    let mut body = vec![200, 0, 0, 0, 9];
    for part in [name.as_bytes(), b"/first", b"/second", b"sha256,blake3"] {
        body.extend(u32::try_from(part.len()).unwrap_or(0).to_be_bytes());
        body.extend(part);
    }
    body.extend([0; 24]);
    let mut packet = u32::try_from(body.len())
        .unwrap_or(0)
        .to_be_bytes()
        .to_vec();
    packet.extend(body);
    packet
}

/// One reply of each kind, to the numbers a new client gives first.
#[must_use]
pub fn reply_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for id in 0u32..4 {
        for (kind, rest) in [
            (101u8, &b"\0\0\0\x04\0\0\0\x02no\0\0\0\0"[..]),
            (101, b"\0\0\0\0\0\0\0\0\0\0\0\0"),
            (102, b"\0\0\0\x04hand"),
            (103, b"\0\0\0\x05bytes"),
            (104, b"\0\0\0\x01\0\0\0\x01a\0\0\0\x01b\0\0\0\0"),
            (105, b"\0\0\0\x01\0\0\0\0\0\0\0\x05"),
            (201, b"\0\0\0\0\0\x04\0\0"),
            (201, &[0; 88]),
            (201, b"\0\0\0\x08\0\0\0\x04root\0\0\0\x04\0\0\0\0"),
            (201, b"\0\0\0\x06sha256 one digest of thirty-two byte"),
            (201, b"\0\0\0\x06limits\0\0\0\x011"),
        ] {
            let mut body = vec![kind];
            body.extend(id.to_be_bytes());
            body.extend(rest);
            let mut packet = u32::try_from(body.len())
                .unwrap_or(0)
                .to_be_bytes()
                .to_vec();
            packet.extend(body);
            seeds.push(packet);
        }
    }
    seeds
}
