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
    script.gets(".E 1:1 ack 7001");
    script.sends(".W 10001:11001");
    let lines = script.drain();
    assert!(
        lines
            .iter()
            .all(|l| l.flags == fullbore_tcp::segment::Flags::ACK)
    );
    assert_eq!(script.connection.info().recovery.retransmissions, 0);
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
