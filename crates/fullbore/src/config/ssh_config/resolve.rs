//! The whole way: options, files, the canonical name, a second reading, the result.

use std::path::Path;

use super::finish::finish;
use super::keywords::Keyword;
use super::parser::{Parser, Source};
use super::{AlgorithmDefaults, ConfigFile, HostConfig, Request};
use crate::config::{ConfigError, Environment};

/// The system's file.
const SYSTEM_FILE: &str = "/etc/ssh/ssh_config";

/// The settings of one host.
///
/// Order of precedence: `request.options` and `request.user`, then the user's file, then the system's;
/// the first value of a keyword wins. `Match exec` may run commands.
///
/// # Errors
/// The first thing that is wrong, with its file and line.
pub fn resolve(
    environment: &dyn Environment,
    defaults: &AlgorithmDefaults,
    request: &Request<'_>,
) -> Result<HostConfig, ConfigError> {
    let mut parser = Parser::new(environment, request);
    for option in request.options {
        parser.apply(Source::command_line(), 0, option.as_bytes(), &mut true)?;
    }
    if let Some(user) = request.user.filter(|_| !parser.settings.has(Keyword::User)) {
        parser.settings.replace_word(Keyword::User, user);
    }
    read_files(&mut parser)?;
    let host = canonical_host(&mut parser)?;
    if parser.wants_final || canonicalize(&parser) != Canonicalize::No {
        parser
            .settings
            .replace_word(Keyword::HostName, &host.replace('%', "%%"));
        parser.begin_final(host.clone());
        read_files(&mut parser)?;
    }
    finish(parser, defaults, host)
}

fn read_files(parser: &mut Parser<'_>) -> Result<(), ConfigError> {
    match &parser.request.config_file {
        ConfigFile::None => {}
        ConfigFile::Only(file) => {
            if !parser.read_file(Source::file(file, true))? {
                return Err(ConfigError::at(file, 0, "no such configuration file"));
            }
        }
        ConfigFile::UserAndSystem => {
            let user_file = parser.environment.home().join(".ssh/config");
            parser.read_file(Source::file(&user_file, true).guarded())?;
            parser.read_file(Source::file(Path::new(SYSTEM_FILE), false))?;
        }
    }
    Ok(())
}

/// CanonicalizeHostname.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Canonicalize {
    No,
    Direct,
    Always,
}

fn canonicalize(parser: &Parser<'_>) -> Canonicalize {
    match parser.settings.choice(Keyword::CanonicalizeHostname) {
        Some("yes" | "true") => Canonicalize::Direct,
        Some("always") => Canonicalize::Always,
        _ => Canonicalize::No,
    }
}

/// HostName in lower case, made canonical where that is asked for.
fn canonical_host(parser: &mut Parser<'_>) -> Result<String, ConfigError> {
    let host = parser.host_name().map_err(ConfigError::command_line)?;
    if host.parse::<std::net::IpAddr>().is_ok() {
        return Ok(host);
    }
    let host = host.to_lowercase();
    let is_proxied = [Keyword::ProxyCommand, Keyword::ProxyJump]
        .iter()
        .any(|k| parser.settings.word(*k).is_some_and(|w| w != b"none"));
    match canonicalize(parser) {
        Canonicalize::No => return Ok(host),
        Canonicalize::Direct if is_proxied => return Ok(host),
        Canonicalize::Direct | Canonicalize::Always => {}
    }
    let settings = &parser.settings;
    let dots_max = settings.number(Keyword::CanonicalizeMaxDots).unwrap_or(1);
    let dots = host.bytes().filter(|b| *b == b'.').count() as u64;
    if host.ends_with('.') || dots > dots_max {
        return Ok(host);
    }
    let domains = settings
        .words(Keyword::CanonicalDomains)
        .unwrap_or_default();
    for domain in domains.iter().filter(|d| d.as_slice() != b"none") {
        let name = format!("{host}.{}", String::from_utf8_lossy(domain).to_lowercase());
        if let Some(canonical) = parser.environment.resolve(&name) {
            let rules = settings.words(Keyword::CanonicalizePermittedCnames);
            if canonical != name && is_permitted(rules.unwrap_or_default(), &name, &canonical) {
                return Ok(canonical.to_lowercase());
            }
            return Ok(name);
        }
    }
    if settings.flag(Keyword::CanonicalizeFallbackLocal, true) {
        return Ok(host);
    }
    Err(ConfigError::command_line(format!(
        "{host} is in none of CanonicalDomains, and CanonicalizeFallbackLocal is no"
    )))
}

/// CanonicalizePermittedCNAMEs: `from-patterns:to-patterns`, each a list with commas.
fn is_permitted(rules: &[Vec<u8>], from: &str, to: &str) -> bool {
    use crate::config::pattern::{ListMatch, matches_host};
    rules.iter().any(|rule| {
        let Some(colon) = rule.iter().position(|b| *b == b':') else {
            return false;
        };
        matches_host(from.as_bytes(), &rule[..colon]) == ListMatch::Yes
            && matches_host(to.as_bytes(), &rule[colon + 1..]) == ListMatch::Yes
    })
}
