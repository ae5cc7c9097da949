//! Against OpenSSH on this machine, both roles: log in, run a program, compare the bytes, under
//! each key exchange and cipher. Without OpenSSH the tests say so and pass.

#![allow(clippy::unwrap_used)]
// The driver's work, done here in its plainest form.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod common;

use common::apps::{Ask, Flow};
use common::real::{connect, drive, sshd, user, write_key};
use common::*;
use fullbore_base::Instant;
use fullbore_ssh::auth::Attempt;
use fullbore_ssh::cipher::{Cipher, Mac};
use fullbore_ssh::config::ClientConfig;
use fullbore_ssh::kex::Method;
use fullbore_ssh::packet::Compression;
use fullbore_ssh::{Connection, Event};
use fullbore_testkit::{Folder, pass_over};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Echoes `bytes` through `cat` on the server.
fn echo(port: u16, bytes: u64, change: impl FnOnce(&mut fullbore_ssh::config::ClientConfig)) {
    let mut config = client_config();
    config.auth.user = user();
    change(&mut config);
    let flow = (Ask::Exec("cat".to_owned()), Flow::new(bytes));
    let app = Client::new(vec![key_attempt(2, true)], vec![flow]);
    let conn = Connection::client(Arc::new(config), provider(1), Instant::ZERO);
    let mut node = Node::new(conn, app, 512 << 10);
    let mut stream = connect(port);
    drive(&mut stream, &mut node, |node| {
        node.app.flows.values().any(|flow| flow.closed) || node.app.error.is_some()
    });
    assert_eq!(node.app.error, None);
    let flow = node.app.flow(0);
    assert_eq!((flow.received, flow.exit_status), (bytes, Some(0)));
}

#[test]
fn the_client_echoes_bytes_through_sshd_under_each_algorithm() {
    let kex = "KexAlgorithms +diffie-hellman-group14-sha256,diffie-hellman-group-exchange-sha256";
    let Some(server) = sshd("algorithms", kex) else {
        return;
    };
    for method in Method::ALL.iter().copied() {
        if !is_known_to_ssh("kex", method.name()) {
            println!("{} is not known here", method.name());
            continue;
        }
        println!("{}", method.name());
        echo(server.port, 100_000, |c| c.transport.kex = vec![method]);
    }
    for cipher in Cipher::ALL.iter().copied() {
        println!("{}", cipher.name());
        echo(server.port, 5_000_000, |c| {
            c.transport.ciphers = vec![cipher];
            c.transport.guess_kex = true;
        });
    }
    for mac in Mac::ALL.iter().copied() {
        println!("{}", mac.name());
        echo(server.port, 3_000_000, |c| {
            c.transport.ciphers = vec![Cipher::ALL[Cipher::ALL.len() - 1]];
            c.transport.macs = vec![mac];
        });
    }
    println!("zlib");
    echo(server.port, 3_000_000, |c| {
        c.transport.compression = vec![Compression::ZlibDelayed];
    });
}

fn is_known_to_ssh(what: &str, name: &str) -> bool {
    let out = Command::new("ssh").args(["-Q", what]).output().unwrap();
    let list = String::from_utf8_lossy(&out.stdout).into_owned();
    list.lines().any(|line| line == name)
}

