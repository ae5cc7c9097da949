//! Both sides together: each method, in each order, to its end.

use super::*;

#[test]
fn none_is_answered_with_the_methods() {
    let mut pair = Pair::new(all_methods());
    assert_eq!(pair.events(), [Event::Needed]);
    pair.attempt(Attempt::None).expect("runs");
    assert_eq!(pair.events(), [Event::Needed]);
    assert_eq!(
        pair.client.methods().offered,
        Some(MethodSet::of(&Method::ALL))
    );
    assert_eq!(
        pair.client.methods().names,
        "publickey,keyboard-interactive,password"
    );
    assert_eq!(pair.outcome(), Some(Outcome::Refused));
}

#[test]
fn none_is_accepted_where_the_application_says_so() {
    let mut pair = Pair::new(ServerAuth {
        is_none_asked: true,
        ..ServerAuth::default()
    });
    pair.attempt(Attempt::None).expect("runs");
    assert!(matches!(
        pair.server.request().expect("asked").credential,
        Credential::None
    ));
    pair.answer(AuthAnswer::Accept).expect("runs");
    assert!(pair.client.is_authenticated() && pair.server.is_authenticated());
}

#[test]
fn a_known_key_of_each_type_is_in_with_one_request_and_nothing_waited_for() {
    for file in [
        data!("ed25519"),
        data!("ecdsa256"),
        data!("ecdsa384"),
        data!("ecdsa521"),
        data!("rsa2048"),
    ] {
        let key = key(file);
        let mut pair = Pair::new(ServerAuth::default());
        let session_extensions = pair.extensions.clone();
        pair.client.authenticate(attempt(&key, true)).expect("idle");
        let session = Session {
            session_id: SESSION_ID,
            host_key: HOST_KEY,
            extensions: &session_extensions,
        };
        // Service request and signed request leave before anything has come back.
        let first = pair.client.poll_message(&session).expect("service request");
        let second = pair.client.poll_message(&session).expect("auth request");
        assert!(pair.client.is_proof_sent());
        assert!(pair.client.poll_message(&session).is_none());
        for message in [first, second] {
            pair.server
                .handle_message(&session, &message)
                .expect("right");
        }
        let request = pair.server.request().expect("asked");
        assert_eq!(request.user, b"alice");
        let Credential::Key {
            key: shown,
            certificate: None,
            algorithm,
            sk: None,
        } = request.credential
        else {
            panic!("{request:?}");
        };
        assert_eq!(shown, key.public_key());
        assert_eq!(algorithm, key.public_key().key_type().algorithms()[0]);
        pair.answer(AuthAnswer::Accept).expect("runs");
        assert_eq!(pair.events(), [Event::Authenticated]);
        assert_eq!(
            pair.sent.1,
            [SSH_MSG_SERVICE_ACCEPT, SSH_MSG_USERAUTH_SUCCESS]
        );
    }
}

#[test]
fn an_unknown_key_is_asked_about_first() {
    for is_hostbound in [true, false] {
        let key = key(data!("ecdsa384"));
        let mut pair = Pair::new(ServerAuth::default());
        pair.extensions.publickey_hostbound = is_hostbound;
        pair.attempt(attempt(&key, false)).expect("runs");
        let request = pair.server.request().expect("asked");
        assert!(matches!(
            request.credential,
            Credential::KeyQuery {
                certificate: None,
                ..
            }
        ));
        pair.answer(AuthAnswer::Accept).expect("runs");
        assert!(!pair.server.is_authenticated());
        assert!(matches!(
            pair.server.request().expect("asked again").credential,
            Credential::Key { .. }
        ));
        pair.answer(AuthAnswer::Accept).expect("runs");
        assert!(pair.client.is_authenticated() && pair.server.is_authenticated());
        assert_eq!(
            pair.sent.1,
            [
                SSH_MSG_SERVICE_ACCEPT,
                SSH_MSG_USERAUTH_PK_OK,
                SSH_MSG_USERAUTH_SUCCESS
            ]
        );
        assert_eq!(pair.server.user(), Some(&b"alice"[..]));
    }
}

