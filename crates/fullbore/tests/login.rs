//! Logging in, and whom to believe.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use fullbore::client::{Context, Error, Sftp, connect};
use fullbore::config::ssh_config::HostConfig;
use fullbore::driver::random::SystemRandom;
use fullbore::server::serve::ServeOptions;
use fullbore::server::serve::password::PasswordHash;
use fullbore_ssh::key::Secret;
use fullbore_testkit::ssh_keygen;
use support::{Folder, OurServer, Script, context, host, make_key, run};

/// A hash of `secret` with few rounds, made with Python's hashlib.
const HASH: &str =
    "$pbkdf2-sha256$1000$c2FsdHNhbHRzYWx0c2FsdA$dClvKSmj66n6MdMWNv3Go4mvH1Ym2WIGiJvquqa.mfE";

fn with_password(options: &mut ServeOptions) {
    options.password = Some(PasswordHash::parse(HASH).unwrap());
    options.authorized_keys.clear();
}

/// Logs in and asks for something.
async fn try_login(host: &HostConfig, context: &Context) -> Result<Sftp, Error> {
    let sftp = connect(host, context).await?;
    sftp.stat(b".").await?;
    Ok(sftp)
}

#[test]
fn a_password_lets_in_after_a_wrong_one() {
    let server = OurServer::start(with_password);
    for method in ["password", "keyboard-interactive"] {
        let script = Script::new(&["wrong", "secret"]);
        let preferred = format!("PreferredAuthentications={method}");
        run(async {
            let host = host(&server.folder, server.port, &[&preferred]);
            try_login(&host, &context(&script)).await.unwrap();
        });
        assert!(script.answers.lock().unwrap().is_empty());
        let seen = script.seen();
        assert!(seen.contains("denied, please try again"), "{seen}");
        assert!(seen.ends_with("assword: "), "{seen:?}");
    }
    let log = server.log.0.lock().unwrap().join("\n");
    assert!(log.contains("refused password") && log.contains("accepted password"));
    assert!(!log.contains("secret") && !log.contains("wrong"), "{log}");
}

#[test]
fn a_refused_login_names_what_was_tried_and_what_the_server_takes() {
    let server = OurServer::start(with_password);
    let script = Script::new(&["wrong", "wrong", "wrong"]);
    let error = run(async {
        let options = ["PreferredAuthentications=publickey,password"];
        let host = host(&server.folder, server.port, &options);
        try_login(&host, &context(&script)).await.unwrap_err()
    });
    let text = error.to_string();
    for part in [
        "Permission denied",
        "publickey",
        "/user",
        "password (3 times)",
    ] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
}

#[test]
fn a_question_that_nobody_answers_is_told() {
    let server = OurServer::start(with_password);
    let error = run(async {
        let options = ["PreferredAuthentications=password"];
        let host = host(&server.folder, server.port, &options);
        let nobody = context(&Script::default());
        try_login(&host, &nobody).await.unwrap_err()
    });
    let text = error.to_string();
    assert!(text.contains("asked for and not given"), "{text}");
}

#[test]
fn a_key_that_stays_locked_says_why() {
    let server = OurServer::start(|_| {});
    let user = server.folder.file("user").display().to_string();
    ssh_keygen(&["-q", "-p", "-P", "", "-N", "right", "-f", &user]);
    for (answers, option, expected) in [
        (&["wrong"; 3][..], "BatchMode=no", "user (wrong passphrase)"),
        (&[], "BatchMode=no", "user (its passphrase was asked for"),
        (&[], "BatchMode=yes", "user (its passphrase is not asked"),
    ] {
        let error = run(async {
            let host = host(&server.folder, server.port, &[option]);
            let context = context(&Script::new(answers));
            try_login(&host, &context).await.unwrap_err()
        });
        let text = error.to_string();
        assert!(text.contains(expected), "{expected:?} is missing: {text}");
    }
}

