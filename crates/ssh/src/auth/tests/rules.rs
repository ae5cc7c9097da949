//! One side alone: orders, limits and bytes that are refused.

use super::*;

#[test]
fn the_client_takes_nothing_before_the_service_is_accepted() {
    for number in [
        SSH_MSG_USERAUTH_SUCCESS,
        SSH_MSG_USERAUTH_FAILURE,
        SSH_MSG_USERAUTH_BANNER,
        SSH_MSG_USERAUTH_PK_OK,
    ] {
        let mut client = Client::new(&ClientAuth::default());
        assert_eq!(client.handle_message(&[number]), Err(sequence()));
    }
    let mut accept = vec![SSH_MSG_SERVICE_ACCEPT];
    accept.put_string(b"ssh-userauth");
    assert_eq!(
        Client::new(&ClientAuth::default()).handle_message(&accept),
        Err(sequence())
    );
    let mut client = started(Attempt::None);
    assert_eq!(client.handle_message(&accept), Err(sequence()));
    let mut other = vec![SSH_MSG_SERVICE_ACCEPT];
    other.put_string(b"ssh-connection");
    assert_eq!(
        client.handle_message(&other),
        Err(PeerMisbehaved::UnknownService.into())
    );
}

#[test]
fn the_client_takes_a_reply_only_to_its_own_request() {
    let failure = || {
        let mut message = vec![SSH_MSG_USERAUTH_FAILURE];
        message.put_string(b"password");
        message.put_bool(false);
        message
    };
    let mut client = started(Attempt::None);
    client.handle_message(&failure()).expect("asked for");
    assert_eq!(client.handle_message(&failure()), Err(sequence()));
    assert_eq!(
        client.handle_message(&[SSH_MSG_USERAUTH_SUCCESS]),
        Err(sequence())
    );
    // 60 means nothing to `none` and to a signed request.
    let key = key(data!("ed25519"));
    for attempt in [Attempt::None, attempt(&key, true)] {
        let mut client = started(attempt);
        assert!(matches!(
            client.handle_message(&[SSH_MSG_USERAUTH_PK_OK]),
            Err(Error::PeerMisbehaved(
                PeerMisbehaved::UnexpectedMessage { .. }
            ))
        ));
    }
    // A query proves nothing, so it cannot succeed.
    let mut client = started(attempt(&key, false));
    assert_eq!(
        client.handle_message(&[SSH_MSG_USERAUTH_SUCCESS]),
        Err(sequence())
    );
    // After success there is no more of this.
    let mut client = started(Attempt::None);
    client
        .handle_message(&[SSH_MSG_USERAUTH_SUCCESS])
        .expect("asked for");
    assert!(client.handle_message(&[SSH_MSG_USERAUTH_SUCCESS]).is_err());
    assert_eq!(
        client.authenticate(Attempt::None),
        Err(ApiMisuse::WrongState.into())
    );
}

#[test]
fn the_client_matches_pk_ok_with_the_key_it_asked_about() {
    let (asked, other) = (key(data!("ed25519")), key(data!("rsa2048")));
    let reply = |name: &str, blob: &[u8]| {
        let mut message = vec![SSH_MSG_USERAUTH_PK_OK];
        message.put_string(name.as_bytes());
        message.put_string(blob);
        started(attempt(&asked, false)).handle_message(&message)
    };
    let blob = asked.public_key().to_blob();
    assert_eq!(reply("ssh-ed25519", &blob), Ok(()));
    assert_eq!(reply("rsa-sha2-512", &blob), Err(sequence()));
    assert_eq!(
        reply("ssh-ed25519", &other.public_key().to_blob()),
        Err(sequence())
    );
}

