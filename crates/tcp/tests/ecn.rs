//! Marks of the path in place of losses: RFC 3168.

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::connection::Config;
use script::{Script, config};

fn established() -> Script {
    Script::established(Config {
        is_ecn: true,
        ..config()
    })
}

#[test]
fn a_mark_is_echoed_until_the_peer_says_that_it_slowed_down() {
    let mut script = established();
    script.gets_marked(". 1:1001 ack 1", true);
    script.sends(".E 1:1 ack 1001");
    script.gets(". 1001:2001 ack 1");
    script.sends(".E 1:1 ack 2001");
    script.gets(".W 2001:3001 ack 1");
    script.sends(". 1:1 ack 3001");
    assert_eq!(script.connection.stats().marks, 1);
}

#[test]
fn an_echo_halves_the_window_once_per_round_trip_and_says_so() {
    let mut script = established();
    script.write(40_000);
    assert_eq!(script.drain().len(), 10);
    script.wait(100);
    script.gets(".E 1:1 ack 2001");
    assert_eq!(script.connection.info().snd_cwnd, 5000);
    script.sends_nothing();
    script.gets(".E 1:1 ack 4001");
    assert_eq!(script.connection.info().snd_cwnd, 5000);
    // RFC 3168 6.1.2: an echo makes the window no larger.
    script.gets(".E 1:1 ack 7001");
    assert_eq!(script.connection.info().snd_cwnd, 5000);
    script.sends(".W 10001:11001");
    let lines = script.drain();
    assert!(
        lines
            .iter()
            .all(|l| l.flags == fullbore_tcp::segment::Flags::ACK)
    );
    assert_eq!(script.connection.info().recovery.retransmissions, 0);
}

/// Said once for each reduction: a second notice could hide a mark that came between.
#[test]
fn a_reduction_is_told_once_and_the_next_one_again() {
    let mut script = established();
    script.write(40_000);
    let _ = script.drain();
    script.wait(100);
    script.gets(".E 1:1 ack 6001");
    script.sends(".W 10001:11001");
    script.gets(".E 1:1 ack 7001");
    script.sends(". 11001:12001");
    // All that was sent before the reduction is acknowledged: an echo is a new one.
    script.wait(50);
    script.gets(".E 1:1 ack 12001");
    script.sends(".W 12001:13001");
}

#[test]
fn a_loss_is_told_with_the_next_new_data_and_not_with_what_is_sent_again() {
    let mut script = established();
    script.write(20_000);
    let _ = script.drain();
    assert!(script.is_ect);
    script.wait(100);
    script.gets(". 1:1 ack 1 sack 1001:9001");
    script.sends(". 1:1001");
    assert!(!script.is_ect, "RFC 3168 6.1.5");
    script.sends(".W 10001:11001");
    assert!(script.is_ect);
}

#[test]
fn a_probe_that_repeats_a_segment_may_not_be_marked() {
    let mut script = established();
    script.write(2000);
    assert_eq!(script.drain().len(), 2);
    script.sends_after(200, "P. 1001:2001");
    assert!(!script.is_ect);
}

#[test]
fn a_connection_that_did_not_agree_ignores_marks() {
    let mut script = Script::established(config());
    script.gets_marked(". 1:1001 ack 1", true);
    script.sends(". 1:1 ack 1001");
    script.write(20_000);
    let _ = script.drain();
    let before = script.connection.info().snd_cwnd;
    script.gets(".E 1001:1001 ack 1001");
    assert!(script.connection.info().snd_cwnd >= before);
}

/// RFC 3168 6.1.1: an answer has ECE alone; one with both flags reflects what it does not understand.
#[test]
fn an_answer_that_reflects_both_flags_agrees_to_nothing() {
    for (answer, is_agreed) in [
        ("S.E", true),
        ("S.EW", false),
        ("S.W", false),
        ("S.", false),
    ] {
        let mut script = Script::connecting(Config {
            is_ecn: true,
            ..config()
        });
        script.sends("SEW 0:1");
        script.gets(&format!("{answer} 0:1 ack 1 mss 1000"));
        assert_eq!(script.connection.agreed().is_ecn, is_agreed, "{answer}");
    }
}
