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

/// A lane that ends after so many bytes.
struct Lane {
    speed: u64,
    left: Cell<u64>,
    end: End,
}

/// How a lane ends.
#[derive(Clone, Copy)]
enum End {
    Fails(FaultKind),
    /// It says nothing more; what it was told to write may be written at any time.
    FallsSilent,
    /// The same, but what it is told once it was found to be silent it does.
    SilentOnce,
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
    stalled: Cell<usize>,
    is_leaving_allowed: Cell<bool>,
    /// When something was last moved, and the longest time before that in which nothing was.
    moved_at: Cell<u64>,
    longest_rest: Cell<u64>,
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
            stalled: Cell::new(0),
            is_leaving_allowed: Cell::new(true),
            moved_at: Cell::new(0),
            longest_rest: Cell::new(0),
        }
    }

    fn below(&self, max: u64) -> u64 {
        self.rng.borrow_mut().below(max)
    }

    async fn step(&self) {
        self.now.set(self.now.get() + 200_000);
        tokio::task::yield_now().await;
    }

    fn note_moved(&self) {
        let rest = self.now.get() - self.moved_at.replace(self.now.get());
        self.longest_rest.set(self.longest_rest.get().max(rest));
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
        end: End::Fails(FaultKind::Lost),
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
        let may_leave = self.is_leaving_allowed.get();
        if may_leave && self.below(3) == 0 && !self.here.borrow().is_empty() {
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
                let kind = match lane.end {
                    End::Fails(kind) => kind,
                    End::SilentOnce if self.stalled.get() > 0 => {
                        lane.left.set(u64::MAX);
                        continue;
                    }
                    End::FallsSilent | End::SilentOnce => {
                        self.target.put(at, at + len / 2);
                        return std::future::pending().await;
                    }
                };
                let fault = Fault::new(kind, "gone");
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
            self.note_moved();
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

    async fn on_failed(&self, _: &Lane, _: &Fault) {
        self.failed.set(self.failed.get() + 1);
    }

    async fn on_stalled(&self, _: &Lane, _: Duration) {
        self.stalled.set(self.stalled.get() + 1);
    }

    async fn until_look(&self) {
        for _ in 0..100 {
            self.step().await;
        }
    }

    fn answers_count(&self) -> u64 {
        self.now.get()
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
                end: End::Fails(kind),
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
async fn a_lane_that_falls_silent_holds_up_the_others_for_seconds_only() {
    let mut stalled = 0;
    for seed in seeds(0..60) {
        let mut rng = Rng::seeded(seed);
        let size = 100 << 20;
        let mut crew = TestCrew::new(seed, size);
        // At times the first, on which everything else depends, for as long as there is another.
        let is_first = rng.below(4) == 0;
        let silent = |left| Lane {
            speed: STEP_BYTES / 4,
            left: Cell::new(left),
            end: End::FallsSilent,
        };
        if is_first {
            crew.first = Rc::new(silent(rng.below(3 << 20)));
        }
        for number in 0..2 + rng.below(6) {
            let left = match (number, is_first) {
                // Lanes may leave: one that comes last stays.
                (0, _) | (_, true) => u64::MAX,
                (_, false) => rng.below(20 << 20),
            };
            let speed = STEP_BYTES / 4 + rng.below(STEP_BYTES);
            let lane = Lane {
                speed,
                ..silent(left)
            };
            crew.coming.borrow_mut().push(Rc::new(lane));
        }
        if is_first {
            // Whoever must do all the work must not be sent away.
            crew.is_leaving_allowed.set(false);
        }
        let moved = crew.all().await;
        assert_eq!(moved.fault, None, "{seed}");
        assert_eq!(crew.target.frontier(), size, "{seed}");
        let rest = Duration::from_nanos(crew.longest_rest.get());
        assert!(rest < Duration::from_secs(5), "{seed}: {rest:?}");
        stalled += crew.stalled.get();
    }
    assert!(stalled > 60, "{stalled}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_first_lane_that_was_stuck_takes_over_when_no_other_is_left() {
    for seed in seeds(0..40) {
        let mut rng = Rng::seeded(seed);
        let size = 100 << 20;
        let mut crew = TestCrew::new(seed, size);
        crew.is_leaving_allowed.set(false);
        crew.first = Rc::new(Lane {
            speed: STEP_BYTES,
            left: Cell::new(rng.below(1 << 20)),
            end: End::SilentOnce,
        });
        // It fails only once it was given what the first had: the span holds less.
        let other = lane(STEP_BYTES, SPAN_BYTES_MAX + (2 << 20) + rng.below(25 << 20));
        crew.coming.borrow_mut().push(other);
        let moved = crew.all().await;
        assert_eq!(moved.fault, None, "{seed}");
        assert_eq!(crew.target.frontier(), size, "{seed}");
        assert_eq!((crew.stalled.get(), crew.failed.get()), (1, 1), "{seed}");
    }
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