#[test]
fn prompts_are_taken_at_their_limits_and_refused_past_them() {
    let ask = |count: usize, len: usize| {
        let mut message = vec![SSH_MSG_USERAUTH_PK_OK];
        message.put_string(&vec![b'x'; len]);
        message.put_string(b"");
        message.put_string(b"");
        message.put_u32(u32::try_from(count).expect("small"));
        for _ in 0..count.min(1000) {
            message.put_string(b"?");
            message.put_bool(false);
        }
        started(Attempt::KeyboardInteractive).handle_message(&message)
    };
    assert_eq!(ask(PROMPTS_MAX, PROMPT_BYTES_MAX), Ok(()));
    assert_eq!(
        ask(PROMPTS_MAX + 1, 0),
        Err(PeerMisbehaved::TooManyRequests.into())
    );
    assert_eq!(
        ask(0xffff_ffff, 0),
        Err(PeerMisbehaved::TooManyRequests.into())
    );
    assert_eq!(
        ask(0, PROMPT_BYTES_MAX + 1),
        Err(FieldError::StringTooLong.into())
    );
}

#[test]
fn the_server_takes_requests_only_for_its_services_and_one_user() {
    let mut server = Server::new(&all_methods());
    let mut request = Vec::new();
    put_request(&mut request, b"u", "none");
    assert_eq!(
        server.handle_message(&plain_session(), &request),
        Err(sequence())
    );
    let mut other = vec![SSH_MSG_SERVICE_REQUEST];
    other.put_string(b"ssh-connection");
    assert_eq!(
        server.handle_message(&plain_session(), &other),
        Err(PeerMisbehaved::UnknownService.into())
    );
    let mut server = served(all_methods());
    server
        .handle_message(&plain_session(), &request)
        .expect("right");
    let mut changed = Vec::new();
    put_request(&mut changed, b"v", "none");
    assert_eq!(
        server.handle_message(&plain_session(), &changed),
        Err(sequence())
    );
    let mut service = vec![SSH_MSG_USERAUTH_REQUEST];
    for field in [&b"u"[..], b"ssh-other", b"none"] {
        service.put_string(field);
    }
    assert_eq!(
        server.handle_message(&plain_session(), &service),
        Err(PeerMisbehaved::UnknownService.into())
    );
}

#[test]
fn the_server_answers_each_service_request_as_openssh_does() {
    // paramiko sends one with each attempt.
    let mut server = served(all_methods());
    let mut request = vec![SSH_MSG_SERVICE_REQUEST];
    request.put_string(b"ssh-userauth");
    server
        .handle_message(&plain_session(), &request)
        .expect("again");
    assert_eq!(
        server.poll_message().expect("an answer")[0],
        SSH_MSG_SERVICE_ACCEPT
    );
}

#[test]
fn the_server_refuses_answers_that_were_not_asked_for_or_too_many() {
    let mut answers = Vec::new();
    prompts::put_answers(&mut answers, &[Secret::default(), Secret::default()]);
    assert_eq!(
        served(all_methods()).handle_message(&plain_session(), &answers),
        Err(sequence())
    );
    let mut server = served(all_methods());
    let mut request = Vec::new();
    put_request(&mut request, b"u", "keyboard-interactive");
    request.put_string(b"");
    request.put_string(b"");
    server
        .handle_message(&plain_session(), &request)
        .expect("right");
    assert_eq!(
        server.handle_message(&plain_session(), &answers),
        Err(sequence())
    );
}

#[test]
fn a_new_request_ends_the_prompts_before_it() {
    let mut server = served(all_methods());
    let mut interactive = Vec::new();
    put_request(&mut interactive, b"u", "keyboard-interactive");
    interactive.put_string(b"");
    interactive.put_string(b"");
    server
        .handle_message(&plain_session(), &interactive)
        .expect("right");
    let mut unknown = Vec::new();
    put_request(&mut unknown, b"u", "gssapi-with-mic");
    server
        .handle_message(&plain_session(), &unknown)
        .expect("refused in order");
    let mut answers = Vec::new();
    prompts::put_answers(&mut answers, &[Secret::default()]);
    assert_eq!(
        server.handle_message(&plain_session(), &answers),
        Err(sequence())
    );
}

#[test]
fn a_method_that_is_not_offered_is_refused_without_asking() {
    let mut pair = Pair::new(ServerAuth::default());
    pair.attempt(Attempt::Password(Secret::from(&b"pw"[..])))
        .expect("runs");
    assert!(!pair.server.is_waiting());
    assert_eq!(pair.outcome(), Some(Outcome::Refused));
    assert_eq!(pair.client.methods().names, "publickey");
}

