//! Sockets of this machine that only this user reaches: both ends see who is at the other.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tokio::net::UnixListener;

use super::signals::terminate;

/// A socket that listens, and its name, which goes with it.
#[derive(Debug)]
pub struct LocalListener {
    socket: UnixListener,
    path: PathBuf,
    /// Of the name, so that nobody else's is removed.
    inode: u64,
}

impl LocalListener {
    /// Listens under `path`: mode 0600, in a folder that is made with 0700 where there is none. A name
    /// that is there is replaced, so look first whether somebody listens.
    ///
    /// # Errors
    /// When others may write to the folder, the path is too long for a socket, or what the operating
    /// system says.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)?;
        let facts = std::fs::metadata(folder)?;
        if facts.uid() != own_uid() || facts.mode() & 0o022 != 0 {
            return Err(io::Error::other("others may write to its folder"));
        }
        // Nobody finds it before it has its mode.
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{}", std::process::id()));
        let new = PathBuf::from(new);
        let _ = std::fs::remove_file(&new);
        let socket = UnixListener::bind(&new)?;
        let named = std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))
            .and_then(|()| std::fs::rename(&new, path))
            .and_then(|()| std::fs::symlink_metadata(path));
        match named {
            Ok(facts) => Ok(Self {
                socket,
                path: path.to_owned(),
                inode: facts.ino(),
            }),
            Err(error) => {
                let _ = std::fs::remove_file(&new);
                Err(error)
            }
        }
    }

    /// The next client of this user; others are hung up on.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn accept(&self) -> io::Result<OwnedFd> {
        loop {
            let (stream, _) = self.socket.accept().await?;
            let stream = OwnedFd::from(stream.into_std()?);
            if peer(&stream).is_ok() {
                return Ok(stream);
            }
        }
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        let facts = std::fs::symlink_metadata(&self.path);
        if facts.is_ok_and(|facts| facts.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Connects to who listens under `path`, a process of this user; and its number. The socket does not
/// block, nor does this: a listener that takes nobody is one that is not there.
///
/// # Errors
/// When nobody does, or somebody else; `WouldBlock` when as many wait for it as may.
pub fn connect(path: &Path) -> io::Result<(OwnedFd, i32)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(path)?)?;
    let pid = peer(&stream)?;
    Ok((stream, pid))
}

/// How long a process that was asked to end may take for it.
const END_MAX: Duration = Duration::from_secs(5);

/// Ends the process of this user that listens under `path`, and waits until it has gone.
///
/// # Errors
/// As [`connect`]; `TimedOut` when it does not end.
pub fn end(path: &Path) -> io::Result<()> {
    let (stream, pid) = connect(path)?;
    terminate(pid)?;
    let mut stream = UnixStream::from(stream);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(END_MAX))?;
    // What it says meanwhile is not for us.
    let mut words = [0; 4096];
    loop {
        match stream.read(&mut words) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // Closed, one way or the other.
            Ok(0) | Err(_) => return Ok(()),
        }
    }
}

/// The process at the other end, if it is this user's.
fn peer(stream: impl AsFd) -> io::Result<i32> {
    let who = socket_peercred(stream)?;
    if who.uid.as_raw() != own_uid() {
        return Err(io::Error::other("another user is at the other end"));
    }
    Ok(who.pid.as_raw_nonzero().get())
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_testkit::Folder;

    #[tokio::test(flavor = "current_thread")]
    async fn a_listener_is_private_and_takes_its_name_away() {
        let folder = Folder::new("socket");
        let path = folder.0.join("new/master");
        let first = LocalListener::bind(&path).expect("bound");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!((mode(&path), mode(&folder.0.join("new"))), (0o600, 0o700));
        let (_client, pid) = connect(&path).expect("connected");
        assert_eq!(pid.unsigned_abs(), std::process::id());
        first.accept().await.expect("accepted");
        // A later one has the name, and keeps it when the first goes.
        let second = LocalListener::bind(&path).expect("bound");
        drop(first);
        connect(&path).expect("connected");
        drop(second);
        assert!(connect(&path).is_err() && !path.exists());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_folder_that_others_may_write_to_is_refused() {
        let folder = Folder::new("socket");
        let open = std::fs::Permissions::from_mode(0o770);
        std::fs::set_permissions(&folder.0, open).expect("changed");
        assert!(LocalListener::bind(&folder.0.join("master")).is_err());
    }

    #[test]
    fn a_listener_that_takes_nobody_keeps_nobody_waiting() {
        let folder = Folder::new("socket");
        let path = folder.0.join("master");
        let flags = SocketFlags::CLOEXEC;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let listener = listener.expect("made");
        let address = SocketAddrUnix::new(&path).expect("short");
        rustix::net::bind(&listener, &address).expect("bound");
        rustix::net::listen(&listener, 1).expect("listens");
        let mut clients = Vec::new();
        let error = loop {
            match connect(&path) {
                Ok(client) => clients.push(client),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(!clients.is_empty());
    }
}
