//! The scoreboard against a plain list that is walked from end to end for everything.

#![expect(clippy::single_range_in_vec_init, reason = "a list of one block")]

use super::*;
use fullbore_base::Rng;
use fullbore_testkit::seeds;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    range: Range<u64>,
    state: State,
    order: u64,
    transmissions: u8,
}

/// The same rules, written without any index.
#[derive(Debug, Default)]
struct Model {
    entries: Vec<Entry>,
    snd_una: u64,
    snd_nxt: u64,
    next_order: u64,
}

impl Model {
    fn send(&mut self, len: u32) {
        let end = self.snd_nxt + u64::from(len);
        self.entries.push(Entry {
            range: self.snd_nxt..end,
            state: State::InFlight,
            order: self.next_order,
            transmissions: 1,
        });
        self.next_order += 1;
        self.snd_nxt = end;
    }

    fn retransmit(&mut self, start: u64) {
        let order = self.next_order;
        self.next_order += 1;
        let entry = self.entries.iter_mut().find(|e| e.range.start == start);
        let entry = entry.expect("it is held");
        entry.state = State::InFlight;
        entry.order = order;
        entry.transmissions += 1;
    }

    /// Returns (bytes, segments) newly delivered.
    fn apply(&mut self, ack: u64, ranges: &[Range<u64>]) -> (u64, u32) {
        let (mut bytes, mut count) = (0, 0);
        let ack = ack.clamp(self.snd_una, self.snd_nxt);
        for entry in &mut self.entries {
            let is_news = entry.state != State::Sacked;
            let is_acked = entry.range.end <= ack;
            let is_sacked = ranges
                .iter()
                .any(|r| r.start <= entry.range.start && entry.range.end <= r.end);
            if is_news && is_acked {
                bytes += entry.range.end - entry.range.start;
                count += 1;
            } else if entry.range.contains(&ack) {
                if is_news {
                    bytes += ack - entry.range.start;
                }
                entry.range.start = ack;
            }
            let is_sacked = is_sacked
                || ranges
                    .iter()
                    .any(|r| r.start <= entry.range.start && entry.range.end <= r.end);
            if is_news && !is_acked && is_sacked {
                bytes += entry.range.end - entry.range.start;
                count += 1;
                entry.state = State::Sacked;
            }
        }
        self.entries.retain(|e| e.range.end > ack);
        self.snd_una = ack;
        (bytes, count)
    }

    /// Cuts the entry at `index` into equal pieces.
    fn cut(&mut self, index: usize, mss: u64) {
        let whole = self.entries.remove(index);
        let len = whole.range.end - whole.range.start;
        let piece = len.div_ceil(len.div_ceil(mss));
        let starts = whole
            .range
            .clone()
            .step_by(usize::try_from(piece).expect("small"));
        for (i, start) in starts.enumerate() {
            let range = start..whole.range.end.min(start + piece);
            let entry = Entry {
                range,
                ..whole.clone()
            };
            self.entries.insert(index + i, entry);
        }
    }

    fn tally(&self, is_counted: impl Fn(&Entry) -> bool) -> Tally {
        let mut tally = Tally::default();
        for entry in self.entries.iter().filter(|e| is_counted(e)) {
            tally.add(entry.range.end - entry.range.start);
        }
        tally
    }

    fn in_flight_by_order(&self) -> Vec<u64> {
        let mut flying: Vec<&Entry> = self
            .entries
            .iter()
            .filter(|e| e.state == State::InFlight)
            .collect();
        flying.sort_by_key(|e| (e.order, e.range.start));
        flying.iter().map(|e| e.range.start).collect()
    }
}

fn check(board: &Scoreboard, model: &Model) {
    assert_eq!(board.snd_una(), model.snd_una);
    assert_eq!(board.snd_nxt(), model.snd_nxt);
    assert_eq!(board.len(), model.entries.len());
    let in_state = |state| model.tally(|e| e.state == state);
    assert_eq!(board.pipe(), in_state(State::InFlight));
    assert_eq!(board.sacked(), in_state(State::Sacked));
    assert_eq!(board.lost(), in_state(State::Lost));
    let again = model.tally(|e| e.state == State::InFlight && e.transmissions > 1);
    assert_eq!(board.retransmitted(), again);
    let total = board.pipe().bytes + board.sacked().bytes + board.lost().bytes;
    assert_eq!(total, board.snd_nxt() - board.snd_una());

    let lost = model.entries.iter().find(|e| e.state == State::Lost);
    let next_lost = board.next_lost().map(|id| board.record(id).range().start);
    assert_eq!(next_lost, lost.map(|e| e.range.start));
    let records = &board.records;
    let order: Vec<u64> = records
        .by_transmission()
        .map(|id| records.record(id).range().start)
        .collect();
    assert_eq!(order, model.in_flight_by_order());
    let last = model.entries.last().filter(|e| e.state != State::Sacked);
    let last_not_sacked = board.last_not_sacked().map(|id| board.record(id).range());
    assert_eq!(last_not_sacked, last.map(|e| e.range.clone()));
    let first = model.entries.first();
    let is_reneging = first.is_some_and(|e| e.state == State::Sacked);
    assert_eq!(board.is_reneging(), is_reneging);
}