#[test]
fn after_success_the_server_ignores_requests() {
    let key = key(data!("ed25519"));
    let mut pair = Pair::new(ServerAuth::default());
    pair.attempt(attempt(&key, true)).expect("runs");
    pair.answer(AuthAnswer::Accept).expect("runs");
    let mut request = Vec::new();
    put_request(&mut request, b"root", "none");
    assert_eq!(
        pair.server.handle_message(&plain_session(), &request),
        Ok(())
    );
    assert!(pair.server.poll_message().is_none() && pair.server.request().is_none());
}

#[test]
fn misuse_by_the_application_is_its_own_error_and_changes_nothing() {
    let mut pair = Pair::new(all_methods());
    assert_eq!(
        pair.server.answer(AuthAnswer::Accept),
        Err(ApiMisuse::WrongState.into())
    );
    pair.attempt(Attempt::Password(Secret::from(&b"pw"[..])))
        .expect("runs");
    assert_eq!(
        pair.client.authenticate(Attempt::None),
        Err(ApiMisuse::WrongState.into())
    );
    assert_eq!(
        pair.server
            .answer(AuthAnswer::Prompt(Prompts::password("?"))),
        Err(ApiMisuse::WrongState.into())
    );
    assert_eq!(
        pair.server.handle_message(&plain_session(), &[50]),
        Err(ApiMisuse::WrongState.into())
    );
    assert_eq!(
        pair.client.answer_prompts(vec![]),
        Err(ApiMisuse::WrongState.into())
    );
    pair.answer(AuthAnswer::Accept).expect("runs");
    assert!(pair.client.is_authenticated());
    let mut client = Client::new(&ClientAuth::default());
    let long = |len| Attempt::Password(Secret::new(vec![b'x'; len]));
    assert_eq!(
        client.authenticate(long(PASSWORD_BYTES_MAX + 1)),
        Err(ApiMisuse::LimitReached.into())
    );
    assert_eq!(client.authenticate(long(PASSWORD_BYTES_MAX)), Ok(()));
}

#[test]
fn a_key_under_another_types_algorithm_is_refused() {
    let key = key(data!("ed25519"));
    let blob = key.public_key().to_blob();
    for algorithm in [
        "rsa-sha2-512",
        "ssh-rsa",
        "ssh-dss",
        "ssh-ed25519-cert-v01@openssh.com",
        "",
    ] {
        let fields = KeyFields {
            user: b"u",
            host_key: None,
            algorithm,
            key_blob: &blob,
        };
        let mut message = Vec::new();
        fields.put(&mut message, false);
        let mut server = served(ServerAuth::default());
        server
            .handle_message(&plain_session(), &message)
            .expect("refused in order");
        assert!(!server.is_waiting());
        assert_eq!(
            server.poll_message().expect("an answer")[0],
            SSH_MSG_USERAUTH_FAILURE
        );
    }
}

#[test]
fn messages_cut_anywhere_or_longer_are_errors_on_both_sides() {
    let key = key(data!("ed25519"));
    let mut client = Client::new(&ClientAuth {
        user: b"u".to_vec(),
    });
    client.authenticate(attempt(&key, true)).expect("idle");
    let _service = client.poll_message(&plain_session());
    let request = client.poll_message(&plain_session()).expect("a request");
    let is_malformed = |result: Result<(), Error>| matches!(result, Err(Error::InvalidMessage(_)));
    let to_server = |bytes: &[u8]| served(all_methods()).handle_message(&plain_session(), bytes);
    assert_eq!(to_server(&request), Ok(()));
    for len in 0..request.len() {
        assert!(is_malformed(to_server(&request[..len])), "{len} bytes");
    }
    assert!(is_malformed(to_server(&[&request[..], &[0]].concat())));

    let to_client = |bytes: &[u8]| started(Attempt::KeyboardInteractive).handle_message(bytes);
    let mut failure = vec![SSH_MSG_USERAUTH_FAILURE];
    failure.put_string(b"publickey,password");
    failure.put_bool(true);
    let mut banner = vec![SSH_MSG_USERAUTH_BANNER];
    banner.put_string(b"hello");
    banner.put_string(b"en");
    let prompts = Prompts::password("Password: ").to_message();
    for message in [failure, banner, prompts, vec![SSH_MSG_USERAUTH_SUCCESS]] {
        assert_eq!(to_client(&message), Ok(()));
        for len in 0..message.len() {
            assert!(is_malformed(to_client(&message[..len])));
        }
        assert!(is_malformed(to_client(&[&message[..], &[0]].concat())));
    }
}

