//! The engine against a scripted server that is honest, slow, clumsy or lies, in random chunks.

use std::io::IoSliceMut;
use std::time::Duration;

use fullbore_base::{ByteQueue, Instant, Rng};

use super::config::{REPLY_LEN_MAX, REQUEST_LEN_DEFAULT, REQUEST_LEN_MAX};
use super::*;
use crate::Put;
use crate::proto::{
    Attrs, Code, Limits, NameList, OpenFlags, VERSION, ext, fxp, next_packet, put_extension,
};

/// The local side of one transfer.
#[derive(Default)]
struct Local {
    source: Vec<u8>,
    target: Vec<u8>,
    /// Bytes of `target` already written: no byte may come twice.
    written: Vec<bool>,
    writes: usize,
    read_max: Option<usize>,
    fail_from: Option<u64>,
}

impl Blocks for Local {
    fn read_at(
        &mut self,
        _: BulkId,
        offset: u64,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<usize, BlockError> {
        if self.fail_from.is_some_and(|at| offset >= at) {
            return Err(BlockError::other("read failed"));
        }
        let mut rest = self.source.get(offset as usize..).unwrap_or(&[]);
        if let Some(max) = self.read_max {
            rest = &rest[..rest.len().min(max)];
        }
        let mut total = 0;
        for slice in slices {
            let n = slice.len().min(rest.len());
            slice[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            total += n;
        }
        Ok(total)
    }

    fn write_at(&mut self, _: BulkId, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        if self
            .fail_from
            .is_some_and(|at| offset + bytes.len() as u64 > at)
        {
            return Err(BlockError::from_raw_os_error(28));
        }
        let end = offset as usize + bytes.len();
        if self.target.len() < end {
            self.target.resize(end, 0);
            self.written.resize(end, false);
        }
        for (place, seen) in (offset as usize..end).zip(&mut self.written[offset as usize..end]) {
            assert!(!*seen, "byte {place} came twice");
            *seen = true;
        }
        self.target[offset as usize..end].copy_from_slice(bytes);
        self.writes += 1;
        Ok(())
    }
}

/// The server: answers what it is asked, as its switches say.
struct Peer {
    rng: Rng,
    file: Vec<u8>,
    inbox: Vec<u8>,
    /// Whole replies not yet on the wire.
    replies: Vec<Vec<u8>>,
    limits: Option<Limits>,
    reorders: bool,
    /// READs are answered with at most this many bytes.
    read_max: Option<usize>,
    /// READs are answered with a random part, never none.
    cuts: bool,
    /// The file gets this, all at once, when it is first read at its end.
    grows: Vec<u8>,
    refuse_from: Option<u64>,
    /// Longer READs and WRITEs are refused.
    refuse_longer: u32,
    /// How many were.
    refused: usize,
    requests: usize,
    outstanding_most: usize,
    largest: u32,
    /// Where the READs and WRITEs were, as they came.
    offsets: Vec<u64>,
}

impl Peer {
    fn new(seed: u64, file: Vec<u8>) -> Self {
        Self {
            rng: Rng::seeded(seed),
            file,
            inbox: Vec::new(),
            replies: Vec::new(),
            limits: None,
            reorders: false,
            read_max: None,
            cuts: false,
            grows: Vec::new(),
            refuse_from: None,
            refuse_longer: u32::MAX,
            refused: 0,
            requests: 0,
            outstanding_most: 0,
            largest: 0,
            offsets: Vec::new(),
        }
    }

    fn openssh_limits(mut self) -> Self {
        self.limits = Some(Limits {
            packet_bytes_max: 262_144,
            read_bytes_max: 261_120,
            write_bytes_max: 261_120,
            handles_max: 1019,
        });
        self
    }

    fn serve(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        let inbox = std::mem::take(&mut self.inbox);
        let mut rest = &inbox[..];
        while let Some(packet) = next_packet(rest, REPLY_LEN_MAX).expect("well formed") {
            rest = &rest[packet.total_len..];
            if packet.kind == fxp::SSH_FXP_INIT {
                self.replies.push(version(self.limits.is_some(), VERSION));
                continue;
            }
            self.requests += 1;
            let (id, request) = Request::parse(packet).expect("well formed");
            self.answer(id, request);
        }
        self.inbox = rest.to_vec();
        self.outstanding_most = self.outstanding_most.max(self.replies.len());
    }

    fn answer(&mut self, id: u32, request: Request<'_>) {
        let refuse_from = self.refuse_from.unwrap_or(u64::MAX);
        if let Request::Read { offset, .. } | Request::Write { offset, .. } = request {
            self.offsets.push(offset);
        }
        match request {
            Request::Read { offset, .. } | Request::Write { offset, .. }
                if offset >= refuse_from =>
            {
                self.status(id, Code::Failure, b"no space left on device");
            }
            Request::Read { len, .. } if len > self.refuse_longer => {
                self.refused += 1;
                self.status(id, Code::BadMessage, b"message too long");
            }
            Request::Write { data, .. } if data.len() > self.refuse_longer as usize => {
                self.refused += 1;
                self.status(id, Code::BadMessage, b"message too long");
            }
            Request::Read { offset, len, .. } => self.read(id, offset as usize, len),
            Request::Write { offset, data, .. } => {
                let end = offset as usize + data.len();
                self.largest = self.largest.max(data.len() as u32);
                if self.file.len() < end {
                    self.file.resize(end, 0);
                }
                self.file[offset as usize..end].copy_from_slice(data);
                self.status(id, Code::Ok, b"");
            }
            Request::Limits => {
                let mut payload = Vec::new();
                self.limits.expect("offered").encode(&mut payload);
                self.reply(id, &Reply::Extended(&payload));
            }
            Request::Open { .. } => self.reply(id, &Reply::Handle(b"\0\0\0\x07")),
            Request::Stat { .. } => self.reply(id, &Reply::Attrs(Attrs::EMPTY)),
            Request::Close { .. } => self.status(id, Code::Ok, b""),
            other => panic!("nobody sends {other:?} here"),
        }
    }

    fn read(&mut self, id: u32, offset: usize, len: u32) {
        self.largest = self.largest.max(len);
        if offset >= self.file.len() {
            let grown = std::mem::take(&mut self.grows);
            self.file.extend_from_slice(&grown);
        }
        if offset >= self.file.len() {
            return self.status(id, Code::Eof, b"End of file");
        }
        let mut n = (self.file.len() - offset).min(len as usize);
        n = n.min(self.read_max.unwrap_or(n));
        if self.cuts {
            n = 1 + self.rng.index(n);
        }
        let data = self.file[offset..offset + n].to_vec();
        self.reply(id, &Reply::Data(&data));
    }

    fn status(&mut self, id: u32, code: Code, message: &[u8]) {
        self.reply(id, &Reply::Status { code, message });
    }

    fn reply(&mut self, id: u32, reply: &Reply<'_>) {
        let mut bytes = Vec::new();
        reply.encode(id, &mut bytes);
        self.replies.push(bytes);
    }

    /// Takes the next reply off the pile.
    fn next_reply(&mut self) -> Option<Vec<u8>> {
        if self.replies.is_empty() {
            return None;
        }
        let at = if self.reorders {
            self.rng.index(self.replies.len())
        } else {
            0
        };
        Some(self.replies.remove(at))
    }
}

fn version(with_limits: bool, version: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_raw(&[fxp::SSH_FXP_VERSION]);
    body.put_u32(version);
    if with_limits {
        put_extension(&mut body, ext::LIMITS, b"1");
    }
    let mut bytes = Vec::new();
    bytes.put_string(&body);
    bytes
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::seeded(seed).fill(&mut bytes);
    bytes
}

const NOW: Instant = Instant::ZERO;

fn handle() -> Handle {
    Handle::new(b"\0\0\0\x07").expect("fine")
}

/// Client, server and the bytes between them.
struct Bench {
    client: Client,
    peer: Peer,
    local: Local,
    out: ByteQueue,
    view: Vec<u8>,
    /// Bytes of each delivery; 0 = a random number of them.
    chunk: usize,
    rng: Rng,
    events: Vec<Event>,
}

impl Bench {
    fn new(peer: Peer, chunk: usize) -> Self {
        Self {
            client: Client::new(Config::default()),
            peer,
            local: Local::default(),
            out: ByteQueue::new(600 * 1024),
            view: Vec::new(),
            chunk,
            rng: Rng::seeded(chunk as u64),
            events: Vec::new(),
        }
    }

    /// Lets client and server talk until both are quiet.
    fn run(&mut self) -> Result<(), Error> {
        let mut wire: Vec<u8> = Vec::new();
        loop {
            let mut moved = self
                .client
                .poll_transmit(NOW, &mut self.out, &mut self.local);
            self.peer.serve(self.out.as_slice());
            self.out.consume(self.out.len());
            if wire.is_empty() {
                wire = self.peer.next_reply().unwrap_or_default();
            }
            moved |= !wire.is_empty();
            let n = match self.chunk {
                0 => 1 + self.rng.index(70_000),
                n => n,
            };
            self.view.extend(wire.drain(..n.min(wire.len())));
            let taken = self
                .client
                .handle_input(NOW, &self.view, &mut self.local)
                .inspect_err(|_| self.events.extend(self.client.poll_event()))?;
            self.view.drain(..taken);
            while let Some(event) = self.client.poll_event() {
                moved = true;
                self.events.push(event);
            }
            if !moved {
                return Ok(());
            }
        }
    }

    fn get(&mut self, hint: u64) -> BulkReport {
        self.run().expect("VERSION");
        let id = self.client.start_get(NOW, handle(), 0, hint).expect("room");
        self.run().expect("an honest server");
        assert!(self.events.contains(&Event::BulkDone(id)));
        self.client.take_bulk(id).expect("done")
    }

    fn put(&mut self, source: Vec<u8>) -> BulkReport {
        self.run().expect("VERSION");
        self.local.source = source;
        let id = self.client.start_put(NOW, handle(), 0).expect("room");
        self.run().expect("an honest server");
        assert!(self.events.contains(&Event::BulkDone(id)));
        self.client.take_bulk(id).expect("done")
    }
}

const SIZES: [usize; 8] = [
    0,
    1,
    32 * 1024 - 1,
    32 * 1024,
    32 * 1024 + 1,
    258_048,
    5 << 20,
    (5 << 20) + 13,
];

#[test]
fn gets_are_exact_at_every_size_and_chunking() {
    for size in SIZES {
        for chunk in [0, 32 * 1024, 1 << 20] {
            let file = pattern(7, size);
            let mut bench = Bench::new(Peer::new(1, file.clone()).openssh_limits(), chunk);
            let report = bench.get(size as u64);
            assert!(report.error.is_none(), "{:?}", report.error);
            assert_eq!((report.bytes, report.end), (size as u64, size as u64));
            assert!(bench.local.target == file, "size {size} chunk {chunk}");
            assert_eq!(bench.client.outstanding_bytes(), 0);
            assert_eq!(bench.client.outstanding_count(), 0);
        }
    }
}

#[test]
fn a_get_byte_by_byte_is_exact() {
    let file = pattern(7, 70_000);
    let mut bench = Bench::new(Peer::new(1, file.clone()), 1);
    assert_eq!(bench.get(70_000).end, 70_000);
    assert!(bench.local.target == file);
    // 70,000 bytes in 32 KiB replies, each in pieces of at least 16 KiB.
    assert!(bench.local.writes <= 6, "{} writes", bench.local.writes);
}

#[test]
fn puts_are_exact_at_every_size() {
    for size in SIZES {
        for read_max in [None, Some(10_000)] {
            let source = pattern(9, size);
            let mut bench = Bench::new(Peer::new(1, Vec::new()).openssh_limits(), 0);
            bench.local.read_max = read_max;
            let report = bench.put(source.clone());
            assert!(report.error.is_none());
            assert_eq!((report.bytes, report.end), (size as u64, size as u64));
            assert!(bench.peer.file == source, "size {size}");
        }
    }
}

#[test]
fn transfers_that_hold_their_turn_go_one_behind_the_other() {
    for is_held in [true, false] {
        let source = pattern(4, 3 << 20);
        let mut bench = Bench::new(Peer::new(1, source.clone()), 0);
        bench.run().expect("VERSION");
        bench.local.source = source;
        let third = 1 << 20;
        for (from, is_put) in [(0, false), (third, false), (2 * third, true), (0, true)] {
            let client = &mut bench.client;
            let id = match is_put {
                false => client.start_get_range(NOW, handle(), from..from + third),
                true => client.start_put_range(NOW, handle(), from..from + third),
            };
            let id = id.expect("room");
            if is_held {
                client.hold_turn(id);
            }
        }
        bench.run().expect("an honest server");
        let asked = &bench.peer.offsets;
        assert_eq!(asked.len(), 4 * 32);
        assert_eq!(asked[..64].is_sorted(), is_held, "{asked:?}");
        assert_eq!(asked[64..96].is_sorted(), is_held, "{asked:?}");
    }
}

#[test]
fn request_size_follows_the_limits() {
    let mut bench = Bench::new(Peer::new(1, pattern(1, 1 << 20)).openssh_limits(), 0);
    bench.get(1 << 20);
    assert_eq!(bench.peer.largest, 258_048);
    let mut bench = Bench::new(Peer::new(1, pattern(1, 1 << 20)), 0);
    bench.get(1 << 20);
    assert_eq!(bench.peer.largest, REQUEST_LEN_DEFAULT);
    let mut bench = Bench::new(Peer::new(1, Vec::new()).openssh_limits(), 0);
    bench.put(pattern(1, 1 << 20));
    assert_eq!(bench.peer.largest, 258_048);
}

#[test]
fn request_size_shrinks_to_what_the_server_gives() {
    let mut peer = Peer::new(1, pattern(1, 40 << 20));
    peer.read_max = Some(8192);
    let mut bench = Bench::new(peer, 1 << 20);
    let report = bench.get(40 << 20);
    assert_eq!(report.end, 40 << 20);
    assert!(bench.local.target == bench.peer.file);
    // At 8 KiB each 5,120 are needed; the first 16 MiB were asked for at 32 KiB, and each of
    // these 512 is cut into four.
    assert!(bench.peer.requests < 5_300, "{}", bench.peer.requests);
}

#[test]
fn request_size_grows_on_evidence_where_the_server_says_nothing() {
    let size = 12 << 20;
    let mut bench = Bench::new(Peer::new(1, pattern(1, size)), 1 << 20);
    bench.client.set_outstanding_bytes_max(1 << 20);
    assert_eq!(bench.get(size as u64).end, size as u64);
    assert!(bench.local.target == bench.peer.file);
    assert_eq!(bench.client.read_len(), REQUEST_LEN_MAX);
    assert_eq!(
        bench.client.write_len(),
        REQUEST_LEN_DEFAULT,
        "nothing was written"
    );
    // What READs have shown to fit is tried with WRITEs, step by step.
    bench.put(pattern(2, size));
    assert!(bench.peer.file == bench.local.source);
    assert_eq!(bench.client.write_len(), REQUEST_LEN_MAX);
}

#[test]
fn uploads_alone_stay_at_what_every_server_takes_unless_more_is_known() {
    for (known, len) in [(None, REQUEST_LEN_DEFAULT), (Some(64 * 1024), 64 * 1024)] {
        let mut bench = Bench::new(Peer::new(1, Vec::new()), 1 << 20);
        if let Some(len) = known {
            bench.client.set_request_len_unless_told(len);
        }
        bench.put(pattern(2, 12 << 20));
        assert!(bench.peer.file == bench.local.source);
        assert_eq!((bench.peer.largest, bench.client.write_len()), (len, len));
    }
}

#[test]
fn one_request_that_is_too_long_is_sent_again_shorter_and_is_the_last() {
    for limit in [32 * 1024, 64 * 1024, 100_000] {
        let mut peer = Peer::new(1, pattern(1, 12 << 20));
        peer.refuse_longer = limit;
        let mut bench = Bench::new(peer, 1 << 20);
        bench.client.set_outstanding_bytes_max(1 << 20);
        let report = bench.get(12 << 20);
        assert!(report.error.is_none(), "{:?}", report.error);
        assert!(bench.local.target == bench.peer.file);
        assert_eq!(bench.peer.refused, 1);
        let taken = bench.client.read_len();
        assert!(taken <= limit && 2 * taken > limit, "{taken} of {limit}");

        let mut peer = Peer::new(1, Vec::new());
        peer.refuse_longer = limit;
        let mut bench = Bench::new(peer, 1 << 20);
        bench.client.set_outstanding_bytes_max(1 << 20);
        bench.client.set_request_len_unless_told(REQUEST_LEN_MAX);
        let report = bench.put(pattern(2, 12 << 20));
        assert!(report.error.is_none(), "{:?}", report.error);
        assert!(bench.peer.file == bench.local.source);
        assert_eq!(bench.peer.refused, 1);
        assert_eq!(bench.client.write_len(), taken);
    }
}

#[test]
fn replies_in_any_order_and_any_length_make_the_same_file() {
    for seed in 0..20 {
        let file = pattern(seed, 1_000_000);
        let mut peer = Peer::new(seed, file.clone());
        peer.reorders = true;
        peer.cuts = true;
        let mut bench = Bench::new(peer, 0);
        let report = bench.get(1_000_000);
        assert!(report.error.is_none(), "seed {seed}: {:?}", report.error);
        assert!(bench.local.target == file, "seed {seed}");
        assert!(bench.local.written.iter().all(|&w| w), "seed {seed}");
    }
}

#[test]
fn a_wrong_size_hint_costs_nothing_but_time() {
    for (size, hint) in [
        (100_000, 0),
        (100_000, 50_000),
        (50_000, 100_000),
        (0, 100_000),
    ] {
        let file = pattern(3, size);
        let mut bench = Bench::new(Peer::new(1, file.clone()), 0);
        let report = bench.get(hint);
        assert!(report.error.is_none(), "{:?}", report.error);
        assert_eq!(report.end, size as u64);
        assert!(bench.local.target == file);
    }
}

#[test]
fn a_hint_of_all_bits_allocates_nothing_and_ends_at_eof() {
    let file = pattern(3, 100_000);
    let mut bench = Bench::new(Peer::new(1, file.clone()), 0);
    let report = bench.get(u64::MAX);
    assert_eq!(report.end, 100_000);
    assert!(bench.peer.requests < 2048, "{}", bench.peer.requests);
}

#[test]
fn a_file_that_grows_is_read_to_its_end() {
    let mut peer = Peer::new(1, pattern(3, 100_000));
    peer.grows = pattern(4, 300_000);
    let mut bench = Bench::new(peer, 0);
    let report = bench.get(100_000);
    assert_eq!(report.end, 400_000);
    assert!(bench.local.target == bench.peer.file);
}

#[test]
fn outstanding_bytes_stay_under_their_limit() {
    let mut bench = Bench::new(Peer::new(1, pattern(1, 4 << 20)), 1 << 20);
    bench.client.set_outstanding_bytes_max(10 * 32 * 1024);
    assert_eq!(bench.get(4 << 20).end, 4 << 20);
    assert_eq!(bench.peer.outstanding_most, 10);
    assert!(bench.client.stats().outstanding_limited > 0);
}

#[test]
fn a_refused_block_ends_the_transfer_and_not_the_session() {
    let mut peer = Peer::new(1, pattern(1, 1 << 20));
    peer.refuse_from = Some(300_000);
    let mut bench = Bench::new(peer, 0);
    let report = bench.get(1 << 20);
    let error = report.error.expect("refused");
    assert!(
        matches!(error, BulkError::Status { code: Code::Failure, offset, .. } if offset >= 300_000)
    );
    assert!(error.to_string().contains("no space left on device"));
    assert_eq!(
        report.end,
        10 * 32 * 1024,
        "whole blocks before the refusal"
    );
    bench.peer.refuse_from = Some(100);
    let report = bench.put(vec![7; 100_000]);
    assert!(report.error.is_some());
    assert_eq!(report.end, 32 * 1024);
    bench.peer.refuse_from = None;
    assert!(
        bench.put(vec![8; 100_000]).error.is_none(),
        "the session goes on"
    );
}

#[test]
fn a_failing_local_side_ends_the_transfer_and_names_the_place() {
    let mut bench = Bench::new(Peer::new(1, pattern(1, 1 << 20)), 0);
    bench.local.fail_from = Some(200_000);
    let report = bench.get(1 << 20);
    assert!(
        matches!(report.error, Some(BulkError::Local { ref error, .. })
        if error.raw_os_error() == Some(28))
    );
    assert!(report.end <= 200_000);
    assert_eq!(bench.client.outstanding_count(), 0, "replies were drained");
    bench.local.fail_from = Some(100_000);
    let report = bench.put(vec![1; 1 << 20]);
    assert!(matches!(report.error, Some(BulkError::Local { offset, .. }) if offset >= 100_000));
}

#[test]
fn a_cancelled_transfer_touches_no_block_and_ends_when_drained() {
    let mut bench = Bench::new(Peer::new(1, pattern(1, 1 << 20)), 0);
    bench.run().expect("VERSION");
    let id = bench
        .client
        .start_get(NOW, handle(), 0, 1 << 20)
        .expect("room");
    assert!(
        bench
            .client
            .poll_transmit(NOW, &mut bench.out, &mut bench.local)
    );
    bench.client.cancel(id);
    assert!(
        bench.client.take_bulk(id).is_none(),
        "replies are still to come"
    );
    bench.run().expect("honest");
    let report = bench.client.take_bulk(id).expect("drained");
    assert!(matches!(report.error, Some(BulkError::Cancelled)));
    assert_eq!(bench.local.writes, 0);
}

#[test]
fn ranges_end_where_they_should() {
    let mut bench = Bench::new(Peer::new(1, pattern(1, 200_000)), 0);
    bench.run().expect("VERSION");
    for (range, end) in [
        (5..150_000, 150_000),
        (7..7, 7),
        (190_000..300_000, 200_000),
    ] {
        bench.local = Local::default();
        let id = bench
            .client
            .start_get_range(NOW, handle(), range.clone())
            .expect("room");
        bench.run().expect("honest");
        let report = bench.client.take_bulk(id).expect("done");
        assert!(report.error.is_none());
        assert_eq!((report.end, report.bytes), (end, end - range.start));
        bench.local.source = bench.peer.file.clone();
        let id = bench
            .client
            .start_put_range(NOW, handle(), range.clone())
            .expect("room");
        bench.run().expect("honest");
        let report = bench.client.take_bulk(id).expect("done");
        assert_eq!((report.end, report.bytes), (end, end - range.start));
    }
}

#[test]
fn many_transfers_share_one_session() {
    let mut bench = Bench::new(Peer::new(1, pattern(1, 200_000)).openssh_limits(), 0);
    bench.run().expect("VERSION");
    let ids: Vec<BulkId> = (0..config::BULKS_MAX)
        .map(|_| bench.client.start_put(NOW, handle(), 0).expect("room"))
        .collect();
    assert!(!bench.client.has_bulk_room());
    assert!(bench.client.start_put(NOW, handle(), 0).is_err());
    bench.local.source = pattern(2, 300_000);
    bench.run().expect("honest");
    for id in ids {
        let report = bench.client.take_bulk(id).expect("done");
        assert_eq!(report.end, 300_000);
        assert!(bench.client.take_bulk(id).is_none(), "the id is used up");
    }
    assert!(bench.client.has_bulk_room());
}

#[test]
fn requests_wait_for_version_unless_told_otherwise() {
    let open = Request::Open {
        path: b"f",
        flags: OpenFlags::READ,
        attrs: Attrs::EMPTY,
    };
    for (pipeline_init, requests_first) in [(false, 0), (true, 1)] {
        let mut client = Client::new(Config {
            pipeline_init,
            ..Config::default()
        });
        let id = client.request(NOW, &open).expect("room");
        let mut out = ByteQueue::new(1 << 20);
        assert!(client.poll_transmit(NOW, &mut out, &mut Local::default()));
        let mut peer = Peer::new(1, Vec::new()).openssh_limits();
        peer.serve(out.as_slice());
        assert_eq!(peer.requests, requests_first);
        let mut bench = Bench::new(peer, 0);
        bench.client = client;
        bench.run().expect("honest");
        assert_eq!(bench.peer.requests, 2, "OPEN and LIMITS");
        let reply = bench.client.take_reply(id).expect("answered");
        assert_eq!(reply.reply(), Reply::Handle(b"\0\0\0\x07"));
        assert_eq!(bench.client.take_reply(id), None);
    }
}

#[test]
fn a_forgotten_open_is_closed() {
    let mut bench = Bench::new(Peer::new(1, Vec::new()), 0);
    let open = Request::Open {
        path: b"f",
        flags: OpenFlags::READ,
        attrs: Attrs::EMPTY,
    };
    let early = bench.client.request(NOW, &open).expect("room");
    bench.client.forget(early);
    let late = bench.client.request(NOW, &open).expect("room");
    bench.run().expect("honest");
    bench.client.forget(late);
    bench.run().expect("honest");
    assert_eq!(bench.peer.requests, 4, "two OPENs, two CLOSEs");
    assert_eq!(bench.client.outstanding_count(), 0);
}

#[test]
fn replies_nobody_takes_stop_the_input() {
    let mut bench = Bench::new(Peer::new(1, Vec::new()), 1 << 20);
    bench.run().expect("VERSION");
    let ids: Vec<RequestId> = (0..8)
        .map(|_| {
            bench
                .client
                .request(NOW, &Request::Stat { path: b"f" })
                .expect("room")
        })
        .collect();
    assert!(
        bench
            .client
            .poll_transmit(NOW, &mut bench.out, &mut bench.local)
    );
    let mut bytes = Vec::new();
    for id in &ids {
        let message = vec![b'x'; 250_000];
        let code = Code::Failure;
        Reply::Status {
            code,
            message: &message,
        }
        .encode(id.0, &mut bytes);
    }
    let taken = bench
        .client
        .handle_input(NOW, &bytes, &mut bench.local)
        .expect("fine");
    assert!(
        taken < bytes.len() && taken <= config::REPLY_BYTES_MAX + 250_100,
        "{taken}"
    );
    // Not the server's fault, however long it lasts.
    bench.client.handle_timeout(NOW + Duration::from_secs(3600));
    assert!(bench.client.error().is_none());
    for id in &ids[..4] {
        assert!(bench.client.take_reply(*id).is_some());
    }
    let more = bench
        .client
        .handle_input(NOW, &bytes[taken..], &mut bench.local);
    assert!(more.expect("fine") > 0);
}

/// A session past VERSION with one READ of 32 KiB (and its probe) outstanding.
fn reading() -> (Client, Local, u32) {
    let mut bench = Bench::new(Peer::new(1, Vec::new()), 0);
    bench.run().expect("VERSION");
    bench
        .client
        .start_get(NOW, handle(), 0, 32 * 1024)
        .expect("room");
    assert!(
        bench
            .client
            .poll_transmit(NOW, &mut bench.out, &mut bench.local)
    );
    let packet = next_packet(bench.out.as_slice(), REPLY_LEN_MAX);
    let packet = packet.expect("fine").expect("whole");
    let (id, _) = Request::parse(packet).expect("fine");
    (bench.client, bench.local, id)
}

fn encoded(id: u32, reply: &Reply<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply.encode(id, &mut bytes);
    bytes
}

/// What the client makes of `bytes` where a reply to its READ `id` belongs.
fn verdict(bytes: impl FnOnce(u32) -> Vec<u8>) -> Result<usize, Error> {
    let (mut client, mut local, id) = reading();
    let verdict = client.handle_input(NOW, &bytes(id), &mut local);
    if let Err(error) = &verdict {
        assert_eq!(client.error(), Some(error), "the session keeps its error");
        assert!(!client.poll_transmit(NOW, &mut ByteQueue::new(1 << 20), &mut local));
        assert_eq!(
            client.handle_input(NOW, &[], &mut local),
            Err(error.clone())
        );
        while let Some(event) = client.poll_event() {
            if event == Event::Failed {
                return verdict;
            }
        }
        panic!("the failure was not announced");
    }
    verdict
}

#[test]
fn lies_end_the_session_by_name() {
    use Misbehaviour as M;
    let peer = |rule| Err(Error::PeerMisbehaved(rule));
    let data = vec![0; 40_000];
    let cases: [(Result<usize, Error>, Result<usize, Error>); 8] = [
        (
            verdict(|id| encoded(id, &Reply::Data(&data[..32 * 1024 + 1]))),
            peer(M::DataTooLong {
                asked: 32 * 1024,
                claimed: 32 * 1024 + 1,
            }),
        ),
        (
            verdict(|id| encoded(id ^ 0x1000, &Reply::Data(b"x"))),
            peer(M::UnknownId(verdict_id() ^ 0x1000)),
        ),
        (
            verdict(|id| encoded(id, &Reply::Attrs(Attrs::EMPTY))),
            peer(M::WrongReply {
                kind: fxp::SSH_FXP_ATTRS,
            }),
        ),
        (
            verdict(|id| {
                let ok = Code::Ok;
                encoded(
                    id,
                    &Reply::Status {
                        code: ok,
                        message: b"",
                    },
                )
            }),
            peer(M::WrongReply {
                kind: fxp::SSH_FXP_STATUS,
            }),
        ),
        (verdict(|_| version(false, 3)), peer(M::VersionOutOfPlace)),
        (
            verdict(|_| vec![0xff; 64]),
            Err(Error::InvalidMessage(crate::InvalidMessage::TooLong {
                len: u32::MAX,
                len_max: REPLY_LEN_MAX,
            })),
        ),
        (
            verdict(|_| vec![0; 64]),
            Err(Error::InvalidMessage(crate::InvalidMessage::Empty)),
        ),
        (
            // A payload that claims more than its packet holds.
            verdict(|id| {
                let mut bytes = encoded(id, &Reply::Data(&data[..100]));
                bytes[3] -= 1;
                bytes
            }),
            Err(Error::InvalidMessage(crate::InvalidMessage::Truncated(
                "data",
            ))),
        ),
    ];
    for (number, (is, should_be)) in cases.into_iter().enumerate() {
        assert_eq!(is, should_be, "case {number}");
    }
}

fn verdict_id() -> u32 {
    reading().2
}

#[test]
fn the_whole_length_asked_for_is_accepted() {
    let data = vec![0; 32 * 1024];
    assert!(verdict(|id| encoded(id, &Reply::Data(&data))).is_ok());
}

#[test]
fn a_reply_twice_is_unknown() {
    let data = vec![0; 32 * 1024];
    let is = verdict(|id| encoded(id, &Reply::Data(&data)).repeat(2));
    assert!(matches!(
        is,
        Err(Error::PeerMisbehaved(Misbehaviour::UnknownId(_)))
    ));
}

#[test]
fn empty_data_for_ever_ends_the_transfer() {
    let mut bench = Bench::new(Peer::new(1, pattern(1, 32 * 1024)), 0);
    bench.peer.read_max = Some(0);
    let report = bench.get(32 * 1024);
    assert!(matches!(report.error, Some(BulkError::NoProgress { .. })));
    assert!(bench.peer.requests < 30);
}

#[test]
fn bytes_behind_the_payload_are_ignored() {
    let (mut client, mut local, id) = reading();
    let mut bytes = encoded(id, &Reply::Data(&[5; 32 * 1024]));
    bytes.extend_from_slice(b"trailer");
    let len = (bytes.len() as u32 - 4).to_be_bytes();
    bytes[..4].copy_from_slice(&len);
    let next = encoded(
        id + 1,
        &Reply::Status {
            code: Code::Eof,
            message: b"",
        },
    );
    bytes.extend_from_slice(&next);
    let taken = client.handle_input(NOW, &bytes, &mut local).expect("fine");
    assert_eq!(taken, bytes.len());
    assert_eq!(client.outstanding_count(), 0);
}

#[test]
fn versions_other_than_3_are_incompatible() {
    for number in [2, 4, u32::MAX] {
        let mut client = Client::new(Config::default());
        let local = &mut Local::default();
        assert!(client.poll_transmit(NOW, &mut ByteQueue::new(100), local));
        let is = client.handle_input(NOW, &version(true, number), local);
        assert_eq!(is, Err(Error::PeerIncompatible { version: number }));
    }
}

#[test]
fn handles_of_wrong_length_are_refused() {
    for (len, is_fine) in [(0, false), (1, true), (256, true), (257, false)] {
        let mut bench = Bench::new(Peer::new(1, Vec::new()), 0);
        bench.run().expect("VERSION");
        let open = Request::Opendir { path: b"d" };
        let id = bench.client.request(NOW, &open).expect("room");
        let bytes = encoded(id.0, &Reply::Handle(&vec![1; len]));
        let is = bench.client.handle_input(NOW, &bytes, &mut bench.local);
        assert_eq!(is.is_ok(), is_fine, "{len} bytes");
    }
}

#[test]
fn a_name_list_must_hold_what_it_counts() {
    let mut bench = Bench::new(Peer::new(1, Vec::new()), 0);
    bench.run().expect("VERSION");
    let readdir = Request::Readdir { handle: b"h" };
    let id = bench.client.request(NOW, &readdir).expect("room");
    let names = NameList::new(0, b"").expect("fine");
    let mut bytes = encoded(id.0, &Reply::Name(names));
    bytes[9..13].copy_from_slice(&u32::MAX.to_be_bytes());
    let is = bench.client.handle_input(NOW, &bytes, &mut bench.local);
    assert!(matches!(is, Err(Error::InvalidMessage(_))));
}

#[test]
fn a_silent_server_is_named_and_a_working_one_is_not() {
    let config = Config::default();
    let (mut client, mut local, id) = reading();
    let deadline = client.poll_timeout().expect("requests wait");
    assert_eq!(deadline, NOW + config.reply_timeout);
    client.handle_timeout(NOW + config.reply_timeout / 2);
    assert!(client.error().is_none(), "an early call does nothing");
    // One byte of the reply is a sign of life.
    let later = NOW + Duration::from_secs(59);
    let bytes = encoded(id, &Reply::Data(b"x"));
    assert_eq!(client.handle_input(later, &bytes[..1], &mut local), Ok(0));
    assert_eq!(client.poll_timeout(), Some(later + config.reply_timeout));
    client.handle_timeout(later + config.reply_timeout);
    assert_eq!(client.error(), Some(&Error::Silent(config.reply_timeout)));
    let text = client.error().expect("silent").to_string();
    assert!(text.starts_with("SFTP server silent for 60 s while the SSH connection answers"));
    assert_eq!(client.poll_timeout(), None);
}

/// Asks once for something that is never answered and then, each 10 s, for something that is; how long
/// until the session is given up, if it is within ten minutes.
fn forgotten(request: &Request<'_>, is_wanted: bool) -> Option<Duration> {
    let mut bench = Bench::new(Peer::new(1, Vec::new()), 0);
    bench.run().expect("VERSION");
    let client = &mut bench.client;
    let id = client.request(NOW, request).expect("room");
    if !is_wanted {
        client.forget(id);
    }
    for tenth in 1..60 {
        let now = NOW + Duration::from_secs(10) * tenth;
        let Ok(other) = client.request(now, &Request::Stat { path: b"f" }) else {
            let timeout = Config::default().reply_timeout;
            assert_eq!(client.error(), Some(&Error::Unanswered(timeout)));
            return Some(now - NOW);
        };
        let reply = encoded(other.0, &Reply::Attrs(Attrs::EMPTY));
        let taken = client.handle_input(now, &reply, &mut bench.local);
        assert_eq!(taken, Ok(reply.len()));
        assert!(client.take_reply(other).is_some());
        if let Some(at) = client.poll_timeout() {
            client.handle_timeout(at.min(now + Duration::from_secs(9)));
        }
    }
    None
}

#[test]
fn a_request_that_is_forgotten_while_others_are_answered_ends_the_session() {
    let close = Request::Close { handle: b"h" };
    let given_up = forgotten(&close, true).expect("not waited for for ever");
    let (least, most) = (Duration::from_secs(60), Duration::from_secs(120));
    assert!((least..most).contains(&given_up), "{given_up:?}");
    assert_eq!(forgotten(&close, false), None, "nobody waits for it");
    let fsync = Request::Fsync { handle: b"h" };
    assert_eq!(forgotten(&fsync, true), None, "it may take long");
}

#[test]
fn silence_is_told_while_something_is_waited_for() {
    let (mut client, mut local, id) = reading();
    let patience = Config::default().reply_timeout;
    let later = NOW + Duration::from_secs(10);
    assert_eq!(
        client.silence(later),
        Some((Duration::from_secs(10), patience))
    );
    let bytes = encoded(id, &Reply::Data(b"x"));
    let _ = client.handle_input(later, &bytes[..1], &mut local);
    assert_eq!(client.silence(later), Some((Duration::ZERO, patience)));
    let bench = Bench::new(Peer::new(1, Vec::new()), 0);
    assert_eq!(bench.client.silence(later), None, "nothing was sent");
}

#[test]
fn work_that_may_take_long_has_its_own_deadline() {
    let mut bench = Bench::new(Peer::new(1, Vec::new()), 0);
    bench.run().expect("VERSION");
    assert_eq!(bench.client.poll_timeout(), None, "nothing is waited for");
    let later = NOW + Duration::from_secs(1000);
    let fsync = Request::Fsync { handle: b"h" };
    bench.client.request(later, &fsync).expect("room");
    let patience = Config::default().slow_reply_timeout;
    assert_eq!(bench.client.poll_timeout(), Some(later + patience));
}

#[test]
fn a_full_outlet_is_waited_for() {
    let mut bench = Bench::new(Peer::new(1, Vec::new()), 0);
    bench.run().expect("VERSION");
    bench.out = ByteQueue::new(40_000);
    bench.local.source = pattern(5, 200_000);
    let id = bench.client.start_put(NOW, handle(), 0).expect("room");
    assert!(
        bench
            .client
            .poll_transmit(NOW, &mut bench.out, &mut bench.local)
    );
    assert!(
        !bench
            .client
            .poll_transmit(NOW, &mut bench.out, &mut bench.local)
    );
    assert_eq!(bench.client.progress(id).map(|p| p.frontier), Some(0));
    bench.run().expect("honest");
    assert_eq!(bench.client.take_bulk(id).map(|r| r.end), Some(200_000));
    assert!(bench.peer.file == bench.local.source);
}

#[test]
fn a_dead_session_says_from_where_to_resume() {
    let mut bench = Bench::new(Peer::new(1, pattern(1, 1 << 20)), 40_000);
    bench.run().expect("VERSION");
    let id = bench
        .client
        .start_get(NOW, handle(), 0, 1 << 20)
        .expect("room");
    assert!(
        bench
            .client
            .poll_transmit(NOW, &mut bench.out, &mut bench.local)
    );
    let sent = bench.out.as_slice().to_vec();
    bench.peer.serve(&sent);
    for _ in 0..3 {
        let reply = bench.peer.next_reply().expect("32 of them");
        let taken = bench.client.handle_input(NOW, &reply, &mut bench.local);
        assert_eq!(taken, Ok(reply.len()));
    }
    bench.client.handle_eof();
    let report = bench.client.take_bulk(id).expect("the session is over");
    assert_eq!(report.end, 3 * 32 * 1024);
    assert_eq!(bench.client.error(), Some(&Error::Closed));
}

/// Everything at once, by seed: any switch on the server, several transfers, any chunks.
#[test]
fn random_sessions_end_right() {
    for seed in fullbore_testkit::seeds(0..60) {
        let mut rng = Rng::seeded(seed);
        let size = rng.index(600_000);
        let mut peer = Peer::new(seed, pattern(seed, size));
        if rng.one_in(2) {
            peer = peer.openssh_limits();
        }
        peer.reorders = rng.one_in(2);
        peer.cuts = rng.one_in(3);
        peer.read_max = rng.one_in(3).then(|| 1 + rng.index(60_000));
        if rng.one_in(4) {
            peer.grows = pattern(seed + 1, rng.index(100_000));
        }
        let mut bench = Bench::new(peer, 0);
        bench.rng = Rng::seeded(seed);
        let max = 1 + rng.below(2_000_000);
        bench.client.set_outstanding_bytes_max(max);
        let hint = if rng.one_in(2) {
            size
        } else {
            rng.index(700_000)
        };
        let report = bench.get(hint as u64);
        assert!(report.error.is_none(), "{:?}", report.error);
        assert_eq!(report.end as usize, bench.local.target.len());
        assert!(bench.local.target == bench.peer.file);
        assert!(bench.local.written.iter().all(|&w| w));
        let source = pattern(seed + 2, 1 + rng.index(600_000));
        bench.peer.file.clear();
        let report = bench.put(source.clone());
        assert!(report.error.is_none());
        assert!(bench.peer.file == source);
    }
}