/// A random position of the window, often the edge of a segment.
fn position(rng: &mut Rng, model: &Model) -> u64 {
    if model.entries.is_empty() || rng.one_in(4) {
        return model.snd_una + rng.below(model.snd_nxt - model.snd_una + 1);
    }
    let range = &model.entries[rng.index(model.entries.len())].range;
    if rng.one_in(2) {
        range.start
    } else {
        range.end
    }
}

fn acknowledge(rng: &mut Rng, board: &mut Scoreboard, model: &mut Model) {
    let ack = if rng.one_in(3) {
        position(rng, model).min(position(rng, model))
    } else {
        model.snd_una
    };
    let ranges: Vec<Range<u64>> = (0..rng.below(5))
        .map(|_| (position(rng, model), position(rng, model)))
        .map(|(a, b)| a.min(b)..a.max(b))
        .filter(|r| r.start >= ack && !r.is_empty())
        .collect();
    let (before, examined) = (board.len(), board.examined());
    let mut seen = 0;
    let applied = board.apply(ack, &ranges, |_| seen += 1);
    assert_eq!(seen, applied.delivered_count);
    let acked_before = model.snd_una;
    let delivered = model.apply(ack, &ranges);
    assert_eq!(
        (applied.delivered_bytes, applied.delivered_count),
        delivered
    );
    assert_eq!(applied.acked_bytes, model.snd_una - acked_before);
    let spent = board.examined() - examined;
    let bound = examined_bound(ranges.len(), before) + u64::from(applied.delivered_count);
    assert!(spent <= bound, "{spent} records for {ranges:?} of {before}");
}

/// Four looks per block and doubling; a window under 128 segments counts as 128.
fn examined_bound(blocks: usize, segments: usize) -> u64 {
    4 * blocks.max(1) as u64 * u64::from(segments.max(128).ilog2())
}

fn lose(rng: &mut Rng, board: &mut Scoreboard, model: &mut Model) {
    let bound = model.next_order.saturating_sub(rng.below(60));
    let stop = board.lose_oldest(|r| {
        if r.order() < bound {
            Ok(())
        } else {
            Err(r.order())
        }
    });
    let mut youngest = None;
    for entry in &mut model.entries {
        if entry.state == State::InFlight && entry.order < bound {
            entry.state = State::Lost;
        } else if entry.state == State::InFlight {
            youngest = Some(youngest.map_or(entry.order, |o: u64| o.min(entry.order)));
        }
    }
    assert_eq!(stop, youngest);
}

fn step(rng: &mut Rng, now: Instant, board: &mut Scoreboard, model: &mut Model) {
    match rng.below(12) {
        0..4 => {
            for _ in 0..rng.below(8) {
                let len = if rng.one_in(3) {
                    1 + rng.below(100)
                } else {
                    100
                };
                let len = u32::try_from(len).expect("small");
                board.on_sent(now, len, Snapshot::default());
                model.send(len);
            }
        }
        4..8 => acknowledge(rng, board, model),
        8 => lose(rng, board, model),
        9 => {
            for _ in 0..rng.below(4) {
                if let Some(id) = board.next_lost() {
                    model.retransmit(board.record(id).range().start);
                    board.on_retransmitted(now, id, Snapshot::default());
                }
            }
        }
        10 => {
            if let Some(id) = board.last_not_sacked() {
                model.retransmit(board.record(id).range().start);
                board.on_retransmitted(now, id, Snapshot::default());
            }
        }
        11 if rng.one_in(2) => {
            let mss = u32::try_from(20 + rng.below(90)).expect("small");
            let Some(last) = model.entries.len().checked_sub(1) else {
                return;
            };
            if rng.one_in(2) {
                board.cut_first(mss);
                model.cut(0, u64::from(mss));
            } else {
                board.cut_last(mss);
                model.cut(last, u64::from(mss));
            }
        }
        11 if rng.one_in(4) => {
            board.restore_lost();
            for entry in &mut model.entries {
                if entry.state == State::Lost {
                    entry.state = State::InFlight;
                }
            }
        }
        _ if rng.one_in(4) => {
            board.forget_sacked();
            for entry in &mut model.entries {
                if entry.state == State::Sacked {
                    entry.state = State::Lost;
                }
            }
        }
        _ => {
            let first = model.entries.first_mut();
            let first = first.filter(|e| e.state == State::InFlight);
            assert_eq!(board.lose_first(), first.is_some());
            if let Some(first) = first {
                first.state = State::Lost;
            }
        }
    }
}

#[test]
fn agrees_with_a_plain_list_after_every_step() {
    for seed in seeds(0..60) {
        let mut rng = Rng::seeded(seed);
        let (mut board, mut model) = (Scoreboard::default(), Model::default());
        for i in 0..600 {
            let now = Instant::ZERO + Duration::from_millis(i);
            step(&mut rng, now, &mut board, &mut model);
            check(&board, &model);
        }
    }
}

fn board(count: u64) -> Scoreboard {
    let mut board = Scoreboard::default();
    for _ in 0..count {
        board.on_sent(Instant::ZERO, 1000, Snapshot::default());
    }
    board
}

