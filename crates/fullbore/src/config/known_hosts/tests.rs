use std::path::Path;
use std::process::Command;

use fullbore_testkit::Folder;

use super::*;
use crate::config::fake::Fake;

const ED_A: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJyHkYmxMdZ0M5KcC4Y6mZyH5m0GzqvKp2Xj1oVw0Qd3";

/// A made-up ed25519 key: 32 bytes of one value.
fn key(byte: u8) -> Vec<u8> {
    let mut blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20".to_vec();
    blob.extend([byte; 32]);
    blob
}

fn line(hosts: &str, blob: &[u8]) -> String {
    new_line(hosts, None, blob) + "\n"
}

fn known(content: &str) -> KnownHosts {
    let mut known = KnownHosts::default();
    known.add(Path::new("/kh"), content.as_bytes());
    known
}

fn check(known: &KnownHosts, host: &str, port: u16, blob: &[u8]) -> Verdict {
    known.check(&HostName::new(host, port, None), Offer::Key(blob), 0)
}

fn trusted(line: usize) -> Verdict {
    Verdict::Trusted {
        file: PathBuf::from("/kh"),
        line,
    }
}

#[test]
fn plain_patterns_negation_and_case() {
    let text = line("*.example.com,!bad.example.com", &key(1)) + &line("H", &key(2));
    let known = known(&text);
    assert_eq!(check(&known, "A.Example.com", 22, &key(1)), trusted(1));
    assert_eq!(
        check(&known, "bad.example.com", 22, &key(1)),
        Verdict::Unknown
    );
    assert_eq!(check(&known, "h", 22, &key(2)), trusted(2));
    assert_eq!(check(&known, "other", 22, &key(2)), Verdict::Unknown);
}

#[test]
fn a_port_has_its_own_entry_and_falls_back_to_the_plain_name() {
    let text = line("[h]:2222", &key(1)) + &line("h", &key(2));
    let known = known(&text);
    assert_eq!(check(&known, "h", 2222, &key(1)), trusted(1));
    // Known by another key under this port: no falling back.
    assert!(matches!(
        check(&known, "h", 2222, &key(2)),
        Verdict::Changed(_)
    ));
    assert_eq!(check(&known, "h", 2223, &key(2)), trusted(2));
    assert_eq!(check(&known, "h", 2223, &key(3)), Verdict::Unknown);
    assert!(matches!(
        check(&known, "h", 22, &key(1)),
        Verdict::Changed(_)
    ));
}

#[test]
fn a_changed_key_names_every_line() {
    let known = known(&(line("h", &key(1)) + "# note\n" + &line("h", &key(2))));
    let Verdict::Changed(conflicts) = check(&known, "h", 22, &key(3)) else {
        panic!("the key is another one");
    };
    let lines: Vec<_> = conflicts.iter().map(|c| c.line).collect();
    assert_eq!(lines, [1, 3]);
    assert!(conflicts[0].fingerprint.starts_with("SHA256:"));
    assert_eq!(check(&known, "h", 22, &key(2)), trusted(3));
}

#[test]
fn revocation_wins_over_trust_and_only_for_its_hosts() {
    let known = known(
        &(line("h", &key(1))
            + "@revoked h "
            + line("x", &key(1)).split_once(' ').expect("two words").1),
    );
    let revoked = Verdict::Revoked {
        file: PathBuf::from("/kh"),
        line: 2,
    };
    assert_eq!(check(&known, "h", 22, &key(1)), revoked);
    assert_eq!(check(&known, "i", 22, &key(1)), Verdict::Unknown);
}

#[test]
fn an_alias_stands_for_name_and_port() {
    let known = known(&line("alias", &key(1)));
    let name = HostName::new("h", 2222, Some("Alias"));
    assert_eq!(known.check(&name, Offer::Key(&key(1)), 0), trusted(1));
}

#[test]
fn malformed_lines_are_noted_and_passed_over() {
    let long = "x".repeat(super::super::LINE_BYTES_MAX + 1);
    let text = format!(
        "h\nh ssh-ed25519\nh ssh-ed25519 !!!!\n@what h {ED_A}\n|1|a|b {ED_A}\n{long}\nh ssh-rsa {}\n\n  # c\n{}",
        ED_A.split_once(' ').expect("two words").1,
        line("h", &key(9))
    );
    let known = known(&text);
    assert_eq!(known.entries.len(), 1);
    assert_eq!(known.warnings.len(), 7, "{:?}", known.warnings);
    assert_eq!(check(&known, "h", 22, &key(9)), trusted(10));
}

#[test]
fn a_new_host_is_appended_and_then_trusted() {
    for hash in [false, true] {
        let fake = Fake::new(&[("/home/me/.ssh/known_hosts", "# no newline at the end")]);
        let file = PathBuf::from("/home/me/.ssh/known_hosts");
        remember(&fake, &file, "[h]:2222", &key(1), hash).expect("memory takes it");
        let known = KnownHosts::load(&fake, [&file]);
        let content = fake.files.borrow()[&file].clone();
        assert_eq!(content.windows(3).any(|w| w == b"|1|"), hash);
        let verdict = check(&known, "h", 2222, &key(1));
        assert_eq!(verdict, Verdict::Trusted { file, line: 2 });
    }
}

