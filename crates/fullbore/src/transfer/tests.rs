//! Runs between places in memory: every outcome, and a fault at every operation.

use std::cell::RefCell;

use fullbore_base::Rng;
use fullbore_sftp::client::config::SPAN_BYTES_MIN;
use fullbore_sftp::proto::Attrs;

use super::memory::{MemorySide, Object};
use super::temp::{SUFFIX, temp_path};
use super::*;

/// Remembers what it was told.
#[derive(Default)]
struct Log {
    lines: RefCell<Vec<String>>,
}

impl Log {
    fn has(&self, part: &str) -> bool {
        self.lines.borrow().iter().any(|line| line.contains(part))
    }
}

impl Observer for Log {
    fn notice(&self, event: &Event<'_>) {
        let line = match event {
            Event::Failed { path, text, .. } => format!("failed {}: {text}", path.escape_ascii()),
            Event::Warning { path, text } => format!("warning {}: {text}", path.escape_ascii()),
            Event::Resumed { offset, proof, .. } => format!("resumed at {offset}: {proof}"),
            Event::Verified { method, .. } => format!("verified by {method}"),
            Event::Done { bytes, .. } => format!("done {bytes}"),
            Event::Started { .. } | Event::Moved { .. } => return,
        };
        self.lines.borrow_mut().push(line);
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::seeded(seed).fill(&mut bytes);
    bytes
}

fn recursive() -> Options {
    Options {
        recursive: true,
        ..Options::default()
    }
}

async fn run(
    source: &MemorySide,
    paths: &[&[u8]],
    target: &MemorySide,
    path: &[u8],
    options: Options,
    log: &Log,
) -> Result<Summary, Fault> {
    let run = Run::new(target, path, paths.len() > 1, options, log).await?;
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.to_vec()).collect();
    run.copy_from(source, &paths).await;
    Ok(run.summary())
}

fn temps(side: &MemorySide) -> Vec<Vec<u8>> {
    let mut paths = side.paths();
    paths.retain(|path| path.ends_with(SUFFIX));
    paths
}

type Pairing = (&'static str, &'static str);

/// Up, down, and from one server to another.
const PAIRINGS: [Pairing; 4] = [("", "h:"), ("h:", ""), ("g:", "h:"), ("", "")];

