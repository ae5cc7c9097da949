//! What a client does when it has sent the first channel ahead of a server's consent, and the server is
//! not what its name says.

#![allow(clippy::unwrap_used)]

mod common;

use common::apps::{Ask, Flow};
use common::raw::{Raw, message};
use common::*;
use fullbore_base::Instant;
use fullbore_ssh::Connection;
use fullbore_ssh::auth::Attempt;
use fullbore_ssh::config::{ClientConfig, ServerConfig};
use fullbore_ssh::msg::{
    SSH_MSG_CHANNEL_DATA, SSH_MSG_CHANNEL_OPEN, SSH_MSG_CHANNEL_OPEN_CONFIRMATION,
    SSH_MSG_CHANNEL_OPEN_FAILURE, SSH_MSG_CHANNEL_REQUEST, SSH_MSG_CHANNEL_WINDOW_ADJUST,
    SSH_MSG_SERVICE_ACCEPT, SSH_MSG_UNIMPLEMENTED, SSH_MSG_USERAUTH_FAILURE,
    SSH_MSG_USERAUTH_REQUEST, SSH_MSG_USERAUTH_SUCCESS,
};
use fullbore_ssh::transport::Transport;
use fullbore_ssh::wire::Put;
use std::sync::Arc;

const NAME: &str = "OpenSSH_10.0p2";

/// Bytes that the client wants to send.
const BYTES: u64 = 5000;

/// A server with OpenSSH's name, and a client that has something to send on its first channel.
fn ends(change: impl FnOnce(&mut ClientConfig), attempts: Vec<Attempt>) -> (Raw, Node<Client>) {
    let mut raw = Raw::server();
    let mut config = ServerConfig {
        host_keys: vec![Arc::new(TestHostKey(private_key(1)))],
        ..ServerConfig::default()
    };
    config.transport.software_version = NAME.to_owned();
    raw.transport = Transport::server(Arc::new(config), provider(78), Instant::ZERO);
    let mut config = client_config();
    change(&mut config);
    let flow = (Ask::Subsystem("x".to_owned()), Flow::new(BYTES));
    let conn = Connection::client(Arc::new(config), provider(1), Instant::ZERO);
    (
        raw,
        Node::new(conn, Client::new(attempts, vec![flow]), 1 << 20),
    )
}

fn confirmation(id: u32, window: u32) -> Vec<u8> {
    message(SSH_MSG_CHANNEL_OPEN_CONFIRMATION, |m| {
        m.put_u32(0);
        m.put_u32(id);
        m.put_u32(window);
        m.put_u32(32 * 1024);
    })
}

/// The channel that a message is for, and all data bytes that came for it.
fn taken(raw: &mut Raw, number: u32) -> (usize, usize) {
    let is_for = |m: &Vec<u8>| m.get(1..5) == Some(&number.to_be_bytes()[..]);
    let mine = || raw.inbox.iter().filter(|m| is_for(m));
    let requests = mine().filter(|m| m[0] == SSH_MSG_CHANNEL_REQUEST).count();
    let data = mine().filter(|m| m[0] == SSH_MSG_CHANNEL_DATA);
    let bytes = data.map(|m| m.len() - 9).sum();
    raw.inbox.clear();
    (requests, bytes)
}

#[test]
fn a_channel_of_another_number_is_sent_everything_again() {
    let (mut raw, mut node) = ends(|_| {}, vec![Attempt::None]);
    raw.let_in(&mut node);
    raw.expect(SSH_MSG_CHANNEL_OPEN);
    assert_eq!(taken(&mut raw, 0), (1, 5000), "ahead of the confirmation");
    raw.send(&confirmation(7, 1 << 20));
    raw.exchange(&mut node);
    assert_eq!(taken(&mut raw, 7), (1, 5000));
    assert!(node.conn.error().is_none() && !node.conn.is_ahead_of_consent());
}

