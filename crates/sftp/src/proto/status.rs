//! Status codes (draft-ietf-secsh-filexfer-02 section 7).

use std::fmt;

/// The code of a STATUS reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// SSH_FX_OK
    Ok,
    /// SSH_FX_EOF
    Eof,
    /// SSH_FX_NO_SUCH_FILE
    NoSuchFile,
    /// SSH_FX_PERMISSION_DENIED
    PermissionDenied,
    /// SSH_FX_FAILURE
    Failure,
    /// SSH_FX_BAD_MESSAGE
    BadMessage,
    /// SSH_FX_NO_CONNECTION
    NoConnection,
    /// SSH_FX_CONNECTION_LOST
    ConnectionLost,
    /// SSH_FX_OP_UNSUPPORTED
    OpUnsupported,
    /// A code that version 3 does not define; servers of later versions send some.
    Other(u32),
}

impl Code {
    /// The code as the wire carries it.
    #[must_use]
    pub const fn to_u32(self) -> u32 {
        match self {
            Self::Ok => 0,
            Self::Eof => 1,
            Self::NoSuchFile => 2,
            Self::PermissionDenied => 3,
            Self::Failure => 4,
            Self::BadMessage => 5,
            Self::NoConnection => 6,
            Self::ConnectionLost => 7,
            Self::OpUnsupported => 8,
            Self::Other(code) => code,
        }
    }

    /// The code that `value` stands for.
    #[must_use]
    pub const fn from_u32(value: u32) -> Self {
        match value {
            0 => Self::Ok,
            1 => Self::Eof,
            2 => Self::NoSuchFile,
            3 => Self::PermissionDenied,
            4 => Self::Failure,
            5 => Self::BadMessage,
            6 => Self::NoConnection,
            7 => Self::ConnectionLost,
            8 => Self::OpUnsupported,
            other => Self::Other(other),
        }
    }

    /// OpenSSH's text for the code: what a server sends that has nothing better to say.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ok => "Success",
            Self::Eof => "End of file",
            Self::NoSuchFile => "No such file",
            Self::PermissionDenied => "Permission denied",
            Self::Failure => "Failure",
            Self::BadMessage => "Bad message",
            Self::NoConnection => "No connection",
            Self::ConnectionLost => "Connection lost",
            Self::OpUnsupported => "Operation unsupported",
            Self::Other(_) => "Unknown error",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Other(code) = self {
            write!(f, "unknown status {code}")
        } else {
            f.write_str(self.text())
        }
    }
}
