//! `Match` lines: their criteria, and whether they hold.

use super::line::next_word;
use crate::config::pattern::{self, ListMatch};
use crate::config::text::escape_for_display;

/// What the criteria are held against.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// HostName if it is set, else the host.
    pub(super) host: String,
    /// The host as typed.
    pub(super) original_host: String,
    /// The user there.
    pub(super) user: String,
    /// The user here.
    pub(super) local_user: String,
    /// Tag.
    pub(super) tag: String,
    /// Whether this is the second reading.
    pub(super) is_final: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Canonical,
    Final,
    Host(Vec<u8>),
    OriginalHost(Vec<u8>),
    User(Vec<u8>),
    LocalUser(Vec<u8>),
    Exec(Vec<u8>),
    Tagged(Vec<u8>),
    /// Of what kind the session is: ours is a subsystem.
    SessionType(Vec<u8>),
    /// The command that runs: none.
    Command(Vec<u8>),
    LocalNetwork,
}

/// A parsed Match line: all of its criteria must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Criteria {
    /// Each with whether it is negated.
    tests: Vec<(bool, Test)>,
    /// `all`, perhaps negated.
    all: Option<bool>,
}

/// Reads what follows `Match`.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(arguments: &[u8]) -> Result<Criteria, String> {
    let mut criteria = Criteria::default();
    let mut rest = arguments;
    while !rest.is_empty() && rest[0] != b'#' {
        let name = word(&mut rest)?;
        let (negated, name) = match name.strip_prefix(b"!") {
            Some(name) => (true, name),
            None => (false, name.as_slice()),
        };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let test = match name.as_str() {
            "all" => {
                let is_alone = rest.is_empty() || rest[0] == b'#';
                if criteria.tests.len() > 1 || !is_alone {
                    return Err("Match: \"all\" cannot stand with other criteria".to_owned());
                }
                criteria.all = Some(!negated);
                return Ok(criteria);
            }
            "canonical" => Test::Canonical,
            "final" => Test::Final,
            _ => {
                if rest.is_empty() || rest[0] == b'#' {
                    return Err(format!(
                        "Match: \"{}\" needs a pattern",
                        escape_for_display(name.as_bytes())
                    ));
                }
                with_argument(&name, word(&mut rest)?)?
            }
        };
        criteria.tests.push((negated, test));
    }
    if criteria.tests.is_empty() {
        return Err("Match: a criterion is missing (\"all\" is for every host)".to_owned());
    }
    Ok(criteria)
}

fn word(rest: &mut &[u8]) -> Result<Vec<u8>, String> {
    let (word, after) = next_word(rest, true).ok_or("Match: a quote is not closed")?;
    *rest = after;
    Ok(word)
}

fn with_argument(name: &str, argument: Vec<u8>) -> Result<Test, String> {
    Ok(match name {
        "host" => Test::Host(argument),
        "originalhost" => Test::OriginalHost(argument),
        "user" => Test::User(argument),
        "localuser" => Test::LocalUser(argument),
        "exec" => Test::Exec(argument),
        "tagged" => Test::Tagged(argument),
        "sessiontype" => Test::SessionType(argument),
        "command" => Test::Command(argument),
        "localnetwork" => Test::LocalNetwork,
        other => {
            let other = escape_for_display(other.as_bytes());
            return Err(format!("Match: \"{other}\" is no criterion"));
        }
    })
}

impl Criteria {
    /// Whether `final` is among them: it asks for a second reading.
    pub(super) fn names_final(&self) -> bool {
        self.tests.iter().any(|(_, test)| *test == Test::Final)
    }

    /// Whether `localnetwork` is among them.
    pub(super) fn names_local_network(&self) -> bool {
        self.tests
            .iter()
            .any(|(_, test)| *test == Test::LocalNetwork)
    }

    /// Whether all hold. `exec` runs only if everything in front of it does.
    ///
    /// # Errors
    /// Those of `exec`.
    pub(super) fn holds(
        &self,
        facts: &Facts,
        exec: impl Fn(&[u8]) -> Result<bool, String>,
    ) -> Result<bool, String> {
        for (negated, test) in &self.tests {
            let found = match test {
                Test::Canonical | Test::Final => facts.is_final,
                Test::Host(list) => is_host(&facts.host, list),
                Test::OriginalHost(list) => is_host(&facts.original_host, list),
                Test::User(list) => is_listed(&facts.user, list),
                Test::LocalUser(list) => is_listed(&facts.local_user, list),
                Test::Tagged(list) => is_listed(&facts.tag, list),
                Test::SessionType(list) => is_listed("subsystem", list),
                Test::Command(list) => is_listed("sftp", list),
                Test::Exec(command) => exec(command)?,
                Test::LocalNetwork => false,
            };
            if found == *negated {
                return Ok(false);
            }
        }
        Ok(self.all.unwrap_or(true))
    }
}

fn is_host(host: &str, list: &[u8]) -> bool {
    // Only the host's case is ignored, as OpenSSH does: a pattern in capitals matches nothing.
    pattern::matches_list(host.to_lowercase().as_bytes(), list) == ListMatch::Yes
}

fn is_listed(text: &str, list: &[u8]) -> bool {
    pattern::matches_list(text.as_bytes(), list) == ListMatch::Yes
}
