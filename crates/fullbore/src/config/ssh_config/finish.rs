//! From the values that won to a [`HostConfig`]: defaults, tokens, and what only makes sense together.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use fullbore_base::matches_wildcard;

use super::algorithms::{self, RSA_BITS_MIN_DEFAULT};
use super::keywords::Keyword;
use super::parser::Parser;
use super::settings::Settings;
use super::tokens::{PROXY, Tokens, expand_variables};
use super::{
    AddressFamily, AlgorithmDefaults, AlgorithmOptions, AuthOptions, ConnectionOptions, HostConfig,
    HostKeyOptions, IdentityAgent, IdentityFile, JumpHost, LogLevel, Persist, Proxy,
    SessionOptions, Sharing, StrictHostKeyChecking, UpdateHostKeys,
};
use crate::config::text::{escape_for_display, parse_duration, parse_size};
use crate::config::{ConfigError, Environment};

/// Key files that are tried when none is named. OpenSSH's, the small and fast ones first.
pub(super) const DEFAULT_IDENTITIES: &[&str] = &[
    "~/.ssh/id_ed25519",
    "~/.ssh/id_ecdsa",
    "~/.ssh/id_ed25519_sk",
    "~/.ssh/id_ecdsa_sk",
    "~/.ssh/id_rsa",
];

const USER_KNOWN_HOSTS: &[&str] = &["~/.ssh/known_hosts", "~/.ssh/known_hosts2"];
const GLOBAL_KNOWN_HOSTS: &[&str] = &["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"];

struct Finisher<'a> {
    environment: &'a dyn Environment,
    settings: Settings,
    tokens: Tokens,
    warnings: Vec<String>,
}

/// Makes the result.
pub(super) fn finish(
    parser: Parser<'_>,
    defaults: &AlgorithmDefaults,
    host_name: String,
) -> Result<HostConfig, ConfigError> {
    let settings = &parser.settings;
    let original_host = parser.request.host.to_owned();
    let user = settings
        .text(Keyword::User)
        .unwrap_or_else(|| parser.environment.user());
    let port = settings.number(Keyword::Port).unwrap_or(22);
    let port = u16::try_from(port).expect("the keyword's table bounds ports");
    let tokens = Tokens {
        host: host_name.clone(),
        original_host: original_host.clone(),
        port,
        user: user.clone(),
        key_alias: settings
            .text(Keyword::HostKeyAlias)
            .unwrap_or_else(|| original_host.clone()),
        jump: settings
            .text(Keyword::ProxyJump)
            .filter(|jump| jump != "none")
            .unwrap_or_default(),
    };
    let mut finisher = Finisher {
        environment: parser.environment,
        settings: parser.settings,
        tokens,
        warnings: parser.warnings,
    };
    let config = finisher.host_config(defaults);
    let (connection, host_keys, algorithms, auth, session) =
        config.map_err(ConfigError::command_line)?;
    Ok(HostConfig {
        original_host,
        host_name,
        port,
        user,
        connection,
        host_keys,
        algorithms,
        auth,
        session,
        warnings: finisher.warnings,
    })
}

/// Name and value of an environment variable.
type Variable = (Vec<u8>, Vec<u8>);

type Parts = (
    ConnectionOptions,
    HostKeyOptions,
    AlgorithmOptions,
    AuthOptions,
    SessionOptions,
);

