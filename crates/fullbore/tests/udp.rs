//! Sessions that move to UDP: to our own server, over loopback.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use fullbore::client::{Ahead, Moved, SftpConfig, connect_udp};
use fullbore::udp::offer::COMMAND;
use fullbore_sftp::proto::{Attrs, OpenFlags};
use support::{OurServer, Script, bytes, context, host, round_trip, run};

async fn moved(server: &OurServer, command: &str) -> Moved {
    let host = host(&server.folder, server.port, &[]);
    let context = context(&Script::default());
    let moved = connect_udp(&host, &context, SftpConfig::default(), &[], command).await;
    moved.unwrap()
}

#[test]
fn a_session_over_udp_is_like_any_other() {
    let server = OurServer::start(|options| options.udp = Some(0));
    run(async {
        let Moved { sftp, notice } = moved(&server, COMMAND).await;
        assert_eq!(notice, None);
        let seen = server.folder.file("root/there");
        for len in [0, 1, 3_000_000] {
            round_trip(&sftp, &server.folder, "there", &seen, &bytes(len)).await;
        }
        // More sessions on the same connection.
        let more = sftp.connection().open_sftp().await.unwrap();
        assert_eq!(more.realpath(b".").await.unwrap(), b"/");
        sftp.connection().close().await;
    });
}

#[test]
fn several_connections_share_the_servers_socket() {
    let server = OurServer::start(|options| options.udp = Some(0));
    run(async {
        let mut all = Vec::new();
        for _ in 0..5 {
            let moved = moved(&server, COMMAND).await;
            assert_eq!(moved.notice, None);
            all.push(moved.sftp);
        }
        for sftp in &all {
            assert_eq!(sftp.realpath(b".").await.unwrap(), b"/");
        }
    });
}

#[test]
fn who_may_only_read_may_not_write_over_udp_either() {
    let server = OurServer::start(|options| {
        options.udp = Some(0);
        let file = &options.authorized_keys[0];
        let keys = std::fs::read_to_string(file).unwrap();
        std::fs::write(file, format!("command=\"internal-sftp -R\" {keys}")).unwrap();
    });
    server.folder.write("root/f", b"x");
    run(async {
        let Moved { sftp, notice } = moved(&server, COMMAND).await;
        assert_eq!(notice, None);
        let open = async |flags| sftp.open(b"f", flags, &Attrs::EMPTY).await;
        assert!(open(OpenFlags::READ).await.is_ok());
        assert!(open(OpenFlags::WRITE).await.is_err());
    });
}

/// What was asked ahead is answered all the same.
#[test]
fn a_far_end_without_udp_is_used_over_tcp_and_said_to_be() {
    let server = OurServer::start(|_| {});
    server.folder.write("root/f", b"four");
    run(async {
        let host = host(&server.folder, server.port, &[]);
        let context = context(&Script::default());
        for command in [COMMAND, "something else"] {
            let ahead = [Ahead::Stat(b"f".to_vec())];
            let config = SftpConfig::default();
            let moved = connect_udp(&host, &context, config, &ahead, command).await;
            let moved = moved.unwrap();
            assert_eq!(moved.sftp.stat(b"f").await.unwrap().size, Some(4));
            let notice = moved.notice.expect("it says why");
            assert!(
                notice.contains("over TCP, not UDP: the far end says"),
                "{notice}"
            );
        }
    });
}
