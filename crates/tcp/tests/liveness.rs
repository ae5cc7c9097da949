//! Whether the peer lives: keepalive (RFC 9293 section 3.8.4), user timeout (RFC 5482).

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::connection::{Config, Error, Keepalive, State};
use script::{Script, config};
use std::time::Duration;

fn asking() -> Config {
    Config {
        keepalive: Some(Keepalive {
            idle: Duration::from_secs(30),
            interval: Duration::from_secs(5),
            count_max: 3,
        }),
        ..config()
    }
}

#[test]
fn an_idle_peer_is_asked_and_its_answer_is_enough() {
    let mut script = Script::established(asking());
    script.sends_after(30_000, ". 0:0 ack 1");
    script.gets(". 1:1 ack 1");
    script.sends_nothing();
    script.sends_after(30_000, ". 0:0 ack 1");
    assert_eq!(script.connection.state(), State::Established);
}

#[test]
fn a_peer_that_does_not_answer_is_given_up_after_three_questions() {
    let mut script = Script::established(asking());
    script.sends_after(30_000, ". 0:0 ack 1");
    script.sends_after(5000, ". 0:0 ack 1");
    script.sends_after(5000, ". 0:0 ack 1");
    script.wait(4999);
    assert_eq!(script.connection.error(), None);
    script.wait(1);
    assert_eq!(script.connection.error(), Some(Error::TimedOut));
}

#[test]
fn our_own_questions_are_answered() {
    let mut script = Script::established(config());
    script.gets(". 0:0 ack 1");
    script.sends(". 1:1 ack 1");
}

#[test]
fn nobody_is_asked_unless_that_is_configured() {
    let mut script = Script::established(config());
    script.wait(3_600_000);
    assert_eq!(script.connection.state(), State::Established);
}

#[test]
fn a_user_timeout_ends_a_connection_whose_data_is_not_acknowledged() {
    let mut script = Script::established(Config {
        user_timeout: Some(Duration::from_secs(10)),
        ..config()
    });
    script.wait(60_000);
    assert_eq!(script.connection.error(), None, "nothing waits");
    assert_eq!(gives_up_after(&mut script), 10);
    assert_eq!(script.connection.error(), Some(Error::TimedOut));
}

/// How long it takes until a connection whose data is not acknowledged is given up, in seconds.
fn gives_up_after(script: &mut Script) -> u64 {
    script.write(100);
    let start = script.ms();
    let _ = script.drain();
    while script.connection.error().is_none() {
        script.now = script.connection.poll_timeout().expect("a timer runs");
        script.connection.handle_timeout(script.now);
        let _ = script.drain();
    }
    (script.ms() - start) / 1000
}

#[test]
fn a_user_timeout_is_told_once() {
    let mut script = Script::connecting(Config {
        user_timeout: Some(Duration::from_secs(200)),
        ..config()
    });
    let _ = script.poll();
    script.gets("S. 0:1 ack 1 mss 1000 sackok");
    script.sends(". 1:1 ack 1 uto 200");
    script.gets(". 1:1001 ack 1");
    let line = script.poll().expect("an ACK");
    assert_eq!(line.uto, None);
}

#[test]
fn the_longer_of_both_user_timeouts_counts_within_limits() {
    // 0x8000: in minutes.
    for (told, secs) in [
        (150, 150),
        (300, 300),
        (0x8000 + 5, 300),
        (5, 120),
        (0x8000 + 900, 3600),
    ] {
        let mut script = Script::established(Config {
            user_timeout: Some(Duration::from_secs(120)),
            ..config()
        });
        script.gets(&format!(". 1:1 ack 1 uto {told}"));
        assert_eq!(gives_up_after(&mut script), secs, "{told}");
    }
}

#[test]
fn a_short_user_timeout_of_the_peer_is_lengthened() {
    let mut script = Script::established(config());
    script.gets(". 1:1 ack 1 uto 1");
    assert_eq!(gives_up_after(&mut script), 100);
}

/// Data that is outstanding asks by itself.
#[test]
fn nobody_is_asked_while_data_is_outstanding() {
    let mut script = Script::established(asking());
    script.wait(29_900);
    script.write(100);
    script.sends("P. 1:101");
    script.wait(200);
    assert_eq!(script.connection.stats().questions, 0);
    script.gets(". 1:1 ack 101");
    script.sends_after(30_000, ". 100:100 ack 1");
}

/// RFC 9293 3.8.6.1: a peer whose window is closed is alive as long as it answers.
#[test]
fn a_user_timeout_counts_for_a_closed_window_only_while_nothing_is_heard() {
    let mut script = Script::established(Config {
        user_timeout: Some(Duration::from_secs(20)),
        ..config()
    });
    script.gets(". 1:1 ack 1 win 0");
    script.write(100);
    script.sends_nothing();
    let mut asked = 0;
    let mut wait_for_question = |script: &mut Script| {
        while script.poll().is_none() {
            script.now = script.connection.poll_timeout().expect("a timer runs");
            script.connection.handle_timeout(script.now);
            if script.connection.error().is_some() {
                return;
            }
        }
        asked += 1;
    };
    // 0.3, 0.6, ... 9.6 s: the next question would come in 19.2 s.
    for _ in 0..6 {
        wait_for_question(&mut script);
        script.gets(". 1:1 ack 1 win 0");
    }
    let heard_at = script.ms();
    wait_for_question(&mut script);
    assert_eq!(script.connection.error(), None);
    wait_for_question(&mut script);
    assert_eq!(script.connection.error(), Some(Error::TimedOut));
    assert_eq!((script.ms() - heard_at, asked), (20_000, 7));
}
