//! Large files over several lanes to a real sshd behind a long path, made of a proxy that holds
//! bytes back. Passed over where no sshd is installed.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::cell::RefCell;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use fullbore::client::{Reconnect, connect};
use fullbore::driver::local::LocalSide;
use fullbore::transfer::lanes::{Caps, default_caps};
use fullbore::transfer::{Event, Observer, Options, Run, SftpSide};
use support::{Folder, Script, Sshd, bytes, context, host, run, start_sshd_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Each way; 2 MiB per 60 ms are 35 MB/s.
const DELAY: Duration = Duration::from_millis(30);

/// A path to `port` that takes [`DELAY`] each way and carries any rate; returns where it begins.
async fn long_path(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let begin = listener.local_addr().unwrap().port();
    tokio::task::spawn_local(async move {
        while let Ok((here, _)) = listener.accept().await {
            let there = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (here_in, here_out) = here.into_split();
            let (there_in, there_out) = there.into_split();
            tokio::task::spawn_local(carry(here_in, there_out));
            tokio::task::spawn_local(carry(there_in, here_out));
        }
    });
    begin
}

async fn carry(mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf) {
    let (tx, mut rx) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::task::spawn_local(async move {
        while let Some((at, bytes)) = rx.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buf = vec![0; 256 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buf).await {
        if tx
            .send((Instant::now() + DELAY, buf[..n].to_vec()))
            .is_err()
        {
            return;
        }
    }
}

/// Fails on what it is told of failures.
#[derive(Default)]
struct Watch(RefCell<Vec<String>>);

impl Observer for Watch {
    fn notice(&self, event: &Event<'_>) {
        if let Event::Failed { text, .. } | Event::Warning { text, .. } = event {
            self.0.borrow_mut().push((*text).to_owned());
        }
    }
}

/// Uploads `content` over a long path to `sshd`; returns the lanes that there were at most, and what
/// `-v` said.
fn upload(sshd: &Sshd, content: &[u8], caps: Caps) -> (usize, String) {
    let script = Script::default();
    let folder = Folder::new("lanes");
    let source = folder.write("source", content);
    let target = sshd.folder.file("target");
    let lanes = run(async {
        let port = long_path(sshd.port).await;
        let host = host(&sshd.folder, port, &["LogLevel=VERBOSE"]);
        let context = context(&script);
        let sftp = connect(&host, &context).await.unwrap();
        let reconnect = Reconnect::new(&host, &context, sftp.connection());
        let side = SftpSide::new(sftp, "there:").with_lanes(reconnect, caps);
        let watch = Watch::default();
        let path = target.as_os_str().as_bytes();
        let run = Run::new(&side, path, false, Options::default(), &watch);
        let run = run.await.unwrap();
        run.copy_from(&LocalSide::new(), &[source.as_os_str().as_bytes().to_vec()])
            .await;
        assert!(run.summary().is_success(), "{:?}", watch.0.borrow());
        assert_eq!(*watch.0.borrow(), [""; 0]);
        side.lanes_most()
    });
    assert!(fs::read(&target).unwrap() == content);
    let left = fs::read_dir(&sshd.folder.0).unwrap();
    let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let temps: Vec<_> = names.filter(|name| name.ends_with(".fullbore")).collect();
    assert_eq!(temps, [""; 0]);
    (lanes, script.seen())
}

fn sshd(max_sessions: usize) -> Option<Sshd> {
    start_sshd_with(&format!(
        "Subsystem sftp internal-sftp\nMaxSessions {max_sessions}"
    ))
}

/// Long enough for several lanes to be found worth it.
const LEN: usize = 96 << 20;

#[test]
fn an_upload_that_a_window_limits_uses_more_channels() {
    let Some(sshd) = sshd(10) else { return };
    let (lanes, said) = upload(&sshd, &bytes(LEN), default_caps());
    assert!((2..=10).contains(&lanes), "{lanes}\n{said}");
    assert!(said.contains("window of 2.0 MiB limits"), "{said}");
}

#[test]
fn a_server_with_one_session_is_asked_once() {
    let Some(sshd) = sshd(1) else { return };
    let (_, said) = upload(&sshd, &bytes(LEN), default_caps());
    let refusals = said.matches("at most 1 sessions").count();
    assert_eq!(refusals, 1, "{said}");
}

#[test]
fn a_server_with_two_sessions_gives_two_lanes() {
    let Some(sshd) = sshd(2) else { return };
    let (_, said) = upload(&sshd, &bytes(LEN), default_caps());
    assert_eq!(said.matches("at most 2 sessions").count(), 1, "{said}");
}

#[test]
fn lanes_that_are_not_wanted_are_not_opened() {
    let Some(sshd) = sshd(10) else { return };
    let caps = Caps {
        channels: 1,
        connections: 1,
    };
    let (lanes, said) = upload(&sshd, &bytes(LEN / 2), caps);
    assert_eq!(lanes, 1, "{said}");
}

/// An sftp-server whose second process of a connection is stopped once it has written something.
fn server_that_stops(folder: &Folder) -> String {
    let pids = folder.file("pids");
    fs::create_dir(&pids).unwrap();
    let script = format!(
        "#!/bin/sh\ncd {}\nif mkdir second-is-next 2>/dev/null; then :; elif mkdir second 2>/dev/null; then\n\
         (until [ $(sed -n 's/^wchar: //p' /proc/$$/io) -gt 1000000 ]; do sleep 0.02; done\n\
         kill -STOP $$; echo $$ > stopped.new; mv stopped.new stopped) &\nfi\n\
         exec /usr/lib/openssh/sftp-server\n",
        pids.display()
    );
    let path = folder.write("server", script.as_bytes());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// The number of the process that was stopped; it does not outlive the test.
struct Stopped(std::path::PathBuf);

impl Stopped {
    fn pid(&self) -> Option<String> {
        let pid = fs::read_to_string(&self.0).ok()?;
        Some(pid.trim().to_owned())
    }

    fn signal(&self, name: &str) -> bool {
        let Some(pid) = self.pid() else { return false };
        let mut kill = std::process::Command::new("kill");
        let kill = kill.args([name, &pid]).stderr(std::process::Stdio::null());
        kill.status().unwrap().success()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Else it has ended by itself, and its number may be another's.
        if std::thread::panicking() {
            self.signal("-KILL");
        }
    }
}

#[test]
fn a_lane_whose_server_hangs_is_left_and_what_it_does_later_changes_nothing() {
    let folder = Folder::new("stops");
    if !std::path::Path::new("/usr/lib/openssh/sftp-server").exists() {
        fullbore_testkit::pass_over("OpenSSH's sftp-server");
        return;
    }
    let server = server_that_stops(&folder);
    let stopped = Stopped(folder.file("pids/stopped"));
    let Some(sshd) = start_sshd_with(&format!("Subsystem sftp {server}")) else {
        return;
    };
    let content = bytes(2 * LEN);
    let (_, said) = upload(&sshd, &content, default_caps());
    assert!(stopped.pid().is_some(), "a second session wrote");
    assert_eq!(said.matches("stood still for").count(), 1, "{said}");
    // It goes on: writes what it was told, meets the end, and is gone.
    stopped.signal("-CONT");
    while stopped.signal("-0") {
        std::thread::yield_now();
    }
    assert!(fs::read(sshd.folder.file("target")).unwrap() == content);
}

/// How a copy ends whose servers are all ended by a signal in the middle of it.
fn end_servers_during(content: &[u8], is_up: bool, caps: Caps) -> Option<String> {
    let folder = Folder::new("ends");
    let pids = folder.file("pids");
    let script = format!(
        "#!/bin/sh\necho $$ >> {}\nexec /usr/lib/openssh/sftp-server\n",
        pids.display()
    );
    let server = folder.write("server", script.as_bytes());
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let sshd = start_sshd_with(&format!("Subsystem sftp {}", server.display()))?;
    let here = folder.write("source", content);
    let there = sshd.folder.write("source", content);
    let watch = Watch::default();
    let script = Script::default();
    run(async {
        let port = long_path(sshd.port).await;
        let host = host(&sshd.folder, port, &[]);
        let context = context(&script);
        let sftp = connect(&host, &context).await.unwrap();
        let reconnect = Reconnect::new(&host, &context, sftp.connection());
        let connection = sftp.connection().clone();
        let remote = SftpSide::new(sftp, "there:").with_lanes(reconnect, caps);
        let local = LocalSide::new();
        let end = async {
            // Much is under way by then.
            loop {
                let stats = connection.stats();
                let moved = stats.channel_bytes_sent + stats.channel_bytes_received;
                if moved > content.len() as u64 / 3 {
                    break;
                }
                tokio::task::yield_now().await;
            }
            for pid in fs::read_to_string(&pids).unwrap().lines() {
                std::process::Command::new("kill")
                    .arg(pid)
                    .status()
                    .unwrap();
            }
        };
        let copy = async {
            let path = |path: &std::path::Path| path.as_os_str().as_bytes().to_vec();
            if is_up {
                let target = path(&sshd.folder.file("target"));
                let run = Run::new(&remote, &target, false, Options::default(), &watch);
                let run = run.await.unwrap();
                run.copy_from(&local, &[path(&here)]).await;
            } else {
                let target = path(&folder.file("target"));
                let run = Run::new(&local, &target, false, Options::default(), &watch);
                let run = run.await.unwrap();
                run.copy_from(&remote, &[path(&there)]).await;
            }
        };
        let both = async { tokio::join!(end, copy) };
        // Far below what a server may be silent.
        let ended = tokio::time::timeout(Duration::from_secs(30), both).await;
        assert!(ended.is_ok(), "it waits for a server that is gone");
    });
    Some(watch.0.borrow().join("\n"))
}

#[test]
fn a_copy_whose_server_was_ended_ends_at_once() {
    for is_up in [true, false] {
        for channels in [1, 10] {
            let caps = Caps {
                channels,
                connections: 1,
            };
            let Some(said) = end_servers_during(&bytes(LEN), is_up, caps) else {
                return;
            };
            assert!(
                said.contains("the SFTP server ended"),
                "{is_up} {channels}: {said}"
            );
        }
    }
}
