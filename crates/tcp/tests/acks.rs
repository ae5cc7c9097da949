//! Acknowledgements that we send: RFC 5681 section 4.2, RFC 2018 section 4, RFC 2883 section 4.

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::connection::Config;
use script::{Script, config};

/// Past the acknowledgements that are never held back; 17,001 comes next, and all is read.
fn settled(config: Config) -> Script {
    let mut script = Script::established(config);
    for i in 0..17u64 {
        script.gets(&format!(". {}:{} ack 1", i * 1000 + 1, i * 1000 + 1001));
        let _ = script.drain();
        let _ = script.read_all();
    }
    script.gets(". 17001:18001 ack 1");
    let _ = script.drain();
    let _ = script.read_all();
    let _ = script.drain();
    script
}

#[test]
fn the_first_segments_are_acknowledged_one_by_one() {
    let mut script = Script::established(config());
    for i in 0..16u64 {
        script.gets(&format!("P. {}:{} ack 1", i * 10 + 1, i * 10 + 11));
        script.sends(&format!(". 1:1 ack {}", i * 10 + 11));
    }
    script.gets("P. 161:171 ack 1");
    script.sends_nothing();
    script.sends_after(40, ". 1:1 ack 171");
}

#[test]
fn then_every_second_full_segment() {
    let mut script = settled(config());
    script.gets(". 18001:19001 ack 1");
    script.sends_nothing();
    script.gets(". 19001:20001 ack 1");
    script.sends(". 1:1 ack 20001");
    script.sends_nothing();
}

#[test]
fn data_carries_the_acknowledgement_along() {
    let mut script = settled(config());
    script.gets("P. 18001:18101 ack 1");
    script.sends_nothing();
    script.write(50);
    script.sends("P. 1:51 ack 18101");
    script.wait(100);
    assert_eq!(script.connection.info().rcv_wnd, 19_900);
}

#[test]
fn what_is_out_of_order_is_reported_at_once_newest_first() {
    let mut script = settled(config());
    script.gets(". 19001:20001 ack 1");
    script.sends(". 1:1 ack 18001 sack 19001:20001");
    script.gets(". 21001:22001 ack 1");
    script.sends(". 1:1 ack 18001 sack 21001:22001,19001:20001");
    script.gets(". 23001:24001 ack 1");
    script.sends(". 1:1 ack 18001 sack 23001:24001,21001:22001,19001:20001");
    script.gets(". 20001:21001 ack 1");
    script.sends(". 1:1 ack 18001 sack 19001:22001,23001:24001");
    script.gets(". 18001:19001 ack 1");
    script.sends(". 1:1 ack 22001 sack 23001:24001");
    script.gets(". 22001:23001 ack 1");
    let line = script.poll().expect("at once: a hole is filled");
    assert_eq!((line.ack, line.sack), (Some(24_001), None));
}

#[test]
fn what_came_twice_is_reported_once() {
    let mut script = settled(config());
    script.gets(". 17001:18001 ack 1");
    script.sends(". 1:1 ack 18001 sack 17001:18001");
    script.gets(". 20001:21001 ack 1");
    script.sends(". 1:1 ack 18001 sack 20001:21001");
    script.gets(". 20001:21001 ack 1");
    script.sends(". 1:1 ack 18001 sack 20001:21001,20001:21001");
    script.gets(". 20501:21001 ack 1");
    script.sends(". 1:1 ack 18001 sack 20501:21001,20001:21001");
}

#[test]
fn with_timestamps_three_blocks_fit() {
    let mut script = Script::established(Config {
        is_timestamps: true,
        mss: 1012,
        mss_max: 1012,
        ..config()
    });
    for start in [2001, 4001, 6001, 8001] {
        script.gets(&format!(". {start}:{} ack 1 ts 5001 0", start + 1000));
    }
    let line = script.poll().expect("an ACK");
    let blocks = line.sack.expect("blocks");
    assert_eq!(blocks, [(8001, 9001), (6001, 7001), (4001, 5001)]);
}

#[test]
fn without_sack_nothing_is_reported() {
    let mut script = Script::established(Config {
        is_sack: false,
        ..config()
    });
    script.gets(". 1001:2001 ack 1");
    let line = script.poll().expect("an ACK");
    assert_eq!((line.ack, line.sack), (Some(1), None));
}

#[test]
fn blocks_leave_ahead_of_data_that_has_no_room_for_them() {
    let mut script = Script::established(config());
    script.write(3000);
    script.gets(". 1001:2001 ack 1");
    script.sends(". 1:1 ack 1 sack 1001:2001");
    script.sends(". 1:1001 ack 1");
}
