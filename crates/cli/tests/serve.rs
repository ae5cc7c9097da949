//! `fullbore serve` and `fullbore cp` against each other, as programs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use fullbore_testkit::{Folder, ssh_keygen};

/// A folder with a key, a folder to serve, and nothing of the user's own.
struct Place(Folder);

impl Place {
    fn new(name: &str) -> Place {
        let place = Place(Folder::new(name));
        std::fs::create_dir(place.at("root")).expect("a folder to serve");
        ssh_keygen(&["-q", "-t", "ed25519", "-N", "", "-f", &place.at("key")]);
        place
    }

    fn at(&self, name: &str) -> String {
        self.0.at(name)
    }

    fn serve(&self, arguments: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fullbore"))
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--root",
                &self.at("root"),
            ])
            .args(["--authorized-keys", &self.at("key.pub")])
            .args(arguments)
            .env("XDG_DATA_HOME", self.at("data"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        let mut greeting = BufReader::new(child.stdout.take().expect("piped"));
        let port = loop {
            let mut line = String::new();
            let len = greeting.read_line(&mut line).expect("readable");
            assert_ne!(len, 0, "the server did not say its port");
            if let Some((_, port)) = line.trim_end_matches(['.', '\n']).split_once(" port ") {
                break port.to_owned();
            }
        };
        Server {
            child,
            port,
            _greeting: greeting,
        }
    }

    fn copy(&self, server: &Server, arguments: &[&str]) -> Output {
        let output = self.command(server, arguments).output();
        output.expect("the program runs")
    }

    fn command(&self, server: &Server, arguments: &[&str]) -> Command {
        let known = format!("UserKnownHostsFile={}", self.at("known_hosts"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullbore"));
        command
            .args([
                "cp",
                "-F",
                "none",
                "-B",
                "-P",
                &server.port,
                "-i",
                &self.at("key"),
            ])
            .args(["-o", &known, "-o", "StrictHostKeyChecking=accept-new"])
            .args(["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"])
            .args(arguments)
            .env("XDG_STATE_HOME", self.at("state"));
        command
    }
}

struct Server {
    child: Child,
    port: String,
    _greeting: BufReader<ChildStdout>,
}

impl Server {
    fn stop(mut self) -> Option<i32> {
        signal(&self.child, "TERM");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", child.id())])
        .status()
        .expect("sh runs");
    assert!(sent.success());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes that repeat nowhere near.
fn content(len: usize) -> Vec<u8> {
    (0..len as u64)
        .flat_map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes())
        .take(len)
        .collect()
}

#[test]
fn files_go_both_ways_and_the_server_stops_on_a_signal() {
    let place = Place::new("both");
    let server = place.serve(&[]);
    for len in [0, 1, 32_767, 32_768, 32_769, 3_000_000] {
        std::fs::write(place.at("up"), content(len)).expect("written");
        let output = place.copy(&server, &[&place.at("up"), "127.0.0.1:there"]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{len}: {}",
            text(&output.stderr)
        );
        assert_eq!(
            std::fs::read(place.at("root/there")).expect("arrived"),
            content(len)
        );
        let output = place.copy(&server, &["--verify", "127.0.0.1:there", &place.at("down")]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{len}: {}",
            text(&output.stderr)
        );
        assert_eq!(
            std::fs::read(place.at("down")).expect("arrived"),
            content(len)
        );
    }
    let known = std::fs::read_to_string(place.at("known_hosts")).expect("remembered");
    assert!(
        known.starts_with(&format!("[127.0.0.1]:{} ssh-ed25519 ", server.port)),
        "{known}"
    );
    let missing = place.copy(&server, &["127.0.0.1:missing", &place.at("x")]);
    assert_eq!(missing.status.code(), Some(1));
    let stderr = text(&missing.stderr);
    // As it would be typed, the port having come by a flag.
    assert!(
        stderr.contains("@127.0.0.1:missing: No such file"),
        "{stderr}"
    );
    let lost = place.copy(&server, &[&place.at("up"), "127.0.0.1:no/such/file"]);
    assert_eq!(lost.status.code(), Some(1));
    let stderr = text(&lost.stderr);
    assert!(stderr.contains("its folder is not there"), "{stderr}");
    let url = format!("sftp://127.0.0.1:{}//missing", server.port);
    let missing = place.copy(&server, &[&url, &place.at("x")]);
    let stderr = text(&missing.stderr);
    let shown = format!("@127.0.0.1:{}//missing: No such file", server.port);
    assert!(stderr.contains(&shown), "{stderr}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_changed_host_key_is_refused_and_named() {
    let place = Place::new("changed");
    let server = place.serve(&[]);
    let key = std::fs::read_to_string(place.at("key.pub")).expect("made");
    std::fs::write(
        place.at("known_hosts"),
        format!("[127.0.0.1]:{} {key}", server.port),
    )
    .expect("written");
    let output = place.copy(&server, &["127.0.0.1:x", &place.at("x")]);
    assert_eq!(output.status.code(), Some(255));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("known_hosts") && stderr.contains("SHA256:"),
        "{stderr}"
    );
}

#[test]
fn the_settings_file_and_the_key_decide() {
    let place = Place::new("settings");
    std::fs::write(
        place.at("settings"),
        "read-only = true\nuser = \"someone\"\n",
    )
    .expect("written");
    std::fs::write(place.at("root/file"), "x").expect("written");
    let server = place.serve(&["--config", &place.at("settings")]);
    let output = place.copy(&server, &["someone@127.0.0.1:file", &place.at("got")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = place.copy(&server, &[&place.at("got"), "someone@127.0.0.1:new"]);
    assert_eq!(
        output.status.code(),
        Some(1),
        "read only: {}",
        text(&output.stderr)
    );
    let output = place.copy(&server, &["other@127.0.0.1:file", &place.at("got")]);
    assert_eq!(
        output.status.code(),
        Some(255),
        "not this user: {}",
        text(&output.stderr)
    );
}

#[test]
fn an_interrupt_ends_a_copy_that_waits() {
    // It takes connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullbore"))
        .args([
            "cp",
            "-F",
            "none",
            "-B",
            "-P",
            &port,
            "/etc/hostname",
            "127.0.0.1:",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let (mut stream, _) = silent.accept().expect("it connects");
    // Its version line is there: the signal's handler is, too.
    stream.read_exact(&mut [0; 4]).expect("it speaks");
    signal(&child, "INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}

#[test]
fn a_copy_that_ends_early_says_how_to_go_on() {
    for name in ["INT", "TERM"] {
        let place = Place::new("early");
        std::fs::write(place.at("up"), content(8_000_000)).expect("written");
        let server = place.serve(&[]);
        let mut copy = place.command(&server, &["-l", "8000", &place.at("up"), "127.0.0.1:there"]);
        let copy = copy.stderr(Stdio::piped()).spawn().expect("it runs");
        // Bytes have moved when the temporary file is not empty.
        let root = place.at("root");
        let has_begun = || {
            let entries = std::fs::read_dir(&root).expect("a folder");
            let lens = entries.map(|e| e.and_then(|e| e.metadata()).map_or(0, |m| m.len()));
            lens.max().unwrap_or(0) > 0
        };
        while !has_begun() {
            std::thread::yield_now();
        }
        let expected = if name == "INT" {
            signal(&copy, "INT");
            ("interrupted; the same command goes on", 130)
        } else {
            assert_eq!(server.stop(), Some(0));
            ("the connection was lost; the same command goes on", 255)
        };
        let output = copy.wait_with_output().expect("it ends");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(expected.0), "{stderr}");
        assert_eq!(output.status.code(), Some(expected.1));
    }
}

#[test]
fn the_demonstration_is_right() {
    let output = Command::new(env!("CARGO_BIN_EXE_fullbore"))
        .arg("demo")
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    // 64 MiB in rounds of 2 MiB, or at 320 Mbit/s: three times as long, whatever else this machine does.
    let seconds = |windows: &str, direction: &str| -> f64 {
        let is_wanted = |line: &&str| line.contains("200 ms") && line.contains(windows);
        let mut lines = stdout.lines().filter(is_wanted);
        let line = lines.find(|line| line.split_whitespace().any(|word| word == direction));
        let line = line.unwrap_or_else(|| panic!("no {windows} {direction} in {stdout}"));
        let numbers = line
            .split_once(direction)
            .map(|(_, rest)| rest.split_whitespace());
        let number = numbers.and_then(|mut words| words.next());
        number
            .and_then(|number| number.parse().ok())
            .expect("a number")
    };
    for direction in ["up", "down"] {
        let (fixed, adaptive) = (seconds("fixed", direction), seconds("adaptive", direction));
        assert!(adaptive < fixed, "{direction}: {stdout}");
    }
}

#[test]
fn a_copy_leaves_its_connection_to_later_ones_until_it_is_stopped() {
    let place = Place::new("master");
    let server = place.serve(&[]);
    std::fs::write(place.at("a"), b"over one connection").expect("written");
    let path = format!("ControlPath={}", place.at("run/master"));
    let options = [
        "-o",
        "ControlMaster=auto",
        "-o",
        "ControlPersist=60",
        "-o",
        &path,
    ];
    let copy = |from: &str, to: &str| {
        let arguments = [&options[..], &[from, to]].concat();
        place.copy(&server, &arguments).status.code()
    };
    assert_eq!(copy(&place.at("a"), "127.0.0.1:b"), Some(0));
    // Without the key nobody can log in any more.
    std::fs::rename(place.at("key"), place.at("key-aside")).expect("renamed");
    assert_eq!(copy("127.0.0.1:b", &place.at("c")), Some(0));
    let copied = std::fs::read(place.at("c")).expect("there");
    assert_eq!(copied, b"over one connection");
    let master = |task: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_fullbore"))
            .args(["master", "-F", "none", "-P", &server.port])
            .args(options)
            .args([task, "127.0.0.1"])
            .output();
        output.expect("the program runs").status.code()
    };
    let codes = ["check", "stop", "check", "stop"].map(master);
    assert_eq!(codes, [Some(0), Some(0), Some(255), Some(255)]);
    assert_eq!(copy("127.0.0.1:b", &place.at("d")), Some(255));
}
