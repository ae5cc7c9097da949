//! What a server is told at its start, and what it does without being told.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_ssh::config::RekeyLimits;

use super::gate::GateLimits;
use super::password::PasswordHash;

/// The port that is listened on without a word. Not 22, which needs privileges and mostly has a
/// server already; the one that people take for a second SSH server.
pub const PORT: u16 = 2222;

/// Everything that can be chosen.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// The UDP port that clients may go on over once they are logged in; 0 is any.
    pub udp: Option<u16>,
    /// Host key files; they must exist. Without any, one is made in the state folder.
    pub host_keys: Vec<PathBuf>,
    /// Files that say which keys may log in. They are read again when they change; missing ones
    /// are passed over.
    pub authorized_keys: Vec<PathBuf>,
    /// The one user name that may log in; without it any name may.
    pub user: Option<String>,
    /// The folder that is served, and that nothing leaves.
    pub root: PathBuf,
    /// Refuse everything that changes something.
    pub read_only: bool,
    /// The password that lets a user in; without it only keys do.
    pub password: Option<PasswordHash>,
    /// From the start of a connection to the end of its login.
    pub login_grace: Duration,
    /// When the keys of a connection are replaced.
    pub rekey: RekeyLimits,
    /// Connections at once.
    pub gate: GateLimits,
    /// Session channels of one connection.
    pub sessions_max: usize,
    /// What the windows of all connections may add up to, in bytes; else the process's default.
    pub window_budget: Option<u64>,
    /// Threads that serve connections; 0 is one for each core.
    pub workers: usize,
    /// Where the host key is kept.
    pub state: PathBuf,
    /// A fixed window for each channel instead of one that follows the path; for comparisons.
    pub local_window: Option<u32>,
}

impl ServeOptions {
    /// What a server does without being told: the loopback address, the current folder.
    /// `data_home` is the user's data folder, `home` the home folder.
    #[must_use]
    pub fn new(data_home: &Path, home: &Path) -> Self {
        let state = data_home.join("fullbore");
        Self {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))],
            udp: None,
            host_keys: Vec::new(),
            authorized_keys: vec![
                state.join("authorized_keys"),
                home.join(".ssh/authorized_keys"),
            ],
            user: None,
            root: PathBuf::from("."),
            read_only: false,
            password: None,
            // OpenSSH's LoginGraceTime.
            login_grace: Duration::from_secs(120),
            rekey: RekeyLimits::default(),
            gate: GateLimits::default(),
            // OpenSSH's MaxSessions.
            sessions_max: 10,
            window_budget: None,
            workers: 0,
            state,
            local_window: None,
        }
    }

    /// The user's data folder: `XDG_DATA_HOME` if it is an absolute path, as its specification
    /// asks, else `~/.local/share`.
    #[must_use]
    pub fn data_home(variable: Option<std::ffi::OsString>, home: &Path) -> PathBuf {
        let named = variable.map(PathBuf::from).filter(|p| p.is_absolute());
        named.unwrap_or_else(|| home.join(".local/share"))
    }

    /// Where the host key is kept that the server makes itself.
    #[must_use]
    pub fn own_host_key(&self) -> PathBuf {
        self.state.join("host_key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_only_this_machine_is_served() {
        let options = ServeOptions::new(Path::new("/data"), Path::new("/home/u"));
        assert!(options.listen.iter().all(|a| a.ip().is_loopback()));
        assert_eq!(options.own_host_key(), Path::new("/data/fullbore/host_key"));
    }

    #[test]
    fn a_relative_data_folder_is_not_one() {
        let home = Path::new("/home/u");
        let of = |v: Option<&str>| ServeOptions::data_home(v.map(Into::into), home);
        assert_eq!(of(Some("/d")), Path::new("/d"));
        assert_eq!(of(Some("d")), Path::new("/home/u/.local/share"));
        assert_eq!(of(None), Path::new("/home/u/.local/share"));
    }
}
