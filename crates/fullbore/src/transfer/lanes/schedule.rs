//! Which lane moves which part of a file. Sans-IO: the time is an argument.
//!
//! A shared cursor hands out *units*, parts of the file one behind the other, to lanes that have less
//! to do than they move in two round trips. A unit is half of what its lane moves in a round trip, and
//! less towards the end of the file, so that all lanes end together. What a lane leaves undone is
//! handed out again first. No unit reaches further than [`SPAN_BYTES_MAX`] past the *frontier*, the end
//! of what is at its place without a hole: a transfer that is cut off leaves no hole before that.
//! A lane that holds the frontier and stands still ([`stall`](super::stall)) is given up, and its units
//! go to others.
//!
//! Worked example, 100 bytes in units of 20 over lanes A and B: A has 0..20, B 20..40, A 40..60. B is
//! lost at 25: 25..40 goes to A, in front of 60..80. The last unit, 80.., goes on to wherever the
//! source ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fullbore_base::Instant;
use fullbore_sftp::client::config::REQUEST_LEN_MAX;

use super::stall::{Looked, Still, patience};
use crate::transfer::side::Span;

/// How far the bytes of one file that were moved lie apart: from the first hole to the end of what
/// lies farthest. What a broken transfer leaves is whole up to this much before its end. Chosen: ten
/// lanes of 2 MiB windows have 50 MiB handed out, and 1 Gbit/s at 200 ms needs twice 25 MB.
pub const SPAN_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Units are multiples of this where they can be: the longest request.
const UNIT_BYTES_MIN: u64 = REQUEST_LEN_MAX as u64;

/// Longer units gain nothing.
const UNIT_BYTES_MAX: u64 = 32 * UNIT_BYTES_MIN;

/// Units of a lane whose rate is not known.
const UNIT_BYTES_FIRST: u64 = 2 * UNIT_BYTES_MIN;

/// What a lane has to do at a time at least: it fills a window of 2 MiB, however late the answers
/// come. With less, a lane that is slow for a moment would be kept slow.
const DEPTH_BYTES_MIN: u64 = 12 * UNIT_BYTES_MIN;

/// The same for a lane that is the only one, and the most that a file may have handed out without being
/// marked: less than [`span_margin`](fullbore_sftp::client::config::span_margin).
pub(crate) const DEPTH_BYTES_ALONE: u64 = 64 * UNIT_BYTES_MIN;

/// Rates are taken over this long at least, and work for this long is handed out, on paths that are
/// shorter: timers and threads make anything less a guess.
const ROUND_MIN: Duration = Duration::from_millis(20);

/// Names a lane of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneId(pub(crate) u32);

/// Names a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnitId(u64);

/// A part to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) id: UnitId,
    pub(crate) span: Span,
}

/// A unit that is being moved.
#[derive(Debug)]
struct Part {
    lane: LaneId,
    start: u64,
    /// `None`: wherever the source ends.
    end: Option<u64>,
    /// As many bytes as it is expected to have.
    len: u64,
    bytes: u64,
    frontier: u64,
}

/// What a lane has to do, and how fast it is.
#[derive(Debug)]
struct Load {
    /// Bytes handed out that are not at their place.
    open_bytes: u64,
    /// What it should have to do at least.
    depth_min: u64,
    /// Bytes per second; `None` before the first round.
    rate: Option<u64>,
    round_since: Instant,
    round_bytes: u64,
    /// It is to get nothing more; what it has goes on.
    is_leaving: bool,
    still: Still,
}

/// The parts of one span, and the lanes that move them.
#[derive(Debug)]
pub(crate) struct Schedule {
    start: u64,
    /// First offset never handed out.
    cursor: u64,
    /// Where units end; only the last goes on behind it, if `is_open`.
    end: u64,
    is_open: bool,
    /// The last unit was handed out.
    is_handed_out: bool,
    /// What lanes gave back: start to end.
    back: BTreeMap<u64, Option<u64>>,
    parts: BTreeMap<UnitId, Part>,
    lanes: BTreeMap<LaneId, Load>,
    /// Lowest offset at which a unit met the end of the source.
    source_end: Option<u64>,
    /// End of the bytes moved that lie farthest.
    moved_to: u64,
    /// Bytes of the units that are over.
    moved_bytes: u64,
    units_count: u64,
    /// When lanes were last looked at for whether they move.
    looked_at: Option<Instant>,
}

