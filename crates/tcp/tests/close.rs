//! Closing: RFC 9293 sections 3.6 and 3.10.7.4, from both sides.

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::connection::{Error, Event, State};
use script::{Script, config};

fn established() -> Script {
    Script::established(config())
}

#[test]
fn closing_first_leads_through_time_wait() {
    let mut script = established();
    script.connection.close();
    assert_eq!(script.connection.state(), State::FinWait1);
    script.sends("F. 1:2 ack 1");
    script.gets(". 1:1 ack 2");
    assert_eq!(script.connection.state(), State::FinWait2);
    script.gets("F. 1:2 ack 2");
    script.sends(". 2:2 ack 2");
    assert_eq!(script.connection.state(), State::TimeWait);
    assert!(script.connection.time_wait().is_some());
    script.wait(59_999);
    assert_eq!(script.connection.state(), State::TimeWait);
    script.wait(1);
    assert_eq!(script.connection.state(), State::Closed);
    assert_eq!(script.connection.error(), None);
    assert_eq!(script.events(), [Event::Finished, Event::Closed]);
}

#[test]
fn the_peers_fin_again_starts_the_wait_anew() {
    let mut script = established();
    script.connection.close();
    script.sends("F. 1:2 ack 1");
    script.gets("F. 1:2 ack 2");
    script.sends(". 2:2 ack 2");
    script.wait(50_000);
    script.gets("F. 1:2 ack 2");
    script.sends(". 2:2 ack 2");
    script.wait(59_000);
    assert_eq!(script.connection.state(), State::TimeWait);
    script.wait(1000);
    assert!(script.connection.is_closed());
}

#[test]
fn closing_second_needs_no_wait() {
    let mut script = established();
    script.gets("F. 1:2 ack 1");
    script.sends(". 1:1 ack 2");
    assert_eq!(script.connection.state(), State::CloseWait);
    assert!(script.connection.is_at_end());
    script.connection.close();
    assert_eq!(script.connection.state(), State::LastAck);
    script.sends("F. 1:2 ack 2");
    script.gets(". 2:2 ack 2");
    assert!(script.connection.is_closed());
    assert_eq!(script.connection.error(), None);
}

#[test]
fn both_may_close_at_once() {
    let mut script = established();
    script.connection.close();
    script.sends("F. 1:2 ack 1");
    script.gets("F. 1:2 ack 1");
    assert_eq!(script.connection.state(), State::Closing);
    script.sends(". 2:2 ack 2");
    script.gets(". 2:2 ack 2");
    assert_eq!(script.connection.state(), State::TimeWait);
}

#[test]
fn a_half_closed_connection_still_receives() {
    let mut script = established();
    script.connection.close();
    script.sends("F. 1:2 ack 1");
    script.gets(". 1:1 ack 2");
    script.gets("P. 1:501 ack 2");
    script.sends(". 2:2 ack 501");
    assert_eq!(script.read_all(), 500);
    assert_eq!(
        script.connection.write(b"x"),
        Err(Error::ApiMisuse("written to after it was closed"))
    );
}

#[test]
fn a_half_closed_peer_still_takes_data() {
    let mut script = established();
    script.gets("F. 1:2 ack 1");
    script.sends(". 1:1 ack 2");
    script.write(300);
    script.sends("P. 1:301 ack 2");
    script.gets(". 2:2 ack 301");
    script.connection.close();
    script.sends("F. 301:302 ack 2");
}

#[test]
fn a_fin_goes_with_the_last_data_and_is_repeated() {
    let mut script = established();
    script.write(1500);
    script.connection.close();
    script.sends(". 1:1001 ack 1");
    script.sends("FP. 1001:1502 ack 1");
    script.wait(100);
    script.gets(". 1:1 ack 1001");
    script.sends_nothing();
    // A tail loss probe in place of the retransmission timer, which would be due before it.
    script.sends_after(300, "FP. 1001:1502 ack 1");
    assert_eq!(script.connection.info().recovery.timeouts, 0);
    script.gets(". 1:1 ack 1502");
    assert_eq!(script.connection.state(), State::FinWait2);
}

#[test]
fn a_fin_beyond_a_hole_waits() {
    let mut script = established();
    script.gets("F. 101:201 ack 1");
    assert_eq!(script.connection.state(), State::Established);
    script.sends(". 1:1 ack 1 sack 101:200");
    script.gets(". 1:101 ack 1");
    script.sends(". 1:1 ack 201");
    assert_eq!(script.connection.state(), State::CloseWait);
    assert_eq!(script.read_all(), 199);
}

#[test]
fn a_second_fin_elsewhere_changes_nothing() {
    let mut script = established();
    script.gets("F. 1:2 ack 1");
    script.sends(". 1:1 ack 2");
    script.gets("F. 2:3 ack 1");
    assert_eq!(script.connection.state(), State::CloseWait);
    script.gets("P. 2:102 ack 1");
    assert_eq!(script.connection.readable_bytes(), 0);
}