/// Logs in, opens the channel and sends its first bytes as the second contact with a server may: all
/// that can be guessed is guessed. A wrong key before the right one makes half of it in vain.
#[test]
fn sshd_takes_what_comes_ahead_of_its_consent() {
    let Some(server) = sshd("ahead", "") else {
        return;
    };
    let contact = |attempts: Vec<Attempt>, change: &dyn Fn(&mut ClientConfig)| {
        let mut config = client_config();
        config.auth.user = user();
        let algorithms = &mut config.transport.host_key_algorithms;
        algorithms.insert(0, "ssh-ed25519".to_owned());
        change(&mut config);
        let flow = (Ask::Exec("cat".to_owned()), Flow::new(5_000_000));
        let app = Client::new(attempts, vec![flow]);
        let conn = Connection::client(Arc::new(config), provider(1), Instant::ZERO);
        let mut node = Node::new(conn, app, 512 << 10);
        let mut stream = connect(server.port);
        drive(&mut stream, &mut node, |node| {
            node.app.flows.values().any(|flow| flow.closed) || node.app.error.is_some()
        });
        assert_eq!(node.app.error, None);
        let flow = node.app.flow(0);
        assert_eq!((flow.received, flow.exit_status), (5_000_000, Some(0)));
        node
    };
    let earlier = contact(vec![key_attempt(2, true)], &|_| {});
    let seen = earlier.conn.remote_proposal().unwrap().clone();
    let remembered = |config: &mut ClientConfig| {
        let first = |list: &str| list.split(',').next().unwrap().to_owned();
        let kex = Method::from_name(&first(&seen.kex)).unwrap();
        config.transport.kex.insert(0, kex);
        let algorithms = &mut config.transport.host_key_algorithms;
        algorithms.insert(0, first(&seen.host_keys));
        config.transport.guess_kex = true;
        config.patient_version = Some(earlier.conn.remote_version().to_vec());
    };
    let second = contact(vec![key_attempt(2, true)], &remembered);
    assert!(second.conn.remote_proposal().unwrap().is_guess_right);
    // The last is tried first.
    contact(
        vec![key_attempt(2, true), key_attempt(3, true)],
        &remembered,
    );
    // Both lists differ in front: the guess is passed over.
    contact(vec![key_attempt(2, true)], &|config| {
        remembered(config);
        config.transport.kex.insert(0, Method::EcdhNistp521);
    });
}

#[test]
fn the_client_rekeys_with_sshd_while_data_flows() {
    let Some(server) = sshd("rekey", "RekeyLimit 1M") else {
        return;
    };
    echo(server.port, 20_000_000, |_| {});
    echo(server.port, 20_000_000, |c| {
        c.transport.rekey.bytes = 1 << 20
    });
}

#[test]
fn many_channels_share_a_connection_with_sshd() {
    let Some(server) = sshd("channels", "") else {
        return;
    };
    let mut config = client_config();
    config.auth.user = user();
    config.connection.local_window = Some(100_000);
    let plan = |_| (Ask::Exec("cat".to_owned()), Flow::new(3_000_000));
    let app = Client::new(vec![key_attempt(2, false)], (0..8).map(plan).collect());
    let conn = Connection::client(Arc::new(config), provider(1), Instant::ZERO);
    let mut node = Node::new(conn, app, 300 << 10);
    let mut stream = connect(server.port);
    drive(&mut stream, &mut node, |node| {
        node.app.order.len() == 8 && node.app.flows.values().all(|flow| flow.closed)
    });
    for index in 0..8 {
        assert_eq!(node.app.flow(index).received, 3_000_000);
    }
}

#[test]
fn sshd_proves_the_host_keys_that_it_announces() {
    let folder = Folder::new("second-key");
    let second = folder.0.join("rsa");
    if Command::new("ssh-keygen")
        .args(["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f"])
        .arg(&second)
        .status()
        .is_err()
    {
        pass_over("ssh-keygen");
        return;
    }
    let Some(server) = sshd("prove", &format!("HostKey {}", second.display())) else {
        return;
    };
    let mut config = client_config();
    config.auth.user = user();
    let app = Client::new(vec![key_attempt(2, true)], Vec::new());
    let conn = Connection::client(Arc::new(config), provider(1), Instant::ZERO);
    let mut node = Node::new(conn, app, 300 << 10);
    let mut stream = connect(server.port);
    drive(&mut stream, &mut node, |node| {
        node.events.contains(&Event::HostKeysAnnounced)
    });
    let announced = node.conn.announced_host_keys().to_vec();
    assert_eq!(announced.len(), 2);
    node.conn.prove_host_keys(announced.clone()).unwrap();
    drive(&mut stream, &mut node, |node| {
        node.events.contains(&Event::HostKeysProved)
    });
    assert_eq!(node.conn.proved_host_keys(), announced);
}

