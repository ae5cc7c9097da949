//! The text formats a user already has.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fullbore::config::authorized_keys::{AuthorizedKeys, Options, SftpCommand};
use fullbore::config::destination::Location;
use fullbore::config::known_hosts::{HostName, KnownHosts};
use fullbore::config::quirks::{self, Quirks};
use fullbore::config::ssh_config::{self, AlgorithmDefaults};
use fullbore::config::{Environment, FileFacts, pattern, settings, text};
use fullbore::server::serve::password::PasswordHash;
use fullbore_base::Network;

/// A known_hosts file, looked up.
pub fn known_hosts(data: &[u8]) {
    let mut hosts = KnownHosts::default();
    hosts.add(Path::new("known_hosts"), data);
    let name = HostName::new("host.example", 22, None);
    let _ = hosts.known_types(&name);
}

/// An authorized_keys file, and its parts alone.
pub fn authorized_keys(data: &[u8]) {
    let keys = AuthorizedKeys::parse(data);
    assert!(keys.entries().len() <= data.len());
    let _ = Options::parse(data);
    let _ = SftpCommand::parse(data);
}

/// An ssh_config file that every name for one leads to, itself too.
pub fn ssh_config(data: &[u8]) {
    let request = ssh_config::Request {
        host: "host.example",
        ..ssh_config::Request::default()
    };
    let _ = ssh_config::resolve(&OneFile(data), &AlgorithmDefaults::default(), &request);
}

/// A file of server profiles, and a version line: the first line of the input.
pub fn quirks(data: &[u8]) {
    let (version, text) = match data.iter().position(|&b| b == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, data),
    };
    let text = String::from_utf8_lossy(text);
    match quirks::parse(&text) {
        Ok(own) => {
            let known = Quirks::of(version, &own);
            assert!(known.readdirs_max > 0 && known.handles_max != Some(0));
            assert!(!known.describe().contains('\n'));
        }
        Err((line, _)) => assert!(line <= text.lines().count().max(1)),
    }
}

/// A settings file of `serve`, the password's hash that one may name, and a network.
pub fn settings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match settings::parse(&text) {
        Ok(values) => assert!(values.len() <= text.lines().count()),
        Err((line, what)) => assert!(line <= text.lines().count() && !what.is_empty()),
    }
    for line in text.lines() {
        if let Ok(hash) = PasswordHash::parse(line) {
            let printed = hash.to_string();
            let again = PasswordHash::parse(&printed).map(|hash| hash.to_string());
            assert_eq!(again.ok(), Some(printed));
        }
        let _ = Network::parse(line);
    }
}

/// A machine with one file, under every name.
struct OneFile<'a>(&'a [u8]);