#[test]
fn a_refused_query_costs_an_attempt_and_the_next_key_is_tried() {
    let (first, second) = (key(data!("ed25519")), key(data!("rsa2048")));
    let mut pair = Pair::new(ServerAuth::default());
    pair.attempt(attempt(&first, false)).expect("runs");
    pair.answer(AuthAnswer::Reject).expect("runs");
    assert_eq!(pair.events(), [Event::Needed]);
    pair.attempt(attempt(&second, true)).expect("runs");
    assert_eq!(pair.server.request().expect("asked").failures, 1);
    pair.answer(AuthAnswer::Accept).expect("runs");
    assert!(pair.client.is_authenticated());
}

#[test]
fn certificates_of_each_type_come_through() {
    for (file, line) in [
        (data!("ed25519"), data!("user-ed25519-cert.pub")),
        (data!("ecdsa256"), data!("user-ecdsa256-cert.pub")),
        (data!("ecdsa521"), data!("user-ecdsa521-cert.pub")),
        (data!("rsa2048"), data!("user-rsa2048-cert.pub")),
    ] {
        let key = key(file);
        let mut pair = Pair::new(ServerAuth::default());
        pair.attempt(certified(&key, line, false)).expect("runs");
        pair.answer(AuthAnswer::Accept).expect("runs");
        let request = pair.server.request().expect("asked");
        let Credential::Key {
            key: shown,
            certificate: Some(cert),
            ..
        } = request.credential
        else {
            panic!("{request:?}");
        };
        assert_eq!(shown, key.public_key());
        assert_eq!(Certificate::from_line(line).as_ref(), Ok(cert));
        pair.answer(AuthAnswer::Accept).expect("runs");
        assert!(pair.client.is_authenticated());
    }
}

#[test]
fn a_hosts_certificate_is_refused_of_a_user() {
    let key = key(data!("ed25519"));
    let mut pair = Pair::new(ServerAuth::default());
    pair.attempt(certified(&key, data!("host-ed25519-cert.pub"), true))
        .expect("runs");
    assert!(!pair.server.is_waiting());
    assert_eq!(pair.outcome(), Some(Outcome::Refused));
}

#[test]
fn a_signature_over_another_session_or_host_key_is_refused_without_asking() {
    let key = key(data!("ed25519"));
    let mut pair = Pair::new(ServerAuth::default());
    pair.client_session_id = vec![0x5f; 32];
    pair.attempt(attempt(&key, true)).expect("runs");
    assert!(!pair.server.is_waiting());
    assert_eq!(pair.outcome(), Some(Outcome::Refused));

    for known in [true, false] {
        let mut pair = Pair::new(ServerAuth::default());
        pair.client_host_key = b"another host's key".to_vec();
        pair.attempt(attempt(&key, known)).expect("runs");
        assert!(!pair.server.is_waiting());
        assert_eq!(pair.outcome(), Some(Outcome::Refused));
    }
}

#[test]
fn an_external_signer_is_asked_and_its_signature_goes_out() {
    let key = key(data!("rsa2048"));
    let mut pair = Pair::new(ServerAuth::default());
    let external = |known| {
        Attempt::PublicKey(KeyAttempt {
            identity: Identity::Key(key.public_key().clone()),
            signer: Signer::External,
            algorithm: None,
            known,
        })
    };
    pair.attempt(external(true)).expect("runs");
    assert_eq!(pair.events(), [Event::SignatureNeeded]);
    let request = pair.client.signature_request().expect("awaited");
    assert_eq!(request.key_blob, key.public_key().to_blob());
    assert_eq!(
        (request.algorithm, request.agent_flags),
        (Algorithm::RsaSha512, 4)
    );
    let signature = key.sign(request.algorithm, request.data).expect("signs");
    pair.client
        .provide_signature(Ok(signature))
        .expect("awaited");
    pair.run().expect("runs");
    pair.answer(AuthAnswer::Reject).expect("runs");
    assert_eq!(pair.outcome(), Some(Outcome::Refused));

    // A signer that fails, or that signs with another algorithm, ends the attempt on this side.
    let sha256 = |data: &[u8]| key.sign(Algorithm::RsaSha256, data).expect("signs");
    for is_wrong in [true, false] {
        pair.attempt(external(true)).expect("runs");
        let data = pair
            .client
            .signature_request()
            .expect("awaited")
            .data
            .to_vec();
        let signature = if is_wrong {
            Ok(sha256(&data))
        } else {
            Err(SignerFailed)
        };
        pair.client.provide_signature(signature).expect("awaited");
        pair.run().expect("runs");
        assert!(!pair.server.is_waiting());
        assert_eq!(pair.outcome(), Some(Outcome::SignerFailed));
        assert_eq!(pair.events(), [Event::Needed]);
    }
    assert_eq!(
        pair.client.provide_signature(Err(SignerFailed)),
        Err(ApiMisuse::WrongState.into())
    );
}

