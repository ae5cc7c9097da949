//! The program from outside: usage errors, help, exit codes, names it is called by.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

use fullbore_testkit::Folder;

fn fullbore(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fullbore"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn usage_errors_exit_with_1_and_say_why_on_stderr() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage:"),
        (&["frobnicate"], "frobnicate"),
        (&["cp"], "Usage: fullbore cp <SRC>... <DST>"),
        (&["cp", "only"], "<DST>"),
        (&["cp", "--frob", "a", "b"], "--frob"),
        (&["cp", "-P", "0", "a", "h:"], "0"),
        (&["cp", "-P", "x", "a", "h:"], "x"),
        (&["cp", "-l", "0", "a", "h:"], "0"),
        (&["cp", "-4", "-6", "a", "h:"], "cannot be used with"),
        (&["cp", ":x", "y"], "./:x"),
        (&["cp", "[::1:x", "y"], "]:"),
        (&["cp", "x", "sftp://h:99999/"], "99999"),
        (&["cp", "x", "https://h/"], "only sftp://"),
        (&["completions", "tcsh"], "tcsh"),
    ];
    for (arguments, said) in cases {
        let output = fullbore(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["help"],
        &["help", "cp"],
        &["cp", "--help"],
        &["sftp-server", "--help"],
        &["--version"],
    ] {
        let output = fullbore(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
    let version = text(&fullbore(&["--version"]).stdout);
    assert_eq!(version, format!("fullbore {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_shows_every_flag_and_examples() {
    let help = text(&fullbore(&["cp", "--help"]).stdout);
    for flag in [
        "-r",
        "-p",
        "-P",
        "-i",
        "-F",
        "-o",
        "-J",
        "-l",
        "-v",
        "-q",
        "-4",
        "-6",
        "-C",
        "-B",
        "-c",
        "--verify",
        "--json",
        "--no-resume",
        "--fsync",
        "--in-place",
        "Examples:",
        "Exit status:",
    ] {
        assert!(help.contains(flag), "{flag} is missing:\n{help}");
    }
    let help = text(&fullbore(&["serve", "--help"]).stdout);
    for flag in [
        "--listen",
        "--host-key",
        "--authorized-keys",
        "--user",
        "--root",
        "--read-only",
        "--config",
        "--password-hash",
        "--login-grace",
        "--connections-max",
        "--sessions-max",
        "--workers",
        "--quiet",
        "Examples:",
    ] {
        assert!(help.contains(flag), "{flag} is missing:\n{help}");
    }
    let help = text(&fullbore(&["--help"]).stdout);
    for command in [
        "cp",
        "serve",
        "sftp-server",
        "demo",
        "lab",
        "hash-password",
        "completions",
        "Examples:",
    ] {
        assert!(help.contains(command), "{command} is missing:\n{help}");
    }
}

#[test]
fn a_link_that_makes_no_sense_is_refused_before_anything_is_made() {
    for (wrong, why) in [
        (["--rate", "320"], "a rate ends in"),
        (["--rtt", "200"], "a time ends in"),
        (["--loss", "200%"], "at most 100%"),
        (["--queue", "1x"], "a size ends in"),
        (["--mtu", "100"], "--mtu is 576 to"),
        (["--seed", "x"], "--seed"),
    ] {
        let output = fullbore(&[&["lab", "link"], &wrong[..], &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(1), "{wrong:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(why), "{wrong:?}: {stderr}");
    }
    let stderr = text(&fullbore(&["lab", "link", "--rtt", "1ms"]).stderr);
    assert!(stderr.contains("<CMD>"), "{stderr}");
}

#[test]
fn a_configuration_that_cannot_be_read_exits_with_255() {
    let folder = Folder::new("config");
    std::fs::write(folder.at("config"), "Port 22\nFrobnicate yes\n").expect("written");
    let output = fullbore(&["cp", "-F", &folder.at("config"), "x", "h:"]);
    assert_eq!(output.status.code(), Some(255));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("config line 2") && stderr.contains("frobnicate"),
        "{stderr}"
    );
    assert_eq!(
        fullbore(&["cp", "-F", &folder.at("none"), "x", "h:"])
            .status
            .code(),
        Some(255)
    );
    assert_eq!(
        fullbore(&["cp", "-F", "none", "-o", "Frob=1", "x", "h:"])
            .status
            .code(),
        Some(255)
    );
}

#[test]
fn no_connection_exits_with_255_and_names_the_place() {
    // A port that was free a moment ago: nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let number = port.local_addr().expect("bound").port().to_string();
    drop(port);
    let output = fullbore(&[
        "cp",
        "-F",
        "none",
        "-B",
        "-P",
        &number,
        "/etc/hostname",
        "127.0.0.1:",
    ]);
    assert_eq!(output.status.code(), Some(255));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("127.0.0.1") && stderr.contains(&number),
        "{stderr}"
    );
    // A program that reads the events is told there, and of the end as always.
    let output = fullbore(&[
        "cp",
        "-F",
        "none",
        "--json",
        "-P",
        &number,
        "/etc/hostname",
        "127.0.0.1:",
    ]);
    assert_eq!(output.status.code(), Some(255));
    assert_eq!(text(&output.stderr), "");
    let stdout = text(&output.stdout);
    let [failed, summary] = stdout.lines().collect::<Vec<_>>()[..] else {
        panic!("two lines: {stdout}");
    };
    assert!(
        failed.contains("\"failed\"") && failed.contains(&number),
        "{failed}"
    );
    assert!(summary.contains("\"failed\":1,"), "{summary}");
}

#[test]
fn a_copy_to_a_bare_name_says_that_no_host_was_named() {
    let folder = Folder::new("bare");
    std::fs::write(folder.at("a"), "x").expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_fullbore"))
        .args(["cp", "a", "server"])
        .current_dir(folder.path())
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(0));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("no HOST: was named"), "{stderr}");
}

#[test]
fn local_copies_report_and_exit_as_scp() {
    let folder = Folder::new("local");
    std::fs::write(folder.at("a b"), vec![7; 100_000]).expect("written");
    let output = fullbore(&["cp", &folder.at("a b"), &folder.at("copy")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        std::fs::read(folder.at("copy")).expect("copied"),
        vec![7; 100_000]
    );
    let stderr = text(&output.stderr);
    assert!(
        stderr.starts_with("1 file, 100 kB in ") && stderr.contains("B/s"),
        "{stderr}"
    );
    assert!(
        !stderr.contains('\r'),
        "no bar without a terminal: {stderr:?}"
    );

    let output = fullbore(&["cp", "-q", &folder.at("a b"), &folder.at("copy")]);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), String::new())
    );

    // One is missing: the other is copied, and the exit code tells.
    std::fs::create_dir(folder.at("to")).expect("made");
    let output = fullbore(&[
        "cp",
        &folder.at("missing"),
        &folder.at("copy"),
        &folder.at("to"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("missing"),
        "{}",
        text(&output.stderr)
    );
    assert!(std::fs::exists(folder.at("to/copy")).expect("looked"));

    let output = fullbore(&[
        "cp",
        &folder.at("a b"),
        &folder.at("copy"),
        &folder.at("no-folder"),
    ]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_missing_folder_and_a_source_without_end_are_named() {
    let folder = Folder::new("named");
    std::fs::write(folder.at("a"), "x").expect("written");
    let output = fullbore(&["cp", &folder.at("a"), &folder.at("no/such/b")]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("its folder is not there"), "{stderr}");

    let made = Command::new("mkfifo").arg(folder.at("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    for source in [&folder.at("pipe"), "/dev/zero"] {
        let output = fullbore(&["cp", source, &folder.at("b")]);
        assert_eq!(output.status.code(), Some(1), "{source}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains("is a pipe, socket"), "{source}: {stderr}");
        assert!(!std::fs::exists(folder.at("b")).expect("looked"));
    }
}

#[test]
fn json_is_one_object_a_line_with_a_summary_at_the_end() {
    let folder = Folder::new("json");
    std::fs::write(folder.at("a"), "x").expect("written");
    let output = fullbore(&["cp", "--json", &folder.at("a"), &folder.at("b")]);
    assert_eq!(output.status.code(), Some(0));
    let stdout = text(&output.stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(
        lines
            .iter()
            .all(|line| line.starts_with("{\"event\":\"") && line.ends_with('}')),
        "{stdout}"
    );
    let last = lines.last().expect("there are lines");
    assert!(
        last.contains("\"summary\"") && last.contains("\"bytes\":1,"),
        "{last}"
    );
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullbore"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stderr), "");
    // Either it noticed, or all of it had fitted into the pipe before.
    assert!(
        matches!(output.status.code(), Some(0 | 141)),
        "{:?}",
        output.status
    );
}

#[test]
fn completions_know_the_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let output = fullbore(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("no-resume"), "{shell}");
    }
}

/// SSH_FXP_INIT of version 3, and what comes back.
fn greet(command: &mut Command) -> Vec<u8> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin
        .write_all(b"\0\0\0\x05\x01\0\0\0\x03")
        .expect("written");
    drop(stdin);
    child.wait_with_output().expect("it ends").stdout
}

#[test]
fn the_drop_in_answers_under_each_of_its_names() {
    let program = env!("CARGO_BIN_EXE_fullbore");
    for name in [
        "sftp-server",
        "/usr/lib/openssh/sftp-server",
        "fullbore-sftp-server",
    ] {
        let reply = greet(Command::new(program).arg0(name).arg("-e"));
        assert_eq!(reply.get(4..9), Some(&b"\x02\0\0\0\x03"[..]), "{name}");
    }
    let reply = greet(Command::new(program).args(["sftp-server", "-R"]));
    assert_eq!(reply.get(4..9), Some(&b"\x02\0\0\0\x03"[..]));
    assert_eq!(fullbore(&["sftp-server", "-h"]).status.code(), Some(1));
}
