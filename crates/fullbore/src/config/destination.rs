//! What a copy's arguments name: a path here, or a host and a path there.
//!
//! `[user@]host:path`, `[user@][v6]:path`, and `sftp://` or `scp://[user@]host[:port]/path`. A colon
//! behind a slash belongs to a local name (`./a:b`). Everything is bytes except user and host.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::text::escape_for_display;

/// One source or target of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A path on this machine.
    Local(PathBuf),
    /// A path on another.
    Remote(Remote),
}

/// A path on another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The user, if given.
    pub user: Option<String>,
    /// The host as typed, an alias of ssh_config perhaps; an IPv6 address without its brackets.
    pub host: String,
    /// The port, if the URI gives one.
    pub port: Option<u16>,
    /// The path; empty is the home folder. `~` in front is the peer's business.
    pub path: Vec<u8>,
}

/// Why an argument names no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationError {
    /// An empty argument.
    Empty,
    /// Nothing in front of the colon.
    NoHost(String),
    /// `[` without `]:`.
    OpenBracket(String),
    /// A host or user that begins with `-`, holds blanks or control characters, or is not UTF-8.
    BadName(String),
    /// A port that is not 1 to 65535.
    BadPort(String),
    /// `%` without two hexadecimal digits, or `%00`.
    BadEscape(String),
    /// A scheme other than `sftp` and `scp`.
    BadScheme(String),
}

impl fmt::Display for DestinationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DestinationError::Empty => write!(f, "an empty argument names no file"),
            DestinationError::NoHost(arg) => write!(
                f,
                "'{arg}': no host in front of ':' (for a local file of this name write ./{arg})"
            ),
            DestinationError::OpenBracket(arg) => {
                write!(
                    f,
                    "{arg}: '[' needs ']:' behind the address, as in [::1]:path"
                )
            }
            DestinationError::BadName(name) => {
                write!(f, "'{name}': not a usable host or user name")
            }
            DestinationError::BadPort(port) => {
                write!(f, "'{port}': not a port (1 to 65535)")
            }
            DestinationError::BadEscape(arg) => {
                write!(
                    f,
                    "{arg}: '%' must be followed by two hexadecimal digits, not 00"
                )
            }
            DestinationError::BadScheme(scheme) => {
                write!(f, "{scheme}://: only sftp:// and scp:// are understood")
            }
        }
    }
}

impl std::error::Error for DestinationError {}

impl Location {
    /// Reads one argument.
    ///
    /// # Errors
    /// [`DestinationError`], with the argument in it.
    pub fn parse(argument: &OsStr) -> Result<Location, DestinationError> {
        let bytes = argument.as_bytes();
        if bytes.is_empty() {
            return Err(DestinationError::Empty);
        }
        if let Some((scheme, rest)) = split_scheme(bytes) {
            return match scheme.to_ascii_lowercase().as_slice() {
                b"sftp" | b"scp" => parse_uri(bytes, rest).map(Location::Remote),
                _ => Err(DestinationError::BadScheme(escape_for_display(scheme))),
            };
        }
        let Some(colon) = host_end(bytes)? else {
            return Ok(Location::Local(PathBuf::from(OsString::from_vec(
                bytes.to_vec(),
            ))));
        };
        if colon == 0 {
            return Err(DestinationError::NoHost(escape_for_display(bytes)));
        }
        let (user, host) = split_user(&bytes[..colon]);
        Ok(Location::Remote(Remote {
            user: user.map(check_user).transpose()?,
            host: check_host(unbracket(host), bytes)?,
            port: None,
            path: bytes[colon + 1..].to_vec(),
        }))
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            write!(f, "{}", self.host)?;
        }
        write!(f, ":{}", escape_for_display(&self.path))
    }
}

/// Schemes that a person may type here by mistake; any other name in front of `://` is a host
/// (`server://etc/x` is a path with two slashes).
const OTHER_SCHEMES: &[&[u8]] = &[
    b"file", b"ftp", b"ftps", b"http", b"https", b"rsync", b"s3", b"ssh",
];

fn split_scheme(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.windows(3).position(|w| w == b"://")?;
    let scheme = bytes[..at].to_ascii_lowercase();
    let known =
        matches!(scheme.as_slice(), b"sftp" | b"scp") || OTHER_SCHEMES.contains(&scheme.as_slice());
    known.then_some((&bytes[..at], &bytes[at + 3..]))
}

