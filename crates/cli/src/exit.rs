//! Exit codes: scp's and sftp's.

use std::process::ExitCode;

use crate::output;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Every file is right.
    Done,
    /// A file was not copied, or the arguments make no sense.
    Failed,
    /// No connection, or none any more.
    Connection,
    /// Interrupted: 128 and the signal's number, as a shell gives it.
    Interrupted,
    /// A code of another program that this one stands for.
    Code(u8),
}

impl Exit {
    /// The code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Connection => 255,
            Exit::Interrupted => 130,
            Exit::Code(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Says what is wrong with the arguments.
pub(crate) fn usage(why: &str) -> Exit {
    output::error(&format!("fullbore: {}", why.trim_end()));
    Exit::Failed
}
