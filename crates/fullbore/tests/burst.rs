//! A client that asks for 64 MiB at once and reads slowly: 2,048 READs of 32 KiB before the first reply is
//! looked at, and each window adjust a second late. On a virtual clock, with the heap counted: alone in
//! its file, since the counter is the process's.

#![allow(clippy::unwrap_used)]

mod simulated;

use std::alloc::System;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
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

const READ_BYTES: usize = 32 << 10;
/// `SSH_FXP_DATA`, id, length.
const DATA_HEADER_BYTES: usize = 9;
/// Length, `SSH_FXP_READ`, id, handle, offset, length.
const REQUEST_BYTES: usize = 4 + 1 + 4 + 8 + 8 + 4;
/// What both ends take beyond the windows: a reply that is cut and staged, one on its way, the path's bytes.
const QUEUES_BYTES_MAX: usize = 2 << 20;
const ADJUST_DELAY: Duration = Duration::from_secs(1);
const DEADLINE: Instant = Instant::from_nanos(4_000_000_000_000);

/// Bytes of the heap in use.
fn live_bytes() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// A file in which each word says where it is.
fn write_source(folder: &Folder, bytes: usize) {
    let words = (0..bytes as u64 / 8).flat_map(u64::to_be_bytes);
    folder.write("source", &words.collect::<Vec<u8>>());
}

/// Checks one DATA reply; returns its number and its length.
fn check(reply: &[u8], expected: usize) {
    let (header, data) = reply.split_at(DATA_HEADER_BYTES);
    assert_eq!(header[0], 103, "a reply that is no data");
    let id = u32::from_be_bytes(header[1..5].try_into().unwrap());
    assert_eq!(id as usize, expected, "replies in the order of requests");
    assert_eq!(data.len(), READ_BYTES);
    let first = (expected * READ_BYTES / 8) as u64;
    for (word, at) in data.chunks_exact(8).zip(first..) {
        assert_eq!(word, at.to_be_bytes());
    }
}

/// A client with this window and an open file, whose handle is returned.
fn opened(folder: &Folder, window: u32) -> (Pair<Requester, ServerEnd<Files>>, Vec<u8>) {
    let seed = seed(40);
    let mut config = ClientConfig::default();
    config.connection.local_window = Some(window);
    let path = PairConfig {
        seed,
        delay: Duration::from_millis(1),
        ..PairConfig::default()
    };
    let server = ServerEnd::new(ServerConfig::default(), !seed, Files::new(&folder.0));
    let mut pair = Pair::new(path, Requester::new(config, seed), server);
    let handle = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&handle);
    pair.a.on_reply = Box::new(move |reply| *kept.borrow_mut() = reply.to_vec());
    pair.a.say(&frame(
        3,
        &[&[0; 4], &text(b"/source"), &1_u32.to_be_bytes(), &[0; 4]],
    ));
    let is_open = pair.run(DEADLINE, |pair| pair.a.reply_count == 2, |_| ());
    assert_eq!(is_open, Stop::Done);
    let handle = handle.borrow()[5..].to_vec();
    (pair, handle)
}

/// Sends `count` READs at once with such a window. Returns how far the heap grew past what it held
/// before.
fn burst(window: u32, count: usize) -> usize {
    let folder = Folder::new("burst");
    write_source(&folder, count * READ_BYTES);
    let (mut pair, handle) = opened(&folder, window);
    let reads: Vec<u8> = (0..count)
        .flat_map(|i| {
            let id = u32::try_from(i).unwrap().to_be_bytes();
            let offset = ((i * READ_BYTES) as u64).to_be_bytes();
            let len = (READ_BYTES as u32).to_be_bytes();
            frame(5, &[&id, &handle, &offset, &len])
        })
        .collect();
    pair.a.say(&reads);
    let (base, peak) = (live_bytes(), Cell::new(0));
    let next = Cell::new(0);
    pair.a.on_reply = Box::new(move |reply| {
        check(reply, next.get());
        next.set(next.get() + 1);
    });
    pair.a.patience = ADJUST_DELAY;
    let (start, adjusts) = (pair.now(), pair.a.conn.stats().adjusts_sent);
    let stop = pair.run(
        DEADLINE,
        |pair| pair.a.reply_count == 2 + count,
        |pair| {
            peak.set(peak.get().max(live_bytes()));
            let is_first_unread = pair.a.reply_count == 2;
            let has_waited = pair.now() >= start + ADJUST_DELAY;
            assert!(
                !(is_first_unread && has_waited) || pair.a.is_silent(),
                "the whole burst leaves before a reply is read"
            );
        },
    );
    assert_eq!(stop, Stop::Done, "window {window}");
    // Each window took its second, and each second gave one window back.
    let windows = (count * (READ_BYTES + DATA_HEADER_BYTES + 4) / window as usize) as u64;
    let adjusts = pair.a.conn.stats().adjusts_sent - adjusts;
    assert!(
        adjusts >= windows,
        "{adjusts} adjusts for {windows} windows"
    );
    let took = pair.now() - start;
    assert!(took >= Duration::from_secs(windows), "{took:?}");
    println!(
        "window {window}, {count} reads: {} KiB, {adjusts} adjusts",
        (peak.get() - base) >> 10
    );
    peak.get() - base
}

#[test]
fn memory_is_flat_in_a_burst_of_reads_whose_adjusts_come_late() {
    for window in [64 << 10, 2 << 20] {
        let few = burst(window, 256);
        let many = burst(window, 2048);
        // The requests themselves wait at the server, in memory that grows by doubling.
        let requests = 2048 * REQUEST_BYTES;
        let most = few + 2 * requests;
        assert!(many <= most, "{many} bytes for 2,048 READs, {few} for 256");
        assert!(
            many <= 4 * window as usize + QUEUES_BYTES_MAX,
            "{many} bytes"
        );
    }
}
