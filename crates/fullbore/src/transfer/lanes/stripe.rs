//! Moves one file over several lanes that come and go while it runs.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fullbore_base::Instant;

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
    /// The next change; pending until there is one. Dropped when the file has been moved.
    async fn change(&self) -> Change<Self::Lane>;
    /// Moves a part.
    async fn run(&self, lane: &Self::Lane, span: Span, moving: UnitMoving<'_>) -> Moved;
    /// A lane that has nothing to do any more is left; closing it can fail, which counts.
    async fn leave(&self, lane: Rc<Self::Lane>) -> Result<(), Fault>;
    /// A lane has failed and gets nothing more.
    fn on_failed(&self, lane: &Self::Lane, fault: &Fault);
}

/// Something that ended.
enum Step<L> {
    Ran(LaneId, UnitId, Moved),
    Changed(Change<L>),
    Left(Result<(), Fault>),
}

struct Member<L> {
    id: LaneId,
    lane: Rc<L>,
    is_leaving: bool,
}

/// Moves `span` over the lanes of `crew`. A lane other than the first that fails hands what it had to
/// do to the others: what is wrong with the file shows on the first. `is_consistent`: bytes
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
    };
    for lane in crew.lanes() {
        run.join(lane);
    }
    // Its own, so that it is dropped first.
    let mut pool = Pool::new();
    pool.push(async { Step::Changed(crew.change().await) });
    loop {
        run.hand_out(&mut pool);
        if schedule.borrow().is_idle() {
            break;
        }
        let Some(step) = pool.next().await else { break };
        if let Err(fault) = run.take(step, &mut pool) {
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

struct Run<'a, C: Crew> {
    crew: &'a C,
    schedule: &'a RefCell<Schedule>,
    moving: Moving<'a>,
    members: Vec<Member<C::Lane>>,
    lanes_count: u32,
}

impl<'a, C: Crew> Run<'a, C> {
    fn join(&mut self, lane: Rc<C::Lane>) {
        let id = LaneId(self.lanes_count);
        self.lanes_count += 1;
        self.schedule.borrow_mut().add_lane(self.crew.now(), id);
        let is_leaving = false;
        self.members.push(Member {
            id,
            lane,
            is_leaving,
        });
    }

    /// Gives one unit after the other to each lane in turn, until all have enough to do.
    fn hand_out(&self, pool: &mut Pool<'a, Step<C::Lane>>) {
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
        pool.push(async move {
            let at = |bytes: u64, frontier: u64| {
                let mut schedule = schedule.borrow_mut();
                schedule.on_progress(crew.now(), unit.id, crew.rtt(), (bytes, frontier));
                let bytes = schedule.moved_bytes();
                drop(schedule);
                moving(bytes);
            };
            let moved = crew.run(&lane, unit.span, &at).await;
            Step::Ran(id, unit.id, moved)
        });
    }

    fn take(
        &mut self,
        step: Step<C::Lane>,
        pool: &mut Pool<'a, Step<C::Lane>>,
    ) -> Result<(), Fault> {
        match step {
            Step::Left(left) => return left,
            Step::Changed(change) => {
                match change {
                    Change::Join(lanes) => lanes.into_iter().for_each(|lane| self.join(lane)),
                    Change::Leave(lane) => self.dismiss(&lane),
                }
                let crew = self.crew;
                pool.push(async { Step::Changed(crew.change().await) });
            }
            Step::Ran(lane, unit, moved) => match moved.fault {
                None => self.schedule.borrow_mut().on_done(unit, moved.end),
                Some(fault) => {
                    self.schedule.borrow_mut().on_given_up(unit, moved.end);
                    self.fail(lane, fault)?;
                }
            },
        }
        self.leave(pool);
        Ok(())
    }

    /// The first lane's failure is the file's; any other lane's only its own.
    fn fail(&mut self, id: LaneId, fault: Fault) -> Result<(), Fault> {
        if self.members.first().is_none_or(|first| first.id == id) {
            return Err(fault);
        }
        // Its other units may go on, or fail, too.
        if let Some(at) = self.members.iter().position(|member| member.id == id) {
            let member = self.members.remove(at);
            self.schedule.borrow_mut().remove_lane(id);
            self.crew.on_failed(&member.lane, &fault);
        }
        Ok(())
    }

    fn dismiss(&mut self, lane: &Rc<C::Lane>) {
        let others = self.members.iter_mut().skip(1);
        if let Some(member) = others.into_iter().find(|m| Rc::ptr_eq(&m.lane, lane)) {
            member.is_leaving = true;
            self.schedule.borrow_mut().remove_lane(member.id);
        }
    }

    /// Leaves the lanes that have nothing to do any more.
    fn leave(&mut self, pool: &mut Pool<'a, Step<C::Lane>>) {
        let schedule = self.schedule.borrow();
        let crew = self.crew;
        for at in (0..self.members.len()).rev() {
            if self.members[at].is_leaving && !schedule.is_busy(self.members[at].id) {
                let lane = self.members.remove(at).lane;
                pool.push(async move { Step::Left(crew.leave(lane).await) });
            }
        }
    }
}