/// The same, and up to a server that takes short files in one flight.
fn pairings() -> impl Iterator<Item = (&'static str, &'static str, Option<usize>)> {
    let plain = PAIRINGS.into_iter().map(|(from, to)| (from, to, None));
    plain.chain([("", "h:", Some(32_768))])
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_arrives_in_every_direction_at_every_size() {
    for (from, to, finish) in pairings() {
        for size in [0, 1, 9_999, 10_000, 100_001, 17 << 20] {
            let (source, mut target) = (MemorySide::new(from), MemorySide::new(to));
            target.finish_bytes_max = finish;
            source.put_file(b"/f", &bytes(1, size));
            let log = Log::default();
            let summary = run(&source, &[b"/f"], &target, b"/g", Options::default(), &log)
                .await
                .expect("fine");
            assert!(summary.is_success(), "{:?}", log.lines);
            assert_eq!((summary.files, summary.bytes), (1, size as u64));
            assert!(target.file(b"/g") == source.file(b"/f"));
            assert_eq!(target.paths().len(), 2, "and nothing else");
            assert_eq!(target.item(b"/g").mode, 0o640, "the source's mode");
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn whatever_fails_the_target_is_the_old_or_the_new_file() {
    for (from, to, finish) in pairings() {
        for kind in [FaultKind::Failure, FaultKind::Denied, FaultKind::Lost] {
            for on_target in [false, true] {
                for at in 0.. {
                    let (source, mut target) = (MemorySide::new(from), MemorySide::new(to));
                    target.finish_bytes_max = finish;
                    source.put_file(b"/f", &bytes(1, 25_000));
                    target.put_file(b"/g", b"old");
                    let faulty = if on_target { &target } else { &source };
                    faulty.fail_at.set(Some((at, kind)));
                    let log = Log::default();
                    let options = Options {
                        preserve: true,
                        verify: at % 2 == 0,
                        fsync: true,
                        ..Options::default()
                    };
                    let result = run(&source, &[b"/f"], &target, b"/g", options, &log).await;
                    let is_right = target.file(b"/g") == source.file(b"/f");
                    let is_old = target.file(b"/g").as_deref() == Some(b"old");
                    assert!(is_right || is_old, "{from} {to} {kind:?} {at}");
                    let is_success = result.as_ref().is_ok_and(Summary::is_success);
                    assert!(!is_success || is_right, "success was said of a failure");
                    if kind != FaultKind::Lost && !faulty.log.borrow().iter().any(|l| l == "remove")
                    {
                        assert!(temps(&target).is_empty() || at >= faulty.calls.get());
                    }
                    if at >= faulty.calls.get() {
                        assert!(is_success, "nothing failed");
                        break;
                    }
                    // And the next run, without faults, makes it right and leaves nothing.
                    faulty.fail_at.set(None);
                    let again = run(&source, &[b"/f"], &target, b"/g", Options::default(), &log)
                        .await
                        .expect("fine");
                    assert!(again.is_success(), "{:?}", log.lines);
                    assert!(target.file(b"/g") == source.file(b"/f"));
                    assert!(temps(&target).is_empty());
                }
            }
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn without_replace_the_old_file_goes_only_when_the_new_one_is_complete() {
    for at in 0.. {
        let (source, mut target) = (MemorySide::new(""), MemorySide::new("h:"));
        target.can_replace = false;
        source.put_file(b"/f", &bytes(1, 25_000));
        target.put_file(b"/f", b"old");
        target.fail_at.set(Some((at, FaultKind::Failure)));
        let log = Log::default();
        let _ = run(&source, &[b"/f"], &target, b"/f", Options::default(), &log).await;
        match target.file(b"/f") {
            Some(content) => {
                assert!(content == b"old" || Some(&content) == source.file(b"/f").as_ref());
            }
            None => {
                // The one moment without a file: what was sent is kept, and said.
                let kept = temps(&target);
                assert_eq!(kept.len(), 1);
                assert!(target.file(&kept[0]) == source.file(b"/f"));
                assert!(log.has("is kept as"));
            }
        }
        if at >= target.calls.get() {
            assert!(log.has("cannot replace a file in one step"));
            break;
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_interrupted_copy_goes_on_where_it_was() {
    for (from, to) in PAIRINGS {
        let (source, target) = (MemorySide::new(from), MemorySide::new(to));
        let content = bytes(1, 200_000);
        source.put_file(b"/f", &content);
        let id = [from.as_bytes(), b"/f"].concat();
        target.put_file(&temp_path(b"/g", &id), &content[..150_000]);
        let log = Log::default();
        let summary = run(&source, &[b"/f"], &target, b"/g", Options::default(), &log)
            .await
            .expect("fine");
        assert!(summary.is_success());
        assert_eq!(summary.bytes, 50_000, "{:?}", log.lines);
        assert!(log.has("resumed at 150000"));
        assert!(target.file(b"/g") == Some(content));
        assert!(temps(&target).is_empty());
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_temporary_file_that_another_copy_writes_to_is_left_alone() {
    let content = bytes(1, 200_000);
    for (kept, resume) in [(0, true), (150_000, true), (150_000, false)] {
        let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
        source.put_file(b"/f", &content);
        let temp = temp_path(b"/g", b"/f");
        target.put_file(&temp, &content[..kept]);
        let more = content[kept..160_000].to_vec();
        target.other_writes.set(Some((temp.clone(), more)));
        let log = Log::default();
        let options = Options {
            resume,
            ..Options::default()
        };
        let done = run(&source, &[b"/f"], &target, b"/g", options, &log).await;
        assert_eq!(done.expect("fine").failed, 1);
        assert!(log.has("another copy"), "{:?}", log.lines);
        assert!(target.file(&temp).as_deref() == Some(&content[..160_000]));
        assert_eq!(target.file(b"/g"), None);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_no_beginning_of_the_source_is_sent_anew() {
    let content = bytes(1, 200_000);
    let mut changed = content[..150_000].to_vec();
    changed[77] ^= 1;
    let longer = bytes(2, 300_000);
    for (kept, said) in [
        (changed, "not the beginning"),
        (longer, "longer than the source"),
    ] {
        let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
        source.put_file(b"/f", &content);
        target.put_file(&temp_path(b"/g", b"/f"), &kept);
        let log = Log::default();
        let summary = run(&source, &[b"/f"], &target, b"/g", Options::default(), &log)
            .await
            .expect("fine");
        assert_eq!(summary.bytes, 200_000);
        assert!(log.has(said), "{:?}", log.lines);
        assert!(target.file(b"/g").as_ref() == Some(&content));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn without_digests_the_tail_is_read_and_possible_holes_are_sent_again() {
    let span = SPAN_BYTES_MIN as usize;
    let content = bytes(1, span + 3_000_000);
    let kept = span + 2_000_000;
    for (hole_at, source_time, said) in [
        (
            None,
            2000,
            "resumed at 2000000: reading 1048576 bytes before it",
        ),
        // Inside the span: harmless.
        (Some(kept - 10), 2000, "resumed at 2000000"),
        // In front of it, where it is looked for.
        (Some(1_999_999), 2000, "not the beginning"),
        (Some(0), 2000, "not the beginning"),
        (None, 2001, "was written to after"),
    ] {
        let (source, mut target) = (MemorySide::new(""), MemorySide::new("h:"));
        target.can_hash = false;
        source.put_file(b"/f", &content);
        let times = Attrs {
            times: Some((1000, source_time)),
            ..Attrs::EMPTY
        };
        source.setstat(b"/f", times).await.expect("is there");
        let mut part = content[..kept].to_vec();
        if let Some(at) = hole_at {
            part[at] ^= 1;
        }
        target.put_file(&temp_path(b"/g", b"/f"), &part);
        let log = Log::default();
        run(&source, &[b"/f"], &target, b"/g", Options::default(), &log)
            .await
            .expect("fine");
        assert!(log.has(said), "{:?}", log.lines);
        assert!(target.file(b"/g").as_ref() == Some(&content));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn no_resume_starts_over() {
    let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
    source.put_file(b"/f", &bytes(1, 20_000));
    target.put_file(&temp_path(b"/g", b"/f"), &bytes(1, 20_000)[..10_000]);
    let options = Options {
        resume: false,
        ..Options::default()
    };
    let log = Log::default();
    let summary = run(&source, &[b"/f"], &target, b"/g", options, &log).await;
    assert_eq!(summary.expect("fine").bytes, 20_000);
}

#[tokio::test(flavor = "current_thread")]
async fn verification_says_how_and_finds_a_flipped_bit() {
    let verify = Options {
        verify: true,
        ..Options::default()
    };
    for (can_hash, can_exec, said) in [
        (true, false, "blake3 (check-file)"),
        (false, true, "sha256 (sha256sum run on the server)"),
        (false, false, "blake3 (reading it back)"),
    ] {
        for (from, to) in [("", "h:"), ("h:", ""), ("g:", "h:")] {
            for corrupts in [false, true] {
                let (mut source, mut target) = (MemorySide::new(from), MemorySide::new(to));
                (source.can_hash, source.can_exec) = (can_hash, can_exec);
                (target.can_hash, target.can_exec) = (can_hash, can_exec);
                let mover = if to.is_empty() { &source } else { &target };
                mover.corrupts.set(corrupts);
                source.put_file(b"/f", &bytes(1, 15_000));
                target.put_file(b"/g", b"old");
                let log = Log::default();
                let summary = run(&source, &[b"/f"], &target, b"/g", verify.clone(), &log)
                    .await
                    .expect("fine");
                assert_eq!(summary.is_success(), !corrupts, "{from} {to} {said}");
                if corrupts {
                    assert!(log.has("differs from its source"));
                    assert_eq!(target.file(b"/g").as_deref(), Some(&b"old"[..]));
                    assert!(temps(&target).is_empty());
                } else {
                    assert!(log.has(said), "{:?}", log.lines);
                }
            }
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn sizes_are_hints() {
    for (claimed, said) in [
        (0, None),
        (10_000, Some("grew from 10000 to 30000")),
        (40_000, Some("shrank from 40000 to 30000")),
    ] {
        let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
        source.put_file(b"/f", &bytes(1, 30_000));
        source.false_size.set(Some(claimed));
        let log = Log::default();
        let summary = run(&source, &[b"/f"], &target, b"/g", Options::default(), &log)
            .await
            .expect("fine");
        assert!(summary.is_success());
        assert_eq!(target.file(b"/g").map(|f| f.len()), Some(30_000));
        assert_eq!(summary.warnings > 0, said.is_some());
        assert!(said.is_none_or(|said| log.has(said)), "{:?}", log.lines);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_target_whose_size_is_wrong_never_gets_the_name() {
    for finish in [None, Some(32_768)] {
        let (source, mut target) = (MemorySide::new(""), MemorySide::new("h:"));
        target.finish_bytes_max = finish;
        source.put_file(b"/f", &bytes(1, 30_000));
        target.false_size.set(Some(29_999));
        let log = Log::default();
        let summary = run(&source, &[b"/f"], &target, b"/g", Options::default(), &log)
            .await
            .expect("fine");
        assert_eq!(summary.failed, 1);
        assert!(log.has("29999 bytes where 30000 were sent"));
        assert_eq!(target.paths().len(), 1);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn fsync_is_for_the_content_before_the_name_and_for_the_name_after() {
    for finish in [None, Some(32_768)] {
        let (source, mut target) = (MemorySide::new(""), MemorySide::new("h:"));
        target.finish_bytes_max = finish;
        source.put_file(b"/f", b"content");
        let options = Options {
            fsync: true,
            ..Options::default()
        };
        let log = Log::default();
        let done = run(&source, &[b"/f"], &target, b"/g", options, &log).await;
        assert!(done.expect("fine").is_success());
        let calls = target.log.take();
        let at = |name: &str| calls.iter().rposition(|call| call == name);
        assert!(
            at("write") < at("fsync") && at("fsync") < at("replace"),
            "{calls:?}"
        );
        assert!(
            at("fsync").is_some() && at("replace") < at("sync_name"),
            "{calls:?}"
        );
    }
}

/// What an upload of one short file asks of the target, in order. A line is a flight; `lstat` goes
/// while the source is opened.
#[tokio::test(flavor = "current_thread")]
async fn short_files_cost_four_flights_and_less_in_new_folders() {
    let (source, mut target) = (MemorySide::new(""), MemorySide::new("h:"));
    target.finish_bytes_max = Some(32_768);
    source.put_item(b"/d", Object::Folder);
    source.put_file(b"/d/f", b"short");
    source.put_file(b"/grown", b"longer than is said");
    let log = Log::default();
    let calls = |target: &MemorySide| {
        let mut calls = target.log.take();
        // A write is told block by block.
        calls.dedup();
        calls
    };
    let options = Options {
        preserve: true,
        ..recursive()
    };
    let done = run(&source, &[b"/d/f"], &target, b"/g", options.clone(), &log).await;
    assert!(done.expect("fine").is_success());
    let one_flight = ["write", "fsetstat", "fstat", "close"];
    let begin = ["stat", "lstat", "open"];
    assert_eq!(
        calls(&target),
        [&begin[..], &one_flight, &["replace"]].concat()
    );
    let done = run(&source, &[b"/d"], &target, b"/new", options, &log).await;
    assert!(done.expect("fine").is_success());
    let begin = ["stat", "mkdir", "open", "close", "open"];
    // The mark is made in the flight of the folder, and goes before the folder's times are set.
    let end = ["replace", "remove", "setstat"];
    assert_eq!(calls(&target), [&begin[..], &one_flight, &end].concat());
    // One that has grown meanwhile takes the long way, whole.
    source.false_size.set(Some(6));
    let done = run(
        &source,
        &[b"/grown"],
        &target,
        b"/grown",
        Options::default(),
        &log,
    )
    .await;
    assert_eq!(done.expect("fine").warnings, 1);
    assert!(log.has("grew from 6 to 19"));
    assert_eq!(
        target.file(b"/grown").as_deref(),
        Some(&b"longer than is said"[..])
    );
}

#[tokio::test(flavor = "current_thread")]
async fn a_full_disk_leaves_nothing_and_the_others_go_on() {
    let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
    source.put_file(b"/big", &bytes(1, 50_000));
    source.put_file(b"/small", b"x");
    target.put_item(b"/d", Object::Folder);
    target.room.set(30_000);
    let log = Log::default();
    let summary = run(
        &source,
        &[b"/big", b"/small"],
        &target,
        b"/d",
        Options::default(),
        &log,
    )
    .await
    .expect("fine");
    assert_eq!((summary.failed, summary.files), (1, 1));
    assert!(log.has("failed /big: to h:/d/big: no space left on device"));
    assert_eq!(target.file(b"/d/small").as_deref(), Some(&b"x"[..]));
    assert_eq!(target.paths().len(), 3);
}

#[tokio::test(flavor = "current_thread")]
async fn hard_names_and_trees_arrive_with_mode_and_times() {
    let names: [&[u8]; 7] = [
        b"\xff\xfe",
        b"new\nline",
        b"-dash",
        b"two words",
        b"*?[x]",
        b"\\",
        "é".as_bytes(),
    ];
    let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
    source.put_item(b"/t", Object::Folder);
    source.put_item(b"/t/empty", Object::Folder);
    for name in names {
        source.put_file(&temp::join(b"/t", name), name);
        let folder = [b"/t/d", name].concat();
        source.put_item(&folder, Object::Folder);
        source.put_file(&temp::join(&folder, name), name);
    }
    let options = Options {
        preserve: true,
        ..recursive()
    };
    let log = Log::default();
    let summary = run(&source, &[b"/t"], &target, b"/copy", options, &log)
        .await
        .expect("fine");
    assert_eq!(
        (summary.files, summary.folders, summary.failed),
        (14, 9, 0),
        "{:?}",
        log.lines
    );
    for path in source.paths() {
        let Some(rest) = path.strip_prefix(b"/t") else {
            continue;
        };
        let copied = [b"/copy", rest].concat();
        assert_eq!(source.file(&path), target.file(&copied));
        let (old, new) = (source.item(&path), target.item(&copied));
        assert_eq!((old.mode, old.times), (new.mode, new.times));
    }
    // Into a folder that exists.
    target.put_item(b"/into", Object::Folder);
    run(&source, &[b"/t"], &target, b"/into", recursive(), &log)
        .await
        .expect("fine");
    assert!(target.file(b"/into/t/-dash").is_some());
    // The contents of `.`.
    run(&source, &[b"/t/."], &target, b"/into", recursive(), &log)
        .await
        .expect("fine");
    assert!(target.file(b"/into/-dash").is_some());
}

#[tokio::test(flavor = "current_thread")]
async fn links_are_followed_but_not_in_circles() {
    let (source, target) = (MemorySide::new("h:"), MemorySide::new(""));
    source.put_item(b"/t", Object::Folder);
    source.put_item(b"/t/a", Object::Folder);
    source.put_file(b"/t/a/f", b"f");
    source.put_item(b"/other", Object::Folder);
    source.put_file(b"/other/g", b"g");
    source.put_item(b"/t/to_file", Object::Link(b"/t/a/f".to_vec()));
    source.put_item(b"/t/to_folder", Object::Link(b"/other".to_vec()));
    source.put_item(b"/t/a/self", Object::Link(b"/t/a".to_vec()));
    source.put_item(b"/t/a/up", Object::Link(b"/t".to_vec()));
    source.put_item(b"/t/a/top", Object::Link(b"/".to_vec()));
    source.put_item(b"/t/dangling", Object::Link(b"/nowhere".to_vec()));
    source.put_item(b"/t/null", Object::Device);
    let log = Log::default();
    let summary = run(&source, &[b"/t"], &target, b"/c", recursive(), &log)
        .await
        .expect("fine");
    assert_eq!(
        (summary.files, summary.failed, summary.warnings),
        (3, 4, 1),
        "{:?}",
        log.lines
    );
    assert_eq!(target.file(b"/c/to_folder/g").as_deref(), Some(&b"g"[..]));
    assert_eq!(target.file(b"/c/to_file").as_deref(), Some(&b"f"[..]));
}

#[tokio::test(flavor = "current_thread")]
async fn many_small_files_are_in_flight_at_once_and_no_more_than_allowed() {
    let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
    source.put_item(b"/t", Object::Folder);
    for number in 0..1000 {
        source.put_file(format!("/t/{number}").as_bytes(), b"small");
    }
    let log = Log::default();
    let summary = run(&source, &[b"/t"], &target, b"/c", recursive(), &log)
        .await
        .expect("fine");
    assert_eq!(summary.files, 1000);
    let most = target.in_flight_most.get();
    assert!((32..=2 * FILES_IN_FLIGHT_MAX).contains(&most), "{most}");
    // open, write until its end (2), fstat and lstat, close, replace: in a new folder nothing is
    // looked for.
    assert!(
        target.calls.get() < 7 * 1000 + 100,
        "{}",
        target.calls.get()
    );
}

#[tokio::test(flavor = "current_thread")]
async fn targets_are_what_scp_users_expect() {
    let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
    source.put_file(b"/f", b"new");
    source.put_item(b"/t", Object::Folder);
    target.put_file(b"/real", b"old");
    target.put_item(b"/link", Object::Link(b"/real".to_vec()));
    target.put_item(b"/null", Object::Device);
    target.put_item(b"/d", Object::Folder);
    target.put_file(b"/readonly", b"old");
    target
        .items
        .borrow_mut()
        .get_mut(b"/readonly".as_slice())
        .expect("is there")
        .mode = 0o444;
    target
        .items
        .borrow_mut()
        .get_mut(b"/real".as_slice())
        .expect("is there")
        .mode = 0o4711;
    let log = Log::default();
    let go = async |paths: &[&[u8]], to: &[u8], options: Options| {
        run(&source, paths, &target, to, options, &log).await
    };
    let plain = Options::default;
    assert!(
        go(&[b"/f"], b"/link", plain())
            .await
            .expect("fine")
            .is_success()
    );
    assert_eq!(
        target.file(b"/real").as_deref(),
        Some(&b"new"[..]),
        "through the link"
    );
    assert!(matches!(target.item(b"/link").object, Object::Link(_)));
    assert_eq!(
        target.item(b"/real").mode,
        0o711,
        "its mode, without setuid"
    );
    assert!(
        go(&[b"/f"], b"/null", plain())
            .await
            .expect("fine")
            .is_success()
    );
    assert!(matches!(target.item(b"/null").object, Object::Device));
    assert!(
        go(&[b"/f"], b"/d", plain())
            .await
            .expect("fine")
            .is_success()
    );
    assert!(target.file(b"/d/f").is_some());
    assert!(
        !go(&[b"/f"], b"/readonly", plain())
            .await
            .expect("said per file")
            .is_success()
    );
    assert_eq!(target.file(b"/readonly").as_deref(), Some(&b"old"[..]));
    assert!(
        go(&[b"/f", b"/f"], b"/real", plain()).await.is_err(),
        "several need a folder"
    );
    assert!(go(&[b"/f"], b"/missing/", plain()).await.is_err());
    assert!(
        !go(&[b"/t"], b"/d", plain())
            .await
            .expect("said")
            .is_success(),
        "needs -r"
    );
    assert!(
        !go(&[b"/t"], b"/real", recursive())
            .await
            .expect("said")
            .is_success()
    );
    assert!(
        !go(&[b"/none"], b"/x", plain())
            .await
            .expect("said")
            .is_success()
    );
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_is_not_copied_onto_itself() {
    let place = MemorySide::new("");
    place.put_file(b"/f", b"content");
    place.put_item(b"/l", Object::Link(b"/f".to_vec()));
    let log = Log::default();
    for to in [&b"/f"[..], b"/l", b"/./f"] {
        let summary = run(&place, &[b"/f"], &place, to, Options::default(), &log).await;
        assert_eq!(summary.expect("said").failed, 1);
    }
    assert!(log.has("same file"));
    assert_eq!(place.file(b"/f").as_deref(), Some(&b"content"[..]));
}

#[tokio::test(flavor = "current_thread")]
async fn what_a_broken_copy_in_place_leaves_is_said() {
    for kind in [FaultKind::Failure, FaultKind::Lost] {
        let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
        source.put_file(b"/f", &bytes(1, 100_000));
        target.put_file(b"/g", b"old");
        let options = Options {
            in_place: true,
            ..Options::default()
        };
        // Behind stat, lstat and open.
        target.fail_at.set(Some((5, kind)));
        let log = Log::default();
        let summary = run(&source, &[b"/f"], &target, b"/g", options, &log).await;
        assert_eq!(summary.expect("said").failed, 1);
        assert_ne!(target.file(b"/g").as_deref(), Some(&b"old"[..]));
        assert!(log.has("a part of it now"), "{:?}", log.lines);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn in_place_writes_to_the_name_itself_and_still_verifies() {
    for corrupts in [false, true] {
        let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
        source.put_file(b"/f", &bytes(1, 15_000));
        target.put_file(b"/g", &bytes(2, 40_000));
        target.corrupts.set(corrupts);
        let options = Options {
            in_place: true,
            verify: true,
            ..Options::default()
        };
        let log = Log::default();
        let summary = run(&source, &[b"/f"], &target, b"/g", options, &log)
            .await
            .expect("fine");
        assert_eq!(summary.is_success(), !corrupts, "{:?}", log.lines);
        let is_there = target.file(b"/g") == source.file(b"/f");
        assert!(is_there != corrupts && (is_there || target.file(b"/g").is_none()));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn refused_attributes_are_a_warning() {
    let (source, mut target) = (MemorySide::new(""), MemorySide::new("h:"));
    target.can_setstat = false;
    source.put_file(b"/f", b"x");
    let options = Options {
        preserve: true,
        ..Options::default()
    };
    let log = Log::default();
    let summary = run(&source, &[b"/f"], &target, b"/g", options, &log)
        .await
        .expect("fine");
    assert!(summary.is_success() && summary.warnings == 1);
    assert!(log.has("mode and times were not set: Permission denied"));
}

#[tokio::test(flavor = "current_thread")]
async fn globs_find_what_they_should() {
    let side = MemorySide::new("h:");
    for folder in [b"/a".as_slice(), b"/b", b"/.h"] {
        side.put_item(folder, Object::Folder);
    }
    for file in [
        b"/a/x.c".as_slice(),
        b"/a/y.c",
        b"/b/x.c",
        b"/a/.hidden.c",
        b"/a/[lit].c",
    ] {
        side.put_file(file, b"");
    }
    let find = async |pattern: &[u8]| glob::expand(&side, pattern).await;
    let strings = |paths: Vec<Vec<u8>>| {
        let show = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        paths.iter().map(show).collect::<Vec<_>>().join(" ")
    };
    for (pattern, found) in [
        ("/*/x.c", "/a/x.c /b/x.c"),
        ("/a/*.c", "/a/[lit].c /a/x.c /a/y.c"),
        ("/a/.*.c", "/a/.hidden.c"),
        ("/[ab]/x.?", "/a/x.c /b/x.c"),
        ("/a/[lit].c", "/a/[lit].c"),
        (r"/a/\[lit\].c", "/a/[lit].c"),
        ("/plain/missing", "/plain/missing"),
    ] {
        let paths = find(pattern.as_bytes()).await.expect("found");
        assert_eq!(strings(paths), found, "{pattern}");
    }
    assert!(find(b"/a/*.h").await.is_err());
}

#[tokio::test(flavor = "current_thread")]
async fn names_that_lead_out_of_the_target_are_refused() {
    // Written past the listing's own rules: a server can send anything.
    let (source, target) = (Hostile(MemorySide::new("h:")), MemorySide::new(""));
    source.0.put_item(b"/t", Object::Folder);
    source.0.put_file(b"/t/good", b"x");
    let log = Log::default();
    let run = Run::new(&target, b"/c", false, recursive(), &log)
        .await
        .expect("fine");
    run.copy_from(&source, &[b"/t".to_vec()]).await;
    assert_eq!(run.summary().failed, HOSTILE_NAMES.len() as u64);
    assert_eq!(
        target.paths(),
        [b"/".to_vec(), b"/c".to_vec(), b"/c/good".to_vec()]
    );
}

const HOSTILE_NAMES: [&[u8]; 6] = [b"", b".", b"..", b"../evil", b"/etc/evil", b"a\0b"];

/// A server that lists names that are none.
struct Hostile(MemorySide);

impl Side for Hostile {
    type File = memory::OpenFile;
    type Listing = Vec<Entry>;

    async fn list(&self, path: &[u8]) -> Result<Vec<Entry>, Fault> {
        let mut entries = self.0.list(path).await?;
        let attrs = entries[0].attrs;
        entries.extend(HOSTILE_NAMES.map(|name| Entry {
            name: name.to_vec(),
            attrs,
        }));
        Ok(entries)
    }

    async fn next_entries(&self, listing: &mut Vec<Entry>) -> Result<Batch, Fault> {
        self.0.next_entries(listing).await
    }
    async fn stop_listing(&self, listing: Vec<Entry>) {
        self.0.stop_listing(listing).await;
    }
    fn handles_max(&self) -> Option<usize> {
        self.0.handles_max()
    }
    fn folders_max(&self) -> Option<usize> {
        self.0.folders_max()
    }

    fn prefix(&self) -> &str {
        self.0.prefix()
    }
    async fn stat(&self, path: &[u8]) -> Result<fullbore_sftp::proto::Attrs, Fault> {
        self.0.stat(path).await
    }
    async fn lstat(&self, path: &[u8]) -> Result<fullbore_sftp::proto::Attrs, Fault> {
        self.0.lstat(path).await
    }
    async fn realpath(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        self.0.realpath(path).await
    }
    async fn expand(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        self.0.expand(path).await
    }
    async fn open(&self, path: &[u8], how: OpenHow) -> Result<Self::File, Fault> {
        self.0.open(path, how).await
    }
    async fn close(&self, file: Self::File) -> Result<(), Fault> {
        self.0.close(file).await
    }
    async fn release(&self, file: Self::File) {
        self.0.release(file).await;
    }
    fn finish_bytes_max(&self) -> Option<usize> {
        self.0.finish_bytes_max()
    }
    async fn finish(&self, file: Self::File, whole: &Whole<'_>) -> Result<Finished<Fault>, Fault> {
        self.0.finish(file, whole).await
    }
    async fn let_writers_show(&self) {}
    async fn fstat(&self, file: &Self::File) -> Result<fullbore_sftp::proto::Attrs, Fault> {
        self.0.fstat(file).await
    }
    async fn fsetstat(
        &self,
        file: &Self::File,
        attrs: fullbore_sftp::proto::Attrs,
    ) -> Result<(), Fault> {
        self.0.fsetstat(file, attrs).await
    }
    async fn setstat(&self, path: &[u8], attrs: fullbore_sftp::proto::Attrs) -> Result<(), Fault> {
        self.0.setstat(path, attrs).await
    }
    async fn fsync(&self, file: &Self::File) -> Result<(), Fault> {
        self.0.fsync(file).await
    }
    async fn sync_name(&self, path: &[u8]) -> Result<(), Fault> {
        self.0.sync_name(path).await
    }
    async fn mkdir(&self, path: &[u8], mode: u32) -> Result<(), Fault> {
        self.0.mkdir(path, mode).await
    }
    async fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        self.0.remove(path).await
    }
    async fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Fault> {
        self.0.rename(from, to).await
    }
    async fn replace(&self, from: &[u8], to: &[u8]) -> Result<(), Fault> {
        self.0.replace(from, to).await
    }
    async fn read_to(
        &self,
        file: &Self::File,
        sink: std::rc::Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved {
        self.0.read_to(file, sink, span, moving).await
    }
    async fn write_from(
        &self,
        file: &Self::File,
        source: std::rc::Rc<dyn FileIo>,
        span: Span,
        moving: Moving<'_>,
    ) -> Moved {
        self.0.write_from(file, source, span, moving).await
    }
    async fn hash(
        &self,
        file: (&Self::File, &[u8]),
        algorithms: &[fullbore_sftp::proto::HashAlgorithm],
        offset: u64,
        len: u64,
    ) -> Result<Option<Digest>, Fault> {
        self.0.hash(file, algorithms, offset, len).await
    }
    async fn exec(&self, command: &[u8]) -> Option<Vec<u8>> {
        self.0.exec(command).await
    }
    fn direct(&self, file: &Self::File) -> Option<std::rc::Rc<dyn FileIo>> {
        self.0.direct(file)
    }
    fn identity(&self, path: &[u8]) -> Option<(u64, u64)> {
        self.0.identity(path)
    }
}

/// A one-handle mailbox, and servers with few more; none of them says so.
#[tokio::test(flavor = "current_thread")]
async fn how_many_files_a_server_lets_be_open_is_learned_and_no_file_is_lost() {
    for (from, to) in [("", "h:"), ("h:", ""), ("g:", "h:")] {
        for cap in [1, 2, 3, 20] {
            let (mut source, mut target) = (MemorySide::new(from), MemorySide::new(to));
            let server = if to.is_empty() {
                &mut source
            } else {
                &mut target
            };
            server.handles_cap = Some(cap);
            source.batch_len = 100;
            for folder in ["/t", "/t/a", "/t/a/b"] {
                source.put_item(folder.as_bytes(), Object::Folder);
                for number in 0..250 {
                    source.put_file(format!("{folder}/{number}").as_bytes(), b"small");
                }
            }
            let log = Log::default();
            let summary = run(&source, &[b"/t"], &target, b"/c", recursive(), &log)
                .await
                .expect("fine");
            assert_eq!((summary.files, summary.failed), (750, 0), "{:?}", log.lines);
            let server = if to.is_empty() { &source } else { &target };
            let most = server.handles_most.get();
            assert!(most > cap, "it was tried: {most}");
            assert_eq!(server.handles_open.get(), 0);
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn files_that_cannot_be_opened_fail_and_the_others_are_copied() {
    let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
    source.put_item(b"/t", Object::Folder);
    target.put_item(b"/c", Object::Folder);
    target.put_item(b"/c/t", Object::Folder);
    for number in 0..300 {
        source.put_file(format!("/t/{number}").as_bytes(), b"small");
        if number % 10 == 0 {
            target.put_item(format!("/c/t/{number}").as_bytes(), Object::Folder);
        }
    }
    let log = Log::default();
    let summary = run(&source, &[b"/t"], &target, b"/c", recursive(), &log)
        .await
        .expect("fine");
    assert_eq!(
        (summary.files, summary.failed),
        (270, 30),
        "{:?}",
        log.lines
    );
}

/// The same command again goes on where it was interrupted, and leaves nothing of the first run; after that
/// it does what `cp -r` does to a folder that is there.
#[tokio::test(flavor = "current_thread")]
async fn an_interrupted_copy_of_a_folder_goes_on_in_the_same_place() {
    for (from, to, finish) in pairings() {
        for side in [0, 1] {
            let mut interrupted = 0;
            for at in 2.. {
                let (source, mut target) = (MemorySide::new(from), MemorySide::new(to));
                target.finish_bytes_max = finish;
                source.put_item(b"/d", Object::Folder);
                source.put_file(b"/d/large", &bytes(1, 100_000));
                source.put_item(b"/d/in", Object::Folder);
                source.put_file(b"/d/in/small", b"small");
                let faulty = if side == 0 { &source } else { &target };
                faulty.fail_at.set(Some((at, FaultKind::Lost)));
                let log = Log::default();
                let go = async || run(&source, &[b"/d"], &target, b"/new", recursive(), &log).await;
                let first = go().await;
                faulty.fail_at.set(None);
                let is_whole = first.as_ref().is_ok_and(Summary::is_success);
                let was_begun = target.paths().len() > 2;
                if target.paths().len() == 2 {
                    // Not even marked: nothing of the first run is in it, either.
                    continue;
                }
                interrupted += usize::from(was_begun && !is_whole);
                if !is_whole {
                    assert!(go().await.expect("fine").is_success(), "{:?}", log.lines);
                }
                let found = |path: &[u8]| target.file(path).is_some();
                let is_there = found(b"/new/large") && found(b"/new/in/small");
                assert!(is_there, "{from} {to} {at} {:?}", target.paths());
                assert_eq!(target.paths().len(), 5, "{at} {:?}", target.paths());
                if is_whole {
                    break;
                }
                assert!(go().await.expect("fine").is_success());
                assert!(found(b"/new/d/large") && found(b"/new/large"));
                assert!(temps(&target).is_empty(), "{:?}", target.paths());
            }
            assert!(interrupted > 3, "{from} {to} {side}: {interrupted}");
        }
    }
}

/// Another source's copy to the same place, and a folder that nobody marked, are not taken for one's own.
#[tokio::test(flavor = "current_thread")]
async fn what_another_source_left_is_not_gone_on_with() {
    let (source, target) = (MemorySide::new(""), MemorySide::new("h:"));
    for folder in [&b"/d"[..], b"/x", b"/x/d"] {
        source.put_item(folder, Object::Folder);
    }
    source.put_file(b"/d/f", b"one");
    source.put_file(b"/x/d/f", b"other");
    let log = Log::default();
    // Interrupted when it lists: the folder and its mark are there.
    source.fail_at.set(Some((3, FaultKind::Lost)));
    let go = async |path: &[u8]| run(&source, &[path], &target, b"/new", recursive(), &log).await;
    assert!(!go(b"/d").await.expect("said").is_success());
    source.fail_at.set(None);
    assert_eq!(temps(&target).len(), 1, "{:?}", target.paths());
    // Several sources go into it, each under its name.
    let both: &[&[u8]] = &[b"/d", b"/x"];
    let summary = run(&source, both, &target, b"/new", recursive(), &log).await;
    assert!(summary.expect("fine").is_success());
    assert_eq!(target.file(b"/new/d/f").as_deref(), Some(&b"one"[..]));
    assert_eq!(target.file(b"/new/x/d/f").as_deref(), Some(&b"other"[..]));
    assert!(target.file(b"/new/f").is_none());
    assert!(go(b"/x/d").await.expect("fine").is_success());
    assert_eq!(target.file(b"/new/d/f").as_deref(), Some(&b"other"[..]));
    assert!(go(b"/d").await.expect("fine").is_success());
    assert_eq!(target.file(b"/new/f").as_deref(), Some(&b"one"[..]));
    assert_eq!(target.file(b"/new/d/f").as_deref(), Some(&b"other"[..]));
    assert!(temps(&target).is_empty());
}

#[tokio::test(flavor = "current_thread")]
async fn a_folder_is_not_copied_into_itself() {
    for prefix in ["", "h:"] {
        let place = MemorySide::new(prefix);
        place.put_item(b"/d", Object::Folder);
        place.put_file(b"/d/f", b"content");
        place.put_item(b"/d/in", Object::Folder);
        place.put_item(b"/link", Object::Link(b"/d/in".to_vec()));
        place.put_item(b"/dd", Object::Folder);
        place.put_item(b"/t", Object::Folder);
        place.put_item(b"/t/up", Object::Link(b"/d".to_vec()));
        let before = place.paths();
        let log = Log::default();
        for to in [
            &b"/d"[..],
            b"/d/",
            b"/d/in",
            b"/d/new",
            b"/link",
            b"/d/in/x",
        ] {
            let done = run(&place, &[b"/d"], &place, to, recursive(), &log).await;
            assert_eq!(done.expect("said").failed, 1, "{}", to.escape_ascii());
            assert!(place.paths() == before, "{}", to.escape_ascii());
        }
        assert!(log.has("cannot be copied into itself"));
        // A source whose link leads to where the copy is.
        let done = run(&place, &[b"/t"], &place, b"/d/in", recursive(), &log).await;
        assert_eq!(done.expect("said").failed, 1);
        assert!(log.has("a folder that the target is in"));
        // A name that only begins alike is another folder; so is one of the same name elsewhere.
        let done = run(&place, &[b"/d/in"], &place, b"/dd", recursive(), &log).await;
        assert!(done.expect("fine").is_success());
        let other = MemorySide::new(prefix);
        other.put_item(b"/d", Object::Folder);
        let done = run(&place, &[b"/d"], &other, b"/d", recursive(), &log).await;
        assert!(done.expect("fine").is_success());
        assert!(other.file(b"/d/d/f").is_some());
    }
}
