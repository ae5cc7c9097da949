//! Whole transfers over lanes in memory that are slow, come, go, and fail at random.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use fullbore_base::{Instant, Rng};
use fullbore_testkit::{seed, seeds};

use super::schedule::SPAN_BYTES_MAX;
use super::stripe::{Change, Crew, UnitMoving, stripe};
use crate::transfer::side::{Fault, FaultKind, Moved, Span};

/// Bytes that one step of a lane moves at most; a file has some thousand.
const STEP_BYTES: u64 = 200_000;

/// A lane that fails after so many bytes.
struct Lane {
    speed: u64,
    left: Cell<u64>,
    kind: FaultKind,
}

/// Which bytes are at their place, in runs: the content itself is the offset.
#[derive(Default)]
struct Target {
    runs: RefCell<fullbore_base::RangeSet>,
    furthest: Cell<u64>,
}

impl Target {
    fn put(&self, start: u64, end: u64) {
        self.runs.borrow_mut().insert(start..end);
        self.furthest.set(self.furthest.get().max(end));
        let frontier = self.frontier();
        assert!(
            self.furthest.get() <= frontier + SPAN_BYTES_MAX,
            "{frontier} {end}"
        );
    }

    fn frontier(&self) -> u64 {
        let runs = self.runs.borrow();
        let first = runs.iter().next();
        first.filter(|run| run.start == 0).map_or(0, |run| run.end)
    }
}

struct TestCrew {
    size: u64,
    target: Target,
    now: Cell<u64>,
    first: Rc<Lane>,
    /// Those to come, last first.
    coming: RefCell<Vec<Rc<Lane>>>,
    here: RefCell<Vec<Rc<Lane>>>,
    rng: RefCell<Rng>,
    joined: Cell<usize>,
    left: Cell<usize>,
    failed: Cell<usize>,
}

impl TestCrew {
    fn new(seed: u64, size: u64) -> Self {
        Self {
            size,
            target: Target::default(),
            now: Cell::new(0),
            first: lane(STEP_BYTES / 4, u64::MAX),
            coming: RefCell::default(),
            here: RefCell::default(),
            rng: RefCell::new(Rng::seeded(seed)),
            joined: Cell::new(0),
            left: Cell::new(0),
            failed: Cell::new(0),
        }
    }

    fn below(&self, max: u64) -> u64 {
        self.rng.borrow_mut().below(max)
    }

    async fn step(&self) {
        self.now.set(self.now.get() + 200_000);
        tokio::task::yield_now().await;
    }

    async fn all(&self) -> Moved {
        let span = Span {
            offset: 0,
            size_hint: self.size,
            end_max: None,
        };
        let told = Cell::new(0);
        let moving = |bytes: u64| told.set(bytes);
        let moved = stripe(self, span, true, &moving).await;
        if moved.fault.is_none() {
            assert!(told.get() >= self.size, "{} of {}", told.get(), self.size);
        }
        moved
    }
}

fn lane(speed: u64, left: u64) -> Rc<Lane> {
    Rc::new(Lane {
        speed,
        left: Cell::new(left),
        kind: FaultKind::Lost,
    })
}

