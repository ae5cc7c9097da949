//! The session's log, in OpenSSH's words.

use std::fmt;

/// How important a line is, as OpenSSH's `LogLevel` has it.
#[allow(missing_docs)] // The names are OpenSSH's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Quiet,
    Fatal,
    Error,
    Info,
    Verbose,
    Debug1,
    Debug2,
    Debug3,
}

/// Where the log goes.
pub trait Log {
    /// Whether lines of that level are wanted; others are not even formatted.
    fn is_enabled(&self, level: Level) -> bool;

    /// Takes one line, without a line end and without control characters.
    fn log(&mut self, level: Level, message: fmt::Arguments<'_>);
}

/// Bytes of a peer as a log line shows them: printable text as it is, the rest in octal.
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() || c == '\\' {
                    let mut bytes = [0; 4];
                    for byte in c.encode_utf8(&mut bytes).bytes() {
                        write!(f, "\\{byte:03o}")?;
                    }
                } else {
                    f.write_char(c)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\{byte:03o}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_could_forge_a_line_are_escaped() {
        assert_eq!(
            Shown(b"a\nb\xff\\\xc3\xa9").to_string(),
            "a\\012b\\377\\134\u{e9}"
        );
    }
}
