//! Copies over lanes that are killed at any moment, and the run after that.

use fullbore_base::Rng;
use fullbore_testkit::seeds;

use super::super::memory::MemorySide;
use super::super::temp::SUFFIX;
use super::super::{Event, FaultKind, Observer, Options, Run};

/// Longer than what may have holes, so that something is left to go on from.
const LEN: usize = 80 << 20;

/// Prints what goes wrong.
struct Printed;

impl Observer for Printed {
    fn notice(&self, event: &Event<'_>) {
        if let Event::Failed { text, .. } | Event::Warning { text, .. } = event {
            println!("{text}");
        }
    }
}

async fn copy(source: &MemorySide, target: &MemorySide) -> bool {
    let options = Options::default();
    let run = Run::new(target, b"/g", false, options, &Printed).await;
    let Ok(run) = run else { return false };
    run.copy_from(source, &[b"/f".to_vec()]).await;
    run.summary().is_success()
}

/// What the first run left: the length, where it differs from the source first, and whether it is
/// marked.
fn left(target: &MemorySide, content: &[u8]) -> Option<(usize, usize, bool)> {
    let path = target.paths().into_iter().find(|p| p.ends_with(SUFFIX))?;
    let part = target.file(&path)?;
    let pairs = part.chunks(4096).zip(content.chunks(4096));
    let same = pairs.take_while(|(a, b)| a == b).count() * 4096;
    let is_striped = target.item(&path).is_striped.get();
    Some((part.len(), same.min(part.len()), is_striped))
}

#[tokio::test(flavor = "current_thread")]
async fn a_run_killed_at_any_moment_is_resumed_right() {
    let mut content = vec![0; LEN];
    Rng::seeded(1).fill(&mut content);
    let mut holes = 0;
    for seed in seeds(0..8) {
        let mut rng = Rng::seeded(seed);
        let (from, to) = [("", "h:"), ("h:", ""), ("g:", "h:")][rng.index(3)];
        let (mut source, mut target) = (MemorySide::new(from), MemorySide::new(to));
        source.lanes_max = if from.is_empty() { 1 } else { 5 };
        target.lanes_max = if to.is_empty() { 1 } else { 5 };
        target.can_hash = rng.one_in(4);
        source.put_file(b"/f", &content);
        if rng.one_in(2) {
            target.put_file(b"/g", b"old");
        }
        let old = target.file(b"/g");
        let is_killed = rng.one_in(2);
        let calls_max = 10 + rng.index(2000);
        if is_killed {
            // Dropped where it stands, as by SIGKILL.
            tokio::select! {
                biased;
                () = async {
                    while source.calls.get() + target.calls.get() < calls_max {
                        tokio::task::yield_now().await;
                    }
                } => {}
                _ = copy(&source, &target) => {}
            }
        } else {
            let side = if to.is_empty() { &source } else { &target };
            side.fail_at.set(Some((calls_max, FaultKind::Lost)));
            copy(&source, &target).await;
            side.fail_at.set(None);
        }
        let done = target.file(b"/g");
        let is_done = done.as_deref() == Some(&content[..]);
        assert!(is_done || done == old, "a half file has the name");
        if let Some((len, same, is_striped)) = left(&target, &content)
            && same < len
        {
            holes += 1;
            assert!(is_striped, "nothing tells of the holes");
            assert!(len - same <= super::SPAN_BYTES_MAX as usize);
        }
        assert!(copy(&source, &target).await);
        assert!(target.file(b"/g").as_deref() == Some(&content[..]));
        assert!(target.paths().iter().all(|path| !path.ends_with(SUFFIX)));
        assert!(!target.item(b"/g").is_striped.get(), "the mark is gone");
    }
    assert!(holes >= 3, "{holes}");
}
