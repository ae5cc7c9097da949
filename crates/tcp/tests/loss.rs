//! What is sent again, when, and what that does to the window: RFC 8985, 9937, 6298, 5682 on a whole
//! connection.

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::connection::config::TIMEOUTS_MAX;
use fullbore_tcp::connection::{Config, Error};
use fullbore_tcp::recovery::Phase;
use script::{Script, config};

/// Ten segments are out; a round trip has passed.
fn in_flight(config: Config) -> Script {
    let mut script = Script::established(config);
    script.write(40_000);
    assert_eq!(script.drain().len(), 10);
    script.wait(100);
    script
}

#[test]
fn three_sacked_segments_bring_the_missing_one_at_once() {
    let mut script = in_flight(config());
    script.gets(". 1:1 ack 1 sack 1001:2001");
    script.sends(". 10001:11001");
    script.gets(". 1:1 ack 1 sack 1001:3001");
    script.sends(". 11001:12001");
    script.gets(". 1:1 ack 1 sack 1001:4001");
    script.sends(". 1:1001");
    let info = script.connection.info();
    assert!(matches!(info.phase, Phase::Fast { .. }));
    assert_eq!(info.snd_ssthresh, 5000, "half of what was the window");
    assert_eq!(info.recovery.retransmissions, 1);
}

#[test]
fn a_recovery_ends_at_the_reduced_window() {
    let mut script = in_flight(config());
    script.gets(". 1:1 ack 1 sack 1001:4001");
    script.sends(". 1:1001");
    script.gets(". 1:1 ack 1 sack 1001:10001");
    let _ = script.drain();
    script.wait(100);
    let sent = script.connection.stats().bytes_sent + 1;
    script.gets(&format!(". 1:1 ack {sent}"));
    let info = script.connection.info();
    assert_eq!(info.phase, Phase::Open);
    assert_eq!(info.snd_cwnd / 1000, 5);
}

#[test]
fn an_unanswered_tail_is_probed_with_new_data_if_there_is_any() {
    let mut script = Script::established(config());
    script.gets(". 1:1 ack 1 win 60000");
    script.write(2000);
    script.sends(". 1:1001");
    script.sends("P. 1001:2001");
    script.sends_after(200, "P. 1001:2001");
    assert_eq!(script.connection.info().recovery.probes, 1);
    let mut script = in_flight(config());
    script.sends_after(100, ". 10001:11001");
    assert_eq!(script.connection.info().recovery.probes, 1);
}

#[test]
fn a_timeout_sends_the_first_segment_again_and_leaves_a_window_of_one() {
    let mut script = in_flight(config());
    script.sends_after(100, ". 10001:11001");
    script.sends_after(300, ". 1:1001");
    script.sends_nothing();
    let info = script.connection.info();
    assert!(matches!(info.phase, Phase::Timeout { .. }));
    assert_eq!(info.recovery.timeouts, 1);
    assert_eq!(info.rto.as_millis(), 600);
    // Slow start from there.
    script.wait(100);
    script.gets(". 1:1 ack 1001");
    assert_eq!(script.drain().len(), 2);
}

#[test]
fn a_needless_timeout_is_undone() {
    let mut script = in_flight(config());
    script.sends_after(100, ". 10001:11001");
    script.sends_after(300, ". 1:1001");
    script.gets(". 1:1 ack 1001");
    script.sends(". 11001:12001");
    let before = script.connection.info().snd_cwnd;
    script.gets(". 1:1 ack 2001");
    let info = script.connection.info();
    assert_eq!(info.phase, Phase::Open);
    assert!(info.snd_cwnd >= 10_000 && before < 3000, "{before}");
    assert_eq!(info.lost_bytes, 0);
}

#[test]
fn a_peer_that_never_answers_is_given_up() {
    let mut script = Script::established(config());
    script.write(100);
    script.sends("P. 1:101");
    let mut sent = 0;
    while script.connection.error().is_none() {
        let at = script.connection.poll_timeout().expect("something is due");
        script.now = script.now.max(at);
        script.connection.handle_timeout(script.now);
        sent += script.drain().len();
    }
    assert_eq!(script.connection.error(), Some(Error::TimedOut));
    // The probe, and one for each time-out.
    assert_eq!(sent, 1 + TIMEOUTS_MAX as usize);
    assert!(script.ms() > 100_000, "RFC 9293 3.8.3: at least 100 s");
}

#[test]
fn without_sack_the_third_duplicate_brings_the_missing_one() {
    let mut script = in_flight(Config {
        is_sack: false,
        ..config()
    });
    script.gets(". 1:1 ack 1");
    script.sends(". 10001:11001");
    script.gets(". 1:1 ack 1");
    script.sends(". 11001:12001");
    script.gets(". 1:1 ack 1");
    script.sends(". 1:1001");
    // A partial acknowledgement shows the next hole.
    script.wait(100);
    script.gets(". 1:1 ack 5001");
    script.sends_nothing();
    script.gets(". 1:1 ack 5001");
    script.sends_nothing();
    script.gets(". 1:1 ack 5001");
    script.sends(". 5001:6001");
}

#[test]
fn a_window_update_is_no_duplicate() {
    let mut script = in_flight(Config {
        is_sack: false,
        ..config()
    });
    for win in [50_001, 50_002, 50_003, 50_004] {
        script.gets(&format!(". 1:1 ack 1 win {win}"));
        script.sends_nothing();
    }
}

/// RFC 2018 section 8, at a time-out with a SACKed segment in front.
#[test]
fn data_that_the_peer_threw_away_is_sent_again() {
    let mut script = in_flight(config());
    script.gets(". 1:1 ack 1 sack 1001:5001");
    script.sends(". 1:1001");
    let _ = script.drain();
    script.gets(". 1:1 ack 1001");
    let _ = script.drain();
    let mut again = Vec::new();
    for _ in 0..20 {
        let at = script.connection.poll_timeout().expect("a timer runs");
        script.now = script.now.max(at);
        script.connection.handle_timeout(script.now);
        again.extend(script.drain());
        if script.connection.info().recovery.reneges > 0 {
            break;
        }
    }
    assert_eq!(script.connection.info().recovery.reneges, 1);
    assert!(again.iter().any(|line| line.start == 1001), "{again:?}");
}

#[test]
fn a_tail_is_not_probed_for_where_that_is_not_wanted() {
    for (is_tail_probed, probes, timeouts) in [(true, 1, 0), (false, 0, 1)] {
        let mut script = Script::established(Config {
            is_tail_probed,
            ..config()
        });
        script.write(2000);
        assert_eq!(script.drain().len(), 2);
        while script.poll().is_none() {
            script.now = script.connection.poll_timeout().expect("a timer runs");
            script.connection.handle_timeout(script.now);
        }
        let recovery = script.connection.info().recovery;
        assert_eq!((recovery.probes, recovery.timeouts), (probes, timeouts));
    }
}
