//! The client against a real sshd. Passed over where none is installed.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use fullbore::client::{Context, connect, connect_with};
use fullbore::config::ssh_config::ConfigFile;
use fullbore_testkit::{free_port, pass_over};
use support::{
    Folder, OurServer, SIZES, Script, bytes, context, host, make_key, round_trip, run, start_sshd,
    start_sshd_with,
};

#[test]
fn files_of_all_sizes_come_back_as_they_went() {
    let Some(sshd) = start_sshd() else { return };
    run(async {
        let script = Script::default();
        let host = host(&sshd.folder, sshd.port, &[]);
        let sftp = connect(&host, &context(&script)).await.unwrap();
        let seen = sshd.folder.file("there");
        for len in SIZES {
            let there = seen.to_str().unwrap();
            round_trip(&sftp, &sshd.folder, there, &seen, &bytes(len)).await;
        }
        sftp.connection().close().await;
        assert!(
            script.seen().contains("Permanently added"),
            "{}",
            script.seen()
        );
    });
}

/// A configuration file for hosts passed through: the key and known_hosts of `folder`.
fn jump_config(folder: &Folder) -> ConfigFile {
    let dir = folder.0.display();
    let text = format!(
        "Host *\n  IdentityFile {dir}/user\n  IdentityAgent none\n  \
         UserKnownHostsFile {dir}/known_hosts\n  GlobalKnownHostsFile none\n  RememberedServersFile none\n  \
         StrictHostKeyChecking accept-new\n"
    );
    ConfigFile::Only(folder.write("config", text.as_bytes()))
}

/// Lets the key of `folder` into `other` as well.
fn let_in(folder: &Folder, other: &Folder) {
    let key = fs::read(folder.file("user.pub")).unwrap();
    other.write("authorized_keys", &key);
}

#[test]
fn a_chain_of_jumps_leads_to_the_host() {
    let Some(first) = start_sshd() else { return };
    let second = start_sshd().unwrap();
    let last = OurServer::start(|_| {});
    let_in(&first.folder, &second.folder);
    let_in(&first.folder, &last.folder);
    run(async {
        let jumps = format!(
            "ProxyJump=127.0.0.1:{},127.0.0.1:{}",
            first.port, second.port
        );
        let host = host(&first.folder, last.port, &[&jumps, "LogLevel=VERBOSE"]);
        let script = Script::default();
        let context = Context {
            config_file: jump_config(&first.folder),
            ..context(&script)
        };
        let sftp = connect(&host, &context).await.unwrap();
        // Who wants to know more is told of the whole way.
        assert_eq!(script.seen().matches("logged in with").count(), 3);
        let seen = last.folder.file("root/there");
        round_trip(&sftp, &first.folder, "there", &seen, &bytes(3 << 20)).await;
        // All three connections go with the last handle.
        sftp.connection().close().await;
    });
}

#[test]
fn a_jump_that_cannot_go_on_says_so() {
    let Some(first) = start_sshd() else { return };
    let port = free_port();
    run(async {
        let jumps = format!("ProxyJump=127.0.0.1:{}", first.port);
        let host = host(&first.folder, port, &[&jumps]);
        let context = Context {
            config_file: jump_config(&first.folder),
            ..context(&Script::default())
        };
        let error = connect(&host, &context).await.unwrap_err().to_string();
        assert!(error.contains("does not connect on"), "{error}");
        assert!(error.contains(&port.to_string()), "{error}");
    });
}

#[test]
fn a_proxy_command_carries_a_connection() {
    let Some(first) = start_sshd() else { return };
    let last = OurServer::start(|_| {});
    let_in(&first.folder, &last.folder);
    run(async {
        let dir = first.folder.0.display();
        let command = format!(
            "ProxyCommand=ssh -F none -i {dir}/user -p {} -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -W %h:%p 127.0.0.1",
            first.port
        );
        let host = host(&first.folder, last.port, &[&command]);
        let sftp = connect(&host, &context(&Script::default())).await.unwrap();
        let seen = last.folder.file("root/there");
        round_trip(&sftp, &first.folder, "there", &seen, &bytes(3 << 20)).await;
        sftp.connection().close().await;
    });
}

#[test]
fn a_proxy_command_that_fails_ends_the_attempt() {
    let folder = Folder::new("proxy");
    make_key(&folder, "user");
    run(async {
        let host = host(&folder, 1, &["ProxyCommand=false"]);
        let error = connect(&host, &context(&Script::default())).await;
        assert!(error.unwrap_err().to_string().contains("127.0.0.1"));
    });
}

