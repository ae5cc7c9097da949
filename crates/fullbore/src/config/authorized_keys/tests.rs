use fullbore_testkit::{Folder, ssh_keygen};

use super::*;

fn key(byte: u8) -> Vec<u8> {
    let mut blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20".to_vec();
    blob.extend([byte; 32]);
    blob
}

fn line(options: &str, byte: u8) -> String {
    let blob = text::base64_encode(&key(byte));
    format!("{options} ssh-ed25519 {blob} a comment with blanks\n")
}

fn login() -> Login<'static> {
    Login {
        user: b"me",
        address: Some(IpAddr::from([10, 1, 2, 3])),
        host_name: Some(b"peer.example.org"),
        now_unix: 1_750_000_000,
        utc_offset_seconds: 0,
    }
}

fn check(content: &str, byte: u8) -> Result<Grant, Refusal> {
    AuthorizedKeys::parse(content.as_bytes()).check(&login(), Credential::Key(&key(byte)))
}

#[test]
fn a_listed_key_gets_in_and_another_does_not() {
    let content = format!("# note\n\n{}{}", line("", 1), line("restrict", 2));
    assert_eq!(check(&content, 1).map(|g| g.line), Ok(3));
    assert_eq!(check(&content, 2).map(|g| g.line), Ok(4));
    assert_eq!(check(&content, 3), Err(Refusal::NotListed));
}

#[test]
fn options_that_are_understood() {
    for options in [
        "restrict,pty,no-pty,NO-X11-FORWARDING,agent-forwarding,user-rc,port-forwarding",
        "environment=\"A=b c\",permitopen=\"h:1\",permitlisten=\"1\",tunnel=\"0\"",
        "from=\"10.0.0.0/8,*.example.org\"",
        "from=\"!10.1.2.4,10.1.2.*\"",
        "expiry-time=\"20300101\"",
        "command=\"internal-sftp -R\",restrict",
        "command=\"/usr/lib/openssh/sftp-server\"",
        "no-touch-required,verify-required",
        "principals=\"a\"",
    ] {
        assert!(
            check(&line(options, 1), 1).is_ok(),
            "{options}: {:?}",
            check(&line(options, 1), 1)
        );
    }
}

#[test]
fn options_that_keep_a_key_out() {
    let cases = [
        ("from=\"11.0.0.0/8\"", Refusal::From { line: 1 }),
        ("from=\"!10.1.2.3,*\"", Refusal::From { line: 1 }),
        ("from=\"*,!*.example.org\"", Refusal::From { line: 1 }),
        ("expiry-time=\"20200101\"", Refusal::Expired { line: 1 }),
        (
            "expiry-time=\"20300101\",expiry-time=\"20200101Z\"",
            Refusal::Expired { line: 1 },
        ),
        ("command=\"/bin/sh\"", Refusal::Command { line: 1 }),
        ("command=\"fullbore serve\"", Refusal::Command { line: 1 }),
        ("cert-authority", Refusal::NotListed),
        // Not understood: the line lets nobody in.
        ("frobnicate", Refusal::NotListed),
        ("from", Refusal::NotListed),
        ("from=10.0.0.0/8", Refusal::NotListed),
        ("from=\"10.0.0.1/8\"", Refusal::NotListed),
        ("from=\"*\",from=\"*\"", Refusal::NotListed),
        ("command=\"internal-sftp", Refusal::NotListed),
        ("restrict,", Refusal::NotListed),
        ("restrict,,pty", Refusal::NotListed),
        ("command=\"internal-sftp\"pty", Refusal::NotListed),
        ("expiry-time=\"tomorrow\"", Refusal::NotListed),
        ("restrict pty", Refusal::NotListed),
    ];
    for (options, refusal) in cases {
        assert_eq!(check(&line(options, 1), 1), Err(refusal), "{options}");
    }
}

#[test]
fn a_later_line_may_allow_what_an_earlier_one_refuses() {
    let content = line("from=\"1.2.3.4\"", 1) + &line("from=\"10.1.2.3\"", 1);
    assert_eq!(check(&content, 1).map(|g| g.line), Ok(2));
}

