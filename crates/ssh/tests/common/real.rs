//! Real sockets and a stock server, for tests against other implementations: the driver's work, done
//! in its plainest form.

use super::*;
use fullbore_base::Instant;
use fullbore_sim::Endpoint;
use fullbore_ssh::key::PrivateKey;
use fullbore_testkit::{Folder, Sshd};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Moves bytes between a socket and a node until `done` or the peer is gone.
pub fn drive<A: App>(
    stream: &mut TcpStream,
    node: &mut Node<A>,
    mut done: impl FnMut(&Node<A>) -> bool,
) {
    let start = std::time::Instant::now();
    let now = || {
        let nanos = start.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap())
    };
    let mut input = vec![0; 256 << 10];
    let (mut from, mut to) = (0, 0);
    let mut out = Vec::new();
    let brief = Some(Duration::from_millis(1));
    stream.set_read_timeout(brief).unwrap();
    stream.set_write_timeout(brief).unwrap();
    while !done(node) {
        assert!(start.elapsed() < Duration::from_secs(120), "stuck");
        if out.is_empty() {
            node.poll_transmit(now(), 256 << 10, &mut out);
        }
        match stream.write(&out) {
            Ok(n) => drop(out.drain(..n)),
            Err(error) if is_again(&error) => {}
            Err(_) => out.clear(),
        }
        if from == to {
            match stream.read(&mut input) {
                Ok(0) => {
                    node.handle_eof(now());
                    assert!(done(node), "closed: {:?}", node.conn.error());
                    return;
                }
                Ok(n) => (from, to) = (0, n),
                Err(error) if is_again(&error) => {}
                Err(_) => return,
            }
        }
        from += node.handle_input(now(), &input[from..to]);
        if node.poll_timeout().is_some_and(|at| at <= now()) {
            node.handle_timeout(now());
        }
    }
    while !out.is_empty() {
        match stream.write(&out) {
            Ok(n) => drop(out.drain(..n)),
            Err(error) if is_again(&error) => {}
            Err(_) => return,
        }
    }
}

fn is_again(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

pub fn write_key(folder: &Folder, name: &str, key: &PrivateKey) -> PathBuf {
    folder.write(name, key.to_openssh("test").unwrap().expose())
}

/// A stock server of this machine that lets key 2 in; `None` where there is none.
pub fn sshd(name: &str, extra: &str) -> Option<Sshd> {
    let folder = Folder::new(name);
    write_key(&folder, "host", &private_key(1));
    let line = private_key(2).public_key().to_line("test");
    folder.write("authorized_keys", line.as_bytes());
    Sshd::start(folder, &format!("Subsystem sftp internal-sftp\n{extra}"))
}

pub fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub fn user() -> Vec<u8> {
    let out = Command::new("id").arg("-un").output().unwrap();
    out.stdout.trim_ascii().to_vec()
}
