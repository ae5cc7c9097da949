//! What servers do that the protocol does not say, or says otherwise: one table, keyed on the version
//! line, and a file with which a user can correct it.
//!
//! A server that nobody knows gets the defaults, which every server bears, and what it refuses is
//! remembered for the run (`transfer::remote`, `transfer::handles`). Several profiles may match: what a
//! later one says wins, and the file comes last.

mod file;
mod table;

use std::io;
use std::path::PathBuf;

use fullbore_base::{escape_for_display, matches_wildcard};

use super::Environment;
use super::text::reason;

pub use file::parse;
pub use table::PROFILES;

/// Where a user's own profiles are, below `$XDG_CONFIG_HOME` or `~/.config`.
pub const FILE: &str = "fullbore/quirks.toml";

/// The longest such file that is read, in bytes, and the profiles in it. Ours.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// See [`FILE_BYTES_MAX`].
pub const FILE_PROFILES_MAX: usize = 1024;

/// One thing that a profile says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `serves-in-order`
    ServesInOrder(bool),
    /// `guess-kex`
    GuessKex(bool),
    /// `sessions-max`
    SessionsMax(u32),
    /// `handles-max`
    HandlesMax(u32),
    /// `readdirs-max`
    ReaddirsMax(u32),
    /// `request-len-max`
    RequestLenMax(u32),
    /// `sets-attributes`
    SetsAttributes(bool),
    /// `opens-for-both`
    OpensForBoth(bool),
    /// `writes-anywhere`
    WritesAnywhere(bool),
    /// `symlink-link-first`
    SymlinkLinkFirst(bool),
    /// `ignored-extensions`
    IgnoredExtensions(&'static [&'static str]),
    /// The same, from a file.
    IgnoredNames(Vec<String>),
}

/// What the program knows of some servers.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// For people.
    pub name: &'static str,
    /// Of what stands behind `SSH-2.0-` in the version line: `*` and `?`.
    pub patterns: &'static [&'static str],
    /// What is so with them.
    pub settings: &'static [Setting],
}

/// A user's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnProfile {
    /// As [`Profile::patterns`].
    pub pattern: String,
    /// As [`Profile::settings`].
    pub settings: Vec<Setting>,
}

/// What to expect of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// What it was taken for; the profile that matches closest.
    pub name: String,
    /// SFTP requests are served strictly in the order in which they come, from one buffer, so that they
    /// may be sent behind INIT, and behind each other where one needs what the one before did.
    pub serves_in_order: bool,
    /// It takes a guessed key exchange packet as RFC 4253 7 says. A guess is sent only where the lists
    /// that the server is remembered by make it right, so that nearly all do.
    pub is_guess_understood: bool,
    /// Channels of one connection.
    pub sessions_max: Option<u32>,
    /// Files and folders open at once in one session.
    pub handles_max: Option<usize>,
    /// READDIRs of one folder that may be in flight.
    pub readdirs_max: usize,
    /// Bytes of data in a READ or WRITE, where `limits@openssh.com` does not say.
    pub request_len_max: Option<u32>,
    /// SETSTAT and FSETSTAT do something.
    pub sets_attributes: bool,
    /// A file may be opened for reading and writing at once.
    pub opens_for_both: bool,
    /// A file may be written anywhere, an existing one too; else from its beginning to its end, once.
    pub writes_anywhere: bool,
    /// SYMLINK has the link in front, as the draft says and OpenSSH does not.
    pub symlink_link_first: bool,
    /// Extensions that it announces and does not serve well.
    pub ignored_extensions: Vec<String>,
}

/// What the user's file says; nothing where there is none.
///
/// # Errors
/// The file, the line, and what is wrong.
pub fn own(environment: &dyn Environment) -> Result<Vec<OwnProfile>, String> {
    let folder = environment.variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = folder.filter(|folder| folder.is_absolute());
    let folder = folder.unwrap_or_else(|| environment.home().join(".config"));
    let path = folder.join(FILE);
    let failed = |why: String| format!("{}: {why}", path.display());
    let content = match environment.read_regular_file(&path, FILE_BYTES_MAX) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(reason(&error))),
    };
    let text = String::from_utf8(content).map_err(|_| failed("is not UTF-8".to_owned()))?;
    parse(&text).map_err(|(line, what)| failed(format!("line {line}: {what}")))
}

