//! Which host keys are believed and remembered, against a real sshd. Passed over where none is
//! installed.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::fs;

use fullbore::client::connect;
use support::{Folder, Script, Sshd, context, host, make_key, run, start_sshd, start_sshd_with};

/// An sshd with a second host key, which the client's order does not choose.
fn with_two_keys() -> Option<(Sshd, Folder)> {
    let keys = Folder::new("keys");
    let second = keys.file("second");
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "ecdsa", "-N", "", "-f"])
        .arg(&second)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return None;
    }
    let sshd = start_sshd_with(&with_key(&second))?;
    Some((sshd, keys))
}

fn with_key(path: &std::path::Path) -> String {
    format!("Subsystem sftp internal-sftp\nHostKey {}", path.display())
}

fn known_lines(sshd: &Sshd) -> usize {
    let text = fs::read_to_string(sshd.folder.file("known_hosts")).unwrap_or_default();
    text.lines().count()
}

/// Connects, and asks the server things until it must have proved its keys, and then some.
fn lines_after(sshd: &Sshd, answers: &[&'static str], options: &[&str], wanted: usize) -> usize {
    run(async {
        let script = Script::new(answers);
        let host = host(&sshd.folder, sshd.port, options);
        let sftp = connect(&host, &context(&script)).await.unwrap();
        // What is to come does, however busy the machine; for what is not to come, that is long enough.
        let most = if wanted == 2 { 100_000 } else { 200 };
        for _ in 0..most {
            sftp.realpath(b".").await.unwrap();
            if known_lines(sshd) == wanted && wanted > 1 {
                break;
            }
            tokio::task::yield_now().await;
        }
        sftp.connection().close().await;
        known_lines(sshd)
    })
}

#[test]
fn further_keys_of_a_known_host_are_remembered_when_that_is_wanted() {
    let Some((sshd, _keys)) = with_two_keys() else {
        return;
    };
    // The test's own UserKnownHostsFile: off, as in OpenSSH.
    assert_eq!(lines_after(&sshd, &[], &[], 1), 1);
    assert_eq!(lines_after(&sshd, &[], &["UpdateHostKeys=no"], 1), 1);
    assert_eq!(lines_after(&sshd, &["no"], &["UpdateHostKeys=ask"], 1), 1);
    assert_eq!(lines_after(&sshd, &["yes"], &["UpdateHostKeys=ask"], 2), 2);
    // And no key twice.
    assert_eq!(lines_after(&sshd, &[], &["UpdateHostKeys=yes"], 3), 2);
    // What was learned is good for a connection that demands it.
    let options = [
        "HostKeyAlgorithms=ecdsa-sha2-nistp256",
        "StrictHostKeyChecking=yes",
    ];
    assert_eq!(lines_after(&sshd, &[], &options, 1), 2);
}

#[test]
fn keys_of_a_host_that_is_not_in_the_users_file_are_not_remembered() {
    let Some((sshd, _keys)) = with_two_keys() else {
        return;
    };
    assert_eq!(lines_after(&sshd, &[], &[], 1), 1);
    let global = sshd.folder.file("global");
    fs::rename(sshd.folder.file("known_hosts"), &global).unwrap();
    let files = format!("GlobalKnownHostsFile={}", global.display());
    assert_eq!(
        lines_after(&sshd, &[], &[&files, "UpdateHostKeys=yes"], 0),
        0
    );
}

#[test]
fn revoked_host_keys_are_refused_and_so_are_lists_that_cannot_be_read() {
    let Some(sshd) = start_sshd() else {
        return;
    };
    let key = fs::read_to_string(sshd.folder.file("host.pub")).unwrap();
    let other = make_key(&sshd.folder, "other");
    for (content, said) in [
        (format!("# lost\n{key}\n"), "revoked by"),
        ("SSHKRL\n\0rest".to_owned(), "is a KRL"),
        (format!("{other}\n"), ""),
    ] {
        let list = sshd.folder.write("revoked", content.as_bytes());
        let option = format!("RevokedHostKeys={}", list.display());
        let failure = failure(&sshd, &[&option]);
        assert_eq!(failure.is_empty(), said.is_empty(), "{failure}");
        assert!(failure.contains(said), "{failure}");
    }
    let failure = failure(&sshd, &["RevokedHostKeys=/nowhere/at/all"]);
    assert!(
        failure.contains("No such file or directory. No host key"),
        "{failure}"
    );
}

#[test]
fn short_rsa_keys_are_refused_on_both_sides() {
    let keys = Folder::new("rsa");
    let path = keys.file("rsa");
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f"])
        .arg(&path)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return;
    }
    let Some(sshd) = start_sshd_with(&with_key(&path)) else {
        return;
    };
    let host_key = ["HostKeyAlgorithms=rsa-sha2-512", "RequiredRSASize=3072"];
    let said = failure(&sshd, &host_key);
    assert!(
        said.contains("2048 bits, fewer than RequiredRSASize (3072)"),
        "{said}"
    );
    // The other key would do.
    sshd.folder.write("authorized_keys", b"");
    let user_key = format!("IdentityFile={}", path.display());
    let said = failure(&sshd, &[&user_key, "RequiredRSASize=3072"]);
    assert!(
        said.contains("rsa: not used, because it has 2048 bits"),
        "{said}"
    );
}

/// Why there is no connection; empty if there is.
fn failure(sshd: &Sshd, options: &[&str]) -> String {
    run(async {
        let host = host(&sshd.folder, sshd.port, options);
        match connect(&host, &context(&Script::default())).await {
            Ok(sftp) => {
                sftp.connection().close().await;
                String::new()
            }
            Err(error) => error.to_string(),
        }
    })
}

#[test]
fn whoever_does_not_trust_a_key_is_asked_once_even_if_the_server_is_remembered() {
    let Some(sshd) = start_sshd() else {
        return;
    };
    let memory = format!("RememberedServersFile={}", sshd.folder.at("servers"));
    let options = [memory.as_str(), "StrictHostKeyChecking=ask"];
    run(async {
        let host = host(&sshd.folder, sshd.port, &options);
        let sftp = connect(&host, &context(&Script::new(&["yes"]))).await;
        sftp.unwrap().connection().close().await;
        assert!(sshd.folder.file("servers").exists());
        fs::remove_file(sshd.folder.file("known_hosts")).unwrap();
        let script = Script::new(&["no", "no"]);
        let error = connect(&host, &context(&script)).await.unwrap_err();
        assert_eq!(script.answers.lock().unwrap().len(), 1, "{error}");
    });
}
