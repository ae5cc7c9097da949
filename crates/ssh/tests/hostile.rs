//! Peers that break rules, or keep them and mean harm: each rule has its error, each queue its end.

#![allow(clippy::unwrap_used)]

mod common;

use common::apps::{Ask, Flow};
use common::raw::{auth_none, message, open_session, plain, request};
use common::*;
use fullbore_base::{Instant, Outlet};
use fullbore_ssh::config::PAYLOAD_BYTES_MAX;
use fullbore_ssh::connection::{
    CHANNELS_MAX, CONTROL_BYTES_MAX, EAGER_BYTES_MAX, EARLY_MESSAGES_MAX, LOCAL_WINDOW_MIN,
};
use fullbore_ssh::error::{Error, PeerMisbehaved};
use fullbore_ssh::msg::*;
use fullbore_ssh::wire::{FieldError, Put, Reader};

const WINDOW: u32 = 64 * 1024;

/// A server with a session of the raw client on it, numbers 0 and 5, that reads or does not.
fn session(reads: bool) -> (Raw, Node<Server>) {
    let mut config = server_config();
    config.connection.local_window = Some(WINDOW);
    let mut node = server_node(config, Server::new(welcome), 256 * 1024);
    let mut raw = Raw::client();
    raw.log_in(&mut node);
    raw.send(&open_session(5, 1 << 20, 32 * 1024));
    raw.send(&request(
        0,
        "exec",
        true,
        &format!("flow 0 {}", u8::from(reads)),
    ));
    raw.exchange(&mut node);
    raw.expect(SSH_MSG_CHANNEL_OPEN_CONFIRMATION);
    raw.expect(SSH_MSG_CHANNEL_SUCCESS);
    (raw, node)
}

fn data(id: u32, len: usize) -> Vec<u8> {
    message(SSH_MSG_CHANNEL_DATA, |m| {
        m.put_u32(id);
        m.put_string(&vec![0; len]);
    })
}

fn adjust(id: u32, credit: u32) -> Vec<u8> {
    message(SSH_MSG_CHANNEL_WINDOW_ADJUST, |m| {
        m.put_u32(id);
        m.put_u32(credit);
    })
}

/// The error that a session's server ends with after `messages`.
fn error_after(messages: &[Vec<u8>]) -> Option<Error> {
    let (mut raw, mut node) = session(false);
    for message in messages {
        raw.send(message);
    }
    raw.exchange(&mut node);
    let error = node.conn.error().cloned();
    if error.is_some() {
        assert!(
            raw.transport.error().is_some(),
            "the peer is told why it is sent away"
        );
    }
    error
}

fn misbehaved(rule: PeerMisbehaved) -> Option<Error> {
    Some(Error::PeerMisbehaved(rule))
}

#[test]
fn a_window_is_taken_to_its_last_byte_and_an_overrun_ends_the_connection() {
    let full = vec![data(0, 32 * 1024); 2];
    assert_eq!(error_after(&full), None);
    let over = [full, vec![data(0, 1)]].concat();
    assert_eq!(
        error_after(&over),
        misbehaved(PeerMisbehaved::WindowOverrun)
    );
}

#[test]
fn a_message_of_the_maximum_packet_is_taken_and_a_longer_one_is_not() {
    assert_eq!(error_after(&[data(0, 32 * 1024)]), None);
    assert_eq!(
        error_after(&[data(0, 32 * 1024 + 1)]),
        misbehaved(PeerMisbehaved::MaxPacketOverrun)
    );
}

#[test]
fn a_maximum_packet_of_one_is_taken_and_of_zero_is_not() {
    assert_eq!(error_after(&[open_session(6, 1, 1)]), None);
    assert_eq!(
        error_after(&[open_session(6, 1, 0)]),
        misbehaved(PeerMisbehaved::MaxPacketZero)
    );
}

#[test]
fn a_window_that_passes_its_maximum_ends_the_connection() {
    let room = u32::MAX - (1 << 20);
    assert_eq!(error_after(&[adjust(0, room)]), None);
    assert_eq!(
        error_after(&[adjust(0, room), adjust(0, 1)]),
        misbehaved(PeerMisbehaved::WindowOverflow)
    );
}