#[test]
fn commands_run_beside_the_session() {
    let Some(sshd) = start_sshd() else { return };
    run(async {
        let host = host(&sshd.folder, sshd.port, &[]);
        let sftp = connect(&host, &context(&Script::default())).await.unwrap();
        let output = sftp.exec(b"echo out; echo err >&2; exit 7").await.unwrap();
        assert_eq!(output.status, Some(7));
        assert_eq!(output.stdout, b"out\n");
        assert_eq!(output.stderr, b"err\n");
        let killed = sftp.exec(b"kill -9 $$").await.unwrap_err();
        assert!(killed.to_string().contains("KILL"), "{killed}");
        let long = sftp.exec(b"head -c 3000000 /dev/zero").await.unwrap();
        assert_eq!(long.stdout.len(), fullbore::client::ExecOutput::BYTES_MAX);
        sftp.stat(b".").await.unwrap();
    });
}

#[test]
fn a_server_without_sftp_is_told_apart() {
    let Some(sshd) = start_sshd_with("Subsystem other internal-sftp") else {
        return;
    };
    run(async {
        let host = host(&sshd.folder, sshd.port, &[]);
        let sftp = connect(&host, &context(&Script::default())).await.unwrap();
        let text = sftp.stat(b".").await.unwrap_err().to_string();
        assert!(text.contains("sftp"), "{text}");
    });
}

#[test]
fn an_sftp_server_that_dies_is_told_apart_from_its_connection() {
    let Some(sshd) = start_sshd_with("Subsystem sftp exit 4") else {
        return;
    };
    run(async {
        let host = host(&sshd.folder, sshd.port, &[]);
        let sftp = connect(&host, &context(&Script::default())).await.unwrap();
        let text = sftp.stat(b".").await.unwrap_err().to_string();
        assert!(text.contains("status 4"), "{text}");
        // The connection lives on, but nothing can be asked on this session.
        assert!(text.contains("SFTP server ended"), "{text}");
    });
}

#[test]
fn a_stopped_sftp_server_behind_a_living_sshd_is_noticed_and_named() {
    let Some(server) = ["/usr/lib/openssh/sftp-server", "/usr/libexec/sftp-server"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
    else {
        pass_over("OpenSSH's sftp-server");
        return;
    };
    // The server says who it is before it becomes the real one.
    let folder = Folder::new("stopped");
    let pid = folder.file("pid");
    let line = format!("Subsystem sftp echo $$ > {}; exec {server}", pid.display());
    let Some(sshd) = start_sshd_with(&line) else {
        return;
    };
    run(async {
        let host = host(&sshd.folder, sshd.port, &[]);
        let config = fullbore_sftp::client::Config {
            // The session's programs start within it, on a busy machine too.
            reply_timeout: std::time::Duration::from_secs(3),
            ..Default::default()
        };
        let context = context(&Script::default());
        let sftp = connect_with(&host, &context, config).await.unwrap();
        sftp.stat(b".").await.unwrap();
        let pid: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let error = sftp.stat(b".").await.unwrap_err().to_string();
        assert!(error.contains("SFTP server silent"), "{error}");
        // The connection lives: another session on it works.
        let output = sftp.exec(b"echo alive").await.unwrap();
        assert_eq!(output.stdout, b"alive\n");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    });
}

#[test]
fn an_encrypted_key_asks_for_its_passphrase() {
    let Some(sshd) = start_sshd() else { return };
    let encrypted = Command::new("ssh-keygen")
        .args(["-q", "-p", "-N", "open sesame", "-f"])
        .arg(sshd.folder.file("user"))
        .status()
        .unwrap();
    assert!(encrypted.success());
    run(async {
        let host = host(&sshd.folder, sshd.port, &[]);
        let script = Script::new(&["wrong", "open sesame"]);
        connect(&host, &context(&script)).await.unwrap();
        assert!(script.seen().contains("passphrase"), "{}", script.seen());
        assert!(script.answers.lock().unwrap().is_empty());
    });
}

#[test]
fn an_agent_signs() {
    let Some(sshd) = start_sshd() else { return };
    let socket = sshd.folder.file("agent");
    let mut agent = Command::new("ssh-agent")
        .args(["-D", "-a"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It says where it listens once it does.
    let mut line = String::new();
    let mut said = BufReader::new(agent.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let added = Command::new("ssh-add")
        .arg("-q")
        .arg(sshd.folder.file("user"))
        .env("SSH_AUTH_SOCK", &socket)
        .status()
        .unwrap();
    assert!(added.success());
    fs::remove_file(sshd.folder.file("user")).unwrap();
    run(async {
        let agent = format!("IdentityAgent={}", socket.display());
        let host = host(&sshd.folder, sshd.port, &[&agent]);
        connect(&host, &context(&Script::default())).await.unwrap();
    });
    agent.kill().unwrap();
    agent.wait().unwrap();
}