#[test]
fn a_login_that_ends_after_too_many_keys_says_how_to_name_one() {
    let server = OurServer::start(|_| {});
    let keys: Vec<String> = (0..20)
        .map(|i| {
            make_key(&server.folder, &format!("wrong{i}"));
            let file = server.folder.file(&format!("wrong{i}"));
            format!("IdentityFile={}", file.display())
        })
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let error = run(async {
        let host = host(&server.folder, server.port, &keys);
        let context = context(&Script::default());
        try_login(&host, &context).await.unwrap_err()
    });
    let text = error.to_string();
    for part in ["wrong0", "-i", "-o IdentitiesOnly=yes"] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
}

#[test]
fn what_is_no_ssh_server_is_said_to_be_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 ftp ready\r\n").unwrap();
    });
    let folder = Folder::new("no-ssh");
    let error = run(async {
        let host = host(&folder, port, &[]);
        let context = context(&Script::default());
        try_login(&host, &context).await.unwrap_err()
    });
    let text = error.to_string();
    assert!(text.contains("is the port right?"), "{text}");
}

#[test]
fn a_proxy_command_that_ends_is_named() {
    let folder = Folder::new("proxy");
    let error = run(async {
        let host = host(&folder, 22, &["ProxyCommand=false"]);
        let context = context(&Script::default());
        try_login(&host, &context).await.unwrap_err()
    });
    let text = error.to_string();
    assert!(text.contains("through its ProxyCommand"), "{text}");
}

#[test]
fn nobody_is_asked_under_batch_mode() {
    let server = OurServer::start(with_password);
    let script = Script::new(&["secret"]);
    let error = run(async {
        let host = host(&server.folder, server.port, &["BatchMode=yes"]);
        try_login(&host, &context(&script)).await.unwrap_err()
    });
    assert!(error.to_string().contains("BatchMode"), "{error}");
    assert_eq!(script.answers.lock().unwrap().len(), 1);
}

#[test]
fn only_the_named_user_gets_in() {
    let server = OurServer::start(|options| options.user = Some("me".to_owned()));
    run(async {
        let context = context(&Script::default());
        let right = host(&server.folder, server.port, &["User=me"]);
        try_login(&right, &context).await.unwrap();
        let wrong = host(&server.folder, server.port, &["User=you"]);
        let error = try_login(&wrong, &context).await.unwrap_err();
        assert!(error.to_string().contains("Permission denied"), "{error}");
    });
}

#[test]
fn an_unknown_host_is_asked_about_once() {
    let server = OurServer::start(|_| {});
    run(async {
        let ask = ["StrictHostKeyChecking=ask"];
        let host = host(&server.folder, server.port, &ask);
        let refusing = Script::new(&["no"]);
        let error = try_login(&host, &context(&refusing)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("not confirmed"), "{text}");
        assert!(text.contains("StrictHostKeyChecking=accept-new"), "{text}");

        let agreeing = Script::new(&["yes"]);
        try_login(&host, &context(&agreeing)).await.unwrap();
        assert!(agreeing.seen().contains("SHA256:"), "{}", agreeing.seen());

        let silent = Script::default();
        try_login(&host, &context(&silent)).await.unwrap();
        assert_eq!(silent.seen(), "");
    });
}

#[test]
fn an_unknown_host_is_refused_where_checking_is_strict() {
    let server = OurServer::start(|_| {});
    run(async {
        let strict = ["StrictHostKeyChecking=yes"];
        let host = host(&server.folder, server.port, &strict);
        let error = try_login(&host, &context(&Script::default())).await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains("No ED25519 host key is known"), "{text}");
    });
}

#[test]
fn a_changed_host_key_is_refused_and_explained() {
    let server = OurServer::start(|_| {});
    let other = make_key(&server.folder, "other");
    let line = format!("[127.0.0.1]:{} {other}\n", server.port);
    let known_hosts = server.folder.write("known_hosts", line.as_bytes());
    run(async {
        let host = host(&server.folder, server.port, &[]);
        let error = try_login(&host, &context(&Script::default())).await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains("HAS CHANGED"), "{text}");
        assert!(text.contains("ssh-keygen -f"), "{text}");
    });
    assert_eq!(fs::read_to_string(known_hosts).unwrap(), line);
}

