//! Operations that go on outside, and requests that wait for them.

use super::*;
use fullbore_testkit::seed;

fn write<'a>(handle: &'a [u8], offset: u64, data: &'a [u8]) -> Request<'a> {
    Request::Write {
        handle,
        offset,
        data,
    }
}

/// Requests with the numbers 1, 2, 3.
fn numbered(requests: &[Request<'_>]) -> Vec<u8> {
    let mut view = Vec::new();
    for (id, request) in (1..).zip(requests) {
        request.encode(id, &mut view);
    }
    view
}

impl Peer {
    /// Has the oldest pending operation end, and what waited for it go on.
    fn finish_next(&mut self) -> Vec<u32> {
        let done = self.store.finish_next();
        self.finish(done);
        assert_eq!(self.feed(&[]), Ok(0));
        self.ids()
    }

    /// The numbers of the requests that were answered.
    fn ids(&mut self) -> Vec<u32> {
        self.answers().iter().map(Answer::id).collect()
    }
}

#[test]
fn reads_go_on_beside_reads_and_a_write_waits_for_them() {
    let mut peer = Peer::new(Config::default());
    peer.make(b"f", b"0123456789");
    let handle = peer.open(b"f", OpenFlags::READ.with(OpenFlags::WRITE));
    peer.store.set_deferring(true);
    let view = numbered(&[
        read(&handle, 0, 2),
        read(&handle, 2, 2),
        write(&handle, 0, b"xx"),
        read(&handle, 0, 2),
    ]);
    assert_eq!(peer.feed(&view), Ok(view.len()));
    assert_eq!(peer.server.pending_count(), 4);
    let done = peer.store.finish_last();
    peer.finish(done);
    assert_eq!(peer.feed(&[]), Ok(0));
    assert_eq!(peer.ids(), [2], "one read is still pending");
    let done = peer.store.finish_next();
    peer.finish(done);
    assert_eq!(peer.feed(&[]), Ok(0));
    let answers = peer.answers();
    assert_eq!(answers[0].data(), b"01");
    assert_eq!(answers[1].id(), 3, "the write had waited");
    assert_eq!(answers.len(), 2);
    // The read behind the write sees what it wrote.
    let done = peer.store.finish_next();
    peer.finish(done);
    assert_eq!(peer.answers()[0].data(), b"xx");
    assert_eq!(peer.server.pending_count(), 0);
}

#[test]
fn requests_on_other_handles_overtake_pending_ones_and_those_that_wait() {
    let mut peer = Peer::new(Config::default());
    let a = peer.open(b"a", NEW);
    let b = peer.open(b"b", NEW);
    peer.store.set_deferring(true);
    let view = numbered(&[
        Request::Fsync { handle: &a },
        write(&b, 0, b"x"),
        write(&a, 0, b"y"),
        write(&b, 1, b"x"),
        Request::Close { handle: &a },
        write(&a, 0, b"z"),
        Request::Fstat { handle: &b },
        Request::Close { handle: &b },
    ]);
    assert_eq!(peer.feed(&view), Ok(view.len()));
    assert_eq!(peer.ids(), [2, 4, 7, 8]);
    let done = peer.store.finish_next();
    peer.finish(done);
    assert_eq!(peer.feed(&[]), Ok(0));
    let answers = peer.answers();
    let codes: Vec<(u32, u32)> = answers.iter().map(|a| (a.id(), a.code())).collect();
    let failure = Code::Failure.to_u32();
    assert_eq!(
        codes,
        [(1, 0), (3, 0), (5, 0), (6, failure)],
        "in their order"
    );
    assert_eq!(peer.server.handle_count(), 0);
}

#[test]
fn requests_that_name_a_path_overtake_nothing_that_waits() {
    let mut peer = Peer::new(Config::default());
    let a = peer.open(b"a", NEW);
    peer.store.set_deferring(true);
    let sync = Request::Fsync { handle: &a };
    let stat = Request::Stat { path: b"a" };
    // What is pending is overtaken, as long as nothing waits for it.
    let view = numbered(&[sync, stat]);
    assert_eq!(peer.feed(&view), Ok(view.len()));
    assert_eq!(peer.ids(), [2]);
    let view = numbered(&[write(&a, 0, b"new"), stat]);
    let write_len = write(&a, 0, b"new").encoded_len();
    assert_eq!(peer.feed(&view), Ok(write_len));
    assert_eq!(peer.server.stop(), Stop::Pending);
    assert_eq!(peer.finish_next(), [1, 1]);
    assert_eq!(peer.feed(&view[write_len..]), Ok(view.len() - write_len));
    assert_eq!(peer.answers()[0].attrs().size, Some(3));
}

#[test]
fn requests_that_wait_are_bounded_in_count_and_bytes() {
    let data = [7; 1000];
    let body_len = write(b"hand", 0, &data).encoded_len() - LEN_WORD - 1;
    for (count_max, bytes_max, expected) in [
        (3, usize::MAX, 3),
        (64, 3 * body_len, 3),
        (64, 3 * body_len - 1, 2),
        (0, 0, 0),
    ] {
        let mut peer = Peer::new(Config {
            waiting_count_max: count_max,
            waiting_bytes_max: bytes_max,
            ..Config::default()
        });
        let handle = peer.open(b"f", NEW);
        let other = peer.open(b"g", NEW);
        peer.store.set_deferring(true);
        let sync = burst(1, Request::Fsync { handle: &handle });
        assert_eq!(peer.feed(&sync), Ok(sync.len()));
        let request = write(&handle, 0, &data);
        let view = burst(5, request);
        assert_eq!(peer.feed(&view), Ok(expected * request.encoded_len()));
        assert_eq!(peer.server.stop(), Stop::Pending);
        assert_eq!(peer.server.pending_count(), 1 + expected);
        if expected > 0 {
            // The list is full; who needs no place in it still goes on.
            let beside = burst(1, write(&other, 0, b"x"));
            assert_eq!(peer.feed(&beside), Ok(beside.len()));
            peer.answers();
        }
        assert_eq!(peer.finish_next().len(), 1 + expected);
        assert_eq!(peer.server.pending_count(), 0);
    }
}

#[test]
fn what_waits_is_served_within_a_turns_work_and_the_outlets_room() {
    let mut peer = Peer::new(Config {
        work_count_max: 3,
        ..Config::default()
    });
    let handle = peer.open(b"f", NEW);
    peer.store.set_deferring(true);
    let sync = burst(1, Request::Fsync { handle: &handle });
    let view = burst(2, write(&handle, 0, b"x"));
    assert_eq!(peer.feed(&sync), Ok(sync.len()));
    for _ in 0..4 {
        assert_eq!(peer.feed(&view), Ok(view.len()));
    }
    let (token, completion) = peer.store.finish_next().expect("pending");
    let mut out = Shards {
        bytes: Vec::new(),
        room: SMALL_REPLY_LEN_MAX,
    };
    let Peer { server, store, .. } = &mut peer;
    server.complete(token, completion, &mut out, store);
    out.room = SMALL_REPLY_LEN_MAX - 1;
    assert_eq!(server.handle_input(&[], &mut out, store), Ok(0));
    assert_eq!(server.stop(), Stop::Outlet);
    assert_eq!(
        server.pending_count(),
        8,
        "who waits for room is not served"
    );
    out.room = LIMIT;
    assert_eq!(server.handle_input(&[], &mut out, store), Ok(0));
    assert_eq!(server.stop(), Stop::Work);
    assert_eq!(server.pending_count(), 5);
    while server.stop() == Stop::Work {
        assert_eq!(server.handle_input(&[], &mut out, store), Ok(0));
    }
    assert_eq!(split(&out.bytes).len(), 9);
    assert_eq!(server.pending_count(), 0);
}

#[test]
fn pending_operations_are_bounded_in_count_and_bytes() {
    for (count_max, bytes_max, expected) in [(3, usize::MAX, 3), (64, 250, 3)] {
        let mut peer = Peer::new(Config {
            pending_count_max: count_max,
            pending_bytes_max: bytes_max,
            ..Config::default()
        });
        peer.make(b"f", &[1; 1000]);
        let handle = peer.open(b"f", OpenFlags::READ);
        peer.store.set_deferring(true);
        let request = read(&handle, 0, 100);
        let view = burst(10, request);
        let mut taken = peer.feed(&view).expect("valid input");
        assert_eq!(taken, expected * request.encoded_len());
        assert_eq!(peer.server.stop(), Stop::Pending);
        while let Some((token, completion)) = peer.store.finish_next() {
            peer.finish(Some((token, completion)));
            // A token counts once.
            peer.finish(Some((token, Completion::Data(Err(StoreError::EOF)))));
            taken += peer.feed(&view[taken..]).expect("valid input");
        }
        assert_eq!(taken, view.len());
        let answers = peer.answers();
        assert_eq!(answers.len(), 10);
        assert!(answers.iter().all(|answer| answer.data() == [1; 100]));
    }
}

#[test]
fn a_finished_operation_waits_for_room() {
    let mut peer = Peer::new(Config::default());
    peer.make(b"f", &[1; 1000]);
    let handle = peer.open(b"f", OpenFlags::READ);
    peer.store.set_deferring(true);
    let view = burst(1, read(&handle, 0, 1000));
    assert_eq!(peer.feed(&view), Ok(view.len()));
    let mut full = Shards {
        bytes: Vec::new(),
        room: 100,
    };
    let (token, completion) = peer.store.finish_next().expect("pending");
    let Peer { server, store, .. } = &mut peer;
    server.complete(token, completion, &mut full, store);
    assert_eq!((full.bytes.len(), server.pending_count()), (0, 1));
    full.room = LIMIT;
    assert_eq!(server.handle_input(&[], &mut full, store), Ok(0));
    assert_eq!(split(&full.bytes)[0].data(), [1; 1000]);
    assert_eq!(server.pending_count(), 0);
}

/// A request to one of three files, through its handle or by its path.
fn random_request<'a>(rng: &mut Rng, handles: &'a [Vec<u8>], data: &'a [u8]) -> Request<'a> {
    const PATHS: [&[u8]; 3] = [b"0", b"1", b"2"];
    let index = rng.index(PATHS.len());
    let handle = &handles[index];
    let offset = rng.below(200);
    match rng.below(8) {
        0 | 1 => read(handle, offset, 1 + rng.index(100) as u32),
        2 | 3 => write(handle, offset, &data[rng.index(data.len())..]),
        4 => Request::Fsync { handle },
        5 => Request::Fstat { handle },
        6 => Request::CopyData {
            from: handle,
            from_offset: offset,
            len: 0,
            to: &handles[rng.index(handles.len())],
            to_offset: rng.below(100),
        },
        _ => Request::Stat { path: PATHS[index] },
    }
}

/// Whatever ends when: each request is answered as if all had been served in their order.
#[test]
fn replies_are_those_of_one_request_after_the_other() {
    for seed in seed(60)..seed(60) + 40 {
        let mut rng = Rng::seeded(seed);
        let config = Config {
            waiting_count_max: rng.index(6),
            pending_count_max: 1 + rng.below(5) as u16,
            ..Config::default()
        };
        let mut peers = [Peer::new(Config::default()), Peer::new(config)];
        let flags = NEW.with(OpenFlags::READ);
        let mut handles = Vec::new();
        for peer in &mut peers {
            handles = [b"0", b"1", b"2"]
                .map(|path| peer.open(path, flags))
                .to_vec();
        }
        let data = *b"0123456789abcdefghijklmnopqrstuvwxyz";
        let requests: Vec<_> = (0..300)
            .map(|_| random_request(&mut rng, &handles, &data))
            .collect();
        let view = numbered(&requests);
        let [in_order, peer] = &mut peers;
        let mut start = 0;
        while start < view.len() {
            start += in_order.feed(&view[start..]).expect("valid");
        }
        let expected = in_order.answers();
        peer.store.set_deferring(true);
        let mut answers = Vec::new();
        let mut start = 0;
        while start < view.len() || peer.server.pending_count() > 0 {
            start += peer.feed(&view[start..]).expect("valid");
            let done = if rng.one_in(2) {
                peer.store.finish_next()
            } else {
                peer.store.finish_last()
            };
            if done.is_some() {
                peer.finish(done);
            }
            answers.extend(peer.answers());
        }
        answers.sort_by_key(Answer::id);
        assert_eq!(answers, expected, "seed {seed}");
    }
}
