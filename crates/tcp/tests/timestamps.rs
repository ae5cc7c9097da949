//! RFC 7323: timestamps and what is too old.

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::connection::Config;
use script::{Script, config};

fn established() -> Script {
    Script::established(Config {
        is_timestamps: true,
        mss: 1012,
        mss_max: 1012,
        timestamp_offset: 1000,
        ..config()
    })
}

#[test]
fn every_segment_carries_ours_and_the_last_of_the_peers() {
    let mut script = established();
    script.write(988);
    script.sends("P. 1:989 ts 1100 5000");
    script.gets(". 1:101 ack 1 ts 5007 1100");
    script.sends(". 989:989 ack 101 ts 1100 5007");
}

/// RFC 7323 4.3: the timestamp of the earliest segment that is not acknowledged counts.
#[test]
fn a_segment_beyond_what_was_acknowledged_does_not_update_the_echo() {
    let mut script = established();
    script.gets(". 101:201 ack 1 ts 5009 1100");
    script.sends(". 1:1 ack 1 ts 1100 5000");
    script.gets(". 1:101 ack 1 ts 5008 1100");
    script.sends(". 1:1 ack 201 ts 1100 5008");
}

#[test]
fn an_older_timestamp_is_answered_and_dropped() {
    let mut script = established();
    script.gets(". 1:101 ack 1 ts 4999 1100");
    script.sends(". 1:1 ack 1 ts 1100 5000");
    assert_eq!(script.connection.readable_bytes(), 0);
    assert_eq!(script.connection.stats().paws_drops, 1);
    script.gets(". 1:101 ack 1 ts 5000 1100");
    assert_eq!(script.connection.readable_bytes(), 100);
}

#[test]
fn a_segment_without_one_is_dropped_in_silence_but_a_reset_counts() {
    let mut script = established();
    script.gets(". 1:101 ack 1");
    script.sends_nothing();
    assert_eq!(script.connection.readable_bytes(), 0);
    script.gets("R 1:1");
    assert!(script.connection.is_closed());
}

#[test]
fn the_options_take_their_room_from_the_data() {
    let mut script = established();
    assert_eq!(script.connection.info().snd_mss, 988, "1000 less 12");
    script.write(3000);
    script.sends(". 1:989");
}

#[test]
fn an_echo_measures_what_was_sent_twice() {
    let mut script = established();
    script.write(500);
    script.sends("P. 1:501");
    script.sends_after(300, "P. 1:501");
    script.wait(100);
    let before = script.connection.info().rtt;
    // The echo of the second: sent 400 ms after the start at 1000.
    script.gets(". 1:1 ack 501 ts 5400 1400");
    let after = script.connection.info().rtt;
    assert_eq!((before.as_millis(), after.as_millis()), (100, 100));
    assert_eq!(script.connection.info().rto.as_millis(), 300);
}