#[test]
fn without_checking_a_changed_host_gets_keys_but_no_password() {
    let server = OurServer::start(|options| {
        options.password = Some(PasswordHash::parse(HASH).unwrap());
    });
    let other = make_key(&server.folder, "other");
    let line = format!("[127.0.0.1]:{} {other}\n", server.port);
    server.folder.write("known_hosts", line.as_bytes());
    run(async {
        let off = ["StrictHostKeyChecking=no"];
        let host_off = host(&server.folder, server.port, &off);
        let script = Script::default();
        try_login(&host_off, &context(&script)).await.unwrap();
        assert!(script.seen().contains("HAS CHANGED"), "{}", script.seen());

        fs::write(server.folder.file("authorized_keys"), "").unwrap();
        let script = Script::new(&["secret"]);
        let error = try_login(&host_off, &context(&script)).await.unwrap_err();
        assert!(error.to_string().contains("Permission denied"), "{error}");
        assert_eq!(script.answers.lock().unwrap().len(), 1);
    });
}

#[test]
fn a_hash_that_was_made_here_works() {
    let hash = PasswordHash::make(&Secret::new(b"pw".to_vec()), &mut SystemRandom::new());
    let hash = PasswordHash::parse(&hash.to_string()).unwrap();
    assert!(hash.is_of(&Secret::new(b"pw".to_vec())));
}

#[test]
fn who_does_not_log_in_is_shown_out() {
    let server = OurServer::start(|options| options.login_grace = Duration::from_millis(50));
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let mut said = Vec::new();
    // The end comes without a word from here.
    let _ = stream.read_to_end(&mut said);
    assert!(said.starts_with(b"SSH-2.0-fullbore"));
}

#[test]
fn one_source_cannot_take_all_places() {
    let server = OurServer::start(|options| options.gate.unauthenticated_per_source_max = 2);
    let connect = || {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let mut said = [0; 4];
        stream.read_exact(&mut said).unwrap();
        (stream, said)
    };
    let inside = [connect(), connect()];
    assert!(inside.iter().all(|(_, said)| said == b"SSH-"));
    let (mut stream, said) = connect();
    assert_eq!(&said, b"Not ");
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest);
    assert!(rest.contains("too many connections"), "{rest}");
}

#[test]
fn a_flood_that_is_turned_away_does_not_flood_the_log() {
    let mut server = OurServer::start(|options| options.gate.unauthenticated_per_source_max = 1);
    let connect = || {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let mut said = [0; 4];
        stream.read_exact(&mut said).unwrap();
        (stream, said)
    };
    let (_inside, said) = connect();
    assert_eq!(&said, b"SSH-");
    for _ in 0..50 {
        assert_eq!(&connect().1, b"Not ");
    }
    server.begin_stop();
    server.stop();
    let log = server.log.0.lock().unwrap().join("\n");
    assert_eq!(log.matches(": turned away: ").count(), 20, "{log}");
    assert!(log.contains("30 more connections turned away"), "{log}");
}

#[test]
fn a_server_that_is_not_there_is_named_with_the_reason() {
    let folder = support::Folder::new("nobody");
    let port = fullbore_testkit::free_port();
    make_key(&folder, "user");
    run(async {
        let host = host(&folder, port, &[]);
        let error = connect(&host, &context(&Script::default()))
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("127.0.0.1") && text.contains(&port.to_string()),
            "{text}"
        );
        assert!(text.contains("refused"), "{text}");
    });
}

#[test]
fn a_server_that_speaks_no_ssh_is_told_apart() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let speaker = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
    });
    let folder = support::Folder::new("mail");
    make_key(&folder, "user");
    run(async {
        let host = host(&folder, port, &[]);
        let error = connect(&host, &context(&Script::default()))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
    });
    speaker.join().unwrap();
}