#[test]
fn no_address_fails_from() {
    let keys = AuthorizedKeys::parse(line("from=\"*\"", 1).as_bytes());
    let login = Login {
        address: None,
        ..login()
    };
    assert_eq!(
        keys.check(&login, Credential::Key(&key(1))),
        Err(Refusal::From { line: 1 })
    );
}

#[test]
fn quotes_and_blanks_in_values() {
    let entry = |text: &str| {
        Entry::parse(text.as_bytes())
            .expect("parses")
            .expect("a key")
            .options
    };
    let options = entry(&line(
        "command=\"internal-sftp -d \\\"/a b\\\"\",from=\"* \"",
        1,
    ));
    assert_eq!(
        options.command.as_deref(),
        Some(b"internal-sftp -d \"/a b\"".as_slice())
    );
    let command = SftpCommand::parse(b"fullbore sftp-server -R -d \"/a b\"").expect("ours");
    assert_eq!(
        command.arguments,
        [b"-R".to_vec(), b"-d".to_vec(), b"/a b".to_vec()]
    );
}

#[test]
fn malformed_lines_are_noted() {
    let long = "x".repeat(crate::config::LINE_BYTES_MAX + 1);
    let content = format!(
        "ssh-ed25519\nssh-ed25519 AAAA\n{long}\n1024 35 1234 old\n\"\n{}",
        line("", 1)
    );
    let keys = AuthorizedKeys::parse(content.as_bytes());
    assert_eq!(keys.warnings.len(), 5, "{:?}", keys.warnings);
    assert_eq!(keys.entries().len(), 1);
}

#[test]
fn certificates_need_their_authority_and_a_principal() {
    let folder = Folder::new("user-cert");
    let at = |name: &str| folder.at(name);
    for name in ["ca", "user"] {
        ssh_keygen(&["-q", "-t", "ed25519", "-N", "", "-f", &at(name)]);
    }
    let certificate = |options: &[&str]| {
        let ca = at("ca");
        let public = at("user.pub");
        let mut arguments = vec!["-q", "-s", &ca, "-I", "id", "-V", "20200101:20300101"];
        arguments.extend(options);
        arguments.push(&public);
        ssh_keygen(&arguments);
        let text = std::fs::read(at("user-cert.pub")).expect("ssh-keygen made it");
        Certificate::from_line(&text).expect("a certificate")
    };
    let ca = std::fs::read_to_string(at("ca.pub")).expect("ssh-keygen made it");
    let verdict = |options: &str, certificate: &Certificate| {
        let content = format!("{options} {ca}");
        AuthorizedKeys::parse(content.as_bytes())
            .check(&login(), Credential::Certificate(certificate))
    };
    let mine = certificate(&["-n", "me,ops"]);
    assert!(verdict("cert-authority", &mine).is_ok());
    assert_eq!(verdict("", &mine), Err(Refusal::NotListed));
    assert!(verdict("cert-authority,principals=\"x,ops\"", &mine).is_ok());
    assert!(matches!(
        verdict("cert-authority,principals=\"x\"", &mine),
        Err(Refusal::Certificate { line: 1, .. })
    ));
    assert!(matches!(
        verdict("cert-authority", &certificate(&["-n", "you"])),
        Err(Refusal::Certificate { .. })
    ));
    let forced = certificate(&["-n", "me", "-O", "force-command=internal-sftp -R"]);
    let command = verdict("cert-authority", &forced)
        .expect("allowed")
        .command
        .expect("forced");
    assert_eq!(command.arguments, [b"-R".to_vec()]);
    assert_eq!(
        verdict("cert-authority,command=\"internal-sftp\"", &forced),
        Err(Refusal::Command { line: 1 })
    );
    let elsewhere = certificate(&["-n", "me", "-O", "source-address=11.0.0.0/8"]);
    assert!(matches!(
        verdict("cert-authority", &elsewhere),
        Err(Refusal::Certificate { .. })
    ));
}
