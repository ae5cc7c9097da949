use super::client::{Authenticator as Client, Event};
use super::server::Authenticator as Server;
use super::*;
use crate::cert::Certificate;
use crate::error::{ApiMisuse, Closed, Error, InvalidMessage, PeerMisbehaved};
use crate::key::{Algorithm, PrivateKey, PublicKey};
use crate::msg::*;
use std::sync::Arc;

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../testdata/auth/", $name)).as_slice()
    };
}

const SESSION_ID: &[u8] = &[0x5e; 32];
const HOST_KEY: &[u8] = b"the host key's blob";

fn key(file: &[u8]) -> Arc<PrivateKey> {
    Arc::new(PrivateKey::from_file(file, None).expect("a key of ssh-keygen"))
}

fn attempt(key: &Arc<PrivateKey>, known: bool) -> Attempt {
    Attempt::PublicKey(KeyAttempt {
        identity: Identity::Key(key.public_key().clone()),
        signer: Signer::Local(key.clone()),
        algorithm: None,
        known,
    })
}

fn certified(key: &Arc<PrivateKey>, line: &[u8], known: bool) -> Attempt {
    let certificate = Certificate::from_line(line).expect("a certificate of ssh-keygen");
    Attempt::PublicKey(KeyAttempt {
        identity: Identity::Certificate(Box::new(certificate)),
        signer: Signer::Local(key.clone()),
        algorithm: None,
        known,
    })
}

/// Both sides and what each knows of the transport.
struct Pair {
    client: Client,
    server: Server,
    extensions: PeerExtensions,
    client_session_id: Vec<u8>,
    client_host_key: Vec<u8>,
    /// Message numbers, in the order sent; the client's and the server's.
    sent: (Vec<u8>, Vec<u8>),
}

impl Pair {
    fn new(config: ServerAuth) -> Self {
        Self {
            client: Client::new(&ClientAuth {
                user: b"alice".to_vec(),
            }),
            extensions: PeerExtensions {
                server_sig_algs: Some(
                    config
                        .algorithms
                        .iter()
                        .map(|a| a.name().to_owned())
                        .collect(),
                ),
                publickey_hostbound: true,
                ..PeerExtensions::default()
            },
            server: Server::new(&config),
            client_session_id: SESSION_ID.to_vec(),
            client_host_key: HOST_KEY.to_vec(),
            sent: (Vec::new(), Vec::new()),
        }
    }

    /// Carries messages until both are silent or the server asks its application.
    fn run(&mut self) -> Result<(), Error> {
        let none = PeerExtensions::default();
        loop {
            let mut is_quiet = true;
            let session = Session {
                session_id: &self.client_session_id,
                host_key: &self.client_host_key,
                extensions: &self.extensions,
            };
            if !self.server.is_waiting()
                && let Some(message) = self.client.poll_message(&session)
            {
                is_quiet = false;
                self.sent.0.push(message[0]);
                let session = Session {
                    session_id: SESSION_ID,
                    host_key: HOST_KEY,
                    extensions: &none,
                };
                self.server.handle_message(&session, &message)?;
            }
            while let Some(message) = self.server.poll_message() {
                is_quiet = false;
                self.sent.1.push(message[0]);
                self.client.handle_message(&message)?;
            }
            if is_quiet {
                return Ok(());
            }
        }
    }

    fn answer(&mut self, answer: AuthAnswer) -> Result<(), Error> {
        self.server.answer(answer)?;
        self.run()
    }

    /// Starts an attempt and carries messages as far as they go.
    fn attempt(&mut self, attempt: Attempt) -> Result<(), Error> {
        self.client.authenticate(attempt)?;
        self.run()
    }

    fn outcome(&self) -> Option<Outcome> {
        self.client.methods().outcome
    }

    fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.client.poll_event()).collect()
    }
}

fn all_methods() -> ServerAuth {
    ServerAuth {
        methods: MethodSet::of(&Method::ALL),
        ..ServerAuth::default()
    }
}

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

/// A session as both sides see it, without extensions.
fn plain_session() -> Session<'static> {
    static NONE: PeerExtensions = PeerExtensions {
        server_sig_algs: None,
        ping: false,
        publickey_hostbound: false,
    };
    Session {
        session_id: SESSION_ID,
        host_key: HOST_KEY,
        extensions: &NONE,
    }
}

/// A client whose service was accepted and whose attempt is on its way.
fn started(attempt: Attempt) -> Client {
    let mut client = Client::new(&ClientAuth {
        user: b"u".to_vec(),
    });
    client.authenticate(attempt).expect("idle");
    while client.poll_message(&plain_session()).is_some() {}
    let mut accept = vec![SSH_MSG_SERVICE_ACCEPT];
    accept.put_string(b"ssh-userauth");
    client.handle_message(&accept).expect("asked for");
    client
}

