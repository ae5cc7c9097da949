//! The program's body: starts the server, says what to type on the client, and stops on a signal.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::listen::{ServeError, Server, runtime};
use super::log::{Log, LogSink};
use super::options::ServeOptions;
use crate::driver::signals::{hide_memory, raise_file_limit};

/// Serves until SIGINT or SIGTERM. What to type on the client is written to `out` first.
///
/// # Errors
/// When the server cannot start.
pub fn run(
    options: &ServeOptions,
    sink: Arc<dyn LogSink>,
    out: &mut dyn Write,
) -> Result<(), ServeError> {
    hide_memory();
    raise_file_limit();
    let runtime = runtime().map_err(ServeError::System)?;
    // Before anything is listened on: a signal must find its handler.
    let (mut interrupt, mut terminate) = runtime
        .block_on(async {
            let interrupt = signal(SignalKind::interrupt())?;
            Ok((interrupt, signal(SignalKind::terminate())?))
        })
        .map_err(ServeError::System)?;
    let log = Log::new(sink);
    let server = Server::start(options, log.clone())?;
    // Nobody may be reading, which does not keep the server from serving.
    let _ = write!(
        out,
        "{}",
        Greeting {
            options,
            server: &server
        }
    );
    let _ = out.flush();
    let name = runtime.block_on(async {
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        }
    });
    log.line(format_args!("stopping on {name}"));
    server.stop();
    Ok(())
}

/// What a person reads at the start.
struct Greeting<'a> {
    options: &'a ServeOptions,
    server: &'a Server,
}

impl fmt::Display for Greeting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = if self.options.read_only {
            "read only"
        } else {
            "read and write"
        };
        let root = self.server.root().display();
        writeln!(f, "Serving {root} ({access}). Stop with Ctrl-C.")?;
        for address in self.server.addresses() {
            writeln!(f, "Listening on {} port {}.", address.ip(), address.port())?;
        }
        for address in self.server.udp_addresses() {
            let (ip, port) = (address.ip(), address.port());
            writeln!(f, "UDP for clients that are logged in: {ip} port {port}.")?;
        }
        for key in self.server.host_keys() {
            let new = if key.is_new { ", made just now" } else { "" };
            writeln!(f, "Host key: {} {}{new}", key.algorithm, key.fingerprint)?;
        }
        self.who_may_log_in(f)?;
        if let Some(&address) = self.server.addresses().first() {
            what_to_type(f, address, self.options.user.as_deref())?;
        }
        Ok(())
    }
}

impl Greeting<'_> {
    fn who_may_log_in(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = &self.options.authorized_keys;
        let names: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
        let names = names.join(" or ");
        match (self.server.key_count(), self.options.password.is_some()) {
            (0, true) => writeln!(f, "A password is needed to log in."),
            (0, false) => {
                writeln!(f, "Nobody can log in yet: there is no key in {names}.")?;
                let Some(file) = files.first() else {
                    return Ok(());
                };
                writeln!(
                    f,
                    "Let a key in with:\n  cat ~/.ssh/id_ed25519.pub >> {}",
                    file.display()
                )?;
                writeln!(f, "(ssh-keygen -t ed25519 makes one.)")
            }
            (count, has_password) => {
                let keys = if count == 1 { "key" } else { "keys" };
                let or = if has_password {
                    "; or with the password"
                } else {
                    ""
                };
                writeln!(f, "{count} {keys} may log in, from {names}{or}.")
            }
        }
    }
}

fn what_to_type(
    f: &mut fmt::Formatter<'_>,
    address: SocketAddr,
    user: Option<&str>,
) -> fmt::Result {
    let port = address.port();
    let user = user.map_or(String::new(), |user| format!("{user}@"));
    let (host, place) = match address.ip() {
        ip if ip.is_unspecified() => ("HOST".to_owned(), "on the client"),
        ip if ip.is_loopback() => (bracketed(ip), "on this machine"),
        ip => (bracketed(ip), "on the client"),
    };
    writeln!(f, "To copy, type {place}:")?;
    writeln!(f, "  fullbore cp -P {port} FILE {user}{host}:")?;
    writeln!(f, "  fullbore cp -P {port} {user}{host}:FILE .")?;
    let host = host.trim_matches(['[', ']']);
    writeln!(f, "  sftp -P {port} {user}{host}")
}

fn bracketed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::serve::log::NoLog;
    use fullbore_testkit::Folder;

    fn greeting(change: impl FnOnce(&mut ServeOptions)) -> String {
        let folder = Folder::new("greeting");
        let mut options = ServeOptions::new(&folder.0, &folder.0);
        options.listen = vec![([127, 0, 0, 1], 0).into()];
        options.root = folder.0.clone();
        change(&mut options);
        let server = Server::start(&options, Log::new(Arc::new(NoLog))).expect("it starts");
        let greeting = Greeting {
            options: &options,
            server: &server,
        };
        greeting.to_string()
    }

    #[test]
    fn it_says_how_to_let_the_first_key_in() {
        let text = greeting(|_| {});
        assert!(text.contains("Nobody can log in yet"), "{text}");
        assert!(text.contains(">> "), "{text}");
        assert!(text.contains("made just now"), "{text}");
    }

    #[test]
    fn it_says_what_to_type() {
        let text = greeting(|options| options.user = Some("me".to_owned()));
        assert!(text.contains("me@127.0.0.1:"), "{text}");
        assert!(text.contains("sftp -P "), "{text}");
    }
}