#[test]
fn an_abort_tells_the_peer_and_nothing_else_follows() {
    let mut script = established();
    script.write(500);
    script.sends("P. 1:501 ack 1");
    script.connection.abort();
    assert!(!script.connection.is_closed(), "the goodbye is still here");
    script.sends("R. 501:501 ack 1");
    script.sends_nothing();
    assert!(script.connection.is_closed());
    assert_eq!(script.connection.error(), Some(Error::Aborted));
    assert_eq!(script.connection.write(b"x"), Err(Error::Aborted));
    assert_eq!(script.connection.poll_timeout(), None);
}

#[test]
fn what_arrived_before_a_reset_can_still_be_read() {
    let mut script = established();
    script.gets("P. 1:101 ack 1");
    script.gets("R 101:101");
    assert_eq!(script.connection.error(), Some(Error::Reset));
    assert_eq!(script.read_all(), 100);
}

#[test]
fn a_reset_ends_the_last_steps_without_an_error() {
    let mut script = established();
    script.gets("F. 1:2 ack 1");
    script.sends(". 1:1 ack 2");
    script.connection.close();
    script.sends("F. 1:2 ack 2");
    script.gets("R 2:2");
    assert!(script.connection.is_closed());
    assert_eq!(script.connection.error(), None);
}

/// A connection in the state, which nothing leaves any more.
fn in_state(state: State) -> Script {
    let mut script = match state {
        State::SynSent | State::SynReceived => Script::connecting(config()),
        _ => established(),
    };
    let peer_closes = matches!(state, State::CloseWait | State::LastAck);
    if matches!(state, State::SynSent | State::SynReceived) {
        let _ = script.drain();
    }
    if state == State::SynReceived {
        script.gets("S 0:1 mss 1000");
    }
    if peer_closes {
        script.gets("F. 1:2 ack 1");
    }
    let closes = !matches!(
        state,
        State::SynSent | State::SynReceived | State::Established | State::CloseWait
    );
    if closes {
        script.connection.close();
    }
    let _ = script.drain();
    match state {
        State::FinWait2 => script.gets(". 1:1 ack 2"),
        State::Closing => script.gets("F. 1:2 ack 1"),
        State::TimeWait => script.gets("F. 1:2 ack 2"),
        _ => {}
    }
    let _ = script.drain();
    assert_eq!(script.connection.state(), state);
    script
}

/// RFC 9293 3.10.7.4, second, and RFC 1337.
#[test]
fn what_a_reset_means_depends_on_the_state() {
    let cases = [
        (State::SynReceived, "R 1:1", Some(Error::Refused)),
        (State::Established, "R 1:1", Some(Error::Reset)),
        (State::FinWait1, "R 1:1", Some(Error::Reset)),
        (State::FinWait2, "R 1:1", Some(Error::Reset)),
        (State::CloseWait, "R 2:2", Some(Error::Reset)),
        (State::Closing, "R 2:2", None),
        (State::LastAck, "R 2:2", None),
    ];
    for (state, reset, error) in cases {
        let mut script = in_state(state);
        script.gets(reset);
        assert!(script.connection.is_closed(), "{state:?}");
        assert_eq!(script.connection.error(), error, "{state:?}");
        script.sends_nothing();
    }
    let mut waiting = in_state(State::TimeWait);
    for reset in ["R 2:2", "R 3:3"] {
        waiting.gets(reset);
        assert_eq!(waiting.connection.state(), State::TimeWait);
        waiting.sends_nothing();
    }
}

/// RFC 9293 3.10.5.
#[test]
fn an_abort_is_told_where_the_peer_has_something_to_lose() {
    let cases = [
        (State::SynSent, None),
        (State::SynReceived, Some("R. 1:1 ack 1")),
        (State::Established, Some("R. 1:1 ack 1")),
        (State::FinWait1, Some("R. 2:2 ack 1")),
        (State::FinWait2, Some("R. 2:2 ack 1")),
        (State::CloseWait, Some("R. 1:1 ack 2")),
        (State::Closing, None),
        (State::LastAck, None),
        (State::TimeWait, None),
    ];
    for (state, told) in cases {
        let mut script = in_state(state);
        script.connection.abort();
        match told {
            Some(reset) => script.sends(reset),
            None => script.sends_nothing(),
        }
        script.sends_nothing();
        assert!(script.connection.is_closed(), "{state:?}");
        assert_eq!(script.connection.error(), Some(Error::Aborted), "{state:?}");
    }
}

/// RFC 9293 3.10.4: queued until the handshake is over.
#[test]
fn closing_in_the_handshake_waits_for_its_end() {
    let mut script = in_state(State::SynReceived);
    script.connection.close();
    script.sends_nothing();
    script.gets(". 1:1 ack 1");
    assert_eq!(script.connection.state(), State::FinWait1);
    script.sends("F. 1:2 ack 1");
    let mut script = in_state(State::SynSent);
    script.write(100);
    script.connection.close();
    script.gets("S. 0:1 ack 1 mss 1000");
    script.sends("FP. 1:102 ack 1");
}

/// Nothing of the peer's is due any more; what comes all the same is answered and dropped.
#[test]
fn data_behind_the_peers_fin_is_dropped() {
    for state in [
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
    ] {
        let mut script = in_state(state);
        let ours = if state == State::CloseWait { 1 } else { 2 };
        script.gets(&format!("P. 2:102 ack {}", ours.min(1)));
        assert_eq!(script.connection.readable_bytes(), 0, "{state:?}");
        assert_eq!(script.connection.state(), state);
    }
}