#[test]
fn known_types_go_first() {
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let all = names(&[
        "ssh-ed25519-cert-v01@openssh.com",
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "rsa-sha2-512",
        "rsa-sha2-256",
    ]);
    let ordered = |keys: &[&str], has_authority| {
        order_host_key_algorithms(
            &all,
            &KnownTypes {
                keys: names(keys),
                has_authority,
            },
        )
    };
    assert_eq!(ordered(&[], false), all);
    assert_eq!(ordered(&[], true), all);
    assert_eq!(ordered(&["ssh-ed25519"], false)[0], "ssh-ed25519");
    assert_eq!(
        ordered(&["ssh-rsa"], false)[..2],
        names(&["rsa-sha2-512", "rsa-sha2-256"])
    );
    assert_eq!(
        ordered(&["ssh-rsa", "ecdsa-sha2-nistp256"], false)[..3],
        names(&["ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256"])
    );
}

fn ssh_keygen(arguments: &[&str]) -> std::process::Output {
    Command::new("ssh-keygen")
        .args(arguments)
        .output()
        .expect("this test compares with OpenSSH: install ssh-keygen")
}

#[test]
fn lookups_agree_with_ssh_keygen() {
    let folder = Folder::new("known-hosts");
    let file = folder.0.join("known_hosts");
    let content = line("plain,*.wild.example,!not.wild.example", &key(1))
        + &line("[ported]:2222", &key(2))
        + &new_line("hashed", Some([3; 20]), &key(3))
        + "\n"
        + &new_line("[hashed]:2222", Some([4; 20]), &key(4))
        + "\n";
    std::fs::write(&file, &content).expect("a file for the test");
    let path = file.to_str().expect("the folder's name is ASCII");
    for name in [
        "plain",
        "a.wild.example",
        "not.wild.example",
        "[ported]:2222",
        "ported",
        "hashed",
        "[hashed]:2222",
        "[hashed]:22",
        "none",
    ] {
        let output = ssh_keygen(&["-F", name, "-f", path]);
        let found = known(&content).entries_for(name).count() > 0;
        assert_eq!(output.status.success(), found, "{name}");
    }
}

#[test]
fn names_hashed_by_ssh_keygen_are_found() {
    let folder = Folder::new("known-hosts-h");
    let file = folder.0.join("known_hosts");
    std::fs::write(&file, line("one,[two]:2222", &key(1))).expect("a file for the test");
    let path = file.to_str().expect("the folder's name is ASCII");
    assert!(ssh_keygen(&["-H", "-f", path]).status.success());
    let hashed = std::fs::read_to_string(&file).expect("ssh-keygen wrote it");
    assert!(hashed.starts_with("|1|"));
    let known = known(&hashed);
    assert!(matches!(
        check(&known, "one", 22, &key(1)),
        Verdict::Trusted { .. }
    ));
    assert!(matches!(
        check(&known, "two", 2222, &key(1)),
        Verdict::Trusted { .. }
    ));
    assert_eq!(check(&known, "three", 22, &key(1)), Verdict::Unknown);
}

#[test]
fn certificates_need_an_authority_for_the_host() {
    let folder = Folder::new("host-cert");
    let at = |name: &str| folder.at(name);
    for name in ["ca", "host"] {
        assert!(
            ssh_keygen(&["-q", "-t", "ed25519", "-N", "", "-f", &at(name)])
                .status
                .success()
        );
    }
    let signed = ssh_keygen(&[
        "-q",
        "-s",
        &at("ca"),
        "-I",
        "id",
        "-h",
        "-n",
        "h.example",
        "-V",
        "20200101:20300101",
        &at("host.pub"),
    ]);
    assert!(signed.status.success());
    let certificate = std::fs::read(at("host-cert.pub")).expect("ssh-keygen made it");
    let certificate = Certificate::from_line(&certificate).expect("a certificate");
    let ca = std::fs::read_to_string(at("ca.pub")).expect("ssh-keygen made it");
    let now = 1_750_000_000;
    let verdict = |text: &str, host: &str, now| {
        let name = HostName::new(host, 22, None);
        known(text).check(&name, Offer::Certificate(&certificate), now)
    };
    let authority = format!("@cert-authority *.example {ca}");
    assert!(matches!(
        verdict(&authority, "h.example", now),
        Verdict::TrustedByAuthority { line: 1, .. }
    ));
    assert!(matches!(
        verdict(&authority, "i.example", now),
        Verdict::BadCertificate(CertificateError::WrongPrincipal(_))
    ));
    assert!(matches!(
        verdict(&authority, "h.example", 2_000_000_000),
        Verdict::BadCertificate(CertificateError::Expired(_))
    ));
    assert_eq!(verdict(&authority, "elsewhere", now), Verdict::Unknown);
    assert_eq!(
        verdict(&format!("h.example {ca}"), "x.example", now),
        Verdict::Unknown
    );
    let revoked = format!("{authority}\n@revoked * {ca}");
    assert!(matches!(
        verdict(&revoked, "h.example", now),
        Verdict::Revoked { .. }
    ));
    // No authority, but its plain key is known.
    let plain = line("h.example", &certificate.key().to_blob());
    assert_eq!(verdict(&plain, "h.example", now), trusted(1));
}

use fullbore_ssh::cert::{Certificate, CertificateError};