/// Where the host ends: the first colon outside brackets with no slash in front of it. None for a
/// local path.
fn host_end(bytes: &[u8]) -> Result<Option<usize>, DestinationError> {
    let bracket_at = if bytes.first() == Some(&b'[') {
        Some(0)
    } else {
        bytes.windows(2).position(|w| w == b"@[").map(|at| at + 1)
    };
    let in_front = |at: &usize| !bytes[..*at].iter().any(|b| matches!(b, b'/' | b':'));
    if let Some(at) = bracket_at.filter(in_front) {
        let close = bytes[at..].iter().position(|b| *b == b']').map(|n| n + at);
        return match close {
            Some(close) if bytes.get(close + 1) == Some(&b':') => Ok(Some(close + 1)),
            _ if bytes.contains(&b':') && !bytes[at..].contains(&b'/') => {
                Err(DestinationError::OpenBracket(escape_for_display(bytes)))
            }
            _ => Ok(None),
        };
    }
    Ok(match bytes.iter().position(|b| matches!(b, b':' | b'/')) {
        Some(at) if bytes[at] == b':' => Some(at),
        _ => None,
    })
}

fn split_user(bytes: &[u8]) -> (Option<&[u8]>, &[u8]) {
    // The last '@': a user name may hold one (user@domain@host).
    match bytes.iter().rposition(|b| *b == b'@') {
        Some(at) => (Some(&bytes[..at]), &bytes[at + 1..]),
        None => (None, bytes),
    }
}

fn unbracket(host: &[u8]) -> &[u8] {
    host.strip_prefix(b"[")
        .and_then(|h| h.strip_suffix(b"]"))
        .unwrap_or(host)
}

fn parse_uri(whole: &[u8], rest: &[u8]) -> Result<Remote, DestinationError> {
    let slash = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    // As OpenSSH reads it: the slash only separates, so a second one begins an absolute path.
    let path = percent_decode(path.strip_prefix(b"/").unwrap_or(path), whole)?;
    let (user, host_port) = split_user(authority);
    // draft-ietf-secsh-scp-sftp-ssh-uri: ";fingerprint=..." may follow the user.
    let user = user.map(|u| u.split(|b| *b == b';').next().unwrap_or(u));
    let (host, port) = split_port(host_port, whole)?;
    Ok(Remote {
        user: match user {
            Some(user) => Some(check_user(&percent_decode(user, whole)?)?),
            None => None,
        },
        host: check_host(unbracket(host), whole)?,
        port,
        path,
    })
}

fn split_port<'a>(
    text: &'a [u8],
    whole: &[u8],
) -> Result<(&'a [u8], Option<u16>), DestinationError> {
    let host_len = if text.first() == Some(&b'[') {
        match text.iter().position(|b| *b == b']') {
            Some(close) => close + 1,
            None => return Err(DestinationError::OpenBracket(escape_for_display(whole))),
        }
    } else {
        text.iter().position(|b| *b == b':').unwrap_or(text.len())
    };
    let (host, port) = text.split_at(host_len);
    if port.is_empty() || port == b":" {
        return Ok((host, None));
    }
    let Some(digits) = port.strip_prefix(b":") else {
        return Err(DestinationError::BadName(escape_for_display(text)));
    };
    parse_port(digits).map(|port| (host, Some(port)))
}

/// A port, 1 to 65535.
///
/// # Errors
/// [`DestinationError::BadPort`].
pub fn parse_port(digits: &[u8]) -> Result<u16, DestinationError> {
    super::text::parse_number(digits)
        .and_then(|n| u16::try_from(n).ok())
        .filter(|n| *n != 0)
        .ok_or_else(|| DestinationError::BadPort(escape_for_display(digits)))
}

/// RFC 3986 2.1.
fn percent_decode(text: &[u8], whole: &[u8]) -> Result<Vec<u8>, DestinationError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'%' {
            bytes.push(text[at]);
            at += 1;
            continue;
        }
        let digit = |i: usize| text.get(i).and_then(|b| char::from(*b).to_digit(16));
        match (digit(at + 1), digit(at + 2)) {
            (Some(high), Some(low)) if high + low != 0 => bytes.push((high << 4 | low) as u8),
            _ => return Err(DestinationError::BadEscape(escape_for_display(whole))),
        }
        at += 3;
    }
    Ok(bytes)
}

/// A host that could be taken for an option, or that a shell or a terminal would act on, is refused.
fn check_host(host: &[u8], whole: &[u8]) -> Result<String, DestinationError> {
    if host.is_empty() {
        return Err(DestinationError::NoHost(escape_for_display(whole)));
    }
    let usable = host[0] != b'-'
        && !host.iter().any(|b| {
            b.is_ascii_whitespace() || b.is_ascii_control() || b"'`\"$\\;&<>|(){},/@".contains(b)
        });
    match String::from_utf8(host.to_vec()) {
        Ok(text) if usable => Ok(text),
        _ => Err(DestinationError::BadName(escape_for_display(host))),
    }
}

