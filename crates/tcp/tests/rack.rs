//! How long a segment may be late: the reordering window of RFC 8985 section 6.2 step 4.

#[path = "support/script.rs"]
mod script;

use script::{Script, config};

/// The first of two segments is late by a round trip of 100 ms and more; after how many milliseconds
/// it is sent again. `is_needless`: it had arrived, as the receiver then says.
fn late(script: &mut Script, is_needless: bool) -> u64 {
    let first = script.connection.info().stats.bytes_sent + 1;
    let (second, end) = (first + 1000, first + 2000);
    script.write(2000);
    let sent = script.drain();
    assert_eq!((sent[0].start, sent[1].end), (first, end));
    script.wait(100);
    script.gets(&format!(". 1:1 ack {first} sack {second}:{end}"));
    let shown_at = script.ms();
    while script.poll().is_none() {
        let at = script.connection.poll_timeout().expect("a timer runs");
        script.now = script.now.max(at);
        script.connection.handle_timeout(script.now);
    }
    let waited = script.ms() - shown_at;
    script.wait(100);
    if is_needless {
        script.gets(&format!(". 1:1 ack {end} sack {first}:{second}"));
    } else {
        script.gets(&format!(". 1:1 ack {end}"));
    }
    assert_eq!(script.connection.info().outstanding_bytes, 0);
    waited
}

#[test]
fn a_needless_retransmission_widens_the_window_for_sixteen_recoveries() {
    let mut script = Script::established(config());
    assert_eq!(late(&mut script, false), 25);
    assert_eq!(late(&mut script, true), 25);
    // Twice a quarter of the least round trip, until the last recovery of sixteen is over.
    for recovery in 1..=16 {
        assert_eq!(late(&mut script, false), 50, "recovery {recovery}");
    }
    assert_eq!(late(&mut script, false), 25);
}

#[test]
fn the_window_is_never_wider_than_the_smoothed_round_trip() {
    let mut script = Script::established(config());
    let mut widest = 0;
    for _ in 0..12 {
        let srtt = script.connection.info().rtt.as_micros().div_ceil(1000);
        let waited = late(&mut script, true);
        assert!(u128::from(waited) <= srtt, "{waited} of {srtt}");
        widest = widest.max(waited);
    }
    assert!(widest >= 90, "{widest}: it grows up to there");
}

/// What arrived twice though it was sent once is the network's doing: it widens nothing.
#[test]
fn duplicates_of_what_was_sent_once_are_no_evidence() {
    let mut script = Script::established(config());
    script.write(1000);
    let _ = script.drain();
    script.wait(100);
    script.gets(". 1:1 ack 1001");
    for _ in 0..5 {
        script.gets(". 1:1 ack 1001 sack 1:1001");
    }
    let recovery = script.connection.info().recovery;
    assert_eq!(
        (recovery.dsack_blocks, recovery.spurious_retransmissions),
        (5, 0)
    );
    assert_eq!(late(&mut script, false), 25);
}
