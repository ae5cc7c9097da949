//! The first process of the lab's PID namespace: starts the far commands and the command, reaps whatever
//! ends, and takes all others with it when it ends.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{LabError, process, signals};
use crate::link::{FAR, NEAR};

/// How long processes have to end after they are told to.
const GRACE: Duration = Duration::from_secs(3);
/// How long a far command has to listen.
const LISTEN_TIME_MAX: Duration = Duration::from_secs(20);
/// Between two tries to connect to it.
const LISTEN_POLL: Duration = Duration::from_millis(20);
/// What a shell says of a program that it cannot start.
const CODE_NOT_STARTED: u8 = 127;

/// What the emulator tells this process: its arguments, one after another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Orders {
    /// Descriptors of the namespaces.
    pub(super) near: i32,
    pub(super) far: i32,
    pub(super) far_commands: Vec<OsString>,
    pub(super) far_ports: Vec<u16>,
    pub(super) command: Vec<OsString>,
}

impl Orders {
    pub(super) fn to_arguments(&self) -> Vec<OsString> {
        let ports: Vec<String> = self.far_ports.iter().map(u16::to_string).collect();
        let head = [
            self.near.to_string(),
            self.far.to_string(),
            ports.join(","),
            self.far_commands.len().to_string(),
        ];
        let head = head.into_iter().map(OsString::from);
        head.chain(self.far_commands.iter().cloned())
            .chain(self.command.iter().cloned())
            .collect()
    }

    fn from_arguments(arguments: &[OsString]) -> Option<Self> {
        let (head, rest) = arguments.split_at_checked(4)?;
        let text: Vec<&str> = head.iter().map(|a| a.to_str()).collect::<Option<_>>()?;
        let ports = text[2].split(',').filter(|port| !port.is_empty());
        let (far_commands, command) = rest.split_at_checked(text[3].parse().ok()?)?;
        Some(Self {
            near: text[0].parse().ok()?,
            far: text[1].parse().ok()?,
            far_ports: ports.map(|port| port.parse().ok()).collect::<Option<_>>()?,
            far_commands: far_commands.to_vec(),
            command: command.to_vec(),
        })
    }
}

/// Runs as the first process; `arguments` are the emulator's. Returns the exit code: the command's, or as
/// a shell gives it.
#[must_use]
pub fn main(arguments: &[OsString]) -> u8 {
    let Some(orders) = Orders::from_arguments(arguments) else {
        eprintln!("fullbore: lab link-init is started by lab link alone");
        return CODE_NOT_STARTED;
    };
    run(&orders).unwrap_or_else(|error| {
        eprintln!("fullbore: lab link: {error}");
        CODE_NOT_STARTED
    })
}

fn run(orders: &Orders) -> Result<u8, LabError> {
    let failed = |what: &'static str| move |e: io::Error| LabError::new(what, &e);
    signals::block().map_err(failed("cannot block signals"))?;
    process::mount_proc().map_err(failed("cannot mount /proc"))?;
    let near = process::inherited(orders.near).map_err(failed("no near namespace"))?;
    let far = process::inherited(orders.far).map_err(failed("no far namespace"))?;
    for line in &orders.far_commands {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(line).stdin(Stdio::null());
        start(&mut command, &far, [&near, &far]).map_err(failed("cannot start the far command"))?;
    }
    let code = if wait_for_ports(&far, &orders.far_ports)? {
        let (program, arguments) = orders
            .command
            .split_first()
            .ok_or_else(|| LabError::new("nothing to run", &"a command is missing"))?;
        let mut command = Command::new(program);
        command.args(arguments);
        let what = format!("cannot start {}", program.to_string_lossy());
        let pid =
            start(&mut command, &near, [&near, &far]).map_err(|e| LabError::new(&what, &e))?;
        reap_until(pid)
    } else {
        // Told to end while it waited.
        Ok(143)
    };
    end_all();
    code
}