#[test]
fn rsa_keys_sign_with_what_the_server_verifies() {
    let key = key(data!("rsa2048"));
    for (names, algorithm) in [
        (
            Some(vec!["ssh-ed25519", "rsa-sha2-256"]),
            Some(Algorithm::RsaSha256),
        ),
        (
            Some(vec!["rsa-sha2-256", "rsa-sha2-512"]),
            Some(Algorithm::RsaSha512),
        ),
        (None, Some(Algorithm::RsaSha256)),
        (Some(vec!["ssh-rsa"]), None),
    ] {
        let mut pair = Pair::new(ServerAuth::default());
        pair.extensions.server_sig_algs =
            names.map(|names| names.into_iter().map(str::to_owned).collect());
        pair.attempt(attempt(&key, true)).expect("runs");
        let used = pair
            .server
            .request()
            .map(|request| match request.credential {
                Credential::Key { algorithm, .. } => algorithm,
                other => panic!("{other:?}"),
            });
        assert_eq!(used, algorithm);
        if algorithm.is_none() {
            assert_eq!(pair.outcome(), Some(Outcome::NoCommonAlgorithm));
            assert!(pair.sent.0.is_empty());
        }
    }
}

#[test]
fn an_algorithm_that_is_not_accepted_is_refused_without_asking() {
    let key = key(data!("ed25519"));
    let mut pair = Pair::new(ServerAuth {
        algorithms: vec![Algorithm::RsaSha512],
        ..ServerAuth::default()
    });
    pair.attempt(attempt(&key, true)).expect("runs");
    assert_eq!(pair.outcome(), Some(Outcome::Refused));
}

#[test]
fn a_password_is_shown_to_the_application_only() {
    let mut pair = Pair::new(all_methods());
    pair.attempt(Attempt::Password(Secret::from(&b"hunter2"[..])))
        .expect("runs");
    let request = pair.server.request().expect("asked");
    let Credential::Password(password) = request.credential else {
        panic!("{request:?}");
    };
    assert!(password.is_equal(b"hunter2") && !password.is_equal(b"hunter3"));
    let shown = format!("{request:?} {:?} {:?}", pair.client, pair.server);
    assert!(
        !shown.contains("hunter2") && !shown.contains("104, 117, 110"),
        "{shown}"
    );
    pair.answer(AuthAnswer::Accept).expect("runs");
    assert!(pair.client.is_authenticated());
}

#[test]
fn a_password_is_changed_on_request() {
    let mut pair = Pair::new(all_methods());
    pair.attempt(Attempt::Password(Secret::from(&b"old"[..])))
        .expect("runs");
    pair.answer(AuthAnswer::ChangePassword("It has expired.".to_owned()))
        .expect("runs");
    assert_eq!(pair.events(), [Event::Prompt]);
    let prompts = pair.client.prompts().expect("asked").clone();
    assert_eq!(prompts.kind, PromptKind::PasswordChange);
    assert_eq!(prompts.instruction, "It has expired.");
    assert_eq!(prompts.prompts.len(), 1);
    for new in [&b"short"[..], b"long enough"] {
        pair.client
            .answer_prompts(vec![Secret::from(new)])
            .expect("asked");
        pair.run().expect("runs");
        let request = pair.server.request().expect("asked");
        let Credential::PasswordChange { old, new: shown } = request.credential else {
            panic!("{request:?}");
        };
        assert_eq!(shown.expose(), new);
        if new == b"short" {
            assert_eq!(old.expose(), b"old");
            pair.answer(AuthAnswer::ChangePassword("Too short.".to_owned()))
                .expect("runs");
            assert_eq!(pair.events(), [Event::Prompt]);
        }
    }
    pair.answer(AuthAnswer::Accept).expect("runs");
    assert!(pair.client.is_authenticated());
}

