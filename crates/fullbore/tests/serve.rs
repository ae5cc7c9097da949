//! The client against our own server, over loopback TCP.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::fs::{self, File};
use std::rc::Rc;

use fullbore::client::{Error, Sftp, connect};
use fullbore_sftp::proto::{Attrs, CheckFile, Code, FileType, OpenFlags};
use support::{OurServer, SIZES, Script, WHOLE, bytes, context, host, round_trip, run};

#[test]
fn files_of_all_sizes_come_back_as_they_went() {
    let server = OurServer::start(|_| {});
    run(async {
        let host = host(&server.folder, server.port, &[]);
        let sftp = connect(&host, &context(&Script::default())).await.unwrap();
        let seen = server.folder.file("root/there");
        for len in SIZES {
            round_trip(&sftp, &server.folder, "there", &seen, &bytes(len)).await;
        }
        sftp.connection().close().await;
    });
}

/// Connects to `server` with its key.
async fn connected(server: &OurServer) -> Sftp {
    let host = host(&server.folder, server.port, &[]);
    connect(&host, &context(&Script::default())).await.unwrap()
}

async fn read_all(sftp: &Sftp, path: &[u8]) -> Result<Vec<u8>, Error> {
    let handle = sftp.open(path, OpenFlags::READ, &Attrs::EMPTY).await?;
    let mut out = Vec::new();
    while let Some(bytes) = sftp.read(&handle, out.len() as u64, 32_768).await? {
        out.extend_from_slice(&bytes);
    }
    sftp.close(&handle).await?;
    Ok(out)
}

async fn names(sftp: &Sftp, path: &[u8]) -> Vec<Vec<u8>> {
    let dir = sftp.opendir(path).await.unwrap();
    let mut names = Vec::new();
    while let Some(entries) = sftp.readdir(&dir).await.unwrap() {
        names.extend(entries.into_iter().map(|entry| entry.name));
    }
    sftp.close(&dir).await.unwrap();
    names.sort();
    names
}

#[test]
fn every_operation_does_what_it_says() {
    let server = OurServer::start(|_| {});
    run(async {
        let sftp = connected(&server).await;
        let mode = |permissions| Attrs {
            permissions: Some(permissions),
            ..Attrs::EMPTY
        };
        assert_eq!(sftp.realpath(b".").await.unwrap(), b"/");
        sftp.mkdir(b"d", &mode(0o755)).await.unwrap();
        let flags = OpenFlags::WRITE.with(OpenFlags::CREAT);
        let file = sftp.open(b"d/f", flags, &mode(0o644)).await.unwrap();
        sftp.write(&file, 0, b"hello").await.unwrap();
        sftp.fsync(&file).await.unwrap();
        assert_eq!(sftp.fstat(&file).await.unwrap().size, Some(5));
        sftp.fsetstat(&file, &mode(0o600)).await.unwrap();
        sftp.close(&file).await.unwrap();
        assert_eq!(read_all(&sftp, b"d/f").await.unwrap(), b"hello");

        let attrs = sftp.stat(b"d/f").await.unwrap();
        assert_eq!(attrs.permissions.map(|p| p & 0o7777), Some(0o600));
        sftp.symlink(b"f", b"d/link").await.unwrap();
        assert_eq!(sftp.readlink(b"d/link").await.unwrap(), b"f");
        let link = sftp.lstat(b"d/link").await.unwrap();
        assert_eq!(link.file_type(), Some(FileType::Symlink));
        sftp.hardlink(b"d/f", b"d/hard").await.unwrap();
        assert!(sftp.rename(b"d/hard", b"d/f").await.is_err());
        sftp.posix_rename(b"d/hard", b"d/g").await.unwrap();
        assert_eq!(
            names(&sftp, b"d").await,
            [&b"."[..], b"..", b"f", b"g", b"link"]
        );
        assert!(sftp.statvfs(b"d").await.unwrap().bsize > 0);
        let check = CheckFile {
            algorithms: b"blake3",
            offset: 0,
            len: 0,
            block_bytes: 0,
        };
        let digests = sftp.check_file_name(b"d/f", check).await.unwrap();
        assert_eq!(digests.digests, blake3::hash(b"hello").as_bytes());

        assert!(sftp.rmdir(b"d").await.is_err());
        for name in [&b"d/f"[..], b"d/g", b"d/link"] {
            sftp.remove(name).await.unwrap();
        }
        sftp.rmdir(b"d").await.unwrap();
        assert!(sftp.stat(b"d").await.unwrap_err().is_not_found());
    });
}

#[test]
fn a_thousand_calls_at_once_all_get_their_own_answer() {
    let server = OurServer::start(|_| {});
    for i in 0..1000 {
        server.folder.write(&format!("root/{i}"), &vec![0; i]);
    }
    run(async {
        let sftp = connected(&server).await;
        let mut calls = tokio::task::JoinSet::new();
        for i in 0..1000_u64 {
            let sftp = sftp.clone();
            calls.spawn_local(async move {
                let attrs = sftp.stat(i.to_string().as_bytes()).await.unwrap();
                assert_eq!(attrs.size, Some(i));
            });
        }
        while let Some(done) = calls.join_next().await {
            done.unwrap();
        }
    });
}

#[test]
fn commands_are_refused_with_a_reason() {
    let server = OurServer::start(|_| {});
    run(async {
        let sftp = connected(&server).await;
        let output = sftp.exec(b"rm -rf /").await.unwrap();
        assert_eq!(output.status, Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("only transfers files"), "{said}");
        // The session goes on.
        sftp.stat(b".").await.unwrap();
    });
}