#[test]
fn messages_that_a_channel_does_not_allow_end_the_connection() {
    let eof = plain(SSH_MSG_CHANNEL_EOF, 0);
    let close = plain(SSH_MSG_CHANNEL_CLOSE, 0);
    let state = misbehaved(PeerMisbehaved::ChannelState);
    assert_eq!(error_after(&[eof.clone(), data(0, 1)]), state);
    assert_eq!(error_after(&[eof.clone(), eof.clone()]), state);
    let unknown = misbehaved(PeerMisbehaved::UnknownChannel);
    assert_eq!(error_after(&[data(1, 1)]), unknown);
    assert_eq!(error_after(&[plain(SSH_MSG_CHANNEL_CLOSE, 9)]), unknown);
    // The second CLOSE meets the channel still there or gone already; both are errors.
    assert!(error_after(&[close.clone(), close.clone()]).is_some());
    assert!(error_after(&[close, eof]).is_some());
}

#[test]
fn replies_to_nothing_end_the_connection() {
    let unexpected = misbehaved(PeerMisbehaved::UnexpectedReply);
    assert_eq!(
        error_after(&[plain(SSH_MSG_CHANNEL_SUCCESS, 0)]),
        unexpected
    );
    assert_eq!(error_after(&[vec![SSH_MSG_REQUEST_SUCCESS]]), unexpected);
    assert_eq!(
        error_after(&[message(SSH2_MSG_PONG, |m| m.put_string(&[0; 8]))]),
        unexpected
    );
    let confirmation = message(SSH_MSG_CHANNEL_OPEN_CONFIRMATION, |m| {
        for n in [0, 1, 2, 3] {
            m.put_u32(n);
        }
    });
    assert_eq!(
        error_after(&[confirmation]),
        misbehaved(PeerMisbehaved::UnknownChannel)
    );
}

#[test]
fn messages_that_do_not_parse_end_the_connection() {
    let mut long = plain(SSH_MSG_CHANNEL_EOF, 0);
    long.push(0);
    assert_eq!(
        error_after(&[long]),
        Some(Error::from(FieldError::TrailingBytes))
    );
    let liar = message(SSH_MSG_CHANNEL_DATA, |m| {
        m.put_u32(0);
        m.put_u32(u32::MAX);
        m.put_u8(0);
    });
    assert_eq!(
        error_after(&[liar]),
        Some(Error::from(FieldError::Truncated))
    );
}

#[test]
fn forwarding_and_unknown_channels_are_refused_with_a_reason() {
    let (mut raw, mut node) = session(true);
    for (kind, reason) in [("direct-tcpip", 1), ("x11", 3), ("tun@openssh.com", 3)] {
        raw.send(&message(SSH_MSG_CHANNEL_OPEN, |m| {
            m.put_string(kind.as_bytes());
            m.put_u32(9);
            m.put_u32(1000);
            m.put_u32(1000);
            m.put_string(b"whatever");
        }));
        raw.exchange(&mut node);
        let failure = raw.expect(SSH_MSG_CHANNEL_OPEN_FAILURE);
        let mut reader = Reader::new(&failure[1..]);
        assert_eq!(reader.u32(), Ok(9), "{kind}");
        assert_eq!(reader.u32(), Ok(reason), "{kind}");
        assert!(!reader.string().unwrap().is_empty());
    }
    assert_eq!(node.conn.error(), None);
    assert_eq!(node.conn.channel_count(), 1);
}

#[test]
fn global_requests_that_are_not_served_fail_in_order() {
    let (mut raw, mut node) = session(true);
    for name in ["tcpip-forward", "keepalive@openssh.com", "nonsense"] {
        raw.send(&message(SSH_MSG_GLOBAL_REQUEST, |m| {
            m.put_string(name.as_bytes());
            m.put_bool(true);
            m.put_string(b"");
        }));
    }
    raw.send(&message(SSH_MSG_GLOBAL_REQUEST, |m| {
        m.put_string(b"nonsense");
        m.put_bool(false);
    }));
    raw.exchange(&mut node);
    assert_eq!(raw.count(SSH_MSG_REQUEST_FAILURE), 3);
    assert_eq!(node.conn.error(), None);
}

