//! A stream of SFTP requests in messages of one byte each, and replies likewise: the work is in proportion to
//! their number. Counted, not timed: allocations, bytes moved within buffers, bytes on the wire. Alone in its
//! file, since the heap's counter is the process's.

#![allow(clippy::unwrap_used)]

mod simulated;

use std::alloc::System;
use std::time::Duration;

use fullbore_base::Instant;
use fullbore_sim::{Pair, PairConfig, Stop};
use fullbore_ssh::config::{ClientConfig, ServerConfig};
use fullbore_testkit::{Folder, seed};
use simulated::requester::{Requester, frame, text};
use simulated::{Files, ServerEnd};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WRITE_BYTES: usize = 4096;
const DEADLINE: Instant = Instant::from_nanos(4_000_000_000_000);
/// A packet with one byte of data under either AEAD cipher: length 4, padding length 1, message number 1,
/// channel 4, length 4, data 1, padding to 16, tag 16. One with two bytes is no shorter.
const PACKET_BYTES: u64 = 36;

/// What a run has cost.
#[derive(Clone, Copy, Debug)]
struct Work {
    messages: u64,
    /// Calls of the allocator, both ends and the path.
    heap_calls: u64,
    /// Bytes that either end has moved within its buffers.
    moved_bytes: u64,
    /// Bytes that either end has copied because their consumer waited for more.
    kept_bytes: u64,
    wire_bytes: u64,
}

impl Work {
    fn now(pair: &Pair<Requester, ServerEnd<Files>>) -> Self {
        let heap = HEAP.stats();
        let server = pair.b.session.conn();
        let (up, down) = (server.stats(), pair.a.conn.stats());
        Self {
            messages: up.channel_bytes_received + down.channel_bytes_received,
            heap_calls: (heap.allocations + heap.reallocations) as u64,
            moved_bytes: server.moved_bytes() + pair.a.conn.moved_bytes(),
            kept_bytes: up.channel_bytes_kept + down.channel_bytes_kept,
            wire_bytes: up.wire_bytes_received + down.wire_bytes_received,
        }
    }

    fn since(self, start: Self) -> Self {
        Self {
            messages: self.messages - start.messages,
            heap_calls: self.heap_calls - start.heap_calls,
            moved_bytes: self.moved_bytes - start.moved_bytes,
            kept_bytes: self.kept_bytes - start.kept_bytes,
            wire_bytes: self.wire_bytes - start.wire_bytes,
        }
    }

    /// A message costs what it costs however many there are: as much more as there are more of them, and a
    /// tenth of that, and what a buffer holds, for chance.
    fn check_in_proportion(self, less: Self, what: &str) {
        let less_messages = less.messages;
        for (name, more, less) in [
            ("heap calls", self.heap_calls, less.heap_calls),
            ("moved bytes", self.moved_bytes, less.moved_bytes),
            ("kept bytes", self.kept_bytes, less.kept_bytes),
            ("wire bytes", self.wire_bytes, less.wire_bytes),
        ] {
            let most = less * self.messages / less_messages * 11 / 10 + 10_000;
            assert!(more <= most, "{what}: {name}: {more}, {less}");
        }
    }
}

/// Two ends; the client takes messages of at most `maxpacket` bytes.
fn connected(folder: &Folder, maxpacket: u32) -> Pair<Requester, ServerEnd<Files>> {
    let seed = seed(50);
    let mut config = ClientConfig::default();
    config.connection.local_maxpacket = maxpacket;
    let path = PairConfig {
        seed,
        delay: Duration::from_millis(1),
        calls_per_instant_max: u32::MAX,
        ..PairConfig::default()
    };
    let server = ServerEnd::new(ServerConfig::default(), !seed, Files::new(&folder.0));
    let mut pair = Pair::new(path, Requester::new(config, seed), server);
    let flags = (1_u32 | 2 | 8).to_be_bytes();
    let open = frame(3, &[&[0; 4], &text(b"/file"), &flags, &[0; 4]]);
    pair.a.say(&open);
    let is_open = pair.run(DEADLINE, |pair| pair.a.reply_count == 2, |_| ());
    assert_eq!(is_open, Stop::Done);
    pair
}

/// WRITEs, the last one cut: `count` bytes, each a message.
fn to_the_server(count: usize) -> Work {
    let folder = Folder::new("tiny");
    let mut pair = connected(&folder, 32 << 10);
    let body = text(&[b'y'; WRITE_BYTES]);
    let mut writes = Vec::with_capacity(count + 2 * WRITE_BYTES);
    for i in (0_u32..).take_while(|i| *i as usize * WRITE_BYTES < count) {
        let offset = (u64::from(i) * WRITE_BYTES as u64).to_be_bytes();
        // The first handle that a server gives out is zero.
        writes.extend(frame(
            6,
            &[&i.to_be_bytes(), &text(&[0; 4]), &offset, &body],
        ));
    }
    writes.truncate(count);
    pair.a.message_bytes_max = 1;
    pair.a.say(&writes);
    drop(writes);
    let start = Work::now(&pair);
    let before = pair.b.session.conn().stats().channel_bytes_received;
    let stop = pair.run(
        DEADLINE,
        |pair| {
            let received = pair.b.session.conn().stats().channel_bytes_received;
            received - before == count as u64
        },
        |_| (),
    );
    assert_eq!(stop, Stop::Done);
    Work::now(&pair).since(start)
}

/// READs whose replies come in messages of one byte: about `count` of them.
fn to_the_client(count: usize) -> Work {
    let folder = Folder::new("tiny");
    folder.write("file", &vec![b'x'; WRITE_BYTES]);
    let mut pair = connected(&folder, 1);
    let len = u32::try_from(WRITE_BYTES).unwrap().to_be_bytes();
    let replies = count / (WRITE_BYTES + 13);
    for i in 0..u32::try_from(replies).unwrap() {
        let read = frame(5, &[&i.to_be_bytes(), &text(&[0; 4]), &[0; 8], &len]);
        pair.a.say(&read);
    }
    let start = Work::now(&pair);
    let stop = pair.run(DEADLINE, |pair| pair.a.reply_count == 2 + replies, |_| ());
    assert_eq!(stop, Stop::Done);
    Work::now(&pair).since(start)
}

/// Checks the work of three runs, each ten times the one before.
fn check_growth(what: &str, way: impl Fn(usize) -> Work) {
    let [few, more, most] = [10_000, 100_000, 1_000_000].map(|count| {
        let work = way(count);
        println!("{what}: {work:?}");
        // The requests for what comes to the client are few beside it.
        assert!(work.messages * 100 >= count as u64 * 80, "{work:?}");
        assert!(
            work.wire_bytes >= PACKET_BYTES * work.messages * 99 / 100,
            "not all messages had one byte"
        );
        assert!(work.moved_bytes + work.kept_bytes <= 2 * work.messages + 10_000);
        work
    });
    more.check_in_proportion(few, what);
    most.check_in_proportion(more, what);
}

#[test]
fn a_million_one_byte_messages_cost_a_hundred_times_ten_thousand() {
    check_growth("to the server", to_the_server);
    check_growth("to the client", to_the_client);
}
