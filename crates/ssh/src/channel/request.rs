//! Channel requests: their shapes, read and written (RFC 4254 section 6, OpenSSH PROTOCOL 2).

use super::MessageQueue;
use crate::config::PAYLOAD_BYTES_MAX;

use crate::msg::SSH_MSG_CHANNEL_REQUEST;
use crate::wire::{FieldError, Put, Reader};

/// A request on a session channel, for the application to grant or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelRequest<'a> {
    /// RFC 4254 6.4: an environment variable. Names and values are bytes.
    Env {
        /// The variable.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// RFC 4254 6.5: run a command.
    Exec {
        /// The command line, for a shell.
        command: &'a [u8],
    },
    /// RFC 4254 6.5: run a predefined subsystem.
    Subsystem {
        /// Its name, such as `sftp`.
        name: &'a [u8],
    },
    /// RFC 4254 6.5: run the user's shell.
    Shell,
    /// RFC 4254 6.2: a terminal.
    Pty {
        /// The `TERM` variable.
        term: &'a [u8],
        /// Its size.
        size: TerminalSize,
        /// Encoded terminal modes (RFC 4254 section 8).
        modes: &'a [u8],
    },
    /// RFC 4254 6.7: the terminal changed its size.
    WindowChange(TerminalSize),
    /// RFC 4254 6.9: a signal for the program.
    Signal {
        /// Its name without `SIG`.
        name: &'a [u8],
    },
    /// Any other request.
    Other {
        /// Its type.
        name: &'a [u8],
        /// Type-specific bytes.
        data: &'a [u8],
    },
}

/// A terminal's size; zero is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalSize {
    /// Characters per line.
    pub columns: u32,
    /// Lines.
    pub rows: u32,
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
}

impl TerminalSize {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            columns: reader.u32()?,
            rows: reader.u32()?,
            width: reader.u32()?,
            height: reader.u32()?,
        })
    }
}

impl<'a> ChannelRequest<'a> {
    /// Reads the type-specific part of a request named `name`.
    pub(crate) fn read(name: &'a [u8], data: &'a [u8]) -> Result<Self, FieldError> {
        let mut reader = Reader::new(data);
        let request = match name {
            b"env" => Self::Env {
                name: reader.string()?,
                value: reader.string()?,
            },
            b"exec" => Self::Exec {
                command: reader.string()?,
            },
            b"subsystem" => Self::Subsystem {
                name: reader.string()?,
            },
            b"shell" => Self::Shell,
            b"pty-req" => Self::Pty {
                term: reader.string()?,
                size: TerminalSize::read(&mut reader)?,
                modes: reader.string()?,
            },
            b"window-change" => Self::WindowChange(TerminalSize::read(&mut reader)?),
            b"signal" => Self::Signal {
                name: reader.string()?,
            },
            _ => return Ok(Self::Other { name, data }),
        };
        reader.finish()?;
        Ok(request)
    }

    /// Whether it starts the channel's program. RFC 4254 6.5: "Only one of these requests can
    /// succeed per channel."
    #[must_use]
    pub const fn starts_program(&self) -> bool {
        matches!(
            self,
            Self::Exec { .. } | Self::Subsystem { .. } | Self::Shell
        )
    }
}

/// A `CHANNEL_REQUEST` as it comes in, behind the channel number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) want_reply: bool,
    pub(crate) data: &'a [u8],
}

impl<'a> Incoming<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, FieldError> {
        let mut reader = Reader::new(bytes);
        Ok(Self {
            name: reader.string()?,
            want_reply: reader.bool()?,
            data: reader.rest(),
        })
    }
}

/// How the peer's program was killed (RFC 4254 6.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitSignal {
    /// The signal's name without `SIG`; untrusted, cut at 64 bytes.
    pub name: Vec<u8>,
    /// Whether it dumped core.
    pub core_dumped: bool,
    /// The peer's words; untrusted, cut at 1 KiB.
    pub message: Vec<u8>,
}

impl ExitSignal {
    const NAME_BYTES_MAX: usize = 64;
    const MESSAGE_BYTES_MAX: usize = 1024;

