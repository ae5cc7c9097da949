//! `%h` and `${NAME}` in values (ssh_config(5) TOKENS and ENVIRONMENT VARIABLES).

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use aws_lc_rs::digest;

use crate::config::{Environment, expand_tilde};

/// What the tokens stand for.
#[derive(Debug, Clone, Default)]
pub(super) struct Tokens {
    /// `%h`: the name to connect to.
    pub(super) host: String,
    /// `%n`: the host as typed.
    pub(super) original_host: String,
    /// `%p`
    pub(super) port: u16,
    /// `%r`: the user there.
    pub(super) user: String,
    /// `%k`: the HostKeyAlias, else the host as typed.
    pub(super) key_alias: String,
    /// `%j`: ProxyJump, or nothing.
    pub(super) jump: String,
}

/// Tokens of paths and of `Match exec`.
pub(super) const ALL: &[u8] = b"%CdhijkLlnpru";
/// Tokens of ProxyCommand and ProxyJump.
pub(super) const PROXY: &[u8] = b"%hnpr";
/// Tokens of HostName.
pub(super) const HOST_NAME: &[u8] = b"%h";

impl Tokens {
    /// Replaces the tokens that are `allowed`.
    ///
    /// # Errors
    /// Another token, or a `%` at the end.
    pub(super) fn expand(
        &self,
        environment: &dyn Environment,
        text: &[u8],
        allowed: &[u8],
    ) -> Result<Vec<u8>, String> {
        let mut out = Vec::with_capacity(text.len());
        let mut bytes = text.iter();
        while let Some(&byte) = bytes.next() {
            if byte != b'%' {
                out.push(byte);
                continue;
            }
            let Some(&token) = bytes.next() else {
                return Err("\"%\" at the end (write %% for one)".to_owned());
            };
            if !allowed.contains(&token) {
                let token = char::from(token).escape_default();
                return Err(format!("unknown token \"%{token}\""));
            }
            self.push(environment, token, &mut out);
        }
        Ok(out)
    }

    fn push(&self, environment: &dyn Environment, token: u8, out: &mut Vec<u8>) {
        let text = match token {
            b'%' => "%".to_owned(),
            b'h' => self.host.clone(),
            b'n' => self.original_host.clone(),
            b'p' => self.port.to_string(),
            b'r' => self.user.clone(),
            b'k' => self.key_alias.clone(),
            b'j' => self.jump.clone(),
            b'u' => environment.user(),
            b'i' => environment.uid().to_string(),
            b'l' => environment.host_name(),
            b'L' => short_name(&environment.host_name()),
            b'C' => self.connection_hash(environment),
            b'd' => {
                out.extend_from_slice(environment.home().as_os_str().as_bytes());
                return;
            }
            _ => unreachable!("the allowed lists name no other"),
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// `%C`: SHA-1 of `%l%h%p%r%j` in hexadecimal; it names files, and must be what OpenSSH makes.
    fn connection_hash(&self, environment: &dyn Environment) -> String {
        let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        let port = self.port.to_string();
        for part in [
            &environment.host_name(),
            &self.host,
            &port,
            &self.user,
            &self.jump,
        ] {
            context.update(part.as_bytes());
        }
        let hash = context.finish();
        hash.as_ref().iter().map(|b| format!("{b:02x}")).collect()
    }

    /// A path: `~`, tokens and variables replaced.
    ///
    /// # Errors
    /// An unknown user, token or variable.
    pub(super) fn path(
        &self,
        environment: &dyn Environment,
        text: &[u8],
    ) -> Result<PathBuf, String> {
        let path = expand_tilde(environment, text)
            .ok_or_else(|| format!("{}: no such user", String::from_utf8_lossy(text)))?;
        let path = expand_variables(environment, path.as_os_str().as_bytes())?;
        let path = self.expand(environment, &path, ALL)?;
        Ok(PathBuf::from(std::ffi::OsStr::from_bytes(&path)))
    }
}

fn short_name(name: &str) -> String {
    name.split('.').next().unwrap_or(name).to_owned()
}

/// Replaces `${NAME}`.
///
/// # Errors
/// A variable that is not set, an empty name, or a brace that is not closed.
pub(super) fn expand_variables(
    environment: &dyn Environment,
    text: &[u8],
) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(2).position(|w| w == b"${") {
        out.extend_from_slice(&rest[..at]);
        let inner = &rest[at + 2..];
        let close = inner
            .iter()
            .position(|b| *b == b'}')
            .ok_or("\"${\" without \"}\"")?;
        let name = std::str::from_utf8(&inner[..close]).map_err(|_| "a variable's odd name")?;
        let value = environment
            .variable(name)
            .ok_or_else(|| format!("the variable \"{name}\" is not set"))?;
        out.extend_from_slice(value.as_bytes());
        rest = &inner[close + 1..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fake::Fake;

    fn tokens() -> Tokens {
        Tokens {
            host: "host.example".to_owned(),
            original_host: "host".to_owned(),
            port: 2222,
            user: "them".to_owned(),
            key_alias: "alias".to_owned(),
            jump: "hop".to_owned(),
        }
    }

    #[test]
    fn every_token_has_its_value() {
        let fake = Fake::new(&[]);
        let all = tokens().expand(&fake, b"%% %d %h %i %j %k %L %l %n %p %r %u", ALL);
        let expected =
            "% /home/me host.example 1000 hop alias Here Here.example.org host 2222 them me";
        assert_eq!(all, Ok(expected.as_bytes().to_vec()));
        // printf %s Here.example.orghost.example2222themhop | sha1sum
        let hash = tokens().expand(&fake, b"%C", ALL);
        assert_eq!(
            hash,
            Ok(b"850402a2904f545ffdaff8ce37332a3a7e2c436d".to_vec())
        );
    }

    #[test]
    fn other_tokens_are_refused() {
        let fake = Fake::new(&[]);
        for (text, allowed) in [("%z", ALL), ("%", ALL), ("%d", PROXY), ("%p", HOST_NAME)] {
            assert!(
                tokens().expand(&fake, text.as_bytes(), allowed).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn variables() {
        let mut fake = Fake::new(&[]);
        fake.variables.insert("A".to_owned(), "1".to_owned());
        let expand = |text: &str| expand_variables(&fake, text.as_bytes());
        assert_eq!(expand("x${A}y${A}"), Ok(b"x1y1".to_vec()));
        assert_eq!(expand("$A $ {A}"), Ok(b"$A $ {A}".to_vec()));
        assert!(expand("${B}").is_err());
        assert!(expand("${A").is_err());
    }
}