#[test]
fn the_client_reaches_another_host_through_sshd() {
    let Some(server) = sshd("jump", "") else {
        return;
    };
    let mut config = client_config();
    config.auth.user = user();
    let app = Client::new(vec![key_attempt(2, true)], Vec::new());
    let conn = Connection::client(Arc::new(config), provider(1), Instant::ZERO);
    let mut node = Node::new(conn, app, 300 << 10);
    // The other host is the server itself: what it says first is its version line.
    let ch = node
        .conn
        .open_direct_tcpip(Instant::ZERO, "127.0.0.1", server.port, "127.0.0.1", 1)
        .unwrap();
    let refused = node
        .conn
        .open_direct_tcpip(Instant::ZERO, "127.0.0.1", 1, "127.0.0.1", 1)
        .unwrap();
    let mut stream = connect(server.port);
    drive(&mut stream, &mut node, |node| {
        node.conn.readable(ch).starts_with(b"SSH-2.0-OpenSSH")
            && node.events.contains(&Event::OpenFailed(refused))
    });
}

/// Runs the stock client against our server: `cat` of a file, and compares. Returns how many host
/// keys the client knows then.
fn ssh_through_us(
    name: &str,
    options: &[&str],
    change: impl FnOnce(&mut fullbore_ssh::config::ServerConfig),
) -> usize {
    let folder = Folder::new(name);
    let identity = write_key(&folder, "id", &private_key(2));
    let mut bytes = vec![0; 5_000_000];
    fullbore_base::Rng::seeded(3).fill(&mut bytes);
    let file = folder.write("file", &bytes);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let line = private_key(1).public_key().to_line("");
    let line = format!("[127.0.0.1]:{port} {line}\n");
    let known = folder.write("known_hosts", line.as_bytes());
    let known_hosts = format!("UserKnownHostsFile={}", known.display());
    let child = Command::new("ssh")
        .args(["-F", "none", "-p", &port.to_string(), "-i"])
        .arg(identity)
        .args(["-o", "StrictHostKeyChecking=yes", "-o", &known_hosts])
        .args([
            "-o",
            "IdentitiesOnly=yes",
            "-o",
            "BatchMode=yes",
            "-o",
            "LogLevel=ERROR",
        ])
        .args(options)
        .args(["tester@127.0.0.1", "cat"])
        .stdin(std::fs::File::open(file).unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let reader = std::thread::spawn(move || child.wait_with_output().unwrap());
    let mut config = server_config();
    change(&mut config);
    let conn = Connection::server(Arc::new(config), provider(2), Instant::ZERO);
    let mut node = Node::new(conn, Server::new(welcome), 512 << 10);
    let (mut stream, _) = listener.accept().unwrap();
    drive(&mut stream, &mut node, |node| node.app.error.is_some());
    drop(stream);
    let output = reader.join().unwrap();
    assert_eq!(output.status.code(), Some(7), "{:?}", node.app.error);
    assert!(
        output.stdout == bytes,
        "{} bytes came back",
        output.stdout.len()
    );
    std::fs::read_to_string(known).unwrap().lines().count()
}

#[test]
fn the_stock_client_runs_a_program_on_our_server() {
    if Command::new("ssh").arg("-V").output().is_err() {
        pass_over("ssh");
        return;
    }
    ssh_through_us("serve", &[], |_| {});
    ssh_through_us("serve-zlib", &["-C"], |_| {});
    ssh_through_us("serve-rekey", &["-o", "RekeyLimit=1M"], |_| {});
    ssh_through_us("serve-rekey-us", &[], |c| c.transport.rekey.bytes = 1 << 20);
    ssh_through_us("serve-alive", &["-o", "ServerAliveInterval=1"], |_| {});
    // It asks for proof of the key that it has not seen, and keeps it.
    let known = ssh_through_us("serve-keys", &["-o", "UpdateHostKeys=yes"], |c| {
        c.host_keys.push(host_key(6));
    });
    assert_eq!(known, 2);
    for cipher in Cipher::ALL {
        let option = format!("Ciphers={}", cipher.name());
        ssh_through_us("serve-cipher", &["-o", &option], |_| {});
    }
    for method in Method::ALL {
        if is_known_to_ssh("kex", method.name()) {
            let option = format!("KexAlgorithms={}", method.name());
            ssh_through_us("serve-kex", &["-o", &option], |_| {});
        }
    }
}