#[test]
fn a_read_only_server_changes_nothing() {
    let server = OurServer::start(|options| options.read_only = true);
    server.folder.write("root/f", b"here");
    run(async {
        let sftp = connected(&server).await;
        let refused = sftp.remove(b"f").await.unwrap_err();
        assert_eq!(refused.status(), Some(Code::PermissionDenied));
        assert_eq!(read_all(&sftp, b"f").await.unwrap(), b"here");
    });
}

#[test]
fn nothing_outside_the_root_can_be_reached() {
    let server = OurServer::start(|_| {});
    server.folder.write("secret", b"secret");
    std::os::unix::fs::symlink("../secret", server.folder.file("root/link")).unwrap();
    run(async {
        let sftp = connected(&server).await;
        let whole = server.folder.file("secret").into_os_string();
        for path in [&b"../secret"[..], b"link", whole.as_encoded_bytes()] {
            assert!(read_all(&sftp, path).await.unwrap_err().is_not_found());
        }
    });
}

#[test]
fn dropping_a_transfer_cancels_it_and_the_session_goes_on() {
    let server = OurServer::start(|_| {});
    server.folder.write("root/big", &bytes(32 << 20));
    run(async {
        let sftp = connected(&server).await;
        let open = sftp.open(b"big", OpenFlags::READ, &Attrs::EMPTY);
        let handle = open.await.unwrap();
        let sink = Rc::new(File::create(server.folder.file("sink")).unwrap());
        let (moved, has_moved) = tokio::sync::oneshot::channel();
        let mut moved = Some(moved);
        let get = sftp.get(&handle, sink, WHOLE, |_| {
            if let Some(moved) = moved.take() {
                moved.send(()).unwrap();
            }
        });
        tokio::select! {
            _ = get => panic!("32 MiB do not arrive in one piece"),
            moved = has_moved => moved.unwrap(),
        }
        sftp.close(&handle).await.unwrap();
        sftp.stat(b"big").await.unwrap();
    });
}

#[test]
fn both_directions_at_once_on_two_lanes_with_many_rekeys() {
    let server = OurServer::start(|_| {});
    let content = bytes(24 << 20);
    server.folder.write("root/down", &content);
    let source = server.folder.write("up", &content);
    run(async {
        let host = host(&server.folder, server.port, &["RekeyLimit=1M"]);
        let first = connect(&host, &context(&Script::default())).await.unwrap();
        let second = first.connection().open_sftp().await.unwrap();
        let up = async {
            let flags = OpenFlags::WRITE.with(OpenFlags::CREAT);
            let handle = first.open(b"up", flags, &Attrs::EMPTY).await.unwrap();
            let file = Rc::new(File::open(&source).unwrap());
            let done = first.put(&handle, file, WHOLE, |_| {}).await.unwrap();
            assert!(done.error.is_none(), "{:?}", done.error);
            first.close(&handle).await.unwrap();
        };
        let down = async {
            let open = second.open(b"down", OpenFlags::READ, &Attrs::EMPTY);
            let handle = open.await.unwrap();
            let file = Rc::new(File::create(server.folder.file("down")).unwrap());
            let done = second.get(&handle, file, WHOLE, |_| {}).await.unwrap();
            assert!(done.error.is_none(), "{:?}", done.error);
        };
        tokio::join!(up, down);
        for copy in ["root/up", "down"] {
            assert!(fs::read(server.folder.file(copy)).unwrap() == content);
        }
    });
}

#[test]
fn a_connection_has_as_many_sessions_as_the_server_allows() {
    let server = OurServer::start(|options| options.sessions_max = 2);
    run(async {
        let first = connected(&server).await;
        let second = first.connection().open_sftp().await.unwrap();
        let refused = first.connection().open_sftp().await.unwrap_err();
        assert!(
            refused.to_string().contains("too many sessions"),
            "{refused}"
        );
        second.stat(b".").await.unwrap();
        drop(second);
        // The place is free once the server has seen the channel's end, which the next opens
        // follow in order.
        first.connection().open_sftp().await.unwrap();
    });
}

#[test]
fn a_server_that_stops_says_so_to_everyone_who_waits() {
    let mut server = OurServer::start(|_| {});
    server.folder.write("root/big", &bytes(64 << 20));
    run(async {
        let sftp = connected(&server).await;
        let open = sftp.open(b"big", OpenFlags::READ, &Attrs::EMPTY);
        let handle = open.await.unwrap();
        let sink = Rc::new(File::create(server.folder.file("sink")).unwrap());
        let mut stop = Some(&mut server);
        let get = sftp.get(&handle, sink, WHOLE, |_| {
            if let Some(server) = stop.take() {
                server.begin_stop();
            }
        });
        let error = get.await.unwrap().error.expect("it did not end by itself");
        assert!(error.is_fatal(), "{error}");
        let text = error.to_string();
        assert!(text.contains("shutting down"), "{text}");
        assert!(text.contains("127.0.0.1"), "{text}");
        assert!(sftp.stat(b".").await.unwrap_err().is_fatal());
    });
    server.stop();
}

#[test]
fn a_flood_of_reads_that_nobody_takes_leaves_others_alone() {
    let server = OurServer::start(|_| {});
    server.folder.write("root/big", &bytes(8 << 20));
    run(async {
        let greedy = connected(&server).await;
        let open = greedy.open(b"big", OpenFlags::READ, &Attrs::EMPTY);
        let handle = open.await.unwrap();
        let reads = (0..2000).map(|i| {
            let (greedy, handle) = (greedy.clone(), handle.clone());
            async move { greedy.read(&handle, i * 4096, 32_768).await }
        });
        let reads: Vec<_> = reads.map(tokio::task::spawn_local).collect();
        let modest = connected(&server).await;
        modest.stat(b"big").await.unwrap();
        for read in reads {
            read.await.unwrap().unwrap();
        }
    });
}
