//! What a connection costs while nothing happens on it, and what its parts promise each other.

use super::*;
use crate::segment::{Flags, Segment};

/// An idle connection keeps no buffers: its whole memory is itself.
const IDLE_BYTES_MAX: usize = 8 * 1024;

fn config() -> Config {
    Config {
        is_timestamps: false,
        is_paced: false,
        ..Config::default()
    }
}

fn handshake() -> Accepted {
    Accepted {
        local_initial: Seq::new(10),
        remote_initial: Seq::new(20),
        agreed: Agreed {
            mss: 1000,
            ..Agreed::default()
        },
        timestamp: 0,
        told_window: 65_535,
        rtt: Some(Duration::from_millis(50)),
    }
}

fn accepted() -> Connection {
    let mut connection = Connection::accept(Instant::ZERO, config(), &handshake());
    receive(&mut connection, Instant::ZERO, 1, 1, b"");
    assert_eq!(connection.state(), State::Established);
    connection
}

fn receive(connection: &mut Connection, now: Instant, start: u64, ack: u64, payload: &[u8]) {
    let header = Header {
        seq: Seq::new(20).at(start),
        ack: Seq::new(10).at(ack),
        flags: Flags::ACK,
        window: 60_000,
        ..Header::default()
    };
    connection.handle_segment(now, &Segment { header, payload }, false);
}

#[test]
fn what_was_arranged_needs_no_handshake() {
    let now = Instant::ZERO;
    let there = Accepted {
        local_initial: Seq::new(20),
        remote_initial: Seq::new(10),
        ..handshake()
    };
    let mut one = Connection::arranged(now, config(), &handshake());
    let mut other = Connection::arranged(now, config(), &there);
    assert_eq!(one.state(), State::Established);
    assert_eq!(one.write(b"first"), Ok(5));
    let mut out = [0; 2000];
    let sent = one.poll_transmit(now, &mut out).expect("data");
    let pseudo = crate::segment::Pseudo::Unchecked;
    let segment = Segment::parse(&out[..sent.len], pseudo).expect("it parses");
    assert!(!segment.header.flags.has(Flags::SYN));
    other.handle_segment(now, &segment, false);
    assert_eq!(other.peek().0, b"first");
    // Not more than the window that is deemed told, however much may be in flight.
    let window = usize::try_from(handshake().told_window).expect("small");
    assert_eq!(one.unacked_bytes(), 5);
    let config = Config {
        congestion: crate::congestion::Settings {
            algorithm: crate::congestion::Algorithm::Reno,
            ..Default::default()
        },
        ..config()
    };
    let mut narrow = Accepted {
        told_window: 2000,
        ..handshake()
    };
    let mut one = Connection::arranged(now, config, &narrow);
    assert_eq!(one.write(&vec![0; window]), Ok(window));
    while one.poll_transmit(now, &mut out).is_some() {}
    assert_eq!(one.info().outstanding_bytes, 2000);
    narrow.told_window = 2500;
    assert_eq!(
        Connection::arranged(now, config, &narrow).info().snd_wnd,
        2500
    );
}

#[test]
fn an_idle_connection_fits_into_8_kib() {
    let size = size_of::<Connection>();
    assert!(size <= IDLE_BYTES_MAX / 2, "{size}");
    let mut connection = accepted();
    assert_eq!(connection.buffer_capacity(), 0);
    // A burst each way, then rest.
    let mut out = vec![0; 2000];
    let taken = connection.write(&[7; 8000]).expect("it is open");
    assert_eq!(taken, 8000);
    let mut now = Instant::ZERO;
    while connection.poll_transmit(now, &mut out).is_some() {}
    receive(&mut connection, now, 1, 1, &[7; 9000]);
    now += Duration::from_millis(50);
    while connection.poll_transmit(now, &mut out).is_some() {}
    receive(&mut connection, now, 9001, 8001, b"");
    connection.consume(now, 9000);
    while connection.poll_transmit(now, &mut out).is_some() {}
    assert!(connection.buffer_capacity() > 0);
    while let Some(at) = connection.poll_timeout() {
        now = at;
        connection.handle_timeout(now);
        while connection.poll_transmit(now, &mut out).is_some() {}
    }
    assert_eq!(connection.buffer_capacity(), 0);
}

#[test]
fn an_early_or_repeated_call_does_nothing() {
    let mut connection = accepted();
    let mut out = vec![0; 2000];
    let _ = connection.write(b"data");
    let now = Instant::ZERO;
    assert!(connection.poll_transmit(now, &mut out).is_some());
    assert!(connection.poll_transmit(now, &mut out).is_none());
    let before = connection.info();
    for _ in 0..10 {
        connection.handle_timeout(now);
        assert!(connection.poll_transmit(now, &mut out).is_none());
    }
    assert_eq!(connection.info(), before);
}

#[test]
fn a_router_is_believed_only_of_what_is_in_flight() {
    let mut connection = accepted();
    let mut out = vec![0; 2000];
    let _ = connection.write(&[7; 5000]);
    while connection.poll_transmit(Instant::ZERO, &mut out).is_some() {}
    connection.handle_too_big(Instant::ZERO, Seq::new(10), 500);
    connection.handle_too_big(Instant::ZERO, Seq::new(10).at(5001), 500);
    assert_eq!(connection.info().snd_mss, 1000);
    connection.handle_too_big(Instant::ZERO, Seq::new(10).at(5000), 500);
    assert_eq!(connection.info().snd_mss, 500);
    let info = connection.info();
    assert_eq!(info.outstanding_bytes, 5000);
}

#[test]
fn a_stray_segment_is_refused_as_the_rfc_says() {
    let stray = |flags, payload| {
        let header = Header {
            seq: Seq::new(100),
            ack: Seq::new(7),
            flags,
            ..Header::default()
        };
        Connection::refuse(&Segment { header, payload })
    };
    let with_ack = stray(Flags::ACK, b"").expect("a RST");
    assert_eq!((with_ack.flags, with_ack.seq), (Flags::RST, Seq::new(7)));
    let without = stray(Flags::SYN, b"ab").expect("a RST");
    assert_eq!(without.flags, Flags::RST | Flags::ACK);
    assert_eq!((without.seq, without.ack), (Seq::new(0), Seq::new(103)));
    assert!(stray(Flags::RST, b"").is_none());
}

/// Two ends that open at once: figure 8 of RFC 9293, whose SYNs cross.
#[test]
fn two_ends_that_open_at_once_agree_and_stop_to_talk() {
    let now = Instant::ZERO;
    let mut ends = [10, 20].map(|initial| {
        let config = Config::default();
        Connection::connect(now, config, Seq::new(initial))
    });
    let mut buffers = [[0; 100]; 2];
    for round in 0..4 {
        // Both speak before either hears.
        let mut sent = [0; 2];
        for (i, end) in ends.iter_mut().enumerate() {
            let transmit = end.poll_transmit(now, &mut buffers[i]);
            sent[i] = transmit.map_or(0, |t| t.len);
            assert!(end.poll_transmit(now, &mut [0; 100]).is_none());
        }
        assert_eq!(sent[0] > 0, round < 3, "SYN, SYN+ACK, ACK, and no more");
        for (i, len) in sent.into_iter().enumerate().filter(|&(_, len)| len > 0) {
            let segment = Segment::parse(&buffers[i][..len], crate::segment::Pseudo::Unchecked);
            ends[1 - i].handle_segment(now, &segment.expect("it is ours"), false);
        }
    }
    for end in &ends {
        assert_eq!(end.state(), State::Established);
    }
}
