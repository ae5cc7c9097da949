//! What the owner changes of a connection that is under way: before the change, and behind it.

#[path = "support/script.rs"]
mod script;

use std::time::Duration;

use fullbore_tcp::connection::{Config, Error, Keepalive, State};
use script::{Script, config};

#[test]
fn small_segments_wait_until_nagle_is_off() {
    let mut script = Script::established(Config {
        is_nagle: true,
        ..config()
    });
    script.write(10);
    script.sends("P. 1:11");
    script.write(10);
    script.sends_nothing();
    script.connection.set_nagle(false);
    script.sends("P. 11:21");
    script.connection.set_nagle(true);
    script.write(10);
    script.sends_nothing();
    script.gets(". 1:1 ack 21");
    script.sends("P. 21:31");
}

/// The time at which a silent peer is given up, in milliseconds since the write.
fn given_up_after(script: &mut Script) -> u64 {
    let start = script.ms();
    script.write(10);
    let _ = script.drain();
    while script.connection.state() != State::Closed {
        let at = script.connection.poll_timeout().expect("a timer runs");
        script.now = script.now.max(at);
        script.connection.handle_timeout(script.now);
        assert!(script.drain().iter().all(|line| line.uto.is_none()));
    }
    assert_eq!(script.connection.error(), Some(Error::TimedOut));
    script.ms() - start
}

#[test]
fn a_user_timeout_set_later_holds_and_is_not_told() {
    let mut script = Script::established(config());
    script
        .connection
        .set_user_timeout(Some(Duration::from_secs(7)));
    assert_eq!(given_up_after(&mut script), 7000);
}

#[test]
fn a_user_timeout_can_be_taken_back() {
    let mut script = Script::established(config());
    script
        .connection
        .set_user_timeout(Some(Duration::from_secs(7)));
    script.connection.set_user_timeout(None);
    assert!(given_up_after(&mut script) > 100_000);
}

#[test]
fn keepalive_set_later_asks_and_can_be_taken_back() {
    let mut script = Script::established(config());
    let keepalive = Keepalive {
        idle: Duration::from_secs(10),
        interval: Duration::from_secs(2),
        count_max: 2,
    };
    let now = script.now;
    script.connection.set_keepalive(now, Some(keepalive));
    script.sends_after(10_000, ". 0:0 ack 1");
    script.gets(". 1:1 ack 1");
    let now = script.now;
    script.connection.set_keepalive(now, None);
    script.wait(100_000);
    assert_eq!(script.connection.state(), State::Established);
}

#[test]
fn a_smaller_send_buffer_takes_no_more_and_keeps_what_it_has() {
    let mut script = Script::established(config());
    script.write(3000);
    script.connection.set_send_buffer_max(2000);
    assert_eq!(script.connection.writable_bytes(), 0);
    assert_eq!(script.connection.write(b"x"), Ok(0));
    let _ = script.drain();
    script.gets(". 1:1 ack 2001");
    assert_eq!(script.connection.write(&[0; 2000]), Ok(1000));
}
