//! The client against a real sshd. Passed over where none is installed.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use fullbore::client::connect;
use support::{SIZES, Script, Sshd, bytes, context, host, round_trip, run};

#[test]
fn files_of_all_sizes_come_back_as_they_went() {
    let Some(sshd) = Sshd::start("") else { return };
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