impl Schedule {
    pub(crate) fn new(span: Span) -> Self {
        let hint = span.size_hint.max(span.offset);
        Self {
            start: span.offset,
            cursor: span.offset,
            end: span.end_max.unwrap_or(hint),
            is_open: span.end_max.is_none(),
            is_handed_out: false,
            back: BTreeMap::new(),
            parts: BTreeMap::new(),
            lanes: BTreeMap::new(),
            source_end: None,
            moved_to: span.offset,
            moved_bytes: 0,
            units_count: 0,
            looked_at: None,
        }
    }

    /// The path holds `bytes` of the lane, and the file may have holes as large: it gets as much to do.
    pub(crate) fn deepen(&mut self, lane: LaneId, bytes: u64) {
        if let Some(load) = self.lanes.get_mut(&lane) {
            load.depth_min = bytes;
        }
    }

    pub(crate) fn add_lane(&mut self, now: Instant, lane: LaneId) {
        let load = Load {
            open_bytes: 0,
            depth_min: 0,
            rate: None,
            round_since: now,
            round_bytes: 0,
            is_leaving: false,
            still: Still::default(),
        };
        self.lanes.insert(lane, load);
    }

    /// Nothing more is handed out to `lane`; its units go on.
    pub(crate) fn dismiss_lane(&mut self, lane: LaneId) {
        if let Some(load) = self.lanes.get_mut(&lane) {
            load.is_leaving = true;
        }
    }

    /// A lane is gone. What is left of its units goes to others. O(units).
    pub(crate) fn remove_lane(&mut self, lane: LaneId) {
        let parts = self.parts.iter().filter(|(_, part)| part.lane == lane);
        let undone: Vec<_> = parts.map(|(&id, part)| (id, part.frontier)).collect();
        for (id, frontier) in undone {
            self.on_given_up(id, frontier);
        }
        self.lanes.remove(&lane);
    }

    /// Lanes that are handed out something.
    fn lanes_count(&self) -> usize {
        self.lanes.values().filter(|load| !load.is_leaving).count()
    }

    /// To be called now and then: the lane that holds the frontier and has stood still for too long while
    /// others moved, and for how long. `is_answered`: the far end has shown life since the last call.
    /// O(units).
    pub(crate) fn look(
        &mut self,
        now: Instant,
        rtt: Duration,
        is_answered: bool,
    ) -> Option<(LaneId, Duration)> {
        let before = self.looked_at.replace(now).unwrap_or(now);
        let mut looked = Looked {
            took: now - before,
            moved_count: 0,
            has_idle: false,
            is_answered,
        };
        let busy: BTreeSet<LaneId> = self.parts.values().map(|part| part.lane).collect();
        looked.has_idle = self.lanes.keys().any(|lane| !busy.contains(lane));
        let moved = self.lanes.values().filter(|load| load.still.has_moved());
        looked.moved_count = moved.count();
        for (id, load) in &mut self.lanes {
            load.still.on_look(&looked, busy.contains(id));
        }
        let holder = self.parts.values().min_by_key(|part| part.frontier)?;
        if self.lanes.len() < 2 || holder.frontier > self.frontier() {
            return None;
        }
        let load = self.lanes.get(&holder.lane)?;
        let rates: u64 = self.lanes.values().filter_map(|load| load.rate).sum();
        let fair = rates / self.lanes.len() as u64;
        let rate = load.rate.unwrap_or(fair).min(fair);
        let stood = load.still.stood();
        (stood >= patience(rtt, rate)).then_some((holder.lane, stood))
    }

    /// Whether units of `lane` are being moved. O(units).
    pub(crate) fn is_busy(&self, lane: LaneId) -> bool {
        self.parts.values().any(|part| part.lane == lane)
    }

    /// The next unit for `lane`, noted as being moved; `None` if it has enough to do, or nothing may
    /// be handed out now. O(units), of which the span holds a few hundred.
    pub(crate) fn next(&mut self, now: Instant, lane: LaneId, rtt: Duration) -> Option<Unit> {
        let round = rtt.max(ROUND_MIN);
        let (len_max, depth) = self.measure(lane, round)?;
        let open_bytes = self.lanes.get(&lane)?.open_bytes;
        if open_bytes > 0 && open_bytes + len_max > depth {
            return None;
        }
        let (start, end) = self.take(len_max)?;
        let len = end.map_or(self.end.saturating_sub(start), |end| end - start);
        let load = self.lanes.get_mut(&lane)?;
        if load.open_bytes == 0 {
            load.round_since = now;
            load.round_bytes = 0;
        }
        load.open_bytes += len;
        let id = UnitId(self.units_count);
        self.units_count += 1;
        let part = Part {
            lane,
            start,
            end,
            len,
            bytes: 0,
            frontier: start,
        };
        self.parts.insert(id, part);
        let span = Span {
            offset: start,
            size_hint: end.unwrap_or(self.end),
            end_max: end,
        };
        Some(Unit { id, span })
    }

