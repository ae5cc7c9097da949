//! Moves one file over several lanes that come and go while it runs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use fullbore_base::Instant;
use tokio::sync::Notify;

use super::schedule::{LaneId, Schedule, Unit, UnitId};
use crate::transfer::pool::Pool;
use crate::transfer::side::{Fault, Moved, Moving, Span};

/// How far a unit is: bytes at their place, and the offset before which there is no hole.
pub(crate) type UnitMoving<'a> = &'a dyn Fn(u64, u64);

/// What happens to the lanes of a file.
pub(crate) enum Change<L> {
    /// More.
    Join(Vec<Rc<L>>),
    /// One that is not to get further units.
    Leave(Rc<L>),
}

/// The lanes of one open file.
#[allow(async_fn_in_trait)] // One thread: nothing has to be `Send`.
pub(crate) trait Crew {
    /// One handle of the file, on one session.
    type Lane;

    fn now(&self) -> Instant;
    /// The round-trip time, as far as known.
    fn rtt(&self) -> Duration;
    /// Those that there are. The first is the one that everything else about the file depends on.
    fn lanes(&self) -> Vec<Rc<Self::Lane>>;
    /// Bytes that a lane should have to do at least, as far as holes of that size may be left behind.
    fn depth_min(&self, _lane: &Self::Lane) -> u64 {
        0
    }
    /// The next change; pending until there is one. Dropped when the file has been moved.
    async fn change(&self) -> Change<Self::Lane>;
    /// Moves a part.
    async fn run(&self, lane: &Self::Lane, span: Span, moving: UnitMoving<'_>) -> Moved;
    /// A lane that has nothing to do any more is left; closing it can fail, which counts.
    async fn leave(&self, lane: Rc<Self::Lane>) -> Result<(), Fault>;
    /// A lane other than the first has failed and gets nothing more.
    async fn on_failed(&self, lane: &Self::Lane, fault: &Fault);
    /// A lane has stood still for so long while others moved. It gets nothing more; if it is the first,
    /// only as long as there are others.
    async fn on_stalled(&self, lane: &Self::Lane, stood: Duration);
    /// Waits until it is time to look again whether all lanes move.
    async fn until_look(&self);
    /// Signs of life of the far end so far.
    fn answers_count(&self) -> u64;
}

/// Has the units of one lane given up.
#[derive(Default)]
struct Stop {
    is_set: Cell<bool>,
    notify: Notify,
}

impl Stop {
    fn set(&self) {
        self.is_set.set(true);
        self.notify.notify_waiters();
    }

    async fn wait(&self) {
        let told = self.notify.notified();
        if !self.is_set.get() {
            told.await;
        }
    }
}

/// Something that ended.
enum Step<L> {
    Ran(LaneId, UnitId, Moved),
    /// The unit was taken from its lane.
    Stopped,
    Changed(Change<L>),
    Look,
    Left(Result<(), Fault>),
}

struct Member<L> {
    id: LaneId,
    lane: Rc<L>,
    is_leaving: bool,
    stop: Rc<Stop>,
}

/// Moves `span` over the lanes of `crew`. A lane other than the first that fails hands what it had to
/// do to the others: what is wrong with the file shows on the first. So does one that is stuck. `is_consistent`: bytes
/// behind an end that was found are a failure.
pub(crate) async fn stripe<C: Crew>(
    crew: &C,
    span: Span,
    is_consistent: bool,
    moving: Moving<'_>,
) -> Moved {
    let schedule = RefCell::new(Schedule::new(span));
    let mut run = Run {
        crew,
        schedule: &schedule,
        moving,
        members: Vec::new(),
        lanes_count: 0,
        answers_count: crew.answers_count(),
    };
    for lane in crew.lanes() {
        run.join(lane);
    }
    // Its own, so that it is dropped first.
    let mut pool = Pool::new();
    pool.push(async { Step::Changed(crew.change().await) });
    pool.push(look(crew));
    loop {
        run.hand_out(&mut pool);
        if schedule.borrow().is_idle() {
            break;
        }
        let Some(step) = pool.next().await else { break };
        if let Err(fault) = run.take(step, &mut pool).await {
            let end = schedule.borrow().frontier();
            let fault = Some(fault);
            return Moved { end, fault };
        }
    }
    let (end, is_more_behind) = schedule.borrow().outcome();
    let fault = (is_consistent && is_more_behind).then(|| {
        Fault::failure(format!(
            "the file ends at {end}, but has bytes behind that: it was changed while it was read"
        ))
    });
    Moved { end, fault }
}

async fn look<C: Crew>(crew: &C) -> Step<C::Lane> {
    crew.until_look().await;
    Step::Look
}

struct Run<'a, C: Crew> {
    crew: &'a C,
    schedule: &'a RefCell<Schedule>,
    moving: Moving<'a>,
    members: Vec<Member<C::Lane>>,
    lanes_count: u32,
    answers_count: u64,
}

impl<'a, C: Crew> Run<'a, C> {
    fn join(&mut self, lane: Rc<C::Lane>) {
        let id = LaneId(self.lanes_count);
        self.lanes_count += 1;
        self.schedule.borrow_mut().add_lane(self.crew.now(), id);
        self.members.push(Member {
            id,
            lane,
            is_leaving: false,
            stop: Rc::default(),
        });
    }

