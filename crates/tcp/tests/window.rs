//! Windows of both sides: RFC 9293 section 3.8.6, Nagle's algorithm.

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::connection::{Config, Error, State};
use script::{Script, config};

#[test]
fn nothing_is_sent_beyond_the_peers_window() {
    let mut script = Script::established(config());
    script.gets(". 1:1 ack 1 win 2500");
    script.write(5000);
    script.sends(". 1:1001");
    script.sends(". 1001:2001");
    script.sends_nothing();
    script.gets(". 1:1 ack 2001 win 2500");
    script.sends(". 2001:3001");
    script.sends(". 3001:4001");
    script.sends_nothing();
}

/// RFC 9293 3.8.6.2.1: less than a segment, less than half of the largest window.
#[test]
fn a_small_opening_is_not_used_at_once() {
    let mut script = Script::established(config());
    script.gets(". 1:1 ack 1 win 900");
    script.write(5000);
    script.sends_nothing();
    script.sends_after(200, ". 1:901");
}

#[test]
fn a_peer_with_a_small_buffer_gets_half_of_it() {
    let mut script = Script::connecting(config());
    let _ = script.poll();
    script.gets("S. 0:1 ack 1 win 800 mss 1000");
    script.sends(". 1:1 ack 1");
    script.write(5000);
    script.sends(". 1:801");
    script.gets(". 1:1 ack 801 win 399");
    script.sends_nothing();
    script.gets(". 1:1 ack 801 win 400");
    script.sends(". 801:1201");
}

#[test]
fn a_closed_window_is_asked_about_ever_less_often() {
    let mut script = Script::established(config());
    script.gets(". 1:1 ack 1 win 0");
    script.write(5000);
    script.sends_nothing();
    // The retransmission timer after one sample of 100 ms, doubling.
    for ms in [
        300, 600, 1200, 2400, 4800, 9600, 19_200, 38_400, 60_000, 60_000,
    ] {
        script.sends_after(ms, ". 0:0 ack 1");
        script.gets(". 1:1 ack 1 win 0");
        script.sends_nothing();
    }
    assert_eq!(script.connection.state(), State::Established);
    script.gets(". 1:1 ack 1 win 3000");
    script.sends(". 1:1001");
    assert_eq!(script.connection.info().recovery.timeouts, 0);
}

/// RFC 9293 MUST-37: not as long as it answers, however often it was asked.
#[test]
fn a_peer_that_answers_may_keep_its_window_closed_and_one_that_does_not_is_given_up() {
    let mut script = Script::established(config());
    script.gets(". 1:1 ack 1 win 0");
    script.write(5000);
    for _ in 0..100 {
        while script.poll().is_none() {
            let at = script.connection.poll_timeout().expect("a timer runs");
            script.now = at;
            script.connection.handle_timeout(at);
        }
        script.gets(". 1:1 ack 1 win 0");
    }
    assert_eq!(script.connection.state(), State::Established);
    for _ in 0..15 {
        script.sends_after(60_000, ". 0:0 ack 1");
        script.sends_nothing();
    }
    script.wait(59_999);
    assert_eq!(script.connection.state(), State::Established);
    script.wait(1);
    assert_eq!(script.connection.error(), Some(Error::TimedOut));
}

/// RFC 9293 MUST-34, SHLD-16: a window may be taken back. Nothing new leaves; what was sent is still
/// repeated, and its acknowledgement counts.
#[test]
fn a_window_that_is_taken_back_stops_new_data_only() {
    let mut script = Script::established(config());
    script.write(8000);
    assert_eq!(script.drain().len(), 8);
    script.gets(". 1:1 ack 1001 win 2000");
    script.write(3000);
    script.sends_nothing();
    script.wait(100);
    script.gets(". 1:1 ack 1001 win 2000 sack 2001:8001");
    script.sends(". 1001:2001");
    script.gets(". 1:1 ack 8001 win 2000");
    script.sends(". 8001:9001");
    script.sends(". 9001:10001");
    script.sends_nothing();
}

/// The same where it closed its window over what was on its way: each repetition is a question.
#[test]
fn a_peer_that_closes_its_window_over_data_is_kept_while_it_answers() {
    for (answers, is_kept) in [(40, true), (3, false)] {
        let mut script = Script::established(config());
        script.write(1000);
        let _ = script.drain();
        script.gets(". 1:1 ack 1 win 0");
        let mut left = answers;
        for _ in 0..40 {
            while script.poll().is_none() && script.connection.error().is_none() {
                script.now = script.connection.poll_timeout().expect("a timer runs");
                script.connection.handle_timeout(script.now);
            }
            if left > 0 {
                left -= 1;
                script.gets(". 1:1 ack 1 win 0");
            }
        }
        let is_alive = script.connection.error().is_none();
        assert_eq!(is_alive, is_kept, "{answers} answers");
    }
}

