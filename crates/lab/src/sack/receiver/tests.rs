//! Scripts: segments that arrive, and what is answered.

use super::*;
use fullbore_tcp::segment::Segment;

const MS: Duration = Duration::from_millis(1);
const SEGMENT: u64 = 1000;
const BASE: Seq = Seq::new(0xffff_fc00);
const WINDOW: u64 = 1 << 20;

fn at(ms: u32) -> Instant {
    Instant::ZERO + MS * ms
}

struct Script {
    receiver: Receiver,
}

/// What an answer says, in segments of the stream.
#[derive(Debug, PartialEq)]
struct Answer {
    acked: u64,
    blocks: Vec<(u64, u64)>,
    echo: Option<u32>,
}

impl Script {
    fn new(mode: Mode, is_kept_open: bool) -> Self {
        let config = Config {
            mode,
            window: WINDOW,
            rtt: MS * 100,
            hold: MS * 100,
            is_kept_open,
            seed: 1,
            ports: (40_000, 80),
            pseudo: Pseudo::Unchecked,
            request: b"GET".to_vec(),
        };
        let mut script = Self {
            receiver: Receiver::new(at(0), config),
        };
        let (syn, _) = script.next().expect("a SYN");
        assert!(syn.flags.has(Flags::SYN) && !syn.flags.has(Flags::ACK));
        assert_eq!(syn.options.mss, Some(mode.mss()));
        assert_eq!(syn.options.is_sack_permitted, mode.is_sack());
        let mut answer = script.header(0, Flags::SYN | Flags::ACK, 5);
        answer.seq = Seq::new(BASE.value() - 1);
        script.receiver.handle_segment(at(0), &answer, 0);
        let (ask, len) = script.next().expect("the request");
        assert_eq!((len, ask.seq), (3, syn.seq.plus(1)));
        script
    }

    /// One that attacks: a window's worth has come in a round trip, `first` is the segment to follow.
    fn attacking(mode: Mode, is_kept_open: bool) -> (Self, u64) {
        let mut script = Self::new(mode, is_kept_open);
        let mut i = 0;
        while script.receiver.state() == State::Growing {
            script.arrives(i / 20, u64::from(i), 1);
            i += 1;
            assert!(i < 10_000, "it never begins");
        }
        let _ = script.answers();
        (script, u64::from(i))
    }

    fn next(&mut self) -> Option<(Header, usize)> {
        let mut bytes = [0; 256];
        let len = self.receiver.poll_transmit(&mut bytes)?;
        let segment = Segment::parse(&bytes[..len], Pseudo::Unchecked).expect("it is whole");
        Some((segment.header, segment.payload.len()))
    }

    fn header(&self, segment: u64, flags: Flags, stamp: u32) -> Header {
        let mut header = Header {
            source_port: 80,
            destination_port: 40_000,
            seq: BASE.at(segment * SEGMENT),
            flags,
            ..Header::default()
        };
        header.options.timestamps = Some(Timestamps {
            value: stamp,
            echo: 0,
        });
        header
    }

    /// Segment `i`, stamped with `stamp`.
    fn arrives(&mut self, ms: u32, i: u64, stamp: u32) {
        let header = self.header(i, Flags::ACK, stamp);
        let len = usize::try_from(SEGMENT).expect("small");
        self.receiver.handle_segment(at(ms), &header, len);
    }

    fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some((header, _)) = self.next() {
            let segment = |seq| {
                BASE.position(seq, self.receiver.received.acked)
                    .unwrap_or(0)
                    / SEGMENT
            };
            let blocks = header.options.sack.as_slice().iter();
            answers.push(Answer {
                acked: segment(header.ack),
                blocks: blocks.map(|b| (segment(b.start), segment(b.end))).collect(),
                echo: header.options.timestamps.map(|t| t.echo),
            });
        }
        answers
    }
}

#[test]
fn the_honest_acknowledge_every_second_segment_and_a_single_one_in_time() {
    let mut script = Script::new(Mode::Honest, true);
    script.arrives(1, 0, 1);
    assert!(script.answers().is_empty());
    script.arrives(2, 1, 1);
    assert_eq!(script.answers()[0].acked, 2);
    script.arrives(3, 2, 1);
    assert_eq!(script.receiver.poll_timeout(), Some(at(43)));
    script.receiver.handle_timeout(at(42));
    assert!(script.answers().is_empty());
    script.receiver.handle_timeout(at(43));
    assert_eq!(script.answers()[0].acked, 3);
}