    /// Gives one unit after the other to each lane in turn, until all have enough to do.
    fn hand_out(&self, pool: &mut Pool<'a, Step<C::Lane>>) {
        for member in &self.members {
            let depth = self.crew.depth_min(&member.lane);
            self.schedule.borrow_mut().deepen(member.id, depth);
        }
        let mut is_handing = true;
        while is_handing {
            is_handing = false;
            for member in self.members.iter().filter(|member| !member.is_leaving) {
                let (now, rtt) = (self.crew.now(), self.crew.rtt());
                let unit = self.schedule.borrow_mut().next(now, member.id, rtt);
                if let Some(unit) = unit {
                    is_handing = true;
                    self.start(member, unit, pool);
                }
            }
        }
    }

    fn start(&self, member: &Member<C::Lane>, unit: Unit, pool: &mut Pool<'a, Step<C::Lane>>) {
        let (crew, schedule, moving) = (self.crew, self.schedule, self.moving);
        let (id, lane) = (member.id, Rc::clone(&member.lane));
        let stop = Rc::clone(&member.stop);
        pool.push(async move {
            let at = |bytes: u64, frontier: u64| {
                let mut schedule = schedule.borrow_mut();
                schedule.on_progress(crew.now(), unit.id, crew.rtt(), (bytes, frontier));
                let bytes = schedule.moved_bytes();
                drop(schedule);
                moving(bytes);
            };
            tokio::select! {
                biased;
                () = stop.wait() => Step::Stopped,
                moved = crew.run(&lane, unit.span, &at) => Step::Ran(id, unit.id, moved),
            }
        });
    }

    async fn take(
        &mut self,
        step: Step<C::Lane>,
        pool: &mut Pool<'a, Step<C::Lane>>,
    ) -> Result<(), Fault> {
        match step {
            Step::Left(left) => return left,
            Step::Stopped => {}
            Step::Changed(change) => {
                match change {
                    Change::Join(lanes) => lanes.into_iter().for_each(|lane| self.join(lane)),
                    Change::Leave(lane) => self.dismiss(&lane),
                }
                let crew = self.crew;
                pool.push(async { Step::Changed(crew.change().await) });
            }
            Step::Look => {
                self.look().await;
                pool.push(look(self.crew));
            }
            Step::Ran(lane, unit, moved) => match moved.fault {
                None => self.schedule.borrow_mut().on_done(unit, moved.end),
                Some(fault) => {
                    self.schedule.borrow_mut().on_given_up(unit, moved.end);
                    self.fail(lane, fault).await?;
                }
            },
        }
        self.leave(pool);
        Ok(())
    }

    /// Takes from a lane that is stuck what it has to do.
    async fn look(&mut self) {
        let answers_count = self.crew.answers_count();
        let is_answered = std::mem::replace(&mut self.answers_count, answers_count) < answers_count;
        let (now, rtt) = (self.crew.now(), self.crew.rtt());
        let stuck = self.schedule.borrow_mut().look(now, rtt, is_answered);
        let Some((id, stood)) = stuck else { return };
        let Some(at) = self.members.iter().position(|member| member.id == id) else {
            return;
        };
        let others = self.members.iter().enumerate();
        let mut others = others.filter(|(other, member)| *other != at && !member.is_leaving);
        if others.next().is_none() {
            // Nobody could take it over.
            return;
        }
        let lane = self.stop(at);
        self.crew.on_stalled(&lane, stood).await;
    }

    /// Has the lane at `at` give up its units, for others; the first stays, and gets none.
    fn stop(&mut self, at: usize) -> Rc<C::Lane> {
        let member = &mut self.members[at];
        member.stop.set();
        self.schedule.borrow_mut().remove_lane(member.id);
        if at > 0 {
            return self.members.remove(at).lane;
        }
        member.is_leaving = true;
        Rc::clone(&member.lane)
    }

    /// The first lane takes over again when no other is left.
    fn keep_one(&mut self) {
        if self.members.iter().any(|member| !member.is_leaving) {
            return;
        }
        let id = LaneId(self.lanes_count);
        let Some(first) = self.members.first_mut() else {
            return;
        };
        self.lanes_count += 1;
        first.id = id;
        first.is_leaving = false;
        first.stop = Rc::default();
        self.schedule.borrow_mut().add_lane(self.crew.now(), id);
    }

    /// The first lane's failure is the file's; any other lane's only its own.
    async fn fail(&mut self, id: LaneId, fault: Fault) -> Result<(), Fault> {
        let Some(at) = self.members.iter().position(|member| member.id == id) else {
            return Ok(());
        };
        if at == 0 {
            return Err(fault);
        }
        let lane = self.stop(at);
        self.keep_one();
        self.crew.on_failed(&lane, &fault).await;
        Ok(())
    }

    fn dismiss(&mut self, lane: &Rc<C::Lane>) {
        let others = self.members.iter_mut().skip(1);
        if let Some(member) = others.into_iter().find(|m| Rc::ptr_eq(&m.lane, lane)) {
            member.is_leaving = true;
            self.schedule.borrow_mut().dismiss_lane(member.id);
            self.keep_one();
        }
    }

    /// Leaves the lanes that have nothing to do any more.
    fn leave(&mut self, pool: &mut Pool<'a, Step<C::Lane>>) {
        let mut schedule = self.schedule.borrow_mut();
        let crew = self.crew;
        for at in (1..self.members.len()).rev() {
            if self.members[at].is_leaving && !schedule.is_busy(self.members[at].id) {
                let Member { id, lane, .. } = self.members.remove(at);
                schedule.remove_lane(id);
                pool.push(async move { Step::Left(crew.leave(lane).await) });
            }
        }
    }
}