    pub(crate) fn read(data: &[u8]) -> Result<Self, FieldError> {
        let mut reader = Reader::new(data);
        let cut = |bytes: &[u8], max: usize| bytes[..bytes.len().min(max)].to_vec();
        let name = cut(reader.string()?, Self::NAME_BYTES_MAX);
        let core_dumped = reader.bool()?;
        let message = cut(reader.string()?, Self::MESSAGE_BYTES_MAX);
        reader.string()?;
        reader.finish()?;
        Ok(Self {
            name,
            core_dumped,
            message,
        })
    }
}

/// Unanswered requests of one channel at which no further packet is opened.
pub const REQUESTS_COUNT_MAX: usize = 32;

/// Bytes of unanswered requests of one channel at which no further packet is opened.
pub const REQUESTS_BYTES_MAX: usize = 64 * 1024;

/// Environment variables of one channel; further ones are refused. Clients send a locale, some a
/// dozen.
pub const ENV_COUNT_MAX: usize = 128;

/// Bytes of environment, names and values, of one channel; further ones are refused.
pub const ENV_BYTES_MAX: usize = 64 * 1024;

/// Requests of the peer that wait for the application, oldest first.
#[derive(Debug)]
pub(crate) struct Requests {
    queue: MessageQueue,
    env_count: usize,
    env_bytes: usize,
    has_program: bool,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            // One whole packet may come on top of what closes the gate.
            queue: MessageQueue::new(REQUESTS_BYTES_MAX + PAYLOAD_BYTES_MAX),
            env_count: 0,
            env_bytes: 0,
            has_program: false,
        }
    }
}

impl Requests {
    /// Keeps a request as it came, behind the channel number.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let fits = self.queue.push(bytes);
        debug_assert!(fits, "no packet is opened once the gate is closed");
    }

    /// The oldest request and whether its sender wants an answer.
    pub(crate) fn front(&self) -> Option<(ChannelRequest<'_>, bool)> {
        let incoming = Incoming::read(self.queue.front()?).ok()?;
        let request = ChannelRequest::read(incoming.name, incoming.data).ok()?;
        Some((request, incoming.want_reply))
    }

    /// Whether the oldest is refused without asking the application.
    pub(crate) fn is_front_refused(&self) -> bool {
        match self.front() {
            None => false,
            Some((ChannelRequest::Env { name, value }, _)) => {
                self.env_count >= ENV_COUNT_MAX
                    || self.env_bytes + name.len() + value.len() > ENV_BYTES_MAX
            }
            Some((ChannelRequest::Other { name, .. }, _)) => name == KEEPALIVE || name == EOW,
            Some((request, _)) => request.starts_program() && self.has_program,
        }
    }

    /// Drops the oldest, answered with `ok`. Returns whether its sender wants to know.
    pub(crate) fn pop(&mut self, ok: bool) -> bool {
        let Some((request, want_reply)) = self.front() else {
            return false;
        };
        let starts_program = request.starts_program();
        let env_bytes = if let ChannelRequest::Env { name, value } = request {
            Some(name.len() + value.len())
        } else {
            None
        };
        if ok {
            self.has_program |= starts_program;
            self.env_count += usize::from(env_bytes.is_some());
            self.env_bytes += env_bytes.unwrap_or(0);
        }
        self.queue.pop();
        want_reply
    }

    /// Whether no further packet may be opened before the application answers.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.count() >= REQUESTS_COUNT_MAX || self.queue.len() >= REQUESTS_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Requests held.
    pub(crate) const fn count(&self) -> usize {
        self.queue.count()
    }
}

/// Asked to see whether the other end lives; any answer will do.
pub(crate) const KEEPALIVE: &[u8] = b"keepalive@openssh.com";

/// OpenSSH PROTOCOL 2.1: the peer will discard further data of ours.
pub(crate) const EOW: &[u8] = b"eow@openssh.com";

/// Reads the status of an `exit-status` request.
pub(crate) fn read_exit_status(data: &[u8]) -> Result<u32, FieldError> {
    let mut reader = Reader::new(data);
    let status = reader.u32()?;
    reader.finish()?;
    Ok(status)
}

