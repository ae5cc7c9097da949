//! Handshakes that a listener sees: remembered ones, cookies, nonsense.

use super::*;
use crate::segment::{Options, Timestamps};
use fullbore_base::Rng;

struct Secrets(Rng);

impl Randomness for Secrets {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

const THEIRS: Seq = Seq::new(0xffff_fff0);

fn listener(backlog_max: usize) -> Listener {
    let config = ListenConfig {
        connection: Config {
            is_ecn: true,
            ..Config::default()
        },
        backlog_max,
    };
    Listener::new(config, &mut Secrets(Rng::seeded(5)))
}

fn tuple(port: u16) -> Tuple {
    Tuple {
        local: ([10, 0, 0, 2].into(), 22),
        remote: ([10, 0, 0, 1].into(), port),
    }
}

fn at(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

fn syn(is_stamped: bool) -> Header {
    Header {
        seq: THEIRS,
        flags: Flags::SYN | Flags::ECE | Flags::CWR,
        window: 1000,
        options: Options {
            mss: Some(1410),
            window_scale: Some(7),
            is_sack_permitted: true,
            timestamps: is_stamped.then_some(Timestamps { value: 9, echo: 0 }),
            ..Options::default()
        },
        ..Header::default()
    }
}

fn ack_of(answer: &Header) -> Header {
    Header {
        seq: THEIRS.at(1),
        ack: answer.seq.at(1),
        flags: Flags::ACK,
        window: 1000,
        options: Options {
            timestamps: answer.options.timestamps.map(|t| Timestamps {
                value: 10,
                echo: t.value,
            }),
            ..Options::default()
        },
        ..Header::default()
    }
}

fn hear(listener: &mut Listener, now: Instant, port: u16, header: Header) -> Heard {
    let payload = b"";
    let segment = Segment { header, payload };
    listener.handle_segment(now, &tuple(port), &segment, false)
}

fn reply(heard: Heard) -> Header {
    match heard {
        Heard::Reply(header) => header,
        other => panic!("{other:?}"),
    }
}

fn accepted(heard: Heard) -> Connection {
    match heard {
        Heard::Accepted(connection) => *connection,
        other => panic!("{other:?}"),
    }
}

/// RFC 7323 4.3: our SYN acknowledged the peer's, so a timestamp of what follows it is taken.
#[test]
fn the_timestamp_that_ends_a_handshake_is_echoed() {
    let mut listener = listener(4);
    let answer = reply(hear(&mut listener, at(1), 1, syn(true)));
    assert_eq!(answer.options.timestamps.map(|t| t.echo), Some(9));
    let mut connection = accepted(hear(&mut listener, at(2), 1, ack_of(&answer)));
    assert_eq!(connection.write(b"x"), Ok(1));
    let mut out = [0; 1500];
    let sent = connection.poll_transmit(at(2), &mut out).expect("data");
    let segment = Segment::parse(&out[..sent.len], Pseudo::Unchecked).expect("ours");
    assert_eq!(segment.header.options.timestamps.map(|t| t.echo), Some(10));
}

#[test]
fn a_handshake_ends_in_a_connection_with_what_was_agreed() {
    let mut listener = listener(4);
    let answer = reply(hear(&mut listener, at(1), 1, syn(true)));
    assert_eq!(answer.flags, Flags::SYN | Flags::ACK | Flags::ECE);
    assert_eq!(answer.ack, THEIRS.at(1));
    assert_eq!(answer.options.window_scale, Some(8));
    assert_eq!(listener.half_open_count(), 1);
    let connection = accepted(hear(&mut listener, at(2), 1, ack_of(&answer)));
    let agreed = connection.agreed();
    assert_eq!((agreed.mss, agreed.send_scale), (1410, 7));
    assert!(agreed.is_sack && agreed.is_timestamps && agreed.is_ecn);
    let info = connection.info();
    assert_eq!(info.rtt, Duration::from_secs(1));
    assert_eq!(info.snd_wnd, 1000 << 7);
    assert_eq!(listener.half_open_count(), 0);
    assert_eq!(listener.poll_timeout(), None);
}

#[test]
fn past_the_backlog_nothing_is_remembered_and_cookies_connect() {
    for is_stamped in [true, false] {
        let mut listener = listener(0);
        let answer = reply(hear(&mut listener, at(1000), 1, syn(is_stamped)));
        assert_eq!(listener.half_open_count(), 0);
        let connection = accepted(hear(&mut listener, at(1001), 1, ack_of(&answer)));
        let agreed = connection.agreed();
        assert_eq!(agreed.mss, 1400, "rounded down to what a cookie can hold");
        assert_eq!(agreed.is_scaled, is_stamped);
        assert_eq!(agreed.send_scale, if is_stamped { 7 } else { 0 });
        assert_eq!(agreed.is_sack && agreed.is_ecn, is_stamped);
        assert_eq!(agreed.is_timestamps, is_stamped);
        assert_eq!(listener.stats().cookies_taken, 1);
    }
}

#[test]
fn a_cookie_is_good_for_its_time_and_its_peer() {
    let mut listener = listener(0);
    let answer = reply(hear(&mut listener, at(640), 1, syn(false)));
    let good = ack_of(&answer);
    let mut forged = good;
    forged.ack = forged.ack.plus(1);
    for (port, header) in [(2, good), (1, forged)] {
        let heard = hear(&mut listener, at(641), port, header);
        assert!(matches!(heard, Heard::Nothing));
    }
    let late = reply(hear(&mut listener, at(769), 1, good));
    assert_eq!(late.flags, Flags::RST);
    assert_eq!(listener.stats().cookies_refused, 3);
    let _ = accepted(hear(&mut listener, at(768), 1, good));
}

#[test]
fn without_a_flood_no_cookie_is_believed() {
    let mut flooded = listener(0);
    let answer = reply(hear(&mut flooded, at(1000), 1, syn(false)));
    // The same secrets, and no cookie ever sent.
    let mut calm = listener(4);
    let heard = reply(hear(&mut calm, at(1001), 1, ack_of(&answer)));
    assert_eq!(heard.flags, Flags::RST);
}

#[test]
fn a_clock_in_a_cookie_never_goes_back() {
    let mut listener = listener(0);
    for ms in 0..300 {
        let now = at(1000) + Duration::from_millis(ms);
        let answer = reply(hear(&mut listener, now, 1, syn(true)));
        let stamp = answer.options.timestamps.expect("agreed").value;
        let plain = Clock::value(listener.config_for(&tuple(1)).timestamp_offset, now);
        let behind = plain.wrapping_sub(stamp);
        assert!(behind < 128, "{behind}");
    }
}

#[test]
fn an_answer_is_repeated_and_then_given_up() {
    let mut listener = listener(4);
    let first = reply(hear(&mut listener, at(0), 1, syn(true)));
    let mut times = Vec::new();
    while let Some(due) = listener.poll_timeout() {
        if let Some((tuple, again)) = listener.poll_transmit(due) {
            assert_eq!((tuple.remote.1, again.seq), (1, first.seq));
            times.push((due - Instant::ZERO).as_secs());
        }
    }
    assert_eq!(times, [1, 3, 7, 15, 31]);
    assert_eq!(
        (listener.half_open_count(), listener.stats().expired),
        (0, 1)
    );
}

#[test]
fn a_syn_again_is_answered_again_and_another_is_not() {
    let mut listener = listener(4);
    let first = reply(hear(&mut listener, at(0), 1, syn(true)));
    let second = reply(hear(&mut listener, at(1), 1, syn(true)));
    assert_eq!(first.seq, second.seq);
    let mut other = syn(true);
    other.seq = THEIRS.plus(5);
    assert!(matches!(
        hear(&mut listener, at(1), 1, other),
        Heard::Nothing
    ));
    assert_eq!(listener.half_open_count(), 1);
}

#[test]
fn only_the_exact_reset_ends_a_handshake() {
    let mut listener = listener(4);
    let _ = hear(&mut listener, at(0), 1, syn(true));
    for (seq, left) in [(0, 1), (2, 1), (1, 0)] {
        let reset = Header {
            seq: THEIRS.at(seq),
            flags: Flags::RST,
            ..Header::default()
        };
        let _ = hear(&mut listener, at(0), 1, reset);
        assert_eq!(listener.half_open_count(), left);
    }
}

#[test]
fn an_acknowledgement_of_something_else_is_reset() {
    let mut listener = listener(4);
    let answer = reply(hear(&mut listener, at(0), 1, syn(true)));
    let mut wrong = ack_of(&answer);
    wrong.ack = wrong.ack.plus(1);
    let reset = reply(hear(&mut listener, at(0), 1, wrong));
    assert_eq!((reset.flags, reset.seq), (Flags::RST, wrong.ack));
    assert_eq!(
        listener.half_open_count(),
        1,
        "the right one may still come"
    );
}

#[test]
fn what_overtakes_its_cookie_is_dropped_and_not_reset() {
    let mut listener = listener(0);
    let answer = reply(hear(&mut listener, at(1000), 1, syn(false)));
    let mut header = ack_of(&answer);
    header.seq = header.seq.plus(300);
    let payload = b"data";
    let segment = Segment { header, payload };
    let heard = listener.handle_segment(at(1001), &tuple(1), &segment, false);
    assert!(matches!(heard, Heard::Nothing));
    let late = listener.handle_segment(at(1129), &tuple(1), &segment, false);
    assert_eq!(reply(late).flags, Flags::RST);
}

/// RFC 9293 3.10.7.2 lets it be queued; we let it come again. RFC 3168 6.1.1: both flags, or none.
#[test]
fn what_comes_with_a_syn_is_not_acknowledged_and_one_flag_asks_for_nothing() {
    let mut listener = listener(4);
    let segment = Segment {
        header: syn(true),
        payload: b"early",
    };
    let answer = reply(listener.handle_segment(at(1), &tuple(1), &segment, false));
    assert_eq!(answer.ack, THEIRS.at(1));
    let mut half = syn(true);
    half.flags = Flags::SYN | Flags::ECE;
    let answer = reply(hear(&mut listener, at(1), 2, half));
    assert_eq!(answer.flags, Flags::SYN | Flags::ACK);
}

/// RFC 7323 4.1 and Karn; RFC 6298 5.7 where neither tells.
#[test]
fn an_answer_that_was_repeated_is_measured_by_its_timestamp_alone() {
    for (is_stamped, rtt, rto) in [(true, 500, 1500), (false, 0, 3000)] {
        let mut listener = listener(4);
        let _ = reply(hear(&mut listener, at(1), 1, syn(is_stamped)));
        let (_, again) = listener.poll_transmit(at(2)).expect("it is due again");
        let now = at(2) + Duration::from_millis(500);
        let connection = accepted(hear(&mut listener, now, 1, ack_of(&again)));
        let info = connection.info();
        assert_eq!(info.rtt, Duration::from_millis(rtt));
        assert_eq!(info.rto, Duration::from_millis(rto));
    }
}
