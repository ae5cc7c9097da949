//! Both ends push at once on two channels of one connection, over a real socket: ours with ours, with
//! OpenSSH, with asyncssh. `FULLBORE_DUPLEX_MIB` sets how much each channel carries each way, `FULLBORE_PYTHON`
//! names the Python that has asyncssh.

#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod common;

use common::apps::{Ask, Flow};
use common::real::{connect, drive, sshd, user, write_key};
use common::*;
use fullbore_base::Instant;
use fullbore_ssh::Connection;
use fullbore_ssh::config::ClientConfig;
use fullbore_testkit::{Folder, pass_over};
use std::io::BufRead;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// From what old servers have to more than any path needs.
const WINDOWS: [u32; 3] = [64 << 10, 8 << 20, 1 << 30];

/// Bytes on each channel, each way.
fn total() -> u64 {
    let mib = std::env::var("FULLBORE_DUPLEX_MIB");
    mib.map_or(24, |text| text.parse().unwrap()) << 20
}

fn config(window: u32) -> ClientConfig {
    let mut config = client_config();
    config.auth.user = user();
    config.connection.local_window = Some(window);
    config.connection.windows_max = u64::MAX;
    config
}

/// Runs two flows over one connection and checks that both brought what was sent.
fn both_ways(port: u16, window: u32, command: &str) {
    let total = total();
    let plan = || (Ask::Exec(command.to_owned()), Flow::new(total));
    let app = Client::new(vec![key_attempt(2, true)], vec![plan(), plan()]);
    let conn = Connection::client(Arc::new(config(window)), provider(1), Instant::ZERO);
    let mut node = Node::new(conn, app, 512 << 10);
    drive(&mut connect(port), &mut node, |node| {
        let closed = node.app.flows.values().filter(|flow| flow.closed);
        closed.count() == 2 || node.app.error.is_some()
    });
    assert_eq!(node.app.error, None);
    for index in 0..2 {
        assert_eq!(node.app.flow(index).received, total, "window {window}");
    }
}

#[test]
fn ours_with_ours() {
    for window in WINDOWS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let mut config = server_config();
            config.connection.local_window = Some(window);
            config.connection.windows_max = u64::MAX;
            let mut node = server_node(config, Server::new(welcome), 512 << 10);
            let (mut stream, _) = listener.accept().unwrap();
            // Until the client has gone: a socket that is closed with bytes unread in it resets.
            drive(&mut stream, &mut node, |node| node.conn.error().is_some());
            assert_eq!(node.app.closed, 2);
        });
        both_ways(port, window, &format!("flow {} 1", total()));
        server.join().unwrap();
    }
}

#[test]
fn ours_with_openssh() {
    let Some(server) = sshd("duplex", "") else {
        return;
    };
    for window in WINDOWS {
        both_ways(server.port, window, "cat");
    }
}

#[test]
fn a_channel_of_openssh_that_nobody_reads_does_not_stop_another() {
    let Some(server) = sshd("duplex-unread", "") else {
        return;
    };
    let mut unread = Flow::new(0);
    unread.is_reading = false;
    unread.ends = false;
    let plans = vec![
        (Ask::Exec("cat /dev/zero".to_owned()), unread),
        (Ask::Exec("cat".to_owned()), Flow::new(total())),
    ];
    let window = 1 << 20;
    let app = Client::new(vec![key_attempt(2, true)], plans);
    let conn = Connection::client(Arc::new(config(window)), provider(1), Instant::ZERO);
    let mut node = Node::new(conn, app, 512 << 10);
    drive(&mut connect(server.port), &mut node, |node| {
        node.app.flows.values().any(|flow| flow.closed) || node.app.error.is_some()
    });
    assert_eq!(node.app.error, None);
    assert_eq!(node.app.flow(1).received, total());
    let ch = node.app.order[0];
    assert!(node.conn.backlog_len(ch) <= window as usize);
}

/// Sends back what comes, on as many channels as are asked for.
const ASYNCSSH: &str = r#"
import asyncio, sys, asyncssh

async def echo(process):
    while data := await process.stdin.read(65536):
        process.stdout.write(data)
        await process.stdout.drain()
    process.exit(0)

async def main():
    server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[sys.argv[1]], authorized_client_keys=sys.argv[2],
        process_factory=echo, encoding=None, window=int(sys.argv[3]))
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"#;

struct Asyncssh(Child);

impl Drop for Asyncssh {
    fn drop(&mut self) {
        // It may be gone already.
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

#[test]
fn ours_with_asyncssh() {
    let python = std::env::var("FULLBORE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_it = Command::new(&python)
        .args(["-c", "import asyncssh"])
        .output();
    if !has_it.is_ok_and(|out| out.status.success()) {
        pass_over("a Python with asyncssh");
        return;
    }
    let folder = Folder::new("duplex-asyncssh");
    let host = write_key(&folder, "host", &private_key(1));
    let line = private_key(2).public_key().to_line("test");
    let keys = folder.write("keys", line.as_bytes());
    for window in WINDOWS {
        let mut child = Command::new(&python)
            .args(["-c", ASYNCSSH])
            .args([&host, &keys])
            .arg(window.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut port).unwrap();
        let _server = Asyncssh(child);
        both_ways(port.trim().parse().unwrap(), window, "echo");
    }
}