    /// Length of the next unit of `lane`, and how much it should have to do.
    fn measure(&self, lane: LaneId, round: Duration) -> Option<(u64, u64)> {
        let load = self.lanes.get(&lane).filter(|load| !load.is_leaving)?;
        let rate = load.rate;
        let lanes_count = self.lanes_count();
        let per_round = rate.map(|rate| per(rate, round));
        let (len, depth) = match per_round {
            None => (UNIT_BYTES_FIRST, DEPTH_BYTES_MIN),
            Some(bytes) => {
                let len = (bytes / 2).clamp(UNIT_BYTES_MIN, UNIT_BYTES_MAX);
                (len, bytes + bytes / 2 + 2 * len)
            }
        };
        let depth_min = match lanes_count {
            1 => DEPTH_BYTES_ALONE,
            _ => DEPTH_BYTES_MIN,
        };
        let depth = depth.max(depth_min).max(load.depth_min);
        // Towards the end in shorter pieces, for all lanes to end together.
        let left = self.end.saturating_sub(self.cursor);
        let fair = left / (2 * lanes_count as u64);
        let len = len.min(fair.max(UNIT_BYTES_MIN));
        Some((len / UNIT_BYTES_MIN * UNIT_BYTES_MIN, depth))
    }

    /// The next range, at most `len_max` long, from what was given back or from the cursor.
    fn take(&mut self, len_max: u64) -> Option<(u64, Option<u64>)> {
        let given = self.back.first_key_value().map(|(&at, &end)| (at, end));
        let (start, end) = match given {
            Some(given) => given,
            None if self.is_handed_out => return None,
            None => (self.cursor, (!self.is_open).then_some(self.end)),
        };
        if self.source_end.is_some_and(|end| start >= end) {
            return None;
        }
        let frontier = self.frontier();
        let reach = frontier.saturating_add(SPAN_BYTES_MAX);
        let stop = start.saturating_add(len_max).min(reach);
        if stop <= start {
            return None;
        }
        let is_last = stop >= end.unwrap_or(self.end);
        let piece = if is_last { end } else { Some(stop) };
        match given {
            Some(_) => {
                self.back.remove(&start);
                if !is_last {
                    self.back.insert(stop, end);
                }
            }
            None => {
                self.cursor = piece.unwrap_or(self.end.max(start));
                self.is_handed_out = is_last;
            }
        }
        Some((start, piece))
    }

    /// A unit moved: `bytes` of it are at their place, all before `frontier` without a hole.
    pub(crate) fn on_progress(
        &mut self,
        now: Instant,
        id: UnitId,
        rtt: Duration,
        (bytes, frontier): (u64, u64),
    ) {
        let Some(part) = self.parts.get_mut(&id) else {
            return;
        };
        let new = bytes.saturating_sub(part.bytes);
        part.bytes += new;
        part.frontier = part.frontier.max(frontier);
        if part.frontier > part.start {
            self.moved_to = self.moved_to.max(part.frontier);
        }
        let done = new.min(part.len.saturating_sub(part.bytes - new));
        if let Some(load) = self.lanes.get_mut(&part.lane) {
            load.open_bytes -= done;
            load.still.on_moved(new);
            load.on_moved(now, new, rtt.max(ROUND_MIN));
        }
    }

    /// A unit is over: all of it before `end` is at its place, and it met the end of the source if
    /// that is before its own.
    pub(crate) fn on_done(&mut self, id: UnitId, end: u64) {
        let Some(part) = self.close(id, end) else {
            return;
        };
        if part.end.is_none_or(|wanted| end < wanted) {
            let known = self.source_end.unwrap_or(u64::MAX);
            self.source_end = Some(known.min(end));
        }
    }

    /// A unit was given up at `end`: what is left of it goes to another lane.
    pub(crate) fn on_given_up(&mut self, id: UnitId, end: u64) {
        if let Some(part) = self.close(id, end)
            && part.end != Some(end)
        {
            self.back.insert(end, part.end);
        }
    }

    fn close(&mut self, id: UnitId, end: u64) -> Option<Part> {
        let part = self.parts.remove(&id)?;
        self.moved_bytes += end.saturating_sub(part.start);
        if end > part.start {
            self.moved_to = self.moved_to.max(end);
        }
        if let Some(load) = self.lanes.get_mut(&part.lane) {
            load.open_bytes -= part.len.saturating_sub(part.bytes);
        }
        Some(part)
    }

