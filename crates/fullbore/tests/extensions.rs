//! OpenSSH's extensions of SFTP, each from the client to a real sshd and to our own server.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

use fullbore::client::{Sftp, connect};
use fullbore_sftp::proto::{Attrs, CheckFile, HashAlgorithm, OpenFlags};
use support::{Folder, OurServer, Script, context, host, run, start_sshd};

/// A session, and the folder in which it works: what the client calls it, where this test sees it, and the
/// home folder as the client is told of it.
struct Peer {
    sftp: Sftp,
    there: String,
    seen: PathBuf,
    home: Vec<u8>,
    /// Older servers want the user's own name, too.
    user: Vec<u8>,
}

async fn connected(folder: &Folder, port: u16) -> Sftp {
    let host = host(folder, port, &[]);
    connect(&host, &context(&Script::default())).await.unwrap()
}

impl Peer {
    fn there(&self, name: &str) -> Vec<u8> {
        format!("{}/{name}", self.there).into_bytes()
    }

    async fn open(&self, name: &str, flags: OpenFlags) -> fullbore_sftp::client::Handle {
        let path = self.there(name);
        let opened = self.sftp.open(&path, flags, &Attrs::EMPTY);
        opened.await.unwrap()
    }

    /// All that both OpenSSH's server and ours offer.
    async fn try_all(&self) {
        let sftp = &self.sftp;
        fs::write(self.seen.join("f"), b"hello, world").unwrap();
        symlink("f", self.seen.join("link")).unwrap();

        let vfs = sftp.statvfs(&self.there("f")).await.unwrap();
        let file = self.open("f", OpenFlags::READ).await;
        let same = sftp.fstatvfs(&file).await.unwrap();
        assert_eq!((vfs.bsize, vfs.blocks), (same.bsize, same.blocks));
        assert!(vfs.blocks > 0 && vfs.namemax >= 255);

        let times = Attrs {
            times: Some((1_000_000_000, 1_100_000_000)),
            ..Attrs::EMPTY
        };
        sftp.lsetstat(&self.there("link"), &times).await.unwrap();
        let mtime = |name: &str| self.seen.join(name).symlink_metadata().unwrap().mtime();
        assert_eq!(mtime("link"), 1_100_000_000);
        assert!(mtime("f") > 1_100_000_000, "the link, and not its target");

        let limits = sftp.limits().await.unwrap();
        assert!(limits.packet_bytes_max > 32_768 && limits.read_bytes_max >= 32_768);
        assert!(limits.write_bytes_max >= 32_768);

        let new = OpenFlags::WRITE.with(OpenFlags::CREAT);
        let copy = self.open("copy", new).await;
        sftp.copy_data((&file, 7), 0, (&copy, 1)).await.unwrap();
        sftp.copy_data((&file, 0), 1, (&copy, 0)).await.unwrap();
        sftp.fsync(&copy).await.unwrap();
        assert_eq!(fs::read(self.seen.join("copy")).unwrap(), b"hworld");

        sftp.hardlink(&self.there("f"), &self.there("hard"))
            .await
            .unwrap();
        assert_eq!(self.seen.join("f").metadata().unwrap().nlink(), 2);
        sftp.posix_rename(&self.there("copy"), &self.there("hard"))
            .await
            .unwrap();
        assert_eq!(fs::read(self.seen.join("hard")).unwrap(), b"hworld");

        let home = sftp.home_directory(&self.user).await.unwrap();
        assert_eq!(home, self.home);
        assert_eq!(sftp.expand_path(b"~").await.unwrap(), self.home);
        let below = match &self.home[..] {
            b"/" => b"/x".to_vec(),
            home => [home, b"/x"].concat(),
        };
        assert_eq!(sftp.expand_path(b"~/x").await.unwrap(), below);

        let (users, groups) = sftp
            .names_by_id(&[0, 4_000_000], &[4_000_000, 0])
            .await
            .unwrap();
        assert_eq!(users, [&b"root"[..], b""]);
        assert_eq!(groups, [&b""[..], b"root"]);
        sftp.close(&file).await.unwrap();
        sftp.close(&copy).await.unwrap();
    }
}

#[test]
fn each_extension_of_sshd_does_what_it_says() {
    let Some(sshd) = start_sshd() else { return };
    run(async {
        let sftp = connected(&sshd.folder, sshd.port).await;
        let home = sftp.realpath(b".").await.unwrap();
        let there = sshd.folder.0.to_str().unwrap().to_owned();
        let seen = sshd.folder.0.clone();
        let named = std::process::Command::new("id")
            .arg("-un")
            .output()
            .unwrap();
        let user = named.stdout.trim_ascii().to_vec();
        let peer = Peer {
            sftp,
            there,
            seen,
            home,
            user,
        };
        peer.try_all().await;
    });
}

#[test]
fn each_extension_of_our_server_does_what_it_says() {
    let server = OurServer::start(|_| {});
    run(async {
        let sftp = connected(&server.folder, server.port).await;
        let seen = server.folder.file("root");
        let peer = Peer {
            sftp,
            there: String::new(),
            seen,
            home: b"/".to_vec(),
            user: Vec::new(),
        };
        peer.try_all().await;
        // Digests of a part, by handle and by name, in blocks and as a whole.
        let content = b"hello, world";
        let file = peer.open("f", OpenFlags::READ).await;
        for (algorithm, name) in [
            (HashAlgorithm::Sha256, &b"sha256"[..]),
            (HashAlgorithm::Blake3, b"blake3"),
        ] {
            let digest = |part: &[u8]| match algorithm {
                HashAlgorithm::Sha256 => sha256(part),
                HashAlgorithm::Blake3 => blake3::hash(part).as_bytes().to_vec(),
            };
            let check = |offset, len, block_bytes| CheckFile {
                algorithms: name,
                offset,
                len,
                block_bytes,
            };
            let by_handle = peer.sftp.check_file(&file, check(7, 0, 0)).await.unwrap();
            assert_eq!(
                (by_handle.algorithm, by_handle.digests),
                (algorithm, digest(&content[7..]))
            );
            let by_name = peer
                .sftp
                .check_file_name(b"/f", check(0, 5, 0))
                .await
                .unwrap();
            assert_eq!(
                (by_name.algorithm, by_name.digests),
                (algorithm, digest(&content[..5]))
            );
        }
    });
}

/// As another program has it.
fn sha256(part: &[u8]) -> Vec<u8> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(part).unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    let digits = std::str::from_utf8(&said[..64]).unwrap();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..64).step_by(2).map(byte).collect()
}