#[test]
fn a_closed_window_takes_acknowledgements_and_no_data() {
    let mut script = Script::established(config());
    script.write(1000);
    script.sends("P. 1:1001");
    for i in 0..20 {
        script.gets(&format!(". {}:{} ack 1", i * 1000 + 1, i * 1000 + 1001));
    }
    let _ = script.drain();
    assert_eq!(script.connection.info().rcv_wnd, 0);
    script.gets("P. 20001:20002 ack 1001");
    script.sends(". 1001:1001 ack 20001 win 0");
    assert_eq!(script.connection.unacked_bytes(), 0);
    assert_eq!(script.read_all(), 20_000);
    script.sends(". 1001:1001 ack 20001 win 20000");
}

#[test]
fn an_old_segment_does_not_change_the_window() {
    let mut script = Script::established(config());
    script.gets(". 1:101 ack 1 win 9000");
    script.sends(". 1:1 ack 101");
    script.gets(". 50:101 ack 1 win 5");
    let _ = script.drain();
    assert_eq!(script.connection.info().snd_wnd, 9000);
    script.gets(". 101:101 ack 1 win 7000");
    assert_eq!(script.connection.info().snd_wnd, 7000);
}

#[test]
fn reading_opens_the_window_by_two_segments_or_half_the_buffer() {
    let mut script = Script::established(config());
    for i in 0..10 {
        script.gets(&format!(". {}:{} ack 1", i * 1000 + 1, i * 1000 + 1001));
    }
    let _ = script.drain();
    script.connection.consume(script.now, 1999);
    script.sends_nothing();
    script.connection.consume(script.now, 1);
    script.sends(". 1:1 ack 10001 win 12000");
}

#[test]
fn nagle_holds_back_a_small_segment_until_all_is_acknowledged() {
    for (is_nagle, second) in [(true, None), (false, Some("P. 101:201"))] {
        let mut script = Script::established(Config {
            is_nagle,
            ..config()
        });
        script.write(100);
        script.sends("P. 1:101");
        script.write(100);
        match second {
            Some(expected) => script.sends(expected),
            None => script.sends_nothing(),
        }
        if is_nagle {
            script.gets(". 1:1 ack 101");
            script.sends("P. 101:201");
        }
    }
}

#[test]
fn nagle_lets_full_segments_and_the_last_one_go() {
    let mut script = Script::established(Config {
        is_nagle: true,
        ..config()
    });
    script.write(2500);
    script.sends(". 1:1001");
    script.sends(". 1001:2001");
    script.sends_nothing();
    script.connection.close();
    script.sends("FP. 2001:2502");
}

#[test]
fn the_initial_window_is_ten_segments() {
    let mut script = Script::established(config());
    script.write(40_000);
    assert_eq!(script.drain().len(), 10);
    script.gets(". 1:1 ack 2001");
    assert_eq!(script.drain().len(), 4, "slow start: two for each");
}

#[test]
fn after_a_pause_the_window_starts_anew_unless_that_is_not_wanted() {
    after_a_pause(true);
    after_a_pause(false);
}

fn after_a_pause(is_restarted_after_idle: bool) {
    let mut script = Script::established(Config {
        is_restarted_after_idle,
        ..config()
    });
    for _ in 0..4 {
        script.write(20_000);
        let _ = script.drain();
        script.wait(100);
        let next = script.connection.stats().bytes_sent + 1;
        script.gets(&format!(". 1:1 ack {next}"));
        let _ = script.drain();
    }
    let next = script.connection.stats().bytes_sent + 1;
    script.gets(&format!(". 1:1 ack {next}"));
    let grown = script.connection.info().snd_cwnd;
    assert!(grown > 20_000);
    // RFC 5681 4.1: only one longer than the retransmission timer runs.
    script.wait(100);
    script.write(20_000);
    assert_eq!(script.drain().len(), 20);
    let next = script.connection.stats().bytes_sent + 1;
    script.wait(100);
    script.gets(&format!(". 1:1 ack {next}"));
    script.wait(10_000);
    script.write(40_000);
    let sent = script.drain().len();
    assert_eq!(sent == 10, is_restarted_after_idle, "{sent}");
}