/// A server whose service was asked for.
fn served(config: ServerAuth) -> Server {
    let mut server = Server::new(&config);
    let mut request = vec![SSH_MSG_SERVICE_REQUEST];
    request.put_string(b"ssh-userauth");
    server
        .handle_message(&plain_session(), &request)
        .expect("offered");
    while server.poll_message().is_some() {}
    server
}

fn sequence() -> Error {
    PeerMisbehaved::AuthSequence.into()
}

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
        Err(InvalidMessage::StringTooLong.into())
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

/// A security key's request, signed by us in the device's stead.
fn sk_request(flags: u8, certificate: Option<&[u8]>) -> (ServerAuth, Vec<u8>) {
    let device = PrivateKey::from_ed25519_seed(&[9; 32]).expect("a key");
    let mut blob = Vec::new();
    blob.put_string(b"sk-ssh-ed25519@openssh.com");
    device.public_key().put_fields(&mut blob);
    blob.put_string(b"ssh:");
    let name = if certificate.is_some() {
        Algorithm::SkEd25519.certificate_name()
    } else {
        Algorithm::SkEd25519.name()
    };
    let blob = certificate.map_or(blob.clone(), |options| sk_certificate(&blob, options));
    let fields = KeyFields {
        user: b"u",
        host_key: None,
        algorithm: name,
        key_blob: &blob,
    };
    let sha256 = |data: &[u8]| aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data);
    let mut signed = sha256(b"ssh:").as_ref().to_vec();
    signed.extend_from_slice(&[flags, 0, 0, 0, 1]);
    signed.extend_from_slice(sha256(&fields.signed_data(SESSION_ID)).as_ref());
    let inner = device.sign(Algorithm::Ed25519, &signed).expect("signs");
    let mut signature = Vec::new();
    signature.put_string(b"sk-ssh-ed25519@openssh.com");
    signature.put_string(&inner[inner.len() - 64..]);
    signature.extend_from_slice(&[flags, 0, 0, 0, 1]);
    let mut message = Vec::new();
    fields.put(&mut message, true);
    message.put_string(&signature);
    (ServerAuth::default(), message)
}

/// A certificate for that key; `critical` is its packed critical options.
fn sk_certificate(key_blob: &[u8], critical: &[u8]) -> Vec<u8> {
    let ca = PrivateKey::from_ed25519_seed(&[1; 32]).expect("a key");
    let mut blob = Vec::new();
    blob.put_string(b"sk-ssh-ed25519-cert-v01@openssh.com");
    blob.put_string(b"nonce");
    blob.put_raw(&key_blob[4 + "sk-ssh-ed25519@openssh.com".len()..]);
    blob.put_u64(0);
    blob.put_u32(1);
    blob.put_string(b"id");
    blob.put_string(b"\0\0\0\x01u");
    blob.put_u64(0);
    blob.put_u64(u64::MAX);
    blob.put_string(critical);
    blob.put_string(b"");
    blob.put_string(b"");
    blob.put_string(&ca.public_key().to_blob());
    let signature = ca.sign(Algorithm::Ed25519, &blob).expect("signs");
    blob.put_string(&signature);
    blob
}

#[test]
fn a_security_key_must_be_touched_unless_told_otherwise() {
    let verify_required = {
        let mut options = Vec::new();
        options.put_string(b"verify-required");
        options.put_string(b"");
        options
    };
    let plain = None;
    let cert: Option<&[u8]> = Some(b"");
    let strict: Option<&[u8]> = Some(&verify_required);
    for (flags, certificate, answer, is_in) in [
        (1, plain, AuthAnswer::Accept, true),
        (0, plain, AuthAnswer::Accept, false),
        (0, plain, AuthAnswer::AcceptWithoutTouch, true),
        (
            0,
            plain,
            AuthAnswer::Partial(MethodSet::of(&[Method::Password])),
            false,
        ),
        (1, cert, AuthAnswer::Accept, true),
        // The certificate does not say no-touch-required.
        (0, cert, AuthAnswer::AcceptWithoutTouch, false),
        (1, strict, AuthAnswer::Accept, false),
        (5, strict, AuthAnswer::Accept, true),
    ] {
        let (config, message) = sk_request(flags, certificate);
        let mut server = served(config);
        server
            .handle_message(&plain_session(), &message)
            .expect("right");
        let request = server.request().expect("asked");
        assert!(
            matches!(request.credential, Credential::Key { sk: Some(sk), .. } if sk.counter == 1)
        );
        server.answer(answer.clone()).expect("asked");
        assert_eq!(server.is_authenticated(), is_in, "{flags} {answer:?}");
    }
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
        Err(InvalidMessage::StringTooLong.into())
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
        Err(InvalidMessage::StringTooLong.into())
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
