//! The client engine against the server engine over a file system in memory: cut streams, small
//! buffers, operations that end late and in any order. A seed replays a run.

#![allow(missing_docs, clippy::unwrap_used)]

use std::io::IoSliceMut;

use fullbore_base::{ByteQueue, Instant, Rng};
use fullbore_sftp::client::{self, BlockError, Blocks, BulkId, Client, Event, Handle, RequestId};
use fullbore_sftp::proto::{Attrs, OpenFlags, Reply, Request};
use fullbore_sftp::server::memory::MemoryStore;
use fullbore_sftp::server::{self, Server};

const NOW: Instant = Instant::ZERO;

/// What one transfer sends, or has received.
#[derive(Default)]
struct Content(Vec<u8>);

impl Blocks for Content {
    fn read_at(
        &mut self,
        _: BulkId,
        offset: u64,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<usize, BlockError> {
        let mut rest = self.0.get(offset as usize..).unwrap_or_default();
        let before = rest.len();
        for slice in slices {
            let n = rest.len().min(slice.len());
            slice[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        Ok(before - rest.len())
    }

    fn write_at(&mut self, _: BulkId, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let end = offset as usize + bytes.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        self.0[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }
}

struct Pair {
    rng: Rng,
    client: Client,
    server: Server,
    store: MemoryStore,
    up: ByteQueue,
    down: ByteQueue,
    content: Content,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed);
        let least = client::config::REPLY_LEN_MAX as usize + 1024;
        let mut store = MemoryStore::new(1 << 30);
        store.set_deferring(rng.one_in(2));
        let config = client::Config {
            outstanding_bytes_max: 1 << (12 + rng.below(13)),
            request_len_max: 1024 + rng.below(260_000) as u32,
            pipeline_init: rng.one_in(2),
            ..client::Config::default()
        };
        Self {
            client: Client::new(config),
            server: Server::new(server::Config::default()),
            store,
            up: ByteQueue::new(least + rng.index(1 << 20)),
            down: ByteQueue::new(least + rng.index(1 << 20)),
            content: Content::default(),
            rng,
        }
    }

    /// Moves bytes in pieces of any length until the client has something to say.
    fn event(&mut self, seed: u64) -> Event {
        for _ in 0..1_000_000 {
            if let Some(event) = self.client.poll_event() {
                assert_ne!(
                    event,
                    Event::Failed,
                    "seed {seed}: {:?}",
                    self.client.error()
                );
                return event;
            }
            let _ = self
                .client
                .poll_transmit(NOW, &mut self.up, &mut self.content);
            let cut = self.rng.index(self.up.len() + 1);
            let cut = if self.rng.one_in(2) {
                self.up.len()
            } else {
                cut
            };
            let view = &self.up.as_slice()[..cut];
            let taken = self
                .server
                .handle_input(view, &mut self.down, &mut self.store)
                .unwrap();
            self.up.consume(taken);
            let finished = match self.rng.below(3) {
                0 => self.store.finish_next(),
                1 => self.store.finish_last(),
                _ => None,
            };
            if let Some((token, completion)) = finished {
                self.server
                    .complete(token, completion, &mut self.down, &mut self.store);
            }
            let cut = self.rng.index(self.down.len() + 1);
            let cut = if self.rng.one_in(2) {
                self.down.len()
            } else {
                cut
            };
            let view = &self.down.as_slice()[..cut];
            let taken = self.client.handle_input(NOW, view, &mut self.content);
            self.down.consume(taken.unwrap());
        }
        panic!("seed {seed}: nothing happens any more");
    }

    fn wait_for(&mut self, seed: u64, wanted: Event) {
        while self.event(seed) != wanted {}
    }

    fn ask(&mut self, seed: u64, request: &Request<'_>) -> client::ReplyMessage {
        let id: RequestId = self.client.request(NOW, request).unwrap();
        self.wait_for(seed, Event::Reply(id));
        self.client.take_reply(id).unwrap()
    }

    fn open(&mut self, seed: u64, flags: OpenFlags) -> Handle {
        let (path, attrs) = (b"/file".as_slice(), Attrs::EMPTY);
        let reply = self.ask(seed, &Request::Open { path, flags, attrs });
        match reply.reply() {
            Reply::Handle(handle) => Handle::new(handle).unwrap(),
            other => panic!("seed {seed}: {other:?}"),
        }
    }

    fn end(&mut self, seed: u64, bulk: BulkId, handle: &Handle) -> u64 {
        self.wait_for(seed, Event::BulkDone(bulk));
        let report = self.client.take_bulk(bulk).unwrap();
        assert!(report.error.is_none(), "seed {seed}: {:?}", report.error);
        let handle = handle.as_bytes();
        self.ask(seed, &Request::Close { handle });
        report.end
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // The seed comes from whoever runs the test.
fn what_was_put_comes_back_whatever_the_stream_is_cut_into() {
    let first = std::env::var("FULLBORE_SEED").ok();
    let first: u64 = first.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + 60 {
        let mut pair = Pair::new(seed);
        let mut sent = vec![0; pair.rng.index(3 << 20)];
        pair.rng.fill(&mut sent);
        let len = sent.len() as u64;
        pair.content = Content(sent.clone());
        let write = OpenFlags::WRITE.with(OpenFlags::CREAT);
        let handle = pair.open(seed, write);
        let bulk = pair.client.start_put(NOW, handle.clone(), 0).unwrap();
        assert_eq!(pair.end(seed, bulk, &handle), len, "seed {seed}");
        pair.content = Content::default();
        let handle = pair.open(seed, OpenFlags::READ);
        // The size is a hint: right, too small, too large.
        let hint = [len, len / 2, len + 500_000][pair.rng.index(3)];
        let bulk = pair.client.start_get(NOW, handle.clone(), 0, hint).unwrap();
        assert_eq!(pair.end(seed, bulk, &handle), len, "seed {seed}");
        assert!(
            pair.content.0 == sent,
            "seed {seed}: it came back different"
        );
    }
}
