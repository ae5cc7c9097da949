//! Every keyword of ssh_config(5): what it takes, and whether it means anything here.

/// A keyword that has a meaning here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Keyword {
    Host,
    Match,
    Include,
    IgnoreUnknown,
    AddKeysToAgent,
    AddressFamily,
    BatchMode,
    BindAddress,
    BindInterface,
    CanonicalDomains,
    CanonicalizeFallbackLocal,
    CanonicalizeHostname,
    CanonicalizeMaxDots,
    CanonicalizePermittedCnames,
    CaSignatureAlgorithms,
    CertificateFile,
    Ciphers,
    Compression,
    ConnectionAttempts,
    ConnectTimeout,
    ControlMaster,
    ControlPath,
    ControlPersist,
    GlobalKnownHostsFile,
    HashKnownHosts,
    HostKeyAlgorithms,
    HostKeyAlias,
    HostName,
    IdentitiesOnly,
    IdentityAgent,
    IdentityFile,
    IpQos,
    KbdInteractiveAuthentication,
    KbdInteractiveDevices,
    KexAlgorithms,
    KnownHostsCommand,
    LogLevel,
    Macs,
    NoHostAuthenticationForLocalhost,
    NumberOfPasswordPrompts,
    PasswordAuthentication,
    Port,
    PreferredAuthentications,
    ProxyCommand,
    ProxyJump,
    ProxyUseFdpass,
    PubkeyAcceptedAlgorithms,
    PubkeyAuthentication,
    RekeyLimit,
    RememberedServersFile,
    RequiredRsaSize,
    RevokedHostKeys,
    SendEnv,
    ServerAliveCountMax,
    ServerAliveInterval,
    SetEnv,
    StrictHostKeyChecking,
    Tag,
    TcpKeepAlive,
    UpdateHostKeys,
    User,
    UserKnownHostsFile,
}

/// What a keyword takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Read by the parser itself.
    Block,
    /// `yes` or `no` (`true`, `false`).
    Flag,
    /// One word.
    Word,
    /// One word, added to those before it.
    WordsAdded,
    /// One word, a list with commas.
    Names,
    /// One or more words; the first line that has any wins.
    Words,
    /// One or more words, added to those before.
    WordsMore,
    /// The rest of the line, as written.
    Line,
    /// A number in this range.
    Number(u64, u64),
    /// A time in seconds, or `none`.
    Duration,
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
}

const STRICT: &[&str] = &["yes", "no", "ask", "accept-new", "off", "true", "false"];
const FAMILIES: &[&str] = &["any", "inet", "inet6"];
const CANONICALIZE: &[&str] = &["no", "yes", "always", "true", "false"];
const PUBKEY: &[&str] = &["yes", "no", "true", "false", "unbound", "host-bound"];
const CONTROL: &[&str] = &["yes", "no", "true", "false", "ask", "auto", "autoask"];
const YES_NO_ASK: &[&str] = &["yes", "no", "true", "false", "ask"];
const LEVELS: &[&str] = &[
    "quiet", "fatal", "error", "info", "verbose", "debug", "debug1", "debug2", "debug3",
];

