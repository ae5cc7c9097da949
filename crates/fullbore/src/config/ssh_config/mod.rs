//! ssh_config(5): from files and `-o` options to the settings of one host.
//!
//! The steps, each in its file: `line` splits a line, `keywords` says what each keyword takes,
//! `parser` walks files and decides which blocks apply (`criteria` for Match), `settings` keeps the
//! first value of each keyword, and `finish` turns them into a [`HostConfig`], filling in defaults and
//! expanding tokens (`tokens`).

mod algorithms;
mod criteria;
mod finish;
mod include;
mod keywords;
mod line;
mod parser;
mod resolve;
mod settings;
mod tokens;

use std::path::PathBuf;

pub use algorithms::AlgorithmDefaults;
pub use resolve::resolve;

/// What a copy asks of the configuration: the command line's part.
#[derive(Debug, Clone, Default)]
pub struct Request<'a> {
    /// The host as typed.
    pub host: &'a str,
    /// The user of `user@host`, if given.
    pub user: Option<&'a str>,
    /// `-o` options and the flags that stand for one, in order (`Port=2222`).
    pub options: &'a [String],
    /// `-F`.
    pub config_file: ConfigFile,
}

/// Which files are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ConfigFile {
    /// `~/.ssh/config`, then `/etc/ssh/ssh_config`; either may be missing.
    #[default]
    UserAndSystem,
    /// This one only; it must exist.
    Only(PathBuf),
    /// `-F none`.
    None,
}

/// Everything the configuration says about one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    /// The host as typed.
    pub original_host: String,
    /// The name or address to connect to.
    pub host_name: String,
    /// The port.
    pub port: u16,
    /// The user to log in as.
    pub user: String,
    /// How to get there.
    pub connection: ConnectionOptions,
    /// Whom to believe.
    pub host_keys: HostKeyOptions,
    /// What to offer in the key exchange.
    pub algorithms: AlgorithmOptions,
    /// How to log in.
    pub auth: AuthOptions,
    /// What to ask of the session.
    pub session: SessionOptions,
    /// Remarks for the user: what was read but has no effect here.
    pub warnings: Vec<String>,
}

/// Which addresses may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressFamily {
    /// Both.
    #[default]
    Any,
    /// IPv4 only.
    Inet,
    /// IPv6 only.
    Inet6,
}

/// Through what a connection is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// A command whose standard input and output are the connection, tokens already expanded.
    Command(Vec<u8>),
    /// Hosts to pass through, first hop first.
    Jump(Vec<JumpHost>),
}

/// One hop of ProxyJump: `[user@]host[:port]` or a `ssh://` URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JumpHost {
    /// The user, if given.
    pub user: Option<String>,
    /// The host as written; its own configuration applies.
    pub host: String,
    /// The port, if given.
    pub port: Option<u16>,
}

/// How to reach the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// AddressFamily.
    pub address_family: AddressFamily,
    /// BindAddress.
    pub bind_address: Option<String>,
    /// BindInterface.
    pub bind_interface: Option<String>,
    /// ConnectTimeout, seconds.
    pub connect_timeout: Option<u64>,
    /// ConnectionAttempts, one a second.
    pub connection_attempts: u32,
    /// ProxyCommand or ProxyJump.
    pub proxy: Option<Proxy>,
    /// ServerAliveInterval, seconds; 0 is never.
    pub server_alive_interval: u64,
    /// ServerAliveCountMax.
    pub server_alive_count_max: u32,
    /// TCPKeepAlive.
    pub tcp_keep_alive: bool,
    /// Compression.
    pub compression: bool,
    /// RekeyLimit's bytes; none is the cipher's own limit.
    pub rekey_bytes: Option<u64>,
    /// RekeyLimit's seconds; none is no limit.
    pub rekey_seconds: Option<u64>,
    /// RememberedServersFile: where to keep what saves round trips at the next connection; `None` for
    /// `none`.
    pub remembered_file: Option<PathBuf>,
    /// ControlMaster, ControlPath and ControlPersist; `None` where connections are not shared.
    pub sharing: Option<Sharing>,
}

/// How commands share one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// Where the one that has it listens. Beside OpenSSH's own, which speaks another language.
    pub socket: PathBuf,
    /// Whether to leave one behind, and for how long after its last client.
    pub persist: Option<Persist>,
}

