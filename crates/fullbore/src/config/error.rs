//! What is wrong with a configuration, where, in words for the person who wrote it.

use std::fmt;
use std::path::{Path, PathBuf};

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, or none for the command line.
    pub file: Option<PathBuf>,
    /// The line, counted from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl ConfigError {
    /// An error of the command line.
    #[must_use]
    pub fn command_line(what: impl Into<String>) -> ConfigError {
        ConfigError {
            file: None,
            line: 0,
            what: what.into(),
        }
    }

    /// An error of a line of a file; line 0 is the file as a whole.
    #[must_use]
    pub fn at(file: &Path, line: usize, what: impl Into<String>) -> ConfigError {
        ConfigError {
            file: Some(file.to_owned()),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (None, _) => write!(f, "command line: {}", self.what),
            (Some(file), 0) => write!(f, "{}: {}", file.display(), self.what),
            (Some(file), line) => write!(f, "{} line {line}: {}", file.display(), self.what),
        }
    }
}

impl std::error::Error for ConfigError {}