impl Environment for OneFile<'_> {
    fn read_file(&self, _path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        if self.0.len() > bytes_max {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(self.0.to_vec())
    }

    fn file_facts(&self, _path: &Path) -> io::Result<FileFacts> {
        Ok(FileFacts {
            uid: 1000,
            mode: 0o600,
            is_dir: false,
        })
    }

    fn list_dir(&self, _path: &Path) -> io::Result<Vec<OsString>> {
        Ok(vec!["config".into()])
    }

    fn append_line(&self, _path: &Path, _line: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn replace_file(&self, _path: &Path, _line: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        Some(name.into())
    }

    fn variable_names(&self) -> Vec<String> {
        vec!["LANG".into()]
    }

    fn home(&self) -> PathBuf {
        "/home/me".into()
    }

    fn home_of(&self, user: &str) -> Option<PathBuf> {
        Some(Path::new("/home").join(user))
    }

    fn user(&self) -> String {
        "me".into()
    }

    fn uid(&self) -> u32 {
        1000
    }

    fn host_name(&self) -> String {
        "here.example".into()
    }

    fn run(&self, command: &str) -> io::Result<bool> {
        Ok(command.len().is_multiple_of(2))
    }

    fn resolve(&self, name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    fn fill_random(&self, out: &mut [u8]) {
        out.fill(4);
    }
}

/// Patterns, words, numbers and durations.
pub fn patterns(data: &[u8]) {
    let at = data.iter().position(|&b| b == b'\n').unwrap_or(data.len());
    let (name, list) = data.split_at(at);
    let _ = fullbore_base::matches_wildcard(name, list);
    let _ = pattern::matches_list(name, list);
    let _ = pattern::matches_host(name, list);
    let address = std::net::IpAddr::from([127, 0, 0, 1]);
    let _ = pattern::matches_address(address, Some(name), list);
    let _ = text::split_words(data);
    let _ = text::parse_duration(data);
    let _ = text::parse_size(data);
    if let Some(bytes) = text::base64_decode(data) {
        let printed = text::base64_encode(&bytes);
        assert_eq!(text::base64_decode(printed.as_bytes()), Some(bytes));
    }
    let shown = text::escape_for_display(data);
    assert!(!shown.contains(['\x1b', '\n']), "it would reach a terminal");
}

/// What is typed as a source or a target.
pub fn destination(data: &[u8]) {
    let _ = Location::parse(OsStr::from_bytes(data));
}

/// Lines of every kind.
#[must_use]
pub fn known_hosts_seeds() -> Vec<Vec<u8>> {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
    let text = format!(
        "host.example,10.0.0.1 {key} comment\n[host.example]:2222 {key}\n*.example,!no.example {key}\n\
         @cert-authority *.example {key}\n@revoked * {key}\n# comment\n\n\
         |1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= {key}\n"
    );
    vec![text.into_bytes()]
}

/// Options of every kind.
#[must_use]
pub fn authorized_keys_seeds() -> Vec<Vec<u8>> {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
    let text = format!(
        "{key} a comment\nrestrict,from=\"10.0.0.0/8,!10.0.0.1,*.example\",expiry-time=\"20301231\" {key}\n\
         command=\"internal-sftp -d /x -u 022\",no-pty,environment=\"A=\\\"b\\\"\" {key}\n\
         cert-authority,principals=\"a,b\" {key}\n# comment\n"
    );
    let parts: [&[u8]; 2] = [
        b"restrict,from=\"a b\"",
        b"internal-sftp -R -d '/a b' -P remove",
    ];
    let mut seeds = vec![text.into_bytes()];
    seeds.extend(parts.into_iter().map(<[u8]>::to_vec));
    seeds
}

/// Keywords, tokens, conditions, a file that includes itself.
#[must_use]
pub fn ssh_config_seeds() -> Vec<Vec<u8>> {
    let text = "Host *.example !no.example\n  Port 2222\n  HostName %h.%%\n  User \"a b\"\n\
                Match host x,y exec \"test %h\" user me\n  IdentityFile ~/.ssh/%r-%C\n\
                Match final all\nInclude conf.d/*\nCiphers +aes128-ctr\nKexAlgorithms ^curve*\n\
                RekeyLimit 1G 1h\nProxyJump a@b:22,ssh://c\nConnectTimeout=1m30\nUserKnownHostsFile a b\n\
                SetEnv A=b C=\"d e\"\nStrictHostKeyChecking accept-new\nCanonicalizeHostname yes\n";
    vec![text.as_bytes().to_vec()]
}

/// Names with their lists.
#[must_use]
pub fn patterns_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 5] = [
        b"host.example\n*.example,!no.*,h?st",
        b"127.0.0.1\n127.0.0.0/8,!10.0.0.0/8,::1",
        b"one \"two three\" 'four' fi\\ ve # six",
        b"1h30m",
        b"QUJD\n****************************************a",
    ];
    seeds.into_iter().map(<[u8]>::to_vec).collect()
}

/// Profiles that match and that do not, with every kind of value.
#[must_use]
pub fn quirks_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 3] = [
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\n[[server]]\nmatch = \"Open*\"\nsessions-max = 2\n",
        b"SSH-2.0-Acme_1\n# c\n[[server]] # d\nmatch = '*'\nignored-extensions = [\"a\", 'b']\n          serves-in-order = true\nsymlink-link-first = false\nhandles-max = 0\n",
        b"SSH-2.0-x\n[[server]]\nmatch=\"a\"\n[[server]]\nmatch=\"x\"\nreaddirs-max = 0\n",
    ];
    seeds.into_iter().map(<[u8]>::to_vec).collect()
}

/// Values of each kind, a hash, networks.
#[must_use]
pub fn settings_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 3] = [
        b"# c\nlisten = [\"0.0.0.0:2222\", '[::]:2222'] # d\nread-only = true\nlogin-grace = 20\nroot = \"/a \\\"b\\\"\\n\"\n",
        b"$pbkdf2-sha256$1000$AAECAwQFBgcICQoLDA0ODw$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n",
        b"10.0.0.0/8\nfd00::/8\n1.2.3.4\n",
    ];
    seeds.into_iter().map(<[u8]>::to_vec).collect()
}

/// Each form.
#[must_use]
pub fn destination_seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 7] = [
        b"user@host:/path/to",
        b"[::1]:path",
        b"user@[fe80::1%eth0]:",
        b"sftp://user@host:2222/a%20path",
        b"./local:with:colons",
        b"host:",
        b"scp://host/x",
    ];
    seeds.into_iter().map(<[u8]>::to_vec).collect()
}