/// Starts a `CHANNEL_REQUEST` in `out`: the type-specific part follows. The channel number is the
/// peer's and is put in when the message is sent: requests are queued before it is known.
pub(crate) fn start(out: &mut Vec<u8>, name: &str, want_reply: bool) {
    out.clear();
    out.put_u8(SSH_MSG_CHANNEL_REQUEST);
    out.put_u32(0);
    out.put_string(name.as_bytes());
    out.put_bool(want_reply);
}

/// Writes the peer's channel number into a queued message.
pub(crate) fn address(message: &mut [u8], remote_id: u32) {
    message[1..5].copy_from_slice(&remote_id.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        build(&mut out);
        out
    }

    #[test]
    fn known_requests_are_read_to_their_last_byte() {
        let exec = data(|d| d.put_string(b"ls"));
        assert_eq!(
            ChannelRequest::read(b"exec", &exec),
            Ok(ChannelRequest::Exec { command: b"ls" })
        );
        let long = data(|d| {
            d.put_string(b"ls");
            d.put_u8(0);
        });
        assert_eq!(
            ChannelRequest::read(b"exec", &long),
            Err(FieldError::TrailingBytes)
        );
        assert_eq!(
            ChannelRequest::read(b"exec", &exec[..5]),
            Err(FieldError::Truncated)
        );
        assert_eq!(
            ChannelRequest::read(b"x11-req", &exec),
            Ok(ChannelRequest::Other {
                name: b"x11-req",
                data: &exec
            })
        );
    }

    #[test]
    fn a_terminal_request_keeps_its_size_and_modes() {
        let pty = data(|d| {
            d.put_string(b"xterm");
            for n in [80, 24, 640, 480] {
                d.put_u32(n);
            }
            d.put_string(&[0]);
        });
        let size = TerminalSize {
            columns: 80,
            rows: 24,
            width: 640,
            height: 480,
        };
        assert_eq!(
            ChannelRequest::read(b"pty-req", &pty),
            Ok(ChannelRequest::Pty {
                term: b"xterm",
                size,
                modes: &[0]
            })
        );
    }

    fn incoming(name: &str, want_reply: bool, body: &[u8]) -> Vec<u8> {
        data(|d| {
            d.put_string(name.as_bytes());
            d.put_bool(want_reply);
            d.put_raw(body);
        })
    }

    #[test]
    fn one_program_per_channel_and_the_second_is_refused_unasked() {
        let mut requests = Requests::default();
        requests.push(&incoming("shell", true, b""));
        assert!(!requests.is_front_refused());
        assert!(requests.pop(true));
        requests.push(&incoming("shell", false, b""));
        assert!(requests.is_front_refused());
        assert!(!requests.pop(false));
    }

    #[test]
    fn environment_is_taken_to_its_limit_and_refused_past_it() {
        let mut requests = Requests::default();
        let env = incoming(
            "env",
            true,
            &data(|d| {
                d.put_string(b"A");
                d.put_string(b"");
            }),
        );
        for _ in 0..ENV_COUNT_MAX {
            requests.push(&env);
            assert!(!requests.is_front_refused());
            requests.pop(true);
        }
        requests.push(&env);
        assert!(requests.is_front_refused());
    }

    #[test]
    fn the_gate_closes_at_the_limit_of_unanswered_requests() {
        let mut requests = Requests::default();
        for _ in 0..REQUESTS_COUNT_MAX {
            assert!(!requests.is_full());
            requests.push(&incoming("shell", true, b""));
        }
        assert!(requests.is_full());
        requests.pop(false);
        assert!(!requests.is_full());
        requests.push(&incoming("x", true, &[0; REQUESTS_BYTES_MAX]));
        assert!(requests.is_full());
    }

    #[test]
    fn an_exit_signal_is_cut_at_its_limits() {
        let signal = data(|d| {
            d.put_string(&[b'K'; 65]);
            d.put_bool(true);
            d.put_string(&[b'm'; 1025]);
            d.put_string(b"en");
        });
        let read = ExitSignal::read(&signal).expect("well formed");
        assert_eq!((read.name.len(), read.message.len()), (64, 1024));
        assert!(read.core_dumped);
    }
}