impl Finisher<'_> {
    fn host_config(&mut self, defaults: &AlgorithmDefaults) -> Result<Parts, String> {
        self.warn_of_unsupported();
        Ok((
            self.connection()?,
            self.host_keys()?,
            self.algorithms(defaults)?,
            self.auth()?,
            self.session()?,
        ))
    }

    fn warn_of_unsupported(&mut self) {
        if self.settings.flag(Keyword::ProxyUseFdpass, false) {
            self.warnings
                .push("ProxyUseFdpass is not supported; the command's output is used".to_owned());
        }
        if self.settings.has(Keyword::KnownHostsCommand) {
            self.warnings
                .push("KnownHostsCommand is not supported; only files are read".to_owned());
        }
    }

    fn connection(&self) -> Result<ConnectionOptions, String> {
        let settings = &self.settings;
        let number = |keyword, default| settings.number(keyword).unwrap_or(default);
        let small = |keyword, default| u32::try_from(number(keyword, default)).unwrap_or(u32::MAX);
        let (rekey_bytes, rekey_seconds) = self.rekey_limit()?;
        Ok(ConnectionOptions {
            address_family: match settings.choice(Keyword::AddressFamily) {
                Some("inet") => AddressFamily::Inet,
                Some("inet6") => AddressFamily::Inet6,
                _ => AddressFamily::Any,
            },
            bind_address: settings.text(Keyword::BindAddress),
            bind_interface: settings.text(Keyword::BindInterface),
            connect_timeout: settings.number(Keyword::ConnectTimeout),
            connection_attempts: small(Keyword::ConnectionAttempts, 1),
            proxy: self.proxy()?,
            server_alive_interval: number(Keyword::ServerAliveInterval, 0),
            server_alive_count_max: small(Keyword::ServerAliveCountMax, 3),
            tcp_keep_alive: settings.flag(Keyword::TcpKeepAlive, true),
            compression: settings.flag(Keyword::Compression, false),
            rekey_bytes,
            rekey_seconds,
            remembered_file: self.remembered_file()?,
            sharing: self.sharing()?,
        })
    }

    /// Sharing is wanted by whoever names a socket, or asks for a master.
    fn sharing(&self) -> Result<Option<Sharing>, String> {
        let settings = &self.settings;
        let is_master = matches!(
            settings.choice(Keyword::ControlMaster),
            Some("yes" | "true" | "auto")
        );
        let mut paths = self.paths(Keyword::ControlPath, &[])?;
        let socket = match (paths.pop(), is_master) {
            (Some(path), _) => {
                let mut name = path.into_os_string();
                name.push(".fullbore");
                PathBuf::from(name)
            }
            (None, true) if !settings.has(Keyword::ControlPath) => self.default_socket()?,
            (None, _) => return Ok(None),
        };
        let persist = self.persist()?.filter(|_| is_master);
        Ok(Some(Sharing { socket, persist }))
    }

    fn persist(&self) -> Result<Option<Persist>, String> {
        let Some(word) = self.settings.word(Keyword::ControlPersist) else {
            return Ok(None);
        };
        Ok(match word.to_ascii_lowercase().as_slice() {
            b"no" | b"false" => None,
            b"yes" | b"true" => Some(Persist::Forever),
            word => match parse_duration(word).ok_or("ControlPersist: not a time, yes or no")? {
                0 => Some(Persist::Forever),
                seconds => Some(Persist::Seconds(seconds)),
            },
        })
    }

    /// In the folder for what ends with the user's session, else with what is remembered.
    fn default_socket(&self) -> Result<PathBuf, String> {
        let folder = self.environment.variable("XDG_RUNTIME_DIR");
        let folder = folder.map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = match folder {
            Some(folder) => folder.join("fullbore"),
            None => self.state_folder().join("fullbore/masters"),
        };
        let name = self.tokens.path(self.environment, b"%C")?;
        Ok(folder.join(name))
    }

    /// As the XDG base directory specification has it.
    fn state_folder(&self) -> PathBuf {
        let state = self.environment.variable("XDG_STATE_HOME");
        let state = state.map(PathBuf::from).filter(|path| path.is_absolute());
        state.unwrap_or_else(|| self.environment.home().join(".local/state"))
    }

    /// By default a file under the user's state folder.
    fn remembered_file(&self) -> Result<Option<PathBuf>, String> {
        if self.settings.has(Keyword::RememberedServersFile) {
            let mut paths = self.paths(Keyword::RememberedServersFile, &[])?;
            return Ok(paths.pop());
        }
        Ok(Some(self.state_folder().join("fullbore/servers")))
    }

    fn rekey_limit(&self) -> Result<(Option<u64>, Option<u64>), String> {
        let Some(words) = self.settings.words(Keyword::RekeyLimit) else {
            return Ok((None, None));
        };
        let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let bytes = match words.first() {
            Some(word) if !is(word, "default") => {
                let bytes = parse_size(word).ok_or("RekeyLimit: not a number of bytes")?;
                // OpenSSH's own lower bound.
                if bytes != 0 && bytes < 16 {
                    return Err("RekeyLimit: fewer than 16 bytes".to_owned());
                }
                Some(bytes).filter(|bytes| *bytes != 0)
            }
            _ => None,
        };
        let seconds = match words.get(1) {
            Some(word) if !is(word, "none") => {
                Some(parse_duration(word).ok_or("RekeyLimit: not a time")?).filter(|s| *s != 0)
            }
            _ => None,
        };
        if words.len() > 2 {
            return Err("RekeyLimit: takes bytes and a time".to_owned());
        }
        Ok((bytes, seconds))
    }

    fn proxy(&self) -> Result<Option<Proxy>, String> {
        let expand = |text: &[u8]| self.tokens.expand(self.environment, text, PROXY);
        if let Some(command) = self.settings.word(Keyword::ProxyCommand) {
            if command.eq_ignore_ascii_case(b"none") {
                return Ok(None);
            }
            let command = expand(command).map_err(|what| format!("ProxyCommand: {what}"))?;
            return Ok(Some(Proxy::Command(command)));
        }
        match self.settings.word(Keyword::ProxyJump) {
            Some(jump) if !jump.eq_ignore_ascii_case(b"none") => {
                let jump = expand(jump).map_err(|what| format!("ProxyJump: {what}"))?;
                let hops = jump.split(|b| *b == b',').map(jump_host);
                hops.collect::<Result<_, _>>().map(|h| Some(Proxy::Jump(h)))
            }
            _ => Ok(None),
        }
    }

    fn host_keys(&self) -> Result<HostKeyOptions, String> {
        let settings = &self.settings;
        Ok(HostKeyOptions {
            strict: match settings.choice(Keyword::StrictHostKeyChecking) {
                Some("yes" | "true") => StrictHostKeyChecking::Strict,
                Some("no" | "off" | "false") => StrictHostKeyChecking::Off,
                Some("accept-new") => StrictHostKeyChecking::AcceptNew,
                _ => StrictHostKeyChecking::Ask,
            },
            user_files: self.paths(Keyword::UserKnownHostsFile, USER_KNOWN_HOSTS)?,
            global_files: self.paths(Keyword::GlobalKnownHostsFile, GLOBAL_KNOWN_HOSTS)?,
            revoked_file: self.paths(Keyword::RevokedHostKeys, &[])?.pop(),
            alias: settings.text(Keyword::HostKeyAlias),
            hash: settings.flag(Keyword::HashKnownHosts, false),
            skip_localhost: settings.flag(Keyword::NoHostAuthenticationForLocalhost, false),
            update: match settings.choice(Keyword::UpdateHostKeys) {
                Some("yes" | "true") => UpdateHostKeys::Yes,
                Some("ask") => UpdateHostKeys::Ask,
                None if !settings.has(Keyword::UserKnownHostsFile) => UpdateHostKeys::Yes,
                Some(_) | None => UpdateHostKeys::No,
            },
        })
    }

    /// The paths of a keyword, or its defaults; `none` empties the list.
    fn paths(&self, keyword: Keyword, defaults: &[&str]) -> Result<Vec<PathBuf>, String> {
        let expand = |word: &[u8]| {
            self.tokens
                .path(self.environment, word)
                .map_err(|what| format!("{keyword:?}: {what}"))
        };
        match self.settings.words(keyword) {
            Some(words) => words
                .iter()
                .filter(|word| !word.eq_ignore_ascii_case(b"none"))
                .map(|word| expand(word))
                .collect(),
            None => defaults.iter().map(|d| expand(d.as_bytes())).collect(),
        }
    }

    fn algorithms(&mut self, defaults: &AlgorithmDefaults) -> Result<AlgorithmOptions, String> {
        let rsa_bits_min = self.settings.number(Keyword::RequiredRsaSize);
        Ok(AlgorithmOptions {
            ciphers: self.list(Keyword::Ciphers, &defaults.ciphers)?,
            macs: self.list(Keyword::Macs, &defaults.macs)?,
            kex: self.list(Keyword::KexAlgorithms, &defaults.kex)?,
            host_keys: self.list(Keyword::HostKeyAlgorithms, &defaults.host_keys)?,
            host_keys_given: self.settings.has(Keyword::HostKeyAlgorithms),
            pubkey_accepted: self
                .list(Keyword::PubkeyAcceptedAlgorithms, &defaults.pubkey_accepted)?,
            ca_signatures: self.list(Keyword::CaSignatureAlgorithms, &defaults.ca_signatures)?,
            rsa_bits_min: rsa_bits_min
                .and_then(|bits| u32::try_from(bits).ok())
                .unwrap_or(RSA_BITS_MIN_DEFAULT),
        })
    }

    fn list(&mut self, keyword: Keyword, defaults: &[String]) -> Result<Vec<String>, String> {
        let Some(spec) = self.settings.text(keyword) else {
            return Ok(defaults.to_vec());
        };
        let (list, unknown) = algorithms::apply(&spec, defaults);
        if list.is_empty() {
            return Err(format!(
                "{keyword:?} {spec}: leaves nothing that is spoken here; there is {}",
                defaults.join(",")
            ));
        }
        if !unknown.is_empty() {
            let unknown = unknown.join(",");
            self.warnings
                .push(format!("{keyword:?}: {unknown} not spoken here, left out"));
        }
        Ok(list)
    }

    fn auth(&self) -> Result<AuthOptions, String> {
        let settings = &self.settings;
        let given = settings.has(Keyword::IdentityFile);
        let files = self.paths(Keyword::IdentityFile, DEFAULT_IDENTITIES)?;
        let prompts = settings.number(Keyword::NumberOfPasswordPrompts);
        let preferred = settings.text(Keyword::PreferredAuthentications);
        Ok(AuthOptions {
            identity_files: files
                .into_iter()
                .map(|path| IdentityFile { path, given })
                .collect(),
            certificate_files: self.paths(Keyword::CertificateFile, &[])?,
            identities_only: settings.flag(Keyword::IdentitiesOnly, false),
            agent: self.agent()?,
            add_keys_to_agent: settings
                .word(Keyword::AddKeysToAgent)
                .is_some_and(|word| !matches!(word, b"no" | b"false")),
            preferred: preferred
                .map(|list| list.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
            pubkey: !matches!(
                settings.choice(Keyword::PubkeyAuthentication),
                Some("no" | "false")
            ),
            password: settings.flag(Keyword::PasswordAuthentication, true),
            keyboard_interactive: settings.flag(Keyword::KbdInteractiveAuthentication, true),
            keyboard_interactive_devices: settings
                .text(Keyword::KbdInteractiveDevices)
                .unwrap_or_default(),
            password_prompts: prompts.and_then(|n| u32::try_from(n).ok()).unwrap_or(3),
            batch: settings.flag(Keyword::BatchMode, false),
        })
    }

    fn agent(&self) -> Result<IdentityAgent, String> {
        let word = match self.settings.word(Keyword::IdentityAgent) {
            None | Some(b"SSH_AUTH_SOCK") => return Ok(IdentityAgent::FromEnvironment),
            Some(b"none") => return Ok(IdentityAgent::None),
            Some(word) => word,
        };
        // "$NAME" is the variable NAME, as a whole.
        if let Some(name) = word.strip_prefix(b"$").filter(|n| n.first() != Some(&b'{')) {
            let name = String::from_utf8_lossy(name);
            return Ok(match self.environment.variable(&name) {
                Some(path) => IdentityAgent::Socket(PathBuf::from(path)),
                None => IdentityAgent::None,
            });
        }
        let path = self.tokens.path(self.environment, word);
        path.map(IdentityAgent::Socket)
            .map_err(|what| format!("IdentityAgent: {what}"))
    }

    /// IPQoS: the second word is for sessions without a terminal; one word is for all.
    fn tos(&self) -> Result<Option<u32>, String> {
        let words = self.settings.words(Keyword::IpQos).unwrap_or_default();
        let Some(word) = words.get(1).or(words.first()) else {
            return Ok(None);
        };
        let name = String::from_utf8_lossy(word).to_ascii_lowercase();
        match name.as_str() {
            "none" => Ok(None),
            name => tos_of(name)
                .map(Some)
                .ok_or_else(|| format!("IPQoS: \"{}\" is none", escape_for_display(word))),
        }
    }

    fn session(&self) -> Result<SessionOptions, String> {
        let level = self.settings.choice(Keyword::LogLevel);
        Ok(SessionOptions {
            log_level: level.map_or(LogLevel::Info, log_level),
            environment: self.session_environment()?,
            tos: self.tos()?,
        })
    }

    /// SetEnv first: it wins over SendEnv for the same name.
    fn session_environment(&self) -> Result<Vec<Variable>, String> {
        let mut pairs: Vec<Variable> = Vec::new();
        for word in self.settings.words(Keyword::SetEnv).unwrap_or_default() {
            let equals = word
                .iter()
                .position(|b| *b == b'=')
                .filter(|at| *at != 0)
                .ok_or("SetEnv: NAME=VALUE is needed")?;
            let value = expand_variables(self.environment, &word[equals + 1..])
                .map_err(|what| format!("SetEnv: {what}"))?;
            if !pairs.iter().any(|(name, _)| *name == word[..equals]) {
                pairs.push((word[..equals].to_vec(), value));
            }
        }
        let patterns = self.sent_patterns();
        for name in self.environment.variable_names() {
            let is_sent = patterns
                .iter()
                .any(|p| matches_wildcard(name.as_bytes(), p));
            let is_set = pairs.iter().any(|(n, _)| n == name.as_bytes());
            if let Some(value) = self
                .environment
                .variable(&name)
                .filter(|_| is_sent && !is_set)
            {
                pairs.push((name.into_bytes(), value.as_bytes().to_vec()));
            }
        }
        Ok(pairs)
    }

    /// SendEnv's patterns; one with `-` in front clears those before it that it matches.
    fn sent_patterns(&self) -> Vec<&[u8]> {
        let mut patterns: Vec<&[u8]> = Vec::new();
        for word in self.settings.words(Keyword::SendEnv).unwrap_or_default() {
            match word.strip_prefix(b"-") {
                Some(cleared) => patterns.retain(|p| !matches_wildcard(p, cleared)),
                None => patterns.push(word),
            }
        }
        patterns
    }
}