    /// All bytes from the start to here are at their place. O(units).
    pub(crate) fn frontier(&self) -> u64 {
        let parts = self.parts.values().map(|part| part.frontier);
        let back = self.back.keys().copied();
        let first = parts.chain(back).min().unwrap_or(self.cursor);
        first
            .min(self.cursor)
            .min(self.source_end.unwrap_or(u64::MAX))
    }

    /// Bytes at their place. O(units).
    pub(crate) fn moved_bytes(&self) -> u64 {
        let running: u64 = self.parts.values().map(|part| part.bytes).sum();
        self.moved_bytes + running
    }

    /// Whether no unit is being moved. If nothing can be handed out either, all is done.
    pub(crate) fn is_idle(&self) -> bool {
        self.parts.is_empty()
    }

    /// Where the source ended, once all is done; whether there were bytes behind it.
    pub(crate) fn outcome(&self) -> (u64, bool) {
        let end = self.source_end.unwrap_or(self.cursor).max(self.start);
        (end, self.moved_to > end)
    }
}

impl Load {
    fn on_moved(&mut self, now: Instant, bytes: u64, round: Duration) {
        self.round_bytes += bytes;
        let took = now - self.round_since;
        if took < round {
            return;
        }
        let nanos = took.as_nanos().max(1);
        let rate = u128::from(self.round_bytes) * 1_000_000_000 / nanos;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        // Up at once, down by halves: a lane is not starved by one bad round.
        self.rate = Some(self.rate.map_or(rate, |old| rate.max(old.midpoint(rate))));
        self.round_since = now;
        self.round_bytes = 0;
    }
}

