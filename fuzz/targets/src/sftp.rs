//! SFTP packets, and the client engine against any server.

use std::io::IoSliceMut;

use fullbore_base::{ByteQueue, Instant};
use fullbore_sftp::client::{BlockError, Blocks, BulkId, Client, Config};
use fullbore_sftp::proto::{self, Attrs, OpenFlags, Reply, Request};

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
        ..Attrs::default()
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