#[test]
fn names_and_passwords_are_taken_at_their_limits_and_refused_past_them() {
    let user = |len: usize| {
        let mut message = Vec::new();
        put_request(&mut message, &vec![0xff; len], "none");
        served(all_methods()).handle_message(&plain_session(), &message)
    };
    assert_eq!(user(0), Ok(()));
    assert_eq!(user(USER_BYTES_MAX), Ok(()));
    assert_eq!(
        user(USER_BYTES_MAX + 1),
        Err(FieldError::StringTooLong.into())
    );
    let password = |len: usize| {
        let mut message = Vec::new();
        put_request(&mut message, b"u", "password");
        message.put_bool(false);
        message.put_string(&vec![b'x'; len]);
        served(all_methods()).handle_message(&plain_session(), &message)
    };
    assert_eq!(password(PASSWORD_BYTES_MAX), Ok(()));
    assert_eq!(
        password(PASSWORD_BYTES_MAX + 1),
        Err(FieldError::StringTooLong.into())
    );
}

#[test]
fn every_message_number_that_does_not_belong_here_is_refused() {
    for number in 0..=255_u8 {
        let is_own = matches!(number, 5 | 50 | 61);
        let result = served(all_methods()).handle_message(&plain_session(), &[number]);
        let unexpected = Err(PeerMisbehaved::UnexpectedMessage { message: number }.into());
        assert_eq!(result == unexpected, !is_own, "server, {number}");
        let is_own = matches!(number, 6 | 51..=53);
        let result = started(Attempt::None).handle_message(&[number]);
        let unexpected = Err(PeerMisbehaved::UnexpectedMessage { message: number }.into());
        assert_eq!(result == unexpected, !is_own, "client, {number}");
    }
}

#[test]
fn the_signed_request_is_rfc_4252s() {
    // RFC 4252 7, laid out by hand.
    let fields = KeyFields {
        user: b"u",
        host_key: None,
        algorithm: "ssh-ed25519",
        key_blob: b"K",
    };
    let mut expected = vec![0, 0, 0, 2, 0xaa, 0xbb, 50, 0, 0, 0, 1, b'u'];
    for field in ["ssh-connection", "publickey"] {
        expected.put_string(field.as_bytes());
    }
    expected.push(1);
    expected.put_string(b"ssh-ed25519");
    expected.put_string(b"K");
    assert_eq!(fields.signed_data(&[0xaa, 0xbb]), expected);
    let bound = KeyFields {
        host_key: Some(b"H"),
        ..fields
    };
    let at = expected
        .windows(9)
        .position(|w| w == b"publickey")
        .expect("there")
        - 4;
    let mut expected_bound = expected[..at].to_vec();
    expected_bound.put_string(b"publickey-hostbound-v00@openssh.com");
    expected_bound.extend_from_slice(&expected[at + 13..]);
    expected_bound.put_string(b"H");
    assert_eq!(bound.signed_data(&[0xaa, 0xbb]), expected_bound);
}

#[test]
fn sets_of_methods_hold_what_was_put_in() {
    let set = MethodSet::of(&[Method::Password, Method::PublicKey]);
    assert_eq!(
        set.iter().collect::<Vec<_>>(),
        [Method::PublicKey, Method::Password]
    );
    assert!(!set.contains(Method::KeyboardInteractive));
    assert!(
        set.without(Method::Password)
            .without(Method::PublicKey)
            .is_empty()
    );
    let public: PublicKey = key(data!("ed25519")).public_key().clone();
    assert_eq!(Identity::Key(public.clone()).key(), &public);
}
