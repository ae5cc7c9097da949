//! Logging in between two of our own ends, and what round trips it costs.

#![allow(clippy::unwrap_used)]

mod common;

use common::apps::{Ask, Flow, Judge};
use common::*;
use fullbore_base::Instant;
use fullbore_sim::PairConfig;
use fullbore_ssh::Event;
use fullbore_ssh::auth::{Attempt, AuthAnswer, AuthRequest, Credential, Method, MethodSet, Secret};
use fullbore_ssh::config::{ClientConfig, ServerConfig};
use std::time::Duration;

fn echo(bytes: u64) -> Vec<(Ask, Flow)> {
    vec![(Ask::Subsystem("flow 5000 1".to_owned()), Flow::new(bytes))]
}

/// Only key 9, the password "secret", or the answer "secret".
fn strict(request: AuthRequest<'_>) -> AuthAnswer {
    let is_known = |key: &fullbore_ssh::key::PublicKey| *key == *private_key(9).public_key();
    let is_right = match request.credential {
        Credential::KeyQuery { key, .. } | Credential::Key { key, .. } => is_known(key),
        Credential::Password(password) => password.is_equal(b"secret"),
        Credential::Interactive { answers, .. } => {
            answers.iter().any(|answer| answer.is_equal(b"secret"))
        }
        Credential::None | Credential::PasswordChange { .. } => false,
    };
    if is_right {
        AuthAnswer::Accept
    } else {
        AuthAnswer::Reject
    }
}

fn logs_in(seed: u64, attempts: Vec<Attempt>, judge: Judge, eager: bool) -> TestPair {
    let mut config = client_config();
    config.connection.eager = eager;
    let mut client = Client::new(attempts, echo(100_000));
    client.answers = vec![Secret::from(&b"secret"[..]); 4];
    let mut pair = pair(
        network(seed),
        (config, client),
        (server_config(), Server::new(judge)),
        64 << 10,
    );
    run(&mut pair, all_closed);
    let flow = pair.a.app.flow(0);
    assert_eq!((flow.received, flow.exit_status), (5000, Some(7)));
    assert_eq!(flow.done, [true]);
    assert!(pair.a.app.attempts.is_empty(), "every attempt was needed");
    pair
}

fn password(text: &str) -> Attempt {
    Attempt::Password(Secret::from(text.as_bytes()))
}

#[test]
fn every_method_leads_to_a_channel_ahead_of_success_and_behind_it() {
    let seed = seed(10);
    for eager in [false, true] {
        logs_in(seed, vec![Attempt::None], welcome, eager);
        logs_in(seed, vec![key_attempt(9, true)], strict, eager);
        logs_in(seed, vec![key_attempt(9, false)], strict, eager);
        logs_in(seed, vec![password("secret")], strict, eager);
        logs_in(seed, vec![Attempt::KeyboardInteractive], strict, eager);
    }
}

#[test]
fn nothing_secret_is_left_where_it_arrived() {
    const ANSWER: &[u8] = b"correct horse battery staple";
    for attempt in [
        Attempt::Password(Secret::from(ANSWER)),
        Attempt::KeyboardInteractive,
    ] {
        let mut client = Client::new(vec![attempt], Vec::new());
        client.answers = vec![Secret::from(ANSWER)];
        let mut both = pair(
            network(16),
            (client_config(), client),
            (server_config(), Server::new(|_| AuthAnswer::Reject)),
            64 << 10,
        );
        run(&mut both, |both| {
            both.b.events.contains(&Event::AuthRequest)
        });
        let input = both.b.conn.input_space();
        assert!(!input.windows(ANSWER.len()).any(|part| part == ANSWER));
    }
}

#[test]
fn what_was_sent_ahead_of_a_refused_attempt_comes_again() {
    for seed in [seed(11), 12, 13, 14] {
        // The last is tried first.
        let attempts = vec![
            password("secret"),
            key_attempt(8, true),
            key_attempt(7, false),
            password("wrong"),
            Attempt::None,
        ];
        let pair = logs_in(seed, attempts, strict, true);
        assert_eq!(pair.b.app.requests, ["subsystem flow 5000 1"]);
    }
}

#[test]
fn a_second_factor_is_asked_for() {
    fn both(request: AuthRequest<'_>) -> AuthAnswer {
        match request.credential {
            Credential::Key { .. } => AuthAnswer::Partial(MethodSet::of(&[Method::Password])),
            _ => strict(request),
        }
    }
    for eager in [false, true] {
        let attempts = vec![password("secret"), key_attempt(9, true)];
        let pair = logs_in(15, attempts, both, eager);
        assert!(pair.a.conn.auth_methods().unwrap().partial_success);
    }
}

#[test]
fn a_client_without_further_attempts_is_told_so() {
    let client = Client::new(vec![password("wrong")], Vec::new());
    let mut pair = pair(
        network(16),
        (client_config(), client),
        (server_config(), Server::new(strict)),
        64 << 10,
    );
    run(&mut pair, |pair| pair.a.app.is_out_of_attempts);
    assert!(!pair.a.app.is_authenticated);
}