impl Crew for TestCrew {
    type Lane = Lane;

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.get())
    }

    fn rtt(&self) -> Duration {
        Duration::from_millis(10)
    }

    fn lanes(&self) -> Vec<Rc<Lane>> {
        vec![Rc::clone(&self.first)]
    }

    async fn change(&self) -> Change<Lane> {
        for _ in 0..20 + self.below(100) {
            self.step().await;
        }
        if self.below(3) == 0 && !self.here.borrow().is_empty() {
            let at = self.rng.borrow_mut().index(self.here.borrow().len());
            return Change::Leave(self.here.borrow_mut().remove(at));
        }
        let coming = self.coming.borrow_mut().pop();
        match coming {
            Some(lane) => {
                self.joined.set(self.joined.get() + 1);
                self.here.borrow_mut().push(Rc::clone(&lane));
                Change::Join(vec![lane])
            }
            None => std::future::pending().await,
        }
    }

    async fn run(&self, lane: &Lane, span: Span, moving: UnitMoving<'_>) -> Moved {
        let end = span.end_max.unwrap_or(self.size).min(self.size);
        let mut at = span.offset;
        let mut frontier = at;
        while at < end {
            self.step().await;
            let len = (1 + self.below(lane.speed)).min(end - at);
            if lane.left.get() < len {
                let fault = Fault::new(lane.kind, "gone");
                // The last bytes may be there without the server having said so.
                self.target.put(at, at + len / 2);
                return Moved {
                    end: frontier,
                    fault: Some(fault),
                };
            }
            lane.left.set(lane.left.get() - len);
            self.target.put(at, at + len);
            at += len;
            // Answers come late at times.
            if self.below(2) == 0 {
                frontier = at;
            }
            moving(at - span.offset, frontier);
        }
        Moved {
            end: at.max(span.offset),
            fault: None,
        }
    }

    async fn leave(&self, _: Rc<Lane>) -> Result<(), Fault> {
        self.step().await;
        self.left.set(self.left.get() + 1);
        Ok(())
    }

    fn on_failed(&self, _: &Lane, _: &Fault) {
        self.failed.set(self.failed.get() + 1);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn every_byte_arrives_whatever_lanes_come_go_and_die() {
    let (mut joined, mut left, mut failed) = (0, 0, 0);
    for seed in seeds(0..150) {
        let mut rng = Rng::seeded(seed);
        let size = 8 * 1024 * 1024 + rng.below(300 << 20);
        let crew = TestCrew::new(seed, size);
        for _ in 0..rng.below(12) {
            let left = match rng.below(2) {
                0 => u64::MAX,
                _ => rng.below(40 << 20),
            };
            let kind = [FaultKind::Lost, FaultKind::Failure][rng.index(2)];
            crew.coming.borrow_mut().push(Rc::new(Lane {
                speed: 1 + rng.below(STEP_BYTES),
                left: Cell::new(left),
                kind,
            }));
        }
        let moved = crew.all().await;
        assert_eq!(
            moved,
            Moved {
                end: size,
                fault: None
            }
        );
        assert_eq!(crew.target.frontier(), size);
        joined += crew.joined.get();
        left += crew.left.get();
        failed += crew.failed.get();
    }
    assert!(
        joined > 300 && left > 50 && failed > 50,
        "{joined} {left} {failed}"
    );
}

#[tokio::test(flavor = "current_thread")]
async fn what_was_moved_when_the_first_lane_dies_is_told_right() {
    let mut holes = 0;
    for seed in seeds(0..150) {
        let mut rng = Rng::seeded(seed);
        let size = 100 << 20;
        let mut crew = TestCrew::new(seed, size);
        crew.first = lane(STEP_BYTES / 4, rng.below(3 << 20));
        for _ in 0..rng.below(10) {
            let lane = lane(1 + rng.below(STEP_BYTES), u64::MAX);
            crew.coming.borrow_mut().push(lane);
        }
        let moved = crew.all().await;
        assert_eq!(moved.fault.map(|fault| fault.kind), Some(FaultKind::Lost));
        assert!(moved.end <= crew.target.frontier(), "a hole in front of it");
        assert!(crew.target.furthest.get() - moved.end <= SPAN_BYTES_MAX);
        holes += usize::from(crew.target.furthest.get() > crew.target.frontier());
    }
    assert!(holes > 50, "{holes}");
}

#[tokio::test(flavor = "current_thread")]
async fn an_end_with_bytes_behind_it_is_no_success() {
    let crew = TestCrew::new(seed(1), 100 << 20);
    let claimed = Span {
        offset: 0,
        size_hint: 90 << 20,
        end_max: None,
    };
    let moved = stripe(&crew, claimed, true, &|_| {}).await;
    assert_eq!(moved.end, 100 << 20, "a file that grew is read on");
    assert_eq!(moved.fault, None);
}