#[test]
fn one_password_prompt_is_asked_by_the_engine_itself() {
    let mut pair = Pair::new(all_methods());
    pair.attempt(Attempt::KeyboardInteractive).expect("runs");
    assert!(!pair.server.is_waiting());
    assert_eq!(
        pair.client.prompts(),
        Some(&Prompts::password("Password: "))
    );
    pair.client
        .answer_prompts(vec![Secret::from(&b"hunter2"[..])])
        .expect("asked");
    let shown = format!("{:?}", pair.client);
    assert!(!shown.contains("104, 117, 110"), "{shown}");
    pair.run().expect("runs");
    let request = pair.server.request().expect("asked");
    let Credential::Interactive {
        answers: [answer],
        round: 1,
    } = request.credential
    else {
        panic!("{request:?}");
    };
    assert_eq!(answer.expose(), b"hunter2");
    pair.answer(AuthAnswer::Accept).expect("runs");
    assert!(pair.client.is_authenticated());
}

#[test]
fn several_rounds_of_prompts_are_asked_and_a_silent_one_is_answered_by_itself() {
    let mut pair = Pair::new(ServerAuth {
        interactive_prompt: None,
        ..all_methods()
    });
    pair.attempt(Attempt::KeyboardInteractive).expect("runs");
    let asked = Prompts {
        kind: PromptKind::KeyboardInteractive,
        name: "Login".to_owned(),
        instruction: "Two things.".to_owned(),
        prompts: vec![
            Prompt {
                text: "Name: ".to_owned(),
                echo: true,
            },
            Prompt {
                text: "Code: ".to_owned(),
                echo: false,
            },
        ],
    };
    pair.answer(AuthAnswer::Prompt(asked.clone()))
        .expect("runs");
    assert_eq!(pair.client.prompts(), Some(&asked));
    let answers = || vec![Secret::from(&b"a"[..]), Secret::from(&b""[..])];
    assert_eq!(
        pair.client.answer_prompts(vec![Secret::default()]),
        Err(ApiMisuse::WrongState.into())
    );
    pair.client.answer_prompts(answers()).expect("asked");
    pair.run().expect("runs");
    let silent = Prompts {
        prompts: vec![],
        ..Prompts::password("")
    };
    pair.answer(AuthAnswer::Prompt(silent)).expect("runs");
    let request = pair.server.request().expect("asked");
    assert!(matches!(
        request.credential,
        Credential::Interactive {
            answers: [],
            round: 2
        }
    ));
    pair.answer(AuthAnswer::Accept).expect("runs");
    assert!(pair.client.is_authenticated());
}

#[test]
fn rounds_of_prompts_are_bounded_on_both_sides() {
    let mut pair = Pair::new(ServerAuth {
        interactive_prompt: None,
        ..all_methods()
    });
    pair.attempt(Attempt::KeyboardInteractive).expect("runs");
    for _ in 0..ROUNDS_MAX {
        pair.answer(AuthAnswer::Prompt(Prompts::password("again: ")))
            .expect("runs");
        pair.client
            .answer_prompts(vec![Secret::default()])
            .expect("asked");
        pair.run().expect("runs");
    }
    pair.answer(AuthAnswer::Prompt(Prompts::password("again: ")))
        .expect("runs");
    assert_eq!(pair.outcome(), Some(Outcome::Refused));

    let mut client = started(Attempt::KeyboardInteractive);
    let message = Prompts::password("again: ").to_message();
    for _ in 0..ROUNDS_MAX {
        client.handle_message(&message).expect("within the limit");
        client
            .answer_prompts(vec![Secret::default()])
            .expect("asked");
        assert!(client.poll_message(&plain_session()).is_some());
    }
    assert_eq!(
        client.handle_message(&message),
        Err(PeerMisbehaved::TooManyRequests.into())
    );
}