fn start(command: &mut Command, net: &File, namespaces: [&File; 2]) -> io::Result<Pid> {
    process::in_network(command, net);
    command.env("FULLBORE_NEAR", NEAR.to_string());
    command.env("FULLBORE_FAR", FAR.to_string());
    for (name, namespace) in ["FULLBORE_NEAR_NETNS", "FULLBORE_FAR_NETNS"]
        .iter()
        .zip(namespaces)
    {
        command.env(name, format!("/proc/1/fd/{}", namespace.as_raw_fd()));
    }
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// Waits until every port of the far end takes connections. False when a signal came first.
fn wait_for_ports(far: &File, ports: &[u16]) -> Result<bool, LabError> {
    let give_up_at = Instant::now() + LISTEN_TIME_MAX;
    for &port in ports {
        let address = SocketAddr::from((FAR, port));
        loop {
            match connect_inside(far, address) {
                Ok(()) => break,
                Err(e) if Instant::now() > give_up_at => {
                    let what = format!("nothing listens on port {port} of the far end");
                    return Err(LabError::new(&what, &e));
                }
                Err(_) => {}
            }
            let signal = signals::wait(LISTEN_POLL).map_err(|e| LabError::new("waiting", &e))?;
            if signal.is_some_and(|signal| signal != libc::SIGCHLD) {
                return Ok(false);
            }
            // One that goes to the background ends well.
            while let Some((_, status)) = reap() {
                let code = exit_code(status);
                if code != 0 {
                    return Err(LabError::new(
                        "the far command ended",
                        &format!("exit code {code}"),
                    ));
                }
            }
        }
    }
    Ok(true)
}

fn connect_inside(far: &File, address: SocketAddr) -> io::Result<()> {
    // A thread of its own: it stays in the namespace that it enters.
    thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            move_into_link_name_space(
                std::os::fd::AsFd::as_fd(far),
                Some(LinkNameSpaceType::Network),
            )?;
            TcpStream::connect_timeout(&address, Duration::from_secs(1)).map(|_| ())
        });
        connecting
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}

/// Reaps children until `command` ends, or a signal asks to end. Returns the exit code.
fn reap_until(command: Pid) -> Result<u8, LabError> {
    loop {
        // Once a second also without a signal: several SIGCHLD may have become one.
        let signal =
            signals::wait(Duration::from_secs(1)).map_err(|e| LabError::new("waiting", &e))?;
        if let Some(signal) = signal
            && signal != libc::SIGCHLD
        {
            return Ok(128 + u8::try_from(signal).unwrap_or(0));
        }
        while let Some((pid, status)) = reap() {
            if pid == command {
                return Ok(exit_code(status));
            }
        }
    }
}

/// One child that has ended, if any.
fn reap() -> Option<(Pid, WaitStatus)> {
    wait(WaitOptions::NOHANG).ok().flatten()
}

fn exit_code(status: WaitStatus) -> u8 {
    let status = ExitStatus::from_raw(status.as_raw());
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Asks everything else in the namespace to end, and waits for it, but not for ever: what is left when
/// this process ends is killed by the kernel.
fn end_all() {
    let give_up_at = Instant::now() + GRACE;
    process::terminate_others();
    while Instant::now() < give_up_at {
        match wait(WaitOptions::NOHANG) {
            // None left.
            Err(_) => return,
            Ok(Some(_)) => {}
            Ok(None) => {
                let _ = signals::wait(Duration::from_millis(100));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_command_line() {
        let orders = Orders {
            near: 5,
            far: 6,
            far_commands: vec!["sshd -D -p 22".into(), "".into()],
            far_ports: vec![22, 443],
            command: vec!["sh".into(), "-c".into(), "true --".into()],
        };
        assert_eq!(Orders::from_arguments(&orders.to_arguments()), Some(orders));
        assert_eq!(Orders::from_arguments(&["5".into()]), None);
    }
}
