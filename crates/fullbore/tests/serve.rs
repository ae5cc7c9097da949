//! The client against our own server, over loopback TCP.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use fullbore::client::connect;
use support::{OurServer, SIZES, Script, bytes, context, host, round_trip, run};

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