#[test]
fn no_more_sessions_is_kept() {
    let (mut raw, mut node) = session(true);
    raw.send(&message(SSH_MSG_GLOBAL_REQUEST, |m| {
        m.put_string(b"no-more-sessions@openssh.com");
        m.put_bool(false);
    }));
    raw.send(&open_session(6, 1000, 1000));
    raw.exchange(&mut node);
    raw.expect(SSH_MSG_CHANNEL_OPEN_FAILURE);
    assert_eq!(node.conn.channel_count(), 1);
}

#[test]
fn host_keys_are_announced_and_proved_a_bounded_number_of_times() {
    let (mut raw, mut node) = session(true);
    let blob = private_key(1).public_key().to_blob();
    let prove = message(SSH_MSG_GLOBAL_REQUEST, |m| {
        m.put_string(b"hostkeys-prove-00@openssh.com");
        m.put_bool(true);
        m.put_string(&blob);
    });
    for _ in 0..20 {
        raw.send(&prove);
    }
    raw.exchange(&mut node);
    assert_eq!(raw.count(SSH_MSG_REQUEST_SUCCESS), 4);
    assert_eq!(raw.count(SSH_MSG_REQUEST_FAILURE), 16);
}

/// Sends `message` again and again to a server whose replies are never read; its memory stays
/// bounded, and it stops taking input.
fn flood(flood: &[u8]) {
    let (mut raw, mut node) = session(true);
    raw.is_deaf = true;
    let mut sent = 0_usize;
    loop {
        for _ in 0..(1 << 20) / (flood.len() + 32) {
            raw.send(flood);
        }
        let before = raw.tx.pending().len();
        raw.exchange(&mut node);
        assert_eq!(node.conn.error(), None);
        let peak = node.conn.stats().control_bytes_peak;
        assert!(
            peak <= CONTROL_BYTES_MAX + PAYLOAD_BYTES_MAX,
            "{peak} bytes of replies wait"
        );
        sent += before - raw.tx.pending().len();
        if raw.tx.pending().len() > 1 << 20 {
            break;
        }
        assert!(sent < 64 << 20, "it takes a flood without end");
    }
    // It resumes when its replies are read.
    raw.is_deaf = false;
    raw.exchange(&mut node);
    assert_eq!(node.conn.error(), None);
    assert!(raw.tx.is_empty());
    assert_eq!(node.conn.control_len(), 0);
}

#[test]
fn floods_whose_replies_are_never_read_are_bounded() {
    flood(&message(SSH_MSG_GLOBAL_REQUEST, |m| {
        m.put_string(b"x");
        m.put_bool(true);
    }));
    flood(&message(SSH2_MSG_PING, |m| m.put_string(b"")));
    flood(&message(SSH2_MSG_PING, |m| m.put_string(&[7; 200_000])));
    flood(&request(0, "nonsense", true, ""));
    flood(&message(SSH_MSG_CHANNEL_REQUEST, |m| {
        m.put_u32(0);
        m.put_string(b"env");
        m.put_bool(true);
        m.put_string(b"LANG");
        m.put_string(b"C");
    }));
    flood(&message(SSH_MSG_CHANNEL_OPEN, |m| {
        m.put_string(b"x11");
        m.put_u32(1);
        m.put_u32(1);
        m.put_u32(1);
    }));
}

#[test]
fn channels_beyond_the_limit_are_refused_and_the_rest_live() {
    let (mut raw, mut node) = session(true);
    for id in 0..1000 {
        raw.send(&open_session(100 + id, 1000, 1000));
    }
    raw.exchange(&mut node);
    assert_eq!(node.conn.error(), None);
    assert_eq!(node.conn.channel_count(), CHANNELS_MAX);
    assert_eq!(
        raw.count(SSH_MSG_CHANNEL_OPEN_CONFIRMATION),
        CHANNELS_MAX - 1
    );
    assert_eq!(
        raw.count(SSH_MSG_CHANNEL_OPEN_FAILURE),
        1000 - (CHANNELS_MAX - 1)
    );
}