/// Bytes that `rate` moves in `time`.
fn per(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).min(SPAN_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const RTT: Duration = Duration::from_millis(100);
    const A: LaneId = LaneId(0);
    const B: LaneId = LaneId(1);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn span(offset: u64, size: u64) -> Span {
        Span {
            offset,
            size_hint: size,
            end_max: None,
        }
    }

    fn with_lanes(span: Span, lanes: &[LaneId]) -> Schedule {
        let mut schedule = Schedule::new(span);
        for &lane in lanes {
            schedule.add_lane(at(0), lane);
        }
        schedule
    }

    /// Hands out all that `lane` takes.
    fn all(schedule: &mut Schedule, lane: LaneId) -> Vec<Unit> {
        std::iter::from_fn(|| schedule.next(at(0), lane, RTT)).collect()
    }

    #[test]
    fn a_lane_has_as_much_to_do_as_the_path_holds() {
        let size = 1 << 30;
        let open = |schedule: &mut Schedule| -> u64 {
            let units = std::iter::from_fn(|| schedule.next(at(0), A, RTT));
            units
                .map(|unit| unit.span.size_hint - unit.span.offset)
                .sum()
        };
        let mut schedule = Schedule::new(span(0, size));
        schedule.add_lane(at(0), A);
        assert_eq!(open(&mut schedule), DEPTH_BYTES_ALONE);
        schedule.deepen(A, 40 << 20);
        let more = open(&mut schedule) + DEPTH_BYTES_ALONE;
        assert!(
            more <= 40 << 20 && more + UNIT_BYTES_FIRST > 40 << 20,
            "{more}"
        );
        schedule.deepen(A, 1 << 30);
        let most = open(&mut schedule) + more;
        assert!(
            most <= SPAN_BYTES_MAX && most + UNIT_BYTES_FIRST > SPAN_BYTES_MAX,
            "{most}"
        );
    }

    #[test]
    fn units_follow_each_other_and_the_last_is_open() {
        let mut schedule = with_lanes(span(10, 2 * MIB), &[A]);
        let units = all(&mut schedule, A);
        assert_eq!(units[0].span.offset, 10);
        for pair in units.windows(2) {
            assert_eq!(pair[0].span.end_max, Some(pair[1].span.offset));
        }
        assert_eq!(units.last().map(|unit| unit.span.end_max), Some(None));
        for unit in &units {
            let end = unit.span.end_max.unwrap_or(2 * MIB + 5);
            schedule.on_done(unit.id, end);
        }
        assert!(schedule.is_idle());
        assert_eq!(schedule.outcome(), (2 * MIB + 5, false));
    }

    #[test]
    fn a_span_with_an_end_has_no_open_unit() {
        let mut schedule = with_lanes(
            Span {
                end_max: Some(2 * MIB),
                ..span(0, 2 * MIB)
            },
            &[A],
        );
        let units = all(&mut schedule, A);
        assert_eq!(
            units.last().and_then(|unit| unit.span.end_max),
            Some(2 * MIB)
        );
    }

    #[test]
    fn what_a_lane_leaves_undone_is_handed_out_first() {
        let mut schedule = with_lanes(span(0, 1000 * MIB), &[A, B]);
        let first = schedule.next(at(0), A, RTT).expect("fresh");
        let second = schedule.next(at(0), B, RTT).expect("fresh");
        let third = schedule.next(at(0), A, RTT).expect("room for more");
        schedule.on_given_up(second.id, second.span.offset + 7);
        assert_eq!(schedule.frontier(), 0);
        schedule.on_done(first.id, second.span.offset);
        assert_eq!(
            schedule.frontier(),
            second.span.offset + 7,
            "a hole behind it"
        );
        let again = schedule.next(at(0), A, RTT).expect("given back");
        assert_eq!(again.span.offset, second.span.offset + 7);
        assert_eq!(again.span.end_max, Some(third.span.offset));
    }

    #[test]
    fn nothing_is_handed_out_further_from_the_first_hole_than_the_span() {
        let mut schedule = with_lanes(span(0, 1000 * MIB), &[A, B]);
        let slow = schedule.next(at(0), A, RTT).expect("fresh");
        let mut reach = 0;
        while let Some(unit) = schedule.next(at(0), B, RTT) {
            reach = unit.span.end_max.expect("far from the end");
            schedule.on_done(unit.id, reach);
        }
        assert_eq!(reach, SPAN_BYTES_MAX);
        schedule.on_done(slow.id, slow.span.end_max.expect("far from the end"));
        assert_eq!(schedule.frontier(), SPAN_BYTES_MAX);
        assert!(schedule.next(at(0), B, RTT).is_some());
    }

    #[test]
    fn a_fast_lane_gets_longer_units_and_more_of_them() {
        let mut schedule = with_lanes(span(0, 1000 * MIB), &[A, B]);
        let work = |schedule: &mut Schedule, lane, bytes: u64| {
            let unit = schedule.next(at(0), lane, RTT).expect("idle");
            let end = unit.span.offset + bytes;
            schedule.on_progress(at(100), unit.id, RTT, (bytes, end));
            schedule.on_given_up(unit.id, end);
        };
        work(&mut schedule, A, 2 * UNIT_BYTES_MIN);
        work(&mut schedule, B, 4096);
        let len = |unit: &Unit| unit.span.end_max.expect("not the last") - unit.span.offset;
        // A round trip in which the first has moved 5 MB.
        let rtt = 10 * RTT;
        let mut sum = |lane| -> u64 {
            let units = std::iter::from_fn(|| schedule.next(at(0), lane, rtt));
            units.map(|unit| len(&unit)).sum()
        };
        let (fast, slow) = (sum(A), sum(B));
        assert!(fast >= 2 * slow, "{fast} {slow}");
        assert!(slow <= DEPTH_BYTES_MIN, "{slow}");
    }

    #[test]
    fn units_get_shorter_towards_the_end() {
        let mut schedule = with_lanes(span(0, 10 * MIB), &[A, B]);
        let mut lens = Vec::new();
        while let Some(unit) = schedule.next(at(0), A, RTT) {
            let end = unit.span.end_max.unwrap_or(10 * MIB);
            lens.push(end - unit.span.offset);
            schedule.on_done(unit.id, end);
        }
        assert!(lens[0] > lens[lens.len() - 2], "{lens:?}");
        assert!(
            lens.is_sorted_by(|a, b| a >= b || *b < 2 * UNIT_BYTES_MIN),
            "{lens:?}"
        );
    }

    #[test]
    fn an_end_that_was_found_stops_everything_behind_it() {
        let mut schedule = with_lanes(span(0, 100 * MIB), &[A, B]);
        let first = schedule.next(at(0), A, RTT).expect("fresh");
        let second = schedule.next(at(0), B, RTT).expect("fresh");
        schedule.on_done(first.id, 5);
        assert_eq!(schedule.next(at(0), A, RTT), None);
        schedule.on_done(second.id, second.span.offset);
        assert!(schedule.is_idle());
        assert_eq!(schedule.frontier(), 5);
        assert_eq!(
            schedule.outcome(),
            (5, false),
            "the second unit found nothing"
        );
    }

    #[test]
    fn bytes_behind_an_end_are_told() {
        let mut schedule = with_lanes(span(0, 100 * MIB), &[A, B]);
        let first = schedule.next(at(0), A, RTT).expect("fresh");
        let second = schedule.next(at(0), B, RTT).expect("fresh");
        schedule.on_done(second.id, second.span.offset + 1);
        schedule.on_done(first.id, 5);
        assert_eq!(schedule.outcome(), (5, true));
    }
}