#[test]
fn a_block_marks_the_records_that_it_covers_whole() {
    let mut board = board(4);
    let applied = board.apply(0, &[500..2999], |_| {});
    assert_eq!((applied.sacked_count, applied.delivered_bytes), (1, 1000));
    let applied = board.apply(0, &[1000..3000], |_| {});
    assert_eq!(applied.sacked_count, 1, "only what was not known");
    let byte = board.apply(0, &[3500..3501], |_| {});
    assert_eq!(byte, Applied::default());
    assert_eq!(board.len(), 4);
}

#[test]
fn what_is_sacked_costs_nothing_to_name_again_or_to_acknowledge() {
    let mut board = board(100_000);
    let all = 1000..100_000_000;
    assert_eq!(
        board
            .apply(0, std::slice::from_ref(&all), |_| {})
            .sacked_count,
        99_999
    );
    let before = board.examined();
    let again = board.apply(0, &[all], |_| {});
    assert_eq!(again.sacked_count, 0);
    assert!(board.examined() - before <= 2, "a search for each end");
    let before = board.examined();
    let applied = board.apply(100_000_000, &[], |_| {});
    assert_eq!((applied.delivered_count, board.len()), (1, 0));
    assert_eq!(board.examined() - before, 1, "the one that was not SACKed");
}

#[test]
fn an_acknowledgement_that_stops_inside_what_was_sacked_shows_reneging() {
    let mut board = board(10);
    let applied = board.apply(0, &[1000..9000], |_| {});
    assert!(!applied.is_reneging);
    assert!(board.apply(3500, &[], |_| {}).is_reneging);
    assert_eq!(board.sacked().bytes, 5500);
    board.forget_sacked();
    assert_eq!((board.sacked().bytes, board.lost().bytes), (0, 5500));
    assert!(!board.is_reneging());
}

#[test]
fn an_empty_scoreboard_gives_its_memory_back_when_told() {
    let mut board = board(50_000);
    let _ = board.apply(49_999_000, &[], |_| {});
    board.release();
    let _ = board.apply(50_000_000, &[], |_| {});
    assert!(
        board.not_sacked.capacity() >= 50_000,
        "the next flight needs it"
    );
    board.release();
    assert_eq!(board.not_sacked.capacity(), 0);
    assert_eq!(board.lost_ids.capacity(), 0);
    assert!(board.is_empty());
}

#[test]
fn one_record_more_than_allowed_is_refused() {
    let mut board = board(RECORDS_MAX as u64 - 1);
    assert!(board.has_room());
    board.on_sent(Instant::ZERO, 1, Snapshot::default());
    assert!(!board.has_room());
}

fn lens(board: &Scoreboard) -> Vec<u64> {
    let ranges = (0..board.len()).map(|i| board.records.at(i).range());
    ranges.map(|range| range.end - range.start).collect()
}

#[test]
fn both_ends_are_cut_evenly_and_nothing_between() {
    let mut board = board(3);
    board.cut_first(999);
    board.cut_last(400);
    assert_eq!(lens(&board), [500, 500, 1000, 334, 334, 332]);
    assert_eq!((board.pipe().bytes, board.pipe().count), (3000, 6));
    board.cut_first(500);
    board.cut_last(332);
    assert_eq!(
        lens(&board),
        [500, 500, 1000, 334, 334, 332],
        "short enough"
    );
    board.cut_first(499);
    assert_eq!(lens(&board), [250, 250, 500, 1000, 334, 334, 332]);
}

#[test]
fn a_single_record_may_be_cut_from_either_side() {
    for cut in [Scoreboard::cut_first, Scoreboard::cut_last] {
        let mut board = board(1);
        cut(&mut board, 300);
        assert_eq!(lens(&board), [250; 4]);
        let starts = board.records.by_transmission();
        let starts: Vec<u64> = starts.map(|id| board.record(id).range().start).collect();
        assert_eq!(starts, [0, 250, 500, 750]);
        let mut none = Scoreboard::default();
        cut(&mut none, 300);
        assert!(none.is_empty());
    }
}

/// What a smaller MTU costs does not depend on how much is outstanding, be it cut again and again.
#[test]
fn a_cut_costs_its_pieces_in_the_longest_queue() {
    let mut board = board(RECORDS_MAX as u64);
    let before = board.examined();
    for mss in (216..1000).rev() {
        board.cut_first(mss);
        board.cut_last(mss);
        assert!(lens(&board)[0] <= u64::from(mss));
    }
    // Halves of halves, as often as that goes before they are short enough: 1000 is 125 eight times.
    assert!(board.len() <= RECORDS_MAX + 2 * 7, "{}", board.len());
    assert!(board.examined() - before <= 2 * 7);
    assert_eq!(board.pipe().bytes, 1000 * RECORDS_MAX as u64);
    assert!(!board.has_room());
    // The window slides on as ever.
    for first in 1..=4 {
        let _ = board.apply(first * 1000, &[], |_| {});
        board.cut_first(100);
        assert_eq!(lens(&board)[..2], [100, 100]);
    }
}
