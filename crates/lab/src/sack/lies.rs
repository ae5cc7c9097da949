//! What the blocks of a hostile acknowledgement say. Positions are bytes of the stream.

use std::ops::Range;

use fullbore_base::Rng;

use super::mode::Mode;

/// What the receiver has, when it is to say something.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// The cumulative acknowledgement that it holds at.
    pub acked: u64,
    /// The end of the highest segment that arrived.
    pub end: u64,
    /// Bytes of a segment.
    pub segment: u64,
    /// Bytes of the window that it offers.
    pub window: u64,
}

impl Scene {
    /// The segment that begins at `start`.
    const fn one(&self, start: u64) -> Range<u64> {
        start..start + self.segment
    }

    /// Where the newest segment begins; never the one at the cumulative acknowledgement.
    fn newest(&self) -> u64 {
        self.first().max(self.end.saturating_sub(self.segment))
    }

    /// The first segment behind the hole.
    const fn first(&self) -> u64 {
        self.acked + self.segment
    }

    /// The segment `back` before the newest.
    fn before(&self, back: u64) -> Range<u64> {
        let start = self.newest().saturating_sub(back * self.segment);
        self.one(start.max(self.first()))
    }

    /// Any segment behind the hole that has arrived.
    fn any(&self, rng: &mut Rng) -> u64 {
        let count = (self.newest() - self.first()) / self.segment + 1;
        self.first() + rng.below(count) * self.segment
    }
}

/// The blocks, as many as there is room for or fewer, in the order they are to stand in. An inverted block
/// starts behind its end.
#[must_use]
pub fn blocks(mode: Mode, scene: &Scene, rng: &mut Rng) -> Vec<Range<u64>> {
    let newest = scene.one(scene.newest());
    match mode {
        Mode::Honest | Mode::NoSack | Mode::Dupack => Vec::new(),
        Mode::DsackStorm => {
            let start = scene.acked.saturating_sub(scene.segment);
            vec![start..scene.acked, newest, scene.one(scene.first())]
        }
        Mode::FindFirst => (0..4).map(|i| scene.before(2 * i)).collect(),
        Mode::CoverAll => {
            // A hole that moves: no two options are alike, and what was covered before is again.
            let hole = scene.any(rng);
            let behind = hole + scene.segment..newest.end;
            let covered = [behind, scene.first()..hole];
            covered.into_iter().filter(|r| !r.is_empty()).collect()
        }
        Mode::Renege => std::iter::once(scene.first()..newest.end).collect(),
        Mode::Random => (0..4).map(|_| scene.one(scene.any(rng))).collect(),
        Mode::Rack => {
            let number = (scene.newest() - scene.acked) / scene.segment;
            let even = (number & !1).max(2);
            vec![scene.one(scene.acked + even * scene.segment)]
        }
        Mode::Split => {
            let at = scene.any(rng) + 1 + rng.below(scene.segment);
            let across = at + scene.segment / 2..at + scene.segment + 7;
            vec![at..at + 1, across, newest.start + 1..newest.end]
        }
        Mode::Garbage => garbage(scene, rng),
    }
}

fn garbage(scene: &Scene, rng: &mut Rng) -> Vec<Range<u64>> {
    let at = scene.any(rng);
    let outside = scene.acked + 2 * scene.window;
    vec![
        at + scene.segment..at,
        outside..outside + scene.segment,
        scene.acked.saturating_sub(3)..scene.end,
        at..at,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sack::mode::MODES;
    use fullbore_testkit::seeds;

    const SEGMENT: u64 = 1000;

    fn scene(segments: u64) -> Scene {
        Scene {
            acked: 50_000,
            end: 50_000 + segments * SEGMENT,
            segment: SEGMENT,
            window: 1 << 20,
        }
    }

    fn said(mode: Mode, scene: &Scene, seed: u64) -> Vec<Range<u64>> {
        blocks(mode, scene, &mut Rng::seeded(seed))
    }

    #[test]
    fn blocks_of_sense_name_what_arrived_and_leave_the_hole() {
        for seed in seeds(0..20) {
            for mode in MODES {
                if matches!(mode, Mode::Garbage | Mode::DsackStorm) {
                    continue;
                }
                let scene = scene(100);
                for block in said(mode, &scene, seed) {
                    assert!(!block.is_empty(), "{mode:?} {block:?}");
                    assert!(block.start > scene.acked, "{mode:?} {block:?}");
                    let slack = if mode == Mode::Split { SEGMENT * 3 } else { 0 };
                    assert!(block.end <= scene.end + slack, "{mode:?} {block:?}");
                }
            }
        }
    }

    #[test]
    fn each_attack_says_what_it_is_named_for() {
        let scene = scene(100);
        let dsack = said(Mode::DsackStorm, &scene, 0);
        assert!(dsack[0].end <= scene.acked && dsack[1].end == scene.end);
        let find_first = said(Mode::FindFirst, &scene, 0);
        let falls = find_first.windows(2).all(|two| two[0].start > two[1].end);
        assert!(find_first.len() == 4 && falls, "{find_first:?}");
        let covered: u64 = said(Mode::CoverAll, &scene, 0)
            .iter()
            .map(|r| r.end - r.start)
            .sum();
        assert_eq!(covered, 98 * SEGMENT, "all but the head and one hole");
        let rack = said(Mode::Rack, &scene, 0);
        assert_eq!(rack.len(), 1);
        assert_eq!((rack[0].start - scene.acked) / SEGMENT, 98, "99 is odd");
        let split = said(Mode::Split, &scene, 0);
        assert!(split.iter().any(|r| r.end - r.start == 1));
        assert!(split.iter().all(|r| r.start % SEGMENT != 0));
        let garbage = said(Mode::Garbage, &scene, 0);
        assert!(garbage[0].start > garbage[0].end && garbage[3].is_empty());
        assert!(garbage[1].start > scene.acked + scene.window);
        assert!(garbage[2].start < scene.acked && scene.acked < garbage[2].end);
        assert!(said(Mode::Dupack, &scene, 0).is_empty());
    }

    /// The first segments of a window: there is hardly anything to lie about yet.
    #[test]
    fn a_window_that_has_just_begun_is_no_trap() {
        for mode in MODES {
            for segments in 0..4 {
                let _ = said(mode, &scene(segments), 1);
            }
        }
    }
}