impl Default for Quirks {
    /// What every server bears.
    fn default() -> Self {
        Self {
            name: "a server without a profile".to_owned(),
            serves_in_order: false,
            is_guess_understood: true,
            sessions_max: None,
            handles_max: None,
            readdirs_max: 16,
            request_len_max: None,
            sets_attributes: true,
            opens_for_both: true,
            writes_anywhere: true,
            symlink_link_first: false,
            ignored_extensions: Vec::new(),
        }
    }
}

impl Quirks {
    /// What the table and `own` say of a server with this version line.
    #[must_use]
    pub fn of(version_line: &[u8], own: &[OwnProfile]) -> Self {
        let software = software(version_line);
        let mut quirks = Self::default();
        for profile in PROFILES {
            let mut patterns = profile.patterns.iter();
            if patterns.any(|pattern| matches_wildcard(software, pattern.as_bytes())) {
                profile.name.clone_into(&mut quirks.name);
                profile.settings.iter().for_each(|s| quirks.apply(s));
            }
        }
        for profile in own {
            if matches_wildcard(software, profile.pattern.as_bytes()) {
                let pattern = escape_for_display(profile.pattern.as_bytes());
                quirks.name = format!("{} ({FILE}: {pattern})", quirks.name);
                profile.settings.iter().for_each(|s| quirks.apply(s));
            }
        }
        quirks
    }

    fn apply(&mut self, setting: &Setting) {
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        match setting {
            Setting::ServesInOrder(is) => self.serves_in_order = *is,
            Setting::GuessKex(is) => self.is_guess_understood = *is,
            Setting::SessionsMax(max) => self.sessions_max = limit(*max),
            Setting::HandlesMax(max) => self.handles_max = limit(*max).map(|max| max as usize),
            Setting::ReaddirsMax(max) => {
                self.readdirs_max = limit(*max).map_or(usize::MAX, |max| max as usize);
            }
            Setting::RequestLenMax(max) => self.request_len_max = limit(*max),
            Setting::SetsAttributes(is) => self.sets_attributes = *is,
            Setting::OpensForBoth(is) => self.opens_for_both = *is,
            Setting::WritesAnywhere(is) => self.writes_anywhere = *is,
            Setting::SymlinkLinkFirst(is) => self.symlink_link_first = *is,
            Setting::IgnoredExtensions(list) => self.ignored_extensions = names(list),
            Setting::IgnoredNames(list) => self.ignored_extensions.clone_from(list),
        }
    }

    /// What is known, in words: one line.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut parts = vec![match self.serves_in_order {
            true => "serves in order".to_owned(),
            false => "may serve out of order".to_owned(),
        }];
        let mut number = |max: Option<u64>, what: &str| {
            parts.extend(max.map(|max| format!("at most {max} {what}")));
        };
        number(self.sessions_max.map(u64::from), "sessions a connection");
        number(self.handles_max.map(|max| max as u64), "open files");
        number(self.request_len_max.map(u64::from), "bytes a request");
        for (is, what) in [
            (!self.sets_attributes, "sets no mode or times"),
            (!self.opens_for_both, "opens to read or to write, not both"),
            (!self.writes_anywhere, "takes no uploads that go on"),
            (self.symlink_link_first, "wants the link first"),
            (self.readdirs_max == 1, "lists one request at a time"),
        ] {
            parts.extend(is.then(|| what.to_owned()));
        }
        if !self.ignored_extensions.is_empty() {
            parts.push(format!("not used: {}", self.ignored_extensions.join(", ")));
        }
        format!("{}: {}", self.name, parts.join(", "))
    }
}

/// 0 says that there is no limit.
fn limit(max: u32) -> Option<u32> {
    (max > 0).then_some(max)
}

/// What stands behind the protocol version.
fn software(version_line: &[u8]) -> &[u8] {
    let line = version_line.strip_prefix(b"SSH-").unwrap_or(version_line);
    match line.iter().position(|&b| b == b'-') {
        Some(at) if line.len() < version_line.len() => &line[at + 1..],
        Some(_) | None => line,
    }
}

#[cfg(test)]
mod tests;
