//! The client against a real sshd. Passed over where none is installed.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::fs::{self, File};
use std::rc::Rc;

use fullbore::client::{Sftp, connect};
use fullbore_sftp::proto::{Attrs, OpenFlags};
use support::{Script, Sshd, WHOLE, bytes, context, host, run};

/// Puts `content` under `name` and gets it back.
async fn round_trip(sftp: &Sftp, folder: &support::Folder, content: &[u8]) {
    let source = Rc::new(File::open(folder.write("source", content)).unwrap());
    let there = folder.file("there").into_os_string().into_encoded_bytes();
    let flags = OpenFlags::WRITE
        .with(OpenFlags::CREAT)
        .with(OpenFlags::TRUNC);
    let handle = sftp.open(&there, flags, &Attrs::EMPTY).await.unwrap();
    let done = sftp.put(&handle, source, WHOLE, |_| {}).await.unwrap();
    assert!(done.error.is_none(), "{:?}", done.error);
    assert_eq!(done.end, content.len() as u64);
    sftp.close(&handle).await.unwrap();
    assert!(fs::read(folder.file("there")).unwrap() == content);

    let handle = sftp.open(&there, OpenFlags::READ, &Attrs::EMPTY).await;
    let handle = handle.unwrap();
    let back = Rc::new(File::create(folder.file("back")).unwrap());
    let mut told = 0;
    let done = sftp.get(&handle, back, WHOLE, |p| told = p.bytes).await;
    let done = done.unwrap();
    assert!(done.error.is_none(), "{:?}", done.error);
    assert_eq!(
        (done.end, told),
        (content.len() as u64, content.len() as u64)
    );
    sftp.close(&handle).await.unwrap();
    assert!(fs::read(folder.file("back")).unwrap() == content);
}

#[test]
fn files_of_all_sizes_come_back_as_they_went() {
    let Some(sshd) = Sshd::start("") else { return };
    run(async {
        let script = Script::default();
        let host = host(&sshd.folder, sshd.port, &[]);
        let sftp = connect(&host, &context(&script)).await.unwrap();
        for len in [0, 1, 32_767, 32_768, 32_769, 261_120, 5 << 20] {
            round_trip(&sftp, &sshd.folder, &bytes(len)).await;
        }
        sftp.connection().close().await;
        assert!(
            script.seen().contains("Permanently added"),
            "{}",
            script.seen()
        );
    });
}
