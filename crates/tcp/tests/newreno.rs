//! Without SACK: RFC 6582, and which duplicates count.

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::connection::Config;
use script::{Script, config};

/// Ten segments are out; the peer takes no SACK.
fn flying() -> Script {
    let mut script = Script::established(Config {
        is_sack: false,
        ..config()
    });
    script.write(10_000);
    assert_eq!(script.drain().len(), 10);
    script.wait(100);
    script
}

fn recoveries(script: &Script) -> u64 {
    script.connection.info().recovery.fast_recoveries
}

#[test]
fn two_duplicates_are_not_enough_and_the_third_is() {
    let mut script = flying();
    script.gets(". 1:1 ack 1");
    script.gets(". 1:1 ack 1");
    script.sends_nothing();
    script.gets(". 1:1 ack 1");
    script.sends(". 1:1001");
    assert_eq!(recoveries(&script), 1);
}

/// RFC 5681 2: data, a FIN, a new window, or nothing outstanding make it none.
#[test]
fn not_every_repeated_acknowledgement_is_a_duplicate() {
    let mut script = flying();
    for other in [
        "P. 1:11 ack 1",
        ". 11:11 ack 1 win 49999",
        ". 11:11 ack 1 win 50000",
    ] {
        script.gets(other);
    }
    let again = script.drain();
    assert!(again.iter().all(|line| line.end == line.start), "{again:?}");
    assert_eq!(recoveries(&script), 0);
    script.gets(". 11:11 ack 10001");
    for _ in 0..5 {
        script.gets(". 11:11 ack 10001");
    }
    script.sends_nothing();
    assert_eq!(recoveries(&script), 0);
}

/// RFC 6582 3.2 step 1 and 4.1: what was sent before the last recovery began causes no other.
#[test]
fn duplicates_of_one_flight_reduce_once() {
    let mut script = flying();
    // A time-out, in which all of the flight is in doubt.
    script.sends_after(200, ". 1:1001");
    script.gets(". 1:1 ack 3001");
    let _ = script.drain();
    for _ in 0..4 {
        script.gets(". 1:1 ack 3001");
        let _ = script.drain();
    }
    assert_eq!(recoveries(&script), 0);
    script.gets(". 1:1 ack 10001");
    // A flight that began behind it is another one.
    script.write(6000);
    let _ = script.drain();
    script.wait(100);
    script.gets(". 1:1 ack 11001");
    let _ = script.drain();
    for _ in 0..3 {
        script.gets(". 1:1 ack 11001");
    }
    assert_eq!(recoveries(&script), 1);
}

#[test]
fn an_acknowledgement_of_all_ends_it_and_one_of_a_part_does_not() {
    let mut script = flying();
    for _ in 0..3 {
        script.gets(". 1:1 ack 1");
    }
    script.sends(". 1:1001");
    script.wait(50);
    script.gets(". 1:1 ack 5001");
    assert!(script.connection.info().lost_bytes + script.connection.info().retransmitted_bytes > 0);
    script.gets(". 1:1 ack 9001");
    assert_ne!(
        script.connection.info().phase,
        fullbore_tcp::recovery::Phase::Open
    );
    script.gets(". 1:1 ack 10001");
    assert_eq!(
        script.connection.info().phase,
        fullbore_tcp::recovery::Phase::Open
    );
    assert_eq!(script.connection.info().snd_cwnd, 5000);
}