#[test]
fn the_windows_of_all_channels_together_are_bounded() {
    const MIB: u32 = 1 << 20;
    let mut config = server_config();
    config.connection.local_window = Some(8 * MIB);
    config.connection.windows_max = u64::from(16 * MIB);
    let mut node = server_node(config, Server::new(welcome), 256 * 1024);
    let mut raw = Raw::client();
    raw.log_in(&mut node);
    for id in 0..u32::try_from(CHANNELS_MAX).unwrap() {
        raw.send(&open_session(100 + id, 1000, 1000));
    }
    raw.exchange(&mut node);
    let windows: Vec<u32> = raw
        .inbox
        .iter()
        .filter(|m| m[0] == SSH_MSG_CHANNEL_OPEN_CONFIRMATION)
        .map(|m| u32::from_be_bytes(m[9..13].try_into().unwrap()))
        .collect();
    assert_eq!(windows[..4], [8 * MIB, 4 * MIB, 2 * MIB, MIB]);
    assert!(windows.iter().all(|window| *window >= LOCAL_WINDOW_MIN));
    assert!(windows.iter().sum::<u32>() <= 16 * MIB);
    assert_eq!(
        windows.len() + raw.count(SSH_MSG_CHANNEL_OPEN_FAILURE),
        CHANNELS_MAX
    );
    // A channel that ends leaves its share to the next.
    for id in 1..u32::try_from(windows.len()).unwrap() {
        raw.send(&plain(SSH_MSG_CHANNEL_CLOSE, id));
    }
    raw.exchange(&mut node);
    raw.inbox.clear();
    raw.send(&open_session(7, 1000, 1000));
    raw.exchange(&mut node);
    let confirmed = raw.expect(SSH_MSG_CHANNEL_OPEN_CONFIRMATION);
    assert_eq!(confirmed[9..13], (4 * MIB).to_be_bytes());
}

#[test]
fn channels_for_which_there_is_no_memory_are_refused_and_idle_ones_hold_little() {
    const SHARE: u64 = 16 << 20;
    let mut config = server_config();
    config.connection.windows_max = SHARE;
    let mut node = server_node(config, Server::new(welcome), 256 * 1024);
    let mut raw = Raw::client();
    raw.log_in(&mut node);
    for id in 0..u32::try_from(CHANNELS_MAX).unwrap() {
        raw.send(&open_session(100 + id, 1000, 1000));
    }
    raw.exchange(&mut node);
    let accepted = (SHARE / u64::from(LOCAL_WINDOW_MIN)) as usize;
    assert_eq!(raw.count(SSH_MSG_CHANNEL_OPEN_CONFIRMATION), accepted);
    assert_eq!(node.conn.channel_count(), accepted);
    for ch in node.conn.channels() {
        let windows = node.conn.channel_windows(Instant::ZERO, ch).unwrap();
        assert_eq!(windows.local_outstanding, EAGER_BYTES_MAX);
    }
    assert!(node.conn.windows_use().held <= SHARE);
}

#[test]
fn a_broken_stream_ends_a_connection_whose_replies_wait() {
    let (mut raw, mut node) = session(true);
    // Replies that nobody takes close the gate.
    for _ in 0..60_000 {
        raw.send(&request(0, "signal", true, "HUP"));
    }
    raw.is_deaf = true;
    raw.exchange(&mut node);
    let now = Instant::ZERO;
    assert!(node.conn.control_len() >= CONTROL_BYTES_MAX, "it is gated");
    node.conn.handle_reset(now).unwrap();
    assert_eq!(node.conn.poll_event(now), Some(fullbore_ssh::Event::Closed));
}