#[test]
fn bytes_that_went_ahead_count_against_the_window_that_follows() {
    let (mut raw, mut node) = ends(|_| {}, vec![Attempt::None]);
    raw.let_in(&mut node);
    assert_eq!(taken(&mut raw, 0), (1, 5000));
    raw.send(&confirmation(0, 0));
    raw.exchange(&mut node);
    assert_eq!(taken(&mut raw, 0), (0, 0), "nothing comes twice");
    assert_eq!(node.conn.remote_window(node.app.order[0]).unwrap().0, 0);
    raw.send(&message(SSH_MSG_CHANNEL_WINDOW_ADJUST, |m| {
        m.put_u32(0);
        m.put_u32(6000);
    }));
    raw.exchange(&mut node);
    assert_eq!(node.conn.remote_window(node.app.order[0]).unwrap().0, 1000);
}

#[test]
fn a_refused_channel_is_told_and_the_connection_stays() {
    let (mut raw, mut node) = ends(|_| {}, vec![Attempt::None]);
    raw.let_in(&mut node);
    raw.send(&message(SSH_MSG_CHANNEL_OPEN_FAILURE, |m| {
        m.put_u32(0);
        m.put_u32(4);
        m.put_string(b"too many");
        m.put_string(b"");
    }));
    raw.exchange(&mut node);
    assert!(node.conn.error().is_none() && !node.conn.is_ahead_of_consent());
}

/// As OpenSSH answers what comes in front of a login: with UNIMPLEMENTED, each message.
#[test]
fn what_went_ahead_of_a_refused_key_comes_again_behind_the_right_one() {
    let remember = |config: &mut ClientConfig| {
        config.patient_version = Some(format!("SSH-2.0-{NAME}").into_bytes());
    };
    // The last is tried first.
    let attempts = vec![key_attempt(9, true), key_attempt(8, true)];
    let (mut raw, mut node) = ends(remember, attempts);
    raw.exchange(&mut node);
    raw.expect(SSH_MSG_USERAUTH_REQUEST);
    assert_eq!(taken(&mut raw, 0), (1, 5000), "behind the first key");
    raw.send(&message(SSH_MSG_SERVICE_ACCEPT, |m| {
        m.put_string(b"ssh-userauth");
    }));
    raw.send(&message(SSH_MSG_USERAUTH_FAILURE, |m| {
        m.put_string(b"publickey");
        m.put_bool(false);
    }));
    for number in 4..8 {
        raw.send(&message(SSH_MSG_UNIMPLEMENTED, |m| m.put_u32(number)));
    }
    raw.exchange(&mut node);
    raw.expect(SSH_MSG_USERAUTH_REQUEST);
    raw.expect(SSH_MSG_CHANNEL_OPEN);
    assert_eq!(taken(&mut raw, 0), (1, 5000), "behind the second key");
    raw.send(&[SSH_MSG_USERAUTH_SUCCESS]);
    raw.transport.on_authenticated(Instant::ZERO);
    raw.send(&confirmation(0, 1 << 20));
    raw.exchange(&mut node);
    assert_eq!(taken(&mut raw, 0), (0, 0));
    assert!(node.conn.is_authenticated() && node.conn.error().is_none());
}

/// By which an application tells a server that ended the connection over haste from one that refused.
#[test]
fn it_is_known_whether_the_last_attempt_was_followed_by_something() {
    let was_ahead = |name: &[u8], attempts: Vec<Attempt>| {
        let (mut raw, mut node) = ends(|_| {}, attempts);
        node.conn.presume_patience();
        raw.exchange(&mut node);
        raw.expect(SSH_MSG_USERAUTH_REQUEST);
        raw.send(&message(SSH_MSG_SERVICE_ACCEPT, |m| {
            m.put_string(b"ssh-userauth");
        }));
        raw.send(&message(SSH_MSG_USERAUTH_FAILURE, |m| {
            m.put_string(name);
            m.put_bool(false);
        }));
        raw.exchange(&mut node);
        node.conn.was_ahead_of_success()
    };
    assert!(was_ahead(b"publickey", vec![key_attempt(8, true)]));
    let password = Attempt::Password(b"secret"[..].into());
    assert!(!was_ahead(
        b"password",
        vec![password, key_attempt(8, true)]
    ));
    assert!(!was_ahead(b"publickey", vec![key_attempt(8, false)]));
}