/// OpenSSH's rule for user names: no leading dash, none of the characters a shell acts on.
fn check_user(user: &[u8]) -> Result<String, DestinationError> {
    let usable = !user.is_empty()
        && user[0] != b'-'
        && user.last() != Some(&b'\\')
        && !user
            .iter()
            .any(|b| b.is_ascii_control() || b"'`\";&<>|(){}".contains(b));
    match String::from_utf8(user.to_vec()) {
        Ok(text) if usable => Ok(text),
        _ => Err(DestinationError::BadName(escape_for_display(user))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(user: Option<&str>, host: &str, port: Option<u16>, path: &[u8]) -> Location {
        Location::Remote(Remote {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
            path: path.to_vec(),
        })
    }

    fn parse(argument: &[u8]) -> Result<Location, DestinationError> {
        Location::parse(OsStr::from_bytes(argument))
    }

    #[test]
    fn local_paths_stay_local() {
        for path in [
            "a", "./a:b", "/a:b", "a/b:c", "dir/", "..", "-", "[x]", "[a]/b:c", "a@b", "[1].txt",
        ] {
            assert_eq!(
                parse(path.as_bytes()),
                Ok(Location::Local(PathBuf::from(path))),
                "{path}"
            );
        }
        let odd = OsStr::from_bytes(b"\xff\xfe");
        assert_eq!(
            Location::parse(odd),
            Ok(Location::Local(PathBuf::from(odd)))
        );
    }

    #[test]
    fn host_and_path() {
        assert_eq!(parse(b"h:p"), Ok(remote(None, "h", None, b"p")));
        assert_eq!(parse(b"h:"), Ok(remote(None, "h", None, b"")));
        assert_eq!(
            parse(b"u@h:/a b"),
            Ok(remote(Some("u"), "h", None, b"/a b"))
        );
        assert_eq!(parse(b"h:a:b"), Ok(remote(None, "h", None, b"a:b")));
        assert_eq!(parse(b"u@d@h:x"), Ok(remote(Some("u@d"), "h", None, b"x")));
        assert_eq!(parse(b"[::1]:x"), Ok(remote(None, "::1", None, b"x")));
        assert_eq!(
            parse(b"u@[fe80::1%eth0]:x"),
            Ok(remote(Some("u"), "fe80::1%eth0", None, b"x"))
        );
        assert_eq!(parse(b"h:\xff"), Ok(remote(None, "h", None, b"\xff")));
        assert_eq!(parse(b"h:p@q"), Ok(remote(None, "h", None, b"p@q")));
    }

    #[test]
    fn uris() {
        assert_eq!(parse(b"sftp://h"), Ok(remote(None, "h", None, b"")));
        assert_eq!(
            parse(b"sftp://u@h:2222/a/b"),
            Ok(remote(Some("u"), "h", Some(2222), b"a/b"))
        );
        assert_eq!(
            parse(b"SCP://h//etc/x"),
            Ok(remote(None, "h", None, b"/etc/x"))
        );
        assert_eq!(
            parse(b"sftp://h/a%20b%ff"),
            Ok(remote(None, "h", None, b"a b\xff"))
        );
        assert_eq!(
            parse(b"sftp://u%40d@[::1]:22/x"),
            Ok(remote(Some("u@d"), "::1", Some(22), b"x"))
        );
        assert_eq!(
            parse(b"sftp://u;fingerprint=x@h/x"),
            Ok(remote(Some("u"), "h", None, b"x"))
        );
        assert_eq!(parse(b"sftp://h:/x"), Ok(remote(None, "h", None, b"x")));
    }

    #[test]
    fn refusals_name_the_argument() {
        use DestinationError::*;
        assert_eq!(parse(b""), Err(Empty));
        assert_eq!(parse(b":x"), Err(NoHost(":x".into())));
        assert_eq!(parse(b"u@:x"), Err(NoHost("u@:x".into())));
        assert_eq!(parse(b"[::1:x"), Err(OpenBracket("[::1:x".into())));
        assert_eq!(
            parse(b"-oProxyCommand=x:y"),
            Err(BadName("-oProxyCommand=x".into()))
        );
        assert_eq!(parse(b"a b:y"), Err(BadName("a b".into())));
        assert_eq!(parse(b"$(x):y"), Err(BadName("$(x)".into())));
        assert_eq!(parse(b"-u@h:y"), Err(BadName("-u".into())));
        assert_eq!(parse(b"@h:y"), Err(BadName(String::new())));
        assert_eq!(parse(b"sftp://h:0/x"), Err(BadPort("0".into())));
        assert_eq!(parse(b"sftp://h:65536/x"), Err(BadPort("65536".into())));
        assert_eq!(
            parse(b"sftp://h:65535/x"),
            Ok(remote(None, "h", Some(65535), b"x"))
        );
        assert_eq!(parse(b"sftp://h/%0"), Err(BadEscape("sftp://h/%0".into())));
        assert_eq!(
            parse(b"sftp://h/%00"),
            Err(BadEscape("sftp://h/%00".into()))
        );
        assert_eq!(parse(b"ftp://h/x"), Err(BadScheme("ftp".into())));
        assert_eq!(parse(b"sftp:///x"), Err(NoHost("sftp:///x".into())));
    }
}
