//! Log lines to the system log or standard error, in OpenSSH's form.

use std::fmt;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::options::Facility;
use crate::driver::local_time::{MONTHS, local_time};
use crate::server::store::{Level, Log};

const SYSTEM_LOG_SOCKET: &str = "/dev/log";

/// Bytes of one line; the rest is cut, as syslog daemons would.
const LINE_BYTES_MAX: usize = 2048;

/// Writes lines up to a level.
#[derive(Clone, Debug)]
pub(super) struct Logger {
    level: Level,
    facility: Facility,
    target: Target,
}

#[derive(Clone, Debug)]
enum Target {
    Stderr,
    /// `None` when there is no log daemon: the lines are lost, as with syslog(3).
    System(Option<Arc<UnixDatagram>>),
}

impl Logger {
    pub(super) fn new(level: Level, facility: Facility, to_stderr: bool) -> Self {
        let target = if to_stderr {
            Target::Stderr
        } else {
            Target::System(connect())
        };
        Self {
            level,
            facility,
            target,
        }
    }
}

fn connect() -> Option<Arc<UnixDatagram>> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(SYSTEM_LOG_SOCKET).ok()?;
    Some(Arc::new(socket))
}

impl Log for Logger {
    fn is_enabled(&self, level: Level) -> bool {
        level <= self.level && self.level > Level::Quiet
    }

    fn log(&mut self, level: Level, message: fmt::Arguments<'_>) {
        if !self.is_enabled(level) {
            return;
        }
        // A log that cannot be written has nowhere to say so.
        match &self.target {
            Target::Stderr => {
                let prefix = debug_prefix(level);
                let _ = std::io::stderr().write_all(format!("{prefix}{message}\r\n").as_bytes());
            }
            Target::System(None) => {}
            Target::System(Some(socket)) => {
                let line = system_line(self.facility, level, message);
                let _ = socket.send(&line);
            }
        }
    }
}

fn debug_prefix(level: Level) -> &'static str {
    match level {
        Level::Debug1 => "debug1: ",
        Level::Debug2 => "debug2: ",
        Level::Debug3 => "debug3: ",
        Level::Quiet | Level::Fatal | Level::Error | Level::Info | Level::Verbose => "",
    }
}

/// `<priority>Mmm dd hh:mm:ss sftp-server[pid]: message` (RFC 3164 4.1).
fn system_line(facility: Facility, level: Level, message: fmt::Arguments<'_>) -> Vec<u8> {
    let (severity, prefix) = match level {
        Level::Quiet | Level::Fatal => (2, "fatal: "),
        Level::Error => (3, "error: "),
        Level::Info | Level::Verbose => (6, ""),
        Level::Debug1 | Level::Debug2 | Level::Debug3 => (7, debug_prefix(level)),
    };
    let priority = (u32::from(facility.0) << 3) | severity;
    let pid = std::process::id();
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or(0);
    let time = local_time(seconds).map_or_else(String::new, |t| {
        let month = MONTHS[usize::from(t.month) % 12];
        format!(
            "{month} {:>2} {:02}:{:02}:{:02} ",
            t.day, t.hour, t.minute, t.second
        )
    });
    let mut line = format!("<{priority}>{time}sftp-server[{pid}]: {prefix}{message}").into_bytes();
    line.truncate(LINE_BYTES_MAX);
    line
}
