//! Probes for larger segments, and smaller ones where they vanish: RFC 8899, RFC 4821.

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::Seq;
use fullbore_tcp::connection::Config;
use script::{OURS, Script, config};

/// Segments of 1000 are known to pass, the peer takes 1400, and a round trip has passed.
fn probing() -> Script {
    let mut script = Script::connecting(Config {
        mss_max: 1400,
        ..config()
    });
    let _ = script.poll();
    script.wait(100);
    script.gets("S. 0:1 ack 1 win 50000 mss 1400 sackok");
    script.sends(". 1:1 ack 1");
    script.write(40_000);
    script
}

#[test]
fn a_probe_that_arrives_makes_segments_larger() {
    let mut script = probing();
    script.sends(". 1:1401");
    script.sends(". 1401:2401");
    let _ = script.drain();
    script.wait(100);
    script.gets(". 1:1 ack 1401");
    assert_eq!(script.connection.info().snd_mss, 1400);
    let line = script.poll().expect("new data");
    assert_eq!(line.end - line.start, 1400);
}

#[test]
fn a_probe_that_is_lost_is_cut_and_costs_no_window() {
    let mut script = probing();
    script.sends(". 1:1401");
    let _ = script.drain();
    let before = script.connection.info().snd_cwnd;
    script.wait(100);
    script.gets(". 1:1 ack 1 sack 1401:5401");
    script.sends(". 1:701");
    script.sends(". 701:1401");
    let info = script.connection.info();
    assert_eq!(info.snd_mss, 1000);
    assert!(info.snd_cwnd >= before, "{} of {before}", info.snd_cwnd);
}

/// What repeats it is acknowledged in its place, whatever showed the loss: that is no sign that it passed.
#[test]
fn a_probe_that_was_repeated_has_not_passed() {
    let mut script = probing();
    script.sends(". 1:1401");
    let _ = script.drain();
    script.wait(100);
    script.gets(". 1:1 ack 1 sack 1401:2401");
    let _ = script.drain();
    // The reordering window is over, and not an acknowledgement.
    script.sends_after(25, ". 1:701");
    script.sends(". 701:1401");
    let _ = script.drain();
    script.wait(100);
    script.gets(". 1:1 ack 5401");
    assert_eq!(script.connection.info().snd_mss, 1000);
    assert_eq!(script.connection.info().stats.mtu_probes, 1);
}

/// Even when its loss shows by a time-out alone.
#[test]
fn a_probe_never_leaves_a_second_time_as_it_was() {
    let mut script = probing();
    script.sends(". 1:1401");
    let _ = script.drain();
    for _ in 0..4 {
        let at = script.connection.poll_timeout().expect("a timer runs");
        script.now = script.now.max(at);
        script.connection.handle_timeout(script.now);
        for line in script.drain() {
            let is_again = line.start < 1401;
            assert!(!is_again || line.end - line.start <= 1000, "{line:?}");
        }
    }
    assert!(script.connection.info().recovery.timeouts > 0);
}

#[test]
fn a_router_makes_segments_smaller_at_once() {
    let mut script = Script::established(config());
    script.write(3000);
    assert_eq!(script.drain().len(), 3);
    let in_flight: Seq = OURS.at(1001);
    script.connection.handle_too_big(script.now, in_flight, 600);
    assert_eq!(script.connection.info().snd_mss, 600);
    script.wait(100);
    script.gets(". 1:1 ack 1001 sack 2001:3001");
    script.write(2000);
    let line = script.drain().remove(0);
    assert_eq!((line.start, line.end), (3001, 3601));
}

/// Eight segments of 1000 bytes are out on a path that takes 400 from now on; the last two arrived.
fn shrunk() -> Script {
    let mut script = Script::established(config());
    script.write(8000);
    assert_eq!(script.drain().len(), 8);
    script
        .connection
        .handle_too_big(script.now, OURS.at(1), 400);
    script.wait(100);
    script
}

#[test]
fn what_is_too_long_is_sent_again_in_several() {
    let mut script = shrunk();
    script.gets(". 1:1 ack 2001 sack 6001:8001");
    script.wait(24);
    script.sends_nothing();
    // A quarter of the round trip later they are lost. The first is cut: it leaves as the window allows.
    script.sends_after(1, ". 2001:2335");
    script.sends_nothing();
    script.wait(100);
    script.gets(". 1:1 ack 2335 sack 6001:8001");
    script.sends(". 2335:2669");
    script.sends(". 2669:3001");
}

/// In the middle, a record is not cut: it leaves in several segments, once there is room for all.
#[test]
fn a_segment_in_the_middle_leaves_whole_in_pieces() {
    let mut script = shrunk();
    script.gets(". 1:1 ack 1 sack 3001:8001");
    let mut sent = Vec::new();
    let end = script.now + std::time::Duration::from_secs(5);
    let mut rcv_nxt = 1;
    while rcv_nxt < 3001 {
        assert!(script.now < end, "it stopped at {rcv_nxt}");
        for line in script.drain() {
            if line.start <= rcv_nxt {
                rcv_nxt = rcv_nxt.max(line.end);
                let ack = format!(". 1:1 ack {rcv_nxt} sack 3001:8001");
                let ack = if rcv_nxt < 3001 {
                    ack
                } else {
                    ". 1:1 ack 8001".into()
                };
                script.gets(&ack);
            }
            sent.push((line.start, line.end));
        }
        let at = script.connection.poll_timeout();
        if let Some(at) = at.filter(|_| rcv_nxt < 3001) {
            script.now = script.now.max(at);
            script.connection.handle_timeout(script.now);
        }
    }
    let middle: Vec<_> = sent.iter().filter(|s| s.0 >= 2001 && s.0 < 3001).collect();
    assert_eq!(middle, [&(2001, 2335), &(2335, 2668), &(2668, 3001)]);
    let info = script.connection.info();
    assert_eq!(info.recovery.retransmissions, sent.len() as u64);
    assert_eq!((info.outstanding_bytes, info.recovery.timeouts), (0, 0));
}

#[test]
fn a_probe_for_a_lost_tail_is_short_enough() {
    let mut script = Script::established(config());
    script.write(2000);
    assert_eq!(script.drain().len(), 2);
    script
        .connection
        .handle_too_big(script.now, OURS.at(1), 400);
    script.sends_after(200, "P. 1669:2001");
    assert_eq!(script.connection.info().recovery.probes, 1);
    script.wait(100);
    script.gets(". 1:1 ack 1 sack 1669:2001");
    script.sends(". 1:335");
}