/// ControlPersist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persist {
    /// `yes` or 0.
    Forever,
    /// So many seconds without a client.
    Seconds(u64),
}

/// What to do about a host key that known_hosts does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StrictHostKeyChecking {
    /// Refuse it (`yes`).
    Strict,
    /// Ask the user.
    #[default]
    Ask,
    /// Take an unknown one and remember it; a changed one is still refused.
    AcceptNew,
    /// Take it; a changed one too, with a warning and without password authentication (`no`, `off`).
    Off,
}

/// Host key checking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKeyOptions {
    /// StrictHostKeyChecking.
    pub strict: StrictHostKeyChecking,
    /// UserKnownHostsFile; the first one gets new keys. Empty for `none`.
    pub user_files: Vec<PathBuf>,
    /// GlobalKnownHostsFile.
    pub global_files: Vec<PathBuf>,
    /// RevokedHostKeys: a plain list of keys (not a KRL).
    pub revoked_file: Option<PathBuf>,
    /// HostKeyAlias: the name to look up instead of the host's.
    pub alias: Option<String>,
    /// HashKnownHosts.
    pub hash: bool,
    /// NoHostAuthenticationForLocalhost.
    pub skip_localhost: bool,
    /// UpdateHostKeys.
    pub update: UpdateHostKeys,
}

/// Whether further keys that a known host proves to have are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdateHostKeys {
    /// They are not. The default where UserKnownHostsFile was set.
    #[default]
    No,
    /// They are. The default elsewhere.
    Yes,
    /// The user is asked.
    Ask,
}

/// What may be offered, best first; the lists are final (defaults and `+ - ^` applied).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlgorithmOptions {
    /// Ciphers.
    pub ciphers: Vec<String>,
    /// MACs.
    pub macs: Vec<String>,
    /// KexAlgorithms.
    pub kex: Vec<String>,
    /// HostKeyAlgorithms.
    pub host_keys: Vec<String>,
    /// Whether HostKeyAlgorithms was given: then its order is the user's and is not changed by what
    /// known_hosts holds.
    pub host_keys_given: bool,
    /// PubkeyAcceptedAlgorithms.
    pub pubkey_accepted: Vec<String>,
    /// CASignatureAlgorithms.
    pub ca_signatures: Vec<String>,
    /// RequiredRSASize, bits.
    pub rsa_bits_min: u32,
}

/// Where the agent listens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum IdentityAgent {
    /// What the variable SSH_AUTH_SOCK says, if it is set.
    #[default]
    FromEnvironment,
    /// No agent.
    None,
    /// This socket.
    Socket(PathBuf),
}

/// A key file that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFile {
    /// The file, tokens and `~` expanded.
    pub path: PathBuf,
    /// Whether the user named it; a default that is missing is not worth a word.
    pub given: bool,
}

/// Logging in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthOptions {
    /// IdentityFile, in order; the defaults when none is named. Empty for `none`.
    pub identity_files: Vec<IdentityFile>,
    /// CertificateFile.
    pub certificate_files: Vec<PathBuf>,
    /// IdentitiesOnly.
    pub identities_only: bool,
    /// IdentityAgent.
    pub agent: IdentityAgent,
    /// AddKeysToAgent was asked for (not done here; noted in the warnings).
    pub add_keys_to_agent: bool,
    /// PreferredAuthentications; empty is the usual order.
    pub preferred: Vec<String>,
    /// PubkeyAuthentication.
    pub pubkey: bool,
    /// PasswordAuthentication.
    pub password: bool,
    /// KbdInteractiveAuthentication.
    pub keyboard_interactive: bool,
    /// KbdInteractiveDevices, comma-separated; empty lets the server choose.
    pub keyboard_interactive_devices: String,
    /// NumberOfPasswordPrompts.
    pub password_prompts: u32,
    /// BatchMode: ask nothing.
    pub batch: bool,
}

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[allow(missing_docs)] // the names are ssh_config's own levels
pub enum LogLevel {
    Quiet,
    Fatal,
    Error,
    #[default]
    Info,
    Verbose,
    Debug1,
    Debug2,
    Debug3,
}

/// What goes with the session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionOptions {
    /// LogLevel.
    pub log_level: LogLevel,
    /// SetEnv and the variables that SendEnv selects, as name and value.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// IPQoS for bulk data, as the byte that goes into packets, if given.
    pub tos: Option<u32>,
}

#[cfg(test)]
mod tests;
