//! A scoreboard that is full: what was sent may still be sent again, and nothing else may leave.

#[path = "support/script.rs"]
mod script;

use std::time::Duration;

use fullbore_tcp::connection::Config;
use script::{Line, OURS, Script, config};

const RECORDS: usize = 8;

/// Segments of one byte until no more are kept; the peer is silent.
fn full() -> Script {
    let mut script = Script::established(Config {
        records_max: RECORDS,
        is_nagle: false,
        ..config()
    });
    for position in 1..=RECORDS {
        script.write(1);
        script.sends(&format!("P. {position}:{}", position + 1));
    }
    script.write(1);
    script.sends_nothing();
    script
}

/// All of what leaves at the next deadline that makes something leave.
fn expire(script: &mut Script) -> Vec<Line> {
    loop {
        let at = script.connection.poll_timeout().expect("a timer runs");
        script.now = script.now.max(at);
        script.connection.handle_timeout(script.now);
        let lines = script.drain();
        if !lines.is_empty() {
            return lines;
        }
    }
}

#[test]
fn a_tail_loss_probe_repeats_the_last_segment() {
    let mut script = full();
    // Twice the round trip.
    script.sends_after(200, ". 8:9");
    script.sends_nothing();
    assert_eq!(script.connection.info().recovery.probes, 1);
}

#[test]
fn a_time_out_sends_the_first_again_until_the_peer_answers() {
    let mut script = full();
    let _ = expire(&mut script);
    for timeouts in 1..=5 {
        let lines = expire(&mut script);
        assert_eq!((lines[0].start, lines[0].end), (1, 2), "{lines:?}");
        assert_eq!(script.connection.info().recovery.timeouts, timeouts);
    }
    // One is acknowledged: one more may leave.
    script.gets(". 1:1 ack 2");
    let lines = script.drain();
    let is_new = |line: &&Line| line.start == RECORDS as u64 + 1;
    assert_eq!(lines.iter().filter(is_new).count(), 1, "{lines:?}");
    script.gets(". 1:1 ack 10");
    let info = script.connection.info();
    assert_eq!((info.outstanding_bytes, info.notsent_bytes), (0, 0));
}

#[test]
fn a_loss_that_sacks_show_is_repaired() {
    let mut script = full();
    script.wait(100);
    script.gets(". 1:1 ack 1 sack 2:9");
    let lines = script.drain();
    let again = lines.first().expect("the first, again");
    assert_eq!((again.start, again.end), (1, 2));
    script.gets(". 1:1 ack 9");
    script.sends("P. 9:10");
}

#[test]
fn a_fin_waits_for_room() {
    let mut script = full();
    script.connection.close();
    script.sends_nothing();
    let lines = expire(&mut script);
    assert_eq!((lines[0].start, lines[0].end), (8, 9), "the probe");
    script.gets(". 1:1 ack 9");
    script.sends("FP. 9:11");
}

#[test]
fn a_probe_for_a_larger_mtu_waits_for_room() {
    let mut script = Script::connecting(Config {
        mss_max: 1400,
        records_max: 1,
        ..config()
    });
    let _ = script.poll();
    script.wait(100);
    script.gets("S. 0:1 ack 1 win 50000 mss 1400 sackok");
    script.sends(". 1:1 ack 1");
    script.write(500);
    script.sends("P. 1:501");
    script.write(20_000);
    script.sends_nothing();
    script.wait(100);
    script.gets(". 1:1 ack 501");
    script.sends(". 501:1901");
    assert_eq!(script.connection.info().stats.mtu_probes, 1);
}

/// Eight segments of 1000 bytes on a path that takes 300, then 216, and loses what is longer.
#[test]
fn a_path_that_shrinks_twice_gets_all_of_a_full_scoreboard() {
    let mut script = Script::established(Config {
        records_max: RECORDS,
        ..config()
    });
    script.write(8000);
    let sent = script.drain();
    assert_eq!(sent.len(), RECORDS);
    for mss in [300, 216] {
        let first = OURS.at(1);
        script.connection.handle_too_big(script.now, first, mss);
    }
    let mut rcv_nxt = 1;
    let end = script.now + Duration::from_secs(600);
    while rcv_nxt < 8001 {
        assert!(script.now < end, "it stopped at {rcv_nxt}");
        for line in expire(&mut script) {
            assert!(line.end - line.start <= 216, "{line:?}");
            if line.start <= rcv_nxt {
                rcv_nxt = rcv_nxt.max(line.end);
                script.gets(&format!(". 1:1 ack {rcv_nxt}"));
            }
        }
        let count = script.connection.info().outstanding_count;
        // The first and the last are cut, into pieces of more than half the least size.
        assert!(count <= RECORDS + 2 * (2 * 1000 / 216), "{count}");
    }
    assert_eq!(script.connection.info().outstanding_bytes, 0);
}
