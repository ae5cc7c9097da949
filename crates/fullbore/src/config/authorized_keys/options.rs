//! The options in front of a key: `name` and `name="value"`, separated by commas.

use super::Expiry;
use crate::config::pattern;
use crate::config::text::{escape_for_display, is_blank, split_words};

/// What one line asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `cert-authority`: the key signs certificates.
    pub cert_authority: bool,
    /// `from=`: addresses, blocks and names.
    pub from: Option<Vec<u8>>,
    /// `principals=`, with commas.
    pub principals: Option<Vec<u8>>,
    /// `expiry-time=`.
    pub expiry: Option<Expiry>,
    /// `command=`.
    pub command: Option<Vec<u8>>,
    /// `no-touch-required`.
    pub no_touch_required: bool,
    /// `verify-required`.
    pub verify_required: bool,
}

/// Flags about what the server does not offer: with `no-` in front or without, they change nothing.
const FLAGS_WITHOUT_MEANING: &[&str] = &[
    "agent-forwarding",
    "port-forwarding",
    "pty",
    "user-rc",
    "x11-forwarding",
];

/// Options with a value that say nothing about a file server.
const VALUES_WITHOUT_MEANING: &[&str] = &["environment", "permitlisten", "permitopen", "tunnel"];

/// Where the options end: the first blank outside quotes. None when a quote is not closed.
pub(super) fn end(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    let mut at = 0;
    while at < line.len() {
        match line[at] {
            b'\\' if line.get(at + 1) == Some(&b'"') => at += 1,
            b'"' => quoted = !quoted,
            byte if is_blank(byte) && !quoted => return Some(at),
            _ => {}
        }
        at += 1;
    }
    (!quoted).then_some(at)
}

impl Options {
    /// Reads a list of options.
    ///
    /// # Errors
    /// An unknown option, a value that does not parse, or an option that stands there twice.
    pub fn parse(mut text: &[u8]) -> Result<Options, String> {
        let mut options = Options::default();
        loop {
            let name_len = text
                .iter()
                .position(|b| matches!(b, b'=' | b','))
                .unwrap_or(text.len());
            let name = String::from_utf8_lossy(&text[..name_len]).to_ascii_lowercase();
            text = &text[name_len..];
            if let Some(rest) = text.strip_prefix(b"=") {
                let (value, rest) = dequote(rest).ok_or_else(|| format!("{name}= needs quotes"))?;
                options.set_value(&name, value)?;
                text = rest;
            } else {
                options.set_flag(&name)?;
            }
            match text.split_first() {
                None => return Ok(options),
                Some((b',', rest)) if !rest.is_empty() => text = rest,
                Some(_) => return Err("a comma or a blank is expected between options".to_owned()),
            }
        }
    }

    fn set_flag(&mut self, name: &str) -> Result<(), String> {
        let plain = name.strip_prefix("no-").unwrap_or(name);
        match name {
            "restrict" => {}
            "cert-authority" => self.cert_authority = true,
            "no-touch-required" => self.no_touch_required = true,
            "touch-required" => self.no_touch_required = false,
            "verify-required" => self.verify_required = true,
            "no-verify-required" => self.verify_required = false,
            _ if FLAGS_WITHOUT_MEANING.contains(&plain) => {}
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn set_value(&mut self, name: &str, value: Vec<u8>) -> Result<(), String> {
        let slot = match name {
            "from" => {
                let any = std::net::IpAddr::from([0, 0, 0, 0]);
                if pattern::matches_address(any, None, &value).is_none() {
                    return Err("from= holds an address block that is none".to_owned());
                }
                &mut self.from
            }
            "principals" => &mut self.principals,
            "command" => &mut self.command,
            "expiry-time" => {
                let expiry = Expiry::parse(&value)
                    .ok_or("expiry-time= must be YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, Z")?;
                // Of several the earliest holds, as in OpenSSH.
                self.expiry = Some(self.expiry.map_or(expiry, |old| old.min(expiry)));
                return Ok(());
            }
            _ if VALUES_WITHOUT_MEANING.contains(&name) => return Ok(()),
            _ => return Err(unknown(name)),
        };
        if slot.is_some() {
            return Err(format!("{name}= stands there twice"));
        }
        *slot = Some(value);
        Ok(())
    }
}

fn unknown(name: &str) -> String {
    let name = escape_for_display(name.as_bytes());
    format!("\"{name}\" is no option, or lacks its value")
}

/// Takes `"..."` off, where `\"` is a quote. Returns what was in it and what follows.
fn dequote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut value = Vec::new();
    loop {
        match rest {
            [b'\\', b'"', after @ ..] => {
                value.push(b'"');
                rest = after;
            }
            [b'"', after @ ..] => return Some((value, after)),
            [byte, after @ ..] => {
                value.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

/// A forced command that is a file server: its arguments apply to the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SftpCommand {
    /// What follows the program's name: `-R`, `-d /dir`, ...
    pub arguments: Vec<Vec<u8>>,
}

impl SftpCommand {
    /// Recognises `internal-sftp`, a path that ends in `/sftp-server`, and `fullbore sftp-server`.
    #[must_use]
    pub fn parse(command: &[u8]) -> Option<SftpCommand> {
        let mut words = split_words(command)?;
        let base = |word: &[u8]| {
            let start = word.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
            word[start..].to_vec()
        };
        let name_count = match base(words.first()?).as_slice() {
            b"internal-sftp" | b"sftp-server" | b"fullbore-sftp-server" => 1,
            b"fullbore" if words.get(1).is_some_and(|w| w == b"sftp-server") => 2,
            _ => return None,
        };
        Some(SftpCommand {
            arguments: words.split_off(name_count),
        })
    }
}
