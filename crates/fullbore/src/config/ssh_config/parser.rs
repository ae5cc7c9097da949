//! Walks the lines of the files and decides which of them apply.

use std::path::{Path, PathBuf};

use fullbore_base::matches_wildcard;

use super::Request;
use super::criteria::{self, Facts};
use super::include::matching_files;
use super::keywords::{Keyword, Lookup, Shape, lookup};
use super::line::{self, Line};
use super::settings::{self, Settings};
use super::tokens::{ALL, Tokens, expand_variables};
use crate::config::pattern::{self, ListMatch};
use crate::config::text::{Line as TextLine, escape_for_display, lines, reason, split_words};
use crate::config::{ConfigError, Environment, FILE_BYTES_MAX, expand_tilde};

/// How deep files may include files. OpenSSH's `READCONF_MAX_DEPTH`.
const DEPTH_MAX: usize = 16;

/// How many files are read in all. Ours: includes may fan out at every depth.
const FILES_MAX: usize = 1024;

/// Which reading this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// With the host as typed.
    First,
    /// With the canonical host; `Match final` and `Match canonical` hold.
    Final,
}

/// A file as the parser treats it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// The file; none is the command line.
    pub(super) file: Option<&'a Path>,
    /// The user's own, not the system's.
    pub(super) is_user: bool,
    /// Others must not be able to write it.
    check_permissions: bool,
    depth: usize,
    /// Included from a block that does not apply: nothing in it does.
    never: bool,
}

impl<'a> Source<'a> {
    /// A file that is read by itself.
    pub(super) fn file(file: &'a Path, is_user: bool) -> Source<'a> {
        Source {
            file: Some(file),
            is_user,
            check_permissions: false,
            depth: 0,
            never: false,
        }
    }

    /// The same, but others must not be able to write it.
    pub(super) fn guarded(self) -> Source<'a> {
        Source {
            check_permissions: true,
            ..self
        }
    }

    /// `-o`.
    pub(super) fn command_line() -> Source<'a> {
        Source {
            file: None,
            is_user: true,
            check_permissions: false,
            depth: 0,
            never: false,
        }
    }

    fn error(&self, line: usize, what: impl Into<String>) -> ConfigError {
        match self.file {
            Some(file) => ConfigError::at(file, line, what),
            None => ConfigError::command_line(what),
        }
    }
}