#[test]
fn what_a_channel_says_after_the_peers_close_goes_nowhere_and_holds_nothing_up() {
    let (mut raw, mut node) = session(false);
    let ch = *node.app.flows.keys().next().unwrap();
    node.app.flows.clear();
    raw.send(&data(0, 1000));
    raw.send(&plain(SSH_MSG_CHANNEL_CLOSE, 0));
    raw.exchange(&mut node);
    let mut tx = fullbore_base::TxBuf::new(64 * 1024);
    for _ in 0..100 {
        let mut outlet = node.conn.outlet(Instant::ZERO, ch, &mut tx);
        assert!(
            outlet.room() >= 256 * 1024,
            "requests before the end are answered"
        );
        assert!(outlet.emit(256 * 1024, &mut |_| 256 * 1024));
    }
    assert!(tx.is_empty());
    assert_eq!(node.conn.staged_len(ch), 0);
    node.conn.consume(Instant::ZERO, ch, 1000);
    raw.exchange(&mut node);
    assert_eq!(node.conn.channel_count(), 0);
}

#[test]
fn requests_that_the_application_does_not_answer_close_the_gate() {
    let mut app = Server::new(welcome);
    app.is_lazy = true;
    let mut node = server_node(server_config(), app, 256 * 1024);
    let mut raw = Raw::client();
    raw.log_in(&mut node);
    raw.send(&open_session(5, 1000, 1000));
    for _ in 0..40_000 {
        raw.send(&request(0, "signal", true, "HUP"));
    }
    raw.exchange(&mut node);
    assert_eq!(node.conn.error(), None);
    assert!(!raw.tx.is_empty(), "it took every request");
    // Once it answers, all are.
    node.app.is_lazy = false;
    let ch = node
        .events
        .iter()
        .find_map(|event| match event {
            fullbore_ssh::Event::Request(ch) => Some(*ch),
            _ => None,
        })
        .unwrap();
    node.conn.answer_request(ch, false).unwrap();
    raw.exchange(&mut node);
    assert_eq!(raw.count(SSH_MSG_CHANNEL_FAILURE), 40_000);
}

#[test]
fn messages_ahead_of_authentication_are_dropped_up_to_a_limit() {
    let mut node = server_node(server_config(), Server::new(welcome), 256 * 1024);
    let mut raw = Raw::client();
    raw.exchange(&mut node);
    for _ in 0..EARLY_MESSAGES_MAX {
        raw.send(&open_session(5, 1000, 1000));
    }
    raw.exchange(&mut node);
    assert_eq!(node.conn.error(), None);
    assert_eq!(node.conn.channel_count(), 0);
    raw.send(&open_session(5, 1000, 1000));
    raw.exchange(&mut node);
    assert_eq!(
        node.conn.error().cloned(),
        misbehaved(PeerMisbehaved::UnexpectedMessage {
            message: SSH_MSG_CHANNEL_OPEN
        })
    );
}

#[test]
fn a_client_in_its_role_takes_no_channels_and_no_forwards() {
    let app = Client::new(
        vec![fullbore_ssh::auth::Attempt::None],
        vec![(Ask::Subsystem("echo".to_owned()), Flow::new(0))],
    );
    let mut node = client_node(client_config(), app, 256 * 1024);
    let mut raw = Raw::server();
    raw.let_in(&mut node);
    raw.expect(SSH_MSG_CHANNEL_OPEN);
    for kind in ["forwarded-tcpip", "session", "auth-agent@openssh.com"] {
        raw.send(&message(SSH_MSG_CHANNEL_OPEN, |m| {
            m.put_string(kind.as_bytes());
            m.put_u32(3);
            m.put_u32(1000);
            m.put_u32(1000);
        }));
    }
    raw.exchange(&mut node);
    assert_eq!(raw.count(SSH_MSG_CHANNEL_OPEN_FAILURE), 3);
    assert_eq!(node.conn.error(), None);
}