type Row = (&'static str, Keyword, Shape);

/// Keywords with a meaning, old names included, sorted.
const TABLE: &[Row] = &[
    ("addkeystoagent", Keyword::AddKeysToAgent, Shape::Words),
    (
        "addressfamily",
        Keyword::AddressFamily,
        Shape::Choice(FAMILIES),
    ),
    ("batchmode", Keyword::BatchMode, Shape::Flag),
    ("bindaddress", Keyword::BindAddress, Shape::Word),
    ("bindinterface", Keyword::BindInterface, Shape::Word),
    ("canonicaldomains", Keyword::CanonicalDomains, Shape::Words),
    (
        "canonicalizefallbacklocal",
        Keyword::CanonicalizeFallbackLocal,
        Shape::Flag,
    ),
    (
        "canonicalizehostname",
        Keyword::CanonicalizeHostname,
        Shape::Choice(CANONICALIZE),
    ),
    (
        "canonicalizemaxdots",
        Keyword::CanonicalizeMaxDots,
        Shape::Number(0, 255),
    ),
    (
        "canonicalizepermittedcnames",
        Keyword::CanonicalizePermittedCnames,
        Shape::Words,
    ),
    (
        "casignaturealgorithms",
        Keyword::CaSignatureAlgorithms,
        Shape::Names,
    ),
    (
        "certificatefile",
        Keyword::CertificateFile,
        Shape::WordsAdded,
    ),
    (
        "challengeresponseauthentication",
        Keyword::KbdInteractiveAuthentication,
        Shape::Flag,
    ),
    ("ciphers", Keyword::Ciphers, Shape::Names),
    ("compression", Keyword::Compression, Shape::Flag),
    (
        "connectionattempts",
        Keyword::ConnectionAttempts,
        Shape::Number(1, 1 << 20),
    ),
    ("connecttimeout", Keyword::ConnectTimeout, Shape::Duration),
    (
        "controlmaster",
        Keyword::ControlMaster,
        Shape::Choice(CONTROL),
    ),
    ("controlpath", Keyword::ControlPath, Shape::Word),
    ("controlpersist", Keyword::ControlPersist, Shape::Word),
    (
        "globalknownhostsfile",
        Keyword::GlobalKnownHostsFile,
        Shape::Words,
    ),
    ("hashknownhosts", Keyword::HashKnownHosts, Shape::Flag),
    ("host", Keyword::Host, Shape::Block),
    (
        "hostkeyalgorithms",
        Keyword::HostKeyAlgorithms,
        Shape::Names,
    ),
    ("hostkeyalias", Keyword::HostKeyAlias, Shape::Word),
    ("hostname", Keyword::HostName, Shape::Word),
    ("identitiesonly", Keyword::IdentitiesOnly, Shape::Flag),
    ("identityagent", Keyword::IdentityAgent, Shape::Word),
    ("identityfile", Keyword::IdentityFile, Shape::WordsAdded),
    ("identityfile2", Keyword::IdentityFile, Shape::WordsAdded),
    ("ignoreunknown", Keyword::IgnoreUnknown, Shape::Names),
    ("include", Keyword::Include, Shape::Block),
    ("ipqos", Keyword::IpQos, Shape::Words),
    (
        "kbdinteractiveauthentication",
        Keyword::KbdInteractiveAuthentication,
        Shape::Flag,
    ),
    (
        "kbdinteractivedevices",
        Keyword::KbdInteractiveDevices,
        Shape::Names,
    ),
    ("keepalive", Keyword::TcpKeepAlive, Shape::Flag),
    ("kexalgorithms", Keyword::KexAlgorithms, Shape::Names),
    ("knownhostscommand", Keyword::KnownHostsCommand, Shape::Line),
    ("loglevel", Keyword::LogLevel, Shape::Choice(LEVELS)),
    ("macs", Keyword::Macs, Shape::Names),
    ("match", Keyword::Match, Shape::Block),
    (
        "nohostauthenticationforlocalhost",
        Keyword::NoHostAuthenticationForLocalhost,
        Shape::Flag,
    ),
    (
        "numberofpasswordprompts",
        Keyword::NumberOfPasswordPrompts,
        Shape::Number(0, 1 << 20),
    ),
    (
        "passwordauthentication",
        Keyword::PasswordAuthentication,
        Shape::Flag,
    ),
    ("port", Keyword::Port, Shape::Number(1, 65535)),
    (
        "preferredauthentications",
        Keyword::PreferredAuthentications,
        Shape::Names,
    ),
    ("proxycommand", Keyword::ProxyCommand, Shape::Line),
    ("proxyjump", Keyword::ProxyJump, Shape::Word),
    ("proxyusefdpass", Keyword::ProxyUseFdpass, Shape::Flag),
    (
        "pubkeyacceptedalgorithms",
        Keyword::PubkeyAcceptedAlgorithms,
        Shape::Names,
    ),
    (
        "pubkeyacceptedkeytypes",
        Keyword::PubkeyAcceptedAlgorithms,
        Shape::Names,
    ),
    (
        "pubkeyauthentication",
        Keyword::PubkeyAuthentication,
        Shape::Choice(PUBKEY),
    ),
    ("rekeylimit", Keyword::RekeyLimit, Shape::Words),
    // Ours alone: for OpenSSH's programs it goes under IgnoreUnknown.
    (
        "rememberedserversfile",
        Keyword::RememberedServersFile,
        Shape::Word,
    ),
    (
        "requiredrsasize",
        Keyword::RequiredRsaSize,
        Shape::Number(0, 1 << 20),
    ),
    ("revokedhostkeys", Keyword::RevokedHostKeys, Shape::Word),
    ("sendenv", Keyword::SendEnv, Shape::WordsMore),
    (
        "serveralivecountmax",
        Keyword::ServerAliveCountMax,
        Shape::Number(0, 1 << 30),
    ),
    (
        "serveraliveinterval",
        Keyword::ServerAliveInterval,
        Shape::Duration,
    ),
    ("setenv", Keyword::SetEnv, Shape::Words),
    (
        "skeyauthentication",
        Keyword::KbdInteractiveAuthentication,
        Shape::Flag,
    ),
    (
        "stricthostkeychecking",
        Keyword::StrictHostKeyChecking,
        Shape::Choice(STRICT),
    ),
    ("tag", Keyword::Tag, Shape::Word),
    ("tcpkeepalive", Keyword::TcpKeepAlive, Shape::Flag),
    (
        "tisauthentication",
        Keyword::KbdInteractiveAuthentication,
        Shape::Flag,
    ),
    (
        "updatehostkeys",
        Keyword::UpdateHostKeys,
        Shape::Choice(YES_NO_ASK),
    ),
    ("user", Keyword::User, Shape::Word),
    (
        "userknownhostsfile",
        Keyword::UserKnownHostsFile,
        Shape::Words,
    ),
];

/// OpenSSH's other keywords: forwarding, terminals, multiplexing, Kerberos, and what it has itself
/// retired. They say nothing about a file copy and are passed over, whatever they hold.
const WITHOUT_MEANING: &[&str] = &[
    "afstokenpassing",
    "channeltimeout",
    "checkhostip",
    "cipher",
    "clearallforwardings",
    "compressionlevel",
    "dsaauthentication",
    "dynamicforward",
    "enableescapecommandline",
    "enablesshkeysign",
    "escapechar",
    "exitonforwardfailure",
    "fallbacktorsh",
    "fingerprinthash",
    "forkafterauthentication",
    "forwardagent",
    "forwardx11",
    "forwardx11timeout",
    "forwardx11trusted",
    "gatewayports",
    "globalknownhostsfile2",
    "gssapiauthentication",
    "gssapiclientidentity",
    "gssapidelegatecredentials",
    "gssapikexalgorithms",
    "gssapikeyexchange",
    "gssapirenewalforcesrekey",
    "gssapiserveridentity",
    "gssapitrustdns",
    "hostbasedacceptedalgorithms",
    "hostbasedauthentication",
    "hostbasedkeytypes",
    "kerberosauthentication",
    "kerberostgtpassing",
    "localcommand",
    "localforward",
    "logverbose",
    "obscurekeystroketiming",
    "permitlocalcommand",
    "permitremoteopen",
    "pkcs11provider",
    "protocol",
    "refuseconnection",
    "remotecommand",
    "remoteforward",
    "requesttty",
    "rhostsauthentication",
    "rhostsrsaauthentication",
    "rsaauthentication",
    "securitykeyprovider",
    "sessiontype",
    "smartcarddevice",
    "stdinnull",
    "streamlocalbindmask",
    "streamlocalbindunlink",
    "syslogfacility",
    "tunnel",
    "tunneldevice",
    "useprivilegedport",
    "useroaming",
    "usersh",
    "userknownhostsfile2",
    "verifyhostkeydns",
    "versionaddendum",
    "visualhostkey",
    "warnweakcrypto",
    "xauthlocation",
];

/// What a word at the start of a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// A keyword with a meaning here.
    Known(Keyword, Shape),
    /// One of OpenSSH's that has none.
    WithoutMeaning,
    /// None of OpenSSH's.
    Unknown,
}

/// Looks a word in lower case up.
pub(super) fn lookup(word: &str) -> Lookup {
    if let Ok(at) = TABLE.binary_search_by(|row| row.0.cmp(word)) {
        return Lookup::Known(TABLE[at].1, TABLE[at].2);
    }
    if WITHOUT_MEANING.contains(&word) {
        return Lookup::WithoutMeaning;
    }
    Lookup::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_the_lists_do_not_overlap() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(TABLE.iter().all(|row| !WITHOUT_MEANING.contains(&row.0)));
        assert!(matches!(lookup("port"), Lookup::Known(Keyword::Port, _)));
        assert_eq!(lookup("forwardx11"), Lookup::WithoutMeaning);
        assert_eq!(lookup("frobnicate"), Lookup::Unknown);
    }
}