/// One reading of the configuration.
pub(super) struct Parser<'a> {
    pub(super) environment: &'a dyn Environment,
    pub(super) request: &'a Request<'a>,
    /// What `Host` lines are matched with.
    pub(super) host: String,
    pub(super) pass: Pass,
    pub(super) settings: Settings,
    /// A `Match final` was seen: read all again.
    pub(super) wants_final: bool,
    pub(super) warnings: Vec<String>,
    files_read: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(environment: &'a dyn Environment, request: &'a Request<'a>) -> Parser<'a> {
        Parser {
            environment,
            request,
            host: request.host.to_owned(),
            pass: Pass::First,
            settings: Settings::default(),
            wants_final: false,
            warnings: Vec::new(),
            files_read: 0,
        }
    }

    /// Starts over with another host name, keeping the values that stand.
    pub(super) fn begin_final(&mut self, host: String) {
        self.host = host;
        self.pass = Pass::Final;
        self.files_read = 0;
    }

    /// Reads a file; false when there is none.
    ///
    /// # Errors
    /// An unusable file or line.
    pub(super) fn read_file(&mut self, source: Source<'_>) -> Result<bool, ConfigError> {
        self.read_blocks(source, &mut true)
    }

    fn read_blocks(&mut self, source: Source<'_>, active: &mut bool) -> Result<bool, ConfigError> {
        let file = source.file.unwrap_or(Path::new(""));
        let content = match self.environment.read_file(file, FILE_BYTES_MAX) {
            Ok(content) => content,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                return Err(source.error(0, format!("cannot be read: {}", reason(&error))));
            }
        };
        self.files_read += 1;
        if self.files_read > FILES_MAX {
            return Err(source.error(0, format!("more than {FILES_MAX} files are included")));
        }
        if source.check_permissions {
            self.check_permissions(source, file)?;
        }
        for line in lines(&content) {
            match line {
                Ok(TextLine { number, text }) => self.apply(source, number, text, active)?,
                Err(number) => return Err(source.error(number, "the line is too long")),
            }
        }
        Ok(true)
    }

    fn check_permissions(&self, source: Source<'_>, file: &Path) -> Result<(), ConfigError> {
        let Ok(facts) = self.environment.file_facts(file) else {
            return Ok(());
        };
        let is_ours = facts.uid == 0 || facts.uid == self.environment.uid();
        if is_ours && facts.mode & 0o022 == 0 {
            return Ok(());
        }
        Err(source.error(
            0,
            "others own it or may write it, so it is not obeyed; chmod 600 it",
        ))
    }

    /// Applies one line. `active` is whether the block it stands in applies.
    ///
    /// # Errors
    /// What is wrong with the line; in a block that does not apply, too.
    pub(super) fn apply(
        &mut self,
        source: Source<'_>,
        number: usize,
        text: &[u8],
        active: &mut bool,
    ) -> Result<(), ConfigError> {
        let at = |what: String| source.error(number, what);
        let Some(line) = line::split(text).map_err(|what| at(what.to_owned()))? else {
            return Ok(());
        };
        match lookup(&line.keyword) {
            Lookup::Known(keyword, Shape::Block) => self
                .apply_block(source, keyword, &line, active)
                .map_err(|error| error.unwrap_or_else(at)),
            Lookup::Known(keyword, shape) => {
                let named = |what: String| at(format!("{}: {what}", line.keyword));
                let value = settings::parse(shape, line.arguments).map_err(named)?;
                if *active {
                    self.settings.set(keyword, shape, value).map_err(named)?;
                }
                Ok(())
            }
            Lookup::WithoutMeaning => Ok(()),
            Lookup::Unknown if self.is_ignored(&line.keyword) => Ok(()),
            Lookup::Unknown => Err(at(format!(
                "\"{}\" is no keyword of ssh_config (IgnoreUnknown lets it pass)",
                escape_for_display(line.keyword.as_bytes())
            ))),
        }
    }

    fn is_ignored(&self, keyword: &str) -> bool {
        let list = self.settings.word(Keyword::IgnoreUnknown);
        list.is_some_and(|list| {
            let list = list.to_ascii_lowercase();
            pattern::matches_list(keyword.as_bytes(), &list) == ListMatch::Yes
        })
    }

    fn apply_block(
        &mut self,
        source: Source<'_>,
        keyword: Keyword,
        line: &Line<'_>,
        active: &mut bool,
    ) -> Result<(), BlockError> {
        if source.file.is_none() && keyword != Keyword::Include {
            return Err(BlockError::here(format!(
                "{} cannot be given with -o",
                line.keyword
            )));
        }
        if keyword == Keyword::Match {
            let found = self.matches(source, line.arguments)?;
            *active = found && !source.never;
            return Ok(());
        }
        let words =
            split_words(line.arguments).ok_or_else(|| BlockError::here("a quote is not closed"))?;
        if words.is_empty() || words.iter().any(Vec::is_empty) {
            return Err(BlockError::here(format!(
                "{}: an argument is missing",
                line.keyword
            )));
        }
        if keyword == Keyword::Host {
            *active = !source.never && host_applies(self.host.as_bytes(), &words);
            return Ok(());
        }
        words
            .iter()
            .try_for_each(|word| self.include(source, word, *active))
    }

    fn include(&mut self, source: Source<'_>, word: &[u8], active: bool) -> Result<(), BlockError> {
        if source.depth >= DEPTH_MAX {
            return Err(BlockError::here(format!(
                "Include: deeper than {DEPTH_MAX} files (does a file include itself?)"
            )));
        }
        let word = expand_variables(self.environment, word).map_err(BlockError::here)?;
        if word.first() == Some(&b'~') && !source.is_user {
            return Err(BlockError::here(
                "Include: \"~\" has no meaning in the system's file",
            ));
        }
        let path = expand_tilde(self.environment, &word)
            .ok_or_else(|| BlockError::here("Include: no such user"))?;
        let base = if source.is_user {
            self.environment.home().join(".ssh")
        } else {
            PathBuf::from("/etc/ssh")
        };
        for file in matching_files(self.environment, &base.join(path)) {
            let inner = Source {
                file: Some(&file),
                is_user: source.is_user,
                check_permissions: true,
                depth: source.depth + 1,
                never: source.never || !active,
            };
            // Host and Match in an included file end with it.
            self.read_blocks(inner, &mut active.clone())
                .map_err(BlockError::Elsewhere)?;
        }
        Ok(())
    }

    fn matches(&mut self, source: Source<'_>, arguments: &[u8]) -> Result<bool, BlockError> {
        let parsed = criteria::parse(arguments).map_err(BlockError::here)?;
        self.wants_final |= parsed.names_final();
        if source.never {
            return Ok(false);
        }
        let facts = self.facts().map_err(BlockError::here)?;
        if parsed.names_local_network() {
            self.warn("Match localnetwork is not supported and never holds");
        }
        let environment = self.environment;
        parsed
            .holds(&facts, |command| {
                let tokens = self.tokens(&facts);
                let command = tokens.expand(environment, command, ALL)?;
                let command = String::from_utf8_lossy(&command);
                environment.run(&command).map_err(|error| {
                    let why = reason(&error);
                    format!("Match exec: {command} cannot be run: {why}")
                })
            })
            .map_err(BlockError::here)
    }

    fn facts(&self) -> Result<Facts, String> {
        let user = self.settings.text(Keyword::User);
        let local_user = self.environment.user();
        Ok(Facts {
            host: self.host_name()?,
            original_host: self.request.host.to_owned(),
            user: user.unwrap_or_else(|| local_user.clone()),
            local_user,
            tag: self.settings.text(Keyword::Tag).unwrap_or_default(),
            is_final: self.pass == Pass::Final,
        })
    }

    /// HostName with its token replaced, else the host.
    pub(super) fn host_name(&self) -> Result<String, String> {
        let Some(name) = self.settings.word(Keyword::HostName) else {
            return Ok(self.host.clone());
        };
        let tokens = Tokens {
            host: self.host.clone(),
            ..Tokens::default()
        };
        let name = tokens
            .expand(self.environment, name, super::tokens::HOST_NAME)
            .map_err(|what| format!("HostName: {what}"))?;
        String::from_utf8(name).map_err(|_| "HostName: not UTF-8".to_owned())
    }

    fn tokens(&self, facts: &Facts) -> Tokens {
        let port = self.settings.number(Keyword::Port).unwrap_or(22);
        let alias = self.settings.text(Keyword::HostKeyAlias);
        Tokens {
            host: facts.host.clone(),
            original_host: facts.original_host.clone(),
            port: u16::try_from(port).unwrap_or(22),
            user: facts.user.clone(),
            key_alias: alias.unwrap_or_else(|| facts.original_host.clone()),
            jump: self.settings.text(Keyword::ProxyJump).unwrap_or_default(),
        }
    }

    /// Notes a remark once.
    pub(super) fn warn(&mut self, what: &str) {
        if !self.warnings.iter().any(|w| w == what) {
            self.warnings.push(what.to_owned());
        }
    }
}

/// An error of this line, or of a file that it includes.
enum BlockError {
    Here(String),
    Elsewhere(ConfigError),
}

impl BlockError {
    fn here(what: impl Into<String>) -> BlockError {
        BlockError::Here(what.into())
    }

    fn unwrap_or_else(self, at: impl FnOnce(String) -> ConfigError) -> ConfigError {
        match self {
            BlockError::Here(what) => at(what),
            BlockError::Elsewhere(error) => error,
        }
    }
}

/// A Host line applies when a pattern matches and no negated one does.
fn host_applies(host: &[u8], patterns: &[Vec<u8>]) -> bool {
    let mut found = false;
    for pattern in patterns {
        match pattern.strip_prefix(b"!") {
            Some(negated) if matches_wildcard(host, negated) => return false,
            Some(_) => {}
            None => found |= matches_wildcard(host, pattern),
        }
    }
    found
}