#[test]
fn a_client_takes_a_maximum_packet_of_one_and_not_of_zero() {
    for (max, expected) in [(1, None), (0, misbehaved(PeerMisbehaved::MaxPacketZero))] {
        let app = Client::new(
            vec![fullbore_ssh::auth::Attempt::None],
            vec![(Ask::Subsystem("echo".to_owned()), Flow::new(100))],
        );
        let mut node = client_node(client_config(), app, 256 * 1024);
        let mut raw = Raw::server();
        raw.let_in(&mut node);
        raw.expect(SSH_MSG_CHANNEL_OPEN);
        raw.send(&message(SSH_MSG_CHANNEL_OPEN_CONFIRMATION, |m| {
            m.put_u32(0);
            m.put_u32(3);
            m.put_u32(1000);
            m.put_u32(max);
        }));
        raw.exchange(&mut node);
        assert_eq!(node.conn.error().cloned(), expected, "{max}");
    }
}

/// What the raw side and the server's application do to end a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    RawEof,
    RawClose,
    AppEof,
    AppExit,
    AppClose,
}

#[test]
fn channels_end_in_every_order_with_one_close_each_way() {
    use End::*;
    let orders: &[&[End]] = &[
        &[RawClose],
        &[RawEof, RawClose],
        &[AppClose, RawClose],
        &[AppEof, AppClose, RawEof, RawClose],
        &[AppEof, RawEof, AppExit, AppClose, RawClose],
        &[RawEof, AppEof, AppExit, RawClose],
        &[RawEof, AppExit, AppClose, RawClose],
        &[RawClose, AppClose],
        &[AppExit, RawClose, AppEof],
        &[AppEof, AppEof, RawClose],
        &[AppClose, AppClose, RawEof, RawClose],
    ];
    for order in orders {
        for batched in [false, true] {
            let (mut raw, mut node) = session(true);
            let ch = *node.app.flows.keys().next().unwrap();
            // The application's part is played by the test.
            node.app.flows.clear();
            for end in *order {
                // After the channel's end the calls are refused, and harm nothing.
                match end {
                    RawEof => raw.send(&plain(SSH_MSG_CHANNEL_EOF, 0)),
                    RawClose => raw.send(&plain(SSH_MSG_CHANNEL_CLOSE, 0)),
                    AppEof => drop(node.conn.send_eof(ch)),
                    AppExit => drop(node.conn.exit_status(ch, 3)),
                    AppClose => drop(node.conn.close_channel(ch)),
                }
                if !batched {
                    raw.exchange(&mut node);
                }
            }
            raw.exchange(&mut node);
            assert_eq!(node.conn.error(), None, "{order:?}");
            assert_eq!(node.conn.channel_count(), 0, "{order:?}");
            assert_eq!(raw.count(SSH_MSG_CHANNEL_CLOSE), 1, "{order:?}");
            let last = raw.inbox.iter().rposition(|m| m[0] >= 90).unwrap();
            assert_eq!(raw.inbox[last][0], SSH_MSG_CHANNEL_CLOSE, "{order:?}");
            assert!(raw.count(SSH_MSG_CHANNEL_EOF) <= 1, "{order:?}");
            assert_eq!(node.app.closed, 1, "{order:?}");
        }
    }
}

#[test]
fn unread_bytes_survive_the_peers_close() {
    let (mut raw, mut node) = session(false);
    let ch = *node.app.flows.keys().next().unwrap();
    node.app.flows.clear();
    raw.send(&data(0, 1000));
    raw.send(&plain(SSH_MSG_CHANNEL_CLOSE, 0));
    raw.exchange(&mut node);
    assert_eq!(node.app.closed, 0, "there is something to read");
    assert_eq!(node.conn.readable(ch).len(), 1000);
    node.conn.consume(Instant::ZERO, ch, 400);
    raw.exchange(&mut node);
    assert_eq!(node.app.closed, 0);
    node.conn.consume(Instant::ZERO, ch, 600);
    raw.exchange(&mut node);
    assert_eq!(node.app.closed, 1);
    assert_eq!(node.conn.channel_count(), 0);
}

#[test]
fn requests_after_authentication_are_ignored() {
    let (mut raw, mut node) = session(true);
    raw.send(&auth_none());
    raw.exchange(&mut node);
    assert_eq!(node.conn.error(), None);
}