#[test]
fn the_honest_sack_what_lies_behind_a_hole_the_newest_first() {
    let mut script = Script::new(Mode::Honest, true);
    script.arrives(1, 1, 1);
    assert_eq!(script.answers()[0].blocks, [(1, 2)]);
    script.arrives(1, 5, 1);
    assert_eq!(script.answers()[0].blocks, [(5, 6), (1, 2)]);
    script.arrives(2, 0, 1);
    let answer = &script.answers()[0];
    assert_eq!((answer.acked, answer.blocks.as_slice()), (2, &[(5, 6)][..]));
    let mut script = Script::new(Mode::NoSack, true);
    script.arrives(1, 1, 1);
    assert_eq!(script.answers()[0].blocks, []);
}

#[test]
fn an_attack_holds_the_acknowledgement_and_answers_each_segment() {
    for mode in [Mode::Dupack, Mode::Rack, Mode::CoverAll, Mode::Garbage] {
        let (mut script, first) = Script::attacking(mode, true);
        let acked = script.receiver.received.acked / SEGMENT;
        let ms = u32::try_from(first / 20).expect("small");
        for i in 0..50 {
            script.arrives(ms, first + i, 1);
        }
        let answers = script.answers();
        assert_eq!(answers.len(), 50, "{mode:?}");
        assert!(answers.iter().all(|a| a.acked == acked), "{mode:?}");
        assert_eq!(answers[49].blocks.is_empty(), mode == Mode::Dupack);
    }
}

#[test]
fn a_hold_ends_with_its_time_or_with_the_window() {
    let (mut script, first) = Script::attacking(Mode::Rack, true);
    let acked = script.receiver.received.acked / SEGMENT;
    let due = script.receiver.poll_timeout().expect("a hold ends");
    script.receiver.handle_timeout(due);
    let _ = script.answers();
    script.arrives(900, first, 1);
    assert_eq!(script.receiver.poll_timeout(), Some(at(1000)));
    script.receiver.handle_timeout(at(1000));
    assert_eq!(script.answers().last().map(|a| a.acked), Some(first + 1));
    assert!(first >= acked);
    for i in 1..=WINDOW / SEGMENT {
        script.arrives(1010, first + i, 1);
    }
    let acked = script.receiver.received.acked / SEGMENT;
    assert!(acked > first + WINDOW / SEGMENT - 20, "{acked}");
}

/// Kept open: every answer of a hold echoes its first segment, and what comes twice is said to. Plain: neither.
#[test]
fn claims_are_taken_back_or_not() {
    for is_kept_open in [true, false] {
        let (mut script, first) = Script::attacking(Mode::FindFirst, is_kept_open);
        let due = script.receiver.poll_timeout().expect("a hold ends");
        script.receiver.handle_timeout(due);
        let _ = script.answers();
        for i in 0..10 {
            script.arrives(900, first + i, 70 + u32::try_from(i).expect("small"));
        }
        // The first is sent again.
        script.arrives(950, first, 99);
        let twice = script.answers().pop().expect("an answer");
        script.receiver.handle_timeout(at(1000));
        let release = script.answers().pop().expect("a release");
        let echo = is_kept_open.then_some(70);
        assert_eq!((twice.echo, release.echo), (echo, echo));
        assert_eq!(twice.blocks[0] == (first, first + 1), is_kept_open);
        assert_eq!(release.acked, first + 10);
    }
}

#[test]
fn a_reneging_receiver_throws_away_and_takes_again() {
    let (mut script, first) = Script::attacking(Mode::Renege, true);
    let mut next = first;
    let mut ms = 1000;
    while script.receiver.received.reneges == 0 {
        for _ in 0..20 {
            script.arrives(ms, next, 1);
            next += 1;
        }
        ms += 200;
        script.receiver.handle_timeout(at(ms));
    }
    let release = script.answers().pop().expect("a release");
    assert!(release.acked < next - 10, "it had said that it holds all");
    script.arrives(ms, release.acked, 1);
    script.arrives(ms, release.acked + 1, 1);
    let answer = script.answers().pop().expect("an answer");
    assert_eq!((answer.acked, answer.blocks), (release.acked + 2, vec![]));
}

#[test]
fn a_syn_that_nobody_answers_is_sent_again_and_given_up() {
    let config = Script::new(Mode::Honest, true).receiver.config;
    let mut receiver = Receiver::new(at(0), config);
    let mut count = 0;
    let mut bytes = [0; 256];
    while let Some(due) = receiver.poll_timeout() {
        while receiver.poll_transmit(&mut bytes).is_some() {
            count += 1;
        }
        receiver.handle_timeout(due);
    }
    assert_eq!((count, receiver.state()), (TRIES_MAX + 1, State::Over));
}