#[test]
fn a_key_and_then_a_password_where_both_are_wanted() {
    let key = key(data!("ed25519"));
    let mut pair = Pair::new(ServerAuth::default());
    pair.attempt(attempt(&key, true)).expect("runs");
    let left = MethodSet::of(&[Method::Password]);
    pair.answer(AuthAnswer::Partial(left)).expect("runs");
    assert_eq!(pair.outcome(), Some(Outcome::Partial));
    assert!(pair.client.methods().partial_success);
    assert_eq!(pair.client.methods().offered, Some(left));
    // The key is not wanted a second time.
    pair.attempt(attempt(&key, true)).expect("runs");
    assert_eq!(pair.outcome(), Some(Outcome::Refused));
    pair.attempt(Attempt::Password(Secret::from(&b"pw"[..])))
        .expect("runs");
    pair.answer(AuthAnswer::Accept).expect("runs");
    assert!(pair.client.is_authenticated() && pair.server.is_authenticated());
}

#[test]
fn a_query_is_not_taken_as_a_partial_proof() {
    let key = key(data!("ed25519"));
    let mut pair = Pair::new(ServerAuth::default());
    pair.attempt(attempt(&key, false)).expect("runs");
    let left = MethodSet::of(&[Method::Password]);
    pair.answer(AuthAnswer::Partial(left)).expect("runs");
    assert!(!pair.client.methods().partial_success);
    assert!(matches!(
        pair.server.request().expect("asked for real").credential,
        Credential::Key { .. }
    ));
    pair.answer(AuthAnswer::Partial(left)).expect("runs");
    assert!(pair.client.methods().partial_success);
}

#[test]
fn failures_up_to_the_limit_are_answered_and_the_last_disconnects() {
    let mut pair = Pair::new(all_methods());
    pair.attempt(Attempt::None)
        .expect("asking for the list is free");
    let wrong = || Attempt::Password(Secret::from(&b"wrong"[..]));
    for _ in 1..ATTEMPTS_MAX {
        pair.attempt(wrong()).expect("runs");
        pair.answer(AuthAnswer::Reject).expect("answered");
    }
    pair.attempt(wrong()).expect("runs");
    assert!(matches!(
        pair.answer(AuthAnswer::Reject),
        Err(Error::Closed(Closed::ByUs { .. }))
    ));
}

#[test]
fn none_twice_costs_an_attempt() {
    let mut pair = Pair::new(ServerAuth {
        attempts_max: 1,
        ..all_methods()
    });
    pair.attempt(Attempt::None).expect("free");
    assert!(pair.attempt(Attempt::None).is_err());
}

#[test]
fn queries_that_are_accepted_are_bounded_too() {
    let key = key(data!("ed25519"));
    let blob = key.public_key().to_blob();
    let mut server = served(ServerAuth::default());
    let query = KeyFields {
        user: b"u",
        host_key: None,
        algorithm: "ssh-ed25519",
        key_blob: &blob,
    };
    let mut message = Vec::new();
    query.put(&mut message, false);
    for _ in 1..REQUESTS_MAX {
        server
            .handle_message(&plain_session(), &message)
            .expect("within the limit");
        server.answer(AuthAnswer::Accept).expect("asked");
        assert!(server.poll_message().is_some());
    }
    assert_eq!(
        server.handle_message(&plain_session(), &message),
        Err(PeerMisbehaved::TooManyRequests.into())
    );
}

#[test]
fn a_banner_is_shown_once_before_authentication() {
    let mut pair = Pair::new(ServerAuth {
        banner: Some("Mind the gap".to_owned()),
        ..all_methods()
    });
    pair.attempt(Attempt::None).expect("runs");
    assert_eq!(pair.events(), [Event::Banner, Event::Needed]);
    assert_eq!(pair.client.banner(), b"Mind the gap");
    pair.attempt(Attempt::None).expect("runs");
    assert_eq!(pair.events(), [Event::Needed]);
}

#[test]
fn banners_are_cut_and_counted() {
    let mut client = started(Attempt::None);
    let mut banner = vec![SSH_MSG_USERAUTH_BANNER];
    banner.put_string(&vec![b'x'; BANNER_BYTES_MAX]);
    banner.put_string(b"");
    for _ in 0..BANNERS_MAX {
        client.handle_message(&banner).expect("within the limit");
        assert_eq!(client.banner().len(), BANNER_BYTES_MAX);
    }
    assert_eq!(
        client.handle_message(&banner),
        Err(PeerMisbehaved::TooManyRequests.into())
    );
}
