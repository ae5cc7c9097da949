//! Asking a person: through the terminal, or through the program that SSH_ASKPASS names.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::config::Environment;
use crate::config::prompt::{Prompter, SecretText};

/// The longest answer, in bytes. OpenSSH's is 1023.
const ANSWER_BYTES_MAX: usize = 1023;

/// The terminal's modes while an answer is typed unseen, to be put back by whoever ends the program.
static HIDDEN: Mutex<Option<Termios>> = Mutex::new(None);

/// Puts the terminal back as it was before a question whose answer is not shown. For the way out
/// after an interrupt; does nothing when no question is open.
pub fn restore() {
    let saved = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (Some(modes), Ok(tty)) = (saved, open_tty()) {
        let _ = tcsetattr(&tty, OptionalActions::Now, &modes);
    }
}

fn open_tty() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

/// The way to reach the person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Terminal,
    Askpass,
}

/// Asks on the terminal, or through SSH_ASKPASS (ssh(1) ENVIRONMENT).
#[derive(Debug, Clone)]
pub struct Person {
    askpass: Option<OsString>,
    /// In the order in which they are tried.
    ways: Vec<Way>,
}

impl Person {
    /// Looks at SSH_ASKPASS, SSH_ASKPASS_REQUIRE and DISPLAY.
    #[must_use]
    pub fn new(environment: &dyn Environment) -> Person {
        let set = |name: &str| environment.variable(name).filter(|value| !value.is_empty());
        let has_display = set("DISPLAY").is_some() || set("WAYLAND_DISPLAY").is_some();
        let require = set("SSH_ASKPASS_REQUIRE");
        let require = require.and_then(|value| value.into_string().ok());
        let ways = match require.as_deref() {
            Some("never") => vec![Way::Terminal],
            Some("force") => vec![Way::Askpass],
            Some("prefer") => vec![Way::Askpass, Way::Terminal],
            _ if has_display => vec![Way::Terminal, Way::Askpass],
            _ => vec![Way::Terminal],
        };
        Person {
            askpass: set("SSH_ASKPASS"),
            ways,
        }
    }

    fn ask(&self, question: &str, is_shown: bool) -> Option<SecretText> {
        for way in &self.ways {
            match way {
                Way::Terminal => {
                    let Ok(mut tty) = open_tty() else { continue };
                    return ask_terminal(&mut tty, question, is_shown).ok().flatten();
                }
                Way::Askpass => {
                    let Some(program) = &self.askpass else {
                        continue;
                    };
                    return ask_program(program, question).ok().flatten();
                }
            }
        }
        None
    }
}

impl Prompter for Person {
    fn secret(&mut self, question: &str) -> Option<SecretText> {
        self.ask(question, false)
    }

    fn text(&mut self, question: &str) -> Option<SecretText> {
        self.ask(question, true)
    }

    fn tell(&mut self, message: &str) {
        let _ = writeln!(io::stderr(), "{message}");
    }
}

fn ask_terminal(tty: &mut File, question: &str, is_shown: bool) -> io::Result<Option<SecretText>> {
    tty.write_all(question.as_bytes())?;
    if is_shown {
        return read_line(tty);
    }
    let before = tcgetattr(&*tty)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    hidden.local_modes.insert(LocalModes::ECHONL);
    *HIDDEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    tcsetattr(&*tty, OptionalActions::Flush, &hidden)?;
    let answer = read_line(tty);
    restore();
    answer
}

/// A line without its end. None at the end of input, or when it is too long or not UTF-8.
fn read_line(input: &mut impl io::Read) -> io::Result<Option<SecretText>> {
    let mut line = Zeroizing::new(Vec::with_capacity(ANSWER_BYTES_MAX));
    let mut byte = Zeroizing::new([0]);
    loop {
        if input.read(&mut byte[..])? == 0 {
            if line.is_empty() {
                return Ok(None);
            }
            break;
        }
        match byte[0] {
            b'\n' => break,
            _ if line.len() == ANSWER_BYTES_MAX => return Ok(None),
            byte => line.push(byte),
        }
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(std::str::from_utf8(&line)
        .ok()
        .map(|text| Zeroizing::new(text.to_owned())))
}

fn ask_program(program: &OsString, question: &str) -> io::Result<Option<SecretText>> {
    let mut child = Command::new(program)
        .arg(question)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = child.stdout.take().expect("its output was asked for");
    let answer = read_line(&mut output);
    // What follows the first line is not the answer; the program shall not block on it.
    let _ = io::copy(&mut output.by_ref().take(64 << 10), &mut io::sink());
    drop(output);
    let status = child.wait()?;
    if !status.success() {
        return Ok(None);
    }
    answer.map(|answer| Some(answer.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fake::Fake;
    use std::os::unix::fs::PermissionsExt;

    fn ways(variables: &[(&str, &str)]) -> Vec<Way> {
        let mut fake = Fake::new(&[]);
        for (name, value) in variables {
            fake.variables
                .insert((*name).to_owned(), (*value).to_owned());
        }
        Person::new(&fake).ways
    }

    #[test]
    fn the_variables_choose_the_way() {
        use Way::{Askpass, Terminal};
        assert_eq!(ways(&[]), [Terminal]);
        assert_eq!(ways(&[("DISPLAY", ":0")]), [Terminal, Askpass]);
        assert_eq!(ways(&[("SSH_ASKPASS_REQUIRE", "force")]), [Askpass]);
        assert_eq!(
            ways(&[("SSH_ASKPASS_REQUIRE", "prefer")]),
            [Askpass, Terminal]
        );
        assert_eq!(
            ways(&[("SSH_ASKPASS_REQUIRE", "never"), ("DISPLAY", ":0")]),
            [Terminal]
        );
    }

    #[test]
    fn lines_end_where_they_should() {
        let line = |text: &[u8]| {
            read_line(&mut &text[..])
                .expect("memory can be read")
                .map(|t| t.to_string())
        };
        assert_eq!(line(b"pass word\nrest").as_deref(), Some("pass word"));
        assert_eq!(line(b"x\r\n").as_deref(), Some("x"));
        assert_eq!(line(b"\n").as_deref(), Some(""));
        assert_eq!(line(b"").as_deref(), None);
        assert_eq!(line(b"no end").as_deref(), Some("no end"));
        assert_eq!(line(b"\xff\n").as_deref(), None);
        assert!(line(&[b'x'; ANSWER_BYTES_MAX]).is_some());
        assert!(line(&[b'x'; ANSWER_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn a_program_answers() {
        let folder = fullbore_testkit::Folder::new("askpass");
        let answer = |script: &str| {
            let path = folder.write("program", script.as_bytes());
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("set");
            ask_program(&path.clone().into(), "Question?")
                .expect("runs")
                .map(|t| t.to_string())
        };
        assert_eq!(
            answer("#!/bin/sh\necho \"$1 yes\"; echo more\n").as_deref(),
            Some("Question? yes")
        );
        assert_eq!(answer("#!/bin/sh\necho secret; exit 1\n"), None);
        assert_eq!(answer("#!/bin/sh\n").as_deref(), Some(""));
    }
}