fn log_level(word: &str) -> LogLevel {
    match word {
        "quiet" => LogLevel::Quiet,
        "fatal" => LogLevel::Fatal,
        "error" => LogLevel::Error,
        "verbose" => LogLevel::Verbose,
        "debug" | "debug1" => LogLevel::Debug1,
        "debug2" => LogLevel::Debug2,
        "debug3" => LogLevel::Debug3,
        _ => LogLevel::Info,
    }
}

/// `[user@]host[:port]`, `[user@][v6]:port` or `ssh://...`.
fn jump_host(text: &[u8]) -> Result<JumpHost, String> {
    let whole = || {
        format!(
            "ProxyJump: \"{}\" is no host",
            String::from_utf8_lossy(text)
        )
    };
    let text = std::str::from_utf8(text).map_err(|_| whole())?;
    let plain = text.strip_prefix("ssh://").unwrap_or(text);
    let plain = plain.strip_suffix('/').unwrap_or(plain);
    let (user, rest) = match plain.rsplit_once('@') {
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (None, plain),
    };
    let (host, port) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, after)) => (host, Some(after.strip_prefix(':').ok_or_else(whole)?)),
        None => match rest.split_once(':') {
            // More colons are a bare IPv6 address.
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (rest, None),
        },
    };
    let port = port
        .map(|port| crate::config::destination::parse_port(port.as_bytes()))
        .transpose()
        .map_err(|error| format!("ProxyJump: {error}"))?;
    if host.is_empty() || host.starts_with('-') || user.as_deref() == Some("") {
        return Err(whole());
    }
    Ok(JumpHost {
        user,
        host: host.to_owned(),
        port,
    })
}

/// The byte for a name of RFC 2474 (cs), 2597 (af), 3246 (ef), 8622 (le) or 1349, or for a number.
fn tos_of(name: &str) -> Option<u32> {
    let digits = |prefix: &str| name.strip_prefix(prefix).map(str::as_bytes);
    match (digits("af"), digits("cs")) {
        (Some(&[class @ b'1'..=b'4', drop @ b'1'..=b'3']), _) => {
            return Some(u32::from(class - b'0') << 5 | u32::from(drop - b'0') << 3);
        }
        (_, Some(&[class @ b'0'..=b'7'])) => return Some(u32::from(class - b'0') << 5),
        _ => {}
    }
    match name {
        "ef" => Some(0xb8),
        "le" => Some(0x04),
        "lowdelay" => Some(0x10),
        "throughput" => Some(0x08),
        "reliability" => Some(0x04),
        _ => {
            let number = match name.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => name.parse().ok(),
            };
            number.filter(|byte| *byte < 256)
        }
    }
}