#[test]
fn a_login_that_takes_too_long_is_ended_by_either_side() {
    let client = Client::new(Vec::new(), Vec::new());
    let mut server = server_config();
    server.connection.login_timeout = Some(Duration::from_secs(5));
    let mut pair = pair(
        network(17),
        (client_config(), client),
        (server, Server::new(strict)),
        64 << 10,
    );
    run(&mut pair, |pair| {
        pair.a.app.error.is_some() && pair.b.app.error.is_some()
    });
    assert_eq!(pair.now().as_nanos() / 1_000_000_000, 5);
}

/// One-way trips from the end of TCP's handshake to the first byte of the subsystem's output.
fn legs(config: ClientConfig, attempt: Attempt) -> u64 {
    legs_to(config, server_config(), attempt)
}

fn legs_to(config: ClientConfig, server: ServerConfig, attempt: Attempt) -> u64 {
    let client = Client::new(vec![attempt], echo(100));
    let mut pair = pair(
        PairConfig {
            seed: 1,
            delay: Duration::from_millis(100),
            cuts: false,
            ..PairConfig::default()
        },
        (config, client),
        (server, Server::new(strict)),
        64 << 10,
    );
    run(&mut pair, |pair| {
        pair.a
            .app
            .order
            .first()
            .is_some_and(|ch| pair.a.app.flows[ch].first_byte.is_some())
    });
    assert_eq!(
        pair.a.app.flow(0).first_byte,
        Some(Instant::ZERO + Duration::from_millis(100) * u32::try_from(pair.legs()).unwrap())
    );
    pair.legs()
}

#[test]
fn the_first_byte_takes_no_more_round_trips_than_it_must() {
    // KEXINIT, exchange, authentication, channel, subsystem: one-way trips.
    assert_eq!(legs(guessing(false, false), key_attempt(9, true)), 9);
    assert_eq!(legs(guessing(false, true), key_attempt(9, true)), 8);
    assert_eq!(legs(guessing(false, false), key_attempt(9, false)), 11);
    // Channel and subsystem ride on the authentication.
    assert_eq!(legs(guessing(true, false), key_attempt(9, true)), 5);
    assert_eq!(legs(guessing(true, true), key_attempt(9, true)), 4);
    assert_eq!(legs(guessing(true, false), password("secret")), 5);
}

fn guessing(eager: bool, guess: bool) -> ClientConfig {
    let mut config = client_config();
    config.connection.eager = eager;
    config.transport.guess_kex = guess;
    // The guess is right when both sides' first host key algorithms agree too: a client puts the
    // one first that it knows the host by.
    let algorithms = &mut config.transport.host_key_algorithms;
    algorithms.insert(0, "ssh-ed25519".to_owned());
    config
}

/// A server with OpenSSH's name and OpenSSH's way with windows.
fn openssh() -> ServerConfig {
    let mut config = server_config();
    config.transport.software_version = "OpenSSH_10.0p2".to_owned();
    config.connection.withholds_window = true;
    config
}

#[test]
fn a_server_that_is_known_to_bear_it_is_sent_the_channel_ahead_of_its_consent() {
    let remembered = |version: &str| {
        let mut config = guessing(true, true);
        config.patient_version = Some(version.as_bytes().to_vec());
        config
    };
    let key = || key_attempt(9, true);
    // KEXINIT, exchange, authentication, channel, subsystem, which the first byte follows.
    assert_eq!(legs_to(guessing(false, false), openssh(), key()), 9);
    // Channel and subsystem in one flight, by the server's name alone.
    assert_eq!(legs_to(guessing(true, false), openssh(), key()), 7);
    // With the authentication, where its very version is known from before.
    let known = "SSH-2.0-OpenSSH_10.0p2";
    assert_eq!(legs_to(remembered(known), openssh(), key()), 4);
    assert_eq!(
        legs_to(remembered("SSH-2.0-OpenSSH_9.9"), openssh(), key()),
        6
    );
    // A password may be wrong any time.
    assert_eq!(legs_to(remembered(known), openssh(), password("secret")), 6);
    // Others are waited for, whatever is said to be known of them.
    let mut other = openssh();
    other.transport.software_version = "Other_1".to_owned();
    assert_eq!(legs_to(remembered("SSH-2.0-Other_1"), other, key()), 8);
}

/// 100,000 bytes, so that most of them wait for the window that the first of them went ahead of.
#[test]
fn bytes_sent_ahead_of_a_withheld_window_arrive_once() {
    for (seed, version) in [
        (seed(18), None),
        (19, Some("SSH-2.0-OpenSSH_10.0p2")),
        (20, None),
    ] {
        let mut config = guessing(true, false);
        config.patient_version = version.map(|v| v.as_bytes().to_vec());
        let flow = (Ask::Subsystem("flow 5000 1".to_owned()), Flow::new(100_000));
        // The last is tried first: what goes behind it is in vain.
        let attempts = vec![key_attempt(9, true), key_attempt(8, true)];
        let mut pair = pair(
            network(seed),
            (config, Client::new(attempts, vec![flow])),
            (openssh(), Server::new(strict)),
            64 << 10,
        );
        run(&mut pair, all_closed);
        let flow = pair.a.app.flow(0);
        assert_eq!((flow.received, flow.exit_status), (5000, Some(7)));
        assert_eq!(pair.b.conn.stats().channel_bytes_received, 100_000);
        assert!(!pair.a.conn.is_ahead_of_consent());
    }
}
