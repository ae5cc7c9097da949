//! Why an operation, a transfer or a whole connection failed, as something that can be told to a
//! person and matched on by a program.

use fullbore_base::escape_for_display;
use std::fmt;
use std::sync::Arc;

use fullbore_sftp::client::BulkError;
use fullbore_sftp::proto::Code;

use crate::config::text::reason;

/// What went wrong. Cheap to clone: the end of a connection is told to everyone who waits.
#[derive(Clone, Debug)]
pub enum Error {
    /// The server answered with a failure status.
    Status {
        /// The status.
        code: Code,
        /// The server's own words, as sent.
        message: Arc<[u8]>,
    },
    /// A transfer ended early; the session goes on.
    Bulk(Arc<BulkError>),
    /// The SFTP session is over, and why; the SSH connection may live on.
    Sftp(fullbore_sftp::client::Error),
    /// The connection could not be made: no answer, unknown host key, no way to authenticate.
    Connect(Arc<str>),
    /// The connection is over, and why.
    Closed(Arc<str>),
    /// A command could not be run on the server.
    Exec(Arc<str>),
}

impl Error {
    /// The failure status that the server answered with, whether to a request or inside a transfer.
    #[must_use]
    pub fn status(&self) -> Option<Code> {
        match self {
            Self::Status { code, .. } => Some(*code),
            Self::Bulk(error) => match **error {
                BulkError::Status { code, .. } => Some(code),
                BulkError::Local { .. }
                | BulkError::NoProgress { .. }
                | BulkError::EndInside { .. }
                | BulkError::TooLong
                | BulkError::Cancelled => None,
            },
            Self::Sftp(_) | Self::Connect(_) | Self::Closed(_) | Self::Exec(_) => None,
        }
    }

    /// Whether the server said that there is no such file.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(Code::NoSuchFile)
    }

    /// Whether nothing more can be done on this connection.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::Sftp(_) | Self::Connect(_) | Self::Closed(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { code, message } => {
                write!(f, "{code}")?;
                if !message.is_empty() && !message.eq_ignore_ascii_case(code.text().as_bytes()) {
                    write!(f, ": {}", escape_for_display(message))?;
                }
                Ok(())
            }
            Self::Bulk(error) => match &**error {
                BulkError::Local { offset, error } => {
                    write!(f, "{} at offset {offset}", reason(error))
                }
                other => other.fmt(f),
            },
            Self::Sftp(error) => error.fmt(f),
            Self::Connect(why) | Self::Closed(why) | Self::Exec(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

impl From<fullbore_sftp::client::Error> for Error {
    fn from(error: fullbore_sftp::client::Error) -> Self {
        Self::Sftp(error)
    }
}
