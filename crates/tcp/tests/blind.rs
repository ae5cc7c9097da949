//! Segments that ought not to be there: RFC 5961 and the acceptance test of RFC 9293.

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::connection::config::CHALLENGES_MAX;
use fullbore_tcp::connection::{Error, State};
use script::{Script, config};

#[test]
fn only_the_exact_number_resets() {
    let mut script = Script::established(config());
    script.gets("R 2:2");
    script.sends(". 1:1 ack 1");
    script.gets("R 20000:20000");
    script.sends(". 1:1 ack 1");
    script.gets("R 0:0");
    script.gets("R 20001:20001");
    script.sends_nothing();
    assert_eq!(script.connection.state(), State::Established);
    script.gets("R 1:1");
    assert_eq!(script.connection.error(), Some(Error::Reset));
}

#[test]
fn a_syn_is_a_challenge_and_never_obeyed() {
    let mut script = Script::established(config());
    for syn in ["S 1:2", "S 0:1", "S. 500:501 ack 1", "S 900000:900001"] {
        script.gets(syn);
        script.sends(". 1:1 ack 1");
    }
    assert_eq!(script.connection.state(), State::Established);
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_challenged() {
    let mut script = Script::established(config());
    script.gets("P. 1:101 ack 2");
    script.sends(". 1:1 ack 1");
    assert_eq!(script.connection.readable_bytes(), 0);
}

#[test]
fn an_acknowledgement_may_be_a_window_old_and_not_older() {
    let mut script = Script::established(config());
    for i in 0..60 {
        script.write(1000);
        let _ = script.drain();
        script.gets(&format!(". 1:1 ack {} win 50000", (i + 1) * 1000 + 1));
    }
    // 60,001 are acknowledged, the largest window was 50,000.
    script.gets("P. 1:101 ack 10001");
    assert_eq!(script.connection.readable_bytes(), 100);
    let _ = script.drain();
    script.gets("P. 101:201 ack 10000");
    assert_eq!(script.connection.readable_bytes(), 100);
    script.sends(". 60001:60001 ack 101");
}

#[test]
fn challenges_are_limited() {
    let mut script = Script::established(config());
    let mut answers = 0;
    for _ in 0..CHALLENGES_MAX * 3 {
        script.gets("R 2:2");
        answers += script.drain().len();
    }
    assert_eq!(answers, CHALLENGES_MAX as usize);
    let told = script.connection.stats().challenges;
    assert_eq!(told, u64::from(CHALLENGES_MAX));
    script.wait(5000);
    script.gets("R 2:2");
    script.sends(". 1:1 ack 1");
}

#[test]
fn data_outside_the_window_is_answered_and_dropped() {
    let mut script = Script::established(config());
    script.gets("P. 20001:20101 ack 1");
    script.sends(". 1:1 ack 1");
    assert_eq!(script.connection.readable_bytes(), 0);
    script.gets("P. 1:101 ack 1");
    script.sends(". 1:1 ack 101");
    script.gets("P. 1:101 ack 1");
    script.sends(". 1:1 ack 101 sack 1:101");
    assert_eq!(script.connection.readable_bytes(), 100);
}

#[test]
fn a_segment_that_sticks_out_of_the_window_is_cut() {
    let mut script = Script::established(config());
    for i in 0..20 {
        script.gets(&format!(". {}:{} ack 1", i * 1000 + 1, i * 1000 + 1001));
        let _ = script.drain();
    }
    assert_eq!(script.connection.readable_bytes(), 20_000);
    assert_eq!(script.connection.info().rcv_wnd, 0);
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut script = Script::established(config());
    script.gets("P 1:101");
    script.sends_nothing();
    assert_eq!(script.connection.readable_bytes(), 0);
}

#[test]
fn overlapping_data_is_taken_once() {
    let mut script = Script::established(config());
    script.gets(". 1:101 ack 1");
    script.sends(". 1:1 ack 101");
    script.gets(". 51:151 ack 1");
    script.sends(". 1:1 ack 151 sack 51:101");
    assert_eq!(script.read_all(), 150);
}

/// RFC 6093: the bytes stand in the stream, whatever the flag says of them.
#[test]
fn urgent_data_is_data() {
    let mut script = Script::established(config());
    script.gets("UP. 1:101 ack 1");
    script.sends(". 1:1 ack 101");
    assert_eq!(script.read_all(), 100);
}
