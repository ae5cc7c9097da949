//! OpenSSH's programs, as this machine has them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Folder;

/// The `sshd` of this machine, if it has one.
#[must_use]
pub fn sshd_path() -> Option<&'static Path> {
    ["/usr/sbin/sshd", "/usr/local/sbin/sshd"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.exists())
}

/// Says that a test is passed over because this machine has no `what`.
///
/// # Panics
/// When `CI` is set: there a test passed over has failed.
pub fn pass_over(what: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "this test needs {what}, which is not here"
    );
    println!("no {what} here: not tested");
}

/// A port of the loopback that nobody listens on.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Runs `ssh-keygen`.
///
/// # Panics
/// When it is not installed or fails.
pub fn ssh_keygen(arguments: &[&str]) {
    let output = Command::new("ssh-keygen")
        .args(arguments)
        .output()
        .expect("this test needs OpenSSH's keys: install ssh-keygen");
    assert!(output.status.success(), "{output:?}");
}

/// Waits until the program has said `text` on its standard error; what it says then is read and
/// thrown away, so that it is never held up.
///
/// # Panics
/// When it ends first.
pub fn wait_for_line(child: &mut Child, text: &str) {
    let stderr = child.stderr.take().expect("standard error is a pipe");
    let mut lines = BufReader::new(stderr).lines();
    for line in lines.by_ref() {
        let line = line.expect("text");
        if line.contains(text) {
            std::thread::spawn(move || lines.for_each(drop));
            return;
        }
        eprintln!("{line}");
    }
    panic!("the program ended before it said {text:?}");
}

/// A real sshd on a loopback port, stopped at the end.
#[derive(Debug)]
pub struct Sshd {
    /// Its configuration, keys and whatever the test puts there.
    pub folder: Folder,
    /// Where it listens.
    pub port: u16,
    child: Child,
}

impl Sshd {
    /// Starts it with the key `host` of the folder as its own and the file `authorized_keys` as
    /// what lets people in; `extra` are further lines of its configuration, `Subsystem` among them. `None`, with a word
    /// about it, where no sshd is installed.
    ///
    /// # Panics
    /// When it does not start, or when there is none and `CI` is set: there a test passed over has failed.
    #[must_use]
    pub fn start(folder: Folder, extra: &str) -> Option<Self> {
        let Some(path) = sshd_path() else {
            pass_over("sshd");
            return None;
        };
        // The privilege separation folder that packages make at their start.
        let _ = fs::create_dir_all("/run/sshd");
        let port = free_port();
        let dir = folder.path().display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {dir}/host\nPidFile none\n\
             AuthorizedKeysFile {dir}/authorized_keys\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             MaxStartups 100\nLogLevel VERBOSE\n{extra}\n"
        );
        let config = folder.write("sshd_config", config.as_bytes());
        let mut child = Command::new(path)
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sshd runs");
        wait_for_line(&mut child, "Server listening on");
        Some(Self {
            folder,
            port,
            child,
        })
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
