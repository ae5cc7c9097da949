//! Opening: RFC 9293 sections 3.5 and 3.10.7.3, options of RFC 7323, 2018 and 3168.

#[path = "support/script.rs"]
mod script;

use fullbore_tcp::connection::config::{MSS_DEFAULT, MSS_MIN};
use fullbore_tcp::connection::{Config, Error, Event, State};
use script::{Script, config};

fn after_syn(config: Config) -> Script {
    let mut script = Script::connecting(config);
    let _ = script.poll().expect("a SYN");
    script
}

#[test]
fn a_syn_offers_what_is_configured() {
    let all = Config {
        is_timestamps: true,
        is_ecn: true,
        receive_buffer_max: 15 << 20,
        timestamp_offset: 77,
        ..config()
    };
    let mut script = Script::connecting(all);
    script.sends("SEW 0:1 win 20000 mss 1000 ws 8 sackok ts 77 0");
    let none = Config {
        is_sack: false,
        is_window_scaling: false,
        ..config()
    };
    let line = Script::connecting(none).poll().expect("a SYN");
    assert_eq!(
        (line.ws, line.ts, line.is_sack_permitted),
        (None, None, false)
    );
}

#[test]
fn an_answer_connects_and_is_acknowledged() {
    let mut script = after_syn(config());
    script.gets("S. 0:1 ack 1 win 3000 mss 700");
    script.sends(". 1:1 ack 1");
    assert_eq!(script.connection.state(), State::Established);
    assert_eq!(script.events(), [Event::Connected, Event::Writable]);
    let agreed = *script.connection.agreed();
    assert_eq!(agreed.mss, 700);
    assert!(!agreed.is_sack && !agreed.is_scaled);
}

#[test]
fn an_mss_that_is_missing_is_536_and_one_that_is_tiny_is_raised() {
    for (answer, mss) in [("", MSS_DEFAULT), (" mss 48", MSS_MIN), (" mss 217", 217)] {
        let mut script = after_syn(config());
        script.gets(&format!("S. 0:1 ack 1{answer}"));
        assert_eq!(script.connection.agreed().mss, mss);
    }
}

#[test]
fn windows_are_scaled_only_if_both_say_so_and_by_14_bits_at_most() {
    for (ours, answer, scale) in [(true, " ws 15", 14), (true, "", 0), (false, " ws 3", 0)] {
        let mut script = after_syn(Config {
            is_window_scaling: ours,
            ..config()
        });
        script.gets(&format!("S. 0:1 ack 1 win 100{answer}"));
        assert_eq!(script.connection.info().snd_wnd, 100, "a SYN's is not");
        script.gets(". 1:1 ack 1 win 100");
        assert_eq!(script.connection.info().snd_wnd, 100 << scale);
    }
}

#[test]
fn a_silent_peer_is_asked_seven_times() {
    let mut script = after_syn(config());
    for secs in [1, 2, 4, 8, 16, 32] {
        script.sends_after(secs * 1000, "S 0:1");
    }
    script.wait(60_000);
    assert_eq!(script.connection.error(), Some(Error::TimedOut));
    assert_eq!(script.ms(), 123_000);
    assert!(script.connection.is_closed());
}

#[test]
fn a_refusal_counts_only_if_it_acknowledges_our_syn() {
    let mut script = after_syn(config());
    script.gets("R 0:0");
    script.gets("R. 0:0 ack 2");
    script.sends_nothing();
    assert_eq!(script.connection.state(), State::SynSent);
    script.gets("R. 0:0 ack 1");
    assert_eq!(script.connection.error(), Some(Error::Refused));
    assert_eq!(script.events(), [Event::Closed]);
}

#[test]
fn an_answer_to_something_else_is_reset() {
    let mut script = after_syn(config());
    script.gets("S. 0:1 ack 2");
    let line = script.poll().expect("a RST");
    assert_eq!(line.start, 2);
    assert_eq!(line.ack, None);
    assert_eq!(script.connection.state(), State::SynSent);
}

#[test]
fn both_may_open_at_once() {
    let mut script = after_syn(config());
    script.gets("S 0:1 mss 1000 sackok");
    assert_eq!(script.connection.state(), State::SynReceived);
    script.sends("S. 0:1 ack 1 mss 1000 sackok");
    script.gets("S. 0:1 ack 1 mss 1000 sackok");
    assert_eq!(script.connection.state(), State::Established);
    script.sends(". 1:1 ack 1");
    script.sends_nothing();
}

#[test]
fn a_syn_that_acknowledges_nothing_of_ours_does_not_end_an_opening_by_both() {
    for again in ["S 0:1 mss 1000", "S. 0:1 ack 2 mss 1000"] {
        let mut script = after_syn(config());
        script.gets("S 0:1 mss 1000");
        script.sends("S. 0:1 ack 1");
        script.gets(again);
        assert_eq!(script.connection.state(), State::SynReceived);
        script.sends("S. 0:1 ack 1");
    }
}

#[test]
fn an_opening_by_both_ends_with_a_plain_acknowledgement_too() {
    let mut script = after_syn(config());
    script.gets("S 0:1 mss 1000");
    script.sends("S. 0:1 ack 1");
    script.gets(". 1:1 ack 1");
    assert_eq!(script.connection.state(), State::Established);
}

#[test]
fn an_opening_by_both_is_repeated_and_may_be_refused() {
    let mut script = after_syn(config());
    script.gets("S 0:1 mss 1000");
    script.sends("S. 0:1 ack 1");
    script.sends_after(1000, "S. 0:1 ack 1");
    script.gets("R 1:1");
    assert_eq!(script.connection.error(), Some(Error::Refused));
}

#[test]
fn the_first_wait_for_data_is_three_seconds_after_a_lost_syn() {
    let mut script = after_syn(config());
    script.sends_after(1000, "S 0:1");
    script.gets("S. 0:1 ack 1 mss 1000");
    script.sends(". 1:1 ack 1");
    script.write(500);
    script.sends("P. 1:501 ack 1");
    script.sends_after(3000, "P. 1:501 ack 1");
}

#[test]
fn a_handshake_measures_the_round_trip() {
    let script = Script::established(config());
    assert_eq!(script.connection.info().rtt.as_millis(), 100);
}

#[test]
fn closing_before_the_answer_leaves_nothing_behind() {
    let mut script = after_syn(config());
    script.connection.close();
    assert!(script.connection.is_closed());
    assert_eq!(script.connection.error(), None);
    let mut script = after_syn(config());
    script.write(10);
    script.connection.close();
    script.gets("S. 0:1 ack 1 mss 1000");
    script.sends("FP. 1:12 ack 1");
}

#[test]
fn data_with_the_answer_is_taken() {
    let mut script = after_syn(config());
    script.gets("S. 0:1 ack 1 mss 1000");
    script.gets("P. 1:101 ack 1");
    script.sends(". 1:1 ack 101");
    assert_eq!(script.read_all(), 100);
}
